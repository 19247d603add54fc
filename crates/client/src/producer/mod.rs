//! Producing: records are written straight into the batch of their partition, and batches go out
//! when they are full or have lingered.
//!
//! Nothing is allocated for a record: what [`Producer::send`] returns shares the outcome of the
//! record's batch. Read [`queue`] (records to batches), then [`sender`] (batches to brokers), then
//! [`numbering`] and [`transaction`]; [`intake`] and [`feed`] are ways in for many records.

mod absence;
mod batch;
mod clock;
mod feed;
mod intake;
mod metrics;
mod numbering;
mod queue;
mod ratio;
mod record;
mod request;
mod sender;
#[cfg(test)]
mod simulation;
mod split;
mod transaction;
mod transport;

pub use batch::{BatchReport, Delivery, Placed, Undelivered};
pub use feed::{Fed, Feed};
pub use intake::Intake;
pub use metrics::ProducerMetrics;
pub use record::Record;

use crate::cluster::Cluster;
use crate::error::{ClientError, check};
use batch::{Outcome, Pool, TagLists};
use metrics::Counters;
use model::{Compression, ProducerEpoch, ProducerId};
use numbering::{Identities, Identity, NO_IDENTITY};
use queue::{PartitionQueue, Ready, TopicQueues};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use transaction::Transaction;
use wire::InitProducerIdRequest;

/// Is told of every batch that ended, well or not. Runs in the sender's task: it must not block.
pub type OnBatch = Arc<dyn Fn(&BatchReport<'_>) + Send + Sync>;

/// Where records go that have neither a partition nor a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Partitioner {
    /// To one partition until a batch is full, then to another (KIP-480, KIP-794).
    #[default]
    Sticky,
    /// To one after the other, as Kafka's clients did up to 2.3.
    RoundRobin,
}

/// How records are produced. The fields are those of Kafka's producer, and so are the defaults.
#[derive(Clone)]
pub struct ProducerConfig {
    /// `acks`: 0, 1, or -1 for all.
    pub acks: i16,
    /// `enable.idempotence`: needs `acks` of -1.
    pub idempotence: bool,
    /// `batch.size`, in bytes.
    pub batch_bytes: usize,
    /// `linger.ms`.
    pub linger: Duration,
    /// `buffer.memory`, in bytes.
    pub buffer_bytes: usize,
    /// `max.block.ms`: how long a send may wait for memory.
    pub block_max: Duration,
    /// `compression.type`.
    pub compression: Compression,
    /// `compression.<codec>.level`; `None` for the codec's default.
    pub compression_level: Option<i32>,
    /// `max.request.size`, in bytes.
    pub request_bytes_max: usize,
    /// `max.in.flight.requests.per.connection`; at most 5 with idempotence.
    pub in_flight_max: usize,
    /// Batches of one partition in flight at a time; of `in_flight_max` at most. With one, records gather while the
    /// batch before theirs is under way.
    pub partition_in_flight_max: usize,
    /// `request.timeout.ms`: how long the broker may wait for `acks`.
    pub request_timeout: Duration,
    /// `delivery.timeout.ms`: when a batch is given up, retries included.
    pub delivery_timeout: Duration,
    /// `retry.backoff.ms`.
    pub retry_backoff: Duration,
    /// `retries`: how often a batch that failed is sent again; 0 is impossible with idempotence.
    pub retries: u32,
    /// Whether what waits for a topic that was deleted is given up as soon as the cluster says so; else it waits until its
    /// time is over, as with Kafka's clients: the topic may be made again.
    pub gives_up_deleted: bool,
    /// Where records without a key go.
    pub partitioner: Partitioner,
    /// `transactional.id`: with one, records are taken within transactions only. Needs idempotence.
    pub transactional_id: Option<String>,
    /// `transaction.timeout.ms`: the cluster aborts what is open for longer.
    pub transaction_timeout: Duration,
    /// Who is told of batches that ended.
    pub on_batch: Option<OnBatch>,
}

impl Default for ProducerConfig {
    fn default() -> ProducerConfig {
        ProducerConfig {
            acks: -1,
            idempotence: true,
            batch_bytes: 16 * 1024,
            linger: Duration::from_millis(5),
            buffer_bytes: 32 * 1024 * 1024,
            block_max: Duration::from_secs(60),
            compression: Compression::None,
            compression_level: None,
            request_bytes_max: 1024 * 1024,
            in_flight_max: 5,
            partition_in_flight_max: usize::MAX,
            request_timeout: Duration::from_secs(30),
            delivery_timeout: Duration::from_secs(120),
            retry_backoff: Duration::from_millis(100),
            retries: u32::MAX,
            gives_up_deleted: false,
            partitioner: Partitioner::Sticky,
            transactional_id: None,
            transaction_timeout: Duration::from_secs(60),
            on_batch: None,
        }
    }
}

impl ProducerConfig {
    fn check(&self) -> Result<(), ClientError> {
        let usage = |text: &str| Err(ClientError::Usage(text.to_owned()));
        match self {
            c if !(-1..=1).contains(&c.acks) => usage("acks is -1, 0 or 1"),
            c if c.idempotence && c.acks != -1 => usage("idempotence needs acks of -1 (all)"),
            c if c.idempotence && c.in_flight_max > 5 => {
                usage("idempotence allows at most 5 requests in flight")
            }
            c if c.idempotence && c.retries == 0 => usage("idempotence needs retries"),
            c if c.transactional_id.is_some() && !c.idempotence => {
                usage("transactions need idempotence")
            }
            c if c.in_flight_max.min(c.partition_in_flight_max) == 0 => {
                usage("at least one request must be in flight")
            }
            _ => Ok(()),
        }
    }
}

/// What callers and the sender share.
struct Shared {
    cluster: Cluster,
    config: ProducerConfig,
    topics: RwLock<HashMap<String, Arc<TopicQueues>>>,
    identities: Mutex<Identities>,
    /// With a transactional id only.
    transaction: Option<Transaction>,
    ready: Ready,
    /// Bytes of `buffer.memory` that no batch has taken.
    memory: Semaphore,
    pool: Pool,
    tags: TagLists,
    counters: Counters,
    /// The outcomes of the batches that have not ended, by the order of their opening.
    incomplete: Mutex<BTreeMap<u64, Arc<Outcome>>>,
    next_ordinal: AtomicU64,
    /// Why no record is taken: [`Shared::CLOSED`], [`Shared::OUTSIDE`]; 0 while they are.
    shut: AtomicU8,
}

impl Shared {
    /// The last handle is gone.
    const CLOSED: u8 = 1;
    /// The producer is transactional, and no transaction takes records.
    const OUTSIDE: u8 = 2;

    fn new(
        cluster: Cluster,
        config: ProducerConfig,
        identity: Identity,
        transaction: Option<Transaction>,
    ) -> Shared {
        Shared {
            topics: RwLock::default(),
            identities: Mutex::new(Identities::new(identity)),
            shut: AtomicU8::new(if transaction.is_some() { Shared::OUTSIDE } else { 0 }),
            transaction,
            ready: Ready::default(),
            memory: Semaphore::new(config.buffer_bytes.max(config.batch_bytes)),
            pool: Pool::new(config.buffer_bytes / config.batch_bytes.max(1)),
            tags: TagLists::default(),
            counters: Counters::default(),
            incomplete: Mutex::default(),
            next_ordinal: AtomicU64::new(0),
            cluster,
            config,
        }
    }

    fn shut(&self, reason: u8) {
        self.shut.fetch_or(reason, Ordering::AcqRel);
    }

    fn unshut(&self, reason: u8) {
        self.shut.fetch_and(!reason, Ordering::AcqRel);
    }

    fn is_closed(&self) -> bool {
        self.shut.load(Ordering::Acquire) & Shared::CLOSED != 0
    }

    /// Why no record is taken.
    #[cold]
    fn refusal(&self) -> ClientError {
        match &self.transaction {
            Some(transaction) if !self.is_closed() => transaction.refusal(),
            _ => ClientError::ClientClosed,
        }
    }

    /// The identity of a transactional producer, which all of its partitions have.
    fn identity(&self) -> Identity {
        lock(&self.identities).current()
    }

    /// The identity of a partition's first generation; none while another producer id is needed.
    fn first_identity(&self) -> Identity {
        self.next_identity(NO_IDENTITY).unwrap_or(NO_IDENTITY)
    }

    /// The identity of a partition's generation behind `last`; `None` while another producer id is
    /// needed. In a transaction the coordinator alone gives identities.
    fn next_identity(&self, last: Identity) -> Option<Identity> {
        let mut identities = lock(&self.identities);
        match self.transaction {
            Some(_) => Some(identities.current()),
            None => identities.next(last),
        }
    }

    /// Takes another identity of a transaction for all partitions. Nothing may be in flight.
    fn renumber(&self, identity: Identity) {
        // First, so that a partition that is added from here on carries it.
        lock(&self.identities).install(identity);
        for queue in self.queues() {
            lock(&queue.state).restart(identity);
        }
    }

    /// Forgets a topic unless records for it are under way.
    fn forget(&self, topic: &str) {
        let mut topics = self.topics.write().expect("no code under it panics");
        let is_idle = |queues: &Arc<TopicQueues>| {
            queues.queues().iter().all(|queue| lock(&queue.state).is_idle())
        };
        if self.transaction.is_none() && topics.get(topic).is_some_and(is_idle) {
            topics.remove(topic);
            // Its partitions may come back, and a broker may remember their sequences.
            lock(&self.identities).use_epoch_up();
        }
    }

    /// The partitions of all topics.
    fn queues(&self) -> Vec<Arc<PartitionQueue>> {
        let topics = self.topics.read().expect("no code under it panics");
        topics.values().flat_map(|topic| topic.queues()).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code under these locks panics")
}

/// Tells the sender to end when the last handle goes.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.shut(Shared::CLOSED);
        self.0.ready.wake();
    }
}

/// A producer; clones share its batches and its connections.
#[derive(Clone)]
pub struct Producer(Arc<Handle>);

impl Producer {
    /// A producer for this cluster; asks for a producer id if it is to be idempotent. With a
    /// transactional id it takes over from whoever had that id before, whose open transaction is
    /// aborted.
    pub async fn new(cluster: Cluster, config: ProducerConfig) -> Result<Producer, ClientError> {
        config.check()?;
        let none = NO_IDENTITY;
        let id = config.transactional_id.as_deref();
        let transaction = id.map(|id| Transaction::new(id, config.transaction_timeout));
        let identity = match &transaction {
            Some(transaction) => transaction.identity(&cluster, none).await?,
            None if config.idempotence => new_identity(&cluster).await?,
            None => none,
        };
        let shared = Arc::new(Shared::new(cluster, config, identity, transaction));
        tokio::spawn(sender::run(shared.clone()));
        Ok(Producer(Arc::new(Handle(shared))))
    }

    /// A topic to send to: saves looking it up for every record. The cluster is asked for it as long as this is held, and
    /// one that is held no more for [`crate::ClusterConfig::topic_idle_max`] after its last record.
    pub async fn topic(&self, name: &str) -> Result<TopicProducer, ClientError> {
        let known = self.topics().get(name).cloned();
        let queues = match known {
            Some(queues) if !queues.rests() => queues,
            Some(queues) => {
                let lease = self.shared().cluster.lease(name);
                queues.wake(&*lease.topic().await?, lease, self.shared());
                queues
            }
            None => {
                let lease = self.shared().cluster.lease(name);
                let topic = lease.topic().await?;
                let mut topics = self.shared().topics.write().expect("no code under it panics");
                let queues = topics.entry(name.to_owned());
                let new = || Arc::new(TopicQueues::new(&topic, lease, self.shared()));
                queues.or_insert_with(new).clone()
            }
        };
        Ok(TopicProducer { producer: self.clone(), queues })
    }

    fn topics(&self) -> std::sync::RwLockReadGuard<'_, HashMap<String, Arc<TopicQueues>>> {
        self.shared().topics.read().expect("no code under it panics")
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// Takes a record; waits only while `buffer.memory` is used up. The record is on its way, not
    /// there yet: see [`Delivery::wait`].
    pub async fn send(&self, topic: &str, record: &Record<'_>) -> Result<Delivery, ClientError> {
        let known = self.topics().get(topic).cloned();
        match known {
            Some(queues) if !queues.rests() => send(self.shared(), &queues, record).await,
            _ => self.topic(topic).await?.send(record).await,
        }
    }

    /// Sends what has been taken without lingering, and waits until it has ended, well or not.
    /// Fails with the first failure.
    pub async fn flush(&self) -> Result<(), ClientError> {
        let topics: Vec<_> = self.topics().values().cloned().collect();
        topics.iter().for_each(|topic| topic.close_open_batches(self.shared()));
        let incomplete: Vec<_> = lock(&self.shared().incomplete).values().cloned().collect();
        let mut result = Ok(());
        for outcome in incomplete {
            result = result.and(outcome.wait_all().await);
        }
        result
    }

    /// Forgets a topic, unless records for it are under way: it was deleted. Records for a topic that is forgotten
    /// while they are taken are delivered all the same. A transactional producer forgets no topic.
    pub fn forget(&self, topic: &str) {
        self.shared().forget(topic);
    }

    /// What was done so far.
    pub fn metrics(&self) -> ProducerMetrics {
        self.shared().counters.read()
    }

    /// Bytes of `buffer.memory` that are free.
    pub fn free_buffer_bytes(&self) -> usize {
        self.shared().memory.available_permits()
    }
}

/// A topic of a producer.
#[derive(Clone)]
pub struct TopicProducer {
    producer: Producer,
    queues: Arc<TopicQueues>,
}

impl TopicProducer {
    /// As [`Producer::send`].
    pub async fn send(&self, record: &Record<'_>) -> Result<Delivery, ClientError> {
        send(self.producer.shared(), &self.queues, record).await
    }

    /// Takes a record if that needs no waiting; `None` while `buffer.memory` is used up.
    pub fn try_send(&self, record: &Record<'_>) -> Result<Option<Delivery>, ClientError> {
        self.queues.append(self.producer.shared(), record)
    }

    /// Has `take` send records in a row; what that returns.
    pub fn intake<T>(&self, take: impl FnOnce(&mut Intake<'_>) -> T) -> T {
        let partitions = self.queues.partitions();
        take(&mut Intake::new(self.producer.shared(), &self.queues, &partitions))
    }

    /// A way in that costs less for each record.
    pub fn feed(&self) -> Feed {
        Feed::new(self.producer.clone(), self.queues.clone())
    }

    /// How many partitions the topic has, as far as is known.
    pub fn partition_count(&self) -> i32 {
        self.queues.partition_count()
    }

    /// A number that changes when partitions, or their leaders, may have.
    pub fn generation(&self) -> u32 {
        self.queues.generation()
    }
}

async fn send(
    shared: &Arc<Shared>,
    topic: &TopicQueues,
    record: &Record<'_>,
) -> Result<Delivery, ClientError> {
    if let Some(delivery) = topic.append(shared, record)? {
        return Ok(delivery);
    }
    let needed = topic.memory_for(shared, record);
    let waited = Instant::now();
    loop {
        let left = shared.config.block_max.saturating_sub(waited.elapsed());
        wait_for_memory(shared, needed, left).await?;
        if let Some(delivery) = topic.append(shared, record)? {
            return Ok(delivery);
        }
    }
}

/// Waits until so many bytes of `buffer.memory` are free, at most for `left`.
async fn wait_for_memory(shared: &Shared, needed: u32, left: Duration) -> Result<(), ClientError> {
    let began = Instant::now();
    let permit = tokio::time::timeout(left, shared.memory.acquire_many(needed)).await;
    shared.counters.blocked(began.elapsed());
    let Ok(permit) = permit else {
        let after_ms = shared.config.block_max.as_millis() as u64;
        let what = "waiting for buffer.memory".to_owned();
        let error = ClientError::TimedOut { what, after_ms };
        shared.fail_transaction(&error);
        return Err(error);
    };
    // Given back at once: the append takes what it needs itself, if it still needs it.
    drop(permit.map_err(|_| ClientError::ClientClosed)?);
    Ok(())
}

/// Asks for a producer id (KIP-98).
async fn new_identity(cluster: &Cluster) -> Result<Identity, ClientError> {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: i32::MAX,
        ..Default::default()
    };
    cluster
        .retry(|| async {
            let response = cluster.any().await?.call(&request).await?;
            check(response.error(), None, || "producer id".to_owned())?;
            Ok((ProducerId(response.producer_id), ProducerEpoch(response.producer_epoch)))
        })
        .await
}
