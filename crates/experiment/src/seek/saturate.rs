//! The highest rate at which a promise such as `p99<=10ms` holds: up by half until it breaks, then between the last
//! that held and the first that did not, then three rounds at the answer.
//!
//! A probe that fails is run once more before it counts: one hiccup is not saturation. An answer that does not hold
//! three times in a row is lowered by 3 % and tried anew. At last the rate that failed is tried once more, once a
//! search: if it holds now, two hiccups in a row had hidden the rest, and the search goes on upwards.

use crate::compare::full_name;
use stats::line::line;
use std::fmt;
use std::str::FromStr;

/// How much more is offered while all goes well.
const RAMP: f64 = 1.5;
/// How far the answer may be below what would have failed.
const WITHIN: f64 = 1.03;
/// Rounds that confirm it.
const CONFIRMATIONS: u32 = 3;
/// Share of the offered rate that must be reached.
const REACHED: f64 = 0.99;
/// The shortest probe, seconds.
const SHORTEST_SECONDS: f64 = 5.0;
/// Records beyond the percentile that a probe should have.
const BEYOND_PERCENTILE: f64 = 100.0;

/// A promise about latency.
#[derive(Debug, Clone, PartialEq)]
pub struct Objective {
    /// The metric, such as `p99_ms`.
    pub metric: String,
    /// Its share, such as 0.99.
    pub share: f64,
    /// What it may be at most, milliseconds.
    pub at_most_ms: f64,
}

/// Why a text is no promise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a promise: write a percentile and a time, such as p99<=10ms or e2e_p50<=500us"
)]
pub struct NoObjective(String);

impl FromStr for Objective {
    type Err = NoObjective;

    fn from_str(text: &str) -> Result<Objective, NoObjective> {
        parse(text).ok_or_else(|| NoObjective(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Objective> {
    let (percentile, time) = text.split_once("<=")?;
    let metric = full_name(&percentile.trim().replace('.', ""))?;
    let digits = metric.strip_suffix("_ms")?.rsplit('_').next()?.strip_prefix('p')?;
    let share = format!("0.{digits}").parse().ok()?;
    let time = time.trim();
    let (number, scale) = [("ms", 1.0), ("us", 1e-3), ("s", 1e3)]
        .iter()
        .find_map(|(unit, scale)| Some((time.strip_suffix(unit)?, scale)))?;
    let at_most_ms = scale * number.trim().parse::<f64>().ok()?;
    (at_most_ms.is_finite() && at_most_ms > 0.0).then(|| Objective {
        metric: metric.to_owned(),
        share,
        at_most_ms,
    })
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}<={}ms", self.metric.trim_end_matches("_ms"), self.at_most_ms)
    }
}

/// What to run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probe {
    /// Records per second to offer, open loop.
    pub offered: f64,
    /// Seconds that it should take at least: so that a hundred records lie beyond the percentile.
    pub seconds: f64,
    /// For what.
    pub stage: Stage,
}

/// What a probe is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// To find a rate that fails, or one that holds.
    Ramp,
    /// To narrow the gap.
    Bisect,
    /// To confirm the answer.
    Confirm,
    /// To see whether what failed still does.
    Recheck,
}

/// What came of a probe.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Records per second that were acknowledged.
    pub achieved: f64,
    /// The promised percentile, milliseconds, from the intended sending.
    pub percentile_ms: f64,
    /// Records that failed.
    pub failed: u64,
    /// Records sent or due and not yet acknowledged, at times in seconds: at least three samples.
    pub backlog: Vec<(f64, f64)>,
}

/// Why a probe did not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failing {
    /// Records failed.
    Failures,
    /// Less than 99 % of what was offered was reached.
    NotReached,
    /// The percentile was above the promise.
    TooSlow,
    /// The backlog grew: the whole interval of its slope is above 0, or it was not sampled.
    Backlog,
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Saturation {
    /// The highest rate that held, records per second. None if none did.
    pub rate: Option<f64>,
    /// Whether it held three times in a row.
    pub confirmed: bool,
    /// The lowest rate that failed, and why. None if the highest rate that may be offered held.
    pub beyond: Option<(f64, Failing)>,
    /// Every probe, in order: rate offered, percentile in milliseconds, and why it failed if it did.
    pub probes: Vec<(f64, f64, Option<Failing>)>,
}

/// The search.
#[derive(Debug, Clone)]
pub struct Search {
    objective: Objective,
    bounds: (f64, f64),
    max_probes: usize,
    /// The rate of the next probe. Invariant: within `bounds`.
    rate: f64,
    stage: Stage,
    /// Whether the next probe repeats one that failed.
    again: bool,
    /// How often the answer has held since it was chosen.
    held: u32,
    /// Whether what failed was tried again at the end.
    rechecked: bool,
    /// The highest rate that held. Invariant: below the rate of `beyond`.
    low: Option<f64>,
    beyond: Option<(f64, Failing)>,
    done: bool,
    probes: Vec<(f64, f64, Option<Failing>)>,
}

impl Search {
    /// A search that begins at `start`, offers from `start / 1000` to `max` records per second and ends after
    /// `max_probes` whatever was found.
    ///
    /// # Panics
    /// If not `0 < start <= max`.
    pub fn new(objective: Objective, start: f64, max: f64, max_probes: usize) -> Search {
        assert!(
            0.0 < start && start <= max,
            "a search begins above 0 and not above its highest rate"
        );
        Search {
            objective,
            bounds: (start / 1000.0, max),
            max_probes,
            rate: start,
            stage: Stage::Ramp,
            again: false,
            held: 0,
            rechecked: false,
            low: None,
            beyond: None,
            done: false,
            probes: Vec::new(),
        }
    }

    /// What to run; None if the search is over.
    pub fn next(&self) -> Option<Probe> {
        let over = self.done || self.probes.len() >= self.max_probes;
        let records = BEYOND_PERCENTILE / (1.0 - self.objective.share).max(1e-6);
        (!over).then(|| Probe {
            offered: self.rate,
            seconds: SHORTEST_SECONDS.max(records / self.rate),
            stage: self.stage,
        })
    }

    /// Why an observation of the current probe does not hold, if it does not.
    pub fn judge(&self, observation: &Observation) -> Option<Failing> {
        let grows = line(&observation.backlog).map_or(true, |line| line.slope_interval.low > 0.0);
        // What is not a number holds nothing, so each is asked whether it is good.
        let reached = observation.achieved >= REACHED * self.rate;
        let fast = observation.percentile_ms <= self.objective.at_most_ms;
        match (observation.failed, reached, fast, grows) {
            (1.., ..) => Some(Failing::Failures),
            (_, false, ..) => Some(Failing::NotReached),
            (_, _, false, _) => Some(Failing::TooSlow),
            (_, _, _, true) => Some(Failing::Backlog),
            _ => None,
        }
    }

    /// Hears what came of the probe of [`Search::next`].
    pub fn take(&mut self, observation: &Observation) {
        let failing = self.judge(observation);
        self.probes.push((self.rate, observation.percentile_ms, failing));
        match failing {
            None => self.held(),
            Some(_) if self.is_searching() && !self.again => self.again = true,
            Some(failing) => self.failed(failing),
        }
    }

    /// What was found so far.
    pub fn finish(self) -> Saturation {
        Saturation {
            rate: self.low,
            confirmed: self.done && self.low.is_some(),
            beyond: self.beyond,
            probes: self.probes,
        }
    }

    fn held(&mut self) {
        self.again = false;
        self.low = Some(self.rate);
        match (self.stage, self.beyond) {
            (Stage::Confirm, _) => {
                self.held += 1;
                if self.held >= CONFIRMATIONS {
                    self.recheck();
                }
            }
            (Stage::Recheck, _) => {
                self.beyond = None;
                self.stage = Stage::Ramp;
                self.rate = (self.rate * RAMP).min(self.bounds.1);
            }
            (_, None) if self.rate < self.bounds.1 => {
                self.rate = (self.rate * RAMP).min(self.bounds.1)
            }
            (_, None) => self.confirm(self.rate),
            (_, Some((high, _))) => self.narrow(self.rate, high),
        }
    }

    fn failed(&mut self, failing: Failing) {
        self.again = false;
        self.beyond = Some((self.rate, failing));
        match (self.stage, self.low) {
            (Stage::Confirm, _) => self.lower(),
            (Stage::Recheck, _) => self.done = true,
            (_, Some(low)) => self.narrow(low, self.rate),
            (_, None) => {
                self.rate /= RAMP;
                self.done = self.rate < self.bounds.0;
            }
        }
    }

    /// An answer that did not hold again never was one.
    fn lower(&mut self) {
        let rate = self.rate / WITHIN;
        self.low = None;
        self.done = rate < self.bounds.0;
        self.confirm(rate);
    }

    /// The answer stands, unless what bounds it holds after all.
    fn recheck(&mut self) {
        match self.beyond {
            Some((beyond, _)) if !self.rechecked => {
                self.rechecked = true;
                self.stage = Stage::Recheck;
                self.rate = beyond;
            }
            _ => self.done = true,
        }
    }

    fn is_searching(&self) -> bool {
        matches!(self.stage, Stage::Ramp | Stage::Bisect)
    }

    fn narrow(&mut self, low: f64, high: f64) {
        if high / low <= WITHIN {
            return self.confirm(low);
        }
        self.stage = Stage::Bisect;
        self.rate = (low * high).sqrt();
    }

    fn confirm(&mut self, rate: f64) {
        self.stage = Stage::Confirm;
        self.rate = rate;
        self.held = 0;
    }
}
