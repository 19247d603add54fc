//! DescribeTopicPartitions (key 75), version 0 (KIP-966): topics in the order of their names, page
//! by page.

use std::sync::Arc;

use ::metadata::{ClusterImage, PartitionImage, TopicImage};
use model::{BrokerId, ErrorCode, Uuid, topic_name};
use wire::describe_topic_partitions::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic, ResponseCursor,
};

use super::metadata::is_dead;
use super::{Call, authorized};
use crate::internal_topics;

/// Answers.
pub async fn handle(
    call: Arc<Call>,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let limit = call.server.config().network.described_partitions_max as usize;
    let mut left = (request.response_partition_limit.max(1) as usize).min(limit.max(1));
    let image = call.server.image();
    let mut response = DescribeTopicPartitionsResponse::default();
    let (from_topic, mut from_partition) = match &request.cursor {
        Some(cursor) => (cursor.topic_name.as_str(), cursor.partition_index.max(0) as usize),
        None => ("", 0),
    };
    for name in names(&image, &request) {
        if name.as_str() < from_topic {
            continue;
        }
        let skip = if name == from_topic { std::mem::take(&mut from_partition) } else { 0 };
        if left == 0 {
            response.next_cursor = Some(cursor(name, skip));
            break;
        }
        let Some(topic) = image.topic(&name) else {
            response.topics.push(unknown(name));
            continue;
        };
        let described = describe(&call, &image, topic, skip, left);
        left -= described.partitions.len();
        let end = skip + described.partitions.len();
        response.topics.push(described);
        if end < topic.partition_count() {
            response.next_cursor = Some(cursor(name, end));
            break;
        }
    }
    response
}

fn names(image: &ClusterImage, request: &DescribeTopicPartitionsRequest) -> Vec<String> {
    let mut names: Vec<String> = if request.topics.is_empty() {
        image.topics().map(|topic| topic.name.to_string()).collect()
    } else {
        request.topics.iter().map(|topic| topic.name.clone()).collect()
    };
    names.sort_unstable();
    names.dedup();
    names
}

fn cursor(topic_name: String, partition: usize) -> ResponseCursor {
    ResponseCursor { topic_name, partition_index: partition as i32 }
}

fn unknown(name: String) -> DescribeTopicPartitionsResponseTopic {
    let code = match topic_name::validate(&name) {
        Ok(()) => ErrorCode::UnknownTopicOrPartition,
        Err(_) => ErrorCode::InvalidTopicException,
    };
    DescribeTopicPartitionsResponseTopic {
        error_code: code.code(),
        is_internal: internal_topics::is_internal(&name),
        name: Some(name),
        topic_id: Uuid::ZERO,
        partitions: Vec::new(),
        topic_authorized_operations: authorized::topic(false),
    }
}

fn describe(
    call: &Call,
    image: &ClusterImage,
    topic: &TopicImage,
    skip: usize,
    limit: usize,
) -> DescribeTopicPartitionsResponseTopic {
    let ids = |brokers: &[model::BrokerId]| brokers.iter().map(|broker| broker.0).collect();
    let partitions = topic.partitions().skip(skip).take(limit).map(|(index, partition)| {
        let serves = |id: BrokerId| image.is_active(id) && !image.is_offline(id, topic.id, index);
        let offline = partition.replicas.iter().filter(|broker| !serves(**broker));
        let leader = match is_dead(&call.server, image, partition.leader) {
            true => BrokerId::NONE,
            false => partition.leader,
        };
        let leaderless = leader == BrokerId::NONE;
        let code = if leaderless { ErrorCode::LeaderNotAvailable } else { ErrorCode::None };
        DescribeTopicPartitionsResponsePartition {
            error_code: code.code(),
            partition_index: index.0,
            leader_id: leader.0,
            leader_epoch: partition.leader_epoch.0,
            replica_nodes: ids(&partition.replicas),
            isr_nodes: ids(&partition.isr),
            eligible_leader_replicas: Some(ids(&partition.elr)),
            last_known_elr: Some(ids(last_known(partition))),
            offline_replicas: offline.map(|broker| broker.0).collect(),
        }
    });
    DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode::None.code(),
        name: Some(topic.name.to_string()),
        topic_id: topic.id,
        is_internal: topic.is_internal(),
        partitions: partitions.collect(),
        topic_authorized_operations: authorized::topic(true),
    }
}

/// The last leader of a partition that has none now.
fn last_known(partition: &PartitionImage) -> &[BrokerId] {
    match partition.last_known_leader {
        BrokerId::NONE => &[],
        _ => std::slice::from_ref(&partition.last_known_leader),
    }
}
