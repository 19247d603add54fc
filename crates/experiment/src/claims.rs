//! Claims as predicates: each published observation is tested on rows, be they the published ones or measured
//! ones, and found reproduced, contradicted, within noise or not testable, with the numbers.
//!
//! A predicate is broken into checks, each a number with its interval against bounds ([`judge`]). A number whose
//! interval lies inside the bounds holds, one whose interval lies outside fails, any other is open. So a claim is
//! only reproduced, and only contradicted, where the interval allows it. Ratios of measured rows are taken at
//! least as wide as what a target differs from itself by, for as many rounds as the rows have ([`noise`]); a number of
//! a single round decides nothing by itself. Not here: intervals of measured rows (`analysis`).

mod judge;
mod kinds;
mod names;
mod noise;
mod rows;

pub use names::{Names, names};
pub use rows::{Estimate, Row, Rows, derive};

use crate::analysis::ROUNDS_FOR_INTERVAL;
use crate::definition::{Claim, Experiment, Level};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which rows: each factor, or metric, named here must be as wanted. Beside these there is `offered_mib_per_s`: the
/// offered rate in MiB/s of values.
pub type Filter = BTreeMap<String, Want>;

/// What a factor must be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Want {
    /// That.
    One(Level),
    /// One of these.
    Any(Vec<Level>),
    /// A number between these, both included.
    Between(Between),
}

/// Bounds of a number, both included.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Between {
    /// The least.
    pub at_least: Option<f64>,
    /// The most.
    pub at_most: Option<f64>,
}

/// For how many of a predicate's checks it must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// All of them.
    #[default]
    Each,
    /// More than half.
    Most,
    /// Their geometric mean.
    Mean,
}

/// Upwards or downwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// More with more.
    Rises,
    /// Less with more.
    Falls,
}

/// A predicate over rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Test {
    /// A metric goes one way along a factor: from the first level to the last, and no step goes back by more than
    /// `tolerance` (a share).
    Monotone {
        /// The metric.
        metric: String,
        /// The factor.
        over: String,
        /// Which way.
        direction: Direction,
        /// How far a step may go back: a share.
        #[serde(default)]
        tolerance: f64,
        /// The factors that each make a series of their own.
        #[serde(default)]
        groups: Vec<String>,
        /// Which rows.
        #[serde(default, rename = "where")]
        filter: Filter,
    },
    /// The largest by the smallest of a metric is at most that.
    Flat {
        /// The metric.
        metric: String,
        /// Largest by smallest.
        at_most: f64,
        /// The factors that each make a group of their own.
        #[serde(default)]
        groups: Vec<String>,
        /// Which rows.
        #[serde(default, rename = "where")]
        filter: Filter,
    },
    /// A metric of some rows by that of others.
    Ratio {
        /// The metric.
        metric: String,
        /// The rows above the line.
        #[serde(default)]
        of: Filter,
        /// The rows below it.
        #[serde(default)]
        to: Filter,
        /// The experiment of the rows below, if another.
        #[serde(default)]
        to_experiment: Option<String>,
        /// The factors in which a row above and one below must agree; else all that `of` and `to` do not name.
        #[serde(default)]
        matching: Option<Vec<String>>,
        /// The bounds.
        #[serde(default)]
        at_least: Option<f64>,
        /// The bounds.
        #[serde(default)]
        at_most: Option<f64>,
        /// For how many pairs.
        #[serde(default)]
        share: Share,
        /// Which rows.
        #[serde(default, rename = "where")]
        filter: Filter,
    },
    /// A metric lies within bounds.
    Bound {
        /// The metric.
        metric: String,
        /// The bounds.
        #[serde(default)]
        at_least: Option<f64>,
        /// The bounds.
        #[serde(default)]
        at_most: Option<f64>,
        /// For how many rows.
        #[serde(default)]
        share: Share,
        /// Which rows.
        #[serde(default, rename = "where")]
        filter: Filter,
    },
    /// A metric of no round of the rows is above a bound. What was seen once is seen: one round above it contradicts, and
    /// none reproduces only after enough trials.
    Worst {
        /// The metric.
        metric: String,
        /// The bound.
        at_most: f64,
        /// The metric that counts trials, such as `kills`.
        trials: String,
        /// As many of them, in each row, as it takes.
        trials_min: f64,
        /// Which rows.
        #[serde(default, rename = "where")]
        filter: Filter,
    },
    /// Every one of some rows has at least so many times the metric of every one of others.
    Separated {
        /// The metric.
        metric: String,
        /// The rows with little of it.
        low: Filter,
        /// The rows with much of it.
        high: Filter,
        /// The smallest of these by the largest of those.
        at_least: f64,
    },
    /// A metric goes with a power of a factor: the slope in double logarithms.
    PowerLaw {
        /// The metric.
        metric: String,
        /// The factor.
        over: String,
        /// The power.
        exponent: f64,
        /// By how much the slope may differ.
        within: f64,
        /// The factors that each make a series of their own.
        #[serde(default)]
        groups: Vec<String>,
        /// Which rows.
        #[serde(default, rename = "where")]
        filter: Filter,
    },
    /// The gap between two sorts of rows (the logarithm of their ratio, whatever its sign) is smaller at a factor's
    /// last level than at its first.
    GapShrinks {
        /// The metric.
        metric: String,
        /// One sort.
        of: Filter,
        /// The other.
        to: Filter,
        /// The factor.
        over: String,
        /// Which rows.
        #[serde(default, rename = "where")]
        filter: Filter,
    },
    /// The counts of partitions are those, or a multiple of them.
    Counts {
        /// Records of the first partition, the second …
        exact: Vec<u64>,
        /// Which rows.
        #[serde(default, rename = "where")]
        filter: Filter,
    },
    /// The counts of partitions are as even as chance makes them: each within so many standard deviations.
    Even {
        /// So many.
        sigmas: f64,
        /// Which rows.
        #[serde(default, rename = "where")]
        filter: Filter,
    },
    /// Several at once.
    All {
        /// Which.
        tests: Vec<Test>,
    },
    /// Something about the published numbers themselves, which no measurement can bear out.
    Published {
        /// What.
        test: Box<Test>,
    },
    /// Something that only what is measured here can show: the published runs were made otherwise.
    Measured {
        /// What.
        test: Box<Test>,
    },
    /// Nothing that could be measured here.
    Untestable {
        /// Why.
        why: String,
    },
}

/// A claim's test, and when it must not be made.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicate {
    /// The test.
    pub test: Test,
    /// Metrics above which the machine, not the target, decides: the test is not made if a row is above.
    pub unless: BTreeMap<String, f64>,
}

/// How a claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It holds, at the bound of the interval too.
    Reproduced,
    /// It fails, beyond the interval.
    Contradicted,
    /// The interval, or what a target differs from itself by, includes both.
    WithinNoise,
    /// There is nothing to test it on.
    NotTestable,
}

impl Outcome {
    /// As a reader sees it.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Reproduced => "REPRODUCED",
            Outcome::Contradicted => "CONTRADICTED",
            Outcome::WithinNoise => "WITHIN NOISE",
            Outcome::NotTestable => "NOT TESTABLE",
        }
    }
}

/// A claim, how it stands and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The experiment's id.
    pub experiment: String,
    /// The claim's id.
    pub claim: String,
    /// How it stands.
    pub outcome: Outcome,
    /// The numbers, in a sentence.
    pub because: String,
}

/// A claim's test as a predicate. Fails with the parser's words on a table that is none.
pub fn predicate(claim: &Claim) -> Result<Predicate, String> {
    let mut table = claim.test.clone();
    let unless = match table.remove("unless") {
        Some(unless) => unless.try_into().map_err(|error: toml::de::Error| error.to_string())?,
        None => BTreeMap::new(),
    };
    let test = table.try_into().map_err(|error: toml::de::Error| error.message().to_owned())?;
    Ok(Predicate { test, unless })
}

/// Tests one claim of an experiment.
pub fn evaluate(experiment: &str, claim: &Claim, rows: &Rows) -> Finding {
    let (outcome, mut because) = match predicate(claim) {
        Err(reason) => (Outcome::NotTestable, format!("the predicate is none: {reason}")),
        Ok(predicate) => match beyond(experiment, &predicate, rows) {
            Some(why) => (Outcome::NotTestable, why),
            None => kinds::run(&predicate.test, experiment, rows),
        },
    };
    if outcome == Outcome::WithinNoise {
        because.push_str(&too_few(rows.of(experiment)));
    }
    Finding { experiment: experiment.to_owned(), claim: claim.id.clone(), outcome, because }
}

/// That more rounds would say more, where there are too few for an interval.
fn too_few(rows: &[Row]) -> String {
    let fewest = rows.iter().map(|row| row.rounds).filter(|rounds| *rounds > 0).min();
    match fewest.filter(|rounds| *rounds < ROUNDS_FOR_INTERVAL) {
        Some(1) => "; a cell of one round says no more".to_owned(),
        Some(rounds) => format!("; cells of {rounds} rounds say no more"),
        None => String::new(),
    }
}

/// Tests all claims of an experiment, in their order.
pub fn evaluate_all(experiment: &Experiment, rows: &Rows) -> Vec<Finding> {
    experiment.claims.iter().map(|claim| evaluate(&experiment.id, claim, rows)).collect()
}

/// Why the machine would decide the test, if it would.
fn beyond(experiment: &str, predicate: &Predicate, rows: &Rows) -> Option<String> {
    let rows = rows.of(experiment);
    predicate.unless.iter().find_map(|(metric, most)| {
        let worst = rows.iter().filter_map(|row| row.metrics.get(metric)).map(|e| e.value);
        let worst = worst.max_by(f64::total_cmp).filter(|worst| worst > most)?;
        Some(format!(
            "{metric} reached {worst:.2}, above {most}: the machine decided, not the target"
        ))
    })
}

#[cfg(test)]
mod in_front;
#[cfg(test)]
mod tests;
