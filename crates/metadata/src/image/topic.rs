//! One topic and its partitions.

use crate::record::{MetadataRecord, PartitionRecord};
use model::{BrokerId, LeaderEpoch, PartitionIndex, Timestamp, TopicId};
use std::collections::{BTreeMap, HashMap, HashSet};
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
    /// The newest leader epoch of each partition for which followers may truncate committed records, if there is one.
    pub(super) truncation_allowed: BTreeMap<PartitionIndex, LeaderEpoch>,
    /// The greatest leader epoch of each partition that a replica's log has and the metadata did not have when
    /// that was found. An entry ends when a leader is elected in a greater leader epoch.
    pub(super) found_epochs: BTreeMap<PartitionIndex, LeaderEpoch>,
}

/// One partition's replicated state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionImage {
    /// Assigned replicas, the preferred leader first.
    pub replicas: Vec<BrokerId>,
    /// In-sync replicas. Invariant: a subset of `replicas`; empty only where there are eligible replicas
    /// (`highwater.version` 1), and while nobody leads.
    pub isr: Vec<BrokerId>,
    /// Eligible leader replicas (KIP-966), see [`PartitionRecord::elr`]. Invariant: a subset of
    /// `replicas`, none of `isr`, empty where the ISR has `min.insync.replicas` members.
    pub elr: Vec<BrokerId>,
    /// See [`PartitionRecord::restarted`]. Invariant: a subset of `elr`.
    pub restarted: Vec<BrokerId>,
    /// The leader, or [`BrokerId::NONE`]. Invariant: in `isr` if there is one.
    pub leader: BrokerId,
    /// See [`PartitionRecord::last_known_leader`]. Invariant: [`BrokerId::NONE`] beside a leader.
    pub last_known_leader: BrokerId,
    /// The leader's epoch. Invariant: never falls.
    pub leader_epoch: LeaderEpoch,
    /// Rises with every change.
    pub partition_epoch: i32,
    /// Elected uncleanly, not yet caught up (KIP-704).
    pub recovering: bool,
    /// Whether everything below the high watermark is synced wherever it is counted, see
    /// [`PartitionRecord::durable`].
    pub durable: bool,
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

    /// The newest leader epoch of a partition for which followers may truncate committed records;
    /// [`LeaderEpoch::NONE`] if there is none.
    pub fn truncation_allowed(&self, partition: PartitionIndex) -> LeaderEpoch {
        self.truncation_allowed.get(&partition).copied().unwrap_or(LeaderEpoch::NONE)
    }

    /// The greatest leader epoch of a partition that a replica's log has and the metadata did not have; `None` if there is none. No
    /// replica leads the partition before an operator requests an unclean election.
    pub fn found_epoch(&self, partition: PartitionIndex) -> Option<LeaderEpoch> {
        self.found_epochs.get(&partition).copied()
    }

    pub(super) fn to_records(&self) -> impl Iterator<Item = MetadataRecord> {
        let partitions = self.partitions().map(|(index, p)| p.to_record(index)).collect();
        let name = self.name.to_string();
        let created = MetadataRecord::topic_created(self.id, name, self.created, partitions);
        let allowed = |(partition, leader_epoch): (&PartitionIndex, &LeaderEpoch)| {
            MetadataRecord::TruncationAllowed {
                topic_id: self.id,
                partition: *partition,
                leader_epoch: *leader_epoch,
            }
        };
        let found = |(partition, leader_epoch): (&PartitionIndex, &LeaderEpoch)| {
            MetadataRecord::LeaderEpochFound {
                topic_id: self.id,
                partition: *partition,
                leader_epoch: *leader_epoch,
            }
        };
        let allowed = self.truncation_allowed.iter().map(allowed);
        std::iter::once(created).chain(allowed).chain(self.found_epochs.iter().map(found))
    }

    /// Puts another state in the place of each partition for which `change` gives one. States that
    /// partitions share stay shared.
    pub(super) fn restate(&mut self, change: impl Fn(&PartitionImage) -> Option<PartitionImage>) {
        let mut changed: HashMap<*const PartitionImage, Option<Arc<PartitionImage>>> =
            HashMap::new();
        for place in &mut self.partitions {
            let old = Arc::clone(place);
            let new =
                changed.entry(Arc::as_ptr(&old)).or_insert_with(|| change(&old).map(Arc::new));
            if let Some(new) = new {
                *place = Arc::clone(new);
            }
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

    /// Whether records of a leader epoch are of an election that this metadata does not have: a later one, whatever the
    /// generation of the quorum that decided it.
    pub fn lacks_election(&self, leader_epoch: LeaderEpoch) -> bool {
        leader_epoch > self.leader_epoch || leader_epoch.elections() > self.leader_epoch.elections()
    }

    /// Whether a replica has everything below the high watermark: it is in sync, or eligible.
    pub fn is_complete(&self, id: BrokerId) -> bool {
        self.isr.contains(&id) || self.elr.contains(&id)
    }

    /// The same with nobody eligible outside of the ISR, if that has so many members or all replicas.
    pub(crate) fn with_elr_cleared(&self, members: u32) -> Option<PartitionImage> {
        let enough = (members as usize).min(self.replicas.len());
        if self.elr.is_empty() || self.isr.len() < enough {
            return None;
        }
        let partition_epoch = self.partition_epoch + 1;
        Some(PartitionImage {
            elr: Vec::new(),
            restarted: Vec::new(),
            partition_epoch,
            ..self.clone()
        })
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
            elr: record.elr.clone(),
            restarted: record.restarted.clone(),
            leader: record.leader,
            last_known_leader: record.last_known_leader,
            leader_epoch: record.leader_epoch,
            partition_epoch: record.partition_epoch,
            recovering: record.recovering,
            durable: record.durable,
        }
    }

    /// All of its state as a record of the partition with this number.
    pub fn to_record(&self, partition: PartitionIndex) -> PartitionRecord {
        PartitionRecord {
            partition,
            replicas: self.replicas.clone(),
            isr: self.isr.clone(),
            elr: self.elr.clone(),
            restarted: self.restarted.clone(),
            leader: self.leader,
            last_known_leader: self.last_known_leader,
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch,
            recovering: self.recovering,
            durable: self.durable,
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
            elr: Vec::new(),
            restarted: Vec::new(),
            leader: BrokerId(7),
            last_known_leader: BrokerId::NONE,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: 0,
            recovering: false,
            durable: true,
        };
        let records: Vec<_> = (0..1000).map(record).collect();
        let images = PartitionImage::of_new(&records);
        let places: HashSet<_> = images.iter().map(Arc::as_ptr).collect();
        assert_eq!(places.len(), 3);
        for (image, record) in images.iter().zip(&records) {
            assert_eq!(image.to_record(record.partition), *record);
        }
        let (id, name) = (TopicId::from_random([1; 16]), "t".into());
        let mut topic = TopicImage {
            id,
            name,
            created: Timestamp(0),
            partitions: images,
            truncation_allowed: BTreeMap::new(),
            found_epochs: BTreeMap::new(),
        };
        let is_odd = |state: &PartitionImage| state.replicas[0] == BrokerId(1);
        topic.restate(|state| {
            is_odd(state).then(|| PartitionImage { durable: false, ..state.clone() })
        });
        let places: HashSet<_> = topic.partitions.iter().map(Arc::as_ptr).collect();
        assert_eq!(places.len(), 3);
        assert!(topic.partitions().all(|(_, state)| state.durable != is_odd(state)));
    }
}
