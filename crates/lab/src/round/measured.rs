//! What a round's work hands over: metrics under the names of `experiment::round::METRICS`.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use experiment::round::Verdict;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// A record that does not come for so long, when what was acknowledged is read back, is lost.
pub const VERIFY_IDLE: Duration = Duration::from_secs(10);

/// The numbers of a round, before the round has a place in a run.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Records that were produced, or read where only reading is measured.
    pub records: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// By the names of `experiment::round::METRICS`.
    pub metrics: BTreeMap<String, f64>,
    /// Latencies by name, base64 of HdrHistogram's V2 form.
    pub histograms: BTreeMap<String, String>,
    /// Records per partition, where it matters.
    pub counts: Vec<u64>,
    /// What became of the records.
    pub verdict: Verdict,
    /// What looked wrong.
    pub warnings: Vec<String>,
}

impl Measured {
    /// Sets a metric; what is no number is left out.
    pub fn put(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            self.metrics.insert(name.to_owned(), value);
        }
    }

    /// Sets throughput from records per second and bytes per second.
    pub fn put_rates(&mut self, records_per_s: f64, bytes_per_s: f64) {
        self.put("throughput", records_per_s);
        self.put("mib_per_s", bytes_per_s / MIB);
        self.put("records", self.records as f64);
        self.put("data_mib", self.bytes as f64 / MIB);
    }

    /// Sets mean, maximum and percentiles in milliseconds from a histogram of microseconds.
    pub fn put_latencies(&mut self, prefix: &str, latencies: &Histogram<u64>) {
        if latencies.is_empty() {
            return;
        }
        self.put(&format!("{prefix}avg_ms"), latencies.mean() / 1e3);
        self.put(&format!("{prefix}max_ms"), latencies.max() as f64 / 1e3);
        for (name, share) in
            [("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99), ("p999_ms", 0.999)]
        {
            self.put(&format!("{prefix}{name}"), latencies.value_at_quantile(share) as f64 / 1e3);
        }
    }

    /// Keeps a histogram whole.
    pub fn keep(&mut self, name: &str, latencies: &Histogram<u64>) {
        let mut bytes = Vec::new();
        // A histogram that cannot be written is left out of the report's files; its percentiles are in the metrics.
        if !latencies.is_empty() && V2Serializer::new().serialize(latencies, &mut bytes).is_ok() {
            self.histograms.insert(name.to_owned(), STANDARD.encode(bytes));
        }
    }

    /// Takes over what the delivery check says.
    pub fn judge(&mut self, verdict: &perf::stamp::Verdict) {
        self.verdict = Verdict {
            checked: true,
            sent: verdict.sent,
            acknowledged: verdict.acknowledged,
            found: verdict.found,
            lost: verdict.lost,
            duplicated: verdict.duplicated,
            reordered: verdict.reordered,
            damaged: verdict.damaged,
        };
    }
}
