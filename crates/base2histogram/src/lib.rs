//! Stands in for the crate of this name. openraft counts the sizes of replicated batches in it; the
//! original computes 25 MiB of tables for all its resolutions at the first use, more memory than
//! all else that an idle broker has, and milliseconds of its start. This one has a bucket for each
//! power of two. See docs/decisions/0008.
//!
//! Only what openraft uses without its feature `runtime-stats` is here: with the feature it would
//! not compile, which is as it should be.

use std::fmt;
use std::marker::PhantomData;

/// Bucket 0 counts zeros, bucket `n` the values of `n` bits.
const BUCKETS: usize = u64::BITS as usize + 1;

/// How often values of each magnitude were recorded. `T` names slots in the original; there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram<T = ()> {
    counts: [u64; BUCKETS],
    slot: PhantomData<T>,
}

impl<T> Default for Histogram<T> {
    fn default() -> Histogram<T> {
        Histogram::new()
    }
}

impl<T> Histogram<T> {
    /// Nothing recorded.
    pub fn new() -> Histogram<T> {
        Histogram { counts: [0; BUCKETS], slot: PhantomData }
    }

    /// Counts a value.
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts a value `count` times.
    pub fn record_n(&mut self, value: u64, count: u64) {
        let bits = (u64::BITS - value.leading_zeros()) as usize;
        self.counts[bits] = self.counts[bits].saturating_add(count);
    }

    /// How many values were recorded.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The largest value of the bucket in which this share of all values, 0 to 1, is reached; 0 if
    /// nothing was recorded.
    pub fn percentile(&self, share: f64) -> u64 {
        let wanted = (self.total() as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bits, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= wanted {
                return u64::MAX.checked_shr(u64::BITS - bits as u32).unwrap_or(0);
            }
        }
        0
    }
}

/// Usual percentiles of a histogram, each the largest value of its bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub struct PercentileStats {
    pub samples: u64,
    pub p0_1: u64,
    pub p1: u64,
    pub p5: u64,
    pub p10: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PercentileStats { samples, p50, p99, p99_9, .. } = self;
        write!(f, "{samples} values, half up to {p50}, 99 % up to {p99}, 99.9 % up to {p99_9}")
    }
}

impl<T> Histogram<T> {
    /// The usual percentiles.
    pub fn percentile_stats(&self) -> PercentileStats {
        PercentileStats {
            samples: self.total(),
            p0_1: self.percentile(0.001),
            p1: self.percentile(0.01),
            p5: self.percentile(0.05),
            p10: self.percentile(0.1),
            p50: self.percentile(0.5),
            p90: self.percentile(0.9),
            p99: self.percentile(0.99),
            p99_9: self.percentile(0.999),
        }
    }
}

/// Several histograms, each on a line of its own.
#[derive(Debug, Clone)]
pub struct AsciiChart<T = ()> {
    lines: Vec<(String, Histogram<T>)>,
}

impl<T> Default for AsciiChart<T> {
    fn default() -> AsciiChart<T> {
        AsciiChart::new()
    }
}

impl<T> AsciiChart<T> {
    /// Nothing to show.
    pub fn new() -> AsciiChart<T> {
        AsciiChart { lines: Vec::new() }
    }

    /// Adds a line.
    #[must_use]
    #[allow(clippy::should_implement_trait)] // The original's name.
    pub fn add(mut self, name: &str, histogram: Histogram<T>) -> AsciiChart<T> {
        self.lines.push((name.to_owned(), histogram));
        self
    }
}

impl<T> fmt::Display for AsciiChart<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|(name, histogram)| {
            writeln!(f, "{name}: {}", histogram.percentile_stats())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_powers_of_two() {
        let mut histogram = Histogram::<()>::new();
        assert_eq!(histogram.percentile(0.5), 0);
        [0, 1, 2, 3, 100, u64::MAX].into_iter().for_each(|value| histogram.record(value));
        assert_eq!(histogram.total(), 6);
        assert_eq!(histogram.percentile(0.0), 0);
        assert_eq!(histogram.percentile(0.5), 3);
        assert_eq!(histogram.percentile(0.8), 127);
        assert_eq!(histogram.percentile(1.0), u64::MAX);
    }
}
