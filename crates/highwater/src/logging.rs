//! What the program reports while it runs: on standard error, as lines for people or as JSON.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use broker::{LogLevels, ROOT};
use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layered, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, registry, reload};

use crate::reports::{Bound, Queue};

/// How long the program waits at its end for what it reported to be written.
const PATIENCE_AT_THE_END: Duration = Duration::from_secs(2);

static QUEUE: OnceLock<Queue> = OnceLock::new();

/// The form of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// How much is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Level {
    /// Data loss, unavailability, a broken invariant.
    Error,
    /// Also what was unexpected and is handled.
    Warn,
    /// Also what an operator wants to know.
    Info,
    /// Also single requests.
    Debug,
    /// Everything.
    Trace,
}

impl Level {
    const ALL: [Level; 5] = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];

    /// As operators call it (KIP-412).
    fn name(self) -> &'static str {
        match self {
            Level::Error => "ERROR",
            Level::Warn => "WARN",
            Level::Info => "INFO",
            Level::Debug => "DEBUG",
            Level::Trace => "TRACE",
        }
    }

    fn of_name(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> LevelFilter {
        match level {
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
            Level::Trace => LevelFilter::TRACE,
        }
    }
}

static IN_JSON: AtomicBool = AtomicBool::new(false);

/// Loggers of which the level can be seen and changed one by one: the rooms of the broker that report,
/// and the crates of others that do.
const LOGGERS: &[&str] = &["broker", "client", "highwater", "link", "quorum"];
/// What other people's crates report is for those who look for a fault in them: with `trace`, or by
/// name.
const OF_OTHERS: &[&str] = &["openraft", "hyper", "h2", "mio"];
/// Of these not even warnings: each heartbeat that a member does not answer is one, and the links tell of that member
/// once.
const TALKATIVE: &[&str] = &["openraft"];

/// Targets of [`TALKATIVE`] crates whose reports at ERROR are harmless: one for each request of another node that arrives while
/// this node stops. If the raft task fails, its own target and this program report the cause. DEBUG and TRACE show them.
const SILENT: &[&str] = &["openraft::raft::raft_inner"];

/// The levels of a running program.
struct Levels {
    root: Level,
    /// What was set by name.
    own: BTreeMap<String, Level>,
    filter: reload::Handle<Targets, Layered<Bound, Registry>>,
}

impl Levels {
    fn of(&self, logger: &str) -> Level {
        self.own.get(logger).copied().unwrap_or_else(|| inherited(self.root, logger))
    }
}

/// The level of a logger that has none of its own.
fn inherited(root: Level, logger: &str) -> Level {
    if root == Level::Trace || !OF_OTHERS.contains(&logger) {
        return root;
    }
    let most = if TALKATIVE.contains(&logger) { Level::Error } else { Level::Warn };
    root.min(most)
}

fn targets(root: Level, own: &BTreeMap<String, Level>) -> Targets {
    let others = OF_OTHERS.iter().map(|name| (*name, LevelFilter::from(inherited(root, name))));
    let is_quiet = |target: &&&str| {
        let set_by_name = |name: &String| target.starts_with(name.as_str());
        root < Level::Debug && !own.keys().any(set_by_name)
    };
    let silent = SILENT.iter().filter(is_quiet).map(|target| (*target, LevelFilter::OFF));
    let named = own.iter().map(|(name, level)| (name.as_str(), LevelFilter::from(*level)));
    Targets::new()
        .with_default(LevelFilter::from(root))
        .with_targets(others)
        .with_targets(silent)
        .with_targets(named)
}

/// The reports of this process, once they have begun.
static REPORTS: OnceLock<Mutex<Levels>> = OnceLock::new();

/// Starts reporting. Only the first call of a process has an effect.
pub fn start(form: Form, level: Level) {
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let (shown, filter) = reload::Layer::new(targets(level, &BTreeMap::new()));
    let bound = Bound::default();
    let queue = QUEUE.get_or_init(|| Queue::start(std::io::stderr(), bound.clone())).clone();
    let lines =
        fmt::layer().with_writer(queue).with_ansi(colours).with_target(level >= Level::Debug);
    let reports = registry().with(bound).with(shown);
    // Whoever comes second (a test in the same process) goes on with the first one's.
    let begun = match form {
        Form::Text => reports.with(lines).try_init(),
        Form::Json => reports.with(lines.json().flatten_event(true)).try_init(),
    };
    if begun.is_ok() {
        let _ = REPORTS.set(Mutex::new(Levels { root: level, own: BTreeMap::new(), filter }));
        IN_JSON.store(form == Form::Json, Ordering::Relaxed);
    }
}

/// Whether what is reported has to be JSON, the failure that ends the program included.
pub fn is_json() -> bool {
    IN_JSON.load(Ordering::Relaxed)
}

/// Waits until what was reported is written, or nobody seems to read it.
pub fn finish() {
    if let Some(queue) = QUEUE.get() {
        queue.wait(PATIENCE_AT_THE_END);
    }
}

/// The loggers as the broker shows them to operators (KIP-412).
#[derive(Debug, Clone, Copy)]
pub struct Loggers;

impl LogLevels for Loggers {
    fn levels(&self) -> Vec<(String, &'static str)> {
        let Some(reports) = REPORTS.get() else { return Vec::new() };
        let reports = reports.lock().expect("nothing panics while it is held");
        let named = LOGGERS.iter().chain(OF_OTHERS);
        let named = named.map(|name| ((*name).to_owned(), reports.of(name).name()));
        let mut all: Vec<_> = named.collect();
        all.push((ROOT.to_owned(), reports.root.name()));
        all.sort();
        all
    }

    fn set(&self, logger: &str, level: Option<&'static str>) {
        let Some(reports) = REPORTS.get() else { return };
        let mut reports = reports.lock().expect("nothing panics while it is held");
        match (logger, level.and_then(Level::of_name)) {
            (ROOT, Some(level)) => reports.root = level,
            (ROOT, None) => {}
            (name, Some(level)) => {
                reports.own.insert(name.to_owned(), level);
            }
            (name, None) => {
                reports.own.remove(name);
            }
        }
        let shown = targets(reports.root, &reports.own);
        // Fails only when the subscriber is gone, and then nothing is reported.
        let _ = reports.filter.reload(shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level as Reported;

    #[test]
    fn what_others_report_is_shown_with_trace_or_by_name_only() {
        let none = BTreeMap::new();
        let shown = targets(Level::Debug, &none);
        assert!(shown.would_enable("broker::network", &Reported::DEBUG));
        assert!(shown.would_enable("hyper::proto", &Reported::WARN));
        assert!(!shown.would_enable("hyper::proto", &Reported::INFO));
        assert!(shown.would_enable("openraft::core", &Reported::ERROR));
        assert!(!shown.would_enable("openraft::core", &Reported::WARN));
        let stopping = "openraft::raft::raft_inner";
        assert!(shown.would_enable(stopping, &Reported::ERROR));
        for quiet in [Level::Error, Level::Warn, Level::Info] {
            assert!(!targets(quiet, &none).would_enable(stopping, &Reported::ERROR));
        }
        assert!(targets(Level::Trace, &none).would_enable(stopping, &Reported::TRACE));
        assert!(targets(Level::Trace, &none).would_enable("openraft", &Reported::TRACE));
        assert!(!targets(Level::Error, &none).would_enable("openraft", &Reported::WARN));
        let named = BTreeMap::from([("openraft".to_owned(), Level::Debug)]);
        let shown = targets(Level::Warn, &named);
        assert!(shown.would_enable("openraft::core", &Reported::DEBUG));
        assert!(shown.would_enable(stopping, &Reported::DEBUG));
        assert!(!shown.would_enable("broker", &Reported::INFO));
    }

    #[test]
    fn levels_have_the_names_that_the_broker_knows() {
        assert_eq!(Level::ALL.map(Level::name), broker::LEVELS);
    }

    #[test]
    fn a_level_set_by_name_is_shown_and_taken_away_again() {
        start(Form::Text, Level::Error);
        let of = |name: &str| {
            let all = Loggers.levels();
            all.into_iter().find(|(logger, _)| logger == name).expect("it is listed").1
        };
        let before = of("quorum");
        Loggers.set("quorum", Some("TRACE"));
        assert_eq!(of("quorum"), "TRACE");
        assert!(tracing::enabled!(target: "quorum", Reported::TRACE));
        Loggers.set("quorum", None);
        assert_eq!(of("quorum"), before);
        assert!(!tracing::enabled!(target: "quorum", Reported::TRACE));
    }
}
