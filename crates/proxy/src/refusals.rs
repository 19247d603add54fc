//! Reports of refused and evicted connections, at most one a second: many of them must not fill the log.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long after a report there is none.
const QUIET: Duration = Duration::from_secs(1);

/// Reports of one kind.
#[derive(Debug)]
pub struct Refusals {
    words: &'static str,
    /// Time of the last report, and the count of connections since.
    seen: Mutex<(Option<Instant>, u64)>,
}

impl Refusals {
    /// Reports with these words.
    pub fn new(words: &'static str) -> Refusals {
        Refusals { words, seen: Mutex::default() }
    }

    /// Reports the connection from `peer`, or counts it for the next report.
    pub fn say(&self, peer: SocketAddr) {
        if let Some(unreported) = self.due(Instant::now()) {
            tracing::warn!(%peer, unreported, "{}", self.words);
        }
    }

    /// Counts a refusal; how many were counted and not reported before, if this one is to be
    /// reported.
    fn due(&self, now: Instant) -> Option<u64> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.0.is_some_and(|last| now.saturating_duration_since(last) < QUIET) {
            seen.1 += 1;
            return None;
        }
        let unreported = std::mem::take(&mut seen.1);
        seen.0 = Some(now);
        Some(unreported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_herd_is_reported_once_and_its_size_with_the_next_report() {
        let (refusals, start) = (Refusals::new("closed"), Instant::now());
        assert_eq!(refusals.due(start), Some(0));
        assert_eq!(refusals.due(start + QUIET / 2), None);
        assert_eq!(refusals.due(start + QUIET / 2), None);
        assert_eq!(refusals.due(start + QUIET), Some(2));
        assert_eq!(refusals.due(start + 2 * QUIET), Some(0));
    }
}
