//! Log directories that were away, and come back beside others; and what a directory says of the processes that had it.

use metadata::decide::KnownDirectory;

use super::*;

fn key() -> Key {
    Key { topic_id: FIRST, partition: PartitionIndex(0) }
}

fn ids(logs: &Logs) -> Vec<Uuid> {
    logs.directories().map(Directory::id).collect()
}

/// What the metadata wants, after these directories were registered.
fn assigned(registered: &[Uuid]) -> Assigned {
    let partitions = [(key(), name())].into();
    Assigned { partitions, image_index: Some(50), log_dirs: registered.to_vec() }
}

/// A directory in which the partition has so many records, which is stopped.
fn with_records(disk: &SimDisk, path: &str, count: usize) -> Uuid {
    let logs = start(disk, &[path]).unwrap();
    logs.settle(assigned(&[])).unwrap();
    append(&logs, &open(&logs, FIRST).unwrap(), &vec!["x"; count]);
    logs.close(BrokerEpoch(1), NOW);
    logs.release();
    ids(&logs)[0]
}

#[test]
fn what_was_made_anew_elsewhere_is_served_and_the_older_one_put_aside_whatever_crash_comes() {
    let disk = SimDisk::new();
    disk.keep_history();
    with_records(&disk, "a", 7);
    let made_anew = with_records(&disk, "b", 3);
    let from = disk.operation_count() as usize;
    let come_back = |disk: &SimDisk, what: &str| {
        let logs = start(disk, &["a", "b"]).unwrap_or_else(|error| panic!("{what}: {error}"));
        logs.check_directories(&assigned(&[made_anew])).unwrap();
        logs.put_aside_outdated(&[made_anew]).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(logs.away(&[made_anew]).is_empty(), "{what}: it is in the registered one");
        logs.settle(assigned(&[made_anew])).unwrap();
        assert_eq!(ends(&open(&logs, FIRST).unwrap()), (0, 3), "{what}");
        let names = disk.list(Path::new("a")).unwrap();
        let aside: Vec<&String> = names.iter().filter(|name| name.ends_with("-stray")).collect();
        let [aside] = aside[..] else { panic!("{what}: it is kept once: {names:?}") };
        let kept = disk.list(&Path::new("a").join(aside)).unwrap();
        assert!(kept.iter().any(|file| file.ends_with(".log")), "{what}: {kept:?}");
        // Once both are registered nothing is older than anything.
        logs.put_aside_outdated(&ids(&logs)).unwrap();
        assert!(logs.away(&ids(&logs)).is_empty());
    };
    let begun = disk.snapshot();
    come_back(&disk, "without a crash");
    for (at, found) in disk.history().into_iter().enumerate().skip(from) {
        for crash in 0..4 {
            let disk = if crash == 0 { found.snapshot() } else { found.after_crash(crash) };
            come_back(&disk, &format!("before operation {at}, crash {crash}"));
        }
    }
    // By metadata without a registration nothing was away.
    let logs = start(&begun, &["a", "b"]).unwrap();
    logs.put_aside_outdated(&[]).unwrap();
    assert_eq!((logs.away(&[]), logs.has_any_of(&[])), (Vec::new(), false));
    assert_eq!(ends(&open(&logs, FIRST).unwrap()), (0, 7));
}

#[test]
fn what_only_a_directory_has_that_was_away_is_told_and_excuses_no_missing_one() {
    let disk = SimDisk::new();
    let away = with_records(&disk, "a", 7);
    let registered = {
        let logs = start(&disk, &["b"]).unwrap();
        logs.settle(assigned(&[])).unwrap();
        logs.close(BrokerEpoch(1), NOW);
        logs.release();
        ids(&logs)[0]
    };
    let logs = start(&disk, &["a", "b"]).unwrap();
    assert_eq!(logs.away(&[registered]), [key()]);
    assert!(logs.away(&[registered, away]).is_empty());
    assert!(logs.has_all_of(&[registered]) && !logs.has_all_of(&[registered, Uuid([9; 16])]));
    logs.put_aside_outdated(&[registered]).unwrap();
    assert!(disk.exists(Path::new("a/t-0")), "no other one has it");
    logs.release();
    drop(logs);
    // The partition may have been in the one that is missing now, and newer.
    let missing = Uuid([9; 16]);
    let logs = start(&disk, &["a", "b"]).unwrap();
    let refused = logs.check_directories(&assigned(&[registered, missing])).unwrap_err();
    let LogsError::DirectoryMissing { id, partitions, path, .. } = refused else {
        panic!("{refused}")
    };
    assert_eq!((id, partitions), (missing, 1));
    let said = path.join("highwater-begin-anew");
    disk.open(&said, storage::disk::OpenMode::Create).unwrap();
    for _ in 0..2 {
        logs.check_directories(&assigned(&[registered, missing])).unwrap();
    }
    assert!(!disk.exists(&said), "said once, and obeyed by this process for good");
}

#[test]
fn a_directory_says_which_processes_had_it_and_in_which_registration_it_was_stopped() {
    let disk = SimDisk::new();
    let started = |number: u8| {
        let process = Process { node_id: ME, incarnation: Uuid([number; 16]) };
        start_as(&disk, &["data"], process).unwrap()
    };
    let known = |logs: &Logs| logs.known_before().remove(0).1;
    let logs = started(1);
    assert_eq!(known(&logs), KnownDirectory::default(), "a new one");
    logs.note_joined(Uuid([1; 16])).unwrap();
    logs.close(BrokerEpoch(5), NOW);
    logs.release();
    let had_by = vec![Uuid([1; 16])];
    let logs = started(2);
    assert_eq!(known(&logs), KnownDirectory { stopped: Some(BrokerEpoch(5)), had_by });
    logs.release();
    // The second one died before it was registered: it had the directory, and did not stop cleanly.
    let logs = started(3);
    let had_by = vec![Uuid([1; 16]), Uuid([2; 16])];
    assert_eq!(known(&logs), KnownDirectory { stopped: None, had_by });
}
