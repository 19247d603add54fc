//! Producers under load: one thread each, which draws records, paces them, and runs the client's
//! sender between them.

use super::clock::{Alarm, Clock, thread_cpu};
use super::config::ProduceLoad;
use super::recorder::{Recorder, Tag, note};
use super::report::histogram;
use super::stop::Stop;
use super::values::Values;
use super::{LoadError, runtime};
use crate::stamp::Stamp;
use client::producer::{BatchReport, Fed, Feed, Partitioner, ProducerMetrics};
use client::{ClientError, Cluster, ClusterConfig, Producer, ProducerConfig, Record};
use hdrhistogram::Histogram;
use model::Timestamp;
use serving::choice::{Among, Chooser, Strategy};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Records for which one reading of the clock is good enough while the producer is flat out.
const RECORDS_PER_READING: u32 = 16;
/// Batches that are closed before the sender gets its turn, at most.
const BATCHES_PER_TURN: u32 = 4;
/// Bytes of values before that, at most: answers shall not wait long for large batches.
const BYTES_PER_TURN: u64 = 64 * 1024;
/// The shortest wait at a fixed rate, in nanoseconds: so long records may gather at most.
const TICK_NS: u64 = 100_000;
/// How often a waiting producer looks whether it is to stop, in nanoseconds.
const LOOK_NS: u64 = 100_000_000;
/// For how long at least a producer may be late with what was due before the end.
const LATE_MIN: Duration = Duration::from_millis(50);
/// How long a producer that was stopped waits for what is on its way.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// When all begin; `None` until everyone is ready.
pub(super) type Gate = watch::Receiver<Option<Clock>>;

/// What one producer measured.
pub(super) struct ProducerOutcome {
    pub(super) sent: u64,
    pub(super) sent_bytes: u64,
    pub(super) recorder: Recorder,
    pub(super) blocked: Histogram<u64>,
    pub(super) metrics: ProducerMetrics,
    pub(super) cpu: Duration,
    pub(super) sending_ns: u64,
    pub(super) refused: u64,
    pub(super) unsent: u64,
    pub(super) unmarked: bool,
    pub(super) stopped: bool,
}

fn lock(recorder: &Mutex<Recorder>) -> MutexGuard<'_, Recorder> {
    recorder.lock().expect("no code under it panics")
}

/// One producer's life, on its own thread. Tells `ready` when it could begin, or why it cannot.
pub(super) fn run(
    load: &ProduceLoad,
    number: u32,
    ready: &mpsc::UnboundedSender<Result<(), LoadError>>,
    gate: Gate,
    stop: &Stop,
) -> Result<ProducerOutcome, LoadError> {
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let made = Generator::new(load, number, stop).await;
        let told = made.as_ref().map(|_| ()).map_err(LoadError::clone);
        // The thread that waits for it is gone only when another producer has failed.
        let _ = ready.send(told);
        let mut generator = made?;
        let mut gate = gate;
        let opened = gate.wait_for(Option::is_some).await.map(|clock| *clock);
        let Some(clock) = opened.map_err(|_| LoadError::GivenUp)? else {
            return Err(LoadError::GivenUp);
        };
        generator.run(clock).await
    });
    // Not to wait for connections that are not needed.
    runtime.shutdown_background();
    outcome
}

/// When records are due, in nanoseconds of the clock.
struct Pace {
    /// Between two records of this producer; 0: as many as possible.
    every_ns: f64,
    offset_ns: f64,
}

impl Pace {
    fn new(load: &ProduceLoad, number: u32) -> Pace {
        if load.offered <= 0.0 {
            return Pace { every_ns: 0.0, offset_ns: 0.0 };
        }
        let all_ns = 1e9 / load.offered;
        // Producers take turns, so that together they keep the pace evenly.
        Pace { every_ns: all_ns * load.producers as f64, offset_ns: all_ns * number as f64 }
    }

    fn is_free(&self) -> bool {
        self.every_ns == 0.0
    }

    /// When the record of this index is due.
    fn due_ns(&self, index: u64) -> u64 {
        (self.offset_ns + index as f64 * self.every_ns) as u64
    }

    /// How many records are due before this moment.
    fn due_by(&self, end_ns: u64) -> u64 {
        ((end_ns as f64 - self.offset_ns) / self.every_ns).ceil().max(0.0) as u64
    }
}

/// A topic, as one producer sees it.
struct Way {
    feed: Feed,
    chooser: Chooser,
    /// Every partition.
    all: Vec<i32>,
    /// Those with a leader; all if none has one.
    available: Vec<i32>,
    generation: u32,
    /// The sequence number of the next record of each partition.
    next: Vec<u64>,
}

impl Way {
    fn new(feed: Feed, load: &ProduceLoad, seed: u64) -> Way {
        let chooser = Chooser::new(strategy(load), load.producer.batch_bytes, seed);
        let (available, generation) = (feed.available(), feed.generation());
        let all: Vec<i32> = (0..feed.partition_count()).collect();
        let next = vec![0; all.len()];
        Way { feed, chooser, all, available, generation, next }
    }

    #[inline]
    fn choose(&mut self, values: &Values) -> i32 {
        if self.generation != self.feed.generation() {
            (self.available, self.generation) = (self.feed.available(), self.feed.generation());
            // The topic may have got partitions.
            let count = self.available.iter().max().map_or(0, |last| *last as usize + 1);
            self.next.resize(count.max(self.next.len()), 0);
            self.all = (0..self.next.len() as i32).collect();
        }
        let size_bytes = values.value().len() + 8;
        let gathers = |partition| self.feed.has_room(partition, size_bytes);
        let among = Among { all: &self.all, available: &self.available };
        self.chooser.choose(values.key(), size_bytes, among, gathers)
    }
}

fn strategy(load: &ProduceLoad) -> Strategy {
    match (load.strategy, load.producer.partitioner) {
        (Strategy::Murmur2, Partitioner::RoundRobin) => Strategy::Murmur2RoundRobin,
        (strategy, _) => strategy,
    }
}

/// A record that was drawn: its topic among the load's, its partition, when it was due.
struct Drawn {
    way: usize,
    partition: i32,
    due_ns: u64,
}

struct Generator<'a> {
    load: &'a ProduceLoad,
    number: u32,
    stop: &'a Stop,
    producer: Producer,
    recorder: Arc<Mutex<Recorder>>,
    ways: Vec<Way>,
    values: Values,
    alarm: Alarm,
    clock: Clock,
    /// The last reading of the clock.
    now_ns: u64,
    /// How many records may still go by it.
    readings_left: u32,
    /// Batches closed since the sender had its turn.
    closed: u32,
    /// `sent_bytes` at that time.
    turn_bytes: u64,
    sent: u64,
    sent_bytes: u64,
    refused: u64,
    unmarked: bool,
    blocked: Histogram<u64>,
    stopped: bool,
}

impl<'a> Generator<'a> {
    async fn new(
        load: &'a ProduceLoad,
        number: u32,
        stop: &'a Stop,
    ) -> Result<Generator<'a>, LoadError> {
        let recorder = Arc::new(Mutex::new(Recorder::new(number)));
        let told = recorder.clone();
        let on_batch = move |batch: &BatchReport<'_>| lock(&told).take(batch);
        let config = ProducerConfig { on_batch: Some(Arc::new(on_batch)), ..load.producer.clone() };
        let cluster = Cluster::connect(ClusterConfig::new(&load.bootstrap)).await?;
        let producer = Producer::new(cluster, config).await?;
        let seed = load.seed.wrapping_mul(0x9e37_79b9).wrapping_add(number as u64);
        let mut ways = Vec::with_capacity(load.topics.len());
        for (i, topic) in load.topics.iter().enumerate() {
            let feed = producer.topic(topic).await?.feed();
            ways.push(Way::new(feed, load, seed.wrapping_add(i as u64)));
        }
        Ok(Generator {
            load,
            number,
            stop,
            producer,
            recorder,
            ways,
            values: Values::new(&load.sizes, &load.keys, load.payload, seed),
            alarm: Alarm::new().map_err(|error| LoadError::System(error.to_string()))?,
            clock: Clock::start(),
            now_ns: 0,
            readings_left: 0,
            closed: 0,
            turn_bytes: 0,
            sent: 0,
            sent_bytes: 0,
            refused: 0,
            unmarked: false,
            blocked: histogram(),
            stopped: false,
        })
    }

    async fn run(&mut self, clock: Clock) -> Result<ProducerOutcome, LoadError> {
        self.clock = clock;
        let from_ns = self.load.warmup.as_nanos() as u64;
        lock(&self.recorder).begin(clock, from_ns);
        self.send_all(from_ns, from_ns, None).await?;
        let metrics = self.producer.metrics();
        let cpu = thread_cpu();
        self.blocked.reset();
        let end_ns = match self.load.time {
            Duration::ZERO => u64::MAX,
            time => from_ns + time.as_nanos() as u64,
        };
        // Who is only a little late shall still send what was due.
        let late_ns = (self.load.time / 10).max(LATE_MIN).as_nanos() as u64;
        self.send_all(end_ns, end_ns.saturating_add(late_ns), self.share()).await?;
        let unsent = if self.stopped { 0 } else { self.unsent(end_ns) };
        let sending_ns = self.clock.now_ns().saturating_sub(from_ns);
        self.flush().await;
        let mut recorder = Recorder::new(self.number);
        std::mem::swap(&mut recorder, &mut lock(&self.recorder));
        Ok(ProducerOutcome {
            sent: self.sent,
            sent_bytes: self.sent_bytes,
            recorder,
            blocked: self.blocked.clone(),
            metrics: self.producer.metrics().since(&metrics),
            cpu: thread_cpu().saturating_sub(cpu),
            sending_ns,
            refused: self.refused,
            unsent,
            unmarked: self.unmarked,
            stopped: self.stopped,
        })
    }

    /// How many records of the load are this producer's, `None` for no limit: of a few records some
    /// of many producers get none.
    fn share(&self) -> Option<u64> {
        let (all, producers) = (self.load.records, self.load.producers as u64);
        let share = all / producers + u64::from((self.number as u64) < all % producers);
        (all > 0).then_some(share)
    }

    /// How many records were due before `end_ns` and not sent.
    fn unsent(&self, end_ns: u64) -> u64 {
        let pace = Pace::new(self.load, self.number);
        match pace.is_free() || end_ns == u64::MAX || self.share().is_some() {
            true => 0,
            false => pace.due_by(end_ns).saturating_sub(self.sent + self.refused),
        }
    }

    /// Sends records until one would be due at `end_ns`, or so many were sent, or it is `limit_ns`.
    async fn send_all(
        &mut self,
        end_ns: u64,
        limit_ns: u64,
        count: Option<u64>,
    ) -> Result<(), LoadError> {
        let first = self.sent + self.refused;
        let pace = Pace::new(self.load, self.number);
        self.read_clock();
        let last = count.map_or(u64::MAX, |count| first.saturating_add(count));
        while self.sent + self.refused < last && !self.stopped {
            let due_ns = match pace.is_free() {
                true => self.now_ns,
                false => pace.due_ns(self.sent + self.refused),
            };
            if due_ns >= end_ns || self.now_ns >= limit_ns {
                break;
            }
            if due_ns > self.now_ns {
                self.wait_until(due_ns).await?;
                continue;
            }
            let drawn = self.draw(due_ns)?;
            if !self.offer(&drawn)? {
                self.offer_again(&drawn).await?;
            }
            self.readings_left = self.readings_left.saturating_sub(1);
            let bytes = self.sent_bytes - self.turn_bytes;
            if self.closed >= BATCHES_PER_TURN || bytes >= BYTES_PER_TURN {
                self.let_send().await;
            } else if self.readings_left == 0 {
                self.read_clock();
            }
        }
        Ok(())
    }

    fn read_clock(&mut self) {
        self.now_ns = self.clock.now_ns();
        self.readings_left = RECORDS_PER_READING;
    }

    /// The sender's turn, and that of answers.
    async fn let_send(&mut self) {
        tokio::task::yield_now().await;
        (self.closed, self.turn_bytes) = (0, self.sent_bytes);
        self.stopped = self.stop.is_stopped();
        self.read_clock();
    }

    /// Waits until a record is due; a little longer if that is very soon.
    async fn wait_until(&mut self, due_ns: u64) -> Result<(), LoadError> {
        // What was just sent is late already if the clock was not read since.
        self.read_clock();
        if due_ns <= self.now_ns {
            return Ok(());
        }
        let wait_ns = (due_ns - self.now_ns).clamp(TICK_NS, LOOK_NS);
        (self.closed, self.turn_bytes) = (0, self.sent_bytes);
        let waited = self.alarm.wait(wait_ns).await;
        waited.map_err(|error| LoadError::System(error.to_string()))?;
        self.stopped = self.stop.is_stopped();
        self.read_clock();
        Ok(())
    }

    /// Draws the next record and chooses where it goes.
    #[inline]
    fn draw(&mut self, due_ns: u64) -> Result<Drawn, LoadError> {
        let way = ((self.sent + self.refused) % self.ways.len() as u64) as usize;
        self.values.draw();
        let partition = self.ways[way].choose(&self.values);
        let Some(sequence) = self.ways[way].next.get(partition as usize).copied() else {
            return Err(LoadError::NoPartition { topic: self.load.topics[way].clone(), partition });
        };
        if let Some(run) = self.load.stamp {
            self.stamp(run, sequence, due_ns, partition);
        }
        Ok(Drawn { way, partition, due_ns })
    }

    /// Offers it to the client. False if there is no memory for it now.
    #[inline]
    fn offer(&mut self, drawn: &Drawn) -> Result<bool, LoadError> {
        let record = record(&self.values, &self.clock, self.now_ns, drawn);
        let way = &mut self.ways[drawn.way];
        match way.feed.offer(&record) {
            Ok(Fed::NoMemory) => return Ok(false),
            Ok(fed) => {
                way.next[drawn.partition as usize] += 1;
                self.sent += 1;
                self.sent_bytes += self.values.value().len() as u64;
                self.closed += u32::from(fed == Fed::Closed);
            }
            Err(error) => self.refuse(error)?,
        }
        Ok(true)
    }

    /// The client does not want it. Fails if it will never want one again.
    #[cold]
    fn refuse(&mut self, error: ClientError) -> Result<(), LoadError> {
        if error == ClientError::ClientClosed {
            return Err(error.into());
        }
        self.refused += 1;
        lock(&self.recorder).errors.add(&error);
        Ok(())
    }

    /// Waits for memory until the record is taken, refused, or the run is stopped.
    async fn offer_again(&mut self, drawn: &Drawn) -> Result<(), LoadError> {
        while !self.stopped {
            let began_ns = self.clock.now_ns();
            let record = record(&self.values, &self.clock, self.now_ns, drawn);
            let waited = tokio::select! {
                waited = self.ways[drawn.way].feed.memory(&record) => Some(waited),
                () = self.stop.stopped() => None,
            };
            self.read_clock();
            (self.closed, self.turn_bytes) = (0, self.sent_bytes);
            note(&mut self.blocked, (self.now_ns - began_ns) / 1000, 1);
            match waited {
                None => self.stopped = true,
                Some(Err(error)) => return self.refuse(error),
                Some(Ok(())) => {
                    if self.offer(drawn)? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn stamp(&mut self, run: u32, sequence: u64, due_ns: u64, partition: i32) {
        if !crate::stamp::is_stamped(self.values.value().len()) {
            self.unmarked = true;
            return;
        }
        let time_ns = self.clock.unix_ns(due_ns);
        let stamp = Stamp { run, producer: self.number, sequence, time_ns };
        self.values.stamp(&stamp, partition);
    }

    /// Waits until all is decided; not for long once it is to stop.
    async fn flush(&mut self) {
        let flushed = self.producer.flush();
        tokio::pin!(flushed);
        let stopped = async {
            self.stop.stopped().await;
            tokio::time::sleep(FLUSH_MAX).await;
        };
        tokio::select! {
            // Failures are in the recorder, batch by batch.
            _ = &mut flushed => {}
            () = stopped => self.stopped = true,
        }
    }
}

/// The record that was drawn.
#[inline]
fn record<'v>(values: &'v Values, clock: &Clock, now_ns: u64, drawn: &Drawn) -> Record<'v> {
    Record {
        key: values.key(),
        value: Some(values.value()),
        timestamp: Some(Timestamp((clock.unix_ns(now_ns) / 1_000_000) as i64)),
        partition: Some(drawn.partition),
        tag: Tag::new(drawn.due_ns, now_ns).number(),
        headers: &[],
    }
}
