//! The highest rate at which a promise such as `p99<=10ms` holds: up by half until it breaks, then between the last
//! that held and the first that did not, then longer rounds at the answer.
//!
//! On the way one stall must not count as saturation: a probe that fails is run again, twice where it was only slow. That is
//! lenient, and the confirmation is not: three rounds, twice as long, must keep the promise **together** (their records
//! in one heap: a stall counts by what it delays), and most of them by themselves. Where the two disagree two more
//! rounds decide, up to seven. Nor may all probes at this rate or below have been slow together. So a machine that
//! stalls now and then gets its rate, and a rate that breaks the promise in the long run is not confirmed. One that is not confirmed is lowered, by 3 % and then ever more, six times at most;
//! between the two the search goes on. At last the rate that failed is tried once more: if it holds now, stalls had
//! hidden the rest, and the search goes on upwards.

use crate::compare::full_name;
use stats::line::line;
use stats::summary::mean_interval;
use std::fmt;
use std::str::FromStr;

/// How much more is offered while all goes well.
const RAMP: f64 = 1.5;
/// How far the answer may be below what would have failed.
const WITHIN: f64 = 1.03;
/// Probes of which none holds where a rate was too slow: each may have met a stall.
const TRIES: usize = 3;
/// Probes of which none holds where a rate was not reached, or records failed.
const TRIES_UNREACHED: usize = 2;
/// Rounds that confirm an answer, at least.
const CONFIRMATIONS: usize = 3;
/// Rounds after which an answer that is neither confirmed nor refuted is given up.
const CONFIRMATIONS_MAX: usize = 7;
/// How much longer they are than probes.
const CONFIRMATION_LONGER: f64 = 2.0;
/// Give up after this many refuted candidates: the next one would be confirmed by luck.
const REFUTED_MAX: u32 = 6;
/// How often what failed is tried once more when all else is found.
const RECHECKS: u32 = 3;
/// Share of the offered rate that must be reached.
const REACHED: f64 = 0.99;
/// Share of the offered rate by which a backlog must grow a second to count: less is rounding of the pace, which a line
/// through quiet samples finds to be more than nothing.
const GROWING: f64 = 0.001;
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
    /// Records that were due.
    pub records: u64,
    /// Of these, those that took longer than promised or were never sent.
    pub slow: u64,
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
    /// The backlog grew: the whole interval of its slope is above a thousandth of the rate, or it was not sampled.
    Backlog,
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Saturation {
    /// The highest rate that was confirmed; else the highest below what failed at which a probe held, records per second.
    /// None if none did.
    pub rate: Option<f64>,
    /// What confirmed it. None if it is not confirmed.
    pub confirmation: Option<Confirmation>,
    /// The lowest rate that failed, and why. None if the highest rate that may be offered held.
    pub beyond: Option<(f64, Failing)>,
    /// Every probe, in order: rate offered, percentile in milliseconds, and why it failed if it did.
    pub probes: Vec<(f64, f64, Option<Failing>)>,
}

/// Rounds that kept a promise together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confirmation {
    /// How many.
    pub rounds: usize,
    /// How many of them kept it by themselves.
    pub held: usize,
    /// Share of all their records that took longer than promised.
    pub slow_share: f64,
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
    /// What came of the probes at this rate, in this stage.
    tries: Vec<(Observation, Option<Failing>)>,
    /// The highest rate at which a probe held and that was not confirmed yet. Invariant: between `best` and `beyond`.
    low: Option<f64>,
    /// The highest rate that was confirmed, and by what. Invariant: below `beyond`.
    best: Option<(f64, Confirmation)>,
    /// The lowest rate that failed. Invariant: above `low`.
    beyond: Option<(f64, Failing)>,
    /// Answers that were refuted while none was confirmed. Each lowers the next twice as far as the one before.
    refuted: u32,
    /// How often what failed was tried again at the end.
    rechecks: u32,
    done: bool,
    /// Every probe: its rate, how many seconds it took, and what share of its records was slow.
    heard: Vec<(f64, f64, f64)>,
    probes: Vec<(f64, f64, Option<Failing>)>,
}

impl Observation {
    fn slow_share(&self) -> f64 {
        self.slow as f64 / self.records.max(1) as f64
    }
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
            tries: Vec::new(),
            low: None,
            best: None,
            beyond: None,
            refuted: 0,
            rechecks: 0,
            done: false,
            heard: Vec::new(),
            probes: Vec::new(),
        }
    }

    /// What to run; None if the search is over.
    pub fn next(&self) -> Option<Probe> {
        let over = self.done || self.probes.len() >= self.max_probes;
        let records = BEYOND_PERCENTILE / self.may_be_slow();
        let seconds = SHORTEST_SECONDS.max(records / self.rate);
        let longer = if self.stage == Stage::Confirm { CONFIRMATION_LONGER } else { 1.0 };
        (!over).then_some(Probe {
            offered: self.rate,
            seconds: longer * seconds,
            stage: self.stage,
        })
    }

    /// Share of records that may take longer than promised.
    fn may_be_slow(&self) -> f64 {
        (1.0 - self.objective.share).max(1e-6)
    }

    /// Why an observation of the current probe does not hold, if it does not.
    pub fn judge(&self, observation: &Observation) -> Option<Failing> {
        let grown = GROWING * self.rate;
        let grows = line(&observation.backlog).map_or(true, |line| line.slope_interval.low > grown);
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
        let seconds = self.next().map_or(0.0, |probe| probe.seconds);
        self.heard.push((self.rate, seconds, observation.slow_share()));
        self.probes.push((self.rate, observation.percentile_ms, failing));
        self.tries.push((observation.clone(), failing));
        if self.stage == Stage::Confirm {
            return self.confirming();
        }
        let unreached = |failing: Option<Failing>| failing <= Some(Failing::NotReached);
        let all_unreached = self.tries.iter().all(|(_, failing)| unreached(*failing));
        let enough = if all_unreached { TRIES_UNREACHED } else { TRIES };
        match failing {
            None => self.held(),
            Some(failing) if self.tries.len() >= enough => self.failed(failing),
            Some(_) => {}
        }
    }

    /// What was found so far.
    pub fn finish(self) -> Saturation {
        let most = self.beyond.map_or(f64::INFINITY, |(rate, _)| rate);
        let held =
            self.probes.iter().filter(|(rate, _, failing)| failing.is_none() && *rate < most);
        let held = held.map(|(rate, ..)| *rate).max_by(f64::total_cmp);
        Saturation {
            rate: self.best.map(|(rate, _)| rate).or(held),
            confirmation: self.best.map(|(_, confirmation)| confirmation),
            beyond: self.beyond,
            probes: self.probes,
        }
    }

    fn held(&mut self) {
        if self.stage == Stage::Recheck {
            self.beyond = None;
        }
        self.low = Some(self.rate);
        self.advance();
    }

    fn failed(&mut self, failing: Failing) {
        self.beyond = Some((self.rate, failing));
        if self.stage == Stage::Recheck {
            self.done = true;
            return;
        }
        self.advance();
    }

    /// One more round at the answer was run.
    fn confirming(&mut self) {
        let rounds = self.tries.len();
        let held = self.tries.iter().filter(|(_, failing)| failing.is_none()).count();
        let failing = self.together();
        let none_of_two = rounds == 2 && held == 0;
        let undecided = rounds < CONFIRMATIONS
            || (2 * held == rounds || failing.is_none() != (2 * held > rounds));
        match failing {
            Some(failing) if failing == Failing::Failures || none_of_two => self.refuted(failing),
            _ if undecided && rounds < CONFIRMATIONS_MAX => {}
            None if 2 * held > rounds => {
                let slow_share = self.slow_share();
                self.best = Some((self.rate, Confirmation { rounds, held, slow_share }));
                self.low = None;
                self.advance();
            }
            failing => self.refuted(failing.unwrap_or(Failing::TooSlow)),
        }
    }

    /// Share of the records of all rounds at the answer that were slow.
    fn slow_share(&self) -> f64 {
        let sum =
            |of: fn(&Observation) -> u64| self.tries.iter().map(|(one, _)| of(one)).sum::<u64>();
        sum(|one| one.slow) as f64 / sum(|one| one.records).max(1) as f64
    }

    /// The same over the time of all probes at this rate or below. What stalls now and then does so at any rate: who
    /// tries rate after rate would find rounds without a stall in the end.
    fn slow_share_up_to_here(&self) -> f64 {
        let up_to = || self.heard.iter().filter(|(rate, ..)| *rate <= self.rate);
        let seconds: f64 = up_to().map(|(_, seconds, _)| seconds).sum();
        up_to().map(|(_, of, share)| of * share).sum::<f64>() / seconds
    }

    /// Why the rounds at the answer, taken as one, do not hold, if they do not. The backlog is judged by the rounds' slopes:
    /// within a round its samples hang together.
    fn together(&self) -> Option<Failing> {
        let all = || self.tries.iter().map(|(observation, _)| observation);
        let achieved = all().map(|one| one.achieved).sum::<f64>() / self.tries.len() as f64;
        let slopes = all().map(|one| line(&one.backlog).map_or(f64::INFINITY, |line| line.slope));
        let grows = match mean_interval(&slopes.collect::<Vec<_>>(), 0.95) {
            Ok(interval) => interval.low > GROWING * self.rate,
            // One round is judged by itself.
            Err(_) => self.tries.iter().any(|(_, failing)| *failing == Some(Failing::Backlog)),
        };
        let reached = achieved >= REACHED * self.rate;
        match () {
            () if all().any(|one| one.failed > 0) => Some(Failing::Failures),
            () if !reached => Some(Failing::NotReached),
            () if self.slow_share().max(self.slow_share_up_to_here()) > self.may_be_slow() => {
                Some(Failing::TooSlow)
            }
            () if grows => Some(Failing::Backlog),
            () => None,
        }
    }

    /// The answer was none. Without a confirmed rate below it there is nothing to search between, and it is lowered.
    fn refuted(&mut self, failing: Failing) {
        self.beyond = Some((self.rate, failing));
        self.low = None;
        if self.best.is_some() {
            return self.advance();
        }
        let rate = self.rate / WITHIN.powi(1 << self.refuted);
        self.refuted += 1;
        self.done = rate < self.bounds.0 || self.refuted >= REFUTED_MAX;
        self.go(Stage::Confirm, rate);
    }

    /// Chooses the next rate by what held and what failed so far.
    fn advance(&mut self) {
        let confirmed = self.best.map(|(rate, _)| rate);
        match (self.low.or(confirmed), self.beyond) {
            (None, _) => {
                self.done = self.rate / RAMP < self.bounds.0;
                self.go(Stage::Ramp, self.rate / RAMP);
            }
            (Some(low), None) if low < self.bounds.1 => {
                self.go(Stage::Ramp, (low * RAMP).min(self.bounds.1));
            }
            (Some(low), Some((high, _))) if high / low > WITHIN + 1e-9 => {
                self.go(Stage::Bisect, (low * high).sqrt());
            }
            (Some(low), _) if self.low.is_some() => self.go(Stage::Confirm, low),
            (_, Some((beyond, _))) if self.rechecks < RECHECKS => {
                self.rechecks += 1;
                self.go(Stage::Recheck, beyond);
            }
            _ => self.done = true,
        }
    }

    fn go(&mut self, stage: Stage, rate: f64) {
        (self.stage, self.rate) = (stage, rate);
        self.tries.clear();
    }
}
