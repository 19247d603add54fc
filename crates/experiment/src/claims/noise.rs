//! How far a row may be off for reasons that are not its own: what claims hold differences of rows against. Not here:
//! the intervals of rows of many rounds (`analysis`).
//!
//! The range of few rounds is no interval: one round has none at all, and two hold what they are drawn from between
//! them half of the time. Three things say more, and the widest counts:
//!
//! - what the target differs from itself by, for as many rounds as the row has ([`Floor::of_pairs`]);
//! - how far rounds of one cell lie apart in the row's own experiment, over all of its cells that have several;
//! - if it has none, the same in the whole run, over cells whose clusters are of the same kind, one broker or several:
//!   what is usual among its experiments.
//!
//! Where none of them is known, a single round decides nothing.

use super::rows::IS_GIVEN;
use crate::analysis::{Analysis, CellAnalysis, Floor, ROUNDS_FOR_INTERVAL, Summary};
use crate::catalogue;
use crate::round::METRICS;
use stats::summary::{mean, median, t_quantile};
use std::collections::BTreeMap;

/// Metrics that are throughput in other words: what it differs from itself by, they do.
const THROUGHPUT: [&str; 7] = [
    "mib_per_s",
    "throughput_per_broker",
    "throughput_per_producer",
    "scaling_efficiency",
    "reached_share",
    "runtime_ms",
    "requests_per_s",
];

/// How far rounds lie from the middle of their cell: squared logarithms and degrees of freedom, over several cells.
#[derive(Debug, Clone, Copy, Default)]
struct Spread {
    squares: f64,
    freedom: f64,
}

impl Spread {
    fn add(&mut self, summary: &Summary) {
        let logs: Vec<f64> = summary.values.iter().map(|value| value.ln()).collect();
        // What has no logarithm has no ratio either.
        let Some(centre) = mean(&logs).filter(|centre| centre.is_finite()) else { return };
        self.squares += logs.iter().map(|log| (log - centre).powi(2)).sum::<f64>();
        self.freedom += (logs.len() - 1) as f64;
    }

    /// How far the middle of so many rounds may be off, as a logarithm, 19 times of 20. None if no cell had two.
    fn reach(self, rounds: usize) -> Option<f64> {
        let deviation = (self.squares / self.freedom).sqrt();
        (self.freedom > 0.0)
            .then(|| t_quantile(self.freedom, 0.95) * deviation / (rounds.max(1) as f64).sqrt())
    }
}

/// What is known of one target's noise in a run.
pub(super) struct Noise<'a> {
    floors: Option<&'a BTreeMap<String, Floor>>,
    /// By experiment and metric.
    own: BTreeMap<(&'a str, &'a str), Spread>,
    /// By whether the cluster has several brokers and metric, then by experiment.
    alike: BTreeMap<(bool, &'a str), BTreeMap<&'a str, Spread>>,
}

impl<'a> Noise<'a> {
    /// Of a target in an analysed run.
    pub(super) fn of(analysis: &'a Analysis, target: &str) -> Noise<'a> {
        let mut noise = Noise {
            floors: analysis.floors_by_target.get(target),
            own: BTreeMap::new(),
            alike: BTreeMap::new(),
        };
        for cell in analysis.cells.iter().filter(|cell| cell.target == target) {
            let several = has_several_brokers(cell);
            for (metric, summary) in &cell.metrics {
                noise.own.entry((&cell.experiment, metric)).or_default().add(summary);
                let alike = noise.alike.entry((several, metric)).or_default();
                alike.entry(&cell.experiment).or_default().add(summary);
            }
        }
        noise
    }

    /// How far a cell's few rounds may be off by what other cells of its experiment show, as a logarithm; 0 if there
    /// are rounds enough for an interval, or nothing is known.
    pub(super) fn of_few(&self, cell: &CellAnalysis, metric: &str) -> f64 {
        let rounds = cell.metrics.get(metric).map_or(0, |summary| summary.n);
        if rounds >= ROUNDS_FOR_INTERVAL || is_pinned(cell, metric) {
            return 0.0;
        }
        self.own
            .get(&(cell.experiment.as_str(), metric))
            .and_then(|own| own.reach(rounds))
            .unwrap_or(0.0)
    }

    /// How far a cell's metrics may be off beside those of another cell, as logarithms: all that are not given.
    /// Infinite for a single round of which nothing is known.
    pub(super) fn of_cell(&self, cell: &CellAnalysis) -> BTreeMap<String, f64> {
        let several = has_several_brokers(cell);
        let names = METRICS.iter().map(|(name, ..)| *name);
        names
            .filter(|name| !IS_GIVEN.contains(name))
            .map(|name| (name.to_owned(), self.beside_others(cell, name, several)))
            .collect()
    }

    fn beside_others(&self, cell: &CellAnalysis, metric: &str, several: bool) -> f64 {
        if is_pinned(cell, metric) {
            return 0.0;
        }
        let rounds = cell.rounds.max(1);
        let of_round = |floor: &Floor| floor.of_round(rounds);
        let floor = self.floors.and_then(|floors| floors.get(metric)).map(of_round);
        if rounds >= ROUNDS_FOR_INTERVAL {
            return floor.unwrap_or(0.0);
        }
        let own = self.own.get(&(cell.experiment.as_str(), metric));
        if let Some(own) = own.and_then(|own| own.reach(rounds)) {
            return own.max(floor.unwrap_or(0.0));
        }
        let floor = floor.or_else(|| self.floor_of_another(metric).map(of_round));
        let usual = self.usual(metric, several, rounds);
        match (floor, usual.or_else(|| self.usual(stands_for(metric), several, rounds))) {
            (None, None) if rounds == 1 => f64::INFINITY,
            (floor, usual) => floor.unwrap_or(0.0).max(usual.unwrap_or(0.0)),
        }
    }

    /// The middle of what experiments on clusters of the same kind show.
    fn usual(&self, metric: &str, several: bool, rounds: usize) -> Option<f64> {
        let spreads = self.alike.get(&(several, metric))?.values();
        median(&spreads.filter_map(|spread| spread.reach(rounds)).collect::<Vec<_>>())
    }

    /// For a metric without a floor: that of what it follows from; else the widest of its unit.
    fn floor_of_another(&self, metric: &str) -> Option<&'a Floor> {
        let floors = self.floors?;
        let unit = |name: &str| METRICS.iter().find(|known| known.0 == name).map(|known| known.1);
        let wanted = unit(metric).filter(|unit| !unit.is_empty());
        floors.get(stands_for(metric)).or_else(|| {
            let alike = floors.iter().filter(|(name, _)| wanted.is_some() && unit(name) == wanted);
            alike.map(|(_, floor)| floor).max_by(|a, b| a.spread.total_cmp(&b.spread))
        })
    }
}

fn stands_for(metric: &str) -> &str {
    if THROUGHPUT.contains(&metric) { "throughput" } else { metric }
}

/// Whether a cell took all that was offered, so that its rate is the offer's and not its own.
fn is_pinned(cell: &CellAnalysis, metric: &str) -> bool {
    const NEARLY_ALL: f64 = 0.98;
    let is_rate = metric == "throughput" || THROUGHPUT.contains(&metric);
    IS_GIVEN.contains(&metric)
        || (is_rate && cell.metrics.get("reached_share").is_some_and(|s| s.min >= NEARLY_ALL))
}

fn has_several_brokers(cell: &CellAnalysis) -> bool {
    let workload = || {
        let experiment = catalogue::experiment(&cell.experiment)?;
        let nothing = toml::Table::new();
        catalogue::workload(experiment, catalogue::ProfileName::Quick, &nothing, &cell.cell).ok()
    };
    workload().is_some_and(|workload| workload.brokers > 1)
}
