//! A consumer of whole partitions, flat out, without a group: the broker's part of reading.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use serde_json::json;

/// What to read.
#[derive(Args)]
pub struct Arguments {
    #[arg(long)]
    bootstrap: String,
    #[arg(long)]
    topic: String,
    /// Partitions 0 to N-1 are read
    #[arg(long, default_value_t = 1)]
    partitions: i32,
    /// How many records to wait for
    #[arg(long)]
    records: u64,
    /// Any other property of librdkafka, KEY=VALUE
    #[arg(long = "set")]
    set: Vec<String>,
    #[arg(long, default_value_t = 120)]
    limit_seconds: u64,
}

/// Reads until `records` have come; returns the line to print.
pub fn run(arguments: &Arguments) -> Result<String> {
    let consumer = connect(arguments)?;
    let start = Instant::now();
    let limit = Duration::from_secs(arguments.limit_seconds);
    let mut partitions = TopicPartitionList::new();
    for partition in 0..arguments.partitions {
        partitions.add_partition_offset(&arguments.topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&partitions)?;
    let (mut records, mut bytes) = (0_u64, 0_u64);
    while records < arguments.records {
        match consumer.poll(Duration::from_millis(500)) {
            Some(message) => {
                bytes += message?.payload().map_or(0, <[u8]>::len) as u64;
                records += 1;
            }
            None => ensure!(start.elapsed() < limit, "{records} records after {limit:?}"),
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    // Tearing down a client with full queues takes long and is no part of the run.
    std::mem::forget(consumer);
    Ok(json!({ "records": records, "bytes": bytes, "seconds": seconds }).to_string())
}

fn connect(arguments: &Arguments) -> Result<BaseConsumer> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", &arguments.bootstrap)
        .set("client.id", "rdload")
        .set("group.id", "rdload")
        .set("enable.auto.commit", "false")
        .set("queued.min.messages", "1000000")
        .set("queued.max.messages.kbytes", "262144");
    crate::set_all(&mut config, &arguments.set)?;
    Ok(config.create()?)
}
