//! Followers that acknowledge last: the time for which high watermarks waited for each of them.
//!
//! A high watermark rises when the last in-sync replica acknowledges. The leader knows which follower that was, and how long
//! the follower took since it got the records: one slow device makes all producers wait, and shows in no other figure.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{BrokerId, Moment};

/// Length of one interval of the moving maximum.
const INTERVAL: Duration = Duration::from_secs(10);
/// Intervals of the moving maximum: one minute.
const INTERVALS: usize = 6;
/// Time from which an acknowledgement is slow.
const SLOW_FROM: Duration = Duration::from_millis(500);
/// Finished intervals, each with a slow acknowledgement, from which a follower is slow.
const SLOW_INTERVALS: usize = 3;

/// The longest acknowledgements of one follower, by interval.
#[derive(Clone, Copy, Debug)]
struct Course {
    /// Number of the newest interval since the start of the clock.
    newest: u64,
    /// Maxima of the newest intervals, the newest first.
    longest: [Duration; INTERVALS],
}

impl Course {
    fn at(interval: u64) -> Course {
        Course { newest: interval, longest: [Duration::ZERO; INTERVALS] }
    }

    /// The same course in a later interval.
    fn advanced(mut self, interval: u64) -> Course {
        let gone = interval.saturating_sub(self.newest).min(INTERVALS as u64) as usize;
        self.longest.rotate_right(gone);
        self.longest[..gone].fill(Duration::ZERO);
        self.newest = self.newest.max(interval);
        self
    }

    fn longest(&self) -> Duration {
        self.longest.into_iter().max().unwrap_or_default()
    }

    /// Whether each of the last finished intervals has a slow acknowledgement.
    fn is_slow(&self) -> bool {
        self.longest[1..=SLOW_INTERVALS].iter().all(|longest| *longest >= SLOW_FROM)
    }
}

/// A follower that in-sync replicas waited for last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowAcknowledger {
    /// The follower.
    pub broker: BrokerId,
    /// Its longest acknowledgement of the last minute.
    pub longest: Duration,
    /// Whether it acknowledged slowly, half a second and more, in each of the last three finished intervals of ten seconds.
    pub is_slow: bool,
}

/// The followers of the partitions that a broker leads.
#[derive(Clone, Debug, Default)]
pub struct Acknowledgers {
    courses: BTreeMap<BrokerId, Course>,
}

impl Acknowledgers {
    /// A follower was the last one to acknowledge, after this time.
    pub fn note(&mut self, now: Moment, broker: BrokerId, took: Duration) {
        let interval = interval(now);
        let course = self.courses.entry(broker).or_insert_with(|| Course::at(interval));
        *course = course.advanced(interval);
        course.longest[0] = course.longest[0].max(took);
    }

    /// All followers that acknowledged last within a minute, ascending.
    pub fn recent(&self, now: Moment) -> Vec<SlowAcknowledger> {
        let recent = self.courses.iter().map(|(broker, course)| {
            let course = course.advanced(interval(now));
            let (longest, is_slow) = (course.longest(), course.is_slow());
            SlowAcknowledger { broker: *broker, longest, is_slow }
        });
        recent.filter(|follower| !follower.longest.is_zero()).collect()
    }

    /// The one of these with the longest acknowledgement.
    pub fn slowest(&self, now: Moment) -> Option<SlowAcknowledger> {
        self.recent(now).into_iter().max_by_key(|follower| follower.longest)
    }
}

fn interval(now: Moment) -> u64 {
    now.0 / INTERVAL.as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: BrokerId = BrokerId(2);
    const THREE: BrokerId = BrokerId(3);

    fn at(seconds: u64) -> Moment {
        Moment::START.plus(Duration::from_secs(seconds))
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_slowest_of_the_last_minute_is_named() {
        let mut it = Acknowledgers::default();
        assert_eq!(it.slowest(at(0)), None);
        it.note(at(5), THREE, ms(900));
        it.note(at(12), TWO, ms(20));
        it.note(at(13), TWO, ms(10));
        let slowest =
            |it: &Acknowledgers, now| it.slowest(at(now)).map(|it| (it.broker, it.longest));
        assert_eq!(slowest(&it, 13), Some((THREE, ms(900))));
        assert_eq!(slowest(&it, 59), Some((THREE, ms(900))));
        assert_eq!(slowest(&it, 60), Some((TWO, ms(20))), "the interval of 5 s is over");
        assert_eq!(slowest(&it, 70), None);
    }

    #[test]
    fn a_follower_is_slow_after_three_slow_intervals() {
        let mut it = Acknowledgers::default();
        let is_slow = |it: &Acknowledgers, now| it.slowest(at(now)).is_some_and(|it| it.is_slow);
        for seconds in [1, 11, 21] {
            it.note(at(seconds), TWO, ms(500));
            assert!(!is_slow(&it, seconds));
        }
        assert!(is_slow(&it, 30));
        it.note(at(31), TWO, ms(499));
        assert!(is_slow(&it, 39));
        assert!(!is_slow(&it, 40), "the last finished interval was quick");
    }
}
