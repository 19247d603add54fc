//! The values of one broker: what was said at the start, and over it what administrators changed
//! at run time, for all brokers or for this one. `broker_config` makes types of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::broker_config::BrokerConfig;
use super::change::Scope;
use super::key::{Key, Status};
use super::near::nearest;
use super::problem::{InvalidConfiguration, Problem, Warning};
use super::source::{Said, Source, Sources};
use super::{table, value};

/// A value that was said at the start, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    /// The value in the form in which it is shown.
    pub value: String,
    /// Where it was said.
    pub source: Source,
}

/// All values of one broker. Cheap to clone as long as little was changed at run time.
#[derive(Debug, Clone, Default)]
pub struct Configuration {
    /// Said at the start: known keys checked, unknown ones as they stand.
    pub(super) fixed: Arc<BTreeMap<String, Assigned>>,
    /// Changed at run time for all brokers. Moved by `change` only.
    pub(super) for_all: BTreeMap<String, String>,
    /// Changed at run time for this broker. Moved by `change` only.
    pub(super) for_this: BTreeMap<String, String>,
    /// Keys whose dynamic values this process ignores. Set by `change` only.
    pub(super) ignored: Arc<BTreeSet<String>>,
}

impl Configuration {
    /// Checks each value on its own. With `strict`, an unknown key of a file or of `--set` is a
    /// problem rather than a warning. Rules between keys are checked by `BrokerConfig::new`.
    pub fn load(
        sources: &Sources,
        strict: bool,
    ) -> Result<(Configuration, Vec<Warning>), InvalidConfiguration> {
        let Loaded { configuration, warnings, problems } = Configuration::load_all(sources, strict);
        match problems.is_empty() {
            true => Ok((configuration, warnings)),
            false => Err(InvalidConfiguration(problems)),
        }
    }

    /// As [`Configuration::load`], with what can be used although something is wrong: keys whose
    /// values are refused have their defaults.
    pub fn load_all(sources: &Sources, strict: bool) -> Loaded {
        let problems = sources.problems().to_vec();
        let mut loading = Loading { strict, problems, ..Loading::default() };
        for (name, said, beaten) in sources.winners() {
            loading.take(name, said, &beaten);
        }
        loading.finish()
    }

    /// What was said at the start for this key.
    pub fn assigned(&self, name: &str) -> Option<&Assigned> {
        self.fixed.get(name)
    }

    /// All that was said at the start, by key: what topics inherit of this broker.
    pub fn static_values(&self) -> BTreeMap<String, String> {
        self.fixed.iter().map(|(key, assigned)| (key.clone(), assigned.value.clone())).collect()
    }

    /// What was changed at run time for this key.
    pub fn changed(&self, name: &str) -> Option<&str> {
        self.for_this.get(name).or_else(|| self.for_all.get(name)).map(String::as_str)
    }

    /// What was changed at run time for this broker (`ThisBroker`) or for all (`AllBrokers`).
    pub fn changes(&self, scope: Scope) -> &BTreeMap<String, String> {
        match scope {
            Scope::AllBrokers => &self.for_all,
            Scope::ThisBroker => &self.for_this,
        }
    }

    /// The value that was said or changed; no default.
    pub fn explicit(&self, name: &str) -> Option<&str> {
        self.changed(name).or_else(|| self.assigned(name).map(|a| a.value.as_str()))
    }

    /// Whether somebody said or changed the value of this key.
    pub fn is_set(&self, name: &str) -> bool {
        self.explicit(name).is_some()
    }

    /// The value that holds for this key alone, its default included. Keys that stand in for
    /// others (`log.retention.hours`) are not looked at: `BrokerConfig` joins them.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.explicit(name).or_else(|| table::find(name)?.default)
    }

    /// Everything that was said at the start, by key.
    pub fn all_assigned(&self) -> &BTreeMap<String, Assigned> {
        &self.fixed
    }

    /// A problem with the value of `name`, with its source.
    pub(super) fn problem(&self, name: &str, reason: impl Into<String>) -> Problem {
        let sensitive = table::find(name).is_some_and(Key::is_sensitive);
        let value = self.value(name).filter(|_| !sensitive).map(str::to_owned);
        let source = self.assigned(name).map(|assigned| assigned.source.clone());
        Problem { key: name.to_owned(), value, source, reason: reason.into() }
    }
}

/// Values as they were said: checked one by one, with everything that is wrong.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The values that can be used.
    pub configuration: Configuration,
    /// What the operator should hear about.
    pub warnings: Vec<Warning>,
    /// What keeps a broker from starting.
    problems: Vec<Problem>,
}

impl Loaded {
    /// The broker that these values make, and what the operator should hear about; or everything
    /// that is wrong, of single values and of those that do not go together, in the order of the
    /// file.
    pub fn finish(self) -> Result<(BrokerConfig, Vec<Warning>), InvalidConfiguration> {
        let problems = self.problems();
        let Loaded { configuration, mut warnings, .. } = self;
        match BrokerConfig::new(configuration) {
            Ok(config) if problems.is_empty() => {
                if !config.has_other_voters() {
                    warnings.extend(config.beyond_brokers(1));
                }
                Ok((config, warnings))
            }
            _ => Err(InvalidConfiguration(problems)),
        }
    }

    /// Everything that is wrong, in the order of the file.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = self.problems.clone();
        if let Err(InvalidConfiguration(more)) = BrokerConfig::new(self.configuration.clone()) {
            // A key that was refused has its default now, of which nothing is to be said.
            let known: BTreeSet<&str> = self.problems.iter().map(|p| p.key.as_str()).collect();
            problems
                .extend(more.into_iter().filter(|problem| !known.contains(problem.key.as_str())));
        }
        problems.sort_by(|a, b| a.source.cmp(&b.source));
        problems
    }
}

#[derive(Default)]
struct Loading {
    strict: bool,
    fixed: BTreeMap<String, Assigned>,
    warnings: Vec<Warning>,
    problems: Vec<Problem>,
}

impl Loading {
    fn take(&mut self, name: &str, said: &Said, beaten: &[&Source]) {
        if let Some(beaten) = beaten.first() {
            let (winner, beaten) = (said.source.clone(), (*beaten).clone());
            self.warnings.push(Warning::SaidTwice { key: name.to_owned(), winner, beaten });
        }
        match table::find(name) {
            Some(key) => self.take_known(name, key, said),
            None => self.take_unknown(name, said),
        }
    }

    fn take_known(&mut self, name: &str, key: &'static Key, said: &Said) {
        let value = match value::check(key, &said.text) {
            Ok(value) => value,
            Err(accepted) => return self.refuse(name, key, said, format!("expected {accepted}")),
        };
        let is_default = key.default.unwrap_or_default() == value;
        match key.status {
            Status::Refused(why) if !is_default => return self.refuse(name, key, said, why),
            Status::Ignored(why) if !is_default => self.without_effect(name, said, why),
            _ if key.name != name && !is_default => {
                self.without_effect(
                    name,
                    said,
                    "a setting of one listener alone is not served yet",
                );
            }
            _ => {}
        }
        self.fixed.insert(name.to_owned(), Assigned { value, source: said.source.clone() });
    }

    fn take_unknown(&mut self, name: &str, said: &Said) {
        let source = said.source.clone();
        if let Some(why) = table::former(name) {
            self.without_effect(name, said, why);
        } else {
            let near = nearest(name, table::all().map(|key| key.name));
            // What else is in the environment is not the configuration's fault.
            if self.strict && !matches!(source, Source::Environment(_)) {
                let reason = near.map_or("unknown key".to_owned(), |near| {
                    format!("unknown key; did you mean {near}?")
                });
                let key = name.to_owned();
                self.problems.push(Problem { key, value: None, source: Some(source), reason });
                return;
            }
            self.warnings.push(Warning::UnknownKey { key: name.to_owned(), source, near });
        }
        let value = said.text.clone();
        self.fixed.insert(name.to_owned(), Assigned { value, source: said.source.clone() });
    }

    fn without_effect(&mut self, name: &str, said: &Said, why: &'static str) {
        let (key, source) = (name.to_owned(), said.source.clone());
        self.warnings.push(Warning::WithoutEffect { key, source, why });
    }

    fn refuse(&mut self, name: &str, key: &Key, said: &Said, reason: impl Into<String>) {
        self.problems.push(Problem {
            key: name.to_owned(),
            value: (!key.is_sensitive()).then(|| said.text.clone()),
            source: Some(said.source.clone()),
            reason: reason.into(),
        });
    }

    fn finish(mut self) -> Loaded {
        // node.id and broker.id are one thing under two names.
        for (from, to) in [("node.id", "broker.id"), ("broker.id", "node.id")] {
            if let (Some(assigned), None) = (self.fixed.get(from), self.fixed.get(to)) {
                self.fixed.insert(to.to_owned(), assigned.clone());
            }
        }
        let fixed = Arc::new(self.fixed);
        let configuration = Configuration { fixed, ..Configuration::default() };
        let mut loaded = Loaded { configuration, warnings: self.warnings, problems: self.problems };
        loaded.problems.sort_by(|a, b| a.source.cmp(&b.source));
        loaded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str, strict: bool) -> Result<(Configuration, Vec<String>), Vec<String>> {
        let sources = Sources::new().file("server.properties", text.as_bytes());
        match Configuration::load(&sources, strict) {
            Ok((configuration, warnings)) => {
                Ok((configuration, warnings.iter().map(Warning::to_string).collect()))
            }
            Err(invalid) => Err(invalid.0.iter().map(Problem::to_string).collect()),
        }
    }

    #[test]
    fn a_bad_value_names_key_value_place_and_what_would_do() {
        let problems =
            load("\nnum.partitions=many\nlog.cleanup.policy=shrink\n", false).unwrap_err();
        assert_eq!(
            problems,
            [
                "server.properties:2: num.partitions=many: expected an integer of at least 1",
                "server.properties:3: log.cleanup.policy=shrink: expected a list of compact, \
                 delete",
            ]
        );
    }

    #[test]
    fn an_unknown_key_is_a_warning_that_guesses_and_with_strict_a_problem() {
        let text = "num.partition=3\nmy.plugin.setting=1\n";
        let (configuration, warnings) = load(text, false).unwrap();
        assert_eq!(
            warnings,
            [
                "server.properties:2: unknown key my.plugin.setting",
                "server.properties:1: unknown key num.partition; did you mean num.partitions?",
            ]
        );
        assert_eq!(configuration.value("num.partitions"), Some("1"));
        let problems = load(text, true).unwrap_err();
        assert_eq!(problems.len(), 2);
        assert!(problems[0].ends_with("unknown key; did you mean num.partitions?"), "{problems:?}");
    }

    #[test]
    fn a_key_from_two_places_is_a_warning_that_names_both() {
        let sources = Sources::new().file("f", b"log.dirs=a");
        let sources = sources.flag("--data-dir", "log.dirs", "b");
        let (configuration, warnings) = Configuration::load(&sources, false).unwrap();
        assert_eq!(configuration.value("log.dirs"), Some("b"));
        let warnings: Vec<String> = warnings.iter().map(Warning::to_string).collect();
        assert_eq!(warnings, ["log.dirs is set by --data-dir, which wins, and by f:1"]);
    }

    #[test]
    fn keys_without_effect_are_said_and_those_that_would_mislead_are_refused() {
        let (_, warnings) = load("num.io.threads=16\nzookeeper.connect=h:1\n", true).unwrap();
        assert!(warnings[0].contains("num.io.threads has no effect"), "{warnings:?}");
        assert!(warnings[1].contains("there is no ZooKeeper"), "{warnings:?}");
        assert_eq!(load("num.io.threads=8\n", true).unwrap().1, [""; 0], "Kafka's default");
        for text in [
            "authorizer.class.name=org.example.Authorizer",
            "remote.log.storage.system.enable=true",
            "create.topic.policy.class.name=org.example.Policy",
        ] {
            let problems = load(text, false).unwrap_err();
            assert!(problems[0].contains(text), "{problems:?}");
        }
        load("authorizer.class.name=\nremote.log.storage.system.enable=false", true).unwrap();
    }

    #[test]
    fn a_secret_is_not_repeated_in_a_problem() {
        let sources = Sources::new().file("f", b"ssl.key.password=abc");
        let (configuration, _) = Configuration::load(&sources, false).unwrap();
        assert!(!configuration.problem("ssl.key.password", "bad").to_string().contains("abc"));
    }
}
