//! From closed batches to brokers and back: one task for each producer.
//!
//! The order of a partition is kept so: its batches go to one broker at a time, and when one comes
//! back to be sent again, nothing more is sent until all that were in flight have come back too.
//! With idempotence the broker refuses whatever arrives out of order; without it, a batch behind a
//! failed one may get ahead of it unless one request is in flight at a time, as in Kafka.

use super::absence::Told;
use super::batch::{Batch, BatchReport, Placed, Undelivered};
use super::numbering::Identity;
use super::queue::{PartitionQueue, QueueState};
use super::request::Sent;
use super::split;
use super::transaction::{self, Transaction};
use super::transport::{Brokers, Event, Transport};
use super::{Shared, lock};
use crate::cluster::TopicLease;
use crate::connection::read;
use crate::error::ClientError;
use bytes::Bytes;
use model::{ErrorCode, Offset, Timestamp, TopicId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use wire::produce::PartitionProduceResponse;
use wire::{ApiKey, ProduceResponse};

/// Without acknowledgements: how long the sender waits for a socket that takes no more.
const UNANSWERED_PAUSE: Duration = Duration::from_millis(1);

/// How often records are taken out of a batch: a broker that names all that it refuses needs a few rounds at most, as there
/// are few reasons. One that names others than it means must not be asked without end.
const SIFTED_MAX: u32 = 8;

/// The connection to a broker.
enum Link<C> {
    Down { until: Option<Instant> },
    Connecting,
    Up(C),
}

struct Broker<C> {
    link: Link<C>,
    in_flight: usize,
}

impl<C> Broker<C> {
    fn down() -> Broker<C> {
        Broker { link: Link::Down { until: None }, in_flight: 0 }
    }
}

struct InFlight {
    broker: i32,
    version: i16,
    peer: String,
    sent: Vec<Sent>,
}

/// The decisions of one producer; the I/O is the transport's.
pub(super) struct Sender<T: Transport> {
    shared: Arc<Shared>,
    transport: T,
    /// Time of the pass or event at hand.
    now: Instant,
    brokers: HashMap<i32, Broker<T::Connection>>,
    /// Partitions that have, or may have, closed batches.
    ready: Vec<Arc<PartitionQueue>>,
    in_flight: HashMap<u64, InFlight>,
    next_request: u64,
    /// Connections with requests that are still to be written.
    unwritten: Vec<T::Connection>,
    refreshing: bool,
    /// When metadata was requested last.
    refreshed: Instant,
    /// Topics whose leaders were missing since there was nothing to send: asked for even if the producer has forgotten them.
    sought: HashMap<Arc<str>, TopicLease>,
    /// Whether a producer id was requested and has not come.
    requesting_id: bool,
    /// The earliest moment at which something may change by itself.
    wake_at: Option<Instant>,
}

/// The task of a producer: ends when the producer is gone and its batches have ended.
pub(super) async fn run(shared: Arc<Shared>) {
    let (events, mut inbox) = mpsc::unbounded_channel();
    let transport = Brokers::new(shared.clone(), events);
    let mut sender = Sender::new(shared.clone(), transport, Instant::now());
    while sender.pass(Instant::now()) {
        let wake_at = sender.wake_at().map(tokio::time::Instant::from_std);
        tokio::select! {
            Some(event) = inbox.recv() => sender.take(event, Instant::now()),
            () = shared.ready.woken() => {}
            () = tokio::time::sleep_until(wake_at.unwrap_or_else(tokio::time::Instant::now)),
                if wake_at.is_some() => {}
        }
        while let Ok(event) = inbox.try_recv() {
            sender.take(event, Instant::now());
        }
    }
}

impl<T: Transport> Sender<T> {
    pub(super) fn new(shared: Arc<Shared>, transport: T, now: Instant) -> Sender<T> {
        Sender {
            shared,
            transport,
            now,
            brokers: HashMap::new(),
            ready: Vec::new(),
            in_flight: HashMap::new(),
            next_request: 0,
            unwritten: Vec::new(),
            refreshing: false,
            refreshed: now,
            sought: HashMap::new(),
            requesting_id: false,
            wake_at: None,
        }
    }

    /// When the next pass is due, unless an event or a record comes first.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }

    /// Sends what can be sent now. False when there will never be anything again.
    pub(super) fn pass(&mut self, now: Instant) -> bool {
        self.now = now;
        self.wake_at = None;
        if let Some(error) = self.doom() {
            self.give_up_waiting(&error);
        }
        if self.shared.is_closed() {
            if lock(&self.shared.incomplete).is_empty() {
                return false;
            }
            let topics = self.shared.topics.read().expect("no code under it panics");
            topics.values().for_each(|topic| topic.close_open_batches(&self.shared));
        }
        self.refresh_if_old(now);
        self.collect(now);
        while self.send_round(now) {}
        if self.ready.is_empty() {
            self.sought.clear();
        }
        self.request_identity();
        if self.shared.transaction.as_ref().is_some_and(Transaction::begin_adding) {
            self.transport.add_partitions();
        }
        for connection in self.unwritten.drain(..) {
            self.transport.write(&connection);
        }
        true
    }

    fn collect(&mut self, now: Instant) {
        let (lingered, next) = self.shared.ready.take_lingered(now);
        if let Some(next) = next {
            self.wake_by(next);
        }
        let listed = lingered.into_iter().filter(|q| lock(&q.state).list(&self.shared, Some(now)));
        self.ready.extend(listed);
        self.shared.ready.take_full(&mut self.ready);
    }

    fn wake_by(&mut self, at: Instant) {
        self.wake_at = Some(self.wake_at.map_or(at, |before| before.min(at)));
    }

    /// Sends one request to each broker that can take one. Whether there was any.
    fn send_round(&mut self, now: Instant) -> bool {
        let metadata = self.shared.cluster.metadata();
        let mut requests: BTreeMap<i32, (usize, Vec<Sent>)> = BTreeMap::new();
        for queue in std::mem::take(&mut self.ready) {
            let leader = metadata.leader(&queue.topic, queue.partition);
            self.expire(&queue, now);
            let keep = self.offer(&queue, leader, now, &mut requests);
            if keep {
                self.ready.push(queue);
            }
        }
        let any = !requests.is_empty();
        for (broker, (_, sent)) in requests {
            self.send(broker, sent);
        }
        any
    }

    /// Moves the partition's next batch into the request for its leader, if it may go now. Whether
    /// the partition must be looked at again.
    fn offer(
        &mut self,
        queue: &Arc<PartitionQueue>,
        leader: Option<i32>,
        now: Instant,
        requests: &mut BTreeMap<i32, (usize, Vec<Sent>)>,
    ) -> bool {
        let mut state = lock(&queue.state);
        if !state.has_batch(&self.shared, Some(now)) {
            state.unlist();
            return false;
        }
        if let Some(at) = state.not_before.filter(|at| *at > now) {
            self.wake_by(at);
            return true;
        }
        let Some(leader) = leader else {
            // All queues are looked at.
            drop(state);
            let sought = self.sought.entry(queue.topic.clone());
            sought.or_insert_with(|| self.shared.cluster.lease(&queue.topic));
            self.refresh_metadata(now);
            return true;
        };
        if self.shared.transaction.as_ref().is_some_and(|t| !t.admits(queue)) {
            return true;
        }
        let config = &self.shared.config;
        let busy = state.in_flight > 0
            && (state.recovering
                || state.in_flight_broker != leader
                || (config.idempotence && !state.numbering.allows_pipelining())
                || state.in_flight >= config.in_flight_max.min(config.partition_in_flight_max));
        if busy || !self.has_room(leader, now) || !state.prepare_next(&self.shared) {
            return true;
        }
        let (size, sent) = requests.entry(leader).or_default();
        let bytes_max = self.shared.config.request_bytes_max;
        let fits = |next| sent.is_empty() || *size + next <= bytes_max;
        if let Some(mut batch) = state.take_next(&self.shared, fits) {
            batch.attempts += 1;
            batch.sent = batch.sent.or(Some(now));
            let (records, bytes) = (batch.record_count as u64, batch.bytes.len() as u64);
            self.shared.counters.batch_sent(records, bytes, batch.attempts > 1);
            *size += batch.bytes.len();
            (state.recovering, state.in_flight_broker) = (false, leader);
            state.in_flight += 1;
            sent.push(Sent { queue: queue.clone(), topic_id: state.topic_id, batch });
        }
        true
    }

    /// Whether a request may be sent to this broker; connects if there is no connection.
    fn has_room(&mut self, id: i32, now: Instant) -> bool {
        let broker = self.brokers.entry(id).or_insert_with(Broker::down);
        match &broker.link {
            Link::Up(connection) if !self.transport.is_closed(connection) => {
                if self.shared.config.acks == 0 && self.transport.has_backlog(connection) {
                    // No answer will tell when the broker takes more.
                    self.wake_by(now + UNANSWERED_PAUSE);
                    return false;
                }
                return broker.in_flight < self.shared.config.in_flight_max;
            }
            Link::Connecting => return false,
            // What the closed connection has lost comes back first: a partition keeps its order.
            Link::Up(_) if broker.in_flight > 0 => return false,
            Link::Down { until: Some(until) } if *until > now => {
                let until = *until;
                self.wake_by(until);
                return false;
            }
            Link::Up(_) | Link::Down { .. } => {}
        }
        broker.link = Link::Connecting;
        self.transport.connect(id);
        false
    }

    fn send(&mut self, broker: i32, mut sent: Vec<Sent>) {
        sent.sort_by(|a, b| a.topic().cmp(&b.topic()));
        let Link::Up(connection) = &self.brokers[&broker].link else {
            unreachable!("has_room() said that it is up");
        };
        let connection = connection.clone();
        let named = sent.iter().any(|s| s.topic_id.is_zero());
        let limit = match self.shared.transaction {
            Some(_) => transaction::PRODUCE_VERSION_MAX,
            None if named => 12,
            None => i16::MAX,
        };
        let version = self.transport.produce_version(&connection, limit);
        let peer = self.transport.peer(&connection);
        let Some(version) = version else {
            let error = ClientError::Unsupported { peer, api: ApiKey::Produce };
            return self.settle_all(sent, &error);
        };
        let request = self.next_request;
        self.next_request += 1;
        let written = self.transport.queue(&connection, version, request, &sent);
        let acked = self.shared.config.acks != 0;
        match written {
            Err(error) => self.settle_all(sent, &error),
            Ok(()) if acked => {
                let in_flight =
                    &mut self.brokers.entry(broker).or_insert_with(Broker::down).in_flight;
                *in_flight += 1;
                self.shared.counters.request_sent(*in_flight as u64);
                // Several requests may be written at once, at the end of the pass.
                self.unwritten.push(connection);
                self.in_flight.insert(request, InFlight { broker, version, peer, sent });
            }
            Ok(()) => {
                self.transport.write(&connection);
                self.shared.counters.request_sent(1);
                let placed = Placed { base_offset: None, log_append_time: Timestamp::NONE };
                sent.into_iter().for_each(|s| self.complete(s, Ok(placed)));
            }
        }
    }

    /// Takes the result of what was started before.
    pub(super) fn take(&mut self, event: Event<T::Connection>, now: Instant) {
        self.now = now;
        match event {
            Event::Answer { request, result } => self.answered(request, result),
            Event::Connected { broker, result } => self.connected(broker, result),
            Event::Refreshed { is_new } => self.refreshed(is_new),
            Event::Identity(result) => self.install_identity(result),
        }
    }

    fn connected(&mut self, id: i32, result: Result<T::Connection, ClientError>) {
        let link = match result {
            Ok(connection) => Link::Up(connection),
            Err(error) => {
                tracing::debug!(broker = id, %error, "cannot connect");
                let now = self.now;
                if let ClientError::NotAdmitted { .. } = error {
                    self.give_up_led_by(id, &error);
                }
                self.refresh_metadata(now);
                Link::Down { until: Some(now + self.shared.config.retry_backoff) }
            }
        };
        self.brokers.entry(id).and_modify(|broker| broker.link = link);
    }

    fn answered(&mut self, request: u64, result: Result<Bytes, ClientError>) {
        let Some(flight) = self.in_flight.remove(&request) else { return };
        self.brokers.entry(flight.broker).and_modify(|b| b.in_flight -= 1);
        let response = result.and_then(|frame| {
            read::<ProduceResponse>(&flight.peer, &frame, ApiKey::Produce, flight.version)
        });
        let response = match response {
            Ok(response) => response,
            Err(error) => return self.settle_all(flight.sent, &error),
        };
        let mut answers: HashMap<(usize, i32), &PartitionProduceResponse> = HashMap::new();
        for (i, topic) in response.responses.iter().enumerate() {
            answers.extend(topic.partition_responses.iter().map(|p| ((i, p.index), p)));
        }
        // Topics are few in one answer; partitions may be many.
        let topic_of = |s: &Sent| {
            response.responses.iter().position(|t| match flight.version {
                13.. => t.topic_id == s.topic_id,
                _ => *t.name == *s.queue.topic,
            })
        };
        let mut last: Option<(Arc<str>, TopicId, Option<usize>)> = None;
        for sent in flight.sent {
            let known = last.as_ref().filter(|(name, id, _)| (&**name, *id) == sent.topic());
            let topic = known.map_or_else(|| topic_of(&sent), |(_, _, topic)| *topic);
            last = Some((sent.queue.topic.clone(), sent.topic_id, topic));
            match topic.and_then(|t| answers.get(&(t, sent.queue.partition))) {
                Some(answer) => self.settle_answer(sent, answer),
                None => {
                    let error = ErrorCode::UnknownServerError;
                    self.settle(sent, &ClientError::refused("a partition without answer", error));
                }
            }
        }
    }

    fn settle_answer(&mut self, sent: Sent, answer: &PartitionProduceResponse) {
        let placed = |base_offset| {
            Ok(Placed { base_offset, log_append_time: Timestamp(answer.log_append_time_ms) })
        };
        match answer.error() {
            ErrorCode::None => self.complete(sent, placed(Some(Offset(answer.base_offset)))),
            // It was appended when it was sent before.
            ErrorCode::DuplicateSequenceNumber => self.complete(sent, placed(None)),
            code => {
                let what = format!("produce to {}-{}", sent.queue.topic, sent.queue.partition);
                let message = answer.error_message.clone();
                let error = ClientError::Refused { what, code, message };
                match self.refused_of(&sent.batch, answer) {
                    Some(refused) => self.send_others(sent, refused, error),
                    None => self.settle(sent, &error),
                }
            }
        }
    }

    fn settle_all(&mut self, sent: Vec<Sent>, error: &ClientError) {
        sent.into_iter().for_each(|sent| self.settle(sent, error));
    }

    /// Decides what becomes of a batch that failed.
    fn settle(&mut self, mut sent: Sent, error: &ClientError) {
        let now = self.now;
        sent.batch.maybe_written |= !error.says_not_written();
        let again = match error.code() {
            _ if self.doom().is_some() => false,
            Some(code) if is_of_sequence(code) => self.settle_sequence(&sent, code),
            _ => error.is_retriable(),
        };
        let late = sent.batch.opened + self.shared.config.delivery_timeout <= now;
        let tired = sent.batch.attempts > self.shared.config.retries;
        let too_large = error.code() == Some(ErrorCode::MessageTooLarge) && self.doom().is_none();
        if too_large && !late && sent.batch.record_count > 1 {
            return self.send_halves(sent);
        }
        if !again || late || tired {
            return self.fail(sent, error.clone());
        }
        tracing::debug!(topic = %sent.queue.topic, partition = sent.queue.partition, %error, "again");
        self.refresh_metadata(now);
        let again_at = now + self.pause();
        {
            let mut state = lock(&sent.queue.state);
            state.not_before = Some(again_at);
            // Of the topic that it is now, if it was made again meanwhile.
            state.told.is_unknown |= is_unknown(error) && state.topic_id == sent.topic_id;
        }
        self.put_back(sent.queue, [sent.batch]);
    }

    /// A broker has refused the numbers of a batch. Whether it is sent again, perhaps under others.
    fn settle_sequence(&mut self, sent: &Sent, code: ErrorCode) -> bool {
        let mut state = lock(&sent.queue.state);
        if self.shared.transaction.is_some() {
            return state.recovering && code == ErrorCode::OutOfOrderSequenceNumber;
        }
        // The broker lacks a batch before this one, which is sent again first, or was given up.
        if state.recovering && code != ErrorCode::InvalidProducerEpoch {
            return true;
        }
        state.numbering.break_off(&sent.batch);
        if code == ErrorCode::InvalidProducerEpoch {
            lock(&self.shared.identities).use_id_up(sent.batch.identity.0);
        }
        // Under other numbers no broker would recognise a batch that is appended already.
        !sent.batch.maybe_written
    }

    /// The batch is larger than the topic takes, and has several records: sends it as two.
    fn send_halves(&mut self, sent: Sent) {
        let (topic, partition) = (&sent.queue.topic, sent.queue.partition);
        tracing::debug!(%topic, partition, bytes = sent.batch.bytes.len(), "too large: split");
        let halves = split::halves(&self.shared, &sent.queue, sent.batch);
        self.put_back(sent.queue, halves);
    }

    /// The records that a broker refuses for themselves, ascending, if it names them and others are in the batch (KIP-467).
    /// A transaction cannot be committed without them.
    fn refused_of(&self, batch: &Batch, answer: &PartitionProduceResponse) -> Option<Arc<[i32]>> {
        let is_of_records =
            matches!(answer.error(), ErrorCode::InvalidRecord | ErrorCode::InvalidTimestamp);
        if !is_of_records || self.shared.transaction.is_some() || batch.sifted >= SIFTED_MAX {
            return None;
        }
        let named = answer.record_errors.iter().map(|error| error.batch_index);
        let mut refused: Vec<i32> =
            named.filter(|index| (0..batch.record_count).contains(index)).collect();
        refused.sort_unstable();
        refused.dedup();
        (1..batch.record_count as usize).contains(&refused.len()).then(|| refused.into())
    }

    /// Some records of a batch are refused: gives those up, and sends the others without them.
    fn send_others(&mut self, sent: Sent, refused: Arc<[i32]>, error: ClientError) {
        let (topic, partition) = (&sent.queue.topic, sent.queue.partition);
        tracing::debug!(%topic, partition, refused = refused.len(), %error, "sent without them");
        let [lost, others] = split::sifted(&self.shared, &sent.queue, sent.batch, refused);
        self.end(&sent.queue, lost, Err(error));
        self.put_back(sent.queue, [others]);
    }

    /// What a broker had, or what takes its place, is to be sent again.
    fn put_back(&mut self, queue: Arc<PartitionQueue>, batches: impl IntoIterator<Item = Batch>) {
        let mut state = lock(&queue.state);
        state.recovering = true;
        batches.into_iter().for_each(|batch| state.put_back(batch));
        state.came_back();
        let told = state.list(&self.shared, None);
        drop(state);
        if told {
            self.ready.push(queue);
        }
    }

    /// Gives a batch up that a broker had.
    fn fail(&mut self, sent: Sent, error: ClientError) {
        let mut state = lock(&sent.queue.state);
        // Batches in flight behind it are refused, as they are out of order.
        state.recovering |= sent.batch.is_numbered() && state.in_flight > 1;
        self.lose(&mut state, &sent.batch, &error);
        drop(state);
        self.complete(sent, Err(error));
    }

    fn complete(&mut self, sent: Sent, result: Result<Placed, ClientError>) {
        {
            let mut state = lock(&sent.queue.state);
            if result.is_ok() {
                state.numbering.acknowledge(&sent.batch);
                state.told = Told { is_taken: true, is_unknown: false };
            }
            state.came_back();
        }
        self.end(&sent.queue, sent.batch, result);
    }

    /// A batch has ended: tells who waits, and takes its memory back.
    fn end(&self, queue: &PartitionQueue, batch: Batch, result: Result<Placed, ClientError>) {
        let records = batch.record_count as u64;
        match &result {
            Ok(_) => self.shared.counters.acknowledged(records, batch.bytes.len() as u64),
            Err(_) => self.shared.counters.failed(records),
        }
        if let Some(on_batch) = &self.shared.config.on_batch {
            on_batch(&BatchReport {
                topic: &queue.topic,
                partition: queue.partition,
                record_count: batch.record_count,
                size_bytes: batch.bytes.len(),
                first_record: batch.first_record,
                tags: &batch.tags,
                attempts: batch.attempts,
                sent: batch.sent,
                opened: batch.opened,
                ended: self.now,
                result: &result,
            });
        }
        let maybe_written = batch.maybe_written;
        batch.outcome.complete(result.map_err(|error| Undelivered { error, maybe_written }));
        lock(&self.shared.incomplete).remove(&batch.ordinal);
        self.shared.tags.give(batch.tags);
        self.shared.pool.give(batch.bytes);
        self.shared.memory.add_permits(batch.memory_bytes as usize);
    }

    /// Gives up what has waited longer than `delivery.timeout.ms`, and what is spent.
    fn expire(&mut self, queue: &Arc<PartitionQueue>, now: Instant) {
        let timeout = self.shared.config.delivery_timeout;
        let mut expired = Vec::new();
        let what = || format!("delivery to {}-{}", queue.topic, queue.partition);
        let mut state = lock(&queue.state);
        while let Some(batch) = state.take_expired(&self.shared, now) {
            let error = match batch.is_spent {
                true => ClientError::refused(what(), ErrorCode::OutOfOrderSequenceNumber),
                false => {
                    ClientError::TimedOut { what: what(), after_ms: timeout.as_millis() as u64 }
                }
            };
            self.lose(&mut state, &batch, &error);
            expired.push((batch, error));
        }
        let next = state.oldest().map(|opened| opened + timeout);
        drop(state);
        if let Some(next) = next {
            self.wake_by(next);
        }
        for (batch, error) in expired {
            self.end(queue, batch, Err(error));
        }
    }

    /// A batch is given up. If it may be appended, the broker may expect its sequence or the next one:
    /// the partition takes another epoch for its next batch. A transaction cannot be committed without
    /// the batch, and has another epoch after its abort.
    fn lose(&self, state: &mut QueueState, batch: &Batch, error: &ClientError) {
        if self.shared.transaction.is_some() {
            self.shared.fail_transaction(error);
        } else if batch.is_numbered() && batch.maybe_written {
            state.numbering.doubt(batch);
        }
    }

    /// Why nothing more is sent within the transaction, if so.
    fn doom(&self) -> Option<ClientError> {
        self.shared.transaction.as_ref().and_then(Transaction::doom)
    }

    fn give_up_waiting(&mut self, error: &ClientError) {
        for queue in self.shared.queues() {
            self.give_up(&queue, error);
        }
    }

    /// This broker does not let the client in: what waits for it is not kept until its time is over.
    fn give_up_led_by(&mut self, broker: i32, error: &ClientError) {
        let metadata = self.shared.cluster.metadata();
        for queue in self.ready.clone() {
            if metadata.leader(&queue.topic, queue.partition) != Some(broker) {
                continue;
            }
            self.give_up(&queue, error);
        }
    }

    /// Gives up what waits for a partition.
    fn give_up(&mut self, queue: &PartitionQueue, error: &ClientError) {
        let mut state = lock(&queue.state);
        let batches = state.take_waiting(&self.shared);
        batches.iter().for_each(|batch| self.lose(&mut state, batch, error));
        drop(state);
        for batch in batches {
            self.end(queue, batch, Err(error.clone()));
        }
    }

    /// Topics may have got partitions though nothing fails.
    fn refresh_if_old(&mut self, now: Instant) {
        let old_at = self.refreshed + self.shared.cluster.config().metadata_age_max;
        if old_at <= now {
            self.refresh_metadata(now);
        } else {
            self.wake_by(old_at);
        }
    }

    fn refresh_metadata(&mut self, now: Instant) {
        self.wake_by(now + self.shared.config.retry_backoff);
        if std::mem::replace(&mut self.refreshing, true) {
            return;
        }
        for topic in self.shared.topics.read().expect("no code under it panics").values() {
            topic.look_after(Arc::strong_count(topic) > 1, &self.shared, now);
        }
        self.transport.refresh(self.pause());
    }

    fn pause(&self) -> Duration {
        crate::cluster::jittered(self.shared.config.retry_backoff)
    }

    fn refreshed(&mut self, is_new: bool) {
        let now = self.now;
        (self.refreshing, self.refreshed) = (false, now);
        let looks = is_new && self.shared.config.gives_up_deleted;
        let metadata = self.shared.cluster.metadata();
        let mut gone = Vec::new();
        let topics = self.shared.topics.read().expect("no code under it panics");
        for (name, queues) in topics.iter() {
            match metadata.topics.get(name.as_str()) {
                Some(topic) => queues.update(topic, &self.shared),
                None if looks && !queues.rests() && queues.is_gone(now) => {
                    gone.extend(queues.queues())
                }
                None => {}
            }
        }
        drop(topics);
        for queue in gone {
            let what = format!("produce to {}-{}", queue.topic, queue.partition);
            let error = ClientError::refused(what, ErrorCode::UnknownTopicOrPartition);
            self.give_up(&queue, &error);
        }
    }

    /// Requests another producer id if a partition waits for one. Partitions with an identity go on.
    fn request_identity(&mut self) {
        if !self.requesting_id && lock(&self.shared.identities).wants_id() {
            self.requesting_id = true;
            self.transport.request_identity(self.pause());
        }
    }

    fn install_identity(&mut self, result: Result<Identity, ClientError>) {
        self.requesting_id = false;
        match result {
            Ok(identity) => lock(&self.shared.identities).install(identity),
            Err(error) => tracing::warn!(%error, "cannot get a producer id; retrying"),
        }
    }
}

/// Whether a broker refuses the producer id, the epoch or the sequence of a batch.
fn is_of_sequence(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::OutOfOrderSequenceNumber
            | ErrorCode::UnknownProducerId
            | ErrorCode::InvalidProducerIdMapping
            | ErrorCode::InvalidProducerEpoch
    )
}

/// Whether a leader says that it knows no such topic.
fn is_unknown(error: &ClientError) -> bool {
    let code = error.code();
    matches!(code, Some(ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId))
}
