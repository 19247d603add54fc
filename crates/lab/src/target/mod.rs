//! What the lab measures: an embedded Highwater, an Apache Kafka of its own, or brokers somewhere else.
//!
//! A [`Target`] is a name and a way to get a [`Cluster`] of some shape; a cluster that the lab started is
//! stopped, and its data removed, when it is dropped.

mod remote;
mod started;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};
use experiment::definition::Need;
use experiment::plan::Shape;
use peer::apache_kafka;

pub use started::disk_bytes;

/// What to measure, as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// This program's own broker, as a process of its own.
    Embedded,
    /// Apache Kafka from Maven Central.
    ApacheKafka,
    /// Another Highwater program.
    Program(PathBuf),
    /// Brokers that run already.
    Address(String),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        match text {
            "embedded" => Ok(Target::Embedded),
            "apache-kafka" => Ok(Target::ApacheKafka),
            _ => match text.split_once('=') {
                Some(("program", path)) if !path.is_empty() => Ok(Target::Program(path.into())),
                _ if text.split(',').all(is_address) => Ok(Target::Address(text.to_owned())),
                _ => Err("expected embedded, apache-kafka, HOST:PORT[,HOST:PORT…] or program=PATH"
                    .to_owned()),
            },
        }
    }
}

/// `host:port`.
fn is_address(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Embedded => f.write_str("embedded"),
            Target::ApacheKafka => f.write_str("apache-kafka"),
            Target::Program(path) => write!(f, "program={}", path.display()),
            Target::Address(address) => f.write_str(address),
        }
    }
}

impl Target {
    /// The name in tables.
    pub fn name(&self) -> String {
        match self {
            Target::Embedded => "highwater".to_owned(),
            Target::ApacheKafka => "apache-kafka".to_owned(),
            Target::Program(path) => {
                format!("highwater:{}", path.display())
            }
            Target::Address(address) => address.clone(),
        }
    }

    /// In a sentence, for the report.
    pub fn describe(&self) -> String {
        match self {
            Target::Embedded => format!(
                "Highwater {}, started by the lab on this machine",
                env!("CARGO_PKG_VERSION")
            ),
            Target::ApacheKafka => {
                format!(
                    "Apache Kafka {}, started by the lab on this machine",
                    apache_kafka::VERSION
                )
            }
            Target::Program(path) => format!("Highwater, the program {}", path.display()),
            Target::Address(address) => format!("the cluster at {address}"),
        }
    }

    /// Brokers that it can have; `None` if that is not known before it is asked.
    pub fn brokers_max(&self) -> Option<u32> {
        match self {
            Target::Embedded | Target::Program(_) | Target::ApacheKafka => Some(9),
            Target::Address(_) => None,
        }
    }

    /// Whether it has what some cells need.
    pub fn offers(&self, need: Need) -> bool {
        match need {
            Need::Cluster => self.brokers_max() != Some(1),
            // The lab puts it in front, whatever the target.
            Need::Gateway | Need::WebSocket => true,
        }
    }

    /// Whether the lab starts its brokers, here.
    pub fn is_started_here(&self) -> bool {
        !matches!(self, Target::Address(_))
    }

    /// Fails early, and says what to do, when it cannot be had at all.
    pub fn check(&self) -> Result<()> {
        match self {
            Target::Embedded => Ok(()),
            Target::ApacheKafka => apache_kafka::check(),
            Target::Program(path) if path.is_file() => Ok(()),
            Target::Program(path) => bail!("there is no program {}", path.display()),
            Target::Address(address) => remote::check(address),
        }
    }

    /// A cluster of this shape, serving.
    pub fn start(&self, shape: &Shape) -> Result<Cluster> {
        match self {
            Target::Embedded => started::highwater(&std::env::current_exe()?, shape),
            Target::Program(path) => started::highwater(path, shape),
            Target::ApacheKafka => started::apache_kafka(shape),
            Target::Address(address) => remote::cluster(address, shape),
        }
    }
}

/// Brokers that serve.
pub struct Cluster {
    /// `host:port,…`.
    pub bootstrap: String,
    /// How many brokers there are.
    pub brokers: u32,
    /// Their processes, if they run on this machine and belong to the lab.
    pub pids: Vec<u32>,
    /// Where their logs are, if so.
    pub data_folders: Vec<PathBuf>,
    /// The program whose gateway and proxy stand in front of them.
    pub front: PathBuf,
    /// What keeps them alive.
    keeper: started::Keeper,
}

impl Cluster {
    /// Whether all of them still run; true for others' brokers, which are asked by using them.
    pub fn is_running(&mut self) -> bool {
        self.keeper.is_running()
    }

    /// Kills the broker of this id, from 1, as `kill -9` does.
    ///
    /// # Errors
    /// It is not the lab's, or cannot be killed.
    pub fn kill(&self, id: i32) -> Result<()> {
        self.keeper.kill(id)
    }

    /// Starts the broker of this id, which was killed, again; returns as soon as its process runs.
    ///
    /// # Errors
    /// It is not the lab's, or cannot be started.
    pub fn restart(&self, id: i32) -> Result<()> {
        self.keeper.restart(id)
    }

    /// Pauses the broker of this id, from 1, with SIGSTOP; returns when none of its threads runs.
    ///
    /// # Errors
    /// The laboratory did not start the broker, or its process has ended.
    pub fn pause(&self, id: i32) -> Result<()> {
        peer::process::pause_processes(&[self.keeper.pid(id)?])
    }

    /// Resumes the broker of this id, which was paused.
    ///
    /// # Errors
    /// The laboratory did not start the broker, or its process has ended.
    pub fn resume(&self, id: i32) -> Result<()> {
        peer::process::resume_process(self.keeper.pid(id)?)
    }

    /// The end of what a broker wrote, for an error.
    pub fn last_words(&self) -> String {
        self.keeper.last_words()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_from_the_command_line() {
        assert_eq!("embedded".parse(), Ok(Target::Embedded));
        assert_eq!("apache-kafka".parse(), Ok(Target::ApacheKafka));
        assert_eq!("a:1,[::1]:2".parse(), Ok(Target::Address("a:1,[::1]:2".to_owned())));
        assert_eq!("program=x/y".parse(), Ok(Target::Program("x/y".into())));
        for wrong in ["", "kafka", "host", "host:port", ":9092", "program="] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong:?}");
        }
    }
}
