//! Writers of one record at a time: when acknowledgements come, and when the first one comes of a record that was sent
//! after the metadata named another leader.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use client::{Connection, ConnectionConfig};
use model::record::BatchBuilder;
use model::{ErrorCode, Timestamp};
use wire::ProduceRequest;
use wire::produce::{PartitionProduceData, TopicProduceData};

use crate::ledger::Line;
use crate::requests;

/// Last version of Produce that names topics.
const PRODUCE_VERSION: i16 = 12;
/// Longest time of one request of a writer.
pub const REQUEST: Duration = Duration::from_secs(1);
/// Pause of a writer behind each acknowledgement, and behind each failure.
const PAUSE: Duration = Duration::from_millis(20);

/// A time without an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gap {
    pub length: Duration,
    /// Whether the run ended before the next acknowledgement.
    pub is_open: bool,
}

impl std::fmt::Display for Gap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.is_open { "≥ " } else { "" };
        write!(f, "{sign}{:.2} s", self.length.as_secs_f64())
    }
}

async fn open(address: &str) -> Result<Connection> {
    let config = ConnectionConfig {
        connect_timeout: REQUEST,
        request_timeout: REQUEST,
        ..Default::default()
    };
    Ok(Connection::open(address, &config).await?)
}

/// Times of the acknowledgements of each partition.
type Acknowledgements = Vec<(Line, Vec<Instant>)>;

/// A writer for each partition, on one thread.
pub struct Writers {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<Result<Acknowledgements>>,
}

impl Writers {
    /// Starts a writer for each partition. It requests metadata from `bootstrap`.
    pub fn begin(bootstrap: Vec<String>, lines: &[Line]) -> Result<Writers> {
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

    /// Stops the writers. Returns the longest time without an acknowledgement of each partition since `began`.
    pub fn stop(self, began: Instant) -> Vec<(Line, Gap)> {
        let ended = Instant::now();
        self.stop.store(true, Ordering::Relaxed);
        let times = self.thread.join().expect("writers do not panic").unwrap_or_default();
        let gap = |(line, times): (Line, Vec<Instant>)| {
            let mut last = times.iter().copied().filter(|at| *at <= began).max().unwrap_or(began);
            let mut longest = Gap::default();
            for at in times.into_iter().filter(|at| *at > began && *at <= ended) {
                longest = longest.max(Gap { length: at - last, is_open: false });
                last = at;
            }
            (line, longest.max(Gap { length: ended - last, is_open: true }))
        };
        times.into_iter().map(gap).collect()
    }
}

/// Writes record after record to a partition. Returns the times of the acknowledgements.
async fn write(bootstrap: &[String], line: &Line, stop: &AtomicBool) -> Vec<Instant> {
    let (mut acknowledged, mut turn, mut number) = (Vec::new(), 0, 0);
    while !stop.load(Ordering::Relaxed) {
        let from = &bootstrap[turn % bootstrap.len()];
        turn += 1;
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

/// Time from `began` to the acknowledgement of the first record that was sent to a leader other than `victim`, for each
/// partition.
pub struct NewRecords {
    thread: thread::JoinHandle<Result<Vec<Gap>>>,
}

impl NewRecords {
    /// Starts to request metadata from `bootstrap`. Gives up after `limit`.
    pub fn begin(
        bootstrap: Vec<String>,
        victim: String,
        lines: &[Line],
        limit: Duration,
    ) -> Result<NewRecords> {
        let (lines, runtime, began) = (lines.to_vec(), requests::runtime()?, Instant::now());
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                let firsts = lines.into_iter().map(|line| {
                    let (bootstrap, victim) = (bootstrap.clone(), victim.clone());
                    tokio::spawn(tokio::time::timeout(limit, async move {
                        first_elsewhere(&bootstrap, &victim, &line).await;
                        began.elapsed()
                    }))
                });
                let firsts: Vec<_> = firsts.collect();
                let mut gaps = Vec::new();
                for first in firsts {
                    let open = Gap { length: limit, is_open: true };
                    let closed = |length| Gap { length, is_open: false };
                    gaps.push(first.await?.map_or(open, closed));
                }
                anyhow::Ok(gaps)
            })
        });
        Ok(NewRecords { thread })
    }

    /// Longest time of all partitions.
    pub fn longest(self) -> Result<Gap> {
        let gaps = self.thread.join().expect("writers do not panic")?;
        Ok(gaps.into_iter().max().unwrap_or_default())
    }
}

/// Sends records to every leader other than `victim` until one is acknowledged.
async fn first_elsewhere(bootstrap: &[String], victim: &str, line: &Line) {
    for from in bootstrap.iter().cycle() {
        if let Ok(leader) = leader_of(from, line).await
            && leader != victim
            && let Ok(connection) = open(&leader).await
            && send(&connection, line, 0).await.is_ok()
        {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}
