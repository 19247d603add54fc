//! Connections that are refused, said once a second at most: a herd must not fill the log.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long after a report there is none.
const QUIET: Duration = Duration::from_secs(1);

/// When refusals were reported last, and how many since.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<(Option<Instant>, u64)>);

impl Refusals {
    /// Reports that a connection from `peer` was refused for want of room, or counts it for the
    /// next report.
    pub fn say(&self, peer: SocketAddr) {
        if let Some(unreported) = self.due(Instant::now()) {
            tracing::warn!(
                %peer,
                unreported,
                "a connection is refused: as many as may be are open (--connections-max)"
            );
        }
    }

    /// Counts a refusal; how many were counted and not reported before, if this one is to be
    /// reported.
    fn due(&self, now: Instant) -> Option<u64> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let (refusals, start) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.due(start), Some(0));
        assert_eq!(refusals.due(start + QUIET / 2), None);
        assert_eq!(refusals.due(start + QUIET / 2), None);
        assert_eq!(refusals.due(start + QUIET), Some(2));
        assert_eq!(refusals.due(start + 2 * QUIET), Some(0));
    }
}
