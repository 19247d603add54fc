//! What a run's rounds say: each cell's metrics with their intervals, the ratios of two targets, how much of a
//! difference this machine makes by itself, and whether it drifted. Not here: verdicts on published claims
//! (`claims`), two runs against one another (`compare`), why a number is what it is (`explain`).

use crate::definition::Levels;
use crate::round::{Durability, Purpose, Round, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) mod cells;
pub(crate) mod drift;
pub(crate) mod pairs;

/// Rounds below which no confidence interval is given, only the range.
pub const ROUNDS_FOR_INTERVAL: usize = 5;
/// Drift of the canary above which a run's numbers are not to be compared: a share.
pub const DRIFT_LIMIT: f64 = 0.05;

/// What may be said about a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Analysis {
    /// Every cell on every target, sorted by experiment, then by the first round's order in time.
    pub cells: Vec<CellAnalysis>,
    /// Every cell of every target beside the base target, in the same order.
    pub pairs: Vec<PairAnalysis>,
    /// For each metric, what the same target differs from itself by: over all targets, for ratios of two of them.
    pub floors: BTreeMap<String, Floor>,
    /// For each target and metric, what it differs from itself by.
    #[serde(default)]
    pub floors_by_target: BTreeMap<String, BTreeMap<String, Floor>>,
    /// The canary of each target, sorted by target.
    pub drifts: Vec<Drift>,
    /// What a reader must know before the numbers, in sentences: drift, records lost, rounds that failed.
    pub banners: Vec<String>,
}

/// One cell of one experiment on one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellAnalysis {
    /// The experiment's id.
    pub experiment: String,
    /// Its factors' levels.
    pub cell: Levels,
    /// The target.
    pub target: String,
    /// Name of the emulation, or empty.
    pub emulated: String,
    /// How the target differed from what the experiment asks for.
    pub deviations: Vec<String>,
    /// Rounds that measured something.
    pub rounds: usize,
    /// Whether all of them ran on Java brokers younger than their warm-up: the cell has no ratio.
    #[serde(default)]
    pub young: bool,
    /// Why the other rounds did not, each reason once with how many rounds gave it.
    pub failures: Vec<(String, usize)>,
    /// Each metric that at least one round measured.
    pub metrics: BTreeMap<String, Summary>,
    /// Records per partition (or broker), summed over the rounds; empty where the experiment is not about that.
    pub counts: Vec<u64>,
    /// What became of the records of all rounds that were checked; `checked` only if every round was.
    pub verdict: Verdict,
    /// Rounds whose records were checked.
    pub rounds_checked: usize,
    /// What an acknowledgement was worth, at the least; `Unknown` if it was in any round.
    pub durability: Durability,
    /// What looked wrong, each once: the rounds' own warnings, then those of this analysis.
    pub warnings: Vec<String>,
}

/// In one word, what became of a cell's acknowledged records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivered {
    /// All there in every round: once, whole, in order.
    Clean,
    /// Clean in the rounds that were checked; some were not.
    PartlyChecked,
    /// Something was lost, duplicated, reordered or damaged.
    Broken,
    /// Nobody looked.
    Unchecked,
}

/// From where to where.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

/// One metric over a cell's rounds, in the metric's unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Rounds that measured it.
    pub n: usize,
    /// Mean of the rounds.
    pub mean: f64,
    /// Median of the rounds.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// 95 % confidence interval of the mean by Student's t; none below [`ROUNDS_FOR_INTERVAL`] rounds.
    pub interval: Option<Interval>,
    /// The rounds' numbers whose values lie far outside the others. They are counted all the same.
    pub outliers: Vec<u32>,
    /// Whether the first round is such an outlier, on the bad side: something was still cold.
    pub first_round_slow: bool,
    /// The values in order of the rounds' numbers, for drawing.
    pub values: Vec<f64>,
}

/// One cell of a target beside the same cell of the base target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairAnalysis {
    /// The experiment's id.
    pub experiment: String,
    /// Its factors' levels.
    pub cell: Levels,
    /// Name of the emulation, or empty.
    #[serde(default)]
    pub emulated: String,
    /// The target that is divided by.
    pub base: String,
    /// The target.
    pub target: String,
    /// For each metric that both measured.
    pub ratios: BTreeMap<String, Ratio>,
}

/// How a target's metric compares with the base's: over the rounds of one number, which ran back to back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Pairs of rounds.
    pub n: usize,
    /// Target by base: the geometric mean of the pairs' ratios.
    pub ratio: f64,
    /// The 95 % confidence interval of it; none below [`ROUNDS_FOR_INTERVAL`] pairs.
    pub interval: Option<Interval>,
    /// How the interval was made.
    pub method: Method,
    /// Smallest and largest ratio of a pair.
    pub range: Interval,
    /// Wilcoxon's signed-rank test, two-sided; none below 6 pairs.
    pub p: Option<f64>,
    /// The ratio that the same target differs from itself by, above 1: `1.03` for 3 %. None if nothing was run
    /// against itself.
    pub floor: Option<f64>,
    /// What may be said.
    pub standing: Standing,
}

/// How an interval of a ratio was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Student's t on the logarithms.
    LogT,
    /// Bias-corrected and accelerated bootstrap.
    Bca,
}

/// What may be said about a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// No larger than what the same target differs from itself by, or the interval includes 1.
    WithinNoise,
    /// Larger, and the target is better.
    Better,
    /// Larger, and the target is worse.
    Worse,
    /// Larger, in a metric that is neither good nor bad.
    Different,
    /// Too little was measured to say.
    Unknown,
}

/// What the same target differs from itself by, for one metric: over all rounds of
/// [`Purpose::SameTarget`](crate::round::Purpose::SameTarget).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// Pairs of rounds.
    pub n: usize,
    /// Ratio of `#b` to `#a`, geometric mean.
    pub ratio: f64,
    /// Spread of one pair's ratio: the root of the mean squared logarithm.
    pub spread: f64,
    /// The ratio, above 1, that a cell of as many pairs stays within 19 times of 20.
    pub within: f64,
}

/// How much what a record costs the canary (or its throughput or runtime) changed while all was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// The target.
    pub target: String,
    /// The metric that was watched.
    pub metric: String,
    /// Its values, in order of time.
    pub values: Vec<f64>,
    /// From the first third of the rounds to the last: a share, negative if it fell.
    pub change: f64,
    /// The largest difference between the thirds, as a share of the smallest.
    pub worst: f64,
    /// Whether it is above [`DRIFT_LIMIT`].
    pub beyond: bool,
}

/// Whether more of a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// More is.
    Higher,
    /// Less is.
    Lower,
    /// Neither: it explains.
    Neither,
}

/// Whether more of a metric of [`METRICS`](crate::round::METRICS) is better.
pub fn better(metric: &str) -> Better {
    const HIGHER: &[&str] = &[
        "throughput",
        "mib_per_s",
        "throughput_per_broker",
        "throughput_per_producer",
        "reached_share",
        "consumed_per_s",
        "requests_per_s",
        "fetch_mib_per_s",
        "fetch_records_per_s",
    ];
    const NEITHER: &[&str] = &[
        "records",
        "data_mib",
        "requests",
        "answer_bytes",
        "records_per_request",
        "batch_fill",
        "in_flight_used",
        "client_busy_share",
        "broker_cpu_share",
        "machine_busy_share",
        "steal_share",
        "chi_squared_p",
        "predicted_p50_ms",
        "law_ratio",
        "kills",
    ];
    match metric {
        _ if HIGHER.contains(&metric) => Better::Higher,
        _ if NEITHER.contains(&metric) => Better::Neither,
        _ => Better::Lower,
    }
}

/// What a run's rounds say. `base` is the target that the others are divided by; without one, the first by name.
/// `seed` is of the bootstrap intervals: the same seed and rounds give the same analysis.
///
/// Rounds that failed are counted, not measured; of a round that was run twice the later counts. Cells are told apart
/// by experiment, levels, target and emulation.
pub fn analyse(rounds: &[Round], base: Option<&str>, seed: u64) -> Analysis {
    analyse_settled(rounds, &BTreeSet::new(), base, seed)
}

/// As [`analyse`], without the measurements of young rounds
/// ([`young_rounds`](crate::warm_up::young_rounds), by their order). A cell that has no other rounds keeps them: it is
/// marked, and has no ratio. Delivery verdicts count every round.
pub fn analyse_settled(
    rounds: &[Round],
    young: &BTreeSet<u32>,
    base: Option<&str>,
    seed: u64,
) -> Analysis {
    let settled = without_young(rounds, young);
    let groups = cells::groups(&settled, Purpose::Cell);
    let (floors, floors_by_target) = pairs::floors(&settled);
    let base = base.or_else(|| groups.iter().map(|group| group.target).min()).unwrap_or_default();
    let has_young_canary = |drift: &Drift| {
        let canaries = rounds.iter().filter(|round| round.purpose == Purpose::Canary);
        canaries.filter(|round| round.target == drift.target).any(|r| young.contains(&r.order))
    };
    let mut analysis = Analysis {
        pairs: pairs::pairs(&groups, base, &floors, seed),
        cells: groups.iter().map(|group| cells::cell(group, young)).collect(),
        floors,
        floors_by_target,
        drifts: drift::drifts(rounds).into_iter().filter(|one| !has_young_canary(one)).collect(),
        banners: Vec::new(),
    };
    let young_cells: Vec<&CellAnalysis> = analysis.cells.iter().filter(|cell| cell.young).collect();
    let is_young = |pair: &PairAnalysis, cell: &&CellAnalysis| {
        let same = (&pair.experiment, &pair.cell, &pair.emulated)
            == (&cell.experiment, &cell.cell, &cell.emulated);
        same && (cell.target == pair.target || cell.target == pair.base)
    };
    analysis.pairs.retain(|pair| !young_cells.iter().any(|cell| is_young(pair, cell)));
    let left_out = young_banner(young, young_cells.len());
    analysis.banners = banners(&analysis);
    analysis.banners.extend(left_out);
    analysis
}

/// The rounds, those of young brokers without their measurements where others of the same cell have some.
fn without_young(rounds: &[Round], young: &BTreeSet<u32>) -> Vec<Round> {
    let key = |round: &Round| {
        let (experiment, emulated) = (round.experiment.clone(), round.emulated.clone());
        (experiment, round.cell.clone(), round.target.clone(), emulated)
    };
    let is_cell = |round: &&Round| round.purpose == Purpose::Cell && round.failure.is_none();
    let settled: BTreeSet<_> =
        rounds.iter().filter(is_cell).filter(|r| !young.contains(&r.order)).map(key).collect();
    let mut kept = rounds.to_vec();
    for round in kept.iter_mut().filter(|round| young.contains(&round.order)) {
        if round.purpose != Purpose::Cell || settled.contains(&key(round)) {
            round.metrics.clear();
            round.histograms.clear();
        }
    }
    kept
}

fn young_banner(young: &BTreeSet<u32>, cells: usize) -> Option<String> {
    (!young.is_empty()).then(|| {
        format!(
            "{} rounds ran on Java brokers younger than their warm-up ({} s a broker): their figures are left out, and \
             {cells} cells that have no other rounds are left out of ratios.",
            young.len(),
            crate::warm_up::SECONDS_PER_BROKER
        )
    })
}

/// A cell in words: `ali-producer record_bytes=100 offered=4000`.
pub(crate) fn named(experiment: &str, cell: &Levels) -> String {
    let levels = cell.iter().map(|(factor, level)| format!(" {factor}={level}"));
    experiment.to_owned() + &levels.collect::<String>()
}

/// Whether all targets drifted, in the same direction: then it was the machine and not one of them.
fn the_machine_drifted(drifts: &[Drift]) -> bool {
    let all = drifts.iter().all(|drift| drift.beyond);
    let fell = drifts.iter().filter(|drift| drift.change < 0.0).count();
    drifts.len() > 1 && all && (fell == 0 || fell == drifts.len())
}

fn banners(analysis: &Analysis) -> Vec<String> {
    let machine = the_machine_drifted(&analysis.drifts);
    let drifted = analysis.drifts.iter().filter(|drift| drift.beyond).map(|drift| {
        let subject = if machine { "The machine drifted: the canary" } else { "The canary" };
        format!(
            "{subject} on {} changed its {} by up to {:.1} % while all was run ({} % is allowed). Compare numbers of \
             {} with care.",
            drift.target,
            drift.metric,
            100.0 * drift.worst,
            100.0 * DRIFT_LIMIT,
            if machine { "this run" } else { drift.target.as_str() }
        )
    });
    let broken = analysis.cells.iter().filter(|cell| cell.delivered() == Delivered::Broken);
    let broken = broken.map(|cell| {
        let verdict = &cell.verdict;
        format!(
            "{} on {}: of {} acknowledged records {} were lost, {} duplicated, {} reordered, {} damaged.",
            named(&cell.experiment, &cell.cell),
            cell.target,
            verdict.acknowledged,
            verdict.lost,
            verdict.duplicated,
            verdict.reordered,
            verdict.damaged
        )
    });
    let failed: usize = analysis.cells.iter().flat_map(|cell| &cell.failures).map(|f| f.1).sum();
    let failed =
        (failed > 0).then(|| format!("Rounds that failed and were not measured: {failed}."));
    drifted.chain(broken).chain(failed).collect()
}

impl From<stats::Interval> for Interval {
    fn from(interval: stats::Interval) -> Interval {
        Interval { low: interval.low, high: interval.high }
    }
}

impl CellAnalysis {
    /// In one word, what became of the acknowledged records.
    pub fn delivered(&self) -> Delivered {
        let wrong = &self.verdict;
        if wrong.lost + wrong.duplicated + wrong.reordered + wrong.damaged > 0 {
            return Delivered::Broken;
        }
        match self.rounds_checked {
            0 => Delivered::Unchecked,
            checked if checked < self.rounds => Delivered::PartlyChecked,
            _ => Delivered::Clean,
        }
    }
}

impl Ratio {
    /// Whether the difference is no more than noise; false also where nothing can be said.
    pub fn within_noise(&self) -> bool {
        self.standing == Standing::WithinNoise
    }
}
