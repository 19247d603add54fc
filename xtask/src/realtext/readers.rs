//! What reads the text back: clients that share no code with each other.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::clients;
use crate::highwater;
use peer::apache_kafka;
use peer::process;

/// How long reading may take.
const READ_LIMIT: Duration = Duration::from_secs(600);

/// How long the console consumer waits for the next of the lines that should be there, in milliseconds.
const NEXT_MS: &str = "120000";
/// How long it waits for one that should not.
const FOLLOWING_MS: &str = "8000";

/// A program that prints every value of a topic, a line feed after each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// librdkafka.
    Kcat,
    /// The Java client, inside Kafka's console consumer.
    Console,
    /// The Go client.
    FranzGo,
    /// Highwater's own.
    Highwater,
}

/// The readers that a target is tried with.
pub fn of(target: &str) -> &'static [Reader] {
    match target {
        "highwater" => &[Reader::Kcat, Reader::Console, Reader::FranzGo, Reader::Highwater],
        _ => &[Reader::Kcat, Reader::Console, Reader::FranzGo],
    }
}

impl Reader {
    /// Its name in what is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kcat => "kcat",
            Self::Console => "kafka-console-consumer",
            Self::FranzGo => "franz-go",
            Self::Highwater => "highwater consume",
        }
    }

    /// Everything that the topic holds. The console consumer is told how many lines there should be, and then
    /// looks whether another one follows; all others stop at the end of the partition.
    pub fn read(self, bootstrap: &str, topic: &str, lines: usize) -> Result<Vec<u8>> {
        let mut received = self.run(&mut self.command(bootstrap, topic, lines)?)?;
        if self == Self::Console {
            let place = ["--offset", &lines.to_string(), "--max-messages", "1"];
            let place = [&place[..], &["--timeout-ms", FOLLOWING_MS]].concat();
            received.extend(self.run(&mut console(bootstrap, topic, &place)?)?);
        }
        Ok(received)
    }

    fn run(self, command: &mut Command) -> Result<Vec<u8>> {
        let outcome = process::run(command, None, READ_LIMIT)?;
        ensure!(outcome.success(), "{}: {}", self.name(), outcome.story());
        Ok(outcome.stdout)
    }

    fn command(self, bootstrap: &str, topic: &str, lines: usize) -> Result<Command> {
        match self {
            Self::Kcat => {
                let mut kcat = process::command("kcat");
                kcat.args(["-C", "-e", "-q", "-b", bootstrap, "-t", topic, "-o", "beginning"]);
                Ok(kcat)
            }
            Self::Console => {
                let place = ["--offset", "earliest", "--max-messages", &lines.to_string()];
                console(bootstrap, topic, &[&place[..], &["--timeout-ms", NEXT_MS]].concat())
            }
            Self::FranzGo => {
                let mut franz = clients::program("franz-go")?.command(bootstrap, "realtext");
                franz.args(["dump", topic]);
                Ok(franz)
            }
            Self::Highwater => {
                let mut highwater = process::command(highwater::binary()?);
                highwater.args(["consume", topic, "--bootstrap-server", bootstrap, "--until-end"]);
                Ok(highwater)
            }
        }
    }
}

/// The console consumer on the topic's one partition, from a place on.
fn console(bootstrap: &str, topic: &str, place: &[&str]) -> Result<Command> {
    let partition = ["--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0"];
    apache_kafka::tool("kafka-console-consumer", &[&partition[..], place].concat())
}
