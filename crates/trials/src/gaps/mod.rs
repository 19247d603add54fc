//! The longest time without an acknowledgement while one of three brokers is sick: its disk hangs or is full, its process
//! is paused, or it is cut off from the others. Defaults everywhere; a topic with a replica on each broker.
//!
//! Each partition has a writer of its own that sends one record at a time with `acks=all` to the present leader, so that a
//! gap is the cluster's and not a client's. A request in flight at a leader that does not answer ends after a second.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use peer::host::Host;

use crate::ledger::Line;
use crate::volume::{self, Volume};
use crate::{replicas, requests};

mod fault;
mod network;
mod subject;
mod table;
mod writers;

use fault::{Fault, Sickness, Victim};
use network::Network;
use subject::{Places, Product, Subject};
use table::{Row, Table};
use writers::{Gap, NewRecords, Writers};

const BROKERS: usize = 3;
/// The topic, and its partitions: each broker leads some.
const TOPIC: (&str, i32) = ("gaps", 6);
/// Load before the fault, and how long the cluster may take to be in sync.
const BEFORE: Duration = Duration::from_secs(3);
const IN_SYNC: Duration = Duration::from_secs(60);

/// Options of the trial.
#[derive(clap::Args)]
pub struct Arguments {
    /// The program
    #[arg(long)]
    binary: PathBuf,
    /// Faults to measure; all without it
    #[arg(long, value_enum)]
    fault: Vec<Fault>,
    /// Runs of each fault
    #[arg(long, alias = "runs", default_value_t = 1)]
    rounds: usize,
    /// Measure this product by the same script beside the program
    #[arg(long, value_enum)]
    vs: Option<Product>,
    /// Runs of each fault of the product of --vs; as many as of the program without it
    #[arg(long)]
    vs_rounds: Option<usize>,
    /// Seconds that each fault lasts
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Fail if a gap of the program is longer than the bound of its row. A single run above a bound is measured twice more, and the
    /// middle gaps count: other load of the machine delays one run, a fault of the program delays all
    #[arg(long)]
    bounded: bool,
}

/// Longest gaps of one run.
#[derive(Clone, Copy, Debug)]
struct Gaps {
    /// Partitions that the sick broker led, by writers with a request in flight when the fault began.
    led: Gap,
    /// The same partitions, records sent after the metadata named another leader.
    led_next: Gap,
    /// All other partitions.
    others: Gap,
}

impl Gaps {
    /// The middle gap of each kind.
    fn middle(runs: [Gaps; 3]) -> Gaps {
        let middle = |kind: fn(&Gaps) -> Gap| {
            let mut gaps = runs.each_ref().map(kind);
            gaps.sort_unstable();
            gaps[1]
        };
        Gaps {
            led: middle(|gaps| gaps.led),
            led_next: middle(|gaps| gaps.led_next),
            others: middle(|gaps| gaps.others),
        }
    }

    /// The figure of a row.
    fn of(self, row: Row) -> Gap {
        match row {
            Row::FollowerPaused => self.others,
            Row::LeaderPaused => self.led_next,
            _ => self.led.max(self.others),
        }
    }
}

/// Measures each fault and prints the table.
pub fn run(arguments: &Arguments) -> Result<()> {
    let faults = if arguments.fault.is_empty() { &Fault::ALL[..] } else { &arguments.fault };
    let mut products = vec![(Product::Highwater, arguments.rounds)];
    if let Some(product) = arguments.vs {
        products.push((product, arguments.vs_rounds.unwrap_or(arguments.rounds)));
    }
    let mut table = Table::default();
    for fault in faults {
        if let Some(lacking) = lacking(*fault) {
            println!("gaps: {fault:?}: not measured; this needs {lacking}");
            continue;
        }
        for (product, rounds) in &products {
            for round in 1..=*rounds {
                let name = product.name();
                let gaps = measure_in_round(arguments, *product, *fault)
                    .with_context(|| format!("{fault:?}, {name}, round {round}"))?;
                for row in Row::of(*fault) {
                    table.add(*row, *product, gaps.of(*row), gaps.led);
                }
            }
        }
    }
    println!("\n{table}");
    let late = table.late();
    ensure!(!arguments.bounded || late.is_empty(), "{}", late.join("; "));
    Ok(())
}

/// The gaps of one round: of one run, or the middle ones of three if a single run is bounded and late.
fn measure_in_round(arguments: &Arguments, product: Product, fault: Fault) -> Result<Gaps> {
    let measure_once = || -> Result<Gaps> {
        let gaps = measure(arguments, product, fault)?;
        println!(
            "gaps: {fault:?}, {}: {} where the sick broker led, {} there for records sent to the next leader, {} elsewhere",
            product.name(),
            gaps.led,
            gaps.led_next,
            gaps.others
        );
        Ok(gaps)
    };
    let first = measure_once()?;
    let is_single = arguments.bounded && arguments.rounds == 1 && product == Product::Highwater;
    let is_late = Row::of(fault).iter().any(|row| row.is_late(first.of(*row)));
    match is_single && is_late {
        true => Ok(Gaps::middle([first, measure_once()?, measure_once()?])),
        false => Ok(first),
    }
}

/// Reason why this machine cannot make a fault.
fn lacking(fault: Fault) -> Option<&'static str> {
    let of_volumes = volume::lacking().filter(|_| fault.needs_volumes());
    of_volumes.or_else(|| network::lacking().filter(|_| fault.needs_network()))
}

fn measure(arguments: &Arguments, product: Product, fault: Fault) -> Result<Gaps> {
    let scratch = tempfile::tempdir()?;
    let volumes: Vec<Volume> = match fault.needs_volumes() {
        true => (0..BROKERS).map(|_| Volume::make()).collect::<Result<_>>()?,
        false => Vec::new(),
    };
    let network = fault.needs_network().then(|| Network::make(BROKERS)).transpose()?;
    let places = places(fault, scratch.path(), &volumes, network.as_ref());
    let mut subject = Subject::start(product, &arguments.binary, &places)?;
    let lines = replicas::create_topics(&subject.bootstrap(), &[TOPIC], BROKERS, &[])?;
    subject.wait_until_in_sync(BROKERS, &lines, IN_SYNC)?;
    let controller = controller(&subject.address(0))?;
    let sick = match fault {
        Fault::ControllerDisk => controller,
        _ => (controller + 1) % BROKERS,
    };
    let led = led_by(&subject.address(0), &lines, sick)?;
    let others: Vec<String> =
        (0..BROKERS).filter(|at| *at != sick).map(|at| subject.address(at)).collect();
    let writers = Writers::begin(others.clone(), &lines)?;
    thread::sleep(BEFORE);
    let victim = Victim {
        pid: subject.pid(sick)?,
        volume: volumes.get(sick).map(Volume::path),
        cable: network.as_ref().map(|network| network.cable(sick)),
    };
    let lasting = Duration::from_secs(arguments.seconds);
    let began = Instant::now();
    let sickness = Sickness::begin(fault, &victim)?;
    let next = NewRecords::begin(others, subject.address(sick), &led, lasting)?;
    thread::sleep(lasting.saturating_sub(began.elapsed()));
    let times = writers.stop(began);
    let led_next = next.longest()?;
    sickness.end()?;
    // Apache Kafka ends when its last log directory fails.
    if let (Product::Highwater, Some(words)) = (product, subject.ended()) {
        bail!("{words}");
    }
    let longest = |is_led: bool| {
        let of_kind = times.iter().filter(|(line, _)| led.contains(line) == is_led);
        of_kind.map(|(_, gap)| *gap).max().unwrap_or_default()
    };
    Ok(Gaps { led: longest(true), led_next, others: longest(false) })
}

fn places(fault: Fault, scratch: &Path, volumes: &[Volume], network: Option<&Network>) -> Places {
    let folder = |at: usize| match volumes.get(at) {
        Some(volume) => volume.path().to_owned(),
        None => scratch.join(format!("broker-{at}")),
    };
    let metadata = match fault {
        Fault::DataDisk => (0..BROKERS).map(|at| scratch.join(format!("metadata-{at}"))).collect(),
        _ => Vec::new(),
    };
    let hosts = match network {
        Some(network) => network.hosts().to_vec(),
        None => vec![Host::local(); BROKERS],
    };
    Places { folders: (0..BROKERS).map(folder).collect(), metadata, hosts }
}

/// The active controller, counted from 0.
fn controller(address: &str) -> Result<usize> {
    requests::runtime()?.block_on(async {
        let connection = requests::connect(address).await?;
        let request = wire::DescribeQuorumRequest {
            topics: vec![wire::describe_quorum::RequestTopicData {
                topic_name: "__cluster_metadata".to_owned(),
                partitions: vec![wire::describe_quorum::RequestPartitionData::default()],
            }],
        };
        let quorum = connection.call(&request).await?;
        let mut partitions = quorum.topics.iter().flat_map(|topic| &topic.partitions);
        let leader = partitions.next().context("DescribeQuorum names no partition")?.leader_id;
        usize::try_from(leader - 1).context("the quorum has no leader")
    })
}

fn led_by(address: &str, lines: &[Line], broker: usize) -> Result<Vec<Line>> {
    let leaders = requests::runtime()?.block_on(leaders(address))?;
    let is_led =
        |line: &&Line| leaders.iter().any(|(of, id)| of == *line && *id == broker as i32 + 1);
    let led: Vec<Line> = lines.iter().filter(is_led).cloned().collect();
    ensure!(!led.is_empty(), "broker {} leads nothing", broker + 1);
    Ok(led)
}

async fn leaders(address: &str) -> Result<Vec<(Line, i32)>> {
    let connection = requests::connect(address).await?;
    let metadata = requests::metadata(&connection).await?;
    let of_topic = metadata.topics.iter().flat_map(|topic| {
        let name = topic.name.clone().unwrap_or_default();
        topic.partitions.iter().map(move |it| ((name.clone(), it.partition_index), it.leader_id))
    });
    Ok(of_topic.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_late_run_of_three_is_not_late_and_two_are() {
        let gaps = |seconds| {
            let gap = Gap { length: Duration::from_secs(seconds), is_open: false };
            Gaps { led: gap, led_next: gap, others: gap }
        };
        let is_late = |runs: [u64; 3]| {
            let middle = Gaps::middle(runs.map(gaps));
            Row::DataDisk.is_late(middle.of(Row::DataDisk))
        };
        assert!(!is_late([9, 1, 3]));
        assert!(is_late([9, 1, 4]));
    }
}
