//! Changes at run time (KIP-226): which are allowed, and what they do to the values. Storing them
//! and telling the other brokers is the metadata log's business.

use std::collections::BTreeMap;
use std::sync::Arc;

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

/// Keys that accept 0 in a file and not as a change at run time, as in Kafka (`SocketServer`): no client could
/// take the change back.
const NEVER_ZERO: [&str; 2] = ["max.connections", "max.connection.creation.rate"];

impl Configuration {
    /// Ignores changes at run time of these keys from now on, so that the values of the file hold. Fails with a sentence
    /// about a key that is not one of a broker, or that is read at the start only.
    pub fn ignore_dynamic(&mut self, keys: &[String]) -> Result<(), String> {
        for name in keys {
            match table::find(name) {
                None => return Err(format!("{name} is not a key of a broker")),
                Some(key) if key.update == Update::ReadOnly => {
                    return Err(format!("{name} cannot be changed while a broker runs"));
                }
                Some(_) => {}
            }
        }
        self.ignored = Arc::new(keys.iter().cloned().collect());
        Ok(())
    }

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
        if NEVER_ZERO.contains(&name) && text.trim().parse() == Ok(0) {
            let accepted = "an integer of at least 1: 0 refuses every client".to_owned();
            return Err(RefusedChange::Value { key: owned(), value: text.to_owned(), accepted });
        }
        if let Status::Refused(why) = key.status {
            return Err(RefusedChange::Unsupported { key: owned(), why });
        }
        value::check(key, text).map(Some).map_err(|accepted| RefusedChange::Value {
            key: owned(),
            value: if key.is_sensitive() { "***".to_owned() } else { text.to_owned() },
            accepted,
        })
    }

    /// Makes `wanted` all that is changed at run time in a scope. Nothing is changed if a value of
    /// it is refused; rules between keys are the caller's to check, by `BrokerConfig::with_changes`.
    pub fn replace_changes(
        &mut self,
        scope: Scope,
        wanted: &BTreeMap<String, String>,
    ) -> Result<(), RefusedChange> {
        let mut checked = BTreeMap::new();
        for (name, text) in wanted {
            let value = match self.changes(scope).get(name) {
                Some(value) if value == text => value.clone(),
                _ => self
                    .check_dynamic(scope, name, Some(text))?
                    .expect("a value that was checked is a value"),
            };
            if !self.ignored.contains(name) {
                checked.insert(name.clone(), value);
            }
        }
        match scope {
            Scope::AllBrokers => self.for_all = checked,
            Scope::ThisBroker => self.for_this = checked,
        }
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
    fn a_change_that_refuses_every_client_is_refused() {
        for key in NEVER_ZERO {
            assert!(refused(Scope::AllBrokers, key, "0").contains("refuses every client"), "{key}");
            let one = Configuration::default().check_dynamic(Scope::AllBrokers, key, Some("1"));
            assert_eq!(one, Ok(Some("1".to_owned())), "{key}");
        }
    }

    #[test]
    fn changes_of_ignored_keys_do_not_hold() {
        let mut config = BrokerConfig::from_pairs([("max.connections", "77")]).unwrap();
        let ignored = vec!["max.connections".to_owned()];
        config.configuration.ignore_dynamic(&ignored).unwrap();
        let stored = changes(&[("max.connections", "1"), ("log.retention.ms", "5000")]);
        let (obeyed, refused) = config.with_changes_obeyed(Scope::AllBrokers, &stored);
        assert!(refused.is_empty());
        assert_eq!(obeyed.network.connections_max, 77);
        assert_eq!(obeyed.configuration.changed("log.retention.ms"), Some("5000"));
        let unknown = config.configuration.ignore_dynamic(&["no.such.key".to_owned()]);
        assert!(unknown.unwrap_err().contains("no.such.key"));
        assert!(config.configuration.ignore_dynamic(&["node.id".to_owned()]).is_err());
    }

    #[test]
    fn a_change_that_contradicts_other_values_leaves_all_as_it_was() {
        let config = BrokerConfig::from_pairs([("log.cleaner.threads", "4")]).unwrap();
        let (buffer, threads) = ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads");
        let with = |set: &[(&str, &str)]| config.with_changes(Scope::ThisBroker, &changes(set));
        let refused = with(&[(buffer, "1048577")]).unwrap_err();
        assert!(refused.to_string().contains("each of 4 cleaner threads"), "{refused}");
        // The two hold together, whatever the order of their names.
        let changed = with(&[(buffer, "1048577"), (threads, "1")]).unwrap();
        assert_eq!(changed.log.cleaner.dedupe_buffer_bytes, 1_048_577);
        assert_eq!(config.log.cleaner.dedupe_buffer_bytes, 134_217_728);
    }

    #[test]
    fn of_contradictory_changes_that_are_stored_the_rest_is_obeyed() {
        let config = BrokerConfig::from_pairs([]).unwrap();
        let stored = changes(&[
            ("log.cleaner.dedupe.buffer.size", "1048577"),
            ("log.cleaner.threads", "64"),
            ("log.retention.ms", "5000"),
            ("num.network.threads", "x"),
        ]);
        let (obeyed, refused) = config.with_changes_obeyed(Scope::AllBrokers, &stored);
        assert_eq!(obeyed.configuration.changed("log.retention.ms"), Some("5000"));
        assert_eq!(obeyed.log.cleaner.dedupe_buffer_bytes, 1_048_577);
        assert_eq!(obeyed.log.cleaner.threads, 1, "the later of the two gave way");
        let refused: Vec<&str> = refused.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(refused, ["log.cleaner.threads", "num.network.threads"]);
        // What is taken back is gone, and what is refused now leaves what was obeyed before.
        let stored = changes(&[("log.cleaner.threads", "64"), ("log.retention.ms", "-7x")]);
        let (obeyed, refused) = obeyed.with_changes_obeyed(Scope::AllBrokers, &stored);
        assert_eq!(obeyed.configuration.changed("log.retention.ms"), Some("5000"));
        assert_eq!(obeyed.log.cleaner.threads, 64);
        assert_eq!(refused.len(), 1);
    }

    fn changes(set: &[(&str, &str)]) -> BTreeMap<String, String> {
        set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn throttles_that_have_no_effect_yet_are_accepted_because_tools_set_them() {
        let key = "leader.replication.throttled.rate";
        let checked = Configuration::default().check_dynamic(Scope::ThisBroker, key, Some("1"));
        assert_eq!(checked, Ok(Some("1".to_owned())));
    }
}
