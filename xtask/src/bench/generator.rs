//! The load generators: built in release on demand, run one at a time, their line of output read.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::figures::Figures;
use crate::repository::repository;
use peer::apache_kafka;
use peer::process::{self, Guarded, Outcome};

/// Where the programs of `bench/` are.
pub struct Generators {
    folder: PathBuf,
}

/// Which program, with its arguments.
pub enum Load {
    /// librdkafka.
    Native(Vec<String>),
    /// Pre-encoded requests.
    Raw(Vec<String>),
    /// A tool of Kafka's, by the name of its script, and how its output is read.
    Java(&'static str, Vec<String>, fn(&str) -> Option<Figures>),
}

impl Generators {
    /// Builds them, `native` too if it will be needed: the C build takes a minute the first time.
    pub fn build(native: bool) -> Result<Generators> {
        let target = repository().join("target/bench-generators");
        let mut cargo = process::command("cargo");
        cargo.args(["build", "--quiet", "--release", "--locked", "--package", "rawload"]);
        if native {
            cargo.args(["--package", "rdload"]);
        }
        cargo.current_dir(repository().join("bench")).env("CARGO_TARGET_DIR", &target);
        let outcome = process::run(&mut cargo, None, Duration::from_secs(900))?;
        ensure!(outcome.success(), "the generators do not build: {}", outcome.story());
        Ok(Generators { folder: target.join("release") })
    }

    /// Runs one to its end, at most `limit`; returns what it printed, as figures.
    pub fn run(&self, load: &Load, limit: Duration) -> Result<Figures> {
        let (mut command, read): (_, fn(&str) -> Option<Figures>) = match load {
            Load::Native(arguments) => (self.program("rdload", arguments), json_figures),
            Load::Raw(arguments) => (self.program("rawload", arguments), json_figures),
            Load::Java(tool, arguments, read) => (apache_kafka::tool(tool, arguments)?, *read),
        };
        let outcome = process::run(&mut command, None, limit)?;
        figures_of(&outcome, read)
    }

    /// Starts `rawload` in the background; [`finish`] waits for it.
    pub fn start_raw(&self, arguments: &[String]) -> Result<Guarded> {
        let mut command = self.program("rawload", arguments);
        command.stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::inherit());
        Guarded::spawn(&mut command)
    }

    fn program(&self, name: &str, arguments: &[String]) -> std::process::Command {
        let mut command = process::command(self.folder.join(name));
        // Failures are part of measuring; their message suffices.
        command.args(arguments).env("RUST_BACKTRACE", "0");
        command
    }
}

/// Waits for what [`Generators::start_raw`] began.
pub fn finish(mut running: Guarded, limit: Duration) -> Result<Figures> {
    let status = running.wait(limit)?.context("rawload did not end in time")?;
    ensure!(status.success(), "rawload failed: {status}");
    let mut text = String::new();
    let pipe = running.child().stdout.take().context("its output was piped")?;
    std::io::Read::read_to_string(&mut { pipe }, &mut text)?;
    json_figures(&text).with_context(|| format!("no figures in {text:?}"))
}

fn figures_of(outcome: &Outcome, read: fn(&str) -> Option<Figures>) -> Result<Figures> {
    ensure!(outcome.success(), "the generator failed: {}", outcome.story());
    read(&outcome.text()).with_context(|| format!("no figures in: {}", outcome.story()))
}

/// Reads the one line of JSON that our own programs print.
fn json_figures(text: &str) -> Option<Figures> {
    let Ok(Value::Object(line)) = serde_json::from_str(text.lines().last()?) else { return None };
    Some(line.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect())
}

/// Reads the last line of `kafka-producer-perf-test`, whose records had 1 KiB:
/// `N records sent, N records/sec (N MB/sec), N ms avg latency, …`, where MB means MiB.
pub fn java_producer_figures(text: &str) -> Option<Figures> {
    let line =
        text.lines().rfind(|line| line.contains(" records sent, ") && line.contains("99th"))?;
    let number_before = |word: &str| -> Option<f64> {
        line[..line.find(word)?].trim_end().rsplit([' ', '(']).next()?.parse().ok()
    };
    let records = number_before(" records sent")?;
    let rate = number_before(" records/sec")?;
    Some(Figures::from([
        ("records".to_owned(), records),
        ("bytes".to_owned(), records * 1024.0),
        ("seconds".to_owned(), records / rate),
        ("p50_ms".to_owned(), number_before(" ms 50th")?),
        ("p99_ms".to_owned(), number_before(" ms 99th")?),
    ]))
}

/// Reads the two lines of `kafka-consumer-perf-test`. Time is that of fetching: the group's joining,
/// which waits by design, is left out.
pub fn java_consumer_figures(text: &str) -> Option<Figures> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("start.time"));
    let names = lines.next()?.split(", ");
    let values: Vec<&str> = lines.next()?.split(", ").collect();
    let columns: Vec<(&str, &str)> = names.zip(values).collect();
    let column = |name: &str| -> Option<f64> {
        columns.iter().find(|(column, _)| *column == name)?.1.parse().ok()
    };
    Some(Figures::from([
        ("records".to_owned(), column("data.consumed.in.nMsg")?),
        ("bytes".to_owned(), column("data.consumed.in.MB")? * 1_048_576.0),
        ("seconds".to_owned(), column("fetch.time.ms")? / 1000.0),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_the_java_producer_is_read() {
        let text = "10 records sent, 5.0 records/sec (1 MB/sec), 1 ms avg latency, 2 ms max latency.\n\
            50000 records sent, 25000.0 records/sec (24.41 MB/sec), 803.14 ms avg latency, \
            1247.00 ms max latency, 821 ms 50th, 1130 ms 95th, 1228 ms 99th, 1245 ms 99.9th.\n";
        let figures = java_producer_figures(text).unwrap();
        assert!((figures["seconds"] - 2.0).abs() < 1e-9);
        assert!((figures["p99_ms"] - 1228.0).abs() < 1e-9);
        assert!((figures["bytes"] - 51_200_000.0).abs() < 1e-3);
    }

    #[test]
    fn the_columns_of_the_java_consumer_are_found_by_name() {
        let text = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, \
            nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n\
            a b, c d, 2.0, 11.6, 50493, 11945.3, 3601, 500, 78.7, 80659.7\n";
        let figures = java_consumer_figures(text).unwrap();
        assert!((figures["seconds"] - 0.5).abs() < 1e-9);
        assert!((figures["bytes"] - 2_097_152.0).abs() < 1e-3);
    }

    #[test]
    fn output_without_figures_is_none() {
        assert_eq!(json_figures("oops"), None);
        assert_eq!(java_producer_figures("oops"), None);
        assert_eq!(java_consumer_figures("start.time\n"), None);
    }
}
