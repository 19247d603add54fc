//! Time: one beginning for all threads of a run, short waits, and CPU time of a thread.

use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since the beginning that all threads of a run share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    base: Instant,
    /// The beginning, in nanoseconds since 1970, for those who read the records elsewhere.
    base_unix_ns: u64,
}

impl Clock {
    /// One that begins now.
    pub(super) fn start() -> Clock {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { base: Instant::now(), base_unix_ns: unix.as_nanos() as u64 }
    }

    /// One that begins now, and says the same of the time since 1970: whoever compares times of both
    /// has one clock, even if the system's is set meanwhile.
    pub(super) fn later(&self) -> Clock {
        let base = Instant::now();
        Clock { base, base_unix_ns: self.unix_ns(self.ns_of(base)) }
    }

    /// Nanoseconds since the beginning.
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64
    }

    /// The same for a moment that was noted; 0 for one before the beginning.
    pub(super) fn ns_of(&self, moment: Instant) -> u64 {
        moment.saturating_duration_since(self.base).as_nanos() as u64
    }

    /// Nanoseconds since 1970: what stamps bear.
    #[inline]
    pub(super) fn unix_ns(&self, ns: u64) -> u64 {
        self.base_unix_ns + ns
    }
}

/// CPU time that this thread has used.
pub(super) fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Waits to a few microseconds: the runtime's own timer knows milliseconds only.
#[cfg(target_os = "linux")]
pub(super) struct Alarm {
    /// The timer. To the runtime any descriptor that becomes readable is as good as a pipe.
    expiries: tokio::net::unix::pipe::Receiver,
}

#[cfg(target_os = "linux")]
impl Alarm {
    pub(super) fn new() -> io::Result<Alarm> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let file = std::fs::File::from(timer);
        Ok(Alarm { expiries: tokio::net::unix::pipe::Receiver::from_file_unchecked(file)? })
    }

    /// Waits for so many nanoseconds, at least one.
    pub(super) async fn wait(&self, ns: u64) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let (seconds, ns) = (ns / 1_000_000_000, ns % 1_000_000_000);
        let spec = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            // Zero would be no alarm at all.
            it_value: Timespec { tv_sec: seconds as i64, tv_nsec: ns.max(1) as _ },
        };
        // This also takes back an expiry that was not read.
        timerfd_settime(&self.expiries, TimerfdTimerFlags::empty(), &spec)?;
        let mut count = [0; 8];
        loop {
            self.expiries.readable().await?;
            match self.expiries.try_read(&mut count) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read.map(|_| ()),
            }
        }
    }
}

/// Waits as exactly as the runtime can.
#[cfg(not(target_os = "linux"))]
pub(super) struct Alarm;

#[cfg(not(target_os = "linux"))]
impl Alarm {
    pub(super) fn new() -> io::Result<Alarm> {
        Ok(Alarm)
    }

    /// Waits for so many nanoseconds.
    pub(super) async fn wait(&self, ns: u64) -> io::Result<()> {
        tokio::time::sleep(Duration::from_nanos(ns)).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_of_producers_and_consumers_agree() {
        let consumers = Clock { base: Instant::now(), base_unix_ns: 1_000 };
        let producers = consumers.later();
        let moment = Instant::now();
        let unix_ns = |clock: &Clock| clock.unix_ns(clock.ns_of(moment));
        assert_eq!(unix_ns(&producers), unix_ns(&consumers));
    }

    #[tokio::test]
    async fn an_alarm_is_never_early_and_can_be_set_again() {
        let alarm = Alarm::new().unwrap();
        for ns in [1, 20_000, 300_000, 2_000_000, 50_000] {
            let began = Instant::now();
            alarm.wait(ns).await.unwrap();
            assert!(began.elapsed() >= Duration::from_nanos(ns));
        }
    }
}
