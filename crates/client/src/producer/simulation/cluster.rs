//! The simulated cluster: brokers with connections, partition logs with the state of idempotent
//! producers, and their faults. All that happens comes from one seed, at simulated times.
#![cfg(test)]

use crate::cluster::Cluster;
use crate::error::ClientError;
use crate::producer::numbering::Identity;
use crate::producer::request::{self, Envelope, Sent};
use crate::producer::transport::{Event, Transport};
use bytes::Bytes;
use model::batch::BatchHeader;
use model::{ErrorCode, ProducerEpoch, ProducerId, Sequence, Uuid};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use wire::frame::{LENGTH_BYTES, RequestHead, write_response};
use wire::metadata::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic};
use wire::produce::{BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse};
use wire::{ApiKey, MetadataResponse, ProduceRequest, ProduceResponse, Reader, Writer};

/// Batches of a producer that a broker remembers for each partition.
const BATCHES_KEPT: usize = 5;
/// The version of Produce that brokers serve.
const VERSION: i16 = 13;

/// Microseconds since the start.
pub(super) type Time = u64;

/// Shares of a hundred of what can go wrong with a request, a partition of it, or a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    /// The connection ends before the broker has read the request; the broker may read it later.
    pub(super) lost_request: u32,
    /// The connection ends before the answer is sent.
    pub(super) lost_answer: u32,
    /// NOT_ENOUGH_REPLICAS: nothing is appended.
    pub(super) refused: u32,
    /// The batch is appended, and the answer is an error.
    pub(super) unsure: u32,
    /// A record of the load is one that the broker refuses.
    pub(super) bad_record: u32,
    /// For each ten milliseconds: a partition gets another leader, and loses what is not replicated.
    pub(super) moved: u32,
    /// For each ten milliseconds: a broker stops reading for up to four seconds.
    pub(super) hung: u32,
    /// For each ten milliseconds: the topic is deleted and re-created.
    pub(super) recreated: u32,
    /// For each ten milliseconds: a partition without records under way loses its producers' state.
    pub(super) expired: u32,
    /// For each ten milliseconds: the producer forgets the topic if nothing is under way.
    pub(super) forgotten: u32,
}

/// Properties of the brokers' version.
#[derive(Debug, Clone, Copy)]
pub(super) struct Habits {
    /// UNKNOWN_PRODUCER_ID for a sequence above 0 of a producer without state, as before Kafka 2.5.
    pub(super) knows_unknown: bool,
    /// A refusal for bad records names them (KIP-467).
    pub(super) names_bad: bool,
    /// Largest batch, in bytes.
    pub(super) bytes_max: usize,
}

/// What a broker remembers of a producer.
#[derive(Debug, Clone, Default)]
struct ProducerState {
    epoch: i16,
    /// First and last sequence and base offset.
    batches: VecDeque<(i32, i32, i64)>,
}

#[derive(Debug, Clone)]
struct Appended {
    identity: Identity,
    first: i32,
    last: i32,
    values: Vec<String>,
}

/// One partition's log. What is not committed may be lost with its leader.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    batches: Vec<Appended>,
    committed: usize,
    producers: HashMap<i64, ProducerState>,
}

enum Verdict {
    Append,
    Duplicate(i64),
    Refuse(ErrorCode),
}

impl Log {
    /// All records, by offset.
    pub(super) fn values(&self) -> impl Iterator<Item = &str> {
        self.batches.iter().flat_map(|batch| &batch.values).map(String::as_str)
    }

    fn end(&self) -> i64 {
        self.batches.iter().map(|batch| batch.values.len() as i64).sum()
    }

    /// Kafka's rules: ProducerAppendInfo, ProducerStateEntry.
    fn verdict(&self, header: &BatchHeader, habits: &Habits) -> Verdict {
        let first = header.base_sequence.0;
        let last = header.base_sequence.plus(header.record_count - 1).0;
        let out_of_order = Verdict::Refuse(ErrorCode::OutOfOrderSequenceNumber);
        let Some(state) = self.producers.get(&header.producer_id.0) else {
            return match habits.knows_unknown && first != 0 {
                true => Verdict::Refuse(ErrorCode::UnknownProducerId),
                false => Verdict::Append,
            };
        };
        if header.producer_epoch.0 < state.epoch {
            return Verdict::Refuse(ErrorCode::InvalidProducerEpoch);
        }
        if header.producer_epoch.0 > state.epoch {
            return if first == 0 { Verdict::Append } else { out_of_order };
        }
        let same = |batch: &&(i32, i32, i64)| (batch.0, batch.1) == (first, last);
        if let Some((_, _, offset)) = state.batches.iter().find(same) {
            return Verdict::Duplicate(*offset);
        }
        let due = state.batches.back().map_or(0, |(_, last, _)| Sequence(*last).plus(1).0);
        if due == first { Verdict::Append } else { out_of_order }
    }

    fn append(&mut self, header: &BatchHeader, values: Vec<String>) -> i64 {
        let appended = Appended {
            identity: (header.producer_id, header.producer_epoch),
            first: header.base_sequence.0,
            last: header.base_sequence.plus(header.record_count - 1).0,
            values,
        };
        let offset = self.end();
        self.remember(&appended, offset);
        self.batches.push(appended);
        offset
    }

    fn remember(&mut self, appended: &Appended, offset: i64) {
        let (id, epoch) = appended.identity;
        let state = self.producers.entry(id.0).or_default();
        if state.epoch != epoch.0 {
            *state = ProducerState { epoch: epoch.0, batches: VecDeque::new() };
        }
        state.batches.push_back((appended.first, appended.last, offset));
        if state.batches.len() > BATCHES_KEPT {
            state.batches.pop_front();
        }
    }

    /// Another leader has a part of what is not committed.
    fn truncate(&mut self, keep: usize) {
        self.batches.truncate(keep);
        self.producers.clear();
        let mut offset = 0;
        for batch in self.batches.clone() {
            self.remember(&batch, offset);
            offset += batch.values.len() as i64;
        }
    }
}

pub(super) struct Topic {
    pub(super) name: &'static str,
    /// Of this topic and of those before it that had its name.
    id: Uuid,
    pub(super) leaders: Vec<i32>,
    pub(super) logs: Vec<Log>,
    /// The logs of the topics of this name that were deleted.
    pub(super) deleted: Vec<(usize, Log)>,
    pub(super) faults: Faults,
}

#[derive(Default)]
struct Broker {
    /// Whether it reads no requests.
    is_hung: bool,
    backlog: VecDeque<Frame>,
    /// Faults of its connections.
    faults: Faults,
}

struct Frame {
    connection: u64,
    request: u64,
    bytes: Vec<u8>,
}

struct Wire {
    broker: i32,
    is_closed: bool,
    /// Requests without an answer, in their order.
    pending: VecDeque<u64>,
    inbox: VecDeque<Frame>,
    last_arrival: Time,
    last_answer: Time,
}

/// What happens next.
enum Happening {
    Event(Event<u64>),
    /// The first request of a connection's inbox reaches the broker.
    Arrival(u64),
    Timeout {
        connection: u64,
        request: u64,
    },
    Resumption(usize),
    Refresh,
    Tick,
}

pub(super) struct World {
    pub(super) now: Time,
    pub(super) rng: fastrand::Rng,
    happenings: BTreeMap<(Time, u64), Happening>,
    next_happening: u64,
    brokers: Vec<Broker>,
    wires: HashMap<u64, Wire>,
    pub(super) topics: Vec<Topic>,
    cluster: Cluster,
    habits: Habits,
    request_timeout: Time,
    /// Faults end then.
    pub(super) calm_from: Time,
    /// Requests for a producer id.
    pub(super) ids_requested: u64,
    /// Batches that brokers recognised as appended before.
    pub(super) duplicates: u64,
    /// Batches that brokers refused for their numbers.
    pub(super) out_of_order: u64,
    /// Topics that the producer shall forget if it can.
    pub(super) to_forget: Vec<usize>,
    /// Records under way of each topic.
    pub(super) under_way: Vec<u32>,
    /// Requests that are queued and not written.
    is_writing: Vec<Frame>,
}

pub(super) type Shared = Rc<RefCell<World>>;

impl World {
    pub(super) fn new(
        seed: u64,
        cluster: Cluster,
        broker_faults: &[Faults],
        habits: Habits,
        request_timeout: Duration,
    ) -> World {
        let broker = |faults: &Faults| Broker { faults: *faults, ..Broker::default() };
        World {
            now: 0,
            rng: fastrand::Rng::with_seed(seed),
            happenings: BTreeMap::new(),
            next_happening: 0,
            brokers: broker_faults.iter().map(broker).collect(),
            wires: HashMap::new(),
            topics: Vec::new(),
            cluster,
            habits,
            request_timeout: request_timeout.as_micros() as Time,
            calm_from: Time::MAX,
            ids_requested: 0,
            duplicates: 0,
            out_of_order: 0,
            to_forget: Vec::new(),
            under_way: Vec::new(),
            is_writing: Vec::new(),
        }
    }

    pub(super) fn add_topic(&mut self, name: &'static str, leaders: &[i32], faults: Faults) {
        let mut id = [0; 16];
        id[0] = self.topics.len() as u8 + 1;
        self.topics.push(Topic {
            name,
            id: Uuid(id),
            leaders: leaders.to_vec(),
            logs: vec![Log::default(); leaders.len()],
            deleted: Vec::new(),
            faults,
        });
        self.under_way.push(0);
        self.publish();
    }

    pub(super) fn start(&mut self) {
        self.at(10_000, Happening::Tick);
    }

    /// Hangs a broker until the faults end.
    pub(super) fn hang(&mut self, broker: usize) {
        self.brokers[broker].is_hung = true;
    }

    fn at(&mut self, time: Time, happening: Happening) {
        self.happenings.insert((time.max(self.now), self.next_happening), happening);
        self.next_happening += 1;
    }

    pub(super) fn next_time(&self) -> Option<Time> {
        self.happenings.keys().next().map(|(time, _)| *time)
    }

    fn delay(&mut self) -> Time {
        self.rng.u64(300..2_000)
    }

    /// Whether a fault with this share happens.
    fn draws(&mut self, share: u32) -> bool {
        self.now < self.calm_from && self.rng.u32(..100) < share
    }

    /// Lets what is due happen; returns an event for the sender.
    pub(super) fn step(&mut self) -> Option<Event<u64>> {
        let due = self.happenings.first_entry().filter(|entry| entry.key().0 <= self.now)?;
        match due.remove() {
            Happening::Event(event) => return Some(event),
            Happening::Arrival(connection) => self.arrive(connection),
            Happening::Timeout { connection, request } => {
                if self.wires[&connection].pending.contains(&request) {
                    self.close(connection);
                }
            }
            Happening::Resumption(broker) => self.resume(broker),
            Happening::Refresh => {
                self.publish();
                let is_new = true;
                return Some(Event::Refreshed { is_new });
            }
            Happening::Tick => self.tick(),
        }
        None
    }

    pub(super) fn has_due(&self) -> bool {
        self.next_time().is_some_and(|time| time <= self.now)
    }

    fn resume(&mut self, broker: usize) {
        self.brokers[broker].is_hung = false;
        for frame in std::mem::take(&mut self.brokers[broker].backlog) {
            self.serve(frame);
        }
    }

    fn tick(&mut self) {
        if self.now >= self.calm_from {
            for broker in 0..self.brokers.len() {
                self.resume(broker);
            }
            return;
        }
        for broker in 0..self.brokers.len() {
            if !self.brokers[broker].is_hung && self.draws(self.brokers[broker].faults.hung) {
                self.brokers[broker].is_hung = true;
                let until = self.now + self.rng.u64(100_000..4_000_000);
                self.at(until, Happening::Resumption(broker));
            }
        }
        for topic in 0..self.topics.len() {
            self.tick_topic(topic);
        }
        self.at(self.now + 10_000, Happening::Tick);
    }

    fn tick_topic(&mut self, at: usize) {
        let faults = self.topics[at].faults;
        let partition = self.rng.usize(..self.topics[at].logs.len());
        if self.draws(faults.moved) {
            self.topics[at].leaders[partition] = self.rng.i32(..self.brokers.len() as i32);
            let log = &mut self.topics[at].logs[partition];
            let keep = self.rng.usize(log.committed..=log.batches.len());
            log.truncate(keep);
        }
        if self.draws(faults.recreated) {
            let topic = &mut self.topics[at];
            topic.id.0[1] += 1;
            topic.id.0[2] += u8::from(topic.id.0[1] == u8::MAX);
            let fresh = vec![Log::default(); topic.logs.len()];
            let old = std::mem::replace(&mut topic.logs, fresh);
            topic.deleted.extend(old.into_iter().enumerate());
        }
        // A producer's state lives for a day: no request of that age is under way.
        if self.under_way[at] == 0 && !self.has_requests() && self.draws(faults.expired) {
            self.topics[at].logs[partition].producers.clear();
        }
        if self.draws(faults.forgotten) {
            self.to_forget.push(at);
        }
    }

    fn has_requests(&self) -> bool {
        let arrives = |happening: &Happening| matches!(happening, Happening::Arrival(_));
        self.happenings.values().any(arrives) || self.brokers.iter().any(|b| !b.backlog.is_empty())
    }

    /// The metadata that the producer has from now on.
    fn publish(&self) {
        let topics = self.topics.iter().map(|topic| MetadataResponseTopic {
            name: Some(topic.name.to_owned()),
            topic_id: topic.id,
            partitions: (0..)
                .zip(&topic.leaders)
                .map(|(partition_index, leader_id)| MetadataResponsePartition {
                    partition_index,
                    leader_id: *leader_id,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        });
        let brokers = (0..self.brokers.len() as i32)
            .map(|node_id| MetadataResponseBroker { node_id, ..Default::default() });
        self.cluster.set_metadata(MetadataResponse {
            brokers: brokers.collect(),
            topics: topics.collect(),
            ..Default::default()
        });
    }

    fn arrive(&mut self, connection: u64) {
        let broker = self.wires[&connection].broker as usize;
        let faults = self.brokers[broker].faults;
        if !self.wires[&connection].is_closed && self.draws(faults.lost_request) {
            self.close(connection);
        }
        let is_closed = self.wires[&connection].is_closed;
        // A request that the client has given up may be read much later.
        if is_closed && self.rng.u32(..100) < 30 {
            let later = self.now + self.rng.u64(..3_000_000);
            return self.at(later, Happening::Arrival(connection));
        }
        let wire = self.wires.get_mut(&connection).expect("known");
        let frame = wire.inbox.pop_front().expect("a request for each arrival");
        if is_closed && self.rng.bool() {
            // The broker has noticed the end of the connection, and reads nothing more of it.
            wire.inbox.clear();
            let others = |happening: &Happening| !matches!(happening, Happening::Arrival(of) if *of == connection);
            return self.happenings.retain(|_, happening| others(happening));
        }
        if self.brokers[broker].is_hung {
            return self.brokers[broker].backlog.push_back(frame);
        }
        self.serve(frame);
    }

    /// Ends a connection: all of its requests fail, in their order.
    fn close(&mut self, connection: u64) {
        let wire = self.wires.get_mut(&connection).expect("known");
        wire.is_closed = true;
        let pending = std::mem::take(&mut wire.pending);
        let time = wire.last_answer.max(self.now) + self.rng.u64(..200);
        for request in pending {
            let peer = "broker".to_owned();
            let result = Err(ClientError::Closed { peer, reason: "fault".to_owned() });
            self.at(time, Happening::Event(Event::Answer { request, result }));
        }
    }

    fn serve(&mut self, frame: Frame) {
        let Frame { connection, request, bytes } = frame;
        let head = RequestHead::parse(&bytes).expect("the producer wrote it");
        let mut reader = Reader::new(&bytes[head.body_from..]);
        let produce = ProduceRequest::decode(&mut reader, VERSION).expect("the producer wrote it");
        let broker = self.wires[&connection].broker;
        let responses = produce.topic_data.iter().map(|topic| TopicProduceResponse {
            topic_id: topic.topic_id,
            partition_responses: (topic.partition_data.iter())
                .map(|partition| {
                    let records = partition.records.as_deref().expect("records");
                    self.produce(broker, topic.topic_id, partition.index, records)
                })
                .collect(),
            ..Default::default()
        });
        let response = ProduceResponse { responses: responses.collect(), ..Default::default() };
        if self.wires[&connection].is_closed {
            return;
        }
        let faults = self.brokers[broker as usize].faults;
        if self.draws(faults.lost_answer) {
            return self.close(connection);
        }
        let mut writer = Writer::new();
        write_response(&mut writer, &response, ApiKey::Produce, VERSION, 0).expect("it fits");
        let result = Ok(Bytes::copy_from_slice(&writer.bytes()[LENGTH_BYTES..]));
        let delay = self.delay();
        let wire = self.wires.get_mut(&connection).expect("known");
        wire.pending.retain(|pending| *pending != request);
        wire.last_answer = wire.last_answer.max(self.now + delay);
        let time = wire.last_answer;
        self.at(time, Happening::Event(Event::Answer { request, result }));
    }

    fn produce(
        &mut self,
        broker: i32,
        topic_id: Uuid,
        index: i32,
        records: &[u8],
    ) -> PartitionProduceResponse {
        let answer = |code: ErrorCode, base_offset| PartitionProduceResponse {
            index,
            error_code: code.code(),
            base_offset,
            log_append_time_ms: -1,
            ..Default::default()
        };
        let refuse = |code| answer(code, -1);
        let Some(at) = self.topics.iter().position(|topic| topic.id == topic_id) else {
            return refuse(ErrorCode::UnknownTopicId);
        };
        let partition = index as usize;
        if self.topics[at].leaders[partition] != broker {
            return refuse(ErrorCode::NotLeaderOrFollower);
        }
        if records.len() > self.habits.bytes_max {
            return refuse(ErrorCode::MessageTooLarge);
        }
        let header = BatchHeader::decode_checked(records).expect("whole batches arrive");
        let values = values_of(records);
        let faults = self.topics[at].faults;
        if self.draws(faults.refused) {
            return refuse(ErrorCode::NotEnoughReplicas);
        }
        let bad = (0..).zip(&values).filter(|(_, value)| value.contains("bad")).map(|(i, _)| i);
        let bad: Vec<i32> = bad.collect();
        if !bad.is_empty() {
            let named = bad.into_iter().filter(|_| self.habits.names_bad);
            let error =
                |batch_index| BatchIndexAndErrorMessage { batch_index, ..Default::default() };
            let record_errors = named.map(error).collect();
            return PartitionProduceResponse {
                record_errors,
                ..refuse(ErrorCode::InvalidTimestamp)
            };
        }
        let habits = self.habits;
        let log = &mut self.topics[at].logs[partition];
        let offset = match log.verdict(&header, &habits) {
            Verdict::Refuse(code) => {
                self.out_of_order += 1;
                return refuse(code);
            }
            Verdict::Duplicate(offset) => {
                self.duplicates += 1;
                offset
            }
            Verdict::Append => log.append(&header, values),
        };
        if self.draws(faults.unsure) {
            let codes = [
                ErrorCode::RequestTimedOut,
                ErrorCode::NotEnoughReplicasAfterAppend,
                ErrorCode::NotLeaderOrFollower,
                // Not retriable: the batch is given up while one before it may be repeated.
                ErrorCode::UnknownServerError,
            ];
            return refuse(codes[self.rng.usize(..codes.len())]);
        }
        let log = &mut self.topics[at].logs[partition];
        log.committed = log.batches.len();
        answer(ErrorCode::None, offset)
    }
}

fn values_of(batch: &[u8]) -> Vec<String> {
    let header = BatchHeader::decode(batch).expect("a batch");
    let mut plain = Vec::new();
    let records = compression::records::read(&header, batch, 1 << 20, &mut plain).expect("records");
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).expect("text");
    records.map(|record| text(record.expect("whole").value.expect("a value"))).collect()
}

/// The way of a sender to the simulated cluster.
pub(super) struct Simulated(pub(super) Shared);

impl Transport for Simulated {
    type Connection = u64;

    fn connect(&self, broker: i32) {
        let world = &mut *self.0.borrow_mut();
        let connection = world.wires.len() as u64;
        world.wires.insert(
            connection,
            Wire {
                broker,
                is_closed: false,
                pending: VecDeque::new(),
                inbox: VecDeque::new(),
                last_arrival: 0,
                last_answer: 0,
            },
        );
        let time = world.now + world.delay();
        world.at(time, Happening::Event(Event::Connected { broker, result: Ok(connection) }));
    }

    fn is_closed(&self, connection: &u64) -> bool {
        self.0.borrow().wires[connection].is_closed
    }

    fn has_backlog(&self, _: &u64) -> bool {
        false
    }

    fn peer(&self, _: &u64) -> String {
        "broker".to_owned()
    }

    fn produce_version(&self, _: &u64, limit: i16) -> Option<i16> {
        (limit >= VERSION).then_some(VERSION)
    }

    fn queue(
        &self,
        connection: &u64,
        version: i16,
        request: u64,
        sent: &[Sent],
    ) -> Result<(), ClientError> {
        let envelope = Envelope {
            version,
            correlation_id: 0,
            client_id: "simulated",
            transactional_id: None,
            acks: -1,
            timeout_ms: 0,
        };
        let pieces = request::pieces(&envelope, sent)?;
        let bytes = pieces.concat().split_off(LENGTH_BYTES);
        let world = &mut *self.0.borrow_mut();
        world.wires.get_mut(connection).expect("known").pending.push_back(request);
        let frame = Frame { connection: *connection, request, bytes };
        world.is_writing.push(frame);
        Ok(())
    }

    fn write(&self, connection: &u64) {
        let world = &mut *self.0.borrow_mut();
        let (written, others): (Vec<Frame>, Vec<Frame>) =
            world.is_writing.drain(..).partition(|frame| frame.connection == *connection);
        world.is_writing = others;
        for frame in written {
            let delay = world.delay();
            let wire = world.wires.get_mut(connection).expect("known");
            wire.last_arrival = wire.last_arrival.max(world.now + delay);
            let (time, request) = (wire.last_arrival, frame.request);
            wire.inbox.push_back(frame);
            world.at(time, Happening::Arrival(*connection));
            let timeout = Happening::Timeout { connection: *connection, request };
            world.at(world.now + world.request_timeout, timeout);
        }
    }

    fn refresh(&self, pause: Duration) {
        let world = &mut *self.0.borrow_mut();
        let time = world.now + world.delay() + pause.as_micros() as Time;
        world.at(time, Happening::Refresh);
    }

    fn request_identity(&self, _: Duration) {
        let world = &mut *self.0.borrow_mut();
        world.ids_requested += 1;
        let time = world.now + world.rng.u64(2_000..50_000);
        let result = match world.rng.u32(..4) {
            0 => Err(ClientError::NoBroker("fault".to_owned())),
            _ => Ok((ProducerId(1_000 + world.ids_requested as i64), ProducerEpoch(0))),
        };
        world.at(time, Happening::Event(Event::Identity(result)));
    }

    fn add_partitions(&self) {
        unreachable!("the simulated producer is not transactional");
    }
}
