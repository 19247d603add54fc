//! A journal whose copy of `meta.properties` names a level above those of this release: refused before a file changes.

use std::path::Path;
use std::sync::Arc;

use model::level::{HIGHWATER_JOURNAL, HIGHWATER_VERSION, newest_journal, newest_version};
use model::{BrokerId, Uuid};
use storage::StorageError;
use storage::disk::{Disk, SimDisk};
use storage::journal::{JOURNAL, Journal, SNAPSHOT, State};
use storage::log_dir::MetaProperties;

use crate::fixture::dir;

/// The bytes of the journal and of its snapshot.
fn files(disk: &SimDisk) -> [Vec<u8>; 2] {
    [SNAPSHOT, JOURNAL].map(|name| disk.read(&dir().join(name)).unwrap())
}

fn opened(journal_level: u8, metadata_level: u8) -> Result<(), StorageError> {
    let meta = MetaProperties {
        node_id: BrokerId(1),
        cluster_id: "c".to_owned(),
        directory_id: Uuid([9; 16]),
        journal_level,
        metadata_level,
        unknown_lines: Vec::new(),
    };
    let disk = SimDisk::new();
    disk.create_dir_all(dir()).unwrap();
    disk.sync_dir(Path::new("")).unwrap();
    let state = State { meta: meta.encode().into_bytes(), ..State::default() };
    drop(Journal::create(Arc::new(disk.clone()), dir(), state).unwrap());
    let before = files(&disk);
    let opened = Journal::open(Arc::new(disk.clone()), dir(), true).map(drop);
    assert!(opened.is_ok() || files(&disk) == before, "a refused journal has changed");
    opened
}

#[test]
fn a_journal_of_a_newer_release_is_refused_by_its_copy_of_the_levels() {
    let (journal, metadata) = (newest_journal(), newest_version() as u8);
    opened(journal, metadata).unwrap();
    for (levels, format) in
        [((journal + 1, metadata), HIGHWATER_JOURNAL), ((journal, metadata + 1), HIGHWATER_VERSION)]
    {
        match opened(levels.0, levels.1) {
            Err(StorageError::NewerFormat { path, format: found, .. }) => {
                assert_eq!((path, found), (dir().join(SNAPSHOT), format));
            }
            other => panic!("{other:?}"),
        }
    }
}
