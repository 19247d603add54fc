//! Kafka's performance tools by their names: the same flags, lines, arithmetic and exit codes, so that
//! scripts need no change; and more where it is asked for.
//!
//! [`main`] runs a tool as a program of its own; [`run`] with arguments that someone else has read.
//! What Kafka's tools do wrongly in the eyes of the load engine (`crate::load`) they do here too: that
//! one measures, these compare.
//!
//! Known deviations: of the ways to log in PLAIN and SCRAM are spoken, neither GSSAPI nor OAUTHBEARER; certificates and
//! keys are in PEM, not in a JKS or PKCS#12 store.
//! A cluster that cannot be reached within `max.block.ms` or `default.api.timeout.ms` ends a run with
//! exit code 1. Failed sends are told in a line for each batch, without a stack trace. `--include`
//! reads the topics that are there at the beginning. A consumer belongs to a classic group.
//! `--print-metrics` shows what our client counts, not all that Kafka's does. Values are made of
//! Kafka's letters, and `--payload-mode reuse` gives its very bytes of before 3.0; fresh ones are
//! drawn by a faster generator. Records without a key go to one partition for a batch and then to
//! another by chance, not to less busy brokers more often (the adaptive half of KIP-794).

mod clock;
mod console;
pub mod consume;
mod consumer_settings;
mod date_format;
pub mod e2e;
mod failure;
mod letters;
mod number;
mod output;
pub mod produce;
mod producer_settings;
mod properties;
mod reach;
mod settings;
mod table;
#[cfg(test)]
mod testing;

pub use console::Console;
pub use failure::ToolError;

use clap::error::ErrorKind;
use clap::{Args, FromArgMatches};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

/// What the producer's tool cannot do without.
const PRODUCE_USAGE: &str = "kafka-producer-perf-test --bootstrap-server HOST:PORT --topic TOPIC \
                             --num-records COUNT --throughput RATE (--record-size BYTES | \
                             --payload-file FILE | --payload-monotonic) [OPTIONS]";

/// What each tool's help says that it cannot do.
const PRODUCE_LIMITS: &str = "Not as Kafka's tool: PLAIN and SCRAM, PEM stores; no GSSAPI, \
    OAUTHBEARER, JKS. A cluster that cannot be reached, or a topic that cannot be made, within \
    max.block.ms ends the run with an error. Records that are not sent are told in a line for each \
    batch, without a stack trace. Records without a key go to all partitions alike, however busy \
    their brokers are. --print-metrics shows what this client counts.";
const CONSUME_LIMITS: &str = "Not as Kafka's tool: PLAIN and SCRAM, PEM stores; no GSSAPI, \
    OAUTHBEARER, JKS. A cluster that cannot be reached within default.api.timeout.ms ends the run \
    with an error. --include takes the topics that are there at the beginning. Groups are of the \
    classic protocol. --print-metrics shows what this client counts.";
const E2E_LIMITS: &str =
    "Not as Kafka's tool: PLAIN and SCRAM, PEM stores; no GSSAPI, OAUTHBEARER, JKS.";

/// A tool of Kafka's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// `kafka-producer-perf-test`
    Produce,
    /// `kafka-consumer-perf-test`
    Consume,
    /// `kafka-e2e-latency`
    EndToEnd,
}

/// A tool and what it shall do.
#[derive(Debug, Clone)]
pub enum Task {
    /// `kafka-producer-perf-test`
    Produce(Box<produce::arguments::Arguments>),
    /// `kafka-consumer-perf-test`
    Consume(Box<consume::arguments::Arguments>),
    /// `kafka-e2e-latency`
    EndToEnd(Box<e2e::arguments::Arguments>),
}

impl Tool {
    /// All.
    pub const ALL: [Tool; 3] = [Tool::Produce, Tool::Consume, Tool::EndToEnd];

    /// Its name with Kafka.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Produce => "kafka-producer-perf-test",
            Tool::Consume => "kafka-consumer-perf-test",
            Tool::EndToEnd => "kafka-e2e-latency",
        }
    }

    /// The tool of this name, with or without `.sh`.
    pub fn of_name(name: &str) -> Option<Tool> {
        let name = name.strip_suffix(".sh").unwrap_or(name);
        Tool::ALL.into_iter().find(|tool| tool.name() == name)
    }

    fn command(self) -> clap::Command {
        let command = clap::Command::new(self.name()).infer_long_args(true);
        match self {
            // With argparse4j the last of several counts.
            Tool::Produce => {
                let command = produce::arguments::Arguments::augment_args(command);
                command.args_override_self(true).override_usage(PRODUCE_USAGE)
            }
            Tool::Consume => consume::arguments::Arguments::augment_args(command),
            Tool::EndToEnd => e2e::arguments::Arguments::augment_args(command),
        }
    }

    /// Reads the arguments behind the program's name.
    fn parse(self, arguments: &[OsString]) -> Result<Task, clap::Error> {
        let typed = arguments.iter().map(|argument| self.with_two_dashes(argument));
        let name = OsString::from(self.name());
        let matches = self.command().try_get_matches_from(std::iter::once(name).chain(typed))?;
        Ok(match self {
            Tool::Produce => Task::Produce(Box::new(FromArgMatches::from_arg_matches(&matches)?)),
            Tool::Consume => Task::Consume(Box::new(FromArgMatches::from_arg_matches(&matches)?)),
            Tool::EndToEnd => Task::EndToEnd(Box::new(FromArgMatches::from_arg_matches(&matches)?)),
        })
    }

    /// The consumer's and the latency tool's parser takes `-topic` for `--topic`.
    fn with_two_dashes(self, argument: &OsString) -> OsString {
        let text = argument.to_string_lossy();
        let long = text.strip_prefix('-').filter(|rest| {
            rest.len() > 1 && rest.starts_with(|first: char| first.is_ascii_alphabetic())
        });
        match long {
            Some(_) if self != Tool::Produce => OsString::from(format!("-{text}")),
            _ => argument.clone(),
        }
    }
}

/// Does what a task says; what it writes goes to the console.
pub fn run(task: &Task, console: &Arc<Console>) -> Result<(), ToolError> {
    match task {
        Task::Produce(arguments) => produce::run(arguments, console),
        Task::Consume(arguments) => consume::run(arguments, console),
        Task::EndToEnd(arguments) => e2e::run(arguments, console),
    }
}

/// Runs a tool as the program of its name: with the arguments behind that name, and Kafka's exit
/// codes.
pub fn main(tool: Tool, arguments: &[OsString], console: &Arc<Console>) -> ExitCode {
    if arguments.is_empty() {
        return show_help(tool, console);
    }
    // The producer's tool has no such flag.
    if tool != Tool::Produce && arguments.iter().any(|argument| argument == "--version") {
        console.line(env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    let task = match tool.parse(arguments) {
        Ok(task) => task,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            show_help(tool, console);
            return ExitCode::FAILURE;
        }
        Err(error) => return refuse(tool, &first_line(&error), console),
    };
    match run(&task, console) {
        Ok(()) => ExitCode::SUCCESS,
        Err(ToolError::Usage(text)) => refuse(tool, &text, console),
        Err(error) => {
            console.notice(format_args!("{}: error: {error}", tool.name()));
            ExitCode::FAILURE
        }
    }
}

/// The producer's tool helps whoever types nothing; the others take it for an error.
fn show_help(tool: Tool, console: &Console) -> ExitCode {
    let help = tool.command().render_help();
    if tool == Tool::Produce {
        console.line(help);
        return ExitCode::SUCCESS;
    }
    console.notice(help);
    ExitCode::FAILURE
}

/// The producer's tool shows the usage before an error, the others all options behind it.
fn refuse(tool: Tool, text: &str, console: &Console) -> ExitCode {
    if tool == Tool::Produce {
        let usage = tool.command().render_usage().to_string();
        console.notice(usage.replacen("Usage:", "usage:", 1));
        console.notice(format_args!("{}: error: {text}", tool.name()));
    } else {
        console.notice(text);
        console.notice(tool.command().render_help());
    }
    ExitCode::FAILURE
}

fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
