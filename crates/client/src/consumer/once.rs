//! One fetch of one partition, without a consumer: for readers that come and go, and keep their places themselves.

use super::fetched::Fetched;
use crate::cluster::PrivateLane;
use crate::error::{ClientError, check};
use model::{ErrorCode, LeaderEpoch, Offset, TopicPartition};
use wire::fetch::{FetchPartition, FetchTopic};
use wire::{ApiKey, FetchRequest};

/// From this version on topics are named by their ids (KIP-516).
const BY_ID_FROM: i16 = 13;

/// What is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Once {
    /// The partition.
    pub partition: TopicPartition,
    /// The first offset.
    pub offset: Offset,
    /// Bytes at most; a batch that is larger comes whole.
    pub bytes_max: i32,
    /// Whether to leave aborted transactions out, and to stop before open ones.
    pub read_committed: bool,
}

/// Asks the partition's leader, as far as it is known, and waits for no records. The topic must be known, too.
///
/// # Errors
/// There is no leader, it refuses, or it cannot be reached: once, without trying again.
pub async fn read_once(lane: &PrivateLane, wish: &Once) -> Result<Fetched, ClientError> {
    let metadata = lane.cluster().metadata();
    let unknown = |code| ClientError::refused(format!("fetch of {}", wish.partition), code);
    let topic = metadata.topics.get(&wish.partition.topic);
    let topic = topic.ok_or_else(|| unknown(ErrorCode::UnknownTopicOrPartition))?;
    let index = usize::try_from(wish.partition.partition.0).ok();
    let known = index.and_then(|index| topic.partitions.get(index));
    let known = known.ok_or_else(|| unknown(ErrorCode::UnknownTopicOrPartition))?;
    let leader = known.leader.ok_or_else(|| unknown(ErrorCode::LeaderNotAvailable))?;
    let connection = lane.broker(leader).await?;
    let limit = if topic.id.is_zero() { BY_ID_FROM - 1 } else { i16::MAX };
    let version = connection.version_up_to(ApiKey::Fetch, limit)?;
    let mut request = request(wish, known.leader_epoch);
    request.topics[0].topic_id = topic.id;
    let response = connection.call_version(&request, version).await?;
    check(response.error(), None, || format!("fetch of {}", wish.partition))?;
    let answers = response.responses.iter().flat_map(|topic| &topic.partitions);
    let mut answers = answers.filter(|data| data.partition_index == wish.partition.partition.0);
    let data = answers.next().ok_or_else(|| unknown(ErrorCode::UnknownTopicOrPartition))?;
    check(data.error(), None, || format!("fetch of {}", wish.partition))?;
    Fetched::of(&wish.partition, wish.offset, data, wish.read_committed, true)
}

/// Without a session.
fn request(wish: &Once, leader_epoch: LeaderEpoch) -> FetchRequest {
    let partition = FetchPartition {
        partition: wish.partition.partition.0,
        current_leader_epoch: leader_epoch.0,
        fetch_offset: wish.offset.0,
        partition_max_bytes: wish.bytes_max,
        ..Default::default()
    };
    FetchRequest {
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: wish.bytes_max,
        isolation_level: wish.read_committed as i8,
        session_id: 0,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: wish.partition.topic.to_string(),
            partitions: vec![partition],
            ..Default::default()
        }],
        ..Default::default()
    }
}
