//! How much more one thing gives than another: ratios as geometric means with intervals, of rounds in pairs and of
//! rounds that belong to different runs.

use crate::bootstrap::{BCA_MINIMUM, bca};
use crate::summary::{mean, mean_interval, t_quantile, variance};
use crate::{Interval, Refused, at_least, positive};

/// A ratio of pairs.
#[derive(Debug, Clone, PartialEq)]
pub struct PairedRatio {
    /// Pairs.
    pub n: usize,
    /// New by base: exp of the mean logarithm.
    pub ratio: f64,
    /// The 95 % interval of it.
    pub interval: Interval,
    /// Whether the interval is of the bootstrap; else by Student's t on the logarithms.
    pub bootstrapped: bool,
    /// The logarithm of each pair's ratio, in the pairs' order.
    pub logs: Vec<f64>,
}

/// Logarithms of `new[i] / base[i]`.
///
/// # Errors
/// If the lists' lengths differ, or a value is not above 0.
pub fn log_ratios(base: &[f64], new: &[f64]) -> Result<Vec<f64>, Refused> {
    const METHOD: &str = "a ratio of pairs";
    if base.len() != new.len() {
        return Err(Refused::NotPaired { method: METHOD, left: base.len(), right: new.len() });
    }
    positive(METHOD, base)?;
    positive(METHOD, new)?;
    Ok(base.iter().zip(new).map(|(base, new)| (new / base).ln()).collect())
}

/// The ratio of paired rounds, as by Kalibera and Jones 2013 ("Rigorous benchmarking in reasonable time"), with
/// logarithms so that twice and half weigh the same: exp(mean(ln(new/base))), with its 95 % interval by
/// Student's t on the logarithms, or by BCa bootstrap for 10 pairs and more.
///
/// # Errors
/// For fewer than two pairs, lists of different lengths, or a value that is not above 0.
pub fn paired_ratio(base: &[f64], new: &[f64], seed: u64) -> Result<PairedRatio, Refused> {
    let logs = log_ratios(base, new)?;
    at_least("a ratio of pairs", "pairs", logs.len(), 2)?;
    let centre = mean(&logs).expect("there are two pairs");
    let drawn = if logs.len() >= BCA_MINIMUM {
        bca(&logs, |logs| mean(logs).unwrap_or(0.0), 0.95, seed).ok()
    } else {
        None
    };
    let interval = match drawn {
        Some(interval) => interval,
        None => mean_interval(&logs, 0.95)?,
    };
    Ok(PairedRatio {
        n: logs.len(),
        ratio: centre.exp(),
        interval: interval.map(f64::exp),
        bootstrapped: drawn.is_some(),
        logs,
    })
}

/// The logarithm of a ratio of two lists that are not paired.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LogDifference {
    /// Mean logarithm of the new values less that of the base values.
    pub mean: f64,
    /// Its standard error.
    pub error: f64,
    /// Its degrees of freedom (Welch and Satterthwaite), above 0; 0 if a list has a single value, and the error is
    /// then not known.
    pub freedom: f64,
}

impl LogDifference {
    /// The ratio.
    pub fn ratio(&self) -> f64 {
        self.mean.exp()
    }

    /// The ratio's interval at a level such as 0.95; none if the error is not known.
    pub fn interval(&self, level: f64) -> Option<Interval> {
        (self.freedom > 0.0).then(|| {
            let reach = t_quantile(self.freedom, level) * self.error;
            Interval { low: (self.mean - reach).exp(), high: (self.mean + reach).exp() }
        })
    }
}

/// The ratio of two lists that are not paired, `new` by `base`, by Welch's method (1947) on the logarithms.
///
/// # Errors
/// If a list is empty, or a value is not above 0.
pub fn unpaired_ratio(base: &[f64], new: &[f64]) -> Result<LogDifference, Refused> {
    const METHOD: &str = "a ratio of two runs";
    at_least(METHOD, "values of each", base.len().min(new.len()), 1)?;
    positive(METHOD, base)?;
    positive(METHOD, new)?;
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
    let (base, new) = (logs(base), logs(new));
    let centre = mean(&new).expect("not empty") - mean(&base).expect("not empty");
    let parts = [&base, &new].map(|list| {
        variance(list).map(|variance| (variance / list.len() as f64, (list.len() - 1) as f64))
    });
    let [Some(base), Some(new)] = parts else {
        return Ok(LogDifference { mean: centre, error: 0.0, freedom: 0.0 });
    };
    Ok(LogDifference {
        mean: centre,
        error: (base.0 + new.0).sqrt(),
        freedom: satterthwaite(&[base, new]),
    })
}

/// The mean of several differences, each weighing the same: what changed over all cells. Differences without an
/// error make the mean's unknown as well. None of none.
pub fn pooled(differences: &[LogDifference]) -> Option<LogDifference> {
    let count = differences.len() as f64;
    let centre = mean(&differences.iter().map(|one| one.mean).collect::<Vec<_>>())?;
    if differences.iter().any(|one| one.freedom <= 0.0) {
        return Some(LogDifference { mean: centre, error: 0.0, freedom: 0.0 });
    }
    let parts: Vec<(f64, f64)> =
        differences.iter().map(|one| (one.error.powi(2) / count.powi(2), one.freedom)).collect();
    let error = parts.iter().map(|part| part.0).sum::<f64>().sqrt();
    Some(LogDifference { mean: centre, error, freedom: satterthwaite(&parts) })
}

/// Degrees of freedom of a sum of variances (Satterthwaite 1946): each with its own. Variances that are all zero
/// have the sum of theirs.
fn satterthwaite(parts: &[(f64, f64)]) -> f64 {
    let sum: f64 = parts.iter().map(|part| part.0).sum();
    let below: f64 = parts.iter().map(|(variance, freedom)| variance.powi(2) / freedom).sum();
    if below > 0.0 { sum.powi(2) / below } else { parts.iter().map(|part| part.1).sum() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::normal;

    fn near(a: f64, b: f64, by: f64) {
        assert!((a - b).abs() <= by, "{a} is not {b}");
    }

    #[test]
    fn twice_and_half_are_no_change() {
        let ratio = paired_ratio(&[1.0, 4.0], &[2.0, 2.0], 1).expect("two pairs");
        near(ratio.ratio, 1.0, 1e-12);
    }

    #[test]
    fn pairs_cancel_what_both_share() {
        // The machine drifts by a factor of three; the ratio of each pair is 1.1 give or take 1 %.
        let base = [100.0, 150.0, 200.0, 250.0, 300.0];
        let noise = [1.10, 1.11, 1.09, 1.105, 1.095];
        let new: Vec<f64> = base.iter().zip(noise).map(|(base, noise)| base * noise).collect();
        let ratio = paired_ratio(&base, &new, 1).expect("five pairs");
        // scipy.stats.t.interval on the logarithms, SciPy 1.17.
        near(ratio.ratio, 1.099_977_27, 1e-7);
        near(ratio.interval.low, 1.090_204_66, 1e-6);
        near(ratio.interval.high, 1.109_837_48, 1e-6);
        assert!(!ratio.bootstrapped);
    }

    #[test]
    fn ten_pairs_are_bootstrapped_and_swapping_them_inverts() {
        let mut rng = fastrand::Rng::with_seed(5);
        let base: Vec<f64> = (0..12).map(|_| (0.1 * normal(&mut rng)).exp()).collect();
        let new: Vec<f64> = (0..12).map(|_| 1.3 * (0.1 * normal(&mut rng)).exp()).collect();
        let there = paired_ratio(&base, &new, 9).expect("pairs");
        let back = paired_ratio(&new, &base, 9).expect("pairs");
        assert!(there.bootstrapped);
        near(there.ratio * back.ratio, 1.0, 1e-12);
        near(there.interval.low * back.interval.high, 1.0, 0.02);
    }

    #[test]
    fn equal_pairs_have_an_interval_without_width() {
        let ratio = paired_ratio(&[2.0; 10], &[3.0; 10], 1).expect("pairs");
        near(ratio.interval.low, 1.5, 1e-12);
        near(ratio.interval.high, 1.5, 1e-12);
    }

    #[test]
    fn refuses_what_has_no_ratio() {
        assert!(matches!(paired_ratio(&[1.0], &[1.0, 2.0], 1), Err(Refused::NotPaired { .. })));
        assert!(matches!(
            paired_ratio(&[1.0, 0.0], &[1.0, 2.0], 1),
            Err(Refused::NotPositive { .. })
        ));
        assert!(matches!(paired_ratio(&[1.0], &[2.0], 1), Err(Refused::TooFew { .. })));
        assert!(matches!(unpaired_ratio(&[], &[2.0]), Err(Refused::TooFew { .. })));
    }

    #[test]
    fn welch_equals_scipy() {
        // scipy.stats.ttest_ind(log(new), log(base), equal_var=False).confidence_interval(0.95), SciPy 1.17.
        let base = [100.0, 104.0, 98.0, 101.0, 97.0];
        let new = [90.0, 93.0, 85.0, 96.0, 88.0, 91.0];
        let difference = unpaired_ratio(&base, &new).expect("values");
        let interval = difference.interval(0.95).expect("more than one value each");
        near(difference.freedom, 8.557_013_11, 1e-5);
        near(interval.low, 0.861_947_21, 1e-6);
        near(interval.high, 0.949_346_78, 1e-6);
    }

    #[test]
    fn one_value_gives_a_ratio_without_interval() {
        let difference = unpaired_ratio(&[2.0], &[3.0, 3.0]).expect("values");
        near(difference.ratio(), 1.5, 1e-12);
        assert_eq!(difference.interval(0.95), None);
        assert_eq!(pooled(&[difference]).and_then(|pooled| pooled.interval(0.95)), None);
    }

    #[test]
    fn pooling_like_differences_narrows_the_interval() {
        let one = LogDifference { mean: 0.1, error: 0.04, freedom: 8.0 };
        let pooled = pooled(&[one; 4]).expect("four");
        near(pooled.mean, 0.1, 1e-12);
        near(pooled.error, 0.02, 1e-12);
        near(pooled.freedom, 32.0, 1e-9);
    }
}
