//! One fetch of one partition, without a consumer: for readers that come and go, and keep their places themselves.

use super::fetched::Fetched;
use super::session::{Wanted, topics_of};
use crate::cluster::{Cluster, Lane, PrivateLane};
use crate::connection::Connection;
use crate::error::{ClientError, check};
use crate::metadata::Metadata;
use model::{ErrorCode, LeaderEpoch, Offset, TopicId, TopicPartition};
use std::time::Duration;
use wire::{ApiKey, FetchRequest};

/// From this version on topics are named by their ids (KIP-516).
const BY_ID_FROM: i16 = 13;
/// What an answer may take beside the time that the broker may wait for records.
const ANSWER_SLACK: Duration = Duration::from_secs(5);

/// What is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Once {
    /// The partition.
    pub partition: TopicPartition,
    /// The first offset.
    pub offset: Offset,
    /// Bytes at most, as they are in the log; a first batch that is larger comes whole.
    pub bytes_max: i32,
    /// How long the broker waits for the first record; less than half a minute. What waits holds up whatever comes behind on the
    /// same connection.
    pub wait: Duration,
    /// Whether to leave aborted transactions out, and to stop before open ones.
    pub read_committed: bool,
}

/// Asks the partition's leader, as far as it is known. The topic must be known, too.
///
/// # Errors
/// There is no leader, it refuses, or it cannot be reached: once, without trying again.
pub async fn read_once(lane: &PrivateLane, wish: &Once) -> Result<Fetched, ClientError> {
    let place = Place::of(&lane.cluster().metadata(), &wish.partition)?;
    let connection = lane.broker(place.leader).await?;
    place.fetch(&connection, wish).await
}

/// As [`read_once`], of a topic that need not be known: its leader is asked for first, and nothing is remembered.
///
/// # Errors
/// As those of [`read_once`]; or the partition is not there.
pub async fn look_once(cluster: &Cluster, wish: &Once) -> Result<Fetched, ClientError> {
    let metadata = cluster.describe([&*wish.partition.topic]).await?;
    let place = Place::of(&metadata, &wish.partition)?;
    if !cluster.metadata().brokers.contains_key(&place.leader) {
        cluster.refresh().await?;
    }
    let connection = cluster.broker(place.leader, Lane::Common).await?;
    place.fetch(&connection, wish).await
}

/// Where a partition is.
struct Place {
    topic_id: TopicId,
    leader: i32,
    leader_epoch: LeaderEpoch,
}

impl Place {
    fn of(metadata: &Metadata, partition: &TopicPartition) -> Result<Place, ClientError> {
        let unknown = |code| ClientError::refused(format!("fetch of {partition}"), code);
        let topic = metadata.topics.get(&partition.topic);
        let index = usize::try_from(partition.partition.0).unwrap_or(usize::MAX);
        let known = topic.and_then(|topic| Some((topic.id, topic.partitions.get(index)?)));
        let (topic_id, known) = known.ok_or_else(|| unknown(ErrorCode::UnknownTopicOrPartition))?;
        let leader = known.leader.ok_or_else(|| unknown(ErrorCode::LeaderNotAvailable))?;
        Ok(Place { topic_id, leader, leader_epoch: known.leader_epoch })
    }

    async fn fetch(&self, connection: &Connection, wish: &Once) -> Result<Fetched, ClientError> {
        let limit = if self.topic_id.is_zero() { BY_ID_FROM - 1 } else { i16::MAX };
        let version = connection.version_up_to(ApiKey::Fetch, limit)?;
        let timeout = wish.wait + ANSWER_SLACK;
        let response = connection.call_slow_version(&self.request(wish), version, timeout).await?;
        let asked = || format!("fetch of {}", wish.partition);
        check(response.error(), None, asked)?;
        let answers = response.responses.iter().flat_map(|topic| &topic.partitions);
        let mut answers = answers.filter(|it| it.partition_index == wish.partition.partition.0);
        let unknown = || ClientError::refused(asked(), ErrorCode::UnknownTopicOrPartition);
        let data = answers.next().ok_or_else(unknown)?;
        check(data.error(), None, asked)?;
        Fetched::of(&wish.partition, wish.offset, data, wish.read_committed, true)
    }

    /// Without a session (KIP-227).
    fn request(&self, wish: &Once) -> FetchRequest {
        let wanted = Wanted {
            topic_id: self.topic_id,
            offset: wish.offset,
            leader_epoch: self.leader_epoch,
            max_bytes: wish.bytes_max,
        };
        FetchRequest {
            max_wait_ms: i32::try_from(wish.wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: i32::from(!wish.wait.is_zero()),
            max_bytes: wish.bytes_max,
            isolation_level: wish.read_committed as i8,
            session_id: 0,
            session_epoch: -1,
            topics: topics_of([(&wish.partition, &wanted)].into_iter()),
            ..Default::default()
        }
    }
}
