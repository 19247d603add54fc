//! Offsets committed in transactions whose end a loader has not read yet (KIP-98).

use std::collections::BTreeMap;

use model::{Offset, ProducerId, TopicPartition};

use crate::GroupId;
use crate::records::{CommittedOffset, Record};

type OffsetKey = (GroupId, TopicPartition);

/// The offset commits of open transactions, each with the log offset of its record.
///
/// Of two records about the same partition of the same group, the one with the greater log offset counts,
/// whichever transaction ends first. A commit that a newer record outdates is therefore dropped here.
#[derive(Debug, Default)]
pub(crate) struct PendingOffsets {
    by_producer: BTreeMap<ProducerId, BTreeMap<OffsetKey, (Offset, CommittedOffset)>>,
}

impl PendingOffsets {
    /// Adds a commit whose record in the transaction of `producer` has the log offset `at`.
    pub(crate) fn add(
        &mut self,
        producer: ProducerId,
        at: Offset,
        group: GroupId,
        partition: TopicPartition,
        value: CommittedOffset,
    ) {
        let of_producer = self.by_producer.entry(producer).or_default();
        of_producer.insert((group, partition), (at, value));
    }

    /// Drops the commits about this partition of this group whose records lie before `at`.
    pub(crate) fn outdate(&mut self, group: &GroupId, partition: &TopicPartition, at: Offset) {
        if self.by_producer.is_empty() {
            return;
        }
        let key = (group.clone(), partition.clone());
        for of_producer in self.by_producer.values_mut() {
            if of_producer.get(&key).is_some_and(|(record, _)| *record < at) {
                of_producer.remove(&key);
            }
        }
    }

    /// Ends the transaction of `producer`. Returns its commits, with the log offsets of their records.
    pub(crate) fn end(&mut self, producer: ProducerId) -> Vec<(Offset, Record)> {
        let ended = self.by_producer.remove(&producer).unwrap_or_default();
        let records = ended.into_iter().map(|((group, partition), (at, value))| {
            (at, Record::OffsetCommit { group, partition, value: Some(value) })
        });
        records.collect()
    }
}
