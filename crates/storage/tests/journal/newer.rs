//! A journal whose copy of `meta.properties` names a level above those of this release: refused before a file changes.

use std::sync::Arc;

use model::Uuid;
use model::level::{HIGHWATER_JOURNAL, HIGHWATER_VERSION};
use storage::StorageError;
use storage::disk::{Disk, SimDisk};
use storage::journal::{JOURNAL, Journal, SNAPSHOT};

use crate::fixture::{created_with, dir, newest, properties};

/// The bytes of the journal and of its snapshot.
fn files(disk: &SimDisk) -> [Vec<u8>; 2] {
    [SNAPSHOT, JOURNAL].map(|name| disk.read(&dir().join(name)).unwrap())
}

fn opened(levels: (u8, u8)) -> Result<(), StorageError> {
    let disk = SimDisk::new();
    drop(created_with(&disk, &properties(Uuid([9; 16]), levels)));
    let before = files(&disk);
    let opened = Journal::open(Arc::new(disk.clone()), dir(), true).map(drop);
    assert!(opened.is_ok() || files(&disk) == before, "a refused journal has changed");
    opened
}

#[test]
fn a_journal_of_a_newer_release_is_refused_by_its_copy_of_the_levels() {
    let (journal, metadata) = newest();
    opened((journal, metadata)).unwrap();
    for (levels, format) in
        [((journal + 1, metadata), HIGHWATER_JOURNAL), ((journal, metadata + 1), HIGHWATER_VERSION)]
    {
        match opened(levels) {
            Err(StorageError::NewerFormat { path, format: found, .. }) => {
                assert_eq!((path, found), (dir().join(SNAPSHOT), format));
            }
            other => panic!("{other:?}"),
        }
    }
}
