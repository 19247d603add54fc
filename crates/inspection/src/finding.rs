//! What an inspection tells, piece by piece, so that the largest log needs no more memory than a
//! small one.

use std::path::Path;

use model::BatchHeader;
use model::record::Record;

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
    /// `leader-epoch-checkpoint`: where each leader's term began.
    LeaderEpochs,
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
    /// A leader's term.
    Epoch {
        /// Its number.
        epoch: i32,
        /// The first offset that it wrote.
        start_offset: i64,
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
