//! The configuration of one topic as the rest of the program uses it: typed, resolved, complete.

use super::value::Value;
use model::{Compression, Durability, TimestampType};

/// `compression.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CompressionChoice {
    /// Store batches as they come.
    #[default]
    Producer,
    /// Store batches in this codec ([`Compression::None`] for `uncompressed`).
    Codec(Compression),
}

/// Every topic configuration in force. Times in milliseconds, sizes in bytes; -1 for "no limit"
/// where Kafka says so.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicSettings {
    /// `cleanup.policy` has `delete`.
    pub cleanup_delete: bool,
    /// `cleanup.policy` has `compact`.
    pub cleanup_compact: bool,
    /// `compression.type`.
    pub compression: CompressionChoice,
    /// `compression.gzip.level`.
    pub compression_gzip_level: i32,
    /// `compression.lz4.level`.
    pub compression_lz4_level: i32,
    /// `compression.zstd.level`.
    pub compression_zstd_level: i32,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// `durability`.
    pub durability: Durability,
    /// `file.delete.delay.ms`.
    pub file_delete_delay_ms: i64,
    /// `flush.messages`.
    pub flush_messages: i64,
    /// `flush.ms`.
    pub flush_ms: i64,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u32,
    /// `max.compaction.lag.ms`.
    pub max_compaction_lag_ms: i64,
    /// `max.message.bytes`.
    pub max_message_bytes: u32,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `min.cleanable.dirty.ratio`.
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`.
    pub min_compaction_lag_ms: i64,
    /// `min.insync.replicas`.
    pub min_insync_replicas: i32,
    /// `preallocate`.
    pub preallocate: bool,
    /// `retention.bytes`; below 0 for no limit.
    pub retention_bytes: i64,
    /// `retention.ms`; -1 for no limit.
    pub retention_ms: i64,
    /// `segment.bytes`, or `internal.segment.bytes` where the topic has it.
    pub segment_bytes: u32,
    /// `segment.index.bytes`.
    pub segment_index_bytes: u32,
    /// `segment.jitter.ms`.
    pub segment_jitter_ms: i64,
    /// `segment.ms`.
    pub segment_ms: i64,
    /// `unclean.leader.election.enable`.
    pub unclean_leader_election: bool,
}

impl Default for TopicSettings {
    /// What a topic has when nobody configured anything.
    fn default() -> TopicSettings {
        TopicSettings::read(|name| super::find(name).expect("a key of the table").parse_default())
    }
}

impl TopicSettings {
    /// Reads every setting by its key.
    pub(super) fn read(value: impl Fn(&'static str) -> Value) -> TopicSettings {
        let long = |name| value(name).number();
        let int = |name| i32::try_from(long(name)).expect("the table says it is of type int");
        let size = |name| u32::try_from(long(name)).expect("the table says it is 0 or more");
        let flag = |name| value(name) == Value::Boolean(true);
        let text = |name| match value(name) {
            Value::Text(text) => text,
            other => unreachable!("the table says that {name} is a string, not {other:?}"),
        };
        let policies = match value("cleanup.policy") {
            Value::List(policies) => policies,
            other => unreachable!("the table says that it is a list, not {other:?}"),
        };
        let has = |policy: &str| policies.iter().any(|p| p == policy);
        let Value::Fraction(min_cleanable_dirty_ratio) = value("min.cleanable.dirty.ratio") else {
            unreachable!("the table says that it is a double")
        };
        TopicSettings {
            cleanup_delete: has("delete"),
            cleanup_compact: has("compact"),
            compression: compression(&text("compression.type")),
            compression_gzip_level: int("compression.gzip.level"),
            compression_lz4_level: int("compression.lz4.level"),
            compression_zstd_level: int("compression.zstd.level"),
            delete_retention_ms: long("delete.retention.ms"),
            durability: Durability::from_name(&text("durability")).unwrap_or_default(),
            file_delete_delay_ms: long("file.delete.delay.ms"),
            flush_messages: long("flush.messages"),
            flush_ms: long("flush.ms"),
            index_interval_bytes: size("index.interval.bytes"),
            max_compaction_lag_ms: long("max.compaction.lag.ms"),
            max_message_bytes: size("max.message.bytes"),
            timestamp_after_max_ms: long("message.timestamp.after.max.ms"),
            timestamp_before_max_ms: long("message.timestamp.before.max.ms"),
            timestamp_type: match text("message.timestamp.type").as_str() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            min_cleanable_dirty_ratio,
            min_compaction_lag_ms: long("min.compaction.lag.ms"),
            min_insync_replicas: int("min.insync.replicas"),
            preallocate: flag("preallocate"),
            retention_bytes: long("retention.bytes"),
            retention_ms: long("retention.ms"),
            segment_bytes: match value("internal.segment.bytes") {
                Value::Number(bytes) => bytes as u32,
                _ => size("segment.bytes"),
            },
            segment_index_bytes: size("segment.index.bytes"),
            segment_jitter_ms: long("segment.jitter.ms"),
            segment_ms: long("segment.ms"),
            unclean_leader_election: flag("unclean.leader.election.enable"),
        }
    }
}

fn compression(name: &str) -> CompressionChoice {
    match name {
        "uncompressed" => CompressionChoice::Codec(Compression::None),
        "gzip" => CompressionChoice::Codec(Compression::Gzip),
        "snappy" => CompressionChoice::Codec(Compression::Snappy),
        "lz4" => CompressionChoice::Codec(Compression::Lz4),
        "zstd" => CompressionChoice::Codec(Compression::Zstd),
        _ => CompressionChoice::Producer,
    }
}
