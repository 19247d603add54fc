//! A whole broker in one thread and from one seed: the rooms that a real broker is made of, on a
//! simulated disk, with a simulated clock, network, producers and consumers.
//!
//! What the shells do with threads, sockets and the wall clock, [`World`] does with one queue of
//! events: whoever would wait puts an event there. All choices come out of the seed, so a run can be
//! repeated exactly; [`Outcome::trace`] is a digest of everything that happened.
//!
//! What must hold has a name: [`Invariant`]. Not here: several brokers, the wire format, threads (a
//! race between two of them is found elsewhere). Read `world.rs`, then `history.rs`.

mod broker;
mod cluster;
mod consumer;
mod controller;
mod groups;
mod history;
mod invariant;
mod machine;
mod message;
mod network;
mod plan;
mod producer;
mod start;
mod trace;
mod world;

pub use cluster::{Cluster, ClusterPlan};
pub use invariant::{Invariant, Violation};
pub use plan::Plan;
pub use world::{Outcome, World};

#[cfg(debug_assertions)]
pub use replication::mutants::{Mutant, plant};

/// Runs the simulation of several brokers of this seed to its end.
pub fn run_cluster(seed: u64, verbose: bool) -> Outcome {
    Cluster::new(seed, verbose).run()
}

/// Runs the simulation of this seed to its end. `verbose` prints every event.
pub fn run(seed: u64, verbose: bool) -> Outcome {
    World::new(seed, verbose).run()
}
