//! The brokers that are known, and the listener of each: the port says which broker is meant. They
//! become known when an answer names them, and their listeners open then.

use crate::connection;
use crate::proxy::Shared;
use crate::rewrite::Addresses;
use model::Uuid;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Which broker a listener leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Any of those that were named to begin with.
    Bootstrap,
    /// The one with this id.
    Node(i32),
}

#[derive(Debug)]
struct Node {
    /// The broker's own address, as `host:port`; it may change, and connections to it look out for
    /// that.
    upstream: watch::Sender<String>,
    /// Where its listener is.
    port: u16,
}

/// The brokers by id.
#[derive(Debug, Default)]
pub struct Nodes(Mutex<BTreeMap<i32, Node>>);

impl Nodes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<i32, Node>> {
        self.0.lock().expect("no code under this lock panics")
    }

    /// The broker's own address, now and later.
    pub fn upstream(&self, node_id: i32) -> Option<watch::Receiver<String>> {
        self.lock().get(&node_id).map(|node| node.upstream.subscribe())
    }

    /// The addresses of all brokers.
    pub fn upstreams(&self) -> Vec<String> {
        self.lock().values().map(|node| node.upstream.borrow().clone()).collect()
    }

    /// The ports by broker.
    pub fn ports(&self) -> BTreeMap<i32, u16> {
        self.lock().iter().map(|(id, node)| (*id, node.port)).collect()
    }
}

/// Puts an IPv6 address in brackets, as it stands in front of a port.
pub fn joined(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl Addresses for Arc<Shared> {
    fn of(&self, node_id: i32, host: &str, port: i32) -> io::Result<(String, i32)> {
        let upstream = joined(host, port);
        let mut nodes = self.nodes.lock();
        if let Some(node) = nodes.get(&node_id) {
            node.upstream.send_if_modified(|known| {
                let moved = *known != upstream;
                if moved {
                    tracing::info!(node_id, from = known, to = upstream, "a broker moved");
                    *known = upstream;
                }
                moved
            });
            return Ok((self.advertised_host.clone(), i32::from(node.port)));
        }
        let listener = listen(self.listen_address, self.port_of(node_id)?)?;
        let port = listener.local_addr()?.port();
        tracing::info!(node_id, upstream, port, "a broker appeared");
        nodes.insert(node_id, Node { upstream: watch::Sender::new(upstream), port });
        tokio::spawn(accept(self.clone(), listener, Target::Node(node_id)));
        Ok((self.advertised_host.clone(), i32::from(port)))
    }

    fn learn_topic(&self, id: Uuid, name: &str) {
        if let Some(faults) = &self.faults {
            faults.topics().learn(id, name);
        }
    }
}

/// Listens at a port; 0 for a free one. Does not wait.
pub fn listen(address: SocketAddr, port: u16) -> io::Result<TcpListener> {
    let at = SocketAddr::new(address.ip(), port);
    let socket = match at {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4(),
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(1024)
}

/// Takes connections until the proxy closes its listeners, or is dropped.
pub async fn accept(shared: Arc<Shared>, listener: TcpListener, target: Target) {
    let mut stop = shared.stop.clone();
    let mut listening = shared.listening.subscribe();
    loop {
        tokio::select! {
            _ = stop.changed() => break,
            () = async { drop(listening.wait_for(|is_listening| !*is_listening).await) } => break,
            accepted = listener.accept() => took(&shared, accepted, target).await,
        }
    }
    // In this order: a stop goes on when the last listener is no longer watching.
    drop(listener);
    drop(listening);
}

/// How long to wait after a connection that could not be taken.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

async fn took(shared: &Arc<Shared>, accepted: io::Result<(TcpStream, SocketAddr)>, target: Target) {
    match accepted {
        Ok((client, peer)) => {
            let Some(memory) = shared.pools.admit(peer.ip()) else {
                shared.counters.client_refused();
                return shared.refusals.say(peer);
            };
            let shared = shared.clone();
            tokio::spawn(async move {
                let mut stop = shared.stop.clone();
                tokio::select! {
                    _ = stop.changed() => {}
                    () = connection::serve(&shared, client, peer, target, &memory) => {}
                }
            });
        }
        Err(error) => {
            shared.counters.client_failed();
            tracing::warn!(%error, "a connection could not be taken");
            // Out of file descriptors, most likely: others must close first.
            tokio::time::sleep(ACCEPT_BACKOFF).await;
        }
    }
}
