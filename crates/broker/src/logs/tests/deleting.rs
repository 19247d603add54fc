//! Deletions that fail half way, and what cannot be opened for lack of room: both are done later.

use super::*;

fn gone(topic_id: TopicId) -> Gone {
    Gone { topic_id, name: name(), delay_ms: 0 }
}

fn folders(disk: &SimDisk) -> Vec<String> {
    let names = disk.list(Path::new("data")).unwrap();
    names.into_iter().filter(|name| name.starts_with("t-0")).collect()
}

/// Whether an operation is one that may find no room and be tried again: a sync that fails is final.
fn may_lack_room(disk: &SimDisk, operation: u64) -> bool {
    let operations = disk.operations();
    operations.get(operation as usize).is_some_and(|operation| !operation.kind.contains("sync"))
}

/// At each operation of a deletion that there may be no room for: at the journal's entry, at the folder's new name.
fn without_room(then: impl Fn(&SimDisk, &Logs)) {
    let mut failures = 0;
    for at in 0..5 {
        let disk = SimDisk::new();
        let (logs, partition) = written_and_open(&disk, true);
        partition.mark_deleted();
        let at = disk.operation_count() + at;
        disk.fail_at(at, Errno::NOSPC);
        logs.delete(&[gone(FIRST)]);
        if !may_lack_room(&disk, at) {
            continue;
        }
        failures += usize::from(!logs.undeleted.lock().is_empty());
        assert!(logs.offline().is_empty());
        then(&disk, &logs);
    }
    assert!(failures >= 2, "{failures} operations met a lack of room");
}

#[test]
fn a_deletion_that_found_no_room_is_finished_later() {
    without_room(|disk, logs| {
        logs.empty_trash(&mut |_| true);
        assert_eq!(folders(disk), Vec::<String>::new());
        assert!(logs.undeleted.lock().is_empty());
        let again = start(&disk.after_crash(1), &["data"]).unwrap();
        settle(&again, None).unwrap();
        assert!(again.strays().is_empty());
    });
}

#[test]
fn a_topic_that_is_made_again_is_not_deleted_in_the_place_of_the_one_before() {
    without_room(|disk, logs| {
        let partition = open(logs, SECOND).unwrap();
        append(logs, &partition, &["b"; 3]);
        logs.empty_trash(&mut |_| true);
        assert_eq!(ends(&partition), (0, 3));
        assert_eq!(folders(disk), ["t-0"], "nothing of the first one is left, as a stray neither");
        let again = start(&disk.after_crash(2), &["data"]).unwrap();
        settle(&again, Some(SECOND)).unwrap();
        assert_eq!(ends(&open(&again, SECOND).unwrap()), (0, 3));
    });
}

#[test]
fn a_start_without_room_finishes_a_deletion_when_there_is_some() {
    let disk = SimDisk::new();
    disk.keep_history();
    let (logs, partition) = written_and_open(&disk, true);
    partition.mark_deleted();
    logs.delete(&[gone(FIRST)]);
    // The last state in which the folder has its name, and the journal calls it deleted.
    let named = |found: &SimDisk| found.exists(Path::new("data/t-0"));
    let found = disk.history().into_iter().rfind(named).unwrap();
    let mut unfinished = 0;
    for at in 0..40 {
        let disk = found.snapshot();
        disk.fail_at(at, Errno::NOSPC);
        let Ok(logs) = start(&disk, &["data"]) else { continue };
        if logs.undeleted.lock().is_empty() {
            continue;
        }
        unfinished += 1;
        settle(&logs, None).unwrap();
        logs.empty_trash(&mut |_| true);
        assert_eq!(folders(&disk), Vec::<String>::new(), "at {at}");
    }
    assert_eq!(unfinished, 1, "one operation of a start is the rename");
}

#[test]
fn a_segment_that_cannot_be_removed_is_tried_again() {
    let disk = SimDisk::new();
    let (logs, partition) = written_and_open(&disk, true);
    partition.delete_records(Some(Offset(10))).unwrap();
    let segments = partition.retain_from(Offset(10)).unwrap();
    assert!(!segments.is_empty());
    let count = segments.len();
    segments.into_iter().for_each(|segment| logs.trash.add(segment, 0));
    disk.fail_at(disk.operation_count(), Errno::IO);
    logs.empty_trash(&mut |_| true);
    assert_eq!(logs.trash.count(), 1, "of {count}");
    assert_eq!(logs.trash.due_bytes(), 0, "not at once");
}

#[test]
fn a_partition_that_cannot_be_entered_for_lack_of_room_takes_no_other_along() {
    let other = Wanted {
        name: TopicPartition::new("u", 0),
        topic_id: SECOND,
        config: Arc::new(LogConfig::default()),
        durability: Durability::Fsync,
        epoch: LeaderEpoch(1),
    };
    let key = Key { topic_id: SECOND, partition: PartitionIndex(0) };
    let mut lacked = 0;
    for at in 0..12 {
        let disk = SimDisk::new();
        let (logs, partition) = written_and_open(&disk, true);
        let at = disk.operation_count() + at;
        disk.fail_at(at, Errno::NOSPC);
        let opened = logs.open(std::slice::from_ref(&other), 5, 2, NOW).remove(0);
        if !may_lack_room(&disk, at) {
            continue;
        }
        let Err(cause) = opened else { continue };
        lacked += 1;
        assert!(cause.is_full() && logs.offline().is_empty(), "at {at}: {cause}");
        assert_eq!(logs.to_be_opened_again(), [key]);
        append(&logs, &partition, &["b"]);
        assert_eq!(ends(&partition), (0, 21));
        logs.open(std::slice::from_ref(&other), 5, 2, NOW).remove(0).unwrap();
        assert!(logs.to_be_opened_again().is_empty());
    }
    assert!(lacked >= 2, "{lacked} operations met a lack of room");
}

#[test]
fn nothing_is_opened_again_while_no_directory_has_room() {
    let disk = SimDisk::new();
    let (logs, partition) = written_and_open(&disk, true);
    let unopened = Unopened { topic_id: SECOND, reason: "no room".to_owned(), stays: false };
    logs.unopened.lock().insert(TopicPartition::new("u", 0), unopened);
    assert_eq!(logs.to_be_opened_again().len(), 1);
    logs.fill(&partition);
    assert!(logs.to_be_opened_again().is_empty());
}
