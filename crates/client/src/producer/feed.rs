//! The way in for whoever sends millions.

use super::queue::{PartitionQueue, TopicQueues, memory_bytes};
use super::record::{self, Record};
use super::{Producer, wait_for_memory};
use crate::error::ClientError;
use std::sync::Arc;

/// What became of a record that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fed {
    /// It is in an open batch.
    Taken,
    /// It was taken, and a batch waits to be sent: let the sender run.
    Closed,
    /// It was not taken: no batch has room, and `buffer.memory` is used up.
    NoMemory,
}

/// The way in for whoever sends millions: partitions are chosen by the caller, and what becomes of
/// the records is told to `on_batch` alone.
pub struct Feed {
    producer: Producer,
    topic: Arc<TopicQueues>,
    queues: Vec<Arc<PartitionQueue>>,
    generation: u32,
}

impl Feed {
    pub(super) fn new(producer: Producer, topic: Arc<TopicQueues>) -> Feed {
        let (generation, queues) = (topic.generation(), topic.queues());
        Feed { producer, topic, queues, generation }
    }

    /// How many partitions the topic has, as far as is known.
    pub fn partition_count(&self) -> i32 {
        self.queues.len() as i32
    }

    /// The partitions that have a leader now; all if none has one.
    pub fn available(&self) -> Vec<i32> {
        self.topic.available()
    }

    /// Whether a batch of a partition waits for more records and has room for one of `size_bytes`.
    pub fn has_room(&self, partition: i32, size_bytes: usize) -> bool {
        let queue = usize::try_from(partition).ok().and_then(|p| self.queues.get(p));
        queue.is_some_and(|queue| queue.has_room(size_bytes))
    }

    /// A number that changes when [`Feed::available`] may have.
    pub fn generation(&self) -> u32 {
        self.topic.generation()
    }

    /// Offers a record to its [`Record::partition`], which must be given. Never waits.
    #[inline]
    pub fn offer(&mut self, record: &Record<'_>) -> Result<Fed, ClientError> {
        let shared = self.producer.shared();
        record::check(shared, record)?;
        let partition = record.partition.unwrap_or(-1);
        let queue = usize::try_from(partition).ok().and_then(|p| self.queues.get(p));
        match queue {
            Some(queue) => Ok(queue.append(shared, record, None)),
            None => self.offer_to_new(record, partition),
        }
    }

    /// The topic may have got partitions since.
    fn offer_to_new(&mut self, record: &Record<'_>, partition: i32) -> Result<Fed, ClientError> {
        if self.generation == self.topic.generation() {
            return Err(self.topic.unknown(partition));
        }
        (self.generation, self.queues) = (self.topic.generation(), self.topic.queues());
        self.offer(record)
    }

    /// Waits until there may be memory for a record that was not taken. Fails after `max.block.ms`.
    pub async fn memory(&self, record: &Record<'_>) -> Result<(), ClientError> {
        let shared = self.producer.shared();
        wait_for_memory(
            shared,
            memory_bytes(shared, record.size_bytes_max()),
            shared.config.block_max,
        )
        .await
    }
}
