//! Marks of log directories, by which copies are recognised.

use metadata::record::{BrokerRecord, DirectoryMark};
use metadata::{ClusterImage, MetadataRecord};
use model::level::{HIGHWATER_JOURNAL, HIGHWATER_VERSION, newest_journal, newest_version};

use super::*;

/// Metadata at the newest levels, with the recorded mark of a directory; 0 for none.
fn image(directory: Uuid, mark: u64) -> ClusterImage {
    let mut image = ClusterImage::default();
    let levels =
        [(HIGHWATER_VERSION, newest_version()), (HIGHWATER_JOURNAL, newest_journal().into())];
    for (name, level) in levels {
        let name = name.to_owned();
        image.replay(&MetadataRecord::FeatureLevelSet { name, level }).unwrap();
    }
    let registered = BrokerRecord {
        broker: ME,
        incarnation: Uuid([8; 16]),
        epoch: BrokerEpoch(5),
        endpoints: Vec::new(),
        rack: None,
        log_dirs: vec![directory],
        fenced: false,
        software: None,
    };
    image.replay(&MetadataRecord::BrokerRegistered(registered)).unwrap();
    if mark > 0 {
        let marks = vec![DirectoryMark { broker: ME, directory, mark }];
        image.replay(&MetadataRecord::DirectoryMarksRaised { marks }).unwrap();
    }
    image
}

fn id(logs: &Logs) -> Uuid {
    logs.directories().next().expect("there is one").id()
}

fn mark(logs: &Logs) -> u64 {
    logs.marks_of(&[id(logs)])[0]
}

#[test]
fn a_mark_rises_after_writes_and_survives_a_power_failure() {
    let disk = SimDisk::new();
    let logs = start(&disk, &["data"]).unwrap();
    settle(&logs, Some(FIRST)).unwrap();
    logs.raise_levels(&image(id(&logs), 0));
    let partition = open(&logs, FIRST).unwrap();
    logs.raise_marks();
    assert_eq!(mark(&logs), 0, "nothing was written");
    for expected in 1..4 {
        append(&logs, &partition, &["x"]);
        for _ in 0..2 {
            logs.raise_marks();
            assert_eq!(mark(&logs), expected, "raised once for one write");
        }
    }
    for crash in 1..4 {
        assert_eq!(mark(&start(&disk.after_crash(crash), &["data"]).unwrap()), 3);
    }
}

#[test]
fn a_directory_that_was_put_back_from_a_copy_gets_a_mark_above_the_recorded_one() {
    let disk = SimDisk::new();
    let logs = start(&disk, &["data"]).unwrap();
    settle(&logs, Some(FIRST)).unwrap();
    logs.raise_levels(&image(id(&logs), 0));
    let partition = open(&logs, FIRST).unwrap();
    let copy = disk.snapshot();
    append(&logs, &partition, &["x"]);
    logs.raise_marks();
    let recorded = image(id(&logs), mark(&logs));
    logs.settle_copies(&recorded, ME);
    assert_eq!(mark(&logs), 1, "the directory itself");
    let copied = start(&copy, &["data"]).unwrap();
    assert_eq!(mark(&copied), 0);
    copied.settle_copies(&recorded, ME);
    assert_eq!(mark(&copied), 2);
    let disk_of_again = copy.after_crash(1);
    let again = start(&disk_of_again, &["data"]).unwrap();
    assert_eq!(mark(&again), 2, "durable");
    // A start that no longer recognises the copy still knows of it, until its replicas have caught up.
    let copied = |logs: &Logs| logs.directories().next().and_then(|it| it.copied());
    assert_eq!(copied(&again), Some((0, 1)));
    again.settle_copies(&recorded, ME);
    assert_eq!(copied(&again), Some((0, 1)));
    assert!(again.has_copies());
    disk_of_again.limit_capacity(Some(disk_of_again.used_bytes()));
    assert_eq!(again.forget_copies(), 1, "the volume is full");
    assert_eq!(again.forget_copies(), 0, "that is reported once");
    assert!(again.has_copies() && again.offline().is_empty());
    disk_of_again.limit_capacity(None);
    assert_eq!(again.forget_copies(), 0);
    assert_eq!(copied(&again), None);
    let disk = copy.after_crash(2);
    assert_eq!(copied(&start(&disk, &["data"]).unwrap()), Some((0, 1)), "of the copy before");
}

#[test]
fn a_mark_rises_in_its_directory_alone() {
    let disk = SimDisk::new();
    let logs = start(&disk, &["a", "b"]).unwrap();
    settle(&logs, None).unwrap();
    logs.raise_levels(&image(id(&logs), 0));
    logs.directories().for_each(Directory::note_write);
    logs.raise_mark(1);
    let marks: Vec<u64> = logs.marks().into_iter().map(|(_, mark)| mark).collect();
    assert_eq!(marks, [0, 1]);
}
