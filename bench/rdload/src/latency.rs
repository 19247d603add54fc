//! Latencies, counted in microseconds with three digits, and how they are printed.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

/// Longer ones count as this: ten minutes.
const LONGEST_US: u64 = 600_000_000;

/// A histogram of latencies.
pub struct Latency(Histogram<u64>);

impl Latency {
    /// Nothing counted yet.
    pub fn new() -> Latency {
        let histogram = Histogram::new_with_max(LONGEST_US, 3);
        Latency(histogram.expect("the range and three digits are allowed"))
    }

    /// Counts one.
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1));
    }

    /// Percentiles in milliseconds, into the line that is printed, their names behind `prefix`.
    pub fn write(&self, prefix: &str, line: &mut Map<String, Value>) {
        let quantiles = [("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99), ("p999_ms", 0.999)];
        for (name, quantile) in quantiles {
            let us = self.0.value_at_quantile(quantile);
            line.insert(format!("{prefix}{name}"), json!(us as f64 / 1000.0));
        }
        line.insert(format!("{prefix}max_ms"), json!(self.0.max() as f64 / 1000.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_latencies_are_not_cut_short() {
        let mut latency = Latency::new();
        (0..99).for_each(|_| latency.record(Duration::from_millis(1)));
        latency.record(Duration::from_secs(5));
        let mut line = Map::new();
        latency.write("", &mut line);
        assert!((line["p50_ms"].as_f64().unwrap() - 1.0).abs() < 0.01);
        assert!((line["max_ms"].as_f64().unwrap() - 5000.0).abs() < 10.0);
    }
}
