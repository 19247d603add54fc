//! What is decided, whoever knows it; and what must follow from it for the logs, whoever has them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use metadata::decide::BrokerRef;
use metadata::record::TopicReplicas;
use metadata::{ClusterImage, MetadataRecord, PartitionImage};
use model::batch::Batches;
use model::{BatchHeader, BrokerEpoch, BrokerId, LeaderEpoch, Offset, Timestamp};
use node::Key;

use super::broker::state_of;
use super::controller::{Entry, min_insync_of};
use super::member::{Member, incarnation_of};
use super::topics::{key_of, partition_of, partitions_in};
use super::{Cluster, id_of, number_of};
use crate::history::Broken;
use crate::invariant::Invariant;
use crate::message::PartitionId;

/// So many changes of an ISR within so many milliseconds are too many.
const STEADY: (usize, i64) = (12, 150);

/// A batch as it was first seen: its checksum, and where the next one begins.
type Content = (u32, Offset);

/// The newest decision, and every batch that was ever in a log.
#[derive(Debug, Default)]
pub(super) struct Truth {
    pub(super) image: Arc<ClusterImage>,
    /// By partition, leader epoch and first offset.
    contents: BTreeMap<(PartitionId, LeaderEpoch, Offset), Content>,
    /// Topics by their first partitions, in the order of their creation.
    created: Vec<PartitionId>,
    /// How far the log of a broker was looked at.
    looked: BTreeMap<(usize, PartitionId), Offset>,
    /// An unclean election was allowed and happened, or power failed behind a disk that lied: what was acknowledged may be gone.
    pub(super) forgiven: BTreeSet<PartitionId>,
    /// Partitions of which a replica on a disk from a copy was elected. Records behind its end may be committed although no
    /// client has an answer: a replica with them refuses to truncate.
    led_by_copies: BTreeSet<PartitionId>,
    /// Partitions of which an operator's election has begun a leader epoch: truncation is allowed.
    operated: BTreeSet<PartitionId>,
    /// When ISRs were last changed without an election.
    isr_changes: BTreeMap<PartitionId, VecDeque<Timestamp>>,
    /// Replicas that left ISR and ELR because their brokers said that they are out of reach, with the registrations in which
    /// that was: they count again when the brokers have started again.
    withdrawn: BTreeSet<(BrokerId, BrokerEpoch, PartitionId)>,
    /// What controllers wanted to be written, by place and term: it may never be committed.
    decided: BTreeMap<(usize, u64), Arc<Entry>>,
    /// The terms of the committed entries of the metadata log.
    terms: Vec<u64>,
    /// Who led the metadata log in which term.
    controllers: BTreeMap<u64, usize>,
}

impl Truth {
    /// Whether the topic that begins with `topic` was created after the one that begins with `other`. Requests to create may
    /// be decided in another order than that of the topics' numbers.
    pub(super) fn is_newer(&self, topic: PartitionId, other: PartitionId) -> bool {
        let rank = |topic| self.created.iter().position(|known| *known == topic);
        rank(topic) > rank(other)
    }

    /// Whether a replica of the partition may refuse to truncate.
    pub(super) fn may_refuse(&self, at: PartitionId) -> bool {
        self.forgiven.contains(&at) || self.led_by_copies.contains(&at)
    }

    /// Whether a replica of the partition may truncate committed records.
    pub(super) fn may_truncate(&self, at: PartitionId) -> bool {
        self.forgiven.contains(&at)
            || self.led_by_copies.contains(&at) && self.operated.contains(&at)
    }

    /// Whether a client may find that this invariant does not hold. A copy that was elected lacks records that were
    /// committed and that no client has read: their high watermark was in an answer.
    pub(super) fn may_show(&self, invariant: Invariant) -> bool {
        let is_high_watermark = invariant == Invariant::MonotonicHighWatermark;
        !self.forgiven.is_empty() || is_high_watermark && !self.led_by_copies.is_empty()
    }

    /// Its logs will be looked at from their beginning.
    pub(super) fn forget_logs_of(&mut self, broker: usize) {
        self.looked.retain(|(of, _), _| *of != broker);
    }

    /// A controller of this term wants this to be written at this place.
    pub(super) fn decided(&mut self, at: usize, term: u64, entry: Entry) {
        self.decided.insert((at, term), Arc::new(entry));
    }

    /// The entry at this place is committed, as a node says: what was decided, if that node is the first to say so.
    pub(super) fn committed(&mut self, at: usize, term: u64) -> Result<Option<Arc<Entry>>, Broken> {
        match self.terms.get(at) {
            None => {
                assert_eq!(at, self.terms.len(), "entries are committed in order");
                self.terms.push(term);
                let entry = self.decided.get(&(at, term)).cloned();
                let what = || format!("no controller has decided entry {at} of term {term}");
                entry.map(Some).ok_or_else(|| (Invariant::DecisionsFollow, what()))
            }
            Some(known) if *known == term => Ok(None),
            Some(known) => {
                let what = format!("entry {at} is committed in terms {known} and {term}");
                Err((Invariant::DecisionsFollow, what))
            }
        }
    }

    /// Somebody leads the metadata log; says who else does in this term.
    pub(super) fn elected(&mut self, term: u64, member: usize) -> Option<usize> {
        let first = *self.controllers.entry(term).or_insert(member);
        (first != member).then_some(first)
    }

    /// The member that led the metadata log before this term.
    pub(super) fn former(&self, term: u64) -> Option<usize> {
        self.controllers.range(..term).next_back().map(|(_, member)| *member)
    }

    /// A batch is in a log: it is the one that ever was there in this leader epoch (R2).
    fn saw(&mut self, at: PartitionId, header: &BatchHeader) -> Result<(), Broken> {
        let key = (at, header.leader_epoch, header.base_offset);
        let content = (header.crc, header.next_offset());
        let first = *self.contents.entry(key).or_insert(content);
        if first == content {
            return Ok(());
        }
        let (_, epoch, offset) = key;
        let what = format!("offset {offset} of {at} in leader epoch {epoch} has two contents");
        Err((Invariant::OneContentInAnEpoch, what))
    }
}

impl Cluster {
    /// An entry of the metadata log is committed.
    pub(super) fn commit(&mut self, entry: &Entry) -> Result<(), Broken> {
        for record in &*entry.records {
            let before = Arc::clone(&self.truth.image);
            let image = Arc::make_mut(&mut self.truth.image);
            if let Err(contradiction) = image.replay(record) {
                return Err((Invariant::DecisionsFollow, contradiction.to_string()));
            }
            self.notice_registrations();
            self.notice_reachable();
            let topic = self.partitions();
            if !topic.is_empty() && !self.truth.created.contains(&topic.start) {
                self.truth.created.push(topic.start);
            }
            self.history.add_partitions(&topic);
            if let MetadataRecord::ReplicasOnline { broker, replicas } = record {
                self.check_returned(*broker, replicas)?;
            }
            if let MetadataRecord::PartitionChanged { topic_id, state }
            | MetadataRecord::PartitionChanged2 { topic_id, state } = record
            {
                let key = Key { topic_id: *topic_id, partition: state.partition };
                let at = partition_of(key).expect("it is a partition of this run");
                let of = |image| state_of(image, at).cloned().expect("it was changed");
                let (old, new) = (of(&before), of(&self.truth.image));
                self.trace.note(self.now, format_args!("{at}: {new:?}"));
                self.check_change(at, &old, &new, entry)?;
                self.check_sick_change(at, &old, &new, entry)?;
            }
        }
        self.check_truncation_allowed(entry)?;
        self.notice_pending();
        self.notice_lost_partitions();
        if entry.is_swept { self.check_swept() } else { Ok(()) }
    }

    /// The controller knows what a machine lost when its new process may serve.
    fn notice_registrations(&mut self) {
        let news = |member: &Member| member.has_lost || member.may_give_up || member.lacks_second;
        for (number, member) in self.members.iter_mut().enumerate().filter(|(_, m)| news(m)) {
            let id = id_of(number);
            let incarnation = incarnation_of(id, member.incarnation);
            let known = self.truth.image.broker(id);
            let is_it =
                known.is_some_and(|known| known.incarnation == incarnation && !known.fenced);
            let is_over = is_it && member.broker.is_some();
            let is_well = member.broker.as_ref().is_some_and(|it| it.out_of_reach.is_empty());
            let has_all = member.broker.as_ref().is_some_and(|it| !it.log_dirs.is_incomplete());
            member.has_lost &= !is_over;
            member.lacks_second &= !(is_over && has_all);
            member.may_give_up &= !(is_over && is_well);
        }
    }

    fn check_change(
        &mut self,
        at: PartitionId,
        old: &PartitionImage,
        new: &PartitionImage,
        entry: &Entry,
    ) -> Result<(), Broken> {
        let enough = min_insync_of(&self.truth.image).min(new.replicas.len());
        if new.isr.len() >= enough && !new.elr.is_empty() {
            return Err((Invariant::StatesAreSound, format!("{at}: {new:?}")));
        }
        if new.has_leader() && new.leader_epoch > old.leader_epoch {
            self.check_elected(at, old, new, entry)?;
        }
        if new.leader_epoch == old.leader_epoch {
            self.check_steady(at)?;
        }
        self.check_withdrawn(at, old, new, entry)?;
        for id in new.isr.iter().filter(|id| !old.isr.contains(id) && **id != new.leader) {
            if !self.truth.image.is_eligible(*id) {
                let what = format!("{id} may not join an ISR of {at}: {new:?}");
                return Err((Invariant::StatesAreSound, what));
            }
            self.check_complete(at, *id)?;
        }
        Ok(())
    }

    /// A replica that was withdrawn for its failed disk stays out until its broker starts again; only where it is not written
    /// down which replicas are out of reach one may be elected uncleanly.
    fn check_withdrawn(
        &mut self,
        at: PartitionId,
        old: &PartitionImage,
        new: &PartitionImage,
        entry: &Entry,
    ) -> Result<(), Broken> {
        for id in &new.replicas {
            let Some(epoch) = self.truth.image.broker(*id).map(|known| known.epoch) else {
                continue;
            };
            let is_given_up = entry.given_up_by == Some(BrokerRef { broker: *id, epoch });
            let (was, is) = (old.is_complete(*id), new.is_complete(*id));
            if was && !is && is_given_up {
                self.truth.withdrawn.insert((*id, epoch, at));
            }
            let is_elected = new.leader == *id && new.leader_epoch > old.leader_epoch;
            let is_known = self.truth.image.has_offline_replicas();
            let is_withdrawn = self.truth.withdrawn.contains(&(*id, epoch, at));
            if is && !was && is_withdrawn && (is_known || !is_elected) {
                let what = format!("{id} was withdrawn from {at}, and counts again: {new:?}");
                return Err((Invariant::StatesAreSound, what));
            }
        }
        Ok(())
    }

    /// A replica that its broker made again counts nowhere, and may join an ISR from now on.
    fn check_returned(
        &mut self,
        broker: BrokerId,
        replicas: &[TopicReplicas],
    ) -> Result<(), Broken> {
        let known = self.truth.image.broker(broker);
        let epoch = known.expect("a record of a broker names a registered one").epoch;
        for TopicReplicas { topic_id, partitions } in replicas {
            for partition in partitions {
                let key = Key { topic_id: *topic_id, partition: *partition };
                let at = partition_of(key).expect("it is a partition of this run");
                self.truth.withdrawn.remove(&(broker, epoch, at));
                if let Some(state) = self.state_of(at).filter(|it| it.is_complete(broker)) {
                    let what = format!("{broker} made {at} again, and counts: {state:?}");
                    return Err((Invariant::StatesAreSound, what));
                }
            }
        }
        Ok(())
    }

    fn check_steady(&mut self, at: PartitionId) -> Result<(), Broken> {
        let (count, ms) = STEADY;
        let changes = self.truth.isr_changes.entry(at).or_default();
        changes.push_back(self.now);
        let first = if changes.len() > count { changes.pop_front() } else { None };
        match first.filter(|first| self.now.ms_since(*first) < ms) {
            Some(first) => {
                let what = format!("the ISR of {at} changed {count} times since {first}");
                Err((Invariant::IsrIsSteady, what))
            }
            None => Ok(()),
        }
    }

    /// A leader serves, and has everything; or its election is allowed, and counted (R4).
    fn check_elected(
        &mut self,
        at: PartitionId,
        old: &PartitionImage,
        new: &PartitionImage,
        entry: &Entry,
    ) -> Result<(), Broken> {
        let leader = new.leader;
        if self.members[number_of(leader)].copied.is_from_copy {
            self.truth.led_by_copies.insert(at);
        }
        if entry.by_operator.is_some() {
            self.truth.operated.insert(at);
        }
        let Key { topic_id, partition } = key_of(at);
        if self.truth.image.is_offline(leader, topic_id, partition) {
            let what = format!("{leader} cannot serve its replica, and leads {at}: {new:?}");
            return Err((Invariant::LeaderIsComplete, what));
        }
        self.check_present(at, leader)?;
        if !self.truth.image.is_active(leader) {
            let what = format!("{leader} is fenced, and leads {at}: {new:?}");
            return Err((Invariant::LeaderIsComplete, what));
        }
        if old.leader != leader && !old.is_complete(leader) {
            // A broker that registers by this entry, or reports empty replicas, may have lost the replica.
            let may_have_lost = |id: &BrokerId| {
                entry.emptied_by == Some(*id)
                    || entry.records.iter().any(|record| {
                        matches!(record, MetadataRecord::BrokerRegistered(of) if of.broker == *id)
                    })
            };
            let is_last = old.last_known_leader == leader
                && !old.replicas.iter().any(|id| old.is_complete(*id) && !may_have_lost(id));
            let is_counted = entry.unclean.iter().any(|unclean| {
                let named = Key { topic_id: unclean.topic_id, partition: unclean.partition };
                named == key_of(at) && unclean.leader_epoch == new.leader_epoch
            });
            let by_operator = entry.by_operator.as_ref();
            // A person elects one of several replicas that no broker had made when all of them ended.
            let is_empty = self.history.acked_end(at) == Offset(0)
                && old.last_known_leader == BrokerId::NONE
                && !old.replicas.iter().any(|id| old.is_complete(*id));
            let is_wanted = by_operator.is_some() || is_empty;
            if !is_counted || !(self.plan.unclean || is_last || is_wanted) {
                let what = format!("{leader} leads {at} after {old:?}");
                return Err((Invariant::LeaderIsComplete, what));
            }
            if let Some(by_operator) = by_operator {
                self.check_operators_choice(at, old, leader, by_operator)?;
            }
            if self.plan.unclean || by_operator.is_some() {
                self.truth.forgiven.insert(at);
                self.history.forgive(at);
            }
        }
        let is_copy = self.members[number_of(leader)].copied.is_stale;
        let is_clean = old.leader == leader || old.is_complete(leader);
        if is_copy && is_clean && self.is_registered(leader) {
            return self.check_copy_elected(at, old, leader);
        }
        self.check_complete(at, leader)
    }

    /// Whether the process that runs is the registered one, and the controller knows of all losses of the machine.
    pub(super) fn is_registered(&self, id: BrokerId) -> bool {
        let member = &self.members[number_of(id)];
        let known = self.truth.image.broker(id);
        let is_it = |broker: &super::ClusterBroker| known.is_some_and(|k| k.epoch == broker.epoch);
        member.broker.as_ref().is_some_and(is_it) && !member.has_lost
    }

    /// A replica that counts has everything that is acknowledged.
    fn check_complete(&self, at: PartitionId, id: BrokerId) -> Result<(), Broken> {
        let member = &self.members[number_of(id)];
        let known = self.truth.image.broker(id);
        let is_it = |broker: &&super::ClusterBroker| known.is_some_and(|k| k.epoch == broker.epoch);
        let running = member.broker.as_ref().filter(is_it);
        let (Some(broker), false) = (running, member.has_lost || self.truth.forgiven.contains(&at))
        else {
            return Ok(());
        };
        let end = broker.log_end(at);
        let acked = self.history.acked_end(at);
        if end < acked {
            let what = format!("{id} counts for {at}, ends at {end}, and {acked} is acknowledged");
            return Err((Invariant::LeaderIsComplete, what));
        }
        self.check_deleted(at, broker)
    }

    /// Whoever leads, as it is decided, has what a client was just told to be stored.
    pub(super) fn check_leaders(&self) -> Result<(), Broken> {
        for at in self.partitions() {
            let Some(state) = self.state_of(at).filter(|state| state.has_leader()) else {
                continue;
            };
            self.check_complete(at, state.leader)?;
        }
        Ok(())
    }

    /// What follows from brokers' coming and going is decided: no fenced broker is in an ISR (R5).
    fn check_swept(&self) -> Result<(), Broken> {
        for at in self.partitions() {
            let Some(state) = self.state_of(at) else { continue };
            if let Some(fenced) = state.isr.iter().find(|id| !self.truth.image.is_active(**id)) {
                let what = format!("{fenced} is fenced, and in the ISR of {at}: {state:?}");
                return Err((Invariant::StatesAreSound, what));
            }
        }
        Ok(())
    }

    /// Looks at what came into logs, and at what is left where one was cut.
    pub(super) fn look_at_logs(&mut self) -> Result<(), Broken> {
        let mut cut = Vec::new();
        for (number, member) in self.members.iter().enumerate() {
            let Some(broker) = &member.broker else { continue };
            // What a failed disk has is looked at when its broker has started again.
            let is_in_reach = |at: &PartitionId| !broker.out_of_reach.contains(at);
            for at in broker.partitions.keys().copied().filter(is_in_reach) {
                let log_end = broker.log_end(at);
                let looked = self.truth.looked.entry((number, at)).or_insert(Offset(0));
                if log_end <= *looked {
                    cut.extend((log_end < *looked).then_some((number, at)));
                    *looked = log_end;
                    continue;
                }
                let from = std::mem::replace(looked, log_end);
                let bytes = broker.log_bytes(at, from);
                self.recreations.check_apart(at, &bytes, &self.history)?;
                for batch in Batches::new(&bytes) {
                    let (header, _) = batch.expect("logs have whole batches");
                    self.truth.saw(at, &header)?;
                }
            }
        }
        for (number, at) in cut {
            let id = id_of(number);
            // An older copy lacked the records before it truncated; its election has a check of its own.
            let is_older_copy = self.members[number].copied.is_stale;
            if !is_older_copy && self.state_of(at).is_some_and(|state| state.is_complete(id)) {
                self.check_complete(at, id)?;
            }
        }
        Ok(())
    }

    pub(super) fn state_of(&self, at: PartitionId) -> Option<&PartitionImage> {
        state_of(&self.truth.image, at)
    }

    /// Partitions of the topic, as it is decided; none while the topic is deleted.
    pub(super) fn partitions(&self) -> Range<PartitionId> {
        partitions_in(&self.truth.image)
    }
}
