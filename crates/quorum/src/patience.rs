//! How long a short request to a member may take: a heartbeat, a request for a vote.
//!
//! openraft allows one heartbeat interval, or the shortest election timeout. On a machine with many more busy threads than cores
//! each answer takes longer, so no heartbeat would be acknowledged and no vote counted, although every member answers. So the
//! patience with a member doubles with each request without an answer, and shrinks with quick answers. A member that
//! does not answer at all costs nothing: its requests wait for nobody else (decision 0094).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Less than any request is allowed.
const ORDINARY: Duration = Duration::from_millis(200);

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

    /// How long a request to a member may take that is allowed `least` in any case.
    pub(crate) fn of(&self, member: u64, least: Duration) -> Duration {
        self.members.lock().get(&member).map_or(least, |known| least.max(*known))
    }

    /// A member answered, and took so long.
    pub(crate) fn note_answer(&self, member: u64, took: Duration) {
        let mut members = self.members.lock();
        let halved = members.get(&member).map_or(Duration::ZERO, |known| *known / 2);
        match halved.max(took * 2).min(self.longest) {
            known if known <= ORDINARY => drop(members.remove(&member)),
            known => drop(members.insert(member, known)),
        }
    }

    /// A member answered nothing for so long.
    pub(crate) fn note_silence(&self, member: u64, waited: Duration) {
        let mut members = self.members.lock();
        let known = members.get(&member).copied().unwrap_or_default();
        members.insert(member, known.max(waited * 2).min(self.longest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_with_silence_to_its_bound_and_shrinks_with_quick_answers() {
        let ms = Duration::from_millis;
        let (least, patience) = (ms(240), Patience::new(ms(1200)));
        assert_eq!(patience.of(2, least), least);
        let mut seen = Vec::new();
        for _ in 0..4 {
            patience.note_silence(2, patience.of(2, least));
            seen.push(patience.of(2, least));
        }
        assert_eq!(seen, [ms(480), ms(960), ms(1200), ms(1200)]);
        assert_eq!(patience.of(3, least), least, "another member");
        patience.note_answer(2, ms(500));
        assert_eq!(patience.of(2, least), ms(1000), "twice what an answer took");
        patience.note_answer(2, ms(1));
        assert_eq!(patience.of(2, least), ms(500));
        (0..2).for_each(|_| patience.note_answer(2, ms(1)));
        assert_eq!(patience.of(2, least), least);
        assert!(patience.members.lock().is_empty());
        patience.note_answer(2, ms(100));
        assert!(patience.members.lock().is_empty());
    }
}
