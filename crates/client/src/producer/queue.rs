//! From records to closed batches: the part of the producer that runs for every record.

use super::batch::{Batch, Delivery, Outcome};
use super::{ProducerConfig, Shared, lock};
use crate::error::ClientError;
use crate::metadata::Topic;
use bytes::Bytes;
use model::batch::HEADER_BYTES;
use model::partitioner::{Sticky, partition_of_key};
use model::record::{BatchBuilder, Header};
use model::{Compression, Sequence, Timestamp, TopicId};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// A record to be produced.
#[derive(Debug, Clone, Copy, Default)]
pub struct Record<'a> {
    /// The key, or null.
    pub key: Option<&'a [u8]>,
    /// The value, or null: a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: &'a [Header<'a>],
    /// When it happened; `None`: the time of sending.
    pub timestamp: Option<Timestamp>,
    /// Where it goes; `None` to go by its key, or wherever it suits.
    pub partition: Option<i32>,
}

impl<'a> Record<'a> {
    /// A record with a value only.
    pub fn value(value: &'a [u8]) -> Record<'a> {
        Record { value: Some(value), ..Record::default() }
    }

    /// A record with a key and a value.
    pub fn keyed(key: &'a [u8], value: &'a [u8]) -> Record<'a> {
        Record { key: Some(key), value: Some(value), ..Record::default() }
    }

    /// Bytes that it takes in a batch at most.
    fn size_bytes_max(&self) -> usize {
        let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        // Length, attributes, timestamp, offset, two lengths, the count of headers.
        let fixed = 5 + 1 + 10 + 5 + 5 + 5 + 5;
        let headers: usize = self.headers.iter().map(|(n, v)| 10 + n.len() + length(*v)).sum();
        fixed + length(self.key) + length(self.value) + headers
    }
}

/// The partitions that have something for the sender.
#[derive(Default)]
pub(super) struct Ready {
    state: Mutex<ReadyState>,
    wake: Notify,
}

#[derive(Default)]
struct ReadyState {
    /// Partitions with closed batches that the sender has not taken notice of.
    full: Vec<Arc<PartitionQueue>>,
    /// Partitions whose open batch shall be closed then. Sorted, because all linger equally long.
    lingering: VecDeque<(Instant, Arc<PartitionQueue>)>,
}

impl Ready {
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    fn add_full(&self, queue: Arc<PartitionQueue>) {
        lock(&self.state).full.push(queue);
        self.wake();
    }

    fn add_lingering(&self, until: Instant, queue: Arc<PartitionQueue>) {
        let first = {
            let mut state = lock(&self.state);
            state.lingering.push_back((until, queue));
            state.lingering.len() == 1
        };
        // Otherwise the sender wakes for an earlier one anyway.
        if first {
            self.wake();
        }
    }

    /// Partitions with closed batches.
    pub(super) fn take_full(&self, out: &mut Vec<Arc<PartitionQueue>>) {
        out.append(&mut lock(&self.state).full);
    }

    /// Partitions whose batches have lingered, and when the next one will have.
    pub(super) fn take_lingered(
        &self,
        now: Instant,
    ) -> (Vec<Arc<PartitionQueue>>, Option<Instant>) {
        let mut state = lock(&self.state);
        let mut out = Vec::new();
        while state.lingering.front().is_some_and(|(until, _)| *until <= now) {
            out.extend(state.lingering.pop_front().map(|(_, queue)| queue));
        }
        (out, state.lingering.front().map(|(until, _)| *until))
    }
}

/// The batches of one partition.
pub(super) struct PartitionQueue {
    pub(super) topic: Arc<str>,
    pub(super) topic_id: TopicId,
    pub(super) partition: i32,
    pub(super) state: Mutex<QueueState>,
}

#[derive(Default)]
pub(super) struct QueueState {
    open: Option<OpenBatch>,
    /// Invariant: in the order of their sequences.
    pub(super) closed: VecDeque<Batch>,
    /// The sequence of the next batch to be closed.
    pub(super) next_sequence: i32,
    /// Batches that a broker has and has not answered.
    pub(super) in_flight: usize,
    /// The broker that has them; meaningless while there are none.
    pub(super) in_flight_broker: i32,
    /// A batch came back: nothing is sent until all that are in flight have come back, so that
    /// they go out again in their order.
    pub(super) recovering: bool,
    /// Whether a broker has taken a batch under the identity in use. Until then one batch is in
    /// flight at a time: a broker that knows nothing of a producer takes any first sequence, so
    /// were the first batch refused, the second would be taken and the first never again.
    pub(super) established: bool,
    /// When the next attempt may be made, after a failure.
    pub(super) not_before: Option<Instant>,
    /// Whether the sender knows of it.
    listed: bool,
}

struct OpenBatch {
    builder: BatchBuilder,
    outcome: Arc<Outcome>,
    opened: Instant,
    ordinal: u64,
    memory_bytes: u32,
}

impl QueueState {
    /// Closes the open batch, if there is one.
    fn close_open(&mut self, shared: &Shared) {
        let Some(open) = self.open.take() else { return };
        let identity = *lock(&shared.identity);
        let count = open.builder.record_count();
        let mut base_sequence = Sequence::NONE;
        if identity.0.is_idempotent() {
            base_sequence = Sequence(self.next_sequence);
            self.next_sequence = base_sequence.plus(count).0;
        }
        let builder = open.builder.producer(identity.0, identity.1, base_sequence);
        self.closed.push_back(Batch {
            bytes: finish(shared, builder),
            outcome: open.outcome,
            record_count: count,
            base_sequence,
            ordinal: open.ordinal,
            opened: open.opened,
            attempts: 0,
            memory_bytes: open.memory_bytes,
        });
    }

    /// Whether the sender must be told; then it counts as told.
    pub(super) fn list(&mut self) -> bool {
        !self.closed.is_empty() && !std::mem::replace(&mut self.listed, true)
    }

    /// The sender has looked, and nothing is left for it.
    pub(super) fn unlist(&mut self) {
        self.listed = false;
    }

    /// With nothing closed left, what has lingered may go too. Whether there is a batch to send.
    pub(super) fn has_batch(&mut self, shared: &Shared, now: Instant) -> bool {
        if self.closed.is_empty() && self.has_lingered(shared, now) {
            self.close_open(shared);
        }
        !self.closed.is_empty()
    }

    fn has_lingered(&self, shared: &Shared, now: Instant) -> bool {
        self.open.as_ref().is_some_and(|open| open.opened + shared.config.linger <= now)
    }

    /// Puts a batch back, in front of those that come after it.
    pub(super) fn put_back(&mut self, batch: Batch) {
        let at = self.closed.iter().take_while(|b| b.ordinal < batch.ordinal).count();
        self.closed.insert(at, batch);
    }
}

fn finish(shared: &Shared, builder: BatchBuilder) -> Bytes {
    let codec = shared.config.compression;
    if codec == Compression::None {
        return Bytes::from(builder.finish());
    }
    let mut compressed = shared.pool.take();
    let level = shared.config.compression_level;
    compression::compress(codec, level, builder.records(), &mut compressed);
    let batch = builder.finish_compressed(codec, &compressed);
    shared.pool.give(Bytes::from(compressed));
    Bytes::from(batch)
}

impl PartitionQueue {
    /// Appends a record; `None` if a new batch is needed and there is no memory for it.
    fn append(
        self: &Arc<Self>,
        shared: &Shared,
        record: &Record<'_>,
        size_bytes_max: usize,
    ) -> Option<Delivery> {
        let batch_bytes = shared.config.batch_bytes;
        let mut state = lock(&self.state);
        let room = |open: &OpenBatch| open.builder.size_bytes() + size_bytes_max <= batch_bytes;
        if state.open.as_ref().is_some_and(|open| !room(open)) {
            state.close_open(shared);
        }
        let opened = state.open.is_none();
        if opened {
            state.open = OpenBatch::new(shared, memory_bytes(shared, size_bytes_max));
        }
        let delivery = state.open.as_mut().map(|open| open.append(record, self.partition));
        let full = state.open.as_ref().is_some_and(|open| open.builder.size_bytes() >= batch_bytes);
        let lingers = !shared.config.linger.is_zero() && !full;
        if state.open.is_some() && !lingers {
            self.close_unless_gathering(&mut state, shared, full);
        }
        let until =
            state.open.as_ref().filter(|_| lingers).map(|o| o.opened + shared.config.linger);
        let listed = state.list();
        drop(state);
        if listed {
            shared.ready.add_full(self.clone());
        }
        if let Some(until) = until.filter(|_| opened) {
            shared.ready.add_lingering(until, self.clone());
        }
        delivery
    }

    /// Closes a full batch. Without linger an unfilled one is closed too, unless batches before it
    /// still wait: then it may as well gather records, and is closed when its turn comes.
    fn close_unless_gathering(&self, state: &mut QueueState, shared: &Shared, full: bool) {
        let waiting = !state.closed.is_empty() || state.in_flight >= shared.config.in_flight_max;
        if full || !waiting {
            state.close_open(shared);
        }
    }

    /// Closes the open batch if it has lingered; with `now` at `None`, in any case. Whether the
    /// sender has something to take.
    pub(super) fn close_lingered(&self, shared: &Shared, now: Option<Instant>) -> bool {
        let mut state = lock(&self.state);
        if now.is_none_or(|now| state.has_lingered(shared, now)) {
            state.close_open(shared);
        }
        state.list()
    }
}

/// Bytes of `buffer.memory` that a batch takes whose first record has this size.
fn memory_bytes(shared: &Shared, size_bytes_max: usize) -> u32 {
    let needed = shared.config.batch_bytes.max(HEADER_BYTES + size_bytes_max);
    // More than there is would wait for ever.
    needed.min(shared.config.buffer_bytes).min(u32::MAX as usize) as u32
}

impl OpenBatch {
    /// An empty batch, if there is memory for it.
    fn new(shared: &Shared, memory_bytes: u32) -> Option<OpenBatch> {
        shared.memory.try_acquire_many(memory_bytes).ok()?.forget();
        let ordinal = shared.next_ordinal.fetch_add(1, Ordering::Relaxed);
        let outcome = Arc::<Outcome>::default();
        lock(&shared.incomplete).insert(ordinal, outcome.clone());
        let builder = BatchBuilder::over(shared.pool.take());
        Some(OpenBatch { builder, outcome, opened: Instant::now(), ordinal, memory_bytes })
    }

    fn append(&mut self, record: &Record<'_>, partition: i32) -> Delivery {
        let index = self.builder.record_count();
        let timestamp = record.timestamp.unwrap_or_else(now);
        self.builder.add_with_headers(timestamp, record.key, record.value, record.headers);
        Delivery { outcome: self.outcome.clone(), index, partition }
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(Timestamp(0), |since| Timestamp(since.as_millis() as i64))
}

/// The partitions of one topic.
pub(super) struct TopicQueues {
    name: Arc<str>,
    partitions: RwLock<Partitions>,
    sticky: Mutex<Sticky>,
}

struct Partitions {
    queues: Vec<Arc<PartitionQueue>>,
    /// Those with a leader; all if none has one.
    available: Vec<i32>,
}

impl TopicQueues {
    pub(super) fn new(topic: &Topic, config: &ProducerConfig) -> TopicQueues {
        let partitions = Partitions { queues: Vec::new(), available: Vec::new() };
        let sticky = Mutex::new(Sticky::new(config.batch_bytes));
        let queues =
            TopicQueues { name: topic.name.clone(), partitions: RwLock::new(partitions), sticky };
        queues.update(topic);
        queues
    }

    /// Takes in what the cluster says about the topic: more partitions, other leaders.
    pub(super) fn update(&self, topic: &Topic) {
        let mut partitions = self.partitions.write().expect("no code under it panics");
        for partition in &topic.partitions[partitions.queues.len().min(topic.partitions.len())..] {
            partitions.queues.push(Arc::new(PartitionQueue {
                topic: self.name.clone(),
                topic_id: topic.id,
                partition: partition.index,
                state: Mutex::default(),
            }));
        }
        let led = topic.partitions.iter().filter(|p| p.leader.is_some());
        partitions.available = led.map(|p| p.index).collect();
        if partitions.available.is_empty() {
            partitions.available = (0..partitions.queues.len() as i32).collect();
        }
    }

    pub(super) fn partition_count(&self) -> i32 {
        self.partitions.read().expect("no code under it panics").queues.len() as i32
    }

    pub(super) fn queues(&self) -> Vec<Arc<PartitionQueue>> {
        self.partitions.read().expect("no code under it panics").queues.clone()
    }

    /// The queue that a record goes to.
    fn queue_of(
        &self,
        record: &Record<'_>,
        size_bytes: usize,
    ) -> Result<Arc<PartitionQueue>, ClientError> {
        let partitions = self.partitions.read().expect("no code under it panics");
        let count = partitions.queues.len() as i32;
        if count == 0 {
            return Err(ClientError::Usage(format!("topic {} has no partitions", self.name)));
        }
        let partition = match (record.partition, record.key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => partition_of_key(key, count),
            (None, None) => {
                let draw = || partitions.available[fastrand::usize(..partitions.available.len())];
                lock(&self.sticky).next(size_bytes, draw)
            }
        };
        let queue = usize::try_from(partition).ok().and_then(|p| partitions.queues.get(p));
        let unknown = || ClientError::Usage(format!("{} has no partition {partition}", self.name));
        queue.cloned().ok_or_else(unknown)
    }

    /// Appends a record; `None` if there is no memory for it now.
    pub(super) fn append(
        &self,
        shared: &Shared,
        record: &Record<'_>,
    ) -> Result<Option<Delivery>, ClientError> {
        let size_bytes = record.size_bytes_max();
        let limit_bytes = shared.config.request_bytes_max;
        if HEADER_BYTES + size_bytes > limit_bytes {
            return Err(ClientError::RecordTooLarge { size_bytes, limit_bytes });
        }
        if shared.closed.load(Ordering::Acquire) {
            return Err(ClientError::ClientClosed);
        }
        Ok(self.queue_of(record, size_bytes)?.append(shared, record, size_bytes))
    }

    /// Bytes of memory that a new batch for this record takes.
    pub(super) fn memory_for(&self, shared: &Shared, record: &Record<'_>) -> u32 {
        memory_bytes(shared, record.size_bytes_max())
    }

    pub(super) fn close_open_batches(&self, shared: &Shared) {
        for queue in self.queues() {
            if queue.close_lingered(shared, None) {
                shared.ready.add_full(queue);
            }
        }
    }
}
