//! A token bucket: when bytes may pass, so that a rate is kept. It waits for nobody and reads no
//! clock: time comes in with the call.

use std::time::{Duration, Instant};

/// The bytes per second that may pass, with a small burst after a pause.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    bytes_per_second: u64,
    /// Until when everything taken so far will have been paid for.
    /// Invariant: never moves back.
    paid_until: Instant,
}

/// How much of a pause may be made up for: it also makes up for timers that wake late.
pub const BURST: Duration = Duration::from_millis(10);

/// The time that bytes take at the granularity with which they are taken.
const QUANTUM: Duration = Duration::from_millis(2);
/// The least that is taken at once: a segment of an Ethernet.
const QUANTUM_BYTES_MIN: usize = 1460;

impl TokenBucket {
    /// A bucket for so many bytes per second, above 0, that is full at `now`.
    pub fn new(bytes_per_second: u64, now: Instant) -> TokenBucket {
        assert!(bytes_per_second > 0, "a rate of 0 lets nothing through");
        TokenBucket { bytes_per_second, paid_until: now.checked_sub(BURST).unwrap_or(now) }
    }

    /// Takes `bytes` and returns when the last of them may pass: `now` or later. Whoever takes
    /// next waits behind these.
    pub fn take(&mut self, now: Instant, bytes: usize) -> Instant {
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        self.paid_until = self.paid_until.max(earliest) + self.time_of(bytes);
        self.paid_until.max(now)
    }

    fn time_of(&self, bytes: usize) -> Duration {
        let ns = bytes as u128 * 1_000_000_000 / self.bytes_per_second as u128;
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// How many bytes to take at once, so that connections take turns and nothing comes in lumps.
    pub fn quantum_bytes(&self) -> usize {
        let bytes = self.bytes_per_second as u128 * QUANTUM.as_nanos() / 1_000_000_000;
        usize::try_from(bytes).unwrap_or(usize::MAX).max(QUANTUM_BYTES_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1_000_000;

    /// Takes `bytes` in pieces, each as soon as the one before has passed; returns how long it took.
    fn time_for(bucket: &mut TokenBucket, start: Instant, bytes: usize, piece: usize) -> Duration {
        let mut now = start;
        for _ in 0..bytes / piece {
            now = bucket.take(now, piece);
        }
        now - start
    }

    #[test]
    fn the_rate_is_kept_whatever_the_pieces() {
        for piece in [100, 1000, 50_000] {
            let start = Instant::now();
            let mut bucket = TokenBucket::new(RATE, start);
            let took = time_for(&mut bucket, start, 1_000_000, piece);
            assert_eq!(took, Duration::from_secs(1) - BURST, "pieces of {piece}");
        }
    }

    #[test]
    fn waking_late_costs_no_throughput() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(RATE, start);
        let mut now = start;
        for _ in 0..1000 {
            now = bucket.take(now, 1000) + Duration::from_micros(300);
        }
        assert!(now - start < Duration::from_millis(1001), "{:?}", now - start);
    }

    #[test]
    fn a_pause_saves_up_no_more_than_the_burst() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(RATE, start);
        let later = start + Duration::from_secs(3600);
        let took = time_for(&mut bucket, later, 100_000, 1000);
        assert_eq!(took, Duration::from_millis(100) - BURST);
    }

    #[test]
    fn takers_wait_for_one_another() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(RATE, start);
        let first = bucket.take(start, 20_000);
        let second = bucket.take(start, 1000);
        assert_eq!(second - first, Duration::from_millis(1));
    }

    #[test]
    fn slow_links_are_taken_in_small_pieces() {
        let now = Instant::now();
        assert_eq!(TokenBucket::new(125_000, now).quantum_bytes(), QUANTUM_BYTES_MIN);
        assert_eq!(TokenBucket::new(31_000_000, now).quantum_bytes(), 62_000);
    }
}
