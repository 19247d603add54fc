//! Cuts in one direction: the requests of one node to another arrive nowhere, and the other direction works.
//!
//! Each request of a node to another one passes a relay of the test. The relay knows both nodes: by its port for control
//! connections, and by the Hello for connections of fetchers. Periods are counted in reads of the relay, never in time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};

use link::is_link;
use peer::ports;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::health::{Node, get, until_named};
use super::metrics::{total, wait_for};
use super::quorum::controller;
use super::replication::{all_acknowledged, described, kept, produce, wait_for_all_in_sync};
use super::superseded::Unacknowledged;
use super::*;

const NODES: usize = 3;
const CLUSTER_ID: &str = "MkU3OEVBNTcwNTJENDM2Qg";
/// Bytes of a Hello up to and including the id of the node that sends it.
const HELLO_HEAD_BYTES: usize = 4 + 4 + 4 + 1 + 4;
/// Reads of the relay between two records of the test.
const READS_A_ROUND: u64 = 25;
/// Records of the test during a cut: longer than ten heartbeats and several sessions.
const ROUNDS: u32 = 6;
/// Fencings, suspicions and refused dials of a cut that lasts: one, and one more for a machine that is busy.
const CHANGES_MAX: f64 = 2.0;

/// The node that sends requests, and the node that receives them.
type Way = (i32, i32);

/// How requests are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// They arrive nowhere, and dials are accepted: the sender learns nothing.
    Silent,
    /// As [`Loss::Silent`] on open connections, and dials of control connections are refused.
    Refused,
}

#[derive(Default)]
struct State {
    cuts: BTreeMap<Way, Loss>,
    /// Reads that were passed on.
    passed: BTreeMap<Way, u64>,
    /// Reads that were dropped. Connections with one of them are closed when the cut ends: their bytes do not follow.
    dropped: BTreeMap<Way, u64>,
}

/// State of the relays.
#[derive(Default)]
struct Ways {
    state: Mutex<State>,
    changed: Condvar,
}

impl Ways {
    fn is_cut(&self, way: Way) -> bool {
        self.state.lock().unwrap().cuts.contains_key(&way)
    }

    /// Counts a read. Returns whether it may pass.
    fn admit(&self, way: Way) -> bool {
        let mut state = self.state.lock().unwrap();
        let is_cut = state.cuts.contains_key(&way);
        let counts = if is_cut { &mut state.dropped } else { &mut state.passed };
        *counts.entry(way).or_default() += 1;
        drop(state);
        self.changed.notify_all();
        !is_cut
    }

    fn passed(&self, way: Way) -> u64 {
        self.state.lock().unwrap().passed.get(&way).copied().unwrap_or_default()
    }

    fn dropped(&self, way: Way) -> u64 {
        self.state.lock().unwrap().dropped.get(&way).copied().unwrap_or_default()
    }

    /// Waits until so many reads were passed on in all.
    fn wait_passed(&self, way: Way, count: u64) {
        let state = self.state.lock().unwrap();
        let is_missing =
            |state: &mut State| state.passed.get(&way).copied().unwrap_or_default() < count;
        let (_state, waited) = self.changed.wait_timeout_while(state, LIMIT, is_missing).unwrap();
        assert!(!waited.timed_out(), "not in time: {count} reads from {way:?}");
    }
}

/// Passes the bytes of a dialer on to the target, and all answers. `of_relay`: the way, if the port says it.
async fn pass(
    ways: Arc<Ways>,
    of_relay: Option<Way>,
    to: i32,
    dialer: tokio::net::TcpStream,
    port: u16,
) {
    let (mut reader, writer) = dialer.into_split();
    let mut head = vec![0; 4];
    if reader.read_exact(&mut head).await.is_err() {
        return;
    }
    let mut way = of_relay;
    if way.is_none() && head[..4].try_into().is_ok_and(is_link) {
        head.resize(HELLO_HEAD_BYTES, 0);
        if reader.read_exact(&mut head[4..]).await.is_err() {
            return;
        }
        let from = i32::from_be_bytes(head[HELLO_HEAD_BYTES - 4..].try_into().unwrap());
        way = Some((from, to));
    }
    let Ok(target) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else { return };
    let (answers, requests) = target.into_split();
    tokio::select! {
        () = pass_requests(&ways, way, head, reader, requests) => {}
        () = pass_answers(answers, writer) => {}
    }
}

async fn pass_requests(
    ways: &Ways,
    way: Option<Way>,
    mut bytes: Vec<u8>,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
) {
    let mut has_lost = false;
    loop {
        let passes = way.is_none_or(|way| ways.admit(way));
        // Bytes behind lost ones are of no use to the target.
        if passes && (has_lost || to.write_all(&bytes).await.is_err()) {
            return;
        }
        has_lost |= !passes;
        bytes.resize(64 << 10, 0);
        match from.read(&mut bytes).await {
            Ok(count) if count > 0 => bytes.truncate(count),
            // A dialer that gives up is not seen by the target.
            _ if way.is_some_and(|way| ways.is_cut(way)) => std::future::pending().await,
            _ => return,
        }
    }
}

async fn pass_answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let _ended = tokio::io::copy(&mut from, &mut to).await;
}

/// A port of the test; connections go on when it is closed.
struct Relay {
    port: u16,
    accepting: Option<JoinHandle<()>>,
}

/// Three brokers, all of them voters, and the relays between them.
struct Relayed {
    nodes: Vec<Node>,
    ways: Arc<Ways>,
    runtime: Runtime,
    /// Relays of control connections.
    control: BTreeMap<Way, Relay>,
    /// Controller ports.
    controllers: Vec<u16>,
    place: TempDir,
}

fn id(at: usize) -> i32 {
    at as i32 + 1
}

impl Relayed {
    fn start() -> Relayed {
        let place = tempfile::tempdir().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let free = ports::free(NODES * (NODES + 2)).unwrap();
        let (controllers, rest) = free.split_at(NODES);
        let (advertised, rest) = rest.split_at(NODES);
        let mut relayed = Relayed {
            nodes: Vec::new(),
            ways: Arc::default(),
            runtime: runtime.unwrap(),
            control: BTreeMap::new(),
            controllers: controllers.to_vec(),
            place,
        };
        let all = (0..NODES).flat_map(|from| (0..NODES).map(move |to| (id(from), id(to))));
        for (way, port) in all.filter(|(from, to)| from != to).zip(rest) {
            relayed.control.insert(way, Relay { port: *port, accepting: None });
            relayed.accept_control(way);
        }
        for (at, port) in advertised.iter().enumerate() {
            relayed.spawn(at, *port);
        }
        relayed.nodes = std::mem::take(&mut relayed.nodes).into_iter().map(Node::ready).collect();
        relayed
    }

    /// Lets the relay of control connections of a way accept.
    fn accept_control(&mut self, way: Way) {
        let target = self.controllers[way.1 as usize - 1];
        let relay = self.control.get_mut(&way).unwrap();
        relay.accepting =
            Some(accept(&self.runtime, &self.ways, relay.port, Some(way), way.1, target));
    }

    fn spawn(&mut self, at: usize, advertised: u16) {
        let voter = |to: usize| {
            let way = (id(at), id(to));
            let port = self.control.get(&way).map_or(self.controllers[to], |relay| relay.port);
            format!("{}@127.0.0.1:{port}", id(to))
        };
        let voters = (0..NODES).map(voter).collect::<Vec<_>>().join(",");
        let (number, address) = (id(at).to_string(), format!("PLAINTEXT://127.0.0.1:{advertised}"));
        let keys = [
            ("node.id", &*number),
            ("cluster.id", CLUSTER_ID),
            ("controller.quorum.voters", &*voters),
            ("advertised.listeners", &*address),
            ("broker.session.timeout.ms", "3000"),
            ("broker.heartbeat.interval.ms", "200"),
            ("auto.leader.rebalance.enable", "false"),
        ];
        let folder: PathBuf = self.place.path().join(format!("broker-{number}"));
        let node = Node::spawn(&folder, Some(self.controllers[at]), &keys);
        let port = node.address.rsplit_once(':').unwrap().1.parse().unwrap();
        // It accepts as long as the runtime lives.
        drop(accept(&self.runtime, &self.ways, advertised, None, id(at), port));
        self.nodes.push(node);
    }

    fn cut(&mut self, way: Way, loss: Loss) {
        self.ways.state.lock().unwrap().cuts.insert(way, loss);
        if loss == Loss::Refused
            && let Some(accepting) = self.control.get_mut(&way).unwrap().accepting.take()
        {
            accepting.abort();
            // The port is closed when the task has ended.
            let _aborted = self.runtime.block_on(accepting);
        }
    }

    fn heal(&mut self, way: Way) {
        let loss = self.ways.state.lock().unwrap().cuts.remove(&way);
        if loss == Some(Loss::Refused) {
            self.accept_control(way);
        }
    }

    /// Address of a node for clients.
    fn address(&self, node: i32) -> &str {
        &self.nodes[node as usize - 1].address
    }

    /// A counter of all nodes together.
    fn total(&self, name: &str) -> f64 {
        self.nodes.iter().map(|node| total(&node.http, name)).sum()
    }
}

fn accept(
    runtime: &Runtime,
    ways: &Arc<Ways>,
    port: u16,
    way: Option<Way>,
    to: i32,
    target: u16,
) -> JoinHandle<()> {
    let ways = Arc::clone(ways);
    let bound = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", port)));
    let listener = bound.unwrap();
    runtime.spawn(async move {
        while let Ok((dialer, _)) = listener.accept().await {
            tokio::spawn(pass(Arc::clone(&ways), way, to, dialer, target));
        }
    })
}

/// Cuts one direction between the active controller and a broker, for as long as records are produced. `towards_controller`: whether
/// requests of the broker are lost, or those of the controller.
fn survives(cluster: &mut Relayed, next: &mut u32, towards_controller: bool, loss: Loss) {
    let case = format!("towards the controller: {towards_controller}, {loss:?}");
    let active = controller(cluster.address(1));
    let victim = active % NODES as i32 + 1;
    let other = victim % NODES as i32 + 1;
    let (lost, working) = match towards_controller {
        true => ((victim, active), (active, victim)),
        false => ((active, victim), (victim, active)),
    };
    let names = ["highwater_brokers_fenced_total", "highwater_brokers_suspected_total"];
    let before = names.map(|name| cluster.total(name));
    let dropped = cluster.ways.dropped(lost);
    cluster.cut(lost, loss);
    for round in 1..=ROUNDS {
        let passed = cluster.ways.passed(working);
        // Neither the victim nor its clients are needed.
        let healthy = format!("{},{}", cluster.address(active), cluster.address(other));
        all_acknowledged(produce(&healthy, *next..*next + 1));
        *next += 1;
        cluster.ways.wait_passed(working, passed + READS_A_ROUND);
        assert_eq!(controller(cluster.address(other)), active, "{case}, round {round}");
    }
    assert!(cluster.ways.dropped(lost) > dropped, "{case}");
    for (name, before) in names.iter().zip(before) {
        let changes = cluster.total(name) - before;
        assert!(changes <= CHANGES_MAX, "{case}: {changes} of {name}");
    }
    cluster.heal(lost);
    wait_for_all_in_sync(cluster.address(victim), "kept");
    let http = &cluster.nodes[victim as usize - 1].http;
    wait_until("it is ready", || get(http, "/readyz").is_some_and(|answer| answer.code == 200));
    all_acknowledged(produce(cluster.address(victim), *next..*next + 1));
    *next += 1;
    let numbers: BTreeSet<u32> = (0..*next).collect();
    assert_eq!(kept(cluster.address(victim)), numbers, "{case}");
}

/// A cluster with `kept`, of which each broker leads partitions.
fn started() -> (Relayed, u32) {
    let cluster = Relayed::start();
    run(cluster.address(1), "topic create kept -p 6 -r 3");
    wait_for_all_in_sync(cluster.address(1), "kept");
    all_acknowledged(produce(cluster.address(1), 0..60));
    (cluster, 60)
}

#[test]
fn a_broker_whose_requests_to_the_controller_are_lost_is_fenced_once_and_stops_nothing() {
    let (mut cluster, mut next) = started();
    for loss in [Loss::Silent, Loss::Refused] {
        survives(&mut cluster, &mut next, true, loss);
    }
}

#[test]
fn a_broker_that_the_controller_does_not_reach_is_suspected_and_not_fenced_again_and_again() {
    let (mut cluster, mut next) = started();
    for loss in [Loss::Refused, Loss::Silent] {
        survives(&mut cluster, &mut next, false, loss);
    }
}

/// Its heartbeats are answered all the time, and the metadata with its successors does not arrive.
#[test]
fn a_leader_that_no_metadata_reaches_refuses_records_that_its_successors_drop() {
    let (mut cluster, next) = started();
    let active = controller(cluster.address(1));
    let victim = active % NODES as i32 + 1;
    let other = victim % NODES as i32 + 1;
    let leaders = |address: &str| -> Vec<i64> {
        described(address, "kept").unwrap().into_iter().map(|(leader, _)| leader).collect()
    };
    let led = leaders(cluster.address(other)).iter().position(|led| *led == i64::from(victim));
    let led = led.unwrap();
    let http = cluster.nodes[victim as usize - 1].http.clone();
    let in_doubt = || total(&http, "highwater_leaderships_in_doubt");
    let refused = || total(&http, "highwater_produce_refused_in_doubt_total");
    assert_eq!((in_doubt(), refused()), (0.0, 0.0));
    cluster.cut((active, victim), Loss::Silent);
    wait_until("another leader", || leaders(cluster.address(other))[led] != i64::from(victim));
    let answered = cluster.ways.passed((victim, active));
    wait_for("leaderships in doubt", 1.0, in_doubt);
    assert!(cluster.ways.passed((victim, active)) > answered, "its heartbeats arrive");
    for acks in ["1", "0"] {
        let before = refused();
        let producer = Unacknowledged::begin(cluster.address(victim), led, acks);
        wait_until("records are refused", || refused() > before);
        drop(producer);
    }
    let health = until_named(&http, "leader_superseded");
    assert!(!health.names("controller_unreachable"), "{health:?}");
    cluster.heal((active, victim));
    wait_for("leaderships in doubt", 0.0, in_doubt);
    wait_for_all_in_sync(cluster.address(victim), "kept");
    all_acknowledged(produce(cluster.address(victim), next..next + 1));
    let numbers: BTreeSet<u32> = (0..=next).collect();
    assert_eq!(kept(cluster.address(victim)), numbers);
}
