//! Three brokers for the console to stand before, and how programs reach them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use peer::apache_kafka::{self, Brokers, JavaRuntime};
use peer::highwater::Server;

use crate::secured::cluster::{Protected, SCRAM_512_TLS};

const BROKERS: usize = 3;
/// Three of them share a machine with a browser.
const JAVA_RUNTIME: JavaRuntime = JavaRuntime { heap_mib: 384, class_archive: true };
/// Groups are ready at once, as far as that is the brokers' affair.
const SETTINGS: [(&str, &str); 1] = [("group.initial.rebalance.delay.ms", "0")];

/// Whose brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Before {
    /// Highwater
    Highwater,
    /// Apache Kafka
    ApacheKafka,
    /// Apache Kafka, reached by SCRAM-SHA-512 over TLS
    SecuredKafka,
}

impl Before {
    /// Whether such brokers can run here.
    pub fn check(self) -> Result<()> {
        match self {
            Before::Highwater => Ok(()),
            Before::ApacheKafka | Before::SecuredKafka => apache_kafka::check(),
        }
    }
}

/// Running brokers.
pub struct Cluster {
    keeper: Keeper,
    /// `host:port,…`.
    pub bootstrap: String,
    /// A file of properties that lead in, if any are needed.
    properties: Option<PathBuf>,
}

enum Keeper {
    Highwater(Vec<Server>),
    ApacheKafka(Brokers),
    SecuredKafka(Protected),
}

impl Cluster {
    /// Starts them; what they keep goes into `folder`.
    pub fn start(before: Before, program: &Path, folder: &Path) -> Result<Cluster> {
        match before {
            Before::Highwater => {
                let servers = peer::highwater::start_cluster(program, folder, BROKERS, &SETTINGS)?;
                let addresses: Vec<String> = servers.iter().map(Server::bootstrap).collect();
                let keeper = Keeper::Highwater(servers);
                Ok(Cluster { keeper, bootstrap: addresses.join(","), properties: None })
            }
            Before::ApacheKafka => {
                let brokers = apache_kafka::start_sized(BROKERS, None, &SETTINGS, JAVA_RUNTIME)?;
                let bootstrap = brokers.bootstrap();
                Ok(Cluster { keeper: Keeper::ApacheKafka(brokers), bootstrap, properties: None })
            }
            Before::SecuredKafka => {
                let protected = Protected::start(folder, BROKERS, JAVA_RUNTIME)?;
                let way = protected.ways.iter().find(|way| way.name == SCRAM_512_TLS);
                let way = way.context("there is no way by SCRAM over TLS")?;
                let (bootstrap, properties) = (way.at.clone(), Some(way.properties.clone()));
                Ok(Cluster { keeper: Keeper::SecuredKafka(protected), bootstrap, properties })
            }
        }
    }

    /// What Highwater's commands are given to get in.
    pub fn access(&self) -> Vec<&str> {
        let bootstrap = ["--bootstrap-server", &self.bootstrap];
        bootstrap.into_iter().chain(self.config()).collect()
    }

    /// The part of it that is not the address.
    pub fn config(&self) -> impl Iterator<Item = &str> {
        let file = self.properties.as_deref().and_then(Path::to_str);
        file.into_iter().flat_map(|file| ["--command-config", file])
    }

    /// The words of a command that runs `kafka-consumer-groups` on these brokers; none in front of Highwater, where
    /// Apache Kafka need not be installed.
    pub fn kafkas_groups(&self) -> Result<Option<Vec<String>>> {
        if matches!(self.keeper, Keeper::Highwater(_)) {
            return Ok(None);
        }
        let tool = apache_kafka::brief_tool("kafka-consumer-groups", &self.access())?;
        let words = std::iter::once(tool.get_program()).chain(tool.get_args());
        Ok(Some(words.map(|word| word.to_string_lossy().into_owned()).collect()))
    }

    /// Stops them in an orderly way.
    pub fn stop(self) -> Result<()> {
        match self.keeper {
            Keeper::Highwater(servers) => servers.into_iter().try_for_each(Server::stop),
            Keeper::ApacheKafka(brokers) => brokers.stop(),
            Keeper::SecuredKafka(protected) => protected.stop(),
        }
    }
}
