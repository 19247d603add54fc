//! The types that openraft is run with here. Nothing outside this crate names one of them.
//!
//! A proposal carries metadata records and the index of the entry that last changed the image it
//! was decided on. Whoever applies it refuses it if the image has changed since: so two leaders,
//! or a leader that has not caught up, can never mix decisions.

use metadata::MetadataRecord;
use model::BrokerId;
use std::fmt;
use std::sync::Arc;

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

/// What one entry of the log says: facts, decided together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proposal {
    /// Index of the entry that made the image it was decided on; `None` for the empty image.
    pub(crate) decided_at: Option<u64>,
    /// Index of the newest entry that the leader had applied when it decided: of all entries up to
    /// there, the one at `decided_at` was the last that changed the image. So an entry says what
    /// became of those before it. `None`: not known, as in entries of version 0.
    pub(crate) applied: Option<u64>,
    /// The facts. Shared: an entry is copied on its way from the proposer to the log. None if it is a part.
    pub(crate) records: Arc<[MetadataRecord]>,
    /// Set if the decision is too large for one entry, and this is a piece of it.
    pub(crate) part: Option<Part>,
}

/// A piece of a decision. Consecutive entries of one leader carry the pieces; the facts are facts when the
/// last of them is applied, all at once. A leader that is lost in between leaves nothing behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Which piece, from 0.
    pub(crate) number: u32,
    /// Whether none follows.
    pub(crate) is_last: bool,
    /// Records as lines, cut anywhere between two characters.
    pub(crate) text: Arc<[u8]>,
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.part {
            None => write!(f, "{} records", self.records.len()),
            Some(part) => write!(f, "part {} of a decision", part.number),
        }
    }
}

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

/// The number under which openraft knows a member: the broker's id, and in the upper half what its folder drew by lot
/// when it was made. A folder that was lost is another member, which has neither voted nor acknowledged anything:
/// under the old number it could vote twice in one term. Folders of a node that votes alone, and those of the first
/// releases, have drawn 0.
pub(crate) fn node_id(broker: BrokerId, lot: u32) -> u64 {
    let broker = u32::try_from(broker.0).expect("a broker's id is not negative");
    (u64::from(lot) << 32) | u64::from(broker)
}

/// Whether a number that a file or a message holds can be a member's.
pub(crate) fn is_node_id(node: u64) -> bool {
    i32::try_from(node as u32).is_ok()
}

/// The broker of a number that [`node_id`] gave.
pub(crate) fn broker_id(node: u64) -> BrokerId {
    BrokerId(i32::try_from(node as u32).expect("only members' numbers are given to openraft"))
}

/// A membership of these voters, all in one configuration, and these learners.
pub(crate) fn membership(configs: Vec<Vec<u64>>, learners: Vec<u64>) -> Membership {
    let configs = configs.into_iter().map(|config| config.into_iter().collect()).collect();
    let learners: std::collections::BTreeSet<u64> = learners.into_iter().collect();
    Membership::new_with_defaults(configs, learners)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_members_number_and_back() {
        for (broker, lot) in [(0, 0), (3, 0), (3, 7), (i32::MAX, u32::MAX)] {
            let node = node_id(BrokerId(broker), lot);
            assert!(is_node_id(node));
            assert_eq!(broker_id(node), BrokerId(broker));
        }
        assert_eq!(node_id(BrokerId(3), 0), 3, "folders of the first releases");
        assert_ne!(node_id(BrokerId(3), 1), node_id(BrokerId(3), 2));
        assert!(!is_node_id(1 << 31) && !is_node_id(u64::MAX));
    }
}
