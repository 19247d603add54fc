//! The proxy as its caller sees it: configured, started, asked what it has seen, stopped.

use crate::bucket::TokenBucket;
use crate::counters::{Counters, Traffic};
use crate::fault_injection::{FaultInjector, FaultedRecords};
use crate::memory::Pools;
use crate::nodes::{self, Nodes, Target};
use crate::pause::RequestGate;
use crate::refusals::Refusals;
use crate::scout;
use crate::shape::Shape;
use crate::shown::MemoryShown;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// How a proxy is set up.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// The brokers to begin with, each `host:port`.
    pub upstream: Vec<String>,
    /// The host to listen at: a name or an address of this machine.
    pub listen_host: String,
    /// The host that clients are told to connect to; `None` for `listen_host`.
    pub advertised_host: Option<String>,
    /// The port of the bootstrap listener; 0 for a free one.
    pub bootstrap_port: u16,
    /// The port of broker 0's listener, from which those of the others are counted; `None` for
    /// free ones. With fixed ports, proxies of one cluster are interchangeable.
    pub node_start_port: Option<u16>,
    /// What the network between is like.
    pub shape: Shape,
    /// Faults by rule; `None` for a proxy whose rules cannot be changed either.
    pub faults: Option<Arc<FaultInjector>>,
    /// Whether the proxy can pause ([`Proxy::gate`]).
    pub can_pause: bool,
    /// What the jitter is drawn from.
    pub seed: u64,
    /// How long connecting to a broker may take.
    pub connect_timeout: Duration,
    /// The largest frame that is held as a whole, in bytes. Of the frames that need not be, any
    /// size goes through.
    pub held_bytes_max: usize,
    /// Bytes that a delay may keep in memory, for each direction of a connection. To carry a rate
    /// over a delay takes their product.
    pub in_flight_bytes_max: usize,
    /// Connections of clients that may be open at a time. A further one takes the place of an idle connection of the
    /// address that has the most, or is closed at once if its own address has the most.
    pub connections_max: usize,
    /// Bytes that all connections may hold. A connection that needs more waits; the slowest connections are closed
    /// while others wait.
    pub memory_bytes_max: usize,
    /// How long a client may take for its first request, and how long it may send nothing of an incomplete request.
    pub silence_max: Duration,
    /// How often the proxy itself asks the cluster which brokers there are and where, so that a
    /// client may come to a broker's port first; `None`: it learns of brokers from the answers
    /// that it carries, and asks nothing.
    pub asks_every: Option<Duration>,
}

impl ProxyConfig {
    /// In front of these brokers, `host:port` with commas between, at free ports of 127.0.0.1.
    pub fn new(upstream: &str) -> ProxyConfig {
        let addresses = upstream.split(',').map(str::trim).filter(|address| !address.is_empty());
        ProxyConfig {
            upstream: addresses.map(str::to_owned).collect(),
            listen_host: "127.0.0.1".to_owned(),
            advertised_host: None,
            bootstrap_port: 0,
            node_start_port: None,
            shape: Shape::default(),
            faults: None,
            can_pause: false,
            seed: 0,
            connect_timeout: Duration::from_secs(10),
            held_bytes_max: 100 * 1024 * 1024,
            in_flight_bytes_max: 64 * 1024 * 1024,
            connections_max: usize::MAX / 2,
            memory_bytes_max: 256 * 1024 * 1024,
            silence_max: Duration::from_secs(30),
            asks_every: None,
        }
    }
}

/// Why a proxy does not start.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The configuration is at fault.
    #[error("{0}")]
    Usage(&'static str),
    /// It cannot listen.
    #[error("cannot listen at {address}")]
    Listen {
        /// Where.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What all connections of a proxy share.
#[derive(Debug)]
pub(crate) struct Shared {
    upstream: Vec<String>,
    /// Whose turn among them it is.
    turn: AtomicUsize,
    pub(crate) listen_address: SocketAddr,
    pub(crate) advertised_host: String,
    node_start_port: Option<u16>,
    pub(crate) shape: Shape,
    pub(crate) ingress: Option<Arc<Mutex<TokenBucket>>>,
    pub(crate) egress: Option<Arc<Mutex<TokenBucket>>>,
    pub(crate) faults: Option<Arc<FaultInjector>>,
    pub(crate) gate: Option<Arc<RequestGate>>,
    pub(crate) seed: u64,
    pub(crate) connections: AtomicU64,
    pub(crate) connect_timeout: Duration,
    pub(crate) held_bytes_max: usize,
    pub(crate) in_flight_bytes_max: usize,
    pub(crate) nodes: Nodes,
    pub(crate) counters: Arc<Counters>,
    /// Places and memory of connections.
    pub(crate) pools: Pools,
    pub(crate) silence_max: Duration,
    pub(crate) refusals: Refusals,
    /// Rung when a broker was not where it should be.
    pub(crate) doubt: Notify,
    /// Watched by every task that listens; false when none may any more.
    pub(crate) listening: watch::Sender<bool>,
    /// Set when no further request is taken.
    pub(crate) closing: watch::Receiver<bool>,
    /// Changes when the proxy stops, or is dropped.
    pub(crate) stop: watch::Receiver<()>,
}

impl Shared {
    fn new(config: ProxyConfig, listen_address: SocketAddr, ends: &Ends) -> Shared {
        let now = Instant::now();
        let bucket =
            |rate: Option<u64>| rate.map(|rate| Arc::new(Mutex::new(TokenBucket::new(rate, now))));
        Shared {
            upstream: config.upstream,
            turn: AtomicUsize::new(0),
            listen_address,
            advertised_host: config.advertised_host.unwrap_or(config.listen_host),
            node_start_port: config.node_start_port,
            ingress: bucket(config.shape.ingress_bytes_per_second),
            egress: bucket(config.shape.egress_bytes_per_second),
            shape: config.shape,
            faults: config.faults,
            gate: config.can_pause.then(|| Arc::new(RequestGate::new())),
            seed: config.seed,
            connections: AtomicU64::new(0),
            connect_timeout: config.connect_timeout,
            held_bytes_max: config.held_bytes_max,
            in_flight_bytes_max: config.in_flight_bytes_max,
            nodes: Nodes::default(),
            counters: Arc::default(),
            pools: Pools::new(config.connections_max, config.memory_bytes_max),
            silence_max: config.silence_max,
            refusals: Refusals::new(
                "a connection is refused: as many as may be are open (--connections-max), or use all memory \
                 (--memory-max), and no other address has more",
            ),
            doubt: Notify::new(),
            listening: ends.listening.clone(),
            closing: ends.closing.subscribe(),
            stop: ends.stop.subscribe(),
        }
    }

    /// The brokers to begin with, each call from another one on; behind them the others that have
    /// become known: all those that were named may be gone.
    pub(crate) fn bootstrap_turn(&self) -> Vec<String> {
        let mut addresses = self.upstream.clone();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        addresses.rotate_left(turn % self.upstream.len());
        let known = self.nodes.upstreams().into_iter();
        addresses.extend(known.filter(|address| !self.upstream.contains(address)));
        addresses
    }

    /// Waits until nothing further is to be taken.
    pub(crate) async fn closed(&self) {
        drop(self.closing.clone().wait_for(|is_closing| *is_closing).await);
    }

    /// The port for a broker's listener; 0 for a free one.
    pub(crate) fn port_of(&self, node_id: i32) -> io::Result<u16> {
        let Some(start) = self.node_start_port else { return Ok(0) };
        let port = i64::from(start) + i64::from(node_id);
        u16::try_from(port).map_err(|_| {
            io::Error::new(io::ErrorKind::AddrNotAvailable, format!("no port for broker {node_id}"))
        })
    }
}

/// Where to listen, as an address.
async fn lookup(config: &ProxyConfig) -> io::Result<SocketAddr> {
    let place = (config.listen_host.as_str(), config.bootstrap_port);
    let first = tokio::net::lookup_host(place).await?.next();
    first.ok_or_else(|| io::Error::other("an unknown host"))
}

/// What ends the tasks of a proxy.
#[derive(Debug)]
struct Ends {
    /// False: no further connection. Closed when every listener is.
    listening: watch::Sender<bool>,
    /// Set: no further request.
    closing: watch::Sender<bool>,
    /// Changed: everything ends now.
    stop: watch::Sender<()>,
}

impl Ends {
    /// Closes all listeners, and waits until they are closed: a client whose connection ends next
    /// comes again at once, and must be refused rather than taken and cut off.
    async fn close_listeners(&self) {
        self.listening.send_replace(false);
        self.listening.closed().await;
    }
}

/// A proxy that runs. Dropping it ends it and its connections.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    ends: Ends,
    bootstrap: String,
}

impl Proxy {
    /// Starts a proxy in this runtime. No broker need be there yet: each client's connection makes
    /// one.
    pub async fn start(config: ProxyConfig) -> Result<Proxy, ProxyError> {
        if config.upstream.is_empty() {
            return Err(ProxyError::Usage("no broker is named"));
        }
        if let Some(fault) = config.shape.fault() {
            return Err(ProxyError::Usage(fault));
        }
        let address = nodes::joined(&config.listen_host, config.bootstrap_port.into());
        let failed = |source| ProxyError::Listen { address: address.clone(), source };
        let place = lookup(&config).await.map_err(failed)?;
        let listener = nodes::listen(place, place.port()).map_err(failed)?;
        let listen_address = listener.local_addr().map_err(failed)?;
        let ends = Ends {
            listening: watch::Sender::new(true),
            closing: watch::Sender::new(false),
            stop: watch::Sender::new(()),
        };
        let asks_every = config.asks_every;
        let shared = Arc::new(Shared::new(config, listen_address, &ends));
        let bootstrap = nodes::joined(&shared.advertised_host, listen_address.port().into());
        if let Some(every) = asks_every {
            tokio::spawn(scout::run(shared.clone(), every));
        }
        tokio::spawn(nodes::accept(shared.clone(), listener, Target::Bootstrap));
        Ok(Proxy { shared, ends, bootstrap })
    }

    /// Where clients begin, `host:port`.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// The ports of the brokers that are known so far, by id.
    pub fn node_ports(&self) -> BTreeMap<i32, u16> {
        self.shared.nodes.ports()
    }

    /// What went through so far.
    pub fn traffic(&self) -> Traffic {
        self.shared.counters.traffic()
    }

    /// The counters themselves: they outlive the proxy.
    pub fn counters(&self) -> Arc<Counters> {
        self.shared.counters.clone()
    }

    /// Pauses the connections; `None` without [`ProxyConfig::can_pause`].
    pub fn gate(&self) -> Option<Arc<RequestGate>> {
        self.shared.gate.clone()
    }

    /// Memory of all connections, for metrics.
    pub fn memory(&self) -> MemoryShown {
        MemoryShown::new(self.shared.pools.memory())
    }

    /// Records and requests that faults changed so far.
    pub fn faulted_records(&self) -> FaultedRecords {
        self.shared.faults.as_ref().map(|faults| faults.records()).unwrap_or_default()
    }

    /// Ends all listeners and connections, and waits until they have ended.
    pub async fn stop(self) {
        drop(self.shared);
        self.ends.close_listeners().await;
        self.ends.stop.send_replace(());
        self.ends.stop.closed().await;
    }

    /// Ends all listeners, takes no further request, and waits until what was asked before has
    /// been answered, for no longer than `patience`; then ends as [`Proxy::stop`] does.
    pub async fn drain(self, patience: Duration) {
        drop(self.shared);
        self.ends.close_listeners().await;
        self.ends.closing.send_replace(true);
        // Every task that is still there watches this.
        if tokio::time::timeout(patience, self.ends.stop.closed()).await.is_err() {
            tracing::warn!(?patience, "answers were not there in time: their connections are cut");
        }
        self.ends.stop.send_replace(());
        self.ends.stop.closed().await;
    }
}
