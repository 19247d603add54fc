//! Connections with the other nodes: one link to each for calls, and a door through which they come in.
//!
//! A voter has a listener of its own for other nodes, and every listener for clients lets brokers in as well: the
//! first four bytes tell them apart.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::link::{
    Door, Established, Event, Fetchers as TakesFetchers, Identity, Jitter, LastMetadata, Link,
    LinkConfig, Links, LogPoint, Observer, QuorumGeneration, Secret, Services, Target, service,
};
use configuration::{BrokerConfig, Voter};
use metadata::ClusterImage;
use model::{BrokerId, Uuid};
use node::ProbeTimes;
use parking_lot::Mutex;
use quorum::{Generation, LinkTransport, MemberService, Quorum};
use tokio::net::{TcpListener, TcpStream};
use tracing::{info, warn};

use super::controller::{Controller, ControllerService};
use super::describing::{CaughtUp, DescriptionService};
use super::electing::{LogEndsService, LogEndsSource};
use super::heartbeats::HeartbeatService;
use super::marks::ReportedMarks;
use super::probing::{ProbeService, Probes};
use super::returns::ReturnsService;
use super::sick_disks::SickDisks;
use super::unclean::{EndsReader, LongestReplica, LongestReplicas};
use super::watching::Watching;

/// How often, a millisecond apart, the first four bytes of a connection are looked for once some are there.
const FIRST_BYTES_LOOKS: u32 = 2_000;
/// How long a node may take to say its first bytes before this broker serves.
const FIRST_BYTES_MAX: Duration = Duration::from_secs(10);
/// How long accepting rests after the system refused it.
const REST_AFTER_FAILURE: Duration = Duration::from_millis(50);

/// Connections of fetchers, handed on once the broker serves.
type FetcherSink = Arc<Mutex<Option<Box<dyn Fn(Established) + Send + Sync>>>>;

/// A broker's connections with the other nodes of its cluster.
pub struct ClusterLinks {
    me: BrokerId,
    identity: Arc<Identity>,
    config: Arc<LinkConfig>,
    links: Arc<Links>,
    voters: Vec<Voter>,
    is_voter: bool,
    listener: String,
    door: Arc<Door>,
    members: MemberService,
    quorum: Arc<OnceLock<Arc<Quorum>>>,
    generation: Arc<Generation>,
    watching: Arc<Watching>,
    caught_up: Arc<CaughtUp>,
    log_ends: Arc<LogEndsSource>,
    marks: Arc<ReportedMarks>,
    ends_reader: EndsReader,
    longest_replicas: LongestReplicas,
    fetchers: FetcherSink,
    /// Brokers that do not vote and that this voter dials, with where.
    dialed: Mutex<std::collections::BTreeMap<BrokerId, (String, u16)>>,
}

impl ClusterLinks {
    /// Opens the door's services and dials the other voters. The quorum needs this to start.
    pub fn open(
        config: &BrokerConfig,
        cluster_id: &str,
        incarnation: Uuid,
        directories: Vec<Uuid>,
        disks: &Arc<SickDisks>,
        generation: &Arc<Generation>,
    ) -> ClusterLinks {
        let quorum: Arc<OnceLock<Arc<Quorum>>> = Arc::default();
        let mut identity = Identity::new(cluster_id, config.node_id, incarnation);
        identity.directories = directories;
        identity.secret = config.inter_broker_secret.clone().and_then(Secret::new);
        identity.last_metadata = last_metadata(&quorum);
        identity.generation = own_generation(generation, &quorum);
        let identity = Arc::new(identity);
        let jitter = Jitter::new(|due: Duration| due.mul_f64(0.5 + fastrand::f64()));
        let link_config = Arc::new(LinkConfig { jitter, ..LinkConfig::default() });
        let watching = Watching::new(
            config.node_id,
            Duration::from_millis(config.membership.session_ms),
            Probes::new(
                config.node_id,
                ProbeTimes::with_after(Duration::from_millis(config.membership.suspect_after_ms)),
                Some(Arc::clone(disks)),
            ),
        );
        let watching = Arc::new(watching.of_process(incarnation));
        let caught_up: Arc<CaughtUp> = Arc::default();
        let log_ends: Arc<LogEndsSource> = Arc::default();
        let marks: Arc<ReportedMarks> = Arc::default();
        let members = MemberService::new();
        let links = Arc::new(Links::new());
        let ends_reader = EndsReader::new(config.node_id, &links, &log_ends);
        let services = Services::default()
            .with(service::QUORUM, Arc::new(members.clone()))
            .with(
                service::CONTROLLER,
                Arc::new(ControllerService {
                    quorum: Arc::clone(&quorum),
                    watching: Arc::clone(&watching),
                    links: Arc::clone(&links),
                    ends: ends_reader.clone(),
                }),
            )
            .with(
                service::HEARTBEAT,
                Arc::new(HeartbeatService {
                    quorum: Arc::clone(&quorum),
                    watching: Arc::clone(&watching),
                    marks: Arc::clone(&marks),
                }),
            )
            .with(
                service::DESCRIPTION,
                Arc::new(DescriptionService {
                    quorum: Arc::clone(&quorum),
                    caught_up: Arc::clone(&caught_up),
                }),
            )
            .with(service::PROBE, Arc::new(ProbeService { disks: Arc::clone(disks) }))
            .with(service::RETURNS, Arc::new(ReturnsService { disks: Arc::clone(disks) }))
            .with(service::LOG_ENDS, Arc::new(LogEndsService { source: Arc::clone(&log_ends) }));
        let fetchers: FetcherSink = Arc::default();
        let observer: Arc<dyn Observer> = Arc::new(Watcher::new(&watching, generation, &quorum));
        let door = Door::new(
            Arc::clone(&identity),
            Arc::clone(&link_config),
            services,
            Arc::clone(&observer),
        );
        let door = Arc::new(door.with_fetchers(hand_on(&fetchers)));
        let opened = ClusterLinks {
            me: config.node_id,
            identity,
            config: link_config,
            links,
            voters: config.voters.clone(),
            is_voter: config.is_voter(),
            listener: config.inter_broker_listener.clone(),
            door,
            members,
            quorum,
            generation: Arc::clone(generation),
            watching,
            caught_up,
            log_ends,
            marks,
            ends_reader,
            longest_replicas: LongestReplicas::default(),
            fetchers,
            dialed: Mutex::default(),
        };
        for voter in config.voters.iter().filter(|voter| voter.id != config.node_id.0) {
            opened.dial(BrokerId(voter.id), &voter.at.host, voter.at.port, &observer);
        }
        opened
    }

    fn dial(&self, node: BrokerId, host: &str, port: u16, observer: &Arc<dyn Observer>) {
        let target = Target { node: Some(node), host: host.to_owned(), port };
        let (identity, config) = (Arc::clone(&self.identity), Arc::clone(&self.config));
        self.links.put(node, Link::start(target, identity, config, Arc::clone(observer)));
    }

    /// Replaces the connection with a node. Calls that wait on the old one fail.
    pub(super) fn redial(&self, node: BrokerId) {
        let Some(target) = self.links.get(node).map(|link| link.target().clone()) else { return };
        self.dial(node, &target.host, target.port, &self.observer());
    }

    fn observer(&self) -> Arc<dyn Observer> {
        Arc::new(Watcher::new(&self.watching, &self.generation, &self.quorum))
    }

    /// Takes connections of other nodes until the door closes.
    pub fn accept(&self, listener: TcpListener) {
        tokio::spawn(Arc::clone(&self.door).accept(listener));
    }

    /// Takes connections of other nodes at a listener for clients before clients are served: to a broker that does not
    /// vote the metadata comes that way. A client that is too early is turned away.
    pub async fn accept_nodes(self: &Arc<Self>, listener: Option<&TcpListener>) -> Infallible {
        let Some(listener) = listener else { return std::future::pending().await };
        loop {
            let Ok((stream, peer)) = listener.accept().await else {
                tokio::time::sleep(REST_AFTER_FAILURE).await;
                continue;
            };
            let links = Arc::clone(self);
            tokio::spawn(async move {
                let told = tokio::time::timeout(FIRST_BYTES_MAX, is_of_node(&stream)).await;
                if let Ok(Ok(true)) = told {
                    links.admit(stream, peer).await;
                }
            });
        }
    }

    /// Greets and serves another node's connection that came in through a listener for clients.
    pub async fn admit(&self, stream: TcpStream, peer: std::net::SocketAddr) {
        Arc::clone(&self.door).admit(stream, peer).await;
    }

    /// The way to the other members of the quorum.
    pub fn transport(&self) -> LinkTransport {
        LinkTransport::new(Arc::clone(&self.links))
    }

    /// Answers for this quorum from now on.
    pub fn answer_by(&self, quorum: &Arc<Quorum>) {
        let _ = self.quorum.set(Arc::clone(quorum));
        self.members.answer_by(quorum);
    }

    /// Hands connections of fetchers on from now on.
    pub fn hand_fetchers_to(&self, take: impl Fn(Established) + Send + Sync + 'static) {
        *self.fetchers.lock() = Some(Box::new(take));
    }

    /// Takes no connections of fetchers any more.
    pub fn refuse_fetchers(&self) {
        *self.fetchers.lock() = None;
    }

    /// Has requests decided over these links.
    pub fn controller(&self, quorum: &Arc<Quorum>) -> Controller {
        let voters: Vec<BrokerId> = self.voters.iter().map(|voter| BrokerId(voter.id)).collect();
        Controller::over(quorum, &self.links, &voters, &self.watching, &self.ends_reader)
    }

    /// What this node watches while it is the active controller.
    pub fn watching(&self) -> &Arc<Watching> {
        &self.watching
    }

    /// When members of the quorum had everything.
    pub(super) fn caught_up(&self) -> &CaughtUp {
        &self.caught_up
    }

    /// Marks of log directories that brokers have reported to this node.
    pub(super) fn marks(&self) -> &ReportedMarks {
        &self.marks
    }

    /// Reads log ends of any broker.
    pub(super) fn ends_reader(&self) -> &EndsReader {
        &self.ends_reader
    }

    pub(super) fn longest_replicas(&self) -> &LongestReplicas {
        &self.longest_replicas
    }

    /// On the active controller: partitions without a complete replica, and the replicas with the greatest log ends.
    pub fn list_longest_replicas(&self) -> Vec<LongestReplica> {
        self.longest_replicas.list()
    }

    /// The ends of this broker's logs, for elections.
    pub(super) fn log_ends(&self) -> &LogEndsSource {
        &self.log_ends
    }

    /// The links, for calls.
    pub(super) fn links(&self) -> &Arc<Links> {
        &self.links
    }

    /// Who this node is and how it dials: for fetchers, which run their connections themselves.
    pub(super) fn dialer(&self) -> (Arc<Identity>, Arc<LinkConfig>) {
        (Arc::clone(&self.identity), Arc::clone(&self.config))
    }

    /// The listener over which brokers are reached.
    pub(super) fn listener(&self) -> &str {
        &self.listener
    }

    /// Whether the link to a node is up.
    pub(super) fn is_connected_with(&self, node: BrokerId) -> bool {
        self.links.get(node).is_some_and(|link| link.peer().is_some())
    }

    /// Whether the connection with a process was there and is not any more, and nothing is known beyond that: it may have ended, or only
    /// the connection.
    pub(crate) fn is_lost(&self, node: BrokerId, process: Uuid) -> bool {
        let is_open = self.links.get(node).is_none_or(|link| link.is_open());
        !is_open && self.watching.was_seen(node, process)
    }

    /// The process behind the link to a node, if the link is up.
    pub(super) fn process_of(&self, node: BrokerId) -> Option<Uuid> {
        Some(self.links.get(node)?.peer()?.hello.incarnation)
    }

    /// The nodes that vote, by the file.
    pub(super) fn voters(&self) -> impl Iterator<Item = BrokerId> {
        self.voters.iter().map(|voter| BrokerId(voter.id))
    }

    /// Voters of the file to which no link is up, as targets.
    pub(super) fn unreached_voters(&self) -> Vec<Target> {
        let others = self.voters().filter(|id| *id != self.me && !self.is_connected_with(*id));
        others.filter_map(|id| Some(self.links.get(id)?.target().clone())).collect()
    }

    /// Address of this node for the other voters, by its own file: `host:port`. `None` if the node does not vote.
    pub(super) fn own_voter_address(&self) -> Option<String> {
        let own = self.voters.iter().find(|voter| voter.id == self.me.0)?;
        Some(format!("{}:{}", own.at.host, own.at.port))
    }

    /// How many voters have their turn before this node when that one has ended.
    pub(super) fn turn_behind(&self, ended: BrokerId) -> u32 {
        let before = |voter: &&Voter| voter.id < self.me.0 && voter.id != ended.0;
        u32::try_from(self.voters.iter().filter(before).count()).unwrap_or(0)
    }

    /// A voter dials every broker that does not vote: to send it metadata, and to see it end.
    pub fn dial_brokers(&self, image: &ClusterImage) {
        if !self.is_voter {
            return;
        }
        let votes = |id: BrokerId| self.voters.iter().any(|voter| voter.id == id.0);
        let mut dialed = self.dialed.lock();
        let mut wanted = std::collections::BTreeMap::new();
        for broker in image.brokers().filter(|broker| !votes(broker.id)) {
            if let Some(endpoint) = broker.endpoint(&self.listener) {
                wanted.insert(broker.id, (endpoint.host.clone(), endpoint.port));
            }
        }
        let observer = self.observer();
        for (id, at) in &wanted {
            if *id != self.me && dialed.get(id) != Some(at) {
                self.dial(*id, &at.0, at.1, &observer);
            }
        }
        for id in dialed.keys().filter(|id| !wanted.contains_key(id)) {
            self.links.remove(*id);
        }
        *dialed = wanted;
    }

    /// Closes every connection.
    pub fn close(&self) {
        self.door.close();
        self.links.nodes().into_iter().for_each(|node| self.links.remove(node));
    }
}

fn hand_on(sink: &FetcherSink) -> TakesFetchers {
    let sink = Arc::clone(sink);
    Arc::new(move |established| {
        // Without a broker that serves the connection is closed; the follower dials again.
        if let Some(take) = &*sink.lock() {
            take(established);
        }
    })
}

fn last_metadata(quorum: &Arc<OnceLock<Arc<Quorum>>>) -> LastMetadata {
    let quorum = Arc::clone(quorum);
    LastMetadata::new(move || -> Option<LogPoint> { quorum.get()?.last_entry() })
}

fn has_entries(quorum: &OnceLock<Arc<Quorum>>) -> bool {
    quorum.get().is_some_and(|quorum| quorum.last_entry().is_some())
}

fn own_generation(
    generation: &Arc<Generation>,
    quorum: &Arc<OnceLock<Arc<Quorum>>>,
) -> QuorumGeneration {
    let (generation, quorum) = (Arc::clone(generation), Arc::clone(quorum));
    QuorumGeneration::new(move || generation.number(has_entries(&quorum)))
}

/// Tells the watch of what becomes of links, and people of what they should know.
struct Watcher {
    watching: Arc<Watching>,
    generation: Arc<Generation>,
    quorum: Arc<OnceLock<Arc<Quorum>>>,
    /// What was reported of a node last, so that it is not reported again and again.
    told: Mutex<std::collections::BTreeMap<BrokerId, String>>,
}

impl Watcher {
    fn new(
        watching: &Arc<Watching>,
        generation: &Arc<Generation>,
        quorum: &Arc<OnceLock<Arc<Quorum>>>,
    ) -> Watcher {
        let (watching, generation) = (Arc::clone(watching), Arc::clone(generation));
        Watcher { watching, generation, quorum: Arc::clone(quorum), told: Mutex::default() }
    }

    /// A node without metadata takes the generation of a node with metadata.
    fn adopt_generation(&self, of_peer: u32) {
        if let Err(cause) = self.generation.adopt(of_peer, has_entries(&self.quorum)) {
            warn!(%cause, "cannot write the generation of the metadata quorum");
        }
    }
}

impl Observer for Watcher {
    fn observe(&self, event: &Event) {
        self.watching.observe(event);
        match event {
            Event::Up { peer } => {
                self.adopt_generation(peer.hello.generation);
                self.told.lock().remove(&peer.hello.node);
                info!(node = %peer.hello.node, address = %peer.address, "connected with another node");
            }
            Event::Ended { peer, ending } => {
                info!(node = %peer.hello.node, address = %peer.address, %ending, "connection with another node ended");
            }
            Event::NotDialed { target, failure, .. } => {
                let words = failure.to_string();
                let Some(node) = target.node else { return };
                if self.told.lock().insert(node, words.clone()).as_ref() != Some(&words) {
                    warn!(%target, reason = words, "cannot connect with another node; it is tried again");
                }
            }
            Event::TurnedAway { address, error } => {
                warn!(%address, reason = %error, "another node was turned away");
            }
        }
    }
}

/// Whether a connection that came in through a listener for clients is another node's. Waits for its first bytes.
pub(crate) async fn is_of_node(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0; 4];
    for _ in 0..FIRST_BYTES_LOOKS {
        stream.readable().await?;
        match stream.peek(&mut first).await? {
            4 => return Ok(::link::is_link(first)),
            0 => return Ok(false),
            // The rest of four bytes is on its way.
            _ => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
    // Whoever drips is served like a client, whose bounds hold for that.
    Ok(false)
}
