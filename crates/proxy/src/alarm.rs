//! A timer of microseconds: the kernel's, since the runtime's own counts in milliseconds, and a
//! round trip within a data centre takes less than one.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;

/// Wakes its one waiter at a time. Takes a file descriptor once it is used.
#[derive(Default)]
pub struct Alarm {
    timer: Option<AsyncFd<OwnedFd>>,
    /// What the timer is set for.
    set_for: Option<Instant>,
}

#[expect(
    deprecated,
    reason = "its successor is unsafe, for descriptors that change hands; this one never does"
)]
fn open() -> io::Result<AsyncFd<OwnedFd>> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)
}

fn set(timer: &AsyncFd<OwnedFd>, after: Duration) -> io::Result<()> {
    // Zero would disarm it.
    let after = after.max(Duration::from_nanos(1));
    let it_value = Timespec {
        tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(after.subsec_nanos()),
    };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
    Ok(())
}

impl Alarm {
    /// Waits until `at`. Dropped before, it may be asked again, for the same time or another.
    pub async fn until(&mut self, at: Instant) -> io::Result<()> {
        let timer = match &mut self.timer {
            Some(timer) => timer,
            none => none.insert(open()?),
        };
        if self.set_for != Some(at) {
            set(timer, at.saturating_duration_since(Instant::now()))?;
            self.set_for = Some(at);
        }
        loop {
            let mut ready = timer.readable().await?;
            let mut expirations = [0; 8];
            match ready.try_io(|timer| Ok(rustix::io::read(timer, &mut expirations)?)) {
                Ok(read) => {
                    self.set_for = None;
                    return read.map(|_| ());
                }
                // What was ready belonged to an earlier setting.
                Err(_would_block) => continue,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_wakes_at_the_time_that_was_asked_for_last() {
        let mut alarm = Alarm::default();
        let start = Instant::now();
        let far = alarm.until(start + Duration::from_secs(3600));
        let gave_up = tokio::time::timeout(Duration::from_millis(1), far).await;
        assert!(gave_up.is_err());
        alarm.until(start + Duration::from_millis(5)).await.unwrap();
        assert!(start.elapsed() >= Duration::from_millis(5));
        let past = Instant::now();
        alarm.until(start).await.unwrap();
        assert!(past.elapsed() < Duration::from_secs(60));
    }
}
