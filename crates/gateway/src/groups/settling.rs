//! Where a member begins in the partitions that its group has given it.

use std::collections::HashMap;

use client::{ClientError, Cluster, Consumer, OffsetSpec};
use model::{Offset, TopicPartition};
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

/// Asks for what the group has committed, and for the ends of logs where it has nothing.
pub(super) async fn settle(
    consumer: &Consumer,
    from_earliest: bool,
) -> Result<Vec<Begun>, ClientError> {
    let assigned = consumer.assignment();
    if assigned.is_empty() {
        return Ok(Vec::new());
    }
    let committed = consumer.committed(&assigned).await?;
    let spec = if from_earliest { OffsetSpec::Earliest } else { OffsetSpec::Latest };
    let missing = assigned.iter().filter(|partition| !committed.contains_key(*partition));
    let missing: Vec<_> = missing.map(|partition| (partition.clone(), spec)).collect();
    let found = match missing.is_empty() {
        true => HashMap::new(),
        false => consumer.offsets(&missing).await?,
    };
    let begun = assigned.into_iter().map(|partition| {
        let committed = committed.get(&partition).map(|committed| committed.offset.0);
        let end = found.get(&partition).and_then(|found| found.offset).unwrap_or(Offset(0));
        Begun { start: committed.unwrap_or(end.0), committed, partition }
    });
    Ok(begun.collect())
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
