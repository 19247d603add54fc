//! A Highwater broker as users run it: a program, started on a data folder, killed when dropped.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::process::{self, Guarded};

/// How long a broker may take until it accepts connections, recovery included.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long an orderly stop may take.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// A running broker.
#[derive(Debug)]
pub struct Server {
    process: Guarded,
    address: SocketAddr,
    log: PathBuf,
}

/// A port of 127.0.0.1 that is free now.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Starts the program `binary` as a broker on `data` (made if missing) and `port`, with `settings` as `--set` each, and
/// waits until it accepts connections. Its output goes to `<data>.log`, beside the folder.
pub fn start(binary: &Path, data: &Path, port: u16, settings: &[(&str, &str)]) -> Result<Server> {
    let log = data.with_extension("log");
    let output = File::options().create(true).append(true).open(&log)?;
    let mut command = process::command(binary);
    command.arg("start").arg("--data-dir").arg(data);
    command.args(["--set", &format!("listeners=PLAINTEXT://127.0.0.1:{port}")]);
    command.args(["--set", "http.listener="]);
    for (key, value) in settings {
        command.args(["--set", &format!("{key}={value}")]);
    }
    command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
    let process = Guarded::spawn(&mut command)?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut server = Server { process, address, log };
    server.wait_until_accepting()?;
    Ok(server)
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

    fn wait_until_accepting(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_err() {
            let running = self.process.is_running();
            ensure!(running, "highwater ended at start:\n{}", self.last_words());
            let late = Instant::now() > deadline;
            ensure!(!late, "highwater does not listen in time:\n{}", self.last_words());
            thread::sleep(Duration::from_millis(5));
        }
        TcpStream::connect(self.address).context("the broker went away again")?;
        Ok(())
    }
}
