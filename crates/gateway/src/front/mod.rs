//! Who is let in, and how long anything may take: connections from their first byte to their last.
//!
//! What is sent in a request is parsed by hyper alone, so that nothing can be understood in two ways. A connection that is
//! used for events is handed over when its request was read, and hyper's buffers go.

mod connection;
mod entrants;
mod guest;
mod refusals;
mod tls;
mod transport;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use hyper::header::{HOST, HeaderValue};
use hyper::http::request::Parts;
use serving::forwarded::TrustedProxies;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tracing::debug;

use crate::lifetime::{accept, told_to_stop};
use crate::state::Shared;
use crate::{events, sockets};

use connection::Handed;
pub(crate) use entrants::{Entrants, Limit, Place};
pub(crate) use guest::Pace;
use refusals::Refusals;
pub use tls::{Tls, TlsError};
pub(crate) use transport::Transport;

/// What a connection is used for when the HTTP library has read its last request.
#[derive(Debug)]
pub(crate) enum Handover {
    /// A stream of events.
    Events(events::Opened),
    /// A stream of events for a member of a group.
    Member(Box<events::OpenedMember>),
    /// A WebSocket.
    Socket(sockets::Opened),
}

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(IpAddr);

impl Peer {
    /// Replaces the address of a trusted proxy by that of its client, which the proxy's header names.
    pub(crate) fn see_through(proxies: &TrustedProxies, parts: &mut Parts) {
        let Some(peer) = Peer::of(parts).filter(|peer| proxies.has(*peer)) else { return };
        let values = parts.headers.get_all(proxies.header().name()).iter();
        let client = proxies.client(peer, values.map(HeaderValue::as_bytes));
        parts.extensions.insert(Peer(client));
    }

    /// The address that a request came from; `None` if the system did not tell.
    pub(crate) fn of(parts: &Parts) -> Option<IpAddr> {
        parts.extensions.get().map(|Peer(address)| *address)
    }
}

/// The host that a request names, which was looked at when it came in.
pub(crate) fn host(parts: &Parts) -> &str {
    let said = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    parts.uri.authority().map(|authority| authority.as_str()).or(said).unwrap_or("localhost")
}

/// Serves `first`, then all others that come, until told to stop.
pub(crate) async fn accept_all(
    listener: TcpListener,
    first: TcpStream,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    let of_connections = stopped.clone();
    let mut refusals = Refusals::new(shared.settings.tls.is_some());
    let mut begin = |stream: TcpStream| {
        // Without an address it has ended already.
        let Ok(peer) = stream.peer_addr() else { return };
        // All clients of a proxy come from its address.
        let is_proxy = shared.settings.proxies.has(peer.ip());
        let entered = match shared.entrants.enter(peer.ip(), is_proxy) {
            Ok(entered) => entered,
            Err(limit) => {
                shared.counts.refused.add(1);
                return refusals.begin(refuse(stream, limit, Arc::clone(&shared)));
            }
        };
        let (shared, stopped) = (Arc::clone(&shared), of_connections.clone());
        tokio::spawn(async move {
            let served = {
                let _counted = shared.counts.http.raised();
                match secured(stream, &shared).await {
                    Ok(transport) => {
                        connection::serve(transport, Arc::clone(&shared), stopped.clone()).await
                    }
                    Err(cause) => {
                        debug!(%cause, "a connection to the gateway ended before TLS was agreed on");
                        None
                    }
                }
            };
            let Some(Handed { stream, read, handover }) = served else { return drop(entered) };
            // In a task of its own, which is as small as a reader is: there may be thousands for hours.
            match *handover {
                // What was sent behind the request is never answered: the stream is the last of its connection.
                Handover::Events(opened) => drop(tokio::spawn(async move {
                    events::serve(stream, opened, shared, stopped).await;
                    drop(entered);
                })),
                Handover::Member(opened) => drop(tokio::spawn(async move {
                    events::serve_member(stream, *opened, shared, stopped).await;
                    drop(entered);
                })),
                Handover::Socket(opened) => drop(tokio::spawn(async move {
                    if let Err(cause) = events::tune(stream.tcp()) {
                        debug!(%cause, "a socket keeps the system's own limits");
                    }
                    sockets::serve(stream, read, opened, shared, stopped).await;
                    drop(entered);
                })),
            }
        });
    };
    begin(first);
    loop {
        tokio::select! {
            (stream, _) = accept(&listener) => begin(stream),
            () = told_to_stop(&mut stopped) => return,
        }
    }
}

/// Tells a client that it is one too many, and by which limit.
async fn refuse(stream: TcpStream, limit: Limit, shared: Arc<Shared>) {
    match secured(stream, &shared).await {
        Ok(transport) => connection::refuse(transport, &shared, limit).await,
        Err(cause) => {
            debug!(%cause, "a connection that was refused ended before TLS was agreed on")
        }
    }
}

/// The connection as it is used from now on: under TLS, if there is a certificate.
async fn secured(tcp: TcpStream, shared: &Shared) -> io::Result<Transport> {
    let Some(tls) = &shared.settings.tls else { return Ok(Transport::Plain(tcp)) };
    // An answer of the handshake must not wait for the acknowledgement of the one before.
    let _ = tcp.set_nodelay(true);
    let shaken = tls.accept(tcp, shared.settings.head_timeout).await;
    if shaken.is_err() {
        shared.counts.failed_handshakes.add(1);
    }
    shaken
}
