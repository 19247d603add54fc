//! The connection between brokers.
//!
//! One type of connection for everything that brokers say to each other. The first message both ways is
//! [`Hello`](codec::hello::Hello); who is of another cluster, speaks other versions, has this node's id or
//! another secret is told so and left. Then the side that dialed asks, and the other answers: many calls at
//! once, each with a deadline, everything bounded. A [`Link`] dials again by itself; what becomes of it is
//! told to an [`Observer`] at once, because a controller takes brokers for dead by it.
//!
//! This room does not know what is asked: messages are bytes, and [`service`] has a number for each kind. It
//! decides nothing about the cluster either: it tells.
//!
//! Read `codec/mod.rs` first, then `greeting.rs` (Hello), `calls.rs` and `caller.rs` (asking), `door.rs`
//! (answering).

mod caller;
mod calls;
mod config;
mod dialing;
mod door;
mod ending;
mod events;
mod framed;
mod greeting;
mod identity;
mod links;
mod serving;
mod standing;

pub mod codec;
pub mod service;

pub use caller::{CallError, Link};
pub use codec::frame::{Decline, Declined};
pub use codec::hello::{ANY_GENERATION, Hello, LogPoint, Purpose, Versions, is_link};
pub use codec::proof::Secret;
pub use codec::refusal::{Refusal, Refused};
pub use config::{Jitter, LinkConfig};
pub use dialing::{Target, dial};
pub use door::{Door, Fetchers};
pub use ending::Ending;
pub use events::{DialFailure, Direction, Event, Observer};
pub use greeting::{Established, GreetingError, Peer};
pub use identity::{Identity, LastMetadata, QuorumGeneration};
pub use links::Links;
pub use service::{Answering, Service, Services};
