//! Where values come from and which of them wins (KIP-1137): a flag before `--set`, before the
//! environment, before the file, before the default. Reads nothing but what it is handed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

use super::problem::Problem;
use super::{listener, properties, table};

/// Where a value was said.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// In a properties file.
    File {
        /// The file's name as it was given.
        path: Arc<str>,
        /// The line, from 1.
        line: u32,
    },
    /// In a variable of the environment, of this name.
    Environment(String),
    /// With `--set KEY=VALUE`.
    Set,
    /// With a flag of its own, of this name.
    Flag(&'static str),
    /// By the container image, where no other source names the key.
    Image,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File { path, line } => write!(f, "{path}:{line}"),
            Source::Environment(name) => write!(f, "environment variable {name}"),
            Source::Set => f.write_str("--set"),
            Source::Flag(name) => f.write_str(name),
            Source::Image => f.write_str("the container image"),
        }
    }
}

impl Source {
    /// The kind of source without the place: two values of one kind surprise nobody.
    fn rank(&self) -> u8 {
        match self {
            Source::Image => 0,
            Source::File { .. } => 1,
            Source::Environment(_) => 2,
            Source::Set => 3,
            Source::Flag(_) => 4,
        }
    }
}

/// One value as it was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// The text, not yet checked.
    pub text: String,
    /// Where.
    pub source: Source,
}

/// Everything that was said, ready to be checked: one winner for each key.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    said: BTreeMap<String, Vec<Said>>,
    /// What was said and cannot be read.
    problems: Vec<Problem>,
}

impl Sources {
    /// Nothing said: every key has its default.
    pub fn new() -> Sources {
        Sources::default()
    }

    fn say(&mut self, key: &str, text: &str, source: Source) {
        self.said.entry(key.to_owned()).or_default().push(Said { text: text.to_owned(), source });
    }

    /// Adds the contents of a properties file called `path`. What cannot be read of it is a problem
    /// of the configuration.
    pub fn file(mut self, path: &str, bytes: &[u8]) -> Sources {
        let path: Arc<str> = path.into();
        let source = |line| Source::File { path: path.clone(), line };
        let (properties, unreadable) = properties::parse(bytes);
        for property in properties {
            self.say(&property.key, &property.value, source(property.line));
        }
        for entry in unreadable {
            self.refuse(&entry.key, source(entry.line), entry.reason);
        }
        self
    }

    /// Adds those variables of the environment that name keys: `KAFKA_`, `KAFKA_CFG_` or `HIGHWATER_` and the
    /// key in upper case with `.` as `_`, `_` as `__` and `-` as `___`; and `CLUSTER_ID` and `KAFKA_KRAFT_CLUSTER_ID`.
    /// Unknown `KAFKA_` ones are added too, so that a slip is noticed. A key that two variables
    /// name with different values, and a value that is not text, are problems: either would drop a value silently.
    pub fn environment(mut self, variables: impl Iterator<Item = (OsString, OsString)>) -> Sources {
        let mut named: BTreeMap<String, (String, OsString)> = BTreeMap::new();
        for (name, value) in variables {
            let Ok(name) = name.into_string() else { continue };
            let Some(key) = key_of_variable(&name) else { continue };
            let source = Source::Environment(name.clone());
            if let Some((other, first)) = named.insert(key.clone(), (name, value.clone())) {
                if first == value {
                    continue;
                }
                let reason = format!("{other} names this key too; unset one of them");
                self.refuse(&key, source.clone(), reason);
            }
            match value.into_string() {
                Ok(value) => self.say(&key, &value, source),
                Err(_) => self.refuse(&key, source, "the value is not UTF-8 text"),
            }
        }
        self
    }

    /// Adds the value of a key that no source names so far, from the container image. `also` are further keys with the
    /// same meaning.
    pub fn default_of_image(mut self, key: &str, also: &[&str], text: &str) -> Sources {
        let is_named = |key: &str| self.said.contains_key(key);
        if !is_named(key) && !also.iter().any(|key| is_named(key)) {
            self.say(key, text, Source::Image);
        }
        self
    }

    /// Adds `listeners` if a source names `advertised.listeners` and none `listeners`: the same names and ports on all
    /// interfaces, as images of Kafka do. An advertised address that cannot be read is left to the check of its key.
    pub fn listen_where_advertised(mut self) -> Sources {
        if self.said.contains_key("listeners") {
            return self;
        }
        let advertised = self.said.get("advertised.listeners").and_then(|said| winner(said));
        let Some(advertised) = advertised.cloned() else { return self };
        let Ok(endpoints) = listener::endpoints(&advertised.text) else { return self };
        let listeners: Vec<String> =
            endpoints.iter().map(|it| format!("{}://:{}", it.name, it.at.port)).collect();
        self.say("listeners", &listeners.join(","), advertised.source);
        self
    }

    /// Notes that the value of a flag that stands for a key is not text.
    pub fn flag_is_not_text(mut self, flag: &'static str, key: &str) -> Sources {
        self.refuse(key, Source::Flag(flag), "the value is not UTF-8 text");
        self
    }

    fn refuse(&mut self, key: &str, source: Source, reason: impl Into<String>) {
        let (key, source) = (key.to_owned(), Some(source));
        self.problems.push(Problem { key, value: None, source, reason: reason.into() });
    }

    /// What was said and cannot be read.
    pub(super) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Adds one `--set KEY=VALUE`.
    pub fn set(mut self, key: &str, value: &str) -> Sources {
        self.say(key, value, Source::Set);
        self
    }

    /// Adds the value of a flag that stands for a key.
    pub fn flag(mut self, flag: &'static str, key: &str, value: &str) -> Sources {
        self.say(key, value, Source::Flag(flag));
        self
    }

    /// For each key the value that wins, and the sources of other kinds that it wins over.
    pub(super) fn winners(&self) -> impl Iterator<Item = (&str, &Said, Vec<&Source>)> {
        self.said.iter().map(|(key, said)| {
            let winner = winner(said).expect("never empty");
            let beaten = said.iter().map(|s| &s.source);
            let beaten = beaten.filter(|s| s.rank() != winner.source.rank()).collect();
            (key.as_str(), winner, beaten)
        })
    }
}

/// The value that wins. Within one kind the last one does, as in a properties file.
fn winner(said: &[Said]) -> Option<&Said> {
    said.iter().max_by_key(|said| said.source.rank())
}

/// Variables that container images of Kafka read for other purposes than keys.
const NO_KEYS: &[&str] = &[
    "KAFKA_CLUSTER_ID",
    "KAFKA_CONFIG",
    "KAFKA_DEBUG",
    "KAFKA_ENABLE_KRAFT",
    "KAFKA_GC_LOG_OPTS",
    "KAFKA_HEAP_OPTS",
    "KAFKA_HOME",
    "KAFKA_JMX_HOSTNAME",
    "KAFKA_JMX_OPTS",
    "KAFKA_JMX_PORT",
    "KAFKA_JVM_PERFORMANCE_OPTS",
    "KAFKA_LOG4J_LOGGERS",
    "KAFKA_LOG4J_OPTS",
    "KAFKA_LOG4J_ROOT_LOGLEVEL",
    "KAFKA_OPTS",
    "KAFKA_SKIP_KRAFT_STORAGE_INIT",
    "KAFKA_TOOLS_LOG4J_LOGLEVEL",
    "KAFKA_VERSION",
    "KAFKA_VOLUME_DIR",
];

/// Whether an environment variable of this name sets a configuration key.
pub fn is_configuration_variable(name: &str) -> bool {
    key_of_variable(name).is_some()
}

fn key_of_variable(name: &str) -> Option<String> {
    if name == "CLUSTER_ID" || name == "KAFKA_KRAFT_CLUSTER_ID" {
        return Some("cluster.id".to_owned());
    }
    if let Some(rest) = name.strip_prefix("KAFKA_CFG_") {
        return Some(key_of_words(rest));
    }
    if let Some(rest) = name.strip_prefix("KAFKA_") {
        return (!NO_KEYS.contains(&name)).then(|| key_of_words(rest));
    }
    // Our own prefix also names other things (the cache of the tests, …): only keys count.
    let key = key_of_words(name.strip_prefix("HIGHWATER_")?);
    table::find(&key).is_some().then_some(key)
}

fn key_of_words(words: &str) -> String {
    let lower = words.to_ascii_lowercase();
    lower.replace("___", "-").replace("__", "\0").replace('_', ".").replace('\0', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_named_by_the_rule_of_kafkas_image() {
        for (name, key) in [
            ("KAFKA_ADVERTISED_LISTENERS", Some("advertised.listeners")),
            ("KAFKA_NODE_ID", Some("node.id")),
            ("KAFKA_A__B___C_D", Some("a_b-c.d")),
            ("CLUSTER_ID", Some("cluster.id")),
            ("KAFKA_KRAFT_CLUSTER_ID", Some("cluster.id")),
            ("KAFKA_CFG_ADVERTISED_LISTENERS", Some("advertised.listeners")),
            ("KAFKA_ENABLE_KRAFT", None),
            ("HIGHWATER_DURABILITY", Some("durability")),
            ("HIGHWATER_CACHE", None),
            ("KAFKA_HEAP_OPTS", None),
            ("PATH", None),
        ] {
            assert_eq!(key_of_variable(name).as_deref(), key, "{name}");
        }
    }

    #[test]
    fn a_flag_beats_set_beats_the_environment_beats_the_file() {
        let variable = |name: &str| (OsString::from(name), OsString::from("env"));
        let sources = Sources::new()
            .flag("--data-dir", "log.dirs", "flag")
            .set("log.dirs", "set")
            .set("node.id", "set")
            .environment(
                [
                    variable("KAFKA_LOG_DIRS"),
                    variable("KAFKA_NODE_ID"),
                    variable("KAFKA_BROKER_RACK"),
                ]
                .into_iter(),
            )
            .file("f", b"log.dirs=file\nnode.id=file\nbroker.rack=file\nport=1\nport=2\n");
        let winners: Vec<(&str, &str, usize)> = sources
            .winners()
            .map(|(key, said, beaten)| (key, said.text.as_str(), beaten.len()))
            .collect();
        let expected = [
            ("broker.rack", "env", 1),
            ("log.dirs", "flag", 3),
            ("node.id", "set", 2),
            ("port", "2", 0),
        ];
        assert_eq!(winners, expected);
    }

    #[test]
    fn what_would_drop_a_value_silently_is_a_problem() {
        use std::os::unix::ffi::OsStringExt;
        let bytes = OsString::from_vec(b"/srv/\xff".to_vec());
        let variables = [
            ("KAFKA_NODE_ID".into(), "1".into()),
            ("KAFKA_LOG_DIRS".into(), bytes.clone()),
            ("HIGHWATER_NODE_ID".into(), "2".into()),
            ("KAFKA_BROKER_RACK".into(), "a".into()),
            ("KAFKA_CFG_BROKER_RACK".into(), "a".into()),
            ("PATH".into(), bytes),
        ];
        let sources = Sources::new().environment(variables.into_iter());
        let found: Vec<String> = sources.problems().iter().map(Problem::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("KAFKA_LOG_DIRS: log.dirs: the value is not UTF-8"), "{found:?}");
        assert!(found[1].contains("KAFKA_NODE_ID names this key too"), "{found:?}");
    }
    /// Value and source that win for a key.
    fn winner_of(sources: &Sources, wanted: &str) -> Option<(String, Source)> {
        let mut winners = sources.winners();
        winners
            .find(|(key, ..)| *key == wanted)
            .map(|(_, said, _)| (said.text.clone(), said.source.clone()))
    }

    #[test]
    fn an_image_sets_keys_that_no_other_source_names() {
        let sources = Sources::new()
            .file("f", b"log.dir=file\n")
            .default_of_image("log.dirs", &["log.dir"], "image")
            .default_of_image("http.listener", &[], ":8080");
        assert_eq!(winner_of(&sources, "log.dirs"), None);
        assert_eq!(winner_of(&sources, "http.listener"), Some((":8080".to_owned(), Source::Image)));
    }

    #[test]
    fn a_broker_in_a_container_listens_where_it_is_advertised() {
        let listeners = |file: &str| {
            let sources = Sources::new().file("f", file.as_bytes()).listen_where_advertised();
            winner_of(&sources, "listeners").map(|(text, _)| text)
        };
        let advertised = "advertised.listeners=PLAINTEXT://localhost:9092,inside://kafka:29092,\n";
        assert_eq!(listeners(advertised).as_deref(), Some("PLAINTEXT://:9092,INSIDE://:29092"));
        let both = format!("{advertised}listeners=PLAINTEXT://:1\n");
        assert_eq!(listeners(&both).as_deref(), Some("PLAINTEXT://:1"));
        assert_eq!(listeners("advertised.listeners=x\n"), None);
        assert_eq!(listeners(""), None);
    }
}
