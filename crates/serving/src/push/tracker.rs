//! What a client has acknowledged of one partition. Messages are acknowledged one by one in any order; a consumer group
//! has one offset. So what is committed is the lowest message that is not acknowledged, and what lies above it comes
//! again after the session ends, acknowledged or not.
//!
//! ```text
//!            committed          passed
//!                ↓                ↓
//!   ✓ ✓ ✓ ✓ ✓ ✓  ·  ✓ ✓  ·  ·  ✓ |          · sent, not acknowledged
//! ```
//!
//! Only what is *not* acknowledged takes memory: as many entries as the client may have messages.

use std::collections::{BTreeMap, BTreeSet};

/// What became of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acked {
    /// So many messages are acknowledged by it.
    Fresh(usize),
    /// The message was acknowledged before, or never sent.
    Known,
}

/// A message that was sent and is not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Open {
    /// How often it was sent again.
    again: u32,
    /// When it is to be sent again, if the client asked for that: milliseconds of whatever clock the caller has.
    due_ms: Option<u64>,
}

/// A message to be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Again {
    /// Its offset.
    pub offset: i64,
    /// How often it will have been sent again: 1 for the first time.
    pub count: u32,
}

/// The acknowledgements of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracker {
    /// Invariant: all keys are below `passed`.
    open: BTreeMap<i64, Open>,
    /// When messages are to be sent again, and their offsets. Invariant: one for each `Open::due_ms`.
    due: BTreeSet<(u64, i64)>,
    /// Behind all that was sent, or left out.
    passed: i64,
    /// What was committed last, or where the session began. Invariant: never above `low()`.
    committed: i64,
}

impl Tracker {
    /// Nothing was sent yet: the group's offset is `committed`, and reading begins there.
    pub fn new(committed: i64) -> Tracker {
        Tracker { open: BTreeMap::new(), due: BTreeSet::new(), passed: committed, committed }
    }

    /// Behind all that was sent, or left out: where reading goes on.
    pub fn passed(&self) -> i64 {
        self.passed
    }

    /// The lowest offset that is not acknowledged: where the group goes on.
    pub fn low(&self) -> i64 {
        self.open.first_key_value().map_or(self.passed, |(offset, _)| *offset)
    }

    /// Messages that are not acknowledged.
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Whether a message was sent and is not acknowledged.
    pub fn is_open(&self, offset: i64) -> bool {
        self.open.contains_key(&offset)
    }

    /// Notes a message that is sent for the first time. Its offset is not below [`Tracker::passed`].
    pub fn send(&mut self, offset: i64) {
        assert!(offset >= self.passed, "offset {offset} was passed before: {}", self.passed);
        self.open.insert(offset, Open::default());
        self.passed = offset + 1;
    }

    /// Notes that nothing below this offset is left to be sent.
    pub fn pass(&mut self, next: i64) {
        self.passed = self.passed.max(next);
    }

    /// Acknowledges one message.
    pub fn ack(&mut self, offset: i64) -> Acked {
        let Some(open) = self.open.remove(&offset) else { return Acked::Known };
        self.forget_due(offset, open);
        Acked::Fresh(1)
    }

    /// Acknowledges a message and all before it.
    pub fn ack_to(&mut self, offset: i64) -> Acked {
        let above = self.open.split_off(&offset.saturating_add(1));
        let below = std::mem::replace(&mut self.open, above);
        below.iter().for_each(|(offset, open)| self.forget_due(*offset, *open));
        match below.len() {
            0 => Acked::Known,
            count => Acked::Fresh(count),
        }
    }

    fn forget_due(&mut self, offset: i64, open: Open) {
        if let Some(due_ms) = open.due_ms {
            self.due.remove(&(due_ms, offset));
        }
    }

    /// Has a message be sent again at this time, or before if that was asked already; false if it is not open.
    pub fn nack(&mut self, offset: i64, due_ms: u64) -> bool {
        let Some(open) = self.open.get_mut(&offset) else { return false };
        if open.due_ms.is_none() {
            open.due_ms = Some(due_ms);
            self.due.insert((due_ms, offset));
        }
        true
    }

    /// The message that is due to be sent again first; it counts as sent.
    pub fn take_due(&mut self, now_ms: u64) -> Option<Again> {
        let first = *self.due.first().filter(|(due_ms, _)| *due_ms <= now_ms)?;
        self.due.remove(&first);
        let (_, offset) = first;
        let open = self.open.get_mut(&offset).expect("what is due is open");
        open.due_ms = None;
        open.again += 1;
        Some(Again { offset, count: open.again })
    }

    /// When the next message is due to be sent again.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    /// What is to be committed: nothing if that would move nothing.
    pub fn to_commit(&self) -> Option<i64> {
        Some(self.low()).filter(|low| *low > self.committed)
    }

    /// Notes that this offset was committed.
    pub fn committed(&mut self, offset: i64) {
        self.committed = self.committed.max(offset.min(self.low()));
    }

    /// What was committed last, or where the session began.
    pub fn last_committed(&self) -> i64 {
        self.committed
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_lowest_that_is_not_acknowledged_is_committed() {
        let mut tracker = Tracker::new(10);
        assert_eq!((tracker.low(), tracker.to_commit()), (10, None));
        // Offset 12 holds no record.
        for offset in [10, 11, 13, 14] {
            tracker.send(offset);
        }
        assert_eq!(tracker.ack(11), Acked::Fresh(1));
        assert_eq!((tracker.low(), tracker.to_commit()), (10, None));
        assert_eq!(tracker.ack(11), Acked::Known);
        assert_eq!(tracker.ack(12), Acked::Known, "never sent");
        assert_eq!(tracker.ack(10), Acked::Fresh(1));
        assert_eq!(tracker.to_commit(), Some(13));
        tracker.committed(13);
        assert_eq!(tracker.to_commit(), None);
        assert_eq!(tracker.ack_to(14), Acked::Fresh(2));
        tracker.pass(20);
        assert_eq!(tracker.to_commit(), Some(20), "what was left out is passed, too");
    }

    #[test]
    fn what_is_refused_comes_again_when_its_time_has_come_and_counts() {
        let mut tracker = Tracker::new(0);
        (0..4).for_each(|offset| tracker.send(offset));
        assert!(tracker.nack(2, 50) && tracker.nack(1, 60) && !tracker.nack(4, 0));
        assert!(tracker.nack(2, 99), "refused twice, and due at the first time");
        assert_eq!((tracker.take_due(49), tracker.next_due_ms()), (None, Some(50)));
        assert_eq!(tracker.take_due(55), Some(Again { offset: 2, count: 1 }));
        assert_eq!(tracker.take_due(55), None);
        assert_eq!(tracker.ack(1), Acked::Fresh(1), "acknowledged after all");
        assert_eq!(tracker.take_due(1000), None);
        assert!(tracker.nack(2, 70));
        assert_eq!(tracker.take_due(70), Some(Again { offset: 2, count: 2 }));
        assert_eq!(tracker.low(), 0);
    }

    /// What a client does.
    #[derive(Debug, Clone)]
    enum Deed {
        Send(i64),
        Pass(i64),
        Ack(i64),
        AckTo(i64),
        Nack(i64),
        Due,
        Commit,
    }

    fn deeds() -> impl Strategy<Value = Vec<Deed>> {
        let deed = prop_oneof![
            (0..3i64).prop_map(Deed::Send),
            (0..3i64).prop_map(Deed::Pass),
            (0..60i64).prop_map(Deed::Ack),
            (0..60i64).prop_map(Deed::AckTo),
            (0..60i64).prop_map(Deed::Nack),
            Just(Deed::Due),
            Just(Deed::Commit),
        ];
        proptest::collection::vec(deed, 0..120)
    }

    proptest! {
        /// Against sets: no offset is ever committed above a message that is not acknowledged, and none that is refused
        /// is forgotten.
        #[test]
        fn nothing_is_committed_that_is_not_acknowledged(deeds in deeds()) {
            let mut tracker = Tracker::new(0);
            let (mut sent, mut acked, mut passed) = (BTreeSet::new(), BTreeSet::new(), 0);
            let mut committed = 0;
            for deed in deeds {
                match deed {
                    Deed::Send(gap) => {
                        let offset = passed + gap;
                        tracker.send(offset);
                        sent.insert(offset);
                        passed = offset + 1;
                    }
                    Deed::Pass(more) => {
                        passed += more;
                        tracker.pass(passed);
                    }
                    Deed::Ack(offset) => {
                        let fresh = sent.contains(&offset) && acked.insert(offset);
                        prop_assert_eq!(tracker.ack(offset) == Acked::Fresh(1), fresh);
                    }
                    Deed::AckTo(offset) => {
                        tracker.ack_to(offset);
                        acked.extend(sent.range(..=offset));
                    }
                    Deed::Nack(offset) => {
                        let is_open = sent.contains(&offset) && !acked.contains(&offset);
                        prop_assert_eq!(tracker.nack(offset, 5), is_open);
                    }
                    Deed::Due => {
                        while let Some(again) = tracker.take_due(5) {
                            prop_assert!(!acked.contains(&again.offset));
                        }
                        prop_assert_eq!(tracker.next_due_ms(), None);
                    }
                    Deed::Commit => {
                        if let Some(offset) = tracker.to_commit() {
                            prop_assert!(offset > committed);
                            tracker.committed(offset);
                            committed = offset;
                        }
                    }
                }
                let open: Vec<_> = sent.difference(&acked).copied().collect();
                prop_assert_eq!(tracker.open_count(), open.len());
                prop_assert_eq!(tracker.low(), open.first().copied().unwrap_or(passed));
                prop_assert!(committed <= tracker.low());
            }
        }
    }
}
