//! Reads a client's topic from its first to its last record.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use client::{Cluster, ClusterConfig, Consumer, ConsumerConfig, OffsetReset, OffsetSpec};
use experiment::failover::Found;
use model::{Offset, TopicPartition};

use super::producing::sequence_of;
use crate::admin::block_on;

/// Nothing comes for so long while there is more.
const PATIENCE: Duration = Duration::from_secs(60);

/// All records of a topic, in the order of offsets within each partition. All replicas are in sync, so the end is where
/// acknowledged records end.
pub(super) fn read_back(bootstrap: &str, topic: &str, record_bytes: usize) -> Result<Vec<Found>> {
    block_on(async {
        let cluster = Cluster::connect(ClusterConfig::new(bootstrap)).await?;
        let count = cluster.topic(topic).await?.partitions.len();
        let partitions: Vec<TopicPartition> =
            (0..count as i32).map(|partition| TopicPartition::new(topic, partition)).collect();
        let config = ConsumerConfig {
            offset_reset: OffsetReset::Earliest,
            auto_commit: None,
            ..ConsumerConfig::default()
        };
        let mut consumer = Consumer::new(cluster, config);
        consumer.assign(&partitions).await?;
        let wanted: Vec<_> = partitions.iter().map(|p| (p.clone(), OffsetSpec::Latest)).collect();
        let ends = consumer.offsets(&wanted).await?;
        let end = |p: &TopicPartition| ends.get(p).and_then(|end| end.offset).unwrap_or(Offset(0));
        let mut left: HashMap<TopicPartition, Offset> =
            partitions.iter().map(|p| (p.clone(), end(p))).filter(|(_, end)| end.0 > 0).collect();
        let (mut found, mut buffer, mut heard) = (Vec::new(), Vec::new(), Instant::now());
        while !left.is_empty() {
            ensure!(
                heard.elapsed() < PATIENCE,
                "{topic} could not be read back: nothing came for {PATIENCE:?}"
            );
            for fetched in consumer.poll(Duration::from_millis(100)).await? {
                heard = Instant::now();
                let partition = fetched.partition.partition.0;
                fetched.for_each(&mut buffer, |record| {
                    let sequence = record.value.and_then(|value| sequence_of(value, record_bytes));
                    found.push(Found { partition, offset: record.offset.0, sequence });
                })?;
                if left.get(&fetched.partition).is_some_and(|end| fetched.next_offset >= *end) {
                    left.remove(&fetched.partition);
                }
            }
        }
        Ok(found)
    })
}
