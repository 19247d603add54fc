//! Gates: bounds that a change must keep, decided on the bound of the interval and not on the middle.
//!
//! A gate is first decided on the ratio over all cells, by its 95 % interval. It fails besides if any one cell is on
//! the bad side for sure: by an interval so wide that all cells together would show that by luck once in 20
//! comparisons (Bonferroni). So many cells make the whole sharper without hiding a single one that broke.

use super::{Change, Comparison, Decision, Gate, Outcome, Relation};
use crate::analysis::{ROUNDS_FOR_INTERVAL, named};
use crate::round::METRICS;
use stats::ratio::LogDifference;
use std::fmt;

/// Why a text is not a gate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// It is not written like one.
    #[error("{0:?} is not a gate: write METRIC.ratio>=NUMBER or METRIC.ratio<=NUMBER")]
    Form(String),
    /// Its metric does not exist.
    #[error("{0:?} is not a metric; there are {known}", known = metrics())]
    Metric(String),
    /// Its bound is no ratio.
    #[error("{0:?} is not a ratio above 0")]
    Bound(String),
}

fn metrics() -> String {
    METRICS.iter().map(|metric| metric.0).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.relation {
            Relation::AtLeast => ">=",
            Relation::AtMost => "<=",
        };
        write!(f, "{}.ratio{sign}{}", self.metric, self.bound)
    }
}

/// Gates with commas between: `throughput.ratio>=0.97, p99.ratio<=1.10`. A metric's unit may be left out.
///
/// # Errors
/// For a text that is none, a metric that is not one of [`METRICS`], or a bound that is not above 0.
pub fn parse_gates(text: &str) -> Result<Vec<Gate>, GateError> {
    text.split(',').map(str::trim).filter(|gate| !gate.is_empty()).map(parse).collect()
}

fn parse(text: &str) -> Result<Gate, GateError> {
    let form = || GateError::Form(text.to_owned());
    let at_least = text.split_once(">=").map(|parts| (parts, Relation::AtLeast));
    let at_most = || text.split_once("<=").map(|parts| (parts, Relation::AtMost));
    let ((left, right), relation) = at_least.or_else(at_most).ok_or_else(form)?;
    let metric = left.trim().strip_suffix(".ratio").ok_or_else(form)?;
    let metric = full_name(metric).ok_or_else(|| GateError::Metric(metric.to_owned()))?;
    let right = right.trim();
    let bound = right.parse().ok().filter(|bound: &f64| bound.is_finite() && *bound > 0.0);
    let bound = bound.ok_or_else(|| GateError::Bound(right.to_owned()))?;
    Ok(Gate { metric: metric.to_owned(), relation, bound })
}

/// The full name of a metric whose unit may have been left out: `p99` is `p99_ms`.
pub(crate) fn full_name(short: &str) -> Option<&'static str> {
    const UNITS: &[&str] = &["ms", "us", "per_s", "mib", "records", "share"];
    let names = || METRICS.iter().map(|metric| metric.0);
    names().find(|name| *name == short).or_else(|| {
        names().find(|name| {
            let unit = name.strip_prefix(short).and_then(|rest| rest.strip_prefix('_'));
            unit.is_some_and(|unit| UNITS.contains(&unit))
        })
    })
}

/// Decides gates, in their order. A canary that drifted in either run leaves every gate open.
pub fn decide(comparison: &Comparison, gates: &[Gate]) -> Vec<Decision> {
    gates.iter().map(|gate| decide_one(comparison, gate)).collect()
}

/// What all gates together come to: the worst of them; `Inconclusive` if there is none.
pub fn verdict(decisions: &[Decision]) -> Outcome {
    decisions.iter().map(|decision| decision.outcome).max().unwrap_or(Outcome::Inconclusive)
}

fn decide_one(comparison: &Comparison, gate: &Gate) -> Decision {
    let decided = |outcome, because| Decision { gate: gate.to_string(), outcome, because };
    if let Some(doubt) = comparison.doubts.first() {
        return decided(Outcome::Inconclusive, doubt.clone());
    }
    let Some(overall) = comparison.overall.get(&gate.metric) else {
        return decided(Outcome::Inconclusive, format!("no cell has {} in both runs", gate.metric));
    };
    if let Some(because) = broken_cell(comparison, gate) {
        return decided(Outcome::Fail, because);
    }
    let Some(interval) = overall.interval else {
        let because = format!(
            "{} rounds against {}: an interval needs {ROUNDS_FOR_INTERVAL} in each run, of cells with two",
            overall.new_n, overall.base_n
        );
        return decided(Outcome::Inconclusive, because);
    };
    let changes = comparison.cells.iter().filter_map(|cell| cell.changes.get(&gate.metric));
    let single = match changes.filter(|change| !change.has_spread()).count() {
        0 => String::new(),
        1 => "; without a cell of one round".to_owned(),
        cells => format!("; without {cells} cells of one round"),
    };
    let because = format!(
        "ratio {:.4}, 95 % interval {:.4} to {:.4}{single}",
        overall.ratio, interval.low, interval.high
    );
    decided(gate.side(interval.low, interval.high), because)
}

impl Gate {
    /// Where an interval lies.
    fn side(&self, low: f64, high: f64) -> Outcome {
        let (good, bad) = match self.relation {
            Relation::AtLeast => (low >= self.bound, high < self.bound),
            Relation::AtMost => (high <= self.bound, low > self.bound),
        };
        match (good, bad) {
            (true, _) => Outcome::Pass,
            (_, true) => Outcome::Fail,
            _ => Outcome::Inconclusive,
        }
    }
}

/// The first cell that is on the bad side for sure.
fn broken_cell(comparison: &Comparison, gate: &Gate) -> Option<String> {
    let changes: Vec<(&super::ComparedCell, &Change)> = comparison
        .cells
        .iter()
        .filter_map(|cell| Some((cell, cell.changes.get(&gate.metric)?)))
        .collect();
    let level = 1.0 - 0.05 / changes.len().max(1) as f64;
    changes.into_iter().find_map(|(cell, change)| {
        let interval = LogDifference::from(change.log).interval(level)?;
        let enough = change.interval.is_some();
        (enough && gate.side(interval.low, interval.high) == Outcome::Fail).then(|| {
            format!(
                "{} on {}: ratio {:.4}, at most {:.4} and at least {:.4} with all cells in view",
                named(&cell.experiment, &cell.cell),
                cell.target,
                change.ratio,
                interval.high,
                interval.low
            )
        })
    })
}
