//! The configuration of a topic: which value is in force, and where it comes from. The keys and
//! their checks are the room `configuration`'s.
//!
//! Strongest first: the topic's own value; for each broker-level synonym in turn, the broker's
//! dynamic value, the cluster's dynamic default, the broker's file; the default.

use crate::image::{ClusterImage, ConfigMap};
use crate::record::ConfigResource;
use configuration::key::{Key, Kind};
use configuration::{TopicSettings, table, value};
use model::BrokerId;
use std::collections::BTreeMap;

/// Values from a broker's configuration file, by broker key; only those that it sets.
pub type StaticConfigs = BTreeMap<String, String>;

/// Where a value comes from, with its number in DescribeConfigs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigSource {
    /// The topic has it.
    DynamicTopic,
    /// This broker was given it while running.
    DynamicBroker,
    /// All brokers were given it while running.
    DynamicDefaultBroker,
    /// The broker's file has it.
    StaticBroker,
    /// It was never set.
    Default,
    /// A consumer group has it.
    DynamicGroup,
}

impl ConfigSource {
    /// The number in DescribeConfigs.
    pub const fn code(self) -> i8 {
        match self {
            ConfigSource::DynamicTopic => 1,
            ConfigSource::DynamicBroker => 2,
            ConfigSource::DynamicDefaultBroker => 3,
            ConfigSource::StaticBroker => 4,
            ConfigSource::Default => 5,
            ConfigSource::DynamicGroup => 8,
        }
    }

    /// The name that Kafka's tools print.
    pub const fn name(self) -> &'static str {
        match self {
            ConfigSource::DynamicTopic => "DYNAMIC_TOPIC_CONFIG",
            ConfigSource::DynamicBroker => "DYNAMIC_BROKER_CONFIG",
            ConfigSource::DynamicDefaultBroker => "DYNAMIC_DEFAULT_BROKER_CONFIG",
            ConfigSource::StaticBroker => "STATIC_BROKER_CONFIG",
            ConfigSource::Default => "DEFAULT_CONFIG",
            ConfigSource::DynamicGroup => "DYNAMIC_GROUP_CONFIG",
        }
    }
}

/// One entry of DescribeConfigs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedConfig {
    /// The key.
    pub name: &'static str,
    /// The value in force.
    pub value: String,
    /// Where it comes from.
    pub source: ConfigSource,
    /// Its type.
    pub kind: Kind,
    /// Whether it cannot be changed. No topic configuration is.
    pub is_read_only: bool,
    /// Whether the value must not be shown. No topic configuration is.
    pub is_sensitive: bool,
    /// Every value that was considered, the strongest first.
    pub synonyms: Vec<DescribedSynonym>,
    /// What it does.
    pub doc: &'static str,
}

/// A value that was considered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedSynonym {
    /// The key it stands under, which may be the broker's.
    pub name: &'static str,
    /// The value as it stands there.
    pub value: String,
    /// Where it stands.
    pub source: ConfigSource,
}

/// Resolves configurations on one image, for one broker.
#[derive(Clone, Copy, Debug)]
pub struct Resolver<'a> {
    image: &'a ClusterImage,
    statics: &'a StaticConfigs,
    broker: Option<BrokerId>,
}

impl<'a> Resolver<'a> {
    /// `statics` and `broker` are those of the broker that the answer is for; `None` leaves the
    /// dynamic values of single brokers out.
    pub fn new(
        image: &'a ClusterImage,
        statics: &'a StaticConfigs,
        broker: Option<BrokerId>,
    ) -> Resolver<'a> {
        Resolver { image, statics, broker }
    }

    /// The values of a broker key, the strongest first.
    fn broker_values(&self, key: &str) -> impl Iterator<Item = (ConfigSource, &'a str)> + use<'a> {
        let own = self.broker.map(ConfigResource::Broker);
        let own = own.and_then(|resource| self.image.config(&resource, key));
        let all = self.image.config(&ConfigResource::ClusterDefault, key);
        let file = self.statics.get(key).map(String::as_str);
        let places = [
            (ConfigSource::DynamicBroker, own),
            (ConfigSource::DynamicDefaultBroker, all),
            (ConfigSource::StaticBroker, file),
        ];
        places.into_iter().filter_map(|(source, value)| Some((source, value?)))
    }

    /// The strongest value that is valid: one that is not (a newer version's, or one that slipped
    /// into a file) gives way to the next, so that a partition can always be opened.
    fn value(&self, own: Option<&str>, key: &Key) -> Option<String> {
        if let Some(value) = own.and_then(|text| value::check(key, text).ok()) {
            return Some(value);
        }
        key.fallbacks.iter().find_map(|fallback| {
            self.broker_values(fallback.name)
                .find_map(|(_, text)| value::check(key, &fallback.in_topic_units(text)).ok())
        })
    }

    /// The value in force of one key of a topic that has the values `own`; cheaper than all of
    /// [`Resolver::settings`]. `None` for an unknown key.
    pub(crate) fn in_force(&self, own: Option<&ConfigMap>, key: &str) -> Option<String> {
        let key = table::find_topic(key)?;
        let own = own.and_then(|own| own.get(key.name)).map(String::as_str);
        self.value(own, key).or_else(|| key.default.map(str::to_owned))
    }

    /// The settings in force for a topic. A topic without values of its own, or one that does not
    /// exist, has those of the broker.
    pub fn settings(&self, topic: &str) -> TopicSettings {
        let own = self.image.configs(&ConfigResource::Topic(topic.to_owned()));
        TopicSettings::read(|key| {
            self.value(own.and_then(|own| own.get(key.name)).map(String::as_str), key)
        })
    }

    /// Every key with its value: what DescribeConfigs answers. Expert's keys only where set.
    pub fn describe(&self, topic: &str) -> Vec<DescribedConfig> {
        let resource = ConfigResource::Topic(topic.to_owned());
        let describe = |key: &'static Key| {
            let own = self.image.config(&resource, key.name);
            (own.is_some() || !key.internal).then(|| self.describe_key(own, key))
        };
        table::TOPIC_AREA.keys.iter().filter_map(describe).collect()
    }

    fn describe_key(&self, own: Option<&str>, key: &'static Key) -> DescribedConfig {
        let mut synonyms = Vec::new();
        let mut in_force = None;
        if let Some(value) = own {
            let source = ConfigSource::DynamicTopic;
            in_force = Some((source, value.to_owned()));
            synonyms.push(DescribedSynonym { name: key.name, value: value.to_owned(), source });
        }
        for synonym in key.fallbacks {
            for (source, text) in self.broker_values(synonym.name) {
                in_force.get_or_insert_with(|| (source, synonym.in_topic_units(text)));
                synonyms.push(DescribedSynonym { name: synonym.name, value: text.into(), source });
            }
        }
        // Where several broker keys stand behind one topic key, no single one has the default.
        if let [only] = key.fallbacks {
            let value = key.default.unwrap_or_default().to_owned();
            synonyms.push(DescribedSynonym {
                name: only.name,
                value,
                source: ConfigSource::Default,
            });
        }
        let default = || (ConfigSource::Default, key.default.unwrap_or_default().to_owned());
        let (source, value) = in_force.unwrap_or_else(default);
        DescribedConfig {
            name: key.name,
            value,
            source,
            kind: key.kind,
            is_read_only: false,
            is_sensitive: false,
            synonyms,
            doc: key.doc,
        }
    }
}
