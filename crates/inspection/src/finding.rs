//! What an inspection tells, piece by piece, so that the largest log needs no more memory than a
//! small one.

use std::path::Path;

use model::record::Record;
use model::{BatchHeader, Uuid};

/// The kinds of files that are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// `.log`: batches of records.
    Segment,
    /// `.index`: offset to position.
    OffsetIndex,
    /// `.timeindex`: time to offset.
    TimeIndex,
    /// `.txnindex`: aborted transactions.
    TransactionIndex,
    /// `.snapshot`: the producers below an offset.
    ProducerSnapshot,
    /// `leader-epoch-checkpoint`: where each leader epoch began.
    LeaderEpochs,
    /// `*-offset-checkpoint`: an offset for each partition of a log directory.
    OffsetCheckpoint,
    /// `highwater-partitions`: what a log directory knows of its partitions.
    PartitionJournal,
    /// `vote` of the metadata quorum.
    Vote,
    /// `.checkpoint` of the metadata quorum: a snapshot of the cluster's metadata.
    MetadataSnapshot,
}

/// One piece of what was found. Pieces of a file stand between its `Begin` and its `End`.
#[derive(Debug, Clone, Copy)]
pub enum Finding<'a> {
    /// A file begins.
    Begin(FileKind),
    /// A batch of a segment.
    Batch {
        /// Where it begins in the file, in bytes.
        position: u64,
        /// Its header.
        header: &'a BatchHeader,
    },
    /// A record of the batch before.
    Record {
        /// Its offset.
        offset: i64,
        /// Milliseconds since 1970.
        timestamp: i64,
        /// Key, value and headers.
        record: Record<'a>,
    },
    /// An entry of an offset index.
    OffsetEntry {
        /// The last offset of a batch.
        offset: i64,
        /// Where that batch begins.
        position: u32,
    },
    /// An entry of a time index.
    TimeEntry {
        /// The largest timestamp so far.
        timestamp: i64,
        /// The offset at which it was reached.
        offset: i64,
    },
    /// A transaction that was aborted.
    Aborted {
        /// Whose it was.
        producer_id: i64,
        /// Offset of its first record.
        first_offset: i64,
        /// Offset of its marker.
        last_offset: i64,
        /// Below this, everything was decided then.
        last_stable_offset: i64,
    },
    /// A producer of a snapshot.
    Producer {
        /// Its id.
        producer_id: i64,
        /// Its incarnation.
        epoch: i16,
        /// The sequence of its last record.
        last_sequence: i32,
        /// The offset of its last record.
        last_offset: i64,
        /// When it last wrote, in milliseconds since 1970.
        timestamp: i64,
        /// Where its open transaction begins; -1 for none.
        transaction_start: i64,
    },
    /// A leader epoch.
    Epoch {
        /// The number of the epoch.
        epoch: i32,
        /// The first offset written in this epoch.
        start_offset: i64,
    },
    /// An offset of a checkpoint file.
    Checkpointed {
        /// The topic.
        topic: &'a str,
        /// The partition.
        partition: i32,
        /// The offset.
        offset: i64,
    },
    /// What the journal knows of a partition.
    Journaled {
        /// The topic's name.
        topic: &'a str,
        /// The partition.
        partition: i32,
        /// The topic's id.
        topic_id: Uuid,
        /// Below this offset everything was synced.
        synced: i64,
        /// The first offset that may be read.
        log_start: i64,
        /// Below this offset nothing needs recovery; `None` before the first checkpoint.
        recovery_point: Option<i64>,
        /// The end of the log if it was closed cleanly.
        closed_at: Option<i64>,
        /// Segments that are not appended to any more; `None` if not known.
        sealed_count: Option<usize>,
        /// Why the partition is not served, if so.
        refused: Option<&'a str>,
        /// Whether the partition was deleted.
        deleted: bool,
    },
    /// A line of a text file.
    Line(&'a str),
    /// The end of a file that is being written, or of a write that was never whole: no damage.
    Unfinished {
        /// Where in the file, if that can be said, in bytes.
        position: Option<u64>,
        /// What is there.
        reason: &'a str,
    },
    /// Something is wrong.
    Damage {
        /// Where in the file, if that can be said, in bytes.
        position: Option<u64>,
        /// What.
        reason: &'a str,
    },
    /// A file ends.
    End {
        /// Its size in bytes.
        size_bytes: u64,
        /// Entries, producers or batches that it holds.
        entry_count: u64,
        /// Records, in a segment.
        record_count: u64,
    },
}

/// Takes what is found in a file.
pub type Tell<'a> = dyn FnMut(&Path, Finding<'_>) + 'a;
