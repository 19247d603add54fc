//! Two runs against one another: what changed in each cell, whether gates hold, and a row of history for change
//! point detection. The rounds are not paired: the runs may be years apart.

use crate::analysis::{Interval, Standing};
use crate::definition::Levels;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What changed from one run to another.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// Every cell that both runs have, in the order of the new one.
    pub cells: Vec<ComparedCell>,
    /// Each metric over all those cells.
    pub overall: BTreeMap<String, Change>,
    /// Cells of only one run, in words.
    pub unmatched: Vec<String>,
    /// Why no gate can be decided, such as a canary that drifted; usually empty.
    pub doubts: Vec<String>,
}

/// One cell in both runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedCell {
    /// The experiment's id.
    pub experiment: String,
    /// Its factors' levels.
    pub cell: Levels,
    /// The target in the base run.
    pub base: String,
    /// The target in the new run.
    pub target: String,
    /// For each metric that both measured.
    pub changes: BTreeMap<String, Change>,
}

/// How a metric changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Rounds of the base run.
    pub base_n: usize,
    /// Rounds of the new run.
    pub new_n: usize,
    /// New by base: geometric means.
    pub ratio: f64,
    /// 95 % confidence interval (Welch, on logarithms); none below 5 rounds in either run.
    pub interval: Option<Interval>,
    /// Mann and Whitney's test, two-sided; none where even the clearest outcome could not be below 0.05.
    pub p: Option<f64>,
    /// What may be said.
    pub standing: Standing,
    /// Mean of the logarithms' difference and its standard error, with the degrees of freedom: what gates need.
    pub log: LogChange,
}

/// A change as the logarithm of the ratio.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LogChange {
    /// Its mean.
    pub mean: f64,
    /// Its standard error.
    pub error: f64,
    /// Degrees of freedom; 0 if there are too few rounds for a standard error.
    pub freedom: f64,
}

/// Something that must hold of a comparison: `throughput.ratio>=0.97`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// The metric's full name, such as `p99_ms`.
    pub metric: String,
    /// The direction.
    pub relation: Relation,
    /// The bound of the ratio new by base, above 0.
    pub bound: f64,
}

/// Which side of the bound is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// `>=`
    AtLeast,
    /// `<=`
    AtMost,
}

/// What became of a gate. From best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The whole interval is on the good side.
    Pass,
    /// The interval has both sides, or there is none.
    Inconclusive,
    /// The whole interval is on the bad side.
    Fail,
}

/// A gate, decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The gate as written.
    pub gate: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Why, with the numbers.
    pub because: String,
}
