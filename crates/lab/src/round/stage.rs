//! One round from nothing to numbers: topics made, a proxy or a gateway put up where the cell wants one, the work done, all
//! of it taken down again.

use anyhow::{Context, Result, bail};
use experiment::round::Durability;
use experiment::workload::{Acks, Console, Delivery, Kind, Via, Workload};
use peer::highwater::Front;
use perf::load::Stop;
use proxy::{Proxy, ProxyConfig, Shape};

use super::ground::Ground;
use super::measured::Measured;
use super::{balance, console, consume, deliver, distribute, metadata, post, produce};
use crate::admin;
use crate::meter::{self, Between};
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
        let partitions = workload.partitions_on(brokers);
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
            // A gateway waits for all in-sync replicas, whatever is asked for.
            _ if workload.via == Via::Gateway => {
                admin::durability(bootstrap, &topics[0], Acks::All, replication)
            }
            _ => admin::durability(bootstrap, &topics[0], workload.acks(), replication),
        };
        let proxy = self.proxy()?;
        let front = self.front()?;
        let clients_at = match (&proxy, &front) {
            (Some(proxy), _) => proxy.bootstrap(),
            (None, Some((meter::PROXY, front))) => front.address().to_owned(),
            (None, _) => bootstrap.clone(),
        };
        let gateway = front.as_ref().filter(|(name, _)| *name == meter::GATEWAY);
        let ground = Ground {
            clients_at,
            brokers_at: bootstrap.clone(),
            proxy: proxy.as_ref().map(|standing| &standing.proxy),
            gateway: gateway.map(|(_, front)| front.address().to_owned()),
            between: front.as_ref().map(|(name, front)| Between { name, pid: front.pid() }),
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
        let measured = match workload.console {
            Console::Off => perform_kind(&ground),
            Console::Collecting | Console::PageOpen => {
                console::beside(&ground, || perform_kind(&ground))
            }
        };
        let measured = match &front {
            Some((name, front)) => measured
                .with_context(|| format!("the last words of the {name}: {}", front.last_words())),
            None => measured,
        };
        Ok((measured?, durability))
    }

    /// What stands in front of the brokers as a process of its own: what a round of before was in front of would still
    /// hold its topics.
    fn front(&self) -> Result<Option<(&'static str, Front)>> {
        let (workload, cluster) = (self.workload, self.cluster);
        let (program, bootstrap) = (&cluster.front, &cluster.bootstrap);
        let over_http = workload.via == Via::Gateway || workload.delivery != Delivery::Pull;
        if over_http || workload.console != Console::Off {
            let front =
                Front::gateway(program, bootstrap, &[]).context("cannot put up a gateway")?;
            return Ok(Some((meter::GATEWAY, front)));
        }
        if workload.via == Via::Proxy && self.shape()?.is_none() {
            let front = Front::proxy(program, bootstrap).context("cannot put up a proxy")?;
            return Ok(Some((meter::PROXY, front)));
        }
        Ok(None)
    }

    /// The proxy in this process, for cells that want a network of another kind: the program's own has none.
    fn proxy(&self) -> Result<Option<Standing>> {
        let Some(shape) = self.shape()? else { return Ok(None) };
        Standing::up(&self.cluster.bootstrap, shape, self.seed).map(Some)
    }

    fn shape(&self) -> Result<Option<Shape>> {
        let workload = self.workload;
        Ok(Some(match workload.emulate.as_str() {
            "" if workload.rtt_ms > 0.0 => Shape::rtt(workload.rtt_ms),
            // Answers are compared with the ports that it has.
            "" if workload.via == Via::Proxy && workload.kind == Kind::Metadata => Shape::default(),
            "" => return Ok(None),
            name => {
                proxy::emulation(name)
                    .with_context(|| format!("there is no emulation {name}"))?
                    .shape
            }
        }))
    }
}

fn perform_kind(ground: &Ground<'_>) -> Result<Measured> {
    match (ground.workload.kind, ground.workload.via) {
        (Kind::Produce, Via::Gateway) => post::produce(ground),
        (Kind::Balance, Via::Gateway) => post::balance(ground),
        (Kind::Distribute, Via::Gateway) => post::distribute(ground),
        (_, Via::Gateway) => bail!("nothing but producing goes through a gateway as `via`"),
        (Kind::Produce, _) => produce::run(ground),
        (Kind::Consume, _) => consume::run(ground),
        (Kind::Deliver, _) => deliver::run(ground),
        (Kind::Balance, _) => balance::run(ground),
        (Kind::Distribute, _) => distribute::run(ground),
        (Kind::Metadata, _) => metadata::run(ground),
        (Kind::Failover, _) => bail!("brokers are killed in sessions of several clients"),
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
        // Its clients are the laboratory's own, and a delay keeps their rate times its length.
        let memory_bytes_max = usize::MAX / 2;
        let config = ProxyConfig { shape, seed, memory_bytes_max, ..ProxyConfig::new(upstream) };
        let proxy = runtime.block_on(Proxy::start(config)).context("cannot put up the proxy")?;
        Ok(Standing { proxy, _runtime: runtime })
    }

    fn bootstrap(&self) -> String {
        self.proxy.bootstrap().to_owned()
    }
}
