//! Who is in sync, who is eligible and who leads, as far as the brokers' coming and going decides it
//! (KIP-966). Pure in the strictest sense: a partition's state in, its next state out.
//!
//! ```text
//!   ISR   in sync: the high watermark waits for them
//!   ELR   out of sync, and complete: they left an ISR below min.insync.replicas,
//!         and since then the high watermark has not moved
//! ```
//!
//! Election (R4): the leader as long as it is in the ISR and eligible; the first assigned replica in
//! the ISR; a member of the ELR, see below; a leader that is about to stop, while no other replica can take over. None of
//! them lacks an acknowledged record. Then, uncleanly and counted: the last leader, if no complete replica is
//! left at all; where the topic allows it, the last leader or the first eligible replica; for an operator's request, the
//! replica with the greatest log end, of those with known ends. The
//! elected replica must be eligible *now*, the last leader too (KAFKA-19522): so between a broker's fencing and
//! the sweep that follows nothing unsafe can happen. A broker is not eligible for a partition whose replica it cannot
//! serve, because its log directory failed (KIP-858).
//!
//! A member of the ELR whose broker registered again after a stop that was not clean may be a copy of an earlier time. The first
//! member of the ELR that never went away is elected; if there is none, the controller requests (last epoch, synced end) from the
//! complete replicas, and the greatest is elected ([`super::log_ends`]). Every complete replica has every acknowledged record, so the
//! greatest has. A partition with one complete replica elects that one.
//!
//! A partition of which a replica's log has a leader epoch that the metadata does not have ([`super::found_epochs`]) has no leader, although
//! the metadata has complete replicas. An operator's request elects the replica with the greatest log end, in a leader epoch above.
//!
//! The last leader is tried although the topic does not allow unclean elections, as in Kafka ("balanced"
//! recovery): with `durability=page-cache` the death of all processes takes all replicas out of ISR and
//! ELR, and the page cache of the last leader still has everything. So has the replica that was complete the longest, which
//! takes the place of that leader: the leader may have lost its disk before. Kafka would elect an empty replica then.

use super::ReplicaEnd;
use super::agreed::TopicRules;
use crate::image::{ClusterImage, PartitionImage, TopicImage};
use crate::mutants::{Mutant, is_planted};
use model::{BrokerId, LeaderEpoch, PartitionIndex, TopicId};

/// What a broker may have lost since its replicas were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// What was not synced: it did not stop cleanly.
    Unsynced,
    /// Everything: its disk is another one, or a replica was made anew (R12).
    Everything,
}

/// The facts by which one partition is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// All facts.
    pub(super) image: &'a ClusterImage,
    /// The topic.
    pub(super) topic: TopicId,
    /// What the topic goes by.
    pub(super) rules: TopicRules,
    /// Whose replica is not what it was when it was counted.
    pub(super) lost: Option<(BrokerId, Loss)>,
    /// Whether a person asks for a leader, whatever it lacks (KIP-460).
    pub(super) forced: bool,
    /// Ends of logs in this partition epoch, as far as they are known.
    pub(super) ends: &'a [ReplicaEnd],
}

/// A leader, or [`BrokerId::NONE`], and the ISR that goes with it.
struct Choice {
    leader: BrokerId,
    isr: Vec<BrokerId>,
    clean: bool,
}

impl Choice {
    fn clean(leader: BrokerId, isr: Vec<BrokerId>) -> Choice {
        Choice { leader, isr, clean: true }
    }
}

/// The same partition in its next epoch; in its next leader epoch if the leader is (or may be)
/// another.
pub(super) fn next(old: &PartitionImage, new_leader: bool) -> PartitionImage {
    PartitionImage {
        leader_epoch: LeaderEpoch(old.leader_epoch.0 + i32::from(new_leader)),
        partition_epoch: old.partition_epoch + 1,
        ..old.clone()
    }
}

impl<'a> View<'a> {
    /// A view on a topic's partitions when nobody has lost anything.
    pub(super) fn of(image: &'a ClusterImage, topic: &TopicImage) -> View<'a> {
        let rules = TopicRules::of(image, &topic.name);
        View { image, topic: topic.id, rules, lost: None, forced: false, ends: &[] }
    }

    /// The state of the partition `at` that follows from who is eligible now, or `None` if it is this one.
    pub(super) fn settled(
        &self,
        at: PartitionIndex,
        old: &PartitionImage,
    ) -> Option<PartitionImage> {
        let Choice { leader, isr, clean } = self.choose(at, old);
        // After an unclean election nobody is known to have what the new leader has.
        let elr = if clean { self.elr(old, &isr) } else { Vec::new() };
        let restarted = self.restarted(old, &elr);
        let led = leader != BrokerId::NONE;
        let found = self.found_epoch(at).filter(|_| led).unwrap_or(LeaderEpoch::NONE);
        let found = found.in_generation(old.leader_epoch.generation());
        let last_known_leader = if led { BrokerId::NONE } else { self.last_known_leader(old) };
        let new = PartitionImage {
            isr,
            elr,
            restarted,
            leader,
            last_known_leader,
            recovering: old.recovering || !clean,
            ..next(old, leader != old.leader)
        };
        let new =
            PartitionImage { leader_epoch: new.leader_epoch.max(LeaderEpoch(found.0 + 1)), ..new };
        assert!(clean || leader != old.leader, "an unclean election begins a leader epoch");
        let same = (&new.isr, &new.elr, new.leader) == (&old.isr, &old.elr, old.leader)
            && new.restarted == old.restarted
            && new.last_known_leader == old.last_known_leader;
        (!same).then_some(new)
    }

    /// The eligible replicas beside an ISR: whoever was complete, if the ISR is too small for the high
    /// watermark to move. In the order of assignment.
    pub(super) fn elr(&self, old: &PartitionImage, isr: &[BrokerId]) -> Vec<BrokerId> {
        let enough = self.rules.members_needed(old.replicas.len());
        if isr.len() >= enough && !is_planted(Mutant::EligibleForEver) {
            return Vec::new();
        }
        let complete = |id: &BrokerId| old.is_complete(*id) && self.counts(old, *id);
        let replicas = old.replicas.iter().copied();
        replicas.filter(|id| complete(id) && !isr.contains(id)).collect()
    }

    fn choose(&self, at: PartitionIndex, old: &PartitionImage) -> Choice {
        if self.found_epoch(at).is_some() {
            let leader = if self.forced { self.unclean_leader(at, old) } else { None };
            return leader.map_or_else(
                || Choice::clean(BrokerId::NONE, Vec::new()),
                |leader| Choice { leader, isr: vec![leader], clean: false },
            );
        }
        let counted = |id: &BrokerId| self.counts(old, *id);
        let is_eligible = |id: &BrokerId| self.image.is_eligible(*id) && self.is_served(at, *id);
        let isr: Vec<BrokerId> = old.isr.iter().copied().filter(counted).collect();
        let in_sync: Vec<BrokerId> = isr.iter().copied().filter(is_eligible).collect();
        let candidates = old.replicas.iter().copied().filter(is_eligible);
        if in_sync.contains(&old.leader) {
            return Choice::clean(old.leader, in_sync);
        }
        if let Some(leader) = candidates.clone().find(|id| in_sync.contains(id)) {
            return Choice::clean(leader, in_sync);
        }
        let eligible = candidates.clone().filter(|id| old.elr.contains(id) && counted(id));
        let eligible: Vec<BrokerId> = eligible.collect();
        if let Some(leader) = self.choose_eligible(old, &eligible) {
            return Choice::clean(leader, vec![leader]);
        }
        let serves = |id: &BrokerId| self.image.is_active(*id) && self.is_served(at, *id);
        if isr.contains(&old.leader) && serves(&old.leader) {
            return Choice::clean(old.leader, isr.into_iter().filter(serves).collect());
        }
        if !eligible.is_empty() {
            // The ends of their logs are not known yet.
            return Choice::clean(BrokerId::NONE, Vec::new());
        }
        let anybody = candidates.clone().next().filter(|_| is_planted(Mutant::AnybodyLeads));
        if let Some(leader) = anybody {
            return Choice::clean(leader, vec![leader]);
        }
        match self.unclean_leader(at, old) {
            Some(leader) => Choice { leader, isr: vec![leader], clean: false },
            None => Choice::clean(BrokerId::NONE, Vec::new()),
        }
    }

    /// The leader among eligible replicas in the order of assignment. `None`: log ends decide, and are not known.
    fn choose_eligible(&self, old: &PartitionImage, eligible: &[BrokerId]) -> Option<BrokerId> {
        let first = eligible.first().copied();
        let is_only = || {
            let may_return = |id: &&BrokerId| {
                old.is_complete(**id) && self.counts(old, **id) && self.image.broker(**id).is_some()
            };
            old.replicas.iter().filter(may_return).count() == 1
        };
        if self.forced {
            return self.greatest(eligible).or(first);
        }
        if is_only() || is_planted(Mutant::RestartedIsTrusted) {
            return first;
        }
        let mut stayed = eligible.iter().copied().filter(|id| !self.is_restarted(old, *id));
        stayed.next().or_else(|| self.greatest(eligible))
    }

    /// The replica with the greatest (last epoch, synced end); the first one of several.
    fn greatest(&self, eligible: &[BrokerId]) -> Option<BrokerId> {
        let end_of = |id: &BrokerId| {
            let epoch = self.image.broker(*id)?.epoch;
            let same = |end: &&ReplicaEnd| end.broker.broker == *id && end.broker.epoch == epoch;
            let end = self.ends.iter().find(same)?;
            Some(((end.last_epoch, end.end), *id))
        };
        // Of equal ones the last is the maximum.
        let mut known = eligible.iter().rev().filter_map(end_of);
        if self.forced && is_planted(Mutant::UncleanTakesFirst) {
            return known.next_back().map(|(_, id)| id);
        }
        known.max_by_key(|(end, _)| *end).map(|(_, id)| id)
    }

    fn is_restarted(&self, old: &PartitionImage, id: BrokerId) -> bool {
        old.restarted.contains(&id)
            || self.image.detects_copies() && self.lost.is_some_and(|(lost, _)| lost == id)
    }

    /// The eligible replicas of which only log ends say whether they are complete.
    fn restarted(&self, old: &PartitionImage, elr: &[BrokerId]) -> Vec<BrokerId> {
        elr.iter().copied().filter(|id| self.is_restarted(old, *id)).collect()
    }

    /// Whether a replica that was complete still is. What is synced outlives any end of a process
    /// (R11), but not its disk (R12).
    fn counts(&self, old: &PartitionImage, id: BrokerId) -> bool {
        match self.lost {
            Some((broker, loss)) if broker == id => loss == Loss::Unsynced && old.durable,
            _ => true,
        }
    }

    /// A leader epoch of the partition that only a replica's log has.
    fn found_epoch(&self, at: PartitionIndex) -> Option<LeaderEpoch> {
        self.image.topic_by_id(self.topic)?.found_epoch(at)
    }

    /// Whether a broker can serve its replica, as far as is known (KIP-858).
    fn is_served(&self, at: PartitionIndex, id: BrokerId) -> bool {
        !self.image.is_offline(id, self.topic, at) || is_planted(Mutant::OfflineLeads)
    }

    fn unclean_leader(&self, at: PartitionIndex, old: &PartitionImage) -> Option<BrokerId> {
        let allowed = self.forced || self.rules.unclean;
        let complete = |id: &BrokerId| old.is_complete(*id) && self.counts(old, *id);
        let lost = self.lost.map(|(broker, _)| broker);
        let is_eligible = |id: &BrokerId| self.image.is_eligible(*id) && self.is_served(at, *id);
        let may_lead = |id: &BrokerId| is_eligible(id) && lost != Some(*id);
        if self.forced {
            let serving: Vec<BrokerId> = old.replicas.iter().copied().filter(may_lead).collect();
            if let Some(greatest) = self.greatest(&serving) {
                return Some(greatest);
            }
        }
        // Who this very registration takes the place of counts here already.
        let last = if old.has_leader() { BrokerId::NONE } else { self.last_known_leader(old) };
        let may_lead_again = |id: &BrokerId| {
            may_lead(id) || old.replicas.contains(id) && is_planted(Mutant::FencedLastLeader)
        };
        if may_lead_again(&last) && (allowed || !old.replicas.iter().any(complete)) {
            return Some(last);
        }
        let mut replicas = old.replicas.iter().copied();
        replicas.find(|id| allowed && may_lead(id))
    }

    /// The last leader of a partition that has none now; or the replica that was the last to be complete, which has all that was
    /// acknowledged if only its process died. The leader may have lost its disk, or what no disk had, before.
    fn last_known_leader(&self, old: &PartitionImage) -> BrokerId {
        let last = match &old.isr[..] {
            _ if old.has_leader() => old.leader,
            _ if old.last_known_leader != BrokerId::NONE => old.last_known_leader,
            // Before there were eligible replicas, the last one to lead stayed in the ISR.
            [only] => *only,
            _ => BrokerId::NONE,
        };
        let counted = |id: &BrokerId| old.is_complete(*id) && self.counts(old, *id);
        match self.lost {
            Some((id, Loss::Everything)) if id == last => BrokerId::NONE,
            Some((id, Loss::Unsynced)) if old.is_complete(id) => {
                if old.replicas.iter().any(counted) { last } else { id }
            }
            _ => last,
        }
    }
}
