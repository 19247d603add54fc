//! The log on disk: segments, indexes, recovery, retention, compaction and producer state, in the
//! files of Apache Kafka, so that its tools read them.
//!
//! This room owns the disk and knows nothing of replicas, leaders, groups or the network. It has no
//! clock (time is an argument), no threads and no randomness of its own. A [`Log`] is one
//! partition; whoever calls it holds that partition's lock. What takes long leaves the lock by a
//! ticket: syncing ([`SyncTicket`]), checkpointing, compaction.
//!
//! Read `log/mod.rs` first, then `log/open.rs` (recovery) and `segment.rs`.

mod config;
pub mod disk;
mod error;
mod log;

pub use config::{CleanupPolicy, LogConfig};
pub use error::{Damage, StorageError};
pub use log::{
    DeletedSegment, FileSlice, Log, OnDamage, Opening, ProducerVerdict, ReadCursor, SyncTicket,
    TimestampedOffset,
};
