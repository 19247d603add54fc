//! Rules that join several keys: what a broker refuses to start with although each value alone
//! would do. They are Kafka's own, and ours for what is not served yet.

use super::broker_config::BrokerConfig;
use super::settings::Reading;
use super::table;

/// Bytes of the deduplication buffer that one cleaner thread needs at least.
const DEDUPE_BYTES_PER_THREAD_MIN: u64 = 1024 * 1024;

/// Committed metadata must fit a string of the offsets topic, at up to three bytes a character.
const OFFSET_METADATA_BYTES_MAX: usize = i16::MAX as usize / 3;

/// Checks all of them; what is broken is noted in `reading`.
pub(super) fn check(config: &BrokerConfig, reading: &Reading<'_>) {
    check_roles(config, reading);
    check_network(config, reading);
    check_log(config, reading);
    check_cluster(reading);
    check_groups(config, reading);
}

fn check_roles(config: &BrokerConfig, reading: &Reading<'_>) {
    let roles: Vec<String> = reading.optional("process.roles").unwrap_or_default();
    let is_broker = roles.is_empty() || roles.iter().any(|role| role == "broker");
    reading.require(is_broker, "process.roles", || {
        "a node without the role broker is not served yet; use broker,controller".to_owned()
    });
    let servers: Vec<String> = reading
        .configuration
        .value("controller.quorum.bootstrap.servers")
        .map_or(Vec::new(), |text| super::value::items(text).map(str::to_owned).collect());
    let known = servers.len() <= 1 || config.has_other_voters();
    reading.require(known, "controller.quorum.bootstrap.servers", || {
        "a quorum of several nodes is found by controller.quorum.voters: list all of them there, \
         id@host:port, on every node"
            .to_owned()
    });
    let is_controller = roles.is_empty() || roles.iter().any(|role| role == "controller");
    check_voters(config, is_controller, reading);
}

fn check_voters(config: &BrokerConfig, is_controller: bool, reading: &Reading<'_>) {
    let (voters, id) = (&config.voters, config.node_id);
    let refuse = |reason: String| reading.refuse("controller.quorum.voters", reason);
    let listed = voters.iter().any(|voter| voter.id == id.0);
    let mut ids: Vec<i32> = voters.iter().map(|voter| voter.id).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.len() != voters.len() {
        refuse("a node is listed twice; each voter has a number of its own".to_owned());
    } else if !matches!(voters.len(), 0..=3 | 5) {
        refuse(format!("{} voters; take 1, 3 or 5 of the nodes, or both of two", voters.len()));
    } else if !voters.is_empty() && !listed && is_controller {
        refuse(format!(
            "node {id} is not among them; add it, or say process.roles=broker for a node that does not vote"
        ));
    }
    if !config.has_other_voters() {
        return;
    }
    reading.require(!listed || is_controller, "process.roles", || {
        format!("node {id} is a voter of the quorum; use broker,controller")
    });
    reading.require(config.cluster_id.is_some(), "cluster.id", || {
        "a cluster of several nodes needs one, the same on all of them: any text, or an id that \
         `highwater cluster id` prints"
            .to_owned()
    });
    reading.require(!listed || config.controller_listener.is_some(), "controller.listener.names", || {
        "the other voters need a listener of their own: add CONTROLLER://:9093 to listeners and \
         name CONTROLLER here"
            .to_owned()
    });
    let listener = config.listeners.iter().find(|l| l.name == config.inter_broker_listener);
    let told = listener.is_none_or(|listener| listener.advertised.host.is_some());
    reading.require(told, "advertised.listeners", || {
        let name = &config.inter_broker_listener;
        format!("other brokers cannot connect to a wildcard: say where listener {name} is reached")
    });
}

fn check_network(config: &BrokerConfig, reading: &Reading<'_>) {
    let network = &config.network;
    for (bytes, name) in [
        (network.send_buffer_bytes, "socket.send.buffer.bytes"),
        (network.receive_buffer_bytes, "socket.receive.buffer.bytes"),
    ] {
        reading.require(bytes == -1 || bytes > 0, name, || {
            "expected -1, or an integer of at least 1".to_owned()
        });
    }
    let queued = network.queued_request_bytes_max;
    let request = network.request_bytes_max as i64;
    reading.require(queued <= 0 || queued >= request, "queued.max.request.bytes", || {
        format!("it must have room for one request: socket.request.max.bytes is {request}")
    });
    let nobody =
        network.connections_per_ip_max == 0 && config.connections_per_ip_overrides.is_empty();
    reading.require(!nobody, "max.connections.per.ip", || {
        "0 refuses every client unless max.connections.per.ip.overrides names an address".to_owned()
    });
}

/// The value that topics take from the broker's keys behind this topic key, in the topic's unit.
fn joined(reading: &Reading<'_>, topic_key: &str) -> i64 {
    let key = table::find_topic(topic_key).expect("rules name keys of the table");
    let said = key.fallbacks.iter().find_map(|fallback| {
        Some(fallback.in_topic_units(reading.configuration.explicit(fallback.name)?))
    });
    let text = said.or(key.default.map(str::to_owned)).unwrap_or_default();
    text.parse().expect("the table says that the values are integers")
}

fn check_log(config: &BrokerConfig, reading: &Reading<'_>) {
    let log = &config.log;
    let never_or_some = |name: &str| {
        let value = reading.configuration.value(name).and_then(|text| text.parse::<i64>().ok());
        reading.require(value != Some(0), name, || {
            "expected -1, or an integer of at least 1".to_owned()
        });
    };
    let retention = ["log.retention.ms", "log.retention.minutes", "log.retention.hours"];
    retention.into_iter().for_each(never_or_some);
    let roll_ms = joined(reading, "segment.ms");
    reading.require(roll_ms >= 1, "log.roll.ms", || "it must be at least 1".to_owned());
    reading.require(joined(reading, "segment.jitter.ms") >= 0, "log.roll.jitter.ms", || {
        "it must be at least 0".to_owned()
    });
    let cleaner = &log.cleaner;
    let bytes = cleaner.dedupe_buffer_bytes / cleaner.threads.max(1) as u64;
    let enough = !cleaner.enabled || bytes >= DEDUPE_BYTES_PER_THREAD_MIN;
    reading.require(enough, "log.cleaner.dedupe.buffer.size", || {
        format!("each of {} cleaner threads needs 1 MiB of it", cleaner.threads)
    });
    let load = cleaner.buffer_load_factor;
    reading.require(load > 0.0 && load <= 1.0, "log.cleaner.io.buffer.load.factor", || {
        "it must be above 0 and at most 1".to_owned()
    });
    let codec = reading.configuration.value("offsets.topic.compression.codec");
    let known = codec.is_some_and(|codec| matches!(codec, "0" | "1" | "2" | "3" | "4"));
    reading.require(known, "offsets.topic.compression.codec", || {
        "expected 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd".to_owned()
    });
}

/// Rules for keys that matter among several nodes. They hold for a node that is alone as well: a file with
/// such a mistake is as wrong as it will be in a cluster.
fn check_cluster(reading: &Reading<'_>) {
    let number = |name: &str| {
        reading.configuration.value(name).and_then(|text| text.parse::<i64>().ok()).unwrap_or(0)
    };
    let wait = number("replica.fetch.wait.max.ms");
    let in_time = wait <= number("replica.socket.timeout.ms");
    reading.require(in_time, "replica.fetch.wait.max.ms", || {
        "it must not exceed replica.socket.timeout.ms".to_owned()
    });
    let in_sync = wait <= number("replica.lag.time.max.ms");
    reading.require(in_sync, "replica.fetch.wait.max.ms", || {
        "it must not exceed replica.lag.time.max.ms, or followers would leave the in-sync replicas"
            .to_owned()
    });
    let alive = number("broker.heartbeat.interval.ms") <= number("broker.session.timeout.ms") / 2;
    reading.require(alive, "broker.heartbeat.interval.ms", || {
        "it must be at most half of broker.session.timeout.ms".to_owned()
    });
    let buffer = number("replica.socket.receive.buffer.bytes");
    reading.require(buffer == -1 || buffer > 0, "replica.socket.receive.buffer.bytes", || {
        "expected -1, or an integer of at least 1".to_owned()
    });
}

fn check_groups(config: &BrokerConfig, reading: &Reading<'_>) {
    let protocols: Vec<String> = reading.get("group.coordinator.rebalance.protocols");
    let classic = protocols.iter().any(|protocol| protocol == "classic");
    reading.require(classic, "group.coordinator.rebalance.protocols", || {
        "it must contain classic, the only one that is served".to_owned()
    });
    let groups = &config.groups;
    let ordered = groups.session_timeout_ms_min <= groups.session_timeout_ms_max;
    reading.require(ordered, "group.max.session.timeout.ms", || {
        "it must not be less than group.min.session.timeout.ms".to_owned()
    });
    reading.require(
        groups.initial_rebalance_delay_ms >= 0,
        "group.initial.rebalance.delay.ms",
        || "it must be at least 0".to_owned(),
    );
    let fits = config.offsets.metadata_bytes_max <= OFFSET_METADATA_BYTES_MAX;
    reading.require(fits, "offset.metadata.max.bytes", || {
        format!("expected an integer from 0 to {OFFSET_METADATA_BYTES_MAX}")
    });
    reading.require(groups.size_max >= 1, "group.max.size", || "it must be at least 1".to_owned());
}
