//! Whether a broker acts upon the metadata that it has. One that does not leads what others have been given since, and leads
//! nothing that it has been given itself: it lives, and does nothing for the cluster.
//!
//! A broker that has very much to do is none of that, be it for hours: something always moves there. Neither is one that has
//! nothing to do, nor one whose process stood still: for a time in which nobody looked only a part counts.

use std::time::Duration;

use model::Moment;

/// How far a broker is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Index of the newest metadata that it has.
    pub known: u64,
    /// Index of the newest that it has acted upon.
    pub acted: u64,
    /// Moves on with each step of what it does meanwhile.
    pub steps: u64,
}

impl Place {
    fn waits(self) -> bool {
        self.acted < self.known
    }

    fn is_where(self, other: Place) -> bool {
        (self.acted, self.steps) == (other.acted, other.steps)
    }
}

/// Looks at a broker now and then, and tells whether it is held up.
#[derive(Debug)]
pub struct Standstill {
    /// How long nothing may move while metadata waits.
    length: Duration,
    /// What the last look found.
    looked: Option<(Moment, Place)>,
    /// For how long nothing has moved. Zero without metadata that waits.
    stood: Duration,
    /// It is held up until it has acted upon this.
    until: Option<u64>,
}

impl Standstill {
    /// Of a broker that is not held up.
    pub fn new(length: Duration) -> Standstill {
        Standstill { length, looked: None, stood: Duration::ZERO, until: None }
    }

    /// Whether the broker is held up: nothing has moved for too long while metadata waited, and what was known then has
    /// not been acted upon since. A single step does not end that: the next one may take as long.
    pub fn look(&mut self, now: Moment, place: Place) -> bool {
        match self.looked.replace((now, place)) {
            Some((at, before)) if before.waits() && place.is_where(before) => {
                // More than half of the length has been missed by whoever looks, too.
                self.stood += now.since(at).min(self.length / 2);
            }
            _ => self.stood = Duration::ZERO,
        }
        if self.stood >= self.length {
            self.until = Some(place.known);
        }
        self.until = self.until.filter(|until| place.acted < *until);
        self.until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every second of these; whether the broker was held up then.
    fn looks(
        standstill: &mut Standstill,
        seconds: std::ops::Range<u64>,
        place: impl Fn(u64) -> Place,
    ) -> Vec<bool> {
        let at = |second| Moment::START.plus(Duration::from_secs(second));
        seconds.map(|second| standstill.look(at(second), place(second))).collect()
    }

    fn standstill() -> Standstill {
        Standstill::new(Duration::from_secs(4))
    }

    fn place(known: u64, acted: u64, steps: u64) -> Place {
        Place { known, acted, steps }
    }

    #[test]
    fn a_broker_that_does_not_get_on_while_metadata_waits_is_held_up_until_it_has_caught_up() {
        let mut it = standstill();
        let mut looks = |seconds, place: Place| looks(&mut it, seconds, |_| place);
        assert_eq!(looks(0..6, place(8, 7, 100)), [false, false, false, false, true, true]);
        assert_eq!(looks(6..8, place(9, 7, 100)), [true, true], "more of it comes");
        assert_eq!(
            looks(8..9, place(12, 7, 101)),
            [true],
            "the first step says nothing of the next"
        );
        assert_eq!(looks(9..10, place(12, 8, 150)), [true], "of what waited");
        assert_eq!(looks(10..11, place(12, 9, 200)), [false], "what is new does not count");
        assert_eq!(looks(11..15, place(12, 9, 200)), [false, false, false, true], "another one");
    }

    #[test]
    fn a_broker_that_gets_on_is_not_held_up_however_long_that_takes() {
        let mut it = standstill();
        let busy = looks(&mut it, 0..10_000, |second| place(second + 100, 7, second / 3));
        assert!(busy.iter().all(|held_up| !held_up));
        let acting = looks(&mut it, 10_000..20_000, |second| place(30_000, second, 5_000));
        assert!(acting.iter().all(|held_up| !held_up));
    }

    #[test]
    fn a_broker_for_which_nothing_waits_is_not_held_up_and_its_rest_does_not_count() {
        let mut it = standstill();
        assert!(looks(&mut it, 0..1_000, |_| place(7, 7, 100)).iter().all(|held_up| !held_up));
        let waits = looks(&mut it, 1_000..1_006, |_| place(8, 7, 100));
        assert_eq!(waits, [false, false, false, false, true, true]);
    }

    #[test]
    fn for_a_time_in_which_its_process_stood_still_a_broker_is_not_held_up() {
        let mut it = standstill();
        assert_eq!(looks(&mut it, 0..2, |_| place(8, 7, 100)), [false, false]);
        assert_eq!(looks(&mut it, 600..601, |_| place(8, 7, 100)), [false]);
        assert_eq!(looks(&mut it, 601..602, |_| place(8, 7, 101)), [false], "it goes on");
    }

    #[test]
    fn when_the_standstill_began_is_not_older_than_what_waits() {
        let mut it = standstill();
        let at = |second| Moment::START.plus(Duration::from_secs(second));
        assert!(!it.look(at(0), place(7, 7, 100)));
        assert!(!it.look(at(3), place(8, 7, 100)), "it may have come a moment ago");
        assert!(!it.look(at(6), place(8, 7, 100)));
        assert!(it.look(at(8), place(8, 7, 100)));
    }
}
