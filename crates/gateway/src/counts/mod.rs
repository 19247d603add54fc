//! What the gateway counts of itself, and how it is shown to Prometheus. Where something happens a plain number is bumped;
//! the rest is asked for when somebody looks.

mod requests;
mod shown;

pub(crate) use requests::{Asked, Requests};
pub(crate) use shown::{OfProcess, Shown};

use metrics::{Counter, Level};

/// What is counted of connections and requests; event streams count for themselves.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: Requests,
    /// Connections that carry requests.
    pub(crate) http: Level,
    /// WebSockets.
    pub(crate) sockets: Level,
    /// Connections that were turned away, because as many as may be were open.
    pub(crate) refused: Counter,
    /// Connections that ended before TLS was agreed on.
    pub(crate) failed_handshakes: Counter,
}
