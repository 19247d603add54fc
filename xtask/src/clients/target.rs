//! What the clients run against: a fresh Highwater, a fresh Apache Kafka, or a cluster somewhere.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::highwater::{self, Server};
use crate::repository::repository;
use peer::apache_kafka::{self, Brokers};

/// Shorter than the defaults, so that the suite waits less; both are ordinary settings.
const SETTINGS: [(&str, &str); 2] =
    [("group.initial.rebalance.delay.ms", "100"), ("group.min.session.timeout.ms", "1000")];

/// A running cluster of which the suite knows the address and, when it is its own, the data folder.
#[derive(Debug)]
pub struct Target {
    /// `highwater`, `apache-kafka` or the address.
    pub name: String,
    /// The version, or empty when unknown.
    pub version: String,
    /// `host:port,…`
    pub bootstrap: String,
    /// Where the first broker keeps its partitions; `None` for a cluster somewhere.
    pub data_folder: Option<PathBuf>,
    running: Running,
}

#[derive(Debug)]
enum Running {
    Highwater { server: Server, _folder: TempDir },
    ApacheKafka(Brokers),
    Elsewhere,
}

impl Target {
    /// Starts what `name` says: `highwater`, `apache-kafka` or `HOST:PORT`.
    pub fn start(name: &str) -> Result<Self> {
        match name {
            "highwater" => start_highwater(),
            "apache-kafka" => start_apache_kafka(),
            address if address.contains(':') => Ok(Self {
                name: address.to_owned(),
                version: String::new(),
                bootstrap: address.to_owned(),
                data_folder: None,
                running: Running::Elsewhere,
            }),
            other => bail!("unknown target {other}: highwater, apache-kafka or HOST:PORT"),
        }
    }

    /// Whether a broker of ours died under the suite; then its last words.
    pub fn died(&mut self) -> Option<String> {
        match &mut self.running {
            Running::Highwater { server, .. } => {
                (!server.is_running()).then(|| server.last_words())
            }
            _ => None,
        }
    }

    /// Stops what was started.
    pub fn stop(self) -> Result<()> {
        match self.running {
            Running::Highwater { server, .. } => server.stop(),
            Running::ApacheKafka(brokers) => brokers.stop(),
            Running::Elsewhere => Ok(()),
        }
    }
}

fn start_highwater() -> Result<Target> {
    let folder = tempfile::Builder::new().prefix("highwater-").tempdir()?;
    let data = folder.path().join("data");
    let server = highwater::start(&data, 0, &SETTINGS)?;
    Ok(Target {
        name: "highwater".to_owned(),
        version: commit().context("the version of this checkout is unknown")?,
        bootstrap: server.bootstrap(),
        data_folder: Some(data),
        running: Running::Highwater { server, _folder: folder },
    })
}

fn start_apache_kafka() -> Result<Target> {
    let brokers = apache_kafka::start(1, None, &SETTINGS)?;
    Ok(Target {
        name: "apache-kafka".to_owned(),
        version: apache_kafka::VERSION.to_owned(),
        bootstrap: brokers.bootstrap(),
        data_folder: Some(brokers.data_folder(0)),
        running: Running::ApacheKafka(brokers),
    })
}

/// The commit that is checked out, shortened; a binary given by hand may be of any.
fn commit() -> Result<String> {
    if std::env::var_os("HIGHWATER_BINARY").is_some() {
        return Ok("unknown".to_owned());
    }
    let mut git = Command::new("git");
    git.args(["rev-parse", "--short", "HEAD"]).current_dir(repository());
    Ok(String::from_utf8(git.output()?.stdout)?.trim().to_owned())
}
