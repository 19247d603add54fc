//! The topic configurations that a log obeys, with Kafka's defaults.
//!
//! Not here: their names in a properties file, their validation, and what a topic inherits.

/// What becomes of old records (`cleanup.policy`). Neither: they stay for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// Whole segments go by age and by size of the log.
    pub delete: bool,
    /// Of every key the last record stays.
    pub compact: bool,
}

/// The configuration of one partition's log. `Default` is Kafka's.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// A segment is rolled before it grows beyond this many bytes (`segment.bytes`).
    pub segment_bytes: u32,
    /// A segment is rolled when its first record is older than this (`segment.ms`).
    pub segment_ms: i64,
    /// Taken off `segment_ms`, so that not all partitions roll at once (`segment.jitter.ms`); the
    /// caller draws it between 0 and the configured value.
    pub segment_jitter_ms: i64,
    /// Most bytes of each index (`segment.index.bytes`). A full one rolls the segment.
    pub segment_index_bytes: u32,
    /// Bytes of log between two entries of an index (`index.interval.bytes`).
    pub index_interval_bytes: u32,
    /// Segments whose newest record is older than this go; -1 for never (`retention.ms`).
    pub retention_ms: i64,
    /// Old segments go until the log is no larger than this; -1 for no bound (`retention.bytes`).
    pub retention_bytes: i64,
    /// What becomes of old records (`cleanup.policy`).
    pub cleanup: CleanupPolicy,
    /// How long a tombstone is kept after it was first compacted (`delete.retention.ms`).
    pub delete_retention_ms: i64,
    /// Records younger than this are not compacted (`min.compaction.lag.ms`).
    pub min_compaction_lag_ms: i64,
    /// Records older than this are compacted whatever the dirty ratio (`max.compaction.lag.ms`).
    pub max_compaction_lag_ms: i64,
    /// Compaction waits until this share of the log is dirty, 0 to 1
    /// (`min.cleanable.dirty.ratio`).
    pub min_cleanable_dirty_ratio: f64,
    /// How long the caller keeps the files of a deleted segment (`file.delete.delay.ms`).
    pub file_delete_delay_ms: i64,
    /// Reserve a whole segment at once rather than in growing steps (`preallocate`).
    pub preallocate: bool,
    /// Bytes of zeros that are written at once ahead of a log that is synced in small portions; 0 for none
    /// ([`Log::begin_ahead`](crate::Log::begin_ahead)). No configuration of a topic.
    pub ahead_bytes: u32,
    /// How many small syncs in a row it takes.
    pub ahead_after_syncs: u16,
    /// Largest batch that the caller lets in (`max.message.bytes`).
    pub max_message_bytes: u32,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 60 * 60 * 1000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            retention_ms: 7 * 24 * 60 * 60 * 1000,
            retention_bytes: -1,
            cleanup: CleanupPolicy { delete: true, compact: false },
            delete_retention_ms: 24 * 60 * 60 * 1000,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            min_cleanable_dirty_ratio: 0.5,
            file_delete_delay_ms: 60_000,
            preallocate: false,
            ahead_bytes: 256 << 10,
            ahead_after_syncs: 16,
            max_message_bytes: 1_048_588,
        }
    }
}
