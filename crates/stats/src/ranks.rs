//! Tests that look only at the order of values: nothing is assumed about their distribution.

use crate::{Refused, at_least, finite};
use statrs::distribution::{ContinuousCDF, Normal};

/// Differences below which Wilcoxon's test refuses: with five it could not say less than 0.0625.
pub const WILCOXON_MINIMUM: usize = 6;

/// Values up to which chances are counted exactly; above, the normal approximation is good to three digits.
const EXACT_UP_TO: usize = 60;

/// Wilcoxon's signed-rank test (1945), two-sided: the chance that differences whose signs are a matter of luck are
/// as one-sided as these. Zeros are left out, as he did; equal distances share their mean rank. Exact, also with
/// equal distances, for up to 60 differences; above that the normal approximation with corrections.
///
/// # Errors
/// If fewer than [`WILCOXON_MINIMUM`] differences are not zero, or one is not finite.
pub fn wilcoxon_signed_rank(differences: &[f64]) -> Result<f64, Refused> {
    const METHOD: &str = "Wilcoxon's test";
    finite(METHOD, differences)?;
    let differences: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    at_least(METHOD, "differences other than zero", differences.len(), WILCOXON_MINIMUM)?;
    let distances: Vec<f64> = differences.iter().map(|d| d.abs()).collect();
    let ranks = doubled_ranks(&distances);
    let positive: usize =
        ranks.iter().zip(&differences).filter(|(_, d)| **d > 0.0).map(|(rank, _)| rank).sum();
    if ranks.len() <= EXACT_UP_TO {
        return Ok(two_sided(&sums_of_any(&ranks), positive));
    }
    // Each rank is counted or not with even chances: mean half the sum, variance a quarter of the squares'.
    let total: f64 = ranks.iter().map(|rank| *rank as f64).sum();
    let squares: f64 = ranks.iter().map(|rank| (*rank as f64).powi(2)).sum();
    Ok(normal_p(positive as f64 - total / 2.0, squares / 4.0))
}

/// The test of Mann and Whitney (1947), two-sided: the chance that two lists from one source are as far apart in
/// order as these. Equal values share their mean rank. Exact, also with equal values, for up to 60 values in all;
/// above that the normal approximation with corrections.
///
/// # Errors
/// If not even the clearest outcome could be below 0.05 (three and three: 0.1; four and four: 0.029), or a value
/// is not finite.
pub fn mann_whitney(left: &[f64], right: &[f64]) -> Result<f64, Refused> {
    const METHOD: &str = "Mann and Whitney's test";
    finite(METHOD, left)?;
    finite(METHOD, right)?;
    let (few, all) = (left.len().min(right.len()), left.len() + right.len());
    let arrangements = (0..few).fold(1.0, |product, i| product * (all - i) as f64 / (i + 1) as f64);
    if 2.0 / arrangements >= 0.05 {
        return Err(Refused::TooFew {
            method: METHOD,
            of: "values of each",
            needed: 4,
            given: few,
        });
    }
    let values: Vec<f64> = left.iter().chain(right).copied().collect();
    let ranks = doubled_ranks(&values);
    let sum: usize = ranks[..left.len()].iter().sum();
    if all <= EXACT_UP_TO {
        return Ok(two_sided(&sums_of(left.len(), &ranks), sum));
    }
    // A draw without replacement of `left` ranks out of all.
    let (n, m) = (left.len() as f64, right.len() as f64);
    let mean = ranks.iter().sum::<usize>() as f64 / all as f64;
    let variance = ranks.iter().map(|rank| (*rank as f64 - mean).powi(2)).sum::<f64>() / all as f64;
    Ok(normal_p(sum as f64 - n * mean, n * m / (n + m - 1.0) * variance))
}

/// Twice the rank of each value, from 2; equal values share the mean of theirs, which doubled is whole.
fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    values
        .iter()
        .map(|value| {
            let below = values.iter().filter(|other| *other < value).count();
            let equal = values.iter().filter(|other| *other == value).count();
            2 * below + equal + 1
        })
        .collect()
}

/// In how many ways each sum comes from any of the ranks.
fn sums_of_any(ranks: &[usize]) -> Vec<f64> {
    let mut ways = vec![0.0; ranks.iter().sum::<usize>() + 1];
    ways[0] = 1.0;
    for rank in ranks {
        for sum in (*rank..ways.len()).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    ways
}

/// In how many ways each sum comes from exactly `count` of the ranks.
fn sums_of(count: usize, ranks: &[usize]) -> Vec<f64> {
    let length = ranks.iter().sum::<usize>() + 1;
    let mut ways = vec![vec![0.0; length]; count + 1];
    ways[0][0] = 1.0;
    for rank in ranks {
        for taken in (1..=count).rev() {
            for sum in *rank..length {
                let more = ways[taken - 1][sum - rank];
                ways[taken][sum] += more;
            }
        }
    }
    ways.swap_remove(count)
}

fn two_sided(ways: &[f64], observed: usize) -> f64 {
    let all: f64 = ways.iter().sum();
    let low: f64 = ways[..=observed].iter().sum();
    let high: f64 = ways[observed..].iter().sum();
    (2.0 * low.min(high) / all).min(1.0)
}

/// Two-sided p of a whole-numbered (doubled, hence 1) distance from the mean with continuity correction.
fn normal_p(distance: f64, variance: f64) -> f64 {
    if variance <= 0.0 {
        return 1.0;
    }
    let z = (distance.abs() - 1.0).max(0.0) / variance.sqrt();
    2.0 * Normal::standard().cdf(-z)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::normal;

    fn near(a: f64, b: f64, by: f64) {
        assert!((a - b).abs() <= by, "{a} is not {b}");
    }

    #[test]
    fn six_of_one_sign_are_one_chance_in_32() {
        near(wilcoxon_signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("six"), 0.031_25, 1e-12);
    }

    #[test]
    fn five_differences_are_refused_also_beside_zeros() {
        assert!(wilcoxon_signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0]).is_err());
        assert!(wilcoxon_signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0, 0.0]).is_err());
    }

    #[test]
    fn wilcoxon_of_darwins_maize_equals_scipy() {
        // Darwin's 15 pairs of maize plants, eighths of an inch, as in R. A. Fisher's "Design of Experiments";
        // scipy.stats.wilcoxon(d, method='exact'), SciPy 1.17.
        let maize = [
            49.0, -67.0, 8.0, 16.0, 6.0, 23.0, 28.0, 41.0, 14.0, 29.0, 56.0, 24.0, 75.0, 60.0,
            -48.0,
        ];
        near(wilcoxon_signed_rank(&maize).expect("15"), 0.041_259_765_625, 1e-9);
    }

    #[test]
    fn wilcoxon_with_equal_distances_equals_scipys_permutations() {
        // scipy.stats.wilcoxon(d, method=PermutationMethod(n_resamples=inf)), SciPy 1.17: all 256 signs.
        let d = [1.0, 1.0, 2.0, 2.0, -1.0, 3.0, 4.0, -2.0];
        near(wilcoxon_signed_rank(&d).expect("eight"), 0.164_062_5, 1e-12);
    }

    #[test]
    fn mann_whitney_equals_scipy() {
        // scipy.stats.mannwhitneyu(x, y, method='exact'), SciPy 1.17.
        let x = [1.1, 2.3, 2.9, 4.4, 5.0];
        let y = [3.1, 4.9, 5.6, 6.1, 7.2, 8.8];
        near(mann_whitney(&x, &y).expect("enough"), 2.0 / 66.0, 1e-9);
    }

    #[test]
    fn mann_whitney_refuses_three_and_three() {
        assert!(mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]).is_err());
        let p = mann_whitney(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0]).expect("four and four");
        near(p, 2.0 / 70.0, 1e-12);
    }

    #[test]
    fn equal_values_are_no_evidence() {
        near(mann_whitney(&[1.0; 5], &[1.0; 5]).expect("enough"), 1.0, 1e-12);
    }

    #[test]
    fn approximation_meets_the_exact_test_where_they_join() {
        let mut rng = fastrand::Rng::with_seed(2);
        let sample: Vec<f64> = (0..EXACT_UP_TO).map(|_| normal(&mut rng) + 0.2).collect();
        let ranks = doubled_ranks(&sample.iter().map(|d| d.abs()).collect::<Vec<_>>());
        let positive: usize =
            ranks.iter().zip(&sample).filter(|(_, d)| **d > 0.0).map(|(rank, _)| rank).sum();
        let total: f64 = ranks.iter().sum::<usize>() as f64;
        let squares: f64 = ranks.iter().map(|rank| (*rank as f64).powi(2)).sum();
        let exact = wilcoxon_signed_rank(&sample).expect("60");
        near(normal_p(positive as f64 - total / 2.0, squares / 4.0), exact, 2e-3);
    }

    #[test]
    fn luck_is_called_an_effect_no_more_often_than_said() {
        let mut rng = fastrand::Rng::with_seed(3);
        let called = (0..3000)
            .filter(|_| {
                let d: Vec<f64> = (0..8).map(|_| normal(&mut rng)).collect();
                wilcoxon_signed_rank(&d).expect("eight") < 0.05
            })
            .count();
        assert!(called as f64 / 3000.0 < 0.055, "{called} of 3000");
    }
}
