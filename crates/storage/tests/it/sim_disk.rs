//! The simulated disk keeps what it promises and loses what it may.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use storage::disk::{Disk, DiskFile, OpenMode, SimDisk};

const SEEDS: u64 = 300;

fn create(disk: &SimDisk, path: &str) -> Arc<dyn DiskFile> {
    disk.open(Path::new(path), OpenMode::Create).unwrap()
}

/// What a file may hold after a crash; `None` if it is not there.
fn outcomes(disk: &SimDisk, path: &str) -> BTreeSet<Option<Vec<u8>>> {
    (0..SEEDS).map(|seed| disk.after_crash(seed).read(Path::new(path)).ok()).collect()
}

/// A file whose name is durable.
fn durable_file(disk: &SimDisk, content: &[u8]) -> Arc<dyn DiskFile> {
    let file = create(disk, "a");
    file.write_all_at(content, 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir(Path::new("")).unwrap();
    file
}

#[test]
fn what_was_synced_survives_every_crash() {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("d")).unwrap();
    disk.sync_dir(Path::new("")).unwrap();
    let file = create(&disk, "d/a");
    file.write_all_at(b"kept", 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir(Path::new("d")).unwrap();
    assert_eq!(outcomes(&disk, "d/a"), BTreeSet::from([Some(b"kept".to_vec())]));
}

#[test]
fn a_name_without_a_sync_of_its_directory_may_be_lost() {
    let disk = SimDisk::new();
    let file = create(&disk, "a");
    file.write_all_at(b"kept", 0).unwrap();
    file.sync().unwrap();
    assert_eq!(outcomes(&disk, "a"), BTreeSet::from([None, Some(b"kept".to_vec())]));
}

#[test]
fn a_sync_of_a_directory_does_not_reach_its_own_name() {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("d")).unwrap();
    create(&disk, "d/a");
    disk.sync_dir(Path::new("d")).unwrap();
    assert_eq!(outcomes(&disk, "d/a"), BTreeSet::from([None, Some(vec![])]));
}

#[test]
fn unsynced_sectors_survive_in_any_selection_and_never_in_parts() {
    let disk = SimDisk::new();
    let file = durable_file(&disk, &[b'-'; 4 * 512]);
    file.write_all_at(&[b'x'; 4 * 512], 0).unwrap();
    let found = outcomes(&disk, "a");
    assert!(found.len() > 10, "{} outcomes", found.len());
    for content in found.into_iter().flatten() {
        assert_eq!(content.len(), 4 * 512);
        assert!(content.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
    }
}

#[test]
fn a_sector_written_twice_holds_one_of_its_three_contents() {
    let disk = SimDisk::new();
    let file = durable_file(&disk, b"----");
    file.write_all_at(b"xx", 0).unwrap();
    file.write_all_at(b"yy", 1).unwrap();
    let all = ["----", "xx--", "xyy-"].map(|content| Some(content.as_bytes().to_vec()));
    assert_eq!(outcomes(&disk, "a"), BTreeSet::from(all));
}

#[test]
fn an_unsynced_tail_may_be_there_torn_or_full_of_zeros() {
    let disk = SimDisk::new();
    let file = durable_file(&disk, b"");
    file.write_all_at(&[b'x'; 1024], 0).unwrap();
    let found = outcomes(&disk, "a");
    let expected = [vec![], vec![b'x'; 512], vec![b'x'; 1024], vec![0; 1024]];
    for content in expected {
        assert!(found.contains(&Some(content)), "{} outcomes", found.len());
    }
}

#[test]
fn a_truncation_that_survived_brings_nothing_back() {
    let disk = SimDisk::new();
    let file = durable_file(&disk, &[b'o'; 2048]);
    file.truncate(100).unwrap();
    file.write_all_at(&[b'n'; 600], 1448).unwrap();
    for content in outcomes(&disk, "a").into_iter().flatten() {
        if content.len() > 1024 {
            let middle = &content[1024..1448.min(content.len())];
            assert!(middle.iter().all(|byte| *byte == middle[0]), "sectors are whole");
            assert!(content.len() == 2048 || middle[0] == 0, "the cut part came back");
        } else {
            assert_eq!(content.len(), 100);
        }
    }
}

#[test]
fn a_rename_is_never_halved() {
    let disk = SimDisk::new();
    let old = create(&disk, "a");
    old.write_all_at(b"old", 0).unwrap();
    let new = create(&disk, "a.tmp");
    new.write_all_at(b"new", 0).unwrap();
    old.sync().unwrap();
    new.sync().unwrap();
    disk.sync_dir(Path::new("")).unwrap();
    disk.rename(Path::new("a.tmp"), Path::new("a")).unwrap();
    let mut found = BTreeSet::new();
    for seed in 0..SEEDS {
        let crashed = disk.after_crash(seed);
        let content = crashed.read(Path::new("a")).unwrap();
        found.insert((crashed.list(Path::new("")).unwrap().len(), content));
    }
    assert_eq!(found, BTreeSet::from([(2, b"old".to_vec()), (1, b"new".to_vec())]));
}

#[test]
fn an_atomic_write_is_old_or_new_at_every_moment() {
    let disk = SimDisk::new();
    disk.keep_history();
    disk.write_atomically(Path::new("a"), b"old").unwrap();
    let begun = disk.operation_count() as usize;
    disk.write_atomically(Path::new("a"), b"new").unwrap();
    let history = disk.history();
    assert_eq!(history.len() as u64, disk.operation_count() + 1);
    let mut found = BTreeSet::new();
    for moment in &history[begun..] {
        found.extend(outcomes(moment, "a"));
    }
    let both = ["old", "new"].map(|content| Some(content.as_bytes().to_vec()));
    assert_eq!(found, BTreeSet::from(both));
}

#[test]
fn what_a_failed_sync_should_have_written_is_lost_though_the_next_one_succeeds() {
    let disk = SimDisk::new();
    let file = durable_file(&disk, b"good");
    file.write_all_at(b"lost", 4).unwrap();
    disk.fail_syncs(true);
    assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
    disk.fail_syncs(false);
    file.sync().unwrap();
    assert_eq!(disk.read(Path::new("a")).unwrap(), b"goodlost");
    assert_eq!(outcomes(&disk, "a"), BTreeSet::from([Some(b"good\0\0\0\0".to_vec())]));
}

#[test]
fn a_lying_sync_makes_nothing_durable() {
    let disk = SimDisk::new();
    let file = durable_file(&disk, b"");
    disk.lie_about_syncs(true);
    file.write_all_at(b"x", 0).unwrap();
    file.sync().unwrap();
    assert!(outcomes(&disk, "a").contains(&Some(vec![])));
}

#[test]
fn a_full_disk_takes_what_fits() {
    let disk = SimDisk::new();
    let file = create(&disk, "a");
    disk.limit_capacity(Some(10));
    file.write_all_at(b"12345678", 0).unwrap();
    assert_eq!(file.write_all_at(b"abcd", 8).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(file.size().unwrap(), 10);
    assert_eq!(file.preallocate(0, 11).unwrap_err().kind(), ErrorKind::StorageFull);
    file.truncate(4).unwrap();
    file.write_all_at(b"abcd", 4).unwrap();
    assert_eq!(disk.read(Path::new("a")).unwrap(), b"1234abcd");
}

#[test]
fn one_operation_fails_and_the_next_ones_do_not() {
    let disk = SimDisk::new();
    let file = create(&disk, "a");
    disk.fail_at(1, Errno::IO);
    assert!(file.write_all_at(b"12", 0).is_err());
    assert_eq!(file.size().unwrap(), 1);
    file.write_all_at(b"34", 0).unwrap();
    assert_eq!(disk.operation_count(), 3);
    assert_eq!(disk.operations()[1].to_string(), "write a");
}

#[test]
fn nothing_works_once_the_machine_has_stopped() {
    let disk = SimDisk::new();
    let file = create(&disk, "a");
    disk.stop_at(2);
    file.write_all_at(b"1", 0).unwrap();
    assert!(file.write_all_at(b"2", 1).is_err());
    assert!(file.sync().is_err());
    assert!(disk.read(Path::new("a")).is_err());
    assert!(disk.list(Path::new("")).is_err());
    assert!(disk.snapshot().read(Path::new("a")).unwrap() == b"1");
}

#[test]
fn a_snapshot_goes_its_own_way_and_a_seed_repeats_itself() {
    let disk = SimDisk::new();
    let file = durable_file(&disk, b"");
    file.write_all_at(&[b'x'; 5000], 0).unwrap();
    let before = disk.snapshot();
    file.sync().unwrap();
    assert_eq!(outcomes(&disk, "a").len(), 1);
    assert!(outcomes(&before, "a").len() > 1);
    for seed in 0..SEEDS {
        let read = || before.after_crash(seed).read(Path::new("a")).unwrap();
        assert_eq!(read(), read());
    }
}

#[test]
fn a_flipped_bit_stays_flipped() {
    let disk = SimDisk::new();
    durable_file(&disk, b"abc");
    disk.flip_bit(Path::new("a"), 1, 0);
    assert_eq!(disk.read(Path::new("a")).unwrap(), b"acc");
    assert_eq!(outcomes(&disk, "a"), BTreeSet::from([Some(b"acc".to_vec())]));
}
