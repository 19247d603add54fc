//! The machine itself: role, positions, high watermark.

use std::time::Duration;

use model::{BrokerId, Durability, LeaderEpoch, Moment, Offset};

use crate::assignment::{Assignment, TruncationLimit};
use crate::following::{
    CommittedBound, EpochEnd, FetchFrom, Following, Next, RefusedTruncation, Truncation,
    truncation_point,
};
use crate::leadership::{IsrAnswer, Leadership, Proposal};
use crate::mutants::{Mutant, is_planted};
use crate::peer::FollowerFetch;

/// What this broker is to the partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// It takes writes.
    Leader(Leadership),
    /// It copies from a leader, or waits for one.
    Follower(Following),
    /// Its log failed; it serves nothing until the broker starts again.
    Offline,
}

/// What the replica obeys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Which positions count.
    pub durability: Durability,
    /// `min.insync.replicas`: with fewer in sync nothing is committed. At most as many are asked for as the
    /// partition has replicas.
    pub min_insync_replicas: usize,
    /// `replica.lag.time.max.ms`: whoever has not had everything for longer leaves the ISR.
    pub lag_max: Duration,
}

/// What a leader said in an answer to a fetch, without the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderAnswer {
    /// The leader epoch that the follower knew when it asked.
    pub asked_in: LeaderEpoch,
    /// Where the leader's history parts from the follower's, if it does.
    pub diverging: Option<Divergence>,
    /// The leader's high watermark.
    pub high_watermark: Offset,
    /// The leader's first offset.
    pub log_start: Offset,
}

/// A follower's acknowledgement of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The follower.
    pub broker: BrokerId,
    /// Time since the leader answered the follower's fetch before with records.
    pub took: Duration,
}

/// Two logs have different records at one offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Divergence {
    /// Where the epoch of the follower's last record, or the largest below it, ends at the leader.
    pub leaders: EpochEnd,
    /// Where the epoch that the leader named ends here; `None`: no epoch up to it is known here.
    pub own: Option<EpochEnd>,
    /// End of this log's records of earlier generations of the metadata quorum, and the leader epoch of the last of them;
    /// `None` without such records.
    pub earlier: Option<EpochEnd>,
}

/// What can happen to a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The image says this of the partition, and now is this moment.
    Assigned(Assignment, Moment),
    /// The log was written up to here.
    Appended {
        /// The new log end.
        log_end: Offset,
    },
    /// The log was synced up to here.
    Synced {
        /// Everything below is on the device.
        synced: Offset,
    },
    /// A follower fetched.
    FollowerFetched(FollowerFetch),
    /// The leader answered this follower's fetch. Told before its records are appended.
    LeaderAnswered(LeaderAnswer),
    /// The leader's log starts behind the end of this follower's log, or [`Effects::starts_over`]: the follower is about to drop
    /// its log and to resume behind it.
    StartOverDue {
        /// The leader epoch in which the follower sent the fetch.
        asked_in: LeaderEpoch,
        /// End of the records of earlier generations ([`Divergence::earlier`]).
        earlier: Option<EpochEnd>,
    },
    /// The controller answered the proposal that was made on this partition epoch of this leader epoch, or did not.
    IsrAnswered(LeaderEpoch, i32, IsrAnswer),
    /// Time has gone by: who lags is looked for.
    Tick(Moment),
    /// The log was cut back to here (a follower met a new leader's history).
    Truncated {
        /// The new log end.
        log_end: Offset,
    },
    /// Records below were deleted.
    LogStartMoved {
        /// The new log start.
        log_start: Offset,
    },
    /// The journal durably has this log start: no later opening of the log finds an earlier one.
    LogStartSynced {
        /// The durable log start. May be ahead of the log's own for a moment (retention).
        log_start: Offset,
    },
    /// The topic's configuration was changed.
    RulesChanged(Rules),
    /// Reading or writing failed for good.
    Failed,
}

/// What a step changed; the host tells those who wait, and does what is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effects {
    /// The high watermark rose to here.
    pub high_watermark: Option<Offset>,
    /// Those who wait for the old role must be told that it is over.
    pub role_ended: bool,
    /// The controller is to be asked for this ISR.
    pub proposal: Option<Proposal>,
    /// The log is to be cut before anything is appended; [`Event::Truncated`] says when that is done. After
    /// [`Event::StartOverDue`]: the follower may drop its log.
    pub truncation: Option<Truncation>,
    /// The leader's history requires a truncation below the highest committed offset that this follower has known, or of
    /// records that a lost majority of the quorum may have committed. The follower keeps its log and fetches nothing in this leader epoch.
    pub refused: Option<RefusedTruncation>,
    /// The leader's first offset lies above this replica's: records below it are to be deleted here as well.
    pub log_start: Option<Offset>,
    /// The leader has deleted every record that its history could be compared by, and this log may have other ones: the
    /// follower is to drop its log ([`Event::StartOverDue`]) and to resume at this offset, the end of its log. Nothing of the
    /// answer was used.
    pub starts_over: Option<Offset>,
    /// The event was of another leader epoch, or of a registration that is over, and changed nothing: what came with it
    /// is not to be used.
    pub is_stale: bool,
    /// The follower whose fetch raised the high watermark: it was the last in-sync replica to acknowledge.
    pub last_acknowledgement: Option<Acknowledgement>,
    /// This follower has records that its leader, in the same leader epoch, has not: the leader has lost the end of its
    /// log, and the controller must begin a new leader epoch before the same offset gets two contents.
    pub ahead: Option<BrokerId>,
}

/// One replica of one partition, on this broker.
#[derive(Debug, Clone)]
pub struct Replica {
    me: BrokerId,
    rules: Rules,
    role: Role,
    /// First readable offset. Invariant: `log_start <= high_watermark`.
    log_start: Offset,
    /// Log start in the journal, synced.
    durable_start: Offset,
    /// Written up to here. Invariant: `synced <= written`.
    written: Offset,
    /// On the device up to here.
    synced: Offset,
    /// On every in-sync replica up to here. Invariant: never falls within a leader epoch;
    /// `high_watermark <= written`.
    high_watermark: Offset,
    /// The newest leader epoch in which everything below `high_watermark` was known to be committed;
    /// [`LeaderEpoch::NONE`] if it is unknown.
    committed_in: LeaderEpoch,
}

impl Replica {
    /// A replica that has just opened its log and knows no leader. `checkpointed` is the high
    /// watermark that was stored before the stop; what recovery cut off is not below it.
    pub fn opened(
        me: BrokerId,
        rules: Rules,
        log_start: Offset,
        synced: Offset,
        written: Offset,
        checkpointed: Offset,
    ) -> Replica {
        assert!(log_start <= written && synced <= written, "a log's positions are in order");
        let none = Following::new(BrokerId::NONE, LeaderEpoch::NONE, TruncationLimit::Unlimited);
        let role = Role::Follower(none);
        let high_watermark = checkpointed.clamp(log_start, written);
        let durable_start = log_start;
        let committed_in = LeaderEpoch::NONE;
        Replica {
            me,
            rules,
            role,
            log_start,
            durable_start,
            written,
            synced,
            high_watermark,
            committed_in,
        }
    }

    /// Takes over the bound that an earlier process stored. Recovery may have lost some of the records below it.
    pub fn recall(&mut self, bound: CommittedBound) {
        if is_planted(Mutant::BoundForgotten) {
            self.high_watermark = self.log_start;
            return;
        }
        let known = bound.offset.clamp(self.log_start, self.written);
        self.high_watermark = self.high_watermark.max(known);
        self.committed_in = self.committed_in.max(bound.leader_epoch);
    }

    /// The highest committed offset that this replica has known, to be stored for the next process.
    pub fn bound(&self) -> CommittedBound {
        CommittedBound { offset: self.high_watermark, leader_epoch: self.committed_in }
    }

    /// The truncation that this follower refuses, if it does.
    pub fn refused(&self) -> Option<RefusedTruncation> {
        match &self.role {
            Role::Follower(following) => following.refused(),
            Role::Leader(_) | Role::Offline => None,
        }
    }

    /// This broker.
    pub fn me(&self) -> BrokerId {
        self.me
    }

    /// What this broker is to the partition.
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// The leader epoch, whatever the role.
    pub fn epoch(&self) -> LeaderEpoch {
        match &self.role {
            Role::Leader(leadership) => leadership.epoch(),
            Role::Follower(following) => following.epoch,
            Role::Offline => LeaderEpoch::NONE,
        }
    }

    /// The book of the leader epoch, if this broker leads.
    pub fn leadership(&self) -> Option<&Leadership> {
        match &self.role {
            Role::Leader(leadership) => Some(leadership),
            Role::Follower(_) | Role::Offline => None,
        }
    }

    /// On every in-sync replica below here.
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// Whether the high watermark may be told as the end of the partition: a new leader's own may be behind the
    /// one that the leader before has told, until everything from before this leader epoch is committed (KIP-966).
    pub fn is_high_watermark_settled(&self) -> bool {
        self.leadership().is_some_and(|leadership| {
            self.high_watermark >= leadership.epoch_start() || is_planted(Mutant::TellsUnsettled)
        })
    }

    /// First offset that this replica keeps whatever crash comes: deleted in memory and durably.
    pub fn durable_log_start(&self) -> Offset {
        match is_planted(Mutant::ReportsUnsyncedStart) {
            true => self.log_start,
            false => self.durable_start.min(self.log_start),
        }
    }

    /// Everything below is deleted, durably, on every replica that serves or may be elected (KIP-107). `None`: this
    /// broker does not lead, a replica has not reported its log start, or fewer replicas are in sync than
    /// `min.insync.replicas`. A replica that left such an ISR stays eligible (KIP-966), and may keep the records.
    pub fn low_watermark(&self) -> Option<Offset> {
        let leadership = self.leadership()?;
        let is_enough = leadership.isr().len() >= self.required_in_sync()
            || is_planted(Mutant::LowWatermarkBelowMinIsr);
        is_enough.then(|| leadership.low_watermark(self.durable_log_start()))?
    }

    /// What it obeys.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// How many in-sync replicas are asked for.
    pub fn required_in_sync(&self) -> usize {
        let replicas = self.leadership().map_or(1, Leadership::replica_count);
        self.rules.min_insync_replicas.min(replicas)
    }

    /// What this replica does next as a follower.
    pub fn next(&self) -> Next {
        let Role::Follower(following) = &self.role else { return Next::Rest };
        if let Some(to) = following.truncating {
            return Next::Cut(to);
        }
        if following.leader == BrokerId::NONE || following.refused.is_some() {
            return Next::Rest;
        }
        if self.own_position() < self.written && !is_planted(Mutant::AsksUnsynced) {
            return Next::Sync;
        }
        Next::Ask(FetchFrom {
            leader: following.leader,
            leader_epoch: following.epoch,
            offset: self.written,
        })
    }

    /// Takes one event and says what it changed.
    pub fn step(&mut self, event: Event) -> Effects {
        let mut effects = Effects::default();
        if self.role == Role::Offline {
            effects.is_stale = true;
            return effects;
        }
        let acknowledgement = self.acknowledgement(&event);
        self.apply(event, &mut effects);
        effects.high_watermark = self.advance();
        effects.last_acknowledgement = acknowledgement.filter(|_| effects.high_watermark.is_some());
        if effects.proposal.is_none() {
            effects.proposal = self.propose();
        }
        self.check();
        effects
    }

    /// The acknowledgement in a follower's fetch.
    fn acknowledgement(&self, event: &Event) -> Option<Acknowledgement> {
        let Event::FollowerFetched(fetch) = event else { return None };
        let took = self.leadership()?.acknowledged_after(fetch)?;
        Some(Acknowledgement { broker: fetch.follower, took })
    }

    /// Changes what the event is about.
    fn apply(&mut self, event: Event, effects: &mut Effects) {
        match event {
            Event::Assigned(assignment, now) => self.assign(&assignment, now, effects),
            Event::Appended { log_end } => {
                assert!(log_end >= self.written, "an append moves the log end on");
                self.written = log_end;
            }
            Event::Synced { synced } => self.synced = self.synced.max(synced.min(self.written)),
            Event::FollowerFetched(fetch) => self.follower_fetched(&fetch, effects),
            Event::LeaderAnswered(answer) => self.leader_answered(&answer, effects),
            Event::StartOverDue { asked_in, earlier } => {
                self.start_over_due(asked_in, earlier, effects);
            }
            Event::IsrAnswered(epoch, partition_epoch, answer) => {
                self.isr_answered(epoch, partition_epoch, &answer, effects);
            }
            Event::Tick(now) => {
                if let Role::Leader(leadership) = &mut self.role {
                    leadership.at(now);
                    leadership.note_complete(self.written);
                }
            }
            Event::Truncated { log_end } => self.truncated(log_end),
            Event::LogStartMoved { log_start } => {
                self.log_start = self.log_start.max(log_start);
                self.high_watermark = self.high_watermark.max(self.log_start);
                self.written = self.written.max(self.log_start);
            }
            Event::LogStartSynced { log_start } => {
                self.durable_start = self.durable_start.max(log_start);
            }
            Event::RulesChanged(rules) => self.obey(rules),
            Event::Failed => {
                self.role = Role::Offline;
                effects.role_ended = true;
            }
        }
    }

    fn assign(&mut self, assignment: &Assignment, now: Moment, effects: &mut Effects) {
        let is_new = assignment.leader_epoch > self.epoch();
        assert!(is_new || assignment.leader_epoch == self.epoch(), "leader epochs only rise");
        match &mut self.role {
            Role::Leader(leadership) if !is_new && assignment.leader == self.me => {
                leadership.at(now);
                leadership.update(self.me, assignment);
            }
            // The same leader epoch: an answer that is on its way still holds, and so does a cut.
            Role::Follower(following) if !is_new && following.leader == assignment.leader => {
                following.limit = assignment.truncation;
                let limit = following.limit;
                following.refused = following.refused.filter(|it| !limit.allows(it.known_in));
            }
            role => {
                effects.role_ended =
                    matches!(role, Role::Leader(_)) || assignment.leader == self.me;
                self.role = match assignment.leader == self.me {
                    true => Role::Leader(Leadership::begin(self.me, assignment, self.written, now)),
                    false => Role::Follower(Following::new(
                        assignment.leader,
                        assignment.leader_epoch,
                        assignment.truncation,
                    )),
                };
            }
        }
    }

    fn follower_fetched(&mut self, fetch: &FollowerFetch, effects: &mut Effects) {
        let Role::Leader(leadership) = &mut self.role else {
            effects.is_stale = true;
            return;
        };
        leadership.at(fetch.now);
        if fetch.leader_epoch == leadership.epoch() && fetch.position > self.written {
            effects.ahead = Some(fetch.follower);
            effects.is_stale = true;
            return;
        }
        effects.is_stale = !leadership.fetch(fetch, self.written);
    }

    /// What the leader says counts in the leader epoch in which it was asked (KAFKA-18991), and a divergence before a
    /// high watermark (KAFKA-14704).
    fn leader_answered(&mut self, answer: &LeaderAnswer, effects: &mut Effects) {
        let Role::Follower(following) = &mut self.role else {
            effects.is_stale = true;
            return;
        };
        if answer.asked_in != following.epoch || following.is_over() {
            effects.is_stale = true;
            return;
        }
        if is_planted(Mutant::HighWatermarkFirst) {
            self.high_watermark = self.high_watermark.max(answer.high_watermark.min(self.written));
        }
        if let Some(divergence) = answer.diverging
            && !is_planted(Mutant::CutsNothing)
        {
            self.diverged(divergence, effects);
            return;
        }
        if !following.is_shared && self.is_unproven(answer.log_start) {
            effects.starts_over = Some(self.written);
            return;
        }
        let Role::Follower(following) = &mut self.role else { return };
        following.is_shared = true;
        following.leader_high_watermark = answer.high_watermark;
        effects.log_start = Some(answer.log_start).filter(|start| *start > self.log_start);
    }

    /// The leader's history parts from the follower's: the follower truncates, or refuses to.
    fn diverged(&mut self, divergence: Divergence, effects: &mut Effects) {
        let Role::Follower(following) = &self.role else { return };
        let following = *following;
        let Divergence { leaders, own, earlier } = divergence;
        let mut to = truncation_point(leaders, own, self.written).max(self.log_start);
        if is_planted(Mutant::CutsToHighWatermark) {
            to = to.min(self.high_watermark);
        }
        let lost = self.lost_records(&following, to, earlier);
        let takes_committed = to < self.high_watermark || is_planted(Mutant::BoundAtLogEnd);
        if let Some(refused) = self.refuse(&following, to, takes_committed, lost) {
            self.keep(refused, effects);
            return;
        }
        let takes_committed = to < self.high_watermark || lost.is_some();
        self.role = Role::Follower(Following { truncating: Some(to), ..following });
        effects.truncation = Some(Truncation { to, takes_committed });
    }

    /// Whether this log may have other records than its leader had at the same offsets. The leader has deleted its own up to
    /// `leaders_start`, so its history does not say where the two part. Records that are known to be committed are the same.
    fn is_unproven(&self, leaders_start: Offset) -> bool {
        let Role::Follower(following) = &self.role else { return false };
        let is_known = self.is_bound(following) && !following.limit.allows(self.committed_in);
        let shared = if is_known { self.high_watermark } else { self.log_start };
        shared < self.written && self.written <= leaders_start && !is_planted(Mutant::KeepsUnproven)
    }

    /// The leader has deleted everything that follows this log. What it deleted is committed, so only records of a lost majority
    /// are bound: the leader's log has forgotten whether it had the same ones.
    fn start_over_due(
        &mut self,
        asked_in: LeaderEpoch,
        earlier: Option<EpochEnd>,
        effects: &mut Effects,
    ) {
        let Role::Follower(following) = self.role else {
            effects.is_stale = true;
            return;
        };
        if asked_in != following.epoch || following.is_over() {
            effects.is_stale = true;
            return;
        }
        let to = self.log_start;
        let lost = self.lost_records(&following, to, earlier);
        match self.refuse(&following, to, false, lost) {
            Some(refused) if !is_planted(Mutant::StartsOverUnbound) => self.keep(refused, effects),
            _ => {
                let takes_committed = lost.is_some();
                effects.truncation = Some(Truncation { to, takes_committed });
            }
        }
    }

    /// The follower keeps its log, and fetches nothing more in this leader epoch.
    fn keep(&mut self, refused: RefusedTruncation, effects: &mut Effects) {
        if let Role::Follower(following) = &mut self.role {
            following.refused = Some(refused);
            effects.refused = Some(refused);
        }
    }

    /// End and last leader epoch of the records of earlier generations of the metadata quorum, if a truncation to `to` removes some
    /// that are not known to be committed in this generation: a lost majority may have committed them.
    fn lost_records(
        &self,
        following: &Following,
        to: Offset,
        earlier: Option<EpochEnd>,
    ) -> Option<EpochEnd> {
        let earlier = earlier.filter(|_| self.is_bound(following))?;
        let is_shared = self.committed_in.generation() >= following.epoch.generation();
        let shared = match is_shared && !is_planted(Mutant::SharedRecordsBound) {
            true => self.high_watermark,
            false => Offset(0),
        };
        let is_unbound = is_planted(Mutant::EarlierGenerationsUnbound)
            || is_planted(Mutant::BoundByLastRecord) && earlier.end < self.written;
        (earlier.end > to.max(shared) && !is_unbound).then_some(earlier)
    }

    fn is_bound(&self, following: &Following) -> bool {
        self.rules.durability == Durability::Fsync && following.limit != TruncationLimit::Unlimited
    }

    /// The refusal of a truncation to `to`, if it would remove records that are bound and no permission is newer than they are:
    /// records that are known to be committed, or those of a lost majority that end at `lost`.
    fn refuse(
        &self,
        following: &Following,
        to: Offset,
        takes_committed: bool,
        lost: Option<EpochEnd>,
    ) -> Option<RefusedTruncation> {
        let Following { leader, epoch: leader_epoch, limit, .. } = *following;
        let is_known =
            self.is_bound(following) && takes_committed && !limit.allows(self.committed_in);
        let known = EpochEnd { epoch: self.committed_in, end: self.high_watermark };
        let known = is_known.then_some(known);
        let lost = lost.filter(|lost| !limit.allows(lost.epoch));
        let bounds = || known.iter().chain(&lost);
        Some(RefusedTruncation {
            leader,
            leader_epoch,
            to,
            committed: bounds().map(|bound| bound.end).max()?,
            known_in: bounds().map(|bound| bound.epoch).max()?,
            is_of_earlier_generation: lost.is_some(),
        })
    }

    fn isr_answered(
        &mut self,
        epoch: LeaderEpoch,
        partition_epoch: i32,
        answer: &IsrAnswer,
        effects: &mut Effects,
    ) {
        match &mut self.role {
            Role::Leader(leadership) if leadership.epoch() == epoch => {
                effects.proposal = leadership.answered(self.me, partition_epoch, answer);
            }
            _ => effects.is_stale = true,
        }
    }

    fn truncated(&mut self, log_end: Offset) {
        self.written = log_end;
        self.synced = self.synced.min(log_end);
        self.high_watermark = self.high_watermark.min(log_end);
        if let Role::Follower(following) = &mut self.role {
            following.truncating = None;
            // Said of a log that was another.
            following.leader_high_watermark = following.leader_high_watermark.min(log_end);
        }
    }

    /// This broker's own position in the sense of the durability.
    fn own_position(&self) -> Offset {
        match self.rules.durability {
            Durability::Fsync if !is_planted(Mutant::WrittenIsSynced) => self.synced,
            Durability::Fsync | Durability::PageCache => self.written,
        }
    }

    fn advance(&mut self) -> Option<Offset> {
        let committed = match &self.role {
            Role::Leader(leadership) => {
                let is_enough = leadership.isr().len() >= self.required_in_sync();
                if !is_enough && !is_planted(Mutant::TooFewInSync) {
                    return None;
                }
                leadership.committed(self.own_position(), self.log_start, self.rules.lag_max)
            }
            Role::Follower(following) if following.truncating.is_none() => {
                following.leader_high_watermark.min(self.written)
            }
            Role::Follower(_) | Role::Offline => return None,
        };
        if committed >= self.high_watermark && self.is_committed_in_epoch(committed) {
            self.committed_in = self.epoch();
        }
        if committed <= self.high_watermark {
            return None;
        }
        self.high_watermark = committed;
        Some(committed)
    }

    /// Whether everything below `committed` is committed in this very leader epoch.
    fn is_committed_in_epoch(&self, committed: Offset) -> bool {
        match &self.role {
            Role::Leader(leadership) => committed >= leadership.epoch_start(),
            Role::Follower(following) => following.leader_high_watermark >= self.high_watermark,
            Role::Offline => false,
        }
    }

    /// Under `page-cache` a refused truncation is due: the records below may never have been synced.
    fn obey(&mut self, rules: Rules) {
        self.rules = rules;
        if let Role::Follower(following) = &mut self.role
            && rules.durability == Durability::PageCache
        {
            following.refused = None;
        }
    }

    fn propose(&mut self) -> Option<Proposal> {
        let Role::Leader(leadership) = &mut self.role else { return None };
        let synced = Some(self.synced).filter(|_| self.rules.durability == Durability::Fsync);
        let awaits_proof = leadership.awaits_durability() && synced.is_some();
        // The only replica, as in most partitions.
        if leadership.peers().is_empty() && !awaits_proof {
            return None;
        }
        let range = (self.log_start, self.written);
        leadership.propose(self.me, range, self.high_watermark, synced, self.rules.lag_max)
    }

    fn check(&self) {
        assert!(self.synced <= self.written, "nothing is synced that is not written");
        assert!(self.high_watermark <= self.written, "the high watermark is within the log");
        assert!(self.log_start <= self.high_watermark, "the log starts below the high watermark");
    }
}
