//! The real clock: wall time for records, read where it is needed and passed on as a value.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::{Moment, Timestamp};

/// A clock that is this much ahead of what was noted last may be wrong.
const AHEAD_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How long nothing expires by time then: so much time has a person to set the clock.
const EXPIRY_HELD: Duration = Duration::from_secs(10 * 60);

/// Tells the time, and for deadlines a time that never goes back.
#[derive(Debug, Clone)]
pub struct Clock {
    started: Instant,
    started_at: Timestamp,
    /// The last time that was noted before the start, if the clock is far ahead of it.
    held_at: Option<Timestamp>,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { started: Instant::now(), started_at: wall(), held_at: None }
    }
}

fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(since.as_millis() as i64)
}

impl Clock {
    /// The clock of a start, before which `last` was the last time that was noted. If that was more
    /// than a day ago nothing expires by time for ten minutes: a broker that was stopped for long
    /// cannot be told from a clock that was set wrong.
    pub fn behind(self, last: Option<Timestamp>) -> Clock {
        let ahead_ms = |last: &Timestamp| self.started_at.ms_since(*last);
        let held_at = last.filter(|last| ahead_ms(last) > AHEAD_MAX.as_millis() as i64);
        Clock { held_at, ..self }
    }

    /// How far the clock was ahead at the start, if nothing expires by time for that reason.
    pub fn ahead_ms(&self) -> Option<i64> {
        self.held_at.map(|last| self.started_at.ms_since(last))
    }

    /// The time by which records, producers and tombstones expire: that of the last start or stop
    /// while the clock is held to be wrong, the wall clock otherwise.
    pub fn expiry_now(&self) -> Timestamp {
        self.expiry_at(self.now(), self.started.elapsed())
    }

    fn expiry_at(&self, now: Timestamp, running: Duration) -> Timestamp {
        match self.held_at {
            Some(last) if running < EXPIRY_HELD => last.min(now),
            _ => now,
        }
    }

    /// Committed offsets do not expire before this time of [`Clock::steady`].
    pub fn offsets_kept_until(&self) -> Timestamp {
        match self.held_at {
            Some(_) => self.started_at.plus_ms(EXPIRY_HELD.as_millis() as i64),
            None => Timestamp::NONE,
        }
    }

    /// The wall clock: what records are stamped and compared with.
    pub fn now(&self) -> Timestamp {
        wall()
    }

    /// The wall clock at the start plus monotonic time: for sessions and deadlines, which must not
    /// end because somebody sets the clock.
    pub fn steady(&self) -> Timestamp {
        self.started_at.plus_ms(self.started.elapsed().as_millis() as i64)
    }

    /// How long the clock has run: for time-outs and lag, which no record tells of.
    pub fn moment(&self) -> Moment {
        Moment::START.plus(self.started.elapsed())
    }

    /// When `moment` is reached.
    pub fn instant_at(&self, moment: Moment) -> Instant {
        self.started + moment.since(Moment::START)
    }

    /// When `timestamp`, of [`Clock::steady`], is reached.
    pub fn instant_of(&self, timestamp: Timestamp) -> Instant {
        let ms = timestamp.ms_since(self.started_at).max(0) as u64;
        self.started + std::time::Duration::from_millis(ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: i64 = 24 * 60 * 60 * 1000;

    #[test]
    fn a_clock_far_ahead_lets_nothing_expire_for_ten_minutes() {
        let clock = Clock::default();
        let started = clock.started_at;
        let last = started.plus_ms(-DAY_MS - 1);
        let held = clock.clone().behind(Some(last));
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        for (minute, expected) in [(0, last), (9, last), (10, started), (11, started)] {
            assert_eq!(held.expiry_at(started, minutes(minute)), expected, "{minute}");
        }
        assert_eq!(held.ahead_ms(), Some(DAY_MS + 1));
        assert_eq!(held.offsets_kept_until(), started.plus_ms(600_000));
        // Set back to where it was.
        assert_eq!(held.expiry_at(last.plus_ms(-5), minutes(1)), last.plus_ms(-5));
        for last in [None, Some(started.plus_ms(-DAY_MS)), Some(started.plus_ms(DAY_MS))] {
            let clock = clock.clone().behind(last);
            assert_eq!(clock.expiry_at(started, minutes(0)), started);
            assert_eq!(clock.offsets_kept_until(), Timestamp::NONE);
            assert_eq!(clock.ahead_ms(), None);
        }
    }
}
