//! What brokers say of each partition, a number each: columns with a place for every partition of the cluster. An answer is put into
//! them as it comes, so that a look never holds what all brokers answer.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use client::FoundOffset;
use client::metadata::Topic as Described;
use model::ErrorCode;

use crate::snapshot::Known;

/// A topic of one look.
#[derive(Debug, PartialEq, Eq)]
struct Topic {
    name: Arc<str>,
    is_internal: bool,
    places: Range<usize>,
}

/// The place of each partition in all columns of one look: topics in the order of their names, so that a cluster that has not
/// changed has the same places in each look.
#[derive(Debug, Default)]
pub(super) struct Places {
    topics: Vec<Topic>,
    by_name: HashMap<Arc<str>, usize>,
    count: usize,
}

impl Places {
    /// All partitions of these topics, which are in the order of their names. Names are those of the look before: ones out of the
    /// metadata would, one by one, keep the memory from being returned that the metadata takes.
    pub(super) fn of(topics: &[Described], before: &Places) -> Places {
        let mut places = Places::default();
        places.topics.reserve_exact(topics.len());
        places.by_name.reserve(topics.len());
        for topic in topics {
            let name = before.name(&topic.name).map_or_else(|| Arc::from(&*topic.name), Arc::clone);
            places.add(name, topic.is_internal, topic.partitions.len());
        }
        places
    }

    /// Adds a topic behind all others.
    pub(super) fn add(&mut self, name: Arc<str>, is_internal: bool, partitions: usize) {
        let first = self.count;
        self.count += partitions;
        self.by_name.insert(Arc::clone(&name), self.topics.len());
        self.topics.push(Topic { name, is_internal, places: first..self.count });
    }

    /// How many partitions there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether each partition has the same place there.
    pub(super) fn are_those_of(&self, other: &Places) -> bool {
        self.topics == other.topics
    }

    /// A column in which nothing stands yet.
    pub(super) fn column(&self) -> Column {
        Column(vec![Known::NOT; self.count])
    }

    fn topic(&self, name: &str) -> Option<&Topic> {
        Some(&self.topics[*self.by_name.get(name)?])
    }

    /// The place of a partition, if it is there.
    pub(super) fn at(&self, topic: &str, partition: i32) -> Option<usize> {
        let places = &self.topic(topic)?.places;
        Some(places.start + usize::try_from(partition).ok()?).filter(|at| places.contains(at))
    }

    /// The places of a topic's partitions.
    pub(super) fn of_topic(&self, name: &str) -> Range<usize> {
        self.topic(name).map(|topic| topic.places.clone()).unwrap_or_default()
    }

    /// A topic's name as all of a snapshot share it, if the topic is there.
    pub(super) fn name(&self, topic: &str) -> Option<&Arc<str>> {
        self.topic(topic).map(|topic| &topic.name)
    }

    /// All topics in their order: their names, whether Kafka made them for itself, and the places of their partitions.
    pub(super) fn topics(&self) -> impl Iterator<Item = (&Arc<str>, bool, Range<usize>)> {
        self.topics.iter().map(|topic| (&topic.name, topic.is_internal, topic.places.clone()))
    }
}

/// A number of each partition, by place.
#[derive(Debug)]
pub(super) struct Column(Vec<Known>);

impl Column {
    /// What is known of a partition.
    pub(super) fn get(&self, at: usize) -> Option<i64> {
        self.0.get(at)?.get()
    }

    pub(super) fn set(&mut self, at: usize, number: i64) {
        self.0[at] = Known::of(Some(number));
    }

    /// Takes what a broker found of a partition; one that was not asked for says nothing.
    pub(super) fn take(
        &mut self,
        places: &Places,
        (topic, partition): (&str, i32),
        found: Result<FoundOffset, ErrorCode>,
    ) {
        let offset = found.ok().and_then(|found| found.offset);
        if let Some((at, offset)) = places.at(topic, partition).zip(offset) {
            self.set(at, offset.0);
        }
    }

    /// Of how many partitions something is known.
    pub(super) fn known(&self) -> usize {
        self.0.iter().filter(|number| **number != Known::NOT).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{LeaderEpoch, Offset, Timestamp};

    #[test]
    fn partitions_that_were_not_asked_for_have_no_place() {
        let mut places = Places::default();
        places.add(Arc::from("a"), false, 2);
        places.add(Arc::from("b"), false, 1);
        assert_eq!((places.at("a", 1), places.at("b", 0)), (Some(1), Some(2)));
        for (topic, partition) in [("a", 2), ("a", -1), ("b", i32::MAX), ("c", 0)] {
            assert_eq!(places.at(topic, partition), None, "{topic} {partition}");
        }
        let mut ends = places.column();
        let found = |offset: i64| {
            let (timestamp, leader_epoch) = (Timestamp(-1), LeaderEpoch::NONE);
            Ok(FoundOffset { offset: Some(Offset(offset)), timestamp, leader_epoch })
        };
        ends.take(&places, ("b", 0), found(7));
        ends.take(&places, ("b", 1), found(8));
        ends.take(&places, ("a", 0), Err(ErrorCode::NotLeaderOrFollower));
        assert_eq!([0, 1, 2].map(|at| ends.get(at)), [None, None, Some(7)]);
        assert_eq!(ends.known(), 1);
    }
}
