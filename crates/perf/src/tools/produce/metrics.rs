//! The producer's counters under the names that Kafka's have, where they mean the same.

use super::super::table::Metrics;
use client::ProducerConfig;
use client::producer::ProducerMetrics;

const GROUP: &str = "producer-metrics";

/// The table of a run of so many milliseconds. Rates are means over the whole run.
pub fn table(
    counted: &ProducerMetrics,
    config: &ProducerConfig,
    client_id: &str,
    elapsed_ms: u64,
) -> Metrics {
    let seconds = elapsed_ms as f64 / 1000.0;
    let mean = |sum: u64, count: u64| sum as f64 / count as f64;
    let blocked_ns = counted.blocked.as_nanos() as f64;
    let rows = [
        ("batch-size-avg", mean(counted.bytes_sent, counted.batches_sent)),
        ("buffer-total-bytes", config.buffer_bytes as f64),
        ("bufferpool-wait-ratio", blocked_ns / 1e9 / seconds),
        ("bufferpool-wait-time-ns-total", blocked_ns),
        ("outgoing-byte-rate", counted.bytes_sent as f64 / seconds),
        ("outgoing-byte-total", counted.bytes_sent as f64),
        ("record-error-rate", counted.failed_records as f64 / seconds),
        ("record-error-total", counted.failed_records as f64),
        ("record-send-rate", counted.records_sent as f64 / seconds),
        ("record-send-total", counted.records_sent as f64),
        ("records-per-request-avg", counted.records_per_request()),
        ("request-rate", counted.requests as f64 / seconds),
        ("request-total", counted.requests as f64),
        ("requests-in-flight-avg", counted.in_flight_mean()),
        ("batch-retry-total", counted.batches_sent_again as f64),
    ];
    let mut metrics = Metrics::default();
    metrics.text("app-info", "version", client_id, env!("CARGO_PKG_VERSION"));
    for (name, value) in rows {
        metrics.number(GROUP, name, client_id, value);
    }
    metrics
}
