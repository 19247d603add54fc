//! Relief of replicas: leaderships and ISR memberships of a broker that is silent or has a sick disk.
//!
//! The broker stays registered and unfenced. Only a member of the ISR that is known to be healthy leads, and a partition
//! without such a member stays as it is: on a shared disk nothing moves. A relieved replica leaves the ISR unless fewer than
//! `min.insync.replicas` members would be left. A new leader that is in the ISR has every committed record.

use super::eligibility::{View, next};
use super::{Answer, Draft, Refusal, RelieveReplicas, SWEEP_PARTITIONS_MAX};
use crate::image::{PartitionImage, TopicImage};
use crate::mutants::{Mutant, is_planted};
use model::{BrokerId, ErrorCode, PartitionIndex, TopicId};
use std::sync::Arc;

/// One entry for each changed partition.
type Relieved = Vec<(TopicId, PartitionIndex, Answer<()>)>;

impl Draft {
    /// Relieves replicas of a broker. Returns the partitions that changed.
    pub(super) fn relieve_replicas(&mut self, request: &RelieveReplicas) -> Answer<Relieved> {
        self.check_epoch(&request.broker)?;
        if !self.image().has_eligible_replicas() {
            let message = "Relief of replicas needs highwater.version 1.";
            return Err(Refusal::new(ErrorCode::UnsupportedVersion, message));
        }
        let changes = match &request.partitions {
            Some(named) if named.len() > SWEEP_PARTITIONS_MAX => {
                let message = format!("Name at most {SWEEP_PARTITIONS_MAX} replicas at once.");
                return Err(Refusal::new(ErrorCode::InvalidRequest, message));
            }
            Some(named) => self.relieved_of(request, named),
            None => self.relieved_everywhere(request),
        };
        let mut answers = Relieved::new();
        for (topic, partition, state) in changes {
            self.change(topic, partition, &state);
            answers.push((topic, partition, Ok(())));
        }
        Ok(answers)
    }

    fn relieved_of(
        &self,
        request: &RelieveReplicas,
        named: &[(TopicId, PartitionIndex)],
    ) -> Vec<(TopicId, PartitionIndex, PartitionImage)> {
        let one = |(topic_id, at): &(TopicId, PartitionIndex)| {
            let topic = self.image().topic_by_id(*topic_id)?;
            let new = self.relieved(request, topic, *at, topic.partition(*at)?)?;
            Some((*topic_id, *at, new))
        };
        named.iter().filter_map(one).collect()
    }

    fn relieved_everywhere(
        &self,
        request: &RelieveReplicas,
    ) -> Vec<(TopicId, PartitionIndex, PartitionImage)> {
        let of_topic = |topic: &Arc<TopicImage>| {
            let one = |(at, old): (PartitionIndex, &PartitionImage)| {
                Some((topic.id, at, self.relieved(request, topic, at, old)?))
            };
            topic.partitions().filter_map(one).collect::<Vec<_>>()
        };
        self.image().topics().flat_map(of_topic).take(SWEEP_PARTITIONS_MAX).collect()
    }

    /// The state of a partition without a broker as its leader and, where enough members are left, in its ISR.
    fn relieved(
        &self,
        request: &RelieveReplicas,
        topic: &TopicImage,
        at: PartitionIndex,
        old: &PartitionImage,
    ) -> Option<PartitionImage> {
        let broker = request.broker.broker;
        if !old.isr.contains(&broker) {
            return None;
        }
        let may_lead = |id: &BrokerId| {
            let is_healthy =
                request.healthy.contains(id) || is_planted(Mutant::RelievesToAnyReplica);
            let is_eligible = self.image().is_eligible_replica(*id, topic.id, at);
            *id != broker && is_healthy && is_eligible && old.isr.contains(id)
        };
        // A leader that is healthy itself stays.
        let mut candidates = [old.leader].into_iter().chain(old.replicas.iter().copied());
        let leader = candidates.find(may_lead)?;
        if old.leader != broker && old.leader != leader {
            return None;
        }
        let view = View::of(self.image(), topic);
        let needed = view.rules.members_needed(old.replicas.len());
        let leaves = old.isr.len() > needed || is_planted(Mutant::RelievesBelowMinimum);
        let stays = |id: &BrokerId| *id != broker || !leaves;
        let isr: Vec<BrokerId> = old.isr.iter().copied().filter(stays).collect();
        if leader == old.leader && isr.len() == old.isr.len() {
            return None;
        }
        let elr = view.elr(old, &isr);
        Some(PartitionImage { leader, isr, elr, ..next(old, leader != old.leader) })
    }
}
