//! The table: every topic configuration of Kafka 4.3, and our own `durability`.
//!
//! Order: by name. Defaults are Kafka's; the tests compare them with what a real broker says.

use super::value::Range;

/// The type of a value, with its number in DescribeConfigs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigType {
    /// `true` or `false`.
    Boolean,
    /// Text.
    String,
    /// 32 bits.
    Int,
    /// 64 bits.
    Long,
    /// A floating-point number.
    Double,
    /// Comma-separated texts.
    List,
}

impl ConfigType {
    /// The number in DescribeConfigs v3 and later.
    pub const fn code(self) -> i8 {
        match self {
            ConfigType::Boolean => 1,
            ConfigType::String => 2,
            ConfigType::Int => 3,
            ConfigType::Long => 5,
            ConfigType::Double => 6,
            ConfigType::List => 7,
        }
    }

    /// The name that Kafka's tools print.
    pub const fn name(self) -> &'static str {
        match self {
            ConfigType::Boolean => "BOOLEAN",
            ConfigType::String => "STRING",
            ConfigType::Int => "INT",
            ConfigType::Long => "LONG",
            ConfigType::Double => "DOUBLE",
            ConfigType::List => "LIST",
        }
    }
}

/// A broker-level key that gives a topic key its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synonym {
    /// The broker's key.
    pub name: &'static str,
    /// What its value is multiplied by: hours and minutes become milliseconds.
    pub multiplier: i64,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct ConfigKey {
    /// The key.
    pub name: &'static str,
    /// The type of its values.
    pub kind: ConfigType,
    /// The value when nobody sets one.
    pub default: &'static str,
    /// Which values of the type are accepted.
    pub range: Range,
    /// Broker-level keys, the strongest first.
    pub synonyms: &'static [Synonym],
    /// What it does.
    pub doc: &'static str,
    /// Ours rather than Kafka's.
    pub own: bool,
    /// Accepted but not shown unless it has a value: for tests and experts.
    pub internal: bool,
}

const fn same(name: &'static str) -> Synonym {
    Synonym { name, multiplier: 1 }
}

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

const fn key(
    name: &'static str,
    kind: ConfigType,
    default: &'static str,
    range: Range,
    synonyms: &'static [Synonym],
    doc: &'static str,
) -> ConfigKey {
    ConfigKey { name, kind, default, range, synonyms, doc, own: false, internal: false }
}

use ConfigType::{Boolean, Double, Int, List, Long, String as Text};
use Range::{Any, AtLeast, AtMostFraction, Between, BetweenOr, OneOf, Subset, ThrottledReplicas};

/// Every key, in the order of their names.
pub const TOPIC_CONFIGS: &[ConfigKey] = &[
    key(
        "cleanup.policy",
        List,
        "delete",
        Subset(&["compact", "delete"]),
        &[same("log.cleanup.policy")],
        "What becomes of old records: `delete` drops whole segments by age and size, `compact` \
         keeps the newest record of every key. Both may be named; with neither, all is kept.",
    ),
    key(
        "compression.gzip.level",
        Int,
        "-1",
        BetweenOr(1, 9, -1),
        &[same("compression.gzip.level")],
        "How hard gzip works when the broker compresses: 1 is fast, 9 is small, -1 is the \
         codec's own choice. Only with `compression.type=gzip`.",
    ),
    key(
        "compression.lz4.level",
        Int,
        "9",
        Between(1, 17),
        &[same("compression.lz4.level")],
        "How hard LZ4 works when the broker compresses. Only with `compression.type=lz4`.",
    ),
    key(
        "compression.type",
        Text,
        "producer",
        OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]),
        &[same("compression.type")],
        "The codec that batches are stored in. `producer` keeps what the producer chose, which \
         costs the broker nothing; a codec's name makes the broker compress again.",
    ),
    key(
        "compression.zstd.level",
        Int,
        "3",
        Between(-131_072, 22),
        &[same("compression.zstd.level")],
        "How hard zstd works when the broker compresses. Only with `compression.type=zstd`.",
    ),
    key(
        "delete.retention.ms",
        Long,
        "86400000",
        AtLeast(0),
        &[same("log.cleaner.delete.retention.ms")],
        "How long, in milliseconds, a compacted topic keeps a tombstone after it was cleaned, so \
         that a reader who starts within that time sees every deletion.",
    ),
    ConfigKey {
        own: true,
        ..key(
            "durability",
            Text,
            "fsync",
            OneOf(&["fsync", "page-cache"]),
            &[same("durability")],
            "What `acks=all` waits for. `fsync`: the record is on the device of every in-sync \
             replica. `page-cache`: it is in the memory of every in-sync replica, as in Kafka.",
        )
    },
    key(
        "file.delete.delay.ms",
        Long,
        "60000",
        AtLeast(0),
        &[same("log.segment.delete.delay.ms")],
        "How long, in milliseconds, files of deleted segments stay on disk under another name.",
    ),
    key(
        "flush.messages",
        Long,
        "9223372036854775807",
        AtLeast(1),
        &[same("log.flush.interval.messages")],
        "Sync after this many records, even where nobody waits for it. With `durability=fsync` \
         whatever is acknowledged is synced anyway.",
    ),
    key(
        "flush.ms",
        Long,
        "9223372036854775807",
        AtLeast(0),
        &[same("log.flush.interval.ms"), same("log.flush.scheduler.interval.ms")],
        "Sync at least this often, in milliseconds, even where nobody waits for it.",
    ),
    key(
        "follower.replication.throttled.replicas",
        List,
        "",
        ThrottledReplicas,
        &[],
        "Followers whose fetching counts against the broker's replication quota: \
         `partition:broker` pairs, or `*` for all.",
    ),
    key(
        "index.interval.bytes",
        Int,
        "4096",
        AtLeast(0),
        &[same("log.index.interval.bytes")],
        "How many bytes of log lie between two entries of the offset index.",
    ),
    ConfigKey {
        internal: true,
        ..key(
            "internal.segment.bytes",
            Int,
            "",
            AtLeast(14),
            &[],
            "Segment size below what `segment.bytes` allows, for tests.",
        )
    },
    key(
        "leader.replication.throttled.replicas",
        List,
        "",
        ThrottledReplicas,
        &[],
        "Leaders whose answers to followers count against the broker's replication quota: \
         `partition:broker` pairs, or `*` for all.",
    ),
    key(
        "local.retention.bytes",
        Long,
        "-2",
        AtLeast(-2),
        &[same("log.local.retention.bytes")],
        "With tiered storage, bytes a partition keeps on local disks; -2 takes \
         `retention.bytes`. Without it, as here, it has no effect.",
    ),
    key(
        "local.retention.ms",
        Long,
        "-2",
        AtLeast(-2),
        &[same("log.local.retention.ms")],
        "With tiered storage, milliseconds that records stay on local disks; -2 takes \
         `retention.ms`. Without it, as here, it has no effect.",
    ),
    key(
        "max.compaction.lag.ms",
        Long,
        "9223372036854775807",
        AtLeast(1),
        &[same("log.cleaner.max.compaction.lag.ms")],
        "The longest, in milliseconds, that a record of a compacted topic may wait until it can \
         be compacted, however little there is to gain.",
    ),
    key(
        "max.message.bytes",
        Int,
        "1048588",
        AtLeast(0),
        &[same("message.max.bytes")],
        "The largest record batch, in bytes as sent (after compression), that is accepted.",
    ),
    key(
        "message.timestamp.after.max.ms",
        Long,
        "3600000",
        AtLeast(0),
        &[same("log.message.timestamp.after.max.ms")],
        "How far, in milliseconds, a record's timestamp may lie after the broker's clock. Only \
         with `message.timestamp.type=CreateTime`.",
    ),
    key(
        "message.timestamp.before.max.ms",
        Long,
        "9223372036854775807",
        AtLeast(0),
        &[same("log.message.timestamp.before.max.ms")],
        "How far, in milliseconds, a record's timestamp may lie before the broker's clock. Only \
         with `message.timestamp.type=CreateTime`.",
    ),
    key(
        "message.timestamp.type",
        Text,
        "CreateTime",
        OneOf(&["CreateTime", "LogAppendTime"]),
        &[same("log.message.timestamp.type")],
        "Whose clock stamps records: the producer's (`CreateTime`) or the broker's.",
    ),
    key(
        "min.cleanable.dirty.ratio",
        Double,
        "0.5",
        AtMostFraction,
        &[same("log.cleaner.min.cleanable.ratio")],
        "A compacted log is cleaned when at least this part of it (0 to 1) is not cleaned yet.",
    ),
    key(
        "min.compaction.lag.ms",
        Long,
        "0",
        AtLeast(0),
        &[same("log.cleaner.min.compaction.lag.ms")],
        "The shortest, in milliseconds, that a record of a compacted topic stays as it is.",
    ),
    key(
        "min.insync.replicas",
        Int,
        "1",
        AtLeast(1),
        &[same("min.insync.replicas")],
        "With fewer in-sync replicas than this, producers with `acks=all` are refused.",
    ),
    key(
        "preallocate",
        Boolean,
        "false",
        Any,
        &[same("log.preallocate")],
        "Whether the whole of a new segment's space is reserved on disk at once.",
    ),
    key(
        "remote.log.copy.disable",
        Boolean,
        "false",
        Any,
        &[],
        "With tiered storage, stop copying to it. Without it, as here, it has no effect.",
    ),
    key(
        "remote.log.delete.on.disable",
        Boolean,
        "false",
        Any,
        &[],
        "With tiered storage, delete what lies there when it is disabled. Without it, as here, \
         it has no effect.",
    ),
    key(
        "remote.storage.enable",
        Boolean,
        "false",
        Any,
        &[],
        "Tiered storage for this topic. This broker has none: only `false` is accepted.",
    ),
    key(
        "retention.bytes",
        Long,
        "-1",
        Any,
        &[same("log.retention.bytes")],
        "Bytes a partition may reach before `cleanup.policy=delete` drops its oldest segments; \
         -1 for no limit.",
    ),
    key(
        "retention.ms",
        Long,
        "604800000",
        AtLeast(-1),
        &[
            same("log.retention.ms"),
            Synonym { name: "log.retention.minutes", multiplier: MINUTE_MS },
            Synonym { name: "log.retention.hours", multiplier: HOUR_MS },
        ],
        "Milliseconds after which `cleanup.policy=delete` drops a segment; -1 for no limit.",
    ),
    key(
        "segment.bytes",
        Int,
        "1073741824",
        AtLeast(1_048_576),
        &[same("log.segment.bytes")],
        "The size, in bytes, at which a partition begins a new segment file.",
    ),
    key(
        "segment.index.bytes",
        Int,
        "10485760",
        AtLeast(4),
        &[same("log.index.size.max.bytes")],
        "The size, in bytes, that a segment's index may reach before a new segment begins.",
    ),
    key(
        "segment.jitter.ms",
        Long,
        "0",
        AtLeast(0),
        &[
            same("log.roll.jitter.ms"),
            Synonym { name: "log.roll.jitter.hours", multiplier: HOUR_MS },
        ],
        "A random time up to this, in milliseconds, taken off `segment.ms`, so that partitions \
         do not all begin new segments at once.",
    ),
    key(
        "segment.ms",
        Long,
        "604800000",
        AtLeast(1),
        &[same("log.roll.ms"), Synonym { name: "log.roll.hours", multiplier: HOUR_MS }],
        "The age, in milliseconds, at which a partition begins a new segment file, even if the \
         old one is not full.",
    ),
    key(
        "unclean.leader.election.enable",
        Boolean,
        "false",
        Any,
        &[same("unclean.leader.election.enable")],
        "Whether a replica that is not in sync may lead when no other can. It brings the \
         partition back and may lose acknowledged records.",
    ),
];

/// The row of a key.
pub fn find(name: &str) -> Option<&'static ConfigKey> {
    let at = TOPIC_CONFIGS.binary_search_by(|key| key.name.cmp(name)).ok()?;
    Some(&TOPIC_CONFIGS[at])
}
