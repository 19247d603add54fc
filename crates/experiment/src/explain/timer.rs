//! Something that waits for a tick: runtimes that are multiples of one time, and do not follow the work.

use super::words::number;
use super::{Cause, Explanation, Point};
use stats::patterns::{Quantum, quantum};

/// The chance above which multiples are put down to chance.
const CHANCE: f64 = 0.05;
/// More work, in times, that must take the same number of ticks: else time simply follows the work.
const WORK: f64 = 2.0;
/// The seed of the search's random part: a text is always the same for the same numbers.
const SEED: u64 = 1;

/// Runtimes that cluster at multiples of a tick.
pub(super) fn quantised(points: &[Point]) -> Option<Explanation> {
    let timed: Vec<(&Point, f64)> = points
        .iter()
        .filter(|point| !runs_for_a_time(point))
        .filter_map(|point| Some((point, point.metric("runtime_ms")?)))
        .filter(|(_, runtime_ms)| *runtime_ms > 0.0)
        .collect();
    let runtimes: Vec<f64> = timed.iter().map(|(_, runtime_ms)| *runtime_ms).collect();
    let found = quantum(&runtimes, SEED).ok().filter(|found| found.p < CHANCE)?;
    let (less, more) = same_time_more_work(&timed, &found)?;
    let mut steps = found.multiples.clone();
    steps.sort_unstable();
    steps.dedup();
    let steps: Vec<String> = steps.iter().map(u64::to_string).collect();
    let sentence = format!(
        "Runtimes cluster at {} times {} ms (by chance {} times of 1,000), and {} records take as many of these \
         steps as {}: something waits for a tick, and the runtimes show that and not the work.",
        steps.join(", "),
        number(found.step),
        (1000.0 * found.p).round(),
        number(more),
        number(less),
    );
    let all: Vec<&Point> = timed.iter().map(|(point, _)| *point).collect();
    let numbers = [("step_ms", found.step), ("p", found.p)];
    Some(Explanation::new(Cause::QuantisedTimer, &all, sentence, &numbers))
}

/// Whether it was stopped by the clock and not by its work: then its runtime is what was asked for.
fn runs_for_a_time(point: &Point) -> bool {
    point.workload.seconds > 0.0 && point.workload.records == 0
}

/// Two amounts of records, one at least [`WORK`] times the other, that take the same number of steps.
fn same_time_more_work(timed: &[(&Point, f64)], found: &Quantum) -> Option<(f64, f64)> {
    let records = |point: &Point| point.metric("records").unwrap_or(point.workload.records as f64);
    let work: Vec<(f64, u64)> = timed
        .iter()
        .map(|(point, _)| records(point))
        .zip(found.multiples.iter().copied())
        .filter(|(records, _)| *records > 0.0)
        .collect();
    let pairs = work.iter().flat_map(|less| work.iter().map(move |more| (less, more)));
    pairs
        .filter(|(less, more)| less.1 == more.1 && more.0 >= WORK * less.0)
        .map(|(less, more)| (less.0, more.0))
        .next()
}
