//! Time as the tools use it: microseconds since the tool began, and Java's `currentTimeMillis`, whose
//! ticks the classic latencies count. Not a wall clock for anything else.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A clock that never goes back; copies agree.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    begin: Instant,
    /// Microseconds from 1970 to `begin`.
    begin_epoch_us: u64,
}

impl Clock {
    /// A clock that begins now.
    pub fn start() -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { begin: Instant::now(), begin_epoch_us: since.as_micros() as u64 }
    }

    /// Microseconds from the beginning to `at`.
    pub fn us(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.begin).as_micros() as u64
    }

    /// Milliseconds from 1970 to so many microseconds after the beginning.
    pub fn epoch_ms(&self, us: u64) -> u64 {
        (self.begin_epoch_us + us) / 1000
    }

    /// Milliseconds from 1970 to now.
    pub fn now_ms(&self) -> u64 {
        self.epoch_ms(self.us(Instant::now()))
    }
}
