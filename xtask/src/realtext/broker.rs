//! A broker that can be killed and started again on its own data.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::highwater::{self, Server};
use peer::apache_kafka::{self, Brokers};

/// The broker under test.
#[derive(Debug)]
pub enum Broker {
    /// Highwater with its defaults: what is acknowledged is on the disk.
    Highwater {
        /// `None` between a crash and the next start.
        server: Option<Server>,
        /// The data folder, inside `folder`.
        data: PathBuf,
        /// The same port after every start.
        port: u16,
        /// Removes the data in the end.
        folder: TempDir,
    },
    /// The reference: it shows that the checks themselves are right.
    ApacheKafka(Brokers),
}

impl Broker {
    /// Starts a fresh one.
    pub fn start(target: &str) -> Result<Self> {
        match target {
            "highwater" => {
                let folder = tempfile::Builder::new().prefix("highwater-").tempdir()?;
                let (data, port) = (folder.path().join("data"), highwater::free_port()?);
                let server = Some(highwater::start(&data, port, &[])?);
                Ok(Self::Highwater { server, data, port, folder })
            }
            "apache-kafka" => Ok(Self::ApacheKafka(apache_kafka::start(1, None, &[])?)),
            other => bail!("unknown target {other}: highwater or apache-kafka"),
        }
    }

    /// `host:port`
    pub fn bootstrap(&self) -> String {
        match self {
            Self::Highwater { port, .. } => format!("127.0.0.1:{port}"),
            Self::ApacheKafka(brokers) => brokers.bootstrap(),
        }
    }

    /// Kills it as `kill -9` does.
    pub fn crash(&mut self) -> Result<()> {
        match self {
            Self::Highwater { server, .. } => {
                server.take().context("the broker does not run")?.kill()
            }
            Self::ApacheKafka(brokers) => brokers.kill(0),
        }
    }

    /// Starts it again on the data that the crash left.
    pub fn restart(&mut self) -> Result<()> {
        match self {
            Self::Highwater { server, data, port, .. } => {
                *server = Some(highwater::start(data, *port, &[])?);
                Ok(())
            }
            Self::ApacheKafka(brokers) => brokers.restart(0),
        }
    }

    /// Stops it in an orderly way; its data goes.
    pub fn stop(self) -> Result<()> {
        match self {
            Self::Highwater { server, folder, .. } => {
                server.map_or(Ok(()), Server::stop)?;
                Ok(folder.close()?)
            }
            Self::ApacheKafka(brokers) => brokers.stop(),
        }
    }
}
