//! The metadata log's entries, and what the members of its quorum say to each other, as bytes of our own: another release of the
//! library that replicates the log cannot change them, and the simulation reads and writes the same.
//!
//! Nothing here knows who leads, what is committed, or what a decision means: that is the room `quorum`'s.
//!
//! Read [`Entry`], then [`entry`] (its bytes in the log) and [`message`] (those between members).

mod crc64;
pub mod entry;
pub mod message;
pub mod mutants;

use std::fmt;
use std::sync::Arc;

use metadata::MetadataRecord;
use model::BrokerId;

/// Whom a member lets lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The term.
    pub term: u64,
    /// The member that leads in it, or wants to.
    pub node: u64,
    /// Whether a majority has voted so.
    pub committed: bool,
}

/// Where an entry stands in the log. Two entries of one place are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The term in which it was written.
    pub term: u64,
    /// The member that led then.
    pub leader: u64,
    /// Its index, from 0.
    pub index: u64,
}

/// One entry of the metadata log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands.
    pub place: Place,
    /// What it says.
    pub payload: Payload,
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A new leader's first word.
    Blank,
    /// What was decided.
    Proposal(Proposal),
    /// Who belongs to the quorum from here on.
    Members(Members),
}

/// Who the members are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// By configuration: two while one gives way to the other.
    pub voters: Vec<Vec<u64>>,
    /// Those without a vote.
    pub learners: Vec<u64>,
}

impl Members {
    /// Whether `node` is the only member.
    pub fn are_only(&self, node: u64) -> bool {
        self.learners.is_empty() && self.voters.iter().all(|voters| *voters == [node])
    }
}

/// What one entry of the log says: facts, decided together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Index of the entry that made the image it was decided on; `None` for the empty image.
    pub decided_at: Option<u64>,
    /// Index of the newest entry that the leader had applied when it decided: of all entries up to
    /// there, the one at `decided_at` was the last that changed the image. So an entry says what
    /// became of those before it. `None`: not known, as in entries of version 0.
    pub applied: Option<u64>,
    /// The facts. Shared: an entry is copied on its way from the proposer to the log. None if it is a part.
    pub records: Arc<[MetadataRecord]>,
    /// Set if the decision is too large for one entry, and this is a piece of it.
    pub part: Option<Part>,
}

/// A piece of a decision. Consecutive entries of one leader carry the pieces; the facts are facts when the
/// last of them is applied, all at once. A leader that is lost in between leaves nothing behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which piece, from 0.
    pub number: u32,
    /// Whether none follows.
    pub is_last: bool,
    /// Records as lines, cut anywhere between two characters.
    pub text: Arc<[u8]>,
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.part {
            None => write!(f, "{} records", self.records.len()),
            Some(part) => write!(f, "part {} of a decision", part.number),
        }
    }
}

/// The number of a member of the quorum: the broker's id, and in the upper half what its folder drew by lot
/// when it was made. A folder that was lost is another member, which has neither voted nor acknowledged anything:
/// under the old number it could vote twice in one term. Folders of a node that votes alone, and those of the first
/// releases, have drawn 0.
pub fn node_id(broker: BrokerId, lot: u32) -> u64 {
    let broker = u32::try_from(broker.0).expect("a broker's id is not negative");
    (u64::from(lot) << 32) | u64::from(broker)
}

/// Whether a number that a file or a message holds can be a member's.
pub fn is_node_id(node: u64) -> bool {
    i32::try_from(node as u32).is_ok()
}

/// The broker of a number that [`node_id`] gave.
pub fn broker_id(node: u64) -> BrokerId {
    BrokerId(i32::try_from(node as u32).expect("only members' numbers are given to openraft"))
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

    #[test]
    fn one_member_is_told_from_several() {
        let of = |voters: &[&[u64]], learners: &[u64]| {
            let voters = voters.iter().map(|config| config.to_vec()).collect();
            Members { voters, learners: learners.to_vec() }
        };
        assert!(of(&[&[1]], &[]).are_only(1));
        assert!(!of(&[&[1]], &[]).are_only(2));
        assert!(!of(&[&[1]], &[2]).are_only(1));
        assert!(!of(&[&[1], &[1, 2]], &[]).are_only(1));
    }
}
