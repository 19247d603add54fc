//! Who is let in, and how long anything may take: connections from their first byte to their last.
//!
//! What is sent in a request is parsed by hyper alone, so that nothing can be understood in two ways. A connection that is
//! used for events is handed over when its request was read, and hyper's buffers go.

mod connection;
mod entrants;
mod guest;

use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tracing::debug;

use crate::lifetime::{accept, told_to_stop};
use crate::state::Shared;
use crate::{events, sockets};

use connection::Handed;
pub(crate) use entrants::Entrants;
pub(crate) use guest::Pace;

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

/// Serves `first`, then all others that come, until told to stop.
pub(crate) async fn accept_all(
    listener: TcpListener,
    first: TcpStream,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    let of_connections = stopped.clone();
    let begin = |stream: TcpStream| {
        let Some(entered) =
            stream.peer_addr().ok().and_then(|peer| shared.entrants.enter(peer.ip()))
        else {
            // Dropped, and so closed.
            return shared.counts.refused.add(1);
        };
        let (shared, stopped) = (Arc::clone(&shared), of_connections.clone());
        tokio::spawn(async move {
            let served = {
                let _counted = shared.counts.http.raised();
                connection::serve(stream, Arc::clone(&shared), stopped.clone()).await
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
                    if let Err(cause) = events::tune(&stream) {
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
