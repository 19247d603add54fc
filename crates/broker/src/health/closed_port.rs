//! The controller port of a node whose `controller.quorum.voters` lists no other node. The node
//! decides alone and accepts no other node there; a node that lists this one as its voter connects
//! all the same. This task closes each such connection and reports its address.

use std::sync::Arc;
use std::time::Duration;

use serving::health::Condition;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::warn;

use crate::cluster::is_of_node;
use crate::server::Server;

/// How long the first bytes of a connection may take.
const FIRST_BYTES_MAX: Duration = Duration::from_secs(1);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts and closes connections until the broker stops.
pub async fn watch_closed_port(
    listener: TcpListener,
    server: Arc<Server>,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            _ = stopped.wait_for(|stopping| *stopping) => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, address)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let is_node = tokio::time::timeout(FIRST_BYTES_MAX, is_of_node(&stream)).await;
        if matches!(is_node, Ok(Ok(true))) {
            let now = server.clock.moment();
            let is_new = server.health.uninvited(now).is_none();
            *server.health.uninvited.lock() = Some((address.to_string(), now));
            if is_new {
                warn!(
                    condition = %Condition::ControllerPortClosed,
                    %address,
                    "another node connects as to a voter, and controller.quorum.voters of this node lists no \
                     other node: the connection is closed"
                );
            }
        }
    }
}
