//! As much of HTTP/1.1 as a load on a gateway needs: a connection with one request under way, event streams, and
//! WebSockets.
//!
//! Read [`Connection`], then [`EventParser`] and [`FrameParser`]. [`Head`] and [`Chunks`] are what all stand on: values that take bytes as
//! they come, without a socket. Not here: load, which is [`load`](crate::load); TLS; anything that a gateway does not send.

mod connection;
mod events;
mod frames;
mod framing;

pub use connection::{Answer, Connection, Reading, WebError};
pub use events::{Event, EventParser};
pub use frames::{FrameParser, Said, opening, write_pong, write_text};
pub use framing::{Chunks, Framing, Head};

/// Why bytes are not what a gateway sends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed {what}")]
pub struct Malformed {
    /// Which part of the answer.
    pub what: &'static str,
}

impl Malformed {
    fn new(what: &'static str) -> Malformed {
        Malformed { what }
    }
}
