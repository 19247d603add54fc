//! OffsetFetch: what a group stored. Anybody may ask; a group that is not there has stored nothing.

use std::sync::Arc;

use model::{ErrorCode, TopicPartition};

use crate::outbox::Scope;
use crate::records::CommittedOffset;
use crate::request::{OffsetFetch, TopicPartitions};
use crate::response::{FetchedOffset, OffsetFetchResponse, Response};
use crate::shard::Shard;
use crate::{GroupId, ReplyTo};

impl Shard {
    pub(crate) fn fetch_offsets(&mut self, to: ReplyTo, request: OffsetFetch) {
        let group = request.group;
        let topics = match &request.topics {
            Some(topics) => topics.iter().map(|topic| self.fetch_topic(&group, topic)).collect(),
            None => self.fetch_all(&group),
        };
        // Transactions store no offsets here yet, so every offset is stable.
        let error = ErrorCode::None;
        let response = OffsetFetchResponse { group: group.clone(), error, topics };
        self.reply(&group, Scope::Offsets, to, Response::OffsetFetch(response));
    }

    fn fetch_topic(
        &self,
        group: &GroupId,
        asked: &TopicPartitions,
    ) -> (Arc<str>, Vec<FetchedOffset>) {
        let mut key = TopicPartition::new(asked.topic.clone(), 0);
        let mut fetched = Vec::with_capacity(asked.partitions.len());
        for partition in &asked.partitions {
            key.partition = *partition;
            fetched.push(match self.durable.offset(group, &key) {
                Some(value) => fetched_offset(&key, value),
                None => FetchedOffset::none(*partition, ErrorCode::None),
            });
        }
        assert_eq!(fetched.len(), asked.partitions.len(), "one result for each");
        (asked.topic.clone(), fetched)
    }

    fn fetch_all(&self, group: &GroupId) -> Vec<(Arc<str>, Vec<FetchedOffset>)> {
        let mut topics: Vec<(Arc<str>, Vec<FetchedOffset>)> = Vec::new();
        for (partition, value) in self.durable.offsets(group) {
            let fetched = fetched_offset(partition, value);
            match topics.last_mut() {
                Some((topic, partitions)) if *topic == partition.topic => partitions.push(fetched),
                _ => topics.push((partition.topic.clone(), vec![fetched])),
            }
        }
        topics
    }
}

fn fetched_offset(partition: &TopicPartition, value: &CommittedOffset) -> FetchedOffset {
    FetchedOffset {
        partition: partition.partition,
        offset: value.offset,
        leader_epoch: value.leader_epoch,
        metadata: value.metadata.clone(),
        topic_id: value.topic_id,
        error: ErrorCode::None,
    }
}
