//! What a shard's records say: the only state that survives. [`Durable::replay`] is the only way to
//! change it, live and at start-up, so replaying the log gives the live state. Sessions, joins in
//! progress and other soft state are not here but in `group`.

use std::collections::{BTreeMap, BTreeSet};

use model::TopicPartition;

use crate::GroupId;
use crate::records::{CommittedOffset, GroupRecord, Record};
use crate::request::kept_offset_bytes;

/// The stored positions of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GroupOffsets {
    by_partition: BTreeMap<TopicPartition, CommittedOffset>,
    /// Bytes of memory that they take: the sum of [`kept_bytes`].
    kept_bytes: usize,
    /// Bytes of metadata among them.
    metadata_bytes: usize,
}

impl GroupOffsets {
    fn add(&mut self, partition: &TopicPartition, value: &CommittedOffset) {
        self.kept_bytes += kept_bytes(partition, value);
        self.metadata_bytes += value.metadata.len();
    }

    fn take_off(&mut self, partition: &TopicPartition, value: &CommittedOffset) {
        self.kept_bytes -= kept_bytes(partition, value);
        self.metadata_bytes -= value.metadata.len();
    }
}

fn kept_bytes(partition: &TopicPartition, value: &CommittedOffset) -> usize {
    kept_offset_bytes(partition.topic.len(), value.metadata.len())
}

/// The facts of one shard, those not yet committed included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durable {
    groups: BTreeMap<GroupId, GroupRecord>,
    /// Invariant: no group with an empty map.
    offsets: BTreeMap<GroupId, GroupOffsets>,
}

/// What takes one replayed record back: the record that says what was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undo(Record);

impl Durable {
    /// Learns a fact. A fact about the same key replaces the one before.
    pub(crate) fn replay(&mut self, record: &Record) -> Undo {
        match record {
            Record::GroupMetadata { group, value } => {
                let before = match value {
                    Some(value) => self.groups.insert(group.clone(), value.clone()),
                    None => self.groups.remove(group),
                };
                Undo(Record::GroupMetadata { group: group.clone(), value: before })
            }
            Record::OffsetCommit { group, partition, value } => {
                let before = self.replay_offset(group, partition, value.as_ref());
                let (group, partition) = (group.clone(), partition.clone());
                Undo(Record::OffsetCommit { group, partition, value: before })
            }
        }
    }

    fn replay_offset(
        &mut self,
        group: &GroupId,
        partition: &TopicPartition,
        value: Option<&CommittedOffset>,
    ) -> Option<CommittedOffset> {
        let Some(value) = value else {
            let offsets = self.offsets.get_mut(group)?;
            let before = offsets.by_partition.remove(partition)?;
            offsets.take_off(partition, &before);
            if offsets.by_partition.is_empty() {
                self.offsets.remove(group);
            }
            return Some(before);
        };
        let offsets = self.offsets.entry(group.clone()).or_default();
        offsets.add(partition, value);
        let before = offsets.by_partition.insert(partition.clone(), value.clone());
        if let Some(before) = &before {
            offsets.take_off(partition, before);
        }
        before
    }

    /// Takes back the fact learned last. Only for records that never entered the log.
    pub(crate) fn undo(&mut self, undo: Undo) {
        self.replay(&undo.0);
    }

    /// The last completed generation of a group.
    pub fn group(&self, group: &GroupId) -> Option<&GroupRecord> {
        self.groups.get(group)
    }

    /// The stored position of a group for one partition.
    pub fn offset(&self, group: &GroupId, partition: &TopicPartition) -> Option<&CommittedOffset> {
        self.offsets.get(group)?.by_partition.get(partition)
    }

    /// All stored positions of a group, sorted by partition.
    pub fn offsets(
        &self,
        group: &GroupId,
    ) -> impl Iterator<Item = (&TopicPartition, &CommittedOffset)> {
        self.offsets.get(group).into_iter().flat_map(|offsets| &offsets.by_partition)
    }

    /// Bytes of memory that the stored positions of a group take.
    pub(crate) fn offset_bytes(&self, group: &GroupId) -> usize {
        self.offsets.get(group).map_or(0, |offsets| offsets.kept_bytes)
    }

    /// Bytes of metadata of the stored positions of a group.
    pub(crate) fn metadata_bytes(&self, group: &GroupId) -> usize {
        self.offsets.get(group).map_or(0, |offsets| offsets.metadata_bytes)
    }

    /// Whether a group has stored positions.
    pub(crate) fn has_offsets(&self, group: &GroupId) -> bool {
        self.offsets.contains_key(group)
    }

    /// Every group of which there is a record of any kind.
    pub fn group_ids(&self) -> BTreeSet<GroupId> {
        self.groups.keys().chain(self.offsets.keys()).cloned().collect()
    }
}
