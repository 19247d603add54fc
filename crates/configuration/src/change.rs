//! Changes at run time (KIP-226): which are allowed, and what they do to the values. Storing them
//! and telling the other brokers is the metadata log's business.

use super::key::{Status, Update};
use super::layers::Configuration;
use super::problem::InvalidConfiguration;
use super::{table, value};

/// For which brokers a change at run time holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All brokers of the cluster (an empty resource name in the protocol).
    AllBrokers,
    /// This broker.
    ThisBroker,
}

/// Why a change at run time is refused. The protocol's answer is `INVALID_REQUEST`, as Kafka's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefusedChange {
    /// The key is read at the start only.
    #[error("{key} cannot be changed while the broker runs: set it in the file and restart")]
    ReadOnly {
        /// The key.
        key: String,
    },
    /// The key differs from broker to broker.
    #[error("{key} can only be changed for one broker at a time: name the broker")]
    PerBroker {
        /// The key.
        key: String,
    },
    /// The value is not one of those that the key accepts.
    #[error("invalid value {value} for {key}: expected {accepted}")]
    Value {
        /// The key.
        key: String,
        /// The value, or stars if it is secret.
        value: String,
        /// What would be accepted.
        accepted: String,
    },
    /// The key is refused whatever its value.
    #[error("{key}: {why}")]
    Unsupported {
        /// The key.
        key: String,
        /// Why.
        why: &'static str,
    },
    /// The values would contradict each other.
    #[error("{0}")]
    Contradiction(InvalidConfiguration),
}

impl Configuration {
    /// Checks a change at run time without making it; returns the value as it will be shown.
    /// `None` removes what was changed before. Unknown keys pass, as in Kafka: plugins have them.
    pub fn check_dynamic(
        &self,
        scope: Scope,
        name: &str,
        text: Option<&str>,
    ) -> Result<Option<String>, RefusedChange> {
        let owned = || name.to_owned();
        let Some(key) = table::find(name) else {
            return Ok(text.map(str::to_owned));
        };
        match key.update {
            Update::ReadOnly => return Err(RefusedChange::ReadOnly { key: owned() }),
            Update::PerBroker if scope == Scope::AllBrokers => {
                return Err(RefusedChange::PerBroker { key: owned() });
            }
            _ => {}
        }
        let Some(text) = text else { return Ok(None) };
        if let Status::Refused(why) = key.status {
            return Err(RefusedChange::Unsupported { key: owned(), why });
        }
        value::check(key, text).map(Some).map_err(|accepted| RefusedChange::Value {
            key: owned(),
            value: if key.is_sensitive() { "***".to_owned() } else { text.to_owned() },
            accepted,
        })
    }

    /// Makes a change at run time, or removes one. Nothing is changed if it is refused; rules
    /// between keys are the caller's to check, by `BrokerConfig::with_change`.
    pub fn apply_dynamic(
        &mut self,
        scope: Scope,
        name: &str,
        text: Option<&str>,
    ) -> Result<(), RefusedChange> {
        let checked = self.check_dynamic(scope, name, text)?;
        let changes = match scope {
            Scope::AllBrokers => &mut self.for_all,
            Scope::ThisBroker => &mut self.for_this,
        };
        match checked {
            Some(value) => changes.insert(name.to_owned(), value),
            None => changes.remove(name),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BrokerConfig;

    fn refused(scope: Scope, key: &str, value: &str) -> String {
        Configuration::default().check_dynamic(scope, key, Some(value)).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_change_is_refused_in_words() {
        let fixed = "cannot be changed while the broker runs";
        assert!(refused(Scope::ThisBroker, "node.id", "3").contains(fixed));
        assert!(refused(Scope::ThisBroker, "log.retention.hours", "9").contains(fixed));
        assert!(refused(Scope::AllBrokers, "ssl.keystore.type", "PEM").contains("one broker"));
        assert_eq!(
            refused(Scope::AllBrokers, "message.max.bytes", "-5"),
            "invalid value -5 for message.max.bytes: expected an integer of at least 0"
        );
        assert!(!refused(Scope::ThisBroker, "log.cleaner.threads", "x").is_empty());
    }

    #[test]
    fn a_change_that_contradicts_other_values_leaves_all_as_it_was() {
        let config = BrokerConfig::from_pairs([("log.cleaner.threads", "4")]).unwrap();
        let key = "log.cleaner.dedupe.buffer.size";
        let refused = config.with_change(Scope::ThisBroker, key, Some("1048576")).unwrap_err();
        assert!(refused.to_string().contains("each of 4 cleaner threads"), "{refused}");
        let changed = config.with_change(Scope::ThisBroker, key, Some("8388608")).unwrap();
        assert_eq!(changed.log.cleaner.dedupe_buffer_bytes, 8_388_608);
        assert_eq!(config.log.cleaner.dedupe_buffer_bytes, 134_217_728);
    }

    #[test]
    fn throttles_that_have_no_effect_yet_are_accepted_because_tools_set_them() {
        let key = "leader.replication.throttled.rate";
        let checked = Configuration::default().check_dynamic(Scope::ThisBroker, key, Some("1"));
        assert_eq!(checked, Ok(Some("1".to_owned())));
    }
}
