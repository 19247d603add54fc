//! DeleteRecords (key 21), versions 0 to 2 (KIP-107): moves the log start; -1 means the high
//! watermark. Internal topics and those that are only compacted are refused.
//!
//! The response leaves when the journals of all replicas that serve or may be elected have the log start, or after
//! `timeout_ms` with REQUEST_TIMED_OUT: the followers then delete the records later. A leader that loses its role
//! meanwhile returns NOT_LEADER_OR_FOLLOWER. Decision 0043.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use model::{ErrorCode, Offset, PartitionIndex};
use partition::{DELETION_WAITER_BYTES, DeletionKey, Partition, Status};
use tokio::time::{Instant, timeout_at};
use wire::delete_records::{
    DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic,
    DeleteRecordsTopicResult,
};

use super::{Call, unique};
use crate::{committed_end, internal_topics};

/// The low watermark of one partition of the request.
type Outcome = Result<Offset, ErrorCode>;

/// A partition of which this broker has deleted the records, durably.
struct Deleted {
    partition: Arc<Partition>,
    /// The log start that every replica must reach.
    start: Offset,
}

/// Deletes and waits. Entering the new log starts works on the disk, so it leaves the connection's thread; all of a
/// request share one sync a directory.
pub async fn handle(call: Arc<Call>, mut request: DeleteRecordsRequest) -> DeleteRecordsResponse {
    unique::keep_first_partitions(
        &mut request.topics,
        |topic| topic.name.clone(),
        |topic| &mut topic.partitions,
        |partition| partition.partition_index,
    );
    let patience = Duration::from_millis(request.timeout_ms.max(0) as u64);
    let deadline = Instant::from_std(call.arrived) + patience;
    // Only what is committed may be deleted: what the client has just written shall be.
    committed_end::wait(partitions(&call, &request).into_iter()).await;
    let (topics, deleting) = (request.topics.clone(), Arc::clone(&call));
    let deleted = tokio::task::spawn_blocking(move || delete_all(&deleting, &request.topics)).await;
    let outcomes = wait_for_replicas(&call, deleted.unwrap_or_default(), deadline).await;
    let mut outcomes = outcomes.into_iter();
    let mut result = |partition_index: i32| {
        let outcome = outcomes.next().unwrap_or(Err(ErrorCode::UnknownServerError));
        DeleteRecordsPartitionResult {
            partition_index,
            low_watermark: outcome.map_or(-1, |offset| offset.0),
            error_code: outcome.err().unwrap_or(ErrorCode::None).code(),
        }
    };
    let topics = topics.into_iter().map(|topic| DeleteRecordsTopicResult {
        name: topic.name,
        partitions: topic.partitions.iter().map(|p| result(p.partition_index)).collect(),
    });
    DeleteRecordsResponse { throttle_time_ms: 0, topics: topics.collect() }
}

/// Waits for the low watermark of each partition, at most until `deadline`. The partitions are charged to the memory of
/// requests meanwhile, and a request waits in one of them at a time.
async fn wait_for_replicas(
    call: &Call,
    deleted: Vec<Result<Deleted, ErrorCode>>,
    deadline: Instant,
) -> Vec<Outcome> {
    let mut charge = call.server.memory.decoded.charge();
    charge.set(deleted.len() * size_of::<Deleted>() + DELETION_WAITER_BYTES);
    let mut outcomes = Vec::with_capacity(deleted.len());
    for deleted in deleted {
        outcomes.push(match deleted {
            Ok(Deleted { partition, start }) => low_watermark(&partition, start, deadline).await,
            Err(code) => Err(code),
        });
    }
    outcomes
}

async fn low_watermark(partition: &Partition, start: Offset, deadline: Instant) -> Outcome {
    let mut wait = DeletionWait { partition, key: None };
    let reached = poll_fn(|cx| wait.partition.poll_deleted(cx, start, &mut wait.key));
    match timeout_at(deadline, reached).await {
        Ok(Ok(low)) => Ok(low),
        Ok(Err(Status::Offline)) => Err(ErrorCode::KafkaStorageError),
        Ok(Err(Status::Deleted)) => Err(ErrorCode::UnknownTopicOrPartition),
        Ok(Err(Status::Following | Status::Leading)) => Err(ErrorCode::NotLeaderOrFollower),
        Err(_) => Err(ErrorCode::RequestTimedOut),
    }
}

/// A registration for a partition's low watermark; removed when the request stops waiting or its client is gone.
struct DeletionWait<'a> {
    partition: &'a Partition,
    key: Option<DeletionKey>,
}

impl Drop for DeletionWait<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.partition.leave_deletion(key);
        }
    }
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
fn delete_all(call: &Call, topics: &[DeleteRecordsTopic]) -> Vec<Result<Deleted, ErrorCode>> {
    let wanted = topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| (topic.name.as_str(), partition))
    });
    let deleted: Vec<_> = wanted
        .map(|(name, partition)| delete(call, name, partition.partition_index, partition.offset))
        .collect();
    // The deleted records must not come back after a crash of this broker.
    let starts: Vec<_> = deleted.iter().flatten().cloned().collect();
    let failed = call.server.logs.commit_starts(&starts);
    let durable = |(partition, start): (Arc<Partition>, Offset)| match failed
        .iter()
        .any(|other| Arc::ptr_eq(other, &partition))
    {
        true => Err(ErrorCode::KafkaStorageError),
        false => Ok(Deleted { partition, start }),
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
