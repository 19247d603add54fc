//! A consumer that waits at the end of a partition while records are produced: how long they took from
//! when they should have been sent until they were read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};

use crate::latency::Latency;

/// How long records may stay out after the last one was acknowledged.
const PATIENCE: Duration = Duration::from_secs(20);
/// One wait for a record.
const POLL: Duration = Duration::from_millis(100);
/// So many records are to come: not known yet.
const UNKNOWN: u64 = u64::MAX;

/// Writes into a value when it should have been sent, after the run's start.
pub fn stamp(value: &mut [u8], intended: Duration) {
    let nanos = u64::try_from(intended.as_nanos()).unwrap_or(u64::MAX);
    if let Some(place) = value.first_chunk_mut::<8>() {
        *place = nanos.to_be_bytes();
    }
}

fn stamped(value: &[u8]) -> Option<Duration> {
    value.first_chunk::<8>().map(|nanos| Duration::from_nanos(u64::from_be_bytes(*nanos)))
}

/// The consumer, on a thread of its own.
pub struct Reader {
    wanted: Arc<AtomicU64>,
    thread: JoinHandle<Result<Latency>>,
}

impl Reader {
    /// Starts reading partition 0 of an empty topic; returns when the consumer runs. Stamps count from
    /// `start`; the first `warmup` records are left out.
    pub fn start(bootstrap: &str, topic: &str, start: Instant, warmup: u64) -> Result<Reader> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("client.id", "rdload-reader")
            .set("group.id", "rdload-reader")
            .set("enable.auto.commit", "false")
            .create()?;
        let mut partitions = TopicPartitionList::new();
        partitions.add_partition_offset(topic, 0, Offset::Beginning)?;
        consumer.assign(&partitions)?;
        let wanted = Arc::new(AtomicU64::new(UNKNOWN));
        let told = Arc::clone(&wanted);
        let thread = thread::Builder::new().name("reader".to_owned());
        let thread = thread.spawn(move || {
            let latency = read(&consumer, start, warmup, &told);
            // Tearing down a client takes long and is no part of the run.
            std::mem::forget(consumer);
            latency
        })?;
        Ok(Reader { wanted, thread })
    }

    /// Waits until `records` have been read.
    pub fn finish(self, records: u64) -> Result<Latency> {
        self.wanted.store(records, Ordering::Relaxed);
        self.thread.join().ok().context("the reader panicked")?
    }
}

fn read(
    consumer: &BaseConsumer,
    start: Instant,
    warmup: u64,
    wanted: &AtomicU64,
) -> Result<Latency> {
    let mut latency = Latency::new();
    let (mut records, mut last) = (0, Instant::now());
    while records < wanted.load(Ordering::Relaxed) {
        let Some(message) = consumer.poll(POLL) else {
            let known = wanted.load(Ordering::Relaxed) != UNKNOWN;
            ensure!(
                !known || last.elapsed() < PATIENCE,
                "{records} records were read, no more come"
            );
            continue;
        };
        let message = message?;
        last = Instant::now();
        let Some(intended) = message.payload().and_then(stamped) else {
            bail!("a record without a stamp: the topic was not empty");
        };
        if records >= warmup {
            latency.record(start.elapsed().saturating_sub(intended));
        }
        records += 1;
    }
    Ok(latency)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_back() {
        let mut value = [7; 20];
        stamp(&mut value, Duration::from_millis(1500));
        assert_eq!(stamped(&value), Some(Duration::from_millis(1500)));
        assert_eq!(stamped(b"short"), None);
    }
}
