//! The one table of configuration keys, of brokers and of topics: all of Apache Kafka 4.3's, and
//! our own.
//!
//! Everything that lists keys reads it: the reader of `server.properties`, DescribeConfigs,
//! CreateTopics, `highwater config explain`, docs/config.md.

mod groups;
mod highwater;
mod log;
mod metrics;
mod network;
mod node;
mod quotas;
mod remote;
mod security;
mod topic_keys;
mod topics;
mod transactions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::key::{Key, Status};

const SECURE: &str =
    "only SSL and SASL listeners use it, and those are refused until they are served";
const QUORUM_TIMES: &str =
    "the quorum's time-outs are fixed: a silent leader is taken for dead after 0.9 to 1.2 s";
const LINK_TIMES: &str = "links between brokers have fixed time-outs";
const TOGETHER: &str =
    "all offsets are written down together, every log.flush.offset.checkpoint.interval.ms";
const PURGE: &str = "nothing is parked where it would have to be purged";
const RAFT: &str = "the metadata log has its own sizes and times";
const MODERN: &str = "the consumer group protocol of KIP-848 is not served yet";
const SHARE: &str = "share groups (KIP-932) are not served yet";
const STREAMS: &str = "streams groups (KIP-1071) are not served yet";
const TXN: &str = "transactions are not served yet";
const QUOTA: &str = "quotas and throttles are not enforced yet";
const JMX: &str = "metrics are served over HTTP (http.listener)";
const TIERED: &str = "tiered storage (KIP-405) is not served";

/// Some keys that belong together.
#[derive(Debug)]
pub struct Area {
    /// Its title.
    pub title: &'static str,
    /// Its keys, in the order in which they are explained.
    pub keys: &'static [Key],
}

/// The keys of a broker, by area.
pub const AREAS: &[Area] = &[
    Area { title: "Highwater's own", keys: highwater::KEYS },
    Area { title: "Node and cluster", keys: node::KEYS },
    Area { title: "Network and requests", keys: network::KEYS },
    Area { title: "Topics and replicas", keys: topics::KEYS },
    Area { title: "Logs", keys: log::KEYS },
    Area { title: "Consumer groups", keys: groups::KEYS },
    Area { title: "Transactions", keys: transactions::KEYS },
    Area { title: "Quotas", keys: quotas::KEYS },
    Area { title: "Metrics", keys: metrics::KEYS },
    Area { title: "Security", keys: security::KEYS },
    Area { title: "Tiered storage", keys: remote::KEYS },
];

/// The keys of a topic, by name.
pub const TOPIC_AREA: Area = Area { title: "Topics", keys: topic_keys::KEYS };

/// Keys that Kafka once had or that only a plugin reads: a file may still hold them.
const FORMER: &[(&str, &str)] = &[
    ("zookeeper.connect", "there is no ZooKeeper"),
    ("zookeeper.connection.timeout.ms", "there is no ZooKeeper"),
    ("zookeeper.session.timeout.ms", "there is no ZooKeeper"),
    ("zookeeper.set.acl", "there is no ZooKeeper"),
    ("zookeeper.metadata.migration.enable", "there is no ZooKeeper"),
    ("broker.id.generation.enable", "a node's id is given by node.id"),
    ("reserved.broker.max.id", "a node's id is given by node.id"),
    ("host.name", "listeners replaced it"),
    ("port", "listeners replaced it"),
    ("advertised.host.name", "advertised.listeners replaced it"),
    ("advertised.port", "advertised.listeners replaced it"),
    ("control.plane.listener.name", "Kafka 4 removed it"),
    ("inter.broker.protocol.version", "Kafka 4 removed it"),
    ("log.message.format.version", "Kafka 4 removed it"),
    ("log.message.downconversion.enable", "Kafka 4 removed it"),
    ("log.message.timestamp.difference.max.ms", "Kafka 4 removed it"),
    ("offsets.commit.required.acks", "Kafka 4 removed it"),
    ("group.coordinator.new.enable", "Kafka 4 removed it"),
    ("delegation.token.master.key", "Kafka 4 removed it"),
    ("password.encoder.secret", "Kafka 4 removed it"),
    ("auto.include.jmx.reporter", "Kafka 4 removed it"),
    ("super.users", "there is no authorizer yet"),
    ("allow.everyone.if.no.acl.found", "there is no authorizer yet"),
];

/// The key of a topic of this name.
pub fn find_topic(name: &str) -> Option<&'static Key> {
    let at = TOPIC_AREA.keys.binary_search_by(|key| key.name.cmp(name)).ok()?;
    Some(&TOPIC_AREA.keys[at])
}

/// The keys of brokers that the honoured keys of topics take values from.
pub fn fallbacks() -> BTreeSet<&'static str> {
    let honoured = TOPIC_AREA.keys.iter().filter(|key| key.status == Status::Honoured);
    honoured.flat_map(|key| key.fallbacks).map(|fallback| fallback.name).collect()
}

/// All keys of a broker, area by area.
pub fn all() -> impl Iterator<Item = &'static Key> {
    AREAS.iter().flat_map(|area| area.keys)
}

/// All keys of a broker by name.
pub fn by_name() -> &'static BTreeMap<&'static str, &'static Key> {
    static BY_NAME: LazyLock<BTreeMap<&'static str, &'static Key>> =
        LazyLock::new(|| all().map(|key| (key.name, key)).collect());
    &BY_NAME
}

/// The key of a broker of this name. A key of one listener (`listener.name.NAME.KEY`) is found as KEY.
pub fn find(name: &str) -> Option<&'static Key> {
    by_name().get(name).or_else(|| by_name().get(of_listener(name)?)).copied()
}

/// What follows the listener in `listener.name.NAME.KEY`, if it is a key of Kafka's or of one
/// SASL mechanism (`listener.name.NAME.MECHANISM.KEY`).
pub fn of_listener(name: &str) -> Option<&str> {
    let (_, rest) = name.strip_prefix("listener.name.")?.split_once('.')?;
    let known = |key: &str| by_name().contains_key(key);
    match rest.split_once('.') {
        _ if known(rest) => Some(rest),
        Some((_, of_mechanism)) if known(of_mechanism) => Some(of_mechanism),
        _ => None,
    }
}

/// Why a key that Kafka once had is of no use now.
pub fn former(name: &str) -> Option<&'static str> {
    FORMER.iter().find(|(key, _)| *key == name).map(|(_, why)| *why)
}

/// The keys that give the value of `name` when it is not set, nearest first, `name` included.
pub fn synonyms(name: &'static str) -> &'static [&'static str] {
    match name {
        "log.retention.ms" => &["log.retention.ms", "log.retention.minutes", "log.retention.hours"],
        "log.roll.ms" => &["log.roll.ms", "log.roll.hours"],
        "log.roll.jitter.ms" => &["log.roll.jitter.ms", "log.roll.jitter.hours"],
        "log.flush.interval.ms" => &["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Accepts, Update};
    use crate::value;

    /// What Apache Kafka 4.3.1 says of its keys: name, type, default, update mode, internal.
    const ORACLE: &str = include_str!("../testdata/kafka_4_3_broker_keys.tsv");

    /// Where we differ on purpose, with what we say instead.
    const OTHER_DEFAULT: &[(&str, &str)] =
        &[("log.dir", "./highwater-data"), ("socket.listen.backlog.size", "1024")];
    /// Kafka changes these at run time; here they are read at the start only.
    const FIXED_WHILE_RUNNING: &[&str] =
        &["listeners", "listener.security.protocol.map", "num.network.threads"];

    #[test]
    fn every_key_of_kafka_is_known_with_its_type_default_and_update_mode() {
        let mut count = 0;
        for line in ORACLE.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [name, kind, default, update, internal] = fields[..] else { panic!("{line:?}") };
            let key = by_name().get(name).unwrap_or_else(|| panic!("{name} is missing"));
            let other = OTHER_DEFAULT.iter().find(|(key, _)| *key == name).map(|(_, to)| *to);
            assert_eq!(key.kind.name(), kind, "{name}");
            assert_eq!(key.default.unwrap_or("null"), other.unwrap_or(default), "{name}");
            assert_eq!(key.internal, internal == "internal", "{name}");
            if FIXED_WHILE_RUNNING.contains(&name) {
                assert_eq!(key.update, Update::ReadOnly, "{name}");
            } else {
                assert_eq!(key.update.name(), update, "{name}");
            }
            count += 1;
        }
        assert_eq!(count + highwater::KEYS.len(), all().count());
    }

    #[test]
    fn every_key_has_a_sentence_and_a_default_that_it_accepts() {
        for key in all() {
            assert!(key.doc.ends_with('.'), "{}: {:?}", key.name, key.doc);
            if let Some(default) = key.default {
                assert_eq!(value::check(key, default).as_deref(), Ok(default), "{}", key.name);
            }
        }
        assert_eq!(by_name().len(), all().count(), "a name is there twice");
    }

    #[test]
    fn a_topic_s_key_and_the_broker_s_keys_behind_it_say_the_same() {
        for pair in TOPIC_AREA.keys.windows(2) {
            assert!(pair[0].name < pair[1].name, "{} before {}", pair[0].name, pair[1].name);
        }
        for key in TOPIC_AREA.keys {
            assert!(key.doc.ends_with('.'), "{}: {:?}", key.name, key.doc);
            if let Some(default) = key.default {
                assert_eq!(value::check(key, default).as_deref(), Ok(default), "{}", key.name);
            }
            for fallback in key.fallbacks.iter().filter(|fallback| fallback.multiplier == 1) {
                let broker = by_name()[fallback.name];
                assert_eq!(broker.kind, key.kind, "{}", key.name);
                // Kafka's broker checks no range where its topics have one; what is out of it
                // gives way to the next fallback.
                let unchecked = broker.accepts == Accepts::Any;
                assert!(unchecked || broker.accepts == key.accepts, "{}", key.name);
            }
            if let [only] = key.fallbacks {
                assert_eq!(by_name()[only.name].default, key.default, "{}", key.name);
            }
        }
    }

    #[test]
    fn keys_of_one_listener_are_found() {
        assert_eq!(find("listener.name.external.max.connections").unwrap().name, "max.connections");
        let of_mechanism = find("listener.name.a.plain.sasl.jaas.config").unwrap();
        assert_eq!(of_mechanism.name, "sasl.jaas.config");
        assert!(find("listener.name.external.no.such.key").is_none());
        assert!(find("listener.name.external").is_none());
    }
}
