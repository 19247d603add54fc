//! What a leader knows of its leader epoch: the in-sync replicas and how far each replica has come.
//!
//! Two sets are told apart (KIP-497, KIP-966). The *committed* ISR is what the controller has decided, as far
//! as is known here. The *maximal* ISR also has everybody whom the controller may have taken in meanwhile,
//! because it was asked to and the answer is not known: any of them may be elected, so the high watermark
//! waits for all of them.

use std::time::Duration;

use model::{BrokerEpoch, BrokerId, LeaderEpoch, Moment, Offset};

use crate::assignment::{AssignedReplica, Assignment};
use crate::mutants::{Mutant, is_planted};
use crate::peer::{FollowerFetch, Peer};

/// How long nothing is asked of the controller after it has refused.
const REST_AFTER_REFUSAL: Duration = Duration::from_millis(500);

/// An ISR that the controller is asked for (AlterPartition).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The leader epoch in which it is asked.
    pub leader_epoch: LeaderEpoch,
    /// The state of the partition that it is meant to follow.
    pub partition_epoch: i32,
    /// The members wanted, this broker first; for the others the registration that caught up, if it is known.
    pub isr: Vec<(BrokerId, Option<BrokerEpoch>)>,
    /// Every member has synced all records below the high watermark, and counts synced positions only from now on: the
    /// partition becomes durable.
    pub durable: bool,
}

impl Proposal {
    fn has(&self, broker: BrokerId) -> bool {
        self.isr.iter().any(|(member, _)| *member == broker)
    }
}

/// What the controller has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrDecision {
    /// The state's number.
    pub partition_epoch: i32,
    /// The ISR.
    pub isr: Vec<BrokerId>,
    /// See [`Assignment::recovering`].
    pub recovering: bool,
}

/// What became of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IsrAnswer {
    /// It is decided.
    Decided(IsrDecision),
    /// It was refused, and nothing changed: a member is not eligible, or the request was not looked at.
    Refused,
    /// The controller knows a newer state of the partition, perhaps by this very proposal, sent twice. The image
    /// will say.
    Superseded,
    /// No answer, or none that says whether it happened: a time-out, a broken connection, a controller that
    /// was deposed.
    Unknown,
}

/// A leader's book about one leader epoch of its partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leadership {
    /// The leader epoch. Invariant: fixed for the life of this value.
    epoch: LeaderEpoch,
    /// Log end when the epoch began: what stands below was written in earlier ones.
    epoch_start: Offset,
    /// The number of the newest state known.
    partition_epoch: i32,
    /// In-sync replicas as the controller has committed them, this broker first.
    /// Invariant: never empty, contains this broker, no duplicates.
    isr: Vec<BrokerId>,
    /// See [`Assignment::recovering`].
    recovering: bool,
    /// See [`Assignment::awaits_durability`].
    awaits_durability: bool,
    /// Every other replica that is assigned, in or out of sync.
    peers: Vec<Peer>,
    /// What the controller is being asked, if anything.
    pending: Option<Proposal>,
    /// Members of proposals on the present partition epoch whose outcome is not known: the controller may have
    /// taken them in.
    unsettled: Vec<BrokerId>,
    /// Nothing is proposed before.
    rests_until: Moment,
    /// The newest moment that was told: appends and syncs come without one.
    now: Moment,
}

impl Leadership {
    /// A leader epoch that begins where the log ends.
    pub(crate) fn begin(
        me: BrokerId,
        assignment: &Assignment,
        epoch_start: Offset,
        now: Moment,
    ) -> Leadership {
        let peers = assignment.replicas.iter().filter(|replica| replica.broker != me);
        let peer = |replica: &AssignedReplica| {
            let is_in_sync = assignment.isr.contains(&replica.broker);
            let mut peer = Peer::new(*replica, is_in_sync.then_some(now));
            if is_planted(Mutant::PositionsOfEarlierEpochs) {
                peer.believe(epoch_start, now);
            }
            peer
        };
        Leadership {
            epoch: assignment.leader_epoch,
            epoch_start,
            partition_epoch: assignment.partition_epoch,
            isr: in_order(me, &assignment.isr),
            recovering: assignment.recovering,
            awaits_durability: assignment.awaits_durability,
            peers: peers.map(peer).collect(),
            pending: None,
            unsettled: Vec::new(),
            rests_until: now,
            now,
        }
    }

    /// Time has gone on.
    pub(crate) fn at(&mut self, now: Moment) {
        self.now = self.now.max(now);
    }

    /// The leader epoch.
    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// Where the leader epoch began.
    pub fn epoch_start(&self) -> Offset {
        self.epoch_start
    }

    /// The number of the partition's state.
    pub fn partition_epoch(&self) -> i32 {
        self.partition_epoch
    }

    /// The in-sync replicas that the controller has committed, this broker first.
    pub fn isr(&self) -> &[BrokerId] {
        &self.isr
    }

    /// Every other replica.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// How many replicas the partition is assigned.
    pub fn replica_count(&self) -> usize {
        self.peers.len() + 1
    }

    /// See [`Assignment::awaits_durability`].
    pub(crate) fn awaits_durability(&self) -> bool {
        self.awaits_durability
    }

    /// What the controller is being asked.
    pub fn pending(&self) -> Option<&Proposal> {
        self.pending.as_ref()
    }

    /// Whether the controller may have `broker` in the ISR (KIP-497: the maximal ISR).
    pub fn may_be_in_sync(&self, broker: BrokerId) -> bool {
        if is_planted(Mutant::CommittedIsrOnly) {
            return self.isr.contains(&broker);
        }
        let is_proposed = self.pending.as_ref().is_some_and(|proposal| proposal.has(broker));
        self.isr.contains(&broker) || self.unsettled.contains(&broker) || is_proposed
    }

    /// Whether every other replica that the controller may elect has followed this leader epoch since `since`: members of
    /// the maximal ISR, and `others` (the ELR). Then no other leader was elected before `since`. `is_here`: the broker
    /// has fetched any partition since; see [`Peer::follows`].
    pub fn is_followed(
        &self,
        others: &[BrokerId],
        since: Moment,
        log_end: Offset,
        is_here: impl Fn(BrokerId) -> bool,
    ) -> bool {
        let may_lead =
            |peer: &&Peer| self.may_be_in_sync(peer.broker()) || others.contains(&peer.broker());
        let mut peers = self.peers.iter().filter(may_lead);
        peers.all(|peer| peer.follows(since, log_end, is_here(peer.broker())))
    }

    /// Everything below is on every replica that the controller may elect; `own` is this broker's position.
    ///
    /// Waits as well for a replica that is about to join (caught up within `lag_max`, and eligible): under load
    /// the high watermark would otherwise always be a step ahead of it. One that may not join is not waited for
    /// (KAFKA-15021), nor one that had everything before it was away: it may come back with a long way to go.
    pub(crate) fn committed(&self, own: Offset, log_start: Offset, lag_max: Duration) -> Offset {
        if is_planted(Mutant::LeaderAlone) {
            return own;
        }
        let mut committed = own;
        for peer in &self.peers {
            let is_joining = || {
                let floor = self.epoch_start;
                let is_recent = peer.has_been_caught_up(self.now, lag_max);
                let is_ignored = is_planted(Mutant::CommittedIsrOnly);
                is_recent && !is_ignored && peer.may_join(floor).is_some()
            };
            if self.may_be_in_sync(peer.broker()) || is_joining() {
                committed = committed.min(peer.position().unwrap_or(log_start));
            }
        }
        // A member without a replica is being moved away; nobody knows how far it is.
        let is_known = |id: &BrokerId| self.peers.iter().any(|peer| peer.broker() == *id);
        match self.isr[1..].iter().all(is_known) {
            true => committed,
            false => log_start,
        }
    }

    /// Lowest durable log start of all replicas that serve or may be elected; `own` is this broker's (KIP-107).
    /// `None` while one of them has not reported its log start.
    ///
    /// A fenced replica counts until the controller has removed it from the ISR: before that it may be elected.
    pub(crate) fn low_watermark(&self, own: Offset) -> Option<Offset> {
        if is_planted(Mutant::LowWatermarkAlone) {
            return Some(own);
        }
        let counts = |peer: &&Peer| peer.serves() || self.may_be_in_sync(peer.broker());
        let is_known = |id: &BrokerId| self.peers.iter().any(|peer| peer.broker() == *id);
        if !self.isr[1..].iter().all(is_known) {
            return None;
        }
        let mut starts = self.peers.iter().filter(counts).map(Peer::log_start);
        starts.try_fold(own, |low, start| Some(low.min(start?)))
    }

    /// A follower's fetch. Says whether it counted.
    pub(crate) fn fetch(&mut self, fetch: &FollowerFetch, log_end: Offset) -> bool {
        if fetch.leader_epoch != self.epoch {
            return false;
        }
        let of_broker = |peer: &&mut Peer| peer.broker() == fetch.follower;
        let Some(peer) = self.peers.iter_mut().find(of_broker) else { return false };
        if peer.is_older_than(fetch.broker_epoch) && !self.isr.contains(&peer.broker()) {
            peer.begin_anew();
        }
        peer.fetch(fetch, log_end)
    }

    /// Time that a follower took for the records that this fetch acknowledges; see [`Peer::acknowledged_after`].
    pub(crate) fn acknowledged_after(&self, fetch: &FollowerFetch) -> Option<Duration> {
        let peer = self.peers.iter().find(|peer| peer.broker() == fetch.follower)?;
        (fetch.leader_epoch == self.epoch).then(|| peer.acknowledged_after(fetch))?
    }

    /// A follower whose position is `log_end` has been complete until now, though its last fetch may be long ago: in a fetch session
    /// (KIP-227) partitions without changes are not asked for again. A follower that is away does not fetch at all.
    pub(crate) fn note_complete(&mut self, log_end: Offset) {
        let (isr, now) = (&self.isr, self.now);
        let here = |peer: &&mut Peer| !peer.is_away() || isr.contains(&peer.broker());
        self.peers.iter_mut().filter(here).for_each(|peer| peer.note_complete(log_end, now));
    }

    /// The image says this of the partition, in the same leader epoch. Positions and the epoch's start stay. A
    /// state of the same number is taken as well, for the standing of brokers (KAFKA-13790); an older one is not
    /// news: the answer to a proposal may come before the image.
    pub(crate) fn update(&mut self, me: BrokerId, assignment: &Assignment) {
        if assignment.partition_epoch <= self.partition_epoch
            && is_planted(Mutant::StandingNeedsNumber)
        {
            return;
        }
        for replica in assignment.replicas.iter().filter(|replica| replica.broker != me) {
            match self.peers.iter_mut().find(|peer| peer.broker() == replica.broker) {
                Some(peer) => peer.set_standing(replica.standing),
                None => self.peers.push(Peer::new(*replica, None)),
            }
        }
        if assignment.partition_epoch < self.partition_epoch {
            return;
        }
        let assigned =
            |peer: &Peer| assignment.replicas.iter().any(|replica| replica.broker == peer.broker());
        self.peers.retain(assigned);
        self.awaits_durability = assignment.awaits_durability;
        self.decided(
            me,
            &IsrDecision {
                partition_epoch: assignment.partition_epoch,
                isr: assignment.isr.clone(),
                recovering: assignment.recovering,
            },
        );
        let away = |peer: &&mut Peer| peer.is_away() && !self.isr.contains(&peer.broker());
        self.peers.iter_mut().filter(away).for_each(Peer::begin_anew);
    }

    /// The controller's decision of this number is known.
    fn decided(&mut self, me: BrokerId, decision: &IsrDecision) {
        if decision.partition_epoch > self.partition_epoch {
            // Whatever was asked on the state before either is this or was refused.
            self.pending = None;
            self.unsettled.clear();
        }
        if decision.partition_epoch >= self.partition_epoch {
            // Why it left may not be seen here: steps of the image come several at once.
            let leaves = |id: BrokerId| self.isr.contains(&id) && !decision.isr.contains(&id);
            let leaving = self.peers.iter_mut().filter(|peer| leaves(peer.broker()));
            leaving.for_each(Peer::leave);
            self.partition_epoch = decision.partition_epoch;
            self.isr = in_order(me, &decision.isr);
            self.recovering = decision.recovering;
            if is_planted(Mutant::IsrChangeForgetsStart) {
                self.epoch_start = Offset(0);
            }
        }
    }

    /// What became of the proposal that was made on `partition_epoch`. Says what to ask again, as it was.
    pub(crate) fn answered(
        &mut self,
        me: BrokerId,
        partition_epoch: i32,
        answer: &IsrAnswer,
    ) -> Option<Proposal> {
        if let IsrAnswer::Decided(decision) = answer {
            // The image says what became of it.
            self.awaits_durability &= self.pending.as_ref().is_none_or(|asked| !asked.durable);
            self.decided(me, decision);
            return None;
        }
        let pending = self.pending.clone();
        let pending = pending.filter(|pending| pending.partition_epoch == partition_epoch)?;
        match answer {
            IsrAnswer::Unknown if is_planted(Mutant::UnknownIsRefused) => {
                self.pending = None;
                None
            }
            IsrAnswer::Unknown => {
                // The first try may still be on its way.
                let members = pending.isr.iter().map(|(member, _)| *member);
                let news: Vec<_> = members.filter(|id| !self.unsettled.contains(id)).collect();
                self.unsettled.extend(news);
                Some(pending)
            }
            IsrAnswer::Refused => {
                self.pending = None;
                self.rests_until = self.now.plus(REST_AFTER_REFUSAL);
                // The high watermark waits for no replica that may not join.
                let isr = &self.isr;
                let joining = |id: &BrokerId| {
                    !isr.contains(id) && pending.has(*id) && !is_planted(Mutant::RefusedIsWaitedFor)
                };
                let refused = self.peers.iter_mut().filter(|peer| joining(&peer.broker()));
                refused.for_each(Peer::begin_anew);
                None
            }
            IsrAnswer::Superseded | IsrAnswer::Decided(_) => None,
        }
    }

    /// The ISR that should be, if it is not what the controller has and nothing is being asked: without
    /// those that lag, with those that have caught up (KIP-497). One who joins has everything below the high
    /// watermark and below the start of this leader epoch, fetched in it (KIP-966), and does not lag: while the high
    /// watermark stands, the log may end far behind it, and whoever joined would have to leave at once. A joining
    /// replica has durably deleted every record below `log_start`: a deletion that was acknowledged while the replica
    /// was out of sync must not come back when the replica leads.
    ///
    /// `synced` is how far this broker has synced its log, under `durability=fsync` only.
    pub(crate) fn propose(
        &mut self,
        me: BrokerId,
        (log_start, log_end): (Offset, Offset),
        high_watermark: Offset,
        synced: Option<Offset>,
        lag_max: Duration,
    ) -> Option<Proposal> {
        if self.pending.is_some() || self.now < self.rests_until {
            return None;
        }
        let floor = match is_planted(Mutant::JoinsBehind) {
            true => Offset(0),
            false => high_watermark.max(self.epoch_start),
        };
        let mut isr = vec![(me, None)];
        for peer in &self.peers {
            let epoch = match self.isr.contains(&peer.broker()) {
                true if peer.lags(log_end, self.now, lag_max) => continue,
                true => peer.broker_epoch(),
                false
                    if peer.lags(log_end, self.now, lag_max)
                        && !is_planted(Mutant::JoinsLagging) =>
                {
                    continue;
                }
                false
                    if peer.log_start() < Some(log_start)
                        && !is_planted(Mutant::JoinsUndeleted) =>
                {
                    continue;
                }
                false => match peer.may_join(floor) {
                    Some(epoch) => Some(epoch),
                    None => continue,
                },
            };
            isr.push((peer.broker(), epoch));
        }
        let durable = self.awaits_durability && self.is_synced(&isr, synced, high_watermark);
        // Members without a replica are the controller's to remove.
        let is_same =
            isr.len() == self.isr.len() && isr.iter().all(|(id, _)| self.isr.contains(id));
        // A decision, whichever, settles what became of the proposals before.
        if is_same && !self.recovering && self.unsettled.is_empty() && !durable {
            return None;
        }
        let partition_epoch = self.partition_epoch;
        let proposal = Proposal { leader_epoch: self.epoch, partition_epoch, isr, durable };
        self.pending = Some(proposal.clone());
        Some(proposal)
    }

    /// Whether these members have synced every record that may be committed. A fetch in this leader epoch acknowledges synced
    /// records: the follower has acted upon the metadata with which the epoch began, and counts synced positions since.
    fn is_synced(
        &self,
        isr: &[(BrokerId, Option<BrokerEpoch>)],
        own: Option<Offset>,
        high_watermark: Offset,
    ) -> bool {
        let floor = high_watermark.max(self.epoch_start);
        let is_member = |peer: &&Peer| isr.iter().any(|(id, _)| *id == peer.broker());
        let mut members = self.peers.iter().filter(is_member);
        own >= Some(floor) && members.all(|peer| peer.position() >= Some(floor))
    }
}

/// The members, this broker first.
fn in_order(me: BrokerId, isr: &[BrokerId]) -> Vec<BrokerId> {
    assert!(isr.contains(&me), "a leader is one of its in-sync replicas");
    let mut ordered = vec![me];
    ordered.extend(isr.iter().copied().filter(|broker| *broker != me));
    assert_eq!(ordered.len(), isr.len(), "in-sync replicas have no duplicates");
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assignment::{Standing, TruncationLimit};
    use model::BrokerEpoch;

    const ME: BrokerId = BrokerId(1);
    const TWO: BrokerId = BrokerId(2);

    #[test]
    fn a_replica_that_a_proposal_names_may_have_been_elected() {
        let replica =
            |broker| AssignedReplica { broker, standing: Standing::Serves(BrokerEpoch(4)) };
        let assignment = Assignment {
            replicas: vec![replica(ME), replica(TWO)],
            truncation: TruncationLimit::Unlimited,
            ..Assignment::alone(ME, LeaderEpoch(7))
        };
        let mut book = Leadership::begin(ME, &assignment, Offset(0), Moment(0));
        let is_followed =
            |book: &Leadership| book.is_followed(&[], Moment(51), Offset(10), |_| false);
        let fetch = FollowerFetch {
            follower: TWO,
            broker_epoch: BrokerEpoch(4),
            leader_epoch: LeaderEpoch(7),
            position: Offset(10),
            log_start: Offset(0),
            now: Moment(50),
        };
        book.fetch(&fetch, Offset(10));
        assert!(is_followed(&book), "broker 2 is outside of the ISR");
        assert!(!book.is_followed(&[TWO], Moment(51), Offset(10), |_| false), "but in the ELR");
        let proposal =
            book.propose(ME, (Offset(0), Offset(10)), Offset(10), None, Duration::from_secs(30));
        assert_eq!(proposal.map(|it| it.isr.len()), Some(2));
        assert!(!is_followed(&book), "the controller may have it in the ISR");
    }
}
