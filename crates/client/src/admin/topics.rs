//! Topics: creating, deleting, growing, describing; deleting records.

use super::{Admin, Each, TIMEOUT_MS, each, only};
use crate::cluster::Lane;
use crate::error::{ClientError, check};
use model::{ErrorCode, Offset, TopicId, TopicPartition};
use std::collections::{BTreeMap, HashMap};
use wire::create_partitions::{CreatePartitionsAssignment, CreatePartitionsTopic};
use wire::create_topics::{CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig};
use wire::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use wire::delete_topics::DeleteTopicState;
use wire::describe_topic_partitions::{
    DescribeTopicPartitionsResponseTopic, RequestCursor, TopicRequest,
};
use wire::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
};

/// A topic to be created.
#[derive(Debug, Clone, Default)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// How many partitions; `None` for the brokers' default.
    pub partitions: Option<i32>,
    /// How many copies of each; `None` for the brokers' default.
    pub replication_factor: Option<i16>,
    /// Its configuration, where it is not the default.
    pub configs: Vec<(String, String)>,
    /// The brokers of each partition; then the two numbers above are left out.
    pub assignments: Vec<Vec<i32>>,
}

impl NewTopic {
    /// A topic with these numbers.
    pub fn new(name: &str, partitions: i32, replication_factor: i16) -> NewTopic {
        NewTopic {
            name: name.to_owned(),
            partitions: Some(partitions),
            replication_factor: Some(replication_factor),
            ..NewTopic::default()
        }
    }

    fn to_wire(&self) -> CreatableTopic {
        let config = |(name, value): &(String, String)| CreatableTopicConfig {
            name: name.clone(),
            value: Some(value.clone()),
        };
        let assignment = |(partition_index, brokers): (i32, &Vec<i32>)| {
            CreatableReplicaAssignment { partition_index, broker_ids: brokers.clone() }
        };
        let manual = !self.assignments.is_empty();
        CreatableTopic {
            name: self.name.clone(),
            num_partitions: self.partitions.filter(|_| !manual).unwrap_or(-1),
            replication_factor: self.replication_factor.filter(|_| !manual).unwrap_or(-1),
            assignments: (0..).zip(&self.assignments).map(assignment).collect(),
            configs: self.configs.iter().map(config).collect(),
        }
    }
}

impl Admin {
    /// Creates topics; gives their ids.
    pub async fn create_topics(
        &self,
        topics: &[NewTopic],
        validate_only: bool,
    ) -> Result<Each<TopicId>, ClientError> {
        let request = CreateTopicsRequest {
            topics: topics.iter().map(NewTopic::to_wire).collect(),
            timeout_ms: TIMEOUT_MS,
            validate_only,
        };
        let response = self.change(&request, |r| first_error(&r.topics, |t| t.error())).await?;
        let row = |t: &wire::create_topics::CreatableTopicResult| {
            each(t.name.clone(), t.error(), t.error_message.as_deref(), t.topic_id)
        };
        Ok(response.topics.iter().map(row).collect())
    }

    /// Creates one topic.
    pub async fn create_topic(&self, topic: &NewTopic) -> Result<TopicId, ClientError> {
        only(self.create_topics(std::slice::from_ref(topic), false).await?)
    }

    /// Deletes topics by name.
    pub async fn delete_topics(&self, names: &[&str]) -> Result<Each<()>, ClientError> {
        let owned: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let state =
            |name: &String| DeleteTopicState { name: Some(name.clone()), ..Default::default() };
        // Older brokers take names, newer ones names or ids.
        let version = self.cluster.any().await?.version_of(wire::ApiKey::DeleteTopics)?;
        let by_state = version >= 6;
        let request = DeleteTopicsRequest {
            topics: if by_state { owned.iter().map(state).collect() } else { Vec::new() },
            topic_names: if by_state { Vec::new() } else { owned },
            timeout_ms: TIMEOUT_MS,
        };
        let response = self.change(&request, |r| first_error(&r.responses, |t| t.error())).await?;
        let row = |t: &wire::delete_topics::DeletableTopicResult| {
            let name = t.name.clone().unwrap_or_else(|| t.topic_id.to_string());
            each(name, t.error(), t.error_message.as_deref(), ())
        };
        Ok(response.responses.iter().map(row).collect())
    }

    /// Grows a topic to so many partitions; `assignments` names the brokers of the new ones.
    pub async fn create_partitions(
        &self,
        topic: &str,
        count: i32,
        assignments: Option<Vec<Vec<i32>>>,
    ) -> Result<(), ClientError> {
        let assignment = |broker_ids| CreatePartitionsAssignment { broker_ids };
        let topics = vec![CreatePartitionsTopic {
            name: topic.to_owned(),
            count,
            assignments: assignments.map(|list| list.into_iter().map(assignment).collect()),
        }];
        let request =
            CreatePartitionsRequest { topics, timeout_ms: TIMEOUT_MS, validate_only: false };
        let response = self.change(&request, |r| first_error(&r.results, |t| t.error())).await?;
        let row = |t: &wire::create_partitions::CreatePartitionsTopicResult| {
            each(t.name.clone(), t.error(), t.error_message.as_deref(), ())
        };
        only(response.results.iter().map(row).collect())
    }

    /// All about these topics, page by page (KIP-966).
    pub async fn describe_topics(
        &self,
        names: &[&str],
    ) -> Result<Vec<DescribeTopicPartitionsResponseTopic>, ClientError> {
        let mut out: Vec<DescribeTopicPartitionsResponseTopic> = Vec::new();
        let mut cursor = None;
        loop {
            let topic = |name: &&str| TopicRequest { name: (*name).to_owned() };
            let request = DescribeTopicPartitionsRequest {
                topics: names.iter().map(topic).collect(),
                cursor: cursor.take(),
                ..Default::default()
            };
            let response = self.call(&request).await?;
            for topic in response.topics {
                match out.last_mut() {
                    Some(last) if last.name == topic.name => {
                        last.partitions.extend(topic.partitions);
                    }
                    _ => out.push(topic),
                }
            }
            let Some(next) = response.next_cursor else { return Ok(out) };
            let (topic_name, partition_index) = (next.topic_name, next.partition_index);
            cursor = Some(RequestCursor { topic_name, partition_index });
        }
    }

    /// Deletes the records before these offsets (-1: all of them); gives the new first offsets.
    pub async fn delete_records(
        &self,
        before: &HashMap<TopicPartition, Offset>,
    ) -> Result<Each<Offset>, ClientError> {
        let leases: Vec<_> = before.keys().map(|p| self.cluster.lease(&p.topic)).collect();
        for lease in &leases {
            lease.topic().await?;
        }
        let mut out = Vec::new();
        for (partition, offset) in before {
            let name = partition.to_string();
            out.push((name, self.delete_records_of(partition, *offset).await));
        }
        Ok(out)
    }

    async fn delete_records_of(
        &self,
        partition: &TopicPartition,
        before: Offset,
    ) -> Result<Offset, ClientError> {
        let topic = DeleteRecordsTopic {
            name: partition.topic.to_string(),
            partitions: vec![DeleteRecordsPartition {
                partition_index: partition.partition.0,
                offset: before.0,
            }],
        };
        let request = DeleteRecordsRequest { topics: vec![topic], timeout_ms: TIMEOUT_MS };
        let what = || format!("deleting records of {partition}");
        self.cluster
            .retry(|| async {
                let leader = self.leader(partition).await?;
                let connection = self.cluster.broker(leader, Lane::Common).await?;
                let response = connection.call(&request).await?;
                let answer = response.topics.iter().flat_map(|t| &t.partitions).next();
                let answer = answer.ok_or_else(|| super::missing("an answer"))?;
                check(answer.error(), None, what)?;
                Ok(Offset(answer.low_watermark))
            })
            .await
    }

    /// Who leads a partition, by fresh metadata.
    pub(super) async fn leader(&self, partition: &TopicPartition) -> Result<i32, ClientError> {
        let _lease = self.cluster.lease(&partition.topic);
        self.cluster.refresh().await?;
        let leader = self.cluster.metadata().leader(&partition.topic, partition.partition.0);
        let none = || ClientError::refused(partition.to_string(), ErrorCode::LeaderNotAvailable);
        leader.ok_or_else(none)
    }

    /// Groups partitions by topic, in the topics' order.
    pub(super) fn by_topic(partitions: &[TopicPartition]) -> BTreeMap<String, Vec<i32>> {
        let mut topics: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for partition in partitions {
            topics.entry(partition.topic.to_string()).or_default().push(partition.partition.0);
        }
        topics
    }
}

/// [`ErrorCode::NotController`] if an item says so: then the whole is asked again elsewhere.
pub(super) fn first_error<T>(items: &[T], error: impl Fn(&T) -> ErrorCode) -> ErrorCode {
    let moved = items.iter().map(error).find(|code| *code == ErrorCode::NotController);
    moved.unwrap_or(ErrorCode::None)
}
