//! The share of a core that the hostile client takes.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, sleep};

/// Part of one core.
const SHARE: f64 = 0.5;
/// CPU time that may be used in advance.
const ADVANCE: Duration = Duration::from_millis(50);
/// Pause of an attack while the share is used up.
const PAUSE: Duration = Duration::from_millis(5);

/// Keeps the CPU time of this process below [`SHARE`] of the time since it was made.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    began: Instant,
}

impl Pace {
    pub(super) fn begin() -> Pace {
        Pace { began: Instant::now() }
    }

    /// Returns when the process may use the processor.
    pub(super) async fn wait(self) {
        while used_cpu() > self.began.elapsed().mul_f64(SHARE) + ADVANCE {
            sleep(PAUSE).await;
        }
    }
}

/// CPU time of this process.
fn used_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
