//! What sends the text, and how it is fed: part by part, so that the broker can be killed in between.

use std::io::Write;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::NamedTempFile;

use crate::highwater;
use peer::process::{self, Guarded};

/// A program that sends one record a line and ends with 0 only when all were acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Producer {
    /// `highwater produce`, idempotent as it is by default.
    Highwater,
    /// kcat with librdkafka's idempotent producer.
    Kcat,
}

/// The producers that a target is tried with.
pub fn of(target: &str) -> &'static [Producer] {
    match target {
        "highwater" => &[Producer::Highwater, Producer::Kcat],
        _ => &[Producer::Kcat],
    }
}

impl Producer {
    /// Its name in topics and in what is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Highwater => "highwater-produce",
            Self::Kcat => "kcat",
        }
    }

    fn command(self, bootstrap: &str, topic: &str) -> Result<Command> {
        let mut command = match self {
            Self::Highwater => process::command(highwater::binary()?),
            Self::Kcat => process::command("kcat"),
        };
        match self {
            Self::Highwater => {
                command.args(["produce", topic, "--bootstrap-server", bootstrap]);
                command.args(["--timeout", "240"]);
            }
            // -E: a broker that is away is no reason to end.
            Self::Kcat => {
                command.args(["-P", "-E", "-b", bootstrap, "-t", topic, "-K", "\u{1}"]);
                command.args(["-X", "enable.idempotence=true", "-X", "message.timeout.ms=240000"]);
                command.args(["-X", "reconnect.backoff.max.ms=500"]);
            }
        }
        Ok(command)
    }

    /// The bytes that make one record of each line. kcat leaves empty lines out, unless a key stands
    /// before them; an empty key does.
    fn encoded(self, part: &[u8]) -> Vec<u8> {
        match self {
            Self::Highwater => part.to_vec(),
            Self::Kcat => {
                let lines = part.split_inclusive(|byte| *byte == b'\n');
                lines.flat_map(|line| std::iter::once(&1).chain(line)).copied().collect()
            }
        }
    }
}

/// A producer at work.
#[derive(Debug)]
pub struct Running {
    process: Guarded,
    /// Each message lets one more part go.
    permits: Sender<()>,
    /// Each message says that a part has been taken by the producer.
    fed: Receiver<()>,
    feeder: JoinHandle<std::io::Result<()>>,
    errors: NamedTempFile,
}

impl Running {
    /// Starts the producer with `text` cut into `parts`; nothing is fed yet.
    pub fn start(
        producer: Producer,
        bootstrap: &str,
        topic: &str,
        text: &[u8],
        parts: usize,
    ) -> Result<Self> {
        let errors = NamedTempFile::new()?;
        let mut command = producer.command(bootstrap, topic)?;
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(errors.reopen()?);
        let mut process = Guarded::spawn(&mut command)?;
        let pipe = process.child().stdin.take().context("no pipe to the producer")?;
        let parts = cut(text, parts).into_iter().map(|part| producer.encoded(part)).collect();
        let (permits, permitted) = channel();
        let (done, fed) = channel();
        let feeder = thread::spawn(move || feed(pipe, parts, &permitted, &done));
        Ok(Self { process, permits, fed, feeder, errors })
    }

    /// Lets the next part go.
    pub fn feed_next(&self) -> Result<()> {
        self.permits.send(()).map_err(|_| anyhow::anyhow!("the producer ended: {}", self.words()))
    }

    /// Waits until the producer has taken the part that goes now.
    pub fn wait_until_fed(&self, limit: Duration) -> Result<()> {
        match self.fed.recv_timeout(limit) {
            Ok(()) => Ok(()),
            Err(RecvTimeoutError::Timeout) => bail!("the producer hangs: {}", self.words()),
            Err(RecvTimeoutError::Disconnected) => bail!("the producer ended: {}", self.words()),
        }
    }

    /// Waits until everything is fed and acknowledged.
    pub fn finish(mut self, limit: Duration) -> Result<()> {
        let status = self.process.wait(limit)?;
        let words = self.words();
        let status = status.with_context(|| format!("not acknowledged in time: {words}"))?;
        ensure!(status.success(), "not everything was acknowledged ({status}): {words}");
        let fed = self.feeder.join().map_err(|_| anyhow::anyhow!("the feeding thread died"))?;
        fed.context("the producer did not take the whole text")
    }

    /// The end of what the producer said.
    fn words(&self) -> String {
        let text = std::fs::read_to_string(self.errors.path()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }
}

/// Writes part after part, each when it is permitted; the pipe closes after the last.
fn feed(
    mut pipe: ChildStdin,
    parts: Vec<Vec<u8>>,
    permitted: &Receiver<()>,
    done: &Sender<()>,
) -> std::io::Result<()> {
    for part in parts {
        if permitted.recv().is_err() {
            return Ok(());
        }
        pipe.write_all(&part)?;
        let _nobody_waits = done.send(());
    }
    Ok(())
}

/// Cuts a text into so many parts of about one size, each a whole number of lines.
fn cut(text: &[u8], parts: usize) -> Vec<&[u8]> {
    let mut rest = text;
    let mut cuts = Vec::new();
    for left in (1..=parts).rev() {
        let near = (rest.len() / left).min(rest.len());
        let line_end = rest[near..].iter().position(|byte| *byte == b'\n');
        let end =
            if left == 1 { rest.len() } else { line_end.map_or(rest.len(), |at| near + at + 1) };
        let (part, after) = rest.split_at(end);
        cuts.push(part);
        rest = after;
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_lines_and_make_the_text() {
        let text: String = (0..1000).map(|i| format!("line {i}\n")).collect();
        for parts in [1, 2, 11] {
            let cuts = cut(text.as_bytes(), parts);
            assert_eq!(cuts.len(), parts);
            assert_eq!(cuts.concat(), text.as_bytes());
            assert!(cuts.iter().all(|part| part.ends_with(b"\n")));
        }
    }

    #[test]
    fn kcat_gets_an_empty_key_before_every_line() {
        assert_eq!(Producer::Kcat.encoded(b"a\n\nb\n"), b"\x01a\n\x01\n\x01b\n");
        assert_eq!(Producer::Highwater.encoded(b"a\n\n"), b"a\n\n");
    }
}
