//! Who is a member, and what has to change when a broker is another member than it was.
//!
//! A member is a folder (see `raft.rs`): a broker whose folder was lost comes back as a new one. It is added without a
//! vote, receives everything, and then takes the vote of its predecessor in one change, by way of a joint membership. So
//! there are never fewer voters, and the lost one stays what it is until then: a voter that is silent.

use crate::config::QuorumError;
use crate::network::Introduced;
use crate::proposer::lost;
use crate::quorum::Quorum;
use crate::raft::{Membership, TypeConfig, broker_id};
use model::BrokerId;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, RaftError};
use openraft::{ChangeMembers, EmptyNode};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a broker may take to say which member it is.
const INTRODUCTION_MAX: Duration = Duration::from_secs(1);
/// Changes that one broker can be due, and some more: two to finish what was begun, three of its own.
const STEPS_MAX: usize = 8;
/// Entries that a member may lack when it is given a vote: they are sent while it waits for it.
const LAG_MAX: u64 = 1000;

/// A change of the members that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// A leader before this one has begun to make these the voters.
    Finish(BTreeSet<u64>),
    /// A folder that was lost, and did not vote.
    Remove(u64),
    /// The folder that the broker has now: it receives everything from now on.
    Add(u64),
    /// It has everything, and votes in the place of the broker's earlier folder.
    Vote(BTreeSet<u64>),
}

/// The next change that is due, if the broker of `node` is that member now. The brokers `named` get their votes together, once
/// all of them are members: a quorum that was regenerated never rests at two voters.
fn next_step(members: &Membership, node: u64, named: &BTreeSet<BrokerId>) -> Option<Step> {
    let configs = members.get_joint_config();
    if let [_, .., last] = &configs[..] {
        return Some(Step::Finish(last.clone()));
    }
    let voters: BTreeSet<u64> = members.voter_ids().collect();
    let is_former = |id: &u64| broker_id(*id) == broker_id(node) && *id != node;
    if let Some(former) = members.learner_ids().find(is_former) {
        return Some(Step::Remove(former));
    }
    if members.get_node(&node).is_none() {
        return Some(Step::Add(node));
    }
    let mut voters = voters;
    if let Some(former) = voters.iter().copied().find(is_former) {
        voters.remove(&former);
        voters.insert(node);
        return Some(Step::Vote(voters));
    }
    let votes = |broker: &BrokerId| voters.iter().any(|id| broker_id(*id) == *broker);
    let lacking = named.iter().filter(|broker| !votes(broker));
    let member = |broker: &BrokerId| members.learner_ids().find(|id| broker_id(*id) == *broker);
    let joining: Vec<u64> = lacking.map(member).collect::<Option<_>>()?;
    if joining.is_empty() {
        return None;
    }
    voters.extend(joining);
    Some(Step::Vote(voters))
}

impl Quorum {
    /// On the leader: makes a broker a member as the folder that it has now, in the place of the one that it had; waits
    /// until it has everything, and votes if that one did. Nothing if that is so. Must not run twice at a time.
    pub async fn admit(&self, broker: BrokerId) -> Result<(), QuorumError> {
        let asked = self.network().introduction(broker, INTRODUCTION_MAX).await;
        let unknown = |reason| QuorumError::Members(format!("node {broker}: {reason}"));
        let Introduced { node, .. } = asked.map_err(unknown)?;
        for _ in 0..STEPS_MAX {
            let members = {
                let metrics = self.raft().server_metrics();
                let metrics = metrics.borrow_watched();
                metrics.membership_config.membership().clone()
            };
            let Some(step) = next_step(&members, node, self.named_voters()) else { return Ok(()) };
            if matches!(step, Step::Vote(_)) && self.lag(node) > LAG_MAX {
                // It was added by a try before this one, which did not wait to the end.
                let words = format!("node {broker} has not received all metadata yet");
                return Err(QuorumError::Members(words));
            }
            tracing::info!(node = %broker, ?step, "the members of the metadata quorum change");
            self.take(step).await?;
        }
        Err(QuorumError::Members(format!("node {broker} is never the member that it should be")))
    }

    /// How many entries a member lacks, as far as this leader knows.
    fn lag(&self, node: u64) -> u64 {
        let metrics = self.raft().metrics();
        let metrics = metrics.borrow_watched();
        let known = metrics.replication.as_ref().and_then(|all| *all.get(&node)?);
        let behind = |index: Option<u64>| index.map_or(0, |index| index + 1);
        behind(metrics.last_log_index).saturating_sub(behind(known.map(|id| id.index)))
    }

    async fn take(&self, step: Step) -> Result<(), QuorumError> {
        let raft = self.raft();
        let changed = match step {
            // Waits until it has caught up.
            Step::Add(node) => raft.add_learner(node, EmptyNode::new(), true).await,
            Step::Remove(node) => {
                raft.change_membership(ChangeMembers::RemoveNodes([node].into()), false).await
            }
            // Who has no vote any more is no member either: its folder is gone.
            Step::Finish(voters) | Step::Vote(voters) => {
                raft.change_membership(ChangeMembers::ReplaceAllVoters(voters), false).await
            }
        };
        members_changed(changed.map(drop))
    }
}

pub(crate) fn members_changed(
    result: Result<(), RaftError<TypeConfig, ClientWriteError<TypeConfig>>>,
) -> Result<(), QuorumError> {
    result.map_err(|error| match error {
        RaftError::APIError(error) => lost(error),
        RaftError::Fatal(fatal) => QuorumError::stopped(fatal),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::{membership, node_id};

    fn id(broker: i32, lot: u32) -> u64 {
        node_id(BrokerId(broker), lot)
    }

    /// What happens, step by step, until nothing is due.
    fn steps(members: Membership, node: u64) -> Vec<Step> {
        steps_of(members, node, &BTreeSet::new())
    }

    fn steps_of(mut members: Membership, node: u64, named: &BTreeSet<BrokerId>) -> Vec<Step> {
        let mut taken = Vec::new();
        while let Some(step) = next_step(&members, node, named) {
            let voters: BTreeSet<u64> = members.voter_ids().collect();
            let learners: Vec<u64> = members.learner_ids().collect();
            members = match &step {
                Step::Finish(voters) | Step::Vote(voters) => {
                    let rest = learners.into_iter().filter(|id| !voters.contains(id)).collect();
                    membership(vec![voters.iter().copied().collect()], rest)
                }
                Step::Remove(gone) => {
                    let rest = learners.into_iter().filter(|id| id != gone).collect();
                    membership(vec![voters.into_iter().collect()], rest)
                }
                Step::Add(new) => {
                    let all = learners.into_iter().chain([*new]).collect();
                    membership(vec![voters.into_iter().collect()], all)
                }
            };
            taken.push(step);
            assert!(taken.len() < 9, "it never ends: {taken:?}");
        }
        taken
    }

    #[test]
    fn who_is_what_it_was_changes_nothing() {
        let members = membership(vec![vec![1, 2, id(3, 7)]], vec![id(4, 9)]);
        for node in [1, 2, id(3, 7), id(4, 9)] {
            assert_eq!(steps(members.clone(), node), []);
        }
    }

    #[test]
    fn a_new_folder_of_a_voter_receives_everything_and_votes_in_the_place_of_the_lost_one() {
        let members = membership(vec![vec![1, 2, 3]], vec![4]);
        let new = id(1, 7);
        let voters = BTreeSet::from([2, 3, new]);
        assert_eq!(steps(members, new), [Step::Add(new), Step::Vote(voters)]);
    }

    #[test]
    fn a_folder_that_is_lost_twice_leaves_nothing_of_the_one_in_between() {
        let members = membership(vec![vec![1, 2, 3]], vec![id(1, 7)]);
        let new = id(1, 8);
        let voters = BTreeSet::from([2, 3, new]);
        let expected = [Step::Remove(id(1, 7)), Step::Add(new), Step::Vote(voters)];
        assert_eq!(steps(members, new), expected);
    }

    #[test]
    fn the_old_disk_may_come_back() {
        let members = membership(vec![vec![id(1, 7), 2, 3]], vec![]);
        let voters = BTreeSet::from([1, 2, 3]);
        assert_eq!(steps(members, 1), [Step::Add(1), Step::Vote(voters)]);
    }

    #[test]
    fn a_new_broker_gets_no_vote() {
        let members = membership(vec![vec![1, 2, 3]], vec![4]);
        assert_eq!(steps(members.clone(), id(5, 1)), [Step::Add(id(5, 1))]);
        assert_eq!(steps(members, id(4, 1)), [Step::Remove(4), Step::Add(id(4, 1))]);
    }

    #[test]
    fn the_voters_of_a_regenerated_quorum_get_their_votes_together() {
        let named = [1, 2, 3].map(BrokerId).into();
        let (one, two, three) = (id(1, 8), id(2, 9), id(3, 7));
        let alone = membership(vec![vec![three]], vec![4]);
        assert_eq!(steps_of(alone, one, &named), [Step::Add(one)]);
        let one_joined = membership(vec![vec![three]], vec![4, one]);
        let voters = BTreeSet::from([one, two, three]);
        assert_eq!(steps_of(one_joined, two, &named), [Step::Add(two), Step::Vote(voters)]);
        let settled = membership(vec![vec![one, two, three]], vec![4]);
        assert_eq!(steps_of(settled, one, &named), []);
    }

    #[test]
    fn a_change_that_a_leader_left_half_done_is_finished_first() {
        let new = id(1, 7);
        let members = membership(vec![vec![1, 2, 3], vec![2, 3, new]], vec![]);
        assert_eq!(steps(members, 2), [Step::Finish(BTreeSet::from([2, 3, new]))]);
    }
}
