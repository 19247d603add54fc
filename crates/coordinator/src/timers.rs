//! Deadlines of a shard: at most one for each key, ordered by time. Nothing here waits; the host
//! asks for the next one and steps the shard when it has come.

use std::collections::{BTreeMap, BTreeSet};

use model::Timestamp;

use crate::{GroupId, MemberId};

/// What a deadline is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerKey {
    /// A member must be heard of.
    Session(GroupId, MemberId),
    /// A member that was given an id must join with it.
    PendingMember(GroupId, MemberId),
    /// The join phase of a rebalance ends, or is looked at again.
    Join(GroupId),
    /// All members must have asked for their assignments.
    Sync(GroupId),
    /// Offsets and groups are looked through.
    Retention,
    /// The oldest parked answer or continuation has waited long enough.
    Parked,
}

/// Invariant: both maps hold the same pairs.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(Timestamp, TimerKey)>,
    by_key: BTreeMap<TimerKey, Timestamp>,
}

impl Timers {
    /// Sets the deadline of `key`, in place of the one it had.
    pub(crate) fn set(&mut self, key: TimerKey, deadline: Timestamp) {
        self.cancel(&key);
        self.by_key.insert(key.clone(), deadline);
        self.by_time.insert((deadline, key));
        assert_eq!(self.by_time.len(), self.by_key.len());
    }

    /// Forgets the deadline of `key`, if it has one.
    pub(crate) fn cancel(&mut self, key: &TimerKey) {
        if let Some(deadline) = self.by_key.remove(key) {
            let removed = self.by_time.remove(&(deadline, key.clone()));
            assert!(removed, "both maps hold the same pairs");
        }
        assert_eq!(self.by_time.len(), self.by_key.len());
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(deadline, _)| *deadline)
    }

    /// The deadlines that have come, earliest first. They stay set until [`Timers::take_if_due`].
    pub(crate) fn due(&self, now: Timestamp) -> Vec<TimerKey> {
        let due = self.by_time.iter().take_while(|(deadline, _)| *deadline <= now);
        due.map(|(_, key)| key.clone()).collect()
    }

    /// Takes the deadline of `key` away if it has still come: another one that fired before may
    /// have moved or cancelled it.
    pub(crate) fn take_if_due(&mut self, key: &TimerKey, now: Timestamp) -> bool {
        let due = self.by_key.get(key).is_some_and(|deadline| *deadline <= now);
        if due {
            self.cancel(key);
        }
        due
    }

    /// The deadline of `key`, if it has one.
    pub(crate) fn deadline(&self, key: &TimerKey) -> Option<Timestamp> {
        self.by_key.get(key).copied()
    }

    /// Whether `key` has a deadline.
    pub(crate) fn is_set(&self, key: &TimerKey) -> bool {
        self.by_key.contains_key(key)
    }
}
