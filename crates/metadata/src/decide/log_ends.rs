//! Elections by log ends: the leader among eligible replicas whose brokers registered again.
//!
//! The active controller requests (last epoch, synced end) of every complete replica that may lead, and the decision elects the
//! greatest. Each end holds for one partition epoch and for the process that answered.

use super::eligibility::View;
use super::{Answer, BrokerRef, Draft, ElectByEnds, Refusal, ReplicaEnds, SWEEP_PARTITIONS_MAX};
use crate::image::{ClusterImage, PartitionImage};
use model::{BrokerId, ErrorCode, LeaderEpoch, PartitionIndex, TopicId};

/// A partition without a leader whose next leader is chosen by log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingElection {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Epoch of the partition's state.
    pub partition_epoch: i32,
    /// Leader epoch, which rises with the election.
    pub leader_epoch: LeaderEpoch,
    /// Complete replicas that may lead, by their present registrations; not empty.
    pub candidates: Vec<BrokerRef>,
    /// Complete replicas of brokers that are registered, and fenced or shutting down.
    pub absent: Vec<BrokerId>,
}

/// A partition whose leader does not serve, with the replicas that an unclean election may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UncleanChoice {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Epoch of the partition's state.
    pub partition_epoch: i32,
    /// Whether a replica is known to have all acknowledged records. It leads when its broker serves.
    pub has_complete: bool,
    /// A leader epoch that a replica's log has and the metadata does not, if that was found: no replica is known to be complete.
    pub found_epoch: Option<LeaderEpoch>,
    /// Replicas whose brokers serve, by their present registrations.
    pub candidates: Vec<BrokerRef>,
}

/// One answer for each partition, in order.
type Elected = Answer<Vec<(TopicId, PartitionIndex, Answer<()>)>>;

fn refuse<T>(error: ErrorCode, message: impl Into<String>) -> Answer<T> {
    Err(Refusal::new(error, message))
}

impl ClusterImage {
    /// Partitions that wait for an election by log ends.
    pub fn pending_elections(&self) -> Vec<PendingElection> {
        if !self.detects_copies() {
            return Vec::new();
        }
        let pending = |topic: TopicId, at: PartitionIndex, state: &PartitionImage| {
            let waits = !state.has_leader() && !state.restarted.is_empty();
            let is_held = self.topic_by_id(topic).is_some_and(|it| it.found_epoch(at).is_some());
            (waits && !is_held).then(|| self.pending_election(topic, at, state)).flatten()
        };
        let topics = self
            .topics()
            .flat_map(|topic| topic.partitions().map(|(index, state)| (topic.id, index, state)));
        topics.filter_map(|(topic, at, state)| pending(topic, at, state)).collect()
    }

    /// Partitions whose leaders do not serve, of the named ones or of all: the first [`SWEEP_PARTITIONS_MAX`].
    pub fn unclean_choices(
        &self,
        named: Option<&[(String, PartitionIndex)]>,
    ) -> Vec<UncleanChoice> {
        let choice = |topic: TopicId, at: PartitionIndex, state: &PartitionImage| {
            (!self.is_active(state.leader)).then(|| self.unclean_choice(topic, at, state))
        };
        let of_name = |(name, at): &(String, PartitionIndex)| {
            let topic = self.topic(name)?;
            choice(topic.id, *at, topic.partition(*at)?)
        };
        let everywhere = || {
            let topics = self.topics();
            topics
                .flat_map(|topic| topic.partitions().map(|(at, state)| (topic.id, at, state)))
                .filter_map(|(topic, at, state)| choice(topic, at, state))
        };
        match named {
            Some(named) => named.iter().filter_map(of_name).take(SWEEP_PARTITIONS_MAX).collect(),
            None => everywhere().take(SWEEP_PARTITIONS_MAX).collect(),
        }
    }

    fn unclean_choice(
        &self,
        topic_id: TopicId,
        partition: PartitionIndex,
        state: &PartitionImage,
    ) -> UncleanChoice {
        let serves = |id: &BrokerId| self.is_eligible_replica(*id, topic_id, partition);
        let registration = |broker: BrokerId| {
            self.broker(broker).map(|known| BrokerRef { broker, epoch: known.epoch })
        };
        let replicas = state.replicas.iter().copied();
        let found_epoch = self.topic_by_id(topic_id).and_then(|it| it.found_epoch(partition));
        UncleanChoice {
            topic_id,
            partition,
            partition_epoch: state.partition_epoch,
            has_complete: found_epoch.is_none()
                && state.replicas.iter().any(|id| state.is_complete(*id)),
            found_epoch,
            candidates: replicas.filter(serves).filter_map(registration).collect(),
        }
    }

    fn pending_election(
        &self,
        topic_id: TopicId,
        partition: PartitionIndex,
        state: &PartitionImage,
    ) -> Option<PendingElection> {
        let may_lead = |id: &BrokerId| {
            state.elr.contains(id) && self.is_eligible_replica(*id, topic_id, partition)
        };
        let replicas = state.replicas.iter().copied();
        let registration = |broker: BrokerId| {
            self.broker(broker).map(|known| BrokerRef { broker, epoch: known.epoch })
        };
        let candidates: Vec<BrokerRef> =
            replicas.clone().filter(may_lead).filter_map(registration).collect();
        // A broker that shuts down answers no more, and comes back with its log.
        let is_absent = |id: &BrokerId| {
            state.is_complete(*id)
                && self
                    .broker(*id)
                    .is_some_and(|known| known.fenced || known.in_controlled_shutdown)
        };
        let PartitionImage { partition_epoch, leader_epoch, .. } = *state;
        let absent = replicas.filter(is_absent).collect();
        let is_known = |id: &&BrokerId| state.is_complete(**id) && self.broker(**id).is_some();
        let is_only = state.replicas.iter().filter(is_known).count() == 1;
        // A replica that never went away, and the only complete one, are elected by the next sweep.
        let are_restarted = candidates.iter().all(|who| state.restarted.contains(&who.broker));
        (!candidates.is_empty() && are_restarted && !is_only).then_some(PendingElection {
            topic_id,
            partition,
            partition_epoch,
            leader_epoch,
            candidates,
            absent,
        })
    }
}

impl Draft {
    /// Elects the replicas with the greatest log ends.
    pub(super) fn elect_by_ends(&mut self, request: &ElectByEnds) -> Elected {
        if !self.image().detects_copies() {
            let message = "Elections by log ends need highwater.version 4.";
            return refuse(ErrorCode::UnsupportedVersion, message);
        }
        if request.partitions.len() > SWEEP_PARTITIONS_MAX {
            let message = format!("Name at most {SWEEP_PARTITIONS_MAX} partitions at once.");
            return refuse(ErrorCode::InvalidRequest, message);
        }
        let one = |of: &ReplicaEnds| (of.topic_id, of.partition, self.elect_greatest(of));
        Ok(request.partitions.iter().map(one).collect())
    }

    fn elect_greatest(&mut self, of: &ReplicaEnds) -> Answer<()> {
        let Some(topic) = self.image().topic_by_id(of.topic_id).cloned() else {
            return refuse(ErrorCode::UnknownTopicId, "There is no topic with this id.");
        };
        let Some(old) = topic.partition(of.partition) else {
            return refuse(ErrorCode::UnknownTopicOrPartition, "There is no such partition.");
        };
        if old.partition_epoch != of.partition_epoch {
            let message = format!("The partition's epoch is {} now.", old.partition_epoch);
            return refuse(ErrorCode::InvalidUpdateVersion, message);
        }
        if old.has_leader() {
            return refuse(ErrorCode::ElectionNotNeeded, "The partition has a leader.");
        }
        let view = View { ends: &of.ends, ..View::of(self.image(), &topic) };
        match view.settled(of.partition, old).filter(PartitionImage::has_leader) {
            Some(new) => {
                self.change(of.topic_id, of.partition, &new);
                Ok(())
            }
            None => {
                let message = "No replica that answered may lead.";
                refuse(ErrorCode::EligibleLeadersNotAvailable, message)
            }
        }
    }
}
