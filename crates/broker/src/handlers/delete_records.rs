//! DeleteRecords (key 21), versions 0 to 2 (KIP-107): moves the log start; -1 means the high
//! watermark. Internal topics and those that are only compacted are refused.

use std::sync::Arc;

use model::{ErrorCode, Offset, PartitionIndex};
use wire::delete_records::{
    DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse,
    DeleteRecordsTopicResult,
};

use super::Call;
use crate::{committed_end, internal_topics};

/// Answers. Removing segments works on the disk, so it leaves the connection's thread.
pub async fn handle(call: Arc<Call>, request: DeleteRecordsRequest) -> DeleteRecordsResponse {
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in topic.partitions {
            let (call, name) = (Arc::clone(&call), topic.name.clone());
            let index = wanted.partition_index;
            // Only what is committed may be deleted: what the client has just written shall be.
            let partition = call.server.partition(&name, PartitionIndex(index)).ok();
            committed_end::wait(partition.into_iter()).await;
            let deleted =
                tokio::task::spawn_blocking(move || delete(&call, &name, index, wanted.offset))
                    .await
                    .unwrap_or(Err(ErrorCode::UnknownServerError));
            partitions.push(DeleteRecordsPartitionResult {
                partition_index: index,
                low_watermark: deleted.map_or(-1, |offset| offset.0),
                error_code: deleted.err().unwrap_or(ErrorCode::None).code(),
            });
        }
        topics.push(DeleteRecordsTopicResult { name: topic.name, partitions });
    }
    DeleteRecordsResponse { throttle_time_ms: 0, topics }
}

fn delete(call: &Call, topic: &str, index: i32, offset: i64) -> Result<Offset, ErrorCode> {
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
    // What was deleted does not come back after a crash.
    call.server.logs.commit_starts(&[(partition, start)]).map_err(|cause| {
        tracing::error!(topic, index, %cause, "the new log start is not durable");
        ErrorCode::KafkaStorageError
    })?;
    Ok(start)
}
