//! Statistics for measurements: confidence intervals, ratios of pairs, fits and tests. Pure.
//!
//! Every function says in which unit it takes and gives, where it is from, and when it refuses ([`Refused`]): a
//! number that cannot be trusted is not given. Randomness comes from a seed, so that the same rounds always give
//! the same interval. Not here: what a metric means or which rounds belong together (`experiment`).
//!
//! Start with [`summary`] and [`ratio`].

pub mod bootstrap;
pub mod counts;
pub mod effects;
pub mod line;
pub mod outliers;
pub mod patterns;
pub mod ranks;
pub mod ratio;
#[cfg(test)]
mod samples;
pub mod summary;
pub mod usl;

/// Why there is no number.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refused {
    /// Fewer values than the method needs.
    #[error("{method} needs at least {needed} {of}; there are {given}")]
    TooFew {
        /// Which method.
        method: &'static str,
        /// Of what, in the plural.
        of: &'static str,
        /// How many it needs.
        needed: usize,
        /// How many there are.
        given: usize,
    },
    /// A value that is infinite or not a number.
    #[error("{method} needs finite numbers; one is {value}")]
    NotFinite {
        /// Which method.
        method: &'static str,
        /// The value.
        value: f64,
    },
    /// A value that is zero or negative where only positive ones have a meaning.
    #[error("{method} needs numbers above zero; one is {value}")]
    NotPositive {
        /// Which method.
        method: &'static str,
        /// The value.
        value: f64,
    },
    /// Two lists that should be equally long.
    #[error("{method} needs pairs; there are {left} values on one side and {right} on the other")]
    NotPaired {
        /// Which method.
        method: &'static str,
        /// On one side.
        left: usize,
        /// On the other.
        right: usize,
    },
    /// All values are the same where their differences are needed.
    #[error("{method} needs values that differ")]
    NoSpread {
        /// Which method.
        method: &'static str,
    },
}

/// From where to where; `low <= high`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

impl Interval {
    /// Whether a value is inside or on a bound.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// The same interval under an increasing function, such as `exp`.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Interval {
        Interval { low: f(self.low), high: f(self.high) }
    }

    /// Half its width.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// Refuses fewer values than are needed.
fn at_least(
    method: &'static str,
    of: &'static str,
    given: usize,
    needed: usize,
) -> Result<(), Refused> {
    if given < needed {
        return Err(Refused::TooFew { method, of, needed, given });
    }
    Ok(())
}

/// Refuses infinities and what is not a number.
fn finite(method: &'static str, values: &[f64]) -> Result<(), Refused> {
    match values.iter().find(|value| !value.is_finite()) {
        Some(&value) => Err(Refused::NotFinite { method, value }),
        None => Ok(()),
    }
}

/// Refuses what has no logarithm.
fn positive(method: &'static str, values: &[f64]) -> Result<(), Refused> {
    finite(method, values)?;
    match values.iter().find(|value| **value <= 0.0) {
        Some(&value) => Err(Refused::NotPositive { method, value }),
        None => Ok(()),
    }
}
