//! `cargo xt secured`: Highwater's clients (command line, gateway with console, performance tools) in front of a real Apache Kafka
//! with TLS and logins, and what each of them says when it is not let in. The same files of properties are given to a tool of
//! Kafka's own, which must understand them too.

pub mod cluster;
mod gateway;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use peer::apache_kafka::JavaRuntime;
use peer::process::{self, Outcome};

use crate::highwater;
use cluster::Protected;

/// How long a command may take: a cluster that is not reached is tried for ten seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs all of it; fails at the first that is not as it should be.
pub fn run() -> Result<()> {
    if let Err(missing) = peer::apache_kafka::check() {
        println!("secured: skipped, Apache Kafka does not run here: {missing:#}");
        return Ok(());
    }
    let program = highwater::binary()?;
    let folder = tempfile::tempdir()?;
    let java_runtime = JavaRuntime { heap_mib: 1024, class_archive: false };
    let protected = Protected::start(folder.path(), 1, java_runtime)?;
    println!("Apache Kafka at {}", protected.open());
    for way in &protected.ways {
        let name = way.name;
        command_line(&program, name, &way.at, &way.properties)
            .with_context(|| format!("{name}: the command line"))?;
        perf_tools(&program, name, &way.at, &way.properties)
            .with_context(|| format!("{name}: the performance tools"))?;
        gateway::serves(&program, &format!("topic-{name}"), &way.at, &way.properties)
            .with_context(|| format!("{name}: the gateway"))?;
        kafkas_own(&way.at, &way.properties)
            .with_context(|| format!("{name}: a tool of Kafka's with the same file"))?;
        println!("ok  {name}: command line, performance tools, gateway, console, Kafka's own tool");
    }
    for refusal in &protected.refusals {
        let name = refusal.name;
        let mut command = client(&program, &["topic", "list"], &refusal.at, &refusal.properties);
        let outcome = process::run(&mut command, None, LIMIT)?;
        let said = outcome.errors();
        ensure!(!outcome.success(), "{name}: it was let in");
        ensure!(
            said.contains(refusal.words),
            "{name}: it does not say {:?}: {said}",
            refusal.words
        );
        ensure!(!said.contains(cluster::PASSWORD), "{name}: the password is shown: {said}");
        let line = said.lines().find(|line| line.contains(refusal.words)).unwrap_or_default();
        println!("ok  {name}: {}", line.trim());
    }
    protected.stop()
}

fn client(program: &Path, arguments: &[&str], at: &str, properties: &Path) -> Command {
    let mut command = process::command(program);
    command.args(arguments).args(["--bootstrap-server", at, "--command-config"]).arg(properties);
    command
}

fn done(command: &mut Command, input: Option<&str>) -> Result<Outcome> {
    let outcome = process::run(command, input.map(|text| text.as_bytes().to_vec()), LIMIT)?;
    ensure!(outcome.success(), "{}", outcome.story());
    Ok(outcome)
}

/// A topic is made, written and read.
fn command_line(program: &Path, name: &str, at: &str, properties: &Path) -> Result<()> {
    let topic = format!("topic-{name}");
    done(&mut client(program, &["topic", "create", &topic], at, properties), None)?;
    done(&mut client(program, &["produce", &topic], at, properties), Some("first\nsecond\n"))?;
    let read = ["consume", &topic, "--from", "start", "--count", "2"];
    let text = done(&mut client(program, &read, at, properties), None)?.text();
    ensure!(text.contains("first") && text.contains("second"), "read: {text}");
    Ok(())
}

/// Records are written and read back, as many as were asked for.
fn perf_tools(program: &Path, name: &str, at: &str, properties: &Path) -> Result<()> {
    let topic = format!("perf-{name}");
    done(&mut client(program, &["topic", "create", &topic], at, properties), None)?;
    let write = [
        "perf",
        "produce",
        "--topic",
        &topic,
        "--num-records",
        "50000",
        "--record-size",
        "100",
        "--throughput",
        "-1",
    ];
    let text = done(&mut client(program, &write, at, properties), None)?.text();
    ensure!(text.contains("50000 records sent"), "written: {text}");
    // Java's broker may be long at making the topic of offsets: the tool's own ten seconds are for machines with nothing to do.
    let patience = ["--timeout", "100000"];
    let read = ["perf", "consume", "--topic", &topic, "--num-records", "50000"];
    let read = [&read[..], &patience].concat();
    let text = done(&mut client(program, &read, at, properties), None)?.text();
    let row = text.lines().last().unwrap_or_default();
    ensure!(row.split(", ").nth(4) == Some("50000"), "read: {text}");
    Ok(())
}

fn kafkas_own(at: &str, properties: &Path) -> Result<()> {
    let file = properties.to_str().context("the folder's name is not text")?;
    let arguments = ["--bootstrap-server", at, "--command-config", file, "--list"];
    let mut tool = peer::apache_kafka::brief_tool("kafka-topics", &arguments)?;
    let listed = done(&mut tool, None)?.text();
    if !listed.lines().any(|topic| topic.starts_with("topic-")) {
        bail!("listed: {listed}");
    }
    Ok(())
}
