//! Times and bounds of links.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What to wait when so long a wait was due: where brokers draw lots, so that they do not dial in step.
/// Comes from outside, because nothing here is left to chance.
#[derive(Clone)]
pub struct Jitter(Arc<dyn Fn(Duration) -> Duration + Send + Sync>);

impl Jitter {
    /// Waits by this function.
    pub fn new(wait: impl Fn(Duration) -> Duration + Send + Sync + 'static) -> Jitter {
        Jitter(Arc::new(wait))
    }

    /// Waits what is due.
    pub fn none() -> Jitter {
        Jitter::new(|due| due)
    }

    pub(crate) fn apply(&self, due: Duration) -> Duration {
        (self.0)(due)
    }
}

impl fmt::Debug for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jitter(…)")
    }
}

/// Times and bounds. All brokers of a cluster should have the same.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Resolving a name and connecting, in all.
    pub dial_timeout: Duration,
    /// From the first byte to both proofs. A peer that drips is cut off then.
    pub hello_timeout: Duration,
    /// From a frame's first byte to its last.
    pub frame_timeout: Duration,
    /// `TCP_USER_TIMEOUT`: bytes that were sent and not acknowledged for so long end the connection. A peer
    /// that does not read for so long while it has bytes to read is cut off as well.
    pub user_timeout: Duration,
    /// A connection without any byte for so long is probed, and ends when two probes a second apart are not
    /// answered. Whole seconds.
    pub keepalive: Duration,
    /// The wait before dialing again after the first failure; it doubles with each.
    pub backoff_first: Duration,
    /// The longest wait. A connection that ended younger than this is waited after like a failure.
    pub backoff_max: Duration,
    /// See [`Jitter`].
    pub jitter: Jitter,
    /// Calls of a link that may wait for their answers; one more is refused at once.
    pub calls_max: usize,
    /// Bytes that may wait to be sent on a link; a call that would be more is refused at once.
    pub queued_bytes_max: usize,
    /// Bytes of one frame.
    pub frame_bytes_max: usize,
    /// Calls of a peer that are answered at a time; one more is declined.
    pub served_max: usize,
    /// Bytes of those calls; a call that would be more is declined.
    pub served_bytes_max: usize,
    /// Connections that have not proven anything yet; one more is refused.
    pub unproven_max: usize,
}

impl Default for LinkConfig {
    fn default() -> LinkConfig {
        LinkConfig {
            dial_timeout: Duration::from_secs(1),
            hello_timeout: Duration::from_secs(2),
            frame_timeout: Duration::from_secs(10),
            user_timeout: Duration::from_millis(500),
            keepalive: Duration::from_secs(3),
            backoff_first: Duration::from_millis(10),
            backoff_max: Duration::from_secs(1),
            jitter: Jitter::none(),
            calls_max: 256,
            queued_bytes_max: 8 << 20,
            frame_bytes_max: 2 << 20,
            served_max: 64,
            served_bytes_max: 16 << 20,
            unproven_max: 64,
        }
    }
}

impl LinkConfig {
    /// What is due before dialing again after so many failures in a row, lots not yet drawn.
    pub(crate) fn backoff(&self, failures: u32) -> Duration {
        let doubled = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.backoff_first.saturating_mul(doubled).min(self.backoff_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let config = LinkConfig::default();
        let waits: Vec<u128> = (1..10).map(|n| config.backoff(n).as_millis()).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(config.backoff(u32::MAX), config.backoff_max);
        let halves = Jitter::new(|due| due / 2);
        assert_eq!(halves.apply(Duration::from_millis(10)), Duration::from_millis(5));
    }
}
