//! How a partition refuses. Answers that a client can act on; the broker maps them to the
//! protocol's error codes in one file.

use model::{BatchError, LeaderEpoch, Offset};
use storage::StorageError;

use crate::check::Refusal;
use crate::refused_sequences::SequenceRefusal;

/// Why a partition did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum PartitionError {
    /// The bytes are not a batch, or are damaged.
    #[error("{0}")]
    Batch(#[from] BatchError),
    /// The batch is well-formed, but this topic does not take it.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// This broker does not lead the partition.
    #[error("this broker does not lead the partition")]
    NotLeader,
    /// A leader that is new does not know yet how far the leader before it told the partition to be committed (KIP-207,
    /// KIP-966).
    #[error("the end of the partition is not known yet: the leader is new")]
    EndNotSettled,
    /// The client knows an older leader epoch.
    #[error("the client's leader epoch is older than {current}")]
    FencedEpoch {
        /// The leader epoch here.
        current: LeaderEpoch,
    },
    /// The client knows a newer leader epoch.
    #[error("the client's leader epoch is newer than {current}")]
    UnknownEpoch {
        /// The leader epoch here.
        current: LeaderEpoch,
    },
    /// `acks=all` with too few in-sync replicas.
    #[error("{in_sync} in-sync replicas, min.insync.replicas is {required}")]
    NotEnoughReplicas {
        /// How many there are.
        in_sync: usize,
        /// How many there must be.
        required: usize,
    },
    /// The producer's sequence does not follow the last one (KIP-98).
    #[error("the producer's sequence number is out of order")]
    OutOfOrderSequence,
    /// A moment ago an earlier batch of the producer was refused, and the log waits for that one: the producer sends both again.
    #[error("an earlier batch of the producer was refused a moment ago: {0}")]
    BehindRefused(SequenceRefusal),
    /// The producer's epoch is older than one that was seen.
    #[error("the producer's epoch is older than one that was seen")]
    InvalidProducerEpoch,
    /// An offset outside of the log.
    #[error("offset {offset} is not within {log_start}..={log_end}")]
    OutOfRange {
        /// The offset asked for.
        offset: Offset,
        /// The first that can be read.
        log_start: Offset,
        /// The one behind the last.
        log_end: Offset,
    },
    /// What the leader sent does not follow what is here.
    #[error("replication: {0}")]
    Replicated(String),
    /// A replica has records of this leader epoch that its leader has not: the leader has lost the end of its log.
    #[error("a replica has records of this leader epoch up to {position}, and the leader has not")]
    FollowerAhead {
        /// Where the replica's log ends.
        position: Offset,
    },
    /// The volume of the log has no room; reading goes on.
    #[error("the disk is full: appends are refused until there is room")]
    DiskFull,
    /// A write in the log directory hangs. Nothing was done: the same may be tried again.
    #[error("a write in the log directory hangs")]
    DirectoryHangs,
    /// The topic was deleted.
    #[error("the partition was deleted")]
    Deleted,
    /// The disk failed, now or earlier.
    #[error("{0}")]
    Storage(StorageError),
    /// The disk failed earlier, and the partition is offline.
    #[error("the partition is offline since its log failed")]
    Offline,
}

impl PartitionError {
    /// Whether the process lacked descriptors, or memory to open a file: the same may be tried again.
    pub fn lacks_resources(&self) -> bool {
        matches!(self, PartitionError::Storage(cause) if cause.lacks_resources())
    }
}

impl From<StorageError> for PartitionError {
    fn from(error: StorageError) -> PartitionError {
        match error {
            StorageError::OutOfRange { offset, log_start, log_end } => {
                PartitionError::OutOfRange { offset, log_start, log_end }
            }
            other => PartitionError::Storage(other),
        }
    }
}
