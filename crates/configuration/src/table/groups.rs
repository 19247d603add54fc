//! Consumer groups and their offsets. Facts only: what the broker makes of a value is in
//! `broker_config`.

use super::{MODERN, SHARE, STREAMS};
use crate::key::Key;

/// The keys of this area, in the order in which they are explained.
pub(super) const KEYS: &[Key] = &[
    Key::int("group.initial.rebalance.delay.ms", "3000")
        .doc("How long a new group waits for more members before its first rebalance."),
    Key::int("group.max.session.timeout.ms", "1800000")
        .doc("Longest session timeout that a member may ask for."),
    Key::int("group.min.session.timeout.ms", "6000")
        .doc("Shortest session timeout that a member may ask for."),
    Key::int("group.max.size", "2147483647")
        .at_least(1)
        .doc("Members of a group; more are refused."),
    Key::list("group.coordinator.rebalance.protocols", "classic,consumer,streams")
        .one_of(&["consumer", "classic", "share", "streams"])
        .not_empty()
        .doc("Group protocols that are served. Highwater serves classic."),
    Key::int("group.coordinator.threads", "4")
        .at_least(1)
        .ignored("groups are served on the data threads")
        .doc("Threads of the group coordinator."),
    Key::int("group.coordinator.background.threads", "2")
        .at_least(1)
        .ignored("groups are served on the data threads")
        .doc("Background threads of the group coordinator."),
    Key::int("group.coordinator.append.linger.ms", "-1")
        .at_least(-1)
        .ignored("what has queued up is written together, without a timer")
        .doc("How long the coordinator gathers writes."),
    Key::int("group.coordinator.cached.buffer.max.bytes", "1048588")
        .at_least(524288)
        .cluster_wide()
        .ignored("buffers come from the broker's own pool")
        .doc("Largest buffer that the coordinator keeps for reuse."),
    Key::int("offset.metadata.max.bytes", "4096")
        .doc("Largest metadata text that may be committed with an offset."),
    Key::int("offsets.commit.timeout.ms", "5000")
        .at_least(1)
        .doc("How long an offset commit waits for its replicas."),
    Key::int("offsets.load.buffer.size", "5242880")
        .at_least(1)
        .ignored("groups are loaded in pieces of 1 MiB")
        .doc("Bytes that are read at a time when a coordinator loads its groups."),
    Key::long("offsets.retention.check.interval.ms", "600000")
        .at_least(1)
        .doc("How often the coordinator looks for offsets to forget."),
    Key::int("offsets.retention.minutes", "10080")
        .at_least(1)
        .doc("Offsets of a group without members are forgotten after this long."),
    Key::int("offsets.topic.compression.codec", "0")
        .ignored("offsets are stored as they are: group records are small, and are compacted")
        .doc("Codec of the offsets topic by number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."),
    Key::int("offsets.topic.num.partitions", "50")
        .at_least(1)
        .doc("Partitions of the offsets topic; fixed once it exists."),
    Key::short("offsets.topic.replication.factor", "3").at_least(1).doc(
        "Replicas of the offsets topic; at most as many as there are brokers when it is \
         created.",
    ),
    Key::int("offsets.topic.segment.bytes", "104857600")
        .at_least(1)
        .doc("Segment size of the offsets topic."),
    Key::int("group.consumer.assignment.interval.ms", "1000")
        .at_least(0)
        .cluster_wide()
        .ignored(MODERN)
        .doc("Shortest time between two assignments of a group."),
    Key::list("group.consumer.assignors", "uniform,range")
        .not_empty()
        .ignored(MODERN)
        .doc("Assignors of the server; the first is the default."),
    Key::int("group.consumer.heartbeat.interval.ms", "5000")
        .at_least(1)
        .ignored(MODERN)
        .doc("How often members have to send a heartbeat."),
    Key::int("group.consumer.max.assignment.interval.ms", "15000")
        .at_least(0)
        .ignored(MODERN)
        .doc("Largest assignment interval of a group."),
    Key::int("group.consumer.max.heartbeat.interval.ms", "15000")
        .at_least(1)
        .ignored(MODERN)
        .doc("Largest heartbeat interval of a group."),
    Key::int("group.consumer.max.session.timeout.ms", "60000")
        .at_least(1)
        .ignored(MODERN)
        .doc("Largest session timeout of a group."),
    Key::int("group.consumer.max.size", "2147483647")
        .at_least(1)
        .ignored(MODERN)
        .doc("Members of a group; more are refused."),
    Key::string("group.consumer.migration.policy", "bidirectional")
        .one_of_any_case(&["disabled", "downgrade", "upgrade", "bidirectional"])
        .ignored(MODERN)
        .doc(
            "Whether groups may change between the classic and the new protocol while they have \
             members.",
        ),
    Key::int("group.consumer.min.assignment.interval.ms", "0")
        .at_least(0)
        .ignored(MODERN)
        .doc("Smallest assignment interval of a group."),
    Key::int("group.consumer.min.heartbeat.interval.ms", "5000")
        .at_least(1)
        .ignored(MODERN)
        .doc("Smallest heartbeat interval of a group."),
    Key::int("group.consumer.min.session.timeout.ms", "45000")
        .at_least(1)
        .ignored(MODERN)
        .doc("Smallest session timeout of a group."),
    Key::int("group.consumer.regex.refresh.interval.ms", "600000")
        .at_least(10000)
        .ignored(MODERN)
        .internal()
        .doc("How often subscriptions by pattern are looked up again."),
    Key::int("group.consumer.session.timeout.ms", "45000")
        .at_least(1)
        .ignored(MODERN)
        .doc("A member that was silent for this long is removed."),
    Key::int("group.share.assignment.interval.ms", "1000")
        .at_least(0)
        .cluster_wide()
        .ignored(SHARE)
        .doc("Shortest time between two assignments of a share group."),
    Key::list("group.share.assignors", "simple")
        .not_empty()
        .ignored(SHARE)
        .doc("Assignors of share groups."),
    Key::int("group.share.delivery.count.limit", "5")
        .between(2, 10)
        .ignored(SHARE)
        .doc("How often a record is delivered before it is given up."),
    Key::int("group.share.heartbeat.interval.ms", "5000")
        .at_least(1)
        .ignored(SHARE)
        .doc("How often members have to send a heartbeat."),
    Key::int("group.share.initialize.retry.interval.ms", "30000")
        .at_least(1)
        .ignored(SHARE)
        .internal()
        .doc("Pause before the start of a share partition is tried again."),
    Key::int("group.share.max.assignment.interval.ms", "15000")
        .at_least(0)
        .ignored(SHARE)
        .doc("Largest assignment interval of a share group."),
    Key::int("group.share.max.delivery.count.limit", "10")
        .between(5, 25)
        .ignored(SHARE)
        .doc("Largest delivery count limit of a share group."),
    Key::int("group.share.max.heartbeat.interval.ms", "15000")
        .at_least(1)
        .ignored(SHARE)
        .doc("Largest heartbeat interval of a share group."),
    Key::int("group.share.max.partition.max.record.locks", "4000")
        .between(2000, 10000)
        .ignored(SHARE)
        .doc("Largest number of locked records of a share partition that a group may ask for."),
    Key::int("group.share.max.record.lock.duration.ms", "60000")
        .between(30000, 3600000)
        .ignored(SHARE)
        .doc("Longest lock on a record that a group may ask for."),
    Key::int("group.share.max.session.timeout.ms", "60000")
        .at_least(1)
        .ignored(SHARE)
        .doc("Largest session timeout of a share group."),
    Key::int("group.share.max.share.sessions", "2000")
        .at_least(1)
        .ignored(SHARE)
        .doc("Share sessions of the broker at a time."),
    Key::int("group.share.max.size", "200")
        .between(1, 1000)
        .ignored(SHARE)
        .doc("Members of a share group; more are refused."),
    Key::int("group.share.min.assignment.interval.ms", "0")
        .at_least(0)
        .ignored(SHARE)
        .doc("Smallest assignment interval of a share group."),
    Key::int("group.share.min.delivery.count.limit", "2")
        .between(2, 5)
        .ignored(SHARE)
        .doc("Smallest delivery count limit of a share group."),
    Key::int("group.share.min.heartbeat.interval.ms", "5000")
        .at_least(1)
        .ignored(SHARE)
        .doc("Smallest heartbeat interval of a share group."),
    Key::int("group.share.min.partition.max.record.locks", "100")
        .between(100, 2000)
        .ignored(SHARE)
        .doc("Smallest number of locked records of a share partition that a group may ask for."),
    Key::int("group.share.min.record.lock.duration.ms", "15000")
        .between(1000, 30000)
        .ignored(SHARE)
        .doc("Shortest lock on a record that a group may ask for."),
    Key::int("group.share.min.session.timeout.ms", "45000")
        .at_least(1)
        .ignored(SHARE)
        .doc("Smallest session timeout of a share group."),
    Key::int("group.share.partition.max.record.locks", "2000")
        .between(100, 10000)
        .ignored(SHARE)
        .doc("Records of a share partition that may be locked at a time."),
    Key::string(
        "group.share.persister.class.name",
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
    )
    .ignored(SHARE)
    .internal()
    .doc("Keeps the state of share groups."),
    Key::int("group.share.record.lock.duration.ms", "30000")
        .between(1000, 3600000)
        .ignored(SHARE)
        .doc("How long a delivered record stays locked."),
    Key::int("group.share.session.timeout.ms", "45000")
        .at_least(1)
        .ignored(SHARE)
        .doc("A member that was silent for this long is removed."),
    Key::int("share.coordinator.append.linger.ms", "-1")
        .at_least(-1)
        .ignored(SHARE)
        .doc("How long the share coordinator gathers writes."),
    Key::int("share.coordinator.cached.buffer.max.bytes", "1048588")
        .at_least(524288)
        .cluster_wide()
        .ignored(SHARE)
        .doc("Largest buffer that the share coordinator keeps for reuse."),
    Key::int("share.coordinator.cold.partition.snapshot.interval.ms", "300000")
        .at_least(1)
        .ignored(SHARE)
        .internal()
        .doc("How often the state of quiet share partitions is written whole."),
    Key::int("share.coordinator.load.buffer.size", "5242880")
        .at_least(1)
        .ignored(SHARE)
        .doc("Bytes that are read at a time when the share coordinator loads its state."),
    Key::int("share.coordinator.snapshot.update.records.per.snapshot", "500")
        .between(0, 500)
        .ignored(SHARE)
        .doc("Changes of a share partition between two whole states."),
    Key::int("share.coordinator.state.topic.compression.codec", "0")
        .ignored(SHARE)
        .doc("Codec of the share state topic by number."),
    Key::short("share.coordinator.state.topic.min.isr", "2")
        .at_least(1)
        .doc("In-sync replicas that the share state topic needs."),
    Key::int("share.coordinator.state.topic.num.partitions", "50")
        .at_least(1)
        .doc("Partitions of the share state topic."),
    Key::int("share.coordinator.state.topic.prune.interval.ms", "300000")
        .at_least(1)
        .ignored(SHARE)
        .internal()
        .doc("How often old records of the share state topic are removed."),
    Key::short("share.coordinator.state.topic.replication.factor", "3")
        .at_least(1)
        .doc("Replicas of the share state topic."),
    Key::int("share.coordinator.state.topic.segment.bytes", "104857600")
        .at_least(1)
        .doc("Segment size of the share state topic."),
    Key::int("share.coordinator.threads", "1")
        .at_least(1)
        .ignored(SHARE)
        .doc("Threads of the share coordinator."),
    Key::int("share.coordinator.write.timeout.ms", "5000")
        .at_least(1)
        .ignored(SHARE)
        .doc("How long a write to the share state topic waits for its replicas."),
    Key::int("group.streams.assignment.interval.ms", "1000")
        .at_least(0)
        .cluster_wide()
        .ignored(STREAMS)
        .doc("Shortest time between two assignments of a streams group."),
    Key::int("group.streams.heartbeat.interval.ms", "5000")
        .at_least(1)
        .ignored(STREAMS)
        .doc("How often members have to send a heartbeat."),
    Key::int("group.streams.initial.rebalance.delay.ms", "3000")
        .at_least(0)
        .ignored(STREAMS)
        .doc("How long a new streams group waits for more members."),
    Key::int("group.streams.max.assignment.interval.ms", "15000")
        .at_least(0)
        .ignored(STREAMS)
        .doc("Largest assignment interval of a streams group."),
    Key::int("group.streams.max.heartbeat.interval.ms", "15000")
        .at_least(1)
        .ignored(STREAMS)
        .doc("Largest heartbeat interval of a streams group."),
    Key::int("group.streams.max.session.timeout.ms", "60000")
        .at_least(1)
        .ignored(STREAMS)
        .doc("Largest session timeout of a streams group."),
    Key::int("group.streams.max.size", "2147483647")
        .at_least(1)
        .ignored(STREAMS)
        .doc("Members of a streams group; more are refused."),
    Key::int("group.streams.max.standby.replicas", "2")
        .at_least(0)
        .ignored(STREAMS)
        .doc("Largest number of standby replicas of a streams group."),
    Key::int("group.streams.min.assignment.interval.ms", "0")
        .at_least(0)
        .ignored(STREAMS)
        .doc("Smallest assignment interval of a streams group."),
    Key::int("group.streams.min.heartbeat.interval.ms", "5000")
        .at_least(1)
        .ignored(STREAMS)
        .doc("Smallest heartbeat interval of a streams group."),
    Key::int("group.streams.min.session.timeout.ms", "45000")
        .at_least(1)
        .ignored(STREAMS)
        .doc("Smallest session timeout of a streams group."),
    Key::int("group.streams.num.standby.replicas", "0")
        .at_least(0)
        .ignored(STREAMS)
        .doc("Standby replicas of each task."),
    Key::int("group.streams.session.timeout.ms", "45000")
        .at_least(1)
        .ignored(STREAMS)
        .doc("A member that was silent for this long is removed."),
];
