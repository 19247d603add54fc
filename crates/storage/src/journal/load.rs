//! Reading a directory's journal: what its two files say together, or why they cannot be believed.

use std::io;
use std::path::{Path, PathBuf};

use super::codec::Unreadable;
use super::state::State;
use super::{frames, snapshot};
use crate::StorageError;
use crate::disk::Disk;
use crate::error::Context;
use crate::meta_properties::MetaProperties;

/// The snapshot's file.
pub const SNAPSHOT: &str = "highwater-partitions";
/// The journal's file.
pub const JOURNAL: &str = "highwater-partitions.journal";

/// What a journal and its snapshot say.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The state after the last whole frame.
    pub state: State,
    /// The seq of that frame.
    pub seq: u64,
    /// The last seq that is known to be durable.
    pub durable: u64,
    /// Bytes at the end of the journal that are an incomplete write: no acknowledgement relied on them.
    pub cut_bytes: u64,
    /// Bytes of the snapshot, and of the journal without what is cut.
    pub size_bytes: (u64, u64),
    /// Bytes of the journal that are known to be durable.
    pub(super) durable_bytes: u64,
    /// Frames may be appended to the journal as it stands.
    pub(super) continues: bool,
}

/// Reads both files' bytes. No bytes make it panic, and damage is an error: a bit that is another
/// one, a missing end. Which of the two files is damaged is told with it.
pub fn decode(snapshot: &[u8], journal: &[u8]) -> Result<Loaded, (&'static str, Unreadable)> {
    let found = snapshot::decode(snapshot).map_err(|reason| (SNAPSHOT, reason))?;
    let mut state = found.state;
    let directory = state.directory();
    let apply = |entry| state.apply(&entry);
    let journaled = frames::read(journal, found.seq, found.durable, directory, apply);
    let journaled = journaled.map_err(|reason| (JOURNAL, reason))?;
    Ok(Loaded {
        state,
        seq: journaled.seq,
        durable: journaled.durable,
        cut_bytes: journaled.cut_bytes as u64,
        size_bytes: (snapshot.len() as u64, journaled.size_bytes as u64),
        durable_bytes: journaled.durable_bytes as u64,
        continues: journaled.base == found.seq && journaled.cut_bytes == 0,
    })
}

/// Reads the journal of the log directory `dir`; `None` if there is none. `witnessed`: another file
/// says that there is one. Changes nothing.
///
/// Fails with [`StorageError::Malformed`] if a file is damaged or gone, and with [`StorageError::NewerFormat`] if a newer
/// release wrote the journal.
pub fn load(disk: &dyn Disk, dir: &Path, witnessed: bool) -> Result<Option<Loaded>, StorageError> {
    let (snapshot, journal) = (read(disk, dir, SNAPSHOT)?, read(disk, dir, JOURNAL)?);
    let gone = |name: &str| StorageError::Malformed {
        path: dir.join(name),
        reason: "missing; without this file it is not known what the partitions here held. \
                 Restore the file, or use an empty log directory"
            .to_owned(),
    };
    match (snapshot, journal) {
        (Some(snapshot), Some(journal)) => {
            let loaded = decode(&snapshot, &journal).map_err(|(name, Unreadable(reason))| {
                StorageError::Malformed { path: dir.join(name), reason }
            })?;
            check_levels(&loaded.state, &dir.join(SNAPSHOT))?;
            Ok(Some(loaded))
        }
        // The snapshot comes first: a crash may leave it alone, and then nothing was served yet.
        (_, None) if !witnessed => Ok(None),
        (Some(_), None) => Err(gone(JOURNAL)),
        (None, _) => Err(gone(SNAPSHOT)),
    }
}

/// Refuses levels above those of this release by the copy of `meta.properties`: the file itself may be gone, or put back
/// without its lines of levels.
fn check_levels(state: &State, path: &Path) -> Result<(), StorageError> {
    let copy = std::str::from_utf8(&state.meta).ok().map(MetaProperties::decode);
    match copy {
        Some(Ok(copy)) => copy.check_levels(path),
        // The owner of the directory compares the copy with the file, and refuses an unreadable copy.
        Some(Err(_)) | None => Ok(()),
    }
}

fn read(disk: &dyn Disk, dir: &Path, name: &str) -> Result<Option<Vec<u8>>, StorageError> {
    let path: PathBuf = dir.join(name);
    match disk.read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).during("read", &path),
    }
}
