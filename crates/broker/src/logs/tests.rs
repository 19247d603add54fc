//! The life of a topic through the code that the broker runs: made, its records deleted, deleted, made
//! again, written to; with a power failure before every operation of the disk, and two starts in a row.

mod absent;
mod away;
mod deleting;
mod marks;
mod names;
mod opening;
mod stamps;
mod start_over;
mod zeros;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::record::BatchBuilder;
use model::{
    BrokerEpoch, BrokerId, Durability, LeaderEpoch, Moment, Offset, PartitionIndex, Timestamp,
    TopicId, TopicPartition, Uuid,
};
use partition::{
    Acks, Append, AssignedReplica, Assignment, Followed, Isolation, Partition, PartitionError,
    ReadRequest, ReplicaAnswer, Settings, Standing, Status, TruncationLimit, Urgency,
};
use rustix::io::Errno;
use storage::compaction::Compaction;
use storage::disk::{Disk, RealDisk, SimDisk};
use storage::journal::{Entry, Fact, Key, Opened};
use storage::{CleanupPolicy, LogConfig, StorageError};

use super::{Assigned, Directory, Gone, Leftover, Logs, LogsError, Process, Unopened, Wanted};

const ME: BrokerId = BrokerId(1);
const NOW: Timestamp = Timestamp(1_700_000_000_000);
const FIRST: TopicId = Uuid([1; 16]);
const SECOND: TopicId = Uuid([2; 16]);

fn name() -> TopicPartition {
    TopicPartition::new("t", 0)
}

/// Any process of this broker.
fn process() -> Process {
    Process { node_id: ME, incarnation: Uuid([8; 16]) }
}

fn start(disk: &SimDisk, paths: &[&str]) -> Result<Logs, LogsError> {
    start_as(disk, paths, process())
}

fn start_as(disk: &SimDisk, paths: &[&str], process: Process) -> Result<Logs, LogsError> {
    let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
    let cluster = Some(Uuid([7; 16]).to_string());
    // The quorum's vote: that the metadata is ours.
    disk.create_dir_all(Path::new("quorum")).unwrap();
    disk.open(Path::new("quorum/vote"), storage::disk::OpenMode::Create).unwrap();
    let disk = Arc::new(disk.clone());
    Logs::open_directories(disk, &paths, process, cluster, Path::new("quorum"), NOW)
        .map(|(logs, _)| logs)
}

/// Tells the logs what the metadata wants, as the start does.
fn settle(logs: &Logs, topic_id: Option<TopicId>) -> Result<(), LogsError> {
    let key = |topic_id| (Key { topic_id, partition: PartitionIndex(0) }, name());
    logs.settle(Assigned {
        partitions: topic_id.map(key).into_iter().collect(),
        image_index: Some(50),
        log_dirs: Vec::new(),
    })
}

fn open(logs: &Logs, topic_id: TopicId) -> Result<Arc<Partition>, StorageError> {
    open_in(logs, topic_id, LeaderEpoch(3))
}

/// Opens the log and leads it in this epoch.
fn open_in(
    logs: &Logs,
    topic_id: TopicId,
    epoch: LeaderEpoch,
) -> Result<Arc<Partition>, StorageError> {
    let partition = open_without_role(logs, topic_id, epoch)?;
    partition.assign(Assignment::alone(ME, epoch), Moment::START);
    Ok(partition)
}

fn open_without_role(
    logs: &Logs,
    topic_id: TopicId,
    epoch: LeaderEpoch,
) -> Result<Arc<Partition>, StorageError> {
    let wanted = Wanted {
        name: name(),
        topic_id,
        config: Arc::new(LogConfig { segment_bytes: 300, ..LogConfig::default() }),
        durability: Durability::Fsync,
        epoch,
    };
    let opened = logs.open(&[wanted], 5, 2, NOW).remove(0)?;
    let settings = Arc::new(Settings::default());
    let (checkpointed, queue) = (opened.high_watermark, opened.sync_queue);
    let partition = Partition::new(name(), topic_id, ME, opened.log, settings, checkpointed, queue);
    logs.register(&partition);
    Ok(partition)
}

/// Appends records one by one and syncs them: all are acknowledged.
fn append(logs: &Logs, partition: &Arc<Partition>, values: &[&str]) {
    for value in values {
        let mut batch = BatchBuilder::new();
        batch.add(NOW, Some(b"key"), Some(value.as_bytes()));
        let how = Append { acks: Acks::All, now: NOW, internal: false };
        if partition.append(&mut batch.finish(), how).is_err() {
            return;
        }
    }
    if let Some(sync) = partition.begin_sync(Urgency::Now)
        && let Ok(Some(synced)) = sync.run()
    {
        logs.note_synced(0, &[(Arc::clone(partition), synced)]);
    }
}

fn ends(partition: &Partition) -> (i64, i64) {
    partition.with_log(|log| (log.log_start_offset().0, log.log_end_offset().0))
}

/// What was acknowledged of the topic that exists, at one operation of the disk.
#[derive(Clone, Copy, Debug)]
struct Promise {
    at: u64,
    topic: Option<TopicId>,
    /// The log start that was answered, and the end that was acknowledged.
    start: i64,
    end: i64,
}

/// The whole life; returns what held from which operation on.
fn live(disk: &SimDisk) -> Vec<Promise> {
    let mut promises = Vec::new();
    let mut promise = |topic, start, end| {
        promises.push(Promise { at: disk.operation_count(), topic, start, end });
    };
    let logs = start(disk, &["data"]).unwrap();
    settle(&logs, None).unwrap();
    promise(None, 0, 0);
    promise(Some(FIRST), 0, 0);
    let partition = open(&logs, FIRST).unwrap();
    append(&logs, &partition, &["a"; 20]);
    promise(Some(FIRST), 0, 20);
    logs.checkpoint(NOW);
    let start = partition.delete_records(Some(Offset(10))).unwrap();
    logs.commit_starts(&[(Arc::clone(&partition), start)]);
    promise(Some(FIRST), 10, 20);
    logs.checkpoint(NOW);
    logs.sync_journals();
    promise(None, 0, 0);
    partition.mark_deleted();
    logs.delete(&[Gone { topic_id: FIRST, name: name(), delay_ms: 0 }]);
    promise(Some(SECOND), 0, 0);
    let partition = open(&logs, SECOND).unwrap();
    assert_eq!(ends(&partition), (0, 0), "nothing is inherited");
    logs.empty_trash(&mut |_| true);
    append(&logs, &partition, &["b"; 5]);
    promise(Some(SECOND), 0, 5);
    logs.close(BrokerEpoch(1), NOW);
    promise(Some(SECOND), 0, 5);
    promises
}

/// Starts on a disk as a crash left it and checks the promise; returns what was found.
fn check(disk: &SimDisk, held: Promise, next: Promise, what: &str) -> (i64, i64) {
    let logs = start(disk, &["data"]).unwrap_or_else(|error| panic!("{what}: {error}"));
    let Some(topic) = held.topic else {
        settle(&logs, None).unwrap_or_else(|error| panic!("{what}: {error}"));
        return (0, 0);
    };
    settle(&logs, Some(topic)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let partition = open(&logs, topic).unwrap_or_else(|error| panic!("{what}: {error}"));
    let (start, end) = ends(&partition);
    let most = if next.topic == held.topic { next } else { held };
    assert!(held.end <= end && end <= most.end, "{what}: the log ends at {end}");
    assert!(held.start <= start && start <= most.start, "{what}: the log starts at {start}");
    (start, end)
}

#[test]
fn a_topics_life_with_a_crash_at_every_operation() {
    let disk = SimDisk::new();
    disk.keep_history();
    let promises = live(&disk);
    for (at, found) in disk.history().into_iter().enumerate() {
        let held = promises.iter().rposition(|promise| promise.at <= at as u64);
        let Some(held) = held else { continue };
        let (held, next) = (promises[held], *promises.get(held + 1).unwrap_or(&promises[held]));
        for crash in 0..4 {
            let what = format!("before operation {at}, crash {crash}, {held:?}");
            let disk = if crash == 0 { found.snapshot() } else { found.after_crash(crash) };
            let first = check(&disk, held, next, &what);
            // Every start twice: killed, and with the power lost.
            let again = disk.after_crash(crash);
            assert_eq!(check(&disk, held, next, &what), first, "{what}, second start");
            assert_eq!(
                check(&again, held, next, &what),
                first,
                "{what}, second start after a crash"
            );
        }
    }
}

/// Twenty records, all synced; `checkpointed`: the next opening need not read them.
fn written(disk: &SimDisk, checkpointed: bool) -> Logs {
    written_and_open(disk, checkpointed).0
}

fn written_and_open(disk: &SimDisk, checkpointed: bool) -> (Logs, Arc<Partition>) {
    let logs = start(disk, &["data"]).unwrap();
    settle(&logs, Some(FIRST)).unwrap();
    let partition = open(&logs, FIRST).unwrap();
    append(&logs, &partition, &["a"; 20]);
    if checkpointed {
        partition.checkpoint(0).unwrap().expect("nothing was checkpointed yet");
    }
    logs.checkpoint(NOW);
    logs.sync_journals();
    (logs, partition)
}

/// Folders that a deletion has put aside.
fn put_aside(disk: &SimDisk) -> usize {
    disk.list(Path::new("data")).unwrap().iter().filter(|name| name.ends_with("-delete")).count()
}

#[test]
fn a_deleted_folder_stays_for_its_delay_unless_there_is_no_room_or_the_broker_starts() {
    for (delay_ms, is_full, stays) in [(0, false, 0), (3_600_000, false, 1), (3_600_000, true, 0)] {
        let disk = SimDisk::new();
        let (logs, partition) = written_and_open(&disk, false);
        if is_full {
            logs.fill(&partition);
        }
        partition.mark_deleted();
        logs.delete(&[Gone { topic_id: FIRST, name: name(), delay_ms }]);
        assert_eq!(put_aside(&disk), 1);
        logs.empty_trash(&mut |_| true);
        assert_eq!(put_aside(&disk), stays, "after {delay_ms} ms, full: {is_full}");
        logs.sync_journals();
        drop((logs, partition));
        let logs = start(&disk, &["data"]).unwrap();
        settle(&logs, None).unwrap();
        logs.empty_trash(&mut |_| true);
        assert_eq!(put_aside(&disk), 0, "nobody reads what was deleted before the start");
    }
}

#[test]
fn deleted_folders_that_are_much_of_what_is_free_go_without_pauses() {
    let place = tempfile::tempdir().unwrap();
    let paths = [place.path().join("data")];
    let (cluster, quorum) = (Some(Uuid([7; 16]).to_string()), place.path().join("quorum"));
    let logs = Logs::open_directories(Arc::new(RealDisk), &paths, process(), cluster, &quorum, NOW);
    let (logs, _) = logs.unwrap();
    let free = logs.usable_bytes().expect("the system tells what is free");
    let paused = |bytes: u64| {
        let path = paths[0].join("t-0.7-delete");
        fs::create_dir_all(&path).unwrap();
        // Nothing is written: a file without blocks is freed like any other.
        let file = fs::File::create(path.join("00000000000000000000.log")).unwrap();
        file.set_len(bytes).unwrap();
        let key = Key { topic_id: FIRST, partition: PartitionIndex(0) };
        logs.leftovers.lock().push(Leftover::new(0, key, path, Instant::now()));
        let mut told = None;
        logs.empty_trash(&mut |pause| {
            told = Some(pause);
            false
        });
        logs.leftovers.lock().clear();
        told.expect("a file of several pieces has pauses")
    };
    assert!(paused(5 << 20) > Duration::ZERO);
    assert_eq!(paused(free), Duration::ZERO, "{free} bytes are free");
}

fn log_files(disk: &SimDisk) -> Vec<PathBuf> {
    let dir = Path::new("data/t-0");
    let names = disk.list(dir).unwrap();
    names.iter().filter(|name| name.ends_with(".log")).map(|name| dir.join(name)).collect()
}

#[test]
fn a_refused_partition_stays_refused_whatever_the_stops() {
    for clean in [false, true] {
        let disk = SimDisk::new();
        drop(written(&disk, false));
        disk.flip_bit(&log_files(&disk)[2], 70, 3);
        for round in 0..4 {
            let logs = start(&disk, &["data"]).unwrap();
            settle(&logs, Some(FIRST)).unwrap();
            let refused = open(&logs, FIRST).map(|_| ()).unwrap_err().to_string();
            assert!(refused.contains("damaged at byte"), "round {round}: {refused}");
            logs.checkpoint(NOW);
            if clean {
                logs.close(BrokerEpoch(1), NOW);
            }
        }
    }
}

#[test]
fn what_is_missing_is_missed_after_a_clean_stop_too() {
    for clean in [false, true] {
        for segment in [None, Some(0), Some(2)] {
            let disk = SimDisk::new();
            let logs = written(&disk, true);
            if clean {
                logs.close(BrokerEpoch(1), NOW);
            }
            match segment {
                None => disk.remove_dir_all(Path::new("data/t-0")).unwrap(),
                Some(number) => disk.remove_file(&log_files(&disk)[number]).unwrap(),
            }
            for _ in 0..2 {
                let logs = start(&disk, &["data"]).unwrap();
                settle(&logs, Some(FIRST)).unwrap();
                assert!(open(&logs, FIRST).is_err(), "clean {clean}, segment {segment:?}");
            }
        }
    }
}

/// A log of one key, and what its compaction made.
fn compacted(disk: &SimDisk) -> (Logs, Arc<Partition>, Compaction) {
    let (logs, partition) = written_and_open(disk, true);
    let compaction = compaction_of(&partition);
    (logs, partition, compaction)
}

fn compaction_of(partition: &Partition) -> Compaction {
    partition.set_settings(Arc::new(Settings {
        log: Arc::new(LogConfig {
            segment_bytes: 300,
            cleanup: CleanupPolicy { delete: false, compact: true },
            min_cleanable_dirty_ratio: 0.0,
            ..LogConfig::default()
        }),
        ..Settings::default()
    }));
    let plan = partition.plan_compaction(NOW).unwrap().expect("one key is written twenty times");
    plan.run(1 << 20, [1, 2], &mut |_| true).unwrap().expect("it has its time")
}

/// No checkpoint, and the process is killed: the next start takes the log, and refuses it if any sealed segment is gone.
fn assert_sealed_are_missed(disk: &SimDisk) {
    let opened = |disk: &SimDisk| {
        let logs = start(disk, &["data"]).unwrap();
        settle(&logs, Some(FIRST)).unwrap();
        open(&logs, FIRST).map(|_| ())
    };
    assert_eq!(opened(&disk.snapshot()).map_err(|cause| cause.to_string()), Ok(()));
    for sealed in &log_files(disk)[..log_files(disk).len() - 1] {
        let damaged = disk.snapshot();
        damaged.remove_file(sealed).unwrap();
        assert!(opened(&damaged).is_err(), "{} is gone", sealed.display());
    }
}

#[test]
fn a_segment_that_compaction_made_is_missed_at_once() {
    let disk = SimDisk::new();
    let (logs, partition, compaction) = compacted(&disk);
    let replaced = compaction.replaces();
    let finish = || partition.finish_compaction(compaction);
    let done = logs.swap(&partition, replaced, finish).unwrap();
    assert!(done.freed_bytes > 0, "there was something to compact");
    assert_sealed_are_missed(&disk);
}

#[test]
fn what_was_active_at_the_last_checkpoint_may_be_compacted_whatever_crash_comes() {
    let disk = SimDisk::new();
    disk.keep_history();
    let (logs, partition) = written_and_open(&disk, true);
    append(&logs, &partition, &["b"; 20]);
    let from = disk.operation_count() as usize;
    let compaction = compaction_of(&partition);
    let replaced = compaction.replaces();
    let finish = || partition.finish_compaction(compaction);
    let done = logs.swap(&partition, replaced, finish).unwrap();
    assert!(done.freed_bytes > 0, "there was something to compact");
    logs.sync_journals();
    for (at, found) in disk.history().into_iter().enumerate().skip(from) {
        for crashed in [found.snapshot(), found.after_crash(1), found.after_crash(2)] {
            let logs = start(&crashed, &["data"]).unwrap();
            settle(&logs, Some(FIRST)).unwrap();
            let opened = open(&logs, FIRST).unwrap_or_else(|cause| panic!("at {at}: {cause}"));
            assert_eq!(ends(&opened), (0, 40), "at {at}");
        }
    }
}

#[test]
fn a_segment_that_compaction_found_no_room_to_replace_is_missed_at_once() {
    let disk = SimDisk::new();
    let (logs, partition, compaction) = compacted(&disk);
    let names = disk.list(Path::new("data/t-0")).unwrap();
    let replaced = compaction.replaces();
    let finish = || {
        disk.fail_at(disk.operation_count(), Errno::NOSPC);
        partition.finish_compaction(compaction).map(drop)
    };
    let Err(PartitionError::Storage(cause)) = logs.swap(&partition, replaced, finish) else {
        panic!("its first write found no room");
    };
    assert!(cause.is_full(), "{cause}");
    let left = disk.list(Path::new("data/t-0")).unwrap();
    let written: Vec<_> = names.iter().filter(|name| name.ends_with(".cleaned")).collect();
    assert!(!written.is_empty() && left.iter().all(|name| !written.contains(&name)), "{left:?}");
    assert_sealed_are_missed(&disk);
}

#[test]
fn empty_folders_do_not_outweigh_strays_that_have_records() {
    let disk = SimDisk::new();
    drop(written(&disk, true));
    for empty in ["u-0", "u-1", "u-2"] {
        disk.create_dir_all(&Path::new("data").join(empty)).unwrap();
    }
    let logs = start(&disk, &["data"]).unwrap();
    let lost = logs.settle(Assigned { image_index: Some(2), ..Assigned::default() }).unwrap_err();
    assert!(matches!(lost, LogsError::MetadataLost { strays: 1, folders: 1, .. }), "{lost}");
}

#[test]
fn a_stray_folder_is_left_and_most_of_them_refuse_the_start() {
    let disk = SimDisk::new();
    drop(written(&disk, true));
    let logs = start(&disk, &["data"]).unwrap();
    // The metadata is older than the folder.
    let lost = logs.settle(Assigned { image_index: Some(2), ..Assigned::default() }).unwrap_err();
    assert!(matches!(lost, LogsError::MetadataLost { strays: 1, folders: 1, .. }), "{lost}");
    // A deletion that was decided, and not acted upon before the crash.
    settle(&logs, None).unwrap();
    assert_eq!(logs.strays().len(), 1);
    logs.empty_trash(&mut |_| true);
    assert!(disk.exists(Path::new("data/t-0")), "its deletion was not requested");
    // Its name is needed.
    let partition = open(&logs, SECOND).unwrap();
    assert_eq!(ends(&partition), (0, 0));
    logs.empty_trash(&mut |_| true);
    let names = disk.list(Path::new("data")).unwrap();
    assert!(names.iter().any(|name| name.ends_with("-stray")), "{names:?}");
}

/// A topic whose partition found no room for its entry, and that was deleted again: an empty folder does not say that the metadata is lost.
#[test]
fn a_folder_without_records_refuses_no_start() {
    let disk = SimDisk::new();
    let logs = start(&disk, &["data"]).unwrap();
    settle(&logs, None).unwrap();
    disk.limit_capacity(Some(disk.used_bytes()));
    assert!(open(&logs, FIRST).unwrap_err().is_full());
    logs.delete(&[Gone { topic_id: FIRST, name: name(), delay_ms: 0 }]);
    disk.limit_capacity(None);
    assert!(disk.exists(Path::new("data/t-0")));
    logs.release();
    let logs = start(&disk, &["data"]).unwrap();
    settle(&logs, None).unwrap();
    assert_eq!(ends(&open(&logs, SECOND).unwrap()), (0, 0), "its name is free");
}

/// A replica that is refused and copied anew: its folder is kept whole, and it begins empty, wherever the power fails.
#[test]
fn a_refused_partition_is_put_aside_whole_and_begins_anew_whatever_crash_comes() {
    let disk = SimDisk::new();
    disk.keep_history();
    drop(written(&disk, true));
    disk.remove_file(&log_files(&disk)[1]).unwrap();
    let (begun, from) = (disk.snapshot(), disk.operation_count() as usize);
    let key = Key { topic_id: FIRST, partition: PartitionIndex(0) };
    let put_aside = |disk: &SimDisk, what: &str| {
        let logs = start(disk, &["data"]).unwrap_or_else(|error| panic!("{what}: {error}"));
        settle(&logs, Some(FIRST)).unwrap_or_else(|error| panic!("{what}: {error}"));
        let opened = open(&logs, FIRST);
        if opened.is_err() {
            logs.set_aside(&key, &name()).unwrap().unwrap_or_else(|| panic!("{what}: not refused"));
            assert!(logs.unopened().is_empty(), "{what}");
        }
        let partition = opened.or_else(|_| open(&logs, FIRST)).unwrap();
        assert_eq!(ends(&partition), (0, 0), "{what}: it is empty");
        assert_eq!(logs.set_aside(&key, &name()).unwrap(), None, "{what}: it is not refused");
        let names = disk.list(Path::new("data")).unwrap();
        let aside: Vec<&String> = names.iter().filter(|name| name.ends_with("-stray")).collect();
        let [aside] = aside[..] else { panic!("{what}: it is kept once: {names:?}") };
        let kept = disk.list(&Path::new("data").join(aside)).unwrap();
        let was = begun.list(Path::new("data/t-0")).unwrap();
        assert!(was.iter().all(|file| kept.contains(file)), "{what}: {was:?}, {kept:?}");
    };
    put_aside(&disk, "without a crash");
    for (at, found) in disk.history().into_iter().enumerate().skip(from) {
        for crash in 0..4 {
            let disk = if crash == 0 { found.snapshot() } else { found.after_crash(crash) };
            put_aside(&disk, &format!("before operation {at}, crash {crash}"));
        }
    }
}

/// That the replica follows broker 2 in this leader epoch.
fn following_in(leader_epoch: i32) -> Assignment {
    let replica = |broker| AssignedReplica { broker, standing: Standing::Absent };
    let leader = BrokerId(2);
    Assignment {
        leader,
        leader_epoch: LeaderEpoch(leader_epoch),
        partition_epoch: leader_epoch,
        replicas: vec![replica(leader), replica(ME)],
        isr: vec![leader],
        recovering: false,
        truncation: TruncationLimit::Unlimited,
        awaits_durability: false,
    }
}

/// A follower knows after a kill which offset was committed, a second after it has known: its log is not truncated below.
#[test]
fn the_highest_committed_offset_survives_a_kill() {
    let disk = SimDisk::new();
    let logs = start(&disk, &["data"]).unwrap();
    settle(&logs, None).unwrap();
    let partition = open(&logs, FIRST).unwrap();
    let bounded =
        Assignment { truncation: TruncationLimit::Committed(LeaderEpoch::NONE), ..following_in(4) };
    partition.assign(bounded.clone(), Moment::START);
    let mut batch = BatchBuilder::new().placed(Offset(0), LeaderEpoch(4));
    for _ in 0..3 {
        batch.add(NOW, Some(b"key"), Some(b"value"));
    }
    let answer = |asked_in: i32| ReplicaAnswer {
        asked_in: LeaderEpoch(asked_in),
        diverging: None,
        high_watermark: Offset(2),
        log_start: Offset(0),
        records: &[],
    };
    let records = batch.finish();
    let taken = ReplicaAnswer { records: &records, ..answer(4) };
    partition.follow_answer(&taken, NOW).unwrap();
    partition.request_sync();
    partition.begin_sync(Urgency::Now).and_then(|it| it.run().unwrap()).expect("there is news");
    logs.sync_journals();
    drop((logs, partition));

    let disk = disk.after_crash(7);
    let logs = start(&disk, &["data"]).unwrap();
    settle(&logs, Some(FIRST)).unwrap();
    let partition = open_without_role(&logs, FIRST, LeaderEpoch(5)).unwrap();
    assert_eq!(partition.high_watermark(), Offset(2));
    partition.recall_committed(partition.high_watermark());
    let next = Assignment { leader_epoch: LeaderEpoch(5), partition_epoch: 5, ..bounded };
    partition.assign(next, Moment::START);
    let parts = ReplicaAnswer { diverging: Some((LeaderEpoch(4), Offset(0))), ..answer(5) };
    let followed = partition.follow_answer(&parts, NOW).unwrap();
    let Followed::Refused(refused) = followed else { panic!("{followed:?}") };
    assert_eq!((refused.to, refused.committed), (Offset(0), Offset(2)));
    assert_eq!(partition.refused_truncation(), Some(refused));
    assert_eq!(ends(&partition).1, 3, "the log is kept");
}

/// A cut whose end lies within a batch, which goes as a whole: what the journal was told is more than what is left. The next
/// start takes nothing for lost, wherever the power fails, and neither does the one behind it.
#[test]
fn a_cut_through_a_batch_is_no_loss_to_the_next_start() {
    let disk = SimDisk::new();
    disk.keep_history();
    let logs = start(&disk, &["data"]).unwrap();
    settle(&logs, None).unwrap();
    let partition = open(&logs, FIRST).unwrap();
    fn answer(epoch: i32, records: &[u8]) -> ReplicaAnswer<'_> {
        ReplicaAnswer {
            asked_in: LeaderEpoch(epoch),
            diverging: None,
            high_watermark: Offset(3),
            log_start: Offset(0),
            records,
        }
    }
    let take = |offset, epoch| {
        let mut batch = BatchBuilder::new().placed(Offset(offset), LeaderEpoch(epoch));
        for _ in 0..3 {
            batch.add(NOW, Some(b"key"), Some(&[7; 30]));
        }
        let followed = partition.follow_answer(&answer(epoch, &batch.finish()), NOW).unwrap();
        assert!(matches!(followed, Followed::Appended { .. }), "{followed:?}");
    };
    let sync = || {
        partition.request_sync();
        let synced = partition.begin_sync(Urgency::Now).and_then(|it| it.run().unwrap());
        logs.note_synced(0, &[(Arc::clone(&partition), synced.expect("there was something"))]);
        logs.sync_journals();
    };
    partition.assign(following_in(4), Moment::START);
    for offset in [0, 3, 6, 9] {
        take(offset, 4);
    }
    sync();
    let from = disk.operation_count() as usize;
    partition.assign(following_in(5), Moment::START);
    let parts = ReplicaAnswer { diverging: Some((LeaderEpoch(4), Offset(7))), ..answer(5, &[]) };
    let Followed::Cut(cut) = partition.follow_answer(&parts, NOW).unwrap() else {
        panic!("the leader's log has another history");
    };
    logs.cut(&partition, cut.to).unwrap();
    assert_eq!((cut.to, ends(&partition).1), (Offset(7), 6));
    logs.sync_journals();
    let cut = disk.operation_count() as usize;
    take(6, 5);
    sync();
    let synced = disk.operation_count() as usize;
    logs.checkpoint(NOW);
    logs.sync_journals();
    let end_of = |disk: &SimDisk, what: &str| {
        let logs = start(disk, &["data"]).unwrap_or_else(|error| panic!("{what}: {error}"));
        settle(&logs, Some(FIRST)).unwrap_or_else(|error| panic!("{what}: {error}"));
        let opened = open_in(&logs, FIRST, LeaderEpoch(6));
        ends(&opened.unwrap_or_else(|error| panic!("{what}: {error}"))).1
    };
    for (at, found) in disk.history().into_iter().enumerate().skip(from) {
        for crash in 0..4 {
            let what = format!("operation {at} ({from}, {cut}, {synced}), crash {crash}");
            // The process is killed, or the power fails.
            let left = if crash == 0 { found.snapshot() } else { found.after_crash(crash) };
            let end = end_of(&left, &what);
            let expected = if at < cut { 6..=12 } else { 6..=9 };
            assert!(expected.contains(&end) && (at < synced || end == 9), "{what}: ends at {end}");
            assert_eq!(end_of(&left.snapshot(), &format!("{what}, again")), end, "{what}");
            end_of(&left.after_crash(9), &format!("{what}, then power fails"));
        }
    }
}

/// A follower's log with offsets missing, as its leader's has them: the next start takes nothing for lost, wherever the power
/// fails, and a log that was not allowed any gap is refused.
#[test]
fn gaps_that_were_allowed_are_no_damage_to_the_next_start() {
    let disk = SimDisk::new();
    disk.keep_history();
    let logs = start(&disk, &["data"]).unwrap();
    settle(&logs, None).unwrap();
    let partition = open(&logs, FIRST).unwrap();
    partition.assign(following_in(4), Moment::START);
    let take = |offset| {
        let mut batch = BatchBuilder::new().placed(Offset(offset), LeaderEpoch(4));
        batch.add(NOW, Some(b"key"), Some(&[7; 60]));
        let answer = ReplicaAnswer {
            asked_in: LeaderEpoch(4),
            diverging: None,
            high_watermark: Offset(0),
            log_start: Offset(0),
            records: &batch.finish(),
        };
        let followed = partition.follow_answer(&answer, NOW).unwrap();
        partition.request_sync();
        if let Some(synced) = partition.begin_sync(Urgency::Now).and_then(|it| it.run().unwrap()) {
            logs.note_synced(0, &[(Arc::clone(&partition), synced)]);
        }
        followed
    };
    take(0);
    assert_eq!(take(5), Followed::Gaps);
    logs.allow_gaps(&partition).unwrap();
    let from = disk.operation_count() as usize;
    for offset in [5, 6, 20, 21, 30] {
        assert!(matches!(take(offset), Followed::Appended { .. }), "{offset}");
    }
    logs.sync_journals();
    let synced = disk.operation_count() as usize;
    let end_of = |disk: &SimDisk, what: &str| {
        let logs = start(disk, &["data"]).unwrap_or_else(|error| panic!("{what}: {error}"));
        settle(&logs, Some(FIRST)).unwrap_or_else(|error| panic!("{what}: {error}"));
        let opened = open_in(&logs, FIRST, LeaderEpoch(5));
        ends(&opened.unwrap_or_else(|error| panic!("{what}: {error}"))).1
    };
    assert_eq!(end_of(&disk.snapshot(), "without a crash"), 31);
    for (at, found) in disk.history().into_iter().enumerate().skip(from) {
        for crash in 1..4 {
            let end = end_of(&found.after_crash(crash), &format!("operation {at}, crash {crash}"));
            assert!(at < synced || end == 31, "operation {at}, crash {crash}: ends at {end}");
        }
    }
}

#[test]
fn what_was_mended_is_copied_anew_where_others_have_everything_and_complete_otherwise() {
    let key = Key { topic_id: FIRST, partition: PartitionIndex(0) };
    for others_have_everything in [false, true] {
        let disk = SimDisk::new();
        drop(written(&disk, true));
        let logs = start(&disk, &["data"]).unwrap();
        let known = logs.directories[0].partition(&key).unwrap();
        let opened = Opened { mended: true, ..known.opened.clone() };
        let journal = logs.directories[0].journal().unwrap();
        journal.commit(&[Entry::Of(key, Fact::Opened(opened))]).unwrap();
        assert_eq!(logs.mended(), [key]);
        logs.settle_mended(|mended| *mended == key && others_have_everything).unwrap();
        assert!(logs.mended().is_empty(), "it is decided");
        settle(&logs, Some(FIRST)).unwrap();
        let end = open(&logs, FIRST).map(|partition| ends(&partition).1);
        assert_eq!(end.is_err(), others_have_everything, "{end:?}");
        assert_eq!(logs.refuses(&key), others_have_everything);
        drop(logs);
        let logs = start(&disk.snapshot(), &["data"]).unwrap();
        assert!(logs.mended().is_empty(), "and stays so");
        assert_eq!(logs.refuses(&key), others_have_everything);
    }
}

#[test]
fn a_directory_that_cannot_be_opened_takes_only_its_partitions_along() {
    let disk = SimDisk::new();
    drop(written(&disk, true));
    disk.flip_bit(Path::new("data/highwater-partitions"), 50, 1);
    let logs = start(&disk, &["data", "other"]).unwrap();
    settle(&logs, Some(FIRST)).unwrap();
    assert_eq!(logs.offline().len(), 1);
    let refused = open(&logs, FIRST).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("could not be opened"), "{refused}");
    open(&logs, SECOND).unwrap();
    assert!(start(&disk, &["data"]).is_err(), "no directory is left");
}

#[test]
fn nothing_is_made_in_a_directory_that_failed() {
    let disk = SimDisk::new();
    let logs = start(&disk, &["data"]).unwrap();
    settle(&logs, None).unwrap();
    let partition = open(&logs, FIRST).unwrap();
    append(&logs, &partition, &["a"]);
    logs.fail(&partition, &"it does not answer");
    let names = disk.list(Path::new("data")).unwrap();
    let other = || {
        let name = TopicPartition::new("other", 0);
        let epoch = LeaderEpoch(3);
        let (config, durability) = (Arc::new(LogConfig::default()), Durability::Fsync);
        let wanted = Wanted { name, topic_id: SECOND, config, durability, epoch };
        logs.open(&[wanted], 6, 2, NOW).remove(0).map(|_| ())
    };
    assert!(matches!(other(), Err(StorageError::Failed { .. })), "{:?}", other());
    assert_eq!(disk.list(Path::new("data")).unwrap(), names);
}

#[test]
fn a_topic_made_again_is_compacted_though_the_one_before_could_not_be() {
    let disk = SimDisk::new();
    let logs = start(&disk, &["data"]).unwrap();
    settle(&logs, None).unwrap();
    let partition = open(&logs, FIRST).unwrap();
    logs.note_uncleanable(&partition);
    assert!(logs.is_uncleanable(&partition));
    assert_eq!(logs.uncleanable(), [name()]);
    partition.mark_deleted();
    logs.delete(&[Gone { topic_id: FIRST, name: name(), delay_ms: 0 }]);
    let again = open(&logs, SECOND).unwrap();
    assert!(!logs.is_uncleanable(&again));
    assert!(logs.uncleanable().is_empty());
}

#[test]
fn a_directory_that_is_not_where_it_was_has_failed() {
    let place = tempfile::tempdir().unwrap();
    let (kept, lost) = (place.path().join("kept"), place.path().join("lost"));
    let aside = place.path().join("aside");
    let journal = storage::journal::SNAPSHOT;
    for (what, lose) in [
        ("gone", &(|| fs::rename(&lost, &aside).unwrap()) as &dyn Fn()),
        ("another", &|| {
            fs::rename(&lost, &aside).unwrap();
            fs::create_dir(&lost).unwrap();
        }),
        ("emptied", &|| fs::remove_file(lost.join(journal)).unwrap()),
    ] {
        let paths = [kept.clone(), lost.clone()];
        let cluster = Some(Uuid([7; 16]).to_string());
        let quorum = place.path().join("quorum");
        let logs =
            Logs::open_directories(Arc::new(RealDisk), &paths, process(), cluster, &quorum, NOW);
        let (logs, _) = logs.unwrap();
        (0..logs.directories.len()).for_each(|at| logs.look_at_directory(at));
        assert!(logs.offline().is_empty(), "{what}");
        lose();
        let failures = logs.failures();
        (0..logs.directories.len()).for_each(|at| logs.look_at_directory(at));
        let offline = logs.offline();
        assert!(matches!(&offline[..], [(path, _)] if *path == lost), "{what}: {offline:?}");
        assert!(offline[0].1.contains(what), "{what}: {offline:?}");
        assert!(failures.has_changed().unwrap(), "{what}: it is told");
        drop(logs);
        for path in [&kept, &lost, &aside] {
            let _ = fs::remove_dir_all(path);
        }
    }
}

#[test]
fn a_data_folder_of_kafka_is_refused_before_a_file_is_touched() {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("data/t-0")).unwrap();
    let before = disk.operation_count();
    let paths = [PathBuf::from("data")];
    let none = Path::new("data/__cluster_metadata-0");
    let refused =
        Logs::open_directories(Arc::new(disk.clone()), &paths, process(), None, none, NOW)
            .unwrap_err();
    assert!(matches!(refused, LogsError::Foreign { .. }), "{refused}");
    assert_eq!(disk.operation_count(), before);
}

#[test]
fn the_last_time_that_a_directory_noted_is_known_at_the_start() {
    let disk = SimDisk::new();
    let logs = start(&disk, &["data"]).unwrap();
    assert_eq!(logs.last_wall_clock(), None, "a new directory notes nothing yet");
    settle(&logs, None).unwrap();
    let later = NOW.plus_ms(5_000);
    logs.close(BrokerEpoch(1), later);
    drop(logs);
    let logs = start(&disk, &["data", "new"]).unwrap();
    assert_eq!(logs.last_wall_clock(), Some(later));
}

#[test]
fn a_change_of_durability_is_known_to_the_next_start_once_it_holds() {
    let disk = SimDisk::new();
    let logs = start(&disk, &["data"]).unwrap();
    settle(&logs, None).unwrap();
    let partition = open(&logs, FIRST).unwrap();
    append(&logs, &partition, &["a"; 3]);
    let is_synced = |logs: &Logs| {
        let key = Key { topic_id: FIRST, partition: PartitionIndex(0) };
        logs.directories[0].partition(&key).unwrap().opened.fsync
    };
    let obey = |durability| {
        partition.set_settings(Arc::new(Settings { durability, ..Settings::default() }));
    };
    assert!(is_synced(&logs));
    logs.note_durability(&partition, Durability::PageCache);
    obey(Durability::PageCache);
    let mut batch = BatchBuilder::new();
    batch.add(NOW, None, Some(b"unsynced"));
    let how = Append { acks: Acks::Leader, now: NOW, internal: false };
    partition.append(&mut batch.finish(), how).unwrap();
    assert_eq!(partition.high_watermark(), Offset(4), "acknowledged from the page cache");
    assert!(!is_synced(&logs));
    obey(Durability::Fsync);
    logs.note_durability(&partition, Durability::Fsync);
    logs.sync_journals();
    assert!(!is_synced(&logs), "what was acknowledged may still be lost");
    append(&logs, &partition, &["b"]);
    logs.sync_journals();
    assert!(is_synced(&logs));
    logs.release();
    drop(partition);
    drop(logs);
    assert!(is_synced(&start(&disk, &["data"]).unwrap()), "and after a crash of the process");
}

/// Acknowledged from the page cache, records may be lost: a start that expects them to be synced would believe what is not there.
#[test]
fn a_change_of_durability_that_found_no_room_is_entered_later() {
    let disk = SimDisk::new();
    let (logs, partition) = written_and_open(&disk, true);
    let is_synced = || {
        let key = Key { topic_id: FIRST, partition: PartitionIndex(0) };
        logs.directories[0].partition(&key).unwrap().opened.fsync
    };
    disk.limit_capacity(Some(disk.used_bytes()));
    logs.note_durability(&partition, Durability::PageCache);
    assert!(is_synced() && logs.offline().is_empty());
    logs.sync_journals();
    assert!(is_synced(), "there is still no room");
    disk.limit_capacity(None);
    logs.sync_journals();
    assert!(!is_synced());
    assert!(logs.becoming.lock().is_empty());
}

#[test]
fn an_empty_directory_in_the_place_of_one_with_partitions_is_refused_until_a_person_says_so() {
    let disk = SimDisk::new();
    let paths = ["a", "b"];
    let logs = start(&disk, &paths).unwrap();
    settle(&logs, None).unwrap();
    append(&logs, &open(&logs, FIRST).unwrap(), &["x"; 3]);
    let log_dirs: Vec<Uuid> = logs.directories().map(|directory| directory.id()).collect();
    let assigned = || {
        let key = Key { topic_id: FIRST, partition: PartitionIndex(0) };
        let partitions = [(key, name())].into();
        Assigned { partitions, image_index: Some(50), log_dirs: log_dirs.clone() }
    };
    logs.close(BrokerEpoch(1), NOW);
    logs.release();
    drop(logs);
    // The disk of the first one is not mounted: the broker finds an empty directory.
    disk.rename(Path::new("a"), Path::new("away")).unwrap();
    for _ in 0..2 {
        let logs = start(&disk, &paths).unwrap();
        let refused = logs.settle(assigned()).unwrap_err();
        let LogsError::DirectoryMissing { id, partitions, path, .. } = refused else {
            panic!("{refused}")
        };
        assert_eq!((id, partitions, path), (log_dirs[0], 1, PathBuf::from("a")));
        logs.release();
    }
    disk.rename(Path::new("a"), Path::new("begun")).unwrap();
    disk.rename(Path::new("away"), Path::new("a")).unwrap();
    let logs = start(&disk, &paths).unwrap();
    logs.settle(assigned()).unwrap();
    assert_eq!(ends(&open(&logs, FIRST).unwrap()), (0, 3), "mounted again, all is there");
    logs.release();
    drop(logs);
    disk.rename(Path::new("a"), Path::new("away")).unwrap();
    disk.rename(Path::new("begun"), Path::new("a")).unwrap();
    let said = Path::new("a/highwater-begin-anew");
    disk.open(said, storage::disk::OpenMode::Create).unwrap();
    let logs = start(&disk, &paths).unwrap();
    logs.settle(assigned()).unwrap();
    assert!(!disk.exists(said), "said once, meant once");
    assert_eq!(ends(&open(&logs, FIRST).unwrap()), (0, 0));
}

#[test]
fn damage_found_at_the_first_append_refuses_the_partition_over_any_number_of_starts() {
    let disk = SimDisk::new();
    let logs = start(&disk, &["data"]).unwrap();
    settle(&logs, None).unwrap();
    let partition = open(&logs, FIRST).unwrap();
    append(&logs, &partition, &["a"; 20]);
    let base = partition.with_log(|log| log.active_base_offset().0);
    logs.close(BrokerEpoch(1), NOW);
    let path = format!("data/t-0/{base:020}.log");
    let file = disk.open(Path::new(&path), storage::disk::OpenMode::ReadWrite).unwrap();
    file.write_all_at(&vec![0x5a; file.size().unwrap() as usize], 0).unwrap();
    file.sync().unwrap();

    let logs = start(&disk, &["data"]).unwrap();
    settle(&logs, Some(FIRST)).unwrap();
    let partition = open(&logs, FIRST).expect("its files are as long as they were");
    let mut batch = BatchBuilder::new();
    batch.add(NOW, None, Some(b"b"));
    let how = Append { acks: Acks::All, now: NOW, internal: false };
    let refused = partition.append(&mut batch.finish(), how);
    let Err(PartitionError::Storage(cause)) = refused else { panic!("{refused:?}") };
    logs.refuse(&partition, &cause);
    assert_eq!(partition.status(), Status::Offline);
    assert_eq!(logs.unopened().len(), 1, "health tells of it");
    assert!(!logs.directories().any(Directory::is_offline), "others are served");
    logs.close(BrokerEpoch(1), NOW);
    for _ in 0..2 {
        let logs = start(&disk, &["data"]).unwrap();
        settle(&logs, Some(FIRST)).unwrap();
        let again = open(&logs, FIRST).err();
        assert!(matches!(again, Some(StorageError::Refused { .. })), "{again:?}");
        logs.close(BrokerEpoch(1), NOW);
    }
}

/// So many partitions of one topic, by their wants.
fn many(count: i32) -> Vec<Wanted> {
    let wanted = |index| Wanted {
        name: TopicPartition::new("t", index),
        topic_id: FIRST,
        config: Arc::default(),
        durability: Durability::Fsync,
        epoch: LeaderEpoch(3),
    };
    (0..count).map(wanted).collect()
}

fn settle_many(logs: &Logs, wanted: &[Wanted]) {
    let key = |wanted: &Wanted| {
        (Key { topic_id: FIRST, partition: wanted.name.partition }, wanted.name.clone())
    };
    let partitions = wanted.iter().map(key).collect();
    logs.settle(Assigned { partitions, image_index: Some(50), log_dirs: Vec::new() }).unwrap();
}

/// Opens all of them, and leads each in this leader epoch, as a start does.
fn open_many(logs: &Logs, wanted: &[Wanted], epoch: LeaderEpoch) -> Vec<Arc<Partition>> {
    let opened = logs.open(wanted, 5, 1, NOW);
    let partitions = wanted.iter().zip(opened).map(|(wanted, opened)| {
        let opened = opened.unwrap();
        let (name, settings) = (wanted.name.clone(), Arc::new(Settings::default()));
        let (checkpointed, queue) = (opened.high_watermark, opened.sync_queue);
        let partition = Partition::new(name, FIRST, ME, opened.log, settings, checkpointed, queue);
        logs.register(&partition);
        partition.assign(Assignment::alone(ME, epoch), Moment::START);
        partition
    });
    partitions.collect()
}

/// What was done to the disk since its operation `from`, below folders of partitions.
fn done_to_partitions(disk: &SimDisk, from: u64) -> Vec<String> {
    let done = disk.operations().split_off(from as usize);
    done.iter().filter(|one| is_partitions(&one.path)).map(ToString::to_string).collect()
}

/// Files of partitions that were opened since `from` files of all were.
fn opened_of_partitions(disk: &SimDisk, from: usize) -> Vec<PathBuf> {
    let opened = disk.opened().split_off(from);
    opened.into_iter().filter(|path| is_partitions(path)).collect()
}

fn is_partitions(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str().to_string_lossy().starts_with("t-"))
}

const MANY: i32 = 50;

#[test]
fn creating_a_partition_makes_a_folder_and_nothing_else() {
    let disk = SimDisk::new();
    let logs = start(&disk, &["data"]).unwrap();
    let wanted = many(MANY);
    settle_many(&logs, &[]);
    let before = disk.operation_count();
    let partitions = open_many(&logs, &wanted, LeaderEpoch(3));
    let done = done_to_partitions(&disk, before);
    assert!(done.iter().all(|one| one.starts_with("create dir ")), "{done:?}");
    assert_eq!(done.len(), wanted.len(), "{done:?}");
    assert_eq!(opened_of_partitions(&disk, 0), Vec::<PathBuf>::new());
    let all = (disk.operation_count() - before) as usize;
    assert!(all - done.len() < 10, "{all} operations, of which a few are for all partitions");

    // The first record makes the files; a checkpoint that covers it the copy for Kafka's tools.
    append(&logs, &partitions[7], &["a"]);
    let first = PathBuf::from("data/t-7/00000000000000000000.log");
    assert_eq!(opened_of_partitions(&disk, 0), [first]);
    assert_eq!(disk.list(Path::new("data/t-7")).unwrap(), ["00000000000000000000.log"]);
    partitions[7].checkpoint(1).unwrap();
    logs.checkpoint(NOW);
    let names = disk.list(Path::new("data/t-7")).unwrap();
    assert!(names.iter().any(|name| name == "partition.metadata"), "{names:?}");
    assert_eq!(disk.list(Path::new("data/t-8")).unwrap(), Vec::<String>::new());
}

#[test]
fn a_start_and_a_stop_open_no_file_of_a_partition_that_did_not_change() {
    let disk = SimDisk::new();
    let logs = start(&disk, &["data"]).unwrap();
    let wanted = many(MANY);
    settle_many(&logs, &[]);
    let partitions = open_many(&logs, &wanted, LeaderEpoch(3));
    partitions.iter().step_by(2).for_each(|partition| append(&logs, partition, &["a", "b"]));
    logs.close(BrokerEpoch(1), NOW);
    drop((partitions, logs));
    for epoch in 4..7 {
        let (before, opened) = (disk.operation_count(), disk.opened().len());
        let logs = start(&disk, &["data"]).unwrap();
        settle_many(&logs, &wanted);
        let partitions = open_many(&logs, &wanted, LeaderEpoch(epoch));
        // An idle minute: nothing is entered, nothing is written.
        let idle = disk.operation_count();
        logs.checkpoint(NOW);
        let entered = disk.operation_count();
        logs.checkpoint(NOW);
        logs.sync_journals();
        logs.checkpoint(NOW);
        logs.sync_journals();
        let twice = disk.operations().split_off(entered as usize);
        let wrote = twice.iter().filter(|one| one.kind == "write").count();
        assert_eq!(wrote, 0, "after {} operations: {twice:?}", entered - idle);
        logs.close(BrokerEpoch(1), NOW);
        assert_eq!(done_to_partitions(&disk, before), Vec::<String>::new(), "epoch {epoch}");
        assert_eq!(opened_of_partitions(&disk, opened), Vec::<PathBuf>::new(), "epoch {epoch}");
        let ends: Vec<i64> = partitions.iter().map(|partition| ends(partition).1).collect();
        assert!(
            ends.iter().zip(0..).all(|(end, index)| *end == if index % 2 == 0 { 2 } else { 0 })
        );
        let read = ReadRequest::at(Offset(0), 1 << 20, Isolation::LogEnd);
        // Closed, it serves nobody: opened once more it does, and opens files for that.
        let logs = start(&disk, &["data"]).unwrap();
        settle_many(&logs, &wanted);
        let partitions = open_many(&logs, &wanted, LeaderEpoch(epoch));
        assert!(partitions[0].read(&read).unwrap().slice.is_some());
        assert_ne!(opened_of_partitions(&disk, opened), Vec::<PathBuf>::new());
        logs.close(BrokerEpoch(1), NOW);
    }
}

#[test]
fn what_was_never_written_is_empty_and_what_was_lost_is_refused() {
    for clean in [false, true] {
        let disk = SimDisk::new();
        let logs = start(&disk, &["data"]).unwrap();
        let wanted = many(3);
        settle_many(&logs, &[]);
        let partitions = open_many(&logs, &wanted, LeaderEpoch(3));
        append(&logs, &partitions[1], &["a"]);
        if clean {
            logs.close(BrokerEpoch(1), NOW);
        }
        drop((partitions, logs));
        // The folder of a partition that was never written to, and the file of one that was.
        disk.remove_dir_all(Path::new("data/t-0")).unwrap();
        disk.remove_file(Path::new("data/t-1/00000000000000000000.log")).unwrap();
        for _ in 0..2 {
            let logs = start(&disk, &["data"]).unwrap();
            settle_many(&logs, &wanted);
            let opened = logs.open(&wanted, 5, 1, NOW);
            let served: Vec<bool> = opened.iter().map(Result::is_ok).collect();
            assert_eq!(served, [false, false, true], "clean {clean}");
        }
    }
}
