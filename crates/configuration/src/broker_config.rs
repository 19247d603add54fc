//! What the rest of the broker sees of its configuration: types, with everything that joins
//! several keys decided. Made once at the start and again after each change at run time.

use std::collections::BTreeMap;
use std::path::PathBuf;

use model::{BrokerId, CLUSTER_ID_BYTES_MAX, Durability};

use super::change::{RefusedChange, Scope};
use super::gateway::Gateway;
use super::layers::Configuration;
use super::listener::{self, Endpoint, HostPort, SecurityProtocol, Voter};
use super::problem::{InvalidConfiguration, Warning};
use super::rules;
use super::sections::{
    Cleaner, FetchLimits, Followers, Groups, Membership, Network, Offsets, Producers, ShareTopic,
    TopicDefaults, TransactionTopic,
};
use super::settings::Reading;
use super::source::Sources;

/// A place where clients connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Its name in upper case.
    pub name: String,
    /// Where to bind: an empty host stands for all interfaces, port 0 for any free one.
    pub bind: HostPort,
    /// What clients are told.
    pub advertised: Advertised,
}

/// The address that clients are told to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    /// `None`: no name was given; whoever is told gets an address that reached this broker.
    pub host: Option<String>,
    /// `None`: the port that the listener is bound to.
    pub port: Option<u16>,
}

/// Where metrics and health are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// Where to bind; `None`: nowhere. The key `http.listener`.
    pub bind: Option<HostPort>,
    /// Whether that was said: a port that was named and is taken ends the start, the default one is left for another.
    pub is_named: bool,
    /// Where metrics and health are besides. The key `metrics.listener`.
    pub metrics: Option<HostPort>,
}

/// Numbers of threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Threads {
    /// Of the data path: `num.network.threads` if it was set; `None`: one for each core.
    pub data: Option<usize>,
    /// That recover logs, for each log directory.
    pub recovery_per_log_dir: usize,
}

/// The chores of logs. What holds for the log of one topic is resolved in the room `metadata`.
#[derive(Debug, Clone, PartialEq)]
pub struct LogDefaults {
    /// How often segments to delete are looked for.
    pub retention_check_ms: u64,
    /// How often logs to sync are looked for with durability=page-cache.
    pub flush_scheduler_ms: u64,
    /// How long a write that no request waits for may stay unsynced with durability=fsync.
    pub sync_delay_ms: u64,
    /// How often recovery points are written down.
    pub recovery_point_checkpoint_ms: u64,
    /// Delay after the start before the chores begin.
    pub initial_delay_ms: u64,
    /// Compaction.
    pub cleaner: Cleaner,
}

/// Everything that the broker is told, in types.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    /// This node's id.
    pub node_id: BrokerId,
    /// The cluster's id if one was demanded.
    pub cluster_id: Option<String>,
    /// Where this broker stands.
    pub rack: Option<String>,
    /// The data folders; never empty.
    pub log_dirs: Vec<PathBuf>,
    /// Where the metadata log is.
    pub metadata_dir: PathBuf,
    /// Of topics that do not say.
    pub durability: Durability,
    /// For clients; never empty.
    pub listeners: Vec<Listener>,
    /// The quorum's voters as they were listed; empty: this node alone.
    pub voters: Vec<Voter>,
    /// Where a voter listens for other brokers; `None` where `controller.listener.names` says nothing.
    pub controller_listener: Option<HostPort>,
    /// The name of the listener over which brokers talk to this one, one of `listeners`.
    pub inter_broker_listener: String,
    /// What brokers prove to each other that they belong to the cluster by.
    pub inter_broker_secret: Option<String>,
    /// This broker's place in the cluster.
    pub membership: Membership,
    /// How followers copy.
    pub followers: Followers,
    /// A replica that has not caught up for so long leaves the ISR, in milliseconds.
    pub replica_lag_ms_max: u64,
    /// Metrics and health.
    pub http: Http,
    /// The gateway that runs beside the broker.
    pub gateway: Gateway,
    /// Threads.
    pub threads: Threads,
    /// Sockets and requests.
    pub network: Network,
    /// Exceptions to `network.connections_per_ip_max`: address and number.
    pub connections_per_ip_overrides: Vec<(String, u32)>,
    /// What a fetch may ask for.
    pub fetch: FetchLimits,
    /// How topics come to be.
    pub topics: TopicDefaults,
    /// Logs.
    pub log: LogDefaults,
    /// Consumer groups.
    pub groups: Groups,
    /// Committed offsets.
    pub offsets: Offsets,
    /// The topic of transactions.
    pub transaction_topic: TransactionTopic,
    /// The topic of share groups.
    pub share_topic: ShareTopic,
    /// Idempotent producers.
    pub producers: Producers,
    /// What all this was made of: DescribeConfigs shows it.
    pub configuration: Configuration,
}

impl BrokerConfig {
    /// Makes types of a configuration and checks the rules that join several keys.
    pub fn new(configuration: Configuration) -> Result<BrokerConfig, InvalidConfiguration> {
        let reading = Reading::new(&configuration);
        let config = BrokerConfig::read(&reading);
        rules::check(&config, &reading);
        reading.finish()?;
        Ok(config)
    }

    /// Whether other nodes than this one vote in the metadata quorum: the cluster has several nodes.
    pub fn has_other_voters(&self) -> bool {
        self.voters.iter().any(|voter| voter.id != self.node_id.0)
    }

    /// Whether this node votes in the metadata quorum.
    pub fn is_voter(&self) -> bool {
        self.voters.is_empty() || self.voters.iter().any(|voter| voter.id == self.node_id.0)
    }

    /// A broker with these keys, all others at their defaults. Warnings are dropped: for tests and
    /// for programs that embed a broker.
    pub fn from_pairs<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<BrokerConfig, InvalidConfiguration> {
        let said =
            pairs.into_iter().fold(Sources::new(), |said, (key, value)| said.set(key, value));
        let (configuration, _) = Configuration::load(&said, true)?;
        BrokerConfig::new(configuration)
    }

    /// The same broker when exactly `wanted` is changed at run time in this scope; this one stays
    /// as it is. The whole set is checked at once, so that values that only hold together pass and
    /// values that contradict each other do not.
    pub fn with_changes(
        &self,
        scope: Scope,
        wanted: &BTreeMap<String, String>,
    ) -> Result<BrokerConfig, RefusedChange> {
        let mut configuration = self.configuration.clone();
        configuration.replace_changes(scope, wanted)?;
        BrokerConfig::new(configuration).map_err(RefusedChange::Contradiction)
    }

    /// The same broker with what can be obeyed of `wanted`, and why the rest cannot: what another
    /// version accepted and stored must not keep the other values from holding.
    pub fn with_changes_obeyed(
        &self,
        scope: Scope,
        wanted: &BTreeMap<String, String>,
    ) -> (BrokerConfig, Vec<(String, RefusedChange)>) {
        if let Ok(changed) = self.with_changes(scope, wanted) {
            return (changed, Vec::new());
        }
        let kept = |(key, _): &(&String, &String)| wanted.contains_key(*key);
        let kept = self.configuration.changes(scope).iter().filter(kept);
        let mut obeyed: BTreeMap<String, String> =
            kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        let mut config = self.with_changes(scope, &obeyed).unwrap_or_else(|_| self.clone());
        let mut refused = Vec::new();
        for (key, value) in wanted {
            let before = obeyed.insert(key.clone(), value.clone());
            match config.with_changes(scope, &obeyed) {
                Ok(changed) => config = changed,
                Err(cause) => {
                    refused.push((key.clone(), cause));
                    match before {
                        Some(before) => obeyed.insert(key.clone(), before),
                        None => obeyed.remove(key),
                    };
                }
            }
        }
        (config, refused)
    }

    /// Keys that ask for more replicas than `brokers` can hold, and what happens instead: Kafka's
    /// files of several brokers have them.
    pub(super) fn beyond_brokers(&self, brokers: i64) -> impl Iterator<Item = Warning> {
        let words: [(&'static str, String); 3] = [
            (
                "min.insync.replicas",
                format!("topics here have {brokers} replica, so {brokers} in sync is required"),
            ),
            (
                "default.replication.factor",
                format!(
                    "there is {brokers} broker, so clients that create topics must ask for \
                     {brokers} replica; set it to {brokers} to make that the default"
                ),
            ),
            (
                "offsets.topic.replication.factor",
                format!("there is {brokers} broker, so __consumer_offsets has {brokers} replica"),
            ),
        ];
        let explicit = |key| self.configuration.explicit(key).map(str::to_owned);
        let values = words.map(|(key, why)| (key, explicit(key), why));
        values.into_iter().filter_map(move |(key, value, why)| {
            let value = value.filter(|value| value.parse().is_ok_and(|n: i64| n > brokers))?;
            Some(Warning::BeyondBrokers { key, value, why })
        })
    }

    pub(super) fn read(reading: &Reading<'_>) -> BrokerConfig {
        let (listeners, controller_listener) = read_listeners(reading);
        let log_dirs = read_log_dirs(reading);
        let metadata_dir = reading.optional::<String>("metadata.log.dir").map(PathBuf::from);
        BrokerConfig {
            node_id: read_node_id(reading),
            cluster_id: read_cluster_id(reading),
            rack: reading.optional("broker.rack"),
            metadata_dir: metadata_dir.unwrap_or_else(|| log_dirs[0].clone()),
            log_dirs,
            durability: read_durability(reading),
            inter_broker_listener: read_inter_broker_listener(reading, &listeners),
            listeners,
            voters: read_parsed(reading, "controller.quorum.voters", listener::voters),
            controller_listener,
            inter_broker_secret: reading.optional("inter.broker.secret"),
            membership: Membership::read(reading),
            followers: Followers::read(reading),
            replica_lag_ms_max: reading.get("replica.lag.time.max.ms"),
            http: read_http(reading),
            gateway: Gateway::read(reading),
            threads: read_threads(reading),
            network: Network::read(reading),
            connections_per_ip_overrides: read_parsed(
                reading,
                "max.connections.per.ip.overrides",
                listener::connection_limits,
            ),
            fetch: FetchLimits::read(reading),
            topics: TopicDefaults::read(reading),
            log: read_log(reading),
            groups: Groups::read(reading),
            offsets: Offsets::read(reading),
            transaction_topic: TransactionTopic::read(reading),
            share_topic: ShareTopic::read(reading),
            producers: Producers::read(reading),
            configuration: reading.configuration.clone(),
        }
    }
}

fn read_parsed<T: Default>(
    reading: &Reading<'_>,
    name: &'static str,
    parse: fn(&str) -> Result<T, String>,
) -> T {
    let text: String = reading.optional(name).unwrap_or_default();
    parse(&text).unwrap_or_else(|reason| {
        reading.refuse(name, reason);
        T::default()
    })
}

/// The id of a node that was given none, alone in its cluster.
const NODE_ID_DEFAULT: i32 = 1;

fn read_node_id(reading: &Reading<'_>) -> BrokerId {
    let node_id: Option<i32> = reading.optional("node.id");
    let broker_id = reading.explicit::<i32>("broker.id").filter(|id| *id != -1);
    if let (Some(node_id), Some(broker_id)) = (node_id, broker_id) {
        let reason = || format!("node.id is {node_id}; both name this node and must agree");
        reading.require(node_id == broker_id, "broker.id", reason);
    }
    BrokerId(node_id.filter(|id| *id != -1).or(broker_id).unwrap_or(NODE_ID_DEFAULT))
}

fn read_cluster_id(reading: &Reading<'_>) -> Option<String> {
    let id: String = reading.optional("cluster.id")?;
    if id.is_empty() || id.len() > CLUSTER_ID_BYTES_MAX || id.contains(char::is_control) {
        reading.refuse(
            "cluster.id",
            format!(
                "expected 1 to {CLUSTER_ID_BYTES_MAX} bytes of text without control characters; \
                 unset, the broker makes an id"
            ),
        );
        return None;
    }
    Some(id)
}

fn read_log_dirs(reading: &Reading<'_>) -> Vec<PathBuf> {
    let one: Vec<String> = reading.get("log.dir");
    let dirs: Vec<String> = reading.optional("log.dirs").unwrap_or(one);
    dirs.into_iter().map(PathBuf::from).collect()
}

fn read_durability(reading: &Reading<'_>) -> Durability {
    Durability::from_name(&reading.get::<String>("durability")).unwrap_or_default()
}

fn read_http(reading: &Reading<'_>) -> Http {
    let text: String = reading.get("http.listener");
    let bind = HostPort::parse(&text);
    reading.require(bind.is_some() || text.is_empty(), "http.listener", || {
        "expected host:port, or nothing".to_owned()
    });
    let also: Option<String> = reading.optional("metrics.listener");
    let also = also.filter(|text| !text.is_empty());
    let metrics = also.as_deref().and_then(HostPort::parse);
    reading.require(metrics.is_some() || also.is_none(), "metrics.listener", || {
        "expected host:port, or nothing".to_owned()
    });
    Http { bind, is_named: reading.configuration.is_set("http.listener"), metrics }
}

fn read_threads(reading: &Reading<'_>) -> Threads {
    let _kafkas_default: usize = reading.get("num.network.threads");
    Threads {
        data: reading.explicit("num.network.threads"),
        recovery_per_log_dir: reading.get("num.recovery.threads.per.data.dir"),
    }
}

fn read_log(reading: &Reading<'_>) -> LogDefaults {
    let flush_scheduler: i64 = reading.get("log.flush.scheduler.interval.ms");
    LogDefaults {
        retention_check_ms: reading.get("log.retention.check.interval.ms"),
        flush_scheduler_ms: u64::try_from(flush_scheduler).unwrap_or(u64::MAX),
        sync_delay_ms: reading.get("sync.delay.ms"),
        recovery_point_checkpoint_ms: reading.get("log.flush.offset.checkpoint.interval.ms"),
        initial_delay_ms: reading.get("log.initial.task.delay.ms"),
        cleaner: Cleaner::read(reading),
    }
}

/// The listeners for clients, and where other nodes of the quorum come in: the first of
/// `controller.listener.names` that is among the listeners.
fn read_listeners(reading: &Reading<'_>) -> (Vec<Listener>, Option<HostPort>) {
    let all = read_parsed(reading, "listeners", listener::endpoints);
    let advertised = read_parsed(reading, "advertised.listeners", listener::endpoints);
    let protocols = read_parsed(reading, "listener.security.protocol.map", listener::protocol_map);
    let of_controller: Vec<String> =
        reading.optional("controller.listener.names").unwrap_or_default();
    let is_controller = |name: &str| of_controller.iter().any(|c| c.eq_ignore_ascii_case(name));
    let explicit_map = reading.configuration.explicit("listener.security.protocol.map").is_some();
    for endpoint in &all {
        // As in Kafka: a controller's listener needs no entry as long as there is no map at all.
        if explicit_map || !is_controller(&endpoint.name) {
            check_protocol(reading, &endpoint.name, &protocols);
        }
    }
    for endpoint in &advertised {
        check_advertised(reading, endpoint, &all);
    }
    let (controllers, clients): (Vec<Endpoint>, Vec<Endpoint>) =
        all.into_iter().partition(|endpoint| is_controller(&endpoint.name));
    let listeners: Vec<Listener> = clients.into_iter().map(|e| listener(e, &advertised)).collect();
    reading.require(!listeners.is_empty(), "listeners", || {
        "it names no listener for clients; add for example PLAINTEXT://:9092".to_owned()
    });
    (listeners, controllers.into_iter().next().map(|endpoint| endpoint.at))
}

/// As in Kafka: the listener that was named, or the one whose name is the security protocol between brokers;
/// and where there is none of that name, the first.
fn read_inter_broker_listener(reading: &Reading<'_>, listeners: &[Listener]) -> String {
    let protocol: String = reading.get("security.inter.broker.protocol");
    reading.require(protocol == "PLAINTEXT", "security.inter.broker.protocol", || {
        "SSL and SASL come later; only PLAINTEXT is served".to_owned()
    });
    let named: Option<String> = reading.optional("inter.broker.listener.name");
    let wanted = named.as_ref().unwrap_or(&protocol);
    let found = listeners.iter().find(|listener| listener.name.eq_ignore_ascii_case(wanted));
    reading.require(found.is_some() || named.is_none(), "inter.broker.listener.name", || {
        "it must be the name of a listener for clients".to_owned()
    });
    found.or(listeners.first()).map(|listener| listener.name.clone()).unwrap_or_default()
}

fn check_protocol(reading: &Reading<'_>, name: &str, protocols: &[(String, SecurityProtocol)]) {
    match protocols.iter().find(|(mapped, _)| mapped == name) {
        Some((_, SecurityProtocol::Plaintext)) => {}
        Some(_) => reading.refuse(
            "listeners",
            format!(
                "listener {name} needs SSL or SASL, which come later; only PLAINTEXT is served"
            ),
        ),
        None => reading.refuse(
            "listeners",
            format!(
                "listener {name} has no protocol; add {name}:PLAINTEXT to \
                 listener.security.protocol.map"
            ),
        ),
    }
}

fn check_advertised(reading: &Reading<'_>, endpoint: &Endpoint, all: &[Endpoint]) {
    let Endpoint { name, at } = endpoint;
    reading.require(all.iter().any(|e| e.name == *name), "advertised.listeners", || {
        format!("{name} is not among the listeners")
    });
    reading.require(!matches!(at.host.as_str(), "0.0.0.0" | "::"), "advertised.listeners", || {
        format!("clients cannot connect to {}; give {name} an address that clients reach", at.host)
    });
}

fn listener(endpoint: Endpoint, advertised: &[Endpoint]) -> Listener {
    let told = advertised.iter().find(|told| told.name == endpoint.name).map(|told| &told.at);
    // A bound address is told as it is; a wildcard or port 0 says nothing that could be told.
    let at = told.unwrap_or(&endpoint.at);
    let host = (!at.is_wildcard()).then(|| at.host.clone());
    let port = (at.port != 0).then_some(at.port);
    Listener { name: endpoint.name, bind: endpoint.at, advertised: Advertised { host, port } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Status;
    use crate::table;
    use std::collections::BTreeSet;

    fn config(pairs: &[(&str, &str)]) -> BrokerConfig {
        BrokerConfig::from_pairs(pairs.iter().copied()).unwrap()
    }

    fn problem(pairs: &[(&str, &str)]) -> String {
        BrokerConfig::from_pairs(pairs.iter().copied()).unwrap_err().to_string()
    }

    /// Read by the program before there is a broker.
    const OF_PROGRAM: &[&str] = &["log.format", "log.level"];

    #[test]
    fn the_honoured_keys_are_exactly_those_that_are_read() {
        let configuration = Configuration::default();
        let reading = Reading::new(&configuration);
        rules::check(&BrokerConfig::read(&reading), &reading);
        let mut read = reading.keys_read();
        read.extend(table::fallbacks());
        read.extend(OF_PROGRAM);
        let honoured: BTreeSet<&str> =
            table::all().filter(|key| key.status == Status::Honoured).map(|key| key.name).collect();
        let unread: Vec<_> = honoured.difference(&read).collect();
        let unmarked: Vec<_> = read.difference(&honoured).collect();
        assert!(unread.is_empty() && unmarked.is_empty(), "{unread:?} {unmarked:?}");
    }

    #[test]
    fn without_a_word_it_is_a_broker_alone_on_9092_that_syncs() {
        let config = config(&[]);
        assert_eq!(config.node_id, BrokerId(1));
        assert_eq!(config.log_dirs, [PathBuf::from("./highwater-data")]);
        assert_eq!(config.metadata_dir, config.log_dirs[0]);
        assert_eq!(config.durability, Durability::Fsync);
        assert_eq!(config.listeners.len(), 1);
        assert_eq!(config.listeners[0].bind.to_string(), ":9092");
        assert_eq!(config.listeners[0].advertised, Advertised { host: None, port: Some(9092) });
        assert_eq!(config.http.bind.unwrap().to_string(), "127.0.0.1:8080");
        assert!(!config.http.is_named && config.http.metrics.is_none());
        assert_eq!(config.threads.data, None);
        assert_eq!(config.offsets.partitions, 50);
    }

    #[test]
    fn the_file_that_kafka_ships_for_a_broker_and_controller_in_one_works() {
        let config = config(&[
            ("process.roles", "broker,controller"),
            ("node.id", "1"),
            ("controller.quorum.bootstrap.servers", "localhost:9093"),
            ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093"),
            ("inter.broker.listener.name", "PLAINTEXT"),
            ("advertised.listeners", "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"),
            ("controller.listener.names", "CONTROLLER"),
            (
                "listener.security.protocol.map",
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
            ),
            ("log.dirs", "data"),
        ]);
        assert_eq!(config.listeners.len(), 1);
        let told = Advertised { host: Some("localhost".into()), port: Some(9092) };
        assert_eq!(config.listeners[0].advertised, told);
    }

    const VOTERS: &str = "1@a:1,2@b:1,3@c:1";

    #[test]
    fn a_node_of_several_knows_the_others_and_where_they_come_in() {
        let of_cluster = |more: &[(&str, &str)]| {
            let mut pairs = vec![
                ("controller.quorum.voters", VOTERS),
                ("cluster.id", "AAAAAAAAAAAAAAAAAAAAAA"),
                ("listeners", "PLAINTEXT://h:9092,INSIDE://h:9094,CONTROLLER://:9093"),
                (
                    "listener.security.protocol.map",
                    "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
                ),
                ("controller.listener.names", "CONTROLLER"),
            ];
            pairs.extend_from_slice(more);
            config(&pairs)
        };
        let voter = of_cluster(&[]);
        assert!(voter.has_other_voters() && voter.is_voter());
        assert_eq!(voter.controller_listener.map(|at| at.to_string()), Some(":9093".to_owned()));
        assert_eq!((voter.listeners.len(), &*voter.inter_broker_listener), (2, "PLAINTEXT"));
        let inside = of_cluster(&[("inter.broker.listener.name", "inside")]);
        assert_eq!(inside.inter_broker_listener, "INSIDE");
        let other = of_cluster(&[("node.id", "4"), ("process.roles", "broker")]);
        assert!(other.has_other_voters() && !other.is_voter());
        assert!(config(&[]).is_voter() && !config(&[]).has_other_voters());
    }

    #[test]
    fn listeners_that_cannot_be_served_are_refused_by_name() {
        for (pairs, words) in [
            (
                &[("listeners", "SSL://:9092")][..],
                "listener SSL needs SSL or SASL, which come later",
            ),
            (&[("listeners", "INSIDE://:9092")], "add INSIDE:PLAINTEXT to listener.security"),
            (&[("advertised.listeners", "OTHER://h:1")], "OTHER is not among the listeners"),
            (
                &[("advertised.listeners", "PLAINTEXT://0.0.0.0:1")],
                "clients cannot connect to 0.0.0.0",
            ),
            (
                &[("listeners", "C://:1"), ("controller.listener.names", "C")],
                "it names no listener for clients",
            ),
            (&[("security.inter.broker.protocol", "SSL")], "SSL and SASL come later"),
            (&[("inter.broker.listener.name", "X")], "the name of a listener for clients"),
        ] {
            let found = problem(pairs);
            assert!(found.contains(words), "{found}");
        }
    }

    #[test]
    fn values_that_contradict_each_other_are_refused() {
        for (pairs, words) in [
            (&[("node.id", "1"), ("broker.id", "2")][..], "must agree"),
            (&[("process.roles", "controller")], "without the role broker"),
            (
                &[("controller.quorum.voters", "1@a:1,2@b:1,3@c:1,4@d:1")],
                "4 voters; take 1, 3 or 5",
            ),
            (&[("controller.quorum.voters", "1@a:1,2@b:1,2@c:1")], "listed twice"),
            (&[("controller.quorum.voters", "2@b:1")], "node 1 is not among them"),
            (&[("controller.quorum.voters", VOTERS)], "highwater cluster id"),
            (&[("controller.quorum.voters", VOTERS)], "controller.listener.names: the other"),
            (&[("controller.quorum.voters", VOTERS)], "say where listener PLAINTEXT is reached"),
            (&[("controller.quorum.voters", VOTERS), ("process.roles", "broker")], "is a voter"),
            (&[("controller.quorum.bootstrap.servers", "a:1,b:1")], "controller.quorum.voters"),
            (&[("queued.max.request.bytes", "1000")], "room for one request"),
            (&[("max.connections.per.ip", "0")], "refuses every client"),
            (&[("log.retention.ms", "0")], "-1, or an integer of at least 1"),
            (&[("log.cleaner.threads", "200")], "each of 200 cleaner threads"),
            (&[("replica.fetch.wait.max.ms", "40000")], "replica.lag.time.max.ms"),
            (&[("broker.heartbeat.interval.ms", "8000")], "at most half"),
            (&[("group.min.session.timeout.ms", "2000000")], "group.min.session.timeout.ms"),
            (&[("group.coordinator.rebalance.protocols", "consumer")], "must contain classic"),
            (&[("offsets.topic.compression.codec", "9")], "0 none, 1 gzip"),
            (&[("cluster.id", "")], "1 to 249 bytes"),
            (&[("offset.metadata.max.bytes", "20000")], "from 0 to 10922"),
            (&[("group.initial.rebalance.delay.ms", "-1")], "at least 0"),
            (&[("http.listener", "8080")], "host:port, or nothing"),
            (&[("metrics.listener", "9644")], "host:port, or nothing"),
            (&[("socket.send.buffer.bytes", "0")], "-1, or an integer of at least 1"),
        ] {
            let found = problem(pairs);
            assert!(found.contains(words), "{pairs:?}: {found}");
        }
    }

    #[test]
    fn all_problems_are_said_at_once() {
        let found = problem(&[("http.listener", "x"), ("log.roll.hours", "1"), ("cluster.id", "")]);
        assert_eq!(found.lines().count(), 2, "{found}");
    }

    #[test]
    fn old_and_new_name_of_the_node_are_one() {
        assert_eq!(config(&[("broker.id", "7")]).node_id, BrokerId(7));
        assert_eq!(config(&[("node.id", "8")]).node_id, BrokerId(8));
        assert_eq!(config(&[("node.id", "9"), ("broker.id", "9")]).node_id, BrokerId(9));
    }

    #[test]
    fn an_address_that_says_nothing_is_not_told() {
        let told = |listeners| config(&[("listeners", listeners)]).listeners[0].advertised.clone();
        let named = |host: Option<&str>, port| Advertised { host: host.map(str::to_owned), port };
        assert_eq!(told("PLAINTEXT://0.0.0.0:9092"), named(None, Some(9092)));
        assert_eq!(told("PLAINTEXT://127.0.0.1:0"), named(Some("127.0.0.1"), None));
        assert_eq!(told("PLAINTEXT://[::1]:5"), named(Some("::1"), Some(5)));
    }
}
