//! Tiered storage (KIP-405). Facts only: what the broker makes of a value is in `broker_config`.

use super::TIERED;
use crate::key::{Key, Kind};

/// The keys of this area, in the order in which they are explained.
pub(super) const KEYS: &[Key] = &[
    Key::boolean("follower.fetch.last.tiered.offset.enable", "false")
        .cluster_wide()
        .ignored(TIERED)
        .doc("Whether a new follower starts behind what is in remote storage."),
    Key::int("remote.fetch.max.wait.ms", "500")
        .at_least(1)
        .cluster_wide()
        .ignored(TIERED)
        .doc("How long a fetch waits for remote storage."),
    Key::long("remote.list.offsets.request.timeout.ms", "30000")
        .at_least(1)
        .cluster_wide()
        .ignored(TIERED)
        .doc("How long a look-up of offsets waits for remote storage."),
    Key::long("remote.log.index.file.cache.total.size.bytes", "1073741824")
        .at_least(1)
        .cluster_wide()
        .ignored(TIERED)
        .doc("Disk space for indexes of remote segments."),
    Key::long("remote.log.index.file.cache.ttl.ms", "900000")
        .at_least(-1)
        .ignored(TIERED)
        .internal()
        .doc("How long an index of a remote segment is kept on disk."),
    Key::int("remote.log.manager.copier.thread.pool.size", "10")
        .at_least(1)
        .cluster_wide()
        .ignored(TIERED)
        .doc("Threads that copy segments to remote storage."),
    Key::long("remote.log.manager.copy.max.bytes.per.second", "9223372036854775807")
        .at_least(1)
        .cluster_wide()
        .ignored(TIERED)
        .doc("Bytes a second copied to remote storage."),
    Key::int("remote.log.manager.copy.quota.window.num", "11")
        .at_least(1)
        .ignored(TIERED)
        .doc("Windows kept for the limit on copying."),
    Key::int("remote.log.manager.copy.quota.window.size.seconds", "1")
        .at_least(1)
        .ignored(TIERED)
        .doc("Length of a window for the limit on copying."),
    Key::int("remote.log.manager.expiration.thread.pool.size", "10")
        .at_least(1)
        .cluster_wide()
        .ignored(TIERED)
        .doc("Threads that delete remote segments."),
    Key::long("remote.log.manager.fetch.max.bytes.per.second", "9223372036854775807")
        .at_least(1)
        .cluster_wide()
        .ignored(TIERED)
        .doc("Bytes a second fetched from remote storage."),
    Key::int("remote.log.manager.fetch.quota.window.num", "11")
        .at_least(1)
        .ignored(TIERED)
        .doc("Windows kept for the limit on fetching."),
    Key::int("remote.log.manager.fetch.quota.window.size.seconds", "1")
        .at_least(1)
        .ignored(TIERED)
        .doc("Length of a window for the limit on fetching."),
    Key::int("remote.log.manager.follower.thread.pool.size", "2")
        .at_least(1)
        .cluster_wide()
        .ignored(TIERED)
        .doc("Threads that follow the remote log of followed partitions."),
    Key::long("remote.log.manager.task.interval.ms", "30000")
        .at_least(1)
        .ignored(TIERED)
        .doc("How often segments are copied and deleted."),
    Key::long("remote.log.manager.task.retry.backoff.max.ms", "30000")
        .at_least(1)
        .ignored(TIERED)
        .internal()
        .doc("Longest pause after a failure of remote storage."),
    Key::long("remote.log.manager.task.retry.backoff.ms", "500")
        .at_least(1)
        .ignored(TIERED)
        .internal()
        .doc("First pause after a failure of remote storage."),
    Key::double("remote.log.manager.task.retry.jitter", "0.2")
        .within(0.0, 0.5)
        .ignored(TIERED)
        .internal()
        .doc("Random part of that pause."),
    Key::int("remote.log.manager.thread.pool.size", "2")
        .at_least(1)
        .ignored(TIERED)
        .doc("Threads of the remote log, where no other number is set."),
    Key::int("remote.log.metadata.custom.metadata.max.bytes", "128")
        .at_least(0)
        .ignored(TIERED)
        .doc("Largest metadata that a storage plugin may attach to a segment."),
    Key::string(
        "remote.log.metadata.manager.class.name",
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
    )
    .not_empty()
    .ignored(TIERED)
    .doc("Java class that keeps the metadata of remote segments."),
    Key::null("remote.log.metadata.manager.class.path", Kind::String)
        .ignored(TIERED)
        .doc("Where that class is found."),
    Key::string("remote.log.metadata.manager.impl.prefix", "rlmm.config.")
        .not_empty()
        .ignored(TIERED)
        .doc("Prefix of that class's settings."),
    Key::null("remote.log.metadata.manager.listener.name", Kind::String)
        .not_empty()
        .ignored(TIERED)
        .doc("Listener over which that class talks to brokers."),
    Key::int("remote.log.reader.max.pending.tasks", "100")
        .at_least(1)
        .ignored(TIERED)
        .doc("Remote reads that may wait at a time."),
    Key::int("remote.log.reader.threads", "10")
        .at_least(1)
        .cluster_wide()
        .ignored(TIERED)
        .doc("Threads that read from remote storage."),
    Key::null("remote.log.storage.manager.class.name", Kind::String)
        .not_empty()
        .ignored(TIERED)
        .doc("Java class that keeps remote segments."),
    Key::null("remote.log.storage.manager.class.path", Kind::String)
        .ignored(TIERED)
        .doc("Where that class is found."),
    Key::string("remote.log.storage.manager.impl.prefix", "rsm.config.")
        .not_empty()
        .ignored(TIERED)
        .doc("Prefix of that class's settings."),
    Key::boolean("remote.log.storage.system.enable", "false")
        .refused("tiered storage is not served")
        .doc("Whether segments are copied to remote storage."),
];
