//! Creating topics until all their partitions are led, and deleting them.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::call::Caller;
use crate::request::TopicSize;
use crate::{request, response};

const TOPIC_ALREADY_EXISTS: i16 = 36;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
/// How often leaders are asked for.
const LOOK: Duration = Duration::from_millis(20);

/// What to do with topics.
#[derive(Subcommand)]
pub enum Command {
    /// Create, then wait until every partition has a leader; a topic that exists is an error
    Create(Create),
    /// Delete; a topic that is not there is no error
    Delete(Delete),
}

/// Which topics, where.
#[derive(Args)]
pub struct Names {
    /// Broker, as address:port
    #[arg(long)]
    pub bootstrap: SocketAddr,
    /// Names, separated by commas
    #[arg(long, value_delimiter = ',')]
    pub topics: Vec<String>,
}

/// Topics to delete.
#[derive(Args)]
pub struct Delete {
    #[command(flatten)]
    names: Names,
    /// How long to wait before
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
}

/// Topics to create.
#[derive(Args)]
pub struct Create {
    #[command(flatten)]
    names: Names,
    /// Partitions of each
    #[arg(long, default_value_t = 1)]
    partitions: i32,
    /// Replicas of each partition
    #[arg(long, default_value_t = 1)]
    replicas: i16,
    /// A topic configuration, KEY=VALUE
    #[arg(long = "config")]
    configs: Vec<String>,
    /// All in one request, not one after the other
    #[arg(long)]
    together: bool,
    /// How long it may take
    #[arg(long, default_value_t = 120)]
    limit_seconds: u64,
}

/// Does it; returns the line to print.
pub fn run(command: &Command) -> Result<String> {
    let start = Instant::now();
    match command {
        Command::Create(arguments) => {
            let deadline = start + Duration::from_secs(arguments.limit_seconds);
            let mut caller = Caller::connect(arguments.names.bootstrap)?;
            let configs = arguments.configs.iter().map(|pair| split(pair));
            let configs = configs.collect::<Result<Vec<_>>>()?;
            let size = TopicSize { partitions: arguments.partitions, replicas: arguments.replicas };
            // One topic a request otherwise: controllers bound the records of one request.
            let names = &arguments.names.topics;
            let at_once = if arguments.together { names.len() } else { 1 };
            for topics in names.chunks(at_once.max(1)) {
                let fresh = create(&mut caller, topics, size, &configs)?;
                // Someone else's topic is neither to be written to nor to be deleted afterwards.
                ensure!(fresh, "{topics:?} exist already: is this the right broker?");
            }
            wait_for_leaders(
                &mut caller,
                &arguments.names.topics,
                arguments.partitions,
                LOOK,
                deadline,
            )?;
        }
        Command::Delete(Delete { names, delay_ms }) => {
            let mut caller = Caller::connect(names.bootstrap)?;
            thread::sleep(Duration::from_millis(*delay_ms));
            let mut reader = caller.call(request::delete_topics(&names.topics))?;
            for (topic, error) in response::topic_errors(&mut reader, false)? {
                let gone = error == 0 || error == UNKNOWN_TOPIC_OR_PARTITION;
                ensure!(gone, "deleting {topic}: error code {error}");
            }
        }
    }
    Ok(json!({ "seconds": start.elapsed().as_secs_f64() }).to_string())
}

fn split(pair: &str) -> Result<(String, String)> {
    match pair.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => bail!("not KEY=VALUE: {pair}"),
    }
}

/// Creates topics with one request; tells whether none was there before.
pub fn create(
    caller: &mut Caller,
    topics: &[String],
    size: TopicSize,
    configs: &[(String, String)],
) -> Result<bool> {
    let frame = request::create_topics(topics, size, configs);
    let mut reader = caller.call(frame)?;
    let mut fresh = true;
    for (topic, error) in response::topic_errors(&mut reader, true)? {
        fresh &= error != TOPIC_ALREADY_EXISTS;
        let there = error == 0 || error == TOPIC_ALREADY_EXISTS;
        ensure!(there, "creating {topic}: error code {error}");
    }
    Ok(fresh)
}

/// Asks, every `look`, until every topic has `partitions` partitions with a leader.
pub fn wait_for_leaders(
    caller: &mut Caller,
    topics: &[String],
    partitions: i32,
    look: Duration,
    deadline: Instant,
) -> Result<()> {
    let wanted = usize::try_from(partitions)?;
    loop {
        let led = response::led_partitions(&mut caller.call(request::metadata(topics))?)?;
        if topics.iter().all(|topic| led.get(topic).copied().unwrap_or(0) >= wanted) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "partitions without a leader: {led:?}");
        thread::sleep(look);
    }
}
