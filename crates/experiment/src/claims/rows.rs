//! What claims are tested on: rows of factors and metrics, published or measured. Not here: the tests.

use super::noise::Noise;
use super::{Filter, Want};
use crate::analysis::{Analysis, Summary};
use crate::catalogue;
use crate::definition::{Experiment, Level, Levels};
use crate::explain;
use crate::round::METRICS;
use crate::workload::Kind;
use std::collections::BTreeMap;

/// Metrics that follow from what a cell asks for. A canary that runs for a time differs from itself in them by as much as
/// in throughput, which says nothing of a cell that reads so many records.
pub(super) const IS_GIVEN: [&str; 6] = [
    "records",
    "data_mib",
    "max_over_mean",
    "coefficient_of_variation",
    "empty_partitions",
    "chi_squared_p",
];

/// A number and where it may lie. Invariant: `low` ≤ `value` ≤ `high`; all three are one for published numbers. What is
/// measured is not negative, and neither is `low`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Not less, with 95 % confidence. Where there are too few rounds for an interval: the smallest round, or less by
    /// how far rounds of one cell lie apart in its experiment.
    pub low: f64,
    /// Not more.
    pub high: f64,
}

impl Estimate {
    /// A number without an interval.
    pub fn point(value: f64) -> Estimate {
        Estimate { value, low: value, high: value }
    }

    /// So many times as much; `factor` is positive.
    pub fn times(self, factor: f64) -> Estimate {
        Estimate { value: self.value * factor, low: self.low * factor, high: self.high * factor }
    }
}

/// One cell: what it was set to and what was measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row {
    /// The factors.
    pub cell: Levels,
    /// The metrics, by the names of [`METRICS`].
    pub metrics: BTreeMap<String, Estimate>,
    /// The largest value of each metric in any round; none for published rows.
    pub worst: BTreeMap<String, f64>,
    /// Records per partition, from the first.
    pub counts: Vec<u64>,
    /// Rounds that measured it; 0 for published rows.
    pub rounds: usize,
    /// For each metric, how far it may be off beside that of another row of the target, as a logarithm from 0. What is
    /// not there is exact.
    pub noise: BTreeMap<String, f64>,
}

impl Row {
    /// How far a metric may be off beside another row's, as a logarithm.
    pub(super) fn noise(&self, metric: &str) -> f64 {
        self.noise.get(metric).copied().unwrap_or(0.0)
    }
}

/// All rows of a target, or the published ones.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rows {
    /// Whether they are the published ones.
    pub published: bool,
    /// By experiment.
    pub experiments: BTreeMap<String, Vec<Row>>,
}

impl Rows {
    /// The rows of an experiment, or of the one whose runs it shows.
    pub fn of(&self, experiment: &str) -> &[Row] {
        let shown = || catalogue::experiment(experiment)?.same_runs_as.as_deref();
        let own = self.experiments.get(experiment).filter(|rows| !rows.is_empty());
        let own = own.or_else(|| self.experiments.get(shown()?));
        own.map(Vec::as_slice).unwrap_or_default()
    }

    /// The published rows of these experiments, with what follows from their numbers.
    pub fn published<'a>(experiments: impl IntoIterator<Item = &'a Experiment>) -> Rows {
        let rows = |experiment: &Experiment| {
            let mut rows: Vec<Row> =
                experiment.published.iter().map(|row| published_row(experiment, row)).collect();
            rows.iter_mut().for_each(|row| predict(experiment, row));
            derive(experiment, &mut rows);
            (experiment.id.clone(), rows)
        };
        let experiments = experiments.into_iter().map(rows).collect();
        Rows { published: true, experiments }
    }

    /// A target's rows of an analysed run.
    pub fn measured(analysis: &Analysis, target: &str) -> Rows {
        let noise = Noise::of(analysis, target);
        let mut experiments: BTreeMap<String, Vec<Row>> = BTreeMap::new();
        for cell in analysis.cells.iter().filter(|cell| cell.target == target) {
            let metrics = cell
                .metrics
                .iter()
                .map(|(name, summary)| (name.clone(), estimate(summary, noise.of_few(cell, name))));
            let mut row = Row {
                cell: cell.cell.clone(),
                metrics: metrics.collect(),
                worst: cell.metrics.iter().map(|(name, all)| (name.clone(), all.max)).collect(),
                counts: cell.counts.clone(),
                rounds: cell.rounds,
                noise: noise.of_cell(cell),
            };
            allow_for_whole_records(&mut row);
            experiments.entry(cell.experiment.clone()).or_default().push(row);
        }
        for (id, rows) in &mut experiments {
            if let Some(experiment) = catalogue::experiment(id) {
                derive(experiment, rows);
            }
        }
        Rows { published: false, experiments }
    }
}

/// A metric with its interval; without one its range, and no less than `few`, a logarithm, on both sides.
fn estimate(summary: &Summary, few: f64) -> Estimate {
    let value = summary.mean;
    let mut estimate = match summary.interval {
        Some(interval) => Estimate { value, low: interval.low, high: interval.high },
        None => Estimate {
            value,
            low: summary.min.min(value * (-few).exp()),
            high: summary.max.max(value * few.exp()),
        },
    };
    // An interval of a few wide values may reach below what can be.
    if summary.min >= 0.0 {
        estimate.low = estimate.low.max(0.0);
    }
    estimate
}

/// A window holds a whole number of records, so a share of few records may be off by one of them.
fn allow_for_whole_records(row: &mut Row) {
    let Some(records) = row.metrics.get("records").map(|records| records.value) else { return };
    if let Some(share) = row.metrics.get_mut("reached_share").filter(|_| records > 0.0) {
        share.low = (share.low - 1.0 / records).max(0.0);
        share.high += 1.0 / records;
    }
}

fn published_row(experiment: &Experiment, row: &Levels) -> Row {
    let is_metric = |name: &str| METRICS.iter().any(|(metric, _, _)| *metric == name);
    let numbers =
        row.iter().filter(|(name, _)| is_metric(name) && !experiment.factors.contains(name));
    let metrics =
        numbers.filter_map(|(name, level)| Some((name.clone(), Estimate::point(level.number()?))));
    Row {
        cell: catalogue::factors_of(experiment, row),
        metrics: metrics.collect(),
        counts: row.get("counts").map(counts).unwrap_or_default(),
        ..Row::default()
    }
}

fn counts(level: &Level) -> Vec<u64> {
    level.to_string().split_whitespace().filter_map(|count| count.parse().ok()).collect()
}

/// What the client's queue law predicts of a published row, where less was taken than was offered. Measured rows bring
/// that along, by the settings that they were run with.
fn predict(experiment: &Experiment, row: &mut Row) {
    let full = catalogue::ProfileName::Full;
    let Ok(workload) = catalogue::workload(experiment, full, &toml::Table::new(), &row.cell) else {
        return;
    };
    let Some(throughput) = row.metrics.get("throughput").map(|rate| rate.value) else { return };
    if workload.kind != Kind::Produce || workload.offered < 1.1 * throughput {
        return;
    }
    let predicted = explain::predicted_p50_ms(
        workload.buffer_bytes as f64,
        f64::from(workload.batch_bytes),
        f64::from(workload.record_bytes),
        throughput,
    );
    fill(row, "predicted_p50_ms", Estimate::point(predicted));
}

/// Fills in what follows from the other numbers of a row, and from the rows beside it.
pub fn derive(experiment: &Experiment, rows: &mut [Row]) {
    for row in rows.iter_mut() {
        derive_row(experiment, row);
    }
    let brokers = |row: &Row| number(row, "brokers");
    let per_broker = |row: &Row| row.metrics.get("throughput_per_broker").copied();
    let fewest = rows.iter().filter(|row| brokers(row).is_some() && per_broker(row).is_some());
    let fewest = fewest.min_by(|a, b| brokers(a).partial_cmp(&brokers(b)).expect("numbers"));
    let Some(base) = fewest.and_then(per_broker) else { return };
    for row in rows.iter_mut() {
        if let (Some(_), Some(own)) = (brokers(row), per_broker(row)) {
            fill(row, "scaling_efficiency", own.times(1.0 / base.value));
        }
    }
}

fn derive_row(experiment: &Experiment, row: &mut Row) {
    let metric = |row: &Row, name: &str| row.metrics.get(name).copied();
    if let (Some(median), Some(predicted)) =
        (metric(row, "p50_ms"), metric(row, "predicted_p50_ms"))
    {
        fill(row, "law_ratio", median.times(1.0 / predicted.value));
    }
    if let (Some(records), Some(runtime)) = (number(row, "records"), metric(row, "runtime_ms")) {
        let per_s = |ms: f64| records * 1000.0 / ms;
        let rate = Estimate {
            value: per_s(runtime.value),
            low: per_s(runtime.high),
            high: per_s(runtime.low),
        };
        fill(row, "throughput", rate);
    }
    if let (Some(share), Some(brokers), Some(client)) = (
        metric(row, "broker_cpu_share"),
        metric(row, "broker_cpu_s_per_mrec").filter(|cpu| cpu.value > 0.0),
        metric(row, "client_cpu_s_per_mrec"),
    ) {
        let between = ["gateway_cpu_s_per_mrec", "proxy_cpu_s_per_mrec"]
            .iter()
            .filter_map(|name| Some(metric(row, name)?.value))
            .sum::<f64>();
        let others = (client.value + between) / brokers.value;
        fill(row, "machine_cpu_share", share.times(1.0 + others));
    }
    let full = catalogue::ProfileName::Full;
    let workload = catalogue::workload(experiment, full, &toml::Table::new(), &row.cell);
    let (Ok(workload), Some(throughput)) = (workload, row.metrics.get("throughput").copied())
    else {
        return;
    };
    if row.cell.contains_key("brokers") {
        fill(row, "throughput_per_broker", throughput.times(1.0 / f64::from(workload.brokers)));
    }
    if row.cell.contains_key("producers") && workload.producers > 0 {
        fill(row, "throughput_per_producer", throughput.times(1.0 / f64::from(workload.producers)));
    }
    if workload.offered > 0.0 {
        fill(row, "reached_share", throughput.times(1.0 / workload.offered));
    }
    if workload.record_bytes > 0 {
        let mib = f64::from(workload.record_bytes) / 1_048_576.0;
        fill(row, "mib_per_s", throughput.times(mib));
    }
}

fn fill(row: &mut Row, metric: &str, estimate: Estimate) {
    row.metrics.entry(metric.to_owned()).or_insert(estimate);
}

/// A factor's number, or the one that follows from several, or a metric's.
pub(super) fn number(row: &Row, factor: &str) -> Option<f64> {
    if factor == "offered_mib_per_s" {
        return Some(number(row, "offered")? * number(row, "record_bytes")? / 1_048_576.0);
    }
    match row.cell.get(factor) {
        Some(level) => level.number(),
        None => row.metrics.get(factor).map(|metric| metric.value),
    }
}

/// Whether a row is as a filter wants. A factor that the row does not have is not.
pub(super) fn accepts(filter: &Filter, row: &Row) -> bool {
    filter.iter().all(|(factor, want)| match want {
        Want::One(level) => row.cell.get(factor) == Some(level),
        Want::Any(levels) => row.cell.get(factor).is_some_and(|own| levels.contains(own)),
        Want::Between(between) => number(row, factor).is_some_and(|own| {
            between.at_least.is_none_or(|least| own >= least)
                && between.at_most.is_none_or(|most| own <= most)
        }),
    })
}

/// The rows that a filter accepts, grouped by some factors.
pub(super) fn groups<'a>(
    rows: &'a [Row],
    filter: &Filter,
    by: &[String],
) -> BTreeMap<Vec<Option<Level>>, Vec<&'a Row>> {
    let mut groups: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| accepts(filter, row)) {
        let key = by.iter().map(|factor| row.cell.get(factor).cloned()).collect::<Vec<_>>();
        groups.entry(key).or_default().push(row);
    }
    groups
}
