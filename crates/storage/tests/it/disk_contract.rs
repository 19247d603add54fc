//! What both disks do alike: the simulated one is worth something only as far as this holds.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use model::Timestamp;
use storage::disk::{Disk, OpenMode, RealDisk, SimDisk};
use tempfile::TempDir;

/// Runs `check` on either disk, with a directory of its own that exists.
fn on_both(check: impl Fn(&dyn Disk, &Path)) {
    let simulated = SimDisk::new();
    let dir = PathBuf::from("top/dir");
    simulated.create_dir_all(&dir).unwrap();
    check(&simulated, &dir);

    let temporary = TempDir::new().unwrap();
    check(&RealDisk, temporary.path());
}

#[test]
fn what_is_written_is_read() {
    on_both(|disk, dir| {
        let file = disk.open(&dir.join("a"), OpenMode::CreateNew).unwrap();
        file.write_all_at(b"hello", 0).unwrap();
        file.write_all_at(b"world", 7).unwrap();
        assert_eq!(file.size().unwrap(), 12);
        assert_eq!(disk.read(&dir.join("a")).unwrap(), b"hello\0\0world");
        let mut buffer = [0; 5];
        assert_eq!(file.read_at(&mut buffer, 9).unwrap(), 3);
        assert_eq!(&buffer[..3], b"rld");
        assert_eq!(file.read_at(&mut buffer, 12).unwrap(), 0);
        assert_eq!(file.read_at(&mut buffer, 1000).unwrap(), 0);
        file.truncate(3).unwrap();
        file.truncate(4).unwrap();
        assert_eq!(disk.read(&dir.join("a")).unwrap(), b"hel\0");
        file.sync().unwrap();
    });
}

#[test]
fn modes_say_what_must_be_there() {
    on_both(|disk, dir| {
        let path = dir.join("a");
        for mode in [OpenMode::Read, OpenMode::ReadWrite] {
            assert_eq!(disk.open(&path, mode).unwrap_err().kind(), ErrorKind::NotFound);
        }
        disk.open(&path, OpenMode::Create).unwrap().write_all_at(b"kept", 0).unwrap();
        let error = disk.open(&path, OpenMode::CreateNew).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        for mode in [OpenMode::Read, OpenMode::ReadWrite, OpenMode::Create] {
            assert_eq!(disk.open(&path, mode).unwrap().size().unwrap(), 4);
        }
        assert!(disk.open(&path, OpenMode::Read).unwrap().write_all_at(b"x", 0).is_err());
        assert!(disk.open(&dir.join("none/a"), OpenMode::Create).is_err());
    });
}

#[test]
fn a_set_time_of_change_is_read_until_the_next_change() {
    const TIME: Timestamp = Timestamp(1_700_000_000_123);
    on_both(|disk, dir| {
        let path = dir.join("a");
        assert_eq!(disk.modified(&path).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(disk.set_modified(&path, TIME).unwrap_err().kind(), ErrorKind::NotFound);
        let file = disk.open(&path, OpenMode::CreateNew).unwrap();
        file.write_all_at(b"hello", 0).unwrap();
        disk.set_modified(&path, TIME).unwrap();
        disk.rename(&path, &dir.join("b")).unwrap();
        assert_eq!(disk.modified(&dir.join("b")).unwrap(), TIME);
        file.write_all_at(b"world", 5).unwrap();
        assert_ne!(disk.modified(&dir.join("b")).unwrap(), TIME);
        disk.set_modified(&dir.join("b"), TIME).unwrap();
        file.truncate(3).unwrap();
        assert_ne!(disk.modified(&dir.join("b")).unwrap(), TIME);
    });
}

#[test]
fn preallocation_changes_no_size_and_truncation_ends_it() {
    on_both(|disk, dir| {
        let file = disk.open(&dir.join("a"), OpenMode::Create).unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        file.preallocate(3, 1 << 20).unwrap();
        assert_eq!(file.size().unwrap(), 3);
        file.write_all_at(b"def", 3).unwrap();
        file.truncate(6).unwrap();
        assert_eq!(disk.read(&dir.join("a")).unwrap(), b"abcdef");
    });
}

#[test]
fn truncation_gives_preallocated_room_back() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a");
    let file = RealDisk.open(&path, OpenMode::Create).unwrap();
    let blocks = || std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap());
    file.write_all_at(b"abc", 0).unwrap();
    file.preallocate(0, 1 << 20).unwrap();
    let reserved = blocks();
    file.truncate(3).unwrap();
    assert!(reserved < 2048 || blocks() < reserved, "{} of {reserved} blocks left", blocks());

    let simulated = SimDisk::new();
    let file = simulated.open(Path::new("a"), OpenMode::Create).unwrap();
    file.preallocate(0, 1000).unwrap();
    assert_eq!(simulated.used_bytes(), 1000);
    file.truncate(0).unwrap();
    assert_eq!(simulated.used_bytes(), 0);
}

#[test]
fn names_come_go_and_move() {
    on_both(|disk, dir| {
        for name in ["b", "a", "c"] {
            let file = disk.open(&dir.join(name), OpenMode::CreateNew).unwrap();
            file.write_all_at(name.as_bytes(), 0).unwrap();
        }
        disk.create_dir_all(&dir.join("d/e")).unwrap();
        disk.create_dir_all(&dir.join("d/e")).unwrap();
        assert_eq!(disk.list(dir).unwrap(), ["a", "b", "c", "d"]);
        disk.rename(&dir.join("a"), &dir.join("b")).unwrap();
        assert_eq!(disk.read(&dir.join("b")).unwrap(), b"a");
        disk.rename(&dir.join("c"), &dir.join("d/e/f")).unwrap();
        disk.rename(&dir.join("d"), &dir.join("g")).unwrap();
        assert_eq!(disk.read(&dir.join("g/e/f")).unwrap(), b"c");
        assert_eq!(disk.list(dir).unwrap(), ["b", "g"]);
        disk.sync_dir(dir).unwrap();
        disk.remove_dir_all(&dir.join("g")).unwrap();
        disk.remove_file(&dir.join("b")).unwrap();
        assert!(!disk.exists(&dir.join("b")));
        assert!(disk.list(dir).unwrap().is_empty());
    });
}

#[test]
fn what_is_not_there_is_not_found() {
    on_both(|disk, dir| {
        let none = dir.join("none");
        let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
        assert_eq!(kind(disk.read(&none).map(drop)), ErrorKind::NotFound);
        assert_eq!(kind(disk.list(&none).map(drop)), ErrorKind::NotFound);
        assert_eq!(kind(disk.rename(&none, &dir.join("x"))), ErrorKind::NotFound);
        assert_eq!(kind(disk.remove_file(&none)), ErrorKind::NotFound);
        assert_eq!(kind(disk.remove_dir_all(&none)), ErrorKind::NotFound);
        assert_eq!(kind(disk.sync_dir(&none)), ErrorKind::NotFound);
    });
}

#[test]
fn a_removed_file_is_still_read_by_who_has_it_open() {
    on_both(|disk, dir| {
        let file = disk.open(&dir.join("a"), OpenMode::Create).unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        disk.remove_file(&dir.join("a")).unwrap();
        let mut buffer = [0; 3];
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 3);
    });
}

#[test]
fn writing_atomically_replaces_the_whole_file_and_leaves_no_other() {
    on_both(|disk, dir| {
        let path = dir.join("checkpoint");
        for content in [&b"a long first content"[..], b"short"] {
            disk.write_atomically(&path, content).unwrap();
            assert_eq!(disk.read(&path).unwrap(), content);
        }
        assert_eq!(disk.list(dir).unwrap(), ["checkpoint"]);
    });
}
