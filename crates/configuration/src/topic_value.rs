//! Checks the values that one topic has of its own, one by one and against each other.
//!
//! A refusal names the value, the key, and what would be accepted, in Kafka's sentence.

use std::collections::BTreeMap;

use super::key::{Key, Status};
use super::{table, value};

/// Why the configuration of a topic is refused. The protocol's answer is `INVALID_CONFIG`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTopicConfig {
    /// No such key.
    #[error("Unknown topic config name: {0}")]
    UnknownKey(String),
    /// The value is not of the key's type, or out of its range.
    #[error("Invalid value {value} for configuration {key}: expected {accepted}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What would be accepted.
        accepted: String,
    },
    /// Two values that cannot both hold.
    #[error("min.compaction.lag.ms ({min}) is larger than max.compaction.lag.ms ({max})")]
    CompactionLag {
        /// `min.compaction.lag.ms`.
        min: i64,
        /// `max.compaction.lag.ms`.
        max: i64,
    },
    /// The key has no other value than its default here.
    #[error("{key} can only be {default}: {why}")]
    Unsupported {
        /// The key.
        key: &'static str,
        /// Its default.
        default: &'static str,
        /// Why.
        why: &'static str,
    },
}

/// The values in the form in which they are kept and shown: trimmed, lists without blanks.
pub fn validate_topic(
    values: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, InvalidTopicConfig> {
    let mut checked = BTreeMap::new();
    for (name, text) in values {
        let unknown = || InvalidTopicConfig::UnknownKey(name.clone());
        let key = table::find_topic(name).ok_or_else(unknown)?;
        checked.insert(name.clone(), check(key, text)?);
    }
    let number = |name: &str| {
        let default = || table::find_topic(name)?.default?.parse().ok();
        let own = checked.get(name).and_then(|text| text.parse::<i64>().ok());
        own.or_else(default).expect("the table holds the key and its default is a number")
    };
    let (min, max) = (number("min.compaction.lag.ms"), number("max.compaction.lag.ms"));
    if min > max {
        return Err(InvalidTopicConfig::CompactionLag { min, max });
    }
    Ok(checked)
}

fn check(key: &'static Key, text: &str) -> Result<String, InvalidTopicConfig> {
    let checked = value::check(key, text).map_err(|accepted| InvalidTopicConfig::Value {
        key: key.name,
        value: text.trim().to_owned(),
        accepted,
    })?;
    match (key.status, key.default) {
        (Status::Refused(why), Some(default)) if checked != default => {
            Err(InvalidTopicConfig::Unsupported { key: key.name, default, why })
        }
        _ => Ok(checked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validated(key: &str, value: &str) -> Result<String, String> {
        let values = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        match validate_topic(&values) {
            Ok(mut checked) => Ok(checked.remove(key).unwrap()),
            Err(invalid) => Err(invalid.to_string()),
        }
    }

    #[test]
    fn values_are_read_and_shown_as_kafka_does() {
        for (key, value, shown) in [
            ("max.message.bytes", " 5 ", "5"),
            ("preallocate", "TRUE", "true"),
            ("preallocate", " true ", "true"),
            ("cleanup.policy", " compact , delete ", "compact,delete"),
            ("cleanup.policy", "", ""),
            ("cleanup.policy", "delete,delete", "delete,delete"),
            ("min.cleanable.dirty.ratio", "1e-1", "0.1"),
            ("segment.bytes", "+2000000", "2000000"),
            ("retention.bytes", "-2", "-2"),
            ("local.retention.ms", "999999999999", "999999999999"),
            ("remote.log.copy.disable", "true", "true"),
            ("remote.storage.enable", "false", "false"),
            ("follower.replication.throttled.replicas", "0:1,1:2", "0:1,1:2"),
            ("follower.replication.throttled.replicas", "*", "*"),
            ("follower.replication.throttled.replicas", "", ""),
            ("internal.segment.bytes", "1000", "1000"),
            ("compression.gzip.level", "-1", "-1"),
            ("durability", "page-cache", "page-cache"),
        ] {
            assert_eq!(validated(key, value).as_deref(), Ok(shown), "{key}={value}");
        }
    }

    #[test]
    fn refusals_name_what_would_be_accepted() {
        for (key, value, words) in [
            ("nope", "1", "Unknown topic config name: nope"),
            ("retention.ms", "abc", "value abc for configuration retention.ms: expected"),
            ("retention.ms", "", "an integer of at least -1"),
            ("retention.ms", "-2", "an integer of at least -1"),
            ("segment.bytes", "99999999999", "an integer of at least 1048576"),
            ("segment.bytes", "1e3", "an integer of at least 1048576"),
            ("segment.bytes", "1048575", "an integer of at least 1048576"),
            ("cleanup.policy", "compact,foo", "Invalid value compact,foo for configuration"),
            ("compression.type", "GZIP", "expected uncompressed, zstd"),
            ("compression.gzip.level", "0", "-1, or an integer from 1 to 9"),
            ("compression.lz4.level", "18", "from 1 to 17"),
            ("min.cleanable.dirty.ratio", "1.5", "from 0 to 1"),
            ("min.cleanable.dirty.ratio", "NaN", "from 0 to 1"),
            ("preallocate", "yes", "true or false"),
            ("leader.replication.throttled.replicas", "foo", "* or a list"),
            ("remote.storage.enable", "true", "tiered storage"),
            ("flush.messages", "9223372036854775808", "an integer of at least 1"),
            ("retention.bytes", "x", "a 64-bit integer"),
            ("message.format.version", "2.0", "Unknown topic config name"),
            ("durability", "never", "fsync or page-cache"),
        ] {
            let refused = validated(key, value).unwrap_err();
            assert!(refused.contains(words), "{key}={value}: {refused}");
        }
    }

    #[test]
    fn a_minimum_lag_above_the_maximum_is_refused() {
        let values = [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")];
        let values = values.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let expected = InvalidTopicConfig::CompactionLag { min: 10, max: 5 };
        assert_eq!(validate_topic(&values), Err(expected));
    }
}
