//! What a round stands on: a broker on a fresh folder, a gateway and a proxy in front of it, each a process of its own; and
//! the program that makes load.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use peer::highwater::{self, Front, Server};
use peer::process::{self, Guarded};
use peer::procfs;
use serde_json::Value;
use tempfile::TempDir;

use super::super::figures::Figures;
use crate::front::ask;
use crate::repository::repository;

/// How long the load's program may take to build.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);
/// How long one load may run.
const RUN_LIMIT: Duration = Duration::from_secs(400);
/// How long the end of a load may take that was told to end.
const END_LIMIT: Duration = Duration::from_secs(30);

/// What is run.
pub struct Programs {
    /// Broker, gateway, proxy.
    pub highwater: PathBuf,
    /// The load.
    pub load: PathBuf,
}

/// Builds the program that makes load.
pub fn build_load() -> Result<PathBuf> {
    let mut cargo = process::command("cargo");
    cargo.args(["build", "--quiet", "--release", "--package", "perf", "--example", "front"]);
    cargo.current_dir(repository());
    let outcome = process::run(&mut cargo, None, BUILD_LIMIT)?;
    ensure!(outcome.success(), "the load's program does not build: {}", outcome.story());
    Ok(crate::highwater::target_folder().join("release/examples/front"))
}

/// A broker with what stands in front of it.
pub struct Stand<'a> {
    programs: &'a Programs,
    /// The broker.
    pub broker: Server,
    /// The gateway.
    pub gateway: Front,
    _folder: TempDir,
}

/// A load that waits for the end of its input.
pub struct Held {
    process: Guarded,
    said: BufReader<ChildStdout>,
}

impl Held {
    fn line(&mut self) -> Result<Figures> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the load has ended, and why is above");
        figures(&line)
    }

    /// Ends it; what it says at its end.
    pub fn let_go(mut self) -> Result<Figures> {
        drop(self.process.child().stdin.take());
        let figures = self.line()?;
        let status = self.process.wait(END_LIMIT)?.context("the load does not end")?;
        ensure!(status.success(), "the load failed: {status}");
        Ok(figures)
    }
}

/// CPU seconds that were used by a load and what it was put on.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    /// The gateway.
    pub gateway_s: f64,
    /// The broker.
    pub broker_s: f64,
    /// The load's own process.
    pub client_s: f64,
}

impl<'a> Stand<'a> {
    /// Starts them.
    pub fn start(programs: &'a Programs) -> Result<Stand<'a>> {
        let folder = tempfile::tempdir()?;
        let data = folder.path().join("data");
        let broker = highwater::start(&programs.highwater, &data, 0, &[])?;
        let gateway = Front::gateway(&programs.highwater, &broker.bootstrap(), &[])?;
        Ok(Stand { programs, broker, gateway, _folder: folder })
    }

    /// A proxy in front of the broker.
    pub fn proxy(&self) -> Result<Front> {
        Front::proxy(&self.programs.highwater, &self.broker.bootstrap())
    }

    /// Runs a load on the broker and the gateway to its end; what it printed, and what it took.
    pub fn load(&self, arguments: &[&str]) -> Result<(Figures, Cpu)> {
        self.load_at(&self.broker.bootstrap(), arguments)
    }

    /// The same with clients of Kafka's protocol at another place.
    pub fn load_at(&self, bootstrap: &str, arguments: &[&str]) -> Result<(Figures, Cpu)> {
        let cpu = || -> Result<[f64; 3]> {
            let (gateway, broker) = (self.gateway.pid(), self.broker.pid());
            Ok([procfs::cpu_s(gateway)?, procfs::cpu_s(broker)?, procfs::ended_children_cpu_s()?])
        };
        let before = cpu()?;
        let mut command = self.command(bootstrap, arguments);
        let outcome = process::run(&mut command, None, RUN_LIMIT)?;
        let after = cpu()?;
        ensure!(outcome.success(), "the load failed: {}", outcome.story());
        let [gateway_s, broker_s, client_s] =
            std::array::from_fn(|index| after[index] - before[index]);
        Ok((figures(&outcome.text())?, Cpu { gateway_s, broker_s, client_s }))
    }

    /// Starts a load that prints a line once everything is open and then waits for the end of its input, and waits until it has
    /// printed it; what it says.
    pub fn hold(&self, arguments: &[&str]) -> Result<(Held, Figures)> {
        let mut command = self.command(&self.broker.bootstrap(), arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Guarded::spawn(&mut command)?;
        let said = process.child().stdout.take().context("its output was piped")?;
        let mut held = Held { process, said: BufReader::new(said) };
        let figures = held.line()?;
        Ok((held, figures))
    }

    /// What the gateway counts under this name of a metric.
    pub fn gateway_count(&self, name: &str) -> Result<f64> {
        let answer = ask(self.gateway.address(), "GET", "/metrics", &[], "")?;
        let value = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
        answer.body.lines().find_map(value).with_context(|| format!("no metric {name}"))
    }

    fn command(&self, bootstrap: &str, arguments: &[&str]) -> std::process::Command {
        let mut command = process::command(&self.programs.load);
        command.args(["--bootstrap", bootstrap, "--gateway", self.gateway.address()]);
        command.args(arguments).env("RUST_BACKTRACE", "0");
        command
    }
}

/// The numbers of the last line that a load printed.
fn figures(text: &str) -> Result<Figures> {
    let line = text.lines().last().context("the load printed nothing")?;
    let Value::Object(line) = serde_json::from_str(line)? else {
        anyhow::bail!("the load printed {line}");
    };
    Ok(line.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect())
}
