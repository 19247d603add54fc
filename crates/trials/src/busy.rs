//! Full load for as long as wanted: producers and consumers of three brokers take all that the machine has, round after
//! round, and every round's records are found once and in order. No broker dies and no disk hangs, so that every fencing, every
//! suspicion of a silent broker and every leadership that moves for a disk is false: failovers made of load.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use client::admin::Admin;
use client::{Cluster, ClusterConfig};
use peer::highwater;
use perf::load::{self, ConsumeLoad, ProduceLoad, Sizes, Stop};

use crate::replicas;
use crate::requests::{PATIENCE, runtime};

/// How many brokers, with a replica of everything on each.
const BROKERS: usize = 3;
/// Partitions of a round's topic, its producers, and its consumers, who are a group.
const PARTITIONS: u16 = 6;
/// Lengths of the values, in bytes.
const VALUE_BYTES: usize = 128;
/// Bytes of a batch at most: what makes the brokers, and not the requests, the work.
const BATCH_BYTES: usize = 1_000_000;
/// The topic of a round is deleted behind it, and the room must be there for the next one.
const SETTINGS: [(&str, &str); 2] =
    [("log.segment.delete.delay.ms", "0"), ("group.initial.rebalance.delay.ms", "0")];
/// What the brokers count of failures, none of which may have been.
const FAULTS: [&str; 2] = ["highwater_brokers_fenced_total", "highwater_fenced_alive_total"];
/// Brokers that were suspected to be silent, and leaderships that moved for disks: none was sick.
const SUSPICIONS: [(&str, &str); 2] = [
    ("false suspicions", "highwater_brokers_suspected_total"),
    ("leaderships moved for disks", "highwater_leaderships_moved_for_disks_total"),
];
/// False suspicions in an hour beside processes that keep the machine busy.
const SUSPICIONS_BESIDE_OTHERS: f64 = 2.0;
/// What they count that tells how near it was.
const SIGNS: [&str; 2] = ["highwater_isr_shrinks_total", "highwater_leader_elections_total"];

/// What to do.
#[derive(clap::Args)]
pub struct Arguments {
    /// The program
    #[arg(long)]
    binary: PathBuf,
    /// For how long, in minutes
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// How long a round is, in seconds; a round's records must fit on the disk three times
    #[arg(long, default_value_t = 10.0)]
    round: f64,
    /// Where the data folders go; the system's folder for temporary files if not given
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Other processes that compute all the time, for example one for each core
    #[arg(long, default_value_t = 0)]
    others: u32,
}

/// A process that computes until it is dropped.
struct BusyProcess(Child);

impl BusyProcess {
    fn start() -> Result<BusyProcess> {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        Ok(BusyProcess(command.spawn().context("cannot start sh")?))
    }
}

impl Drop for BusyProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a round came to.
#[derive(Default)]
struct Sum {
    rounds: u32,
    records: u64,
    producing: Duration,
}

/// Loads the brokers.
pub fn run(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.round > 0.0, "invalid round of {} s: more than 0", arguments.round);
    let scratch = match &arguments.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let folders: Vec<PathBuf> =
        (1..=BROKERS).map(|id| scratch.path().join(format!("broker-{id}"))).collect();
    let mut cluster = highwater::Cluster::new(&arguments.binary, &folders, &SETTINGS)?;
    let mut pages = Vec::new();
    for index in 0..BROKERS {
        let page = format!("127.0.0.1:{}", highwater::free_port()?);
        cluster.set(index, "http.listener", &page);
        pages.push(page);
    }
    cluster.start_all()?;
    let others: Vec<BusyProcess> =
        (0..arguments.others).map(|_| BusyProcess::start()).collect::<Result<_>>()?;
    let (began, mut sum) = (Instant::now(), Sum::default());
    let lasting = Duration::from_secs_f64(arguments.minutes * 60.0);
    let mut said = Instant::now();
    while sum.rounds == 0 || began.elapsed() < lasting {
        round(&cluster.bootstrap(), arguments.round, &mut sum)?;
        if let Some(words) = cluster.ended() {
            anyhow::bail!("{words}");
        }
        let counts = counts(&pages)?;
        let faults: f64 = FAULTS.iter().map(|name| total(&counts, name)).sum();
        ensure!(faults == 0.0, "a broker was fenced that lives: {}", words(&counts));
        if said.elapsed() >= Duration::from_secs(60) {
            said = Instant::now();
            println!("busy: {:.0} s, {sum}", began.elapsed().as_secs_f64());
        }
    }
    let (counts, seconds) = (counts(&pages)?, began.elapsed().as_secs_f64());
    println!("busy: {seconds:.0} s, {sum}: {}", words(&counts));
    println!("busy: {}", suspicions(&counts, seconds, others.len()));
    let suspected = total(&counts, SUSPICIONS[0].1);
    let allowed = match others.is_empty() {
        true => 0.0,
        false => (SUSPICIONS_BESIDE_OTHERS * seconds / 3600.0).ceil(),
    };
    ensure!(suspected <= allowed, "{suspected} false suspicions: at most {allowed}");
    cluster.stop()
}

/// The row of false suspicions.
fn suspicions(counts: &BTreeMap<String, f64>, seconds: f64, others: usize) -> String {
    let rows = SUSPICIONS.map(|(name, metric)| format!("{name} {}", total(counts, metric)));
    format!("{} in {seconds:.0} s beside {others} busy processes", rows.join(", "))
}

/// One topic, written and read at once, and deleted.
fn round(bootstrap: &str, seconds: f64, sum: &mut Sum) -> Result<()> {
    let topic = format!("busy-{}", sum.rounds);
    replicas::create_topics(bootstrap, &[(&topic, i32::from(PARTITIONS))], BROKERS, &[])?;
    let mut produce = ProduceLoad {
        producers: PARTITIONS.into(),
        sizes: Sizes::Fixed(VALUE_BYTES),
        time: Duration::from_secs_f64(seconds),
        stamp: Some(sum.rounds),
        ..ProduceLoad::new(bootstrap, &topic)
    };
    produce.producer.batch_bytes = BATCH_BYTES;
    let consume = ConsumeLoad {
        consumers: PARTITIONS.into(),
        group: Some(topic.clone()),
        idle: Duration::from_secs(10),
        stamp: Some(sum.rounds),
        ..ConsumeLoad::new(bootstrap, &topic)
    };
    let (produced, consumed) = load::both(&produce, &consume, &Stop::default())?;
    ensure!(produced.failed == 0, "{} records failed: {:?}", produced.failed, produced.errors);
    let verdict = consumed.findings.verdict(&produced.acknowledgements);
    ensure!(verdict.is_clean(), "records are not as they were acknowledged: {verdict:?}");
    runtime()?.block_on(async {
        let admin = Admin::new(Cluster::connect(ClusterConfig::new(bootstrap)).await?);
        admin.delete_topics(&[&topic]).await
    })?;
    sum.rounds += 1;
    sum.records += produced.acknowledged;
    sum.producing += produced.elapsed;
    Ok(())
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rate = self.records as f64 / self.producing.as_secs_f64().max(f64::MIN_POSITIVE);
        let (rounds, records) = (self.rounds, self.records);
        write!(f, "{rounds} rounds, {records} records read once and in order, {rate:.0}/s")
    }
}

/// What all brokers count, by name and labels.
fn counts(pages: &[String]) -> Result<BTreeMap<String, f64>> {
    let mut counts = BTreeMap::new();
    for page in pages {
        let text = metrics(page).with_context(|| format!("no metrics at {page}"))?;
        for name in [FAULTS[1], SUSPICIONS[0].1, SUSPICIONS[1].1] {
            ensure!(text.contains(name), "{page} shows no {name}");
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((row, value)) = line.rsplit_once(' ') else { continue };
            let mut names = FAULTS.iter().chain(&SIGNS).chain(SUSPICIONS.iter().map(|(_, it)| it));
            if names.any(|name| row.starts_with(name)) {
                *counts.entry(row.to_owned()).or_default() += value.parse::<f64>()?;
            }
        }
    }
    Ok(counts)
}

/// A page of metrics as text.
fn metrics(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = "GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// All rows of a name together.
fn total(counts: &BTreeMap<String, f64>, name: &str) -> f64 {
    counts.iter().filter(|(row, _)| row.starts_with(name)).map(|(_, value)| value).sum()
}

fn words(counts: &BTreeMap<String, f64>) -> String {
    let rows = counts
        .iter()
        .filter(|(row, value)| **value != 0.0 || FAULTS.iter().any(|name| row.starts_with(name)));
    rows.map(|(row, value)| format!("{row} {value}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn false_suspicions_have_a_row_of_their_own() {
        let rows = [(SUSPICIONS[0].1, 1.0), (SUSPICIONS[1].1, 0.0), (FAULTS[1], 0.0)];
        let counts = rows.map(|(row, value)| (row.to_owned(), value)).into();
        let expected =
            "false suspicions 1, leaderships moved for disks 0 in 60 s beside 2 busy processes";
        assert_eq!(suspicions(&counts, 60.0, 2), expected);
    }
}
