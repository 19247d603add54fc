//! A scenario that is written in Rust: it drives command-line tools and checks what they say.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tempfile::TempDir;

use super::report::{Ending, Row};
use super::target::Target;
use peer::apache_kafka;
use peer::process::{self, Outcome};

/// How long one call of a tool may take.
pub const TOOL_LIMIT: Duration = Duration::from_secs(90);

/// What a scenario returns when nothing failed.
#[derive(Debug)]
pub enum Verdict {
    /// All held.
    Pass,
    /// All held, and this is what the client told its user.
    Told(String),
    /// It cannot run here, and why.
    Skip(String),
}

/// Name and check.
pub type Scenario = (&'static str, fn(&Context<'_>) -> Result<Verdict>);

/// What a scenario may use.
#[derive(Debug)]
pub struct Context<'a> {
    target: &'a Target,
    folder: TempDir,
    run: String,
    names: AtomicU32,
}

impl<'a> Context<'a> {
    /// For one client; `run` goes into the names of topics and groups.
    pub fn new(target: &'a Target, run: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        Ok(Self { target, folder, run: run.to_owned(), names: AtomicU32::new(0) })
    }

    /// The cluster under test.
    #[must_use]
    pub fn target(&self) -> &Target {
        self.target
    }

    /// `host:port,…`
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.target.bootstrap
    }

    /// A folder for files of the scenario.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A name for a topic or a group that no other scenario uses.
    #[must_use]
    pub fn name(&self, word: &str) -> String {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        format!("{}-{word}-{number}", self.run)
    }

    /// Runs Kafka's tool `name` against the cluster, whatever its exit code.
    pub fn try_tool(&self, name: &str, arguments: &[&str], input: &[u8]) -> Result<Outcome> {
        let mut all = vec!["--bootstrap-server", self.bootstrap()];
        all.extend(arguments);
        process::run(&mut apache_kafka::brief_tool(name, &all)?, Some(input.to_vec()), TOOL_LIMIT)
    }

    /// As [`Self::tool`], for a tool that wants its command first and then the cluster.
    pub fn tool_of_command(&self, name: &str, command: &[&str]) -> Result<String> {
        let all = [command, &["--bootstrap-server", self.bootstrap()]].concat();
        let outcome = process::run(&mut apache_kafka::brief_tool(name, &all)?, None, TOOL_LIMIT)?;
        ensure!(outcome.success(), "{name} {command:?}: {}", outcome.story());
        Ok(outcome.text())
    }

    /// Runs Kafka's tool `name`, which must succeed; returns its standard output.
    pub fn tool(&self, name: &str, arguments: &[&str]) -> Result<String> {
        self.tool_fed(name, arguments, b"")
    }

    /// As [`Self::tool`], with `input` on its standard input.
    pub fn tool_fed(&self, name: &str, arguments: &[&str], input: &[u8]) -> Result<String> {
        let outcome = self.try_tool(name, arguments, input)?;
        ensure!(outcome.success(), "{name} {arguments:?}: {}", outcome.story());
        Ok(outcome.text())
    }

    /// Makes a topic with Kafka's tool.
    pub fn make_topic(&self, word: &str, partitions: u32) -> Result<String> {
        let topic = self.name(word);
        let partitions = partitions.to_string();
        self.tool("kafka-topics", &["--create", "--topic", &topic, "--partitions", &partitions])?;
        Ok(topic)
    }

    /// Puts `lines` into a topic with Kafka's console producer.
    pub fn produce_lines(&self, topic: &str, lines: &str) -> Result<()> {
        self.tool_fed("kafka-console-producer", &["--topic", topic], lines.as_bytes())?;
        Ok(())
    }
}

/// Fails unless `text` holds every one of `wanted`.
pub fn must_contain(text: &str, wanted: &[&str]) -> Result<()> {
    for part in wanted {
        ensure!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
    Ok(())
}

/// Fails when `text` holds `unwanted`.
pub fn must_lack(text: &str, unwanted: &str) -> Result<()> {
    ensure!(!text.contains(unwanted), "`{unwanted}` must not be in:\n{text}");
    Ok(())
}

/// Fails unless some line of `text`, its columns joined by one space, begins with `wanted`.
pub fn must_have_row(text: &str, wanted: &str) -> Result<()> {
    let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let found = text.lines().any(|line| squeezed(line).starts_with(wanted));
    ensure!(found, "no row `{wanted}` in:\n{text}");
    Ok(())
}

/// Runs one scenario and says how it ended.
pub fn run(client: &str, version: &str, scenario: &Scenario, context: &Context<'_>) -> Row {
    let start = Instant::now();
    let (result, reason) = match (scenario.1)(context) {
        Ok(Verdict::Pass) => (Ending::Pass, String::new()),
        Ok(Verdict::Told(what)) => (Ending::Pass, what),
        Ok(Verdict::Skip(reason)) => (Ending::Skip, reason),
        Err(error) => (Ending::Fail, format!("{error:#}")),
    };
    Row {
        client: client.to_owned(),
        version: version.to_owned(),
        scenario: scenario.0.to_owned(),
        result,
        reason,
        seconds: rounded(start.elapsed()),
    }
}

/// Seconds with one digit behind the point.
#[must_use]
pub fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_without_regard_to_the_width_of_columns() {
        let table = "GROUP   TOPIC  PARTITION\ng       t      0  17\n";
        must_have_row(table, "g t 0 17").unwrap();
        assert!(must_have_row(table, "g t 1").is_err());
    }

    #[test]
    fn contain_and_lack_fail_when_they_must() {
        must_contain("abc", &["a", "bc"]).unwrap();
        assert!(must_contain("abc", &["a", "x"]).is_err());
        must_lack("abc", "x").unwrap();
        assert!(must_lack("abc", "b").is_err());
    }
}
