//! What can sit in a seat of the comparison: Apache Kafka, or a Highwater binary, one broker or several of a cluster;
//! started on 127.0.0.1 with its data in a temporary folder, killed when dropped.
//!
//! No load is sent before the kernel has confirmed that the process started here owns the port.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::highwater;
use crate::repository::repository;
use peer::apache_kafka;
use peer::process::{self, Guarded};
use peer::procfs;

/// How long an orderly stop may take; thousands of partitions take long to close.
const STOP_LIMIT: Duration = Duration::from_secs(150);
/// How long a start may take, recovery included.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How long building the program may take.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);
/// Deleted topics leave the disk soon, for both alike: the default of a minute would leave the files
/// of one run to weigh on the next ones.
const SETTINGS: [(&str, &str); 1] = [("log.segment.delete.delay.ms", "1000")];

/// What to start, as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The project's own installation of Apache Kafka.
    ApacheKafka,
    /// A Highwater program; without a path the release build of this checkout.
    Highwater(Option<PathBuf>),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        match text.split_once('=') {
            None if text == "apache-kafka" => Ok(Target::ApacheKafka),
            None if text == "highwater" => Ok(Target::Highwater(None)),
            Some(("highwater-binary", path)) if !path.is_empty() => {
                Ok(Target::Highwater(Some(PathBuf::from(path))))
            }
            _ => Err("expected apache-kafka, highwater or highwater-binary=PATH".to_owned()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::ApacheKafka => write!(formatter, "Apache Kafka {}", apache_kafka::VERSION),
            Target::Highwater(_) => formatter.write_str("Highwater"),
        }
    }
}

impl Target {
    /// Makes sure that what is to be started is there; building takes minutes, and belongs in no run.
    pub fn make_ready(&self) -> Result<()> {
        match self {
            Target::ApacheKafka => apache_kafka::install().map(drop),
            Target::Highwater(path) => binary(path.as_ref()).map(drop),
        }
    }

    /// Size of what has to be installed to run it, in 10^6 bytes: a program without its debugging
    /// symbols, or all jars (the Java runtime not counted).
    pub fn program_mb(&self) -> Result<f64> {
        let bytes = match self {
            Target::ApacheKafka => {
                let jars = fs::read_dir(apache_kafka::install()?.join("lib"))?;
                let sizes = jars.map(|jar| Ok(jar?.metadata()?.len()));
                sizes.sum::<Result<u64>>()?
            }
            Target::Highwater(path) => stripped_bytes(&binary(path.as_ref())?)?,
        };
        Ok(bytes as f64 / 1e6)
    }

    /// In words: when a record is acknowledged in this class.
    pub fn durability(&self, class: Class) -> &'static str {
        match (self, class) {
            (Target::ApacheKafka, _) => "page cache",
            (Target::Highwater(_), Class::PageCache) => "page cache",
            (Target::Highwater(_), Class::Fsync) => "fsync",
        }
    }
}

/// The program to start. That of this checkout is always built: a stale one would be measured under
/// the name of a commit that it does not come from.
fn binary(path: Option<&PathBuf>) -> Result<PathBuf> {
    if let Some(path) = path {
        return Ok(path.clone());
    }
    let mut cargo = process::command("cargo");
    cargo.args(["build", "--quiet", "--release", "--locked", "--package", "highwater"]);
    cargo.current_dir(repository()).env_remove("CARGO_TARGET_DIR");
    let outcome = process::run(&mut cargo, None, BUILD_LIMIT)?;
    ensure!(outcome.success(), "highwater does not build: {}", outcome.story());
    Ok(repository().join("target/release/highwater"))
}

fn stripped_bytes(binary: &PathBuf) -> Result<u64> {
    let folder = tempfile::tempdir()?;
    let stripped = folder.path().join("stripped");
    let mut strip = process::command("strip");
    strip.arg("-o").arg(&stripped).arg(binary);
    let done = process::run(&mut strip, None, Duration::from_secs(60))?.success();
    Ok(fs::metadata(if done { &stripped } else { binary })?.len())
}

/// What an acknowledgement of acks=all promises. Kafka knows only the page cache, whatever is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Written to the page cache.
    PageCache,
    /// Synced to the device.
    Fsync,
}

/// A running broker, or the brokers of a cluster.
pub enum Broker {
    /// Apache Kafka, one or several.
    Kafka(apache_kafka::Brokers),
    /// Highwater.
    Highwater(Highwater),
    /// Several Highwater brokers.
    Cluster(Cluster),
}

/// Highwater brokers of one cluster.
pub struct Cluster {
    servers: Vec<peer::highwater::Server>,
    folder: TempDir,
}

/// What clusters are started with besides: acknowledged is what two of three replicas have. Kafka's default is one.
const CLUSTER_SETTINGS: [(&str, &str); 1] = [("min.insync.replicas", "2")];

/// A running Highwater program.
pub struct Highwater {
    process: Guarded,
    binary: PathBuf,
    port: u16,
    class: Class,
    folder: TempDir,
}

impl Broker {
    /// Starts a fresh one and waits until it listens; or so many of one cluster.
    pub fn start(target: &Target, class: Class, brokers: u16) -> Result<Broker> {
        let several: Vec<_> = SETTINGS.into_iter().chain(CLUSTER_SETTINGS).collect();
        let broker = match target {
            Target::ApacheKafka if brokers == 1 => {
                Broker::Kafka(apache_kafka::start(1, None, &SETTINGS)?)
            }
            Target::ApacheKafka => {
                Broker::Kafka(apache_kafka::start(brokers.into(), None, &several)?)
            }
            Target::Highwater(path) if brokers == 1 => {
                Broker::Highwater(Highwater::start(binary(path.as_ref())?, class)?)
            }
            Target::Highwater(path) => {
                let program = binary(path.as_ref())?;
                Broker::Cluster(Cluster::start(&program, class, brokers, several)?)
            }
        };
        broker.check_ports()?;
        Ok(broker)
    }

    /// The process of the only broker, or of the first one.
    pub fn pid(&self) -> u32 {
        self.pids()[0]
    }

    /// The processes.
    pub fn pids(&self) -> Vec<u32> {
        match self {
            Broker::Kafka(brokers) => brokers.pids(),
            Broker::Highwater(own) => vec![own.process.pid()],
            Broker::Cluster(cluster) => cluster.servers.iter().map(|server| server.pid()).collect(),
        }
    }

    /// `127.0.0.1:port`, of several brokers separated by commas.
    pub fn bootstrap(&self) -> String {
        match self {
            Broker::Kafka(brokers) => brokers.bootstrap(),
            Broker::Highwater(own) => format!("127.0.0.1:{}", own.port),
            Broker::Cluster(cluster) => {
                let addresses = cluster.servers.iter().map(|server| server.bootstrap());
                addresses.collect::<Vec<_>>().join(",")
            }
        }
    }

    /// `127.0.0.1:port` of the only broker, or of the first one.
    pub fn address(&self) -> String {
        let bootstrap = self.bootstrap();
        bootstrap.split_once(',').map_or(bootstrap.clone(), |(first, _)| first.to_owned())
    }

    /// Replicas of the topics that loads use: three, where there are as many brokers.
    pub fn replicas(&self) -> usize {
        self.pids().len().min(3)
    }

    /// Where the log of the only broker lies, or of the first one.
    pub fn data_folder(&self) -> PathBuf {
        match self {
            Broker::Kafka(brokers) => brokers.data_folder(0),
            Broker::Highwater(own) => own.folder.path().to_owned(),
            Broker::Cluster(cluster) => cluster.folder.path().to_owned(),
        }
    }

    /// Whether all still run.
    pub fn is_running(&self) -> bool {
        self.pids().into_iter().all(procfs::is_running)
    }

    /// Ends it in an orderly way; its data stays.
    pub fn stop(&self) -> Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("no process")?, Signal::TERM)?;
        let deadline = Instant::now() + STOP_LIMIT;
        while self.is_running() {
            ensure!(Instant::now() < deadline, "still not stopped after {STOP_LIMIT:?}");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Ends it as `kill -9` does; its data stays.
    pub fn kill(&mut self) -> Result<()> {
        match self {
            Broker::Kafka(brokers) => brokers.kill(0),
            Broker::Highwater(own) => own.process.kill(),
            Broker::Cluster(_) => bail!("no row kills a broker of a cluster"),
        }
    }

    /// Starts it again after [`Broker::stop`] or [`Broker::kill`], on its data and its port, without
    /// waiting for it. Returns when the process began, in seconds since 1970.
    pub fn start_again(&mut self) -> Result<f64> {
        ensure!(!self.is_running(), "it still runs");
        let mut begun = procfs::unix_s();
        match self {
            Broker::Kafka(brokers) => brokers.restart(0)?,
            Broker::Highwater(own) => own.start_again()?,
            Broker::Cluster(_) => bail!("no row starts a broker of a cluster again"),
        }
        if let Broker::Kafka(_) = self {
            // Between asking and starting lies the peer's housekeeping, which is not its fault.
            begun = procfs::start_unix_s(self.pid())?;
        }
        Ok(begun)
    }

    /// Fails when another process owns a port.
    pub fn check_ports(&self) -> Result<()> {
        let bootstrap = self.bootstrap();
        for (address, pid) in bootstrap.split(',').zip(self.pids()) {
            let (_, port) = address.rsplit_once(':').context("an address without a port")?;
            let ours = procfs::listens_on(pid, port.parse()?)?;
            ensure!(ours, "{address} belongs to another process: no load is sent there");
        }
        Ok(())
    }
}

impl Cluster {
    fn start(
        binary: &Path,
        class: Class,
        brokers: u16,
        mut settings: Vec<(&str, &str)>,
    ) -> Result<Cluster> {
        let folder = tempfile::Builder::new().prefix("highwater-").tempdir()?;
        if class == Class::PageCache {
            settings.push(("durability", "page-cache"));
        }
        let started =
            peer::highwater::start_cluster(binary, folder.path(), brokers.into(), &settings);
        Ok(Cluster { servers: started.context("the cluster does not serve")?, folder })
    }
}

impl Highwater {
    fn start(binary: PathBuf, class: Class) -> Result<Highwater> {
        let folder = tempfile::Builder::new().prefix("highwater-").tempdir()?;
        let port = highwater::free_port()?;
        let process = spawn(&binary, &folder, port, class)?;
        let mut own = Highwater { process, binary, port, class, folder };
        let listening = own.process.wait_until_listening(port, START_LIMIT);
        listening.with_context(|| format!("highwater does not serve:\n{}", own.last_words()))?;
        Ok(own)
    }

    fn start_again(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process = spawn(&self.binary, &self.folder, self.port, self.class)?;
        Ok(())
    }

    /// The end of what it wrote.
    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.folder.path().join("output")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

fn spawn(binary: &PathBuf, folder: &TempDir, port: u16, class: Class) -> Result<Guarded> {
    let output = folder.path().join("output");
    let output = File::options().create(true).append(true).open(output)?;
    let mut command = process::command(binary);
    command.arg("start").arg("--data-dir").arg(folder.path().join("data"));
    command.args(["--set", &format!("listeners=PLAINTEXT://127.0.0.1:{port}")]);
    // What a start and a broker without work cost includes the gateway.
    command.args(["--set", "http.listener=", "--set", "gateway.listener=127.0.0.1:0"]);
    if class == Class::PageCache {
        command.args(["--set", "durability=page-cache"]);
    }
    for (key, value) in SETTINGS {
        command.args(["--set", &format!("{key}={value}")]);
    }
    command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
    Guarded::spawn(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_from_the_command_line() {
        assert_eq!("apache-kafka".parse(), Ok(Target::ApacheKafka));
        assert_eq!("highwater".parse(), Ok(Target::Highwater(None)));
        let path = Some(PathBuf::from("x/highwater"));
        assert_eq!("highwater-binary=x/highwater".parse(), Ok(Target::Highwater(path)));
        assert!("highwater-binary=".parse::<Target>().is_err());
        assert!("127.0.0.1:9092".parse::<Target>().is_err());
    }
}
