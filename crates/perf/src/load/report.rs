//! What came out of load: counts, times, and what is needed to check the log.

use crate::stamp::{Acknowledged, Findings};
use client::producer::ProducerMetrics;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest time that a histogram tells from longer ones, in microseconds: a minute.
pub const LATENCY_MAX_US: u64 = 60_000_000;

/// An empty histogram of microseconds, 1 µs to a minute, three digits; longer times count as a
/// minute.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).expect("the bounds are in order")
}

/// A second of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    /// Records acknowledged in it, or read.
    pub records: u64,
    /// The longest response time among them, in microseconds.
    pub response_us_max: u64,
}

/// What producers did. Counted are the records that the client took behind the warm-up, whenever they were
/// meant to be sent.
#[derive(Debug, Clone)]
pub struct ProduceReport {
    /// Records sent, the warm-up's included.
    pub sent: u64,
    /// Records acknowledged, the warm-up's included.
    pub acknowledged: u64,
    /// Records given up or refused, the warm-up's included.
    pub failed: u64,
    /// Records that were due within the time and not sent, because the producers were too far behind
    /// when it was over: more was offered than could be taken, and latencies say less than they should.
    pub unsent: u64,
    /// Counted records that were acknowledged.
    pub records: u64,
    /// Bytes of their values, from the mean length of all that were sent.
    pub bytes: u64,
    /// From the end of the warm-up to the last acknowledgement.
    pub elapsed: Duration,
    /// From the end of the warm-up until the last record was sent.
    pub sending: Duration,
    /// Acknowledgements within `elapsed`, by it, per second; at most what was offered. Records of the warm-up that were
    /// acknowledged after it are among them: they took their part of that time.
    pub records_per_s: f64,
    /// The same in bytes of values.
    pub bytes_per_s: f64,
    /// Second by second from the end of the warm-up.
    pub windows: Vec<Window>,
    /// Different errors, the first ones, at most ten.
    pub errors: Vec<String>,
    /// Intended time to acknowledgement, counted records.
    pub response: Histogram<u64>,
    /// Being taken by the client to acknowledgement, counted records.
    pub service: Histogram<u64>,
    /// Intended time to being taken by the client, counted records.
    pub delay: Histogram<u64>,
    /// Each waiting for `buffer.memory`.
    pub blocked: Histogram<u64>,
    /// What the clients counted from the end of the warm-up on.
    pub metrics: ProducerMetrics,
    /// Mean size of a batch by `batch.size`.
    pub batch_fill: f64,
    /// CPU time of the busiest producer's thread by `elapsed`.
    pub busiest_share: f64,
    /// CPU time of all producers' threads from the end of the warm-up on.
    pub cpu: Duration,
    /// Records acknowledged for each topic and partition, the warm-up's included.
    pub partitions: BTreeMap<(String, i32), u64>,
    /// What was acknowledged, for [`verify`](super::verify()).
    pub acknowledgements: Acknowledged,
    /// Whether it was stopped before its end.
    pub stopped: bool,
}

/// What consumers did.
#[derive(Debug, Clone)]
pub struct ConsumeReport {
    /// Records read.
    pub records: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// From the beginning, before partitions were assigned, to the last record.
    pub elapsed: Duration,
    /// From the beginning until all consumers had partitions.
    pub rebalance: Duration,
    /// From the beginning to the first record.
    pub first_record: Option<Duration>,
    /// Fetch requests that were answered.
    pub fetches: u64,
    /// How long they took, in microseconds.
    pub fetch: Histogram<u64>,
    /// Intended sending to being read, of stamped records, in microseconds.
    pub end_to_end: Histogram<u64>,
    /// Records per second, from the beginning.
    pub windows: Vec<Window>,
    /// Records read from each topic and partition.
    pub partitions: BTreeMap<(String, i32), u64>,
    /// What the stamps said.
    pub findings: Findings,
    /// When producers ran beside: records acknowledged but not read when these ended.
    pub lag_records: u64,
    /// CPU time of the busiest consumer's thread by `elapsed`.
    pub busiest_share: f64,
    /// CPU time of all consumers' threads.
    pub cpu: Duration,
    /// Different errors, the first ones, at most ten.
    pub errors: Vec<String>,
    /// Whether it was stopped before its end.
    pub stopped: bool,
}
