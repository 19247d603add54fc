//! From records to closed batches: the part of the producer that runs for every record.

use super::absence::{Absence, Told};
use super::batch::{Batch, Delivery, Outcome};
use super::clock;
use super::feed::Fed;
use super::numbering::{Identity, Numbering};
use super::ratio::CompressionRatio;
use super::record::{self, Record};
use super::transaction;
use super::{Partitioner, Shared, lock};
use crate::cluster::TopicLease;
use crate::error::ClientError;
use crate::metadata::Topic;
use bytes::Bytes;
use model::batch::HEADER_BYTES;
use model::partitioner::{Sticky, partition_of_key};
use model::record::BatchBuilder;
use model::{Compression, Timestamp, TopicId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// To how many bytes records are gathered that are expected to compress well: brokers take this much
/// by default even if they do not.
const UNCOMPRESSED_BYTES_MAX: usize = 1_000_000;

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
    pub(super) partition: i32,
    /// The topic's.
    pub(super) ratio: Arc<CompressionRatio>,
    pub(super) state: Mutex<QueueState>,
}

pub(super) struct QueueState {
    /// The topic's; another one when the topic was re-created.
    pub(super) topic_id: TopicId,
    /// The topic was re-created while batches for the old one are in flight.
    made_again: bool,
    open: Option<OpenBatch>,
    /// Invariant: in the order in which their records were taken.
    pub(super) closed: VecDeque<Batch>,
    pub(super) numbering: Numbering,
    /// Records taken so far.
    taken: u64,
    /// Batches that a broker has and has not answered.
    pub(super) in_flight: usize,
    /// The broker that has them; meaningless while there are none.
    pub(super) in_flight_broker: i32,
    /// A batch came back: nothing is sent until all that are in flight have come back, so that
    /// they go out again in their order.
    pub(super) recovering: bool,
    /// What brokers have said of it under this id.
    pub(super) told: Told,
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
    /// Bytes at which it is full, uncompressed.
    limit_bytes: usize,
    first_record: u64,
    tags: Vec<u64>,
    ratio: Arc<CompressionRatio>,
}

impl QueueState {
    fn new(topic_id: TopicId, numbering: Numbering) -> QueueState {
        QueueState {
            topic_id,
            made_again: false,
            open: None,
            closed: VecDeque::new(),
            numbering,
            taken: 0,
            in_flight: 0,
            in_flight_broker: 0,
            recovering: false,
            told: Told::default(),
            not_before: None,
            listed: false,
        }
    }

    /// Closes the open batch, if there is one.
    fn close_open(&mut self, shared: &Shared) {
        let Some(open) = self.open.take() else { return };
        let count = open.builder.record_count();
        let (identity, base_sequence) = self.numbering.predict(self.closed.back());
        let flags = if shared.transaction.is_some() { transaction::BATCH_FLAG } else { 0 };
        let builder = open.builder.flags(flags).producer(identity.0, identity.1, base_sequence);
        self.closed.push_back(Batch {
            bytes: finish(shared, builder, &open.ratio),
            outcome: open.outcome,
            record_count: count,
            identity,
            base_sequence,
            ordinal: open.ordinal,
            opened: open.opened,
            attempts: 0,
            sent: None,
            maybe_written: false,
            is_spent: false,
            sifted: 0,
            first_record: open.first_record,
            tags: open.tags,
            memory_bytes: open.memory_bytes,
        });
    }

    /// Whether the sender must be told; then it counts as told. Without `now`, what lingers is not looked at.
    pub(super) fn list(&mut self, shared: &Shared, now: Option<Instant>) -> bool {
        !self.listed && self.has_batch(shared, now) && !std::mem::replace(&mut self.listed, true)
    }

    /// The sender has looked, and nothing is left for it.
    pub(super) fn unlist(&mut self) {
        self.listed = false;
    }

    /// Whether there is a batch to send.
    pub(super) fn has_batch(&self, shared: &Shared, now: Option<Instant>) -> bool {
        let linger = shared.config.linger;
        let has_lingered = |open: &OpenBatch| {
            linger.is_zero() || now.is_some_and(|now| open.opened + linger <= now)
        };
        !self.closed.is_empty() || self.open.as_ref().is_some_and(has_lingered)
    }

    /// The batch whose turn it is, if it fits. The open one gathers records until its turn comes, however long it has
    /// lingered, and is closed then.
    pub(super) fn take_next(
        &mut self,
        shared: &Shared,
        fits: impl FnOnce(usize) -> bool,
    ) -> Option<Batch> {
        if self.closed.is_empty() {
            self.close_open(shared);
        }
        let mut batch = self.closed.pop_front_if(|batch| fits(batch.bytes.len()))?;
        self.numbering.assign(&mut batch);
        Some(batch)
    }

    /// Prepares the partition for its next batch, and starts a generation where that is due. False
    /// while the partition waits for a producer id.
    pub(super) fn prepare_next(&mut self, shared: &Shared) -> bool {
        if self.in_flight > 0 || !shared.config.idempotence {
            return true;
        }
        self.numbering.rewind();
        if self.closed.front().is_some_and(|batch| batch.maybe_written) {
            return true;
        }
        let identity = self.numbering.identity();
        let mut bound = self.closed.iter_mut().filter(|batch| batch.maybe_written);
        let bound_waits = bound.by_ref().any(|batch| batch.identity == identity);
        if !self.numbering.needs_generation(bound_waits) {
            return true;
        }
        let Some(identity) = shared.next_identity(identity) else { return false };
        self.numbering.start(identity);
        for batch in self.closed.iter_mut().filter(|batch| batch.maybe_written) {
            batch.is_spent = true;
        }
        true
    }

    /// Takes a batch that is not sent any more, if there is one: it has waited longer than `delivery.timeout.ms`, or is
    /// spent.
    pub(super) fn take_expired(&mut self, shared: &Shared, now: Instant) -> Option<Batch> {
        let is_late = |opened: Instant| opened + shared.config.delivery_timeout <= now;
        if self.closed.is_empty() && self.open.as_ref().is_some_and(|open| is_late(open.opened)) {
            self.close_open(shared);
        }
        self.closed.pop_front_if(|batch| batch.is_spent || is_late(batch.opened))
    }

    /// When the oldest batch that waits was opened.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let closed = self.closed.front().map(|batch| batch.opened);
        closed.or_else(|| self.open.as_ref().map(|open| open.opened))
    }

    /// Whether a batch waits for more records and has room for one of `size_bytes`.
    pub(super) fn has_room(&self, size_bytes: usize) -> bool {
        let fits = |open: &OpenBatch| open.builder.size_bytes() + size_bytes <= open.limit_bytes;
        self.open.as_ref().is_some_and(fits)
    }

    /// Whether nothing waits and nothing is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.open.is_none() && self.closed.is_empty()
    }

    /// Bytes of `buffer.memory` that are held by what is not in flight.
    pub(super) fn waiting_bytes(&self) -> usize {
        let closed: usize = self.closed.iter().map(|batch| batch.memory_bytes as usize).sum();
        closed + self.open.as_ref().map_or(0, |open| open.memory_bytes as usize)
    }

    /// Takes all that is not in flight.
    pub(super) fn take_waiting(&mut self, shared: &Shared) -> VecDeque<Batch> {
        self.close_open(shared);
        std::mem::take(&mut self.closed)
    }

    /// Continues under another identity. Nothing of the partition may be in flight.
    pub(super) fn restart(&mut self, identity: Identity) {
        self.numbering.start(identity);
        self.recovering = false;
    }

    /// Puts a batch back, in front of those that come after it.
    pub(super) fn put_back(&mut self, batch: Batch) {
        let at = self.closed.iter().take_while(|b| b.first_record < batch.first_record).count();
        self.closed.insert(at, batch);
    }

    /// The topic has another id: it was deleted and re-created, and its log has no state of producers.
    fn renew_topic(&mut self, topic_id: TopicId) {
        (self.topic_id, self.told) = (topic_id, Told::default());
        (self.made_again, self.recovering) = (true, true);
        self.doubt_old_topic();
    }

    /// A batch has come back.
    pub(super) fn came_back(&mut self) {
        self.in_flight -= 1;
        self.doubt_old_topic();
    }

    /// After the last answer for the old topic, the sequence of the new one is in doubt.
    fn doubt_old_topic(&mut self) {
        if self.made_again && self.in_flight == 0 {
            (self.made_again, self.recovering) = (false, false);
            self.numbering.doubt_all();
        }
    }
}

/// The finished batch, compressed as the producer is configured.
pub(super) fn finish(shared: &Shared, builder: BatchBuilder, ratio: &CompressionRatio) -> Bytes {
    let codec = shared.config.compression;
    if codec == Compression::None {
        return Bytes::from(builder.finish());
    }
    let mut compressed = shared.pool.take();
    let level = shared.config.compression_level;
    compression::compress(codec, level, builder.records(), &mut compressed);
    ratio.observe(compressed.len(), builder.records().len());
    let mut batch = builder.finish_compressed(codec, &compressed);
    shared.pool.give(Bytes::from(compressed));
    // What it took before it was compressed is not in buffer.memory.
    if batch.capacity() > 2 * shared.config.batch_bytes {
        batch.shrink_to_fit();
    }
    Bytes::from(batch)
}

impl PartitionQueue {
    /// Appends a record. The outcome of its batch and its place there, if `delivery` wants them.
    pub(super) fn append(
        self: &Arc<Self>,
        shared: &Shared,
        record: &Record<'_>,
        delivery: Option<&mut Option<Delivery>>,
    ) -> Fed {
        let mut state = lock(&self.state);
        let timestamp = record.timestamp.unwrap_or_else(now);
        let Appended { taken, closed, until } =
            self.append_to(&mut state, shared, record, timestamp, delivery);
        let listed = self.let_go(state, shared, until);
        match (taken, closed || listed) {
            (false, _) => Fed::NoMemory,
            (true, true) => Fed::Closed,
            (true, false) => Fed::Taken,
        }
    }

    /// Lets others at the batches, and tells the sender if there is something for it. `until`: how long a batch lingers
    /// that was opened. Whether the sender was told.
    pub(super) fn let_go(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, QueueState>,
        shared: &Shared,
        until: Option<Instant>,
    ) -> bool {
        let listed = state.list(shared, None);
        drop(state);
        if listed {
            shared.ready.add_full(self.clone());
        }
        if let Some(until) = until {
            shared.ready.add_lingering(until, self.clone());
        }
        listed
    }

    /// Appends a record; whoever calls it lets go then.
    #[inline]
    pub(super) fn append_to(
        &self,
        state: &mut QueueState,
        shared: &Shared,
        record: &Record<'_>,
        timestamp: Timestamp,
        delivery: Option<&mut Option<Delivery>>,
    ) -> Appended {
        let added = state.open.as_mut().is_some_and(|open| open.append(shared, record, timestamp));
        if !added {
            return self.append_anew(state, shared, record, timestamp, delivery);
        }
        state.taken += 1;
        let closed = self.settle_open(state, shared, delivery);
        Appended { taken: true, closed, until: None }
    }

    /// Closes the open batch, which has no room for the record, and opens another.
    fn append_anew(
        &self,
        state: &mut QueueState,
        shared: &Shared,
        record: &Record<'_>,
        timestamp: Timestamp,
        delivery: Option<&mut Option<Delivery>>,
    ) -> Appended {
        let mut closed = state.open.is_some();
        state.close_open(shared);
        let Some(mut open) = OpenBatch::new(shared, &self.ratio, state.taken, record) else {
            return Appended { taken: false, closed, until: None };
        };
        let added = open.append(shared, record, timestamp);
        assert!(added, "an empty batch takes any record");
        state.open = Some(open);
        state.taken += 1;
        closed |= self.settle_open(state, shared, delivery);
        let lingering = state.open.as_ref().filter(|_| !shared.config.linger.is_zero());
        let until = lingering.map(|open| open.opened + shared.config.linger);
        Appended { taken: true, closed, until }
    }

    /// Behind an append: closes the open batch if it is full. Whether it was.
    fn settle_open(
        &self,
        state: &mut QueueState,
        shared: &Shared,
        delivery: Option<&mut Option<Delivery>>,
    ) -> bool {
        let Some(open) = &state.open else { return false };
        if let Some(delivery) = delivery {
            let index = open.builder.record_count() - 1;
            let outcome = open.outcome.clone();
            *delivery = Some(Delivery { outcome, index, partition: self.partition });
        }
        let full = open.builder.size_bytes() >= open.limit_bytes;
        if full {
            state.close_open(shared);
        }
        full
    }

    /// Closes the open batch, whether or not it has lingered. Whether the sender must be told.
    fn close(&self, shared: &Shared) -> bool {
        let mut state = lock(&self.state);
        state.close_open(shared);
        state.list(shared, None)
    }

    /// Whether a batch waits for more records and has room for one of `size_bytes`.
    pub(super) fn has_room(&self, size_bytes: usize) -> bool {
        lock(&self.state).has_room(size_bytes)
    }
}

/// What an append did.
pub(super) struct Appended {
    /// Whether the record was taken: there was memory for it.
    pub(super) taken: bool,
    /// Whether a batch was closed.
    pub(super) closed: bool,
    /// How long a batch lingers that was opened; `None` if none was, or nothing lingers.
    pub(super) until: Option<Instant>,
}

/// Bytes of `buffer.memory` that a batch takes whose first record has this size.
pub(super) fn memory_bytes(shared: &Shared, size_bytes_max: usize) -> u32 {
    let needed = shared.config.batch_bytes.max(HEADER_BYTES + size_bytes_max);
    // More than there is would wait for ever.
    needed.min(shared.config.buffer_bytes).min(u32::MAX as usize) as u32
}

impl OpenBatch {
    /// An empty batch, if there is memory for it. `first_record` counts the records before it.
    fn new(
        shared: &Shared,
        ratio: &Arc<CompressionRatio>,
        first_record: u64,
        record: &Record<'_>,
    ) -> Option<OpenBatch> {
        let size_bytes_max = record.size_bytes_max();
        let memory_bytes = memory_bytes(shared, size_bytes_max);
        shared.memory.try_acquire_many(memory_bytes).ok()?.forget();
        let ordinal = shared.next_ordinal.fetch_add(1, Ordering::Relaxed);
        let outcome = Arc::<Outcome>::default();
        lock(&shared.incomplete).insert(ordinal, outcome.clone());
        // A first record that is larger stays alone.
        let config = &shared.config;
        let limit_bytes = match config.compression {
            Compression::None => config.batch_bytes,
            _ => {
                let bytes_max = config.request_bytes_max.min(UNCOMPRESSED_BYTES_MAX);
                ratio.limit_bytes(config.batch_bytes, bytes_max)
            }
        };
        let mut buffer = shared.pool.take();
        buffer.reserve(config.batch_bytes.max(HEADER_BYTES + size_bytes_max));
        Some(OpenBatch {
            builder: BatchBuilder::over(buffer),
            outcome,
            opened: clock::now(),
            ordinal,
            memory_bytes,
            limit_bytes,
            first_record,
            ratio: ratio.clone(),
            tags: if shared.config.on_batch.is_some() { shared.tags.take() } else { Vec::new() },
        })
    }

    /// Adds a record if there is room. Whether it was added.
    #[inline]
    fn append(&mut self, shared: &Shared, record: &Record<'_>, timestamp: Timestamp) -> bool {
        let Record { key, value, headers, .. } = *record;
        let added = self.builder.add_within(self.limit_bytes, timestamp, key, value, headers);
        if added && shared.config.on_batch.is_some() {
            self.tags.push(record.tag);
        }
        added
    }
}

pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(Timestamp(0), |since| Timestamp(since.as_millis() as i64))
}

/// The partitions of one topic.
pub(super) struct TopicQueues {
    name: Arc<str>,
    partitions: RwLock<Arc<Partitions>>,
    sticky: Mutex<Sticky>,
    /// How many records without a key were dealt out in turn.
    dealt: AtomicU32,
    /// Changes with `partitions`.
    generation: AtomicU32,
    ratio: Arc<CompressionRatio>,
    /// Of the topic from the cluster's metadata.
    absence: Mutex<Absence>,
    interest: Mutex<Interest>,
    /// Whether there is no lease: the partitions are those of the time when there was one.
    rests: AtomicBool,
}

/// Whether the cluster keeps the topic known for the producer.
struct Interest {
    lease: Option<TopicLease>,
    /// Records that were taken when it was looked at last.
    taken: u64,
    /// When it was seen in use last.
    used: Instant,
}

#[derive(Clone)]
pub(super) struct Partitions {
    /// Invariant: at least as many as the topic has partitions; more if it was made again with fewer.
    queues: Vec<Arc<PartitionQueue>>,
    /// How many partitions the topic has.
    count: usize,
    /// Those with a leader; all if none has one.
    available: Vec<i32>,
}

impl Partitions {
    /// How many partitions the topic has.
    pub(super) fn count(&self) -> i32 {
        self.count as i32
    }

    /// The batches of a partition that the topic has.
    pub(super) fn queue(&self, partition: i32) -> Option<&Arc<PartitionQueue>> {
        self.queues[..self.count].get(usize::try_from(partition).ok()?)
    }
}

impl TopicQueues {
    pub(super) fn new(topic: &Topic, lease: TopicLease, shared: &Shared) -> TopicQueues {
        let partitions = Partitions { queues: Vec::new(), count: 0, available: Vec::new() };
        let sticky = Mutex::new(Sticky::new(shared.config.batch_bytes));
        let queues = TopicQueues {
            name: topic.name.clone(),
            partitions: RwLock::new(Arc::new(partitions)),
            sticky,
            dealt: AtomicU32::new(fastrand::u32(..)),
            generation: AtomicU32::new(0),
            ratio: Arc::default(),
            absence: Mutex::default(),
            interest: Mutex::new(Interest { lease: Some(lease), taken: 0, used: clock::now() }),
            rests: AtomicBool::new(false),
        };
        queues.update(topic, shared);
        queues
    }

    /// Takes in what the cluster says about the topic: more partitions, other leaders, another id.
    pub(super) fn update(&self, topic: &Topic, shared: &Shared) {
        lock(&self.absence).ends();
        let mut partitions = self.partitions.write().expect("no code under it panics");
        // Whoever takes records in has them as they were.
        let partitions = Arc::make_mut(&mut partitions);
        for queue in &partitions.queues {
            let mut state = lock(&queue.state);
            if state.topic_id.is_zero() {
                // Brokers that tell no ids tell no change either.
                state.topic_id = topic.id;
            } else if state.topic_id != topic.id && !topic.id.is_zero() {
                state.renew_topic(topic.id);
            }
        }
        for partition in &topic.partitions[partitions.queues.len().min(topic.partitions.len())..] {
            let numbering = Numbering::new(shared.first_identity());
            partitions.queues.push(Arc::new(PartitionQueue {
                topic: self.name.clone(),
                partition: partition.index,
                ratio: self.ratio.clone(),
                state: Mutex::new(QueueState::new(topic.id, numbering)),
            }));
        }
        partitions.count = topic.partitions.len();
        let led = topic.partitions.iter().filter(|p| p.leader.is_some());
        partitions.available = led.map(|p| p.index).collect();
        if partitions.available.is_empty() {
            partitions.available = (0..partitions.count as i32).collect();
        }
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Whether the cluster is not asked for the topic: no record came for so long.
    pub(super) fn rests(&self) -> bool {
        self.rests.load(Ordering::Acquire)
    }

    /// The cluster is asked for the topic again, which is as it tells now.
    pub(super) fn wake(&self, topic: &Topic, lease: TopicLease, shared: &Shared) {
        self.update(topic, shared);
        self.hold(&mut lock(&self.interest), Some(lease), clock::now());
    }

    fn hold(&self, interest: &mut Interest, lease: Option<TopicLease>, now: Instant) {
        (interest.lease, interest.used) = (lease, now);
        self.rests.store(interest.lease.is_none(), Ordering::Release);
    }

    /// Has the cluster keep the topic known, or no more if nothing has come for longer than it keeps what is idle.
    /// `is_held`: someone has it at hand to send to it.
    pub(super) fn look_after(&self, is_held: bool, shared: &Shared, now: Instant) {
        let (mut taken, mut is_idle) = (0, true);
        for queue in self.queues() {
            let state = lock(&queue.state);
            taken += state.taken;
            is_idle &= state.is_idle();
        }
        let mut interest = lock(&self.interest);
        let is_used = is_held || !is_idle || taken != interest.taken;
        interest.taken = taken;
        if is_used {
            let lease = interest.lease.take().unwrap_or_else(|| shared.cluster.lease(&self.name));
            self.hold(&mut interest, Some(lease), now);
        } else if now.saturating_duration_since(interest.used)
            > shared.cluster.config().topic_idle_max
        {
            let used = interest.used;
            self.hold(&mut interest, None, used);
        }
    }

    /// A new answer of the cluster lacks the topic. Whether it was deleted.
    pub(super) fn is_gone(&self, now: Instant) -> bool {
        let told: Vec<Told> = self.queues().iter().map(|queue| lock(&queue.state).told).collect();
        lock(&self.absence).goes_on(told, now)
    }

    /// The partitions as they are now.
    pub(super) fn partitions(&self) -> Arc<Partitions> {
        self.partitions.read().expect("no code under it panics").clone()
    }

    pub(super) fn partition_count(&self) -> i32 {
        self.partitions.read().expect("no code under it panics").count as i32
    }

    pub(super) fn queues(&self) -> Vec<Arc<PartitionQueue>> {
        self.partitions.read().expect("no code under it panics").queues.clone()
    }

    /// The partitions with a leader; all if none has one.
    pub(super) fn available(&self) -> Vec<i32> {
        self.partitions.read().expect("no code under it panics").available.clone()
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// The queue that a record goes to.
    fn queue_of(
        &self,
        shared: &Shared,
        record: &Record<'_>,
        size_bytes: usize,
    ) -> Result<Arc<PartitionQueue>, ClientError> {
        let partitions = self.partitions.read().expect("no code under it panics");
        let count = partitions.count as i32;
        if count == 0 {
            return Err(ClientError::Usage(format!("topic {} has no partitions", self.name)));
        }
        let partition = match (record.partition, record.key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => partition_of_key(key, count),
            (None, None) => self.keyless(shared, &partitions, size_bytes),
        };
        partitions.queue(partition).cloned().ok_or_else(|| self.unknown(partition))
    }

    fn keyless(&self, shared: &Shared, partitions: &Partitions, size_bytes: usize) -> i32 {
        let available = &partitions.available;
        match shared.config.partitioner {
            Partitioner::Sticky => {
                let draw = || available[fastrand::usize(..available.len())];
                let gathers = |p: i32| partitions.queues[p as usize].has_room(size_bytes);
                lock(&self.sticky).next(size_bytes, gathers, draw)
            }
            Partitioner::RoundRobin => {
                let turn = self.dealt.fetch_add(1, Ordering::Relaxed) as usize;
                available[turn % available.len()]
            }
        }
    }

    pub(super) fn unknown(&self, partition: i32) -> ClientError {
        ClientError::Usage(format!("{} has no partition {partition}", self.name))
    }

    /// Appends a record; `None` if there is no memory for it now.
    pub(super) fn append(
        &self,
        shared: &Shared,
        record: &Record<'_>,
    ) -> Result<Option<Delivery>, ClientError> {
        let size_bytes = record::check(shared, record)?;
        let mut delivery = None;
        let queue = self.queue_of(shared, record, size_bytes)?;
        queue.append(shared, record, Some(&mut delivery));
        Ok(delivery)
    }

    /// Bytes of memory that a new batch for this record takes.
    pub(super) fn memory_for(&self, shared: &Shared, record: &Record<'_>) -> u32 {
        memory_bytes(shared, record.size_bytes_max())
    }

    pub(super) fn close_open_batches(&self, shared: &Shared) {
        for queue in self.queues() {
            if queue.close(shared) {
                shared.ready.add_full(queue);
            }
        }
    }
}
