//! The configuration of one topic as the rest of the program uses it: typed, resolved, complete.

use model::{Compression, Durability, TimestampType, Validation};

use super::key::Key;
use super::settings::Setting;
use super::table;

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
    /// `records.expanded.max.bytes`.
    pub records_expanded_max_bytes: u32,
    /// `records.validation`.
    pub records_validation: Validation,
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
    /// What a topic has if nothing was configured.
    fn default() -> TopicSettings {
        TopicSettings::read(|_| None)
    }
}

impl TopicSettings {
    /// Reads every setting by its key. `value` gives a valid text; for `None`, or a text that is
    /// not valid, the default holds, so that a partition can always be opened.
    pub fn read(value: impl Fn(&'static Key) -> Option<String>) -> TopicSettings {
        let values = Values(&value);
        let policies: Vec<String> = values.get("cleanup.policy");
        let has = |policy: &str| policies.iter().any(|p| p == policy);
        TopicSettings {
            cleanup_delete: has("delete"),
            cleanup_compact: has("compact"),
            compression: compression(&values.get::<String>("compression.type")),
            compression_gzip_level: values.get("compression.gzip.level"),
            compression_lz4_level: values.get("compression.lz4.level"),
            compression_zstd_level: values.get("compression.zstd.level"),
            delete_retention_ms: values.get("delete.retention.ms"),
            durability: Durability::from_name(&values.get::<String>("durability"))
                .unwrap_or_default(),
            file_delete_delay_ms: values.get("file.delete.delay.ms"),
            flush_messages: values.get("flush.messages"),
            flush_ms: values.get("flush.ms"),
            index_interval_bytes: values.get("index.interval.bytes"),
            max_compaction_lag_ms: values.get("max.compaction.lag.ms"),
            max_message_bytes: values.get("max.message.bytes"),
            timestamp_after_max_ms: values.get("message.timestamp.after.max.ms"),
            timestamp_before_max_ms: values.get("message.timestamp.before.max.ms"),
            timestamp_type: match values.get::<String>("message.timestamp.type").as_str() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            min_cleanable_dirty_ratio: values.get("min.cleanable.dirty.ratio"),
            min_compaction_lag_ms: values.get("min.compaction.lag.ms"),
            min_insync_replicas: values.get("min.insync.replicas"),
            preallocate: values.get("preallocate"),
            records_expanded_max_bytes: values.get("records.expanded.max.bytes"),
            records_validation: Validation::from_name(&values.get::<String>("records.validation"))
                .unwrap_or_default(),
            retention_bytes: values.get("retention.bytes"),
            retention_ms: values.get("retention.ms"),
            segment_bytes: values
                .optional("internal.segment.bytes")
                .unwrap_or_else(|| values.get("segment.bytes")),
            segment_index_bytes: values.get("segment.index.bytes"),
            segment_jitter_ms: values.get("segment.jitter.ms"),
            segment_ms: values.get("segment.ms"),
            unclean_leader_election: values.get("unclean.leader.election.enable"),
        }
    }
}

/// The texts of one topic, as typed values.
struct Values<'a, F>(&'a F);

impl<F: Fn(&'static Key) -> Option<String>> Values<'_, F> {
    /// The value of a key; `None` for one without value and default.
    fn optional<T: Setting>(&self, name: &'static str) -> Option<T> {
        let key = table::find_topic(name).expect("settings are read by keys of the table");
        let text = (self.0)(key).and_then(|text| T::of_text(&text));
        text.or_else(|| key.default.and_then(T::of_text))
    }

    fn get<T: Setting>(&self, name: &'static str) -> T {
        self.optional(name).expect("the key has a default, and it is of this type")
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
