//! Quotas and throttles. Facts only: what the broker makes of a value is in `broker_config`.

use super::QUOTA;
use crate::key::{Key, Kind};

/// The keys of this area, in the order in which they are explained.
pub(super) const KEYS: &[Key] = &[
    Key::int("alter.log.dirs.replication.quota.window.num", "11")
        .at_least(1)
        .ignored(QUOTA)
        .doc("Windows kept for the throttle of moves between log directories."),
    Key::int("alter.log.dirs.replication.quota.window.size.seconds", "1")
        .at_least(1)
        .ignored(QUOTA)
        .doc("Length of a window for the throttle of moves between log directories."),
    Key::null("client.quota.callback.class", Kind::Class)
        .refused("a quota callback is a Java class, which Highwater cannot load")
        .doc("Decides the quotas of clients."),
    Key::int("controller.quota.window.num", "11")
        .at_least(1)
        .ignored(QUOTA)
        .doc("Windows kept for quotas on changes of metadata."),
    Key::int("controller.quota.window.size.seconds", "1")
        .at_least(1)
        .ignored(QUOTA)
        .doc("Length of a window for quotas on changes of metadata."),
    Key::int("quota.window.num", "11")
        .at_least(1)
        .ignored(QUOTA)
        .doc("Windows kept for quotas of clients."),
    Key::int("quota.window.size.seconds", "1")
        .at_least(1)
        .ignored(QUOTA)
        .doc("Length of a window for quotas of clients."),
    Key::int("replication.quota.window.num", "11")
        .at_least(1)
        .ignored(QUOTA)
        .doc("Windows kept for throttles of replication."),
    Key::int("replication.quota.window.size.seconds", "1")
        .at_least(1)
        .ignored(QUOTA)
        .doc("Length of a window for throttles of replication."),
    Key::long("leader.replication.throttled.rate", "9223372036854775807")
        .at_least(0)
        .cluster_wide()
        .ignored(QUOTA)
        .internal()
        .doc("Bytes a second that a leader sends of throttled replicas."),
    Key::long("follower.replication.throttled.rate", "9223372036854775807")
        .at_least(0)
        .cluster_wide()
        .ignored(QUOTA)
        .internal()
        .doc("Bytes a second that a follower fetches of throttled replicas."),
    Key::long("replica.alter.log.dirs.io.max.bytes.per.second", "9223372036854775807")
        .at_least(0)
        .cluster_wide()
        .ignored(QUOTA)
        .internal()
        .doc("Bytes a second of moves between log directories."),
];
