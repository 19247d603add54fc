//! What the clients run against: a fresh Highwater, a fresh Apache Kafka, of one broker or of several, or a cluster somewhere.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail, ensure};
use peer::apache_kafka::{self, Brokers};
use peer::highwater::Cluster;
use tempfile::TempDir;

use crate::highwater;
use crate::repository::repository;

/// Shorter than the defaults, so that the suite waits less; both are ordinary settings.
const SETTINGS: [(&str, &str); 2] =
    [("group.initial.rebalance.delay.ms", "100"), ("group.min.session.timeout.ms", "1000")];
/// Copies of everything, of several brokers.
const REPLICAS_MAX: usize = 3;

/// A running cluster of which the suite knows the address and, when it is its own, the data folder.
#[derive(Debug)]
pub struct Target {
    /// `highwater`, `apache-kafka` or the address.
    pub name: String,
    /// The version, or empty when unknown.
    pub version: String,
    /// `host:port,…`
    pub bootstrap: String,
    /// How many brokers it has, numbered from 1.
    pub brokers: usize,
    /// Where the first broker keeps its partitions; `None` for a cluster somewhere.
    pub data_folder: Option<PathBuf>,
    running: Mutex<Running>,
}

#[derive(Debug)]
enum Running {
    Highwater { cluster: Cluster, _folder: TempDir },
    ApacheKafka(Brokers),
    Elsewhere,
}

impl Target {
    /// Starts what `name` says, `highwater` or `apache-kafka`, with so many brokers; a cluster at `HOST:PORT` must have them.
    pub fn start(name: &str, brokers: usize) -> Result<Self> {
        ensure!(brokers > 0, "invalid number of brokers 0: at least 1");
        match name {
            "highwater" => start_highwater(brokers),
            "apache-kafka" => start_apache_kafka(brokers),
            address if address.contains(':') => Ok(Self {
                name: address.to_owned(),
                version: String::new(),
                bootstrap: address.to_owned(),
                brokers,
                data_folder: None,
                running: Mutex::new(Running::Elsewhere),
            }),
            other => bail!("unknown target {other}: highwater, apache-kafka or HOST:PORT"),
        }
    }

    /// Copies of each partition, of the internal topics' too.
    pub fn replicas(&self) -> usize {
        self.brokers.min(REPLICAS_MAX)
    }

    /// Kills a broker, counted from 0, as `kill -9` does.
    pub fn kill(&self, index: usize) -> Result<()> {
        match &mut *self.running() {
            Running::Highwater { cluster, .. } => cluster.kill(index),
            Running::ApacheKafka(brokers) => brokers.kill(index),
            Running::Elsewhere => bail!("brokers of a cluster elsewhere cannot be killed"),
        }
    }

    /// Starts a broker again that was killed, and waits until it serves.
    pub fn start_again(&self, index: usize) -> Result<()> {
        match &mut *self.running() {
            Running::Highwater { cluster, .. } => {
                cluster.spawn(index)?;
                cluster.wait_until_serving(index)
            }
            Running::ApacheKafka(brokers) => {
                brokers.restart(index)?;
                brokers.wait_until_serves(index)
            }
            Running::Elsewhere => bail!("brokers of a cluster elsewhere cannot be started"),
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a broker of ours died under the suite; then its last words.
    pub fn died(&self) -> Option<String> {
        match &mut *self.running() {
            Running::Highwater { cluster, .. } => cluster.ended(),
            Running::ApacheKafka(_) | Running::Elsewhere => None,
        }
    }

    /// Stops what was started.
    pub fn stop(self) -> Result<()> {
        match self.running.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Running::Highwater { mut cluster, .. } => cluster.stop(),
            Running::ApacheKafka(brokers) => brokers.stop(),
            Running::Elsewhere => Ok(()),
        }
    }
}

/// What several brokers are set to besides: a copy of each partition on three of them, of which one may be away.
fn settings(brokers: usize) -> Vec<(&'static str, &'static str)> {
    let mut all = SETTINGS.to_vec();
    if brokers >= REPLICAS_MAX {
        all.extend([("default.replication.factor", "3"), ("min.insync.replicas", "2")]);
    }
    all
}

fn start_highwater(brokers: usize) -> Result<Target> {
    let folder = tempfile::Builder::new().prefix("highwater-").tempdir()?;
    let data: Vec<PathBuf> =
        (1..=brokers).map(|id| folder.path().join(format!("broker-{id}"))).collect();
    let mut cluster = Cluster::new(&highwater::binary()?, &data, &settings(brokers))?;
    cluster.start_all()?;
    Ok(Target {
        name: "highwater".to_owned(),
        version: commit()?.map_or_else(String::new, |commit| format!("(commit {commit})")),
        bootstrap: cluster.bootstrap(),
        brokers,
        data_folder: data.into_iter().next(),
        running: Mutex::new(Running::Highwater { cluster, _folder: folder }),
    })
}

fn start_apache_kafka(count: usize) -> Result<Target> {
    let brokers = apache_kafka::start(count, None, &settings(count))?;
    Ok(Target {
        name: "apache-kafka".to_owned(),
        version: apache_kafka::VERSION.to_owned(),
        bootstrap: brokers.bootstrap(),
        brokers: count,
        data_folder: Some(brokers.data_folder(0)),
        running: Mutex::new(Running::ApacheKafka(brokers)),
    })
}

/// The commit that the program is built of, shortened. `None` if that is unknown: a program given by hand may be of any
/// commit, a checkout may be of none, and files that were changed since are in none.
pub fn commit() -> Result<Option<String>> {
    if std::env::var_os("HIGHWATER_BINARY").is_some() {
        return Ok(None);
    }
    let git = |arguments: &[&str]| -> Result<Option<String>> {
        let output = Command::new("git").args(arguments).current_dir(repository()).output()?;
        let text = String::from_utf8(output.stdout)?.trim().to_owned();
        Ok(output.status.success().then_some(text))
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    match changed.is_some_and(|changed| changed.is_empty()) {
        true => git(&["rev-parse", "--short", "HEAD"]),
        false => Ok(None),
    }
}
