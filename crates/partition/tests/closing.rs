//! A stop of many partitions with few syncs: whenever the power fails, each is as durable as it was
//! promised, and after the stop all are complete.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::record::BatchBuilder;
use model::{BrokerId, LeaderEpoch, Moment, Offset, Timestamp, TopicPartition, Uuid};
use partition::{
    Acks, Append, Assignment, Isolation, Partition, PartitionError, ReadRequest, Settings,
    checkpoint_together, close_together,
};
use rustix::io::Errno;
use storage::disk::{Disk, SimDisk};
use storage::{Log, Opening};

const NOW: Timestamp = Timestamp(1_000_000);
const PARTITIONS: i32 = 3;

fn dir(index: i32) -> PathBuf {
    Path::new("data").join(format!("t-{index}"))
}

fn open(disk: &SimDisk, index: i32, opening: Opening) -> Log {
    let settings = Settings::default();
    Log::open(Arc::new(disk.clone()), dir(index), settings.log, opening).expect("it opens")
}

fn partition(log: Log, index: i32) -> Arc<Partition> {
    let (name, me) = (TopicPartition::new("t", index), BrokerId(1));
    let (id, settings) = (Uuid::from_random([1; 16]), Arc::new(Settings::default()));
    Partition::new(name, id, me, log, settings, Offset(0), Arc::default())
}

/// Partitions on a disk, each with more batches than the one before; half of them were synced.
fn filled(disk: &SimDisk) -> Vec<Arc<Partition>> {
    disk.create_dir_all(Path::new("data")).unwrap();
    disk.sync_dir(Path::new("")).unwrap();
    let partitions = (0..PARTITIONS).map(|index| {
        let (log, me) = (open(disk, index, Opening::unknown(NOW)), BrokerId(1));
        let partition = partition(log, index);
        partition.assign(Assignment::alone(me, LeaderEpoch(0)), Moment::START);
        for number in 0..=2 * index + 1 {
            append(&partition);
            if number == index {
                partition.checkpoint(1).expect("it is synced");
                // So that small files are to be written, too.
                partition.assign(Assignment::alone(me, LeaderEpoch(1)), Moment::START);
            }
        }
        partition
    });
    partitions.collect()
}

fn append(partition: &Arc<Partition>) {
    let mut batch = BatchBuilder::new();
    batch.add(NOW, None, Some(b"value"));
    let how = Append { acks: Acks::Leader, now: NOW, internal: false };
    partition.append(&mut batch.finish(), how).expect("it is appended");
}

fn close(disk: &SimDisk, partitions: &[Arc<Partition>]) -> Vec<Result<(), PartitionError>> {
    let all: Vec<&Partition> = partitions.iter().map(|partition| &**partition).collect();
    close_together(&all, || disk.sync_all_below(Path::new("data")))
}

#[test]
fn whenever_the_power_fails_in_a_stop_what_was_synced_is_there() {
    let whole = SimDisk::new();
    let partitions = filled(&whole);
    let before = whole.operation_count();
    close(&whole, &partitions).into_iter().for_each(|closed| closed.expect("it closes"));
    let operations = whole.operation_count();
    assert!(operations >= before + 8, "only {} operations to crash at", operations - before);
    for operation in before..operations {
        let disk = SimDisk::new();
        let partitions = filled(&disk);
        let synced: Vec<Offset> =
            partitions.iter().map(|p| p.with_log(Log::synced_below)).collect();
        disk.stop_at(operation);
        let closed = close(&disk, &partitions);
        assert!(closed.iter().any(Result::is_err), "operation {operation} did not happen");
        for seed in 0..4 {
            let disk = disk.after_crash(seed);
            for (index, synced) in (0..).zip(&synced) {
                let opening = Opening { synced: *synced, ..Opening::unknown(NOW) };
                let log = open(&disk, index, opening);
                assert!(log.log_end_offset() >= *synced, "operation {operation}, seed {seed}");
            }
        }
    }
}

#[test]
fn after_the_stop_all_is_durable_and_complete() {
    let disk = SimDisk::new();
    let partitions = filled(&disk);
    close(&disk, &partitions).into_iter().for_each(|closed| closed.expect("it closes"));
    for seed in 0..8 {
        let disk = disk.after_crash(seed);
        for (index, partition) in (0..).zip(&partitions) {
            let (end, active) =
                partition.with_log(|log| (log.log_end_offset(), log.settled_active()));
            assert_eq!(end, Offset(2 * i64::from(index) + 2));
            let opening = Opening {
                clean: true,
                synced: end,
                recovery_point: end,
                active: Some(active.expect("all of it lies below the recovery point")),
                ..Opening::unknown(NOW)
            };
            let log = open(&disk, index, opening);
            assert!(log.recovery().is_none(), "partition {index} needs no recovery");
            assert_eq!(log.log_end_offset(), end);
            let second = (LeaderEpoch(1), Offset(i64::from(index) + 1));
            assert_eq!(log.epochs(), [(LeaderEpoch(0), Offset(0)), second]);
        }
    }
}

#[test]
fn no_room_in_a_sync_is_final_and_no_room_for_a_write_is_not() {
    let whole = SimDisk::new();
    let partitions = filled(&whole);
    let before = whole.operation_count();
    close(&whole, &partitions).into_iter().for_each(|closed| closed.expect("it closes"));
    let mut syncs = 0;
    for at in before..whole.operation_count() {
        let disk = SimDisk::new();
        let partitions = filled(&disk);
        disk.fail_at(at, Errno::NOSPC);
        let closed = close(&disk, &partitions);
        let is_sync = disk.operations()[at as usize].kind == "sync all";
        let failed = |partition: &Arc<Partition>| partition.with_log(|log| log.failure().is_some());
        if is_sync {
            syncs += 1;
            assert!(partitions.iter().all(failed), "operation {at}: {closed:?}");
        } else {
            assert!(!partitions.iter().any(failed), "operation {at}: {closed:?}");
        }
    }
    assert_eq!(syncs, 3);
}

#[test]
fn checkpoints_made_together_leave_the_partitions_open() {
    let disk = SimDisk::new();
    let partitions = filled(&disk);
    let all: Vec<&Partition> = partitions.iter().map(|partition| &**partition).collect();
    for (partition, result) in
        partitions.iter().zip(checkpoint_together(&all, || disk.sync_all_below(Path::new("data"))))
    {
        let end = partition.with_log(Log::log_end_offset);
        assert_eq!(result.expect("it is synced"), Some(end));
        assert_eq!(partition.with_log(Log::recovery_point), end);
        append(partition);
        assert_eq!(partition.with_log(Log::log_end_offset), end.plus(1));
    }
    // What is durable needs nothing once more, but for what was appended since.
    let again = checkpoint_together(&all, || disk.sync_all_below(Path::new("data")));
    assert!(again.iter().all(|result| matches!(result, Ok(Some(_)))), "{again:?}");
    let nothing = checkpoint_together(&all, || disk.sync_all_below(Path::new("data")));
    assert!(nothing.iter().all(|result| matches!(result, Ok(None))), "{nothing:?}");
}

#[test]
fn a_directory_that_cannot_be_synced_closes_no_log() {
    let disk = SimDisk::new();
    let partitions = filled(&disk);
    disk.fail_syncs(true);
    let closed = close(&disk, &partitions);
    assert!(closed.iter().all(Result::is_err), "{closed:?}");
    assert!(partitions.iter().all(|partition| partition.with_log(|log| log.failure().is_some())));
}

#[test]
fn a_stop_does_nothing_for_what_did_not_change_and_makes_no_file_that_holds_nothing() {
    let disk = SimDisk::new();
    close(&disk, &filled(&disk)).into_iter().for_each(|closed| closed.expect("it closes"));
    let again = (0..PARTITIONS).map(|index| {
        let log = open(&disk, index, Opening { clean: true, ..Opening::unknown(NOW) });
        partition(log, index)
    });
    let again: Vec<_> = again.collect();
    again.iter().for_each(|partition| {
        partition.assign(Assignment::alone(BrokerId(1), LeaderEpoch(7)), Moment::START)
    });
    let before = disk.operation_count();
    close(&disk, &again).into_iter().for_each(|closed| closed.expect("it closes"));
    assert_eq!(disk.operations()[before as usize..], []);

    let made = [partition(open(&disk, PARTITIONS, Opening::unknown(NOW)), PARTITIONS)];
    made[0].assign(Assignment::alone(BrokerId(1), LeaderEpoch(7)), Moment::START);
    let before = disk.operation_count();
    close(&disk, &made).into_iter().for_each(|closed| closed.expect("it closes"));
    assert_eq!(disk.operations()[before as usize..], []);
    assert_eq!(disk.list(&dir(PARTITIONS)).unwrap(), Vec::<String>::new());
}

#[test]
fn files_are_known_to_be_open_from_when_they_were_opened_until_they_are_closed() {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("data")).unwrap();
    let partition = partition(open(&disk, 0, Opening::unknown(NOW)), 0);
    partition.assign(Assignment::alone(BrokerId(1), LeaderEpoch(0)), Moment::START);
    let is_open = || partition.with_log(Log::has_open_files);
    partition.release_files_in_need(Log::release_files).unwrap();
    assert!(!partition.may_hold_files() && !is_open(), "nothing was written yet");

    append(&partition);
    assert!(partition.may_hold_files() && is_open());
    partition.release_files_in_need(Log::release_files).unwrap();
    assert!(partition.may_hold_files() && is_open(), "what is not synced stays open");
    partition.checkpoint(1).unwrap();
    partition.release_files_in_need(Log::release_files).unwrap();
    assert!(!partition.may_hold_files() && !is_open());

    let read = ReadRequest::at(Offset(0), 1 << 20, Isolation::LogEnd);
    assert!(partition.read(&read).unwrap().slice.is_some());
    assert!(partition.may_hold_files() && is_open());
    partition.release_files_in_need(Log::release_files).unwrap();
    assert!(!partition.may_hold_files());
    append(&partition);
    assert!(partition.may_hold_files() && is_open());
}
