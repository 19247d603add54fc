//! Searches that choose what to run next by what was measured: the highest rate within a latency objective
//! ([`saturate`]), and the settings that serve a goal ([`advise`]). They run nothing: `next` says what to run, `take`
//! hears what came of it, `finish` says what was found. Also when a cell has had rounds enough.

pub mod advise;
mod design;
pub mod saturate;

use crate::analysis::ROUNDS_FOR_INTERVAL;
use stats::summary::mean_interval;

/// Half-width of the 95 % interval, as a share of the value, at which more rounds are not worth their time.
pub const ENOUGH_WITHIN: f64 = 0.03;

/// Whether a cell has had rounds enough: the interval of its values (or of its pairs' ratios), on the logarithms, is
/// within ±[`ENOUGH_WITHIN`], or `max_rounds` have been run. Never below five rounds, unless `max_rounds` is. Values
/// that are not above 0 have no such interval: then only `max_rounds` ends it.
///
/// Stopping at the first narrow interval makes intervals a little too narrow; rounds are few and the bound is
/// loose, so by less than rounds differ anyway.
pub fn enough(values: &[f64], max_rounds: usize) -> bool {
    if values.len() >= max_rounds {
        return true;
    }
    if values.len() < ROUNDS_FOR_INTERVAL || values.iter().any(|value| *value <= 0.0) {
        return false;
    }
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    mean_interval(&logs, 0.95)
        .is_ok_and(|interval| interval.half_width().exp() - 1.0 <= ENOUGH_WITHIN)
}
