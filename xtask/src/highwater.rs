//! A Highwater broker as users run it: the built binary, started on a data folder, killed when
//! dropped.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::cache::repository;
use crate::process::{self, Guarded};

/// How long a broker may take until it accepts connections, recovery included.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a release build may take.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);
/// How long an orderly stop may take.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// The binary: `$HIGHWATER_BINARY`, or the release build of this checkout, made anew when a source has
/// changed.
pub fn binary() -> Result<PathBuf> {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    if let Some(path) = std::env::var_os("HIGHWATER_BINARY") {
        return Ok(PathBuf::from(path));
    }
    if let Some(path) = BINARY.get() {
        return Ok(path.clone());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| repository().join("target"), PathBuf::from);
    eprintln!("building highwater (release) …");
    let mut cargo = process::command("cargo");
    cargo.args(["build", "--release", "--package", "highwater"]).current_dir(repository());
    let outcome = process::run(&mut cargo, None, BUILD_LIMIT)?;
    ensure!(outcome.success(), "the build failed: {}", outcome.story());
    Ok(BINARY.get_or_init(|| target.join("release/highwater")).clone())
}

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

/// Starts the broker on `data` (made if missing) and `port`, with `settings` as `--set` each, and
/// waits until it accepts connections. Its output goes to `<data>.log`, beside the folder.
pub fn start(data: &Path, port: u16, settings: &[(&str, &str)]) -> Result<Server> {
    let log = data.with_extension("log");
    let output = File::options().create(true).append(true).open(&log)?;
    let mut command = process::command(binary()?);
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
