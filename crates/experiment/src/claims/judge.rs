//! Numbers with intervals against bounds, and many of them together. Not here: which numbers (`kinds`).

use super::{Estimate, Outcome, Share};

/// One number that a claim depends on.
#[derive(Debug, Clone)]
pub(super) struct Check {
    /// Of which rows it is, such as `record_bytes=100`.
    pub label: String,
    /// The number.
    pub estimate: Estimate,
    /// Number of rounds behind the estimate; 0 if the interval includes other noise, or there is none.
    pub rounds: usize,
}

/// What a number must be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub at_least: Option<f64>,
    pub at_most: Option<f64>,
}

/// How one check stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Holds,
    Fails,
    Open,
}

impl Bounds {
    pub(super) fn at_least(least: f64) -> Bounds {
        Bounds { at_least: Some(least), at_most: None }
    }

    pub(super) fn at_most(most: f64) -> Bounds {
        Bounds { at_least: None, at_most: Some(most) }
    }

    pub(super) fn standing(self, estimate: Estimate) -> Standing {
        let least = self.at_least.unwrap_or(f64::NEG_INFINITY);
        let most = self.at_most.unwrap_or(f64::INFINITY);
        if estimate.value.is_nan() {
            Standing::Open
        } else if estimate.low >= least && estimate.high <= most {
            Standing::Holds
        } else if estimate.high < least || estimate.low > most {
            Standing::Fails
        } else {
            Standing::Open
        }
    }

    fn words(self) -> String {
        match (self.at_least, self.at_most) {
            (Some(least), Some(most)) => format!("{} to {}", digits(least), digits(most)),
            (Some(least), None) => format!("at least {}", digits(least)),
            (None, Some(most)) => format!("at most {}", digits(most)),
            (None, None) => "anything".to_owned(),
        }
    }
}

/// Checks together, with a sentence; `what` says what the numbers are.
pub(super) fn judge(
    what: &str,
    checks: &[Check],
    bounds: Bounds,
    share: Share,
) -> (Outcome, String) {
    if checks.is_empty() {
        return (Outcome::NotTestable, format!("{what}: not measured"));
    }
    if share == Share::Mean && checks.len() > 1 {
        let mean = geometric_mean(checks);
        let text =
            format!("{what}: mean {}, {}; claimed {}", shown(mean), spread(checks), bounds.words());
        return (outcome(bounds.standing(mean)), text);
    }
    let standings: Vec<_> = checks.iter().map(|check| bounds.standing(check.estimate)).collect();
    let count = |wanted| standings.iter().filter(|standing| **standing == wanted).count();
    let (holds, fails, all) = (count(Standing::Holds), count(Standing::Fails), checks.len());
    let needed = if share == Share::Most { all / 2 + 1 } else { all };
    let standing = match () {
        () if holds >= needed => Standing::Holds,
        () if all - fails < needed => Standing::Fails,
        () => Standing::Open,
    };
    let deciding = || checks.iter().zip(&standings).filter(|(_, own)| **own == standing);
    let alone = standing != Standing::Open && {
        let rounds: Vec<usize> = deciding().map(|(check, _)| check.rounds).collect();
        rounds == [1]
    };
    let standing = if alone { Standing::Open } else { standing };
    let text = match checks {
        [one] => format!("{what}{}: {}; claimed {}", of(one), shown(one.estimate), bounds.words()),
        _ => {
            let most = if share == Share::Most { " for most" } else { "" };
            format!(
                "{what}: {holds} of {all} hold, {fails} fail, {}; claimed {}{most}",
                spread(checks),
                bounds.words()
            )
        }
    };
    let text = if alone { text + "; one round alone decides nothing" } else { text };
    (outcome(standing), text)
}

fn of(check: &Check) -> String {
    if check.label.is_empty() { String::new() } else { format!(" ({})", check.label) }
}

/// The smallest and the largest of several.
fn spread(checks: &[Check]) -> String {
    let by_value = |a: &&Check, b: &&Check| a.estimate.value.total_cmp(&b.estimate.value);
    let least = checks.iter().min_by(by_value).expect("there are checks");
    let most = checks.iter().max_by(by_value).expect("there are checks");
    let one = |check: &Check| format!("{}{}", shown(check.estimate), of(check));
    format!("from {} to {}", one(least), one(most))
}

pub(super) fn outcome(standing: Standing) -> Outcome {
    match standing {
        Standing::Holds => Outcome::Reproduced,
        Standing::Fails => Outcome::Contradicted,
        Standing::Open => Outcome::WithinNoise,
    }
}

/// The worst of several outcomes: one that fails decides, then one that cannot be tested, then one that is open.
pub(super) fn together(outcomes: impl Iterator<Item = Outcome>) -> Outcome {
    let rank = |outcome: &Outcome| match outcome {
        Outcome::Contradicted => 3,
        Outcome::NotTestable => 2,
        Outcome::WithinNoise => 1,
        Outcome::Reproduced => 0,
    };
    outcomes.max_by_key(rank).unwrap_or(Outcome::NotTestable)
}

fn geometric_mean(checks: &[Check]) -> Estimate {
    let n = checks.len() as f64;
    let log = checks.iter().map(|check| check.estimate.value.ln()).sum::<f64>() / n;
    let half = |bound: fn(Estimate) -> f64| {
        let squares =
            checks.iter().map(|check| (bound(check.estimate) / check.estimate.value).ln().powi(2));
        squares.sum::<f64>().sqrt() / n
    };
    around(log, half(|e| e.low), half(|e| e.high))
}

/// An estimate from its logarithm and how far that may be off downwards and upwards.
pub(super) fn around(log: f64, down: f64, up: f64) -> Estimate {
    Estimate { value: log.exp(), low: (log - down).exp(), high: (log + up).exp() }
}

/// One estimate by another that was measured apart from it, off by `noise` at least, a logarithm from 0.
pub(super) fn ratio(above: Estimate, below: Estimate, noise: f64) -> Estimate {
    // What has no logarithm may be anything.
    let off = |from: f64, to: f64| Some((to / from).ln()).filter(|off| !off.is_nan());
    let off = |from: f64, to: f64| off(from, to).unwrap_or(f64::INFINITY);
    let down = off(above.low, above.value).hypot(off(below.value, below.high));
    let up = off(above.value, above.high).hypot(off(below.low, below.value));
    around((above.value / below.value).ln(), down.max(noise), up.max(noise))
}

/// A number with its interval, if it has one.
pub(super) fn shown(estimate: Estimate) -> String {
    if estimate.high - estimate.low <= 1e-9 * estimate.value.abs() {
        return digits(estimate.value);
    }
    format!("{} [{}, {}]", digits(estimate.value), digits(estimate.low), digits(estimate.high))
}

/// Four significant digits; whole numbers whole, large ones with commas.
pub(super) fn digits(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return number.to_string();
    }
    let before = number.abs().log10().floor() as i32 + 1;
    let text = format!("{number:.*}", (4 - before).clamp(0, 8) as usize);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        with_commas(&text)
    }
}

/// Commas between thousands, from five digits on.
fn with_commas(whole: &str) -> String {
    let digits = whole.trim_start_matches('-').len();
    if digits < 5 {
        return whole.to_owned();
    }
    let mut text = String::new();
    for (at, letter) in whole.chars().enumerate() {
        let left = whole.len() - at;
        if letter != '-' && left.is_multiple_of(3) && !text.is_empty() && !text.ends_with('-') {
            text.push(',');
        }
        text.push(letter);
    }
    text
}
