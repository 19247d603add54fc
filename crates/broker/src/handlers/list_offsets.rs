//! ListOffsets (key 2), versions 1 to 11.
//!
//! - A time finds the first record at or after it, exactly: compressed batches are looked into.
//! - -1 the end that the isolation level sees; -2 the start; -3 the record with the largest
//!   timestamp (v7, KIP-734); -4 the start of the local log (v8), here the start; -5 the end of what
//!   was tiered (v9) and -6 the start of what is waiting to be (v11). Tiered storage is not served: both unknown.
//! - v4 leader epochs (KIP-320).
//! - v5 OFFSET_NOT_AVAILABLE while a new leader does not know how far the one before told the log to be committed (KIP-207);
//!   LEADER_NOT_AVAILABLE before.
//! - What is written and not synced is synced before the end is told, so that a producer with `acks=1`
//!   finds its own records, as in Kafka.

use std::sync::Arc;

use model::{ErrorCode, LeaderEpoch, PartitionIndex, Timestamp};
use partition::{Isolation, OffsetQuery, Partition, PartitionError};
use tokio::sync::Semaphore;
use wire::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse,
};

use super::{Call, known_epoch, unique};
use crate::committed_end;

/// Look-ups by time that may read the disk at once, those of all connections together.
static TIME_LOOKUPS: Semaphore = Semaphore::const_new(4);

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// Answers. Looking up a time may read the disk, so it leaves the connection's thread.
pub async fn handle(call: Arc<Call>, mut request: ListOffsetsRequest) -> ListOffsetsResponse {
    unique::keep_first_partitions(
        &mut request.topics,
        |topic| topic.name.clone(),
        |topic| &mut topic.partitions,
        |partition| partition.partition_index,
    );
    committed_end::wait(looking_at_the_end(&call, &request).into_iter()).await;
    let looks_up_time = request
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .any(|p| p.timestamp >= 0 || p.timestamp == MAX_TIMESTAMP);
    if !looks_up_time {
        return answer(&call, &request);
    }
    let topics = request.topics.clone();
    // Whoever waits here holds no thread; the semaphore is never closed.
    let _turn = TIME_LOOKUPS.acquire().await;
    match tokio::task::spawn_blocking(move || answer(&call, &request)).await {
        Ok(response) => response,
        Err(_) => failed(topics),
    }
}

/// The partitions whose answer depends on how far the log is committed.
fn looking_at_the_end(call: &Call, request: &ListOffsetsRequest) -> Vec<Arc<Partition>> {
    let mut partitions = Vec::new();
    for topic in &request.topics {
        let wanted =
            topic.partitions.iter().filter(|p| !matches!(p.timestamp, EARLIEST | EARLIEST_LOCAL));
        partitions.extend(wanted.filter_map(|wanted| {
            call.server.partition(&topic.name, PartitionIndex(wanted.partition_index)).ok()
        }));
    }
    partitions
}

fn failed(topics: Vec<wire::list_offsets::ListOffsetsTopic>) -> ListOffsetsResponse {
    let topics = topics
        .into_iter()
        .map(|topic| ListOffsetsTopicResponse {
            name: topic.name,
            partitions: topic
                .partitions
                .iter()
                .map(|p| not_found(p.partition_index, ErrorCode::UnknownServerError))
                .collect(),
        })
        .collect();
    ListOffsetsResponse { throttle_time_ms: 0, topics }
}

fn answer(call: &Call, request: &ListOffsetsRequest) -> ListOffsetsResponse {
    let isolation = match (request.replica_id, request.isolation_level) {
        (-2, _) => Isolation::LogEnd,
        (_, 1) => Isolation::Stable,
        _ => Isolation::Committed,
    };
    let topics = request
        .topics
        .iter()
        .map(|topic| ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions: topic
                .partitions
                .iter()
                .map(|partition| look_up(call, isolation, &topic.name, partition))
                .collect(),
        })
        .collect();
    ListOffsetsResponse { throttle_time_ms: 0, topics }
}

/// The version in which a special timestamp came.
fn since(timestamp: i64) -> i16 {
    match timestamp {
        MAX_TIMESTAMP => 7,
        EARLIEST_LOCAL => 8,
        LATEST_TIERED => 9,
        EARLIEST_PENDING_UPLOAD => 11,
        _ => 1,
    }
}

fn look_up(
    call: &Call,
    isolation: Isolation,
    topic: &str,
    wanted: &ListOffsetsPartition,
) -> ListOffsetsPartitionResponse {
    let index = wanted.partition_index;
    if call.version < since(wanted.timestamp) {
        return not_found(index, ErrorCode::UnsupportedVersion);
    }
    let query = match wanted.timestamp {
        LATEST => OffsetQuery::Latest(isolation),
        EARLIEST | EARLIEST_LOCAL => OffsetQuery::Earliest,
        MAX_TIMESTAMP => OffsetQuery::MaxTimestamp,
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => return not_found(index, ErrorCode::None),
        timestamp if timestamp >= 0 => OffsetQuery::Timestamp(Timestamp(timestamp)),
        // Another special time: one of a later Kafka.
        _ => return not_found(index, ErrorCode::UnsupportedVersion),
    };
    match find(call, topic, wanted, query) {
        Ok(Some(found)) => ListOffsetsPartitionResponse {
            partition_index: index,
            error_code: ErrorCode::None.code(),
            timestamp: found.timestamp.0,
            offset: found.offset.0,
            leader_epoch: if call.version >= 4 { found.epoch.0 } else { -1 },
        },
        Ok(None) => not_found(index, ErrorCode::None),
        // The code came with version 5.
        Err(ErrorCode::OffsetNotAvailable) if call.version < 5 => {
            not_found(index, ErrorCode::LeaderNotAvailable)
        }
        Err(code) => not_found(index, code),
    }
}

fn find(
    call: &Call,
    topic: &str,
    wanted: &ListOffsetsPartition,
    query: OffsetQuery,
) -> Result<Option<storage::TimestampedOffset>, ErrorCode> {
    let partition = call.server.partition(topic, PartitionIndex(wanted.partition_index))?;
    let known = known_epoch(LeaderEpoch(wanted.current_leader_epoch));
    let found = partition
        .find_offset(query, known)
        .map_err(|error: PartitionError| call.server.complaints.code_of(&partition, &error));
    if matches!(query, OffsetQuery::MaxTimestamp | OffsetQuery::Timestamp(_)) {
        call.server.tell_unreadable(&partition);
    }
    found
}

fn not_found(partition_index: i32, code: ErrorCode) -> ListOffsetsPartitionResponse {
    ListOffsetsPartitionResponse {
        partition_index,
        error_code: code.code(),
        timestamp: -1,
        offset: -1,
        leader_epoch: -1,
    }
}
