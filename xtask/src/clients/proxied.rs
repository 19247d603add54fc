//! `highwater proxy` between the clients and the target.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use peer::process::{self, Guarded};

use super::target::Target;
use crate::highwater;

const STOP_LIMIT: Duration = Duration::from_secs(30);

/// A proxy that runs.
#[derive(Debug)]
pub struct Proxy {
    process: Guarded,
    /// `host:port` where clients begin.
    pub address: String,
    /// Kept to the end: a proxy without a reader could not go on speaking.
    _said: BufReader<ChildStdout>,
}

/// Starts a proxy in front of the target, and has the clients begin there.
pub fn stand_before(target: &mut Target) -> Result<Proxy> {
    let proxy = Proxy::start(&target.bootstrap)?;
    target.bootstrap.clone_from(&proxy.address);
    Ok(proxy)
}

impl Proxy {
    /// Starts a proxy in front of the brokers at these addresses.
    pub fn start(brokers: &str) -> Result<Proxy> {
        let mut command = process::command(highwater::binary()?);
        command.args(["--log-level", "error", "proxy", "-b", brokers]);
        command.args(["--listen", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Guarded::spawn(&mut command)?;
        let said = process.child().stdout.take().context("its output is piped")?;
        let mut said = BufReader::new(said);
        let mut first = String::new();
        said.read_line(&mut first)?;
        let address = first.trim().strip_prefix("proxy: ");
        let address = address.with_context(|| format!("no proxy: {first:?}"))?.to_owned();
        Ok(Proxy { process, address, _said: said })
    }

    /// Stops it.
    pub fn stop(mut self) -> Result<()> {
        self.process.stop(STOP_LIMIT)
    }
}
