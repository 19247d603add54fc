//! Accepting connections: one task a listener, one task a connection.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use ::link::Established;
use configuration::BrokerConfig;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::cluster::is_of_node;
use crate::handlers::{Session, shown};
use crate::server::Server;

use super::connection::{Connection, Ending};
use super::local_process;

/// Connections beyond `max.connections` and the limits of addresses, for clients on this machine: an operator always
/// gets in.
const RESERVED_MAX: usize = 16;
/// Of these, connections of one process.
const RESERVED_OF_PROCESS_MAX: usize = 4;
/// How long one of these may be idle.
const RESERVED_IDLE_MAX: Duration = Duration::from_secs(30);

/// How long accepting rests after the system refused it, for lack of file descriptors mostly.
const REST_AFTER_FAILURE: Duration = Duration::from_millis(50);
/// What is served to few: metrics and health.
pub const BACKLOG_OF_HTTP: u32 = 64;

/// Opens a listening socket. Port 0 takes a free one; `backlog` connections may wait to be accepted.
pub fn bind(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(backlog)
}

/// How many connections there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In all (`max.connections`).
    all_max: usize,
    /// From one address (`max.connections.per.ip`).
    per_address_max: usize,
    /// From these addresses instead (`max.connections.per.ip.overrides`).
    exceptions: Vec<(IpAddr, usize)>,
}

impl ConnectionLimits {
    /// As configured. Hosts of exceptions are looked up now; one without an address is none.
    /// `descriptors`: connections that the limit of open files leaves room for.
    pub fn new(config: &BrokerConfig, descriptors: usize) -> ConnectionLimits {
        let network = &config.network;
        ConnectionLimits {
            all_max: (network.connections_max as usize)
                .min(descriptors.saturating_sub(RESERVED_MAX)),
            per_address_max: network.connections_per_ip_max as usize,
            exceptions: config
                .connections_per_ip_overrides
                .iter()
                .flat_map(|(host, max)| addresses(host).map(|address| (address, *max as usize)))
                .collect(),
        }
    }

    fn limit_of_address(&self, address: IpAddr) -> usize {
        let exception = self.exceptions.iter().find(|(known, _)| *known == address);
        exception.map_or(self.per_address_max, |(_, max)| *max)
    }
}

/// The addresses of a host; none if it has no name.
fn addresses(host: &str) -> impl Iterator<Item = IpAddr> + use<> {
    let found = (host, 0).to_socket_addrs().map(Vec::from_iter).unwrap_or_default();
    found.into_iter().map(|address| address.ip().to_canonical())
}

/// How many connections there are, in all and by address, and how many there may be.
#[derive(Debug)]
pub struct Connections {
    counts: Mutex<Counts>,
    /// Replaced when the configuration changes; connections above the new limit end themselves.
    limits: watch::Sender<ConnectionLimits>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
    /// Connections of clients on this machine beyond the limits, with their processes as far as known.
    reserved: HashMap<Option<u32>, usize>,
}

impl Connections {
    /// None yet.
    pub fn new(limits: ConnectionLimits) -> Connections {
        Connections { counts: Mutex::default(), limits: watch::Sender::new(limits) }
    }

    /// Obeys other limits from now on. As in Kafka, a lower `max.connections` closes connections
    /// until it holds; a lower limit of an address holds for new ones.
    pub fn set_limits(&self, limits: ConnectionLimits) {
        self.limits.send_if_modified(|now| {
            let is_new = *now != limits;
            *now = limits;
            is_new
        });
    }

    /// Connections that there may be in all, and from this address.
    fn limits_for(&self, address: IpAddr) -> (usize, usize) {
        let limits = self.limits.borrow();
        (limits.all_max, limits.limit_of_address(address))
    }

    /// Counts one from `address`, unless that is one too many.
    fn enter(&self, address: IpAddr) -> bool {
        let limits = self.limits.borrow();
        let mut counts = self.counts.lock();
        let here = counts.by_address.get(&address).copied().unwrap_or(0);
        if counts.all >= limits.all_max || here >= limits.limit_of_address(address) {
            return false;
        }
        counts.all += 1;
        counts.by_address.insert(address, here + 1);
        true
    }

    /// Counts one of the process `of` on this machine, beyond the limits, unless that is one too many. Processes that
    /// are not known count as one.
    fn enter_reserved(&self, of: Option<u32>) -> bool {
        let mut counts = self.counts.lock();
        let all: usize = counts.reserved.values().sum();
        let own = counts.reserved.entry(of).or_default();
        let has_room = all < RESERVED_MAX && *own < RESERVED_OF_PROCESS_MAX;
        *own += usize::from(has_room);
        if *own == 0 {
            counts.reserved.remove(&of);
        }
        has_room
    }

    fn leave_reserved(&self, of: Option<u32>) {
        let mut counts = self.counts.lock();
        if let Some(own) = counts.reserved.get_mut(&of) {
            *own -= 1;
            if *own == 0 {
                counts.reserved.remove(&of);
            }
        }
    }

    /// Whether all connections beyond the limits are taken.
    fn is_reserve_full(&self) -> bool {
        self.counts.lock().reserved.values().sum::<usize>() >= RESERVED_MAX
    }

    /// Counts one from `address` out if there are too many in all. Each connection asks for itself,
    /// so that exactly those above the limit go.
    fn leave_if_above(&self, address: IpAddr, all_max: usize) -> bool {
        let mut counts = self.counts.lock();
        let above = counts.all > all_max;
        if above {
            counts.remove(address);
        }
        above
    }

    fn leave(&self, address: IpAddr) {
        self.counts.lock().remove(address);
    }
}

impl Counts {
    fn remove(&mut self, address: IpAddr) {
        let counts = self;
        counts.all -= 1;
        if let Some(here) = counts.by_address.get_mut(&address) {
            *here -= 1;
            if *here == 0 {
                counts.by_address.remove(&address);
            }
        }
    }
}

/// Accepts until the broker stops.
pub async fn accept(
    listener: TcpListener,
    name: Arc<str>,
    server: Arc<Server>,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => admit(stream, peer, &name, &server, &stopping),
            Err(error) => {
                warn!(listener = %name, %error, "cannot accept a connection");
                tokio::time::sleep(REST_AFTER_FAILURE).await;
            }
        }
    }
}

fn admit(
    stream: TcpStream,
    peer: SocketAddr,
    listener: &Arc<str>,
    server: &Arc<Server>,
    stopping: &watch::Receiver<bool>,
) {
    let address = peer.ip().to_canonical();
    if !server.connections.enter(address) {
        let is_local = address.is_loopback() && !server.connections.is_reserve_full();
        if is_local {
            let (server, stopping) = (Arc::clone(server), stopping.clone());
            tokio::spawn(serve_reserved(stream, peer, Arc::clone(listener), server, stopping));
        } else {
            refuse(peer, server);
        }
        return;
    }
    server.counters.connections_accepted.add(1);
    let server = Arc::clone(server);
    let listener = Arc::clone(listener);
    let stopping = stopping.clone();
    tokio::spawn(async move {
        let mut place = Place { server: Arc::clone(&server), address, counted: true };
        if let Some(links) = server.links.clone() {
            match first_bytes(&stream, &server, stopping.clone()).await {
                Some(true) => {
                    // Its place is for clients.
                    drop(place);
                    return links.admit(stream, peer).await;
                }
                Some(false) => {}
                None => return,
            }
        }
        tokio::select! {
            () = serve(stream, peer, listener, server, stopping) => {}
            () = place.lost() => {
                info!(%peer, "connection closed: max.connections was lowered");
            }
        }
    });
}

fn refuse(peer: SocketAddr, server: &Server) {
    server.counters.connections_refused.add(1);
    let (all, here) = server.connections.limits_for(peer.ip().to_canonical());
    warn!(
        %peer, max = all, max_of_this_address = here,
        "refused a connection: so many are open already (max.connections, which the limit of \
         open files bounds, or max.connections.per.ip)"
    );
}

/// Serves a client on this machine beyond the limits. Other nodes of the cluster are not served so.
async fn serve_reserved(
    stream: TcpStream,
    peer: SocketAddr,
    listener: Arc<str>,
    server: Arc<Server>,
    stopping: watch::Receiver<bool>,
) {
    let process = tokio::task::spawn_blocking(move || local_process::owner_of(peer)).await;
    let process = process.unwrap_or_default();
    if !server.connections.enter_reserved(process) {
        return refuse(peer, &server);
    }
    server.counters.connections_accepted.add(1);
    let _place = ReservedPlace { server: Arc::clone(&server), process };
    if let Err(error) = configure(&stream, &server) {
        debug!(%peer, %error, "cannot set socket options");
    }
    let local = stream.local_addr().unwrap_or(peer);
    let session = Session::new(peer, local, listener);
    let mut connection = Connection::new(stream, Arc::clone(&server), session);
    connection.limit_idle(RESERVED_IDLE_MAX);
    run(connection, peer, &server, stopping).await;
}

/// The place of a connection beyond the limits. Counts the connection out however it ends.
struct ReservedPlace {
    server: Arc<Server>,
    process: Option<u32>,
}

impl Drop for ReservedPlace {
    fn drop(&mut self) {
        self.server.connections.leave_reserved(self.process);
        self.server.counters.connections_closed.add(1);
    }
}

/// Whether another node of the cluster has connected; `None`: nothing came that could tell.
async fn first_bytes(
    stream: &TcpStream,
    server: &Server,
    mut stopping: watch::Receiver<bool>,
) -> Option<bool> {
    tokio::select! {
        biased;
        _ = stopping.wait_for(|stopping| *stopping) => None,
        told = timeout(server.limits.connection_idle_max, is_of_node(stream)) => told.ok()?.ok(),
    }
}

/// Serves another broker, which has said who it is and copies records from now on.
pub async fn serve_broker(
    established: Established,
    server: Arc<Server>,
    stopping: watch::Receiver<bool>,
) {
    let Established { stream, peer } = established;
    let (address, broker) = (peer.address, peer.hello.node);
    let local = stream.local_addr().unwrap_or(address);
    let session = Session::of_broker(broker, address, local);
    run(Connection::new(stream, Arc::clone(&server), session), address, &server, stopping).await;
}

/// A connection's place among those that there may be. Counts the connection out however it ends:
/// a panic of its task costs this connection only.
struct Place {
    server: Arc<Server>,
    address: IpAddr,
    counted: bool,
}

impl Place {
    /// Waits until there are more connections than there may be, and this one has to go.
    async fn lost(&mut self) {
        let mut limits = self.server.connections.limits.subscribe();
        loop {
            let all_max = limits.borrow_and_update().all_max;
            if self.server.connections.leave_if_above(self.address, all_max) {
                self.counted = false;
                return;
            }
            if limits.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.counted {
            self.server.connections.leave(self.address);
        }
        self.server.counters.connections_closed.add(1);
    }
}

async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    listener: Arc<str>,
    server: Arc<Server>,
    stopping: watch::Receiver<bool>,
) {
    if let Err(error) = configure(&stream, &server) {
        debug!(%peer, %error, "cannot set socket options");
    }
    let local = stream.local_addr().unwrap_or(peer);
    let session = Session::new(peer, local, listener);
    run(Connection::new(stream, Arc::clone(&server), session), peer, &server, stopping).await;
}

/// Runs a connection to its end. When the broker stops it answers what was appended first.
async fn run(
    mut connection: Connection,
    peer: SocketAddr,
    server: &Server,
    mut stopping: watch::Receiver<bool>,
) {
    let ended = tokio::select! {
        ending = &mut connection => Some(ending),
        () = async { stopping.wait_for(|stopping| *stopping).await.map_or((), drop) } => None,
    };
    let ending = match ended {
        Some(ending) => ending,
        None => {
            connection.drain();
            // Whoever waits for all to be drained gives up sooner or later.
            connection.await
        }
    };
    match ending {
        Ending::Closed => {}
        Ending::Broken(error) => debug!(%peer, %error, "connection broke"),
        Ending::Idle => debug!(%peer, "connection was idle for too long"),
        Ending::Refused(_)
        | Ending::Stalled(_)
        | Ending::TooOld(_)
        | Ending::GivenUp
        | Ending::Unread => {
            server.counters.connections_broken_off.add(1);
            let reason = ending.to_string();
            warn!(%peer, reason = shown(&reason), "connection closed");
        }
    }
}

fn configure(stream: &TcpStream, server: &Server) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    if let Some(bytes) = server.limits.socket_send_bytes {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = server.limits.socket_receive_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(())
}
