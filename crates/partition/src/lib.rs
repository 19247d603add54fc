//! Storage and replication together: one partition of which this broker holds a replica.
//!
//! Who appends, reads or waits comes here. One lock a partition, never held across a sync; what
//! takes long leaves it by a ticket. Nothing here spawns, awaits or knows the network: those who
//! wait leave a [`std::task::Waker`] ([`Partition::park`]) or register a [`Watch`].
//!
//! Read [`Partition`] first, then `append.rs` and `read.rs`.

mod ahead;
mod append;
mod check;
mod deletion;
mod error;
mod follow;
mod held;
mod maintenance;
mod offsets;
mod partition;
mod proposals;
mod read;
mod recompress;
mod refused_sequences;
mod serve;
mod settings;
mod sync;
mod sync_queue;
mod waiting;
mod walk;
mod watch;

pub mod mutants;

pub use ahead::AheadWritten;
pub use append::{Acks, Append, Appended, Prepared};
pub use check::{CheckedBatch, Effort, RecordError, Refusal, check};
pub use deletion::{DELETION_WAITER_BYTES, DeletionKey};
pub use error::PartitionError;
pub use follow::{Followed, ReplicaAnswer, ReplicaFetch, StartOverVerdict};
pub use held::HeldSums;
pub use maintenance::{checkpoint_together, close_together};
pub use offsets::{EpochEnd, OffsetQuery};
pub use partition::{Partition, Status, WaiterKey};
pub use proposals::Proposals;
pub use read::{Isolation, Read, ReadRequest};
pub use refused_sequences::SequenceRefusal;
pub use replication::{
    Acknowledgement, AssignedReplica, Assignment, CommittedBound, FetchFrom, FollowerFetch,
    IsrAnswer, IsrDecision, Next, Proposal, RefusedTruncation, Standing, Truncation,
    TruncationLimit,
};
pub use serve::{FollowerPlace, ReplicaRead};
pub use settings::{CompressionRule, Settings};
pub use sync::{PartitionSync, Synced};
pub use sync_queue::{AppendAdmission, SyncQueue, UNSYNCED_BYTES_MAX, Urgency};
pub use waiting::Fate;
pub use watch::{Watch, WatchKey};
