//! One connection: its requests one after the other, until it is closed, or the gateway stops, or one of them asks for
//! events or a WebSocket: then the connection is handed over, and is that stream's alone.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tracing::debug;

use super::entrants::Limit;
use super::guest::{EndOfBoth, Guest, Pace};
use super::transport::Transport;
use crate::front::{Handover, Peer};
use crate::lifetime::told_to_stop;
use crate::outgoing::Outgoing;
use crate::service;
use crate::state::Shared;

/// Bytes of a head; a longer one is answered with 431.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes that a connection buffers of what it reads, and of what it writes.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Bytes that are thrown away of what a client sends that was refused; it may have sent a body before it reads.
const DISCARD_BYTES_MAX: usize = 2 << 20;

/// The HTTP library has read a request, and shall not answer it.
#[derive(Debug, thiserror::Error)]
#[error("handed over")]
struct HandedOver;

/// A connection that is to be used otherwise.
pub(super) struct Handed {
    pub(super) stream: Transport,
    /// What the client has sent behind its request already.
    pub(super) read: Bytes,
    pub(super) handover: Box<Handover>,
}

/// Serves it to its end, or until it is to be used otherwise.
pub(super) async fn serve(
    stream: Transport,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) -> Option<Handed> {
    // An answer is one write; a later part of it must not wait for the acknowledgement of the first.
    let _ = stream.tcp().set_nodelay(true);
    let peer = stream.tcp().peer_addr().map(|peer| Peer(peer.ip())).ok();
    let pace = Pace::default();
    let guest = Guest::new(stream, pace.clone(), &shared.settings);
    let handed_over = Arc::<Mutex<Option<Box<Handover>>>>::default();
    let answer = service_fn(|mut request: Request<Incoming>| {
        let (shared, pace) = (Arc::clone(&shared), pace.clone());
        let handed_over = Arc::clone(&handed_over);
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        if service::is_stream(&request) {
            pace.begin_both();
            request.extensions_mut().insert(pace.clone());
        } else {
            pace.begin();
        }
        async move {
            let mut answer = service::answer(&shared, request).await.map_err(|handover| {
                *handed_over.lock().expect("no code under it panics") = Some(handover);
                HandedOver
            });
            let goes_on = |response: &mut Response<Outgoing>| {
                response.body_mut().holds(EndOfBoth(pace.clone()))
            };
            if !answer.as_mut().is_ok_and(goes_on) {
                pace.end();
            }
            answer
        }
    });
    let mut served = builder().serve_connection(TokioIo::new(guest), answer);
    let result = tokio::select! {
        result = &mut served => result,
        () = told_to_stop(&mut stopped) => {
            Pin::new(&mut served).graceful_shutdown();
            (&mut served).await
        }
    };
    if let Some(handover) = handed_over.lock().expect("no code under it panics").take() {
        let parts = served.into_parts();
        let stream = parts.io.into_inner().into_stream();
        return Some(Handed { stream, read: parts.read_buf, handover });
    }
    if let Err(cause) = result {
        debug!(%cause, "a connection to the gateway ended");
    }
    None
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    // The socket looks at the clock.
    builder
        .header_read_timeout(None)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX);
    builder
}

/// Answers the first request that this limit is met, without its body, and closes the connection so that the answer is read.
/// How long that may take is known to whoever calls this.
pub(super) async fn refuse(stream: Transport, shared: &Arc<Shared>, limit: Limit) {
    let _ = stream.tcp().set_nodelay(true);
    let guest = Guest::new(stream, Pace::default(), &shared.settings);
    let answer = service_fn(|request: Request<Incoming>| {
        let answer = service::refuse(shared, request, limit);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut served = builder().keep_alive(false).serve_connection(TokioIo::new(guest), answer);
    if let Err(cause) = (&mut served).await {
        debug!(%cause, "a connection that was refused ended");
    }
    let mut stream = served.into_parts().io.into_inner().into_stream();
    let ended = stream.shutdown().await;
    // What is unread when a socket is closed makes it a reset, and the answer is lost.
    if let Err(cause) = ended.and(discard(stream.tcp()).await) {
        debug!(%cause, "a client that was refused may not have read why");
    }
}

/// Throws away what comes, until the other side ends or that is too much.
async fn discard(tcp: &TcpStream) -> io::Result<()> {
    let mut bytes = 0;
    let mut buffer = [0; 4096];
    while bytes < DISCARD_BYTES_MAX {
        tcp.readable().await?;
        match tcp.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => bytes += read,
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}
