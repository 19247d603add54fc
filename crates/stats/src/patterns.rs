//! Patterns that betray what limited a measurement: rates that are a link's round number, times that are multiples
//! of a tick.

use crate::{Refused, at_least, positive};
use std::f64::consts::TAU;

/// How far a rate may be from a round number to be taken for it: a share.
pub const ROUND_WITHIN: f64 = 0.02;

/// The round number of bits per second that a rate in bits per second is within [`ROUND_WITHIN`] of: 1, 2, 2.5 or 5
/// times a power of ten, as links and their limits are sold. By chance alone that is so for 7 rates of 100, so look
/// for a second sign. None for what is not above 0.
pub fn round_rate(bits_per_s: f64) -> Option<f64> {
    if !bits_per_s.is_finite() || bits_per_s <= 0.0 {
        return None;
    }
    let power = bits_per_s.log10().floor() as i32;
    (power - 1..=power + 1)
        .flat_map(|power| [1.0, 2.0, 2.5, 5.0].map(|digit| digit * 10_f64.powi(power)))
        .find(|round| (bits_per_s / round - 1.0).abs() <= ROUND_WITHIN)
}

/// Whether values stay within a share of one another: largest by smallest, less 1. None for no values or one that
/// is not above 0.
pub fn variation(values: &[f64]) -> Option<f64> {
    positive("variation", values).ok()?;
    let max = values.iter().copied().reduce(f64::max)?;
    let min = values.iter().copied().reduce(f64::min)?;
    Some(max / min - 1.0)
}

/// A step that values are multiples of.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantum {
    /// The step, in the values' unit.
    pub step: f64,
    /// Each value in whole steps.
    pub multiples: Vec<u64>,
    /// The chance that values spread smoothly show a step this clearly, 0.001 to 1.
    pub p: f64,
}

/// Values below which [`quantum`] refuses.
pub const QUANTUM_MINIMUM: usize = 6;
/// Smooth values that are drawn to see how clear a step chance shows.
const DRAWS: usize = 999;
/// The most steps in the smallest value: a finer step would need more exact times than rounds give.
const FINEST: f64 = 4.0;
/// Steps that are tried.
const TRIED: usize = 240;

/// The step whose multiples values cluster at, by Kendall's cosine quantogram (1974, "Hunting quanta"): the step q
/// for which √(2/n)·Σcos(2πx/q) is largest, from a quarter of the smallest value to one and a half times it. Its
/// `p` is how often values jittered by up to e^±½ show a clearer one. Give one value a cell, not its rounds: values
/// that are equal for another reason count as evidence. Values that grow by equal amounts for another reason (work
/// that does) are multiples of something as well: the caller must rule that out.
///
/// # Errors
/// For fewer than [`QUANTUM_MINIMUM`] values, one not above 0, or values so alike that all are the same multiple.
pub fn quantum(values: &[f64], seed: u64) -> Result<Quantum, Refused> {
    const METHOD: &str = "a search for a step";
    at_least(METHOD, "values", values.len(), QUANTUM_MINIMUM)?;
    positive(METHOD, values)?;
    let (step, clearness) = clearest(values);
    let multiples: Vec<u64> = values.iter().map(|value| (value / step).round() as u64).collect();
    if multiples.iter().all(|multiple| *multiple == multiples[0]) {
        return Err(Refused::NoSpread { method: METHOD });
    }
    let mut rng = fastrand::Rng::with_seed(seed);
    let as_clear = (0..DRAWS)
        .filter(|_| {
            let smooth: Vec<f64> =
                values.iter().map(|value| value * (rng.f64() - 0.5).exp()).collect();
            clearest(&smooth).1 >= clearness
        })
        .count();
    Ok(Quantum { step, multiples, p: (as_clear + 1) as f64 / (DRAWS + 1) as f64 })
}

/// The step with the largest quantogram, and that.
fn clearest(values: &[f64]) -> (f64, f64) {
    let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let scale = (2.0 / values.len() as f64).sqrt();
    (0..TRIED)
        .map(|i| {
            // Equal distances in steps per smallest value: a quantogram is a function of frequency.
            let steps = 2.0 / 3.0 + (FINEST - 2.0 / 3.0) * i as f64 / (TRIED - 1) as f64;
            let step = smallest / steps;
            (step, scale * values.iter().map(|value| (TAU * value / step).cos()).sum::<f64>())
        })
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .expect("steps are tried")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_links_are_round() {
        // The ALI report's fastest consumer: 0.1207 MiB/s on a line of 1 Mbit/s.
        assert_eq!(round_rate(0.1207 * 1_048_576.0 * 8.0), Some(1e6));
        assert_eq!(round_rate(9.81e8), Some(1e9));
        assert_eq!(round_rate(2.52e6), Some(2.5e6));
        assert_eq!(round_rate(9.7e5), None);
        assert_eq!(round_rate(3e6), None);
        assert_eq!(round_rate(0.0), None);
        assert_eq!(round_rate(f64::NAN), None);
    }

    #[test]
    fn chance_is_round_in_seven_of_a_hundred() {
        let mut rng = fastrand::Rng::with_seed(8);
        let round =
            (0..10_000).filter(|_| round_rate(10_f64.powf(9.0 * rng.f64())).is_some()).count();
        assert!((600..=800).contains(&round), "{round} of 10000");
    }

    #[test]
    fn published_consumer_runtimes_are_multiples_of_eight_seconds() {
        // The CS6 report's first table, pull and push, milliseconds.
        let runtimes = [
            16186.0, 16378.0, 31139.0, 58343.0, 70992.0, 16102.0, 16401.0, 32192.0, 57342.0,
            72122.0,
        ];
        let found = quantum(&runtimes, 1).expect("ten runtimes");
        assert!((7_700.0..8_300.0).contains(&found.step), "{found:?}");
        assert_eq!(found.multiples, [2, 2, 4, 7, 9, 2, 2, 4, 7, 9]);
        assert!(found.p < 0.05, "{found:?}");
    }

    #[test]
    fn a_clean_tick_is_found_and_smooth_times_rarely_show_one() {
        let ticks = [100.0, 201.0, 199.0, 300.5, 502.0, 699.0];
        let found = quantum(&ticks, 1).expect("six values");
        assert!((found.step - 100.0).abs() < 2.0 && found.p < 0.05, "{found:?}");
        let mut rng = fastrand::Rng::with_seed(12);
        let called = (0..40)
            .filter(|seed| {
                let smooth: Vec<f64> = (0..8).map(|_| 100.0 * (2.0 * rng.f64()).exp()).collect();
                quantum(&smooth, *seed).is_ok_and(|found| found.p < 0.05)
            })
            .count();
        assert!(called <= 6, "{called} of 40");
    }

    #[test]
    fn equal_times_are_no_tick() {
        assert!(matches!(
            quantum(&[31.0, 31.1, 31.05, 31.2, 30.9, 31.0], 1),
            Err(Refused::NoSpread { .. })
        ));
        assert!(matches!(quantum(&[1.0; 5], 1), Err(Refused::TooFew { .. })));
    }

    #[test]
    fn variation_is_largest_by_smallest() {
        assert_eq!(variation(&[2.0, 3.0]), Some(0.5));
        assert_eq!(variation(&[2.0, 0.0]), None);
        assert_eq!(variation(&[]), None);
    }
}
