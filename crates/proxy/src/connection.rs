//! One client's connection: a connection to the broker for it, and a pump each way.

use crate::answers::Answers;
use crate::bucket::TokenBucket;
use crate::delay::DelayLine;
use crate::frames::Broken;
use crate::link::Link;
use crate::memory::ConnectionMemory;
use crate::nodes::Target;
use crate::proxy::Shared;
use crate::pump::{Failure, Pump, Tolls};
use crate::requests::Requests;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Bytes on their way that nothing delays: enough to keep a socket busy.
const UNDELAYED_BYTES_MAX: usize = 512 * 1024;

/// Serves a client until it or the broker is gone, or until others need its memory or place.
pub async fn serve(
    shared: &Arc<Shared>,
    client: TcpStream,
    peer: SocketAddr,
    target: Target,
    memory: &ConnectionMemory,
) {
    let _open = shared.counters.client_connected();
    tokio::select! {
        () = memory.revoked() => {
            shared.counters.client_evicted();
            shared.pools.report_eviction(peer);
        }
        () = serve_alone(shared, client, peer, target, memory) => {}
    }
}

/// Waits for the first byte of a client, for no longer than a client may be silent. False if there will be none.
async fn has_begun(shared: &Shared, client: &TcpStream, peer: SocketAddr) -> bool {
    match tokio::time::timeout(shared.silence_max, client.peek(&mut [0])).await {
        Ok(Ok(count)) => count > 0,
        Ok(Err(_)) => {
            shared.counters.client_failed();
            false
        }
        Err(_) => {
            shared.counters.client_failed();
            tracing::debug!(%peer, "a client sent nothing: its connection is closed");
            false
        }
    }
}

async fn serve_alone(
    shared: &Arc<Shared>,
    mut client: TcpStream,
    peer: SocketAddr,
    target: Target,
    memory: &ConnectionMemory,
) {
    // A client that sends nothing takes no connection of the broker.
    let begun = tokio::select! {
        begun = has_begun(shared, &client, peer) => begun,
        () = shared.closed() => return,
    };
    if !begun {
        return;
    }
    let connected = tokio::select! {
        connected = connect(shared, target) => connected,
        () = shared.closed() => return,
    };
    let (mut server, mut place) = match connected {
        Ok(connected) => connected,
        Err(error) => {
            shared.doubt.notify_one();
            shared.counters.server_failed();
            tracing::warn!(%peer, ?target, %error, "no broker can be reached");
            return;
        }
    };
    shared.counters.server_connected();
    let upstream = place.dialled.clone();
    let carried = tokio::select! {
        carried = carry(shared, &mut client, &mut server, &upstream, memory) => carried,
        () = place.left() => {
            tracing::debug!(%peer, ?target, "the broker is elsewhere: its connection is closed");
            return;
        }
    };
    match carried {
        Ok(()) => tracing::debug!(%peer, ?target, "a connection ended"),
        Err((side, error)) => {
            match side {
                Side::Client => shared.counters.client_failed(),
                Side::Server => shared.counters.server_failed(),
            }
            match error {
                // Clients and brokers go away without a word all the time.
                error @ Broken::Silent(_) => {
                    tracing::debug!(%peer, ?target, %error, "a connection is closed")
                }
                Broken::Io(error) => {
                    tracing::debug!(%peer, ?target, ?side, %error, "a socket failed")
                }
                error => tracing::warn!(%peer, ?target, ?side, %error, "a connection broke"),
            }
        }
    }
}

/// Where a connection's broker was found, and where it is now.
struct Place {
    dialled: String,
    /// `None` behind the bootstrap listener: any broker will do there.
    current: Option<watch::Receiver<String>>,
}

impl Place {
    /// Waits until the broker has another address than was dialled. That its partitions' leaders
    /// are elsewhere does not matter: its clients learn of that by answers.
    async fn left(&mut self) {
        if let Some(current) = &mut self.current {
            let left = current.wait_for(|now| *now != self.dialled).await.is_ok();
            if left {
                return;
            }
        }
        std::future::pending().await
    }
}

async fn connect(shared: &Shared, target: Target) -> io::Result<(TcpStream, Place)> {
    match target {
        Target::Bootstrap => connect_to_any(shared).await,
        Target::Node(id) => connect_to(shared, id).await,
    }
}

async fn connect_to_any(shared: &Shared) -> io::Result<(TcpStream, Place)> {
    let mut failed = io::Error::other("no address is known");
    for dialled in shared.bootstrap_turn() {
        match dial(shared, &dialled).await {
            Ok(stream) => return Ok((stream, Place { dialled, current: None })),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Connects to a broker; to its new address, should that change meanwhile.
async fn connect_to(shared: &Shared, node_id: i32) -> io::Result<(TcpStream, Place)> {
    let unknown = || io::Error::other("no address is known");
    let current = shared.nodes.upstream(node_id).ok_or_else(unknown)?;
    loop {
        let dialled = current.borrow().clone();
        let mut place = Place { dialled: dialled.clone(), current: Some(current.clone()) };
        tokio::select! {
            stream = dial(shared, &dialled) => return Ok((stream?, place)),
            () = place.left() => {}
        }
    }
}

async fn dial(shared: &Shared, address: &str) -> io::Result<TcpStream> {
    match tokio::time::timeout(shared.connect_timeout, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(io::Error::new(error.kind(), format!("{address}: {error}"))),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, address.to_owned())),
    }
}

/// Whose bytes or socket ended a connection.
#[derive(Clone, Copy, Debug)]
enum Side {
    Client,
    Server,
}

async fn carry(
    shared: &Arc<Shared>,
    client: &mut TcpStream,
    server: &mut TcpStream,
    upstream: &str,
    memory: &ConnectionMemory,
) -> Result<(), (Side, Broken)> {
    client.set_nodelay(true).map_err(|error| (Side::Client, error.into()))?;
    server.set_nodelay(true).map_err(|error| (Side::Server, error.into()))?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let link = Link::default();
    // Set when the proxy closes and no further request goes to the broker.
    let asked_all = watch::Sender::new(false);
    let faults = shared.faults.as_deref();
    let requests = Requests::new(&link, &shared.counters, shared.held_bytes_max)
        .with_faults(faults, upstream)
        .behind(shared.gate.as_ref());
    let answers = Answers::new(&link, &shared.counters, shared, shared.held_bytes_max)
        .with_faults(faults, upstream);
    let [of_requests, of_answers] = memory.parts();
    let number = shared.connections.fetch_add(1, Ordering::Relaxed);
    let up = Pump::new(
        from_client,
        to_server,
        requests,
        tolls(shared, shared.ingress.clone()),
        line(shared, 2 * number),
        of_requests,
    )
    .impatient(shared.silence_max)
    .paused_by(shared.gate.as_ref().map(|gate| gate.watch()))
    .until(shared.closing.clone());
    let down = Pump::new(
        from_server,
        to_client,
        answers,
        tolls(shared, shared.egress.clone()),
        line(shared, 2 * number + 1),
        of_answers,
    )
    .until(asked_all.subscribe());
    let up = async {
        match up.run().await {
            // The broker will have answered everything before it closes; if it is the proxy that
            // closes, the answers to come are waited for.
            Ok(()) => {
                shared.closed().await;
                asked_all.send_replace(true);
                std::future::pending().await
            }
            Err(Failure::Source(error)) => Err((Side::Client, error)),
            Err(Failure::Sink(error)) => Err((Side::Server, error)),
        }
    };
    let down = async {
        down.run().await.map_err(|failure| match failure {
            Failure::Source(error) => (Side::Server, error),
            Failure::Sink(error) => (Side::Client, error),
        })
    };
    let ended = tokio::select! {
        ended = up => ended,
        ended = down => ended,
    };
    if link.is_reset() {
        // A socket that is gone already needs no reset.
        let _ = rustix::net::sockopt::set_socket_linger(&*client, Some(Duration::ZERO));
    }
    ended
}

fn tolls(shared: &Shared, together: Option<Arc<Mutex<TokenBucket>>>) -> Tolls {
    let rate = shared.shape.stream_bytes_per_second;
    let own = rate.map(|rate| Arc::new(Mutex::new(TokenBucket::new(rate, Instant::now()))));
    Tolls::new(together.into_iter().chain(own))
}

fn line(shared: &Shared, number: u64) -> DelayLine {
    let (delay, jitter) = (shared.shape.one_way(), shared.shape.one_way_jitter());
    let undelayed = delay.is_zero() && jitter.is_zero();
    let capacity = if undelayed { UNDELAYED_BYTES_MAX } else { shared.in_flight_bytes_max };
    DelayLine::new(delay, jitter, capacity, shared.seed.wrapping_add(number))
}
