//! What a producer counts: a few additions for each batch and request, none for a record.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a producer has done since it was made. Means over a while come from two of them:
/// [`ProducerMetrics::since`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProducerMetrics {
    /// Records that were acknowledged.
    pub records: u64,
    /// Bytes of their batches, as sent.
    pub bytes: u64,
    /// Batches that were acknowledged.
    pub batches: u64,
    /// Records that were given up.
    pub failed_records: u64,
    /// Produce requests that were sent.
    pub requests: u64,
    /// Records in these requests, those sent again included.
    pub records_sent: u64,
    /// Batches in these requests.
    pub batches_sent: u64,
    /// Batches in these requests that were not sent for the first time.
    pub batches_sent_again: u64,
    /// Bytes of the batches in these requests.
    pub bytes_sent: u64,
    /// Sum over these requests: how many were in flight to the broker, this one included.
    pub in_flight: u64,
    /// Time for which senders waited for `buffer.memory`.
    pub blocked: Duration,
}

impl ProducerMetrics {
    /// What was done between `earlier` and this.
    pub fn since(&self, earlier: &ProducerMetrics) -> ProducerMetrics {
        ProducerMetrics {
            records: self.records - earlier.records,
            bytes: self.bytes - earlier.bytes,
            batches: self.batches - earlier.batches,
            failed_records: self.failed_records - earlier.failed_records,
            requests: self.requests - earlier.requests,
            records_sent: self.records_sent - earlier.records_sent,
            batches_sent: self.batches_sent - earlier.batches_sent,
            batches_sent_again: self.batches_sent_again - earlier.batches_sent_again,
            bytes_sent: self.bytes_sent - earlier.bytes_sent,
            in_flight: self.in_flight - earlier.in_flight,
            blocked: self.blocked.saturating_sub(earlier.blocked),
        }
    }

    /// What several producers did together.
    pub fn plus(&self, other: &ProducerMetrics) -> ProducerMetrics {
        ProducerMetrics {
            records: self.records + other.records,
            bytes: self.bytes + other.bytes,
            batches: self.batches + other.batches,
            failed_records: self.failed_records + other.failed_records,
            requests: self.requests + other.requests,
            records_sent: self.records_sent + other.records_sent,
            batches_sent: self.batches_sent + other.batches_sent,
            batches_sent_again: self.batches_sent_again + other.batches_sent_again,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            in_flight: self.in_flight + other.in_flight,
            blocked: self.blocked + other.blocked,
        }
    }

    /// Mean size of a batch as sent, by `batch.size`; 0 before the first.
    pub fn batch_fill(&self, batch_bytes: usize) -> f64 {
        mean(self.bytes_sent, self.batches_sent) / batch_bytes.max(1) as f64
    }

    /// Mean number of records in a request; 0 before the first.
    pub fn records_per_request(&self) -> f64 {
        mean(self.records_sent, self.requests)
    }

    /// Mean number of requests in flight to a broker when one was sent, that one included.
    pub fn in_flight_mean(&self) -> f64 {
        mean(self.in_flight, self.requests)
    }
}

fn mean(sum: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { sum as f64 / count as f64 }
}

/// The counters behind [`ProducerMetrics`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    records: AtomicU64,
    bytes: AtomicU64,
    batches: AtomicU64,
    failed_records: AtomicU64,
    requests: AtomicU64,
    records_sent: AtomicU64,
    batches_sent: AtomicU64,
    batches_sent_again: AtomicU64,
    bytes_sent: AtomicU64,
    in_flight: AtomicU64,
    blocked_ns: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Counters {
    /// A batch was acknowledged.
    pub(super) fn acknowledged(&self, records: u64, bytes: u64) {
        add(&self.records, records);
        add(&self.bytes, bytes);
        add(&self.batches, 1);
    }

    /// A batch was given up.
    pub(super) fn failed(&self, records: u64) {
        add(&self.failed_records, records);
    }

    /// A batch goes into a request.
    pub(super) fn batch_sent(&self, records: u64, bytes: u64, again: bool) {
        add(&self.records_sent, records);
        add(&self.batches_sent, 1);
        add(&self.bytes_sent, bytes);
        add(&self.batches_sent_again, again as u64);
    }

    /// A request was sent; so many are in flight now.
    pub(super) fn request_sent(&self, in_flight: u64) {
        add(&self.requests, 1);
        add(&self.in_flight, in_flight);
    }

    /// A sender has waited for memory.
    pub(super) fn blocked(&self, time: Duration) {
        add(&self.blocked_ns, time.as_nanos() as u64);
    }

    pub(super) fn read(&self) -> ProducerMetrics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ProducerMetrics {
            records: get(&self.records),
            bytes: get(&self.bytes),
            batches: get(&self.batches),
            failed_records: get(&self.failed_records),
            requests: get(&self.requests),
            records_sent: get(&self.records_sent),
            batches_sent: get(&self.batches_sent),
            batches_sent_again: get(&self.batches_sent_again),
            bytes_sent: get(&self.bytes_sent),
            in_flight: get(&self.in_flight),
            blocked: Duration::from_nanos(get(&self.blocked_ns)),
        }
    }
}
