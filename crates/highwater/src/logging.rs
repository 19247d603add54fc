//! What the program reports while it runs: on standard error, as lines for people or as JSON.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;

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

/// Starts reporting. Only the first call of a process has an effect.
pub fn start(form: Form, level: Level) {
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let reports = fmt()
        .with_writer(std::io::stderr)
        .with_max_level(LevelFilter::from(level))
        .with_ansi(colours)
        .with_target(level >= Level::Debug);
    // Whoever comes second (a test in the same process) goes on with the first one's.
    let _ = match form {
        Form::Text => reports.try_init(),
        Form::Json => reports.json().flatten_event(true).try_init(),
    };
}
