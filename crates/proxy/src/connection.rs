//! One client's connection: a connection to the broker for it, and a pump each way.

use crate::answers::Answers;
use crate::bucket::TokenBucket;
use crate::delay::DelayLine;
use crate::frames::Broken;
use crate::link::Link;
use crate::mischief::Culprit;
use crate::nodes::Target;
use crate::proxy::Shared;
use crate::pump::{Failure, Pump, Tolls};
use crate::requests::Requests;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::net::TcpStream;

/// Bytes on their way that nothing delays: enough to keep a socket busy.
const UNDELAYED_BYTES_MAX: usize = 512 * 1024;

/// Serves a client until it or the broker is gone.
pub async fn serve(shared: &Arc<Shared>, client: TcpStream, peer: SocketAddr, target: Target) {
    let _open = shared.counters.client_connected();
    let server = match connect(shared, target).await {
        Ok(server) => server,
        Err(error) => {
            shared.counters.server_failed();
            tracing::warn!(%peer, ?target, %error, "no broker can be reached");
            return;
        }
    };
    shared.counters.server_connected();
    match carry(shared, &client, &server).await {
        Ok(()) => tracing::debug!(%peer, ?target, "a connection ended"),
        Err((side, error)) => {
            match side {
                Side::Client => shared.counters.client_failed(),
                Side::Server => shared.counters.server_failed(),
            }
            match error {
                // Clients and brokers go away without a word all the time.
                Broken::Io(error) => {
                    tracing::debug!(%peer, ?target, ?side, %error, "a socket failed")
                }
                error => tracing::warn!(%peer, ?target, ?side, %error, "a connection broke"),
            }
        }
    }
}

async fn connect(shared: &Shared, target: Target) -> io::Result<TcpStream> {
    let candidates = match target {
        Target::Bootstrap => shared.bootstrap_turn(),
        Target::Node(id) => shared.nodes.upstream(id).into_iter().collect(),
    };
    let mut failed = io::Error::other("no address is known");
    for address in candidates {
        let attempt = tokio::time::timeout(shared.connect_timeout, TcpStream::connect(&*address));
        match attempt.await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = io::Error::new(error.kind(), format!("{address}: {error}")),
            Err(_) => failed = io::Error::new(io::ErrorKind::TimedOut, address),
        }
    }
    Err(failed)
}

/// Whose bytes or socket ended a connection.
#[derive(Clone, Copy, Debug)]
enum Side {
    Client,
    Server,
}

async fn carry(
    shared: &Arc<Shared>,
    client: &TcpStream,
    server: &TcpStream,
) -> Result<(), (Side, Broken)> {
    client.set_nodelay(true).map_err(|error| (Side::Client, error.into()))?;
    server.set_nodelay(true).map_err(|error| (Side::Server, error.into()))?;
    let link = Link::default();
    let culprit = shared.mischief.clone().map(Culprit::new);
    let requests = Requests::new(&link, &shared.counters, shared.held_bytes_max, culprit);
    let answers = Answers::new(
        &link,
        &shared.counters,
        shared,
        shared.mischief.as_deref(),
        shared.held_bytes_max,
    );
    let number = shared.connections.fetch_add(1, Ordering::Relaxed);
    let up = Pump::new(
        client,
        server,
        requests,
        tolls(shared, shared.ingress.clone()),
        line(shared, 2 * number),
    );
    let down = Pump::new(
        server,
        client,
        answers,
        tolls(shared, shared.egress.clone()),
        line(shared, 2 * number + 1),
    );
    let up = async {
        match up.run().await {
            // The broker will have answered everything before it closes.
            Ok(()) => std::future::pending().await,
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
    tokio::select! {
        ended = up => ended,
        ended = down => ended,
    }
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
