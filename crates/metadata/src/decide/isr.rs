//! Who is in sync and who leads: AlterPartition (KIP-497, 903), elections (KIP-460), and the
//! elections that a broker's coming and going demands.
//!
//! Guards: the leader is in the ISR, the ISR is within the replicas, a fenced broker joins none
//! (R5); a follower joins only with its current broker epoch (R6); terms and partition epochs
//! rise with every change (R3). Without `unclean.leader.election.enable` only an ISR member leads
//! (R4).

use super::{
    AlterPartition, AlteredPartition, Answer, ControllerSettings, Draft, ElectLeaders,
    ElectionKind, NewIsr, Refusal,
};
use crate::image::{ClusterImage, PartitionImage};
use crate::record::MetadataRecord;
use crate::topic_config;
use model::{BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, PartitionIndex, TopicId};
use std::collections::BTreeSet;
use std::sync::Arc;

fn refuse<T>(error: ErrorCode, message: impl Into<String>) -> Answer<T> {
    Err(Refusal::new(error, message))
}

/// Why a broker leaves the ISRs it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// It no longer serves.
    Fenced,
    /// It serves, but may have lost the end of its logs.
    Unclean,
}

/// The same partition in its next epoch; in its next term if the leader is (or may be) another.
fn next(old: &PartitionImage, new_term: bool) -> PartitionImage {
    PartitionImage {
        leader_epoch: LeaderEpoch(old.leader_epoch.0 + i32::from(new_term)),
        partition_epoch: old.partition_epoch + 1,
        ..old.clone()
    }
}

impl Draft {
    fn change(&mut self, topic_id: TopicId, partition: PartitionIndex, state: &PartitionImage) {
        let state = state.to_record(partition);
        self.push(MetadataRecord::PartitionChanged { topic_id, state });
    }

    /// Every partition that `matters` says, with its topic.
    fn partitions_where(
        &self,
        matters: impl Fn(&PartitionImage) -> bool,
    ) -> Vec<(TopicId, Arc<str>, PartitionIndex, PartitionImage)> {
        let image = self.image();
        let of_topic = |topic: &Arc<crate::image::TopicImage>| {
            let found = topic.partitions().filter(|(_, state)| matters(state));
            found.map(|(i, p)| (topic.id, topic.name.clone(), i, p.clone())).collect::<Vec<_>>()
        };
        image.topics().flat_map(of_topic).collect()
    }

    /// A broker leaves the ISRs it is in, and leads nothing any more.
    pub(super) fn depart(
        &mut self,
        settings: &ControllerSettings,
        broker: BrokerId,
        why: Departure,
    ) {
        for (id, name, index, old) in self.partitions_where(|p| p.isr.contains(&broker)) {
            if let Some(new) = self.without(settings, &name, &old, broker, why) {
                self.change(id, index, &new);
            }
        }
    }

    fn without(
        &self,
        settings: &ControllerSettings,
        topic: &str,
        old: &PartitionImage,
        broker: BrokerId,
        why: Departure,
    ) -> Option<PartitionImage> {
        let rest: Vec<BrokerId> = old.isr.iter().copied().filter(|id| *id != broker).collect();
        let led = old.leader == broker;
        let mut new = next(old, led);
        if rest.is_empty() {
            // The last member stays: only it has every acknowledged record.
            return match why {
                Departure::Unclean => led.then_some(new),
                Departure::Fenced if led => {
                    new.leader = BrokerId::NONE;
                    Some(self.elect(settings, topic, &new, false).unwrap_or(new))
                }
                Departure::Fenced => None,
            };
        }
        new.isr = rest;
        if led {
            new.leader = BrokerId::NONE;
            new = self.elect(settings, topic, &new, false).unwrap_or(new);
        }
        Some(new)
    }

    /// A broker serves: partitions that waited for it have a leader again.
    pub(super) fn arrive(&mut self, settings: &ControllerSettings, broker: BrokerId) {
        let waits = |p: &PartitionImage| !p.has_leader() && p.replicas.contains(&broker);
        for (id, name, index, old) in self.partitions_where(waits) {
            if let Some(new) = self.elect(settings, &name, &next(&old, true), false) {
                self.change(id, index, &new);
            }
        }
    }

    /// Chooses a leader: the first assigned replica that is in sync and serves; or, where records
    /// may be lost, the first that serves. The caller has raised the epochs.
    fn elect(
        &self,
        settings: &ControllerSettings,
        topic: &str,
        state: &PartitionImage,
        force_unclean: bool,
    ) -> Option<PartitionImage> {
        let image = self.image();
        let serves = |id: &&BrokerId| image.is_active(**id);
        let clean = state.replicas.iter().filter(serves).find(|id| state.isr.contains(id));
        if let Some(leader) = clean {
            return Some(PartitionImage { leader: *leader, ..state.clone() });
        }
        if !force_unclean && !unclean_allowed(image, settings, topic) {
            return None;
        }
        let leader = *state.replicas.iter().find(serves)?;
        Some(PartitionImage { leader, isr: vec![leader], recovering: true, ..state.clone() })
    }

    pub(super) fn alter_isr(
        &mut self,
        request: &AlterPartition,
    ) -> Answer<Vec<(TopicId, PartitionIndex, Answer<AlteredPartition>)>> {
        self.check_epoch(&request.leader)?;
        let leader = request.leader.broker;
        let answer = |wish: &NewIsr| (wish.topic_id, wish.partition, self.alter_one(leader, wish));
        Ok(request.partitions.iter().map(answer).collect())
    }

    fn alter_one(&mut self, leader: BrokerId, wish: &NewIsr) -> Answer<AlteredPartition> {
        let Some(topic) = self.image().topic_by_id(wish.topic_id) else {
            return refuse(ErrorCode::UnknownTopicId, "There is no topic with this id.");
        };
        let Some(old) = topic.partition(wish.partition).cloned() else {
            return refuse(ErrorCode::UnknownTopicOrPartition, "There is no such partition.");
        };
        check_terms(&old, leader, wish)?;
        check_members(&old, leader, wish)?;
        self.check_eligible(wish)?;
        let mut new = next(&old, false);
        new.isr = wish.isr.iter().map(|(id, _)| *id).collect();
        new.recovering = wish.recovering;
        self.change(wish.topic_id, wish.partition, &new);
        Ok(AlteredPartition {
            leader: new.leader,
            leader_epoch: new.leader_epoch,
            isr: new.isr,
            partition_epoch: new.partition_epoch,
            recovering: new.recovering,
        })
    }

    /// A member must serve, and be the very incarnation that caught up.
    fn check_eligible(&self, wish: &NewIsr) -> Answer<()> {
        let stale =
            |known: BrokerEpoch, seen: Option<BrokerEpoch>| seen.is_some_and(|seen| seen != known);
        for (id, seen) in &wish.isr {
            let eligible = self
                .image()
                .broker(*id)
                .is_some_and(|broker| !broker.fenced && !stale(broker.epoch, *seen));
            if !eligible {
                let message = format!("Broker {id} is fenced, gone, or was started again.");
                return refuse(ErrorCode::IneligibleReplica, message);
            }
        }
        Ok(())
    }

    pub(super) fn elect_leaders(
        &mut self,
        request: &ElectLeaders,
    ) -> Vec<(Arc<str>, PartitionIndex, Answer<()>)> {
        let Some(partitions) = &request.partitions else {
            return self.elect_everywhere(request.kind);
        };
        let one = |(topic, partition): &(String, PartitionIndex)| {
            (topic.as_str().into(), *partition, self.elect_one(request.kind, topic, *partition))
        };
        partitions.iter().map(one).collect()
    }

    /// Where nothing needs to be done, nothing is answered.
    fn elect_everywhere(
        &mut self,
        kind: ElectionKind,
    ) -> Vec<(Arc<str>, PartitionIndex, Answer<()>)> {
        let needed = |state: &PartitionImage| match kind {
            ElectionKind::Preferred => state.leader != state.preferred_leader(),
            ElectionKind::Unclean => !state.has_leader(),
        };
        let found = self.partitions_where(needed).into_iter();
        let one = |(_, name, index, _): (TopicId, Arc<str>, PartitionIndex, PartitionImage)| {
            let answer = self.elect_one(kind, &name, index);
            (name, index, answer)
        };
        found.map(one).collect()
    }

    fn elect_one(
        &mut self,
        kind: ElectionKind,
        topic: &str,
        partition: PartitionIndex,
    ) -> Answer<()> {
        let topic = self.image().topic(topic).cloned();
        let state = topic.as_ref().and_then(|topic| topic.partition(partition));
        let (Some(topic), Some(old)) = (&topic, state) else {
            return refuse(ErrorCode::UnknownTopicOrPartition, "There is no such partition.");
        };
        let new = match kind {
            ElectionKind::Preferred => self.elect_preferred(old)?,
            ElectionKind::Unclean => self.elect_unclean(&topic.name, old)?,
        };
        self.change(topic.id, partition, &new);
        Ok(())
    }

    fn elect_preferred(&self, old: &PartitionImage) -> Answer<PartitionImage> {
        let preferred = old.preferred_leader();
        if old.leader == preferred {
            return refuse(ErrorCode::ElectionNotNeeded, "The preferred replica leads already.");
        }
        if !old.isr.contains(&preferred) || !self.image().is_active(preferred) {
            let message =
                format!("The preferred replica {preferred} is not in sync or not serving.");
            return refuse(ErrorCode::PreferredLeaderNotAvailable, message);
        }
        Ok(PartitionImage { leader: preferred, ..next(old, true) })
    }

    fn elect_unclean(&self, topic: &str, old: &PartitionImage) -> Answer<PartitionImage> {
        if old.has_leader() {
            return refuse(ErrorCode::ElectionNotNeeded, "The partition has a leader.");
        }
        let settings = ControllerSettings::default();
        let elected = self.elect(&settings, topic, &next(old, true), true);
        let none = || Refusal::new(ErrorCode::EligibleLeadersNotAvailable, "No replica serves.");
        elected.ok_or_else(none)
    }
}

fn unclean_allowed(image: &ClusterImage, settings: &ControllerSettings, topic: &str) -> bool {
    topic_config::Resolver::new(image, &settings.static_configs, None)
        .settings(topic)
        .unclean_leader_election
}

/// Who asks, in which term, about which state.
fn check_terms(old: &PartitionImage, leader: BrokerId, wish: &NewIsr) -> Answer<()> {
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
