//! Reading values as Kafka does: spaces around them do not count, booleans in any case.
//!
//! A refusal names the value, the key, and what would be accepted.

use super::table::{ConfigKey, ConfigType, TOPIC_CONFIGS, find};
use std::collections::BTreeMap;

/// Which values of a type are accepted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range {
    /// Every one.
    Any,
    /// Numbers from here on.
    AtLeast(i64),
    /// Numbers from the first to the second, both included.
    Between(i64, i64),
    /// As `Between`, or the third.
    BetweenOr(i64, i64, i64),
    /// Numbers from 0 to 1.
    AtMostFraction,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// A list of any of these texts.
    Subset(&'static [&'static str]),
    /// `*`, or a list of `partition:broker`.
    ThrottledReplicas,
}

/// Why configurations are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No such key.
    #[error("Unknown topic config name: {0}")]
    UnknownKey(String),
    /// Not a value of the key's type, or out of its range.
    #[error("Invalid value {value} for configuration {key}: {expected}")]
    Invalid {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What would be accepted.
        expected: String,
    },
    /// Two values that cannot both hold.
    #[error("min.compaction.lag.ms ({min}) is larger than max.compaction.lag.ms ({max})")]
    CompactionLag {
        /// `min.compaction.lag.ms`.
        min: i64,
        /// `max.compaction.lag.ms`.
        max: i64,
    },
    /// Tiered storage was asked for.
    #[error("Tiered storage is not available: remote.storage.enable can only be false")]
    TieredStorage,
}

/// A value, read.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of type boolean.
    Boolean(bool),
    /// Of type int or long.
    Number(i64),
    /// Of type double.
    Fraction(f64),
    /// Of type string.
    Text(String),
    /// Of type list.
    List(Vec<String>),
}

impl Value {
    /// The number of a value of type int or long.
    pub fn number(&self) -> i64 {
        match self {
            Value::Number(number) => *number,
            other => unreachable!("{other:?} is not of type int or long"),
        }
    }
}

/// The elements of a list as it is written: separated by commas, spaces around them dropped, an
/// empty text for an empty list.
pub fn split_list(text: &str) -> Vec<String> {
    let text = text.trim();
    if text.is_empty() {
        return Vec::new();
    }
    text.split(',').map(|element| element.trim().to_owned()).collect()
}

impl ConfigKey {
    fn invalid(&self, value: &str, expected: impl Into<String>) -> ConfigError {
        ConfigError::Invalid { key: self.name, value: value.into(), expected: expected.into() }
    }

    /// Reads a value and checks its range.
    pub fn parse(&self, text: &str) -> Result<Value, ConfigError> {
        let value = self.parse_type(text)?;
        self.check_range(text.trim(), &value)?;
        Ok(value)
    }

    fn parse_type(&self, text: &str) -> Result<Value, ConfigError> {
        let trimmed = text.trim();
        let no_number =
            || self.invalid(trimmed, format!("Not a number of type {}", self.kind.name()));
        match self.kind {
            ConfigType::Boolean => match trimmed.to_ascii_lowercase().as_str() {
                "true" => Ok(Value::Boolean(true)),
                "false" => Ok(Value::Boolean(false)),
                _ => Err(self.invalid(trimmed, "Expected true or false")),
            },
            ConfigType::String => Ok(Value::Text(trimmed.to_owned())),
            ConfigType::Int => {
                trimmed.parse::<i32>().map(|n| Value::Number(n.into())).map_err(|_| no_number())
            }
            ConfigType::Long => trimmed.parse().map(Value::Number).map_err(|_| no_number()),
            ConfigType::Double => trimmed.parse().map(Value::Fraction).map_err(|_| no_number()),
            ConfigType::List => Ok(Value::List(split_list(trimmed))),
        }
    }

    fn check_range(&self, text: &str, value: &Value) -> Result<(), ConfigError> {
        match (self.range, value) {
            (Range::AtLeast(low), Value::Number(n)) if *n < low => {
                Err(self.invalid(text, format!("Value must be at least {low}")))
            }
            (Range::Between(low, high), Value::Number(n)) if !(low..=high).contains(n) => {
                Err(self.invalid(text, format!("Value must be between {low} and {high}")))
            }
            (Range::BetweenOr(low, high, or), Value::Number(n))
                if !(low..=high).contains(n) && *n != or =>
            {
                let expected = format!("Value must be between {low} and {high} or equal to {or}");
                Err(self.invalid(text, expected))
            }
            (Range::AtMostFraction, Value::Fraction(x)) if !(0.0..=1.0).contains(x) => {
                Err(self.invalid(text, "Value must be between 0 and 1"))
            }
            (Range::OneOf(names), Value::Text(name)) if !names.contains(&name.as_str()) => {
                Err(self.invalid(text, format!("String must be one of: {}", names.join(", "))))
            }
            (Range::Subset(names), Value::List(list)) => self.check_subset(names, list),
            (Range::ThrottledReplicas, Value::List(list)) => self.check_throttled(text, list),
            _ => Ok(()),
        }
    }

    fn check_subset(&self, names: &[&str], list: &[String]) -> Result<(), ConfigError> {
        match list.iter().find(|element| !names.contains(&element.as_str())) {
            Some(bad) => {
                Err(self.invalid(bad, format!("String must be one of: {}", names.join(", "))))
            }
            None => Ok(()),
        }
    }

    fn check_throttled(&self, text: &str, list: &[String]) -> Result<(), ConfigError> {
        let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let pair =
            |element: &String| element.split_once(':').is_some_and(|(p, b)| number(p) && number(b));
        if list.iter().map(String::as_str).eq(["*"]) || list.iter().all(pair) {
            return Ok(());
        }
        Err(self.invalid(text, "Expected '*' or a list of partition:broker"))
    }
}

/// Checks all the values that a topic has of its own, one by one and against each other.
pub fn validate(values: &BTreeMap<String, String>) -> Result<(), ConfigError> {
    for name in values.keys() {
        if find(name).is_none() {
            return Err(ConfigError::UnknownKey(name.clone()));
        }
    }
    let mut parsed = BTreeMap::new();
    for key in TOPIC_CONFIGS {
        if let Some(text) = values.get(key.name) {
            parsed.insert(key.name, key.parse(text)?);
        }
    }
    let number = |name: &str| {
        let default = || find(name).expect("the table has it").parse_default().number();
        parsed.get(name).map_or_else(default, Value::number)
    };
    let (min, max) = (number("min.compaction.lag.ms"), number("max.compaction.lag.ms"));
    if min > max {
        return Err(ConfigError::CompactionLag { min, max });
    }
    if parsed.get("remote.storage.enable") == Some(&Value::Boolean(true)) {
        return Err(ConfigError::TieredStorage);
    }
    Ok(())
}

impl ConfigKey {
    /// The default, read. An expert's key has none: an empty text, which is no value of its type.
    pub fn parse_default(&self) -> Value {
        if self.internal {
            return Value::Text(String::new());
        }
        self.parse(self.default).expect("defaults are valid values")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(key: &str, value: &str) -> String {
        let values = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        validate(&values).map_or_else(|error| error.to_string(), |()| "ok".into())
    }

    #[test]
    fn every_default_is_valid_and_the_table_is_sorted() {
        for pair in TOPIC_CONFIGS.windows(2) {
            assert!(pair[0].name < pair[1].name, "{} before {}", pair[0].name, pair[1].name);
        }
        for key in TOPIC_CONFIGS.iter().filter(|key| !key.internal) {
            key.parse_default();
            assert_eq!(find(key.name).map(|found| found.name), Some(key.name));
            assert!(key.doc.ends_with('.'), "{}", key.name);
        }
    }

    #[test]
    fn values_are_read_as_kafka_reads_them() {
        for (key, value) in [
            ("max.message.bytes", " 5 "),
            ("preallocate", "TRUE"),
            ("preallocate", " true "),
            ("cleanup.policy", " compact , delete "),
            ("cleanup.policy", ""),
            ("cleanup.policy", "delete,delete"),
            ("min.cleanable.dirty.ratio", "1e-1"),
            ("segment.bytes", "+2000000"),
            ("retention.bytes", "-2"),
            ("local.retention.ms", "999999999999"),
            ("remote.log.copy.disable", "true"),
            ("follower.replication.throttled.replicas", "0:1,1:2"),
            ("follower.replication.throttled.replicas", "*"),
            ("internal.segment.bytes", "1000"),
            ("compression.gzip.level", "-1"),
            ("durability", "page-cache"),
        ] {
            assert_eq!(refused(key, value), "ok", "{key}={value}");
        }
    }

    #[test]
    fn refusals_name_what_would_be_accepted() {
        for (key, value, word) in [
            ("nope", "1", "Unknown topic config name: nope"),
            ("retention.ms", "abc", "Not a number of type LONG"),
            ("retention.ms", "", "Not a number of type LONG"),
            ("retention.ms", "-2", "at least -1"),
            ("segment.bytes", "99999999999", "Not a number of type INT"),
            ("segment.bytes", "1e3", "Not a number of type INT"),
            ("segment.bytes", "1048575", "at least 1048576"),
            ("cleanup.policy", "compact,foo", "Invalid value foo for configuration cleanup.policy"),
            ("compression.type", "GZIP", "String must be one of: uncompressed, zstd"),
            ("compression.gzip.level", "0", "between 1 and 9 or equal to -1"),
            ("compression.lz4.level", "18", "between 1 and 17"),
            ("min.cleanable.dirty.ratio", "1.5", "between 0 and 1"),
            ("min.cleanable.dirty.ratio", "NaN", "between 0 and 1"),
            ("preallocate", "yes", "true or false"),
            ("leader.replication.throttled.replicas", "foo", "'*' or a list"),
            ("remote.storage.enable", "true", "Tiered storage is not available"),
            ("flush.messages", "9223372036854775808", "Not a number of type LONG"),
            ("message.format.version", "2.0", "Unknown topic config name"),
            ("durability", "never", "fsync, page-cache"),
        ] {
            let text = refused(key, value);
            assert!(text.contains(word), "{key}={value}: {text}");
        }
    }

    #[test]
    fn a_minimum_lag_above_the_maximum_is_refused() {
        let values = [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")];
        let values = values.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        assert_eq!(validate(&values), Err(ConfigError::CompactionLag { min: 10, max: 5 }));
    }
}
