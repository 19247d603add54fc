//! Producers in other languages, as programs that speak the lines of `docs/lab.md`: one topic each, a steady rate, idempotent.
//!
//! The partition changes with every few records, so that one producer writes to all leaders.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use peer::process::{self, Guarded};

use crate::ledger::{Ledger, Mark};

/// Records a second of each program.
const RATE: u32 = 100;
/// Bytes of a value.
const RECORD_BYTES: usize = 200;
/// Time for which a program sends to one partition.
const TURN: Duration = Duration::from_millis(50);
/// Time that a program may take to start: a Java runtime compiles its program first.
const READY_LIMIT: Duration = Duration::from_secs(180);
/// Time that a program may take to send its last records.
const END_LIMIT: Duration = Duration::from_secs(120);

/// `NAME=PROGRAM`, as typed.
#[derive(Debug, Clone)]
pub struct NamedProgram {
    /// The client library.
    pub name: String,
    /// The program that produces with the library.
    pub program: PathBuf,
}

impl std::str::FromStr for NamedProgram {
    type Err = String;

    fn from_str(text: &str) -> Result<NamedProgram, String> {
        match text.split_once('=') {
            Some((name, program)) if !name.is_empty() && !program.is_empty() => {
                Ok(NamedProgram { name: name.to_owned(), program: program.into() })
            }
            _ => Err("expected NAME=PROGRAM, such as librdkafka=./produce".to_owned()),
        }
    }
}

/// Parses the value of a record: its number, a space and dots.
pub fn mark_of(value: &[u8], scratch: &mut Vec<u8>) -> Option<Mark> {
    let digits = value.split(|byte| *byte == b' ').next()?;
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    scratch.clear();
    scratch.extend_from_slice(format!("{number} ").as_bytes());
    scratch.resize(RECORD_BYTES.max(scratch.len()), b'.');
    (scratch == value).then_some(Mark { producer: 0, number })
}

/// What a program has written so far.
#[derive(Debug, Default)]
struct Report {
    version: Option<String>,
    ledger: Ledger,
    acknowledged: u64,
    /// Reason why the program counts as ended.
    ended: Option<String>,
}

/// A producing program. The process is killed when this is dropped.
#[derive(Debug)]
pub struct Steady {
    /// The client library.
    pub name: String,
    process: Guarded,
    report: Arc<Mutex<Report>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Steady {
    /// Starts the program, and waits until the program is ready.
    ///
    /// # Errors
    /// The program cannot be run, ends, or is not ready in time.
    pub fn start(
        name: &str,
        program: &Path,
        bootstrap: &str,
        topic: &str,
        partitions: i32,
    ) -> Result<Steady> {
        let mut command = process::command(program);
        command.env("BOOTSTRAP", bootstrap).env("TOPIC", topic);
        command.env("RATE", RATE.to_string()).env("RECORD_BYTES", RECORD_BYTES.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Guarded::spawn(&mut command)?;
        let child = process.child();
        let input = child.stdin.take().context("its input is piped")?;
        let output = child.stdout.take().context("its output is piped")?;
        let errors = child.stderr.take().context("its errors are piped")?;
        let (report, stop) = (Arc::<Mutex<Report>>::default(), Arc::<AtomicBool>::default());
        let listener = {
            let (report, topic) = (report.clone(), topic.to_owned());
            thread::spawn(move || listen(output, errors, &topic, &report))
        };
        let turner = {
            let stop = stop.clone();
            thread::spawn(move || turn(input, partitions, &stop))
        };
        let threads = vec![listener, turner];
        let steady = Steady { name: name.to_owned(), process, report, stop, threads };
        let version = steady.wait_for("it is ready", READY_LIMIT, |report| report.version.clone());
        println!("upgrade: {name} {} produces", version?);
        Ok(steady)
    }

    /// Waits until so many more records are acknowledged than now.
    ///
    /// # Errors
    /// The program ends or reports a failed record before, or the time is over.
    pub fn wait_for_more(&self, records: u64, limit: Duration) -> Result<()> {
        let wanted = lock(&self.report).acknowledged + records;
        self.wait_for("records are acknowledged", limit, |report| {
            (report.acknowledged >= wanted).then_some(())
        })
    }

    fn wait_for<T>(
        &self,
        what: &str,
        limit: Duration,
        condition: impl Fn(&Report) -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + limit;
        loop {
            let report = lock(&self.report);
            if let Some(found) = condition(&report) {
                return Ok(found);
            }
            if let Some(why) = &report.ended {
                bail!("{}: {why}", self.name);
            }
            if let Some((count, why)) = report.ledger.failures() {
                bail!("{}: {count} records failed, the first: {why}", self.name);
            }
            drop(report);
            ensure!(Instant::now() < deadline, "{}: not within {limit:?}: {what}", self.name);
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the input of the program, waits until the program has sent its last records, and returns the outcome
    /// of each record.
    ///
    /// # Errors
    /// The program does not end in time, or had ended before.
    pub fn finish(mut self) -> Result<Ledger> {
        if let Some(why) = &lock(&self.report).ended {
            bail!("{}: {why}", self.name);
        }
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.process.wait(END_LIMIT)?;
        ensure!(ended.is_some(), "{} did not end within {END_LIMIT:?}", self.name);
        self.process.kill()?;
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| anyhow::anyhow!("a thread of {} panicked", self.name))?;
        }
        Ok(std::mem::take(&mut lock(&self.report).ledger))
    }
}

fn lock(report: &Mutex<Report>) -> MutexGuard<'_, Report> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names the partitions in turn, until `stop` is set or the program has closed its input.
fn turn(mut input: ChildStdin, partitions: i32, stop: &AtomicBool) {
    for partition in (0..partitions).cycle() {
        if stop.load(Ordering::Relaxed) || writeln!(input, "partition {partition}").is_err() {
            return;
        }
        thread::sleep(TURN);
    }
}

/// Notes each line of the program until its output ends.
fn listen(output: impl Read, mut errors: impl Read, topic: &str, report: &Mutex<Report>) {
    let mut wrong = None;
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if note(&line, topic, &mut lock(report)).is_none() {
            wrong = Some(format!("unexpected line {line:?}"));
            break;
        }
    }
    let mut words = String::new();
    // The program has closed its output: the rest of its errors arrives at once.
    let _cut = errors.read_to_string(&mut words);
    lock(report).ended = Some(wrong.unwrap_or_else(|| format!("the program ended: {words}")));
}

/// Enters one line; `None` if the line is none of those in `docs/lab.md`.
fn note(line: &str, topic: &str, report: &mut Report) -> Option<()> {
    let (word, rest) = line.split_once(' ')?;
    match word {
        "ready" => report.version = Some(rest.to_owned()),
        "ack" => {
            let numbers: Vec<&str> = rest.split(' ').collect();
            let [number, partition, offset, _at_us] = numbers[..] else { return None };
            let offset: i64 = offset.parse().ok()?;
            let mark = Mark { producer: 0, number: number.parse().ok()? };
            let line = (topic.to_owned(), partition.parse().ok()?);
            report.ledger.settle(line, mark, Ok((offset >= 0).then_some(offset)));
            report.acknowledged += 1;
        }
        "error" => {
            let (number, words) = rest.split_once(' ')?;
            let mark = Mark { producer: 0, number: number.parse().ok()? };
            report.ledger.settle((topic.to_owned(), -1), mark, Err(words.to_owned()));
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_its_number_and_dots() {
        let mut scratch = Vec::new();
        let mut value = b"17 ".to_vec();
        value.resize(RECORD_BYTES, b'.');
        assert_eq!(mark_of(&value, &mut scratch), Some(Mark { producer: 0, number: 17 }));
        value[50] = b',';
        assert_eq!(mark_of(&value, &mut scratch), None);
        assert_eq!(mark_of(b"17 ....", &mut scratch), None);
        assert_eq!(mark_of(b"", &mut scratch), None);
    }

    #[test]
    fn lines_are_entered_and_others_are_refused() {
        let mut report = Report::default();
        for line in ["ready 2.1", "ack 1 0 7 99", "ack 2 1 -1 99", "error 3 not leader"] {
            assert_eq!(note(line, "t", &mut report), Some(()), "{line}");
        }
        assert_eq!((report.acknowledged, report.version.as_deref()), (2, Some("2.1")));
        assert_eq!(report.ledger.acknowledged().count(), 2);
        assert_eq!(report.ledger.failures(), Some((1, "not leader")));
        for line in ["", "ready", "ack 1 0 7", "ack x 0 7 99", "error x y", "hello you"] {
            assert_eq!(note(line, "t", &mut report), None, "{line}");
        }
    }

    #[test]
    fn a_program_that_ends_is_reported_with_its_errors() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("produce");
        std::fs::write(&program, "#!/bin/sh\necho no such broker >&2\nexit 3\n").unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, executable).unwrap();
        let failure = Steady::start("x", &program, "b:1", "t", 3).unwrap_err();
        assert!(failure.to_string().contains("no such broker"), "{failure}");
    }
}
