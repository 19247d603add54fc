//! What the program reports while it runs: on standard error, as lines for people or as JSON.

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, registry};

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

/// What other people's crates report drowns our own lines: warnings only, unless everything is
/// asked for.
const OF_OTHERS: &[&str] = &["openraft", "hyper", "h2", "mio"];

static IN_JSON: AtomicBool = AtomicBool::new(false);

/// Starts reporting. Only the first call of a process has an effect.
pub fn start(form: Form, level: Level) {
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let of_others = if level == Level::Trace { level } else { level.min(Level::Warn) };
    let others = OF_OTHERS.iter().map(|target| (*target, LevelFilter::from(of_others)));
    let shown = Targets::new().with_default(LevelFilter::from(level)).with_targets(others);
    let bound = Bound::default();
    let queue = QUEUE.get_or_init(|| Queue::start(std::io::stderr(), bound.clone())).clone();
    let lines =
        fmt::layer().with_writer(queue).with_ansi(colours).with_target(level >= Level::Debug);
    let reports = registry().with(bound).with(shown);
    // Whoever comes second (a test in the same process) goes on with the first one's.
    let started = match form {
        Form::Text => reports.with(lines).try_init(),
        Form::Json => reports.with(lines.json().flatten_event(true)).try_init(),
    };
    if started.is_ok() && form == Form::Json {
        IN_JSON.store(true, Ordering::Relaxed);
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
