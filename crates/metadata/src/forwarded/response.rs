//! The table of responses: their numbers, and the order of their fields; and how a refusal is written.

use super::ForwardedError;
use super::fields::{Field, Reader, choices, invalid, least, structs};
use crate::decide::{
    AlteredPartition, Answer, CreatedTopic, DeletedTopic, ProducerIdBlock, Refusal, Response,
    Swept, TopicRef,
};
use crate::record::ConfigResource;
use model::{BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, PartitionIndex, ProducerId, TopicId};
use std::sync::Arc;

choices! {
    // From 0x80 on, so that no response is read as a request.
    Response, "kind of response" {
        0x81 CreateCluster(answer: Answer<()>),
        0x82 CreateTopics(answers: Vec<(String, Answer<CreatedTopic>)>),
        0x83 DeleteTopics(answers: Vec<(TopicRef, Answer<DeletedTopic>)>),
        0x84 CreatePartitions(answers: Vec<(String, Answer<()>)>),
        0x85 AlterConfigs(answers: Vec<(ConfigResource, Answer<()>)>),
        0x86 AllocateProducerIds(answer: Answer<ProducerIdBlock>),
        0x87 RegisterBroker(answer: Answer<BrokerEpoch>),
        0x88 Broker(answer: Answer<()>),
        0x89 Sweep(swept: Swept),
        0x8a EmptyReplicas(answers: Answer<Vec<(TopicId, PartitionIndex, Answer<()>)>>),
        0x8b AlterPartition(answers: Answer<Vec<(TopicId, PartitionIndex, Answer<AlteredPartition>)>>),
        0x8c ElectLeaders(answers: Vec<(Arc<str>, PartitionIndex, Answer<()>)>),
        0x8d UpdateFeatures(answer: Answer<()>),
    }
}

structs! {
    CreatedTopic {
        id: TopicId,
        partitions: i32,
        replication_factor: i16,
        configs: Vec<(String, String)>,
    }
    DeletedTopic { name: Arc<str>, id: TopicId }
    ProducerIdBlock { first: ProducerId, count: i32 }
    Swept { changed: usize, more: bool }
    AlteredPartition {
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
        isr: Vec<BrokerId>,
        partition_epoch: i32,
        recovering: bool,
        durable: bool,
    }
}

impl<T: Field> Field for Answer<T> {
    const BYTES_MIN: usize = 1 + least(&[T::BYTES_MIN, Refusal::BYTES_MIN]);

    fn write(&self, out: &mut Vec<u8>) {
        self.is_err().write(out);
        match self {
            Ok(value) => value.write(out),
            Err(refusal) => refusal.write(out),
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Answer<T>, ForwardedError> {
        match u8::read(from)? {
            0 => T::read(from).map(Ok),
            1 => Refusal::read(from).map(Err),
            other => Err(invalid("kind of answer", other)),
        }
    }
}

impl Field for Refusal {
    const BYTES_MIN: usize = ErrorCode::BYTES_MIN + String::BYTES_MIN;

    fn write(&self, out: &mut Vec<u8>) {
        let Refusal { error, message } = self;
        assert!(!error.is_none(), "a refusal says what is wrong");
        error.write(out);
        message.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Refusal, ForwardedError> {
        let error = ErrorCode::read(from)?;
        if error.is_none() {
            return Err(invalid("error code of a refusal", error.code()));
        }
        Ok(Refusal { error, message: String::read(from)? })
    }
}
