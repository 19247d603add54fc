//! One producer of the tool: a thread with a runtime of its own, so that filling values, batching and
//! sending share a core without waking each other across threads.

use super::super::clock::Clock;
use super::super::console::Console;
use super::super::failure::ToolError;
use super::super::letters::Letters;
use super::super::producer_settings::{Partitioner, ProducerSettings};
use super::super::reach;
use super::arguments::{Extras, Plan};
use super::keys::Keys;
use super::payload::Payload;
use super::tally::{Tag, Tally};
use super::throttle::{Pace, Throttle};
use super::transactions::Transactions;
use client::producer::{Fed, Feed, ProducerMetrics};
use client::{ClientError, Cluster, ClusterConfig, Producer, Record};
use model::partitioner::{Sticky, partition_of_key};
use model::{ErrorCode, Timestamp};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::oneshot;

/// The sender runs at least once in so many records, even if no batch was closed.
const RECORDS_BETWEEN_YIELDS: u64 = 1024;

/// What one producer has to do.
pub struct Job {
    /// Which of all producers it is, from 0.
    pub index: u32,
    /// What all do together.
    pub plan: Plan,
    /// Values.
    pub payload: Payload,
    /// How records are sent.
    pub producer: ProducerSettings,
    /// Where to.
    pub cluster: ClusterConfig,
    /// For latencies.
    pub clock: Clock,
    /// Where results go.
    pub tally: Arc<Mutex<Tally>>,
    /// Where notices go.
    pub console: Arc<Console>,
}

/// A producer's thread.
pub struct Sender {
    connected: Option<oneshot::Receiver<()>>,
    start: Option<oneshot::Sender<Instant>>,
    thread: Option<JoinHandle<Result<ProducerMetrics, ToolError>>>,
}

impl Sender {
    /// Starts the thread; it connects and then waits.
    pub fn spawn(job: Job) -> Result<Sender, ToolError> {
        let failed = |e: std::io::Error| ToolError::failed(format!("cannot start a producer: {e}"));
        let (connected, is_connected) = oneshot::channel();
        let (start, is_started) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let name = format!("producer-{}", job.index);
        let run = move || runtime.block_on(run(job, connected, is_started));
        let thread = std::thread::Builder::new().name(name).spawn(run).map_err(failed)?;
        Ok(Sender { connected: Some(is_connected), start: Some(start), thread: Some(thread) })
    }

    /// Waits until it is connected; or else says why not.
    pub fn connected(&mut self) -> Result<(), ToolError> {
        let Some(connected) = self.connected.take() else { return Ok(()) };
        match connected.blocking_recv() {
            Ok(()) => Ok(()),
            Err(_) => self.end().map(|_| ()),
        }
    }

    /// Lets it send.
    pub fn start(&mut self, at: Instant) {
        // It may have failed meanwhile; joining tells.
        let _ = self.start.take().map(|start| start.send(at));
    }

    /// Waits until all its records have ended.
    pub fn join(mut self) -> Result<ProducerMetrics, ToolError> {
        self.end()
    }

    fn end(&mut self) -> Result<ProducerMetrics, ToolError> {
        let Some(thread) = self.thread.take() else { return Ok(ProducerMetrics::default()) };
        thread.join().unwrap_or_else(|_| Err(ToolError::failed("a producer's thread panicked")))
    }
}

async fn run(
    job: Job,
    connected: oneshot::Sender<()>,
    start: oneshot::Receiver<Instant>,
) -> Result<ProducerMetrics, ToolError> {
    let mut cluster = job.cluster.clone();
    if job.plan.producers > 1 {
        cluster.connection.client_id += &format!("-{}", job.index + 1);
    }
    let tally = job.tally.clone();
    let mut config = job.producer.config.clone();
    if let Some(id) = config.transactional_id.as_mut().filter(|_| job.plan.producers > 1) {
        // Of two producers with one id the second would fence the first.
        *id += &format!("-{}", job.index + 1);
    }
    let is_transactional = config.transactional_id.is_some();
    config.on_batch = Some(Arc::new(move |report| lock(&tally).batch(report)));
    let cluster = match job.index {
        0 => reach::connect(cluster, &job.console).await?,
        // One of them tells.
        _ => Cluster::connect(cluster).await?,
    };
    let producer = Producer::new(cluster, config).await;
    let producer = producer.map_err(|error| refusal(error, is_transactional))?;
    // Whoever waits has given up if nobody listens.
    let _ = connected.send(());
    let Ok(start) = start.await else { return Ok(producer.metrics()) };
    let feed = producer.topic(&job.plan.topic).await?.feed();
    let pumped = Pump::new(&job, &producer, feed, start).run().await;
    if pumped.is_err() && is_transactional {
        // As far as that is possible: why the run failed is more interesting.
        let _ = producer.abort_transaction().await;
    }
    pumped?;
    // Failures have been told already.
    let _ = producer.flush().await;
    Ok(producer.metrics())
}

/// Why there is no producer; a broker may not even know what a transaction is.
fn refusal(error: ClientError, is_transactional: bool) -> ToolError {
    let is_unknown = matches!(error, ClientError::Unsupported { .. })
        || error.code() == Some(ErrorCode::UnsupportedVersion);
    match is_transactional && is_unknown {
        true => ToolError::failed(format!("the broker does not offer transactions: {error}")),
        false => error.into(),
    }
}

fn lock(tally: &Mutex<Tally>) -> std::sync::MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This producer's part of a number that all share.
fn share(of: u64, index: u32, producers: u32) -> u64 {
    let (index, producers) = (u64::from(index), u64::from(producers));
    of / producers + u64::from(index < of % producers)
}

/// Where records go.
struct Placement {
    partitioner: Partitioner,
    sticky: Sticky,
    available: Vec<i32>,
    generation: u32,
    next: usize,
}

impl Placement {
    fn new(settings: &ProducerSettings, feed: &Feed) -> Placement {
        Placement {
            partitioner: settings.partitioner,
            sticky: Sticky::new(settings.config.batch_bytes),
            available: feed.available(),
            generation: feed.generation(),
            next: 0,
        }
    }

    #[inline]
    fn choose(&mut self, feed: &Feed, key: Option<&[u8]>, size_bytes: usize) -> i32 {
        if self.generation != feed.generation() {
            (self.generation, self.available) = (feed.generation(), feed.available());
        }
        match (self.partitioner, key) {
            (Partitioner::RoundRobin, _) => {
                self.next += 1;
                self.available[(self.next - 1) % self.available.len()]
            }
            (Partitioner::Default, Some(key)) => partition_of_key(key, feed.partition_count()),
            (Partitioner::Sticky, _) | (Partitioner::Default, None) => {
                let available = &self.available;
                let gathers = |partition| feed.has_room(partition, size_bytes);
                let draw = || available[fastrand::usize(..available.len())];
                self.sticky.next(size_bytes, gathers, draw)
            }
        }
    }
}

/// Headers, the same for every record.
struct Headers(Vec<(String, Option<Vec<u8>>)>);

impl Headers {
    fn new(extras: &Extras, letters: &mut Letters) -> Headers {
        let header = |_| {
            let name = letters.take(extras.header_name_bytes);
            let name = String::from_utf8(name).expect("letters from A to Z are text");
            (name, extras.header_value_bytes.map(|size| letters.take(size)))
        };
        Headers((0..extras.headers).map(header).collect())
    }

    fn borrowed(&self) -> Vec<(&str, Option<&[u8]>)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect()
    }
}

/// The loop that makes records and hands them over.
struct Pump<'a> {
    job: &'a Job,
    producer: &'a Producer,
    feed: Feed,
    placement: Placement,
    throttle: Throttle,
    transactions: Option<Transactions>,
    since_yield: u64,
}

impl<'a> Pump<'a> {
    fn new(job: &'a Job, producer: &'a Producer, feed: Feed, start: Instant) -> Pump<'a> {
        let producers = f64::from(job.plan.producers);
        Pump {
            placement: Placement::new(&job.producer, &feed),
            throttle: Throttle::new(job.plan.throughput / producers, start),
            transactions: job.plan.transaction_duration_ms.map(Transactions::new),
            feed,
            producer,
            job,
            since_yield: 0,
        }
    }

    async fn run(mut self) -> Result<(), ToolError> {
        let (plan, index) = (&self.job.plan, self.job.index);
        let records = share(plan.records, index, plan.producers);
        let warmup = share(plan.warmup_records, index, plan.producers);
        let seed = u64::from(index);
        let mut values = self.job.payload.values(seed);
        let mut keys = Keys::new(&plan.extras, seed);
        let headers = Headers::new(&plan.extras, &mut Letters::new(seed));
        let headers = headers.borrowed();
        let steady_from = if plan.warmup_records == 0 { u64::MAX } else { warmup };
        for number in 0..records {
            let (value, mark) = values.next(number * u64::from(plan.producers) + u64::from(index));
            let key = keys.draw();
            self.begin_transaction()?;
            let now = Instant::now();
            let began_us = self.job.clock.us(now);
            let steady = number >= steady_from;
            if number == steady_from {
                lock(&self.job.tally).begin_steady_state(began_us);
            }
            let record = Record {
                key,
                value: Some(value),
                headers: &headers,
                timestamp: Some(Timestamp(self.job.clock.epoch_ms(began_us) as i64)),
                partition: Some(self.placement.choose(&self.feed, key, value.len())),
                tag: Tag { steady, began_us, mark }.pack(),
            };
            self.send(&record).await?;
            if self.transactions.as_mut().is_some_and(|t| t.end_after(now)) {
                self.producer.commit_transaction().await?;
            }
            match self.throttle.after(number, now) {
                Pace::Go => {}
                Pace::Pause(time) => tokio::time::sleep(time).await,
                Pace::Never => std::future::pending().await,
            }
        }
        if self.transactions.as_ref().is_some_and(Transactions::is_open) {
            self.producer.commit_transaction().await?;
        }
        Ok(())
    }

    fn begin_transaction(&mut self) -> Result<(), ToolError> {
        let begins = self.transactions.as_mut().is_some_and(|t| t.begin(Instant::now()));
        if begins {
            self.producer.begin_transaction()?;
        }
        Ok(())
    }

    /// Hands a record over. A failure of this record is told and counted, as one of a batch is.
    async fn send(&mut self, record: &Record<'_>) -> Result<(), ToolError> {
        let fed = loop {
            let waited = match self.feed.offer(record) {
                Ok(Fed::NoMemory) => self.feed.memory(record).await,
                Ok(fed) => break fed,
                Err(error) => Err(error),
            };
            match waited {
                Ok(()) => {}
                Err(
                    error @ (ClientError::RecordTooLarge { .. } | ClientError::TimedOut { .. }),
                ) => {
                    lock(&self.job.tally).failed(1, &error);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        };
        self.since_yield += 1;
        if matches!(fed, Fed::Closed) || self.since_yield >= RECORDS_BETWEEN_YIELDS {
            self.since_yield = 0;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn producers_share_records_without_losing_any() {
        for (of, producers) in [(10, 3), (3, 7), (1_000_003, 16), (5, 1)] {
            let parts = (0..producers).map(|index| share(of, index, producers));
            assert_eq!(parts.sum::<u64>(), of);
        }
    }
}
