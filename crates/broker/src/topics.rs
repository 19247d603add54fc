//! The table of topics of which this broker holds partitions, as the data path sees it: an
//! immutable map, replaced as a whole when the cluster's metadata changes. One table shares with the next
//! what both have in common, so that a step costs what it changes, however many topics there are.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use metadata::shared_map::SharedMap;
use model::{PartitionIndex, TopicId};
use partition::{Partition, Settings};

use crate::counters::TopicCounters;

/// One topic.
#[derive(Debug)]
pub struct Topic {
    /// Its name.
    pub name: Arc<str>,
    /// Its id.
    pub id: TopicId,
    /// Whether only this broker's coordinators may write to it.
    pub internal: bool,
    /// The partitions by number; `None` where this broker holds no replica or could not open it.
    pub partitions: Vec<Option<Arc<Partition>>>,
    /// Its counters.
    pub counters: Arc<TopicCounters>,
}

impl Topic {
    /// The partition of this number, if this broker holds it.
    pub fn partition(&self, index: PartitionIndex) -> Option<&Arc<Partition>> {
        self.partitions.get(usize::try_from(index.0).ok()?)?.as_ref()
    }

    /// What its partitions obey, all of them the same; `None` if none is held here.
    pub fn settings(&self) -> Option<Arc<Settings>> {
        self.partitions.iter().flatten().next().map(|partition| partition.settings())
    }
}

/// All topics at one moment.
#[derive(Debug, Default, Clone)]
pub struct Topics {
    by_name: SharedMap<Arc<str>, Arc<Topic>>,
    /// Invariant: the same topics as in `by_name`.
    by_id: SharedMap<TopicId, Arc<Topic>>,
    /// Invariant: the sum over all topics, whether the partitions are held here or not.
    partition_count: usize,
}

impl Topics {
    /// The topic of this name.
    pub fn by_name(&self, name: &str) -> Option<&Arc<Topic>> {
        self.by_name.get(name)
    }

    /// The topic of this id.
    pub fn by_id(&self, id: &TopicId) -> Option<&Arc<Topic>> {
        self.by_id.get(id)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.by_name.values()
    }

    /// All partitions held here, topic by topic.
    pub fn partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.iter().flat_map(|topic| topic.partitions.iter().flatten())
    }

    /// Adds a topic, or replaces the one of its name.
    pub fn insert(&mut self, topic: Arc<Topic>) {
        self.partition_count += topic.partitions.len();
        if let Some(old) = self.by_name.insert(Arc::clone(&topic.name), Arc::clone(&topic)) {
            self.partition_count -= old.partitions.len();
            self.by_id.remove(&old.id);
        }
        self.by_id.insert(topic.id, topic);
    }

    /// Removes the topic of this id.
    pub fn remove(&mut self, id: &TopicId) -> Option<Arc<Topic>> {
        let topic = self.by_id.remove(id)?;
        self.by_name.remove(&topic.name);
        self.partition_count -= topic.partitions.len();
        Some(topic)
    }
}

/// The table that everybody reads and one task changes.
#[derive(Debug, Default)]
pub struct TopicTable {
    current: ArcSwap<Topics>,
}

impl TopicTable {
    /// The table now. Cheap; not to be kept over an await.
    pub fn load(&self) -> Guard<Arc<Topics>> {
        self.current.load()
    }

    /// The table now, to keep.
    pub fn snapshot(&self) -> Arc<Topics> {
        self.current.load_full()
    }

    /// How many partitions there are, held here or not.
    pub fn partition_count(&self) -> usize {
        self.load().partition_count
    }

    /// Replaces the table. Only the task that applies metadata calls this.
    pub fn replace(&self, topics: Topics) {
        self.current.store(Arc::new(topics));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(number: u128, name: &str, partitions: usize) -> Arc<Topic> {
        Arc::new(Topic {
            name: name.into(),
            id: TopicId::from_random(number.to_be_bytes()),
            internal: false,
            partitions: vec![None; partitions],
            counters: Arc::default(),
        })
    }

    #[test]
    fn partitions_are_counted_through_replacing_and_removing() {
        let table = TopicTable::default();
        let mut topics = Topics::default();
        topics.insert(topic(1, "a", 3));
        topics.insert(topic(2, "b", 4));
        topics.insert(topic(3, "a", 5));
        assert!(topics.by_id(&topic(1, "a", 0).id).is_none(), "another topic has its name");
        assert_eq!(topics.by_name("a").map(|found| found.partitions.len()), Some(5));
        let before = topics.clone();
        topics.remove(&topic(2, "b", 0).id);
        assert!(topics.remove(&topic(2, "b", 0).id).is_none());
        table.replace(topics);
        assert_eq!((table.partition_count(), before.partition_count), (5, 9));
    }
}
