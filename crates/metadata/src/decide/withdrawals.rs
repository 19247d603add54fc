//! Replicas that their own broker cannot answer for: made anew and empty (R12), or out of reach, because their log
//! directory failed or they cannot be opened (KIP-858).
//!
//! An empty replica leaves ISR and ELR, whichever others are complete. The report names the partition epoch of the state that
//! it is about: one that was long on its way would take out what has been copied since, and perhaps the last one.
//!
//! A replica that may be in a log directory without which its broker started is out of reach as well. It leaves the eligible
//! replicas while another in-sync replica is known to be there. Its broker may make it again in another directory, and
//! reports it as empty then: from that moment on it is in reach.
//!
//! What is out of reach for as long as the process lives is written down from `highwater.version` 2 on, and stands like the
//! replica of a broker that is fenced: it is in no ISR, and not elected, cleanly or not; eligible it stays, where so few are in
//! sync, for the next process may have its disk again.
//!
//! Before, and where a replica may be older than what is counted, it leaves ISR and ELR, but only if another one is
//! complete. That is judged here, where one decision follows the other, and not by the broker, whose image may be old: if the
//! disks of two fail at once, one of them stays what it is, and its partition waits for that disk.
//!
//! A leader knows how far its followers are, for as long as its leader epoch and their registrations last, and would take in
//! again at once what was withdrawn. So each of these begins a new leader epoch, be the leader the same: what is on its way
//! from the epoch before is refused, and in the new one a replica counts when it has fetched.

use super::eligibility::{Loss, View};
use super::{
    Answer, BrokerRef, Draft, EmptyReplica, EmptyReplicas2, GiveUpMissing, GiveUpReplicas, Refusal,
    SWEEP_PARTITIONS_MAX,
};
use crate::image::{ClusterImage, PartitionImage, TopicImage};
use crate::mutants::{Mutant, is_planted};
use crate::record::{MetadataRecord, TopicReplicas};
use model::{BrokerId, ErrorCode, LeaderEpoch, PartitionIndex, TopicId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A partition, as brokers name it.
type Named = (TopicId, PartitionIndex);

/// The answer for each partition, in order.
type Answers = Answer<Vec<(TopicId, PartitionIndex, Answer<()>)>>;

fn refuse<T>(error: ErrorCode, message: impl Into<String>) -> Answer<T> {
    Err(Refusal::new(error, message))
}

impl Draft {
    /// Replicas that a broker had to make anew leave ISR and ELR (R12).
    pub(super) fn withdraw_empty(&mut self, request: &EmptyReplicas2) -> Answers {
        let EmptyReplicas2 { broker, partitions } = request;
        self.check_report(broker, partitions.len())?;
        let one = |empty: &EmptyReplica| {
            let answer = self.withdraw_one(broker.broker, empty);
            (empty.topic_id, empty.partition, answer)
        };
        Ok(partitions.iter().map(one).collect())
    }

    /// Replicas that a broker cannot serve lead no more, and are in no ISR (KIP-858).
    pub(super) fn give_up(&mut self, request: &GiveUpReplicas) -> Answers {
        let GiveUpReplicas { broker, partitions, offline } = request;
        self.check_report(broker, partitions.len())?;
        let is_noted = *offline && self.image().has_offline_replicas();
        if is_noted {
            self.note_offline(broker.broker, partitions);
        }
        let one = |named: &Named| {
            let answer = match is_noted {
                true => self.do_without(broker.broker, *named),
                false => self.give_up_one(broker.broker, *named),
            };
            (named.0, named.1, answer)
        };
        Ok(partitions.iter().map(one).collect())
    }

    /// Replicas that may be in a missing log directory are out of reach: from now on they lead nothing and are in no ISR.
    /// Each leaves the eligible replicas only while another in-sync replica is known to be there: the directory may come
    /// back, and its replica may be the last one by then.
    pub(super) fn give_up_missing(&mut self, request: &GiveUpMissing) -> Answers {
        let GiveUpMissing { broker, partitions, heard } = request;
        self.check_report(broker, partitions.len())?;
        // A record that takes this back has a level of its own.
        if self.image().has_returning_replicas() && !is_planted(Mutant::MissingLeads) {
            self.note_offline(broker.broker, partitions);
        }
        let one = |named: &Named| {
            let answer = match self.is_another_heard(broker.broker, *named, heard) {
                Ok(true) => self.give_up_one(broker.broker, *named),
                Ok(false) => self.keep_missing(broker.broker, *named),
                Err(refusal) => Err(refusal),
            };
            (named.0, named.1, answer)
        };
        Ok(partitions.iter().map(one).collect())
    }

    /// A replica in a missing log directory stays eligible: it may be the last one.
    fn keep_missing(&mut self, broker: BrokerId, named: Named) -> Answer<()> {
        if self.image().is_offline(broker, named.0, named.1) {
            self.do_without(broker, named)?;
        }
        let message = "No other in-sync replica was heard within two seconds: the missing one stays what it is.";
        refuse(ErrorCode::EligibleLeadersNotAvailable, message)
    }

    /// Whether another in-sync replica is unfenced, not out of reach, and its broker one of `heard`. Also true if the replica
    /// of `broker` is not complete: there is nothing to give up.
    fn is_another_heard(&self, broker: BrokerId, named: Named, heard: &[BrokerId]) -> Answer<bool> {
        let (_, state) = find_replica(self.image(), broker, named)?;
        let is_heard = |id: &BrokerId| {
            let is_there = heard.contains(id) || is_planted(Mutant::UnheardReplicasCount);
            *id != broker && is_there && self.image().is_eligible_replica(*id, named.0, named.1)
        };
        let may_be_eligible =
            is_planted(Mutant::LastMissingIsGivenUp) && state.replicas.iter().any(is_heard);
        Ok(!state.is_complete(broker) || state.isr.iter().any(is_heard) || may_be_eligible)
    }

    fn check_report(&self, broker: &BrokerRef, partitions: usize) -> Answer<()> {
        self.check_epoch(broker)?;
        if partitions > SWEEP_PARTITIONS_MAX {
            let message =
                format!("More than {SWEEP_PARTITIONS_MAX} replicas: report fewer at once.");
            return refuse(ErrorCode::InvalidRequest, message);
        }
        Ok(())
    }

    /// Writes down which of these replicas are out of reach, as far as that is news.
    fn note_offline(&mut self, broker: BrokerId, partitions: &[Named]) {
        let mut news: BTreeMap<TopicId, Vec<PartitionIndex>> = BTreeMap::new();
        for (topic_id, partition) in partitions {
            let is_there = find_replica(self.image(), broker, (*topic_id, *partition)).is_ok();
            let is_news = is_there && !self.image().is_offline(broker, *topic_id, *partition);
            let of_topic = news.entry(*topic_id).or_default();
            if is_news && !of_topic.contains(partition) {
                of_topic.push(*partition);
            }
        }
        news.retain(|_, partitions| !partitions.is_empty());
        if !news.is_empty() {
            let by_topic = news.into_iter();
            let replicas =
                by_topic.map(|(topic_id, partitions)| TopicReplicas { topic_id, partitions });
            let replicas = replicas.collect();
            self.push(MetadataRecord::ReplicasOffline { broker, replicas });
        }
    }

    fn withdraw_one(&mut self, broker: BrokerId, empty: &EmptyReplica) -> Answer<()> {
        let named = (empty.topic_id, empty.partition);
        let (topic, old) = find_replica(self.image(), broker, named)?;
        if empty.partition_epoch.is_some_and(|epoch| epoch != old.partition_epoch) {
            let message = format!(
                "The partition is at epoch {} now: report the replica again if it is empty and counted there.",
                old.partition_epoch
            );
            return refuse(ErrorCode::InvalidUpdateVersion, message);
        }
        if is_planted(Mutant::EmptyReplicasCount) {
            return Ok(());
        }
        let new = self.withdrawn(&topic, named.1, &old, broker);
        self.change_if(named, new);
        self.note_online(broker, named);
        Ok(())
    }

    /// Writes down that a replica is in reach again: its broker made it again, empty.
    fn note_online(&mut self, broker: BrokerId, (topic_id, partition): Named) {
        let is_noted = self.image().is_offline(broker, topic_id, partition);
        if is_noted && self.image().has_returning_replicas() {
            let replicas = vec![TopicReplicas { topic_id, partitions: vec![partition] }];
            self.push(MetadataRecord::ReplicasOnline { broker, replicas });
        }
    }

    /// Others lead, and are in sync, now that this replica is known to be out of reach.
    fn do_without(&mut self, broker: BrokerId, named: Named) -> Answer<()> {
        let (topic, old) = find_replica(self.image(), broker, named)?;
        let new = View::of(self.image(), &topic).settled(named.1, &old);
        self.change_if(named, new.map(|new| in_another_leader_epoch(&old, new)));
        Ok(())
    }

    fn give_up_one(&mut self, broker: BrokerId, named: Named) -> Answer<()> {
        let (topic, old) = find_replica(self.image(), broker, named)?;
        if !old.is_complete(broker) {
            return Ok(());
        }
        if self.is_another_complete(&old, broker, named) || is_planted(Mutant::BothAreGivenUp) {
            let new = self.withdrawn(&topic, named.1, &old, broker);
            self.change_if(named, new);
            return Ok(());
        }
        let message =
            format!("No other replica is complete: that of broker {broker} stays what it is.");
        refuse(ErrorCode::EligibleLeadersNotAvailable, message)
    }

    /// Whether a replica beside that of `broker` is complete, may lead one day, and is not out of reach itself.
    fn is_another_complete(&self, state: &PartitionImage, broker: BrokerId, named: Named) -> bool {
        let image = self.image();
        let is_left = |id: &BrokerId| {
            image.broker(*id).is_some_and(|known| !known.is_offline(named.0, named.1))
        };
        let mut complete = state.isr.iter().chain(&state.elr);
        complete.any(|id| *id != broker && is_left(id))
    }

    /// The state without a broker's replica, if that counts somehow.
    fn withdrawn(
        &self,
        topic: &TopicImage,
        at: PartitionIndex,
        old: &PartitionImage,
        broker: BrokerId,
    ) -> Option<PartitionImage> {
        let new = if self.image().has_eligible_replicas() {
            let lost = Some((broker, Loss::Everything));
            View { lost, ..View::of(self.image(), topic) }.settled(at, old)
        } else {
            self.without_lost(&topic.name, old, broker)
        };
        new.map(|new| in_another_leader_epoch(old, new))
    }

    fn change_if(&mut self, (topic_id, partition): Named, new: Option<PartitionImage>) {
        if let Some(new) = new {
            self.change(topic_id, partition, &new);
        }
    }
}

/// The leader, if it is the same, forgets how far its followers are.
fn in_another_leader_epoch(old: &PartitionImage, new: PartitionImage) -> PartitionImage {
    let is_same = new.has_leader() && new.leader_epoch == old.leader_epoch;
    match is_same && !is_planted(Mutant::WithdrawnIsRemembered) {
        true => PartitionImage { leader_epoch: LeaderEpoch(old.leader_epoch.0 + 1), ..new },
        false => new,
    }
}

/// The partition of which a broker has a replica.
fn find_replica(
    image: &ClusterImage,
    broker: BrokerId,
    (topic_id, partition): Named,
) -> Answer<(Arc<TopicImage>, PartitionImage)> {
    let Some(topic) = image.topic_by_id(topic_id) else {
        return refuse(ErrorCode::UnknownTopicId, "There is no topic with this id.");
    };
    let Some(state) = topic.partition(partition) else {
        return refuse(ErrorCode::UnknownTopicOrPartition, "There is no such partition.");
    };
    if !state.replicas.contains(&broker) {
        return refuse(ErrorCode::InvalidRequest, "The broker has no replica of it.");
    }
    Ok((Arc::clone(topic), state.clone()))
}
