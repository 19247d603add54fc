//! What this node knows of the quorum right now, for tools and people. No decision rests on it: the
//! leader's view of a follower is as old as the follower's last answer.

use crate::quorum::Quorum;
use crate::raft::broker_id;
use model::{BrokerId, Offset};
use openraft::Instant;
use openraft::async_runtime::watch::WatchReceiver;
use std::time::Duration;

/// The quorum as its leader sees it. Offsets are those of the metadata log: the index of an entry is the
/// offset of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumDescription {
    /// The leader's epoch (its raft term).
    pub leader_epoch: i32,
    /// Entries below this offset are committed.
    pub high_watermark: Offset,
    /// Members that vote, the leader among them.
    pub voters: Vec<MemberDescription>,
    /// Members that receive everything and do not vote.
    pub observers: Vec<MemberDescription>,
}

/// Where this node stands in the quorum, whether it leads or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuorumStanding {
    /// Who leads, as far as this node knows.
    pub leader: Option<BrokerId>,
    /// The newest leader epoch (raft term) that it knows.
    pub leader_epoch: u64,
    /// The offset behind the last entry in its log.
    pub log_end: Offset,
    /// Entries below this offset are applied here.
    pub applied_end: Offset,
}

/// One member's place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberDescription {
    /// Which member.
    pub node: BrokerId,
    /// The offset behind the last entry that is known to be in its log.
    pub log_end: Offset,
    /// How long ago it was last heard of; zero for the leader itself, `None` if never.
    pub heard_ago: Option<Duration>,
    /// Whether its log held everything when it was last heard of.
    pub caught_up: bool,
}

/// The offset behind an entry.
fn behind(index: Option<u64>) -> Offset {
    Offset(index.map_or(0, |index| index as i64 + 1))
}

impl Quorum {
    /// Where this node stands.
    pub fn standing(&self) -> QuorumStanding {
        let (applied, leader) = (self.applied_index(), self.leader());
        let watched = self.raft().metrics();
        let metrics = watched.borrow_watched();
        QuorumStanding {
            leader,
            leader_epoch: metrics.current_term,
            log_end: behind(metrics.last_log_index.max(applied)),
            applied_end: behind(applied),
        }
    }

    /// The quorum as this node sees it; `None` unless this node leads.
    pub fn describe(&self) -> Option<QuorumDescription> {
        self.is_leader().then(|| self.describe_as_leader())
    }

    /// How many voters answered this node within `silence_max`, itself included, if it was elected leader and no majority of the
    /// voters answers it. `None` otherwise.
    pub fn answering_voters(&self, silence_max: Duration) -> Option<usize> {
        let watched = self.raft().metrics();
        let is_elected = {
            let metrics = watched.borrow_watched();
            metrics.current_leader == Some(metrics.id)
        };
        (is_elected && self.is_cut_off()).then(|| {
            let answers = |heard: Option<Duration>| heard.is_some_and(|ago| ago < silence_max);
            let voters = self.describe_as_leader().voters;
            voters.iter().filter(|voter| answers(voter.heard_ago)).count()
        })
    }

    fn describe_as_leader(&self) -> QuorumDescription {
        let applied = self.applied_index();
        let watched = self.raft().metrics();
        let metrics = watched.borrow_watched();
        let log_end = behind(metrics.last_log_index.max(applied));
        let member = |node: &u64| {
            if *node == metrics.id {
                let heard_ago = Some(Duration::ZERO);
                return MemberDescription {
                    node: broker_id(*node),
                    log_end,
                    heard_ago,
                    caught_up: true,
                };
            }
            let matched = metrics.replication.as_ref().and_then(|all| *all.get(node)?);
            let heard = metrics.heartbeat.as_ref().and_then(|all| *all.get(node)?);
            let known_end = behind(matched.map(|id| id.index));
            MemberDescription {
                node: broker_id(*node),
                log_end: known_end,
                heard_ago: heard.map(|at| at.elapsed()),
                caught_up: known_end >= log_end,
            }
        };
        let members = &metrics.membership_config;
        // A member's number begins with what its folder has drawn.
        let mut voters: Vec<u64> = members.voter_ids().collect();
        let mut learners: Vec<u64> = members.membership().learner_ids().collect();
        voters.sort_by_key(|node| broker_id(*node));
        learners.sort_by_key(|node| broker_id(*node));
        let committed = metrics.cluster_committed.map(|id| id.index).max(applied);
        QuorumDescription {
            leader_epoch: i32::try_from(metrics.current_term).unwrap_or(i32::MAX),
            high_watermark: behind(committed),
            voters: voters.iter().map(member).collect(),
            observers: learners.iter().map(member).collect(),
        }
    }
}
