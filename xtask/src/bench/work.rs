//! Doing the work of a row on one broker: which generator, with which arguments.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::broker::{Broker, Class, Target};
use super::figures::Figures;
use super::generator::{self, Load};
use super::meter::{Meter, settle, sum_of, words};
use super::rows::{Beside, PACED_5K, Paced, Produce, Work};
use peer::procfs;

/// How long a started broker rests before its memory is read.
const REST: Duration = Duration::from_secs(4);
/// How long an idle broker is watched.
const IDLE_WATCH: Duration = Duration::from_secs(10);
/// How long after the load's preparation a topic is deleted beside it: in its middle.
const DELETED_AFTER: Duration = Duration::from_secs(6);
/// Files that a broker full of partitions may have open.
const DESCRIPTORS: u64 = 20_000;
/// How long such a broker rests before its memory is read: files that lie idle are closed meanwhile.
const FULL_REST: Duration = Duration::from_secs(70);
/// How long such a broker is watched while no client is connected: each chore comes at least once.
const FULL_IDLE_WATCH: Duration = Duration::from_secs(60);
/// How long a start may take until the first record is acknowledged.
const FIRST_ACK_LIMIT: Duration = Duration::from_secs(300);

/// Writes what a row of reading will read; returns the topic, to be deleted after the last round.
pub fn prepare(meter: &Meter, broker: &Broker, work: Work) -> Result<Option<String>> {
    let (records, batch_bytes) = match work {
        Work::Fetch { records } => (records, 1_000_000),
        Work::JavaFetch { records, .. } => (records, 16_384),
        _ => return Ok(None),
    };
    let topic = meter.create_topic(broker, 1)?;
    meter.run(&broker.pids(), &flood(broker, &topic, batch_bytes, records))?;
    settle();
    Ok(Some(topic))
}

/// One run of load on a running broker. `prepared` is what [`prepare`] made.
pub fn load(meter: &Meter, broker: &Broker, work: Work, prepared: Option<&str>) -> Result<Figures> {
    match work {
        Work::Produce(shape) => meter
            .run_on_fresh_topic(broker, shape.partitions, |topic| produce(broker, topic, &shape)),
        Work::Paced(shape) => paced(meter, broker, &shape),
        Work::JavaProduce { records } => {
            meter.run_on_fresh_topic(broker, 1, |topic| java_produce(broker, topic, records))
        }
        Work::Flood { batch_bytes, records } => {
            meter.run_on_fresh_topic(broker, 1, |topic| flood(broker, topic, batch_bytes, records))
        }
        Work::Fetch { records } => {
            meter.run(&broker.pids(), &fetch(broker, prepared.context("nothing to read")?, records))
        }
        Work::JavaFetch { records, fetch_bytes } => {
            let topic = prepared.context("nothing to read")?;
            meter.run(&broker.pids(), &java_fetch(broker, topic, records, fetch_bytes))
        }
        Work::Connections { rate, seconds, many } => {
            connections(meter, broker, rate, seconds, many)
        }
        Work::FixedCosts | Work::Idle | Work::ManyPartitions { .. } | Work::FullBroker { .. } => {
            unreachable!("these start brokers of their own")
        }
    }
}

/// Brings a broker, above all one with a compiler inside, to its working temperature.
pub fn warm_up(meter: &Meter, broker: &Broker, quick: bool) -> Result<()> {
    let small = Produce {
        record_bytes: 1024,
        batch_bytes: 16_384,
        partitions: 1,
        records: 1_500_000,
        acks: "all",
        device: false,
    };
    let large = Produce { batch_bytes: 1_000_000, partitions: 6, ..small };
    let tiny = Produce { record_bytes: 128, records: 5_000_000, ..large };
    let all = [
        Work::Produce(small),
        Work::Paced(Paced { seconds: 8, ..PACED_5K }),
        Work::Produce(large),
        Work::Produce(tiny),
        Work::JavaProduce { records: 200_000 },
    ];
    for work in all {
        let work = if quick { work.quick() } else { work };
        load(meter, broker, work, None)?;
    }
    Ok(())
}

fn produce(broker: &Broker, topic: &str, shape: &Produce) -> Load {
    let mut arguments = words(&["produce", "--bootstrap", &broker.bootstrap(), "--topic", topic]);
    arguments.extend(words(&["--records", &shape.records.to_string(), "--acks", shape.acks]));
    arguments.extend(words(&["--record-bytes", &shape.record_bytes.to_string()]));
    arguments.extend(words(&["--batch-bytes", &shape.batch_bytes.to_string()]));
    Load::Native(arguments)
}

/// At a fixed rate, with what is to happen beside.
fn paced(meter: &Meter, broker: &Broker, shape: &Paced) -> Result<Figures> {
    let bootstrap = broker.bootstrap();
    match shape.beside {
        Beside::Nothing => {
            meter.run_on_fresh_topic(broker, 1, |topic| paced_load(&bootstrap, topic, shape))
        }
        Beside::Rolling(bytes) => {
            let config = format!("segment.bytes={bytes}");
            let topic = meter.create_topic_with(broker, 1, &[&config])?;
            let outcome = meter.run(&broker.pids(), &paced_load(&bootstrap, &topic, shape));
            meter.delete_topic(broker, &topic)?;
            settle();
            outcome
        }
        Beside::Deletion(bytes) => {
            let doomed = meter.create_topic(broker, 1)?;
            meter.run(&broker.pids(), &flood(broker, &doomed, 1_000_000, bytes / 1024))?;
            let deleting = meter.delete_later(broker, &doomed, DELETED_AFTER)?;
            let outcome =
                meter.run_on_fresh_topic(broker, 1, |topic| paced_load(&bootstrap, topic, shape));
            generator::finish(deleting, FIRST_ACK_LIMIT)?;
            outcome
        }
    }
}

/// The measured load, behind a second of warm-up.
pub fn paced_load(bootstrap: &str, topic: &str, shape: &Paced) -> Load {
    let records = (shape.rate * (shape.seconds + 1)).to_string();
    let rate = shape.rate.to_string();
    let linger = shape.linger_ms.to_string();
    let mut arguments = words(&["produce", "--bootstrap", bootstrap, "--topic", topic]);
    arguments.extend(words(&["--records", &records, "--warmup-records", &rate]));
    arguments.extend(words(&["--rate", &rate, "--linger-ms", &linger, "--acks", shape.acks]));
    if shape.read {
        arguments.push("--read".to_owned());
    }
    Load::Native(arguments)
}

fn fetch(broker: &Broker, topic: &str, records: u64) -> Load {
    let records = records.to_string();
    let bootstrap = broker.bootstrap();
    let arguments = ["consume", "--bootstrap", &bootstrap, "--topic", topic, "--records", &records];
    Load::Native(words(&arguments))
}

fn flood(broker: &Broker, topic: &str, batch_bytes: u64, records: u64) -> Load {
    let (batch_bytes, records) = (batch_bytes.to_string(), records.to_string());
    let mut arguments = words(&["flood", "--bootstrap", &broker.bootstrap(), "--topic", topic]);
    arguments.extend(words(&["--batch-bytes", &batch_bytes, "--records", &records]));
    Load::Raw(arguments)
}

fn java_produce(broker: &Broker, topic: &str, records: u64) -> Load {
    let bootstrap = format!("bootstrap.servers={}", broker.bootstrap());
    let mut arguments = words(&["--topic", topic, "--num-records", &records.to_string()]);
    arguments.extend(words(&["--record-size", "1024", "--throughput", "-1"]));
    arguments.extend(words(&["--producer-props", &bootstrap, "acks=1"]));
    Load::Java("kafka-producer-perf-test", arguments, generator::java_producer_figures)
}

fn java_fetch(broker: &Broker, topic: &str, records: u64, fetch_bytes: u64) -> Load {
    let (records, fetch_bytes) = (records.to_string(), fetch_bytes.to_string());
    let mut arguments = words(&["--bootstrap-server", &broker.bootstrap(), "--topic", topic]);
    arguments.extend(words(&["--num-records", &records, "--fetch-size", &fetch_bytes]));
    arguments.extend(words(&["--timeout", "60000"]));
    Load::Java("kafka-consumer-perf-test", arguments, generator::java_consumer_figures)
}

/// The same rate over one connection, one request in flight and as many as are due, then over many connections. The figures are
/// those of the many. With one in flight, each request wakes the broker, as those of many connections do.
fn connections(
    meter: &Meter,
    broker: &Broker,
    rate: u64,
    seconds: u64,
    many: u64,
) -> Result<Figures> {
    let (rate, seconds) = (rate.to_string(), (seconds + 1).to_string());
    let run = |count: u64, more: &[&str]| {
        meter.run_on_fresh_topic(broker, 1, |topic| {
            let count = count.to_string();
            let mut arguments =
                words(&["rate", "--bootstrap", &broker.bootstrap(), "--topic", topic]);
            arguments.extend(words(&["--connections", &count, "--rate", &rate]));
            arguments.extend(words(&["--seconds", &seconds]));
            arguments.extend(words(more));
            Load::Raw(arguments)
        })
    };
    let (alone, streamed) = (run(1, &["--window", "1"])?, run(1, &[])?);
    let mut figures = run(many, &[])?;
    let cost = |figures: &Figures| {
        figures.get("cpu_us_per_request").copied().context("no cost of a request")
    };
    let many_us = cost(&figures)?;
    let mut compare = |with: &str, one: &Figures| -> Result<()> {
        let one_us = cost(one)?;
        figures.insert(format!("cpu_us_per_request_of_one_{with}"), one_us);
        figures.insert(format!("cpu_times_one_{with}"), many_us / one_us);
        figures.extend(one.get("p99_ms").map(|p99| (format!("p99_ms_of_one_{with}"), *p99)));
        Ok(())
    };
    compare("in_flight", &alone)?;
    compare("connection", &streamed)?;
    Ok(figures)
}

/// Start-up of a fresh broker; memory, idle CPU of `running`, which has worked; size.
pub fn fixed_costs(meter: &Meter, target: &Target, running: &Broker) -> Result<Figures> {
    let mut figures = Figures::new();
    let mut fresh = Broker::start(target, Class::PageCache, 1)?;
    fresh.stop()?;
    let start = start_until_acked(meter, &mut fresh, &[meter.fresh_topic()], 1, false)?;
    figures.insert("start_s".to_owned(), start);
    thread::sleep(REST);
    figures.insert("idle_mib".to_owned(), procfs::resident_mib(fresh.pid())?);
    fresh.stop()?;
    drop(fresh);
    let percent = idle_cpu_percent(running, IDLE_WATCH)?;
    figures.insert("idle_cpu_percent".to_owned(), percent);
    figures.insert("loaded_mib".to_owned(), procfs::resident_mib(running.pid())?);
    figures.insert("program_mb".to_owned(), target.program_mb()?);
    Ok(figures)
}

/// Memory and CPU of fresh brokers without clients.
pub fn idle(target: &Target, class: Class, brokers: u16) -> Result<Figures> {
    let fresh = Broker::start(target, class, brokers)?;
    thread::sleep(REST);
    let mut figures = Figures::new();
    figures.insert("idle_cpu_percent".to_owned(), idle_cpu_percent(&fresh, IDLE_WATCH)?);
    figures.insert("idle_mib".to_owned(), sum_of(&fresh.pids(), procfs::resident_mib)?);
    Ok(figures)
}

/// Starts a stopped broker; returns the seconds from the start of its process until all partitions
/// have leaders, and the first and the last one of every topic have acknowledged a record.
fn start_until_acked(
    meter: &Meter,
    broker: &mut Broker,
    topics: &[String],
    partitions: u64,
    existing: bool,
) -> Result<f64> {
    let (topics, partitions) = (topics.join(","), partitions.to_string());
    let mut arguments = words(&["first-ack", "--bootstrap", &broker.bootstrap()]);
    arguments.extend(words(&["--topics", &topics, "--partitions", &partitions]));
    arguments.extend(words(&["--limit-seconds", &FIRST_ACK_LIMIT.as_secs().to_string()]));
    if existing {
        arguments.push("--existing".to_owned());
    }
    // It asks before the broker is there, so that nothing is missed.
    let asking = meter.generators.start_raw(&arguments)?;
    let begun = broker.start_again()?;
    let figures = generator::finish(asking, FIRST_ACK_LIMIT)?;
    broker.check_ports()?;
    let acked = figures.get("acked_unix_s").context("no time of the acknowledgement")?;
    ensure!(*acked > begun, "acknowledged before it was started");
    Ok(acked - begun)
}

/// A broker of its own with thousands of partitions: creating, memory, start after a clean stop, and
/// start after a kill with a lot of log.
pub fn many_partitions(
    meter: &Meter,
    target: &Target,
    class: Class,
    (topics, partitions, log_bytes): (u64, u64, u64),
) -> Result<Figures> {
    let mut figures = Figures::new();
    let mut broker = Broker::start(target, class, 1)?;
    let names: Vec<String> = (0..topics).map(|_| meter.fresh_topic()).collect();
    let mut create = words(&["topic", "create", "--bootstrap", &broker.bootstrap()]);
    create.extend(words(&["--topics", &names.join(",")]));
    create.extend(words(&["--partitions", &partitions.to_string(), "--limit-seconds", "250"]));
    let created = meter.generators.run(&Load::Raw(create), FIRST_ACK_LIMIT)?;
    figures.extend(created.get("seconds").map(|seconds| ("create_s".to_owned(), *seconds)));
    thread::sleep(REST);
    figures.insert("resident_mib".to_owned(), procfs::resident_mib(broker.pid())?);
    broker.stop()?;
    let clean = start_until_acked(meter, &mut broker, &names, partitions, true)?;
    figures.insert("clean_start_s".to_owned(), clean);
    for topic in &names {
        meter.generators.run(&spread_flood(&broker, topic, log_bytes / topics), FIRST_ACK_LIMIT)?;
    }
    figures.insert("loaded_mib".to_owned(), procfs::resident_mib(broker.pid())?);
    broker.kill()?;
    let recovery = start_until_acked(meter, &mut broker, &names, partitions, true)?;
    figures.insert("recovery_start_s".to_owned(), recovery);
    drop(broker);
    settle();
    Ok(figures)
}

/// A broker of its own, full of partitions that one request makes, each written once: what they cost
/// while it runs, stops and starts, with the descriptors of [`DESCRIPTORS`].
pub fn full_broker(
    meter: &Meter,
    target: &Target,
    class: Class,
    (topics, partitions, log_bytes): (u64, u64, u64),
) -> Result<Figures> {
    let _until_the_end = Descriptors::limit_to(DESCRIPTORS)?;
    let mut figures = Figures::new();
    let mut broker = Broker::start(target, class, 1)?;
    let names: Vec<String> = (0..topics).map(|_| meter.fresh_topic()).collect();
    let ask = |broker: &Broker, what: &[&str]| {
        let (bootstrap, partitions) = (broker.bootstrap(), partitions.to_string());
        let mut arguments = words(what);
        arguments.extend(words(&["--bootstrap", &bootstrap, "--topics", &names.join(",")]));
        arguments.extend(words(&["--partitions", &partitions]));
        meter.generators.run(&Load::Raw(arguments), FIRST_ACK_LIMIT)
    };
    let mut keep = |name: &str, value: Option<f64>| {
        figures.extend(value.map(|value| (name.to_owned(), value)));
    };
    let created = ask(&broker, &["topic", "create", "--together", "--limit-seconds", "250"])?;
    keep("create_s", created.get("seconds").copied());
    ask(&broker, &["write-each"])?;
    thread::sleep(FULL_REST);
    keep("written_mib", Some(procfs::resident_mib(broker.pid())?));
    keep("idle_cpu_percent", Some(idle_cpu_percent(&broker, FULL_IDLE_WATCH)?));
    let deleted = ask(&broker, &["delete-each", "--count", "1000"])?;
    keep("delete_p50_ms", deleted.get("p50_ms").copied());
    keep("delete_p99_ms", deleted.get("p99_ms").copied());
    let stopping = Instant::now();
    broker.stop()?;
    keep("stop_s", Some(stopping.elapsed().as_secs_f64()));
    keep("clean_start_s", Some(start_until_acked(meter, &mut broker, &names, partitions, true)?));
    for topic in &names {
        meter.generators.run(&spread_flood(&broker, topic, log_bytes / topics), FIRST_ACK_LIMIT)?;
    }
    broker.kill()?;
    keep(
        "recovery_start_s",
        Some(start_until_acked(meter, &mut broker, &names, partitions, true)?),
    );
    drop(broker);
    settle();
    Ok(figures)
}

/// Brokers that are started while it lives may open so many files; those of later rows as many as before.
struct Descriptors {
    before: Rlimit,
}

impl Descriptors {
    fn limit_to(count: u64) -> Result<Descriptors> {
        let before = getrlimit(Resource::Nofile);
        let possible = before.maximum.is_none_or(|most| most >= count);
        ensure!(possible, "the row wants {count} descriptors: raise the hard limit");
        setrlimit(Resource::Nofile, Rlimit { current: Some(count), ..before })?;
        Ok(Descriptors { before })
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // A soft limit may always be set back to where it was.
        let _restored = setrlimit(Resource::Nofile, self.before);
    }
}

/// Processor time that brokers use while no client is connected.
fn idle_cpu_percent(broker: &Broker, watch: Duration) -> Result<f64> {
    let processes = broker.pids();
    let before = sum_of(&processes, procfs::threads_cpu_s)?;
    thread::sleep(watch);
    let used = sum_of(&processes, procfs::threads_cpu_s)? - before;
    Ok((used / watch.as_secs_f64() * 100.0).max(0.0))
}

/// Batches of 1 MB over the first hundred partitions of a topic.
fn spread_flood(broker: &Broker, topic: &str, bytes: u64) -> Load {
    let records = (bytes / 1024).to_string();
    let mut arguments = words(&["flood", "--bootstrap", &broker.bootstrap(), "--topic", topic]);
    arguments.extend(words(&["--partitions", "100", "--connections", "100", "--window", "1"]));
    // Metadata may name the leader a moment before the leader itself knows.
    arguments.push("--retry-not-leader".to_owned());
    arguments.extend(words(&["--batch-bytes", "1000000", "--records", &records]));
    Load::Raw(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_descriptors_ends_with_its_row() {
        let current = || getrlimit(Resource::Nofile).current;
        let before = current();
        let fewer = before.map_or(4096, |before| before - 1);
        let limited = Descriptors::limit_to(fewer).unwrap();
        assert_eq!(current(), Some(fewer));
        drop(limited);
        assert_eq!(current(), before);
    }
}
