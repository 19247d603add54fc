//! Three brokers of the program under test or of Apache Kafka, with the same folders and hosts.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use peer::apache_kafka::{self, Brokers, JavaRuntime, NodePlan};
use peer::highwater::Cluster;
use peer::host::Host;
use peer::ports;

use crate::ledger::Line;
use crate::{replicas, requests};

/// Heap of each of Kafka's brokers, MiB: the default of its start script.
const HEAP_MIB: u32 = 1024;
/// Brokers on several hosts need a secret.
const SETTINGS: [(&str, &str); 1] = [("inter.broker.secret", "a secret of this trial alone, 0123")];
/// Time between two requests for metadata while replicas catch up.
const POLL: Duration = Duration::from_millis(50);

/// Program that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Product {
    Highwater,
    ApacheKafka,
}

impl Product {
    /// Name in the table.
    pub fn name(self) -> String {
        match self {
            Product::Highwater => "Highwater".to_owned(),
            Product::ApacheKafka => format!("Apache Kafka {}", apache_kafka::VERSION),
        }
    }
}

/// Where the brokers of one run keep their files, and where they run.
pub struct Places {
    /// Log directory of each broker.
    pub folders: Vec<PathBuf>,
    /// Metadata directory of each broker if it differs from the log directory, else empty.
    pub metadata: Vec<PathBuf>,
    /// Host of each broker.
    pub hosts: Vec<Host>,
}

/// Running brokers, killed when dropped.
pub enum Subject {
    Highwater(Cluster),
    ApacheKafka(Brokers),
}

impl Subject {
    /// Starts a broker for each place and waits until all of them serve.
    pub fn start(product: Product, binary: &Path, places: &Places) -> Result<Subject> {
        for folder in &places.metadata {
            fs::create_dir_all(folder)?;
        }
        match product {
            Product::Highwater => {
                let hosts = &places.hosts;
                let mut cluster = Cluster::on_hosts(binary, &places.folders, hosts, &SETTINGS)?;
                for (at, folder) in places.metadata.iter().enumerate() {
                    cluster.set(at, "metadata.log.dir", &folder.display().to_string());
                }
                cluster.start_all()?;
                Ok(Subject::Highwater(cluster))
            }
            Product::ApacheKafka => {
                let runtime = JavaRuntime { heap_mib: HEAP_MIB, class_archive: false };
                let plans = plans(places)?;
                Ok(Subject::ApacheKafka(apache_kafka::start_planned(&plans, runtime)?))
            }
        }
    }

    /// `host:port` of the broker at `index`, counted from 0.
    pub fn address(&self, index: usize) -> String {
        match self {
            Subject::Highwater(cluster) => cluster.address(index),
            Subject::ApacheKafka(brokers) => brokers.address(index),
        }
    }

    /// `host:port,…` of all brokers.
    pub fn bootstrap(&self) -> String {
        match self {
            Subject::Highwater(cluster) => cluster.bootstrap(),
            Subject::ApacheKafka(brokers) => brokers.bootstrap(),
        }
    }

    /// Process id of the broker at `index`, counted from 0.
    pub fn pid(&self, index: usize) -> Result<u32> {
        match self {
            Subject::Highwater(cluster) => cluster.pid(index).context("no process"),
            Subject::ApacheKafka(brokers) => Ok(brokers.pids()[index]),
        }
    }

    /// The end of the log if a broker has ended.
    pub fn ended(&mut self) -> Option<String> {
        match self {
            Subject::Highwater(cluster) => cluster.ended(),
            Subject::ApacheKafka(brokers) => {
                let is_whole = brokers.are_running();
                (!is_whole).then(|| format!("a broker has ended:\n{}", brokers.last_words()))
            }
        }
    }

    /// Waits until every broker reports every replica of these partitions in sync.
    ///
    /// # Errors
    /// A broker ends, or the replicas are not in sync within that time.
    pub fn wait_until_in_sync(
        &mut self,
        count: usize,
        lines: &[Line],
        within: Duration,
    ) -> Result<()> {
        let deadline = Instant::now() + within;
        for index in 0..count {
            let address = self.address(index);
            loop {
                let states = requests::runtime()?.block_on(replicas::states(&address, lines));
                let is_in_sync = |states: &Vec<(Line, i32, Vec<i32>)>| {
                    states.iter().all(|(_, leader, isr)| *leader > 0 && isr.len() == count)
                };
                if states.as_ref().is_ok_and(is_in_sync) {
                    break;
                }
                if let Some(words) = self.ended() {
                    bail!("{words}");
                }
                ensure!(Instant::now() < deadline, "replicas not in sync in time: {states:?}");
                thread::sleep(POLL);
            }
        }
        Ok(())
    }
}

/// One node of Kafka for each place, with the folders that Highwater would have.
fn plans(places: &Places) -> Result<Vec<NodePlan>> {
    let ports = ports::free(2 * places.folders.len())?;
    let plan = |(at, pair): (usize, &[u16])| {
        let text = |folder: &PathBuf| folder.display().to_string();
        let mut properties = vec![("log.dirs".to_owned(), text(&places.folders[at]))];
        if let Some(folder) = places.metadata.get(at) {
            properties.push(("metadata.log.dir".to_owned(), text(folder)));
        }
        let host = places.hosts[at].clone();
        NodePlan { host, client: pair[0], controller: pair[1], properties }
    };
    Ok(ports.chunks(2).enumerate().map(plan).collect())
}
