//! `cargo xt events`: readers of server-sent events that others have written, unmodified, read a stream of a real gateway while
//! that gateway and its broker are killed in turn: each must have every record once and in order. And the examples of Confluent's REST
//! documentation with curl, against the same gateway.

mod closed;
mod crowded;
mod examples;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use peer::process::{self, Guarded};

use crate::front::{Answer, Gateway, ask};
use crate::repository::repository;
use crate::{clients, highwater};

const TOPIC: &str = "events";
/// How often the gateway or its broker is killed, unless something else was said: both die three times.
const KILLS: usize = 6;
/// Records between two kills, and how many at a time.
const RECORDS: usize = 400;
const BATCH: usize = 20;
/// How long readers may take behind the last kill: they come again after some seconds. And how long a request is sent again
/// that no broker could take.
const LIMIT: Duration = Duration::from_secs(120);
/// How long what is waited for is left alone: an answer that no broker could take the request, a file that readers write.
const LOOKED_AT_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What `cargo xt events` takes.
#[derive(Args, Debug)]
pub struct Arguments {
    /// How often the gateway, or its broker, each in its turn, is killed under the readers
    #[arg(long, default_value_t = KILLS, value_name = "COUNT")]
    kills: usize,
}

/// A package, and the file of the program that reads with it.
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
pub fn run(&Arguments { kills }: &Arguments) -> Result<()> {
    let program = highwater::binary()?;
    let folder = tempfile::tempdir()?;
    // A broker that is started again is found where it was.
    let mut broker = highwater::start(&folder.path().join("data"), highwater::free_port()?, &[])?;
    let port = highwater::free_port()?;
    let mut gateway = Gateway::start(&program, &broker.bootstrap(), port, &[])?;
    let created = format!("{{\"topic_name\":\"{TOPIC}\"}}");
    let json = [("content-type", "application/json")];
    let answer = ask(&gateway.address, "POST", "/admin/topics", &json, &created)?;
    ensure!(answer.status == 201, "{answer:?}");
    examples::run(&gateway.address)?;
    crowded::run(&program, &broker.bootstrap())?;
    let count = kills * RECORDS + RECORDS;
    let programs = programs();
    let url = format!("http://{}/topics/{TOPIC}/events?from=earliest", gateway.address);
    let start = |program: &Program| program.start(&url, count, folder.path());
    let mut readers = programs.iter().map(start).collect::<Result<Vec<_>>>()?;
    let mut unheard = closed::readers(&programs, folder.path())?;
    let mut sent = 0;
    for kill in 0..=kills {
        let before = sent;
        produce(&gateway.address, &mut sent, RECORDS)?;
        if kill == kills {
            break;
        }
        one_reads_on(&readers, before)?;
        // In the middle of writing to some reader, behind that, or before a reader has come again: all of them happen.
        if kill % 2 == 0 {
            gateway.kill()?;
            gateway = Gateway::start(&program, &broker.bootstrap(), port, &[])?;
        } else {
            broker.restart()?;
        }
    }
    let judged = judge(&mut readers, &mut unheard, (count, kills));
    gateway.stop()?;
    broker.stop()?;
    judged
}

/// Waits until all have read what they are to read; those in `unheard` one record each.
fn judge(
    readers: &mut [Reader],
    unheard: &mut [Reader],
    (count, kills): (usize, usize),
) -> Result<()> {
    let ends = Instant::now() + LIMIT;
    let mut failed = Vec::new();
    for reader in readers {
        match reader.check(count, ends) {
            Ok(()) => println!("ok  {}: {count} records over {kills} kills", reader.package),
            Err(why) => failed.push(format!("{}: {why:#}", reader.package)),
        }
    }
    for reader in unheard {
        if let Err(why) = reader.check(1, ends) {
            let what = "its connection was closed before it had asked";
            failed.push(format!("{}: {what}: {why:#}", reader.package));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// Waits until one of them has read more than so many records: a kill that no reader was connected for would show nothing.
fn one_reads_on(readers: &[Reader], records: usize) -> Result<()> {
    let ends = Instant::now() + LIMIT;
    while !readers.is_empty() {
        for reader in readers {
            if fs::read_to_string(&reader.out)?.lines().count() > records {
                return Ok(());
            }
        }
        ensure!(Instant::now() < ends, "no reader has come again and read record {records}");
        thread::sleep(LOOKED_AT_AGAIN_AFTER);
    }
    Ok(())
}

fn produce(address: &str, sent: &mut usize, count: usize) -> Result<()> {
    let json = [("content-type", "application/vnd.kafka.json.v2+json")];
    for _ in 0..count / BATCH {
        let records: Vec<String> =
            (*sent..*sent + BATCH).map(|number| format!("{{\"value\":{number}}}")).collect();
        let body = format!("{{\"records\":[{}]}}", records.join(","));
        acknowledged(|| ask(address, "POST", &format!("/topics/{TOPIC}"), &json, &body))?;
        *sent += BATCH;
    }
    Ok(())
}

/// Sends a request until its records are acknowledged: again only where the answer says that none of them is written.
fn acknowledged(send: impl Fn() -> Result<Answer>) -> Result<()> {
    let ends = Instant::now() + LIMIT;
    loop {
        let answer = send()?;
        if answer.status == 200 {
            return Ok(());
        }
        let may_go_again = answer.status == 503 && answer.json()["written"] == "no";
        ensure!(may_go_again && Instant::now() < ends, "{answer:?}");
        thread::sleep(LOOKED_AT_AGAIN_AFTER);
    }
}

/// A program that reads with one package.
struct Program {
    package: &'static str,
    interpreter: PathBuf,
    file: PathBuf,
    /// Where packages of Node are.
    modules: Option<PathBuf>,
}

/// Those that can be installed here.
fn programs() -> Vec<Program> {
    let conformance = repository().join("conformance/events");
    let mut programs = Vec::new();
    match clients::python_environment(&conformance.join("python/requirements.txt")) {
        Ok(python) => programs.extend(PYTHON.map(|(package, file)| {
            let (interpreter, file) =
                (python.join("bin/python"), conformance.join("python").join(file));
            Program { package, interpreter, file, modules: None }
        })),
        Err(why) => println!("skipped: readers in Python cannot be installed here: {why:#}"),
    }
    match clients::node_modules(&conformance.join("node")) {
        Ok(modules) => programs.extend(NODE.map(|(package, file)| {
            let (interpreter, file) = (PathBuf::from("node"), conformance.join("node").join(file));
            Program { package, interpreter, file, modules: Some(modules.clone()) }
        })),
        Err(why) => println!("skipped: readers in JavaScript cannot be installed here: {why:#}"),
    }
    programs
}

impl Program {
    /// Starts it, to read so many records; what it says goes to files in this folder.
    fn start(&self, url: &str, count: usize, folder: &Path) -> Result<Reader> {
        let package = self.package;
        let out = folder.join(package);
        let errors = folder.join(format!("{package}.errors"));
        let mut command = process::command(&self.interpreter);
        command.arg(&self.file).env("URL", url).env("COUNT", count.to_string());
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.envs(self.modules.iter().map(|modules| ("NODE_PATH", modules)));
        command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&errors)?);
        Ok(Reader { package, process: Guarded::spawn(&mut command)?, out, errors })
    }
}

/// A program that reads.
struct Reader {
    package: &'static str,
    process: Guarded,
    out: PathBuf,
    errors: PathBuf,
}

impl Reader {
    /// Waits until it has ended, and compares what it had with what was sent. Why it came again, or did not, is in what it
    /// has said to its standard error: statuses and bodies of answers that are not streams.
    fn check(&mut self, count: usize, ends: Instant) -> Result<()> {
        let left = ends.saturating_duration_since(Instant::now());
        let status = self.process.wait(left)?;
        let read = fs::read_to_string(&self.out)?;
        let mut values = read.lines().filter_map(|line| line.parse::<usize>().ok());
        let wrong = (0..count).find_map(|expected| match values.next() {
            Some(found) if found == expected => None,
            found => Some((expected, found)),
        });
        let errors = fs::read_to_string(&self.errors).unwrap_or_default();
        let end = status.map_or("it does not end".to_owned(), |status| status.to_string());
        if let Some((expected, found)) = wrong {
            let found = found.map_or("nothing".to_owned(), |found| found.to_string());
            anyhow::bail!("{found} in the place of {expected}; {end}: {errors}");
        }
        ensure!(status.is_some_and(|status| status.success()), "{end}: {errors}");
        Ok(())
    }
}
