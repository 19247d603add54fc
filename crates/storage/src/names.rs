//! The names of a partition's files: Kafka's. Twenty digits of base offset, then what it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::Offset;

use crate::disk::Disk;
use crate::unreadable::Unreadable;

pub(crate) const LOG: &str = ".log";
pub(crate) const OFFSET_INDEX: &str = ".index";
pub(crate) const TIME_INDEX: &str = ".timeindex";
pub(crate) const TRANSACTION_INDEX: &str = ".txnindex";
/// Ours, not Kafka's: checksums of the entries of the transaction index; see `producers/aborted.rs`.
pub(crate) const TRANSACTION_SUMS: &str = ".txnsums";
pub(crate) const SNAPSHOT: &str = ".snapshot";
/// Ours, not Kafka's: what a snapshot leaves out of the producers; see `producers/state_file.rs`.
pub(crate) const PRODUCERS: &str = ".producers";
/// Behind the name of a file that goes for good after a delay.
pub(crate) const DELETED: &str = ".deleted";
/// Behind the name of a file that compaction is still writing.
pub(crate) const CLEANED: &str = ".cleaned";
/// Behind the name of a compacted log that is complete and must take its place.
pub(crate) const SWAP: &str = ".swap";
/// Behind the name of a copy of damaged bytes, kept for a person to look at.
pub(crate) const DAMAGED: &str = ".damaged";
/// What an interrupted atomic write leaves behind.
pub(crate) const TEMPORARY: &str = ".tmp";
/// Where each leader epoch began.
pub(crate) const LEADER_EPOCHS: &str = "leader-epoch-checkpoint";
/// The topic's id.
pub(crate) const PARTITION_METADATA: &str = "partition.metadata";
/// Ours, not Kafka's: bounds a recovery point that a truncation has made untrue; see `ceiling.rs`.
pub(crate) const CEILING: &str = "recovery-point-ceiling";

/// The name of the file of this kind that belongs to the segment at `base`.
pub(crate) fn file_name(base: Offset, suffix: &str) -> String {
    format!("{:020}{suffix}", base.0)
}

/// The base offset in a name of this kind; `None` if the name is of another kind.
pub(crate) fn base_offset(name: &str, suffix: &str) -> Option<Offset> {
    let digits = name.strip_suffix(suffix)?;
    if digits.len() != 20 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(Offset)
}

/// A partition's directory and the disk it is on.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    /// Batches met whose records cannot be read.
    pub(crate) unreadable: Arc<Unreadable>,
    /// How many files were given the name of a deleted one since the log was opened.
    pub(crate) set_aside: Arc<AtomicU64>,
}

impl Home {
    /// The path of a file in this directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The path of a segment's file.
    pub(crate) fn segment_path(&self, base: Offset, suffix: &str) -> PathBuf {
        self.dir.join(file_name(base, suffix))
    }

    /// What a segment's file is called when it is deleted. Each name is used once while the log is open: the file that had it
    /// before may still wait to be freed in pieces, and a rename over it would free it at once.
    pub(crate) fn deleted_path(&self, base: Offset, suffix: &str) -> PathBuf {
        let number = self.set_aside.fetch_add(1, Ordering::Relaxed);
        self.dir.join(format!("{}.{number}{DELETED}", file_name(base, suffix)))
    }

    /// The directory above; a partition's directory is never a root.
    pub(crate) fn parent(&self) -> &Path {
        self.dir.parent().expect("a partition's directory lies in a log directory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_back() {
        assert_eq!(file_name(Offset(42), LOG), "00000000000000000042.log");
        assert_eq!(base_offset("00000000000000000042.log", LOG), Some(Offset(42)));
        assert_eq!(base_offset("00000000000000000042.log.swap", LOG), None);
        assert_eq!(base_offset("42.log", LOG), None);
        assert_eq!(base_offset("99999999999999999999.log", LOG), None, "more than an i64");
    }
}
