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
        if self.has_given_up {
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
        Outstanding { partition, values, records, request: None }
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
        self.outstanding.iter_mut().for_each(|batch| batch.request = None);
    }

    /// Takes an answer; true if it goes on only with a new connection.
    pub(crate) fn receive(
        &mut self,
        request: u64,
        response: Response,
        history: &mut History,
    ) -> Result<bool, Broken> {
        let Response::Produced(result) = response else { unreachable!("it only produces") };
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
            Err(Refused::Retriable | Refused::UnknownTopicId) => Ok(true),
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
