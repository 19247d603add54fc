//! One look at the records of a partition, without a consumer: nothing is remembered here or at the broker.

use super::fetched::Fetched;
use super::session::{Wanted, topics_of};
use crate::cluster::{Cluster, Lane};
use crate::error::ClientError;
use model::{ErrorCode, Offset, TopicPartition};
use wire::{ApiKey, FetchRequest};

/// The epoch of a fetch that begins no session (KIP-227).
const WITHOUT_SESSION: i32 = -1;
/// The newest version of Fetch that names topics.
const BY_NAME: i16 = 12;

/// What is at `offset` and behind it, about `bytes_max` of it: the first batch comes whole, however large. It does not
/// wait for records. Aborted transactions are left out if `read_committed`.
///
/// # Errors
/// The partition is not there, has no leader, or does not hold this offset; or its leader cannot be reached.
pub async fn glance(
    cluster: &Cluster,
    partition: &TopicPartition,
    offset: Offset,
    bytes_max: i32,
    read_committed: bool,
) -> Result<Fetched, ClientError> {
    let metadata = cluster.describe([&*partition.topic]).await?;
    let refused = |code| ClientError::refused(format!("reading {partition}"), code);
    let topic = metadata.topics.get(&partition.topic);
    let index = usize::try_from(partition.partition.0).unwrap_or(usize::MAX);
    let known = topic.and_then(|topic| Some((topic.id, topic.partitions.get(index)?)));
    let (topic_id, known) = known.ok_or_else(|| refused(ErrorCode::UnknownTopicOrPartition))?;
    let leader = known.leader.ok_or_else(|| refused(ErrorCode::LeaderNotAvailable))?;
    if !cluster.metadata().brokers.contains_key(&leader) {
        cluster.refresh().await?;
    }
    let connection = cluster.broker(leader, Lane::Common).await?;
    let version_max = if topic_id.is_zero() { BY_NAME } else { i16::MAX };
    let version = connection.version_up_to(ApiKey::Fetch, version_max)?;
    let leader_epoch = known.leader_epoch;
    let wanted = Wanted { topic_id, offset, leader_epoch, max_bytes: bytes_max };
    let request = FetchRequest {
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: bytes_max,
        isolation_level: read_committed as i8,
        session_epoch: WITHOUT_SESSION,
        topics: topics_of([(partition, &wanted)].into_iter()),
        ..Default::default()
    };
    let response = connection.call_version(&request, version).await?;
    if !response.error().is_none() {
        return Err(refused(response.error()));
    }
    let data = response.responses.iter().flat_map(|topic| &topic.partitions).next();
    let data = data.ok_or_else(|| refused(ErrorCode::UnknownServerError))?;
    match data.error() {
        ErrorCode::None => Fetched::of(partition, offset, data, read_committed, true),
        code => Err(refused(code)),
    }
}
