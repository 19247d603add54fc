//! Which settings serve a goal: a design in which every two levels meet, what each level does by itself, the best
//! candidates against one another with ever more rounds, and at last the winner beside the base in pairs. A setting is
//! only recommended if it beats the base by more than noise.
//!
//! What records are worth is never traded away: settings that durability hangs on cannot be factors.

use super::design::covering;
use crate::analysis::{Better, Interval, better};
use crate::definition::{Level, Levels};
use crate::round::METRICS;
use serde::{Deserialize, Serialize};
use stats::effects::{Model, least_squares};
use stats::ratio::paired_ratio;
use stats::summary::{mean, median};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Settings that decide what an acknowledgement is worth.
pub const INVARIANT: &[&str] = &[
    "acks",
    "idempotence",
    "replication",
    "min_isr",
    "broker_settings.durability",
    "broker_settings.min.insync.replicas",
    "broker_settings.unclean.leader.election.enable",
];

/// Metrics that show how a setting works.
const MECHANISMS: &[&str] =
    &["batch_fill", "records_per_request", "in_flight_used", "blocked_ms", "broker_cpu_s_per_mrec"];
/// Trials beyond the number of effects, so that effects have an interval.
const SPARE_TRIALS: usize = 6;
/// Candidates after the design, half of them by effects and half as measured.
const CANDIDATES: usize = 8;
/// Pairs of winner and base at the end.
const FINAL_PAIRS: usize = 6;
/// Change of a mechanism's metric that is worth a sentence: a share.
const NOTICED: f64 = 0.1;

/// Something to vary. The first level is the base, as it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct Factor {
    /// A field of [`Workload`](crate::workload::Workload), or `broker_settings.KEY`.
    pub name: String,
    /// What it may be, at least one.
    pub levels: Vec<Level>,
}

/// Why there is no search.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdviseError {
    /// The goal is not a metric of which more or less is better.
    #[error("{0:?} is not a metric that can be better or worse")]
    Goal(String),
    /// A factor on which durability hangs.
    #[error("{0} decides what an acknowledged record is worth, and is not traded for anything")]
    Invariant(String),
    /// A factor without levels, or twice.
    #[error("factor {0} needs levels, and must be there once")]
    Factor(String),
    /// Nothing to choose.
    #[error("no factor has two levels")]
    Nothing,
}

/// What a level does by itself, beside its factor's base level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The factor.
    pub factor: String,
    /// The level.
    pub level: Level,
    /// The goal's metric by what it is at the base level, all else alike.
    pub ratio: f64,
    /// 95 % interval of it.
    pub interval: Interval,
}

/// The winner beside the base, over pairs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// Pairs.
    pub n: usize,
    /// The goal's metric, winner by base.
    pub ratio: f64,
    /// 95 % interval of it.
    pub interval: Interval,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The goal's metric.
    pub goal: String,
    /// All factors at their base levels.
    pub base: Levels,
    /// What is recommended: the winner, or the base if nothing beats it by more than noise.
    pub best: Levels,
    /// How far the winner is ahead of the base; none if the base won, or too many trials failed.
    pub gain: Option<Gain>,
    /// Each level's effect, strongest first; empty if too many trials failed.
    pub effects: Vec<Effect>,
    /// Settings with which a trial failed.
    pub failed: Vec<Levels>,
    /// Trials that were run.
    pub trials: usize,
    /// Why, in sentences with the numbers.
    pub because: Vec<String>,
}

/// Metrics of one trial by name.
pub type Metrics = BTreeMap<String, f64>;

/// Level numbers, one a factor.
type Row = Vec<usize>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Design,
    Halving,
    Final,
    Done,
}

/// The search.
#[derive(Debug, Clone)]
pub struct Advisor {
    goal: String,
    factors: Vec<Factor>,
    stage: Stage,
    /// What is still to be run in this stage. Invariant: empty only when done.
    queue: VecDeque<Row>,
    /// What was run, in order; no metrics for a trial that failed.
    results: Vec<(Row, Option<Metrics>)>,
    /// Where in `results` the last stage began.
    final_from: usize,
    candidates: Vec<Row>,
    /// Rounds of each candidate in this part of the halving.
    rounds: usize,
    model: Option<Model>,
    seed: u64,
}

impl Advisor {
    /// A search for the levels of `factors` that make `goal`, a metric such as `throughput` or `p99_ms`, best.
    ///
    /// # Errors
    /// If the goal or a factor cannot be used.
    pub fn new(goal: &str, factors: Vec<Factor>, seed: u64) -> Result<Advisor, AdviseError> {
        check(goal, &factors)?;
        let counts: Vec<usize> = factors.iter().map(|factor| factor.levels.len()).collect();
        let effects: usize = counts.iter().map(|count| count - 1).sum();
        let mut rows = covering(&counts, 1 + effects + SPARE_TRIALS, seed);
        // Shuffled, so that a machine that changes meanwhile is no effect of a factor.
        fastrand::Rng::with_seed(seed).shuffle(&mut rows);
        Ok(Advisor {
            goal: goal.to_owned(),
            factors,
            stage: Stage::Design,
            queue: rows.into(),
            results: Vec::new(),
            final_from: 0,
            candidates: Vec::new(),
            rounds: 1,
            model: None,
            seed,
        })
    }

    /// The settings to try next; None if the search is over.
    pub fn next(&self) -> Option<Levels> {
        self.queue.front().map(|row| self.levels(row))
    }

    /// Trials of this stage that are still to be run.
    pub fn left(&self) -> usize {
        self.queue.len()
    }

    /// Hears what came of the trial of [`Advisor::next`]: its metrics, or nothing if it failed or its records were not
    /// all delivered.
    pub fn take(&mut self, result: Option<Metrics>) {
        let Some(row) = self.queue.pop_front() else { return };
        let good = |metrics: &Metrics| {
            metrics.get(&self.goal).is_some_and(|value| value.is_finite() && *value > 0.0)
        };
        self.results.push((row, result.filter(good)));
        while self.queue.is_empty() && self.stage != Stage::Done {
            self.advance();
        }
    }

    /// What was found so far.
    pub fn finish(self) -> Advice {
        let base = vec![0; self.factors.len()];
        let winner = self.candidates.first().cloned().unwrap_or_else(|| base.clone());
        let gain = self.gain(&winner);
        let better = gain.as_ref().is_some_and(|gain| self.is_better(gain));
        let failed: BTreeSet<&Row> = self
            .results
            .iter()
            .filter(|(_, result)| result.is_none())
            .map(|(row, _)| row)
            .collect();
        Advice {
            goal: self.goal.clone(),
            base: self.levels(&base),
            best: self.levels(if better { &winner } else { &base }),
            effects: self.effects(),
            failed: failed.into_iter().map(|row| self.levels(row)).collect(),
            trials: self.results.len(),
            because: self.because(&winner, gain.as_ref(), better),
            gain,
        }
    }

    fn levels(&self, row: &Row) -> Levels {
        let set = self.factors.iter().zip(row);
        set.map(|(factor, level)| (factor.name.clone(), factor.levels[*level].clone())).collect()
    }

    /// The logarithm of the goal's metric, turned so that more is better.
    fn score(&self, metrics: &Metrics) -> f64 {
        let log = metrics[&self.goal].ln();
        if better(&self.goal) == Better::Higher { log } else { -log }
    }

    fn advance(&mut self) {
        match self.stage {
            Stage::Design => {
                self.model = self.fit();
                self.candidates = self.chosen();
                self.halve();
            }
            Stage::Halving => {
                let keep = self.candidates.len().div_ceil(2);
                self.rank();
                self.candidates.truncate(keep);
                self.rounds *= 2;
                self.halve();
            }
            Stage::Final | Stage::Done => self.stage = Stage::Done,
        }
    }

    /// Runs the candidates that are left once more, or the only one beside the base.
    fn halve(&mut self) {
        if self.candidates.len() > 1 {
            self.stage = Stage::Halving;
            for _ in 0..self.rounds {
                self.queue.extend(self.candidates.iter().cloned());
            }
            return;
        }
        self.stage = Stage::Final;
        self.final_from = self.results.len();
        let base = vec![0; self.factors.len()];
        let Some(winner) = self.candidates.first().filter(|winner| **winner != base) else {
            return;
        };
        for pair in 0..FINAL_PAIRS {
            // One first, then the other: what changes steadily meanwhile cancels.
            let (one, other) = if pair % 2 == 0 { (&base, winner) } else { (winner, &base) };
            self.queue.extend([one.clone(), other.clone()]);
        }
    }

    /// One for the constant, then one for each level but the base of each factor.
    fn columns(&self, row: &Row) -> Vec<f64> {
        let of = |(factor, level): (&Factor, &usize)| {
            (1..factor.levels.len()).map(|i| f64::from(u8::from(i == *level))).collect::<Vec<_>>()
        };
        std::iter::once(1.0).chain(self.factors.iter().zip(row).flat_map(of)).collect()
    }

    fn fit(&self) -> Option<Model> {
        let measured =
            self.results.iter().filter_map(|(row, result)| Some((row, result.as_ref()?)));
        let (rows, scores): (Vec<Vec<f64>>, Vec<f64>) =
            measured.map(|(row, metrics)| (self.columns(row), self.score(metrics))).unzip();
        least_squares(&rows, &scores).ok()
    }

    /// The best by effects, that with one factor at another level, and the best as measured; none that failed.
    fn chosen(&self) -> Vec<Row> {
        let failed =
            |row: &Row| self.results.iter().any(|(run, result)| run == row && result.is_none());
        let mut by_effects = self.by_effects();
        by_effects.retain(|row| !failed(row));
        by_effects.truncate(CANDIDATES / 2);
        let mut measured: Vec<(f64, &Row)> = self
            .results
            .iter()
            .filter_map(|(row, result)| Some((self.score(result.as_ref()?), row)))
            .collect();
        measured.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut chosen = by_effects;
        for row in measured.into_iter().map(|(_, row)| row) {
            if chosen.len() < CANDIDATES && !chosen.contains(row) {
                chosen.push(row.clone());
            }
        }
        chosen
    }

    /// The best row by the model and those that differ from it in one factor, best first.
    fn by_effects(&self) -> Vec<Row> {
        let Some(model) = &self.model else { return Vec::new() };
        let value = |row: &Row| model.value(&self.columns(row));
        let mut best = vec![0; self.factors.len()];
        let mut rows = Vec::new();
        // Effects add up, so each factor's best level can be chosen by itself.
        for factor in 0..best.len() {
            let with = |level: usize| {
                let mut row = best.clone();
                row[factor] = level;
                row
            };
            let levels = 0..self.factors[factor].levels.len();
            best = levels
                .map(with)
                .max_by(|a, b| value(a).total_cmp(&value(b)))
                .unwrap_or(best.clone());
        }
        for (factor, of) in self.factors.iter().enumerate() {
            for level in (0..of.levels.len()).filter(|level| *level != best[factor]) {
                let mut row = best.clone();
                row[factor] = level;
                rows.push(row);
            }
        }
        rows.push(best);
        rows.sort_by(|a, b| value(b).total_cmp(&value(a)));
        rows
    }

    /// Sorts the candidates by what they gave in all trials, best first; one that failed goes last.
    fn rank(&mut self) {
        let mean_of = |row: &Row| {
            let runs: Option<Vec<f64>> = self
                .results
                .iter()
                .filter(|(run, _)| run == row)
                .map(|(_, result)| result.as_ref().map(|metrics| self.score(metrics)))
                .collect();
            runs.and_then(|scores| mean(&scores)).unwrap_or(f64::NEG_INFINITY)
        };
        let mut ranked: Vec<(f64, Row)> =
            self.candidates.iter().map(|row| (mean_of(row), row.clone())).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        self.candidates = ranked.into_iter().map(|(_, row)| row).collect();
    }

    /// A metric of the final trials of a row, in order.
    fn final_values(&self, row: &Row, metric: &str) -> Vec<f64> {
        let finals = if self.stage == Stage::Done { &self.results[self.final_from..] } else { &[] };
        let of = finals.iter().filter(|(run, _)| run == row);
        of.filter_map(|(_, result)| result.as_ref()?.get(metric).copied()).collect()
    }

    /// None if a final trial failed: then the lists differ in length, or the winner is not to be had.
    fn gain(&self, winner: &Row) -> Option<Gain> {
        let base = self.final_values(&vec![0; self.factors.len()], &self.goal);
        let new = self.final_values(winner, &self.goal);
        let paired =
            paired_ratio(&base, &new, self.seed).ok().filter(|_| new.len() == FINAL_PAIRS)?;
        Some(Gain { n: paired.n, ratio: paired.ratio, interval: paired.interval.into() })
    }

    fn is_better(&self, gain: &Gain) -> bool {
        match better(&self.goal) {
            Better::Higher => gain.interval.low > 1.0,
            _ => gain.interval.high < 1.0,
        }
    }

    fn effects(&self) -> Vec<Effect> {
        let Some(model) = &self.model else { return Vec::new() };
        let levels = self.factors.iter().flat_map(|factor| {
            factor.levels.iter().skip(1).map(move |level| (factor.name.clone(), level.clone()))
        });
        let turned = better(&self.goal) != Better::Higher;
        let mut effects: Vec<Effect> = levels
            .enumerate()
            .map(|(i, (factor, level))| {
                let log = model.coefficients[i + 1];
                let by = model.interval(i + 1, 0.95);
                let (log, low, high) =
                    if turned { (-log, -by.high, -by.low) } else { (log, by.low, by.high) };
                let interval = Interval { low: low.exp(), high: high.exp() };
                Effect { factor, level, ratio: log.exp(), interval }
            })
            .collect();
        effects.sort_by(|a, b| b.ratio.ln().abs().total_cmp(&a.ratio.ln().abs()));
        effects
    }

    fn because(&self, winner: &Row, gain: Option<&Gain>, better: bool) -> Vec<String> {
        let goal = &self.goal;
        let mut because = vec![match gain {
            Some(gain) => format!(
                "{}: {goal} is {:.3} times that of the base, 95 % interval {:.3} to {:.3}, over {} pairs.",
                if better {
                    "The winner beats the base"
                } else {
                    "No setting beats the base by more than noise"
                },
                gain.ratio,
                gain.interval.low,
                gain.interval.high,
                gain.n
            ),
            None => "Nothing was found to be better than the base.".to_owned(),
        }];
        let clear = |effect: &&Effect| effect.interval.low > 1.0 || effect.interval.high < 1.0;
        because.extend(self.effects().iter().filter(clear).map(|effect| {
            let base = self.factors.iter().find(|factor| factor.name == effect.factor);
            let base = base.map(|factor| factor.levels[0].to_string()).unwrap_or_default();
            format!(
                "{} {} instead of {base}: {goal} times {:.2} ({:.2} to {:.2}), all else alike.",
                effect.factor,
                effect.level,
                effect.ratio,
                effect.interval.low,
                effect.interval.high
            )
        }));
        because.extend(MECHANISMS.iter().filter_map(|metric| self.mechanism(winner, metric)));
        because
    }

    /// How a metric that shows the mechanism differs between base and winner.
    fn mechanism(&self, winner: &Row, metric: &str) -> Option<String> {
        let unit = METRICS.iter().find(|known| known.0 == metric).map_or("", |known| known.1);
        let base = median(&self.final_values(&vec![0; self.factors.len()], metric))?;
        let new = median(&self.final_values(winner, metric))?;
        let changed = (new - base).abs() > NOTICED * base.abs().max(new.abs());
        let space = if unit.is_empty() { "" } else { " " };
        changed.then(|| format!("{metric}: {base:.3}{space}{unit} with the base, {new:.3}{space}{unit} with the winner."))
    }
}

fn check(goal: &str, factors: &[Factor]) -> Result<(), AdviseError> {
    let known = METRICS.iter().any(|metric| metric.0 == goal) && better(goal) != Better::Neither;
    if !known {
        return Err(AdviseError::Goal(goal.to_owned()));
    }
    let mut seen = BTreeSet::new();
    for factor in factors {
        if INVARIANT.contains(&factor.name.as_str()) {
            return Err(AdviseError::Invariant(factor.name.clone()));
        }
        if factor.levels.is_empty() || !seen.insert(&factor.name) {
            return Err(AdviseError::Factor(factor.name.clone()));
        }
    }
    let choice = factors.iter().any(|factor| factor.levels.len() > 1);
    if choice { Ok(()) } else { Err(AdviseError::Nothing) }
}
