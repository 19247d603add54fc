//! Starting and stopping a broker: what runs where, and in which order it comes and goes.
//!
//! ```text
//! data runtime      one thread a core: connections, produce, fetch, coordinators of groups
//! control runtime   the caller's: quorum, metadata; waits for no disk
//! http thread       metrics and health, from the beginning of the start on
//! hung-writes       observes writes that hang, and has threads in reserve serve
//! pulse thread      checks that the control and data threads run
//! flusher threads   group commit, for each log directory its own
//! watch thread      has the sockets watched while a data thread syncs
//! chores threads    memory and descriptors; for each log directory its own: checkpoints and free room, retention, the journal
//! cleaner threads   compaction; files thread: closing files in need
//! removal thread    what was deleted
//! ```

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc as channels};
use std::time::Duration;

use arc_swap::ArcSwap;
use configuration::{BrokerConfig, HostPort, Listener};
use metadata::decide::{
    BrokerRef, CreateCluster, FeatureChange, FeatureUpdate, KnownDirectories, RegisterBroker,
    RegisterBroker2, SUPPORTED_FEATURES, UpdateFeatures, features_of_new_cluster,
};
use metadata::record::Endpoint;
use metadata::topic_config::StaticConfigs;
use metadata::{ClusterImage, ControllerSettings, Request, Response};
use metrics::{Source, Sources};
use model::{BrokerEpoch, BrokerId, TopicPartition, Uuid};
use parking_lot::Mutex;
use quorum::{Generation, NoTransport, Quorum, QuorumConfig, QuorumError, Transport};
use serving::health::BrokerHealth;
use storage::disk::{BallastDisk, Disk, EssentialDisk, RealDisk, TimedDisk, hand_over};
use storage::journal::Key;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, watch};
use tracing::{error, info, warn};

use crate::acting::Acting;
use crate::checking::Checking;
use crate::clock::Clock;
use crate::cluster::{
    self, ClusterLinks, Contacts, Controller, Departed, Fetchers, InSync, Refused, Returning,
    SickDisks,
};
use crate::complaints::Complaints;
use crate::counters::Counters;
use crate::endpoints::Endpoints;
use crate::fetch_session::FetchSessions;
use crate::groups::{Groups, group_config};
use crate::health::{self, HealthSource, SharedHealth};
use crate::hung_writes;
use crate::log_ends::LogEnds;
use crate::log_levels::LogLevels;
use crate::logs::chores::Chores;
use crate::logs::cleaner::Cleaner;
use crate::logs::files::Files;
use crate::logs::flusher::{Flusher, SyncObserver};
use crate::logs::removal::Removal;
use crate::logs::{Assigned, Directory, Logs, LogsError, Process};
use crate::network::buffer::BufferPool;
use crate::network::listener::{BACKLOG_OF_HTTP, ConnectionLimits, Connections, accept, bind};
use crate::network::lone::Lone;
use crate::network::memory::RequestMemory;
use crate::network::reserve_threads::ReserveThreads;
use crate::network::unsent::Unsent;
use crate::observe::Observer;
use crate::producer_ids::ProducerIds;
use crate::replicas;
use crate::roles::Roles;
use crate::server::{Limits, Server};
use crate::start_error::{BrokerFailure, StartError, not_a_member};
use crate::telemetry;
use crate::topics::TopicTable;
use crate::vital;

/// How long a stop waits for the answers to what was appended: for their sync, and for clients that
/// read slowly.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// How long a broker that stops tries to tell the controller.
const FENCE_PATIENCE: Duration = Duration::from_millis(500);
/// Connections of other nodes that may wait to be accepted.
const BACKLOG_OF_NODES: u32 = 64;
/// `min.insync.replicas` of a cluster of several nodes whose founder says nothing else.
const MIN_INSYNC_OF_SEVERAL: &str = "2";

/// Where the quorum keeps its log, within a log directory.
pub(crate) const METADATA_DIR: &str = "__cluster_metadata-0";

/// A broker that serves.
pub struct RunningBroker {
    server: Arc<Server>,
    broker_epoch: BrokerEpoch,
    http: Option<SocketAddr>,
    /// What is shown with this broker's metrics.
    beside: Sources,
    /// Ends the thread that checks the control and data threads.
    pulse: channels::Sender<()>,
    /// Ends the thread that observes hung writes.
    hung_writes: channels::Sender<()>,
    stopping: watch::Sender<bool>,
    chores: Chores,
    removal: Removal,
    files: Files,
    cleaner: Cleaner,
    data: DataRuntime,
}

/// Starts a broker. It runs on threads of its own and, for what is not on the data path, on the
/// runtime that this is called on.
pub async fn start(config: BrokerConfig) -> Result<RunningBroker, StartError> {
    quorum::check_regenerated(&RealDisk, &config.metadata_dir.join(METADATA_DIR))?;
    let timed = TimedDisk::new(Arc::new(RealDisk), &config.log_dirs);
    let disk: Arc<dyn Disk> =
        Arc::new(BallastDisk::new(Arc::new(timed.clone()), essential_folders(&config)));
    let data = data_runtime(&config)?;
    let incarnation = Uuid::from_random(fastrand::u128(..).to_be_bytes());
    let (logs, cluster_id) = Logs::open_directories(
        Arc::clone(&disk),
        &config.log_dirs,
        Process { node_id: config.node_id, incarnation },
        config.cluster_id.clone(),
        &config.metadata_dir.join(METADATA_DIR),
        Clock::default().now(),
    )?;
    let logs = Arc::new(logs);
    let sick_disks = Arc::new(SickDisks::new(&timed, &logs));
    let listeners = bind_all(&config, data.handle()).await?;
    let bound: Vec<(Listener, SocketAddr)> =
        listeners.iter().map(|(listener, _, address)| (listener.clone(), *address)).collect();
    let endpoints = Endpoints::new(bound);
    let limits = Limits::new(&config);
    let (counters, health) = (Arc::new(Counters::default()), SharedHealth::default());
    let pulse = health::watch_threads(&health, Handle::current(), data.handle().clone());
    let pulse = pulse.map_err(StartError::Threads)?;
    let (stopping, stopped) = watch::channel(false);
    let beside = Sources::default();
    let observer = Arc::new(Observer::new(&counters, &health));
    let telemetry = telemetry::Telemetry::new(Arc::clone(&observer) as _, beside.clone());
    let http = serve_http(&config, limits.descriptors.http, telemetry, stopped.clone()).await?;
    let disk: Arc<dyn Disk> = Arc::new(EssentialDisk::new(disk));
    let folder = config.metadata_dir.join(METADATA_DIR);
    let generation = Generation::open(Arc::clone(&disk), folder);
    let generation = generation.map_err(|cause| QuorumError::Stopped(cause.to_string()))?;
    let generation = Arc::new(generation);
    let links =
        open_links(&config, &cluster_id, incarnation, &logs, &sick_disks, &generation).await?;
    let transport: Arc<dyn Transport> = match &links {
        Some(links) => Arc::new(links.transport()),
        None => Arc::new(NoTransport),
    };
    let quorum_config = QuorumConfig {
        notes: logs.metadata_notes(),
        generation: Some(generation),
        ..quorum_config(&config, &cluster_id)
    };
    let quorum = Arc::new(Quorum::start(quorum_config, disk, transport).await?);
    let (controller, broker_epoch) = match &links {
        None => {
            logs.settle_mended(|_| false)?;
            let returning = Returning { config: &config, logs: &logs, has_others: false };
            let image = quorum.image();
            returning.check(&image)?;
            // Nobody else has decided anything, and has a replica that could lead instead.
            drop(returning.settle_away(&image)?);
            logs.delete_absent(&quorum.take_deleted_topics(), &image);
            logs.settle(assigned(&quorum, config.node_id))?;
            let register = registration(&config, &logs, &endpoints, &cluster_id, incarnation);
            let epoch = join_cluster(&quorum, &logs, register).await?;
            (Controller::alone(&quorum), epoch)
        }
        Some(links) => {
            links.answer_by(&quorum);
            cluster::start_controller_tasks(&config, &quorum, links);
            let controller = links.controller(&quorum);
            let returning = Returning { config: &config, logs: &logs, has_others: true };
            let mut register = registration(&config, &logs, &endpoints, &cluster_id, incarnation);
            register.register.fenced = true;
            let patience = Duration::from_millis(config.membership.registration_ms_max);
            let joining =
                cluster::join(&quorum, links, &controller, &returning, register, patience);
            let inter_broker = listeners
                .iter()
                .find(|(listener, ..)| listener.name == config.inter_broker_listener);
            let inter_broker = inter_broker.map(|(_, socket, _)| socket);
            let joined = tokio::select! {
                joined = joining => joined?,
                cause = quorum.failed() => return Err(not_a_member(&config, &quorum, cause).await),
                never = links.accept_nodes(inter_broker) => match never {},
            };
            let who = BrokerRef { broker: config.node_id, epoch: joined.epoch };
            let unknown = || cluster::unknown_replicas(&quorum.image(), &logs, config.node_id);
            cluster::tell_at_start(unknown, &controller, who).await?;
            let found = || cluster::found_epochs(&quorum.image(), &logs, config.node_id);
            cluster::tell_at_start(found, &controller, who).await?;
            cluster::settle_mended(&quorum, &controller, &logs, who).await?;
            let deleted = quorum.take_deleted_topics();
            logs.delete_absent(&deleted, &quorum.image());
            logs.settle(assigned(&quorum, config.node_id))?;
            (controller, joined.epoch)
        }
    };
    logs.note_joined(incarnation).map_err(LogsError::from)?;
    logs.raise_levels(&quorum.image());
    logs.settle_copies(&quorum.image(), config.node_id);
    if let Some(note) = quorum.metadata_note() {
        logs.note_metadata(note);
    }
    let who = BrokerRef { broker: config.node_id, epoch: broker_epoch };

    let flusher = start_flusher(&logs, config.log.sync_delay_ms, &counters)?;
    let reserve = ReserveThreads::new(data.handle().clone(), data_threads(&config));
    let hung_writes = hung_writes::watch(Arc::clone(&logs), Arc::clone(&sick_disks), reserve);
    let hung_writes = hung_writes.map_err(StartError::Threads)?;
    let lone = Lone::start(data.handle(), data_threads(&config)).map_err(StartError::Threads)?;
    let clock = Clock::default().behind(logs.last_wall_clock());
    tell_clock(&clock);
    let group_config = coordinator::GroupConfig {
        expiry_from: clock.offsets_kept_until(),
        ..group_config(&config)
    };
    let memory = RequestMemory::new(limits.request_bytes_max, limits.frame_bytes_max)
        .with_groups(config.groups.memory_bytes_max, config.groups.offset_memory_bytes_max);
    let pools = memory.group_pools();
    let groups = Arc::new(Groups::new(group_config, clock.clone(), pools, data.handle().clone()));
    let contacts = Contacts::begin(doubted_after(&config, links.is_some()), clock.moment());
    let (applied_now, applied) = watch::channel(0);
    let (copied_anew, to_copy_anew) = mpsc::unbounded_channel();
    let connection_limits = ConnectionLimits::new(&config, limits.descriptors.connections);
    let server = Arc::new(Server {
        node_id: config.node_id,
        cluster_id: cluster_id.into(),
        memory,
        slow_frames: Arc::default(),
        complaints: Complaints::default(),
        unsent: Unsent::default(),
        limits,
        clock,
        counters,
        buffers: Arc::new(BufferPool::default()),
        connections: Connections::new(connection_limits),
        endpoints,
        topics: TopicTable::default(),
        fetch_sessions: FetchSessions::new(config.fetch.session_slots),
        flusher,
        lone,
        checking: Checking::default(),
        logs,
        contacts,
        acknowledgers: Mutex::default(),
        sick_disks,
        quorum,
        controller,
        links: links.clone(),
        roles: Roles::default(),
        fetchers: Fetchers::default(),
        departed: Departed::new(Duration::from_millis(config.membership.session_ms)),
        in_sync: InSync::default(),
        refused_replicas: Refused::default(),
        copied_anew,
        ended: watch::Sender::new(None),
        stopping: AtomicBool::new(false),
        groups,
        producer_ids: ProducerIds::new(config.node_id, broker_epoch),
        applied,
        acting: Acting::default(),
        health: Arc::clone(&health),
        data: data.handle().clone().into(),
        log_levels: OnceLock::new(),
        log_ends: LogEnds::default(),
        config: ArcSwap::from_pointee(config),
    });
    observer.observe(&server);
    if let Some(links) = &links {
        server.fetchers.begin(&server, links, who);
    }
    tokio::spawn(vital::task(
        "acting upon metadata",
        replicas::run(Arc::clone(&server), applied_now, to_copy_anew),
    ));
    server.applied().await;

    if let Some(links) = &links {
        cluster::begin(&server, links, who, &stopped).await?;
    }
    for (listener, socket, _) in listeners {
        let name: Arc<str> = listener.name.into();
        data.handle().spawn(accept(socket, name, Arc::clone(&server), stopped.clone()));
    }
    if links.is_none() {
        watch_closed_port(&server, stopped).await;
    }
    health::log_voters(&server);
    let chores = Chores::start(&server).map_err(StartError::Threads)?;
    let removal = Removal::start(&server).map_err(StartError::Threads)?;
    let files = Files::start(&server).map_err(StartError::Threads)?;
    let cleaner = Cleaner::start(&server).map_err(StartError::Threads)?;
    health.note_started();
    Ok(RunningBroker {
        server,
        broker_epoch,
        http,
        beside,
        pulse,
        hung_writes,
        stopping,
        chores,
        removal,
        files,
        cleaner,
        data,
    })
}

/// Silence of controllers from which leaderships are in doubt. A broker that is alone is its own controller.
fn doubted_after(config: &BrokerConfig, has_others: bool) -> Option<Duration> {
    let refuses = has_others && config.membership.refuses_in_doubt;
    refuses.then(|| Duration::from_millis(config.membership.session_ms))
}

/// Folders of the journals and of the metadata log, each with the folder of its ballast.
fn essential_folders(config: &BrokerConfig) -> Vec<(PathBuf, PathBuf)> {
    let journals = config.log_dirs.iter().map(|dir| (dir.clone(), dir.clone()));
    let metadata = (config.metadata_dir.join(METADATA_DIR), config.metadata_dir.clone());
    journals.chain([metadata]).collect()
}

fn tell_clock(clock: &Clock) {
    let Some(ahead_ms) = clock.ahead_ms() else { return };
    let hours = ahead_ms / (60 * 60 * 1000);
    warn!(
        hours,
        "the clock is more than a day ahead of the last time that a log directory noted; if the broker was \
         not stopped for so long, set the clock and start again: for ten minutes no records, offsets or producers \
         expire by time"
    );
}

/// The data path's threads. They end in the background: a runtime may not be waited for where
/// futures run, and that is where a start that fails gives it up.
struct DataRuntime(Option<Runtime>);

impl DataRuntime {
    fn handle(&self) -> &Handle {
        self.0.as_ref().expect("it is taken when it is dropped").handle()
    }
}

impl Drop for DataRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// One for each core unless the operator said a number.
fn data_threads(config: &BrokerConfig) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    config.threads.data.unwrap_or_else(cores).max(1)
}

/// Tasks that a data thread polls between two looks at the sockets while it always has tasks. One may take a millisecond:
/// with tokio's 61 a request could wait for 60 ms before its connection is woken.
const EVENT_INTERVAL: u32 = 8;

fn data_runtime(config: &BrokerConfig) -> Result<DataRuntime, StartError> {
    let runtime = Builder::new_multi_thread()
        // As many again are in reserve.
        .worker_threads(2 * data_threads(config))
        .thread_name("data")
        .event_interval(EVENT_INTERVAL)
        .on_thread_start(|| hand_over::register(|wait| tokio::task::block_in_place(wait)))
        .enable_all()
        .build()
        .map_err(StartError::Threads)?;
    Ok(DataRuntime(Some(runtime)))
}

async fn bind_all(
    config: &BrokerConfig,
    data: &Handle,
) -> Result<Vec<(Listener, TcpListener, SocketAddr)>, StartError> {
    // A socket belongs to the runtime that it is registered with.
    let _on_data = data.enter();
    let backlog = u32::try_from(config.network.backlog).unwrap_or(1).max(1);
    let mut sockets = Vec::new();
    for listener in &config.listeners {
        let address = format!("{}:{}", listener.bind.host, listener.bind.port);
        let failed = |source| StartError::Bind { address: address.clone(), source };
        let at = resolve(&listener.bind.host, listener.bind.port).await.map_err(failed)?;
        let socket = bind(at, backlog).map_err(failed)?;
        let bound = socket.local_addr().map_err(failed)?;
        sockets.push((listener.clone(), socket, bound));
    }
    Ok(sockets)
}

/// An empty host is every interface: IPv6 with IPv4, or IPv4 alone where there is no IPv6.
async fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    if host.is_empty() {
        let all: SocketAddr = (std::net::Ipv6Addr::UNSPECIFIED, port).into();
        let works = std::net::TcpListener::bind((std::net::Ipv6Addr::LOCALHOST, 0)).is_ok();
        return Ok(if works { all } else { (std::net::Ipv4Addr::UNSPECIFIED, port).into() });
    }
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut found = tokio::net::lookup_host((host, port)).await?;
    found.next().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
}

fn start_flusher(
    logs: &Arc<Logs>,
    delay_ms: u64,
    counters: &Arc<Counters>,
) -> Result<Flusher, StartError> {
    let queues = logs.directories().map(|directory| Arc::clone(directory.sync_queue())).collect();
    let observer: Arc<dyn SyncObserver> = Arc::clone(logs) as _;
    Flusher::start(queues, delay_ms, counters, &observer).map_err(StartError::Threads)
}

fn quorum_config(config: &BrokerConfig, cluster_id: &str) -> QuorumConfig {
    let dir = config.metadata_dir.join(METADATA_DIR);
    let mut quorum = QuorumConfig::new(config.node_id, cluster_id, dir);
    if !config.voters.is_empty() {
        quorum.voters = config.voters.iter().map(|voter| BrokerId(voter.id)).collect();
    }
    if config.has_other_voters() {
        quorum.lot = fastrand::u32(1..);
    }
    quorum.controller = controller_settings(config);
    quorum
}

/// The connections with the other nodes of a cluster, and the door for them, if there are to be any.
async fn open_links(
    config: &BrokerConfig,
    cluster_id: &str,
    incarnation: Uuid,
    logs: &Logs,
    disks: &Arc<SickDisks>,
    generation: &Arc<Generation>,
) -> Result<Option<Arc<ClusterLinks>>, StartError> {
    if !config.has_other_voters() {
        return Ok(None);
    }
    let directories = logs.directories().map(Directory::id).collect();
    let links = ClusterLinks::open(config, cluster_id, incarnation, directories, disks, generation);
    let links = Arc::new(links);
    if let Some(at) = config.controller_listener.as_ref().filter(|_| config.is_voter()) {
        let address = format!("{}:{}", at.host, at.port);
        let failed = |source| StartError::Bind { address: address.clone(), source };
        let resolved = resolve(&at.host, at.port).await.map_err(failed)?;
        links.accept(bind(resolved, BACKLOG_OF_NODES).map_err(failed)?);
    }
    Ok(Some(links))
}

/// Serves metrics and health where `http.listener` and `metrics.listener` say, on a thread of its own: it answers
/// while the control thread waits for a disk. Returns the address of `http.listener`.
async fn serve_http(
    config: &BrokerConfig,
    connections_max: usize,
    telemetry: telemetry::Telemetry,
    stopped: watch::Receiver<bool>,
) -> Result<Option<SocketAddr>, StartError> {
    let (at, also) = (config.http.bind.clone(), config.http.metrics.clone());
    let mut sockets = Vec::new();
    for (at, may_move) in [(at, !config.http.is_named), (also, false)] {
        sockets.push(match at {
            Some(at) => Some(bind_http(&at, may_move).await?),
            None => None,
        });
    }
    let first = sockets[0].as_ref().and_then(|socket| socket.local_addr().ok());
    let sockets: Vec<_> = sockets
        .into_iter()
        .flatten()
        .map(TcpListener::into_std)
        .collect::<io::Result<_>>()
        .map_err(StartError::Threads)?;
    if sockets.is_empty() {
        return Ok(first);
    }
    let serve_doors = move || {
        // A runtime may not be dropped where futures run.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            // A socket belongs to the runtime that it is registered with.
            let doors = sockets.into_iter().map(|socket| {
                let socket = TcpListener::from_std(socket)?;
                Ok(telemetry::Door::new(socket, connections_max))
            });
            let doors = doors.collect::<io::Result<Vec<_>>>()?;
            telemetry::serve(doors, telemetry, stopped).await
        })
    };
    let thread = std::thread::Builder::new().name("http".to_owned());
    let serve_until_stop = || {
        if let Err(cause) = serve_doors() {
            error!(%cause, "metrics and health are not served any more");
        }
    };
    thread.spawn(serve_until_stop).map_err(StartError::Threads)?;
    Ok(first)
}

/// Reports nodes that connect to this node as to a voter, if its file names a controller listener and no other voter.
async fn watch_closed_port(server: &Arc<Server>, stopped: watch::Receiver<bool>) {
    let Some(at) = server.config().controller_listener.clone() else { return };
    let bound = match resolve(&at.host, at.port).await {
        Ok(address) => bind(address, BACKLOG_OF_NODES),
        Err(cause) => Err(cause),
    };
    match bound {
        Ok(socket) => {
            let watching = health::watch_closed_port(socket, Arc::clone(server), stopped);
            tokio::spawn(watching);
        }
        Err(cause) => warn!(%cause, "cannot listen on the controller port {}:{}", at.host, at.port),
    }
}

/// Listens for HTTP; a port that nobody named and that is taken is left for a free one.
async fn bind_http(at: &HostPort, may_move: bool) -> Result<TcpListener, StartError> {
    let address = format!("{}:{}", at.host, at.port);
    let failed = |source| StartError::BindHttp { address: address.clone(), source };
    let resolved = resolve(&at.host, at.port).await.map_err(failed)?;
    match bind(resolved, BACKLOG_OF_HTTP) {
        Err(cause) if may_move && cause.kind() == io::ErrorKind::AddrInUse => {
            let socket =
                bind(SocketAddr::new(resolved.ip(), 0), BACKLOG_OF_HTTP).map_err(failed)?;
            let moved = socket.local_addr().map_err(failed)?;
            warn!("port {} is taken: metrics and health are at {moved}", at.port);
            Ok(socket)
        }
        bound => bound.map_err(failed),
    }
}

/// Makes the cluster if there is none, and registers this process.
async fn join_cluster(
    quorum: &Quorum,
    logs: &Logs,
    mut register: RegisterBroker2,
) -> Result<BrokerEpoch, StartError> {
    if quorum.image().cluster_id().is_none() {
        let cluster_id = register.register.cluster_id.clone();
        let features = features_of_new_cluster();
        let create = CreateCluster { cluster_id: cluster_id.clone(), features };
        match quorum.propose(Request::CreateCluster(create)).await? {
            Response::CreateCluster(Ok(())) => info!(cluster_id, "made a new cluster"),
            Response::CreateCluster(Err(refusal)) => return Err(StartError::Refused(refusal)),
            other => unreachable!("the answer to another request: {other:?}"),
        }
    }
    finalize_features(quorum).await?;
    let image = quorum.image();
    let last = image.broker(register.register.broker);
    register.directories.instead_of = last.map(|known| known.epoch);
    let register = cluster::build_registration(&image, logs, register);
    match quorum.propose(register).await? {
        Response::RegisterBroker(Ok(epoch)) => Ok(epoch),
        Response::RegisterBroker(Err(refusal)) => Err(StartError::Refused(refusal)),
        other => unreachable!("the answer to another request: {other:?}"),
    }
}

/// What this process says when it registers; whom it follows is not known yet.
fn registration(
    config: &BrokerConfig,
    logs: &Logs,
    endpoints: &Endpoints,
    cluster_id: &str,
    incarnation: Uuid,
) -> RegisterBroker2 {
    let (log_dirs, directories) = logs.known_before().into_iter().unzip();
    let register = RegisterBroker {
        broker: config.node_id,
        incarnation,
        cluster_id: cluster_id.to_owned(),
        endpoints: endpoints.iter().map(registered).collect(),
        rack: config.rack.clone(),
        log_dirs,
        clean: logs.was_clean() || logs.is_new(),
        fenced: false,
        earlier_incarnation_alive: false,
    };
    let directories = KnownDirectories { directories, instead_of: None };
    RegisterBroker2 { register, directories }
}

/// What the metadata wants of this broker, as far as it is known here.
fn assigned(quorum: &Quorum, me: BrokerId) -> Assigned {
    cluster::assigned(&quorum.image(), quorum.changed_at(), me)
}

/// The partitions of which the broker has replicas.
pub(crate) fn partitions_of(
    image: &ClusterImage,
    broker: BrokerId,
) -> BTreeMap<Key, TopicPartition> {
    let mut partitions = BTreeMap::new();
    for topic in image.topics() {
        let replicas = topic.partitions().filter(|(_, state)| state.replicas.contains(&broker));
        for (index, _) in replicas {
            let name = TopicPartition { topic: Arc::clone(&topic.name), partition: index };
            partitions.insert(Key { topic_id: topic.id, partition: index }, name);
        }
    }
    partitions
}

/// Finalizes the features of which the cluster knows nothing: it was made by a version without them.
async fn finalize_features(quorum: &Quorum) -> Result<(), StartError> {
    let image = quorum.image();
    let unknown = SUPPORTED_FEATURES
        .iter()
        .map(|known| (known.name.to_owned(), known.level_max))
        .filter(|(name, _)| !image.features().contains_key(name))
        .map(|(name, level)| FeatureUpdate { name, level, change: FeatureChange::Upgrade });
    let updates: Vec<FeatureUpdate> = unknown.collect();
    if updates.is_empty() || !quorum.is_leader() {
        return Ok(());
    }
    let update = UpdateFeatures { updates, validate_only: false };
    match quorum.propose(Request::UpdateFeatures(update)).await? {
        Response::UpdateFeatures(Ok(())) => Ok(()),
        Response::UpdateFeatures(Err(refusal)) => Err(StartError::Refused(refusal)),
        other => unreachable!("the answer to another request: {other:?}"),
    }
}

fn registered(open: &crate::endpoints::OpenListener) -> Endpoint {
    let host = open.advertised.host.clone();
    Endpoint {
        listener: open.name.to_string(),
        host: host.unwrap_or_else(|| open.bound.ip().to_string()),
        port: open.advertised.port.filter(|port| *port != 0).unwrap_or(open.bound.port()),
        security_protocol: "PLAINTEXT".to_owned(),
    }
}

/// What the file says, for decisions of the controller. A cluster of several nodes whose founder says nothing else
/// acknowledges with `acks=all` only what two replicas have: with one, the loss of the last member of the ISR would leave
/// no eligible leader (KIP-966).
fn agreed_values(config: &BrokerConfig) -> StaticConfigs {
    let mut values = config.configuration.static_values();
    let key = "min.insync.replicas";
    if config.has_other_voters() && config.configuration.explicit(key).is_none() {
        values.insert(key.to_owned(), MIN_INSYNC_OF_SEVERAL.to_owned());
    }
    values
}

/// The controller's own settings.
pub fn controller_settings(config: &BrokerConfig) -> ControllerSettings {
    ControllerSettings {
        partitions_default: config.topics.partitions,
        replication_factor_default: config.topics.replication_factor,
        producer_ids_from: 0,
        generation: 0,
        static_configs: agreed_values(config),
    }
}

impl RunningBroker {
    /// Where clients connect: the real addresses.
    pub fn listeners(&self) -> Vec<SocketAddr> {
        self.server.endpoints.iter().map(|open| open.bound).collect()
    }

    /// Where other brokers connect, and what runs beside this one: the real address of the inter-broker listener.
    pub fn inter_broker(&self) -> SocketAddr {
        let config = self.server.config();
        let of_brokers =
            |open: &&crate::endpoints::OpenListener| *open.name == *config.inter_broker_listener;
        let mut listeners = self.server.endpoints.iter();
        let found = listeners.find(of_brokers).or(self.server.endpoints.iter().next());
        found.expect("a broker has a listener").bound
    }

    /// Connections that a gateway beside this broker may have.
    pub fn gateway_connections(&self) -> usize {
        self.server.limits.descriptors.gateway
    }

    /// Where metrics and health are, if anywhere.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The broker's health.
    pub fn health(&self) -> BrokerHealth {
        health::check(&self.server)
    }

    /// The broker's health for another thread.
    pub fn health_source(&self) -> HealthSource {
        HealthSource::of(&self.server)
    }

    /// Lets operators see and change how much the program reports (KIP-412). Only the first call of a
    /// broker's life counts.
    pub fn set_log_levels(&self, levels: Arc<dyn LogLevels>) {
        let _ = self.server.log_levels.set(levels);
    }

    /// Shows the metrics of something that runs beside this broker with its own.
    pub fn show(&self, source: Arc<dyn Source>) {
        self.beside.add(source);
    }

    /// Waits until this broker cannot go on, and returns the reason: the metadata quorum failed on this node, as when its
    /// disk does, or another process has taken its place. The caller ends the broker then, and starts it again at once if the
    /// failure is [`BrokerFailure::OlderCopy`].
    pub async fn failed(&self) -> BrokerFailure {
        let mut ended = self.server.ended.subscribe();
        let ended = async {
            match ended.wait_for(Option::is_some).await {
                Ok(reason) => reason.clone().unwrap_or_default(),
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            cause = self.server.quorum.failed() => {
                let config = self.server.config();
                match not_a_member(&config, &self.server.quorum, cause).await {
                    StartError::Quorum(QuorumError::OlderCopy(_)) => BrokerFailure::OlderCopy,
                    cause => BrokerFailure::Ended(cause.to_string()),
                }
            }
            reason = ended => BrokerFailure::Ended(reason),
        }
    }

    /// Stops cleanly: takes no more requests, answers what was appended, tells the controller, syncs and
    /// closes the logs, and leaves the marker that saves the next start its recovery.
    pub async fn stop(self) {
        self.stop_within(DRAIN_MAX).await;
    }

    /// As [`RunningBroker::stop`], for whom a stop may take longer: connections have `drain_max` to send their
    /// answers, instead of a second.
    pub async fn stop_within(self, drain_max: Duration) {
        self.server.stopping.store(true, Ordering::Relaxed);
        let leaving = BrokerRef { broker: self.server.node_id, epoch: self.broker_epoch };
        if self.server.config().membership.hands_over {
            cluster::hand_over(&self.server, leaving).await;
        }
        if let Some(links) = &self.server.links {
            links.refuse_fetchers();
        }
        self.stopping.send_replace(true);
        // Each connection holds a receiver until it has sent its answers.
        if tokio::time::timeout(drain_max, self.stopping.closed()).await.is_err() {
            warn!("some connections did not take their answers in time; they are closed");
        }
        drop(self.pulse);
        drop(self.hung_writes);
        drop(self.data);
        let fence = Request::FenceBroker(leaving);
        if let Err(cause) = self.server.controller.decide_within(fence, FENCE_PATIENCE).await {
            warn!(%cause, "could not tell the controller that this broker stops");
        }
        self.server.quorum.hand_over(FENCE_PATIENCE).await;
        self.server.groups.unload_all();
        let server = Arc::clone(&self.server);
        let (mut chores, mut removal) = (self.chores, self.removal);
        let (mut files, mut cleaner) = (self.files, self.cleaner);
        let closing = tokio::task::spawn_blocking(move || {
            chores.stop();
            removal.stop();
            files.stop();
            cleaner.stop();
            server.fetchers.stop();
            server.flusher.stop();
            server.note_metadata();
            server.logs.close(self.broker_epoch, server.now());
        });
        if closing.await.is_err() {
            error!("a bug: closing the logs panicked");
        }
        if let Err(cause) = self.server.quorum.stop().await {
            error!(%cause, "the quorum did not stop cleanly");
        }
        if let Some(links) = &self.server.links {
            links.close();
        }
        // Tasks that still end may hold the server for a moment longer; none of them writes any more.
        self.server.logs.release();
    }
}
