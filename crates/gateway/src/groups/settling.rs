//! Where a member begins in the partitions that its group has given it.

use std::collections::HashMap;
use std::time::Duration;

use client::{ClientError, Cluster, Consumer, OffsetSpec};
use model::{ErrorCode, Offset, TopicPartition};
use serving::events::id::Place;
use serving::events::{ResumeId, TopicHash};

/// Where a member begins in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) partition: TopicPartition,
    /// What the group has committed.
    pub(super) committed: Option<i64>,
    /// That, or the end of the log that the client asked for.
    pub(super) start: i64,
}

/// How long leaders are waited for where the group has committed nothing.
const LOOKUP_MAX: Duration = Duration::from_millis(750);

/// Where a member begins.
#[derive(Debug, Default)]
pub(super) struct Settlement {
    pub(super) begun: Vec<Begun>,
    /// Partitions without a committed offset whose leaders do not answer.
    pub(super) left: Vec<TopicPartition>,
}

/// Looks up committed offsets of these partitions, and the ends of logs of those without one.
///
/// # Errors
/// The coordinator does not answer, a partition can never be read, or none can be read now.
pub(super) async fn settle(
    consumer: &Consumer,
    cluster: &Cluster,
    partitions: Vec<TopicPartition>,
    from_earliest: bool,
) -> Result<Settlement, ClientError> {
    if partitions.is_empty() {
        return Ok(Settlement::default());
    }
    let committed = consumer.committed(&partitions).await?;
    let spec = if from_earliest { OffsetSpec::Earliest } else { OffsetSpec::Latest };
    let missing = partitions.iter().filter(|partition| !committed.contains_key(*partition));
    let missing: Vec<_> = missing.map(|partition| (partition.clone(), spec)).collect();
    let mut found = match missing.is_empty() {
        true => HashMap::new(),
        false => consumer.available_offsets(&missing, LOOKUP_MAX).await,
    };
    let mut settlement = Settlement::default();
    for partition in partitions {
        if let Some(committed) = committed.get(&partition) {
            let start = committed.offset.0;
            settlement.begun.push(Begun { partition, committed: Some(start), start });
            continue;
        }
        match found.remove(&partition) {
            Some(Ok(found)) => {
                let start = found.offset.unwrap_or(Offset(0)).0;
                settlement.begun.push(Begun { partition, committed: None, start });
            }
            Some(Err(error)) if !error.is_retriable() => return Err(error),
            Some(Err(_)) | None => settlement.left.push(partition),
        }
    }
    if let Some(partition) = settlement.left.first() {
        // Another broker may lead it by now. A failure leaves the metadata of before.
        let _ = tokio::time::timeout(LOOKUP_MAX, cluster.refresh()).await;
        if settlement.begun.is_empty() {
            let operation = format!("offset of {partition}");
            return Err(ClientError::refused(operation, ErrorCode::LeaderNotAvailable));
        }
    }
    Ok(settlement)
}

/// The next offset behind an id, if the id is of this very topic.
pub(super) fn next_by_id(
    cluster: &Cluster,
    id: &ResumeId,
    partition: &TopicPartition,
) -> Option<i64> {
    let (place, hash) = id.find(&partition.topic, partition.partition.0)?;
    let topic = cluster.metadata().topics.get(&partition.topic).map(|topic| topic.id);
    let is_same = |hash| topic.is_some_and(|topic| TopicHash::of_id(&topic.0) == hash);
    match place {
        Place::Behind(position) if hash.is_none_or(is_same) => Some(position.next()),
        _ => None,
    }
}
