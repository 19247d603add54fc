//! What the program reports, and how much: levels by logger, changed while the broker runs (KIP-412).
//!
//! The program owns its reports; the broker only carries what an operator asks for. A program that
//! gives none has no loggers.

/// The levels, from the one that reports least.
pub const LEVELS: [&str; 5] = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];

/// The logger that all others take their level from; its level cannot be taken away.
pub const ROOT: &str = "root";

/// The loggers of the program that runs the broker.
pub trait LogLevels: Send + Sync {
    /// Every logger and its level, one of [`LEVELS`]; [`ROOT`] among them.
    fn levels(&self) -> Vec<(String, &'static str)>;

    /// Gives one of the loggers a level of its own, or takes it away again. Both names are known.
    fn set(&self, logger: &str, level: Option<&'static str>);
}
