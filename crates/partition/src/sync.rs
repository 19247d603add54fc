//! Syncing in three steps, so that the slow one holds no lock: begin, run, finish.
//!
//! A partition stands in the flusher's queue at most once and is synced by one thread at a time.
//! What is appended while a sync runs belongs to the next one: that is the group commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::Offset;
use replication::Event;
use storage::{CheckpointTicket, SyncTicket};

use crate::error::PartitionError;
use crate::partition::{Partition, Status};

/// A sync under way.
#[derive(Debug)]
pub struct PartitionSync {
    partition: Arc<Partition>,
    ticket: SyncTicket,
}

impl Partition {
    /// Begins a sync of all that is written now; `None` if all is synced, and then an append asks
    /// the flusher again.
    pub fn begin_sync(self: &Arc<Self>) -> Option<PartitionSync> {
        let state = self.state.lock();
        // Nobody waits for a deleted partition, and its files are elsewhere.
        let ticket = (self.status() != Status::Deleted).then(|| state.log.begin_sync()).flatten();
        match ticket {
            Some(ticket) => Some(PartitionSync { partition: Arc::clone(self), ticket }),
            None => {
                self.queued_for_sync.store(false, Ordering::Release);
                None
            }
        }
    }

    /// Asks for a sync although nobody waits for one; true if the flusher must be told.
    pub fn request_sync(&self) -> bool {
        let state = self.state.lock();
        state.log.synced_below() < state.log.log_end_offset()
            && !self.queued_for_sync.swap(true, Ordering::AcqRel)
    }
}

impl PartitionSync {
    /// Which partition.
    pub fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    /// Syncs, without the lock, then publishes how far. Returns whether more was appended meanwhile:
    /// then the caller queues the partition again. A failure is final (S9): the partition is
    /// offline, and the caller takes the whole log directory offline. But what was deleted meanwhile
    /// cannot fail: its files were moved away, which says nothing of the disk.
    pub fn run(self) -> Result<bool, PartitionError> {
        let result = self.ticket.run();
        let mut state = self.partition.state.lock();
        if self.partition.status() == Status::Deleted {
            self.partition.queued_for_sync.store(false, Ordering::Release);
            return Ok(false);
        }
        match state.log.finish_sync(self.ticket, result) {
            Ok(synced) => {
                let more = synced < state.log.log_end_offset();
                if !more {
                    self.partition.queued_for_sync.store(false, Ordering::Release);
                }
                let effects = state.replica.step(Event::Synced { synced });
                self.partition.publish(state, effects);
                Ok(more)
            }
            Err(error) => {
                let effects = state.replica.step(Event::Failed);
                self.partition.publish(state, effects);
                Err(error.into())
            }
        }
    }
}

/// A checkpoint under way: afterwards recovery need not read what lies before.
#[derive(Debug)]
pub struct PartitionCheckpoint {
    partition: Arc<Partition>,
    ticket: CheckpointTicket,
}

impl Partition {
    /// Begins a checkpoint if at least `bytes_min` were written since the last one.
    pub fn begin_checkpoint(
        self: &Arc<Self>,
        bytes_min: u64,
    ) -> Result<Option<PartitionCheckpoint>, PartitionError> {
        self.maintain(|log, _| {
            if log.bytes_past_checkpoint() < bytes_min {
                return Ok(None);
            }
            log.begin_checkpoint()
        })
        .map(|ticket| {
            ticket.map(|ticket| PartitionCheckpoint { partition: Arc::clone(self), ticket })
        })
    }
}

impl PartitionCheckpoint {
    /// Syncs and writes, without the lock, then moves the recovery point, which is returned. A partition that was
    /// deleted meanwhile is [`PartitionError::Deleted`], whatever became of its files.
    pub fn run(self) -> Result<Offset, PartitionError> {
        let result = self.ticket.run();
        let mut state = self.partition.state.lock();
        if self.partition.status() == Status::Deleted {
            return Err(PartitionError::Deleted);
        }
        match state.log.finish_checkpoint(self.ticket, result) {
            Ok(recovery_point) => {
                let synced = state.log.synced_below();
                let effects = state.replica.step(Event::Synced { synced });
                self.partition.publish(state, effects);
                Ok(recovery_point)
            }
            Err(error) => {
                let effects = state.replica.step(Event::Failed);
                self.partition.publish(state, effects);
                Err(error.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use model::record::BatchBuilder;
    use model::{BrokerId, LeaderEpoch, Timestamp, TopicPartition, Uuid};
    use storage::Log;
    use storage::disk::SimDisk;
    use storage::log_dir::LogDir;

    use super::*;
    use crate::append::{Acks, Append};
    use crate::settings::Settings;

    /// A partition with a record that is not synced, and how to take its files away.
    fn unsynced() -> (Arc<Partition>, impl Fn()) {
        let log_dir = LogDir::new(Arc::new(SimDisk::new()), PathBuf::from("data")).unwrap();
        let (name, settings) = (TopicPartition::new("t", 0), Arc::new(Settings::default()));
        let now = Timestamp(1);
        let opening = log_dir.begin_loading().unwrap().opening(&name, now);
        let (disk, dir) = (Arc::clone(log_dir.disk()), log_dir.partition_dir(&name));
        let log = Log::open(disk, dir, Arc::clone(&settings.log), opening).unwrap();
        let me = BrokerId(1);
        let id = Uuid::from_random([1; 16]);
        let partition = Partition::new(name.clone(), id, me, log, settings, Offset(0));
        partition.lead(LeaderEpoch(0), vec![me]);
        let mut batch = BatchBuilder::new();
        batch.add(now, None, Some(b"v"));
        let how = Append { acks: Acks::Leader, now, internal: false };
        assert!(partition.append(&mut batch.finish(), how).unwrap().wants_sync);
        let take_away = move || drop(log_dir.discard(&name, Uuid::from_random([2; 16])).unwrap());
        (Arc::new(partition), take_away)
    }

    #[test]
    fn a_partition_that_is_deleted_in_the_middle_of_a_sync_has_not_failed() {
        let (partition, take_away) = unsynced();
        let sync = partition.begin_sync().unwrap();
        partition.mark_deleted();
        take_away();
        assert!(!sync.run().unwrap(), "nothing is left to be synced");
        assert_eq!(partition.status(), Status::Deleted);
    }

    #[test]
    fn a_deleted_partition_in_the_queue_is_passed_over() {
        let (partition, take_away) = unsynced();
        partition.mark_deleted();
        take_away();
        assert!(partition.begin_sync().is_none());
    }
}
