//! A Highwater broker as users run it: a program, started on a data folder, killed when dropped.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::host::Host;
use crate::ports;
use crate::process::Guarded;

mod cluster;
mod front;

pub use cluster::Cluster;
pub use front::Front;

/// How long a broker may take until it accepts connections, recovery included.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How long an orderly stop may take before the broker is killed.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// The beginning of the line in which a broker says where it listens.
const LISTENING: &str = "broker: listening on ";

/// A running broker.
#[derive(Debug)]
pub struct Server {
    process: Guarded,
    address: SocketAddr,
    log: PathBuf,
    start: Box<Start>,
}

/// What a broker is started with, to start it again.
#[derive(Debug)]
struct Start {
    host: Host,
    binary: PathBuf,
    data: PathBuf,
    listeners: String,
    settings: Vec<(String, String)>,
}

/// A port of 127.0.0.1 that is free now, for a program that must know its port beforehand. No outgoing
/// connection takes it meanwhile.
///
/// # Errors
/// No port can be bound.
pub fn free_port() -> Result<u16> {
    Ok(ports::free(1)?[0])
}

/// Starts the program `binary` as a broker on `data` (made if missing) and `port`, 0 for one of the system's choice, with
/// `settings` as `--set` each, and waits until it says that it listens. Its output goes to `<data>.log`, beside the folder.
///
/// Nothing connects until then: on one machine a connection to a port where nothing listens yet may be
/// given that very port for its own end, and be connected to itself (RFC 9293, simultaneous open).
pub fn start(binary: &Path, data: &Path, port: u16, settings: &[(&str, &str)]) -> Result<Server> {
    let listeners = format!("PLAINTEXT://127.0.0.1:{port}");
    let start = Start::new(&Host::local(), binary, data, &listeners, settings);
    let (mut server, written) = spawn(start, port)?;
    server.wait_until_listening(written)?;
    Ok(server)
}

/// Starts the program `binary` as the brokers 1 to `count` of one cluster, each on a folder `broker-K` within `folder`,
/// with `settings` as `--set` each, and waits until all serve. The first three vote.
///
/// # Errors
/// A broker cannot be started, or does not serve.
pub fn start_cluster(
    binary: &Path,
    folder: &Path,
    count: usize,
    settings: &[(&str, &str)],
) -> Result<Vec<Server>> {
    let folders: Vec<PathBuf> = (1..=count).map(|id| folder.join(format!("broker-{id}"))).collect();
    let mut cluster = Cluster::new(binary, &folders, settings)?;
    cluster.start_all()?;
    Ok(cluster.into_servers())
}

/// The process, and how much its output had before it.
fn spawn(start: Start, port: u16) -> Result<(Server, u64)> {
    let log = start.data.with_extension("log");
    let (process, written) = start.process(&log)?;
    let address = SocketAddr::from((start.host.address, port));
    let start = Box::new(start);
    Ok((Server { process, address, log, start }, written))
}

impl Start {
    fn new(
        host: &Host,
        binary: &Path,
        data: &Path,
        listeners: &str,
        settings: &[(&str, &str)],
    ) -> Start {
        let owned = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Start {
            host: host.clone(),
            binary: binary.to_owned(),
            data: data.to_owned(),
            listeners: listeners.to_owned(),
            settings: owned.collect(),
        }
    }

    /// The command without its standard streams.
    fn command(&self) -> Command {
        let mut command = self.host.command(&self.binary);
        command.arg("start").arg("--data-dir").arg(&self.data);
        command.args(["--set", &format!("listeners={}", self.listeners)]);
        command.args(["--set", "http.listener=", "--set", "gateway.listener="]);
        for (key, value) in &self.settings {
            command.args(["--set", &format!("{key}={value}")]);
        }
        command
    }

    /// The process, and how much its output had before it.
    fn process(&self, log: &Path) -> Result<(Guarded, u64)> {
        let output = File::options().create(true).append(true).open(log)?;
        let written = output.metadata()?.len();
        let mut command = self.command();
        command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
        Ok((Guarded::spawn(&mut command)?, written))
    }
}

impl Server {
    /// `host:port` for clients.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        self.address.to_string()
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Stops it in an orderly way.
    pub fn stop(mut self) -> Result<()> {
        self.process.stop(STOP_LIMIT)
    }

    /// Kills it as `kill -9` does.
    pub fn kill(mut self) -> Result<()> {
        self.process.kill()
    }

    /// Kills it as `kill -9` does, and leaves it to be started again.
    pub fn kill_in_place(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Starts a broker that was killed again, as it was started before, and returns as soon as the process runs: whoever
    /// measures the start asks the broker itself when it serves. Its port must have been named.
    pub fn restart(&mut self) -> Result<()> {
        self.process.kill()?;
        (self.process, _) = self.start.process(&self.log)?;
        Ok(())
    }

    /// Whether the process is still there.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// The end of what it wrote.
    #[must_use]
    pub fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// Waits for the line that says where it listens, behind what `written` bytes of the log hold.
    fn wait_until_listening(&mut self, written: u64) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            // Before the look at the output: what was written before the end is read then.
            let running = self.process.is_running();
            if let Some(address) = listening_at(&self.output_from(written)?) {
                self.address = address;
                return Ok(());
            }
            ensure!(running, "highwater ended at start:\n{}", self.last_words());
            let late = Instant::now() > deadline;
            ensure!(!late, "highwater does not listen in time:\n{}", self.last_words());
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn output_from(&self, position: u64) -> Result<String> {
        let (mut log, mut bytes) = (File::open(&self.log)?, Vec::new());
        log.seek(SeekFrom::Start(position))?;
        log.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Where the broker listens, if its output has the whole line that tells.
fn listening_at(output: &str) -> Option<SocketAddr> {
    let whole = output.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    whole.filter_map(|line| line.strip_prefix(LISTENING)?.parse().ok()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_line_says_where_it_listens() {
        let output = "data: /x, durability=fsync\nbroker: listening on 127.0.0.1:40123";
        assert_eq!(listening_at(output), None, "the port may go on");
        let found = listening_at(&format!("{output}\nhttp: off\n"));
        assert_eq!(found, Some(SocketAddr::from(([127, 0, 0, 1], 40123))));
        assert_eq!(listening_at("error: cannot listen on 127.0.0.1:1\n"), None);
    }
}
