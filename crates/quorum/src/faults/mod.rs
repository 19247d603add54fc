//! The real library with the real store, many times over: voters on a simulated network and on disks that lose
//! power or are replaced by empty ones, all of it from a seed.
//!
//! One thread, simulated time, simulated disks; what the library draws by lot comes from the seed too. A
//! program of faults runs while clients decide things: messages are lost, late and doubled, ways are cut in
//! one direction or both, disks stall, nodes and whole clusters lose power, snapshots are made and sent all
//! the time, and decisions take several entries. *Always*: one leader a term, logs match, what was applied
//! stays, images are the same at the same index. *At the end*, when everything is mended: a decision is made,
//! all agree, and whatever was acknowledged is there.
//!
//! `QUORUM_SEED=n` runs one seed, `QUORUM_SEEDS=n` so many. See `world.rs` for the network and the oracle.
#![cfg(test)]

mod distant;
mod hung;
mod restored;
pub(crate) mod slow;
mod world;

use crate::config::QuorumConfig;
use crate::quorum::Quorum;
use crate::raft::{Runtime, TypeConfig, node_id};
use fastrand::Rng;
use metadata::decide::{CreateCluster, CreateTopics, NewTopic, RegisterBroker};
use metadata::{Request, Response};
use model::{BrokerId, ErrorCode, Uuid};
use openraft::type_config::TypeConfigExt;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use storage::disk::{Disk, SimDisk};
use storage::journal::MetadataNote;
use tokio::time::{sleep, timeout};
use world::{Shared, Weather, Wire, World, check_logs, watch};

pub(crate) use slow::{is_mutant, plant};

/// A rule that a simulation breaks, to show that it would be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A vote is answered before it is durable.
    VoteBeforeDurable,
    /// Entries are acknowledged before they are durable.
    EntriesBeforeDurable,
    /// The raft task waits until the disk has the entries that it appends.
    AppendWaits,
    /// A leader whose disk hangs keeps the leadership.
    HungLeaderStays,
    /// A leader whose disk hangs transfers the leadership to a voter whose disk may hang as well.
    SharedDiskMoves,
    /// A leader that no majority answers calls itself leader.
    CutOffLeaderLeads,
    /// A false alarm of a cut-off leader doubles no limit.
    FalseAlarmsForgotten,
    /// Time in which the process did not run counts as silence of the majority.
    PausesCount,
    /// A leader ignores that the log of a member lacks entries that the member had acknowledged.
    OlderCopyUnnoticed,
    /// The patience with a member that answers slowly does not grow.
    ConstantPatience,
    /// A start believes a metadata folder although the log directories note more.
    NotesIgnored,
}

const CLUSTER: &str = "AAAAAAAAAAAAAAAAAAAAAA";
/// Faults of one program.
const STEPS: usize = 30;
/// Entries between two snapshots: few, so that there are many.
const SNAPSHOT_ENTRIES: u64 = 25;
/// Clients that decide things meanwhile.
const CLIENTS: u64 = 3;
/// How long anything may take once everything is mended, on the simulated clock.
const LIVENESS: Duration = Duration::from_secs(60);

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
struct Program {
    seed: u64,
    voters: i32,
    /// Whether disks say that they have synced, and have not: the oracle must find that.
    disks_lie: bool,
    losses: Losses,
    /// The rule that the run breaks: the oracle must find that.
    mutant: Option<Mutant>,
    /// Entries between two snapshots.
    snapshot_entries: u64,
}

/// What becomes of folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Losses {
    /// They stay.
    None,
    /// One at a time is lost, and replaced by an empty one: the next one when that has its vote.
    Replaced,
    /// The same, and the new folder takes the number of the old one: the oracle must find that.
    TakenForTheOld,
}

struct Cluster {
    program: Program,
    lots: Rng,
    world: Shared,
    disks: BTreeMap<i32, SimDisk>,
    /// What each folder has drawn.
    lots_of: BTreeMap<i32, u32>,
    /// Notes of each node's log directories about its metadata folder.
    notes: BTreeMap<i32, MetadataNote>,
    /// The node whose folder is new, and has no vote yet.
    replaced: Option<i32>,
    down: BTreeSet<i32>,
}

/// What clients know.
#[derive(Default)]
struct Known {
    acknowledged: Vec<String>,
    /// Answers that rest on an image that had been passed by.
    stale: Vec<String>,
}

fn config(program: Program, node: i32, lot: u32) -> QuorumConfig {
    let dir = PathBuf::from("/data/__cluster_metadata-0");
    QuorumConfig {
        lot,
        voters: (1..=program.voters).map(BrokerId).collect(),
        snapshot_entries: program.snapshot_entries,
        snapshot_bytes: 64 << 10,
        entry_bytes_max: 1500,
        ..QuorumConfig::new(BrokerId(node), CLUSTER, dir)
    }
}

fn new_disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("/data")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

impl Cluster {
    async fn new(program: Program) -> Cluster {
        Cluster::in_weather(program, Weather::FINE).await
    }

    /// A cluster whose network does this from the first start on.
    async fn in_weather(program: Program, weather: Weather) -> Cluster {
        let world = Arc::new(Mutex::new(World::new(program.seed ^ 0x5eed)));
        world.lock().weather = weather;
        let disks = (1..=program.voters).map(|id| (id, new_disk())).collect();
        let lots = Rng::with_seed(program.seed);
        let (lots_of, notes, down) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let mut cluster =
            Cluster { program, lots, world, disks, lots_of, notes, replaced: None, down };
        for id in 1..=program.voters {
            cluster.start(id).await;
        }
        cluster
    }

    /// Starts a node on what its disk holds.
    async fn start(&mut self, id: i32) {
        // A start waits for its disk.
        slow::set_hung(self.member(id), false);
        let start = self.world.lock().next_start();
        let disk = self.disks[&id].clone();
        disk.lie_about_syncs(self.program.disks_lie);
        let wire = Wire { world: Arc::clone(&self.world), node: id, start };
        // The folder keeps what it drew first.
        let lot = self.lots_of.get(&id).copied().unwrap_or_default();
        let notes = self.notes.get(&id).copied().into_iter().collect();
        let config = QuorumConfig { notes, ..config(self.program, id, lot) };
        let started = Quorum::start(config, Arc::new(disk), Arc::new(wire)).await;
        match started {
            Ok(quorum) => {
                self.lots_of.insert(id, (quorum.network().me >> 32) as u32);
                watch(&self.world, id, &quorum);
                self.world.lock().join(id, start, quorum);
                self.down.remove(&id);
            }
            Err(error) => {
                let what = format!("node {id} does not start: {error}");
                self.world.lock().oracle().violations.push(what);
            }
        }
    }

    /// Power fails on a node. What ran goes on without a disk that counts and without the others.
    fn crash(&mut self, id: i32) {
        let Some(quorum) = self.world.lock().leave(id) else { return };
        let after = self.disks[&id].after_crash(self.lots.u64(..));
        self.disks.insert(id, after);
        self.down.insert(id);
        TypeConfig::spawn(async move {
            // It may have failed before, and nobody can ask it any more.
            let _ = quorum.stop().await;
        });
    }

    /// The number of the member that a node's folder is.
    fn member(&self, id: i32) -> u64 {
        node_id(BrokerId(id), self.lots_of.get(&id).copied().unwrap_or_default())
    }

    fn end_hangs(&self) {
        (1..=self.program.voters).for_each(|id| slow::set_hung(self.member(id), false));
    }

    /// A folder is lost with all that is in it, if the majority of the others can do without.
    fn lose(&mut self, id: i32) {
        if self.program.losses == Losses::None || !self.may_lose(id) {
            return;
        }
        self.crash(id);
        self.disks.insert(id, new_disk());
        self.replaced = Some(id);
        if self.program.losses == Losses::Replaced {
            self.lots_of.insert(id, self.lots.u32(..));
        }
    }

    /// One that has no vote yet may be lost again; another one when all have taken that one in.
    fn may_lose(&self, id: i32) -> bool {
        let Some(replaced) = self.replaced.filter(|replaced| *replaced != id) else { return true };
        let lot = self.lots_of.get(&replaced).copied().unwrap_or_default();
        let new = node_id(BrokerId(replaced), lot);
        let up = self.world.lock().up();
        up.len() == self.program.voters as usize
            && up.iter().all(|(_, node)| node.voters_are_settled() && node.votes(new))
    }

    async fn start_some(&mut self) {
        for id in self.down.clone() {
            if self.lots.bool() {
                self.start(id).await;
            }
        }
    }

    fn any_node(&mut self) -> i32 {
        self.lots.i32(1..=self.program.voters)
    }

    /// One fault, or the end of some.
    async fn fault(&mut self) {
        let kinds = if self.program.losses == Losses::None { 14 } else { 17 };
        match self.lots.u8(0..kinds) {
            12 => {
                let node = self.any_node();
                slow::set_hung(self.member(node), true);
            }
            13 => self.end_hangs(),
            14..17 => {
                let node = self.any_node();
                self.lose(node);
                self.start_some().await;
            }
            0 | 1 => {
                let node = self.any_node();
                self.crash(node);
            }
            2 => {
                // All at once: nothing but the disks remembers.
                (1..=self.program.voters).for_each(|node| self.crash(node));
            }
            3..=5 => self.start_some().await,
            6 => {
                let (from, to) = (self.any_node() as u64, self.any_node() as u64);
                self.world.lock().cuts.insert((from, to));
            }
            7 => {
                let node = self.any_node() as u64;
                let others = (1..=self.program.voters as u64).filter(|other| *other != node);
                let both = others.flat_map(|other| [(node, other), (other, node)]);
                self.world.lock().cuts.extend(both);
            }
            8 | 9 => self.world.lock().cuts.clear(),
            10 => {
                let lost = self.lots.u16(0..300);
                let twice = self.lots.u16(0..200);
                let delay_ms = if self.lots.bool() { 20 } else { 250 };
                self.world.lock().weather = Weather { lost, twice, delay_ms, delay_min_ms: 0 };
            }
            _ => self.world.lock().weather = Weather::FINE,
        }
    }

    async fn mend(&mut self) {
        self.end_hangs();
        {
            let mut world = self.world.lock();
            world.cuts.clear();
            world.weather = Weather::FINE;
        }
        for id in self.down.clone() {
            self.start(id).await;
        }
    }

    fn violations(&self) -> Vec<String> {
        self.world.lock().oracle().violations.clone()
    }
}

fn topic(name: &str, number: u64, partitions: i32) -> NewTopic {
    let mut id = [1; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    NewTopic {
        name: name.to_owned(),
        id: Uuid(id),
        partitions,
        replication_factor: 1,
        ..NewTopic::default()
    }
}

fn create(topic: NewTopic, validate_only: bool) -> Request {
    Request::CreateTopics(CreateTopics { topics: vec![topic], validate_only })
}

/// Whether a topic was made; `None` if it was there already.
fn made(response: &Response) -> Option<bool> {
    let Response::CreateTopics(answers) = response else { panic!("another answer: {response:?}") };
    match &answers.first().expect("one was asked for").1 {
        Ok(_) => Some(true),
        Err(refusal) if refusal.error == ErrorCode::TopicAlreadyExists => None,
        Err(_) => Some(false),
    }
}

/// Asks whoever says that it leads, until somebody answers.
async fn ask(world: &Shared, request: &Request) -> Response {
    loop {
        let leaders = world.lock().up().into_iter().filter(|(_, node)| node.is_leader());
        for (_, node) in leaders.collect::<Vec<_>>() {
            if let Ok(Ok(response)) = timeout(LIVENESS / 10, node.propose(request.clone())).await {
                return response;
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Makes topics, and asks whether those are there that were acknowledged to anybody.
async fn client(
    world: Shared,
    known: Arc<Mutex<Known>>,
    number: u64,
    mut lots: Rng,
    done: Arc<AtomicBool>,
) {
    for round in 0.. {
        if done.load(Ordering::Relaxed) {
            return;
        }
        sleep(Duration::from_millis(lots.u64(1..60))).await;
        let nodes = world.lock().up();
        if nodes.is_empty() {
            continue;
        }
        let (_, node) = &nodes[lots.usize(..nodes.len())];
        let earlier = {
            let known = known.lock();
            let at = lots.usize(..known.acknowledged.len().max(1));
            known.acknowledged.get(at).cloned()
        };
        match earlier.filter(|_| lots.u8(..) < 80) {
            // It was there before this was asked: whoever says that it could be made does not know.
            Some(name) => {
                // Of an id that nothing has: a stale image may lack the name.
                let request = create(topic(&name, (1 << 62) | (number << 32) | round, 1), true);
                let asked = timeout(Duration::from_secs(3), node.propose(request)).await;
                if let Ok(Ok(response)) = asked
                    && made(&response) == Some(true)
                {
                    known.lock().stale.push(name);
                }
            }
            None => {
                let name = format!("c{number}-{round}");
                let partitions = if lots.u8(..) < 30 { 40 } else { 1 };
                let id = (number << 32) | round;
                let request = create(topic(&name, id, partitions), false);
                let asked = timeout(Duration::from_secs(3), node.propose(request)).await;
                if let Ok(Ok(response)) = asked
                    && made(&response) == Some(true)
                {
                    known.lock().acknowledged.push(name);
                }
            }
        }
    }
}

/// Has every leader take in the voters as the folders that they have, as the broker does.
async fn take_in(world: Shared, voters: i32) {
    loop {
        sleep(Duration::from_millis(100)).await;
        let leaders = world.lock().up().into_iter().filter(|(_, node)| node.is_leader());
        for (me, node) in leaders.collect::<Vec<_>>() {
            for other in (1..=voters).filter(|other| *other != me) {
                // It is tried again.
                let _ = timeout(Duration::from_secs(3), node.admit(BrokerId(other))).await;
            }
        }
    }
}

/// Makes the cluster and a broker to place topics on.
async fn begin(cluster: &Cluster) {
    let cluster_id = CLUSTER.to_owned();
    let request = CreateCluster { cluster_id, features: Vec::new() };
    ask(&cluster.world, &Request::CreateCluster(request)).await;
    ask(&cluster.world, &Request::RegisterBroker(broker())).await;
}

/// Runs a program; returns what was violated.
async fn run(program: Program) -> Vec<String> {
    slow::simulate(program.seed);
    slow::plant(program.mutant);
    let mut cluster = Cluster::new(program).await;
    let world = Arc::clone(&cluster.world);
    begin(&cluster).await;
    let known: Arc<Mutex<Known>> = Arc::default();
    let done = Arc::new(AtomicBool::new(false));
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let lots = cluster.lots.fork();
        let (world, known, done) = (Arc::clone(&world), Arc::clone(&known), Arc::clone(&done));
        clients.push(TypeConfig::spawn(client(world, known, number, lots, done)));
    }
    let taking_in = (program.losses != Losses::None)
        .then(|| TypeConfig::spawn(take_in(Arc::clone(&world), program.voters)));
    for _ in 0..STEPS {
        cluster.fault().await;
        sleep(Duration::from_millis(cluster.lots.u64(10..500))).await;
        check_logs(&world).await;
    }
    done.store(true, Ordering::Relaxed);
    cluster.mend().await;
    for client in clients {
        if client.await.is_err() {
            world.lock().oracle().violations.push("a client panicked".into());
        }
    }
    if timeout(LIVENESS, settle(&cluster, &known)).await.is_err() {
        let up: Vec<_> = world.lock().up().iter().map(|(id, n)| (*id, n.leader())).collect();
        let what = format!("nothing is decided any more: {up:?}");
        world.lock().oracle().violations.push(what);
    }
    check_logs(&world).await;
    if let Some(taking_in) = taking_in {
        taking_in.abort();
    }
    cluster.violations()
}

/// Decides one more thing, and waits until everybody knows it and everything that was acknowledged.
async fn settle(cluster: &Cluster, known: &Mutex<Known>) {
    let world = &cluster.world;
    ask(world, &create(topic("last", 1 << 60, 1), false)).await;
    let nodes = world.lock().up();
    while !(1..=cluster.program.voters).all(|id| cluster.may_lose(id)) {
        sleep(Duration::from_millis(20)).await;
    }
    let newest = nodes.iter().filter_map(|(_, node)| node.applied_index()).max();
    let newest = newest.expect("something was applied");
    for (id, node) in &nodes {
        if let Err(error) = node.wait_applied(newest).await {
            let what = format!("node {id} has failed: {error}");
            world.lock().oracle().violations.push(what);
            continue;
        }
        let image = node.image();
        let known = known.lock();
        let lost = known.acknowledged.iter().filter(|name| image.topic(name).is_none());
        let what = lost.map(|name| format!("node {id} lost {name}, which was acknowledged"));
        let stale = known.stale.iter().map(|name| format!("{name} was said not to be there"));
        world.lock().oracle().violations.extend(what.chain(stale));
    }
    while !nodes.windows(2).all(|pair| pair[0].1.image().digest() == pair[1].1.image().digest()) {
        sleep(Duration::from_millis(20)).await;
    }
}

fn broker() -> RegisterBroker {
    RegisterBroker {
        broker: BrokerId(1),
        incarnation: Uuid::from_random([7; 16]),
        cluster_id: CLUSTER.to_owned(),
        endpoints: Vec::new(),
        rack: None,
        log_dirs: Vec::new(),
        clean: true,
        fenced: false,
        earlier_incarnation_alive: false,
    }
}

/// Runs a simulation on a thread of its own, with a clock that advances when every task waits.
fn run_paused<T: Send + 'static, F: Future<Output = T>>(
    seed: u64,
    simulation: impl FnOnce() -> F + Send + 'static,
) -> std::thread::Result<T> {
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime needs nothing but memory");
        runtime.block_on(Runtime::scope(seed, simulation()))
    });
    thread.join()
}

/// Runs a program; returns its violations.
fn simulate(program: Program) -> Vec<String> {
    let found = run_paused(program.seed, move || run(program));
    found.unwrap_or_else(|_| vec!["it panicked".into()])
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// The seeds to run.
fn seeds(usually: u64) -> std::ops::Range<u64> {
    match number("QUORUM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("QUORUM_SEEDS").unwrap_or(usually),
    }
}

fn check(voters: i32, losses: Losses, usually: u64) {
    for seed in seeds(usually) {
        let violations = simulate(Program {
            seed,
            voters,
            disks_lie: false,
            losses,
            mutant: None,
            snapshot_entries: SNAPSHOT_ENTRIES,
        });
        assert!(
            violations.is_empty(),
            "QUORUM_SEED={seed}, {voters} voters, {losses:?}: {violations:#?}"
        );
    }
}

#[test]
fn three_voters_keep_their_word_whatever_fails() {
    check(3, Losses::None, 40);
}

#[test]
fn five_voters_keep_their_word_whatever_fails() {
    check(5, Losses::None, 15);
}

#[test]
fn voters_keep_their_word_while_folders_are_lost_one_after_the_other() {
    check(3, Losses::Replaced, 30);
    check(5, Losses::Replaced, 10);
}

/// The oracle is worth something: what breaks the promises is found.
fn is_found(disks_lie: bool, losses: Losses) {
    let program = |seed| Program {
        seed,
        voters: 3,
        disks_lie,
        losses,
        mutant: None,
        snapshot_entries: SNAPSHOT_ENTRIES,
    };
    let found = (0..40).find(|seed| !simulate(program(*seed)).is_empty());
    assert!(found.is_some(), "no seed of forty found it");
}

/// A disk that lies about what it synced.
#[test]
fn a_disk_that_lies_is_found_out() {
    is_found(true, Losses::None);
}

/// A new folder under the number of the lost one votes a second time, and is believed to have what it has not.
#[test]
fn a_new_folder_under_the_number_of_the_lost_one_is_found_out() {
    is_found(false, Losses::TakenForTheOld);
}
