//! A follower takes in what its leader has, byte for byte, believes nothing unchecked, and acknowledges by asking
//! only what it has synced. Leader and follower are two partitions on simulated disks; what passes between them
//! is passed by hand.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use model::batch::{self, Batches, HEADER_BYTES};
use model::record::BatchBuilder;
use model::{
    BatchHeader, BrokerEpoch, BrokerId, Durability, LeaderEpoch, Moment, Offset, ProducerEpoch,
    ProducerId, Sequence, Timestamp, TopicPartition, Uuid,
};
use partition::{
    Acks, Append, AssignedReplica, Assignment, Fate, Followed, FollowerFetch, Isolation,
    OffsetQuery, Partition, PartitionError, Read, ReadRequest, ReplicaAnswer, ReplicaRead,
    Settings, Standing, StartOverVerdict, Status, SyncQueue, TruncationLimit, Urgency, Watch,
};
use rustix::io::Errno;
use storage::disk::{Disk, GatedDisk, SimDisk};
use storage::log_dir::LogDir;
use storage::{CleanupPolicy, Log, LogConfig, ReadCursor};

const LEADER: BrokerId = BrokerId(1);
const FOLLOWER: BrokerId = BrokerId(2);
/// How long anything may take on a machine that is busy with much else.
const PATIENCE: Duration = Duration::from_secs(40);
const NOW: Timestamp = Timestamp(1_000_000);

/// One replica, and where it asks for syncs.
struct Replica {
    partition: Arc<Partition>,
    queue: Arc<SyncQueue>,
}

impl Replica {
    fn new(me: BrokerId, settings: &Settings) -> Replica {
        Replica::on(Arc::new(SimDisk::new()), me, settings)
    }

    fn on(disk: Arc<dyn Disk>, me: BrokerId, settings: &Settings) -> Replica {
        let log_dir = LogDir::new(disk, PathBuf::from("data")).unwrap();
        let (name, settings) = (TopicPartition::new("t", 0), Arc::new(settings.clone()));
        let opening = log_dir.begin_loading().unwrap().opening(&name, NOW);
        let (disk, dir) = (Arc::clone(log_dir.disk()), log_dir.partition_dir(&name));
        let mut log = Log::open(disk, dir, Arc::clone(&settings.log), opening).unwrap();
        // As a broker opens it.
        log.begin_dense();
        let (id, queue) = (Uuid::from_random([1; 16]), Arc::<SyncQueue>::default());
        let shared = Arc::clone(&queue);
        let partition = Partition::new(name, id, me, log, settings, Offset(0), shared);
        Replica { partition, queue }
    }

    fn assign(&self, leader: BrokerId, epoch: i32) {
        self.assign_within(leader, epoch, TruncationLimit::Unlimited);
    }

    fn assign_within(&self, leader: BrokerId, epoch: i32, truncation: TruncationLimit) {
        let replica =
            |broker| AssignedReplica { broker, standing: Standing::Serves(BrokerEpoch(1)) };
        let assignment = Assignment {
            leader,
            leader_epoch: LeaderEpoch(epoch),
            partition_epoch: epoch,
            replicas: vec![replica(LEADER), replica(FOLLOWER)],
            isr: vec![LEADER, FOLLOWER],
            recovering: false,
            truncation,
            awaits_durability: false,
        };
        self.partition.assign(assignment, Moment::START);
    }

    /// Syncs whatever was asked for. Says whether there was anything.
    fn sync(&self) -> bool {
        let taken = self.queue.take(true);
        let syncs: Vec<_> =
            taken.iter().filter_map(|(urgency, taken)| taken.begin_sync(*urgency)).collect();
        let any = !syncs.is_empty();
        syncs.into_iter().for_each(|sync| assert!(sync.run().unwrap().is_some()));
        any
    }

    fn log_end(&self) -> Offset {
        self.partition.with_log(Log::log_end_offset)
    }

    /// All bytes of the log, of a leader.
    fn bytes(&self) -> Vec<u8> {
        let (mut all, mut from) = (Vec::new(), self.partition.with_log(Log::log_start_offset));
        while from < self.log_end() {
            let begin = all.len();
            all.extend(read(&self.partition, &request(from)));
            from = Batches::new(&all[begin..]).last().unwrap().unwrap().0.next_offset();
        }
        all
    }
}

fn request(from: Offset) -> ReadRequest {
    ReadRequest::at(from, 1 << 20, Isolation::LogEnd)
}

fn read(partition: &Partition, request: &ReadRequest) -> Vec<u8> {
    let read = partition.read(request).unwrap();
    assert_eq!(read.diverging, None);
    let Some(slice) = read.slice else { return Vec::new() };
    let mut bytes = vec![0; slice.size_bytes as usize];
    assert_eq!(slice.file.read_at(&mut bytes, slice.position).unwrap(), bytes.len());
    bytes
}

/// Both replicas, in leader epoch 3.
struct Pair {
    leader: Replica,
    follower: Replica,
}

impl Pair {
    fn new(settings: &Settings) -> Pair {
        let (leader, follower) = (Replica::new(LEADER, settings), Replica::new(FOLLOWER, settings));
        for replica in [&leader, &follower] {
            replica.assign(LEADER, 3);
        }
        Pair { leader, follower }
    }

    /// The bytes that answer the follower's next fetch; `None` if it asks nothing.
    fn next(&self) -> Option<Vec<u8>> {
        let fetch = self.follower.partition.replica_fetch()?;
        let request = ReadRequest {
            last_fetched_epoch: Some(fetch.last_epoch),
            ..request(fetch.from.offset)
        };
        Some(read(&self.leader.partition, &request))
    }

    fn take_in(&self, records: &[u8]) -> Result<Followed, PartitionError> {
        self.follower.partition.follow_answer(&answer(3, records), NOW)
    }

    /// Copies until nothing new comes, syncing before the follower asks again.
    fn copy(&self) {
        loop {
            match self.next() {
                None => assert!(self.follower.sync(), "it asks, or has something to sync"),
                Some(bytes) if bytes.is_empty() => return,
                Some(bytes) => {
                    let followed = self.take_in(&bytes).unwrap();
                    assert!(matches!(followed, Followed::Appended { .. }), "{followed:?}");
                }
            }
        }
    }

    /// The follower leads from now on.
    fn fail_over(&self) {
        self.fail_over_in(4);
    }

    fn fail_over_in(&self, epoch: i32) {
        self.follower.assign(FOLLOWER, epoch);
        self.leader.assign(FOLLOWER, epoch);
    }
}

fn answer(epoch: i32, records: &[u8]) -> ReplicaAnswer<'_> {
    ReplicaAnswer {
        asked_in: LeaderEpoch(epoch),
        diverging: None,
        high_watermark: Offset(0),
        log_start: Offset(0),
        records,
    }
}

fn append(replica: &Replica, mut batch: BatchBuilder) -> Result<Offset, PartitionError> {
    batch.add(NOW, Some(b"key"), Some(&[7; 60]));
    let how = Append { acks: Acks::Leader, now: NOW, internal: false };
    replica.partition.append(&mut batch.finish(), how).map(|appended| appended.base_offset)
}

fn idempotent(sequence: i32) -> BatchBuilder {
    BatchBuilder::new().producer(ProducerId(9), ProducerEpoch(0), Sequence(sequence))
}

/// A batch of one record as a leader would send it.
fn sent(base_offset: i64, epoch: i32) -> Vec<u8> {
    let mut batch = BatchBuilder::new().placed(Offset(base_offset), LeaderEpoch(epoch));
    batch.add(NOW, Some(b"key"), Some(&[7; 60]));
    batch.finish()
}

fn page_cache() -> Settings {
    Settings { durability: Durability::PageCache, ..Settings::default() }
}

#[test]
fn a_follower_has_its_leaders_bytes_over_rolled_segments() {
    let log = LogConfig { segment_bytes: 500, ..LogConfig::default() };
    let pair = Pair::new(&Settings { log: Arc::new(log), ..page_cache() });
    for _ in 0..50 {
        append(&pair.leader, BatchBuilder::new()).unwrap();
    }
    pair.copy();
    let expected = pair.leader.bytes();
    assert!(pair.follower.partition.with_log(Log::segment_count) > 10);
    let epochs = pair.follower.partition.with_log(|log| log.epochs().to_vec());
    assert_eq!(epochs, [(LeaderEpoch(3), Offset(0))]);
    pair.fail_over();
    assert_eq!(pair.follower.bytes(), expected);
}

#[test]
fn under_fsync_a_follower_asks_again_only_when_it_has_synced() {
    let pair = Pair::new(&Settings::default());
    append(&pair.leader, BatchBuilder::new()).unwrap();
    let bytes = pair.next().expect("an empty log is synced");
    pair.take_in(&bytes).unwrap();
    assert_eq!(pair.next(), None, "a fetch would acknowledge what is not synced");
    assert!(pair.follower.sync());
    let fetch = pair.follower.partition.replica_fetch().unwrap();
    assert_eq!((fetch.from.offset, fetch.last_epoch), (Offset(1), LeaderEpoch(3)));
}

#[test]
fn an_epoch_in_which_nothing_was_written_is_not_the_epoch_of_the_last_record() {
    let pair = Pair::new(&page_cache());
    let first = pair.follower.partition.replica_fetch().unwrap();
    assert_eq!((first.from.offset, first.last_epoch), (Offset(0), LeaderEpoch::NONE));
    append(&pair.leader, BatchBuilder::new()).unwrap();
    pair.copy();
    // It leads for a while, and writes nothing.
    pair.fail_over();
    pair.follower.assign(LEADER, 5);
    let fetch = pair.follower.partition.replica_fetch().unwrap();
    assert_eq!((fetch.from.leader_epoch, fetch.last_epoch), (LeaderEpoch(5), LeaderEpoch(3)));
}

#[test]
fn damaged_bytes_are_not_appended() {
    let pair = Pair::new(&page_cache());
    for _ in 0..3 {
        append(&pair.leader, BatchBuilder::new()).unwrap();
    }
    let bytes = pair.next().unwrap();
    let size = bytes.len() / 3;
    for at in (0..bytes.len()).filter(|at| at % 7 == 0) {
        let pair = Pair::new(&page_cache());
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        // A batch whose length was hit may look like the part of one, behind which nothing is taken.
        let taken = pair.take_in(&damaged);
        assert!(pair.follower.log_end().0 as usize <= at / size, "bit {at}: {taken:?}");
    }
}

#[test]
fn a_part_of_a_batch_at_the_end_is_left() {
    let pair = Pair::new(&page_cache());
    append(&pair.leader, BatchBuilder::new()).unwrap();
    append(&pair.leader, BatchBuilder::new()).unwrap();
    let bytes = pair.next().unwrap();
    for cut in 0..bytes.len() / 2 {
        pair.take_in(&bytes[..cut]).unwrap();
        assert_eq!(pair.follower.log_end(), Offset(0), "{cut} bytes");
    }
    pair.take_in(&bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(pair.follower.log_end(), Offset(1));
    pair.copy();
    assert_eq!(pair.follower.log_end(), Offset(2));
}

#[test]
fn what_does_not_follow_is_refused_whole() {
    let pair = Pair::new(&page_cache());
    pair.take_in(&sent(0, 2)).unwrap();
    for (what, records) in [
        ("an offset that is there", sent(0, 3)),
        ("offsets that fall", [sent(1, 3), sent(1, 3)].concat()),
        ("an epoch that falls", sent(1, 1)),
        ("an epoch that falls inside", [sent(1, 3), sent(2, 2)].concat()),
        ("an epoch above the leader's", sent(1, 4)),
        ("no epoch", sent(1, -1)),
    ] {
        let taken = pair.take_in(&records);
        assert!(matches!(taken, Err(PartitionError::Replicated(_))), "{what}: {taken:?}");
        assert_eq!(pair.follower.log_end(), Offset(1), "{what}");
    }
    pair.take_in(&sent(1, 3)).unwrap();
    assert_eq!(pair.follower.log_end(), Offset(2));
}

/// The leader's log is what is copied: a topic may have been compacted that is not any more, or a person may have mended it.
#[test]
fn gaps_are_taken_whatever_the_topics_policy_is_once_they_are_known_to_be_there() {
    for compact in [false, true] {
        let cleanup = CleanupPolicy { delete: !compact, compact };
        let log = LogConfig { cleanup, ..LogConfig::default() };
        let pair = Pair::new(&Settings { log: Arc::new(log), ..page_cache() });
        pair.take_in(&[sent(0, 2), sent(1, 3)].concat()).unwrap();
        for records in [sent(3, 3), [sent(2, 3), sent(9, 3)].concat()] {
            assert_eq!(pair.take_in(&records).unwrap(), Followed::Gaps);
            assert_eq!(pair.follower.log_end(), Offset(2), "nothing is taken before");
        }
        pair.follower.partition.allow_gaps().unwrap();
        pair.take_in(&[sent(3, 3), sent(9, 3)].concat()).unwrap();
        assert_eq!(pair.follower.log_end(), Offset(10));
        for (what, records) in [
            ("an offset that is there", sent(9, 3)),
            ("offsets that fall", [sent(12, 3), sent(11, 3)].concat()),
            ("an epoch that falls", sent(12, 2)),
        ] {
            let taken = pair.take_in(&records);
            assert!(matches!(taken, Err(PartitionError::Replicated(_))), "{what}: {taken:?}");
        }
        let mut damaged = sent(12, 3);
        *damaged.last_mut().unwrap() ^= 1;
        assert!(matches!(pair.take_in(&damaged), Err(PartitionError::Batch(_))));
        assert_eq!(pair.follower.log_end(), Offset(10));
    }
}

/// A follower that was away ends between batches of which the leader's compaction has made one empty batch since.
#[test]
fn a_follower_that_ends_within_what_was_compacted_away_goes_on_from_there() {
    let log = LogConfig {
        segment_bytes: 1000,
        cleanup: CleanupPolicy { delete: false, compact: true },
        min_cleanable_dirty_ratio: 0.0,
        ..LogConfig::default()
    };
    let settings = Settings { log: Arc::new(log), ..page_cache() };
    for known in 0..30 {
        let pair = Pair::new(&settings);
        for _ in 0..30 {
            append(&pair.leader, BatchBuilder::new()).unwrap();
        }
        let before = pair.leader.bytes();
        let size: usize =
            Batches::new(&before).take(known).map(|batch| batch.unwrap().1.len()).sum();
        pair.take_in(&before[..size]).unwrap();
        pair.leader.partition.checkpoint(1).unwrap();
        served(&pair.leader, 30, LeaderEpoch(3)).unwrap();
        let plan = pair.leader.partition.plan_compaction(NOW).unwrap().expect("sealed segments");
        let compaction = plan.run(1 << 20, [1, 2], &mut |_| true).unwrap().unwrap();
        let _ = pair.leader.partition.finish_compaction(compaction).unwrap();
        pair.copy();
        assert_eq!(pair.follower.log_end(), Offset(30), "{known} batches were known");
        let lead = pair.leader.bytes();
        assert!(lead.len() < before.len() / 2, "one empty batch for many");
        pair.fail_over();
        let (follow, mut due) = (pair.follower.bytes(), Offset(0));
        assert!(follow.starts_with(&before[..size]));
        for (header, _) in Batches::new(&follow).map(Result::unwrap) {
            assert_eq!(header.base_offset, due, "{known} batches were known");
            due = header.next_offset();
        }
        let last = |bytes: &[u8]| bytes[bytes.len() - before.len() / 30..].to_vec();
        assert!(last(&follow) == last(&lead));
    }
}

#[test]
fn what_reaches_back_over_the_end_is_refused_unless_it_is_empty() {
    let empty = |first: i64, last: i64, epoch: i32, change: fn(&mut BatchHeader)| {
        let mut header = BatchHeader::decode(&sent(first, epoch)).unwrap();
        header.size_bytes = HEADER_BYTES as u32;
        header.last_offset_delta = (last - first) as i32;
        header.record_count = 0;
        change(&mut header);
        header.encode_empty().to_vec()
    };
    let pair = Pair::new(&page_cache());
    pair.take_in(&[sent(0, 2), sent(1, 2)].concat()).unwrap();
    let mut with_record = BatchHeader::decode(&sent(1, 3)).unwrap();
    with_record.last_offset_delta = 3;
    let mut records = sent(1, 3);
    with_record.encode(&mut records);
    batch::write_checksum(&mut records);
    for (what, records) in [
        ("nothing behind the end", empty(0, 1, 3, |_| ())),
        ("an epoch that falls", empty(1, 5, 1, |_| ())),
        ("a producer's last batch", empty(1, 5, 3, |header| header.producer_id = ProducerId(1))),
        ("a marker", empty(1, 5, 3, |header| header.attributes = 0x20)),
        ("a record", records),
    ] {
        let taken = pair.take_in(&records);
        assert!(matches!(taken, Err(PartitionError::Replicated(_))), "{what}: {taken:?}");
        assert_eq!(pair.follower.log_end(), Offset(2), "{what}");
    }
    pair.take_in(&[empty(1, 5, 3, |_| ()), sent(6, 3)].concat()).unwrap();
    assert_eq!(pair.follower.log_end(), Offset(7));
}

#[test]
fn an_answer_of_another_leader_epoch_is_not_used() {
    let pair = Pair::new(&page_cache());
    append(&pair.leader, BatchBuilder::new()).unwrap();
    let bytes = pair.next().unwrap();
    pair.follower.assign(LEADER, 5);
    assert_eq!(pair.take_in(&bytes).unwrap(), Followed::Stale);
    assert_eq!(pair.follower.log_end(), Offset(0));
}

#[test]
fn a_divergence_asks_for_a_cut_and_nothing_is_asked_before_it() {
    let pair = Pair::new(&page_cache());
    pair.take_in(&[sent(0, 2), sent(1, 3), sent(2, 3)].concat()).unwrap();
    pair.follower.assign(LEADER, 5);
    let diverging =
        ReplicaAnswer { diverging: Some((LeaderEpoch(2), Offset(1))), ..answer(5, &[]) };
    let followed = pair.follower.partition.follow_answer(&diverging, NOW).unwrap();
    let Followed::Cut(cut) = followed else { panic!("{followed:?}") };
    assert_eq!((cut.to, cut.takes_committed), (Offset(1), false));
    assert_eq!(pair.follower.partition.replica_fetch(), None);
    let more = answer(5, &[]);
    assert_eq!(pair.follower.partition.follow_answer(&more, NOW).unwrap(), Followed::Stale);
    // A batch that reaches over the end of the cut goes as a whole; here none does.
    assert_eq!(pair.follower.partition.cut(cut.to).unwrap(), Offset(1));
    let fetch = pair.follower.partition.replica_fetch().unwrap();
    assert_eq!((fetch.from.offset, fetch.last_epoch), (Offset(1), LeaderEpoch(2)));
    let other = [sent(1, 2), sent(2, 5)].concat();
    pair.follower.partition.follow_answer(&answer(5, &other), NOW).unwrap();
    pair.fail_over_in(6);
    assert_eq!(pair.follower.bytes(), [sent(0, 2), other].concat());
}

/// The first leader epoch of generation 1 of the metadata quorum.
const REGENERATED: i32 = 1 << 22;
/// No truncation of committed records was allowed.
const BOUND: TruncationLimit = TruncationLimit::Committed(LeaderEpoch::NONE);

/// A follower with two synced records of generation 0, which follows in generation 1.
fn regenerated() -> Replica {
    let follower = Replica::new(FOLLOWER, &Settings::default());
    follower.assign(LEADER, 3);
    let records = [sent(0, 2), sent(1, 3)].concat();
    follower.partition.follow_answer(&answer(3, &records), NOW).unwrap();
    assert!(follower.sync());
    follower.assign_within(LEADER, REGENERATED + 4, BOUND);
    follower
}

#[test]
fn records_of_an_earlier_generation_are_bound_below_records_of_this_one() {
    let follower = regenerated();
    let epoch = REGENERATED + 4;
    follower.partition.follow_answer(&answer(epoch, &sent(2, epoch)), NOW).unwrap();
    assert!(follower.sync());
    let diverge = |epoch: i32, leaders: (i32, i64)| {
        follower.assign_within(LEADER, epoch, BOUND);
        let diverging = Some((LeaderEpoch(leaders.0), Offset(leaders.1)));
        let diverging = ReplicaAnswer { diverging, ..answer(epoch, &[]) };
        follower.partition.follow_answer(&diverging, NOW).unwrap()
    };
    let followed = diverge(REGENERATED + 5, (2, 1));
    let Followed::Refused(refused) = followed else { panic!("{followed:?}") };
    assert_eq!((refused.to, refused.committed), (Offset(1), Offset(2)));
    assert_eq!(refused.known_in, LeaderEpoch(3));
    assert!(refused.is_of_earlier_generation);
    assert_eq!(follower.partition.replica_fetch(), None);
    // The record of this generation alone.
    let followed = diverge(REGENERATED + 6, (3, 2));
    let Followed::Cut(cut) = followed else { panic!("{followed:?}") };
    assert_eq!((cut.to, cut.takes_committed), (Offset(2), false));
}

#[test]
fn a_log_with_records_of_an_earlier_generation_is_dropped_when_that_is_allowed_only() {
    let follower = regenerated();
    let partition = &follower.partition;
    let epoch = LeaderEpoch(REGENERATED + 4);
    assert_eq!(partition.judge_start_over(LeaderEpoch(3)), StartOverVerdict::Stale);
    let verdict = partition.judge_start_over(epoch);
    let StartOverVerdict::Refused(refused) = verdict else { panic!("{verdict:?}") };
    assert_eq!((refused.to, refused.committed), (Offset(0), Offset(2)));
    assert_eq!(partition.refused_truncation(), Some(refused));
    assert_eq!(
        partition.start_over(epoch, Offset(40), || Ok(())).unwrap(),
        Offset(2),
        "it keeps its log"
    );

    let allowed = REGENERATED + 5;
    let permission = TruncationLimit::Committed(LeaderEpoch(allowed));
    follower.assign_within(LEADER, allowed, permission);
    let verdict = partition.judge_start_over(LeaderEpoch(allowed));
    assert_eq!(verdict, StartOverVerdict::Due { takes_committed: true });
    assert_eq!(
        partition.start_over(LeaderEpoch(allowed), Offset(40), || Ok(())).unwrap(),
        Offset(40)
    );

    // Committed records of this generation are in its history.
    let follower = regenerated();
    let committed = ReplicaAnswer { high_watermark: Offset(2), ..answer(epoch.0, &[]) };
    follower.partition.follow_answer(&committed, NOW).unwrap();
    let verdict = follower.partition.judge_start_over(epoch);
    assert_eq!(verdict, StartOverVerdict::Due { takes_committed: false });
}

/// A follower of three synced records whose leader has another second one, and where it cuts.
fn diverged(disk: &SimDisk) -> (Replica, Offset) {
    let follower = Replica::on(Arc::new(disk.clone()), FOLLOWER, &Settings::default());
    follower.assign(LEADER, 3);
    let records = [sent(0, 3), sent(1, 3), sent(2, 3)].concat();
    follower.partition.follow_answer(&answer(3, &records), NOW).unwrap();
    assert!(follower.sync());
    follower.assign(LEADER, 4);
    let diverging =
        ReplicaAnswer { diverging: Some((LeaderEpoch(3), Offset(1))), ..answer(4, &[]) };
    let followed = follower.partition.follow_answer(&diverging, NOW).unwrap();
    let Followed::Cut(cut) = followed else { panic!("{followed:?}") };
    (follower, cut.to)
}

/// The simulation found it: the replica went offline by itself, its log directory did not, and nothing opened it again.
#[test]
fn a_cut_that_finds_no_room_is_made_when_there_is_some() {
    let disk = SimDisk::new();
    let (follower, to) = diverged(&disk);
    disk.limit_capacity(Some(disk.used_bytes()));
    let refused = follower.partition.cut(to).unwrap_err();
    assert!(matches!(&refused, PartitionError::Storage(cause) if cause.is_full()), "{refused}");
    assert_eq!(follower.log_end(), Offset(3), "nothing is gone");
    assert_eq!(follower.partition.replica_fetch(), None, "the cut is still due");
    disk.limit_capacity(None);
    assert_eq!(follower.partition.cut(to).unwrap(), Offset(1));
    let fetch = follower.partition.replica_fetch().unwrap();
    assert_eq!(fetch.from.offset, Offset(1));
}

#[test]
fn a_cut_without_room_for_any_of_its_steps_is_made_later_or_fails_the_log() {
    let (mut later, mut failed) = (0, 0);
    for step in 0.. {
        let disk = SimDisk::new();
        let (follower, to) = diverged(&disk);
        let failing = disk.operation_count() + step;
        disk.fail_at(failing, Errno::NOSPC);
        match follower.partition.cut(to) {
            Ok(end) => {
                assert_eq!(end, Offset(1));
                let fetch = follower.partition.replica_fetch();
                assert!(fetch.is_some_and(|fetch| fetch.from.offset == Offset(1)), "step {step}");
                if disk.operation_count() <= failing {
                    break;
                }
            }
            Err(PartitionError::Storage(cause)) if cause.is_fatal() => {
                failed += 1;
                assert_eq!(follower.partition.status(), Status::Offline, "step {step}: {cause}");
            }
            Err(cause) => {
                later += 1;
                assert_eq!(follower.log_end(), Offset(3), "step {step}: {cause}");
                assert_eq!(follower.partition.cut(to).unwrap(), Offset(1), "step {step}");
            }
        }
    }
    assert!(later > 0 && failed > 0, "{later} and {failed}");
}

#[test]
fn a_leader_that_begins_behind_the_followers_end_is_followed_from_there() {
    let pair = Pair::new(&Settings::default());
    pair.take_in(&[sent(0, 2), sent(1, 3)].concat()).unwrap();
    let follower = &pair.follower.partition;
    let start_over =
        |epoch| follower.start_over(LeaderEpoch(epoch), Offset(40), || Ok(())).unwrap();
    assert_eq!(start_over(3), Offset(2), "what it has is not synced: it has not asked");
    assert!(pair.follower.sync());
    assert_eq!(start_over(2), Offset(2), "of an earlier leader epoch");
    assert_eq!(start_over(3), Offset(40));
    let fetch = pair.follower.partition.replica_fetch().expect("nothing is left to sync");
    assert_eq!((fetch.from.offset, fetch.last_epoch), (Offset(40), LeaderEpoch::NONE));
    assert_eq!(pair.follower.partition.high_watermark(), Offset(40));
    pair.take_in(&sent(40, 3)).unwrap();
    assert_eq!(pair.follower.log_end(), Offset(41));
}

/// The records of leader epoch 2 were never committed, and its followers have others at these offsets. Retries of the
/// producer must not be answered with them.
#[test]
fn a_log_that_its_leader_cannot_compare_keeps_no_record_and_no_producer() {
    let follower = Replica::new(FOLLOWER, &Settings::default());
    follower.assign(LEADER, 2);
    let mut batch = idempotent(0).placed(Offset(0), LeaderEpoch(2));
    (0..3).for_each(|_| batch.add(NOW, Some(b"key"), Some(b"value")));
    follower.partition.follow_answer(&answer(2, &batch.finish()), NOW).unwrap();
    assert!(follower.sync());
    let producers = || follower.partition.with_log(|log| log.producers().count());
    assert_eq!(producers(), 1);
    // The leader of epoch 3 has other records below 3, and has deleted them.
    follower.assign_within(LEADER, 3, BOUND);
    let records = sent(3, 3);
    let others =
        ReplicaAnswer { high_watermark: Offset(4), log_start: Offset(3), ..answer(3, &records) };
    let followed = follower.partition.follow_answer(&others, NOW).unwrap();
    assert_eq!(followed, Followed::StartOver(Offset(3)));
    let epoch = LeaderEpoch(3);
    let verdict = follower.partition.judge_start_over(epoch);
    assert_eq!(verdict, StartOverVerdict::Due { takes_committed: false });
    assert_eq!(follower.partition.start_over(epoch, Offset(3), || Ok(())).unwrap(), Offset(3));
    assert_eq!(producers(), 0);
    assert_eq!(follower.partition.with_log(Log::log_start_offset), Offset(3));
    let fetch = follower.partition.replica_fetch().expect("nothing is left to sync");
    assert_eq!((fetch.from.offset, fetch.last_epoch), (Offset(3), LeaderEpoch::NONE));
    assert_eq!(fetch.log_start, Offset(3), "the leader may take the follower in");
    let followed = follower.partition.follow_answer(&others, NOW).unwrap();
    assert!(matches!(followed, Followed::Appended { log_end: Offset(4), .. }), "{followed:?}");
}

#[test]
fn a_cut_that_waits_for_the_device_holds_no_lock_and_a_new_role_waits_for_it() {
    let disk = GatedDisk::new(Arc::new(SimDisk::new()));
    let follower = Replica::on(Arc::new(disk.clone()), FOLLOWER, &page_cache());
    follower.assign(LEADER, 3);
    let records = [sent(0, 3), sent(1, 3), sent(2, 3)].concat();
    follower.partition.follow_answer(&answer(3, &records), NOW).unwrap();
    follower.assign(LEADER, 4);
    let diverging =
        ReplicaAnswer { diverging: Some((LeaderEpoch(3), Offset(1))), ..answer(4, &[]) };
    let followed = follower.partition.follow_answer(&diverging, NOW).unwrap();
    assert!(matches!(followed, Followed::Cut(_)), "{followed:?}");
    disk.close(Path::new("data"));
    let cutting = Arc::clone(&follower.partition);
    let cut = std::thread::spawn(move || cutting.cut(Offset(1)).unwrap());
    assert!(disk.wait_for(1, PATIENCE), "the cut gets to the device");
    // All of these take the partition's lock.
    assert_eq!(follower.partition.high_watermark(), Offset(0));
    assert!(
        follower.partition.begin_sync(Urgency::Now).is_none(),
        "nothing is promised of what goes"
    );
    assert_eq!(follower.partition.waiter_count(), 0);
    let leading = Arc::clone(&follower.partition);
    let lead = std::thread::spawn(move || {
        leading.assign(Assignment::alone(FOLLOWER, LeaderEpoch(5)), Moment::START);
        leading.with_log(|log| log.epochs().to_vec())
    });
    disk.open_gate();
    assert_eq!(cut.join().unwrap(), Offset(1));
    let epochs = lead.join().unwrap();
    assert_eq!(epochs, [(LeaderEpoch(3), Offset(0)), (LeaderEpoch(5), Offset(1))]);
}

#[test]
fn a_cut_of_an_earlier_leader_epoch_is_not_made() {
    let pair = Pair::new(&page_cache());
    pair.take_in(&[sent(0, 3), sent(1, 3)].concat()).unwrap();
    pair.follower.assign(LEADER, 4);
    let diverging =
        ReplicaAnswer { diverging: Some((LeaderEpoch(3), Offset(1))), ..answer(4, &[]) };
    let followed = pair.follower.partition.follow_answer(&diverging, NOW).unwrap();
    let Followed::Cut(cut) = followed else { panic!("{followed:?}") };
    pair.follower.assign(LEADER, 5);
    assert_eq!(pair.follower.partition.cut(cut.to).unwrap(), Offset(2));
}

#[test]
fn a_new_leader_knows_the_retries_of_producers() {
    let pair = Pair::new(&page_cache());
    for sequence in 0..7 {
        append(&pair.leader, idempotent(sequence)).unwrap();
    }
    pair.copy();
    pair.fail_over();
    for sequence in 2..7 {
        let offset = append(&pair.follower, idempotent(sequence)).unwrap();
        assert_eq!(offset, Offset(sequence.into()), "the batch that is there");
    }
    assert_eq!(append(&pair.follower, idempotent(7)).unwrap(), Offset(7));
    let skipped = append(&pair.follower, idempotent(9));
    assert!(matches!(skipped, Err(PartitionError::OutOfOrderSequence)), "{skipped:?}");
}

#[test]
fn the_leaders_high_watermark_comes_with_its_answers() {
    let pair = Pair::new(&page_cache());
    pair.take_in(&[sent(0, 3), sent(1, 3)].concat()).unwrap();
    assert_eq!(pair.follower.partition.high_watermark(), Offset(0));
    let more = ReplicaAnswer { high_watermark: Offset(9), log_start: Offset(1), ..answer(3, &[]) };
    let followed = pair.follower.partition.follow_answer(&more, NOW).unwrap();
    let expected = Followed::Appended { log_end: Offset(2), delete_below: Some(Offset(1)) };
    assert_eq!(followed, expected);
    assert_eq!(pair.follower.partition.high_watermark(), Offset(2), "as far as its log goes");
}

#[test]
fn an_append_is_committed_in_its_own_leader_epoch_only() {
    let settings = page_cache();
    let alone = Replica::new(LEADER, &settings);
    alone.partition.assign(Assignment::alone(LEADER, LeaderEpoch(3)), Moment::START);
    let fate = |epoch| alone.partition.fate(Offset(1), LeaderEpoch(epoch));
    assert_eq!(fate(3), Fate::Undecided);
    append(&alone, BatchBuilder::new()).unwrap();
    assert_eq!(fate(3), Fate::Committed);
    assert_eq!(fate(2), Fate::Ended(Status::Leading), "of an earlier epoch nothing is known");
    alone.partition.assign(
        Assignment { leader: FOLLOWER, ..Assignment::alone(LEADER, LeaderEpoch(4)) },
        Moment::START,
    );
    assert_eq!(fate(3), Fate::Ended(Status::Following));
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_replica_is_woken_by_an_append_and_a_consumer_by_what_is_committed() {
    let pair = Pair::new(&page_cache());
    let [at_end, at_committed] = [(), ()].map(|()| Arc::new(Watch::default()));
    let key = pair.leader.partition.watch_end(&at_end, 0);
    pair.leader.partition.watch(&at_committed, 0);
    let woken = |watch: &Arc<Watch>| {
        let (task, mut changed) = (Arc::new(Woken::default()), Vec::new());
        watch.take_or_wait(&mut changed, None);
        watch.take_or_wait(&mut changed, Some(&Waker::from(Arc::clone(&task))));
        append(&pair.leader, BatchBuilder::new()).unwrap();
        task.0.load(Ordering::Relaxed)
    };
    assert!(woken(&at_end));
    assert!(!woken(&at_committed), "the follower has not fetched it");
    pair.leader.partition.unwatch(key);
    assert!(!woken(&at_end));
}

/// What a follower gets that asks in leader epoch 3.
fn served(
    leader: &Replica,
    position: i64,
    last_epoch: LeaderEpoch,
) -> Result<Read, PartitionError> {
    leader.partition.serve_replica(&ReplicaRead {
        fetch: FollowerFetch {
            follower: FOLLOWER,
            broker_epoch: BrokerEpoch(1),
            leader_epoch: LeaderEpoch(3),
            position: Offset(position),
            log_start: Offset(0),
            now: Moment::START,
        },
        last_epoch,
        cursor: ReadCursor::default(),
        max_bytes: 1 << 20,
        at_least_one: true,
    })
}

#[test]
fn a_follower_with_more_of_its_leaders_own_epoch_than_the_leader_is_told_apart() {
    let pair = two_committed_batches();
    for epoch in [LeaderEpoch(3), LeaderEpoch(2)] {
        let ahead = served(&pair.leader, 21, epoch);
        match epoch {
            // The leader has lost the end of its log.
            LeaderEpoch(3) => assert!(
                matches!(ahead, Err(PartitionError::FollowerAhead { position: Offset(21) })),
                "{ahead:?}"
            ),
            // The histories part, as they may.
            _ => assert_eq!(ahead.unwrap().diverging, Some((epoch, Offset(0)))),
        }
    }
    // Without a record it knows of no epoch to ask by.
    let empty = served(&pair.leader, 21, LeaderEpoch::NONE);
    assert!(
        matches!(empty, Err(PartitionError::OutOfRange { log_end: Offset(20), .. })),
        "{empty:?}"
    );
}

/// Two batches of ten records, all committed.
fn two_committed_batches() -> Pair {
    let pair = Pair::new(&page_cache());
    for _ in 0..2 {
        let mut batch = BatchBuilder::new();
        (0..9).for_each(|_| batch.add(NOW, Some(b"key"), Some(b"value")));
        append(&pair.leader, batch).unwrap();
    }
    served(&pair.leader, 20, LeaderEpoch(3)).unwrap();
    assert_eq!(pair.leader.partition.high_watermark(), Offset(20));
    pair
}

#[test]
fn an_empty_replica_is_filled_from_a_log_that_begins_in_the_middle_of_a_batch() {
    let pair = two_committed_batches();
    pair.leader.partition.delete_records(Some(Offset(5))).unwrap();
    let read = served(&pair.leader, 0, LeaderEpoch::NONE).unwrap();
    assert_eq!(read.log_start, Offset(5), "where it begins for consumers");
    let slice = read.slice.expect("the whole first batch");
    let mut bytes = vec![0; slice.size_bytes as usize];
    slice.file.read_at(&mut bytes, slice.position).unwrap();
    let followed = pair.take_in(&bytes).unwrap();
    assert!(matches!(followed, Followed::Appended { .. }), "{followed:?}");
    assert_eq!(pair.follower.log_end(), Offset(20));
}

#[test]
fn a_log_that_begins_in_the_middle_of_a_batch_waits_for_room_in_an_answer() {
    let pair = two_committed_batches();
    pair.leader.partition.delete_records(Some(Offset(5))).unwrap();
    let asked = |max_bytes, at_least_one| ReplicaRead {
        fetch: FollowerFetch {
            follower: FOLLOWER,
            broker_epoch: BrokerEpoch(1),
            leader_epoch: LeaderEpoch(3),
            position: Offset(0),
            log_start: Offset(0),
            now: Moment::START,
        },
        last_epoch: LeaderEpoch::NONE,
        cursor: ReadCursor::default(),
        max_bytes,
        at_least_one,
    };
    let served = |asked| pair.leader.partition.serve_replica(&asked).unwrap().slice;
    assert!(served(asked(0, false)).is_none(), "other partitions have filled the answer");
    assert!(served(asked(0, true)).is_some());
}

#[test]
fn a_replica_that_is_to_start_anew_starts_where_a_batch_begins() {
    let pair = two_committed_batches();
    pair.leader.partition.delete_records(Some(Offset(15))).unwrap();
    let refused = served(&pair.leader, 0, LeaderEpoch::NONE);
    let Err(PartitionError::OutOfRange { log_start, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(log_start, Offset(10));
    pair.follower.partition.start_over(LeaderEpoch(3), log_start, || Ok(())).unwrap();
    let fetch = pair.follower.partition.replica_fetch().unwrap();
    assert_eq!(fetch.from.offset, Offset(10));
    let first = served(&pair.leader, 10, fetch.last_epoch).unwrap().slice.map(|it| it.first_offset);
    assert_eq!(first, Some(Offset(10)));
    pair.leader.partition.delete_records(Some(Offset(20))).unwrap();
    let refused = served(&pair.leader, 10, LeaderEpoch::NONE);
    assert!(
        matches!(refused, Err(PartitionError::OutOfRange { log_start: Offset(20), .. })),
        "nothing is left: {refused:?}"
    );
}

#[test]
fn a_replica_that_waits_hears_of_deleted_records() {
    let pair = two_committed_batches();
    let at_end = Arc::new(Watch::default());
    pair.leader.partition.watch_end(&at_end, 0);
    let (task, mut changed) = (Arc::new(Woken::default()), Vec::new());
    at_end.take_or_wait(&mut changed, None);
    assert!(!at_end.take_or_wait(&mut changed, Some(&Waker::from(Arc::clone(&task)))));
    pair.leader.partition.delete_records(Some(Offset(5))).unwrap();
    assert!(task.0.load(Ordering::Relaxed));
}

#[test]
fn a_new_leader_tells_no_end_before_it_knows_what_was_told() {
    let pair = Pair::new(&page_cache());
    append(&pair.leader, BatchBuilder::new()).unwrap();
    pair.copy();
    // The leader has told its high watermark, 1, and dies; this replica was never told.
    pair.fail_over();
    let latest =
        |isolation| pair.follower.partition.find_offset(OffsetQuery::Latest(isolation), None);
    for isolation in [Isolation::Committed, Isolation::Stable] {
        let told = latest(isolation);
        assert!(matches!(told, Err(PartitionError::EndNotSettled)), "{told:?}");
    }
    let first_at = pair.follower.partition.find_offset(OffsetQuery::Timestamp(NOW), None);
    assert!(matches!(first_at, Err(PartitionError::EndNotSettled)), "{first_at:?}");
    let earliest = pair.follower.partition.find_offset(OffsetQuery::Earliest, None).unwrap();
    assert_eq!(earliest.map(|found| found.offset), Some(Offset(0)));
    assert_eq!(latest(Isolation::LogEnd).unwrap().map(|found| found.offset), Some(Offset(1)));
}

/// What a follower's fetch at offset 20 reports: its durable log start.
fn report_start(leader: &Replica, follower: &Replica) {
    let fetch = follower.partition.replica_fetch().unwrap();
    let asked = ReplicaRead {
        fetch: FollowerFetch {
            follower: FOLLOWER,
            broker_epoch: BrokerEpoch(1),
            leader_epoch: LeaderEpoch(3),
            position: Offset(20),
            log_start: fetch.log_start,
            now: Moment::START,
        },
        last_epoch: LeaderEpoch(3),
        cursor: ReadCursor::default(),
        max_bytes: 1 << 20,
        at_least_one: true,
    };
    leader.partition.serve_replica(&asked).unwrap();
}

/// Both replicas have two batches of ten records; the leader has durably deleted five.
fn deleted_at_the_leader() -> Pair {
    let pair = two_committed_batches();
    let bytes = pair.leader.bytes();
    pair.take_in(&bytes).unwrap();
    pair.leader.partition.delete_records(Some(Offset(5))).unwrap();
    pair.leader.partition.log_start_synced(Offset(5));
    pair
}

#[test]
fn a_deletion_is_complete_when_the_followers_journal_has_it() {
    let pair = deleted_at_the_leader();
    let task = Arc::new(Woken::default());
    let (waker, mut key) = (Waker::from(Arc::clone(&task)), None);
    let mut poll = || {
        let mut cx = Context::from_waker(&waker);
        pair.leader.partition.poll_deleted(&mut cx, Offset(5), &mut key)
    };
    report_start(&pair.leader, &pair.follower);
    assert_eq!(poll(), Poll::Pending, "the follower has all records");
    let follower = &pair.follower.partition;
    follower
        .follow_answer(&ReplicaAnswer { high_watermark: Offset(20), ..answer(3, &[]) }, NOW)
        .unwrap();
    follower.maintain(|log, _| log.delete_records_before(Offset(5))).unwrap();
    assert_eq!(follower.unsynced_log_start(), Some(Offset(5)));
    report_start(&pair.leader, &pair.follower);
    assert_eq!(poll(), Poll::Pending, "a crash would bring the records back");
    assert!(!task.0.load(Ordering::Relaxed));
    follower.log_start_synced(Offset(5));
    assert_eq!(follower.unsynced_log_start(), None);
    report_start(&pair.leader, &pair.follower);
    assert!(task.0.load(Ordering::Relaxed));
    assert_eq!(poll(), Poll::Ready(Ok(Offset(5))));
    assert_eq!(pair.leader.partition.deletion_waiter_count(), 0);
}

#[test]
fn a_deletion_ends_with_the_leaders_role() {
    let pair = deleted_at_the_leader();
    let task = Arc::new(Woken::default());
    let (waker, mut key) = (Waker::from(Arc::clone(&task)), None);
    let mut poll = || {
        let mut cx = Context::from_waker(&waker);
        pair.leader.partition.poll_deleted(&mut cx, Offset(5), &mut key)
    };
    assert_eq!(poll(), Poll::Pending);
    pair.fail_over();
    assert!(task.0.load(Ordering::Relaxed));
    assert_eq!(poll(), Poll::Ready(Err(Status::Following)));
    assert_eq!(pair.leader.partition.deletion_waiter_count(), 0);
}

#[test]
fn a_replica_that_ends_within_its_leaders_first_batch_cuts_it() {
    let pair = two_committed_batches();
    // The leader's first batch is now that of offsets 10 to 19, and the one before is forgotten.
    pair.leader.partition.delete_records(Some(Offset(15))).unwrap();
    let within = served(&pair.leader, 15, LeaderEpoch(2)).unwrap();
    assert_eq!(within.diverging, Some((LeaderEpoch(2), Offset(10))));
    assert!(within.slice.is_none());
    let at_its_begin = served(&pair.leader, 10, LeaderEpoch(2)).unwrap();
    assert_eq!(at_its_begin.diverging, None);
    assert_eq!(at_its_begin.slice.map(|slice| slice.first_offset), Some(Offset(10)));
}
