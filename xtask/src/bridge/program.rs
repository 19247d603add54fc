//! The bridge as a process.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use peer::highwater::free_port;
use peer::process::{self, Guarded};

use crate::front::ask;

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// A bridge that runs.
#[derive(Debug)]
pub struct Bridge {
    process: Guarded,
    /// `host:port` where it listens.
    pub address: String,
}

/// Starts the bridge of these jars in front of the cluster at `bootstrap`, and waits until it serves.
pub fn start(jars: &Path, scratch: &Path, bootstrap: &str) -> Result<Bridge> {
    let port = free_port()?;
    let config = scratch.join("bridge.properties");
    let text = format!(
        "bridge.id=compared\nhttp.host=127.0.0.1\nhttp.port={port}\nkafka.bootstrap.servers={bootstrap}\n\
         kafka.producer.acks=all\nkafka.producer.delivery.timeout.ms=6000\nkafka.producer.request.timeout.ms=3000\n\
         kafka.producer.max.block.ms=3000\nkafka.consumer.request.timeout.ms=4000\n\
         kafka.consumer.default.api.timeout.ms=5000\nhttp.consumer.enabled=true\nhttp.producer.enabled=true\n"
    );
    fs::write(&config, text)?;
    let log = scratch.join("bridge.log");
    let output = File::create(&log)?;
    let mut command = process::command("java");
    command.arg("-Xmx256m").arg("-cp").arg(format!("{}/*", jars.display()));
    command.arg("io.strimzi.kafka.bridge.Application");
    command.arg(format!("--config-file={}", config.display()));
    command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
    let mut process = Guarded::spawn(&mut command)?;
    let address = format!("127.0.0.1:{port}");
    let ends = Instant::now() + START_LIMIT;
    loop {
        let is_ready =
            ask(&address, "GET", "/ready", &[], "").is_ok_and(|answer| answer.status < 300);
        if is_ready {
            return Ok(Bridge { process, address });
        }
        if !process.is_running() || Instant::now() > ends {
            let said = fs::read_to_string(&log).context("its output")?;
            bail!("the bridge does not serve: {said}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

impl Bridge {
    /// Stops it.
    pub fn stop(mut self) -> Result<()> {
        self.process.stop(STOP_LIMIT)
    }
}
