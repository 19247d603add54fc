//! Test brokers: one after the other, each with a record there and back, and many at once.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use peer::process::{self, Guarded};
use peer::procfs;
use serde_json::Value;

use super::figures::median;
use crate::highwater;

/// Longest time of one program, and of the end of a broker.
const LIMIT: Duration = Duration::from_secs(60);

/// How many test brokers.
#[derive(Debug, Args)]
pub struct TestBrokers {
    /// Tests, each with a broker of its own
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    tests: u32,
    /// Brokers that run at once
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    at_once: u32,
    /// Snapshots, each with a fork
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    snapshots: u32,
}

/// Partitions and records of the broker whose snapshots are measured: 16 MiB.
const SNAPSHOT_PARTITIONS: u32 = 50;
const SNAPSHOT_RECORDS: usize = 16 << 10;
const SNAPSHOT_RECORD_BYTES: usize = 1 << 10;

/// A test broker that serves. It ends when its standard input is closed.
struct TestBroker {
    process: Guarded,
    bootstrap: String,
    /// Address of fault rules and snapshots, `host:port`.
    http: String,
}

impl TestBroker {
    /// Starts a broker with one topic and waits for its ready line.
    fn start(binary: &Path) -> Result<TestBroker> {
        TestBroker::with_topics(binary, "t")
    }

    fn with_topics(binary: &Path, topics: &str) -> Result<TestBroker> {
        let mut command = process::command(binary);
        command.args(["test-broker", "--topics", topics]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Guarded::spawn(&mut command)?;
        let output = process.child().stdout.take().context("no standard output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let ready: Value = serde_json::from_str(&line).with_context(|| format!("{line:?}"))?;
        let bootstrap = ready["bootstrap_servers"].as_str().context("no bootstrap_servers")?;
        let http = ready["http"].as_str().and_then(|http| http.strip_prefix("http://"));
        let http = http.context("no http")?.to_owned();
        Ok(TestBroker { bootstrap: bootstrap.to_owned(), http, process })
    }

    /// Sends a request over HTTP. Returns the body of the answer, which must be a success.
    fn call(&self, method: &str, path: &str) -> Result<Value> {
        let mut stream = TcpStream::connect(&self.http)?;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.http);
        write!(stream, "{head}Connection: close\r\nContent-Length: 0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").with_context(|| answer.clone())?;
        ensure!(head.split(' ').nth(1).is_some_and(|code| code.starts_with('2')), "{answer}");
        Ok(serde_json::from_str(body).unwrap_or_default())
    }

    /// Produces a record and consumes it, each by a program of its own.
    fn exchange_record(&self, binary: &Path) -> Result<()> {
        let mut produce = process::command(binary);
        produce.args(["produce", "t", "-b", &self.bootstrap]);
        let outcome = process::run(&mut produce, Some(b"hello\n".to_vec()), LIMIT)?;
        ensure!(outcome.success(), "produce: {}", outcome.story());
        let mut consume = process::command(binary);
        consume.args(["consume", "t", "--from", "start", "--count", "1", "-b", &self.bootstrap]);
        let outcome = process::run(&mut consume, None, LIMIT)?;
        let is_read = outcome.text().lines().any(|line| line == "hello");
        ensure!(outcome.success() && is_read, "consume: {}", outcome.story());
        Ok(())
    }

    /// Closes the broker's standard input, as a test runner does, and waits for its end.
    fn end(mut self) -> Result<()> {
        drop(self.process.child().stdin.take());
        let status = self.process.wait(LIMIT)?.context("a test broker does not end")?;
        ensure!(status.success(), "a test broker failed: {status}");
        Ok(())
    }
}

/// Prints the figures.
pub fn measure(arguments: &TestBrokers) -> Result<()> {
    let binary = highwater::binary()?;
    tests_in_a_row(&binary, arguments.tests)?;
    brokers_at_once(&binary, arguments.at_once)?;
    snapshots(&binary, arguments.snapshots)
}

/// Snapshots of a broker with 16 MiB in 50 partitions, and a fork of each.
fn snapshots(binary: &Path, count: u32) -> Result<()> {
    let broker = TestBroker::with_topics(binary, &format!("t:{SNAPSHOT_PARTITIONS}"))?;
    let value = |number: usize| format!("{number:0SNAPSHOT_RECORD_BYTES$}\n");
    let lines: String = (0..SNAPSHOT_RECORDS).map(value).collect();
    let mut produce = process::command(binary);
    produce.args(["produce", "t", "-b", &broker.bootstrap]);
    let outcome = process::run(&mut produce, Some(lines.into_bytes()), LIMIT)?;
    ensure!(outcome.success(), "produce: {}", outcome.story());
    let (mut pauses_ms, mut forks_ms) = (Vec::new(), Vec::new());
    for number in 0..count {
        let snapshot = broker.call("PUT", &format!("/snapshots/{number}"))?;
        pauses_ms.push(snapshot["pause_ms"].as_f64().context("no pause_ms")?);
        let start = Instant::now();
        let fork = broker.call("POST", &format!("/snapshots/{number}/forks"))?;
        forks_ms.push(start.elapsed().as_secs_f64() * 1e3);
        let pid = fork["pid"].as_u64().context("no pid")?;
        broker.call("DELETE", &format!("/forks/{pid}"))?;
        broker.call("DELETE", &format!("/snapshots/{number}"))?;
    }
    let most = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    println!(
        "{count} snapshots of {SNAPSHOT_PARTITIONS} partitions with 16 MiB: pause {:.1} ms (median), {:.1} ms at most; fork ready \
         after {:.1} ms (median), {:.1} ms at most",
        median(&pauses_ms),
        most(&pauses_ms),
        median(&forks_ms),
        most(&forks_ms)
    );
    broker.end()
}

fn tests_in_a_row(binary: &Path, tests: u32) -> Result<()> {
    let began = Instant::now();
    let mut ready_ms = Vec::new();
    for _ in 0..tests {
        let start = Instant::now();
        let broker = TestBroker::start(binary)?;
        ready_ms.push(start.elapsed().as_secs_f64() * 1e3);
        broker.exchange_record(binary)?;
        broker.end()?;
    }
    let whole = began.elapsed().as_secs_f64();
    let slowest = ready_ms.iter().copied().fold(0.0, f64::max);
    println!(
        "{tests} tests with a broker each, a record produced and consumed in each: {whole:.2} s; ready after {:.1} ms \
         (median), {slowest:.1} ms at most",
        median(&ready_ms)
    );
    Ok(())
}

fn brokers_at_once(binary: &Path, count: u32) -> Result<()> {
    let began = Instant::now();
    let brokers =
        (0..count).map(|_| TestBroker::start(binary)).collect::<Result<Vec<TestBroker>>>()?;
    let seconds = began.elapsed().as_secs_f64();
    brokers.iter().try_for_each(|broker| broker.exchange_record(binary))?;
    let (mut resident, mut shared_out) = (0.0, 0.0);
    for broker in &brokers {
        let pid = broker.process.pid();
        resident += procfs::resident_mib(pid)?;
        shared_out += procfs::proportional_mib(pid)?;
    }
    println!(
        "{count} brokers at once: started in {seconds:.2} s; resident {resident:.0} MiB, {shared_out:.0} MiB when pages of \
         the program count once"
    );
    brokers.into_iter().try_for_each(TestBroker::end)
}
