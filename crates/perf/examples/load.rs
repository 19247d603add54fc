//! Produces as fast as one thread can, into a sink of its own or a cluster, and says what that cost:
//! `cargo run --release -p perf --example load -- --seconds 3 [--bootstrap HOST:PORT --topic T]`.

use clap::Parser;
use client::ProducerConfig;
use perf::load::{
    ConsumeLoad, Payload, ProduceLoad, Sink, Sizes, Stop, Strategy, consume, produce, verify,
};
use std::time::Duration;

#[derive(Parser)]
struct Arguments {
    /// A cluster; without it a sink that throws all away
    #[arg(long)]
    bootstrap: Option<String>,
    #[arg(long, default_value = "load")]
    topic: String,
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Instead of seconds, without a warm-up
    #[arg(long, default_value_t = 0)]
    records: u64,
    #[arg(long, default_value_t = 0.5)]
    warmup_seconds: f64,
    #[arg(long, default_value_t = 128)]
    record_bytes: usize,
    #[arg(long, default_value_t = 1)]
    producers: u32,
    /// Records a second; 0 for as many as possible
    #[arg(long, default_value_t = 0.0)]
    rate: f64,
    #[arg(long, default_value_t = 16_384)]
    batch_bytes: usize,
    #[arg(long, default_value_t = 5)]
    linger_ms: u64,
    /// Partitions of the sink's topics
    #[arg(long, default_value_t = 1)]
    partitions: i32,
    /// Fills each value anew
    #[arg(long)]
    fresh: bool,
    /// Marks the values; in a cluster they are then read back
    #[arg(long)]
    stamp: bool,
    /// Reads everything in the topic afterwards
    #[arg(long)]
    consume: bool,
    /// Does not wait for a copy on the device, as acks=1
    #[arg(long)]
    leader_only: bool,
    /// Prints one line of JSON instead
    #[arg(long)]
    json: bool,
    /// Deals records out one by one
    #[arg(long)]
    round_robin: bool,
    /// Only serves as a sink, on this address
    #[arg(long)]
    sink_at: Option<String>,
    /// Syncs into this file, which is made, what the sink is sent, before it is acknowledged
    #[arg(long)]
    sync_into: Option<std::path::PathBuf>,
}

fn main() -> Result<(), perf::load::LoadError> {
    let arguments = Arguments::parse();
    if let Some(address) = &arguments.sink_at {
        Sink::start_at(address, arguments.partitions, arguments.sync_into.as_deref())?.wait();
        return Ok(());
    }
    let sink = match arguments.bootstrap {
        None => Some(Sink::start(arguments.partitions)?),
        Some(_) => None,
    };
    let own = sink.as_ref().map(Sink::bootstrap);
    let bootstrap = arguments.bootstrap.clone().or(own).unwrap_or_default();
    let mut load = load(&arguments, &bootstrap);
    load.stamp = arguments.stamp.then(|| fastrand::u32(..));
    let report = produce(&load, &Stop::default())?;
    if arguments.json {
        println!(
            "{{\"records\": {}, \"records_per_s\": {}, \"producer_cpu_s\": {}, \"failed\": {}}}",
            report.acknowledged,
            report.records_per_s,
            report.cpu.as_secs_f64(),
            report.failed
        );
        return Ok(());
    }
    let us = |p: f64| report.response.value_at_quantile(p);
    println!(
        "{:.0} records/s, {:.1} MiB/s; {:.0} ns of CPU a record, busiest thread {:.0} %",
        report.records_per_s,
        report.bytes_per_s / f64::from(1 << 20),
        report.cpu.as_nanos() as f64 / report.metrics.records.max(1) as f64,
        report.busiest_share * 100.0,
    );
    println!(
        "response p50 {} µs, p99 {} µs, max {} µs; delay p99 {} µs; batches {:.2} full, {:.0} \
         records a request, {:.2} in flight; {} failed {:?}",
        us(0.5),
        us(0.99),
        report.response.max(),
        report.delay.value_at_quantile(0.99),
        report.batch_fill,
        report.metrics.records_per_request(),
        report.metrics.in_flight_mean(),
        report.failed,
        report.errors,
    );
    if sink.is_none() && arguments.stamp {
        let verdict = verify(&bootstrap, &report.acknowledgements, Duration::from_secs(5))?;
        println!("{verdict:?}");
    }
    if sink.is_none() && arguments.consume {
        read(&bootstrap, &arguments.topic, load.stamp)?;
    }
    Ok(())
}

fn read(bootstrap: &str, topic: &str, stamp: Option<u32>) -> Result<(), perf::load::LoadError> {
    let load = ConsumeLoad { stamp, ..ConsumeLoad::new(bootstrap, topic) };
    let report = consume(&load, &Stop::default())?;
    let seconds = (report.elapsed - report.first_record.unwrap_or_default()).as_secs_f64();
    println!(
        "read {} records, {:.0} records/s; {:.0} ns of CPU a record; {} fetches, p50 {} µs",
        report.records,
        report.records as f64 / seconds,
        report.cpu.as_nanos() as f64 / report.records.max(1) as f64,
        report.fetches,
        report.fetch.value_at_quantile(0.5),
    );
    Ok(())
}

fn load(arguments: &Arguments, bootstrap: &str) -> ProduceLoad {
    let by_records = arguments.records > 0;
    ProduceLoad {
        producers: arguments.producers,
        sizes: Sizes::Fixed(arguments.record_bytes),
        offered: arguments.rate,
        payload: if arguments.fresh { Payload::Fresh } else { Payload::Reuse },
        strategy: if arguments.round_robin { Strategy::RoundRobin } else { Strategy::Murmur2 },
        records: arguments.records,
        time: Duration::from_secs_f64(if by_records { 0.0 } else { arguments.seconds }),
        warmup: Duration::from_secs_f64(if by_records { 0.0 } else { arguments.warmup_seconds }),
        producer: ProducerConfig {
            acks: if arguments.leader_only { 1 } else { -1 },
            idempotence: !arguments.leader_only,
            batch_bytes: arguments.batch_bytes,
            linger: Duration::from_millis(arguments.linger_ms),
            ..ProducerConfig::default()
        },
        ..ProduceLoad::new(bootstrap, &arguments.topic)
    }
}
