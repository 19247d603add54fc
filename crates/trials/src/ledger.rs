//! What idempotent producers were told, record by record with its offset, and what is found afterwards.
//!
//! Each value names its producer and number and is filled by them, so that a record is known wherever it turns up, and one
//! byte that is wrong makes it a stranger. The load's own check, `perf::load::verify`, costs less and knows no offsets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use client::producer::{Delivery, Producer, ProducerConfig, Record};
use client::{Cluster, ClusterConfig, Consumer, ConsumerConfig, OffsetReset, OffsetSpec};
use model::TopicPartition;
use perf::load::Stop;
use tokio::sync::mpsc;

use crate::requests::{PATIENCE, runtime};

/// Idempotent producers that write side by side.
const PRODUCERS: u32 = 2;
/// Records that each takes before it pauses.
const BURST: u32 = 20;
/// The pause: the trial is to find what is lost, not to fill a disk.
const PAUSE: Duration = Duration::from_millis(2);
/// Records of a producer that may be under way; more than `buffer.memory` holds.
const UNDER_WAY: usize = 65_536;
/// Lengths of values in bytes: nine of ten, and the tenth.
const SIZES: [usize; 2] = [120, 3_000];
/// Bytes of producer and number in front of a value.
const HEAD_BYTES: usize = 12;
/// An odd number that moves every bit of a producer far away from those of its records.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// How long reading back waits for the next record.
const IDLE: Duration = Duration::from_secs(20);

/// A partition by name.
pub type Line = (String, i32);

/// Which record of which producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Producer, unique within its topic.
    pub producer: u32,
    /// Number of the record, in the order of sending.
    pub number: u64,
}

/// Parses a value; `None` if no producer wrote the value. The buffer is scratch space.
pub type MarkReader = fn(value: &[u8], scratch: &mut Vec<u8>) -> Option<Mark>;

impl Mark {
    /// Writes the value of this record.
    fn fill(self, value: &mut Vec<u8>) {
        let seed = u64::from(self.producer).wrapping_mul(SPREAD) ^ self.number;
        let mut random = fastrand::Rng::with_seed(seed);
        value.clear();
        value.extend(self.producer.to_be_bytes());
        value.extend(self.number.to_be_bytes());
        value.resize(SIZES[usize::from(random.u8(..10) == 0)], 0);
        random.fill(&mut value[HEAD_BYTES..]);
    }

    /// The record that has this value, every byte of it.
    pub fn of(value: &[u8], scratch: &mut Vec<u8>) -> Option<Mark> {
        let (producer, rest) = value.split_first_chunk()?;
        let number = rest.first_chunk()?;
        let mark =
            Mark { producer: u32::from_be_bytes(*producer), number: u64::from_be_bytes(*number) };
        mark.fill(scratch);
        (scratch == value).then_some(mark)
    }
}

/// What producers were told.
#[derive(Debug, Default)]
pub struct Ledger {
    /// By partition and offset.
    placed: BTreeMap<Line, BTreeMap<i64, Mark>>,
    /// Acknowledged without an offset: brokers say none for a batch that they have had already.
    somewhere: BTreeSet<(Line, Mark)>,
    /// Given up or refused, with the first reason.
    failed: u64,
    failure: Option<String>,
}

impl Ledger {
    /// Enters the outcome of one record: its offset if the producer knows the offset, or the error.
    pub fn settle(&mut self, line: Line, mark: Mark, told: Result<Option<i64>, String>) {
        match told {
            Ok(Some(offset)) => {
                self.placed.entry(line).or_default().insert(offset, mark);
            }
            Ok(None) => {
                self.somewhere.insert((line, mark));
            }
            Err(why) => {
                self.failed += 1;
                self.failure.get_or_insert(why);
            }
        }
    }

    /// Acknowledged records, with their partitions.
    pub fn acknowledged(&self) -> impl Iterator<Item = (&Line, Mark)> {
        let placed = self.placed.iter();
        let placed = placed.flat_map(|(line, marks)| marks.values().map(move |mark| (line, *mark)));
        placed.chain(self.somewhere.iter().map(|(line, mark)| (line, *mark)))
    }

    fn absorb(&mut self, other: Ledger) {
        for (line, records) in other.placed {
            self.placed.entry(line).or_default().extend(records);
        }
        self.somewhere.extend(other.somewhere);
        self.failed += other.failed;
        self.failure = self.failure.take().or(other.failure);
    }

    /// Records that producers gave up, and why the first.
    pub fn failures(&self) -> Option<(u64, &str)> {
        self.failure.as_deref().map(|why| (self.failed, why))
    }

    /// Compares with what was found.
    pub fn judge(&self, found: &Found) -> Verdict {
        let placed: usize = self.placed.values().map(BTreeMap::len).sum();
        let mut verdict = Verdict {
            acknowledged: (placed + self.somewhere.len()) as u64,
            damaged: found.damaged,
            ..Verdict::default()
        };
        let none = BTreeMap::new();
        let mut known: BTreeMap<&Line, BTreeSet<Mark>> = BTreeMap::new();
        for (line, records) in &found.records {
            let mut last: BTreeMap<u32, u64> = BTreeMap::new();
            for mark in records.values() {
                if !known.entry(line).or_default().insert(*mark) {
                    verdict.twice += 1;
                } else if last.get(&mark.producer).is_some_and(|last| *last > mark.number) {
                    verdict.reordered += 1;
                } else {
                    last.insert(mark.producer, mark.number);
                }
            }
        }
        let is_known = |line, mark| known.get(line).is_some_and(|marks| marks.contains(mark));
        for (line, records) in &self.placed {
            let there = found.records.get(line).unwrap_or(&none);
            for (offset, mark) in records {
                match is_known(line, mark) {
                    true if there.get(offset) == Some(mark) => {}
                    true => verdict.elsewhere += 1,
                    false => verdict.lost += 1,
                }
            }
        }
        let lost = self.somewhere.iter().filter(|(line, mark)| !is_known(line, mark));
        verdict.lost += lost.count() as u64;
        verdict
    }
}

/// What is in the partitions.
#[derive(Debug, Default)]
pub struct Found {
    records: BTreeMap<Line, BTreeMap<i64, Mark>>,
    damaged: u64,
}

/// What became of the acknowledged records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Records whose producer was told that they are safe.
    pub acknowledged: u64,
    /// Of them, those that are not there.
    pub lost: u64,
    /// Of them, those at another offset than their producer was told.
    pub elsewhere: u64,
    /// Records that nobody wrote so.
    pub damaged: u64,
    /// Records that are there once more.
    pub twice: u64,
    /// Records behind a later one of the same producer.
    pub reordered: u64,
}

impl Verdict {
    /// Adds up.
    pub fn absorb(&mut self, other: &Verdict) {
        self.acknowledged += other.acknowledged;
        self.lost += other.lost;
        self.elsewhere += other.elsewhere;
        self.damaged += other.damaged;
        self.twice += other.twice;
        self.reordered += other.reordered;
    }

    /// Whether every record is there once, in order and where its producer was told.
    pub fn is_clean(&self) -> bool {
        self.lost + self.elsewhere + self.damaged + self.twice + self.reordered == 0
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { acknowledged, lost, elsewhere, damaged, twice, reordered } = self;
        write!(
            f,
            "{acknowledged} acknowledged, {lost} lost, {elsewhere} elsewhere, {damaged} damaged, {twice} twice, {reordered} out of order"
        )
    }
}

/// Producers at work, on a thread of their own.
pub struct Writing {
    stop: Stop,
    acknowledged: Arc<AtomicU64>,
    thread: JoinHandle<Result<Ledger>>,
}

impl Writing {
    /// Begins to write to these partitions, one after the other. A record is given up after `delivery`.
    pub fn begin(bootstrap: &str, lines: Vec<Line>, delivery: Duration) -> Writing {
        Writing::begin_at(bootstrap, lines, delivery, PAUSE)
    }

    /// As [`Writing::begin`], with this pause between two bursts of a producer.
    pub fn begin_at(
        bootstrap: &str,
        lines: Vec<Line>,
        delivery: Duration,
        pause: Duration,
    ) -> Writing {
        let (stop, acknowledged) = (Stop::default(), Arc::new(AtomicU64::new(0)));
        let writer = Writer {
            bootstrap: bootstrap.to_owned(),
            lines,
            delivery,
            pause,
            stop: stop.clone(),
            acknowledged: acknowledged.clone(),
        };
        let thread = thread::spawn(move || writer.run());
        Writing { stop, acknowledged, thread }
    }

    /// Records that were acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits until so many more are acknowledged than now, or the producers have given up.
    pub fn wait_for_more(&self, records: u64) -> Result<()> {
        let (wanted, deadline) = (self.acknowledged() + records, Instant::now() + PATIENCE);
        while self.acknowledged() < wanted && !self.thread.is_finished() {
            ensure!(Instant::now() < deadline, "nothing is acknowledged within {PATIENCE:?}");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Takes no more records, and waits for the end of those that are under way.
    pub fn finish(self) -> Result<Ledger> {
        self.stop.stop();
        self.thread.join().map_err(|_| anyhow::anyhow!("a producer panicked"))?
    }
}

#[derive(Clone)]
struct Writer {
    bootstrap: String,
    lines: Vec<Line>,
    delivery: Duration,
    pause: Duration,
    stop: Stop,
    acknowledged: Arc<AtomicU64>,
}

/// A record that is under way.
struct Sent {
    line: Line,
    mark: Mark,
    delivery: Delivery,
}

impl Writer {
    fn run(self) -> Result<Ledger> {
        let runtime = runtime()?;
        let ledger = runtime.block_on(async {
            let mut all = Vec::new();
            for producer in 0..PRODUCERS {
                all.push(tokio::spawn(self.clone().write(producer)));
            }
            let mut ledger = Ledger::default();
            for writing in all {
                ledger.absorb(writing.await??);
            }
            Ok(ledger)
        });
        runtime.shutdown_background();
        ledger
    }

    async fn write(self, producer_id: u32) -> Result<Ledger> {
        let cluster = Cluster::connect(ClusterConfig::new(&self.bootstrap)).await?;
        let config = ProducerConfig {
            delivery_timeout: self.delivery,
            request_timeout: self.delivery.min(Duration::from_secs(5)),
            block_max: Duration::from_secs(1),
            buffer_bytes: 4 << 20,
            ..ProducerConfig::default()
        };
        let producer = Producer::new(cluster, config).await?;
        let (sent, receiver) = mpsc::channel(UNDER_WAY);
        let settling = tokio::spawn(settle(receiver, self.acknowledged.clone()));
        let (mut number, mut value) = (0, Vec::new());
        while !self.stop.is_stopped() {
            for _ in 0..BURST {
                let mark = Mark { producer: producer_id, number };
                mark.fill(&mut value);
                let line = self.lines[number as usize % self.lines.len()].clone();
                let record = Record { partition: Some(line.1), ..Record::value(&value) };
                // Where nothing is taken, all that was taken waits for brokers that are away.
                let Ok(delivery) = producer.send(&line.0, &record).await else { break };
                sent.send(Sent { line, mark, delivery }).await.context("nobody settles")?;
                number += 1;
            }
            tokio::time::sleep(self.pause).await;
        }
        drop(sent);
        Ok(settling.await?)
    }
}

async fn settle(mut sent: mpsc::Receiver<Sent>, acknowledged: Arc<AtomicU64>) -> Ledger {
    let mut ledger = Ledger::default();
    while let Some(Sent { line, mark, delivery }) = sent.recv().await {
        let told = delivery.wait().await;
        if told.is_ok() {
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        let told = told.map(|offset| offset.map(|offset| offset.0));
        ledger.settle(line, mark, told.map_err(|error| error.to_string()));
    }
    ledger
}

/// Reads these partitions from their first to their last record.
pub fn read_back(bootstrap: &str, lines: &[Line]) -> Result<Found> {
    read_back_by(bootstrap, lines, Mark::of)
}

/// As [`read_back`], for values of another form.
pub fn read_back_by(bootstrap: &str, lines: &[Line], mark_of: MarkReader) -> Result<Found> {
    let runtime = runtime()?;
    let found = runtime.block_on(read(bootstrap, lines, mark_of));
    runtime.shutdown_background();
    found
}

async fn read(bootstrap: &str, lines: &[Line], mark_of: MarkReader) -> Result<Found> {
    let cluster = Cluster::connect(ClusterConfig::new(bootstrap)).await?;
    let config = ConsumerConfig {
        offset_reset: OffsetReset::Earliest,
        auto_commit: None,
        partition_bytes_max: 4 << 20,
        ..ConsumerConfig::default()
    };
    let mut consumer = Consumer::new(cluster, config);
    let partitions: Vec<TopicPartition> =
        lines.iter().map(|(topic, index)| TopicPartition::new(topic.as_str(), *index)).collect();
    consumer.assign(&partitions).await?;
    let wanted: Vec<_> = partitions.iter().map(|p| (p.clone(), OffsetSpec::Latest)).collect();
    let mut left: BTreeMap<TopicPartition, i64> = BTreeMap::new();
    for (partition, end) in consumer.offsets(&wanted).await? {
        let end = end.offset.with_context(|| format!("{partition} has no end"))?.0;
        if end > 0 {
            left.insert(partition, end);
        }
    }
    let (mut found, mut heard) = (Found::default(), Instant::now());
    let (mut buffer, mut scratch) = (Vec::new(), Vec::new());
    while !left.is_empty() {
        ensure!(heard.elapsed() < IDLE, "nothing more comes of {left:?} within {IDLE:?}");
        for fetched in consumer.poll(Duration::from_millis(100)).await? {
            heard = Instant::now();
            let line = (fetched.partition.topic.to_string(), fetched.partition.partition.0);
            let records = found.records.entry(line).or_default();
            fetched.for_each(&mut buffer, |record| {
                match record.value.and_then(|value| mark_of(value, &mut scratch)) {
                    Some(mark) => drop(records.insert(record.offset.0, mark)),
                    None => found.damaged += 1,
                }
            })?;
            left.retain(|partition, end| {
                *partition != fetched.partition || *end > fetched.next_offset.0
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: (&str, i32) = ("t", 0);

    fn line() -> Line {
        (LINE.0.to_owned(), LINE.1)
    }

    fn mark(number: u64) -> Mark {
        Mark { producer: 7, number }
    }

    /// The numbers 0, 1, 2… at these offsets were acknowledged.
    fn told(offsets: &[Option<i64>]) -> Ledger {
        let mut ledger = Ledger::default();
        for (number, offset) in offsets.iter().enumerate() {
            ledger.settle(line(), mark(number as u64), Ok(*offset));
        }
        ledger
    }

    fn found(records: &[(i64, u64)]) -> Found {
        let records = records.iter().map(|(offset, number)| (*offset, mark(*number))).collect();
        Found { records: BTreeMap::from([(line(), records)]), damaged: 0 }
    }

    #[test]
    fn a_value_is_known_by_every_byte_of_it() {
        let (mut value, mut scratch) = (Vec::new(), Vec::new());
        for number in 0..100 {
            mark(number).fill(&mut value);
            assert_eq!(Mark::of(&value, &mut scratch), Some(mark(number)));
            for at in [0, HEAD_BYTES - 1, HEAD_BYTES, value.len() - 1] {
                value[at] ^= 1;
                assert_eq!(Mark::of(&value, &mut scratch), None, "byte {at}");
                value[at] ^= 1;
            }
            assert_eq!(Mark::of(&value[..value.len() - 1], &mut scratch), None);
        }
        assert_eq!(Mark::of(b"short", &mut scratch), None);
    }

    #[test]
    fn what_is_where_it_was_told_to_be_is_clean_and_nothing_else() {
        let all = found(&[(0, 0), (1, 1), (2, 2)]);
        let clean = told(&[Some(0), Some(1), Some(2)]).judge(&all);
        assert_eq!(clean, Verdict { acknowledged: 3, ..Verdict::default() });
        assert!(clean.is_clean());
        assert!(told(&[Some(0), None]).judge(&all).is_clean(), "2 was never acknowledged");
        let cases = [
            (found(&[(0, 0), (1, 1)]), Verdict { lost: 1, ..clean }),
            (Found::default(), Verdict { lost: 3, ..clean }),
            (found(&[(0, 0), (2, 1), (3, 2)]), Verdict { elsewhere: 2, ..clean }),
            (found(&[(0, 0), (1, 1), (2, 2), (3, 1)]), Verdict { twice: 1, ..clean }),
            (found(&[(0, 1), (1, 0), (2, 2)]), Verdict { elsewhere: 2, reordered: 1, ..clean }),
            (
                Found { damaged: 1, ..found(&[(0, 0), (1, 1), (2, 2)]) },
                Verdict { damaged: 1, ..clean },
            ),
        ];
        for (found, wanted) in cases {
            let verdict = told(&[Some(0), Some(1), Some(2)]).judge(&found);
            assert_eq!(verdict, wanted, "{found:?}");
            assert!(!verdict.is_clean());
        }
    }

    #[test]
    fn what_was_acknowledged_without_an_offset_must_be_anywhere() {
        let ledger = told(&[Some(0), None]);
        assert!(ledger.judge(&found(&[(0, 0), (5, 1)])).is_clean());
        assert_eq!(ledger.judge(&found(&[(0, 0)])).lost, 1);
    }
}
