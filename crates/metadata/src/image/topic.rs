//! One topic and its partitions.

use crate::record::{MetadataRecord, PartitionRecord};
use model::{BrokerId, LeaderEpoch, PartitionIndex, Timestamp, TopicId};
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
    /// Its partitions, behind counts so that a change of one copies no other.
    pub(super) partitions: Vec<Arc<PartitionImage>>,
}

/// One partition's replicated state.
#[derive(Clone, Debug, PartialEq, Eq)]
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
