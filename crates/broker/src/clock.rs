//! The real clock: wall time for records, read where it is needed and passed on as a value.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use model::Timestamp;

/// Tells the time, and for deadlines a time that never goes back.
#[derive(Debug, Clone)]
pub struct Clock {
    started: Instant,
    started_at: Timestamp,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { started: Instant::now(), started_at: wall() }
    }
}

fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(since.as_millis() as i64)
}

impl Clock {
    /// The wall clock: what records are stamped and compared with.
    pub fn now(&self) -> Timestamp {
        wall()
    }

    /// The wall clock at the start plus monotonic time: for sessions and deadlines, which must not
    /// end because somebody sets the clock.
    pub fn steady(&self) -> Timestamp {
        self.started_at.plus_ms(self.started.elapsed().as_millis() as i64)
    }

    /// When `timestamp`, of [`Clock::steady`], is reached.
    pub fn instant_of(&self, timestamp: Timestamp) -> Instant {
        let ms = timestamp.ms_since(self.started_at).max(0) as u64;
        self.started + std::time::Duration::from_millis(ms)
    }
}
