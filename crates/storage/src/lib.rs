//! The log on disk: segments, indexes, recovery, retention, compaction and producer state, in the
//! files of Apache Kafka, so that its tools read them.
//!
//! This room owns the disk and knows nothing of replicas, leaders, groups or the network. It has no
//! clock (time is an argument), no threads and no randomness of its own. A [`Log`] is one
//! partition; whoever calls it holds that partition's lock. What takes long leaves the lock by a
//! ticket: syncing ([`SyncTicket`]), checkpointing ([`CheckpointTicket`]), [`compaction`].
//!
//! Read `log/mod.rs` first, then `log/recover.rs` and `segment.rs`.

mod ceiling;
pub mod checkpoint;
pub mod compaction;
mod config;
pub mod disk;
mod epoch_history;
mod error;
mod index;
pub mod journal;
mod log;
pub mod log_dir;
mod meta_properties;
mod names;
mod producers;
mod rebuild;
mod scan;
mod segment;
mod stamps;
pub mod stopped;
mod unreadable;

pub use config::{CleanupPolicy, LogConfig};
pub use error::{Damage, StorageError, found_no_room};
pub use log::{
    ActiveSegment, AppendWork, CheckpointTicket, CutTicket, DeletedSegment, Derived, DerivedView,
    FileSlice, GiveBackTicket, Log, NextSegment, OnDamage, OpenActive, Opening, ReadCursor,
    ReadLookup, Recovery, Resumed, Resuming, RetentionDue, RetentionLook, RetentionTicket,
    RollTicket, SealedSegment, SyncTicket, TimeLookup, TimestampedOffset, ZerosTicket,
};
pub use log_dir::LogDir;
pub use producers::aborted::{AbortedLookup, AbortedTransaction};
pub use producers::transactions::Marker as TransactionMarker;
pub use producers::{ProducerSummary, ProducerVerdict};
pub use rebuild::{KeyedRecord, LatestRecord, LatestRecords, Lost, Survey};
pub use unreadable::UnreadableBatch;
