//! The logs on disk: segments, retention, compaction, syncing. Facts only: what the broker makes
//! of a value is in `broker_config`.

use super::TIERED;
use crate::key::{Key, Kind};

/// The keys of this area, in the order in which they are explained.
pub(super) const KEYS: &[Key] = &[
    Key::list("log.dir", "./highwater-data")
        .not_empty()
        .doc("Where the logs are kept, if log.dirs is not set."),
    Key::null("log.dirs", Kind::List)
        .not_empty()
        .doc("Directories in which the logs are kept, separated by commas. Unset: log.dir."),
    Key::list("cordoned.log.dirs", "")
        .per_broker()
        .ignored("partitions are placed in any of log.dirs")
        .doc("Log directories that take no new partitions."),
    Key::long("log.dir.failure.timeout.ms", "30000")
        .at_least(1)
        .ignored("the failure is told until a controller has heard it, and nothing in that directory is served meanwhile")
        .doc("A broker that cannot report a failed log directory for this long stops."),
    Key::int("num.recovery.threads.per.data.dir", "2")
        .at_least(1)
        .cluster_wide()
        .doc("Threads for each log directory that open and recover logs."),
    Key::string("compression.type", "producer")
        .one_of(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"])
        .cluster_wide()
        .doc(
            "How records are stored: as the producer compressed them (producer), or with the \
             codec named.",
        ),
    Key::int("compression.gzip.level", "-1")
        .between_or(1, 9, -1)
        .cluster_wide()
        .doc("Level of gzip when the broker compresses; -1: the codec's default."),
    Key::int("compression.lz4.level", "9")
        .between(1, 17)
        .cluster_wide()
        .doc("Level of lz4 when the broker compresses."),
    Key::int("compression.zstd.level", "3")
        .between(-131072, 22)
        .cluster_wide()
        .doc("Level of zstd when the broker compresses."),
    Key::int("message.max.bytes", "1048588")
        .at_least(0)
        .cluster_wide()
        .doc("The largest batch of records that is accepted."),
    Key::string("log.message.timestamp.type", "CreateTime")
        .one_of(&["CreateTime", "LogAppendTime"])
        .cluster_wide()
        .doc(
            "Whether a record's timestamp is the producer's (CreateTime) or the broker's \
             (LogAppendTime).",
        ),
    Key::long("log.message.timestamp.after.max.ms", "3600000")
        .at_least(0)
        .cluster_wide()
        .doc("How far a record's timestamp may lie ahead of the broker's clock."),
    Key::long("log.message.timestamp.before.max.ms", "9223372036854775807")
        .at_least(0)
        .cluster_wide()
        .doc("How far a record's timestamp may lie behind the broker's clock."),
    Key::int("log.segment.bytes", "1073741824")
        .at_least(1048576)
        .cluster_wide()
        .doc("Size at which a segment is closed and the next one begun."),
    Key::null("log.roll.ms", Kind::Long)
        .cluster_wide()
        .doc("Age at which a segment is closed, in milliseconds. Unset: log.roll.hours."),
    Key::int("log.roll.hours", "168")
        .at_least(1)
        .doc("Age at which a segment is closed, in hours."),
    Key::null("log.roll.jitter.ms", Kind::Long)
        .cluster_wide()
        .doc("Up to this much is taken at random off log.roll.ms. Unset: log.roll.jitter.hours."),
    Key::int("log.roll.jitter.hours", "0")
        .at_least(0)
        .doc("Up to this much is taken at random off log.roll.hours."),
    Key::int("log.index.interval.bytes", "4096")
        .at_least(0)
        .cluster_wide()
        .doc("Bytes of a log from one entry of its index to the next."),
    Key::int("log.index.size.max.bytes", "10485760")
        .at_least(4)
        .cluster_wide()
        .doc("Size at which an index is full, which closes its segment."),
    Key::boolean("log.preallocate", "false")
        .cluster_wide()
        .doc("Whether a new segment's whole space is reserved at once."),
    Key::long("log.retention.bytes", "-1")
        .cluster_wide()
        .doc("Size of a partition above which old segments are deleted; -1: no limit."),
    Key::null("log.retention.ms", Kind::Long).cluster_wide().doc(
        "Age at which records may be deleted, in milliseconds; -1: never. Unset: \
         log.retention.minutes.",
    ),
    Key::null("log.retention.minutes", Kind::Int)
        .doc("Age at which records may be deleted, in minutes. Unset: log.retention.hours."),
    Key::int("log.retention.hours", "168").doc("Age at which records may be deleted, in hours."),
    Key::long("log.retention.check.interval.ms", "300000")
        .at_least(1)
        .doc("How often the broker looks for segments to delete."),
    Key::long("log.segment.delete.delay.ms", "60000")
        .at_least(0)
        .cluster_wide()
        .doc("How long a deleted segment's files stay on the disk."),
    Key::list("log.cleanup.policy", "delete")
        .one_of(&["compact", "delete"])
        .cluster_wide()
        .doc("What happens to old records: delete, compact, both, or (empty) nothing."),
    Key::boolean("log.cleaner.enable", "true").doc("Whether compacted topics are compacted."),
    Key::int("log.cleaner.threads", "1").at_least(0).cluster_wide().doc("Threads that compact."),
    Key::long("log.cleaner.backoff.ms", "15000")
        .at_least(0)
        .cluster_wide()
        .doc("Pause of the cleaner when there is nothing to compact."),
    Key::long("log.cleaner.dedupe.buffer.size", "134217728")
        .cluster_wide()
        .doc("Memory for the keys of a compaction, all threads together."),
    Key::double("log.cleaner.io.buffer.load.factor", "0.9")
        .cluster_wide()
        .doc("How full that memory may become."),
    Key::int("log.cleaner.io.buffer.size", "524288")
        .at_least(0)
        .cluster_wide()
        .ignored("the cleaner's buffers have a fixed size")
        .doc("Memory for reading and writing in a compaction, all threads together."),
    Key::double("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308")
        .cluster_wide()
        .doc("Bytes a second that compaction reads and writes at most."),
    Key::long("log.cleaner.delete.retention.ms", "86400000")
        .at_least(0)
        .cluster_wide()
        .doc("How long the tombstone of a deleted key stays in a compacted topic."),
    Key::double("log.cleaner.min.cleanable.ratio", "0.5")
        .within(0.0, 1.0)
        .cluster_wide()
        .doc("Part of a log that must be uncompacted before it is compacted again."),
    Key::long("log.cleaner.min.compaction.lag.ms", "0")
        .at_least(0)
        .cluster_wide()
        .doc("How long a record stays uncompacted at least."),
    Key::long("log.cleaner.max.compaction.lag.ms", "9223372036854775807")
        .at_least(1)
        .cluster_wide()
        .doc("How long a record stays uncompacted at most."),
    Key::long("log.flush.interval.messages", "9223372036854775807")
        .at_least(1)
        .cluster_wide()
        .doc("With durability=page-cache: a log is synced after this many records."),
    Key::null("log.flush.interval.ms", Kind::Long).cluster_wide().doc(
        "With durability=page-cache: a log is synced after this time. Unset: \
         log.flush.scheduler.interval.ms.",
    ),
    Key::long("log.flush.scheduler.interval.ms", "9223372036854775807")
        .doc("With durability=page-cache: how often the broker looks for logs to sync."),
    Key::int("log.flush.offset.checkpoint.interval.ms", "60000")
        .at_least(0)
        .doc("How often recovery points are written to disk."),
    Key::int("log.flush.start.offset.checkpoint.interval.ms", "60000")
        .at_least(0)
        .ignored(super::TOGETHER)
        .doc("How often the first offsets of logs are written to disk."),
    Key::long("log.initial.task.delay.ms", "30000")
        .at_least(0)
        .internal()
        .doc("Delay after the start before retention and checkpoints first run."),
    Key::int("producer.id.expiration.ms", "86400000")
        .at_least(1)
        .cluster_wide()
        .doc("A producer id that wrote nothing for this long is forgotten by a partition."),
    Key::int("producer.id.expiration.check.interval.ms", "600000")
        .at_least(1)
        .internal()
        .doc("How often a partition looks for producer ids to forget."),
    Key::long("log.local.retention.bytes", "-2").at_least(-2).cluster_wide().ignored(TIERED).doc(
        "Size of a partition's local segments above which those that are also remote are \
         deleted.",
    ),
    Key::long("log.local.retention.ms", "-2")
        .at_least(-2)
        .cluster_wide()
        .ignored(TIERED)
        .doc("Age at which local segments that are also remote are deleted."),
];
