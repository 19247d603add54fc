//! Values that lie far outside the others. They are named, never dropped: what to do is the reader's choice.

use crate::summary::{median, median_absolute_deviation};

/// Distance from the median, in MADs, beyond which a value is an outlier: ten standard deviations of normal values
/// (10 × 1.4826), hyperfine's factor, and not the 3.5 of Iglewicz and Hoaglin (1993), which calls one of many
/// ordinary runs an outlier.
pub const FACTOR: f64 = 14.8;

/// Values below which nothing is called an outlier.
pub const MINIMUM: usize = 4;

/// Where more than half the values are equal the MAD is 0: then this share of the median takes its place, so that
/// one millisecond more in a column of whole milliseconds is no outlier.
const LEAST_SHARE: f64 = 0.02;

/// Each value's signed distance from the median in MADs (Iglewicz and Hoaglin 1993, without their 0.6745). All 0 for
/// fewer than [`MINIMUM`] values or a median and MAD of 0.
pub fn modified_z_scores(values: &[f64]) -> Vec<f64> {
    let (Some(centre), Some(spread)) = (median(values), median_absolute_deviation(values)) else {
        return Vec::new();
    };
    let spread = if spread > 0.0 { spread } else { LEAST_SHARE * centre.abs() };
    if values.len() < MINIMUM || spread <= 0.0 {
        return vec![0.0; values.len()];
    }
    values.iter().map(|value| (value - centre) / spread).collect()
}

/// The places of values further than [`FACTOR`] MADs from the median.
pub fn outliers(values: &[f64]) -> Vec<usize> {
    let scores = modified_z_scores(values);
    (0..values.len()).filter(|place| scores[*place].abs() > FACTOR).collect()
}

/// Which values are bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bad {
    /// Low ones, as of a throughput.
    Low,
    /// High ones, as of a latency.
    High,
}

/// Whether the first value is an outlier on the bad side: something was cold. False for fewer than [`MINIMUM`].
pub fn first_is_slow(values: &[f64], bad: Bad) -> bool {
    match (modified_z_scores(values).first(), bad) {
        (Some(score), Bad::Low) => *score < -FACTOR,
        (Some(score), Bad::High) => *score > FACTOR,
        (None, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::normal;

    #[test]
    fn cold_first_round_is_named() {
        let latencies = [391.0, 5.1, 5.3, 5.2, 4.9];
        assert_eq!(outliers(&latencies), [0]);
        assert!(first_is_slow(&latencies, Bad::High));
        assert!(!first_is_slow(&latencies, Bad::Low));
        let throughputs = [10.0, 99.0, 100.0, 101.0, 100.5];
        assert!(first_is_slow(&throughputs, Bad::Low));
    }

    #[test]
    fn whole_milliseconds_are_no_outliers_but_a_stall_is() {
        assert!(outliers(&[5.0, 5.0, 5.0, 6.0, 5.0]).is_empty());
        assert_eq!(outliers(&[5.0, 5.0, 5.0, 500.0, 5.0]), [3]);
    }

    #[test]
    fn ordinary_values_are_rarely_called_outliers() {
        let mut rng = fastrand::Rng::with_seed(4);
        let lists = (0..2000)
            .filter(|_| {
                let values: Vec<f64> = (0..10).map(|_| 50.0 + normal(&mut rng)).collect();
                !outliers(&values).is_empty()
            })
            .count();
        assert!(lists < 20, "{lists} of 2000");
    }

    #[test]
    fn three_values_or_zeros_say_nothing() {
        assert!(outliers(&[1.0, 1.0, 900.0]).is_empty());
        assert!(outliers(&[0.0, 0.0, 0.0, 0.0, 3.0]).is_empty());
        assert!(outliers(&[]).is_empty());
    }
}
