//! What a leader knows of one other replica: how far it has come, and when it last had everything.

use std::time::Duration;

use model::{BrokerEpoch, BrokerId, LeaderEpoch, Moment, Offset};

use crate::assignment::{AssignedReplica, Standing};
use crate::mutants::{Mutant, is_planted};

/// A follower's fetch, after the leader has looked whether the follower's last record is one of its own:
/// a fetch that is answered with a divergence says nothing of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerFetch {
    /// Who fetches.
    pub follower: BrokerId,
    /// The registration under which it fetches (KIP-903).
    pub broker_epoch: BrokerEpoch,
    /// The leader epoch that it follows.
    pub leader_epoch: LeaderEpoch,
    /// From where. It has everything below, as durable as the topic wants: the fetch is the acknowledgement.
    pub position: Offset,
    /// The follower's first offset, durable: it keeps no record below, whatever crash comes (KIP-107).
    pub log_start: Offset,
    /// Now.
    pub now: Moment,
}

/// What was learnt from the fetches of one registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fetched {
    broker_epoch: BrokerEpoch,
    /// It has everything below.
    position: Offset,
    /// Its durable first offset.
    log_start: Offset,
    /// When it last fetched.
    at: Moment,
    /// Where the leader's log ended then; `None`: the replica was away since, and that it comes as far says nothing.
    log_end: Option<Offset>,
}

/// One other replica, in one leader epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    broker: BrokerId,
    standing: Standing,
    /// `None` until it fetches in this leader epoch: what it had before says nothing (KIP-966).
    fetched: Option<Fetched>,
    /// When it last had everything that the leader had; `None` if that was not in this leader epoch. A member of the
    /// ISR counts from the beginning of the epoch: nobody lags before there was time to fetch.
    /// Invariant: outside the ISR, of the registration that fetches now, and not from before it was away.
    caught_up: Option<Moment>,
    /// Whether it left the ISR and has not fetched since: that it had everything then says nothing of now.
    has_left: bool,
}

impl Peer {
    /// One that was in sync at `in_sync_at`, or was not.
    pub(crate) fn new(assigned: AssignedReplica, in_sync_at: Option<Moment>) -> Peer {
        let AssignedReplica { broker, standing } = assigned;
        Peer { broker, standing, fetched: None, caught_up: in_sync_at, has_left: false }
    }

    /// Which broker.
    pub fn broker(&self) -> BrokerId {
        self.broker
    }

    pub(crate) fn set_standing(&mut self, standing: Standing) {
        self.standing = standing;
    }

    /// It has everything below, as far as is known in this leader epoch.
    pub fn position(&self) -> Option<Offset> {
        self.fetched.map(|fetched| fetched.position)
    }

    /// Durable first offset of the replica, from its last fetch in this leader epoch. `None` until it has fetched
    /// under its present registration: an earlier process may have had another disk.
    pub fn log_start(&self) -> Option<Offset> {
        let is_present = |fetched: &Fetched| match self.standing {
            Standing::Serves(current) => fetched.broker_epoch >= current,
            Standing::Absent => true,
        };
        self.fetched.filter(is_present).map(|fetched| fetched.log_start)
    }

    /// Whether its broker is registered, unfenced and not about to stop.
    pub(crate) fn serves(&self) -> bool {
        matches!(self.standing, Standing::Serves(_))
    }

    /// When it last had everything that the leader had, as far as is known in this leader epoch.
    pub fn caught_up(&self) -> Option<Moment> {
        self.caught_up
    }

    /// Whether the replica still follows this leader: it fetched in this leader epoch since `since`, or it has everything up
    /// to `log_end` and its broker fetches other partitions (`is_here`). A fetch session leaves out unchanged
    /// partitions (KIP-227).
    pub(crate) fn follows(&self, since: Moment, log_end: Offset, is_here: bool) -> bool {
        self.fetched
            .is_some_and(|fetched| fetched.at >= since || is_here && fetched.position >= log_end)
    }

    /// Whether it had everything within the last `lag_max`.
    pub(crate) fn has_been_caught_up(&self, now: Moment, lag_max: Duration) -> bool {
        self.caught_up.is_some_and(|caught_up| now.since(caught_up) <= lag_max)
    }

    /// Takes a fetch in; `log_end` is where the leader's log ends now. Says whether the fetch counted: one of
    /// an earlier registration arrived late, and tells of a replica that may be gone.
    pub(crate) fn fetch(&mut self, fetch: &FollowerFetch, log_end: Offset) -> bool {
        let before = self.fetched.filter(|before| before.broker_epoch >= fetch.broker_epoch);
        let is_late = before.is_some_and(|before| before.broker_epoch > fetch.broker_epoch);
        if is_late && !is_planted(Mutant::PositionsOfEarlierRegistrations) {
            return false;
        }
        if fetch.position >= log_end {
            self.caught_up = Some(fetch.now);
        } else if let Some(before) = before
            && before.log_end.is_some_and(|log_end| fetch.position >= log_end)
        {
            // What it lacks was written since it last asked.
            self.caught_up = self.caught_up.max(Some(before.at));
        }
        self.has_left = false;
        let FollowerFetch { broker_epoch, position, log_start, now, .. } = *fetch;
        let log_end = Some(log_end);
        self.fetched = Some(Fetched { broker_epoch, position, log_start, at: now, log_end });
        true
    }

    /// Time since the fetch before this one, if the leader had records for that one and this one acknowledges some of
    /// them. A fetch that found no records waits at the leader, and comes again when there are some.
    pub(crate) fn acknowledged_after(&self, fetch: &FollowerFetch) -> Option<Duration> {
        let before = self.fetched.filter(|before| before.broker_epoch == fetch.broker_epoch)?;
        let had_records = before.log_end.is_some_and(|log_end| before.position < log_end);
        (had_records && fetch.position > before.position).then(|| fetch.now.since(before.at))
    }

    /// Whether this registration is newer than the one that has fetched.
    pub(crate) fn is_older_than(&self, registration: BrokerEpoch) -> bool {
        self.fetched.is_some_and(|fetched| fetched.broker_epoch < registration)
    }

    /// Whether it is away: it does not serve, or with a newer registration than the one that has fetched.
    pub(crate) fn is_away(&self) -> bool {
        match self.standing {
            Standing::Serves(current) => self.is_older_than(current),
            Standing::Absent => true,
        }
    }

    /// It was away: that it had everything before says nothing of how far behind it comes back.
    pub(crate) fn begin_anew(&mut self) {
        let is_left_out = is_planted(Mutant::CaughtUpForEver)
            || is_planted(Mutant::PositionsOfEarlierRegistrations);
        if is_left_out {
            return;
        }
        self.caught_up = None;
        if let Some(fetched) = &mut self.fetched {
            fetched.log_end = None;
        }
    }

    /// It left the ISR, perhaps because it does not answer: it counts as caught up by later fetches only.
    pub(crate) fn leave(&mut self) {
        self.begin_anew();
        self.has_left = true;
    }

    /// If it has everything that the leader has, up to `log_end`, it has been caught up until now.
    pub(crate) fn note_complete(&mut self, log_end: Offset, now: Moment) {
        if !self.has_left && self.position().is_some_and(|position| position >= log_end) {
            self.caught_up = Some(now);
        }
    }

    /// A fault: the position is taken for granted.
    pub(crate) fn believe(&mut self, position: Offset, now: Moment) {
        if let Standing::Serves(broker_epoch) = self.standing {
            let (log_start, log_end) = (Offset(0), Some(position));
            self.fetched = Some(Fetched { broker_epoch, position, log_start, at: now, log_end });
        }
    }

    /// Whether it has not had everything for longer than `lag_max`, and has not everything now.
    pub(crate) fn lags(&self, log_end: Offset, now: Moment, lag_max: Duration) -> bool {
        let has_all = self.position().is_some_and(|position| position >= log_end);
        !has_all && !self.has_been_caught_up(now, lag_max)
    }

    /// The registration with which it may be taken into the ISR: it serves, under the very registration that
    /// has fetched in this leader epoch (KIP-903, KIP-841), and has everything below `floor`.
    pub(crate) fn may_join(&self, floor: Offset) -> Option<BrokerEpoch> {
        let (Standing::Serves(current), Some(fetched)) = (self.standing, self.fetched) else {
            return None;
        };
        let is_it =
            fetched.broker_epoch == current || is_planted(Mutant::PositionsOfEarlierRegistrations);
        (is_it && fetched.position >= floor).then_some(current)
    }

    /// The registration that is told to the controller for a member: what has fetched, else what is registered.
    pub(crate) fn broker_epoch(&self) -> Option<BrokerEpoch> {
        match (self.fetched, self.standing) {
            (Some(fetched), _) => Some(fetched.broker_epoch),
            (None, Standing::Serves(current)) => Some(current),
            (None, Standing::Absent) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_follows_by_its_fetch_or_as_a_complete_one_by_its_broker() {
        let (follower, epoch) = (BrokerId(2), BrokerEpoch(4));
        let standing = Standing::Serves(epoch);
        let mut peer = Peer::new(AssignedReplica { broker: follower, standing }, None);
        assert!(!peer.follows(Moment(0), Offset(0), true), "it never fetched in this leader epoch");
        let fetch = FollowerFetch {
            follower,
            broker_epoch: epoch,
            leader_epoch: LeaderEpoch(7),
            position: Offset(10),
            log_start: Offset(0),
            now: Moment(50),
        };
        assert!(peer.fetch(&fetch, Offset(10)));
        assert!(peer.follows(Moment(50), Offset(12), false));
        assert!(!peer.follows(Moment(51), Offset(12), true), "it lacks records and fetches none");
        assert!(peer.follows(Moment(51), Offset(10), true));
        assert!(!peer.follows(Moment(51), Offset(10), false));
    }

    #[test]
    fn a_replica_that_left_the_isr_is_caught_up_by_a_later_fetch_only() {
        let (follower, broker_epoch) = (BrokerId(2), BrokerEpoch(4));
        let standing = Standing::Serves(broker_epoch);
        let mut peer = Peer::new(AssignedReplica { broker: follower, standing }, None);
        let fetch = |ms| FollowerFetch {
            follower,
            broker_epoch,
            leader_epoch: LeaderEpoch(7),
            position: Offset(10),
            log_start: Offset(0),
            now: Moment(ms),
        };
        peer.fetch(&fetch(50), Offset(10));
        peer.leave();
        peer.note_complete(Offset(10), Moment(60));
        assert_eq!(peer.caught_up(), None, "it is silent, and the log stands still");
        peer.fetch(&fetch(70), Offset(10));
        peer.note_complete(Offset(10), Moment(80));
        assert_eq!(peer.caught_up(), Some(Moment(80)));
    }
}
