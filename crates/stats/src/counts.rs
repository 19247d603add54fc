//! Counts in buckets, such as records in partitions: how uneven they are, and whether chance does that.

use crate::{Refused, at_least};
use statrs::distribution::{ChiSquared, ContinuousCDF};

/// Expected count of a bucket below which [`even_p`] refuses (Cochran 1954).
pub const EXPECTED_MINIMUM: u64 = 5;

/// How uneven counts are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Skew {
    /// The fullest bucket by the mean, from 1 to the number of buckets.
    pub max_over_mean: f64,
    /// Standard deviation (of these buckets: n below) by the mean, from 0.
    pub coefficient_of_variation: f64,
    /// Buckets with nothing.
    pub empty: usize,
}

/// How uneven counts are.
///
/// # Errors
/// If there is no bucket or nothing in any.
pub fn skew(counts: &[u64]) -> Result<Skew, Refused> {
    const METHOD: &str = "skew";
    at_least(METHOD, "buckets", counts.len(), 1)?;
    at_least(METHOD, "things in buckets", counts.iter().sum::<u64>() as usize, 1)?;
    let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let squares: f64 = counts.iter().map(|count| (*count as f64 - mean).powi(2)).sum();
    Ok(Skew {
        max_over_mean: counts.iter().copied().max().unwrap_or(0) as f64 / mean,
        coefficient_of_variation: (squares / counts.len() as f64).sqrt() / mean,
        empty: counts.iter().filter(|count| **count == 0).count(),
    })
}

/// The chance that things thrown into buckets at random, each bucket alike, lie at least as unevenly: Pearson's χ²
/// test (1900). Near 1 means more even than chance, as round-robin is.
///
/// # Errors
/// For fewer than two buckets, or so few things that a bucket expects fewer than [`EXPECTED_MINIMUM`].
pub fn even_p(counts: &[u64]) -> Result<f64, Refused> {
    const METHOD: &str = "a test of evenness";
    at_least(METHOD, "buckets", counts.len(), 2)?;
    let total: u64 = counts.iter().sum();
    let needed = EXPECTED_MINIMUM as usize * counts.len();
    at_least(METHOD, "things in buckets", total as usize, needed)?;
    let expected = total as f64 / counts.len() as f64;
    let statistic: f64 =
        counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum();
    let distribution = ChiSquared::new((counts.len() - 1) as f64).expect("there are two buckets");
    Ok(distribution.sf(statistic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uneven_counts_equal_scipy() {
        // scipy.stats.chisquare([30, 14, 34, 45, 57, 20]), SciPy 1.17.
        let p = even_p(&[30, 14, 34, 45, 57, 20]).expect("200 in 6");
        assert!((p / 4.177_325_475e-7 - 1.0).abs() < 1e-6, "{p}");
    }

    #[test]
    fn published_modulo_over_five_partitions() {
        // The CS6 report's figure 6b: five keys of 20,000 records each over five partitions.
        let skew = skew(&[40_000, 0, 0, 20_000, 40_000]).expect("100,000 in 5");
        assert_eq!((skew.max_over_mean, skew.empty), (2.0, 2));
        assert!((skew.coefficient_of_variation - 0.8_f64.sqrt()).abs() < 1e-12);
        assert_eq!(even_p(&[40_000, 0, 0, 20_000, 40_000]), Ok(0.0));
    }

    #[test]
    fn even_counts_are_surely_no_worse_than_chance() {
        assert_eq!(even_p(&[20_000; 5]), Ok(1.0));
        let skew = skew(&[7; 3]).expect("21 in 3");
        assert_eq!((skew.max_over_mean, skew.coefficient_of_variation, skew.empty), (1.0, 0.0, 0));
    }

    #[test]
    fn random_counts_are_called_uneven_as_rarely_as_said() {
        let mut rng = fastrand::Rng::with_seed(6);
        let uneven = (0..1000)
            .filter(|_| {
                let mut counts = [0_u64; 5];
                (0..500).for_each(|_| counts[rng.usize(..5)] += 1);
                even_p(&counts).expect("500 in 5") < 0.05
            })
            .count();
        assert!((25..=75).contains(&uneven), "{uneven} of 1000");
    }

    #[test]
    fn refuses_nothing_and_little() {
        assert!(skew(&[]).is_err());
        assert!(skew(&[0, 0]).is_err());
        assert!(even_p(&[100]).is_err());
        assert!(even_p(&[4, 5]).is_err());
    }
}
