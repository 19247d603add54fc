//! Readers of events by the ten thousand on three gateways: a tenth of them stop reading, a gateway is killed, and all of its readers
//! come again at once.
//!
//! Readers are in three processes of their own ([`readers`]), as a process has so many descriptors and no more. Each looks at every
//! number that comes ([`reader`]): none may be left out, and none may come twice. `news` is read by all and written to all
//! the time; `flood` by the tenth alone, and written to while they are stuck, until every buffer on the way to them is full.

mod reader;
mod readers;
mod writing;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use client::admin::NewTopic;
use client::{Admin, Cluster, ClusterConfig};
use peer::highwater::{self, Front};
use peer::procfs;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::requests::runtime;
use readers::{Crowd, Sight};
use writing::Writing;

pub use readers::serve as serve_readers;

/// How many gateways, and processes of readers.
const GATEWAYS: usize = 3;
/// What all read, and what the stuck ones read besides.
const TOPICS: [&str; 2] = ["news", "flood"];
/// Descriptors of a process that are not readers'.
const OTHER_DESCRIPTORS: u64 = 200;
/// How long readers may take to be there, or to have everything in the end.
const PATIENCE: Duration = Duration::from_secs(180);
/// How soon after a kill all of its readers must be served again.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// What to do.
#[derive(clap::Args)]
pub struct Arguments {
    /// The program
    #[arg(long)]
    binary: PathBuf,
    /// Readers in all
    #[arg(long, default_value_t = 50_000)]
    readers: usize,
    /// Records a second that all of them get
    #[arg(long, default_value_t = 1.0)]
    rate: f64,
    /// How long readers are watched before some stop reading, and while they do, in seconds each
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// How long the gateway that is killed is away, in seconds
    #[arg(long, default_value_t = 1.0)]
    away: f64,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.readers >= 10 * GATEWAYS, "invalid count: at least 30 readers");
    ensure!(arguments.rate > 0.0, "invalid rate: more than 0");
    check_descriptors(arguments.readers)?;
    let scratch = tempfile::tempdir()?;
    let broker = highwater::start(&arguments.binary, &scratch.path().join("data"), 0, &[])?;
    let bootstrap = broker.bootstrap();
    let runtime = runtime()?;
    let cluster = runtime.block_on(Cluster::connect(ClusterConfig::new(&bootstrap)))?;
    for topic in TOPICS {
        let topic = NewTopic::new(topic, 1, 1);
        runtime.block_on(Admin::new(cluster.clone()).create_topic(&topic))?;
    }
    let mut gateways = Gateways::start(&arguments.binary, &bootstrap)?;
    let fresh = gateways.memory()?;
    let mut crowd = Crowd::start(arguments.readers, &gateways.addresses())?;
    let writing = Writing::begin(runtime, cluster, arguments.rate)?;
    let mut trial = Trial { crowd: &mut crowd, gateways: &mut gateways, writing, fresh };
    trial.run(arguments)?;
    crowd.stop()?;
    gateways.stop()?;
    broker.stop()
}

/// A third of the readers, and while one gateway is away those of another one too, as far as there is room.
fn check_descriptors(readers: usize) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: Some(most), ..limit })?;
    let needed = (readers / GATEWAYS) as u64 * 11 / 10 + OTHER_DESCRIPTORS;
    ensure!(
        needed <= most,
        "{readers} readers need {needed} descriptors in each of {GATEWAYS} processes, and the limit is {most}: raise it \
         (ulimit -Hn), or take fewer readers (--readers)"
    );
    Ok(())
}

/// The gateways.
struct Gateways {
    binary: PathBuf,
    bootstrap: String,
    /// `None`: it was killed.
    running: Vec<Option<Front>>,
    addresses: Vec<String>,
}

impl Gateways {
    fn start(binary: &Path, bootstrap: &str) -> Result<Gateways> {
        let mut gateways = Gateways {
            binary: binary.to_owned(),
            bootstrap: bootstrap.to_owned(),
            running: Vec::new(),
            addresses: Vec::new(),
        };
        for _ in 0..GATEWAYS {
            let gateway = Front::gateway(binary, bootstrap, &[])?;
            gateways.addresses.push(gateway.address().to_owned());
            gateways.running.push(Some(gateway));
        }
        Ok(gateways)
    }

    fn addresses(&self) -> Vec<String> {
        self.addresses.clone()
    }

    /// Resident memory of each that runs, and the kernel's, MiB.
    fn memory(&self) -> Result<Memory> {
        let of = |gateway: &Front| procfs::resident_mib(gateway.pid());
        let each: Result<Vec<f64>> = self.running.iter().flatten().map(of).collect();
        Ok(Memory { gateways_mib: each?, kernel_mib: procfs::kernel_mib()? })
    }

    /// Kills one, without a word.
    fn kill(&mut self, at: usize) {
        drop(self.running[at].take());
    }

    /// Starts one that was killed where it was.
    fn again(&mut self, at: usize) -> Result<()> {
        let listener = &self.addresses[at];
        let front = Front::gateway_at(&self.binary, &self.bootstrap, listener, &[])?;
        self.running[at] = Some(front);
        Ok(())
    }

    fn stop(self) -> Result<()> {
        self.running.into_iter().flatten().try_for_each(Front::stop)
    }
}

/// What gateways take, and the kernel for the sockets of both sides, and for all else.
#[derive(Debug, Clone)]
struct Memory {
    gateways_mib: Vec<f64>,
    kernel_mib: f64,
}

impl Memory {
    /// Of the kernel's only what came since `fresh`: most of it is not for sockets.
    fn since(&self, fresh: &Memory) -> Memory {
        let kernel_mib = self.kernel_mib - fresh.kernel_mib;
        Memory { gateways_mib: self.gateways_mib.clone(), kernel_mib }
    }
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let each: Vec<String> = self.gateways_mib.iter().map(|mib| format!("{mib:.0}")).collect();
        write!(f, "gateways {} MiB, kernel {:+.0} MiB", each.join(" + "), self.kernel_mib)
    }
}

struct Trial<'a> {
    crowd: &'a mut Crowd,
    gateways: &'a mut Gateways,
    writing: Writing,
    fresh: Memory,
}

impl Trial<'_> {
    fn run(&mut self, arguments: &Arguments) -> Result<()> {
        let phase = Duration::from_secs_f64(arguments.seconds);
        let began = Instant::now();
        self.wait("all are there", PATIENCE, |sight| sight.open == arguments.readers)?;
        // Everybody has had a record, or none that is left out would be noticed.
        let first = self.writing.written()[0] + 1;
        let sight = self.wait("all are served", PATIENCE, |sight| sight.news_min > first)?;
        println!(
            "herd: {} readers on {GATEWAYS} gateways after {:.1?}; {}; before any came: {}",
            sight.open,
            began.elapsed(),
            self.memory()?,
            self.fresh.since(&self.fresh),
        );
        let calm = self.watch(phase)?;
        println!("herd: all read: {calm}; {}", self.memory()?);
        self.crowd.tell("stuck")?;
        self.writing.flood();
        let stuck = self.watch(phase)?;
        println!("herd: a tenth is stuck: {stuck}; {}", self.memory()?);

        let (killed_at, last) = (Instant::now(), self.writing.written()[0]);
        self.gateways.kill(0);
        thread::sleep(Duration::from_secs_f64(arguments.away));
        self.gateways.again(0)?;
        let sight =
            self.wait("all are served again", PATIENCE, |sight| sight.news_min > last + 1)?;
        let served = killed_at.elapsed();
        println!(
            "herd: a gateway killed, and there again after {:.1} s: the last of its readers served after {served:.1?}; {sight}; {}",
            arguments.away,
            self.memory()?,
        );
        self.crowd.tell("go on")?;
        self.finish()?;
        ensure!(
            served <= SERVED_WITHIN,
            "the last reader was served after {served:.1?} instead of {SERVED_WITHIN:?}"
        );
        Ok(())
    }

    /// Everybody has all of it, once.
    fn finish(&mut self) -> Result<()> {
        let [news, flood] = self.writing.finish()?;
        let sight = self.wait("all have everything", PATIENCE, |sight| {
            sight.news_min == news && sight.flood_min == flood
        })?;
        println!("herd: {news} records to all, {flood} to a tenth: {sight}");
        ensure!(sight.gaps == 0, "{} readers missed something: {}", sight.gaps, sight.words);
        ensure!(
            sight.said_gaps == 0,
            "{} gaps were told, and nothing was removed",
            sight.said_gaps
        );
        ensure!(sight.repeats == 0, "{} records came twice: {}", sight.repeats, sight.words);
        Ok(())
    }

    fn memory(&self) -> Result<Memory> {
        Ok(self.gateways.memory()?.since(&self.fresh))
    }

    /// Waits until readers are as they are to be.
    fn wait(&mut self, what: &str, within: Duration, is: impl Fn(&Sight) -> bool) -> Result<Sight> {
        let deadline = Instant::now() + within;
        loop {
            let sight = self.crowd.look()?;
            if is(&sight) {
                return Ok(sight);
            }
            ensure!(Instant::now() < deadline, "{what}: not within {within:?}: {sight}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// How soon records come to those who read.
    fn watch(&mut self, phase: Duration) -> Result<Sight> {
        self.crowd.look()?;
        thread::sleep(phase);
        self.crowd.look()
    }
}
