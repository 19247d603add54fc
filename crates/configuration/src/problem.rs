//! What is said to the operator about a configuration: warnings, and problems that keep the
//! broker from starting. Words only; the checks are in `layers` and `broker_config`.

use std::fmt;

use super::source::Source;

/// Something that the operator should hear about, and that does not prevent the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// No such key.
    UnknownKey {
        /// The key as it was written.
        key: String,
        /// Where.
        source: Source,
        /// The key that was perhaps meant.
        near: Option<&'static str>,
    },
    /// Said in two places that have different ranks.
    SaidTwice {
        /// The key.
        key: String,
        /// The place that wins.
        winner: Source,
        /// The other place.
        beaten: Source,
    },
    /// More replicas are asked for than there are brokers.
    BeyondBrokers {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What happens instead.
        why: String,
    },
    /// A key without effect here.
    WithoutEffect {
        /// The key.
        key: String,
        /// Where it was set.
        source: Source,
        /// Why it has none.
        why: &'static str,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::UnknownKey { key, source, near: Some(near) } => {
                write!(f, "{source}: unknown key {key}; did you mean {near}?")
            }
            Warning::UnknownKey { key, source, near: None } => {
                write!(f, "{source}: unknown key {key}")
            }
            Warning::SaidTwice { key, winner, beaten } => {
                write!(f, "{key} is set by {winner}, which wins, and by {beaten}")
            }
            Warning::BeyondBrokers { key, value, why } => write!(f, "{key}={value}: {why}"),
            Warning::WithoutEffect { key, source, why } => {
                write!(f, "{source}: {key} has no effect: {why}")
            }
        }
    }
}

/// One thing that is wrong with the values, in words that say what to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key.
    pub key: String,
    /// Its value, unless it is secret.
    pub value: Option<String>,
    /// Where it was said; `None` for a default or a value that is missing.
    pub source: Option<Source>,
    /// What is wrong, or what would be accepted.
    pub reason: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.source {
            write!(f, "{source}: ")?;
        }
        f.write_str(&self.key)?;
        if let Some(value) = &self.value {
            write!(f, "={value}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// Why a broker cannot start with these values: all problems at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidConfiguration(pub Vec<Problem>);

impl fmt::Display for InvalidConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for InvalidConfiguration {}
