//! Load on what stands in front of brokers, a line of JSON each: requests over HTTP, streams, a proxy, a console.
//! `cargo xt bench gateway` runs it; by hand: `cargo run --release -p perf --example front -- --help`.

mod cluster;
mod console;
mod instances;
mod streams;

use std::time::Duration;

use clap::{Parser, Subcommand};
use client::ProducerConfig;
use perf::load::{
    ConsumeLoad, Keys, Payload, PostLoad, ProduceLoad, PushForm, PushLoad, Sizes, Stop, both, post,
    produce, pushed,
};
use serde_json::{Value, json};

/// What may go wrong, told in words.
pub type Told<T> = Result<T, Box<dyn std::error::Error>>;

#[derive(Parser)]
struct Arguments {
    /// Brokers
    #[arg(long, short, global = true, default_value = "127.0.0.1:9092")]
    bootstrap: String,
    /// A gateway in front of them: host:port
    #[arg(long, short, global = true, default_value = "127.0.0.1:8082")]
    gateway: String,
    /// A topic; made with --partitions if it is not there
    #[arg(long, short, global = true, default_value = "front")]
    topic: String,
    #[arg(long, global = true, default_value_t = 1)]
    partitions: i32,
    #[arg(long, global = true, default_value_t = 5.0)]
    seconds: f64,
    #[arg(long, global = true, default_value_t = 100)]
    bytes: usize,
    /// Records a second; 0: as many as possible
    #[arg(long, global = true, default_value_t = 0.0)]
    rate: f64,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Requests over HTTP, one under way on each connection
    Post {
        #[arg(long, default_value_t = 256)]
        connections: u32,
        #[arg(long, default_value_t = 1)]
        records: u32,
    },
    /// A native client, acks=all
    Native,
    /// A native client that produces, and one that reads
    Pair,
    /// Subscribers of what a native client produces
    Push {
        #[arg(long, default_value_t = 1000)]
        subscribers: u32,
    },
    /// Streams to which nothing comes; stays until its input ends
    Idle {
        #[arg(long, default_value_t = 1000)]
        subscribers: u32,
    },
    /// Single records to many subscribers: when the last one has each
    FanOut {
        #[arg(long, default_value_t = 5000)]
        subscribers: u32,
        #[arg(long, default_value_t = 10)]
        records: u32,
    },
    /// Consumer instances that have each read once; deleted when the input ends
    Instances {
        #[arg(long, default_value_t = 40)]
        groups: u32,
        /// Instances of a group
        #[arg(long, default_value_t = 25)]
        each: u32,
        /// The groups share the partitions out; otherwise each instance is assigned one
        #[arg(long)]
        subscribe: bool,
    },
    /// Topics of four partitions with a record each, and groups that have committed in 40 partitions each
    Fill {
        #[arg(long, default_value_t = 10_000)]
        topics: usize,
        #[arg(long, default_value_t = 1000)]
        groups: usize,
    },
    /// Pages of the console, each so often, once they are of all that was made
    Pages {
        #[arg(long, default_value_t = 10_000)]
        topics: usize,
        #[arg(long, default_value_t = 1000)]
        groups: usize,
        #[arg(long, default_value_t = 20)]
        times: u32,
    },
    /// Keeps the console looking at the cluster, so many times
    Watch {
        #[arg(long, default_value_t = 4)]
        looks: u32,
    },
}

fn main() -> Told<()> {
    let typed = Arguments::parse();
    let line = match &typed.what {
        What::Post { connections, records } => posted(&typed, *connections, *records)?,
        What::Native => native(&typed)?,
        What::Pair => pair(&typed)?,
        What::Push { subscribers } => push(&typed, *subscribers)?,
        What::Idle { subscribers } => streams::idle(&typed.gateway, &typed.topic, *subscribers)?,
        What::FanOut { subscribers, records } => {
            cluster::topic(&typed.bootstrap, &typed.topic, typed.partitions)?;
            let ends = (typed.bootstrap.as_str(), typed.gateway.as_str());
            streams::fan_out(ends, &typed.topic, *subscribers, *records)?
        }
        What::Instances { groups, each, subscribe } => {
            cluster::topic(&typed.bootstrap, &typed.topic, typed.partitions)?;
            instances::instances(&instances::Wanted {
                bootstrap: &typed.bootstrap,
                gateway: &typed.gateway,
                topic: &typed.topic,
                partitions: typed.partitions,
                groups: *groups,
                each: *each,
                subscribes: *subscribe,
            })?
        }
        What::Fill { topics, groups } => cluster::fill(&typed.bootstrap, *topics, *groups)?,
        What::Pages { topics, groups, times } => {
            let made = console::Made { topics: *topics, groups: *groups };
            console::pages(&typed.gateway, made, *times)?
        }
        What::Watch { looks } => console::watch(&typed.gateway, *looks)?,
    };
    println!("{line}");
    Ok(())
}

/// Milliseconds of a share of a histogram of microseconds.
fn ms(histogram: &hdrhistogram::Histogram<u64>, share: f64) -> f64 {
    histogram.value_at_quantile(share) as f64 / 1e3
}

fn warmup(seconds: f64) -> Duration {
    Duration::from_secs_f64((seconds / 5.0).min(2.0))
}

fn posted(typed: &Arguments, connections: u32, records: u32) -> Told<Value> {
    cluster::topic(&typed.bootstrap, &typed.topic, typed.partitions)?;
    let report = post(
        &PostLoad {
            gateway: typed.gateway.clone(),
            topic: typed.topic.clone(),
            connections,
            records_per_request: records,
            sizes: Sizes::Fixed(typed.bytes),
            keys: Keys::None,
            payload: Payload::Reuse,
            query: String::new(),
            offered: typed.rate,
            records: 0,
            time: Duration::from_secs_f64(typed.seconds),
            warmup: warmup(typed.seconds),
            stamp: None,
            seed: 1,
        },
        &Stop::default(),
    )?;
    let elapsed_s = report.elapsed.as_secs_f64();
    Ok(json!({
        "requests_per_s": report.requests as f64 / elapsed_s,
        "records_per_s": report.records as f64 / elapsed_s,
        // CPU is counted from the warm-up on.
        "all_records": report.acknowledged,
        "failed": report.sent - report.acknowledged,
        "p50_ms": ms(&report.response, 0.5),
        "p99_ms": ms(&report.response, 0.99),
        "p999_ms": ms(&report.response, 0.999),
        "client_busy_share": report.busiest_share,
    }))
}

fn produce_load(typed: &Arguments) -> ProduceLoad {
    ProduceLoad {
        sizes: Sizes::Fixed(typed.bytes),
        offered: typed.rate,
        time: Duration::from_secs_f64(typed.seconds),
        warmup: warmup(typed.seconds),
        producer: ProducerConfig { linger: Duration::from_millis(5), ..ProducerConfig::default() },
        ..ProduceLoad::new(&typed.bootstrap, &typed.topic)
    }
}

fn native(typed: &Arguments) -> Told<Value> {
    cluster::topic(&typed.bootstrap, &typed.topic, typed.partitions)?;
    let report = produce(&produce_load(typed), &Stop::default())?;
    Ok(json!({
        "records_per_s": report.records_per_s,
        "all_records": report.acknowledged,
        "failed": report.failed,
        "p50_ms": ms(&report.response, 0.5),
        "p99_ms": ms(&report.response, 0.99),
    }))
}

fn pair(typed: &Arguments) -> Told<Value> {
    cluster::topic(&typed.bootstrap, &typed.topic, typed.partitions)?;
    let load = ProduceLoad { stamp: Some(1), ..produce_load(typed) };
    let read = ConsumeLoad { stamp: Some(1), ..ConsumeLoad::new(&typed.bootstrap, &typed.topic) };
    let (report, consumed) = both(&load, &read, &Stop::default())?;
    let verdict = consumed.findings.verdict(&report.acknowledgements);
    Ok(json!({
        "records_per_s": report.records_per_s,
        "all_records": report.acknowledged,
        "bytes_per_s": report.bytes_per_s,
        "all_bytes": report.acknowledged as f64 * typed.bytes as f64,
        "failed": report.failed,
        "lost": verdict.lost + verdict.duplicated + verdict.reordered + verdict.damaged,
        "p50_ms": ms(&report.response, 0.5),
        "p99_ms": ms(&report.response, 0.99),
        "e2e_p50_ms": ms(&consumed.end_to_end, 0.5),
        "e2e_p99_ms": ms(&consumed.end_to_end, 0.99),
    }))
}

fn push(typed: &Arguments, subscribers: u32) -> Told<Value> {
    cluster::topic(&typed.bootstrap, &typed.topic, typed.partitions)?;
    cluster::raise_open_files();
    let mut load = ProduceLoad { stamp: Some(1), ..produce_load(typed) };
    // What is slow shall not be the client's waiting for more.
    load.producer.linger = Duration::ZERO;
    let push = PushLoad {
        form: PushForm::Events,
        gateway: typed.gateway.clone(),
        topic: typed.topic.clone(),
        partitions: typed.partitions,
        subscribers,
        records: 0,
        idle: Duration::from_secs(20),
        stamp: Some(1),
    };
    let (report, read) = pushed(&load, &push, &Stop::default())?;
    let verdict = read.findings.verdict(&report.acknowledgements);
    let missing = u64::from(subscribers) * report.acknowledged - read.records;
    let seconds = read.elapsed.saturating_sub(read.opened).as_secs_f64();
    Ok(json!({
        "deliveries": read.records,
        "deliveries_per_s": read.records as f64 / seconds,
        "missing": missing,
        "lost": verdict.lost + verdict.duplicated + verdict.reordered + verdict.damaged,
        "gaps": read.gaps,
        "e2e_p50_ms": ms(&read.end_to_end, 0.5),
        "e2e_p99_ms": ms(&read.end_to_end, 0.99),
        "client_busy_share": read.busiest_share,
    }))
}
