//! Writes families of metrics in the OpenMetrics text form. One function for each type, so that
//! the lists of metrics read as lists.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::counters::Durations;

/// The labels of one row: names and values.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// Writes one family after the other.
pub struct Families<'a> {
    encoder: DescriptorEncoder<'a>,
}

/// One row of a family: writes a value under some labels.
pub type Row<'a, V> = &'a mut dyn FnMut(Labels<'_>, V) -> fmt::Result;

impl<'a> Families<'a> {
    pub(crate) fn new(encoder: DescriptorEncoder<'a>) -> Families<'a> {
        Families { encoder }
    }

    /// Numbers that only rise. `name` comes without the `_total` that is added to it.
    pub fn counters(
        &mut self,
        name: &str,
        help: &str,
        rows: impl FnOnce(Row<'_, u64>) -> fmt::Result,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        rows(&mut |labels, value| match labels {
            [] => family.encode_counter::<NoLabelSet, _, f64>(&value, None),
            _ => family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None),
        })
    }

    /// Numbers that rise and fall.
    pub fn gauges(
        &mut self,
        name: &str,
        help: &str,
        rows: impl FnOnce(Row<'_, f64>) -> fmt::Result,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        rows(&mut |labels, value| match labels {
            [] => family.encode_gauge(&value),
            _ => family.encode_family(&labels)?.encode_gauge(&value),
        })
    }

    /// One number that rises and falls.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.gauges(name, help, |row| row(&[], value))
    }

    /// One number that only rises.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.counters(name, help, |row| row(&[], value))
    }

    /// One time that only rises, in seconds.
    pub fn counter_seconds(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        family.encode_counter::<NoLabelSet, _, f64>(&value, None)
    }

    /// How often something took how long, in seconds.
    pub fn histograms<'d>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl Iterator<Item = (Labels<'d>, &'d Durations)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, durations) in rows {
            let (buckets, count) = buckets(durations);
            let sum = durations.total_seconds();
            match labels {
                [] => family.encode_histogram::<NoLabelSet>(sum, count, &buckets, None),
                _ => family
                    .encode_family(&labels)?
                    .encode_histogram::<NoLabelSet>(sum, count, &buckets, None),
            }?;
        }
        Ok(())
    }
}

/// The shortest and the longest bound of a bucket that is shown, in seconds. What is below or above
/// falls into the first bucket or into infinity: the set of buckets must never change, or rates of
/// them would be wrong.
const BOUND_S: (f64, f64) = (8e-6, 68.0);

/// The buckets that are shown, infinity last; and how many durations there are.
fn buckets(durations: &Durations) -> (Vec<(f64, u64)>, u64) {
    let mut shown: Vec<(f64, u64)> = Vec::new();
    let (mut below, mut above, mut total) = (0, 0, 0);
    for (bound, count) in durations.buckets() {
        // Counted from what was read, so that the sum is that of the buckets while others go on.
        total += count;
        if bound < BOUND_S.0 {
            below += count;
        } else if bound > BOUND_S.1 {
            above += count;
        } else {
            shown.push((bound, count + std::mem::take(&mut below)));
        }
    }
    shown.push((f64::INFINITY, above));
    (shown, total)
}

/// The duration in seconds below which the part `quantile` (0 to 1) lies, interpolated within its
/// bucket; 0 where nothing was counted.
pub fn quantile(durations: &Durations, quantile: f64) -> f64 {
    let buckets: Vec<(f64, u64)> = durations.buckets().collect();
    let count: u64 = buckets.iter().map(|(_, count)| count).sum();
    let wanted = quantile * count as f64;
    let (mut below, mut lower) = (0.0, 0.0);
    for (upper, count) in buckets {
        let count = count as f64;
        if count > 0.0 && below + count >= wanted {
            return lower + (upper - lower) * (wanted - below) / count;
        }
        below += count;
        lower = upper;
    }
    0.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_buckets_are_always_the_same_and_hold_everything() {
        let durations = Durations::default();
        let bounds = |durations: &Durations| -> Vec<f64> {
            buckets(durations).0.iter().map(|(bound, _)| *bound).collect()
        };
        let empty = bounds(&durations);
        for us in [0, 1, 7, 9, 1_000_000, 3_600_000_000] {
            durations.observe(Duration::from_micros(us));
        }
        assert_eq!(bounds(&durations), empty);
        let (shown, total) = buckets(&durations);
        assert_eq!(shown.iter().map(|(_, count)| count).sum::<u64>(), 6);
        assert_eq!((total, shown[0].1, shown.last().unwrap().1), (6, 3, 1));
    }

    #[test]
    fn a_quantile_lies_in_the_bucket_of_the_value_that_it_names() {
        let durations = Durations::default();
        assert_eq!(quantile(&durations, 0.99), 0.0);
        for _ in 0..98 {
            durations.observe(Duration::from_micros(100));
        }
        for _ in 0..2 {
            durations.observe(Duration::from_millis(50));
        }
        let within = |q, low: f64, high: f64| {
            let value = quantile(&durations, q);
            assert!(low <= value && value <= high, "{q}: {value}");
        };
        within(0.5, 50e-6, 200e-6);
        within(0.95, 50e-6, 200e-6);
        within(0.99, 25e-3, 100e-3);
        within(1.0, 25e-3, 100e-3);
    }
}
