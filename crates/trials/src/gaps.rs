//! The longest time without an acknowledgement while one of three brokers is sick: its disk hangs or is full, or its process
//! stands still. Defaults everywhere; a topic with a replica on each broker.
//!
//! Each partition has a writer of its own that sends one record at a time with `acks=all` to the present leader, so that a
//! gap is the cluster's and no client's. Requests in flight at a leader that stands still end after a second.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use client::{Connection, ConnectionConfig};
use model::record::BatchBuilder;
use model::{ErrorCode, Timestamp};
use peer::highwater::Cluster;
use rustix::process::{Pid, Signal, kill_process};
use wire::ProduceRequest;
use wire::produce::{PartitionProduceData, TopicProduceData};

use crate::ledger::Line;
use crate::volume::{self, Volume};
use crate::{replicas, requests};

const BROKERS: usize = 3;
/// The topic, and its partitions: each broker leads some.
const TOPIC: (&str, i32) = ("gaps", 6);
/// Last version of Produce that names topics.
const PRODUCE_VERSION: i16 = 12;
/// Longest time of one request of a writer.
const REQUEST: Duration = Duration::from_secs(1);
/// Pause of a writer behind each acknowledgement, and behind each failure.
const PAUSE: Duration = Duration::from_millis(20);
/// Load before the fault, and how long the cluster may take to be in sync.
const BEFORE: Duration = Duration::from_secs(3);
const IN_SYNC: Duration = Duration::from_secs(60);

/// What to do.
#[derive(clap::Args)]
pub struct Arguments {
    /// The program
    #[arg(long)]
    binary: PathBuf,
    /// Faults to measure; all without it
    #[arg(long, value_enum)]
    fault: Vec<Fault>,
    /// Runs of each fault
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Seconds that each fault lasts
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Fail if a gap is longer than the bound of its fault
    #[arg(long)]
    bounded: bool,
}

/// A fault of one broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Fault {
    /// The whole disk of the active controller hangs
    ControllerDisk,
    /// The data disk of a broker hangs, its metadata is on another one
    DataDisk,
    /// The disk of a broker is full
    FullDisk,
    /// The process of a broker stands still
    Pause,
}

impl Fault {
    const ALL: [Fault; 4] = [Fault::ControllerDisk, Fault::DataDisk, Fault::FullDisk, Fault::Pause];

    /// Longest gap that a run may have.
    fn bound(self) -> Duration {
        Duration::from_secs(match self {
            Fault::ControllerDisk => 5,
            Fault::DataDisk | Fault::FullDisk => 3,
            Fault::Pause => 4,
        })
    }

    fn needs_volumes(self) -> bool {
        self != Fault::Pause
    }
}

/// Longest gaps of one run.
#[derive(Clone, Copy, Debug)]
struct Gaps {
    /// Partitions that the sick broker led.
    led: Duration,
    /// All other partitions.
    others: Duration,
}

/// Measures each fault.
pub fn run(arguments: &Arguments) -> Result<()> {
    let faults = if arguments.fault.is_empty() { &Fault::ALL[..] } else { &arguments.fault };
    let mut late = Vec::new();
    for fault in faults {
        if let Some(lacking) = volume::lacking().filter(|_| fault.needs_volumes()) {
            println!("gaps: {fault:?}: not measured; this needs {lacking}");
            continue;
        }
        let mut worst = Duration::ZERO;
        for run in 1..=arguments.runs {
            let gaps = measure(arguments, *fault).with_context(|| format!("{fault:?}"))?;
            println!(
                "gaps: {fault:?}, run {run}: {:.2?} where the sick broker led, {:.2?} elsewhere",
                gaps.led, gaps.others
            );
            worst = worst.max(gaps.led).max(gaps.others);
        }
        if worst > fault.bound() {
            late.push(format!(
                "{fault:?}: {worst:.2?} without an acknowledgement, bound {:?}",
                fault.bound()
            ));
        }
    }
    ensure!(!arguments.bounded || late.is_empty(), "{}", late.join("; "));
    Ok(())
}

fn measure(arguments: &Arguments, fault: Fault) -> Result<Gaps> {
    let scratch = tempfile::tempdir()?;
    let volumes: Vec<Volume> = match fault.needs_volumes() {
        true => (0..BROKERS).map(|_| Volume::make()).collect::<Result<_>>()?,
        false => Vec::new(),
    };
    let folder = |at: usize| match volumes.get(at) {
        Some(volume) => volume.path().to_owned(),
        None => scratch.path().join(format!("broker-{at}")),
    };
    let folders: Vec<PathBuf> = (0..BROKERS).map(folder).collect();
    let mut cluster = Cluster::new(&arguments.binary, &folders, &[])?;
    if fault == Fault::DataDisk {
        for at in 0..BROKERS {
            let metadata = scratch.path().join(format!("metadata-{at}"));
            fs::create_dir(&metadata)?;
            cluster.set(at, "metadata.log.dir", &metadata.display().to_string());
        }
    }
    cluster.start_all()?;
    let lines = replicas::create_topics(&cluster.bootstrap(), &[TOPIC], BROKERS, &[])?;
    replicas::wait_until_all_in_sync(&mut cluster, &lines, IN_SYNC)?;
    let controller = controller(&cluster.address(0))?;
    let victim = match fault {
        Fault::ControllerDisk => controller,
        _ => (controller + 1) % BROKERS,
    };
    let led = led_by(&cluster.address(0), &lines, victim)?;
    let others: Vec<String> =
        (0..BROKERS).filter(|at| *at != victim).map(|at| cluster.address(at)).collect();
    let writers = Writers::begin(others, &lines)?;
    thread::sleep(BEFORE);
    let began = Instant::now();
    let sickness = Sickness::begin(fault, &cluster, volumes.get(victim), victim)?;
    thread::sleep(Duration::from_secs(arguments.seconds));
    let times = writers.stop(began);
    sickness.end()?;
    if let Some(words) = cluster.ended() {
        bail!("a broker ended: {words}");
    }
    let longest = |is_led: bool| {
        let of_kind = times.iter().filter(|(line, _)| led.contains(line) == is_led);
        of_kind.map(|(_, gap)| *gap).max().unwrap_or_default()
    };
    Ok(Gaps { led: longest(true), others: longest(false) })
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
    let connection = open(address).await?;
    let metadata = requests::metadata(&connection).await?;
    let of_topic = metadata.topics.iter().flat_map(|topic| {
        let name = topic.name.clone().unwrap_or_default();
        topic.partitions.iter().map(move |it| ((name.clone(), it.partition_index), it.leader_id))
    });
    Ok(of_topic.collect())
}

async fn open(address: &str) -> Result<Connection> {
    let config = ConnectionConfig {
        connect_timeout: REQUEST,
        request_timeout: REQUEST,
        ..Default::default()
    };
    Ok(Connection::open(address, &config).await?)
}

/// A fault that lasts until it is ended or dropped.
enum Sickness {
    Frozen(PathBuf),
    Full(PathBuf),
    Paused(Pid),
}

impl Sickness {
    fn begin(
        fault: Fault,
        cluster: &Cluster,
        volume: Option<&Volume>,
        victim: usize,
    ) -> Result<Sickness> {
        let path = volume.map(|volume| volume.path().to_owned());
        Ok(match fault {
            Fault::ControllerDisk | Fault::DataDisk => {
                let path = path.context("no volume")?;
                freeze("-f", &path)?;
                Sickness::Frozen(path)
            }
            Fault::FullDisk => {
                let filler = path.context("no volume")?.join("filler");
                // Ends without room, and with every free byte taken.
                let _ = Command::new("dd")
                    .args(["if=/dev/zero", "bs=64k", &format!("of={}", filler.display())])
                    .output()?;
                Sickness::Full(filler)
            }
            Fault::Pause => {
                let pid = cluster.pid(victim).context("no process")?;
                let pid = Pid::from_raw(i32::try_from(pid)?).context("no process")?;
                kill_process(pid, Signal::STOP)?;
                Sickness::Paused(pid)
            }
        })
    }

    fn end(self) -> Result<()> {
        self.undo()
    }

    fn undo(&self) -> Result<()> {
        match self {
            Sickness::Frozen(path) => freeze("-u", path),
            Sickness::Full(filler) => match fs::remove_file(filler) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                removed => Ok(removed?),
            },
            Sickness::Paused(pid) => Ok(kill_process(*pid, Signal::CONT)?),
        }
    }
}

impl Drop for Sickness {
    fn drop(&mut self) {
        // Ended before, mostly: then there is nothing to undo.
        let _ = self.undo();
    }
}

fn freeze(how: &str, path: &std::path::Path) -> Result<()> {
    let status = Command::new("fsfreeze").arg(how).arg(path).output()?;
    ensure!(status.status.success(), "fsfreeze {how}: {}", String::from_utf8_lossy(&status.stderr));
    Ok(())
}

/// Times of the acknowledgements of each partition.
type Acknowledgements = Vec<(Line, Vec<Instant>)>;

/// A writer for each partition, on one thread.
struct Writers {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<Result<Acknowledgements>>,
}

impl Writers {
    fn begin(bootstrap: Vec<String>, lines: &[Line]) -> Result<Writers> {
        let (stop, lines) = (Arc::new(AtomicBool::new(false)), lines.to_vec());
        let stopping = Arc::clone(&stop);
        let runtime = requests::runtime()?;
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                let bootstrap: Arc<[String]> = bootstrap.into();
                let writers = lines.into_iter().map(|line| {
                    let (bootstrap, stop) = (Arc::clone(&bootstrap), Arc::clone(&stopping));
                    tokio::spawn(
                        async move { (line.clone(), write(&bootstrap, &line, &stop).await) },
                    )
                });
                let writers: Vec<_> = writers.collect();
                let mut times = Vec::new();
                for writer in writers {
                    times.push(writer.await?);
                }
                anyhow::Ok(times)
            })
        });
        Ok(Writers { stop, thread })
    }

    /// Longest time without an acknowledgement of each partition since `began`.
    fn stop(self, began: Instant) -> Vec<(Line, Duration)> {
        let ended = Instant::now();
        self.stop.store(true, Ordering::Relaxed);
        let times = self.thread.join().expect("writers do not panic").unwrap_or_default();
        let gap = |(line, times): (Line, Vec<Instant>)| {
            let mut last = times.iter().copied().filter(|at| *at <= began).max().unwrap_or(began);
            let mut longest = Duration::ZERO;
            for at in times.into_iter().filter(|at| *at > began && *at <= ended).chain([ended]) {
                longest = longest.max(at - last);
                last = at;
            }
            (line, longest)
        };
        times.into_iter().map(gap).collect()
    }
}

/// Writes record after record to a partition. Returns the times of the acknowledgements.
async fn write(bootstrap: &[String], line: &Line, stop: &AtomicBool) -> Vec<Instant> {
    let (mut acknowledged, mut asked, mut number) = (Vec::new(), 0, 0);
    while !stop.load(Ordering::Relaxed) {
        let from = &bootstrap[asked % bootstrap.len()];
        asked += 1;
        let Ok(leader) = leader_of(from, line).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Ok(connection) = open(&leader).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        while !stop.load(Ordering::Relaxed) && send(&connection, line, number).await.is_ok() {
            acknowledged.push(Instant::now());
            number += 1;
            tokio::time::sleep(PAUSE).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
    acknowledged
}

async fn leader_of(from: &str, line: &Line) -> Result<String> {
    let connection = open(from).await?;
    let metadata = requests::metadata(&connection).await?;
    let topic = metadata.topics.iter().find(|topic| topic.name.as_deref() == Some(&line.0));
    let mut partitions = topic.into_iter().flat_map(|topic| &topic.partitions);
    let leader = partitions.find(|it| it.partition_index == line.1).context("no partition")?;
    let broker = metadata.brokers.iter().find(|broker| broker.node_id == leader.leader_id);
    let broker = broker.context("no leader")?;
    Ok(format!("{}:{}", broker.host, broker.port))
}

async fn send(connection: &Connection, line: &Line, number: u64) -> Result<()> {
    let mut batch = BatchBuilder::new();
    batch.add(Timestamp(1_790_000_000_000), None, Some(&number.to_be_bytes()));
    let records = Some(batch.finish().into());
    let partition = PartitionProduceData { index: line.1, records };
    let data = TopicProduceData {
        name: line.0.clone(),
        partition_data: vec![partition],
        ..Default::default()
    };
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: REQUEST.as_millis() as i32,
        topic_data: vec![data],
        ..Default::default()
    };
    let response = connection.call_version(&request, PRODUCE_VERSION).await?;
    for answer in response.responses.iter().flat_map(|topic| &topic.partition_responses) {
        ensure!(answer.error() == ErrorCode::None, "{}", answer.error());
    }
    Ok(())
}
