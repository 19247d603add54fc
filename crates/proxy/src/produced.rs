//! A produce request as far as fault injection needs it: which partitions it writes to, where their
//! batches lie, and how many records they hold.

use model::batch::Batches;
use model::{ErrorCode, Offset, PartitionIndex, Timestamp, Uuid};
use std::collections::HashMap;
use std::ops::Range;
use wire::frame::{LENGTH_BYTES, RequestHead};
use wire::hot::Topic;
use wire::hot::produce::walk;
use wire::hot::produce_response::{PartitionAnswer, ProduceResponder};
use wire::{EncodeError, Message, ProduceResponse, Reader, Writer};

/// A topic, by whatever a version names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopicKey {
    /// By name.
    Name(String),
    /// By id, since version 13.
    Id(Uuid),
}

impl TopicKey {
    fn wire(&self) -> Topic<'_> {
        match self {
            TopicKey::Name(name) => Topic::Name(name),
            TopicKey::Id(id) => Topic::Id(*id),
        }
    }
}

/// One partition's part of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducedPartition {
    /// The topic.
    pub topic: TopicKey,
    /// Whether a new topic begins with it in the request.
    pub first_of_topic: bool,
    /// The partition.
    pub partition: i32,
    /// Where its batches lie in the request's frame, whose length is counted.
    pub batches: Range<usize>,
    /// Records in them, by their headers.
    pub record_count: u64,
}

/// A produce request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Produced {
    /// Its partitions, in order.
    pub partitions: Vec<ProducedPartition>,
}

impl Produced {
    /// Reads a whole frame with a produce request; `None` if it is not one that `wire` can read:
    /// the broker will say what is wrong with it.
    pub fn parse(frame: &[u8]) -> Option<Produced> {
        let message = &frame[LENGTH_BYTES..];
        let head = RequestHead::parse(message).ok()?;
        let (_, walked) = walk(message, head.body_from, head.version).ok()?;
        let mut partitions = Vec::new();
        for partition in walked {
            let partition = partition.ok()?;
            let records = partition.records.unwrap_or(0..0);
            let batches = records.start + LENGTH_BYTES..records.end + LENGTH_BYTES;
            let counts = Batches::new(&frame[batches.clone()]).map_while(Result::ok);
            partitions.push(ProducedPartition {
                topic: match partition.topic {
                    Topic::Name(name) => TopicKey::Name(name.to_owned()),
                    Topic::Id(id) => TopicKey::Id(id),
                },
                first_of_topic: partition.first_of_topic,
                partition: partition.partition,
                record_count: counts.map(|(header, _)| header.record_count as u64).sum(),
                batches,
            });
        }
        Some(Produced { partitions })
    }

    /// Records in the request.
    pub fn record_count(&self) -> u64 {
        self.partitions.iter().map(|partition| partition.record_count).sum()
    }

    /// Whether both write to one partition at least.
    pub fn shares_partition_with(&self, other: &Produced) -> bool {
        let same = |a: &ProducedPartition, b: &ProducedPartition| {
            a.partition == b.partition && a.topic == b.topic
        };
        self.partitions.iter().any(|a| other.partitions.iter().any(|b| same(a, b)))
    }

    /// An answer that says that all of it was appended, where `offsets` says that it would be.
    pub fn acknowledge(
        &self,
        version: i16,
        correlation_id: i32,
        offsets: &NextOffsets,
    ) -> Result<Vec<u8>, EncodeError> {
        let mut writer = Writer::new();
        let topics: Vec<_> = self.partitions.chunk_by(|_, next| !next.first_of_topic).collect();
        let mut out = ProduceResponder::begin(&mut writer, version, correlation_id, topics.len())?;
        for partitions in topics {
            out.topic(partitions[0].topic.wire(), partitions.len())?;
            for written in partitions {
                let index = PartitionIndex(written.partition);
                let base = offsets.next(&written.topic, written.partition);
                let none = Timestamp::NONE;
                out.partition(&PartitionAnswer::appended(index, base, none, Offset(0)))?;
            }
        }
        out.end(0, &[])?;
        Ok(writer.into_bytes())
    }
}

/// The offsets that come next in partitions, as far as answers have told.
#[derive(Debug, Default)]
pub struct NextOffsets(HashMap<(TopicKey, i32), Offset>);

impl NextOffsets {
    fn next(&self, topic: &TopicKey, partition: i32) -> Offset {
        self.0.get(&(topic.clone(), partition)).copied().unwrap_or(Offset(0))
    }

    /// Learns from the answer to a request. `message` begins behind the answer's header.
    pub fn learn(&mut self, produced: &Produced, version: i16, message: &mut Reader<'_>) {
        // An answer that cannot be read teaches nothing; it goes to the client as it is.
        let Ok(answer) = <ProduceResponse as Message>::decode(message, version) else { return };
        let mut answered = HashMap::new();
        for topic in answer.responses {
            let key = match version {
                13.. => TopicKey::Id(topic.topic_id),
                _ => TopicKey::Name(topic.name),
            };
            for partition in topic.partition_responses {
                if partition.error() == ErrorCode::None {
                    answered.insert((key.clone(), partition.index), partition.base_offset);
                }
            }
        }
        for written in &produced.partitions {
            let place = (written.topic.clone(), written.partition);
            if let Some(base) = answered.get(&place) {
                let next = base.saturating_add(written.record_count as i64);
                self.0.insert(place, Offset(next));
            }
        }
    }
}
