//! A device that stalls while a log is looked after: whoever appends to the same partition and reads it
//! waits for none of that. The order of events decides, not time: the work waits at a gate that is opened
//! when the others have been served.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use model::record::BatchBuilder;
use model::{BrokerId, LeaderEpoch, Moment, Offset, Timestamp, TopicPartition, Uuid};
use partition::{
    Acks, Append, Assignment, Isolation, OffsetQuery, Partition, ReadRequest, Settings, Status,
    Urgency,
};
use storage::disk::{Disk, GatedDisk, SimDisk};
use storage::{CleanupPolicy, Log, LogConfig, Opening};

/// How long anything may take on a machine that is busy with much else.
const PATIENCE: Duration = Duration::from_secs(40);
const NOW: Timestamp = Timestamp(1_000_000);
const DELETE: CleanupPolicy = CleanupPolicy { delete: true, compact: false };
const COMPACT: CleanupPolicy = CleanupPolicy { delete: false, compact: true };

struct Bench {
    disk: GatedDisk,
    partition: Arc<Partition>,
}

fn dir() -> PathBuf {
    Path::new("data").join("t-0")
}

impl Bench {
    /// A partition whose segments hold two batches each.
    fn new(cleanup: CleanupPolicy) -> Bench {
        let disk = GatedDisk::new(Arc::new(SimDisk::new()));
        disk.create_dir_all(Path::new("data")).unwrap();
        let log = LogConfig {
            segment_bytes: 300,
            retention_ms: -1,
            retention_bytes: 400,
            cleanup,
            min_cleanable_dirty_ratio: 0.0,
            ..LogConfig::default()
        };
        let settings = Arc::new(Settings { log: Arc::new(log), ..Settings::default() });
        let opening = Opening::unknown(NOW);
        let opened = Arc::new(disk.clone());
        let log = Log::open(opened, dir(), Arc::clone(&settings.log), opening).unwrap();
        let (name, me) = (TopicPartition::new("t", 0), BrokerId(1));
        let id = Uuid::from_random([1; 16]);
        let partition = Partition::new(name, id, me, log, settings, Offset(0), Arc::default());
        partition.assign(Assignment::alone(me, LeaderEpoch(0)), Moment::START);
        Bench { disk, partition }
    }

    /// So many batches of one record, synced.
    fn filled(cleanup: CleanupPolicy, batches: usize) -> Bench {
        let bench = Bench::new(cleanup);
        (0..batches).for_each(|_| _ = append(&bench.partition));
        sync(&bench.partition);
        bench
    }

    /// Whether the partition is appended to and read while `work` waits for syncs.
    fn is_served_during<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Partition) -> T + Send + 'static,
    ) -> T {
        self.disk.close(Path::new("data"));
        self.is_served_at_closed_gate(work)
    }

    fn is_served_at_closed_gate<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Partition) -> T + Send + 'static,
    ) -> T {
        let partition = Arc::clone(&self.partition);
        let working = std::thread::spawn(move || work(&partition));
        assert!(self.disk.wait_for(1, PATIENCE), "the work gets to the device");
        let (sender, served) = mpsc::channel();
        let serving = Arc::clone(&self.partition);
        std::thread::spawn(move || {
            // More than two segments' worth: rolls wait for no sync either.
            let before = append(&serving);
            (0..5).for_each(|_| _ = append(&serving));
            let high_watermark = serving.high_watermark();
            let read = serving.read(&request(high_watermark)).unwrap();
            assert_eq!(read.high_watermark, high_watermark);
            // Whoever waits no more has given up.
            let _ = sender.send(before);
        });
        let end = served.recv_timeout(PATIENCE);
        self.disk.open_gate();
        let done = working.join().unwrap();
        assert!(end.is_ok(), "whoever appends and reads does not wait for the device");
        done
    }
}

fn append(partition: &Partition) -> Offset {
    let mut batch = BatchBuilder::new();
    batch.add(NOW, Some(b"key"), Some(&[7; 60]));
    let how = Append { acks: Acks::Leader, now: NOW, internal: false };
    partition.append(&mut batch.finish(), how).unwrap().needed
}

fn sync(partition: &Arc<Partition>) {
    partition.request_sync();
    partition.begin_sync(Urgency::Now).unwrap().run().unwrap();
}

fn request(offset: Offset) -> ReadRequest {
    ReadRequest::at(offset, 1 << 20, Isolation::Committed)
}

/// Offsets of all batches that can be read.
fn offsets(partition: &Partition, mut from: Offset) -> Vec<i64> {
    let mut found = Vec::new();
    while let Some(slice) = partition.read(&request(from)).unwrap().slice {
        let mut bytes = vec![0; slice.size_bytes as usize];
        slice.file.read_at(&mut bytes, slice.position).unwrap();
        for batch in model::batch::Batches::new(&bytes) {
            let (header, _) = batch.unwrap();
            found.push(header.base_offset.0);
            from = header.next_offset();
        }
    }
    found
}

#[test]
fn retention_that_waits_for_the_device_holds_up_nobody() {
    let bench = Bench::filled(DELETE, 48);
    let start = bench.partition.plan_retention(NOW).unwrap().expect("too much is there");
    let gone = bench.is_served_during(move |partition| partition.retain_from(start).unwrap());
    assert!(gone.len() > 10, "{} segments", gone.len());
    assert_eq!(bench.partition.with_log(|log| log.log_start_offset()), start);
    sync(&bench.partition);
    let expected: Vec<i64> = (start.0..54).collect();
    assert_eq!(offsets(&bench.partition, start), expected);
    let names = bench.disk.list(&dir()).unwrap();
    let left = names.iter().filter(|name| name.ends_with(".log")).count();
    assert_eq!(left, bench.partition.with_log(Log::segment_count));
}

#[test]
fn a_checkpoint_that_waits_for_the_device_holds_up_nobody() {
    let bench = Bench::filled(DELETE, 5);
    let point = bench.is_served_during(|partition| partition.checkpoint(1).unwrap());
    assert_eq!(point, Some(Offset(5)), "what came meanwhile is not covered");
    assert_eq!(bench.partition.with_log(Log::log_end_offset), Offset(11));
    assert_eq!(bench.partition.checkpoint(1).unwrap(), Some(Offset(11)));
}

#[test]
fn a_swap_of_compacted_segments_that_waits_for_the_device_holds_up_nobody() {
    let bench = Bench::filled(COMPACT, 20);
    let plan = bench.partition.plan_compaction(NOW).unwrap().expect("one key is worth it");
    let made = plan.run(1 << 16, [1, 2], &mut |_| true).unwrap().expect("nobody ends it");
    let done = bench.is_served_during(move |partition| partition.finish_compaction(made).unwrap());
    assert!(done.freed_bytes > 0);
    sync(&bench.partition);
    let left = offsets(&bench.partition, Offset(0));
    assert!(left.len() < 20, "{left:?}");
    assert_eq!(left[left.len() - 6..], [20, 21, 22, 23, 24, 25]);
}

#[test]
fn a_sync_of_new_names_that_waits_for_the_device_holds_up_no_further_roll() {
    let bench = Bench::filled(DELETE, 3);
    (0..3).for_each(|_| _ = append(&bench.partition));
    let partition = Arc::clone(&bench.partition);
    partition.request_sync();
    let begun = partition.begin_sync(Urgency::Now).unwrap();
    let synced = bench.is_served_during(move |_| begun.run().unwrap());
    assert_eq!(synced.map(|synced| synced.up_to), Some(Offset(6)));
    assert!(partition.with_log(Log::segment_count) > 5);
    sync(&partition);
    assert_eq!(offsets(&partition, Offset(0)), (0..12).collect::<Vec<_>>());
}

#[test]
fn a_deletion_waits_until_no_file_is_renamed_any_more() {
    let bench = Bench::filled(DELETE, 48);
    let start = bench.partition.plan_retention(NOW).unwrap().expect("too much is there");
    bench.disk.close(Path::new("data"));
    let retaining = Arc::clone(&bench.partition);
    let retaining = std::thread::spawn(move || retaining.retain_from(start));
    assert!(bench.disk.wait_for(1, PATIENCE));
    let deleting = Arc::clone(&bench.partition);
    let deleting = std::thread::spawn(move || deleting.mark_deleted());
    assert_eq!(bench.partition.status(), Status::Leading, "its files are still at work");
    bench.disk.open_gate();
    assert!(retaining.join().unwrap().is_ok());
    deleting.join().unwrap();
    assert_eq!(bench.partition.status(), Status::Deleted);
    assert!(bench.partition.retain_from(Offset(50)).is_err(), "nothing is begun any more");
}

#[test]
fn a_search_by_time_that_waits_for_the_device_holds_up_nobody() {
    for query in [OffsetQuery::MaxTimestamp, OffsetQuery::Timestamp(NOW)] {
        let bench = Bench::filled(DELETE, 20);
        bench.disk.close_to_reads(Path::new("data"));
        let find = move |partition: &Partition| partition.find_offset(query, None).unwrap();
        let found = bench.is_served_at_closed_gate(find);
        assert_eq!(found.expect("all records have this time").timestamp, NOW);
    }
}
