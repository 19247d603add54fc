//! The gateway: HTTP in front of any Kafka cluster. It is a Kafka client like any other, within a broker's process or
//! alone, and keeps nothing that a client would need again.
//!
//! [`Door`] is the socket, [`open`] begins to listen, [`Gateway::stop`] ends that. Of the code, read `front` (who is let
//! in, and how long anything may take), then `request` (what is asked), then `produce` (how records are sent and what
//! is answered), `read` (how they are read), `events` (how they are pushed), `sockets` (the same and more over
//! WebSocket), `groups` (members that records are pushed to) and `instances` (how members of groups read by GET). What is decided by values alone is in
//! the room `serving`.
//!
//! Threads of its own begin with the first connection: a broker whose gateway is not used pays for a socket only.

mod admin;
mod answer;
mod charge;
mod counts;
mod door;
mod events;
mod front;
mod groups;
mod inside;
mod instances;
mod lifetime;
mod openapi;
mod outgoing;
mod pages;
mod produce;
mod read;
pub mod request;
mod service;
mod settings;
mod share_owner;
mod sockets;
mod state;
pub mod who;

pub use door::{BindError, Door};
pub use front::{Tls, TlsError};
pub use inside::Inside;
pub use lifetime::{Gateway, open};
pub use pages::{Making, Pages};
pub use settings::{Access, EventSettings, InstanceSettings, Settings, WRITE_TIMEOUT};
#[doc(hidden)]
pub use sockets::echo;
pub use who::SigningKey;
