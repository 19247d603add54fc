//! Holding a thread to a share of a core: by the processor time that it has used, so that an attack is
//! as strong on a busy machine as on an idle one, and no stronger on a fast one.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A share of a core.
pub struct Pace {
    share: f64,
    began: Instant,
    used_before: Duration,
}

fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Pace {
    /// `share` of a core for the thread that takes the first step.
    pub fn of(share: f64) -> Pace {
        Pace { share, began: Instant::now(), used_before: used() }
    }

    /// Sleeps until the thread has its share of processor time to use, a moment at least.
    pub fn step(&mut self) {
        let due = (used().saturating_sub(self.used_before)).div_f64(self.share);
        let ahead = due.saturating_sub(self.began.elapsed());
        std::thread::sleep(ahead.clamp(Duration::from_millis(1), Duration::from_secs(1)));
    }
}
