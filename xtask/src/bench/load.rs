//! The load generator beside librdkafka: what a record costs each, into a sink that throws all away and into
//! Highwater. One producer, 128-byte records, interleaved rounds, medians.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use peer::highwater::free_port;
use peer::process::{self, Guarded};
use peer::procfs;
use serde_json::Value;

use super::figures::median;
use super::generator::Generators;
use crate::highwater;
use crate::repository::repository;

/// How long a build may take.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);
/// How long a run may take.
const RUN_LIMIT: Duration = Duration::from_secs(180);
/// How long the sink may take to listen.
const START_LIMIT: Duration = Duration::from_secs(10);

/// How to compare the generators.
#[derive(Debug, Args)]
pub struct Load {
    /// Counted rounds, behind a discarded one
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Million records of a run
    #[arg(long, default_value_t = 8)]
    millions: u64,
}

/// Where the records go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Into {
    Sink,
    Highwater,
}

/// One line of the table.
struct Row {
    client: &'static str,
    into: Into,
    batch_bytes: u32,
    records_per_s: Vec<f64>,
    cpu_s_per_million: Vec<f64>,
}

/// Runs the comparison and prints its table.
pub fn compare(arguments: &Load) -> Result<()> {
    let generators = Generators::build(true)?;
    let ours = build_ours()?;
    let port = free_port()?;
    let sink_address = format!("127.0.0.1:{port}");
    let mut sink = process::command(&ours);
    sink.args(["--sink-at", &sink_address, "--partitions", "4"]);
    let mut sink = Guarded::spawn(&mut sink)?;
    sink.wait_until_listening(port, START_LIMIT)?;
    let scratch = tempfile::tempdir()?;
    let server = highwater::start(
        &scratch.path().join("data"),
        free_port()?,
        &[("log.segment.delete.delay.ms", "1000")],
    )?;
    let mut rows = Vec::new();
    for into in [Into::Sink, Into::Highwater] {
        for batch_bytes in [16_384, 1_000_000] {
            for client in ["highwater", "librdkafka"] {
                rows.push(Row {
                    client,
                    into,
                    batch_bytes,
                    records_per_s: Vec::new(),
                    cpu_s_per_million: Vec::new(),
                });
            }
        }
    }
    let records = arguments.millions * 1_000_000;
    for round in 0..=arguments.rounds {
        for (number, row) in rows.iter_mut().enumerate() {
            let topic = format!("load-{round}-{number}");
            let bootstrap = match row.into {
                Into::Sink => sink_address.clone(),
                Into::Highwater => {
                    topic_of(&server.bootstrap(), &topic)?;
                    server.bootstrap()
                }
            };
            let before_s = procfs::ended_children_cpu_s()?;
            let rate = match row.client {
                "highwater" => run_ours(&ours, &bootstrap, &topic, records, row.batch_bytes)?,
                _ => run_librdkafka(&generators, &bootstrap, &topic, records, row.batch_bytes)?,
            };
            let cpu_s = procfs::ended_children_cpu_s()? - before_s;
            if row.into == Into::Highwater {
                delete_topic(&server.bootstrap(), &topic)?;
            }
            if round > 0 {
                row.records_per_s.push(rate);
                row.cpu_s_per_million.push(cpu_s / arguments.millions as f64);
            }
        }
    }
    sink.kill()?;
    server.stop()?;
    print(&rows, arguments);
    Ok(())
}

fn print(rows: &[Row], arguments: &Load) {
    println!(
        "128-byte records, one producer, acks=1, four partitions, medians of {} rounds of {} million:\n",
        arguments.rounds, arguments.millions
    );
    println!(
        "| into | batch.size | client | million records/s | CPU-s per million, whole process |"
    );
    println!("|---|--:|---|--:|--:|");
    for row in rows {
        let into = if row.into == Into::Sink { "a sink" } else { "Highwater" };
        println!(
            "| {into} | {} | {} | {:.2} | {:.3} |",
            row.batch_bytes,
            row.client,
            median(&row.records_per_s) / 1e6,
            median(&row.cpu_s_per_million)
        );
    }
}

/// Builds the load engine's program.
pub fn build_ours() -> Result<PathBuf> {
    let mut cargo = process::command("cargo");
    cargo.args(["build", "--quiet", "--release", "--package", "perf", "--example", "load"]);
    cargo.current_dir(repository()).env_remove("CARGO_TARGET_DIR");
    let outcome = process::run(&mut cargo, None, BUILD_LIMIT)?;
    ensure!(outcome.success(), "the load generator does not build: {}", outcome.story());
    Ok(repository().join("target/release/examples/load"))
}

fn run_ours(
    program: &PathBuf,
    bootstrap: &str,
    topic: &str,
    records: u64,
    batch_bytes: u32,
) -> Result<f64> {
    let mut load = process::command(program);
    load.args(["--bootstrap", bootstrap, "--topic", topic, "--leader-only", "--json"]);
    load.args(["--records", &records.to_string(), "--batch-bytes", &batch_bytes.to_string()]);
    let outcome = process::run(&mut load, None, RUN_LIMIT)?;
    ensure!(outcome.success(), "the load generator failed: {}", outcome.story());
    let line: Value = serde_json::from_str(outcome.text().trim())?;
    ensure!(line["failed"] == 0, "records failed: {line}");
    line["records_per_s"].as_f64().context("the load generator tells its rate")
}

fn run_librdkafka(
    generators: &Generators,
    bootstrap: &str,
    topic: &str,
    records: u64,
    batch_bytes: u32,
) -> Result<f64> {
    let arguments = [
        "produce",
        "--bootstrap",
        bootstrap,
        "--topic",
        topic,
        "--records",
        &records.to_string(),
        "--record-bytes",
        "128",
        "--batch-bytes",
        &batch_bytes.to_string(),
    ];
    let load = super::generator::Load::Native(arguments.map(str::to_owned).to_vec());
    let figures = generators.run(&load, RUN_LIMIT)?;
    Ok(figures["records"] / figures["seconds"])
}

fn topic_of(bootstrap: &str, topic: &str) -> Result<()> {
    program(&["topic", "create", topic, "--partitions", "4", "-b", bootstrap])
}

fn delete_topic(bootstrap: &str, topic: &str) -> Result<()> {
    program(&["topic", "delete", topic, "-b", bootstrap])
}

fn program(arguments: &[&str]) -> Result<()> {
    let mut command = process::command(highwater::binary()?);
    command.args(arguments);
    let outcome = process::run(&mut command, None, Duration::from_secs(30))?;
    ensure!(outcome.success(), "{arguments:?}: {}", outcome.story());
    Ok(())
}
