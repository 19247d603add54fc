//! What a command says on standard error while it waits for the cluster: a line after a second, and
//! again every ten.

use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_secs(10);

/// How long nothing has come, and when that is to be said.
#[derive(Debug)]
pub struct Waiting {
    since: Instant,
    next: Duration,
}

impl Waiting {
    /// Nothing is waited for before `now`.
    pub fn from(now: Instant) -> Waiting {
        Waiting { since: now, next: FIRST }
    }

    /// Something came.
    pub fn came(&mut self, now: Instant) {
        *self = Waiting::from(now);
    }

    /// How long nothing came, if it is time to say so.
    fn due(&mut self, now: Instant) -> Option<Duration> {
        let silent = now.saturating_duration_since(self.since);
        if silent < self.next {
            return None;
        }
        self.next = silent + AGAIN;
        Some(silent)
    }

    /// Says what is waited for, if it is time to.
    pub fn say(&mut self, now: Instant, what: impl FnOnce() -> String) {
        if let Some(silent) = self.due(now) {
            anstream::eprintln!("waiting for {} s: {}", silent.as_secs(), what());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_named_after_a_second_and_then_every_ten() {
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut waiting = Waiting::from(start);
        assert_eq!(waiting.due(at(0.9)), None);
        assert_eq!(waiting.due(at(1.0)), Some(Duration::from_secs(1)));
        assert_eq!(waiting.due(at(10.9)), None);
        assert_eq!(waiting.due(at(11.0)), Some(Duration::from_secs(11)));
        waiting.came(at(11.5));
        assert_eq!(waiting.due(at(12.4)), None);
        assert_eq!(waiting.due(at(12.5)), Some(Duration::from_secs(1)));
    }
}
