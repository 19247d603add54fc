//! A producer, flat out (closed by the client's full queue) or at a fixed rate (open loop).
//!
//! At a fixed rate a record's latency counts from the time at which it should have been sent, so a
//! broker that stalls is charged for what waited. Reports are taken in between sends, at least every
//! [`TICK`]: that much a latency may be overstated, for every broker alike.
//!
//! With `--read` a consumer waits at the end meanwhile; each record carries when it should have been
//! sent, from which its way through the broker is counted.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::Args;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::{ClientConfig, ClientContext, Statistics};
use serde_json::{Map, Value, json};

use crate::latency::Latency;
use crate::reader::{self, Reader};

/// How often delivery reports are taken at a fixed rate.
const TICK: Duration = Duration::from_micros(100);
/// Flat out, one record in so many is timed.
const TIMED_EVERY: u64 = 64;
/// The opaque of a record that is not timed.
const UNTIMED: usize = usize::MAX;
/// Why a lock of the reports is never poisoned: a poisoned lock means that a thread panicked while it held it.
const POISONED: &str = "no thread panics while it holds a lock of the reports";
/// How often librdkafka reports its counters.
const STATISTICS: Duration = Duration::from_millis(500);

/// What to produce.
#[derive(Args)]
pub struct Arguments {
    #[arg(long)]
    bootstrap: String,
    /// An existing topic
    #[arg(long)]
    topic: String,
    #[arg(long)]
    records: u64,
    #[arg(long, default_value_t = 1024)]
    record_bytes: usize,
    /// librdkafka's batch.size
    #[arg(long, default_value_t = 1_000_000)]
    batch_bytes: usize,
    #[arg(long, default_value_t = 5)]
    linger_ms: u32,
    /// 1 or all
    #[arg(long, default_value = "1")]
    acks: String,
    /// Records a second; flat out without
    #[arg(long)]
    rate: Option<f64>,
    /// How many records from the start are left out of the latencies
    #[arg(long, default_value_t = 0)]
    warmup_records: u64,
    /// Read the records at the same time, from partition 0 of the topic, which is to be empty
    #[arg(long, requires = "rate")]
    read: bool,
    /// Any other property of librdkafka, KEY=VALUE
    #[arg(long = "set")]
    set: Vec<String>,
    #[arg(long, default_value_t = 180)]
    limit_seconds: u64,
}

/// What the delivery reports add up to.
struct Reports {
    start: Instant,
    delivered: AtomicU64,
    failed: AtomicU64,
    /// When the last record was acknowledged, in nanoseconds after the start.
    last_ns: AtomicU64,
    /// Produce requests sent so far, as librdkafka counts them.
    requests: AtomicI64,
    /// How many times it told.
    statistics: AtomicU64,
    latency: Mutex<Latency>,
    first_error: Mutex<Option<KafkaError>>,
}

/// The callbacks' end of [`Reports`].
struct Context(Arc<Reports>);

impl ClientContext for Context {
    fn stats(&self, statistics: Statistics) {
        let produced = statistics.brokers.values().filter_map(|broker| broker.req.get("Produce"));
        self.0.requests.store(produced.sum(), Ordering::Relaxed);
        self.0.statistics.fetch_add(1, Ordering::Relaxed);
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;

    /// `intended` is nanoseconds after the start.
    fn delivery(&self, result: &DeliveryResult<'_>, intended: usize) {
        let reports = &self.0;
        if let Err((error, _)) = result {
            reports.failed.fetch_add(1, Ordering::Relaxed);
            let mut first = reports.first_error.lock().expect(POISONED);
            first.get_or_insert_with(|| error.clone());
            return;
        }
        reports.delivered.fetch_add(1, Ordering::Relaxed);
        if intended != UNTIMED {
            let now = reports.start.elapsed();
            let latency = now.saturating_sub(Duration::from_nanos(intended as u64));
            reports.latency.lock().expect(POISONED).record(latency);
        }
    }
}

/// Runs until everything is acknowledged; returns the line to print.
pub fn run(arguments: &Arguments) -> Result<String> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000))?;
    let reports = Arc::new(Reports::new());
    let producer: BaseProducer<Context> =
        configuration(arguments)?.create_with_context(Context(Arc::clone(&reports)))?;
    // Metadata first: the run is about producing. What this takes is left out below.
    producer.client().fetch_metadata(Some(&arguments.topic), Duration::from_secs(10))?;
    let reader = arguments.read.then(|| {
        let warmup = arguments.warmup_records;
        Reader::start(&arguments.bootstrap, &arguments.topic, reports.start, warmup)
    });
    let reader = reader.transpose()?;
    let mut run = Run {
        arguments,
        producer,
        begin: reports.start.elapsed(),
        reports,
        value: text(arguments.record_bytes),
    };
    match arguments.rate {
        Some(rate) => run.at_rate(rate)?,
        None => run.flat_out()?,
    }
    run.drain()?;
    let mut line = run.line()?;
    if let Some(reader) = reader {
        reader.finish(arguments.records)?.write("read_", &mut line);
    }
    Ok(Value::Object(line).to_string())
}

fn configuration(arguments: &Arguments) -> Result<ClientConfig> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", &arguments.bootstrap)
        .set("client.id", "rdload")
        .set("linger.ms", arguments.linger_ms.to_string())
        .set("batch.size", arguments.batch_bytes.to_string())
        .set("acks", &arguments.acks)
        .set("queue.buffering.max.messages", "500000")
        .set("statistics.interval.ms", STATISTICS.as_millis().to_string());
    crate::set_all(&mut config, &arguments.set)?;
    Ok(config)
}

impl Reports {
    fn new() -> Reports {
        Reports {
            start: Instant::now(),
            delivered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            requests: AtomicI64::new(0),
            statistics: AtomicU64::new(0),
            latency: Mutex::new(Latency::new()),
            first_error: Mutex::new(None),
        }
    }

    fn reported(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed) + self.failed.load(Ordering::Relaxed)
    }
}

/// One run of the producer.
struct Run<'a> {
    arguments: &'a Arguments,
    producer: BaseProducer<Context>,
    reports: Arc<Reports>,
    /// When sending began, after the reports' start.
    begin: Duration,
    value: Vec<u8>,
}

impl Run<'_> {
    fn flat_out(&self) -> Result<()> {
        let mut sent = 0;
        while sent < self.arguments.records {
            let timed = sent >= self.arguments.warmup_records && sent % TIMED_EVERY == 0;
            let stamp = if timed { self.now_ns() } else { UNTIMED };
            if self.send(stamp)? {
                sent += 1;
                if sent % 1000 == 0 {
                    self.poll_once();
                }
            } else {
                // The client's queue is full: let it drain a little, as its documentation advises.
                self.take_reports();
                thread::sleep(Duration::from_millis(1));
                self.check_time()?;
            }
        }
        Ok(())
    }

    fn at_rate(&mut self, rate: f64) -> Result<()> {
        let begin = self.begin;
        let intended = |number: u64| begin + Duration::from_secs_f64(number as f64 / rate);
        let mut sent = 0;
        while sent < self.arguments.records {
            let due = intended(sent);
            let now = self.reports.start.elapsed();
            if due > now {
                self.take_reports();
                let now = self.reports.start.elapsed();
                thread::sleep(due.saturating_sub(now).min(TICK));
                continue;
            }
            let timed = sent >= self.arguments.warmup_records;
            let stamp = if timed { usize::try_from(due.as_nanos())? } else { UNTIMED };
            if self.arguments.read {
                reader::stamp(&mut self.value, due);
            }
            if self.send(stamp)? {
                sent += 1;
            } else {
                self.take_reports();
                self.check_time()?;
            }
        }
        Ok(())
    }

    /// Hands one record to the client; `false` when its queue is full.
    fn send(&self, stamp: usize) -> Result<bool> {
        let record: BaseRecord<'_, (), [u8], usize> =
            BaseRecord::with_opaque_to(&self.arguments.topic, stamp).payload(&self.value);
        match self.producer.send(record) {
            Ok(()) => Ok(true),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => Ok(false),
            Err((error, _)) => Err(error.into()),
        }
    }

    fn now_ns(&self) -> usize {
        usize::try_from(self.reports.start.elapsed().as_nanos()).unwrap_or(UNTIMED)
    }

    fn poll_once(&self) {
        self.producer.poll(Duration::ZERO);
    }

    /// Takes all reports that are there.
    fn take_reports(&self) {
        loop {
            let before = self.reports.reported();
            self.poll_once();
            if self.reports.reported() == before {
                return;
            }
            let now = u64::try_from(self.reports.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.reports.last_ns.store(now, Ordering::Relaxed);
        }
    }

    fn check_time(&self) -> Result<()> {
        let limit = Duration::from_secs(self.arguments.limit_seconds);
        ensure!(self.reports.start.elapsed() < limit, "not done after {limit:?}");
        Ok(())
    }

    /// Waits for the last acknowledgement, then for one more report of the counters.
    fn drain(&self) -> Result<()> {
        while self.reports.reported() < self.arguments.records {
            self.take_reports();
            self.check_time()?;
            thread::sleep(TICK);
        }
        let told = self.reports.statistics.load(Ordering::Relaxed);
        let patience = Instant::now() + 4 * STATISTICS;
        while self.reports.statistics.load(Ordering::Relaxed) == told && Instant::now() < patience {
            self.producer.poll(Duration::from_millis(5));
        }
        Ok(())
    }

    fn line(&self) -> Result<Map<String, Value>> {
        let reports = &self.reports;
        if let Some(error) = &*reports.first_error.lock().expect(POISONED) {
            let failed = reports.failed.load(Ordering::Relaxed);
            bail!("{failed} records were not acknowledged, the first because: {error}");
        }
        let records = reports.delivered.load(Ordering::Relaxed);
        let last = Duration::from_nanos(reports.last_ns.load(Ordering::Relaxed));
        let seconds = last.saturating_sub(self.begin).as_secs_f64();
        let mut line = Map::<String, Value>::new();
        line.insert("records".to_owned(), json!(records));
        line.insert("requests".to_owned(), json!(reports.requests.load(Ordering::Relaxed)));
        line.insert("bytes".to_owned(), json!(records * self.arguments.record_bytes as u64));
        line.insert("seconds".to_owned(), json!(seconds));
        reports.latency.lock().expect(POISONED).write("", &mut line);
        Ok(line)
    }
}

/// Letters without a pattern, the same in every run.
fn text(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b'A' + (state % 26) as u8
    };
    (0..bytes).map(|_| letter()).collect()
}
