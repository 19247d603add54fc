//! AlterPartition (KIP-497): a leader says who is in sync.
//!
//! Guards: the leader is in the ISR, the ISR is within the replicas, a fenced broker and one that is about
//! to stop join none (R5, KIP-841), nor does a replica that its broker cannot serve (KIP-858); a member is the very
//! incarnation that caught up (R6, KIP-903); leader epochs and partition epochs rise with every change (R3). Who leaves an ISR that falls below
//! `min.insync.replicas` is eligible (KIP-966).

use super::eligibility::{View, next};
use super::{AlterPartition, AlteredPartition, Answer, Draft, NewIsr, Refusal};
use crate::image::PartitionImage;
use crate::mutants::{Mutant, is_planted};
use model::{BrokerId, ErrorCode, PartitionIndex, TopicId};
use std::collections::BTreeSet;

fn refuse<T>(error: ErrorCode, message: impl Into<String>) -> Answer<T> {
    Err(Refusal::new(error, message))
}

impl Draft {
    pub(super) fn alter_isr(
        &mut self,
        request: &AlterPartition,
        unfit: &[BrokerId],
    ) -> Answer<Vec<(TopicId, PartitionIndex, Answer<AlteredPartition>)>> {
        self.check_epoch(&request.leader)?;
        let leader = request.leader.broker;
        let answer =
            |wish: &NewIsr| (wish.topic_id, wish.partition, self.alter_one(leader, wish, unfit));
        Ok(request.partitions.iter().map(answer).collect())
    }

    fn alter_one(
        &mut self,
        leader: BrokerId,
        wish: &NewIsr,
        unfit: &[BrokerId],
    ) -> Answer<AlteredPartition> {
        let Some(topic) = self.image().topic_by_id(wish.topic_id).cloned() else {
            return refuse(ErrorCode::UnknownTopicId, "There is no topic with this id.");
        };
        let Some(old) = topic.partition(wish.partition).cloned() else {
            return refuse(ErrorCode::UnknownTopicOrPartition, "There is no such partition.");
        };
        check_epochs(&old, leader, wish)?;
        check_members(&old, leader, wish)?;
        self.check_eligible(leader, wish)?;
        self.check_served(wish)?;
        check_fit(&old, wish, unfit)?;
        let mut new = next(&old, false);
        new.isr = wish.isr.iter().map(|(id, _)| *id).collect();
        new.recovering = wish.recovering;
        if self.image().has_eligible_replicas() {
            let view = View::of(self.image(), &topic);
            new.elr = view.elr(&old, &new.isr);
            // Who is eligible out of sync has proved nothing of what it synced.
            let proved = wish.durable && new.elr.is_empty() && view.rules.fsync;
            new.durable = old.durable || proved;
        }
        self.change(wish.topic_id, wish.partition, &new);
        Ok(AlteredPartition {
            leader: new.leader,
            leader_epoch: new.leader_epoch,
            isr: new.isr,
            partition_epoch: new.partition_epoch,
            recovering: new.recovering,
            durable: new.durable,
        })
    }

    /// A member must serve, and be the very incarnation that caught up (KIP-841, KIP-903). Of brokers
    /// that are about to stop only the leader itself may stay, while nobody has taken over.
    fn check_eligible(&self, leader: BrokerId, wish: &NewIsr) -> Answer<()> {
        for (id, epoch) in &wish.isr {
            let known = self.image().broker(*id);
            let may_be_fenced = is_planted(Mutant::FencedJoins);
            let may_be_another = is_planted(Mutant::AnyRegistrationJoins);
            let known = known.filter(|broker| !broker.fenced || may_be_fenced);
            let known = known.filter(|broker| broker.epoch == *epoch || may_be_another);
            let Some(known) = known else {
                let message = format!("Broker {id} is fenced, gone, or was started again.");
                return refuse(ErrorCode::IneligibleReplica, message);
            };
            if known.in_controlled_shutdown && *id != leader && !may_be_fenced {
                let message = format!("Broker {id} is about to stop.");
                return refuse(ErrorCode::IneligibleReplica, message);
            }
        }
        Ok(())
    }

    /// Nor does a replica join that its broker cannot serve (KIP-858).
    fn check_served(&self, wish: &NewIsr) -> Answer<()> {
        let mut members = wish.isr.iter().map(|(id, _)| *id);
        let offline =
            members.find(|id| self.image().is_offline(*id, wish.topic_id, wish.partition));
        match offline.filter(|_| !is_planted(Mutant::OfflineLeads)) {
            Some(id) => {
                let message =
                    format!("Broker {id} cannot serve its replica until it starts again.");
                refuse(ErrorCode::IneligibleReplica, message)
            }
            None => Ok(()),
        }
    }
}

/// Who asks, in which leader epoch, about which state.
fn check_epochs(old: &PartitionImage, leader: BrokerId, wish: &NewIsr) -> Answer<()> {
    if wish.leader_epoch > old.leader_epoch || wish.partition_epoch > old.partition_epoch {
        // The asker has seen a later state: another leader decides by now.
        return refuse(ErrorCode::NotController, "This node is behind: ask the active controller.");
    }
    if wish.leader_epoch < old.leader_epoch {
        let message = format!("The partition's leader epoch is {} now.", old.leader_epoch);
        return refuse(ErrorCode::FencedLeaderEpoch, message);
    }
    if old.leader != leader {
        return refuse(ErrorCode::InvalidRequest, format!("Broker {leader} does not lead it."));
    }
    if wish.partition_epoch < old.partition_epoch {
        let message = format!("The partition's epoch is {} now.", old.partition_epoch);
        return refuse(ErrorCode::InvalidUpdateVersion, message);
    }
    Ok(())
}

/// A broker that is silent or has a sick disk joins no ISR: the high watermark would wait for its replica.
fn check_fit(old: &PartitionImage, wish: &NewIsr, unfit: &[BrokerId]) -> Answer<()> {
    let mut joining = wish.isr.iter().map(|(id, _)| *id).filter(|id| !old.isr.contains(id));
    match joining.find(|id| unfit.contains(id)).filter(|_| !is_planted(Mutant::UnfitJoins)) {
        Some(id) => {
            let message = format!("Broker {id} does not answer, or one of its disks is sick.");
            refuse(ErrorCode::IneligibleReplica, message)
        }
        None => Ok(()),
    }
}

/// Whether the members can be an ISR at all.
fn check_members(old: &PartitionImage, leader: BrokerId, wish: &NewIsr) -> Answer<()> {
    let members: BTreeSet<BrokerId> = wish.isr.iter().map(|(id, _)| *id).collect();
    let refused = if members.len() != wish.isr.len() {
        Some("The ISR names a broker twice.")
    } else if !members.contains(&leader) {
        Some("The ISR lacks the leader.")
    } else if !members.iter().all(|id| old.replicas.contains(id)) {
        Some("The ISR names a broker that has no replica.")
    } else if wish.recovering && (!old.recovering || members.len() > 1) {
        Some("Only a leader that recovers, alone in the ISR, may go on recovering.")
    } else {
        None
    };
    refused.map_or(Ok(()), |message| refuse(ErrorCode::InvalidRequest, message))
}
