//! One request after the other about one partition each: what a single administrator or a sensor in a
//! hundred thousand does, not load.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::call::Caller;
use crate::latency::Latency;
use crate::{request, response, topic};

/// Which partitions.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    names: topic::Names,
    /// Partitions of each
    #[arg(long)]
    partitions: i32,
    /// Ask about so many partitions, spread over all; without it about each
    #[arg(long)]
    count: Option<usize>,
}

/// Writes a record of 100 bytes to each partition; returns the line to print.
pub fn write(arguments: &Arguments) -> Result<String> {
    let (batch, _) = request::batch(100, 0);
    run(arguments, |caller, topic, partition| {
        let mut reader = caller.call(request::produce(topic, partition, 1, &batch))?;
        response::produce_error(&mut reader)
    })
}

/// Deletes the records of each partition; returns the line to print.
pub fn delete(arguments: &Arguments) -> Result<String> {
    run(arguments, |caller, topic, partition| {
        let mut reader = caller.call(request::delete_records(topic, partition))?;
        response::delete_records_error(&mut reader)
    })
}

fn run(
    arguments: &Arguments,
    ask: impl Fn(&mut Caller, &str, i32) -> Result<i16>,
) -> Result<String> {
    let partitions = usize::try_from(arguments.partitions)?;
    let topics = &arguments.names.topics;
    let all = topics.len() * partitions;
    let step = all / arguments.count.unwrap_or(all).clamp(1, all.max(1));
    let mut caller = Caller::connect(arguments.names.bootstrap)?;
    let (start, mut latency, mut requests) = (Instant::now(), Latency::new(), 0_u64);
    for number in (0..all).step_by(step.max(1)) {
        let topic = &topics[number / partitions];
        let partition = i32::try_from(number % partitions)?;
        let asked = Instant::now();
        let error = ask(&mut caller, topic, partition)?;
        ensure!(error == 0, "{topic}-{partition}: error code {error}");
        latency.record(Duration::max(asked.elapsed(), Duration::from_micros(1)));
        requests += 1;
    }
    let mut line = Map::<String, Value>::new();
    line.insert("requests".to_owned(), json!(requests));
    line.insert("seconds".to_owned(), json!(start.elapsed().as_secs_f64()));
    latency.write(&mut line);
    Ok(Value::Object(line).to_string())
}
