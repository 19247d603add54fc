//! How long a short request to a member may take: a heartbeat, a request for a vote.
//!
//! openraft allows one heartbeat interval, or the shortest election timeout. On a machine with many more busy threads than cores
//! each answer takes longer, so no heartbeat would be acknowledged and no vote counted, although every member answers. So the
//! patience with a member doubles with each request without an answer, and shrinks with quick answers. A silent
//! member delays no other: each member's requests wait for that member alone (decision 0094).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Less than any request is allowed.
const ORDINARY: Duration = Duration::from_millis(200);
/// The longest patience with a heartbeat. openraft sends the next heartbeat to a member when the last one is answered or given up,
/// and the member's election timer, which each heartbeat resets, fires after 0.9 s at the earliest.
pub(crate) const HEARTBEAT_MAX: Duration = Duration::from_millis(600);

/// The patience with each member. A member that answers quickly has no entry.
#[derive(Debug)]
pub(crate) struct Patience {
    longest: Duration,
    members: Mutex<BTreeMap<u64, Duration>>,
}

impl Patience {
    /// Never more than `longest`, unless the request itself allows more.
    pub(crate) fn new(longest: Duration) -> Patience {
        Patience { longest, members: Mutex::default() }
    }

    /// Longest time of a request to a member: at least `least`, and above it at most `most`.
    pub(crate) fn for_member(&self, member: u64, least: Duration, most: Duration) -> Duration {
        self.members.lock().get(&member).map_or(least, |known| least.max(most.min(*known)))
    }

    /// Records that a member answered after `took`.
    pub(crate) fn note_answer(&self, member: u64, took: Duration) {
        let mut members = self.members.lock();
        let halved = members.get(&member).map_or(Duration::ZERO, |known| *known / 2);
        match halved.max(took * 2).min(self.longest) {
            known if known <= ORDINARY => drop(members.remove(&member)),
            known => drop(members.insert(member, known)),
        }
    }

    /// Records that a member did not answer within `waited`.
    pub(crate) fn note_silence(&self, member: u64, waited: Duration) {
        let mut members = self.members.lock();
        let known = members.get(&member).copied().unwrap_or_default();
        members.insert(member, known.max(waited * 2).min(self.longest));
    }

    /// Forgets how slowly a member answered.
    pub(crate) fn forget(&self, member: u64) {
        self.members.lock().remove(&member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_with_silence_to_its_bound_and_shrinks_with_quick_answers() {
        let ms = Duration::from_millis;
        let (least, patience) = (ms(240), Patience::new(ms(1200)));
        let current = |member| patience.for_member(member, least, Duration::MAX);
        assert_eq!(current(2), least);
        let mut seen = Vec::new();
        for _ in 0..4 {
            patience.note_silence(2, current(2));
            seen.push(current(2));
        }
        assert_eq!(seen, [ms(480), ms(960), ms(1200), ms(1200)]);
        assert_eq!(patience.for_member(2, least, HEARTBEAT_MAX), HEARTBEAT_MAX);
        assert_eq!(patience.for_member(2, ms(700), HEARTBEAT_MAX), ms(700), "never below least");
        assert_eq!(current(3), least, "another member");
        patience.note_answer(2, ms(500));
        assert_eq!(current(2), ms(1000), "twice the time of an answer");
        patience.note_answer(2, ms(1));
        assert_eq!(current(2), ms(500));
        (0..2).for_each(|_| patience.note_answer(2, ms(1)));
        assert_eq!(current(2), least);
        assert!(patience.members.lock().is_empty());
        patience.note_answer(2, ms(100));
        assert!(patience.members.lock().is_empty());
    }

    #[test]
    fn a_member_that_is_forgotten_gets_the_least_patience() {
        let ms = Duration::from_millis;
        let patience = Patience::new(ms(2000));
        patience.note_answer(2, ms(700));
        assert_eq!(patience.for_member(2, ms(500), Duration::MAX), ms(1400));
        patience.forget(2);
        assert_eq!(patience.for_member(2, ms(500), Duration::MAX), ms(500));
    }
}
