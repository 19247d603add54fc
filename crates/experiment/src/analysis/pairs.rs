//! Ratios of two targets, and the noise floor that they are held against.
//!
//! The rule: a difference is *within noise* if the 95 % interval of the ratio (Student's t on the logarithms of the
//! pairs; also the printed one) includes 1, or if the ratio is within the floor. The first alone calls true A/A cells
//! within noise 19 times of 20 whatever a cell's own noise; the second can only add to that, so the rule keeps at
//! least 95 %. The floor is there for what a cell's own rounds do not show: how far two runs of the same thing
//! lie apart. Below five pairs the interval is wide and not printed, but decides all the same; a single pair that is
//! outside the floor decides nothing.

use super::cells::{Group, groups};
use super::{
    Better, Floor, Interval, Method, PairAnalysis, ROUNDS_FOR_INTERVAL, Ratio, Standing, better,
};
use crate::round::{Purpose, Round};
use stats::summary::{mean, mean_interval, t_quantile};
use std::collections::BTreeMap;

impl Floor {
    /// From the logarithms of `#b` by `#a` of all pairs. None of none.
    fn of(logs: &[f64]) -> Option<Floor> {
        let centre = mean(logs)?;
        let spread = mean(&logs.iter().map(|log| log * log).collect::<Vec<_>>())?.sqrt();
        let mut floor = Floor { n: logs.len(), ratio: centre.exp(), spread, within: 1.0 };
        floor.within = floor.of_pairs(logs.len());
        Some(floor)
    }

    /// The ratio, above 1, that the mean of so many pairs of the same target stays within 19 times of 20. The true
    /// ratio is known to be 1, so the spread is about 0 and has a degree of freedom for each pair. More pairs than
    /// were run against themselves do not lower it.
    pub fn of_pairs(&self, pairs: usize) -> f64 {
        let pairs = pairs.min(self.n).max(1) as f64;
        (t_quantile(self.n as f64, 0.95) * self.spread / pairs.sqrt()).exp()
    }

    /// One side's share of that, as a logarithm: how far so many rounds may be off beside others that are as uncertain.
    pub(crate) fn of_round(&self, rounds: usize) -> f64 {
        self.of_pairs(rounds).ln() / std::f64::consts::SQRT_2
    }
}

/// For each metric, what the same target differs from itself by: over all targets and cells that were run against
/// themselves, and for each target.
pub(crate) fn floors(rounds: &[Round]) -> (Floors, BTreeMap<String, Floors>) {
    let groups = groups(rounds, Purpose::SameTarget);
    let mut all = Logs::new();
    let mut by_target: BTreeMap<&str, Logs<'_>> = BTreeMap::new();
    for a in &groups {
        let Some(target) = a.target.strip_suffix("#a") else { continue };
        let Some(b) = groups.iter().find(|b| same_target(a, b)) else { continue };
        for metric in a.metrics() {
            let logs: Vec<f64> = paired(a, b, metric).iter().map(log).collect();
            all.entry(metric).or_default().extend(&logs);
            by_target.entry(target).or_default().entry(metric).or_default().extend(&logs);
        }
    }
    let by_target = by_target.into_iter();
    (floors_of(all), by_target.map(|(target, logs)| (target.to_owned(), floors_of(logs))).collect())
}

type Floors = BTreeMap<String, Floor>;
type Logs<'a> = BTreeMap<&'a str, Vec<f64>>;

fn floors_of(logs: Logs<'_>) -> Floors {
    let floor = |(metric, logs): (&str, Vec<f64>)| Some((metric.to_owned(), Floor::of(&logs)?));
    let mut floors: Floors = logs.into_iter().filter_map(floor).collect();
    // What runs against itself runs for a time, so its runtime shows nothing. Where work is given instead, the runtime is
    // as uncertain as the throughput.
    if let Some(throughput) = floors.get("throughput").cloned()
        && let Some(runtime) = floors.get_mut("runtime_ms")
        && throughput.spread > runtime.spread
    {
        *runtime = Floor { ratio: 1.0 / throughput.ratio, ..throughput };
    }
    floors
}

fn same_target(a: &Group<'_>, b: &Group<'_>) -> bool {
    let name = a.target.strip_suffix("#a");
    name.is_some() && b.target.strip_suffix("#b") == name && same_cell(a, b)
}

fn same_cell(a: &Group<'_>, b: &Group<'_>) -> bool {
    (a.experiment, a.cell, a.emulated) == (b.experiment, b.cell, b.emulated)
}

/// Both values of each round number that both measured, above 0: only those have a ratio.
fn paired(base: &Group<'_>, new: &Group<'_>, metric: &str) -> Vec<(f64, f64)> {
    let new = new.values(metric);
    base.values(metric)
        .into_iter()
        .filter_map(|(round, base)| Some((base, *new.get(&round)?)))
        .filter(|(base, new)| *base > 0.0 && *new > 0.0)
        .collect()
}

fn log((base, new): &(f64, f64)) -> f64 {
    (new / base).ln()
}

/// Every cell of a target other than the base beside the base's.
pub(crate) fn pairs(
    groups: &[Group<'_>],
    base: &str,
    floors: &BTreeMap<String, Floor>,
    seed: u64,
) -> Vec<PairAnalysis> {
    let others = groups.iter().filter(|group| group.target != base);
    others
        .filter_map(|new| {
            let base = groups.iter().find(|group| group.target == base && same_cell(group, new))?;
            Some(pair(base, new, floors, seed))
        })
        .collect()
}

fn pair(
    base: &Group<'_>,
    new: &Group<'_>,
    floors: &BTreeMap<String, Floor>,
    seed: u64,
) -> PairAnalysis {
    let metrics = base.metrics();
    let ratios = metrics.into_iter().filter_map(|metric| {
        let pairs = paired(base, new, metric);
        Some((metric.to_owned(), ratio(metric, &pairs, floors.get(metric), seed)?))
    });
    PairAnalysis {
        experiment: new.experiment.to_owned(),
        cell: new.cell.clone(),
        emulated: new.emulated.to_owned(),
        base: base.target.to_owned(),
        target: new.target.to_owned(),
        ratios: ratios.collect(),
    }
}

/// The ratio of pairs `(base, new)`. None of none.
fn ratio(metric: &str, pairs: &[(f64, f64)], floor: Option<&Floor>, seed: u64) -> Option<Ratio> {
    let logs: Vec<f64> = pairs.iter().map(log).collect();
    let (base, new): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let paired = stats::ratio::paired_ratio(&base, &new, seed).ok();
    let bounds = |f: fn(f64, f64) -> f64| logs.iter().copied().reduce(f).map(f64::exp);
    let printed = paired.as_ref().filter(|ratio| ratio.n >= ROUNDS_FOR_INTERVAL);
    Some(Ratio {
        n: logs.len(),
        ratio: mean(&logs)?.exp(),
        interval: printed.map(|ratio| ratio.interval.into()),
        method: match paired {
            Some(ref ratio) if ratio.bootstrapped => Method::Bca,
            _ => Method::LogT,
        },
        range: Interval { low: bounds(f64::min)?, high: bounds(f64::max)? },
        p: stats::ranks::wilcoxon_signed_rank(&logs).ok(),
        floor: floor.map(|floor| floor.of_pairs(logs.len())),
        standing: standing(metric, &logs, printed.map(|ratio| ratio.interval), floor),
    })
}

/// The rule at the head of this file.
fn standing(
    metric: &str,
    logs: &[f64],
    printed: Option<stats::Interval>,
    floor: Option<&Floor>,
) -> Standing {
    let Some(centre) = mean(logs) else { return Standing::Unknown };
    let within_floor = floor.is_some_and(|floor| centre.abs() <= floor.of_pairs(logs.len()).ln());
    let by_t = mean_interval(logs, 0.95).ok();
    let includes_one = by_t.is_some_and(|interval| interval.contains(0.0))
        || printed.is_some_and(|interval| interval.contains(1.0));
    if within_floor || includes_one {
        return Standing::WithinNoise;
    }
    let too_few = logs.len() < 2 || (floor.is_none() && logs.len() < ROUNDS_FOR_INTERVAL);
    if too_few { Standing::Unknown } else { Standing::of(metric, centre) }
}

impl Standing {
    /// Of a difference that is more than noise, as the logarithm of new by base.
    pub(crate) fn of(metric: &str, log: f64) -> Standing {
        match better(metric) {
            Better::Neither => Standing::Different,
            Better::Higher if log > 0.0 => Standing::Better,
            Better::Lower if log < 0.0 => Standing::Better,
            _ => Standing::Worse,
        }
    }
}
