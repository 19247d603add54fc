//! Records go one by one through a balancer that chooses their partition and broker: read, decide, send, wait until
//! forwarded. The balancer is this loop; the next record is read when the last one is acknowledged, as in the CS6 report.
//! Through a gateway: `post`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use client::metadata::Partition;
use client::{Cluster, ClusterConfig, Producer, Record};
use experiment::workload::Strategy;
use hdrhistogram::Histogram;
use perf::load::{ProduceLoad, Values, histogram};
use perf::stamp::{Acknowledged, Stamp};
use serving::choice::{Among, Balancer, BrokerStrategy, Chooser, Layout, Pair, PartitionFacts};

use super::ground::Ground;
use super::measured::{Measured, VERIFY_IDLE};
use super::translate;
use crate::admin::block_on;

/// Where the time of a record goes, nanoseconds.
struct Steps {
    read: u64,
    decide: u64,
    send: u64,
    forward: u64,
}

/// Who chooses.
enum Choice {
    /// Broker and partition, where each broker has partitions of its own.
    Both(Layout, Balancer),
    /// One partition of all.
    One(OfAll),
}

/// The broker first and then one of its partitions, where any partition will do; else the partition.
struct OfAll {
    partition: Chooser,
    broker: Option<Chooser>,
    /// The partitions that each broker leads, by the order of the brokers' ids.
    led: Vec<Vec<i32>>,
    all: Vec<i32>,
}

impl Choice {
    fn new(ground: &Ground<'_>, load: &ProduceLoad, partitions: &[Partition]) -> Result<Choice> {
        if !ground.workload.partitions_per_broker {
            let leaders = partitions.iter().map(|p| (p.index, p.leader)).collect();
            return Ok(Choice::One(OfAll::new(ground, load, leaders)));
        }
        let broker = translate::strategy_of(ground.workload.broker_strategy).name();
        let broker = BrokerStrategy::from_name(broker);
        let pair = Pair {
            broker: Some(broker.context("brokers are chosen at random, in turn, or by a key")?),
            partition: load.strategy,
        };
        let facts = |partition: &Partition| PartitionFacts {
            preferred_leader: partition.replicas.first().copied(),
            is_led: partition.leader.is_some(),
        };
        let layout = Layout::new(&partitions.iter().map(facts).collect::<Vec<_>>());
        Ok(Choice::Both(layout, Balancer::new(pair, load.producer.batch_bytes, ground.seed)))
    }

    fn partition(&mut self, key: Option<&[u8]>, size_bytes: usize) -> Result<i32> {
        match self {
            Choice::Both(layout, balancer) => {
                let chosen = balancer.choose(key, size_bytes, layout, |_| false);
                Ok(chosen.context("no broker prefers to lead a partition")?.partition)
            }
            Choice::One(choice) => Ok(choice.partition(key, size_bytes)),
        }
    }
}

impl OfAll {
    fn new(ground: &Ground<'_>, load: &ProduceLoad, leaders: Vec<(i32, Option<i32>)>) -> OfAll {
        let mut led: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for (partition, leader) in &leaders {
            led.entry(leader.unwrap_or(-1)).or_default().push(*partition);
        }
        let chooser = |strategy| Chooser::new(strategy, load.producer.batch_bytes, ground.seed);
        let any = ground.workload.strategy == Strategy::Random;
        OfAll {
            partition: chooser(load.strategy),
            broker: any.then(|| chooser(translate::strategy_of(ground.workload.broker_strategy))),
            led: led.into_values().collect(),
            all: leaders.into_iter().map(|(partition, _)| partition).collect(),
        }
    }

    fn partition(&mut self, key: Option<&[u8]>, size_bytes: usize) -> i32 {
        let available = match &mut self.broker {
            Some(broker) => {
                let brokers = Among::all(&self.all[..self.led.len()]);
                let chosen = broker.choose(key, size_bytes, brokers, |_| false);
                &self.led[chosen as usize % self.led.len()]
            }
            None => &self.all,
        };
        let among = Among { all: &self.all, available };
        self.partition.choose(key, size_bytes, among, |_| false)
    }
}

/// Runs the round.
pub fn run(ground: &Ground<'_>) -> Result<Measured> {
    block_on(forward_all(ground))
}

async fn forward_all(ground: &Ground<'_>) -> Result<Measured> {
    let workload = ground.workload;
    let load = translate::producers(
        &ground.clients_at,
        &ground.topics,
        workload,
        ground.seed,
        ground.stamp(),
    )?;
    let topic_name = ground.topics.first().context("a round has a topic")?;
    let cluster = Cluster::connect(ClusterConfig::new(&ground.clients_at)).await?;
    // One record a request.
    let config = client::ProducerConfig { linger: Duration::ZERO, ..load.producer.clone() };
    let producer = Producer::new(cluster.clone(), config).await?;
    let topic = producer.topic(topic_name).await?;
    let mut values = Values::new(&load.sizes, &load.keys, load.payload, ground.seed);
    let partitions = cluster.topic(topic_name).await?.partitions.clone();
    let mut choice = Choice::new(ground, &load, &partitions)?;
    let mut sums = Steps { read: 0, decide: 0, send: 0, forward: 0 };
    let (mut times, mut bytes, mut records) = (histogram(), 0u64, 0u64);
    let mut acknowledged = Acknowledged::new(ground.number);
    let mut next_in: Vec<u64> = vec![0; ground.partitions as usize];
    let meter = ground.meter()?;
    let began = Instant::now();
    while records < workload.records && !ground.stop.is_stopped() {
        let from = Instant::now();
        values.draw();
        let read = Instant::now();
        let size_bytes = values.value().len();
        let partition = choice.partition(values.key(), size_bytes)?;
        if let Some(run) = ground.stamp() {
            let sequence = next_in[partition as usize];
            values.stamp(&Stamp { run, producer: 0, sequence, time_ns: 0 }, partition);
        }
        let decided = Instant::now();
        bytes += size_bytes as u64;
        let record = Record {
            key: values.key(),
            value: Some(values.value()),
            partition: Some(partition),
            ..Record::default()
        };
        let delivery = topic.send(&record).await?;
        let sent = Instant::now();
        delivery.wait().await?;
        let forwarded = Instant::now();
        let at = &mut next_in[partition as usize];
        acknowledged.insert(topic_name, partition, 0, *at, *at + 1);
        *at += 1;
        records += 1;
        add(&mut sums, &mut times, [from, read, decided, sent, forwarded]);
    }
    acknowledged.sent = records;
    let elapsed = began.elapsed();
    let used = meter.used()?;
    let mut measured = Measured { records, bytes, counts: next_in, ..Measured::default() };
    let elapsed_s = elapsed.as_secs_f64();
    measured.put_rates(records as f64 / elapsed_s, bytes as f64 / elapsed_s);
    measured.put("runtime_ms", elapsed_s * 1e3);
    measured.put_latencies("", &times);
    let mean_us = |sum: u64| sum as f64 / 1e3 / records.max(1) as f64;
    measured.put("read_us", mean_us(sums.read));
    measured.put("decide_us", mean_us(sums.decide));
    measured.put("send_us", mean_us(sums.send));
    measured.put("forward_us", mean_us(sums.forward));
    used.into_metrics(records, bytes, &mut measured.metrics);
    if ground.verify {
        let at = ground.brokers_at.clone();
        // It has a runtime of its own.
        let verdict = tokio::task::spawn_blocking(move || {
            perf::load::verify(&at, &acknowledged, VERIFY_IDLE)
        })
        .await?;
        measured.judge(&verdict.context("the records could not be read back")?);
    }
    Ok(measured)
}

fn add(
    sums: &mut Steps,
    times: &mut Histogram<u64>,
    [from, read, decided, sent, forwarded]: [Instant; 5],
) {
    sums.read += (read - from).as_nanos() as u64;
    sums.decide += (decided - read).as_nanos() as u64;
    sums.send += (sent - decided).as_nanos() as u64;
    sums.forward += (forwarded - sent).as_nanos() as u64;
    times.saturating_record((forwarded - from).as_micros() as u64);
}
