//! The types that openraft is run with here. Nothing outside this crate names one of them.
//!
//! A proposal carries metadata records and the index of the entry that last changed the image it
//! was decided on. Whoever applies it refuses it if the image has changed since: so two leaders,
//! or a leader that has not caught up, can never mix decisions.

use std::fmt;

pub(crate) use ledger::{Proposal, broker_id, is_node_id, node_id};

#[cfg(not(test))]
type Runtime = openraft::impls::TokioRuntime;
/// What the library draws by lot comes from a simulation's seed.
#[cfg(test)]
pub(crate) type Runtime =
    openraft_rt::deterministic_rng::DeterministicRng<openraft::impls::TokioRuntime>;

openraft::declare_raft_types!(
    /// Metadata records between brokers.
    pub(crate) TypeConfig:
        D = Proposal,
        R = Outcome,
        NodeId = u64,
        Node = openraft::EmptyNode,
        AsyncRuntime = Runtime,
);

pub(crate) type LogId = openraft::type_config::alias::LogIdOf<TypeConfig>;
pub(crate) type LeaderId = openraft::type_config::alias::LeaderIdOf<TypeConfig>;
pub(crate) type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
pub(crate) type Entry = openraft::type_config::alias::EntryOf<TypeConfig>;
pub(crate) type Payload = openraft::type_config::alias::PayloadOf<TypeConfig>;
pub(crate) type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type Membership = openraft::Membership<u64, openraft::EmptyNode>;
pub(crate) type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<TypeConfig>;
pub(crate) type Snapshot = openraft::type_config::alias::SnapshotOf<TypeConfig, Vec<u8>>;

/// What became of a proposal that was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its records are facts now, or will be with the parts that follow. Also the outcome of entries that
    /// carry none.
    Applied,
    /// The image had changed since it was decided: nothing of it happened, anywhere.
    Refused,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A membership of these voters, all in one configuration, and these learners.
pub(crate) fn membership(configs: Vec<Vec<u64>>, learners: Vec<u64>) -> Membership {
    let configs = configs.into_iter().map(|config| config.into_iter().collect()).collect();
    let learners: std::collections::BTreeSet<u64> = learners.into_iter().collect();
    Membership::new_with_defaults(configs, learners)
}
