//! `cargo xt events`: readers of server-sent events that others have written, unmodified, read a stream of a real gateway while
//! that is killed again and again: each must have every record once and in order. And the examples of Confluent's REST
//! documentation with curl, against the same gateway.

mod examples;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use peer::process::{self, Guarded};

use crate::front::{Gateway, ask};
use crate::repository::repository;
use crate::{clients, highwater};

const TOPIC: &str = "events";
/// How often the gateway is killed.
const KILLS: usize = 5;
/// Records between two kills, and how many at a time.
const RECORDS: usize = 400;
const BATCH: usize = 20;
/// How long readers may take behind the last kill: they come again after some seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// A reader: its package, and the file of its program.
const PYTHON: [(&str, &str); 3] = [
    ("sseclient", "read_sseclient.py"),
    ("aiohttp-sse-client", "read_aiohttp_sse_client.py"),
    ("httpx-sse", "read_httpx_sse.py"),
];
const NODE: [(&str, &str); 3] = [
    ("eventsource", "read_eventsource.js"),
    ("eventsource-client", "read_eventsource_client.js"),
    ("launchdarkly-eventsource", "read_launchdarkly_eventsource.js"),
];

/// Runs both; fails if a reader has missed something or had it twice, or an example is answered otherwise.
pub fn run() -> Result<()> {
    let program = highwater::binary()?;
    let folder = tempfile::tempdir()?;
    let broker = highwater::start(&folder.path().join("data"), 0, &[])?;
    let port = highwater::free_port()?;
    let mut gateway = Gateway::start(&program, &broker.bootstrap(), port, &[])?;
    let created = format!("{{\"topic_name\":\"{TOPIC}\"}}");
    let json = [("content-type", "application/json")];
    let answer = ask(&gateway.address, "POST", "/admin/topics", &json, &created)?;
    ensure!(answer.status == 201, "{answer:?}");
    examples::run(&gateway.address)?;
    let count = KILLS * RECORDS + RECORDS;
    let mut readers = readers(&gateway.address, count, folder.path())?;
    let mut sent = 0;
    for kill in 0..=KILLS {
        produce(&gateway.address, &mut sent, RECORDS)?;
        if kill < KILLS {
            // In the middle of writing to some reader, or behind it: both happen.
            gateway.kill()?;
            gateway = Gateway::start(&program, &broker.bootstrap(), port, &[])?;
        }
    }
    let ends = Instant::now() + LIMIT;
    let mut failed = Vec::new();
    for reader in &mut readers {
        match reader.check(count, ends) {
            Ok(()) => println!("ok  {}: {count} records over {KILLS} kills", reader.package),
            Err(why) => failed.push(format!("{}: {why:#}", reader.package)),
        }
    }
    gateway.stop()?;
    broker.stop()?;
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

fn produce(address: &str, sent: &mut usize, count: usize) -> Result<()> {
    let json = [("content-type", "application/vnd.kafka.json.v2+json")];
    for _ in 0..count / BATCH {
        let records: Vec<String> =
            (*sent..*sent + BATCH).map(|number| format!("{{\"value\":{number}}}")).collect();
        let body = format!("{{\"records\":[{}]}}", records.join(","));
        let answer = ask(address, "POST", &format!("/topics/{TOPIC}"), &json, &body)?;
        ensure!(answer.status == 200, "{answer:?}");
        *sent += BATCH;
    }
    Ok(())
}

struct Reader {
    package: &'static str,
    process: Guarded,
    out: PathBuf,
    errors: PathBuf,
}

/// Those that can be installed here, reading.
fn readers(address: &str, count: usize, folder: &Path) -> Result<Vec<Reader>> {
    let conformance = repository().join("conformance/events");
    let mut commands = Vec::new();
    match clients::python_environment(&conformance.join("python/requirements.txt")) {
        Ok(python) => commands.extend(PYTHON.map(|(package, file)| {
            let mut command = process::command(python.join("bin/python"));
            command.arg(conformance.join("python").join(file));
            command.env("PYTHONDONTWRITEBYTECODE", "1");
            (package, command)
        })),
        Err(why) => println!("skipped: readers in Python cannot be installed here: {why:#}"),
    }
    match clients::node_modules(&conformance.join("node")) {
        Ok(modules) => commands.extend(NODE.map(|(package, file)| {
            let mut command = process::command("node");
            command.arg(conformance.join("node").join(file)).env("NODE_PATH", &modules);
            (package, command)
        })),
        Err(why) => println!("skipped: readers in JavaScript cannot be installed here: {why:#}"),
    }
    let url = format!("http://{address}/topics/{TOPIC}/events?from=earliest");
    let start = |(package, mut command): (&'static str, Command)| {
        let out = folder.join(package);
        let errors = folder.join(format!("{package}.errors"));
        command.env("URL", &url).env("COUNT", count.to_string());
        command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&errors)?);
        Ok(Reader { package, process: Guarded::spawn(&mut command)?, out, errors })
    };
    commands.into_iter().map(start).collect()
}

impl Reader {
    /// Waits until it has ended, and compares what it had with what was sent.
    fn check(&mut self, count: usize, ends: Instant) -> Result<()> {
        let left = ends.saturating_duration_since(Instant::now());
        let status = self.process.wait(left)?;
        let read = fs::read_to_string(&self.out)?;
        let mut values = read.lines().filter_map(|line| line.parse::<usize>().ok());
        let wrong = (0..count).find_map(|expected| match values.next() {
            Some(found) if found == expected => None,
            found => Some((expected, found)),
        });
        let errors = || fs::read_to_string(&self.errors).unwrap_or_default();
        if let Some((expected, found)) = wrong {
            let found = found.map_or("nothing".to_owned(), |found| found.to_string());
            anyhow::bail!("{found} in the place of {expected}: {}", errors());
        }
        let status = status.with_context(|| format!("it does not end: {}", errors()))?;
        ensure!(status.success(), "{status}: {}", errors());
        Ok(())
    }
}
