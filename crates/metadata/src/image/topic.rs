//! One topic and its partitions.

use crate::record::{MetadataRecord, PartitionRecord};
use model::{BrokerId, LeaderEpoch, PartitionIndex, Timestamp, TopicId};
use std::collections::HashSet;
use std::sync::Arc;

/// One topic. Invariant: partition `i` stands at place `i`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicImage {
    /// Its id: another topic of the same name, later, has another one.
    pub id: TopicId,
    /// Its name.
    pub name: Arc<str>,
    /// When it was created, by the clock of the controller.
    pub created: Timestamp,
    /// Its partitions, behind counts so that a change of one copies no other. Those made together whose
    /// states are equal share one.
    pub(super) partitions: Vec<Arc<PartitionImage>>,
}

/// One partition's replicated state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionImage {
    /// Assigned replicas, the preferred leader first.
    pub replicas: Vec<BrokerId>,
    /// In-sync replicas. Invariant: a subset of `replicas`, not empty.
    pub isr: Vec<BrokerId>,
    /// The leader, or [`BrokerId::NONE`]. Invariant: in `isr` if there is one.
    pub leader: BrokerId,
    /// The leader's term. Invariant: never falls.
    pub leader_epoch: LeaderEpoch,
    /// Rises with every change.
    pub partition_epoch: i32,
    /// Elected uncleanly, not yet caught up (KIP-704).
    pub recovering: bool,
}

impl TopicImage {
    /// How many partitions it has.
    pub fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    /// One partition.
    pub fn partition(&self, index: PartitionIndex) -> Option<&PartitionImage> {
        self.partitions.get(usize::try_from(index.0).ok()?).map(|partition| &**partition)
    }

    /// All partitions in order.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionIndex, &PartitionImage)> {
        self.partitions.iter().enumerate().map(|(i, p)| (PartitionIndex(i as i32), &**p))
    }

    /// Whether only brokers and coordinators write it: hidden from clients that do not ask.
    pub fn is_internal(&self) -> bool {
        is_internal(&self.name)
    }

    pub(super) fn to_record(&self) -> MetadataRecord {
        MetadataRecord::TopicCreated {
            topic_id: self.id,
            name: self.name.to_string(),
            created: self.created,
            partitions: self.partitions().map(|(index, p)| p.to_record(index)).collect(),
        }
    }
}

/// Whether a topic of this name is one of Kafka's own.
pub fn is_internal(name: &str) -> bool {
    matches!(name, "__consumer_offsets" | "__transaction_state" | "__share_group_state")
}

impl PartitionImage {
    /// Whether some broker leads it.
    pub fn has_leader(&self) -> bool {
        self.leader != BrokerId::NONE
    }

    /// The replica that should lead when it can: the first one assigned.
    pub fn preferred_leader(&self) -> BrokerId {
        self.replicas.first().copied().unwrap_or(BrokerId::NONE)
    }

    /// The states of partitions that are made together. Hardly any two differ: a topic of very many
    /// partitions keeps a few states and a pointer for each.
    pub(super) fn of_new(records: &[PartitionRecord]) -> Vec<Arc<PartitionImage>> {
        let mut known: HashSet<Arc<PartitionImage>> = HashSet::new();
        let shared = |record| {
            let image = PartitionImage::from_record(record);
            if let Some(same) = known.get(&image) {
                return Arc::clone(same);
            }
            let image = Arc::new(image);
            known.insert(Arc::clone(&image));
            image
        };
        records.iter().map(shared).collect()
    }

    pub(super) fn from_record(record: &PartitionRecord) -> PartitionImage {
        PartitionImage {
            replicas: record.replicas.clone(),
            isr: record.isr.clone(),
            leader: record.leader,
            leader_epoch: record.leader_epoch,
            partition_epoch: record.partition_epoch,
            recovering: record.recovering,
        }
    }

    /// All of its state as a record of the partition with this number.
    pub fn to_record(&self, partition: PartitionIndex) -> PartitionRecord {
        PartitionRecord {
            partition,
            replicas: self.replicas.clone(),
            isr: self.isr.clone(),
            leader: self.leader,
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch,
            recovering: self.recovering,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_made_together_share_their_states() {
        let record = |index: i32| PartitionRecord {
            partition: PartitionIndex(index),
            replicas: vec![BrokerId(index % 3), BrokerId(7)],
            isr: vec![BrokerId(7)],
            leader: BrokerId(7),
            leader_epoch: LeaderEpoch(0),
            partition_epoch: 0,
            recovering: false,
        };
        let records: Vec<_> = (0..1000).map(record).collect();
        let images = PartitionImage::of_new(&records);
        let places: HashSet<_> = images.iter().map(Arc::as_ptr).collect();
        assert_eq!(places.len(), 3);
        for (image, record) in images.iter().zip(&records) {
            assert_eq!(image.to_record(record.partition), *record);
        }
    }
}
