//! Rounds of one cell on one target, put together.

use super::{CellAnalysis, Interval, ROUNDS_FOR_INTERVAL, Summary, better};
use crate::analysis::Better;
use crate::definition::Levels;
use crate::round::{Durability, METRICS, Purpose, Round, Verdict};
use stats::outliers::Bad;
use std::collections::{BTreeMap, BTreeSet};

/// What tells one cell of the analysis from another.
pub(crate) type Key<'a> = (&'a str, &'a Levels, &'a str, &'a str);

/// The rounds of one cell on one target by their number, and when its first was run.
pub(crate) struct Group<'a> {
    pub experiment: &'a str,
    pub cell: &'a Levels,
    pub target: &'a str,
    pub emulated: &'a str,
    pub first: u32,
    pub rounds: BTreeMap<u32, &'a Round>,
}

impl<'a> Group<'a> {
    fn of(round: &'a Round) -> Group<'a> {
        Group {
            experiment: &round.experiment,
            cell: &round.cell,
            target: &round.target,
            emulated: &round.emulated,
            first: round.order,
            rounds: BTreeMap::new(),
        }
    }

    /// A round that was run again replaces the one before, unless it failed where that measured.
    fn put(&mut self, round: &'a Round) {
        self.first = self.first.min(round.order);
        let before = self.rounds.get(&round.round);
        if round.failure.is_none() || before.is_none_or(|before| before.failure.is_some()) {
            self.rounds.insert(round.round, round);
        }
    }

    /// The rounds that measured something.
    pub fn measured(&self) -> impl Iterator<Item = &'a Round> + '_ {
        self.rounds.values().copied().filter(|round| round.failure.is_none())
    }

    /// The measured rounds without those of young brokers whose figures are left out.
    fn figures(&self, young: &BTreeSet<u32>) -> Vec<&'a Round> {
        let is_left_out = |round: &&Round| round.metrics.is_empty() && young.contains(&round.order);
        self.measured().filter(|round| !is_left_out(round)).collect()
    }

    /// A metric's values by the rounds' numbers: only finite ones.
    pub fn values(&self, metric: &str) -> BTreeMap<u32, f64> {
        self.measured()
            .filter_map(|round| Some((round.round, *round.metrics.get(metric)?)))
            .filter(|(_, value)| value.is_finite())
            .collect()
    }

    /// The metrics that any round measured.
    pub fn metrics(&self) -> BTreeSet<&'a str> {
        self.measured().flat_map(|round| round.metrics.keys()).map(String::as_str).collect()
    }
}

/// All cells' rounds of a purpose, sorted by experiment and first round.
pub(crate) fn groups(rounds: &[Round], purpose: Purpose) -> Vec<Group<'_>> {
    let mut groups: BTreeMap<Key<'_>, Group<'_>> = BTreeMap::new();
    for round in rounds.iter().filter(|round| round.purpose == purpose) {
        let key = (round.experiment.as_str(), &round.cell, &*round.target, &*round.emulated);
        groups.entry(key).or_insert_with(|| Group::of(round)).put(round);
    }
    let mut groups: Vec<Group<'_>> = groups.into_values().collect();
    groups.sort_by(|a, b| (a.experiment, a.first).cmp(&(b.experiment, b.first)));
    groups
}

/// One cell's analysis.
pub(crate) fn cell(group: &Group<'_>, young: &BTreeSet<u32>) -> CellAnalysis {
    let metrics: BTreeMap<String, Summary> = group
        .metrics()
        .into_iter()
        .filter_map(|metric| Some((metric.to_owned(), summary(metric, &group.values(metric))?)))
        .collect();
    let checked = || group.measured().filter(|round| round.verdict.checked);
    let figures = group.figures(young);
    CellAnalysis {
        experiment: group.experiment.to_owned(),
        cell: group.cell.clone(),
        target: group.target.to_owned(),
        emulated: group.emulated.to_owned(),
        deviations: once(group.rounds.values().flat_map(|round| &round.deviations)),
        rounds: figures.len(),
        young: !figures.is_empty() && figures.iter().all(|round| young.contains(&round.order)),
        failures: failures(group),
        counts: counts(group),
        verdict: verdict(group),
        rounds_checked: checked().count(),
        durability: durability(group),
        warnings: warnings(group, &metrics),
        metrics,
    }
}

/// One metric over the rounds by their numbers. None of no values.
fn summary(metric: &str, values: &BTreeMap<u32, f64>) -> Option<Summary> {
    let numbers: Vec<u32> = values.keys().copied().collect();
    let values: Vec<f64> = values.values().copied().collect();
    let bad = if better(metric) == Better::Higher { Bad::Low } else { Bad::High };
    let judged = better(metric) != Better::Neither;
    let interval = (values.len() >= ROUNDS_FOR_INTERVAL)
        .then(|| stats::summary::mean_interval(&values, 0.95).ok())
        .flatten();
    Some(Summary {
        n: values.len(),
        mean: stats::summary::mean(&values)?,
        median: stats::summary::median(&values)?,
        min: values.iter().copied().reduce(f64::min)?,
        max: values.iter().copied().reduce(f64::max)?,
        interval: interval.map(Interval::from),
        outliers: stats::outliers::outliers(&values).into_iter().map(|i| numbers[i]).collect(),
        first_round_slow: judged
            && numbers.first() == Some(&0)
            && stats::outliers::first_is_slow(&values, bad),
        values,
    })
}

fn once<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    texts.filter(|text| seen.insert(*text)).cloned().collect()
}

fn failures(group: &Group<'_>) -> Vec<(String, usize)> {
    let mut reasons: BTreeMap<&String, usize> = BTreeMap::new();
    for reason in group.rounds.values().filter_map(|round| round.failure.as_ref()) {
        *reasons.entry(reason).or_default() += 1;
    }
    reasons.into_iter().map(|(reason, rounds)| (reason.clone(), rounds)).collect()
}

fn counts(group: &Group<'_>) -> Vec<u64> {
    let mut sums = Vec::new();
    for round in group.measured() {
        sums.resize(sums.len().max(round.counts.len()), 0);
        sums.iter_mut().zip(&round.counts).for_each(|(sum, count)| *sum += count);
    }
    sums
}

/// The counts of every checked round, failed ones too: what was lost is lost though nothing was measured.
fn verdict(group: &Group<'_>) -> Verdict {
    let measured = group.measured().count();
    let mut sum = Verdict {
        checked: measured > 0 && group.measured().all(|round| round.verdict.checked),
        ..Verdict::default()
    };
    for round in group.rounds.values().filter(|round| round.verdict.checked) {
        sum.sent += round.verdict.sent;
        sum.acknowledged += round.verdict.acknowledged;
        sum.found += round.verdict.found;
        sum.lost += round.verdict.lost;
        sum.duplicated += round.verdict.duplicated;
        sum.reordered += round.verdict.reordered;
        sum.damaged += round.verdict.damaged;
    }
    sum
}

/// The least of the rounds'; `Unknown` is the largest of the type and yet the least that one may rely on.
fn durability(group: &Group<'_>) -> Durability {
    let mut least = None;
    for durability in group.measured().map(|round| round.durability) {
        if durability == Durability::Unknown {
            return Durability::Unknown;
        }
        least = Some(least.map_or(durability, |least: Durability| least.min(durability)));
    }
    least.unwrap_or(Durability::Unknown)
}

fn warnings(group: &Group<'_>, metrics: &BTreeMap<String, Summary>) -> Vec<String> {
    let mut warnings = once(group.rounds.values().flat_map(|round| &round.warnings));
    let slow: Vec<&str> = named(metrics, |summary| summary.first_round_slow);
    if !slow.is_empty() {
        warnings
            .push(format!("the first round was slow, as of something cold: {}", slow.join(", ")));
    }
    for round in group.measured().map(|round| round.round) {
        let far = named(metrics, |summary| {
            summary.outliers.contains(&round) && !(round == 0 && summary.first_round_slow)
        });
        if !far.is_empty() {
            warnings.push(format!(
                "round {} lies far outside the others: {}",
                round + 1,
                far.join(", ")
            ));
        }
    }
    warnings
}

/// The metrics that something is true of, in the order of [`METRICS`].
fn named(metrics: &BTreeMap<String, Summary>, is: impl Fn(&Summary) -> bool) -> Vec<&str> {
    METRICS
        .iter()
        .map(|(name, ..)| *name)
        .filter(|name| metrics.get(*name).is_some_and(&is))
        .collect()
}
