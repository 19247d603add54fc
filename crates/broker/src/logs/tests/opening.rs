//! What cannot be opened: for a while, for good, and beside others that can.

use storage::disk::sim::Operation;

use super::deleting::{fill, may_lack_room};
use super::*;

fn key() -> Key {
    Key { topic_id: FIRST, partition: PartitionIndex(0) }
}

fn wanted(name: TopicPartition, topic_id: TopicId, durability: Durability) -> Wanted {
    Wanted { name, topic_id, config: Arc::default(), durability, epoch: LeaderEpoch(3) }
}

fn of_page_cache() -> Wanted {
    wanted(name(), FIRST, Durability::PageCache)
}

fn other() -> Wanted {
    wanted(TopicPartition::new("u", 0), SECOND, Durability::Fsync)
}

/// A log of the page cache whose process was killed: nothing of it is synced.
fn killed_with_unsynced_records() -> SimDisk {
    let disk = SimDisk::new();
    let logs = start(&disk, &["data"]).unwrap();
    settle(&logs, Some(FIRST)).unwrap();
    let opened = logs.open(&[of_page_cache()], 5, 2, NOW).remove(0).unwrap();
    let settings = Arc::new(Settings { durability: Durability::PageCache, ..Settings::default() });
    let (checkpointed, queue) = (opened.high_watermark, opened.sync_queue);
    let partition = Partition::new(name(), FIRST, ME, opened.log, settings, checkpointed, queue);
    logs.register(&partition);
    partition.assign(Assignment::alone(ME, LeaderEpoch(3)), Moment::START);
    for _ in 0..5 {
        let mut batch = BatchBuilder::new();
        batch.add(NOW, Some(b"key"), Some(b"value"));
        let how = Append { acks: Acks::Leader, now: NOW, internal: false };
        partition.append(&mut batch.finish(), how).unwrap();
    }
    logs.sync_journals();
    disk.snapshot()
}

/// A sync of recovery that fails is final (S9): the next one would say that pages are synced which are clean only because it failed.
#[test]
fn a_sync_that_fails_while_a_log_is_opened_is_final_and_noted() {
    let syncs_the_log =
        |one: &Operation| one.kind.contains("sync") && one.path.to_string_lossy().contains("t-0/");
    let killed = killed_with_unsynced_records();
    let mut failed = 0;
    loop {
        let disk = killed.snapshot();
        let logs = start(&disk, &["data", "other"]).unwrap();
        settle(&logs, Some(FIRST)).unwrap();
        let before = disk.operation_count() as usize;
        disk.fail_picked(failed, Errno::IO, syncs_the_log);
        let opened = logs.open(&[of_page_cache(), other()], 5, 2, NOW);
        let operations = disk.operations().into_iter().skip(before);
        let Some(operation) = operations.filter(syncs_the_log).nth(failed as usize) else { break };
        failed += 1;
        let cause = opened[0].as_ref().map(drop).unwrap_err();
        assert!(cause.is_failed_write(), "{operation}: {cause}");
        assert!(logs.to_be_opened_again().is_empty(), "{operation}");
        let offline: Vec<PathBuf> = logs.offline().into_iter().map(|(path, _)| path).collect();
        assert_eq!(offline, [PathBuf::from("data")], "{operation}");
        let out = logs.out_of_reach();
        assert!(out.iter().any(|out| out.key == key()), "{operation}: the controller is told");
        let known = logs.directories[0].entered(&key()).unwrap();
        assert!(known.sync_failed.is_some(), "{operation}: it is noted");
        let again = start(&disk.snapshot(), &["data", "other"]).unwrap();
        settle(&again, Some(FIRST)).unwrap();
        again.open(&[of_page_cache()], 5, 2, NOW).remove(0).unwrap();
        let known = again.directories[0].entered(&key()).unwrap();
        assert!(known.sync_failed.is_none(), "{operation}: it was written anew");
    }
    assert!(failed > 0, "recovery syncs what it found");
}

#[test]
fn what_cannot_be_entered_for_lack_of_room_closes_nothing_that_needs_no_entry() {
    let is_of_other = |one: &Operation| !one.path.to_string_lossy().contains("t-0");
    let mut lacked = 0;
    for number in 0.. {
        let disk = SimDisk::new();
        let (logs, _) = written_and_open(&disk, true);
        logs.release();
        drop(logs);
        let logs = start(&disk, &["data"]).unwrap();
        settle(&logs, Some(FIRST)).unwrap();
        let known = wanted(name(), FIRST, Durability::Fsync);
        let before = disk.operation_count() as usize;
        disk.fail_picked(number, Errno::NOSPC, is_of_other);
        let opened = logs.open(&[known, other()], 5, 2, NOW);
        let operations = disk.operations().into_iter().enumerate().skip(before);
        let failed = operations.filter(|(_, one)| is_of_other(one)).nth(number as usize);
        let Some((at, _)) = failed else { break };
        if !may_lack_room(&disk, at as u64) || opened[1].is_ok() {
            continue;
        }
        lacked += 1;
        assert!(opened[0].is_ok(), "at {at}");
        let other = Key { topic_id: SECOND, partition: PartitionIndex(0) };
        assert_eq!(logs.to_be_opened_again(), [other], "at {at}");
    }
    assert!(lacked >= 2, "{lacked} operations met a lack of room: of the folder, of the entry");
}

#[test]
fn what_is_tried_again_waits_for_no_descriptor() {
    let disk = SimDisk::new();
    let (logs, _partition) = written_and_open(&disk, true);
    let without_descriptor = || disk.fail_at(disk.operation_count(), Errno::MFILE);
    without_descriptor();
    let cause = logs.open_again(&[other()], 5, 2, NOW).remove(0).map(drop).unwrap_err();
    assert!(cause.lacks_resources(), "{cause}");
    assert_eq!(logs.to_be_opened_again().len(), 1);
    // Where it is wanted for the first time there may be one in a moment.
    without_descriptor();
    logs.open(&[other()], 5, 2, NOW).remove(0).unwrap();
    assert!(logs.to_be_opened_again().is_empty());
}

#[test]
fn a_log_whose_own_directory_is_full_is_not_tried_again_because_another_has_room() {
    let disk = SimDisk::new();
    let logs = start(&disk, &["data", "other"]).unwrap();
    settle(&logs, Some(FIRST)).unwrap();
    let partition = open(&logs, FIRST).unwrap();
    let unopened = |topic_id| Unopened { topic_id, reason: "no room".to_owned(), stays: false };
    logs.unopened.lock().insert(name(), unopened(FIRST));
    logs.unopened.lock().insert(TopicPartition::new("u", 0), unopened(SECOND));
    assert_eq!(logs.to_be_opened_again().len(), 2);
    logs.fill(&partition);
    let new = Key { topic_id: SECOND, partition: PartitionIndex(0) };
    assert_eq!(logs.to_be_opened_again(), [new], "it may be made in the other one");
}

#[test]
fn a_refusal_that_found_no_room_is_entered_later() {
    let disk = SimDisk::new();
    let (logs, partition) = written_and_open(&disk, true);
    let dir = PathBuf::from("data/t-0");
    fill(&disk);
    logs.refuse(&partition, &StorageError::Refused { dir, reason: "its end is lost".to_owned() });
    assert_eq!(partition.status(), Status::Offline);
    assert!(logs.offline().is_empty() && !logs.refuses(&key()));
    logs.sync_journals();
    assert!(!logs.refuses(&key()), "there is still no room");
    disk.limit_capacity(None);
    logs.sync_journals();
    for crash in 0..3 {
        let disk = if crash == 0 { disk.snapshot() } else { disk.after_crash(crash) };
        let again = start(&disk, &["data"]).unwrap();
        settle(&again, Some(FIRST)).unwrap();
        let refused = open(&again, FIRST).map(drop).unwrap_err();
        assert!(refused.to_string().contains("its end is lost"), "{refused}");
    }
}

/// A checkpoint, a sync, retention, or a compaction that began with the replica that is put aside ends when there is another one of its key.
#[test]
fn nothing_of_a_replica_that_was_put_aside_is_entered_of_its_successor() {
    let disk = SimDisk::new();
    let (logs, before) = written_and_open(&disk, true);
    append(&logs, &before, &["b"; 20]);
    before.checkpoint(0).unwrap();
    let end = Offset(ends(&before).1);
    let dir = PathBuf::from("data/t-0");
    logs.refuse(&before, &StorageError::Refused { dir, reason: "a test".to_owned() });
    before.mark_deleted();
    logs.set_aside(&key(), &name()).unwrap().expect("it is refused");
    let after = open(&logs, FIRST).unwrap();
    logs.directories[0].checkpoint(&[&before], NOW).unwrap();
    logs.commit_starts(&[(Arc::clone(&before), Offset(10))]);
    let synced = partition::Synced { up_to: end, epochs: Vec::new() };
    logs.note_synced(0, &[(Arc::clone(&before), synced)]);
    let swapped = logs.swap(&before, vec![Offset(0)], || Ok(()));
    assert!(matches!(swapped, Err(PartitionError::Deleted)), "{swapped:?}");
    logs.sync_journals();
    let known = logs.directories[0].partition(&key()).unwrap();
    let recovery_point = known.checkpoint.map(|last| last.recovery_point);
    assert_eq!((recovery_point, known.synced, known.log_start), (None, Offset(0), Offset(0)));
    assert_eq!(known.sealed, Some(Vec::new()));
    append(&logs, &after, &["c"]);
    logs.checkpoint(NOW);
    logs.sync_journals();
    let again = start(&disk.after_crash(1), &["data"]).unwrap();
    settle(&again, Some(FIRST)).unwrap();
    assert_eq!(ends(&open(&again, FIRST).unwrap()), (0, 1));
}
