//! The topic configurations that a partition obeys beyond those of its log.

use std::sync::Arc;
use std::time::Duration;

use model::{Compression, Durability, TimestampType, Validation};
use storage::LogConfig;

/// What `compression.type` asks of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionRule {
    /// Keep what the producer chose.
    Producer,
    /// Store with this codec, at this level if one is set.
    Codec(Compression, Option<i32>),
}

/// A partition's configuration, replaced as a whole when the topic's is changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What the log obeys.
    pub log: Arc<LogConfig>,
    /// Which positions count for `acks=all` (`durability`).
    pub durability: Durability,
    /// `acks=all` needs this many in-sync replicas (`min.insync.replicas`).
    pub min_insync_replicas: usize,
    /// A replica that has lacked something for longer leaves the ISR (`replica.lag.time.max.ms`).
    pub replica_lag_max: Duration,
    /// What is looked into before a batch is taken (`records.validation`).
    pub validation: Validation,
    /// Most bytes that the records of one batch may expand to when it is looked into
    /// (`records.expanded.max.bytes`).
    pub expanded_bytes_max: usize,
    /// How batches are stored (`compression.type`).
    pub compression: CompressionRule,
    /// Who sets timestamps (`message.timestamp.type`).
    pub timestamp_type: TimestampType,
    /// A record may be older than now by this many milliseconds
    /// (`message.timestamp.before.max.ms`).
    pub timestamp_before_max_ms: i64,
    /// A record may be ahead of now by this many milliseconds
    /// (`message.timestamp.after.max.ms`).
    pub timestamp_after_max_ms: i64,
    /// Sync at the latest after this many records (`flush.messages`); matters for
    /// [`Durability::PageCache`] only.
    pub flush_messages: i64,
    /// Sync at the latest after this many milliseconds (`flush.ms`); likewise.
    pub flush_ms: i64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            log: Arc::new(LogConfig::default()),
            durability: Durability::Fsync,
            min_insync_replicas: 1,
            replica_lag_max: Duration::from_secs(30),
            validation: Validation::Full,
            expanded_bytes_max: 128 << 20,
            compression: CompressionRule::Producer,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
        }
    }
}
