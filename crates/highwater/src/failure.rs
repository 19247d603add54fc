//! How the program says that something went wrong: what, why, and what to do about it.

use std::fmt;
use std::io;
use std::process::ExitCode;

use owo_colors::OwoColorize;

use crate::logging;

/// The end of a command that did not do what was asked.
#[derive(Debug)]
pub struct Failure {
    /// One line: what could not be done.
    primary: String,
    /// Why, as far as it is known; may have several lines.
    detail: Option<String>,
    /// What the user can do now.
    hint: Option<String>,
    /// Whoever read our output has gone: nothing is to be said.
    silent: bool,
    /// Whether no broker answered.
    unreachable: bool,
}

impl Failure {
    /// A failure in one line: lower case, no full stop.
    pub fn new(primary: impl Into<String>) -> Failure {
        let primary = primary.into();
        Failure { primary, detail: None, hint: None, silent: false, unreachable: false }
    }

    /// Adds why.
    pub fn detail(mut self, detail: impl fmt::Display) -> Failure {
        self.detail = Some(detail.to_string());
        self
    }

    /// Adds what the user can do.
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Notes whether no broker answered.
    pub fn unreachable(mut self, is_unreachable: bool) -> Failure {
        self.unreachable = is_unreachable;
        self
    }

    /// Whether no broker answered.
    pub fn is_unreachable(&self) -> bool {
        self.unreachable
    }

    /// Writes it to standard error, in colours on a terminal, and gives the exit code. Where a broker
    /// reports in JSON, the failure that ends it is a line of JSON too.
    pub fn report(&self) -> ExitCode {
        if self.silent {
            return ExitCode::SUCCESS;
        }
        if logging::is_json() {
            let (detail, hint) = (self.detail.as_deref(), self.hint.as_deref());
            tracing::error!(detail, hint, "{}", self.primary);
            return ExitCode::FAILURE;
        }
        anstream::eprintln!("{} {}", "error:".red().bold(), self.primary);
        if let Some(detail) = &self.detail {
            for line in detail.lines() {
                anstream::eprintln!("  {line}");
            }
        }
        if let Some(hint) = &self.hint {
            anstream::eprintln!("{} {hint}", "hint:".cyan().bold());
        }
        ExitCode::FAILURE
    }

    /// The end of a command whose reader went away (`highwater … | head`).
    fn reader_gone() -> Failure {
        Failure { silent: true, ..Failure::new("the output has no reader any more") }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.primary)?;
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        Ok(())
    }
}

/// A failure to write what was asked for to standard output.
pub fn on_output(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::reader_gone(),
        _ => Failure::new("cannot write to standard output").detail(error),
    }
}
