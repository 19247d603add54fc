//! One round from nothing to numbers: topics made, a proxy put up where the cell wants one, the work done, all of it
//! taken down again.

use anyhow::{Context, Result, bail};
use experiment::round::Durability;
use experiment::workload::{Kind, Via, Workload};
use perf::load::Stop;
use proxy::{Proxy, ProxyConfig, Shape};

use super::ground::Ground;
use super::measured::Measured;
use super::{balance, consume, deliver, distribute, metadata, produce};
use crate::admin;
use crate::target::Cluster;

/// A round that is about to be performed.
pub struct Stage<'a> {
    /// Where.
    pub cluster: &'a Cluster,
    /// What; a share of saturation is resolved to a rate.
    pub workload: &'a Workload,
    /// What its topics are called.
    pub name: String,
    /// Decides everything random.
    pub seed: u64,
    /// Marks its records.
    pub number: u32,
    /// Whether to look for them.
    pub verify: bool,
    /// Whether its topics stay.
    pub keep_topics: bool,
    /// Ends it early.
    pub stop: Stop,
}

impl Stage<'_> {
    /// Performs the round; what an acknowledgement was worth comes with the numbers.
    pub fn perform(&self) -> Result<(Measured, Durability)> {
        let workload = self.workload;
        let brokers = self.cluster.brokers.max(1);
        let replication = workload.replication.min(brokers).max(1);
        let partitions = workload.partitions.max(1);
        let count = workload.topics.max(1);
        let topics: Vec<String> = match count {
            1 => vec![self.name.clone()],
            _ => (0..count).map(|number| format!("{}-{number}", self.name)).collect(),
        };
        let bootstrap = &self.cluster.bootstrap;
        admin::create_topics(bootstrap, &topics, workload, partitions, replication)?;
        let done = self.perform_on(&topics, partitions, replication);
        // Whatever became of the round: its topics would weigh on those that follow.
        if !self.keep_topics {
            admin::delete_topics(bootstrap, &topics);
        }
        done
    }

    /// Performs the round on topics that are there.
    fn perform_on(
        &self,
        topics: &[String],
        partitions: u32,
        replication: u32,
    ) -> Result<(Measured, Durability)> {
        let (workload, bootstrap) = (self.workload, &self.cluster.bootstrap);
        let durability = match workload.kind {
            // Nothing is acknowledged.
            Kind::Metadata => Durability::Unknown,
            _ => admin::durability(bootstrap, &topics[0], workload.acks(), replication),
        };
        let proxy = self.proxy()?;
        let ground = Ground {
            clients_at: proxy.as_ref().map_or_else(|| bootstrap.clone(), |proxy| proxy.bootstrap()),
            brokers_at: bootstrap.clone(),
            proxy: proxy.as_ref().map(|standing| &standing.proxy),
            pids: self.cluster.pids.clone(),
            data_folders: self.cluster.data_folders.clone(),
            workload,
            topics: topics.to_vec(),
            partitions,
            seed: self.seed,
            number: self.number,
            verify: self.verify,
            stop: self.stop.clone(),
        };
        let measured = match workload.kind {
            Kind::Produce => produce::run(&ground),
            Kind::Consume => consume::run(&ground),
            Kind::Deliver => deliver::run(&ground),
            Kind::Balance => balance::run(&ground),
            Kind::Distribute => distribute::run(&ground),
            Kind::Metadata => metadata::run(&ground),
            Kind::Failover => bail!("brokers are killed in sessions of several clients"),
        };
        Ok((measured?, durability))
    }

    fn proxy(&self) -> Result<Option<Standing>> {
        let workload = self.workload;
        let shape = match workload.emulate.as_str() {
            "" if workload.rtt_ms > 0.0 => Shape::rtt(workload.rtt_ms),
            "" if workload.via == Via::Proxy => Shape::default(),
            "" => return Ok(None),
            name => {
                proxy::emulation(name)
                    .with_context(|| format!("there is no emulation {name}"))?
                    .shape
            }
        };
        Standing::up(&self.cluster.bootstrap, shape, self.seed).map(Some)
    }
}

/// A proxy with the threads that it runs on.
struct Standing {
    proxy: Proxy,
    _runtime: tokio::runtime::Runtime,
}

impl Standing {
    fn up(upstream: &str, shape: Shape, seed: u64) -> Result<Standing> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let config = ProxyConfig { shape, seed, ..ProxyConfig::new(upstream) };
        let proxy = runtime.block_on(Proxy::start(config)).context("cannot put up the proxy")?;
        Ok(Standing { proxy, _runtime: runtime })
    }

    fn bootstrap(&self) -> String {
        self.proxy.bootstrap().to_owned()
    }
}
