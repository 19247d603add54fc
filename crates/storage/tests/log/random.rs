//! Random operations on a log and on a model of it that keeps all batches in a vector; after every
//! step both must agree. Power fails now and then.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use model::batch::{Batches, HEADER_BYTES};
use model::record::Records;
use model::{BatchHeader, LeaderEpoch, Offset, ProducerId, Sequence, Timestamp};
use proptest::prelude::*;
use storage::disk::{Disk, SimDisk};
use storage::{CleanupPolicy, Derived, Log, LogConfig, Opening, ProducerVerdict};

use crate::fixture::*;

/// One step. Numbers from 0 to 99 mean a place between log start and log end.
#[derive(Clone, Debug)]
enum Step {
    Append { records: usize, key: u8, later_ms: i64, producer: Option<u8>, new_epoch: bool },
    AppendFollowing { batches: usize, gap: i64 },
    Sync,
    Checkpoint,
    Truncate(u8),
    Empty(u8),
    DeleteRecords(u8),
    Retain { bytes: u16 },
    Wait { ms: i64 },
    Compact { memory: u16 },
    Reopen { clean: bool },
    PowerFailure { seed: u64 },
    ReleaseFiles,
    Read { from: u8, to: u8, max_bytes: u16 },
    FindTime(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let producer = proptest::option::weighted(0.5, 0u8..4);
    prop_oneof![
        12 => (1usize..4, 0u8..12, -20i64..40, producer, prop::bool::weighted(0.15)).prop_map(
            |(records, key, later_ms, producer, new_epoch)| Step::Append {
                records, key, later_ms, producer, new_epoch
            }
        ),
        2 => (1usize..12, 0i64..3).prop_map(|(batches, gap)| Step::AppendFollowing { batches, gap }),
        3 => Just(Step::Sync),
        2 => Just(Step::Checkpoint),
        1 => (60u8..100).prop_map(Step::Truncate),
        1 => (0u8..100).prop_map(Step::Truncate),
        1 => (0u8..120).prop_map(Step::Empty),
        1 => (0u8..50).prop_map(Step::DeleteRecords),
        1 => (300u16..3000).prop_map(|bytes| Step::Retain { bytes }),
        1 => (0i64..2000).prop_map(|ms| Step::Wait { ms }),
        2 => prop_oneof![100u16..400, Just(60_000)].prop_map(|memory| Step::Compact { memory }),
        2 => any::<bool>().prop_map(|clean| Step::Reopen { clean }),
        2 => any::<u64>().prop_map(|seed| Step::PowerFailure { seed }),
        1 => Just(Step::ReleaseFiles),
        4 => (0u8..100, 0u8..110, 1u16..900)
            .prop_map(|(from, to, max_bytes)| Step::Read { from, to, max_bytes }),
        2 => (0u8..110).prop_map(Step::FindTime),
    ]
}

/// What the log is expected to hold.
#[derive(Clone, Default)]
struct Expected {
    /// Every batch since the log was last emptied, deleted ones too: producers remember them.
    batches: Vec<(BatchHeader, Vec<u8>)>,
    log_start: Offset,
    log_end: Offset,
}

impl Expected {
    fn truncate(&mut self, count: usize) {
        self.batches.truncate(count);
        let end = self.batches.last().map_or(self.log_start, |(header, _)| header.next_offset());
        self.log_end = end;
    }

    fn visible(&self) -> impl Iterator<Item = &(BatchHeader, Vec<u8>)> {
        self.batches.iter().filter(|(header, _)| header.last_offset() >= self.log_start)
    }
}

/// What the owner of the log remembers of it, durably.
#[derive(Default)]
struct Remembered {
    synced: Offset,
    derived: Option<Derived>,
    /// Those that the log told since.
    newer_epochs: Vec<(LeaderEpoch, Offset)>,
    /// From here on no offset is missing: gaps were allowed before.
    dense_from: Offset,
}

impl Remembered {
    fn sync(&mut self, log: &mut Log) {
        let synced = log.synced_below();
        self.newer_epochs.extend(log.tell_epochs(synced));
        self.synced = self.synced.max(synced);
    }

    fn checkpoint(&mut self, log: &mut Log) {
        self.sync(log);
        if let Some(derived) = log.derived() {
            self.newer_epochs.retain(|(_, start)| *start >= derived.end);
            self.derived = Some(derived.kept());
        }
    }

    fn truncate(&mut self, end: Offset) {
        self.synced = self.synced.min(end);
        self.derived = None;
        self.newer_epochs.retain(|(_, start)| *start < end);
        self.dense_from = self.dense_from.min(end);
    }
}

struct World {
    disk: SimDisk,
    config: LogConfig,
    log: Log,
    expected: Expected,
    now: Timestamp,
    epoch: i32,
    /// What the checkpoint files of the log directory say.
    recovery_point: Offset,
    log_start_written: Offset,
    /// The largest high watermark that the log was told: no truncation goes below it.
    high_watermark: Offset,
    sequences: BTreeMap<u8, (i16, i32)>,
    remembered: Remembered,
}

fn dir() -> PathBuf {
    PathBuf::from("/logs/orders-0")
}

fn open(disk: &SimDisk, config: &LogConfig, opening: Opening) -> Log {
    Log::open(Arc::new(disk.clone()), dir(), Arc::new(config.clone()), opening).unwrap()
}

impl World {
    fn new(cleanup: CleanupPolicy) -> World {
        let config = LogConfig {
            segment_bytes: 700,
            index_interval_bytes: 120,
            segment_index_bytes: 60,
            segment_ms: 1500,
            retention_ms: -1,
            cleanup,
            min_cleanable_dirty_ratio: 0.0,
            delete_retention_ms: 300,
            ..LogConfig::default()
        };
        let disk = SimDisk::new();
        disk.create_dir_all(dir().parent().unwrap()).unwrap();
        disk.sync_dir("/".as_ref()).unwrap();
        let opening = Opening { dense_from: Some(Offset(0)), ..Opening::unknown(NOW) };
        let log = open(&disk, &config, opening);
        World {
            disk,
            config,
            log,
            expected: Expected::default(),
            now: NOW,
            epoch: 0,
            recovery_point: Offset(0),
            log_start_written: Offset(0),
            high_watermark: Offset(0),
            sequences: BTreeMap::new(),
            remembered: Remembered::default(),
        }
    }

    /// A place between log start and log end, or behind it above 100.
    fn place(&self, hundredths: u8) -> Offset {
        let (start, end) = (self.log.log_start_offset().0, self.log.log_end_offset().0);
        Offset(start + (end - start) * hundredths as i64 / 100)
    }

    fn batch(&mut self, records: usize, key: u8, later_ms: i64) -> Batch {
        self.now = self.now.plus_ms(later_ms.max(0));
        let time = self.now.plus_ms(later_ms.min(0));
        let record = |n: usize| {
            let key = format!("key{}", (key as usize + n * 5) % 12).into_bytes();
            let value = (key[3] != b'7').then(|| vec![b'v'; 20 + n]);
            (time.plus_ms(-(n as i64)), Some(key), value)
        };
        Batch::records((0..records).map(record).collect()).epoch(self.epoch)
    }

    fn append(&mut self, bytes: &[u8]) {
        append_bytes(&mut self.log, bytes);
        for batch in Batches::new(bytes) {
            let (header, bytes) = batch.unwrap();
            self.expected.batches.push((header, bytes.to_vec()));
            self.expected.log_end = header.next_offset();
        }
    }

    fn append_as(&mut self, batch: Batch, producer: Option<u8>) {
        let mut batch = batch;
        if let Some(id) = producer {
            let (epoch, next) = *self.sequences.entry(id).or_insert((0, 0));
            batch = batch.producer(id as i64, epoch, next);
            self.sequences.insert(id, (epoch, next + batch.records.len() as i32));
        }
        let bytes = batch.bytes(self.log.log_end_offset());
        let header = BatchHeader::decode(&bytes).unwrap();
        assert_eq!(self.log.check_producer(&header), ProducerVerdict::Accept);
        self.append(&bytes);
    }

    /// After batches were lost, producers go on where the log says they are.
    fn resume_producers(&mut self) {
        let known = self.log.producers().map(|producer| {
            let next = producer.last_sequence.plus(1).0;
            (producer.producer_id.0 as u8, (producer.epoch.0, next))
        });
        self.sequences = known.collect();
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Append { records, key, later_ms, producer, new_epoch } => {
                self.epoch += *new_epoch as i32;
                let batch = self.batch(*records, *key, *later_ms);
                self.append_as(batch, *producer);
            }
            Step::AppendFollowing { batches, gap } => self.append_following(*batches, *gap),
            Step::Sync => {
                assert_eq!(sync(&mut self.log), self.log.log_end_offset());
                self.remembered.sync(&mut self.log);
            }
            Step::Checkpoint => self.checkpoint(),
            Step::Truncate(to) => self.truncate(self.place(*to)),
            Step::Empty(at) => self.empty(self.place(*at)),
            Step::DeleteRecords(before) => {
                let before = self.place(*before);
                self.log.delete_records_before(before).unwrap();
                self.expected.log_start = self.expected.log_start.max(before);
            }
            Step::Retain { bytes } => self.retain(*bytes as i64),
            Step::Wait { ms } => {
                self.now = self.now.plus_ms(*ms);
                self.log.roll_if_due(self.now).unwrap();
            }
            Step::Compact { memory } => self.compact(*memory as usize),
            Step::Reopen { clean } => self.reopen(*clean),
            Step::PowerFailure { seed } => self.fail_power(*seed),
            Step::ReleaseFiles => self.log.release_idle_files(),
            Step::Read { from, to, max_bytes } => self.read(*from, *to, *max_bytes as u32),
            Step::FindTime(at) => self.find_time(*at),
        }
        self.check();
    }

    fn append_following(&mut self, batches: usize, gap: i64) {
        let mut bytes = Vec::new();
        let mut base = self.log.log_end_offset();
        for n in 0..batches {
            base = base.plus(gap);
            let batch = self.batch(2, n as u8, 1);
            bytes.extend(batch.bytes(base));
            base = base.plus(2);
        }
        self.append(&bytes);
        if gap > 0 && batches > 0 {
            let from = &mut self.remembered.dense_from;
            *from = self.log.log_end_offset().max(*from);
        }
    }

    fn checkpoint(&mut self) {
        self.recovery_point = checkpoint(&mut self.log);
        self.log_start_written = self.log.log_start_offset();
        self.remembered.checkpoint(&mut self.log);
        assert_eq!(self.recovery_point, self.log.log_end_offset());
    }

    fn truncate(&mut self, to: Offset) {
        let to = to.max(self.high_watermark);
        self.log.truncate_to(to).unwrap();
        let end = self.log.log_end_offset();
        self.remembered.truncate(if to < self.expected.log_end { end } else { to });
        let keep = self.expected.batches.partition_point(|(h, _)| h.last_offset() < to);
        if to < self.expected.log_end {
            self.expected.truncate(keep);
        }
        if self.log.log_end_offset() == self.log.log_start_offset() {
            // Nothing is left: where an empty log stands is checked in check().
            self.note_emptied();
        }
        self.resume_producers();
    }

    fn note_emptied(&mut self) {
        if self.log.segment_count() == 1 && self.log.size_bytes() == 0 {
            let at = self.log.log_start_offset();
            assert!(at <= self.expected.log_start, "the start moved on by a truncation");
            if self.log.producers().next().is_none() {
                self.expected.batches.clear();
            }
            (self.expected.log_start, self.expected.log_end) = (at, at);
        }
    }

    fn empty(&mut self, at: Offset) {
        self.log.truncate_fully_and_start_at(at).unwrap();
        self.remembered = Remembered { synced: at, ..Remembered::default() };
        self.expected = Expected { batches: Vec::new(), log_start: at, log_end: at };
        self.sequences.clear();
        self.high_watermark = at;
    }

    fn retain(&mut self, bytes: i64) {
        let mut config = self.config.clone();
        config.retention_bytes = bytes;
        self.log.set_config(config.into());
        let before = self.log.log_start_offset();
        // Like a replica, it is durable before it counts.
        self.high_watermark = sync(&mut self.log);
        self.remembered.sync(&mut self.log);
        let deleted = self.log.retain(self.now, self.high_watermark).unwrap();
        deleted.iter().for_each(|old| old.remove(&self.disk).unwrap());
        self.log.set_config(self.config.clone().into());
        let start = self.log.log_start_offset();
        assert!(start >= before);
        if self.config.cleanup.delete {
            assert!((self.log.size_bytes() as i64) < bytes + 700, "too much was kept");
        }
        self.expected.log_start = start;
    }

    /// Compacts, checks what compaction promises, and takes over what is left.
    fn compact(&mut self, memory: usize) {
        let end = sync(&mut self.log);
        let Some(plan) = self.log.plan_compaction(self.now, end).unwrap() else { return };
        self.high_watermark = end;
        self.remembered.sync(&mut self.log);
        let compaction = plan.run(memory, [3, 5], &mut |_| true).unwrap().unwrap();
        let before = self.records();
        // What lies before the log start is compacted too; the model does not follow that.
        self.log_start_written = self.log.log_start_offset();
        let done = self.log.finish_compaction(compaction).unwrap();
        done.deleted.iter().for_each(|old| old.remove(&self.disk).unwrap());
        let bytes = read_all(&self.log, self.log.log_start_offset(), 1 << 20);
        let deleted = self.expected.batches.iter();
        let deleted = deleted.filter(|(h, _)| h.last_offset() < self.expected.log_start);
        let mut batches: Vec<_> = deleted.cloned().collect();
        let left = Batches::new(&bytes).map(|b| b.unwrap());
        batches.extend(left.map(|(header, bytes)| (header, bytes.to_vec())));
        self.expected.batches = batches;
        self.check_compacted(&before);
    }

    fn records(&self) -> Vec<ValueAt> {
        let mut records = Vec::new();
        for (header, bytes) in self.expected.visible() {
            for record in Records::new(&bytes[HEADER_BYTES..], header.record_count) {
                let record = record.unwrap();
                let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
                let offset = header.base_offset.0 + record.offset_delta as i64;
                records.push((offset, owned(record.key), owned(record.value)));
            }
        }
        records
    }

    fn check_compacted(&self, before: &[ValueAt]) {
        let after = self.records();
        let known: BTreeSet<_> = before.iter().collect();
        assert!(after.iter().all(|record| known.contains(record)), "nothing is made up or moved");
        let last = |records: &[ValueAt]| -> BTreeMap<Vec<u8>, (i64, Option<Vec<u8>>)> {
            let keyed = records.iter().cloned();
            keyed.map(|(offset, key, value)| (key.unwrap(), (offset, value))).collect()
        };
        let (old, new) = (last(before), last(&after));
        for (key, (offset, value)) in &old {
            match new.get(key) {
                Some(kept) => assert_eq!(kept, &(*offset, value.clone()), "the last value stays"),
                None => assert!(value.is_none(), "only a tombstone may go"),
            }
        }
        let behind = |records: &[ValueAt]| {
            let from = self.log.active_base_offset().0;
            records.iter().filter(|(offset, _, _)| *offset >= from).count()
        };
        assert_eq!(behind(before), behind(&after), "the active segment is as it was");
    }

    fn opening(&self, clean: bool) -> Opening {
        Opening {
            clean,
            recovery_point: self.recovery_point,
            log_start_offset: self.log_start_written,
            cleaned_below: self.log.cleaned_below(),
            synced: self.remembered.synced,
            derived: self.remembered.derived.clone(),
            newer_epochs: self.remembered.newer_epochs.clone(),
            dense_from: Some(self.remembered.dense_from),
            ..Opening::unknown(self.now)
        }
    }

    fn reopen(&mut self, clean: bool) {
        if clean {
            self.log.close().unwrap();
            self.recovery_point = self.log.recovery_point();
            self.remembered.checkpoint(&mut self.log);
        }
        self.log_start_written = self.log.log_start_offset();
        let files = self.disk.list(self.log.dir()).unwrap();
        let has_records = files.iter().any(|name| name.ends_with(".log"));
        self.log = open(&self.disk, &self.config, self.opening(clean));
        assert_eq!(self.log.recovery().is_some(), !clean && has_records);
        self.resume_producers();
    }

    fn fail_power(&mut self, seed: u64) {
        let durable = self.log.synced_below();
        self.disk = self.disk.after_crash(seed);
        self.log = open(&self.disk, &self.config, self.opening(false));
        let end = self.log.log_end_offset();
        assert!(end >= durable, "the log ends at {end}, but was durable up to {durable}");
        // DeleteRecords since the last checkpoint may be undone, retention not.
        let start = self.log.log_start_offset();
        assert!(start <= self.expected.log_start.max(self.log_start_written));
        self.expected.log_start = start;
        let keep = self.expected.batches.partition_point(|(h, _)| h.last_offset() < end);
        self.expected.truncate(keep);
        if self.expected.log_end < end {
            assert_eq!(self.expected.visible().count(), 0, "an end where no batch ended");
            self.expected.log_end = end;
        }
        self.resume_producers();
    }

    fn read(&self, from: u8, to: u8, max_bytes: u32) {
        let (from, to) = (self.place(from), self.place(to));
        // A limit is a batch boundary.
        let limits = self.expected.visible().map(|(h, _)| h.next_offset()).filter(|end| *end <= to);
        let limit = limits.last().unwrap_or(from);
        let found = read_to(&self.log, from, limit, max_bytes);
        let wanted = self.expected.batches.iter();
        let wanted = wanted.filter(|(h, _)| h.last_offset() >= from && h.next_offset() <= limit);
        let wanted: Vec<u8> = wanted.flat_map(|(_, bytes)| bytes.clone()).collect();
        assert!(found == wanted, "{from}..{limit} in steps of {max_bytes}");
    }

    fn find_time(&self, at: u8) {
        let spread = self.now.ms_since(NOW);
        let wanted = NOW.plus_ms(spread * at as i64 / 100 - 10);
        let mut times = Vec::new();
        for (header, bytes) in self.expected.visible() {
            for record in Records::new(&bytes[HEADER_BYTES..], header.record_count) {
                let record = record.unwrap();
                let offset = header.base_offset.plus(record.offset_delta as i64);
                let time = header.base_timestamp.plus_ms(record.timestamp_delta);
                times.push((offset, time));
            }
        }
        times.retain(|(offset, _)| *offset >= self.expected.log_start);
        let first = times.iter().find(|(_, time)| *time >= wanted).copied();
        let found = self.log.find_by_timestamp(wanted, self.log.log_end_offset()).unwrap();
        assert_eq!(found.map(|f| (f.offset, f.timestamp)), first, "first at {wanted}");
        let most = times.iter().map(|(_, time)| *time).max();
        let first = times.iter().find(|(_, time)| Some(*time) == most).copied();
        let found = self.log.find_max_timestamp(self.log.log_end_offset()).unwrap();
        assert_eq!(found.map(|f| (f.offset, f.timestamp)), first, "the largest");
    }

    fn check(&self) {
        let (log, expected) = (&self.log, &self.expected);
        assert_eq!(log.log_start_offset(), expected.log_start);
        assert_eq!(log.log_end_offset(), expected.log_end);
        assert!(log.recovery_point() <= log.synced_below());
        let all: Vec<u8> = expected.visible().flat_map(|(_, bytes)| bytes.clone()).collect();
        assert!(read_all(log, log.log_start_offset(), 1 << 20) == all, "other batches");
        self.check_epochs();
        self.check_producers();
    }

    fn check_epochs(&self) {
        for (header, _) in self.expected.visible() {
            let at = header.base_offset.max(self.expected.log_start);
            assert_eq!(self.log.epoch_at(at), header.leader_epoch, "at {at}");
        }
        let first = self.log.epochs().first().map(|(_, start)| *start);
        assert!(first.is_none_or(|start| start >= self.expected.log_start));
        let latest = self.expected.visible().last().map(|(header, _)| header.leader_epoch);
        if let Some(latest) = latest {
            assert_eq!(self.log.latest_epoch(), latest);
            let end = self.log.end_offset_for_epoch(latest);
            assert_eq!(end, (latest, self.log.log_end_offset()));
            let unknown = self.log.end_offset_for_epoch(LeaderEpoch(latest.0 + 1));
            assert_eq!(unknown, (LeaderEpoch::NONE, Offset(-1)));
        }
    }

    fn check_producers(&self) {
        let mut last: BTreeMap<ProducerId, &BatchHeader> = BTreeMap::new();
        for (header, _) in &self.expected.batches {
            if header.producer_id.is_idempotent() {
                last.insert(header.producer_id, header);
            }
        }
        let known: Vec<(ProducerId, Sequence)> =
            self.log.producers().map(|p| (p.producer_id, p.last_sequence)).collect();
        let wanted: Vec<_> =
            last.iter().map(|(id, header)| (*id, header.last_sequence())).collect();
        assert_eq!(known, wanted);
        for header in last.values() {
            match self.log.check_producer(header) {
                ProducerVerdict::Duplicate { base_offset, last_offset, .. } => {
                    assert_eq!(base_offset, header.base_offset);
                    assert_eq!(last_offset, header.last_offset());
                }
                other => panic!("the last batch is not known again: {other:?}"),
            }
        }
    }
}

fn run(cleanup: CleanupPolicy, steps: &[Step]) {
    let mut world = World::new(cleanup);
    for step in steps {
        world.run(step);
    }
    world.run(&Step::Reopen { clean: true });
    world.run(&Step::Reopen { clean: false });
}

/// A snapshot behind the end of a log that a power failure cut was removed, came back after the next
/// one, and told of producers as they had not been.
#[test]
fn a_snapshot_that_recovery_removed_stays_removed() {
    let mut world = World::new(CleanupPolicy { delete: true, compact: false });
    let append = |world: &mut World, producer| {
        let batch = world.batch(1, 0, 0);
        world.append_as(batch, producer);
    };
    (0..3).for_each(|_| append(&mut world, None));
    world.checkpoint();
    let name = |offset: i64| dir().join(format!("{offset:020}.snapshot"));
    // A snapshot without producers: version, checksum, count.
    let content = [0, 1, 0x48, 0x67, 0x4b, 0xc7, 0, 0, 0, 0];
    world.disk.write_atomically(&name(5), &content).unwrap();
    world.log = open(&world.disk, &world.config, world.opening(false));
    assert!(!world.disk.exists(&name(5)), "it is behind the end");
    (0..4).for_each(|_| append(&mut world, Some(0)));
    let mut telling = 0;
    for seed in 0..300 {
        let disk = world.disk.after_crash(seed);
        let log = open(&disk, &world.config, world.opening(false));
        assert_eq!(log.producers().count(), (log.log_end_offset() > Offset(3)) as usize);
        telling += (log.log_end_offset() > Offset(5)) as usize;
    }
    assert!(telling > 0, "no seed keeps enough of the log");
}

/// A log that was emptied, closed, and emptied again at another offset starts there behind a power failure.
#[test]
fn a_log_that_was_emptied_twice_stays_where_it_begins() {
    for seed in 0..100 {
        let mut world = World::new(CleanupPolicy { delete: true, compact: false });
        world.empty(Offset(0));
        world.reopen(true);
        let batch = world.batch(2, 0, 0);
        world.append_as(batch, None);
        world.empty(Offset(1));
        world.fail_power(seed);
        world.check();
    }
}

fn appending(records: usize, new_epoch: bool) -> Step {
    Step::Append { records, key: 0, later_ms: 0, producer: None, new_epoch }
}

/// What a roll leaves of the producers is not synced. A power failure left its name only, retention took the batches that
/// tell the same, and a cut asked for it.
#[test]
fn producers_whose_batches_went_are_known_behind_a_power_failure_and_a_cut() {
    let append = |records, producer| Step::Append {
        records,
        key: 0,
        later_ms: 0,
        producer,
        new_epoch: false,
    };
    for seed in 0..200 {
        let steps = [
            append(3, None),
            append(1, None),
            append(1, Some(0)),
            append(1, None),
            Step::Checkpoint,
            append(1, None),
            append(3, None),
            append(1, None),
            append(1, None),
            Step::Sync,
            Step::Truncate(60),
            Step::AppendFollowing { batches: 6, gap: 0 },
            Step::Reopen { clean: true },
            Step::PowerFailure { seed },
            Step::Retain { bytes: 300 },
            append(1, None),
            Step::Checkpoint,
            Step::Truncate(60),
        ];
        run(CleanupPolicy { delete: true, compact: false }, &steps);
    }
}

/// A follower's log lost all that it had behind a gap. The owner notes each cut before it is made, this one too.
#[test]
fn a_cut_that_takes_nothing_ends_what_may_have_gaps() {
    let append =
        |records, key| Step::Append { records, key, later_ms: 0, producer: None, new_epoch: false };
    for seed in 0..20 {
        let steps = [
            append(1, 0),
            Step::AppendFollowing { batches: 1, gap: 1 },
            Step::PowerFailure { seed },
            Step::Truncate(60),
            append(1, 2),
            append(3, 0),
            append(2, 0),
            append(3, 2),
            append(2, 0),
            append(1, 0),
            Step::Compact { memory: 60_000 },
        ];
        run(CleanupPolicy { delete: true, compact: true }, &steps);
    }
}

/// Of the leader epoch of a batch below the log's start nothing is known but what the batch says. What took the place
/// of batches there had the epoch of the next one that stayed, and the log was refused.
#[test]
fn what_goes_below_the_start_of_a_log_leaves_its_epoch() {
    let following = |batches| Step::AppendFollowing { batches, gap: 0 };
    let short = [appending(2, false), appending(1, true), Step::DeleteRecords(34), following(6)];
    let cut = [
        following(1),
        appending(2, true),
        Step::DeleteRecords(25),
        appending(2, false),
        Step::Truncate(60),
        following(4),
    ];
    for history in [&short[..], &cut] {
        for memory in [120, 216, 60_000] {
            let last =
                [Step::PowerFailure { seed: 0 }, Step::Reopen { clean: false }, Step::ReleaseFiles];
            for last in last {
                let steps = [history, &[Step::Compact { memory }, last]].concat();
                run(CleanupPolicy { delete: true, compact: true }, &steps);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 5000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_log_with_retention_is_what_the_model_says(steps in prop::collection::vec(step(), 1..80)) {
        run(CleanupPolicy { delete: true, compact: false }, &steps);
    }

    #[test]
    fn a_compacted_log_is_what_the_model_says(steps in prop::collection::vec(step(), 1..80)) {
        run(CleanupPolicy { delete: true, compact: true }, &steps);
    }
}
