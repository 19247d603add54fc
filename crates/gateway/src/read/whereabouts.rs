//! Topics and partitions that are asked for by name, and where they are.

use std::sync::Arc;

use client::metadata::Topic;
use client::{Cluster, OffsetSpec};
use model::{ErrorCode, TopicPartition};
use serving::error::{ApiError, Kind};
use tokio::time::timeout;

use crate::produce::{LOOKUP_MAX, of_refusal, unavailable};
use crate::state::Shared;

/// The partition of these names, with brokers to ask for it.
pub(crate) async fn locate(
    shared: &Shared,
    name: &str,
    index: i32,
) -> Result<TopicPartition, ApiError> {
    let cluster = shared.topics.cluster();
    let has = |topic: &Arc<Topic>| topic.error.is_none() && partition_of(topic, index).is_ok();
    if !cluster.known(name).as_ref().is_some_and(has) {
        // As the cluster has it now: there may be more partitions than a minute ago.
        let topic = shared.topics.existing(name).await?;
        partition_of(&topic, index)?;
        cluster.want([name]);
        let refreshed = timeout(LOOKUP_MAX, cluster.refresh()).await;
        refreshed
            .map_err(|_| unavailable(&"no broker answered within 5 s"))?
            .map_err(|error| unavailable(&error))?;
    }
    Ok(TopicPartition::new(name, index))
}

/// A partition of a topic.
pub(super) fn partition_of(
    topic: &Topic,
    index: i32,
) -> Result<&client::metadata::Partition, ApiError> {
    let found = usize::try_from(index).ok().and_then(|at| topic.partitions.get(at));
    found.ok_or_else(|| {
        let count = topic.partitions.len();
        let words = format!("{} has {count} partitions, counted from 0: not {index}", topic.name);
        ApiError::new(Kind::NoPartition, words)
    })
}

/// Whether the cluster has told that a topic is gone. Then it is asked for no more.
pub(super) fn is_gone(cluster: &Cluster, name: &str) -> bool {
    let is_gone = !cluster.metadata().topics.contains_key(name);
    if is_gone {
        cluster.unwant(name);
    }
    is_gone
}

pub(super) fn no_leader(partition: &TopicPartition) -> ApiError {
    ApiError::new(Kind::NoLeader, format!("{partition} has no leader now"))
}

/// The offset that is meant; `None` if no record is as late as asked.
pub(super) async fn offset(
    shared: &Shared,
    partition: &TopicPartition,
    spec: OffsetSpec,
    read_committed: bool,
) -> Result<Option<i64>, ApiError> {
    let cluster = shared.topics.cluster();
    let wanted = [(partition.clone(), spec)];
    let asked = client::offsets::list_offsets(cluster, &wanted, read_committed);
    let late = |_| unavailable(&"the partition's leader has not answered in time");
    match timeout(2 * LOOKUP_MAX, asked).await.map_err(late)? {
        Ok(found) => Ok(found[partition].offset.map(|offset| offset.0)),
        Err(error) => {
            // The name may be that of a topic which was there a moment ago.
            if error.code() == Some(ErrorCode::UnknownTopicOrPartition) {
                shared.topics.existing(&partition.topic).await?;
            }
            match cluster.metadata().leader(&partition.topic, partition.partition.0) {
                None => Err(no_leader(partition)),
                Some(_) => Err(of_refusal(&error)),
            }
        }
    }
}
