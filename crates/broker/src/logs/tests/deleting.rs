//! Deletions that fail half way, and what cannot be opened for lack of room: both are done later.

use super::*;

fn gone(topic_id: TopicId) -> Gone {
    Gone { topic_id, name: name(), delay_ms: 0 }
}

fn folders(disk: &SimDisk) -> Vec<String> {
    folders_of(disk, "t-0")
}

/// Folders of the log directory whose names begin so.
pub(super) fn folders_of(disk: &SimDisk, begin: &str) -> Vec<String> {
    let names = disk.list(Path::new("data")).unwrap();
    names.into_iter().filter(|name| name.starts_with(begin)).collect()
}

/// Whether an operation is one that may find no room and be tried again: a sync that fails is final.
pub(super) fn may_lack_room(disk: &SimDisk, operation: u64) -> bool {
    let operations = disk.operations();
    operations.get(operation as usize).is_some_and(|operation| !operation.kind.contains("sync"))
}

/// At each operation of a deletion that there may be no room for: at the journal's entry, at the folder's new name.
/// Be it on the volume, or within a quota.
fn without_room(then: impl Fn(&SimDisk, &Logs)) {
    let mut failures = 0;
    for (at, errno) in (0..5).flat_map(|at| [(at, Errno::NOSPC), (at, Errno::DQUOT)]) {
        let disk = SimDisk::new();
        let (logs, partition) = written_and_open(&disk, true);
        partition.mark_deleted();
        let at = disk.operation_count() + at;
        disk.fail_at(at, errno);
        logs.delete(&[gone(FIRST)]);
        if !may_lack_room(&disk, at) {
            continue;
        }
        failures += usize::from(!logs.undeleted.lock().is_empty());
        assert!(logs.offline().is_empty());
        then(&disk, &logs);
    }
    assert!(failures >= 4, "{failures} operations met a lack of room");
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

/// The last state in which the folder of a deleted partition has its name, and the journal calls it deleted.
fn deleted_under_its_name() -> SimDisk {
    let disk = SimDisk::new();
    disk.keep_history();
    let (logs, partition) = written_and_open(&disk, true);
    partition.mark_deleted();
    logs.delete(&[gone(FIRST)]);
    let named = |found: &SimDisk| found.exists(Path::new("data/t-0"));
    disk.history().into_iter().rfind(named).unwrap()
}

#[test]
fn a_start_without_room_finishes_a_deletion_when_there_is_some() {
    let found = deleted_under_its_name();
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

/// A disk without room for a byte.
pub(super) fn fill(disk: &SimDisk) {
    disk.limit_capacity(Some(disk.used_bytes()));
}

/// Deletes the first topic while its deletion cannot be entered: that is to be tried again.
fn delete_without_room(disk: &SimDisk, logs: &Logs) {
    fill(disk);
    logs.delete(&[gone(FIRST)]);
    disk.limit_capacity(None);
    assert!(logs.is_undeleted(&key_of(FIRST)));
}

fn key_of(topic_id: TopicId) -> Key {
    Key { topic_id, partition: PartitionIndex(0) }
}

/// As when a replica is moved away and back, once replicas can be moved: the same key, and another replica.
#[test]
fn a_replica_that_comes_back_is_not_forgotten_with_the_one_that_was_deleted() {
    let disk = SimDisk::new();
    disk.keep_history();
    let (logs, partition) = written_and_open(&disk, true);
    partition.mark_deleted();
    logs.delete(&[Gone { delay_ms: 3_600_000, ..gone(FIRST) }]);
    let partition = open(&logs, FIRST).unwrap();
    assert_eq!(ends(&partition), (0, 0));
    append(&logs, &partition, &["b"; 3]);
    let from = disk.operation_count() as usize;
    logs.checkpoint(NOW);
    logs.sync_journals();
    logs.empty_trash(&mut |_| true);
    assert_eq!(folders(&disk), ["t-0"], "what was deleted does not wait for its time");
    logs.sync_journals();
    append(&logs, &partition, &["c"]);
    logs.checkpoint(NOW);
    logs.sync_journals();
    for (at, found) in disk.history().into_iter().enumerate().skip(from) {
        for crash in 0..3 {
            let disk = if crash == 0 { found.snapshot() } else { found.after_crash(crash) };
            for _ in 0..2 {
                let logs = start(&disk, &["data"]).unwrap();
                settle(&logs, Some(FIRST)).unwrap();
                logs.empty_trash(&mut |_| true);
                let opened = open(&logs, FIRST).unwrap_or_else(|cause| panic!("{at}: {cause}"));
                assert!(matches!(ends(&opened), (0, 3..=4)), "operation {at}, crash {crash}");
            }
        }
    }
}

#[test]
fn a_replica_that_is_wanted_again_before_its_deletion_is_entered_begins_anew() {
    let disk = SimDisk::new();
    let (logs, partition) = written_and_open(&disk, true);
    partition.mark_deleted();
    fill(&disk);
    logs.delete(&[gone(FIRST)]);
    let cause = open(&logs, FIRST).unwrap_err();
    assert!(cause.is_full(), "{cause}");
    assert_eq!(logs.to_be_opened_again(), [key_of(FIRST)]);
    disk.limit_capacity(None);
    let partition = open(&logs, FIRST).unwrap();
    assert_eq!(ends(&partition), (0, 0));
    append(&logs, &partition, &["b"; 3]);
    logs.empty_trash(&mut |_| true);
    assert_eq!(folders(&disk), ["t-0"]);
    let again = start(&disk.after_crash(2), &["data"]).unwrap();
    settle(&again, Some(FIRST)).unwrap();
    assert_eq!(ends(&open(&again, FIRST).unwrap()), (0, 3));
}

/// What is renamed is the folder of the partition that was deleted, or none: a person, or a crash, may have taken that away.
#[test]
fn a_folder_that_has_a_deleted_ones_name_since_is_not_taken_for_it() {
    let disk = SimDisk::new();
    let (logs, partition) = written_and_open(&disk, true);
    partition.mark_deleted();
    delete_without_room(&disk, &logs);
    disk.rename(Path::new("data/t-0"), Path::new("elsewhere")).unwrap();
    let partition = open(&logs, SECOND).unwrap();
    append(&logs, &partition, &["b"; 3]);
    for _ in 0..3 {
        logs.empty_trash(&mut |_| true);
    }
    assert_eq!(folders(&disk), ["t-0"]);
    assert!(logs.directories[0].entered(&key_of(FIRST)).is_none(), "it is forgotten");
    logs.delete(&[gone(FIRST)]);
    logs.empty_trash(&mut |_| true);
    for crash in 1..4 {
        let again = start(&disk.after_crash(crash), &["data"]).unwrap();
        settle(&again, Some(SECOND)).unwrap();
        assert_eq!(ends(&open(&again, SECOND).unwrap()), (0, 3));
    }
}

/// The journal calls it deleted for as long as it has no room for more; its folder is gone, and another one has its name.
#[test]
fn a_deletion_is_carried_out_once() {
    let disk = SimDisk::new();
    let (logs, partition) = written_and_open(&disk, true);
    partition.mark_deleted();
    logs.delete(&[gone(FIRST)]);
    // Not even for what the removal gives back.
    disk.limit_capacity(Some(0));
    logs.empty_trash(&mut |_| true);
    disk.limit_capacity(None);
    assert_eq!(folders(&disk), Vec::<String>::new());
    assert!(logs.directories[0].entered(&key_of(FIRST)).is_some(), "not forgotten yet");
    let strange = Path::new("data/t-0/00000000000000000007.log");
    disk.create_dir_all(Path::new("data/t-0")).unwrap();
    disk.open(strange, storage::disk::OpenMode::Create).unwrap();
    logs.delete(&[gone(FIRST)]);
    assert!(disk.exists(strange));
    open(&logs, SECOND).unwrap();
    logs.empty_trash(&mut |_| true);
    let kept: Vec<String> =
        folders(&disk).into_iter().filter(|name| name.ends_with("-stray")).collect();
    assert_eq!(kept.len(), 1, "{:?}", folders(&disk));
}

#[test]
fn a_deleted_topic_is_no_stray_however_long_the_lack_of_room_lasts() {
    let disk = SimDisk::new();
    let (logs, partition) = written_and_open(&disk, true);
    partition.mark_deleted();
    fill(&disk);
    logs.delete(&[gone(FIRST)]);
    for _ in 0..3 {
        let cause = open(&logs, SECOND).unwrap_err();
        assert!(cause.is_full(), "{cause}");
        logs.empty_trash(&mut |_| true);
        assert_eq!(folders(&disk), ["t-0"]);
    }
    disk.limit_capacity(None);
    let partition = open(&logs, SECOND).unwrap();
    append(&logs, &partition, &["b"; 3]);
    logs.empty_trash(&mut |_| true);
    assert_eq!(folders(&disk), ["t-0"]);
    assert!(logs.strays().is_empty() && logs.undeleted.lock().is_empty());
    assert_eq!(ends(&partition), (0, 3));
}

/// The chore tries a deletion again while the topic that is made again is being opened: its folder is there, and no journal knows it.
#[test]
fn a_folder_that_is_being_made_is_not_taken_for_a_deleted_ones() {
    let disk = SimDisk::new();
    let (logs, partition) = written_and_open(&disk, true);
    partition.mark_deleted();
    delete_without_room(&disk, &logs);
    disk.rename(Path::new("data/t-0"), Path::new("elsewhere")).unwrap();
    logs.names.lock().taken.insert((0, name()));
    disk.create_dir_all(Path::new("data/t-0")).unwrap();
    logs.empty_trash(&mut |_| true);
    assert_eq!(folders(&disk), ["t-0"]);
    assert!(logs.directories[0].entered(&key_of(FIRST)).is_none(), "it is forgotten");
}

#[test]
fn a_sync_that_fails_in_a_deletion_takes_the_directory_offline() {
    let mut failed = 0;
    for at in 0..5 {
        let disk = SimDisk::new();
        let (logs, partition) = written_and_open(&disk, true);
        partition.mark_deleted();
        let at = disk.operation_count() + at;
        disk.fail_at(at, Errno::IO);
        logs.delete(&[gone(FIRST)]);
        let operation = disk.operations().get(at as usize).cloned();
        let Some(operation) = operation.filter(|one| one.kind.contains("sync")) else { continue };
        failed += 1;
        assert_eq!(logs.offline().len(), 1, "{operation}");
    }
    assert_eq!(failed, 2, "of the entry, and of the name");
}

#[test]
fn a_directory_in_which_no_deletion_can_be_finished_takes_no_other_along() {
    let found = deleted_under_its_name();
    let mut failed = 0;
    for at in 0..60 {
        let disk = found.snapshot();
        disk.fail_at(at, Errno::IO);
        let started = start(&disk, &["data", "other"]);
        let Some(operation) = disk.operations().get(at as usize).cloned() else { break };
        if operation.kind != "rename" || !is_partitions(&operation.path) {
            continue;
        }
        failed += 1;
        let logs = started.unwrap_or_else(|cause| panic!("{operation}: {cause}"));
        let offline: Vec<PathBuf> = logs.offline().into_iter().map(|(path, _)| path).collect();
        assert_eq!(offline, [PathBuf::from("data")], "{operation}");
        settle(&logs, None).unwrap();
        open(&logs, SECOND).unwrap();
    }
    assert_eq!(failed, 1, "one operation of a start is the rename");
}

/// The folder is gone and the journal does not say so yet: no reason to refuse a start, or to leave it so.
#[test]
fn a_start_that_finds_no_room_to_forget_what_is_gone_forgets_it_later() {
    let disk = SimDisk::new();
    let (logs, partition) = written_and_open(&disk, true);
    partition.mark_deleted();
    logs.delete(&[gone(FIRST)]);
    disk.limit_capacity(Some(0));
    logs.empty_trash(&mut |_| true);
    let found = disk.snapshot();
    assert_eq!(folders(&found), Vec::<String>::new());
    let mut lacked = 0;
    for at in 0..40 {
        let disk = found.snapshot();
        disk.fail_at(at, Errno::NOSPC);
        let Ok(logs) = start(&disk, &["data"]) else { continue };
        settle(&logs, None).unwrap();
        assert!(logs.offline().is_empty(), "at {at}");
        lacked += usize::from(logs.directories[0].entered(&key_of(FIRST)).is_some());
        logs.empty_trash(&mut |_| true);
        assert!(logs.directories[0].entered(&key_of(FIRST)).is_none(), "at {at}");
    }
    assert_eq!(lacked, 1, "one operation of a start is the entry");
}

/// Whether an operation synced the names of the log directory.
fn synced_names(disk: &SimDisk, operation: u64) -> bool {
    let operations = disk.operations();
    let found = operations.get(operation as usize);
    found.is_some_and(|found| found.kind == "sync dir" && &*found.path == Path::new("data"))
}

#[test]
fn a_name_is_owed_from_the_rename_to_a_sync_that_succeeds() {
    let disk = SimDisk::new();
    let (logs, _) = written_and_open(&disk, true);
    let directory = &logs.directories[0];
    assert!(!directory.owes_names());
    directory.rename("t-0", "u-0").unwrap();
    assert!(directory.owes_names(), "a chore that looks before the sync leaves all folders");
    disk.fail_at(disk.operation_count(), Errno::MFILE);
    directory.sync_names().unwrap_err();
    assert!(directory.owes_names());
    directory.sync_names().unwrap();
    assert!(!directory.owes_names());
    directory.rename("t-0", "u-0").unwrap_err();
    assert!(!directory.owes_names(), "nothing was renamed");
}

#[test]
fn a_deletion_whose_names_lack_a_descriptor_is_finished_later() {
    let mut lacked = 0;
    for at in 0..6 {
        let disk = SimDisk::new();
        let (logs, partition) = written_and_open(&disk, true);
        partition.mark_deleted();
        let at = disk.operation_count() + at;
        disk.fail_at(at, Errno::MFILE);
        logs.delete(&[gone(FIRST)]);
        if !synced_names(&disk, at) {
            continue;
        }
        lacked += 1;
        assert!(logs.offline().is_empty(), "nothing was tried on the disk");
        // There is still none: what a crash may bring back under its name is not removed.
        disk.fail_at(disk.operation_count(), Errno::MFILE);
        logs.empty_trash(&mut |_| true);
        assert_eq!(folders(&disk).len(), 1);
        for seed in 0..8 {
            let again = start(&disk.after_crash(seed), &["data"]).unwrap();
            settle(&again, None).unwrap();
            assert!(again.strays().is_empty(), "seed {seed}");
        }
        logs.empty_trash(&mut |_| true);
        assert_eq!(folders(&disk), Vec::<String>::new());
        assert!(logs.offline().is_empty());
    }
    assert_eq!(lacked, 1, "one operation of a deletion syncs the names");
}

#[test]
fn a_topic_is_made_again_though_the_names_lack_a_descriptor() {
    let mut lacked = 0;
    for at in 0..40 {
        let disk = SimDisk::new();
        let (logs, partition) = written_and_open(&disk, true);
        partition.mark_deleted();
        logs.delete(&[gone(FIRST)]);
        let at = disk.operation_count() + at;
        disk.fail_at(at, Errno::MFILE);
        let opened = open(&logs, SECOND);
        if !synced_names(&disk, at) {
            continue;
        }
        lacked += 1;
        assert!(logs.offline().is_empty(), "nothing was tried on the disk");
        let partition = opened.or_else(|cause| {
            assert!(cause.lacks_resources(), "{cause}");
            open(&logs, SECOND)
        });
        append(&logs, &partition.unwrap(), &["b"; 3]);
        logs.empty_trash(&mut |_| true);
        assert_eq!(folders(&disk), ["t-0"]);
        let again = start(&disk.after_crash(3), &["data"]).unwrap();
        settle(&again, Some(SECOND)).unwrap();
        assert_eq!(ends(&open(&again, SECOND).unwrap()), (0, 3));
        assert!(again.strays().is_empty());
    }
    assert!(lacked >= 1, "the folder that was made is synced");
}

#[test]
fn a_start_whose_names_lack_a_descriptor_finishes_the_deletion_later() {
    let found = deleted_under_its_name();
    let mut lacked = 0;
    for at in 0..40 {
        let disk = found.snapshot();
        disk.fail_at(at, Errno::MFILE);
        let started = start(&disk, &["data"]);
        let before = at.checked_sub(1).and_then(|at| disk.operations().get(at as usize).cloned());
        // Behind other operations the directory syncs files of its own, without which it cannot be opened.
        let renamed = before.is_some_and(|before| before.to_string() == "rename data/t-0");
        if !synced_names(&disk, at) || !renamed {
            continue;
        }
        lacked += 1;
        let logs = started.unwrap();
        assert!(logs.offline().is_empty(), "at {at}");
        settle(&logs, None).unwrap();
        logs.empty_trash(&mut |_| true);
        assert_eq!(folders(&disk), Vec::<String>::new(), "at {at}");
    }
    assert_eq!(lacked, 1, "one operation of a start syncs the new name");
}

#[test]
fn a_replica_is_put_aside_later_whose_name_lacks_a_descriptor() {
    let disk = SimDisk::new();
    let (logs, partition) = written_and_open(&disk, true);
    let reason = "a test".to_owned();
    logs.refuse(&partition, &StorageError::Refused { dir: PathBuf::from("data/t-0"), reason });
    partition.mark_deleted();
    let at = disk.operation_count() + 1;
    disk.fail_at(at, Errno::MFILE);
    let cause = logs.set_aside(&key_of(FIRST), &name()).unwrap_err();
    assert!(synced_names(&disk, at) && cause.lacks_resources(), "{cause}");
    assert!(logs.offline().is_empty() && logs.strays().is_empty());
    assert_eq!(folders(&disk), ["t-0"], "it has its name again");
    let kept = logs.set_aside(&key_of(FIRST), &name()).unwrap().expect("it is refused still");
    assert!(disk.exists(&kept));
    assert_eq!(logs.strays().len(), 1);
}
