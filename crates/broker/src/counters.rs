//! What the data path counts: plain atomics, bumped without a lock. The telemetry reads them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wire::ApiKey;

/// A number that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    #[inline]
    pub fn add(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }

    /// What it stands at.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Buckets of a [`Durations`]: powers of two of microseconds, 1 µs to over an hour.
const DURATION_BUCKETS: usize = 32;

/// How often something took how long, by powers of two of microseconds.
#[derive(Debug, Default)]
pub struct Durations {
    buckets: [Counter; DURATION_BUCKETS],
    /// Sum of all, in microseconds.
    total_us: Counter,
}

impl Durations {
    /// Counts one.
    #[inline]
    pub fn observe(&self, duration: Duration) {
        let us = duration.as_micros() as u64;
        let bucket = (64 - us.leading_zeros() as usize).min(DURATION_BUCKETS - 1);
        self.buckets[bucket].add(1);
        self.total_us.add(us);
    }

    /// For each bucket: its upper bound in seconds (exclusive), and how many fell into it.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.buckets.iter().enumerate().map(|(at, count)| ((1u64 << at) as f64 / 1e6, count.get()))
    }

    /// Sum of all, in seconds.
    pub fn total_seconds(&self) -> f64 {
        self.total_us.get() as f64 / 1e6
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::get).sum()
    }
}

/// One topic's counters.
#[derive(Debug, Default)]
pub struct TopicCounters {
    /// Records appended by producers.
    pub records_in: Counter,
    /// Bytes appended by producers.
    pub bytes_in: Counter,
    /// Bytes given to consumers.
    pub bytes_out: Counter,
    /// Batches that producers sent.
    pub produce_requests: Counter,
    /// Answers that carried records of it.
    pub fetch_requests: Counter,
    /// Batches that were refused.
    pub failed_produce_requests: Counter,
}

/// One API's counters.
#[derive(Debug, Default)]
pub struct ApiCounters {
    /// Requests received.
    pub requests: Counter,
    /// From the request's arrival to its answer.
    pub durations: Durations,
}

/// The whole broker's counters.
#[derive(Debug)]
pub struct Counters {
    /// Bytes read from clients.
    pub bytes_received: Counter,
    /// Bytes sent to clients.
    pub bytes_sent: Counter,
    /// Connections accepted.
    pub connections_accepted: Counter,
    /// Connections turned away (`max.connections`, `max.connections.per.ip`).
    pub connections_refused: Counter,
    /// Connections that ended.
    pub connections_closed: Counter,
    /// Connections that ended because of what the peer sent.
    pub connections_broken_off: Counter,
    /// Batches met in logs whose records cannot be read.
    pub batches_unreadable: Counter,
    /// Cuts of followers that took committed records.
    pub committed_cuts: Counter,
    /// How long syncs took.
    pub syncs: Durations,
    apis: Vec<ApiCounters>,
}

impl Default for Counters {
    fn default() -> Counters {
        let apis = (0..=ApiKey::all().iter().map(|api| api.code()).max().unwrap_or(0))
            .map(|_| ApiCounters::default())
            .collect();
        Counters {
            bytes_received: Counter::default(),
            bytes_sent: Counter::default(),
            connections_accepted: Counter::default(),
            connections_refused: Counter::default(),
            connections_closed: Counter::default(),
            connections_broken_off: Counter::default(),
            batches_unreadable: Counter::default(),
            committed_cuts: Counter::default(),
            syncs: Durations::default(),
            apis,
        }
    }
}

impl Counters {
    /// One API's.
    pub fn api(&self, api: ApiKey) -> &ApiCounters {
        &self.apis[api.code() as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_powers_of_two() {
        let durations = Durations::default();
        for us in [0, 1, 3, 1000, u64::MAX / 1_000_000] {
            durations.observe(Duration::from_micros(us));
        }
        let filled: Vec<_> = durations.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled[0], (1e-6, 1), "below one microsecond");
        assert_eq!(filled[1], (2e-6, 1));
        assert_eq!(filled[2], (4e-6, 1));
        assert_eq!(filled[3], (1024e-6, 1));
        assert_eq!(durations.count(), 5);
    }
}
