//! When does a broker that is just starting acknowledge its first record? Asks again and again,
//! faster than it matters, and prints points of time, which the caller compares with the time at
//! which it started the broker.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;

use crate::call::Caller;
use crate::request::TopicSize;
use crate::{request, response, topic};

/// How long to wait between attempts.
const RETRY: Duration = Duration::from_micros(500);

/// What is waited for.
#[derive(Args)]
pub struct Arguments {
    // The first and the last partition of each is written to
    #[command(flatten)]
    names: topic::Names,
    /// Partitions of each topic, all of which must have a leader first
    #[arg(long, default_value_t = 1)]
    partitions: i32,
    /// The topics are there: do not create them
    #[arg(long)]
    existing: bool,
    #[arg(long, default_value_t = 60)]
    limit_seconds: u64,
}

/// Runs until the record is acknowledged with acks=all; returns the line to print.
pub fn run(arguments: &Arguments) -> Result<String> {
    let deadline = Instant::now() + Duration::from_secs(arguments.limit_seconds);
    let mut connected = None;
    loop {
        match attempt(arguments, deadline, &mut connected) {
            Ok(()) => break,
            Err(error) => {
                ensure!(Instant::now() < deadline, "not in time: {error:#}");
                thread::sleep(RETRY);
            }
        }
    }
    let connected = connected.context("acknowledged, so it was connected")?;
    Ok(json!({ "connected_unix_s": connected, "acked_unix_s": unix_s() }).to_string())
}

fn attempt(arguments: &Arguments, deadline: Instant, connected: &mut Option<f64>) -> Result<()> {
    let topics = &arguments.names.topics;
    let mut caller = Caller::connect(arguments.names.bootstrap)?;
    connected.get_or_insert_with(unix_s);
    if !arguments.existing {
        for topic in topics {
            // An attempt that was cut off may have made it.
            let size = TopicSize { partitions: arguments.partitions, replicas: 1 };
            topic::create(&mut caller, std::slice::from_ref(topic), size, &[])?;
        }
    }
    topic::wait_for_leaders(&mut caller, topics, arguments.partitions, RETRY, deadline)?;
    let (batch, _) = request::batch(100, 0);
    let last = arguments.partitions - 1;
    let ends = if last > 0 { vec![0, last] } else { vec![0] };
    for topic in topics {
        for partition in &ends {
            let mut reader = caller.call(request::produce(topic, *partition, -1, &batch))?;
            let error = response::produce_error(&mut reader)?;
            ensure!(error == 0, "producing to {topic}-{partition}: error code {error}");
        }
    }
    Ok(())
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_secs_f64()
}
