//! Two runs against one another: what changed in each cell, whether gates hold, and a row of history for change
//! point detection. The rounds are not paired: the runs may be years apart.

mod gate;
mod history;

pub(crate) use gate::full_name;
pub use gate::{GateError, decide, parse_gates, verdict};
pub use history::{History, Stamp, history};

use crate::analysis::cells::{Group, cell, groups};
use crate::analysis::drift::drifts;
use crate::analysis::pairs::floors;
use crate::analysis::{Delivered, Floor, Interval, ROUNDS_FOR_INTERVAL, Standing, named};
use crate::definition::Levels;
use crate::round::{Purpose, Round};
use serde::{Deserialize, Serialize};
use stats::ratio::{LogDifference, pooled, unpaired_ratio};
use std::collections::{BTreeMap, BTreeSet};

/// A logarithm of a ratio below which equal numbers differ by how they were added up.
const ROUNDED: f64 = 1e-9;

/// What changed from one run to another.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// Every cell that both runs have, in the order of the new one.
    pub cells: Vec<ComparedCell>,
    /// Each metric over all those cells that have more than one round in both runs, if any has.
    pub overall: BTreeMap<String, Change>,
    /// Cells of only one run, in words.
    pub unmatched: Vec<String>,
    /// Why no gate can be decided, such as a canary that drifted, a cell that failed or records that were lost; usually
    /// empty.
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
    /// 95 % confidence interval (Welch, on logarithms), widened by what each run's targets differed from themselves by;
    /// none below 5 rounds in either run.
    pub interval: Option<Interval>,
    /// Mann and Whitney's test, two-sided; none where even the clearest outcome could not be below 0.05.
    pub p: Option<f64>,
    /// What may be said.
    pub standing: Standing,
    /// What two runs of the same program would differ by, from the rounds in which each run's target ran against itself.
    #[serde(default)]
    pub noise: Noise,
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

/// What the same program differs from itself by, in two runs of so many rounds: nothing where neither run says so.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Noise {
    /// Standard error, as a logarithm; part of [`LogChange::error`].
    pub error: f64,
    /// The logarithm of a ratio that is not exceeded 19 times of 20.
    pub within: f64,
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

/// Compares two runs: every cell that both have, on the target of the same name. Where each run has a single target
/// and their names differ, those two are compared.
///
/// The spread is that of rounds within a run, and what each run's targets differed from themselves by. What changes only
/// between runs (another boot, another place on the disk) is not in it: a surprising difference wants a second run of
/// each.
pub fn compare(base: &[Round], new: &[Round]) -> Comparison {
    let floors = Floors { base: floors(base).1, new: floors(new).1 };
    let (base_groups, new_groups) = (groups(base, Purpose::Cell), groups(new, Purpose::Cell));
    let renamed = sole_targets(&base_groups, &new_groups);
    let alike = |base: &Group<'_>, new: &Group<'_>| {
        let targets = renamed == Some((base.target, new.target)) || base.target == new.target;
        targets
            && (base.experiment, base.cell, base.emulated)
                == (new.experiment, new.cell, new.emulated)
    };
    let pairs: Vec<(&Group<'_>, &Group<'_>)> = new_groups
        .iter()
        .filter_map(|new| Some((base_groups.iter().find(|base| alike(base, new))?, new)))
        .collect();
    let cells: Vec<ComparedCell> =
        pairs.iter().map(|(base, new)| compared(base, new, &floors)).collect();
    let named =
        |group: &Group<'_>| format!("{} on {}", named(group.experiment, group.cell), group.target);
    let lone_base = base_groups.iter().filter(|base| !pairs.iter().any(|pair| same(pair.0, base)));
    let lone_new = new_groups.iter().filter(|new| !pairs.iter().any(|pair| same(pair.1, new)));
    Comparison {
        overall: overall(&cells),
        unmatched: lone_base
            .map(|group| format!("only in the base run: {}", named(group)))
            .chain(lone_new.map(|group| format!("only in the new run: {}", named(group))))
            .collect(),
        doubts: [("base", base), ("new", new)]
            .iter()
            .flat_map(|(name, rounds)| drifted(name, rounds))
            .chain(pairs.iter().flat_map(|(base, new)| unsound(base, new)))
            .collect(),
        cells,
    }
}

/// The only target of each run, if each has one.
fn sole_targets<'a>(base: &[Group<'a>], new: &[Group<'a>]) -> Option<(&'a str, &'a str)> {
    let sole = |groups: &[Group<'a>]| {
        let targets: BTreeSet<&str> = groups.iter().map(|group| group.target).collect();
        (targets.len() == 1).then(|| groups[0].target)
    };
    Some((sole(base)?, sole(new)?))
}

fn same(a: &Group<'_>, b: &Group<'_>) -> bool {
    std::ptr::eq(a, b)
}

/// What each run's targets differed from themselves by, by target and metric.
struct Floors {
    base: BTreeMap<String, BTreeMap<String, Floor>>,
    new: BTreeMap<String, BTreeMap<String, Floor>>,
}

impl Floors {
    /// The noise of one metric in two runs of so many rounds.
    fn noise(&self, metric: &str, base: (&str, usize), new: (&str, usize)) -> Noise {
        let floor = |floors: &BTreeMap<String, BTreeMap<String, Floor>>, target: &str| {
            floors.get(target)?.get(metric).cloned()
        };
        let sides = [(floor(&self.base, base.0), base.1), (floor(&self.new, new.0), new.1)];
        let known = || sides.iter().filter_map(|(floor, rounds)| Some((floor.as_ref()?, *rounds)));
        Noise {
            error: known()
                .map(|(f, n)| f.spread * f.spread / (2.0 * n.max(1) as f64))
                .sum::<f64>()
                .sqrt(),
            within: known().map(|(f, n)| f.of_round(n).powi(2)).sum::<f64>().sqrt(),
        }
    }
}

fn compared(base: &Group<'_>, new: &Group<'_>, floors: &Floors) -> ComparedCell {
    let values = |group: &Group<'_>, metric: &str| -> Vec<f64> {
        group.values(metric).into_values().collect()
    };
    let (base_metrics, new_metrics) = (base.metrics(), new.metrics());
    let changes = base_metrics.intersection(&new_metrics).filter_map(|metric| {
        let (old, now) = (values(base, metric), values(new, metric));
        let noise = floors.noise(metric, (base.target, old.len()), (new.target, now.len()));
        let change = change(metric, &old, &now, noise)?;
        Some(((*metric).to_owned(), change))
    });
    ComparedCell {
        experiment: new.experiment.to_owned(),
        cell: new.cell.clone(),
        base: base.target.to_owned(),
        target: new.target.to_owned(),
        changes: changes.collect(),
    }
}

/// How a metric changed. None where a value is not above 0.
fn change(metric: &str, base: &[f64], new: &[f64], noise: Noise) -> Option<Change> {
    let log = unpaired_ratio(base, new).ok()?;
    let p = stats::ranks::mann_whitney(base, new).ok();
    Some(Change::of(metric, (base.len(), new.len()), log, p, noise))
}

impl Change {
    /// Whether there are rounds enough in both runs to know how far they lie apart.
    fn has_spread(&self) -> bool {
        self.log.freedom > 0.0
    }

    /// `own` is the difference with the spread of the rounds alone, of so many rounds in the base and in the new run.
    fn of(
        metric: &str,
        (base_n, new_n): (usize, usize),
        own: LogDifference,
        p: Option<f64>,
        noise: Noise,
    ) -> Change {
        let log = LogDifference { error: own.error.hypot(noise.error), ..own };
        let alike = log.mean.abs() <= noise.within.max(ROUNDED);
        let enough = base_n.min(new_n) >= ROUNDS_FOR_INTERVAL;
        let interval = log.interval(0.95).filter(|_| enough);
        Change {
            base_n,
            new_n,
            ratio: log.ratio(),
            interval: interval.map(Interval::from),
            p,
            standing: match interval {
                None => Standing::Unknown,
                Some(interval) if interval.contains(1.0) || alike => Standing::WithinNoise,
                Some(_) => Standing::of(metric, log.mean),
            },
            noise,
            log: LogChange { mean: log.mean, error: log.error, freedom: log.freedom },
        }
    }

    /// The difference with the spread of the rounds alone.
    fn own(&self) -> LogDifference {
        let error = (self.log.error.powi(2) - self.noise.error.powi(2)).max(0.0).sqrt();
        LogDifference { error, ..self.log.into() }
    }
}

/// Each metric over all cells that have it, each cell weighing the same: the geometric mean of their ratios. What a run
/// differs from another by moves all of its cells alike, so the noise is that of a single cell. Cells of a single round in either run have no spread: they are left out where there are others.
fn overall(cells: &[ComparedCell]) -> BTreeMap<String, Change> {
    let metrics: BTreeSet<&String> = cells.iter().flat_map(|cell| cell.changes.keys()).collect();
    let over = |metric: &String| {
        let mut changes: Vec<&Change> =
            cells.iter().filter_map(|cell| cell.changes.get(metric)).collect();
        if changes.iter().any(|change| change.has_spread()) {
            changes.retain(|change| change.has_spread());
        }
        let logs: Vec<LogDifference> = changes.iter().map(|change| change.own()).collect();
        let noisiest = changes.iter().map(|change| change.noise);
        let noise = noisiest.max_by(|a, b| a.within.total_cmp(&b.within)).unwrap_or_default();
        let rounds = |of: fn(&Change) -> usize| changes.iter().map(|change| of(change)).sum();
        let (base_n, new_n) = (rounds(|change| change.base_n), rounds(|change| change.new_n));
        let p = (changes.len() == 1).then(|| changes[0].p).flatten();
        Some((metric.clone(), Change::of(metric, (base_n, new_n), pooled(&logs)?, p, noise)))
    };
    metrics.into_iter().filter_map(over).collect()
}

/// What makes a cell's numbers worth nothing, however good they look: nothing was measured in the new run, or records
/// were not delivered as they should be.
fn unsound(base: &Group<'_>, new: &Group<'_>) -> Vec<String> {
    let named = format!("{} on {}", named(new.experiment, new.cell), new.target);
    let mut doubts = Vec::new();
    if base.measured().next().is_some() && new.measured().next().is_none() {
        let why = cell(new, &BTreeSet::new())
            .failures
            .first()
            .map(|(why, _)| why.clone())
            .unwrap_or_default();
        doubts.push(format!("{named}: nothing was measured in the new run: {why}"));
    }
    for (run, group) in [("base", base), ("new", new)] {
        if cell(group, &BTreeSet::new()).delivered() == Delivered::Broken {
            doubts.push(format!(
                "{named}: records were lost, duplicated, reordered or damaged in the {run} run"
            ));
        }
    }
    doubts
}

fn drifted(name: &str, rounds: &[Round]) -> Vec<String> {
    drifts(rounds)
        .iter()
        .filter(|drift| drift.beyond)
        .map(|drift| {
            let percent = 100.0 * drift.worst;
            format!("the canary of the {name} run drifted by {percent:.1} % on {}", drift.target)
        })
        .collect()
}

impl From<LogChange> for LogDifference {
    fn from(log: LogChange) -> LogDifference {
        LogDifference { mean: log.mean, error: log.error, freedom: log.freedom }
    }
}
