//! Keeps a producer to its throughput as Kafka's tools do: by the mean since the start, and in
//! pauses of 2 ms or more, so that records come in bursts of as many as fit there. After a stall it
//! catches up. Open-loop load without that is the load engine's.

use std::time::{Duration, Instant};

/// The shortest pause.
const PAUSE_MIN: Duration = Duration::from_millis(2);

/// A throttle of one producer.
#[derive(Debug)]
pub struct Throttle {
    /// Records per second; negative for no limit.
    target: f64,
    start: Instant,
    /// Time that was to be waited and was not yet.
    deficit: Duration,
}

/// What to do before the next record.
#[derive(Debug, PartialEq, Eq)]
pub enum Pace {
    /// Send.
    Go,
    /// Wait so long first.
    Pause(Duration),
    /// Never send again: the target is 0.
    Never,
}

impl Throttle {
    /// So many records per second from `start` on.
    pub fn new(target: f64, start: Instant) -> Throttle {
        Throttle { target, start, deficit: Duration::ZERO }
    }

    /// After `sent` records, the last of them at `now`.
    pub fn after(&mut self, sent: u64, now: Instant) -> Pace {
        let elapsed = now.saturating_duration_since(self.start).as_secs_f64();
        if self.target < 0.0 || elapsed <= 0.0 || sent as f64 / elapsed <= self.target {
            return Pace::Go;
        }
        if self.target == 0.0 {
            return Pace::Never;
        }
        self.deficit += Duration::from_secs_f64((1.0 / self.target).min(86_400.0));
        if self.deficit < PAUSE_MIN {
            return Pace::Go;
        }
        Pace::Pause(std::mem::take(&mut self.deficit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_in_bursts_of_two_milliseconds() {
        let start = Instant::now();
        let mut throttle = Throttle::new(1000.0, start);
        let now = start + Duration::from_millis(1);
        assert_eq!(throttle.after(1, now), Pace::Go, "just at the rate");
        assert_eq!(throttle.after(2, now), Pace::Go, "too fast, but a pause would be too short");
        assert_eq!(throttle.after(3, now), Pace::Pause(Duration::from_millis(2)));
        assert_eq!(throttle.after(4, now), Pace::Go);
    }

    #[test]
    fn after_a_stall_it_catches_up() {
        let start = Instant::now();
        let mut throttle = Throttle::new(1000.0, start);
        let late = start + Duration::from_secs(1);
        assert!((1..=1000).all(|sent| throttle.after(sent, late) == Pace::Go));
    }

    #[test]
    fn a_fraction_of_a_record_per_second_is_possible() {
        let start = Instant::now();
        let mut throttle = Throttle::new(0.5, start);
        let now = start + Duration::from_millis(1);
        assert_eq!(throttle.after(1, now), Pace::Pause(Duration::from_secs(2)));
    }

    #[test]
    fn nothing_is_held_back_without_a_limit_and_all_at_zero() {
        let start = Instant::now();
        let now = start + Duration::from_millis(1);
        assert_eq!(Throttle::new(-1.0, start).after(1_000_000, now), Pace::Go);
        assert_eq!(Throttle::new(0.0, start).after(1, now), Pace::Never);
    }
}
