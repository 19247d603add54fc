//! Three voters over real links: sockets, Hello, deadlines. Every link goes through a cable that can be cut.

use crate::support::*;
use link::{
    Door, Event, Identity, Link, LinkConfig, Links, Observer, Refusal, Secret, Services, Target,
    service,
};
use model::{BrokerId, Uuid};
use quorum::{LinkTransport, MemberService, Quorum, QuorumConfig};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use storage::disk::SimDisk;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(40);

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

/// Carries bytes from a port of its own to another, unless it is cut.
struct Cable {
    from: SocketAddr,
    is_whole: watch::Sender<bool>,
}

impl Cable {
    async fn to(target: SocketAddr) -> Cable {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let from = listener.local_addr().unwrap();
        let is_whole = watch::Sender::new(true);
        let mut state = is_whole.subscribe();
        tokio::spawn(async move {
            let mut carried = JoinSet::new();
            loop {
                let is_whole = *state.borrow_and_update();
                if !is_whole {
                    carried.shutdown().await;
                }
                tokio::select! {
                    changed = state.changed() => if changed.is_err() { return },
                    accepted = listener.accept() => {
                        let Ok((mut near, _)) = accepted else { continue };
                        if is_whole {
                            carried.spawn(async move {
                                let Ok(mut far) = TcpStream::connect(target).await else { return };
                                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                            });
                        }
                    }
                }
            }
        });
        Cable { from, is_whole }
    }

    fn cut(&self) {
        self.is_whole.send_replace(false);
    }

    fn mend(&self) {
        self.is_whole.send_replace(true);
    }
}

/// Whom a node was refused by, or refused, and why.
#[derive(Default)]
struct Refusals(Mutex<Vec<Refusal>>);

impl Observer for Refusals {
    fn observe(&self, event: &Event) {
        let refused = match event {
            Event::NotDialed { failure, .. } => failure.refusal(),
            Event::TurnedAway { error, .. } => error.refusal(),
            Event::Up { .. } | Event::Ended { .. } => None,
        };
        self.0.lock().unwrap().extend(refused.map(|refused| refused.why));
    }
}

/// What stays of a voter while it is stopped and started: its port, its disk, its cables.
struct Place {
    id: i32,
    listener: Arc<TcpListener>,
    disk: SimDisk,
    secret: &'static str,
    refusals: Arc<Refusals>,
}

/// A voter that runs.
struct Voter {
    quorum: Quorum,
    links: Arc<Links>,
    door: Arc<Door>,
}

struct Cluster {
    places: Vec<Place>,
    /// By who dials and who is dialed.
    cables: BTreeMap<(i32, i32), Cable>,
    voters: BTreeMap<i32, Voter>,
    config: fn(i32) -> QuorumConfig,
}

impl Cluster {
    async fn new(secrets: [&'static str; 3], config: fn(i32) -> QuorumConfig) -> Cluster {
        let mut places = Vec::new();
        for (id, secret) in (1..).zip(secrets) {
            let listener = Arc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
            let (disk, refusals) = (new_disk(), Arc::default());
            places.push(Place { id, listener, disk, secret, refusals });
        }
        let mut cables = BTreeMap::new();
        for (from, to) in pairs() {
            let target = places[to as usize - 1].listener.local_addr().unwrap();
            cables.insert((from, to), Cable::to(target).await);
        }
        let mut cluster = Cluster { places, cables, voters: BTreeMap::new(), config };
        for id in 1..=3 {
            cluster.start(id).await;
        }
        cluster
    }

    fn place(&self, id: i32) -> &Place {
        &self.places[id as usize - 1]
    }

    async fn start(&mut self, id: i32) {
        let place = self.place(id);
        let mut identity = Identity::new(CLUSTER, BrokerId(id), Uuid([id as u8; 16]));
        identity.secret = Secret::new(place.secret);
        let identity = Arc::new(identity);
        // A machine that is busy is patient with itself.
        let config = LinkConfig { hello_timeout: PATIENCE, ..LinkConfig::default() };
        let config = Arc::new(config);
        let observer: Arc<dyn Observer> = Arc::clone(&place.refusals) as _;
        let links = Arc::new(Links::new());
        for ((_, to), cable) in self.cables.iter().filter(|((from, _), _)| *from == id) {
            let (host, port) = (cable.from.ip().to_string(), cable.from.port());
            let target = Target { node: Some(BrokerId(*to)), host, port };
            let (identity, config) = (Arc::clone(&identity), Arc::clone(&config));
            links.put(BrokerId(*to), Link::start(target, identity, config, Arc::clone(&observer)));
        }
        let members = MemberService::new();
        let services = Services::default().with(service::QUORUM, Arc::new(members.clone()));
        let door = Arc::new(Door::new(identity, config, services, observer));
        tokio::spawn(accept(Arc::clone(&door), Arc::clone(&place.listener)));
        let transport = Arc::new(LinkTransport::new(Arc::clone(&links)));
        let quorum = start((self.config)(id), &place.disk, transport).await.unwrap();
        members.answer_by(&quorum);
        self.voters.insert(id, Voter { quorum, links, door });
    }

    /// Stops a voter; its connections end, as when its process does.
    async fn stop(&mut self, id: i32) {
        let voter = self.voters.remove(&id).unwrap();
        voter.door.close();
        for node in voter.links.nodes() {
            voter.links.remove(node);
        }
        within("a stop", voter.quorum.stop()).await.unwrap();
    }

    /// Those of whom `wanted` says so.
    fn nodes(&self, wanted: impl Fn(i32) -> bool) -> Vec<(i32, Quorum)> {
        let wanted = self.voters.iter().filter(|(id, _)| wanted(**id));
        wanted.map(|(id, voter)| (*id, voter.quorum.clone())).collect()
    }

    async fn create(&self, name: &str, number: u64) {
        let nodes = self.nodes(|_| true);
        assert!(there(&within("a decision", ask(&nodes, create(name, number))).await));
    }

    /// Every voter that runs comes to the same image.
    async fn check_agreement(&self) {
        let nodes = self.nodes(|_| true);
        let newest = nodes.iter().filter_map(|(_, node)| node.applied_index()).max().unwrap();
        for (_, node) in &nodes {
            within("all entries", node.wait_applied(newest)).await.unwrap();
        }
        // Somebody may have decided meanwhile; nobody asks any more.
        let digests = || nodes.iter().map(|(_, node)| node.image().digest()).collect::<Vec<_>>();
        within("agreement", async {
            while digests().windows(2).any(|pair| pair[0] != pair[1]) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    async fn stop_all(mut self) {
        for id in self.voters.keys().copied().collect::<Vec<_>>() {
            self.stop(id).await;
        }
    }
}

fn pairs() -> impl Iterator<Item = (i32, i32)> {
    (1..=3).flat_map(|from| (1..=3).map(move |to| (from, to))).filter(|(from, to)| from != to)
}

/// Like [`Door::accept`], for a listener that outlives the door.
async fn accept(door: Arc<Door>, listener: Arc<TcpListener>) {
    let mut serving = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = door.closed() => return,
            accepted = listener.accept() => {
                let (stream, address) = accepted.unwrap();
                serving.spawn(Arc::clone(&door).admit(stream, address));
            }
        }
    }
}

async fn prepare_all(cluster: &Cluster) {
    let nodes = cluster.nodes(|_| true);
    within("a cluster", ask(&nodes, crate::support::cluster())).await;
    within("a broker", ask(&nodes, register(1))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_voters_commit_whichever_link_is_cut() {
    let cluster = Cluster::new(["s"; 3], voter).await;
    prepare_all(&cluster).await;
    for ((from, to), number) in pairs().zip(1..) {
        cluster.cables[&(from, to)].cut();
        cluster.create(&format!("without-{from}-to-{to}"), number).await;
        cluster.cables[&(from, to)].mend();
    }
    cluster.check_agreement().await;
    let image = cluster.voters[&1].quorum.image();
    assert_eq!(image.topic_count(), 6);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_links_end_is_followed_by_another() {
    let mut cluster = Cluster::new(["s"; 3], voter).await;
    prepare_all(&cluster).await;
    let gone = within("a leader", await_leader(&cluster.nodes(|_| true))).await;
    cluster.stop(gone).await;
    cluster.create("after", 1).await;
    assert_ne!(within("a leader", await_leader(&cluster.nodes(|_| true))).await, gone);
    cluster.start(gone).await;
    cluster.check_agreement().await;
    assert!(cluster.voters[&gone].quorum.image().topic("after").is_some());
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_was_away_gets_a_snapshot_in_pieces() {
    let config = |id| QuorumConfig { snapshot_entries: 10, ..voter(id) };
    let mut cluster = Cluster::new(["s"; 3], config).await;
    prepare_all(&cluster).await;
    let leader = within("a leader", await_leader(&cluster.nodes(|_| true))).await;
    let away = if leader == 3 { 2 } else { 3 };
    cluster.stop(away).await;
    // Several megabytes, in entries of 256 KiB.
    let large = metadata::decide::NewTopic {
        name: "large".to_owned(),
        id: Uuid([3; 16]),
        partitions: 12_000,
        replication_factor: 1,
        ..metadata::decide::NewTopic::default()
    };
    let large = metadata::decide::CreateTopics { topics: vec![large], validate_only: false };
    let nodes = cluster.nodes(|_| true);
    let request = metadata::Request::CreateTopics(large);
    assert!(there(&within("a large decision", ask(&nodes, request)).await));
    for number in 0..40 {
        cluster.create(&format!("t{number}"), number).await;
    }
    cluster.start(away).await;
    let mut steps = cluster.voters[&away].quorum.subscribe();
    cluster.check_agreement().await;
    let image = cluster.voters[&away].quorum.image();
    assert_eq!(image.topic_count(), 41);
    assert_eq!(image.topic("large").unwrap().partitions().count(), 12_000);
    assert!(within("a step", steps.next()).await.is_some());
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_with_another_secret_never_joins() {
    let cluster = Cluster::new(["right", "right", "wrong"], voter).await;
    for place in &cluster.places {
        let seen = || place.refusals.0.lock().unwrap().clone();
        within("a refusal", async {
            while seen().is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let seen = seen();
        assert!(seen.iter().all(|why| *why == Refusal::Secret), "node {}: {seen:?}", place.id);
    }
    // A new cluster needs all of its voters, and the others say for whom they wait.
    for id in [1, 2] {
        let waiting = &cluster.voters[&id].quorum;
        let says_so = async {
            while waiting
                .waits_for()
                .is_none_or(|words| !words.contains("nothing was heard of node 3"))
            {
                tokio::task::yield_now().await;
            }
        };
        within("what is waited for", says_so).await;
        assert_eq!((waiting.leader(), waiting.image().cluster_id()), (None, None));
    }
    assert_eq!(cluster.voters[&3].quorum.leader(), None);
    cluster.stop_all().await;
}
