//! What the quorum keeps in `__cluster_metadata-0`: the log, the vote, the snapshots.
//!
//! ```text
//! 00000000000000000000.log …          Kafka batches; the offset of a record is its raft index
//! vote                                whom this node voted for, and below what the log was purged
//! 00000000000000005000-0000000003.checkpoint   the image as of that index, in that term
//! ```
//!
//! Everything is synced before it counts. The first write or sync that fails is final.

pub(crate) mod entry;
mod holes;
pub(crate) mod log_store;
pub(crate) mod snapshot;
#[cfg(test)]
mod suite;
pub(crate) mod vote;
mod writer;
