//! The table of topics of which this broker holds partitions, as the data path sees it: an
//! immutable map, replaced as a whole when the cluster's metadata changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::{ArcSwap, Guard};
use hashbrown::HashMap;
use model::{ErrorCode, PartitionIndex, TopicId};
use partition::Partition;

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

    /// What a client is told of a partition that this broker does not serve: one that exists could not
    /// be opened, and is not merely "not there yet".
    pub fn absence(&self, index: PartitionIndex) -> ErrorCode {
        match usize::try_from(index.0) {
            Ok(at) if at < self.partitions.len() => ErrorCode::KafkaStorageError,
            _ => ErrorCode::UnknownTopicOrPartition,
        }
    }
}

/// All topics at one moment.
#[derive(Debug, Default, Clone)]
pub struct Topics {
    by_name: HashMap<Arc<str>, Arc<Topic>>,
    by_id: HashMap<TopicId, Arc<Topic>>,
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

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.by_name.values()
    }

    /// All partitions held here, in no order.
    pub fn partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.iter().flat_map(|topic| topic.partitions.iter().flatten())
    }

    /// Adds a topic, or replaces the one of its name.
    pub fn insert(&mut self, topic: Arc<Topic>) {
        if let Some(old) = self.by_name.insert(Arc::clone(&topic.name), Arc::clone(&topic)) {
            self.by_id.remove(&old.id);
        }
        self.by_id.insert(topic.id, topic);
    }

    /// Removes the topic of this id.
    pub fn remove(&mut self, id: &TopicId) -> Option<Arc<Topic>> {
        let topic = self.by_id.remove(id)?;
        self.by_name.remove(&topic.name);
        Some(topic)
    }
}

/// The table that everybody reads and one task changes.
#[derive(Debug, Default)]
pub struct TopicTable {
    current: ArcSwap<Topics>,
    /// Partitions of all topics in `current`.
    partition_count: AtomicUsize,
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
        self.partition_count.load(Ordering::Relaxed)
    }

    /// Replaces the table. Only the task that applies metadata calls this.
    pub fn replace(&self, topics: Topics) {
        let count = topics.iter().map(|topic| topic.partitions.len()).sum();
        self.partition_count.store(count, Ordering::Relaxed);
        self.current.store(Arc::new(topics));
    }
}
