//! The topic of a run, and its incarnations: a topic that is deleted and created again has the same name, another topic id,
//! and perhaps another number of partitions.
//!
//! A [`PartitionId`] of a cluster names a partition of one incarnation: no state of an earlier incarnation is that of a later one.
//! Which incarnation exists follows from a node's metadata ([`topic_in`]).

use std::ops::Range;

use metadata::{ClusterImage, TopicImage};
use model::{PartitionIndex, TopicId, TopicPartition, Uuid};
use node::Key;

use crate::message::PartitionId;
use crate::start::TOPIC;

/// Numbers of partitions that are kept free for each incarnation.
const PARTITION_IDS: usize = 4;
/// The byte that the topic id of the first incarnation consists of.
const FIRST_ID: u8 = 9;

/// Number of the last incarnation that a run may have.
const INCARNATION_MAX: usize = 200;

/// One creation of the topic, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TopicIncarnation(usize);

impl TopicIncarnation {
    /// The incarnation with which the cluster is founded.
    pub(crate) const FIRST: TopicIncarnation = TopicIncarnation(0);

    /// The incarnation behind this one; `None` behind the last one of a run.
    pub(crate) fn next(self) -> Option<TopicIncarnation> {
        (self.0 < INCARNATION_MAX).then_some(TopicIncarnation(self.0 + 1))
    }

    /// The topic id of the incarnation.
    pub(crate) fn topic_id(self) -> TopicId {
        Uuid([FIRST_ID + self.0 as u8; 16])
    }

    /// The incarnation with a topic id; `None` for an id of no run.
    pub(crate) fn with_id(id: TopicId) -> Option<TopicIncarnation> {
        let number = id.0[0].checked_sub(FIRST_ID)?;
        let incarnation = TopicIncarnation(usize::from(number));
        (incarnation.topic_id() == id).then_some(incarnation)
    }

    /// The incarnation of a partition.
    pub(crate) fn of(at: PartitionId) -> TopicIncarnation {
        TopicIncarnation(at / PARTITION_IDS)
    }

    /// Its first `count` partitions.
    pub(crate) fn partitions(self, count: usize) -> Range<PartitionId> {
        let first = self.0 * PARTITION_IDS;
        first..first + count
    }

    /// The name under which checkpoint files have offsets of a partition of this incarnation. The product's journal has them by
    /// topic id.
    fn checkpoint_topic(self) -> String {
        match self {
            TopicIncarnation::FIRST => TOPIC.to_owned(),
            TopicIncarnation(number) => format!("{TOPIC}.{number}"),
        }
    }
}

/// Number of a partition within its topic.
pub(crate) fn index_of(at: PartitionId) -> PartitionIndex {
    PartitionIndex((at % PARTITION_IDS) as i32)
}

/// Topic id and number of a partition, as brokers and the controller name it.
pub(crate) fn key_of(at: PartitionId) -> Key {
    Key { topic_id: TopicIncarnation::of(at).topic_id(), partition: index_of(at) }
}

/// The partition with this topic id and number; `None` for another topic's.
pub(crate) fn partition_of(key: Key) -> Option<PartitionId> {
    let incarnation = TopicIncarnation::with_id(key.topic_id)?;
    let index = usize::try_from(key.partition.0).ok().filter(|index| *index < PARTITION_IDS)?;
    Some(incarnation.partitions(0).start + index)
}

/// The name of a partition, which is that of its folder.
pub(crate) fn name_of(at: PartitionId) -> TopicPartition {
    TopicPartition::new(TOPIC, index_of(at).0)
}

/// The name under which checkpoint files have offsets of a partition.
pub(crate) fn checkpoint_name_of(at: PartitionId) -> TopicPartition {
    TopicPartition::new(TopicIncarnation::of(at).checkpoint_topic().as_str(), index_of(at).0)
}

/// The topic by an image, if it exists there.
pub(crate) fn topic_in(image: &ClusterImage) -> Option<&TopicImage> {
    image.topic(TOPIC).map(|topic| &**topic)
}

/// Partitions of the topic by an image; none while the topic is deleted.
pub(crate) fn partitions_in(image: &ClusterImage) -> Range<PartitionId> {
    let topic = topic_in(image);
    let known = topic.and_then(|topic| Some((TopicIncarnation::with_id(topic.id)?, topic)));
    known.map_or(0..0, |(incarnation, topic)| incarnation.partitions(topic.partition_count()))
}
