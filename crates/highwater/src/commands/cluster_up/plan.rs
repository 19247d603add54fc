//! The plan of a local cluster: who is in it, on which ports, who votes, and what each broker's configuration
//! says. Made once for a folder, because voters name each other by address, and kept there as `cluster.json`.
//! Pure: whoever has a folder and free ports hands them in.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::gateways::{Gateways, LISTENER as GATEWAY_LISTENER};
use crate::arguments::Pair;

/// The form of the file that is written.
const VERSION: u32 = 1;
/// From so many brokers on, so many vote; fewer have one voter.
const VOTERS: usize = 3;
/// The interface that everything is bound to.
pub const HOST: &str = "127.0.0.1";
/// The key that switches metrics and health off when it is empty.
const HTTP_LISTENER: &str = "http.listener";
/// The key of the folder that a console writes to; when it is empty, none keeps anything.
const CONSOLE_DIR: &str = "console.state.dir";
/// What the plan decides, and what would contradict it: it cannot be set for all brokers alike.
pub const DECIDED: &[&str] = &[
    "advertised.listeners",
    "broker.id",
    "cluster.id",
    CONSOLE_DIR,
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    HTTP_LISTENER,
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "node.id",
    "process.roles",
    "security.inter.broker.protocol",
];

/// One broker of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// `node.id`, from 1 and without gaps.
    pub id: u16,
    /// Where clients and other brokers connect.
    pub port: u16,
    /// Where the quorum's other nodes connect; brokers that do not vote have none.
    pub controller_port: Option<u16>,
    /// Metrics and health.
    pub http_port: u16,
    /// The gateway with the console. `None` in the plan of an earlier release, until the cluster is brought up again.
    #[serde(default)]
    pub gateway_port: Option<u16>,
}

impl Node {
    /// `host:port` for clients.
    pub fn address(&self) -> String {
        format!("{HOST}:{}", self.port)
    }

    /// `host:port` of metrics and health.
    pub fn http_address(&self) -> String {
        format!("{HOST}:{}", self.http_port)
    }

    /// All of its ports.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.ports_of_broker().chain(self.gateway_port)
    }

    /// Those that are not the gateway's.
    fn ports_of_broker(&self) -> impl Iterator<Item = u16> {
        [self.port, self.http_port].into_iter().chain(self.controller_port)
    }

    /// The name of its folder in the cluster's.
    pub fn folder(&self) -> String {
        format!("broker-{}", self.id)
    }
}

/// Everything that is decided when a cluster is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    version: u32,
    /// `cluster.id`.
    pub cluster_id: String,
    /// In the order of their ids. Invariant: those that vote have a controller port and come first.
    pub brokers: Vec<Node>,
}

/// Why the brokers that are wanted cannot be had in this folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// Brokers are not taken away: what is on them would be lost.
    Fewer {
        /// How many there are.
        planned: usize,
        /// How many are wanted.
        wanted: usize,
    },
    /// It would need other voters than it was made with.
    OtherVoters {
        /// How many brokers there are.
        planned: usize,
        /// How many are wanted.
        wanted: usize,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Fewer { planned, wanted } => write!(
                f,
                "it has {planned} brokers, {wanted} are asked for, and none is taken away"
            ),
            Refused::OtherVoters { planned, wanted } => write!(
                f,
                "it was made for {planned}, with {} in the quorum; {wanted} brokers have {} there, \
                 and voters stay as they are",
                voters_of(*planned),
                voters_of(*wanted),
            ),
        }
    }
}

/// How many ports `plan` needs for so many brokers at most, those that it has included.
pub fn ports_max(brokers: usize) -> usize {
    4 * brokers
}

fn voters_of(brokers: usize) -> usize {
    brokers.min(VOTERS)
}

impl Plan {
    /// A new cluster. `ports` must be different ones, [`ports_max`] of them.
    pub fn new(cluster_id: String, brokers: usize, ports: &[u16]) -> Plan {
        let mut plan = Plan { version: VERSION, cluster_id, brokers: Vec::new() };
        plan.add(brokers, voters_of(brokers), ports);
        plan
    }

    /// Whether more ports are needed than it has.
    pub fn needs_ports(&self, wanted: usize) -> bool {
        wanted > self.brokers.len() || self.brokers.iter().any(|node| node.gateway_port.is_none())
    }

    /// The same cluster with as many brokers as are wanted; those that it has stay as they are.
    pub fn grown(&self, wanted: usize, ports: &[u16]) -> Result<Plan, Refused> {
        let planned = self.brokers.len();
        if wanted < planned {
            return Err(Refused::Fewer { planned, wanted });
        }
        if voters_of(wanted) != self.voters().count() {
            return Err(Refused::OtherVoters { planned, wanted });
        }
        let taken: Vec<u16> = self.brokers.iter().flat_map(Node::ports).collect();
        let ports: Vec<u16> = ports.iter().copied().filter(|port| !taken.contains(port)).collect();
        let mut plan = self.clone();
        plan.add(wanted, voters_of(wanted), &ports);
        Ok(plan)
    }

    fn add(&mut self, brokers: usize, voters: usize, ports: &[u16]) {
        let mut ports = ports.iter().copied();
        let mut next = || ports.next().expect("whoever plans hands in enough ports");
        for node in self.brokers.iter_mut().filter(|node| node.gateway_port.is_none()) {
            node.gateway_port = Some(next());
        }
        for id in self.brokers.len() + 1..=brokers {
            self.brokers.push(Node {
                id: id as u16,
                port: next(),
                controller_port: (id <= voters).then(&mut next),
                http_port: next(),
                gateway_port: Some(next()),
            });
        }
    }

    /// What was written by [`Plan::encode`].
    pub fn decode(text: &str) -> Result<Plan, String> {
        let plan: Plan = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if plan.version != VERSION {
            return Err(format!("unknown version {}", plan.version));
        }
        let in_order = plan.brokers.iter().zip(1..).all(|(node, id)| node.id == id);
        let voting = plan.voters().count();
        let voters_first = plan.brokers.iter().take(voting).all(|n| n.controller_port.is_some());
        match in_order && voters_first && voting > 0 {
            true => Ok(plan),
            false => Err("the brokers are not in order".to_owned()),
        }
    }

    /// For a file that people can read.
    pub fn encode(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and text are JSON") + "\n"
    }

    /// Those that vote in the metadata quorum.
    pub fn voters(&self) -> impl Iterator<Item = &Node> {
        self.brokers.iter().filter(|node| node.controller_port.is_some())
    }

    /// `host:port` of all brokers, for clients.
    pub fn bootstrap(&self) -> String {
        list(self.brokers.iter().map(Node::address))
    }

    /// The first of the gateways' ports that something else of this cluster has.
    pub fn clash(&self, gateways: &Gateways) -> Option<u16> {
        let taken: Vec<u16> = self.brokers.iter().flat_map(Node::ports_of_broker).collect();
        let listeners = self.brokers.iter().filter_map(|node| gateways.listener(node));
        listeners.map(|at| at.port).find(|port| taken.contains(port))
    }

    /// The configuration file of `node`, with all data in `folder`: what the plan says, and `settings` behind it.
    pub fn properties(
        &self,
        node: &Node,
        folder: &str,
        settings: &[Pair],
        gateways: &Gateways,
    ) -> String {
        let mut text = format!(
            "# Broker {} of a local cluster. `highwater cluster up` writes this file anew at each start; what is\n\
             # to be set for all brokers goes to it as --set KEY=VALUE.\n",
            node.id
        );
        let serves_http = serves_http(settings);
        let gateway = gateways.listener(node).map(|at| at.to_string()).unwrap_or_default();
        let planned = self.planned(node, folder);
        let planned = planned.iter().filter(|(key, _)| *key != HTTP_LISTENER || serves_http);
        let planned = planned.map(|(key, value)| (*key, value.as_str()));
        let planned = planned.chain([(GATEWAY_LISTENER, gateway.as_str())]);
        let settings = settings.iter().filter(|pair| pair.key != GATEWAY_LISTENER);
        let settings = settings.map(|pair| (pair.key.as_str(), pair.value.as_str()));
        for (key, value) in planned.chain(settings) {
            text += &format!("{}={}\n", escaped(key, true), escaped(value, false));
        }
        text
    }

    fn planned(&self, node: &Node, folder: &str) -> Vec<(&'static str, String)> {
        let clients = format!("PLAINTEXT://{}", node.address());
        let (roles, listeners) = match node.controller_port {
            Some(port) => ("broker,controller", format!("{clients},CONTROLLER://{HOST}:{port}")),
            None => ("broker", clients),
        };
        let voter = |node: &Node| Some(format!("{}@{HOST}:{}", node.id, node.controller_port?));
        vec![
            ("node.id", node.id.to_string()),
            ("cluster.id", self.cluster_id.clone()),
            ("process.roles", roles.to_owned()),
            ("controller.quorum.voters", list(self.voters().filter_map(voter))),
            ("listeners", listeners),
            ("controller.listener.names", "CONTROLLER".to_owned()),
            ("inter.broker.listener.name", "PLAINTEXT".to_owned()),
            (HTTP_LISTENER, node.http_address()),
            ("log.dirs", folder.to_owned()),
        ]
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(",")
}

/// The first of these that the plan decides itself. Metrics and health, and what consoles keep, may be switched off.
pub fn contradiction(settings: &[Pair]) -> Option<&Pair> {
    settings.iter().find(|pair| {
        let serves_no_http = pair.key == HTTP_LISTENER && pair.value.trim().is_empty();
        let off = serves_no_http || holds_for_all(&pair.key, &pair.value);
        DECIDED.contains(&pair.key.as_str()) && !off
    })
}

/// Whether a value of a key that is decided for each broker is none of one broker alone: consoles that keep nothing.
pub fn holds_for_all(key: &str, value: &str) -> bool {
    key == CONSOLE_DIR && value.trim().is_empty()
}

/// Whether the settings leave metrics and health on.
pub fn serves_http(settings: &[Pair]) -> bool {
    !settings.iter().any(|pair| pair.key == HTTP_LISTENER)
}

/// As it stands in a `.properties` file.
fn escaped(text: &str, is_key: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match c {
            '\n' => escaped += "\\n",
            '\r' => escaped += "\\r",
            '\t' => escaped += "\\t",
            '\x0c' => escaped += "\\f",
            '\\' => escaped += "\\\\",
            ' ' if is_key || at == 0 => escaped += "\\ ",
            '=' | ':' if is_key => escaped.extend(['\\', c]),
            '#' | '!' if is_key && at == 0 => escaped.extend(['\\', c]),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use configuration::{Configuration, Sources};

    use super::*;

    fn plan(brokers: usize) -> Plan {
        let ports: Vec<u16> = (10_001..).take(ports_max(brokers)).collect();
        Plan::new("AAAAAAAAAAAAAAAAAAAAAA".to_owned(), brokers, &ports)
    }

    fn pair(text: &str) -> Pair {
        text.parse().unwrap()
    }

    #[test]
    fn one_votes_of_two_and_three_vote_of_more() {
        let voters = |brokers| plan(brokers).voters().map(|node| node.id).collect::<Vec<_>>();
        assert_eq!((voters(1), voters(2)), (vec![1], vec![1, 2]));
        for brokers in 3..=9 {
            assert_eq!(voters(brokers), [1, 2, 3]);
        }
    }

    #[test]
    fn no_port_is_given_twice() {
        let plan = plan(9);
        let mut ports: Vec<u16> = plan.brokers.iter().flat_map(Node::ports).collect();
        assert_eq!(ports.len(), 3 * 9 + 3);
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 3 * 9 + 3);
        assert!(plan.bootstrap().starts_with("127.0.0.1:10001,127.0.0.1:10005,"));
    }

    #[test]
    fn a_plan_is_read_as_it_was_written_and_anything_else_is_refused() {
        let plan = plan(4);
        assert_eq!(Plan::decode(&plan.encode()), Ok(plan.clone()));
        let later = plan.encode().replace("\"version\": 1", "\"version\": 2");
        assert_eq!(Plan::decode(&later), Err("unknown version 2".to_owned()));
        let mut mixed = plan.clone();
        mixed.brokers.swap(0, 3);
        assert!(Plan::decode(&mixed.encode()).is_err());
        assert!(Plan::decode("").is_err());
    }

    #[test]
    fn the_plan_of_an_earlier_release_gets_ports_for_gateways_and_keeps_the_others() {
        let text = r#"{"version": 1, "cluster_id": "AAAAAAAAAAAAAAAAAAAAAA", "brokers":
            [{"id": 1, "port": 10001, "controller_port": 10002, "http_port": 10003}]}"#;
        let earlier = Plan::decode(text).unwrap();
        assert!(earlier.needs_ports(1) && !plan(1).needs_ports(1) && plan(3).needs_ports(4));
        let now = earlier.grown(1, &[10_001, 10_009]).unwrap();
        assert_eq!(now.brokers[0].ports().collect::<Vec<_>>(), [10_001, 10_003, 10_002, 10_009]);
        assert!(!now.needs_ports(1));
    }

    #[test]
    fn a_gateway_has_no_port_that_a_broker_has() {
        let plan = plan(3);
        let at = |port: u16| {
            let listener = [pair(&format!("gateway.listener=127.0.0.1:{port}"))];
            plan.clash(&Gateways::read(&listener, 3).unwrap())
        };
        assert_eq!(plan.clash(&Gateways::Planned), None);
        assert_eq!((at(8082), at(10_008)), (None, Some(10_009)), "the port of broker 3");
        assert_eq!(at(9999), Some(10_001));
    }

    #[test]
    fn more_brokers_are_added_behind_those_that_are_there() {
        let three = plan(3);
        // Some of the ports that are free were chosen before, for brokers that do not run.
        let ports: Vec<u16> = (10_005..10_050).collect();
        let five = three.grown(5, &ports).unwrap();
        assert_eq!(five.brokers[..3], three.brokers);
        assert_eq!(five.voters().count(), 3);
        assert_eq!(five.brokers[3].ports().min(), Some(10_013));
        assert_eq!(three.grown(3, &[]), Ok(three.clone()));
        assert!(plan(1).grown(2, &ports).is_err(), "it would have to vote");
    }

    #[test]
    fn fewer_brokers_or_other_voters_are_refused() {
        let fewer = Refused::Fewer { planned: 3, wanted: 2 };
        assert_eq!(plan(3).grown(2, &[]), Err(fewer.clone()));
        assert!(fewer.to_string().contains("none is taken away"));
        let others = Refused::OtherVoters { planned: 2, wanted: 3 };
        assert_eq!(plan(2).grown(3, &[]), Err(others.clone()));
        let words =
            "made for 2, with 2 in the quorum; 3 brokers have 3 there, and voters stay as they are";
        assert!(others.to_string().contains(words), "{others}");
    }

    #[test]
    fn a_voter_is_told_of_all_voters_and_the_others_have_no_controller() {
        let plan = plan(4);
        let settings = [pair("durability=fsync"), pair("gateway.listener=127.0.0.1:0")];
        let text =
            plan.properties(&plan.brokers[1], "/data/broker-2", &settings, &Gateways::Planned);
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "node.id=2",
                "cluster.id=AAAAAAAAAAAAAAAAAAAAAA",
                "process.roles=broker,controller",
                "controller.quorum.voters=1@127.0.0.1:10002,2@127.0.0.1:10006,3@127.0.0.1:10010",
                "listeners=PLAINTEXT://127.0.0.1:10005,CONTROLLER://127.0.0.1:10006",
                "controller.listener.names=CONTROLLER",
                "inter.broker.listener.name=PLAINTEXT",
                "http.listener=127.0.0.1:10007",
                "log.dirs=/data/broker-2",
                "gateway.listener=127.0.0.1:10008",
                "durability=fsync",
            ]
        );
        let text = plan.properties(&plan.brokers[3], "/data/broker-4", &[], &Gateways::Off);
        assert!(text.contains("\nprocess.roles=broker\n"), "{text}");
        assert!(text.contains("\nlisteners=PLAINTEXT://127.0.0.1:10013\n"), "{text}");
        assert!(text.contains("\ngateway.listener=\n"), "{text}");
    }

    #[test]
    fn what_a_file_says_is_read_as_it_was_meant() {
        let plan = plan(1);
        let odd = Pair { key: "a:b =c\\".to_owned(), value: " two\nlines \\ ".to_owned() };
        let folder = " /däta \\x/broker-1";
        let odd_only = std::slice::from_ref(&odd);
        let text = plan.properties(&plan.brokers[0], folder, odd_only, &Gateways::Planned);
        let sources = Sources::new().file("f", text.as_bytes());
        let read = Configuration::load_all(&sources, false).configuration;
        assert_eq!(read.value(&odd.key), Some(odd.value.as_str()));
        assert_eq!(read.value("log.dirs"), Some(folder.trim()));
        assert_eq!(read.value("node.id"), Some("1"));
    }

    #[test]
    fn what_the_plan_decides_is_nobody_elses_but_metrics_may_be_off() {
        let plan = plan(1);
        for text in [
            "node.id=7",
            "log.dirs=/x",
            "listeners=PLAINTEXT://:1",
            "http.listener=:1",
            "console.state.dir=/one/for/all",
        ] {
            assert_eq!(contradiction(&[pair("a=b"), pair(text)]), Some(&pair(text)));
        }
        let off = [pair("http.listener="), pair("console.state.dir="), pair("num.partitions=3")];
        assert_eq!(contradiction(&off), None);
        let text = plan.properties(&plan.brokers[0], "/x", &off, &Gateways::Planned);
        assert!(text.contains("\nhttp.listener=\n") && !text.contains("10003"), "{text}");
        assert!(serves_http(&[]) && !serves_http(&off));
    }
}
