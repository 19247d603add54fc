//! Brokers killed under producers of several client libraries: each kill serves all clients, so that many kills take
//! minutes. Read [`session`] first, then [`producing`] for what a client's program must do. What follows from the
//! acknowledgements is in `experiment::failover`.

mod brokers;
pub mod clients;
mod journal;
mod native;
mod producing;
mod read_back;
pub mod session;
pub mod shared;

pub use experiment::plan::Shape;
pub use experiment::workload::{Kill, Kind, Workload};
