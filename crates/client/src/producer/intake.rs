//! The way in for several records in a row that are sent for one caller, such as those of one request.

use super::batch::Delivery;
use super::queue::{PartitionQueue, Partitions, QueueState, TopicQueues, now};
use super::record::{self, Record};
use super::{Shared, lock};
use crate::error::ClientError;
use model::Timestamp;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

/// Takes records in a row: those of one partition under one lock, as long as no record of another one comes between them and
/// their batch is not full. The sender is told when the lock is let go.
///
/// The partitions are those of the beginning. Others who send to the partition, and the sender, wait meanwhile: a row should
/// be short.
pub struct Intake<'a> {
    shared: &'a Shared,
    topic: &'a TopicQueues,
    partitions: &'a Partitions,
    /// The partition that is at hand.
    held: Option<Held<'a>>,
}

struct Held<'a> {
    queue: &'a Arc<PartitionQueue>,
    state: MutexGuard<'a, QueueState>,
    /// When the records are sent that name no time.
    now: Option<Timestamp>,
    /// How long a batch lingers that was opened.
    until: Option<Instant>,
}

impl<'a> Intake<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        topic: &'a TopicQueues,
        partitions: &'a Partitions,
    ) -> Intake<'a> {
        Intake { shared, topic, partitions, held: None }
    }

    /// How many partitions the topic has.
    pub fn partition_count(&self) -> i32 {
        self.partitions.count()
    }

    /// Whether a batch of a partition waits for more records and has room for one of `size_bytes`.
    pub fn has_room(&mut self, partition: i32, size_bytes: usize) -> bool {
        self.hold(partition).is_some_and(|held| held.state.has_room(size_bytes))
    }

    /// Bytes of `buffer.memory` that batches of a partition hold which are not in flight.
    pub fn waiting_bytes(&mut self, partition: i32) -> usize {
        self.hold(partition).map_or(0, |held| held.state.waiting_bytes())
    }

    /// Takes a record for its [`Record::partition`], which must be given, if that needs no waiting; `None` while
    /// `buffer.memory` is used up.
    ///
    /// # Errors
    /// The record is too large, there is no such partition, or the producer takes nothing any more.
    pub fn try_send(&mut self, record: &Record<'_>) -> Result<Option<Delivery>, ClientError> {
        record::check(self.shared, record)?;
        let (shared, partition) = (self.shared, record.partition.unwrap_or(-1));
        let Some(held) = self.hold(partition) else { return Err(self.topic.unknown(partition)) };
        let timestamp = record.timestamp.unwrap_or_else(|| *held.now.get_or_insert_with(now));
        let mut delivery = None;
        let appended =
            held.queue.append_to(&mut held.state, shared, record, timestamp, Some(&mut delivery));
        held.until = appended.until.or(held.until);
        if appended.closed || !appended.taken {
            self.let_go();
        }
        Ok(delivery)
    }

    /// Has the batches of a partition at hand, those of no other.
    fn hold(&mut self, partition: i32) -> Option<&mut Held<'a>> {
        if self.held.as_ref().is_none_or(|held| held.queue.partition != partition) {
            self.let_go();
            let queue = self.partitions.queue(partition)?;
            self.held = Some(Held { queue, state: lock(&queue.state), now: None, until: None });
        }
        self.held.as_mut()
    }

    /// Lets others at the partition that is at hand, and tells the sender of what is there.
    pub fn let_go(&mut self) {
        if let Some(Held { queue, state, until, .. }) = self.held.take() {
            queue.let_go(state, self.shared, until);
        }
    }
}

impl Drop for Intake<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}
