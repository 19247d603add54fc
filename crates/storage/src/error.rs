//! How the log fails: one closed enum, coarse enough that every variant asks for another action.
//!
//! Not here: the protocol's error codes. The broker maps these to them in one file.

use std::io;
use std::path::{Path, PathBuf};

use model::{BatchError, Offset};
use rustix::io::Errno;

use crate::disk::reserve::lacks_descriptors;

/// Where and why the bytes of a segment are not what was once written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment's `.log` file.
    pub segment: PathBuf,
    /// Bytes from the front of that file to the batch that cannot be read.
    pub position: u64,
    /// The first offset that cannot be read.
    pub offset: Offset,
    /// What is wrong with it.
    pub reason: String,
}

/// Why an operation of the log failed.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// A read or truncation outside of what the log holds.
    #[error("offset {offset} is not within {log_start}..={log_end}")]
    OutOfRange {
        /// The offset asked for.
        offset: Offset,
        /// The first offset that can be read.
        log_start: Offset,
        /// The offset behind the last one.
        log_end: Offset,
    },
    /// An append that would go back or leave the caller's order.
    #[error("a batch at offset {found} cannot follow a log that ends at {expected}")]
    OutOfOrder {
        /// The log end offset, or the end of the batch before.
        expected: Offset,
        /// The base offset of the batch.
        found: Offset,
    },
    /// Bytes that were durable once are no longer what they were. Nothing was cut off; the
    /// partition is to be taken offline here or filled from a replica.
    #[error("{}: damaged at byte {}, offset {}: {}", .0.segment.display(), .0.position, .0.offset, .0.reason)]
    Damaged(Box<Damage>),
    /// An earlier failure of a write or a sync was final; the log only reads from then on.
    #[error("the log in {} failed earlier: {reason}", .dir.display())]
    Failed {
        /// The partition's directory.
        dir: PathBuf,
        /// That failure.
        reason: String,
    },
    /// The operating system refused. For a write or a sync: the log directory must go offline.
    #[error("cannot {operation} {}: {source}", .path.display())]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The partition was refused, at this start or an earlier one, and stays so until somebody mends
    /// it; nothing was changed.
    #[error("{}: refused: {reason}", .dir.display())]
    Refused {
        /// The partition's directory.
        dir: PathBuf,
        /// Why, in words.
        reason: String,
    },
    /// A newer release raised the format of the directory; nothing was changed.
    #[error(
        "{}: {format} is at level {found}, and this release reads up to {newest}: start the release that raised the level, or a newer one", .path.display()
    )]
    NewerFormat {
        /// `meta.properties`.
        path: PathBuf,
        /// The format, as its key in the file: `highwater.journal` or `highwater.version`.
        format: &'static str,
        /// Level of the directory.
        found: u8,
        /// Newest level that this release reads.
        newest: u8,
    },
    /// A small file beside the segments (checkpoint, snapshot, metadata) that cannot be understood.
    #[error("{}: {reason}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// The operation of an error for which a failed write could not be cut off: the log's end is not
/// known.
pub(crate) const FAILED_CUT: &str = "cut off a failed write to";

/// The operation of an error behind which the files of a compaction may be half in place.
pub(crate) const FAILED_SWAP: &str = "put a compacted segment in place with";

impl StorageError {
    /// The same cause, met during another operation.
    pub(crate) fn of_operation(self, operation: &'static str) -> StorageError {
        match self {
            StorageError::Io { path, source, .. } => StorageError::Io { operation, path, source },
            other => other,
        }
    }

    /// Whether the log directory is not to be trusted with further writes (S9): the caller takes
    /// it offline. That no file can be opened because too many are open counts not, for nothing was
    /// tried on the disk; nor does a write for which there was no room, see
    /// [`StorageError::is_full`].
    pub fn is_fatal(&self) -> bool {
        match self {
            StorageError::Io { .. } => !self.lacks_resources() && !self.is_full(),
            StorageError::Failed { .. } => true,
            _ => false,
        }
    }

    /// Whether a write or a sync failed for good, and not only a look or a read: what the device has of that file is not known any
    /// more (S9).
    pub fn is_failed_write(&self) -> bool {
        let StorageError::Io { operation, .. } = self else { return false };
        let writes = matches!(*operation, "write" | "sync" | "truncate" | FAILED_CUT | FAILED_SWAP);
        writes && self.is_fatal()
    }

    /// Whether a write found no room. What of it was written is cut off again, so the log's end is
    /// known and as it was: the same write may be tried again when there is room. Of a sync the same
    /// error says that written bytes were lost; it is final, and not meant here.
    pub fn is_full(&self) -> bool {
        let StorageError::Io { operation, source, .. } = self else { return false };
        !matches!(*operation, "sync" | FAILED_CUT | FAILED_SWAP) && found_no_room(source)
    }

    /// Whether the process lacked descriptors, or memory to open a file: what was asked for was not
    /// done, the log is as it was, and another time it may be done.
    pub fn lacks_resources(&self) -> bool {
        let StorageError::Io { operation, source, .. } = self else { return false };
        let no_memory = Errno::from_io_error(source) == Some(Errno::NOMEM);
        let was_done = *operation == FAILED_SWAP;
        !was_done && (lacks_descriptors(source) || (no_memory && *operation == "open"))
    }

    pub(crate) fn damaged(
        segment: &Path,
        position: u64,
        offset: Offset,
        reason: impl Into<String>,
    ) -> StorageError {
        StorageError::Damaged(Box::new(Damage {
            segment: segment.to_owned(),
            position,
            offset,
            reason: reason.into(),
        }))
    }

    pub(crate) fn batch(
        segment: &Path,
        position: u64,
        offset: Offset,
        error: BatchError,
    ) -> StorageError {
        StorageError::damaged(segment, position, offset, error.to_string())
    }
}

/// Whether the system had no room for what was asked for: on the volume (ENOSPC), or within a quota (EDQUOT).
pub fn found_no_room(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

/// Gives an I/O error the words that a person needs: what was tried, and with which file.
pub(crate) trait Context<T> {
    /// Turns the error into [`StorageError::Io`].
    fn during(self, operation: &'static str, path: &Path) -> Result<T, StorageError>;
}

impl<T> Context<T> for io::Result<T> {
    fn during(self, operation: &'static str, path: &Path) -> Result<T, StorageError> {
        self.map_err(|source| StorageError::Io { operation, path: path.to_owned(), source })
    }
}
