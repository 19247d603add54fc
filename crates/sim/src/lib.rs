//! A whole broker in one thread and from one seed: the rooms that a real broker is made of, on a
//! simulated disk, with a simulated clock, network, producers and consumers.
//!
//! What the shells do with threads, sockets and the wall clock, [`World`] does with one queue of
//! events: whoever would wait puts an event there. All choices come out of the seed, so a run can be
//! repeated exactly; [`Outcome::trace`] is a digest of everything that happened.
//!
//! What must hold has a name: [`Invariant`]. Not here: the wire format of clients, threads (a
//! race between two of them is found elsewhere). Read `world.rs`, then `history.rs`; several brokers are in `cluster/`.

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
mod syncs;
mod trace;
mod world;

pub use cluster::{Cluster, ClusterPlan};
pub use invariant::{Invariant, Violation};
pub use plan::Plan;
pub use world::{Outcome, World};

/// A rule left out, in one of the rooms whose rules the simulation of several brokers proves.
#[cfg(debug_assertions)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Of one replica.
    Replication(replication::mutants::Mutant),
    /// Of the controller's decisions.
    Metadata(metadata::mutants::Mutant),
    /// Of what brokers say to each other.
    Node(node::mutants::Mutant),
    /// Of what the members of the quorum say to each other.
    Ledger(ledger::mutants::Mutant),
    /// Of one partition of a broker.
    Partition(partition::mutants::Mutant),
}

#[cfg(debug_assertions)]
impl Mutant {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Mutant> {
        let replication = replication::mutants::Mutant::ALL.into_iter().map(Mutant::Replication);
        let metadata = metadata::mutants::Mutant::ALL.into_iter().map(Mutant::Metadata);
        let node = node::mutants::Mutant::ALL.into_iter().map(Mutant::Node);
        let sickness = node::mutants::Mutant::OF_SICKNESS.into_iter().map(Mutant::Node);
        let refusal = replication::mutants::Mutant::OF_SICKNESS.map(Mutant::Replication);
        let relief = Mutant::Metadata(metadata::mutants::Mutant::RelievesToAnyReplica);
        let ledger = ledger::mutants::Mutant::ALL.into_iter().map(Mutant::Ledger);
        let partition = partition::mutants::Mutant::ALL.into_iter().map(Mutant::Partition);
        replication
            .chain(metadata)
            .chain(node)
            .chain(ledger)
            .chain(partition)
            .chain(sickness)
            .chain(refusal)
            .chain([relief])
    }

    /// Whether runs with a lasting fault find it, and no others.
    fn is_of_sickness(self) -> bool {
        match self {
            Mutant::Node(mutant) => node::mutants::Mutant::OF_SICKNESS.contains(&mutant),
            Mutant::Metadata(mutant) => metadata::mutants::Mutant::OF_RELIEF.contains(&mutant),
            Mutant::Replication(mutant) => {
                replication::mutants::Mutant::OF_SICKNESS.contains(&mutant)
            }
            Mutant::Ledger(_) | Mutant::Partition(_) => false,
        }
    }

    /// Its name.
    pub fn name(self) -> String {
        match self {
            Mutant::Replication(mutant) => format!("{mutant:?}"),
            Mutant::Metadata(mutant) => format!("{mutant:?}"),
            Mutant::Node(mutant) => format!("{mutant:?}"),
            Mutant::Ledger(mutant) => format!("{mutant:?}"),
            Mutant::Partition(mutant) => format!("{mutant:?}"),
        }
    }
}

/// Plants a fault on this thread, or none.
#[cfg(debug_assertions)]
fn plant(mutant: Option<Mutant>) {
    let (mut of_replication, mut of_metadata) = (None, None);
    let (mut of_node, mut of_ledger, mut of_partition) = (None, None, None);
    match mutant {
        Some(Mutant::Replication(mutant)) => of_replication = Some(mutant),
        Some(Mutant::Metadata(mutant)) => of_metadata = Some(mutant),
        Some(Mutant::Node(mutant)) => of_node = Some(mutant),
        Some(Mutant::Ledger(mutant)) => of_ledger = Some(mutant),
        Some(Mutant::Partition(mutant)) => of_partition = Some(mutant),
        None => {}
    }
    replication::mutants::plant(of_replication);
    metadata::mutants::plant(of_metadata);
    node::mutants::plant(of_node);
    ledger::mutants::plant(of_ledger);
    partition::mutants::plant(of_partition);
}

/// How the simulation of several brokers of this seed finds a rule left out, if it does.
#[cfg(debug_assertions)]
pub fn find_planted(mutant: Mutant, seed: u64) -> Option<String> {
    plant(Some(mutant));
    // What an assertion finds is found.
    let run = if mutant.is_of_sickness() { run_sick } else { run_cluster };
    let found = match std::panic::catch_unwind(|| run(seed, false)) {
        Ok(outcome) => outcome.violation.map(|violation| violation.to_string()),
        Err(_) => Some("an assertion".to_owned()),
    };
    plant(None);
    found
}

/// Runs the simulation of several brokers of this seed to its end.
pub fn run_cluster(seed: u64, verbose: bool) -> Outcome {
    Cluster::new(seed, verbose).run()
}

/// Runs the simulation of several brokers of this seed in which one fault lasts: a sick disk, a silent broker or a quorum
/// that is down.
pub fn run_sick(seed: u64, verbose: bool) -> Outcome {
    Cluster::sick(seed, verbose).run()
}

/// Runs the simulation of this seed to its end. `verbose` prints every event.
pub fn run(seed: u64, verbose: bool) -> Outcome {
    World::new(seed, verbose).run()
}
