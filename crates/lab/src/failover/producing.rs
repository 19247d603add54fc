//! A client that produces while brokers are killed: our own on a thread, any other as a program of its own.
//!
//! The program finds `BOOTSTRAP` (`host:port,…`), `TOPIC`, `RATE` (records a second) and `RECORD_BYTES` in its environment.
//! Standard input is lines, standard output is lines that are flushed one by one:
//!
//! ```text
//! →  partition 2                     send to this partition from now on; none is sent to before
//! →  (end of input)                  send no more, wait for what is on its way, end
//! ←  ready 2.16.1                    once, with the library's version, when records can be sent
//! ←  ack 17 2 40 1764000000000000    record, partition, offset (-1: unknown), microseconds since 1970
//! ←  error 18 the library's words    a record whose failure the application was told
//! ```
//!
//! It sends `RATE` records a second whatever is acknowledged, with `acks=all`, idempotence and the library's defaults
//! otherwise, and never sends a record again by itself. Records are numbered from 0 over all partitions; a value is the number, a
//! space and dots up to `RECORD_BYTES`.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use experiment::failover::Acknowledged;
use peer::process::Guarded;

use super::clients::{self, Programs};
use super::journal::Journal;
use super::native::Native;

/// How long a program may take for what is on its way when it is told to end.
const END_LIMIT: Duration = Duration::from_secs(30);
/// Lines of its standard error that are kept.
const LAST_WORDS: usize = 12;

/// What a client is to do.
#[derive(Debug, Clone)]
pub(super) struct Task {
    /// `host:port,…`
    pub(super) bootstrap: String,
    /// Its own topic.
    pub(super) topic: String,
    /// Records a second.
    pub(super) rate: f64,
    /// Bytes of a value.
    pub(super) record_bytes: usize,
}

/// The value of a record: its number, a space and dots.
pub(super) fn value(sequence: u64, bytes: usize) -> String {
    let mut value = format!("{sequence} ");
    while value.len() < bytes {
        value.push('.');
    }
    value
}

/// The number of the record that has this value; `None` if none has.
pub(super) fn sequence_of(found: &[u8], bytes: usize) -> Option<u64> {
    let text = std::str::from_utf8(found).ok()?;
    let sequence = text.split_once(' ')?.0.parse().ok()?;
    (value(sequence, bytes) == text).then_some(sequence)
}

/// A producing client; ends when dropped.
#[derive(Debug)]
pub(super) enum Producing {
    Native(Native),
    Program(Program),
}

impl Producing {
    pub(super) fn start(
        client: &str,
        programs: &Programs,
        scratch: &Path,
        task: Task,
        journal: &Journal,
    ) -> Result<Producing> {
        if client == clients::HIGHWATER {
            return Native::start(task, journal.clone()).map(Producing::Native);
        }
        let command = clients::command(client, programs, scratch)?;
        Program::start(command, &task, journal).map(Producing::Program)
    }

    /// Sends to another partition from now on. Whether the client is still there is seen elsewhere.
    pub(super) fn turn_to(&mut self, partition: i32) {
        match self {
            Producing::Native(native) => native.turn_to(partition),
            Producing::Program(program) => program.turn_to(partition),
        }
    }

    /// Sends no more, and waits for what is on its way.
    pub(super) fn finish(&mut self) -> Result<()> {
        match self {
            Producing::Native(native) => {
                native.stop();
                Ok(())
            }
            Producing::Program(program) => program.finish(),
        }
    }
}

/// A program that produces.
#[derive(Debug)]
pub(super) struct Program {
    process: Guarded,
    listeners: Vec<thread::JoinHandle<()>>,
}

impl Program {
    fn start(
        mut command: std::process::Command,
        task: &Task,
        journal: &Journal,
    ) -> Result<Program> {
        command.env("BOOTSTRAP", &task.bootstrap).env("TOPIC", &task.topic);
        command.env("RATE", task.rate.to_string());
        command.env("RECORD_BYTES", task.record_bytes.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Guarded::spawn(&mut command)?;
        let child = process.child();
        let output = child.stdout.take().context("its output is piped")?;
        let errors = child.stderr.take().context("its errors are piped")?;
        let words = Arc::new(Mutex::new(Vec::new()));
        let hears_errors = {
            let words = words.clone();
            thread::spawn(move || keep_last(errors, &words))
        };
        let journal = journal.clone();
        let hears_output = thread::spawn(move || {
            listen(BufReader::new(output), &journal);
            // Whoever closes its output ends; what it had to say comes at once.
            drop(hears_errors.join());
            let words = words.lock().unwrap_or_else(PoisonError::into_inner).join("\n");
            journal.end(&format!("its program ended:\n{words}"));
        });
        Ok(Program { process, listeners: vec![hears_output] })
    }

    fn turn_to(&mut self, partition: i32) {
        if let Some(input) = &mut self.process.child().stdin {
            // One that has ended is told by its journal.
            let _gone = writeln!(input, "partition {partition}");
        }
    }

    fn finish(&mut self) -> Result<()> {
        drop(self.process.child().stdin.take());
        let ended = self.process.wait(END_LIMIT)?;
        self.process.kill()?;
        for listener in self.listeners.drain(..) {
            drop(listener.join());
        }
        ended.map(drop).with_context(|| {
            format!("its program did not end within {END_LIMIT:?} of being told to")
        })
    }
}

/// Notes what a program says, line by line, until it ends.
fn listen(output: impl BufRead, journal: &Journal) {
    for line in output.lines().map_while(Result::ok) {
        match Line::parse(&line) {
            Some(Line::Ready(version)) => journal.ready(version),
            Some(Line::Acknowledged(record)) => journal.acknowledge(record),
            Some(Line::Failed(error)) => journal.fail(error),
            None => {
                journal.end(&format!("its program writes what it should not: {line:?}"));
                return;
            }
        }
    }
}

fn keep_last(errors: impl Read, words: &Mutex<Vec<String>>) {
    for line in BufReader::new(errors).lines().map_while(Result::ok) {
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        words.push(line);
        let surplus = words.len().saturating_sub(LAST_WORDS);
        words.drain(..surplus);
    }
}

/// A line of a program's output.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Ready(&'a str),
    Acknowledged(Acknowledged),
    Failed(&'a str),
}

impl Line<'_> {
    fn parse(line: &str) -> Option<Line<'_>> {
        let (word, rest) = line.split_once(' ')?;
        match word {
            "ready" => Some(Line::Ready(rest)),
            "ack" => {
                let numbers: Vec<&str> = rest.split(' ').collect();
                let [sequence, partition, offset, at_us] = numbers[..] else { return None };
                let offset: i64 = offset.parse().ok()?;
                Some(Line::Acknowledged(Acknowledged {
                    sequence: sequence.parse().ok()?,
                    partition: partition.parse().ok()?,
                    offset: (offset >= 0).then_some(offset),
                    at_us: at_us.parse().ok()?,
                }))
            }
            "error" => {
                let (sequence, error) = rest.split_once(' ')?;
                sequence.parse::<u64>().ok()?;
                Some(Line::Failed(error))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn lines_say_what_they_should_or_nothing() {
        let acknowledged = |offset| {
            Some(Line::Acknowledged(Acknowledged { sequence: 17, partition: 2, offset, at_us: 9 }))
        };
        assert_eq!(Line::parse("ready 2.16.1"), Some(Line::Ready("2.16.1")));
        assert_eq!(Line::parse("ack 17 2 40 9"), acknowledged(Some(40)));
        assert_eq!(Line::parse("ack 17 2 -1 9"), acknowledged(None));
        assert_eq!(Line::parse("error 18 not leader"), Some(Line::Failed("not leader")));
        for wrong in
            ["", "ready", "ack 1 2 3", "ack 1 2 3 4 5", "ack a 2 3 4", "error x y", "hello you"]
        {
            assert_eq!(Line::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_value_says_its_number_and_nothing_else_does() {
        for sequence in [0, 7, 12_345_678_901] {
            let value = value(sequence, 100);
            assert_eq!(value.len(), 100);
            assert_eq!(sequence_of(value.as_bytes(), 100), Some(sequence));
            assert_eq!(sequence_of(&value.as_bytes()[..99], 100), None);
            assert_eq!(sequence_of(value.replace("..", ".,").as_bytes(), 100), None);
        }
        assert_eq!(sequence_of(b"", 100), None);
        assert_eq!(sequence_of(&[0xff; 100], 100), None);
        assert_eq!(value(123, 2), "123 ");
        assert_eq!(sequence_of(b"123 ", 2), Some(123));
    }

    fn shell(script: &str) -> (Program, Journal) {
        let mut command = peer::process::command("sh");
        command.args(["-c", script]);
        let task =
            Task { bootstrap: "b:1".into(), topic: "t".into(), rate: 100.0, record_bytes: 9 };
        let journal = Journal::default();
        (Program::start(command, &task, &journal).unwrap(), journal)
    }

    fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < deadline, "not in time");
            thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_program_is_told_and_heard() {
        let (mut program, journal) = shell(
            "echo ready $TOPIC $RATE $RECORD_BYTES; while read word partition; do echo ack 0 $partition 5 77; done; \
             echo error 1 ended",
        );
        assert_eq!(wait_for(|| journal.version()), "t 100 9");
        program.turn_to(2);
        let record = Acknowledged { sequence: 0, partition: 2, offset: Some(5), at_us: 77 };
        wait_for(|| (journal.acknowledged() == [record]).then_some(()));
        assert_eq!(journal.ended(), None);
        program.finish().unwrap();
        assert_eq!(journal.failures(), (1, vec!["ended".to_owned()]));
    }

    #[test]
    fn a_program_that_dies_is_heard_with_its_last_words() {
        let (_program, journal) = shell("echo ready 1; echo no such broker >&2; exit 3");
        let ended = wait_for(|| journal.ended());
        assert!(ended.contains("no such broker"), "{ended}");
    }

    #[test]
    fn a_program_that_says_something_else_is_not_believed() {
        let (_program, journal) = shell("echo ready 1; echo ack one; sleep 60");
        assert!(wait_for(|| journal.ended()).contains("ack one"));
    }
}
