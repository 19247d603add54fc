//! Topics, partitions and their replicas. Facts only: what the broker makes of a value is in
//! `broker_config`.

use crate::key::{Key, Kind};

/// The keys of this area, in the order in which they are explained.
pub(super) const KEYS: &[Key] = &[
    Key::boolean("auto.create.topics.enable", "true")
        .doc("Whether a client that asks for an unknown topic gets it created."),
    Key::int("num.partitions", "1")
        .at_least(1)
        .doc("Partitions of a topic that is created without saying how many."),
    Key::int("default.replication.factor", "1")
        .doc("Replicas of a topic that is created without a number of its own; more than there are brokers are refused."),
    Key::boolean("delete.topic.enable", "true").doc("Whether topics can be deleted."),
    Key::int("min.insync.replicas", "1")
        .at_least(1)
        .cluster_wide()
        .doc("In-sync replicas below which a write with acks=all is refused."),
    Key::boolean("unclean.leader.election.enable", "false").cluster_wide().doc(
        "Whether a replica that is not in sync may become leader when none in sync is left. \
         Loses records.",
    ),
    Key::long("unclean.leader.election.interval.ms", "300000")
        .at_least(1)
        .ignored("the controller elects when a replica appears, without a period")
        .internal()
        .doc("How often the controller looks for partitions to elect uncleanly."),
    Key::boolean("auto.leader.rebalance.enable", "true")
        .doc("Whether leadership goes back to the preferred replica in the background."),
    Key::long("leader.imbalance.check.interval.seconds", "300")
        .at_least(1)
        .doc("How often the controller looks for leaders that are not the preferred ones."),
    Key::int("num.replica.fetchers", "1")
        .at_least(1)
        .cluster_wide()
        .doc("Fetchers of this broker for each broker it follows."),
    Key::int("replica.fetch.backoff.ms", "1000")
        .at_least(0)
        .doc("Pause of a follower after a fetch that failed."),
    Key::int("replica.fetch.max.bytes", "1048576").at_least(0).doc(
        "Bytes that a follower asks for, of each partition; a larger batch is still sent \
         whole.",
    ),
    Key::int("replica.fetch.min.bytes", "1")
        .doc("Bytes that a follower waits for, up to replica.fetch.wait.max.ms."),
    Key::int("replica.fetch.response.max.bytes", "10485760")
        .at_least(0)
        .doc("Bytes that a follower asks for in all in one fetch."),
    Key::int("replica.fetch.wait.max.ms", "500")
        .doc("How long the leader may keep a follower's fetch waiting for records."),
    Key::long("replica.high.watermark.checkpoint.interval.ms", "5000")
        .ignored(super::TOGETHER)
        .doc("How often high watermarks are written to disk."),
    Key::long("replica.lag.time.max.ms", "30000")
        .doc("A follower that has not caught up for this long leaves the in-sync replicas."),
    Key::null("replica.selector.class", Kind::String)
        .ignored("consumers read from the leader")
        .doc("Chooses the replica a consumer reads from."),
    Key::int("replica.socket.receive.buffer.bytes", "65536")
        .ignored("links between brokers leave the sizes of buffers to the system")
        .doc("Receive buffer of a follower's socket; -1: the system's choice."),
    Key::int("replica.socket.timeout.ms", "30000")
        .doc("How long a follower waits for the network."),
    Key::null("num.replica.alter.log.dirs.threads", Kind::Int)
        .ignored("replicas are not moved between log directories")
        .doc("Threads that move replicas between log directories."),
    Key::null("create.topic.policy.class.name", Kind::Class)
        .refused("a policy is a Java class, which Highwater cannot load")
        .doc("Decides whether a topic may be created."),
    Key::null("alter.config.policy.class.name", Kind::Class)
        .refused("a policy is a Java class, which Highwater cannot load")
        .doc("Decides whether a configuration may be changed."),
];
