//! Accepting connections: one task a listener, one task a connection.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tracing::{debug, warn};

use crate::handlers::Session;
use crate::server::Server;

use super::connection::{Connection, Ending};

/// How long accepting rests after the system refused it, for lack of file descriptors mostly.
const REST_AFTER_FAILURE: Duration = Duration::from_millis(50);
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Opens a listening socket. Port 0 takes a free one.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// How many connections there are, in all and by address.
#[derive(Debug, Default)]
pub struct Connections {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Connections {
    /// Counts one from `address`, unless that is one too many.
    fn enter(&self, address: IpAddr, all_max: usize, by_address_max: usize) -> bool {
        let mut counts = self.counts.lock();
        let here = counts.by_address.get(&address).copied().unwrap_or(0);
        if counts.all >= all_max || here >= by_address_max {
            return false;
        }
        counts.all += 1;
        counts.by_address.insert(address, here + 1);
        true
    }

    fn leave(&self, address: IpAddr) {
        let mut counts = self.counts.lock();
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
    let limits = &server.limits;
    let address = peer.ip().to_canonical();
    let from_here = limits.connections_from(address);
    if !server.connections.enter(address, limits.connections_max, from_here) {
        server.counters.connections_refused.add(1);
        let (all, here) = (limits.connections_max, from_here);
        warn!(
            %peer, max = all, max_of_this_address = here,
            "refused a connection: so many are open already (max.connections, which the limit of \
             open files bounds, or max.connections.per.ip)"
        );
        return;
    }
    server.counters.connections_accepted.add(1);
    let server = Arc::clone(server);
    let listener = Arc::clone(listener);
    let stopping = stopping.clone();
    tokio::spawn(async move {
        let guard = Left { server: Arc::clone(&server), address };
        serve(stream, peer, listener, server, stopping).await;
        drop(guard);
    });
}

/// Counts a connection out, however it ends: a panic of its task costs this connection only.
struct Left {
    server: Arc<Server>,
    address: IpAddr,
}

impl Drop for Left {
    fn drop(&mut self) {
        self.server.connections.leave(self.address);
        self.server.counters.connections_closed.add(1);
    }
}

async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    listener: Arc<str>,
    server: Arc<Server>,
    mut stopping: watch::Receiver<bool>,
) {
    if let Err(error) = configure(&stream, &server) {
        debug!(%peer, %error, "cannot set socket options");
    }
    let local = stream.local_addr().unwrap_or(peer);
    let session = Session::new(peer, local, listener);
    let connection = Connection::new(stream, Arc::clone(&server), session);
    let ending = tokio::select! {
        ending = connection => ending,
        _ = stopping.wait_for(|stopping| *stopping) => return,
    };
    match ending {
        Ending::Closed => {}
        Ending::Broken(error) => debug!(%peer, %error, "connection broke"),
        Ending::Idle => debug!(%peer, "connection was idle for too long"),
        Ending::Refused(_) | Ending::Stalled(_) | Ending::TooOld(_) | Ending::GivenUp => {
            server.counters.connections_broken_off.add(1);
            warn!(%peer, reason = %ending, "connection closed");
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
