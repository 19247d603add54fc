//! The log directory of a broker that is stopped, in the hands of a person: mending a refused
//! partition, and adopting the records of a folder that this broker did not write.
//!
//! A partition's folder is never changed in place. A new one is made beside it (`rebuild/`), and then
//! the two change places:
//!
//! ```text
//! t-0.<id>-building                      made and synced
//! journal: refused, work <id> under way  durable: whatever happens, nothing half done is served
//! t-0  ->  t-0.<id>-replaced             renamed, directory synced
//! t-0.<id>-building  ->  t-0             renamed, directory synced
//! journal: what the new folder holds     durable, in one frame: the refusal of the partition is lifted
//! t-0.<id>-replaced  ->  t-0.<id>-before-mend   kept for a person
//! ```
//!
//! Whoever comes again after a crash finds the folder `-replaced` and, if the journal still says that
//! work with this id is under way, puts it back and begins anew; otherwise finishes the last step.

mod adopt;
mod keyed;
mod mend;
mod swap;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{BrokerId, Offset, TopicPartition};

use crate::StorageError;
use crate::disk::Disk;
use crate::journal::{Journal, Key, PartitionState, SNAPSHOT, State};
use crate::log_dir::{DirLock, LockError, LogDir};
use crate::rebuild::Lost;

pub use adopt::{Adopted, Adoption, Source};
pub use keyed::{KeyedAdoption, KeyedSource};
pub use mend::{Ailment, Mended};

/// Why nothing was done; nothing was changed, unless a disk failed.
#[derive(Debug, thiserror::Error)]
pub enum StoppedError {
    /// No broker of ours has used the directory.
    #[error("{} is not a data folder of Highwater: it has no file {SNAPSHOT}", .0.display())]
    NotOurs(PathBuf),
    /// A broker uses the directory, or it cannot be locked.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// The disk does not answer, or a file is damaged.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The journal has no such partition.
    #[error("no partition {name} is known in {}", path.display())]
    Unknown {
        /// The partition.
        name: TopicPartition,
        /// The log directory.
        path: PathBuf,
    },
    /// There is nothing to adopt.
    #[error("{} holds no segments of a partition", .0.display())]
    NoSegments(PathBuf),
    /// The folder to adopt is damaged, or lacks records.
    #[error("{} lacks records or is damaged at {} places", dir.display(), lost.len())]
    Incomplete {
        /// The folder.
        dir: PathBuf,
        /// What is not there.
        lost: Vec<Lost>,
    },
    /// Offsets between segments are missing, and nothing says that the topic was compacted.
    #[error("{} has no segment with the offsets {} to {}, and nothing there says that the topic was compacted", dir.display(), from, Offset(to.0 - 1))]
    Gap {
        /// The folder.
        dir: PathBuf,
        /// The first missing offset.
        from: Offset,
        /// The offset behind the last missing one.
        to: Offset,
    },
    /// The partition that is to take the records is not empty.
    #[error("the partition {name} has records already: offsets up to {end}")]
    HasRecords {
        /// The partition.
        name: TopicPartition,
        /// Its end.
        end: Offset,
    },
    /// The folder to adopt is the partition's own.
    #[error("{} is the folder of {name} itself", dir.display())]
    OwnFolder {
        /// The folder.
        dir: PathBuf,
        /// The partition.
        name: TopicPartition,
    },
}

/// A log directory that no broker uses, locked against one that starts.
#[derive(Debug)]
pub struct Stopped {
    dir: LogDir,
    journal: Journal,
    node_id: Option<BrokerId>,
    cluster_id: Option<String>,
    _lock: DirLock,
}

impl Stopped {
    /// Locks the directory at `path` and reads its journal.
    ///
    /// Fails with [`StoppedError::NotOurs`] where no broker of ours was, and with
    /// [`StoppedError::Locked`] where one is running.
    pub fn open(disk: Arc<dyn Disk>, path: &Path) -> Result<Stopped, StoppedError> {
        if !disk.exists(&path.join(SNAPSHOT)) {
            return Err(StoppedError::NotOurs(path.to_owned()));
        }
        let lock = DirLock::acquire(&*disk, path)?;
        let dir = LogDir::at(Arc::clone(&disk), path.to_owned());
        let meta = dir.meta_properties()?;
        let opened = Journal::open(disk, path, true)?;
        let journal = opened.ok_or_else(|| StoppedError::NotOurs(path.to_owned()))?;
        let (node_id, cluster_id) = meta.map(|meta| (meta.node_id, meta.cluster_id)).unzip();
        Ok(Stopped { dir, journal, node_id, cluster_id, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The broker and the cluster that it belongs to, if `meta.properties` is there.
    pub fn owner(&self) -> Option<(BrokerId, &str)> {
        Some((self.node_id?, self.cluster_id.as_deref()?))
    }

    /// What the journal knows.
    pub fn state(&self) -> State {
        self.journal.with_state(State::clone)
    }

    /// The directory's folders and files.
    pub fn log_dir(&self) -> &LogDir {
        &self.dir
    }

    /// The partition of this name, if it was not deleted.
    pub fn partition(&self, name: &TopicPartition) -> Option<(Key, PartitionState)> {
        self.journal.with_state(|state| {
            let mut live = state.partitions.iter().filter(|(_, known)| known.deleted.is_none());
            let found = live.find(|(key, known)| State::name(**key, known) == *name)?;
            Some((*found.0, PartitionState::clone(found.1)))
        })
    }

    fn known(&self, name: &TopicPartition) -> Result<(Key, PartitionState), StoppedError> {
        self.partition(name).ok_or_else(|| StoppedError::Unknown {
            name: name.clone(),
            path: self.path().to_owned(),
        })
    }
}

/// The offset behind the last record that was acknowledged or known.
fn end_of(known: &PartitionState) -> Offset {
    let checkpoint = known.checkpoint;
    let active = checkpoint.and_then(|last| last.active).map(|active| active.end);
    let recovery_point = checkpoint.map(|last| last.recovery_point);
    [active, recovery_point, known.closed]
        .into_iter()
        .flatten()
        .fold(known.synced.max(known.log_start), Offset::max)
}
