//! What DescribeConfigs answers for a broker: every key with its value, where the value comes
//! from, and what else it could be. No wire types here.

use std::collections::BTreeSet;

use super::key::{Key, Kind, Update};
use super::layers::Configuration;
use super::table;

/// Where a value comes from, as DescribeConfigs says it (KIP-226).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigSource {
    /// Changed at run time for this broker.
    DynamicBroker,
    /// Changed at run time for all brokers.
    DynamicDefaultBroker,
    /// Said at the start.
    StaticBroker,
    /// Said nowhere.
    Default,
}

impl ConfigSource {
    /// The number in the protocol.
    pub const fn code(self) -> i8 {
        match self {
            ConfigSource::DynamicBroker => 2,
            ConfigSource::DynamicDefaultBroker => 3,
            ConfigSource::StaticBroker => 4,
            ConfigSource::Default => 5,
        }
    }
}

/// A value that a key has or would have, from one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synonym {
    /// The key that gives it: the key itself or one that stands in for it.
    pub name: String,
    /// The value; `None` if it is secret.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: ConfigSource,
}

/// One key with its value, as DescribeConfigs answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// The key.
    pub name: String,
    /// Its value; `None` if it is null, secret or of an unknown key.
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// The type of its values; `None` for an unknown key (0 in the protocol).
    pub kind: Option<Kind>,
    /// Whether it cannot be changed at run time.
    pub read_only: bool,
    /// Whether its value is never shown.
    pub sensitive: bool,
    /// All values it could have, the one that holds first.
    pub synonyms: Vec<Synonym>,
    /// What it means; empty for an unknown key.
    pub doc: &'static str,
}

impl Configuration {
    /// All keys of this broker as DescribeConfigs shows them.
    pub fn describe(&self) -> impl Iterator<Item = Described> {
        let public = table::all().filter(|key| !key.internal).map(|key| key.name);
        let more = self.fixed.keys().chain(self.for_all.keys()).chain(self.for_this.keys());
        let more: BTreeSet<&str> = more
            .map(String::as_str)
            .filter(|name| !table::by_name().contains_key(name))
            .filter(|name| table::find(name).is_some() || self.changed(name).is_some())
            .collect();
        public.chain(more).map(|name| self.describe_key(name))
    }

    /// What was changed at run time for all brokers: the resource with the empty name.
    pub fn describe_for_all(&self) -> impl Iterator<Item = Described> {
        self.for_all.keys().map(|name| {
            let mut described = self.describe_key(name);
            described.synonyms.retain(|s| s.source == ConfigSource::DynamicDefaultBroker);
            described.source = ConfigSource::DynamicDefaultBroker;
            described.value = described.synonyms.first().and_then(|s| s.value.clone());
            described
        })
    }

    /// One key of this broker.
    pub fn describe_key(&self, name: &str) -> Described {
        let key = table::find(name);
        let synonyms = self.synonyms(name);
        let sensitive = key.is_none_or(Key::is_sensitive);
        Described {
            name: name.to_owned(),
            value: self.value(name).filter(|_| !sensitive).map(str::to_owned),
            source: synonyms.first().map_or(ConfigSource::Default, |s| s.source),
            kind: key.map(|key| key.kind),
            // Kafka calls a key of one listener read-only although it can be changed.
            read_only: key.is_none_or(|key| key.update == Update::ReadOnly || key.name != name),
            sensitive,
            synonyms,
            doc: key.map_or("", |key| key.doc),
        }
    }

    fn synonyms(&self, name: &str) -> Vec<Synonym> {
        if self.value(name).is_none() {
            return Vec::new();
        }
        let key = table::find(name);
        let sensitive = key.is_none_or(Key::is_sensitive);
        let synonym = |name: &str, value: &str, source| Synonym {
            name: name.to_owned(),
            value: (!sensitive).then(|| value.to_owned()),
            source,
        };
        let related =
            key.filter(|key| key.name == name).map_or(&[][..], |k| table::synonyms(k.name));
        let related: Vec<&str> = if related.is_empty() { vec![name] } else { related.to_vec() };
        let mut found = Vec::new();
        for (changes, source) in [
            (&self.for_this, ConfigSource::DynamicBroker),
            (&self.for_all, ConfigSource::DynamicDefaultBroker),
        ] {
            let values = related.iter().filter_map(|name| Some((name, changes.get(*name)?)));
            found.extend(values.map(|(name, value)| synonym(name, value, source)));
        }
        let fixed = related.iter().filter_map(|name| Some((name, self.fixed.get(*name)?)));
        found.extend(fixed.map(|(n, a)| synonym(n, &a.value, ConfigSource::StaticBroker)));
        let defaults = related.iter().filter_map(|name| {
            let key = table::find(name)?;
            Some(synonym(key.name, key.default?, ConfigSource::Default))
        });
        found.extend(defaults);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scope, Sources};

    /// What Apache Kafka 4.3.1 answered about a broker started with the properties at its top.
    const ORACLE: &str = include_str!("testdata/kafka_4_3_described.tsv");

    /// Where we answer otherwise on purpose.
    const OTHER: &[&str] = &[
        // Kafka sets it for all brokers by itself (KIP-966).
        "min.insync.replicas",
        // Read at the start only.
        "listeners",
        "listener.security.protocol.map",
        "num.network.threads",
        // Room for a burst of clients, where Kafka has 50.
        "socket.listen.backlog.size",
    ];

    fn configuration(text: &str) -> Configuration {
        let sources = Sources::new().file("f", text.as_bytes());
        Configuration::load(&sources, true).unwrap().0
    }

    fn change(configuration: &mut Configuration, scope: Scope, set: &[(&str, &str)]) {
        let wanted = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        configuration.replace_changes(scope, &wanted.collect()).unwrap();
    }

    fn line(described: &Described) -> String {
        let source = |source: ConfigSource| match source {
            ConfigSource::DynamicBroker => "DYNAMIC_BROKER_CONFIG",
            ConfigSource::DynamicDefaultBroker => "DYNAMIC_DEFAULT_BROKER_CONFIG",
            ConfigSource::StaticBroker => "STATIC_BROKER_CONFIG",
            ConfigSource::Default => "DEFAULT_CONFIG",
        };
        let shown = |value: &Option<String>| value.clone().unwrap_or("null".into());
        let synonyms: Vec<String> = described
            .synonyms
            .iter()
            .map(|s| format!("{}:{}={}", source(s.source), s.name, shown(&s.value)))
            .collect();
        let fields = [
            described.name.clone(),
            shown(&described.value),
            source(described.source).to_owned(),
            described.kind.map_or("unknown", Kind::name).to_uppercase(),
            if described.read_only { "ro" } else { "rw" }.to_owned(),
            if described.sensitive { "secret" } else { "" }.to_owned(),
            synonyms.join(" "),
        ];
        fields.join("\t")
    }

    #[test]
    fn a_broker_describes_itself_as_kafka_does() {
        let (properties, answers) = ORACLE.split_once("\n\n").unwrap();
        let configuration = configuration(properties);
        let ours: Vec<Described> = configuration.describe().collect();
        let mut compared = 0;
        for answer in answers.lines() {
            let name = answer.split('\t').next().unwrap();
            let described = ours.iter().find(|described| described.name == name).unwrap();
            if !OTHER.contains(&name) {
                assert_eq!(line(described), answer);
                compared += 1;
            }
        }
        assert!(compared > 330);
        // The answers leave out log.dir, whose default is another.
        let only_ours = ours.len() - compared - OTHER.len() - 1;
        assert_eq!(only_ours, OWN_COUNT, "only Highwater's own keys come on top");
    }

    const OWN_COUNT: usize = table::AREAS[0].keys.len();

    #[test]
    fn a_change_stands_over_what_was_said_and_goes_away_again() {
        let mut configuration = configuration("log.retention.hours=168");
        change(&mut configuration, Scope::AllBrokers, &[("log.retention.ms", "2000")]);
        change(&mut configuration, Scope::ThisBroker, &[("log.retention.ms", " 7 ")]);
        let expected = "log.retention.ms\t7\tDYNAMIC_BROKER_CONFIG\tLONG\trw\t\t\
             DYNAMIC_BROKER_CONFIG:log.retention.ms=7 \
             DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=2000 \
             STATIC_BROKER_CONFIG:log.retention.hours=168 DEFAULT_CONFIG:log.retention.hours=168";
        assert_eq!(line(&configuration.describe_key("log.retention.ms")), expected);
        let for_all: Vec<Described> = configuration.describe_for_all().collect();
        assert_eq!(for_all.len(), 1);
        assert_eq!(for_all[0].value.as_deref(), Some("2000"));
        change(&mut configuration, Scope::ThisBroker, &[]);
        change(&mut configuration, Scope::AllBrokers, &[]);
        assert_eq!(configuration.describe_key("log.retention.ms").value, None);
    }

    #[test]
    fn an_unknown_key_that_was_changed_is_shown_without_its_value() {
        let mut configuration = configuration("");
        change(&mut configuration, Scope::ThisBroker, &[("no.such.key", "3")]);
        let described = configuration.describe().find(|d| d.name == "no.such.key").unwrap();
        let expected = "no.such.key\tnull\tDYNAMIC_BROKER_CONFIG\tUNKNOWN\tro\tsecret\t\
             DYNAMIC_BROKER_CONFIG:no.such.key=null";
        assert_eq!(line(&described), expected);
    }
}
