//! ElectLeaders (KIP-460): elections on request.
//!
//! An unclean election of a partition that has a leader keeps that leader, in its next leader epoch, and allows the followers
//! to truncate records that the leader lacks. In a partition without a leader the replica with the greatest (last epoch, synced end) is
//! elected, of those whose log ends the controller knows.

use super::eligibility::{View, next};
use super::{
    Answer, ControllerSettings, Draft, ElectLeaders, ElectionKind, Refusal, ReplicaEnds,
    SWEEP_PARTITIONS_MAX,
};
use crate::image::{PartitionImage, TopicImage};
use model::{BrokerId, ErrorCode, PartitionIndex, TopicId};
use std::sync::Arc;

fn refuse<T>(error: ErrorCode, message: impl Into<String>) -> Answer<T> {
    Err(Refusal::new(error, message))
}

impl Draft {
    pub(super) fn elect_leaders(
        &mut self,
        request: &ElectLeaders,
        ends: &[ReplicaEnds],
    ) -> Vec<(Arc<str>, PartitionIndex, Answer<()>)> {
        let Some(partitions) = &request.partitions else {
            return self.elect_everywhere(request.kind, ends);
        };
        let one = |(topic, partition): &(String, PartitionIndex)| {
            (
                topic.as_str().into(),
                *partition,
                self.elect_one(request.kind, ends, topic, *partition),
            )
        };
        partitions.iter().map(one).collect()
    }

    /// Where nothing needs to be done, nothing is answered.
    fn elect_everywhere(
        &mut self,
        kind: ElectionKind,
        ends: &[ReplicaEnds],
    ) -> Vec<(Arc<str>, PartitionIndex, Answer<()>)> {
        let needed = |state: &PartitionImage| match kind {
            ElectionKind::Preferred => state.leader != state.preferred_leader(),
            ElectionKind::Unclean => !self.image().is_active(state.leader),
        };
        let found = self.partitions_where(needed).into_iter();
        let one = |(_, name, index, _): (TopicId, Arc<str>, PartitionIndex, PartitionImage)| {
            let answer = self.elect_one(kind, ends, &name, index);
            (name, index, answer)
        };
        found.map(one).collect()
    }

    fn elect_one(
        &mut self,
        kind: ElectionKind,
        ends: &[ReplicaEnds],
        topic: &str,
        partition: PartitionIndex,
    ) -> Answer<()> {
        let topic = self.image().topic(topic).cloned();
        let state = topic.as_ref().and_then(|topic| topic.partition(partition));
        let (Some(topic), Some(old)) = (&topic, state) else {
            return refuse(ErrorCode::UnknownTopicOrPartition, "There is no such partition.");
        };
        let new = match kind {
            ElectionKind::Preferred => self.elect_preferred(topic.id, partition, old)?,
            ElectionKind::Unclean => self.elect_unclean(ends, topic, partition, old)?,
        };
        // An unclean election that is counted allows it already.
        let is_found = topic.found_epoch(partition).is_some() && old.is_complete(new.leader);
        if new.leader == old.leader || is_found {
            self.allow_truncation(topic.id, partition, new.leader_epoch);
        }
        self.change(topic.id, partition, &new);
        Ok(())
    }

    fn elect_preferred(
        &self,
        topic: TopicId,
        partition: PartitionIndex,
        old: &PartitionImage,
    ) -> Answer<PartitionImage> {
        let preferred = old.preferred_leader();
        if old.leader == preferred {
            return refuse(ErrorCode::ElectionNotNeeded, "The preferred replica leads already.");
        }
        let is_eligible = self.image().is_eligible_replica(preferred, topic, partition);
        if !old.isr.contains(&preferred) || !is_eligible {
            let message =
                format!("The preferred replica {preferred} is not in sync or not serving.");
            return refuse(ErrorCode::PreferredLeaderNotAvailable, message);
        }
        let last_known_leader = BrokerId::NONE;
        Ok(PartitionImage { leader: preferred, last_known_leader, ..next(old, true) })
    }

    fn elect_unclean(
        &self,
        ends: &[ReplicaEnds],
        topic: &TopicImage,
        partition: PartitionIndex,
        old: &PartitionImage,
    ) -> Answer<PartitionImage> {
        if self.image().is_active(old.leader) {
            // A follower may refuse to truncate what this leader lacks: from the next leader epoch on it may.
            return match self.image().detects_copies() && old.isr.len() < old.replicas.len() {
                true => Ok(next(old, true)),
                false => refuse(ErrorCode::ElectionNotNeeded, "The partition has a leader."),
            };
        }
        let elected = if self.image().has_eligible_replicas() {
            // Ends of an earlier state may be of replicas that have appended since.
            let is_current = |of: &&ReplicaEnds| {
                (of.topic_id, of.partition, of.partition_epoch)
                    == (topic.id, partition, old.partition_epoch)
            };
            let ends = ends.iter().find(is_current).map_or(&[][..], |of| &of.ends);
            let serves =
                |id: &&BrokerId| self.image().is_eligible_replica(**id, topic.id, partition);
            let is_held = topic.found_epoch(partition).is_some();
            if is_held && ends.is_empty() && old.replicas.iter().filter(serves).count() > 1 {
                // The last known leader of the metadata may lack records that the lost majority acknowledged.
                let message = format!(
                    "The log ends of the replicas are not known. Name at most {SWEEP_PARTITIONS_MAX} partitions, and \
                     request the election again."
                );
                return refuse(ErrorCode::EligibleLeadersNotAvailable, message);
            }
            let view = View { forced: true, ends, ..View::of(self.image(), topic) };
            view.settled(partition, old).filter(PartitionImage::has_leader)
        } else {
            self.elect(&ControllerSettings::default(), &topic.name, &next(old, true), true)
        };
        let none = || Refusal::new(ErrorCode::EligibleLeadersNotAvailable, "No replica serves.");
        elected.ok_or_else(none)
    }
}
