//! OffsetDelete (key 47), version 0 (KIP-496): forgets offsets of topics that the group does not
//! subscribe to.

use std::sync::Arc;

use coordinator::request::{OffsetDelete, TopicPartitions};
use coordinator::{Request, Response};
use model::{ErrorCode, PartitionIndex};
use wire::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestTopic, OffsetDeleteResponse,
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};

use super::Call;

/// Partitions that exist, and answers for those that do not.
fn split(
    call: &Call,
    topics: Vec<OffsetDeleteRequestTopic>,
) -> (Vec<TopicPartitions>, Vec<OffsetDeleteResponseTopic>) {
    let image = call.server.image();
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for topic in topics {
        let exists = |p: &i32| image.partition(&topic.name, PartitionIndex(*p)).is_some();
        let indexes = topic.partitions.iter().map(|partition| partition.partition_index);
        let (here, gone): (Vec<i32>, Vec<i32>) = indexes.partition(exists);
        if !gone.is_empty() {
            let codes = gone.into_iter().map(|p| (p, ErrorCode::UnknownTopicOrPartition)).collect();
            unknown.push(answer(topic.name.clone(), codes));
        }
        if !here.is_empty() {
            let partitions = here.into_iter().map(PartitionIndex).collect();
            known.push(TopicPartitions { topic: topic.name.into(), partitions });
        }
    }
    (known, unknown)
}

/// Answers.
pub async fn handle(call: Arc<Call>, request: OffsetDeleteRequest) -> OffsetDeleteResponse {
    let (known, unknown) = split(&call, request.topics);
    let delete = OffsetDelete { group: request.group_id.as_str().into(), topics: known };
    match call.server.ask_group(&request.group_id, Request::OffsetDelete(delete)).await {
        Ok(Response::OffsetDelete(deleted)) => {
            let deleted_topics = deleted.topics.into_iter().map(|(topic, partitions)| {
                let codes = partitions.into_iter().map(|(p, code)| (p.0, code)).collect();
                answer(topic.to_string(), codes)
            });
            OffsetDeleteResponse {
                error_code: deleted.error.code(),
                throttle_time_ms: 0,
                topics: if deleted.error.is_none() {
                    deleted_topics.chain(unknown).collect()
                } else {
                    Vec::new()
                },
            }
        }
        Ok(other) => unreachable!("the answer to another request: {other:?}"),
        Err(code) => OffsetDeleteResponse { error_code: code.code(), ..Default::default() },
    }
}

fn answer(name: String, codes: Vec<(i32, ErrorCode)>) -> OffsetDeleteResponseTopic {
    let partitions = codes
        .into_iter()
        .map(|(partition_index, code)| OffsetDeleteResponsePartition {
            partition_index,
            error_code: code.code(),
        })
        .collect();
    OffsetDeleteResponseTopic { name, partitions }
}
