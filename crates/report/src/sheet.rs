//! One experiment's numbers side by side: for each cell what was published, what each target gave, and their ratios.
//! Tables and pictures are made of this. It holds no text for readers.

use crate::run::Run;
use crate::wording;
use experiment::analysis::{CellAnalysis, Ratio};
use experiment::definition::{Experiment, Level, Levels, Report};
use experiment::round::Durability;
use std::collections::{BTreeMap, BTreeSet};

/// One experiment's rows.
pub(crate) struct Sheet<'a> {
    pub(crate) report: &'a Report,
    pub(crate) experiment: &'a Experiment,
    /// The targets that measured something of it, in the run's order.
    pub(crate) targets: Vec<&'a str>,
    /// Place in the palette of each of them: a target has one colour in the whole run.
    pub(crate) colours: Vec<usize>,
    pub(crate) rows: Vec<Row<'a>>,
    /// Which target's metrics are divided by which one's, where two were run in pairs.
    pub(crate) versus: Option<(&'a str, &'a str)>,
}

/// One cell.
pub(crate) struct Row<'a> {
    pub(crate) cell: Levels,
    /// Published metrics by name.
    pub(crate) published: BTreeMap<&'a str, f64>,
    /// Published records per partition or broker, from the first; often none.
    pub(crate) published_counts: Vec<f64>,
    /// For each of the sheet's targets.
    pub(crate) measured: Vec<Option<&'a CellAnalysis>>,
    /// As [`Sheet::versus`] says.
    pub(crate) ratios: Option<&'a BTreeMap<String, Ratio>>,
}

impl<'a> Sheet<'a> {
    /// The sheet of one experiment of a run.
    pub(crate) fn new(run: &'a Run, report: &'a Report, experiment: &'a Experiment) -> Sheet<'a> {
        let runs_of = experiment.same_runs_as.as_ref().unwrap_or(&experiment.id);
        let cells: Vec<&CellAnalysis> =
            run.analysis.cells.iter().filter(|cell| cell.experiment == *runs_of).collect();
        let measured = |name: &str| cells.iter().any(|cell| cell.target == name);
        let (colours, targets): (Vec<usize>, Vec<&str>) = run
            .targets
            .iter()
            .map(|target| target.name.as_str())
            .enumerate()
            .filter(|(_, name)| measured(name))
            .unzip();
        let mut rows = published_rows(experiment);
        for cell in &cells {
            let Some(column) = targets.iter().position(|name| *name == cell.target) else {
                continue;
            };
            let row = row_of(&mut rows, &cell.cell);
            row.measured.resize(targets.len(), None);
            row.measured[column] = Some(cell);
        }
        let pairs = run.analysis.pairs.iter().filter(|pair| pair.experiment == *runs_of);
        let versus = pairs.clone().next().map(|pair| (pair.target.as_str(), pair.base.as_str()));
        for row in &mut rows {
            row.measured.resize(targets.len(), None);
            let mut same = pairs.clone().filter(|pair| pair.cell == row.cell);
            let pair = same.find(|pair| versus == Some((pair.target.as_str(), pair.base.as_str())));
            row.ratios = pair.map(|pair| &pair.ratios);
        }
        sort(&mut rows, experiment);
        Sheet { report, experiment, targets, colours, rows, versus }
    }

    /// The factors that the tables show: those of the experiment, less those that never vary.
    pub(crate) fn factors(&self) -> Vec<&'a str> {
        let factors = self.experiment.factors.iter().map(String::as_str);
        let varies = |factor: &&str| {
            let levels: BTreeSet<Option<&Level>> =
                self.rows.iter().map(|row| row.cell.get(*factor)).collect();
            levels.len() > 1
        };
        let varied: Vec<&str> = factors.clone().filter(varies).collect();
        if varied.is_empty() { factors.take(1).collect() } else { varied }
    }

    /// As few of the shown factors as tell every row from every other.
    pub(crate) fn key_factors(&self) -> Vec<&'a str> {
        let mut keys = self.factors();
        for factor in self.factors().into_iter().rev() {
            let rest: Vec<&str> = keys.iter().copied().filter(|key| *key != factor).collect();
            let of = |row: &Row<'_>| -> Vec<Option<Level>> {
                rest.iter().map(|key| row.cell.get(*key).cloned()).collect()
            };
            let told_apart: BTreeSet<Vec<Option<Level>>> = self.rows.iter().map(of).collect();
            if !rest.is_empty() && told_apart.len() == self.rows.len() {
                keys = rest;
            }
        }
        keys
    }

    /// The factors that have one level throughout, with it.
    pub(crate) fn constants(&self) -> Vec<(&'a str, &Level)> {
        let shown = self.factors();
        let all = self.experiment.factors.iter().map(String::as_str);
        all.filter(|factor| !shown.contains(factor))
            .filter_map(|factor| Some((factor, self.rows.first()?.cell.get(factor)?)))
            .collect()
    }

    /// Whether any published row has this metric.
    pub(crate) fn is_published(&self, metric: &str) -> bool {
        self.rows.iter().any(|row| row.published.contains_key(metric))
    }

    /// Whether any target measured this metric.
    pub(crate) fn is_measured(&self, metric: &str) -> bool {
        self.rows.iter().any(|row| (0..row.measured.len()).any(|t| row.value(t, metric).is_some()))
    }

    /// Whether records are sent or read at all: else there is nothing to say of their durability and delivery.
    pub(crate) fn has_records(&self) -> bool {
        self.experiment.workload.get("kind").and_then(|kind| kind.as_str()) != Some("metadata")
    }

    /// Every cell of this experiment on every target.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &'a CellAnalysis> {
        self.rows.iter().flat_map(|row| row.measured.iter().copied().flatten())
    }

    /// What was different from the experiment's wishes on any target, each once.
    pub(crate) fn deviations(&self) -> Vec<(&'a str, &'a str)> {
        let all = self.cells().flat_map(|cell| {
            cell.deviations.iter().map(|deviation| (cell.target.as_str(), deviation.as_str()))
        });
        all.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// How many rows the targets measured with acknowledgements of unlike worth, and the first of them: each
    /// target's worth there.
    pub(crate) fn unlike(&self) -> Option<(usize, Vec<(&'a str, Durability)>)> {
        let worths = |row: &Row<'a>| -> Vec<(&'a str, Durability)> {
            let named = self.targets.iter().zip(&row.measured);
            named.filter_map(|(name, cell)| Some((*name, cell.as_ref()?.durability))).collect()
        };
        let all = self.rows.iter().map(worths);
        let mut unlike =
            all.filter(|worths| worths.windows(2).any(|pair| pair[0].1 != pair[1].1)).peekable();
        let first = unlike.peek()?.clone();
        Some((unlike.count(), first))
    }

    /// The emulations under which it was measured, without the empty one.
    pub(crate) fn emulations(&self) -> Vec<&'a str> {
        let names = self.cells().map(|cell| cell.emulated.as_str());
        names.filter(|name| !name.is_empty()).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

impl Row<'_> {
    /// Whether a target's brokers were Java processes younger than their warm-up in every round.
    pub(crate) fn is_young(&self, target: usize) -> bool {
        self.measured.get(target).copied().flatten().is_some_and(|cell| cell.young)
    }

    /// A target's mean of a metric.
    pub(crate) fn value(&self, target: usize, metric: &str) -> Option<f64> {
        let cell = self.measured.get(target).copied().flatten()?;
        Some(cell.metrics.get(metric)?.mean)
    }
}

fn published_rows(experiment: &Experiment) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for levels in &experiment.published {
        let is_factor = |key: &String| experiment.factors.contains(key);
        let cell: Levels = levels
            .iter()
            .filter(|(key, _)| is_factor(key))
            .map(|(key, level)| (key.clone(), level.clone()))
            .collect();
        let row = row_of(&mut rows, &cell);
        let metrics = levels.iter().filter(|(key, _)| !is_factor(key));
        row.published_counts = levels.get("counts").map(counts).unwrap_or_default();
        row.published
            .extend(metrics.filter_map(|(key, level)| Some((key.as_str(), level.number()?))));
    }
    rows
}

/// Records per partition as definitions have them: text with spaces between.
fn counts(level: &Level) -> Vec<f64> {
    let Level::Text(text) = level else { return Vec::new() };
    text.split_whitespace().filter_map(|count| count.parse().ok()).collect()
}

/// The levels of a factor in the order of the definition: those of the published rows, of the grid, of further cells,
/// of the profiles. Rounds are no order: they were shuffled.
fn defined<'a>(experiment: &'a Experiment, factor: &'a str) -> impl Iterator<Item = &'a Level> {
    let of_rows = experiment.published.iter().filter_map(move |row| row.get(factor));
    let of_cells = experiment.extra_cells.iter().filter_map(move |cell| cell.get(factor));
    let profiles = experiment.profile.values().map(|profile| &profile.grid);
    let grids = std::iter::once(&experiment.grid).chain(profiles);
    let of_grids = grids.filter_map(move |grid| grid.get(factor)).flatten();
    of_rows.chain(of_grids).chain(of_cells)
}

fn row_of<'r, 'a>(rows: &'r mut Vec<Row<'a>>, cell: &Levels) -> &'r mut Row<'a> {
    let place = rows.iter().position(|row| row.cell == *cell).unwrap_or_else(|| {
        rows.push(Row {
            cell: cell.clone(),
            published: BTreeMap::new(),
            published_counts: Vec::new(),
            measured: Vec::new(),
            ratios: None,
        });
        rows.len() - 1
    });
    &mut rows[place]
}

/// By the factors' levels, in the factors' order; text levels as the definition has them.
fn sort(rows: &mut [Row<'_>], experiment: &Experiment) {
    let place = |factor: &str, level: Option<&Level>| match level {
        Some(Level::Text(_)) => {
            let at = defined(experiment, factor).position(|other| Some(other) == level);
            Level::Number(at.unwrap_or(usize::MAX) as f64)
        }
        Some(level) if wording::is_unlimited(factor, level) => Level::Number(f64::INFINITY),
        Some(level) => level.clone(),
        None => Level::Flag(false),
    };
    rows.sort_by_cached_key(|row| {
        let keys = experiment.factors.iter().map(|factor| place(factor, row.cell.get(factor)));
        keys.collect::<Vec<Level>>()
    });
}
