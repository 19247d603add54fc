//! Why numbers are what they are: a link's cap, a client that is busy, a timer, a queue. Each explainer looks at
//! numbers alone, measured or published, and gives a sentence with them, or nothing. What it says is what the
//! numbers look like: none of them has seen the machine.

mod busy;
mod link;
mod queue;
mod timer;
mod words;

pub use queue::{capacity_records, predicted_p50_ms};

use crate::analysis::{Analysis, CellAnalysis};
use crate::catalogue::{self, ProfileName};
use crate::definition::{Experiment, Levels};
use crate::plan::PlannedCell;
use crate::workload::{Kind, Workload};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One thing that explains some cells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The experiment's id.
    pub experiment: String,
    /// The target; empty for published numbers.
    pub target: String,
    /// What it is.
    pub cause: Cause,
    /// The cells it is about; empty: all of the experiment's.
    pub cells: Vec<Levels>,
    /// For the report, with the numbers.
    pub sentence: String,
    /// The numbers by name.
    pub numbers: BTreeMap<String, f64>,
}

/// What may limit a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Bytes per second that something lets through.
    LinkCap,
    /// The driving client had no more to give.
    ClientBound,
    /// Brokers and client together used the whole machine.
    MachineBound,
    /// Something waits for a tick.
    QuantisedTimer,
    /// Records waited in the producer's own buffer.
    ClientQueue,
    /// Another guest of the machine took its time.
    NoisyNeighbour,
    /// The processor slowed down.
    Thermal,
}

/// One cell as the explainers see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Its factors' levels.
    pub cell: Levels,
    /// What it asked for.
    pub workload: Workload,
    /// What was measured (the rounds' medians) or published, by the names of
    /// [`METRICS`](crate::round::METRICS).
    pub metrics: BTreeMap<String, f64>,
}

/// The machine that both brokers and clients ran on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Machine {
    /// Its processors; 0 if not known.
    pub cores: f64,
    /// Their clock in MHz at times through the run, in order; empty if not known.
    pub mhz: Vec<f64>,
}

/// Explains a run whose plan is not at hand: workloads are those of the definitions in the quick profile, which
/// knows the sizes but not what the command line changed.
pub fn explain(analysis: &Analysis) -> Vec<Explanation> {
    let workload = |cell: &CellAnalysis| {
        let experiment = catalogue::experiment(&cell.experiment)?;
        let nothing = toml::Table::new();
        catalogue::workload(experiment, ProfileName::Quick, &nothing, &cell.cell).ok()
    };
    explain_with(analysis, &workload, &Machine::default())
}

/// Explains a run by its plan's cells and its machine.
pub fn explain_planned(
    analysis: &Analysis,
    planned: &[PlannedCell],
    machine: &Machine,
) -> Vec<Explanation> {
    let workload = |cell: &CellAnalysis| {
        let is = |planned: &&PlannedCell| {
            planned.experiment == cell.experiment && planned.cell == cell.cell
        };
        planned.iter().find(is).map(|planned| planned.workload.clone())
    };
    explain_with(analysis, &workload, machine)
}

fn explain_with(
    analysis: &Analysis,
    workload: &dyn Fn(&CellAnalysis) -> Option<Workload>,
    machine: &Machine,
) -> Vec<Explanation> {
    let keys: BTreeSet<(&str, &str)> =
        analysis.cells.iter().map(|cell| (&*cell.experiment, &*cell.target)).collect();
    let mut explanations = Vec::new();
    for (experiment, target) in keys {
        let cells = analysis
            .cells
            .iter()
            .filter(|cell| (&*cell.experiment, &*cell.target) == (experiment, target));
        let points: Vec<Point> = cells.filter_map(|cell| measured(cell, workload(cell)?)).collect();
        explanations.extend(explain_points(experiment, target, &points, machine));
    }
    explanations.extend(busy::thermal(&machine.mhz));
    explanations
}

fn measured(cell: &CellAnalysis, workload: Workload) -> Option<Point> {
    let metrics: BTreeMap<String, f64> =
        cell.metrics.iter().map(|(name, summary)| (name.clone(), summary.median)).collect();
    let point = Point { cell: cell.cell.clone(), workload, metrics };
    (!point.metrics.is_empty()).then_some(point)
}

/// The published rows of an experiment as points, with the workload of its full profile.
pub fn published(experiment: &Experiment) -> Vec<Point> {
    let nothing = toml::Table::new();
    let rows = experiment.published.iter().filter_map(|row| {
        let cell = catalogue::factors_of(experiment, row);
        let workload = catalogue::workload(experiment, ProfileName::Full, &nothing, &cell).ok()?;
        let metrics = row
            .iter()
            .filter(|(name, _)| !cell.contains_key(*name))
            .filter_map(|(name, level)| Some((name.clone(), level.number()?)))
            .collect();
        Some(Point { cell, workload, metrics })
    });
    rows.collect()
}

/// Explains the points of one experiment on one target; `target` is empty for published numbers.
pub fn explain_points(
    experiment: &str,
    target: &str,
    points: &[Point],
    machine: &Machine,
) -> Vec<Explanation> {
    let mut found = Vec::new();
    found.extend(link::cap(points));
    found.extend(timer::quantised(points));
    found.extend(queue::law(points));
    found.extend(busy::waiting(points));
    found.extend(busy::client(points));
    found.extend(busy::machine(points, machine.cores));
    found.extend(busy::neighbour(points));
    for explanation in &mut found {
        explanation.experiment = experiment.to_owned();
        explanation.target = target.to_owned();
    }
    found
}

impl Explanation {
    fn new(
        cause: Cause,
        points: &[&Point],
        sentence: String,
        numbers: &[(&str, f64)],
    ) -> Explanation {
        Explanation {
            experiment: String::new(),
            target: String::new(),
            cause,
            cells: points.iter().map(|point| point.cell.clone()).collect(),
            sentence,
            numbers: numbers.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        }
    }
}

impl Point {
    fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.get(name).copied().filter(|value| value.is_finite())
    }

    /// Whether it gave all that was offered: then the offer is the limit, and nothing else shows.
    fn reached_its_offer(&self) -> bool {
        const NEARLY_ALL: f64 = 0.98;
        let workload = &self.workload;
        let offered = workload.offered > 0.0 || workload.offered_share > 0.0;
        let share = self.metric("reached_share").or_else(|| {
            let possible = workload.offered > 0.0;
            possible.then(|| Some(self.metric("throughput")? / workload.offered)).flatten()
        });
        workload.kind == Kind::Produce && offered && share.is_some_and(|share| share >= NEARLY_ALL)
    }
}
