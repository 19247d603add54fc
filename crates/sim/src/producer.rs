//! A producer: sends batches, and sends them again until they are acknowledged.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use fastrand::Rng;
use model::record::BatchBuilder;
use model::{Compression, ProducerEpoch, ProducerId, Sequence, Timestamp};
use partition::Acks;

use crate::history::{Broken, History, Value};
use crate::invariant::Invariant;
use crate::message::{ClientId, PartitionId, Refused, Request, Response};
use crate::plan::{PARTITIONS, Plan};

/// Batches that are sent to a topic that was created again, beside those that are left.
const BATCHES_OF_NEW_TOPIC: u32 = 8;

/// A batch that is not acknowledged.
#[derive(Debug)]
struct Outstanding {
    partition: PartitionId,
    values: Vec<Value>,
    records: Vec<u8>,
    /// The request that carries it on the present connection, if one does.
    request: Option<u64>,
    /// The broker that the last request went to.
    broker: Option<usize>,
    /// Whether the last request was refused and the next one is not sent yet.
    is_refused: bool,
    /// Whether an earlier request may have appended it.
    may_be_stored: bool,
}

impl Outstanding {
    /// A broker refused the batch, and no broker has it: its sequence is the next one of the partition.
    fn is_awaited_by(&self, broker: Option<usize>) -> bool {
        self.is_refused && !self.may_be_stored && self.broker == broker
    }
}

#[derive(Debug)]
pub(crate) struct Producer {
    id: ClientId,
    is_idempotent: bool,
    acks: Acks,
    in_flight_max: usize,
    batches_left: u32,
    values_sent: u64,
    requests_sent: u64,
    /// Partitions of the topic that the producer writes to.
    topic: Range<PartitionId>,
    /// Next sequence of each partition that was written to.
    sequences: BTreeMap<PartitionId, Sequence>,
    outstanding: VecDeque<Outstanding>,
    /// Refused for good: whether its last batches are in the log, it cannot know.
    has_given_up: bool,
    /// The one partition that it writes to, in a run with a lasting fault.
    only: Option<PartitionId>,
    /// Whether it keeps its connection when a batch is refused, takes the answers to the batches behind it, and then sends
    /// all of them again in order. Others begin a new connection.
    keeps_connection: bool,
}

impl Producer {
    pub(crate) fn new(id: ClientId, plan: &Plan, random: &mut Rng) -> Producer {
        let is_idempotent = id.is_multiple_of(2);
        // Without sequences, a batch may overtake another one when both are sent again.
        let in_flight_max = if is_idempotent { [1, 5][random.usize(0..2)] } else { 1 };
        let acks = if !is_idempotent && random.bool() { Acks::Leader } else { Acks::All };
        Producer {
            id,
            is_idempotent,
            acks,
            in_flight_max,
            batches_left: plan.batches,
            values_sent: 0,
            requests_sent: 0,
            topic: 0..PARTITIONS,
            sequences: BTreeMap::new(),
            outstanding: VecDeque::new(),
            has_given_up: false,
            only: None,
            keeps_connection: false,
        }
    }

    /// An idempotent producer that keeps its connection when a batch is refused, as real clients do.
    pub(crate) fn pipelined(id: ClientId, plan: &Plan) -> Producer {
        Producer {
            is_idempotent: true,
            keeps_connection: true,
            in_flight_max: 5,
            batches_left: plan.batches,
            only: None,
            ..Producer::steady(id, 0, Acks::All)
        }
    }

    /// A producer of one batch at a time to one partition.
    pub(crate) fn steady(id: ClientId, partition: PartitionId, acks: Acks) -> Producer {
        Producer {
            id,
            is_idempotent: acks == Acks::All,
            acks,
            in_flight_max: 1,
            batches_left: u32::MAX,
            values_sent: 0,
            requests_sent: 0,
            topic: 0..PARTITIONS,
            sequences: BTreeMap::new(),
            outstanding: VecDeque::new(),
            has_given_up: false,
            only: Some(partition),
            keeps_connection: false,
        }
    }

    /// Sends no further batches.
    pub(crate) fn send_no_more(&mut self) {
        self.batches_left = 0;
    }

    pub(crate) fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }

    /// Whether it has nothing left to do.
    pub(crate) fn is_done(&self) -> bool {
        self.has_given_up || (self.batches_left == 0 && self.outstanding.is_empty())
    }

    /// Sends what is to be sent now.
    pub(crate) fn wake(
        &mut self,
        now: Timestamp,
        random: &mut Rng,
        history: &mut History,
    ) -> Vec<(u64, Request)> {
        let is_draining = self.outstanding.iter().any(|batch| batch.is_refused)
            && self.outstanding.iter().any(|batch| batch.request.is_some());
        if self.has_given_up || is_draining {
            return Vec::new();
        }
        if self.outstanding.len() < self.in_flight_max && self.batches_left > 0 {
            self.batches_left -= 1;
            let batch = self.next_batch(now, random);
            history.sent(batch.partition, &batch.values);
            self.outstanding.push_back(batch);
        }
        let mut requests = Vec::new();
        for batch in self.outstanding.iter_mut().filter(|batch| batch.request.is_none()) {
            self.requests_sent += 1;
            batch.request = Some(self.requests_sent);
            batch.is_refused = false;
            let (partition, acks, records) = (batch.partition, self.acks, batch.records.clone());
            requests.push((self.requests_sent, Request::Produce { partition, acks, records }));
        }
        requests
    }

    fn next_batch(&mut self, now: Timestamp, random: &mut Rng) -> Outstanding {
        let partition = self.only.unwrap_or_else(|| random.usize(self.topic.clone()));
        let count = random.i32(1..5);
        let mut builder = BatchBuilder::new();
        if self.is_idempotent {
            let sequence = self.sequences.entry(partition).or_insert(Sequence(0));
            let id = ProducerId(1000 + self.id as i64);
            builder = builder.producer(id, ProducerEpoch(0), *sequence);
            *sequence = sequence.plus(count);
        }
        let mut values = Vec::new();
        for _ in 0..count {
            self.values_sent += 1;
            let value = Value { producer: self.id, number: self.values_sent };
            let padding = vec![b'.'; random.usize(0..200)];
            builder.add(now, Some(&padding), Some(value.encode().as_bytes()));
            values.push(value);
        }
        let records = finish(builder, random);
        Outstanding {
            partition,
            values,
            records,
            request: None,
            broker: None,
            is_refused: false,
            may_be_stored: false,
        }
    }

    /// A request goes to this broker.
    pub(crate) fn note_target(&mut self, request: u64, broker: usize) {
        let sent = self.outstanding.iter_mut().filter(|batch| batch.request == Some(request));
        sent.for_each(|batch| batch.broker = Some(broker));
    }

    /// Partitions of the topic that the producer writes to.
    pub(crate) fn topic(&self) -> &Range<PartitionId> {
        &self.topic
    }

    /// Writes to a topic that was created again. Unacknowledged records of the deleted one are given up.
    pub(crate) fn use_topic(&mut self, topic: Range<PartitionId>) {
        self.outstanding.clear();
        self.batches_left = self.batches_left.saturating_add(BATCHES_OF_NEW_TOPIC);
        self.topic = topic;
    }

    /// Its connection broke: whatever is not acknowledged is sent again, in the same order.
    pub(crate) fn disconnected(&mut self) {
        for batch in &mut self.outstanding {
            batch.may_be_stored |= batch.request.take().is_some();
        }
    }

    /// Takes an answer; true if it goes on only with a new connection.
    pub(crate) fn receive(
        &mut self,
        request: u64,
        response: Response,
        history: &mut History,
    ) -> Result<bool, Broken> {
        let Response::Produced(result) = response else { unreachable!("it only produces") };
        if self.keeps_connection {
            return self.receive_in_order(request, result, history);
        }
        let front = self.outstanding.front().filter(|batch| batch.request == Some(request));
        let batch = front.expect("answers come in the order of the requests");
        match result {
            Ok(base) => {
                if self.acks == Acks::All {
                    history.acked(batch.partition, base, &batch.values)?;
                }
                self.outstanding.pop_front();
                Ok(false)
            }
            Err(Refused::Retriable | Refused::NotAppended | Refused::UnknownTopicId) => Ok(true),
            // With several batches under way, a restart may have forgotten all but the last of
            // them, and the first one sent again looks like an order gone wrong. So in Kafka.
            Err(Refused::OutOfOrderSequence) if self.in_flight_max > 1 => {
                self.has_given_up = true;
                Ok(true)
            }
            Err(refused) => {
                let first = batch.values[0].encode();
                let what = format!("{first} to {} is refused: {refused:?}", batch.partition);
                Err((Invariant::SequenceAccepted, what))
            }
        }
    }

    /// Takes an answer, and keeps the connection. A batch behind a refused one must not be appended before it, and its answer must
    /// not be OUT_OF_ORDER_SEQUENCE_NUMBER: real clients begin a new producer epoch after that, and send again what other
    /// leaders may have appended.
    fn receive_in_order(
        &mut self,
        request: u64,
        result: Result<model::Offset, Refused>,
        history: &mut History,
    ) -> Result<bool, Broken> {
        let at = self.outstanding.iter().position(|batch| batch.request == Some(request));
        let at = at.expect("a request is answered once");
        let (partition, broker) = (self.outstanding[at].partition, self.outstanding[at].broker);
        // The first batch of the partition that is not acknowledged: the log waits for its sequence if it is stored nowhere.
        let first = self.outstanding.iter().position(|batch| batch.partition == partition);
        let first = first.filter(|first| *first < at).map(|first| &self.outstanding[first]);
        let awaited = first.filter(|first| first.is_awaited_by(broker));
        if let (Some(awaited), Ok(_) | Err(Refused::OutOfOrderSequence)) = (awaited, result) {
            let refused = awaited.values[0].encode();
            let behind = self.outstanding[at].values[0].encode();
            let what = format!("{behind} behind {refused}, which was refused: {result:?}");
            return Err((Invariant::SequenceAccepted, what));
        }
        let has_earlier = first.is_some();
        let batch = &mut self.outstanding[at];
        batch.request = None;
        match result {
            Ok(base) => {
                history.acked(partition, base, &batch.values)?;
                self.outstanding.remove(at);
                Ok(false)
            }
            Err(Refused::UnknownTopicId) => Ok(true),
            Err(Refused::Retriable) => {
                (batch.is_refused, batch.may_be_stored) = (true, true);
                Ok(false)
            }
            Err(Refused::NotAppended) => {
                batch.is_refused = true;
                Ok(false)
            }
            // An earlier batch went to another leader, or may be in a log.
            Err(Refused::OutOfOrderSequence) if has_earlier => {
                batch.is_refused = true;
                Ok(false)
            }
            // A restart may have forgotten all but the last batches, as for producers with other connections.
            Err(Refused::OutOfOrderSequence) => {
                self.has_given_up = true;
                Ok(true)
            }
            Err(refused) => {
                let what =
                    format!("{} to {partition} is refused: {refused:?}", batch.values[0].encode());
                Err((Invariant::SequenceAccepted, what))
            }
        }
    }
}

fn finish(builder: BatchBuilder, random: &mut Rng) -> Vec<u8> {
    let codec = match random.u8(0..8) {
        0 => Compression::Gzip,
        1 => Compression::Lz4,
        2 => Compression::Snappy,
        3 => Compression::Zstd,
        _ => return builder.finish(),
    };
    let mut compressed = Vec::new();
    compression::compress(codec, None, builder.records(), &mut compressed);
    builder.finish_compressed(codec, &compressed)
}
