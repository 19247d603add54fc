//! One broker loses power under load, with both durabilities.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use client::admin::NewTopic;
use client::{Admin, Cluster, ClusterConfig};
use peer::highwater::{self, Server};
use peer::process;
use perf::load::{self, ProduceLoad, ProduceReport, Sizes, Stop};
use perf::stamp::Verdict;

use super::Arguments;
use crate::requests::{self, PATIENCE, runtime};
use crate::volume::{self, Volume};

/// The topics and how many partitions each has.
const TOPICS: [(&str, i32); 2] = [("one", 1), ("many", 9)];
/// How long reading back waits for a record.
const IDLE: Duration = Duration::from_secs(3);

/// What came of all power failures with one durability.
#[derive(Debug, Default)]
struct Toll {
    acknowledged: u64,
    lost: u64,
    damaged: u64,
    twice: u64,
}

/// Fails the power, with both durabilities.
pub fn run(arguments: &Arguments) -> Result<()> {
    let synced = fail_power(arguments, "fsync")?;
    let cached = fail_power(arguments, "page-cache")?;
    ensure!(synced.acknowledged > 0, "nothing was acknowledged");
    ensure!(synced.lost + synced.damaged == 0, "durability=fsync lost acknowledged records");
    ensure!(cached.lost > 0, "durability=page-cache lost nothing: the trial does not bite");
    ensure!(synced.twice == 0, "idempotent producers' records are there twice");
    Ok(())
}

fn fail_power(arguments: &Arguments, durability: &str) -> Result<Toll> {
    let mut random = fastrand::Rng::with_seed(arguments.seed);
    let mut toll = Toll::default();
    for round in 1..=arguments.rounds {
        let after = Duration::from_millis(random.u64(500..4_000));
        let (report, verdict) = one_failure(&arguments.binary, durability, round as u32, after)
            .with_context(|| format!("durability={durability}, round {round}"))?;
        println!(
            "powerloss: durability={durability} round {round}: power failed after {after:?}, {} acknowledged, {} lost, {} damaged, {} twice",
            report.acknowledged, verdict.lost, verdict.damaged, verdict.duplicated
        );
        toll.acknowledged += report.acknowledged;
        toll.lost += verdict.lost;
        toll.damaged += verdict.damaged;
        toll.twice += verdict.duplicated;
    }
    println!("powerloss: durability={durability}: {toll:?}");
    Ok(toll)
}

fn one_failure(
    binary: &Path,
    durability: &str,
    run: u32,
    after: Duration,
) -> Result<(ProduceReport, Verdict)> {
    let volume = Volume::make()?;
    let server = start(binary, &volume, durability)?;
    create_topics(&server.bootstrap())?;
    let stop = Stop::default();
    let load = load_of(&server.bootstrap(), run);
    let loading = thread::spawn({
        let stop = stop.clone();
        move || load::produce(&load, &stop)
    });
    let is_over = || loading.is_finished();
    runtime()?.block_on(load_begins(&server.bootstrap(), is_over))?;
    let began = Instant::now();
    thread::sleep(after);
    process::pause_processes(&[server.pid()])?;
    volume::fail_power(&[&volume])?;
    server.kill()?;
    stop.stop();
    let report = loading.join().map_err(|_| anyhow::anyhow!("the load panicked"))?;
    let report = report.with_context(|| format!("the load failed within {:?}", began.elapsed()))?;
    volume.mount_again()?;
    let server = start(binary, &volume, durability)?;
    let verdict = load::verify(&server.bootstrap(), &report.acknowledgements, IDLE)?;
    server.stop()?;
    Ok((report, verdict))
}

fn start(binary: &Path, volume: &Volume, durability: &str) -> Result<Server> {
    let settings = [("durability", durability)];
    highwater::start(binary, &volume.path().join("data"), 0, &settings)
}

fn create_topics(bootstrap: &str) -> Result<()> {
    runtime()?.block_on(async {
        let admin = Admin::new(Cluster::connect(ClusterConfig::new(bootstrap)).await?);
        let small = ("internal.segment.bytes".to_owned(), "1000000".to_owned());
        let topics: Vec<NewTopic> = TOPICS
            .iter()
            .map(|(name, partitions)| NewTopic {
                configs: vec![small.clone()],
                ..NewTopic::new(name, *partitions, 1)
            })
            .collect();
        for made in admin.create_topics(&topics, false).await? {
            made.1?;
        }
        Ok(())
    })
}

/// Waits until the first record is there for consumers, or the load is over.
async fn load_begins(bootstrap: &str, is_over: impl Fn() -> bool) -> Result<()> {
    let (connection, deadline) = (requests::connect(bootstrap).await?, Instant::now() + PATIENCE);
    let (topic, partition) = (TOPICS[0].0, 0);
    while !is_over() {
        let end = requests::list_offset(&connection, topic, partition, -1).await?;
        if end.is_ok_and(|end| end > 0) {
            break;
        }
        ensure!(Instant::now() < deadline, "nothing is written within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn load_of(bootstrap: &str, run: u32) -> ProduceLoad {
    let mut load = ProduceLoad {
        topics: TOPICS.iter().map(|(name, _)| (*name).to_owned()).collect(),
        producers: 2,
        sizes: Sizes::Mix(vec![(0.9, 120), (0.1, 3_000)]),
        time: Duration::from_secs(30),
        stamp: Some(run),
        ..ProduceLoad::new(bootstrap, TOPICS[0].0)
    };
    // The broker answers no more once the power has failed.
    load.producer.request_timeout = Duration::from_secs(1);
    load.producer.delivery_timeout = Duration::from_secs(2);
    load.producer.block_max = Duration::from_secs(1);
    load.producer.buffer_bytes = 1 << 20;
    load
}
