//! The broker's shell: sockets, handlers, threads, the real clock. Rules live in the pure rooms; what
//! is here carries bytes and answers between them and the world.
//!
//! Read `network/connection.rs` (how a request is served), `handlers/mod.rs` (what it means), then
//! `start.rs` (what runs where).

mod acting;
mod checking;
mod clock;
mod cluster;
mod committed_end;
mod complaints;
mod counters;
mod descriptors;
mod endpoints;
mod fetch_session;
mod groups;
mod handlers;
mod health;
mod hung_writes;
mod internal_topics;
mod log_ends;
mod log_levels;
mod logs;
mod network;
mod observe;
mod producer_ids;
mod read_log;
mod replicas;
mod roles;
mod server;
mod start;
mod start_error;
pub mod stopped;
pub mod telemetry;
mod topics;
mod vital;

pub use handlers::{Advertised, advertised};
pub use health::HealthSource;
pub use log_levels::{LEVELS, LogLevels, ROOT};
pub use start::{RunningBroker, start};
pub use start_error::{BrokerFailure, StartError};
