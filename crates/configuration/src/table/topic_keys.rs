//! The configurations of a topic: every one of Kafka 4.3, and our own `durability`, by name.
//!
//! A topic that has no value of its own takes the value of the broker keys named in
//! `falls_back_to`, the first that is set winning, else the default.

use crate::key::{Fallback, Key, Kind};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

const fn same(name: &'static str) -> Fallback {
    Fallback { name, multiplier: 1 }
}

const fn times(name: &'static str, multiplier: i64) -> Fallback {
    Fallback { name, multiplier }
}

/// Sorted by name: `table::find_topic` searches it.
pub(super) const KEYS: &[Key] = &[
    Key::list("cleanup.policy", "delete")
        .one_of(&["compact", "delete"])
        .repeatable()
        .falls_back_to(&[same("log.cleanup.policy")])
        .doc("What becomes of old records: `delete` drops whole segments by age and size, `compact` \
         keeps the newest record of every key. Both may be named; with neither, all is kept."),
    Key::int("compression.gzip.level", "-1")
        .between_or(1, 9, -1)
        .falls_back_to(&[same("compression.gzip.level")])
        .doc("How hard gzip works when the broker compresses: 1 is fast, 9 is small, -1 is the \
         codec's own choice. Only with `compression.type=gzip`."),
    Key::int("compression.lz4.level", "9")
        .between(1, 17)
        .falls_back_to(&[same("compression.lz4.level")])
        .doc("How hard LZ4 works when the broker compresses. Only with `compression.type=lz4`."),
    Key::string("compression.type", "producer")
        .one_of(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"])
        .falls_back_to(&[same("compression.type")])
        .doc("The codec that batches are stored in. `producer` keeps what the producer chose, which \
         costs the broker nothing; a codec's name makes the broker compress again."),
    Key::int("compression.zstd.level", "3")
        .between(-131_072, 22)
        .falls_back_to(&[same("compression.zstd.level")])
        .doc("How hard zstd works when the broker compresses. Only with `compression.type=zstd`."),
    Key::long("delete.retention.ms", "86400000")
        .at_least(0)
        .falls_back_to(&[same("log.cleaner.delete.retention.ms")])
        .doc("How long, in milliseconds, a compacted topic keeps a tombstone after it was cleaned, so \
         that a reader who starts within that time sees every deletion."),
    Key::string("durability", "fsync")
        .one_of(&["fsync", "page-cache"])
        .falls_back_to(&[same("durability")])
        .doc("What `acks=all` waits for. `fsync`: the record is on the device of every in-sync \
             replica. `page-cache`: it is in the memory of every in-sync replica, as in Kafka."),
    Key::long("file.delete.delay.ms", "60000")
        .at_least(0)
        .falls_back_to(&[same("log.segment.delete.delay.ms")])
        .doc("How long, in milliseconds, files of deleted segments stay on disk under another name."),
    Key::long("flush.messages", "9223372036854775807")
        .at_least(1)
        .falls_back_to(&[same("log.flush.interval.messages")])
        .doc("Sync after this many records, even where no request waits for it. With `durability=fsync` \
         whatever is acknowledged is synced anyway."),
    Key::long("flush.ms", "9223372036854775807")
        .at_least(0)
        .falls_back_to(&[same("log.flush.interval.ms"), same("log.flush.scheduler.interval.ms")])
        .doc("Sync at least this often, in milliseconds, even where no request waits for it."),
    Key::list("follower.replication.throttled.replicas", "")
        .throttled_replicas()
        .repeatable()
        .ignored(super::QUOTA)
        .doc("Followers whose fetching counts against the broker's replication quota: \
         `partition:broker` pairs, or `*` for all."),
    Key::int("index.interval.bytes", "4096")
        .at_least(0)
        .falls_back_to(&[same("log.index.interval.bytes")])
        .doc("How many bytes of log lie between two entries of the offset index."),
    Key::null("internal.segment.bytes", Kind::Int)
        .at_least(14)
        .internal()
        .doc("Segment size below what `segment.bytes` allows, for tests."),
    Key::list("leader.replication.throttled.replicas", "")
        .throttled_replicas()
        .repeatable()
        .ignored(super::QUOTA)
        .doc("Leaders whose answers to followers count against the broker's replication quota: \
         `partition:broker` pairs, or `*` for all."),
    Key::long("local.retention.bytes", "-2")
        .at_least(-2)
        .falls_back_to(&[same("log.local.retention.bytes")])
        .ignored(super::TIERED)
        .doc("With tiered storage, bytes a partition keeps on local disks; -2 takes \
         `retention.bytes`. Without it, as here, it has no effect."),
    Key::long("local.retention.ms", "-2")
        .at_least(-2)
        .falls_back_to(&[same("log.local.retention.ms")])
        .ignored(super::TIERED)
        .doc("With tiered storage, milliseconds that records stay on local disks; -2 takes \
         `retention.ms`. Without it, as here, it has no effect."),
    Key::long("max.compaction.lag.ms", "9223372036854775807")
        .at_least(1)
        .falls_back_to(&[same("log.cleaner.max.compaction.lag.ms")])
        .doc("The longest, in milliseconds, that a record of a compacted topic may wait until it can \
         be compacted, however little there is to gain."),
    Key::int("max.message.bytes", "1048588")
        .at_least(0)
        .falls_back_to(&[same("message.max.bytes")])
        .doc("The largest record batch, in bytes as sent (after compression), that is accepted."),
    Key::long("message.timestamp.after.max.ms", "3600000")
        .at_least(0)
        .falls_back_to(&[same("log.message.timestamp.after.max.ms")])
        .doc("How far, in milliseconds, a record's timestamp may lie after the broker's clock. Only \
         with `message.timestamp.type=CreateTime`."),
    Key::long("message.timestamp.before.max.ms", "9223372036854775807")
        .at_least(0)
        .falls_back_to(&[same("log.message.timestamp.before.max.ms")])
        .doc("How far, in milliseconds, a record's timestamp may lie before the broker's clock. Only \
         with `message.timestamp.type=CreateTime`."),
    Key::string("message.timestamp.type", "CreateTime")
        .one_of(&["CreateTime", "LogAppendTime"])
        .falls_back_to(&[same("log.message.timestamp.type")])
        .doc("Whose clock stamps records: the producer's (`CreateTime`) or the broker's."),
    Key::double("min.cleanable.dirty.ratio", "0.5")
        .within(0.0, 1.0)
        .falls_back_to(&[same("log.cleaner.min.cleanable.ratio")])
        .doc("A compacted log is cleaned when at least this part of it (0 to 1) is not cleaned yet."),
    Key::long("min.compaction.lag.ms", "0")
        .at_least(0)
        .falls_back_to(&[same("log.cleaner.min.compaction.lag.ms")])
        .doc("The shortest, in milliseconds, that a record of a compacted topic stays as it is."),
    Key::int("min.insync.replicas", "1")
        .at_least(1)
        .falls_back_to(&[same("min.insync.replicas")])
        .doc("With fewer in-sync replicas than this, producers with `acks=all` are refused."),
    Key::boolean("preallocate", "false")
        .falls_back_to(&[same("log.preallocate")])
        .doc("Whether the whole of a new segment's space is reserved on disk at once."),
    Key::int("records.expanded.max.bytes", "134217728")
        .at_least(1)
        .falls_back_to(&[same("records.expanded.max.bytes")])
        .doc("Bytes that the records of one compressed batch may expand to. Refuses what would cost \
         the broker too much to look into; nothing in Kafka corresponds to it."),
    Key::string("records.validation", "full")
        .one_of(&["full", "header"])
        .falls_back_to(&[same("records.validation")])
        .doc("What the broker looks into before it stores a batch. `full`: every record, as in Kafka. \
         `header`: of a compressed batch only the header, which saves CPU and believes the producer."),
    Key::boolean("remote.log.copy.disable", "false")
        .ignored(super::TIERED)
        .doc("With tiered storage, stop copying to it. Without it, as here, it has no effect."),
    Key::boolean("remote.log.delete.on.disable", "false")
        .ignored(super::TIERED)
        .doc("With tiered storage, delete what lies there when it is disabled. Without it, as here, \
         it has no effect."),
    Key::boolean("remote.storage.enable", "false")
        .refused(super::TIERED)
        .doc("Tiered storage for this topic. This broker has none: only `false` is accepted."),
    Key::long("retention.bytes", "-1")
        .falls_back_to(&[same("log.retention.bytes")])
        .doc("Bytes a partition may reach before `cleanup.policy=delete` drops its oldest segments; \
         -1 for no limit."),
    Key::long("retention.ms", "604800000")
        .at_least(-1)
        .falls_back_to(&[
            same("log.retention.ms"),
            times("log.retention.minutes", MINUTE_MS),
            times("log.retention.hours", HOUR_MS),
        ])
        .doc("Milliseconds after which `cleanup.policy=delete` drops a segment; -1 for no limit."),
    Key::int("segment.bytes", "1073741824")
        .at_least(1_048_576)
        .falls_back_to(&[same("log.segment.bytes")])
        .doc("The size, in bytes, at which a partition begins a new segment file."),
    Key::int("segment.index.bytes", "10485760")
        .at_least(4)
        .falls_back_to(&[same("log.index.size.max.bytes")])
        .doc("The size, in bytes, that a segment's index may reach before a new segment begins."),
    Key::long("segment.jitter.ms", "0")
        .at_least(0)
        .falls_back_to(&[
            same("log.roll.jitter.ms"),
            times("log.roll.jitter.hours", HOUR_MS),
        ])
        .doc("A random time up to this, in milliseconds, taken off `segment.ms`, so that partitions \
         do not all begin new segments at once."),
    Key::long("segment.ms", "604800000")
        .at_least(1)
        .falls_back_to(&[same("log.roll.ms"), times("log.roll.hours", HOUR_MS)])
        .doc("The age, in milliseconds, at which a partition begins a new segment file, even if the \
         old one is not full."),
    Key::boolean("unclean.leader.election.enable", "false")
        .falls_back_to(&[same("unclean.leader.election.enable")])
        .doc("Whether a replica that is not in sync may lead when no other can. It brings the \
         partition back and may lose acknowledged records."),
];
