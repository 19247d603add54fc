//! OffsetCommit (key 8), versions 2 to 10. v2 to v4 a retention time; v6 leader epochs; v7 static
//! members; v9 members of the new protocol, which is not served; v10 topic ids. Answered when the
//! commit is on disk.
//!
//! Memory of offsets is bounded. Without room a commit for further partitions gets COORDINATOR_NOT_AVAILABLE. Kafka
//! has no such bound.

use std::collections::HashMap;
use std::sync::Arc;

use ::metadata::ClusterImage;
use coordinator::request::{Lent, OffsetCommit, PartitionCommit, TopicCommits};
use coordinator::{Request, Response};
use model::{ErrorCode, GenerationId, LeaderEpoch, Offset, PartitionIndex};
use wire::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
    OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};

use super::Call;
use super::group::optional;

/// From this version on topics are named by id.
const IDS_FROM_VERSION: i16 = 10;

/// Answers.
pub async fn handle(call: Arc<Call>, mut request: OffsetCommitRequest) -> OffsetCommitResponse {
    let image = call.server.image();
    if call.version >= IDS_FROM_VERSION {
        name_topics(&image, &mut request.topics);
    }
    // What does not exist is refused here; the coordinator knows no metadata.
    let known: Vec<TopicCommits> =
        request.topics.iter().filter_map(|topic| existing(&image, topic)).collect();
    let mut results = HashMap::new();
    if !known.is_empty() {
        results = commit(&call, &request, known).await;
    }
    let topics =
        request.topics.iter().map(|topic| answer(&call, &image, topic, &results)).collect();
    OffsetCommitResponse { throttle_time_ms: 0, topics }
}

type Results = HashMap<(String, i32), ErrorCode>;

fn name_topics(image: &ClusterImage, topics: &mut [OffsetCommitRequestTopic]) {
    for topic in topics {
        if let Some(found) = image.topic_by_id(topic.topic_id) {
            topic.name = found.name.to_string();
        }
    }
}

fn existing(image: &ClusterImage, topic: &OffsetCommitRequestTopic) -> Option<TopicCommits> {
    let found = image.topic(&topic.name)?;
    let partitions: Vec<PartitionCommit> = topic
        .partitions
        .iter()
        .filter(|p| found.partition(PartitionIndex(p.partition_index)).is_some())
        .map(partition_commit)
        .collect();
    let commits = TopicCommits { topic: Arc::clone(&found.name), topic_id: found.id, partitions };
    (!commits.partitions.is_empty()).then_some(commits)
}

fn partition_commit(partition: &OffsetCommitRequestPartition) -> PartitionCommit {
    PartitionCommit {
        partition: PartitionIndex(partition.partition_index),
        offset: Offset(partition.committed_offset),
        leader_epoch: LeaderEpoch(partition.committed_leader_epoch),
        metadata: partition.committed_metadata.as_deref().unwrap_or_default().into(),
    }
}

async fn commit(call: &Call, request: &OffsetCommitRequest, topics: Vec<TopicCommits>) -> Results {
    let all: Vec<(String, i32)> = topics
        .iter()
        .flat_map(|t| t.partitions.iter().map(|p| (t.topic.to_string(), p.partition.0)))
        .collect();
    let (memory, owner) = (&call.server.memory, Some(call.peer.ip().to_canonical()));
    let commit = Request::OffsetCommit(OffsetCommit {
        group: request.group_id.as_str().into(),
        member: request.member_id.as_str().into(),
        instance: optional(request.group_instance_id.clone()),
        generation_id: GenerationId(request.generation_id_or_member_epoch),
        retention_ms: (request.retention_time_ms >= 0).then_some(request.retention_time_ms),
        topics,
        lent: Lent::new(memory.offsets.share(owner)),
        lent_metadata: Lent::new(memory.offset_metadata.share(owner)),
    });
    match call.server.ask_group(&request.group_id, commit).await {
        Ok(Response::OffsetCommit(committed)) => committed
            .topics
            .into_iter()
            .flat_map(|(topic, partitions)| {
                partitions.into_iter().map(move |(p, code)| ((topic.to_string(), p.0), code))
            })
            .collect(),
        Ok(other) => unreachable!("the answer to another request: {other:?}"),
        Err(code) => all.into_iter().map(|partition| (partition, code)).collect(),
    }
}

fn answer(
    call: &Call,
    image: &ClusterImage,
    topic: &OffsetCommitRequestTopic,
    results: &Results,
) -> OffsetCommitResponseTopic {
    let unknown = if call.version >= IDS_FROM_VERSION && image.topic_by_id(topic.topic_id).is_none()
    {
        ErrorCode::UnknownTopicId
    } else {
        ErrorCode::UnknownTopicOrPartition
    };
    let partitions = topic
        .partitions
        .iter()
        .map(|partition| {
            let key = (topic.name.clone(), partition.partition_index);
            let code = results.get(&key).copied().unwrap_or(unknown);
            OffsetCommitResponsePartition { partition_index: key.1, error_code: code.code() }
        })
        .collect();
    OffsetCommitResponseTopic { name: topic.name.clone(), topic_id: topic.topic_id, partitions }
}
