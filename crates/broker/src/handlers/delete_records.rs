//! DeleteRecords (key 21), versions 0 to 2 (KIP-107): moves the log start; -1 means the high
//! watermark. Internal topics and those that are only compacted are refused.

use std::sync::Arc;

use model::{ErrorCode, Offset, PartitionIndex};
use partition::Partition;
use wire::delete_records::{
    DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic,
    DeleteRecordsTopicResult,
};

use super::{Call, unique};
use crate::{committed_end, internal_topics};

/// Answers. Entering the new log starts works on the disk, so it leaves the connection's thread; all of a
/// request share one sync a directory.
pub async fn handle(call: Arc<Call>, mut request: DeleteRecordsRequest) -> DeleteRecordsResponse {
    unique::keep_first_partitions(
        &mut request.topics,
        |topic| topic.name.clone(),
        |topic| &mut topic.partitions,
        |partition| partition.partition_index,
    );
    // Only what is committed may be deleted: what the client has just written shall be.
    committed_end::wait(partitions(&call, &request).into_iter()).await;
    let topics = request.topics.clone();
    let deleted = tokio::task::spawn_blocking(move || delete_all(&call, &request.topics)).await;
    let mut deleted = deleted.unwrap_or_default().into_iter();
    let mut result = |partition_index: i32| {
        let deleted = deleted.next().unwrap_or(Err(ErrorCode::UnknownServerError));
        DeleteRecordsPartitionResult {
            partition_index,
            low_watermark: deleted.map_or(-1, |offset| offset.0),
            error_code: deleted.err().unwrap_or(ErrorCode::None).code(),
        }
    };
    let topics = topics.into_iter().map(|topic| DeleteRecordsTopicResult {
        name: topic.name,
        partitions: topic.partitions.iter().map(|p| result(p.partition_index)).collect(),
    });
    DeleteRecordsResponse { throttle_time_ms: 0, topics: topics.collect() }
}

fn partitions(call: &Call, request: &DeleteRecordsRequest) -> Vec<Arc<Partition>> {
    let of_topic = |topic: &DeleteRecordsTopic| {
        let indexes = topic.partitions.iter().map(|wanted| PartitionIndex(wanted.partition_index));
        let found = indexes.filter_map(|index| call.server.partition(&topic.name, index).ok());
        found.collect::<Vec<_>>()
    };
    request.topics.iter().flat_map(of_topic).collect()
}

/// Deletes, partition by partition in the order of the request, and makes all of it durable.
fn delete_all(call: &Call, topics: &[DeleteRecordsTopic]) -> Vec<Result<Offset, ErrorCode>> {
    let wanted = topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| (topic.name.as_str(), partition))
    });
    let deleted: Vec<_> = wanted
        .map(|(name, partition)| delete(call, name, partition.partition_index, partition.offset))
        .collect();
    // What was deleted does not come back after a crash.
    let starts: Vec<_> = deleted.iter().flatten().cloned().collect();
    let failed = call.server.logs.commit_starts(&starts);
    let durable = |(partition, start): (Arc<Partition>, Offset)| match failed
        .iter()
        .any(|other| Arc::ptr_eq(other, &partition))
    {
        true => Err(ErrorCode::KafkaStorageError),
        false => Ok(start),
    };
    deleted.into_iter().map(|deleted| deleted.and_then(durable)).collect()
}

fn delete(
    call: &Call,
    topic: &str,
    index: i32,
    offset: i64,
) -> Result<(Arc<Partition>, Offset), ErrorCode> {
    if internal_topics::is_internal(topic) {
        return Err(ErrorCode::InvalidTopicException);
    }
    let partition = call.server.partition(topic, PartitionIndex(index))?;
    if !partition.settings().log.cleanup.delete {
        return Err(ErrorCode::PolicyViolation);
    }
    let offset = match offset {
        -1 => None,
        offset if offset >= 0 => Some(Offset(offset)),
        _ => return Err(ErrorCode::OffsetOutOfRange),
    };
    let start = partition
        .delete_records(offset)
        .map_err(|error| call.server.complaints.code_of(&partition, &error))?;
    Ok((partition, start))
}
