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
use crate::partition::Partition;

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
        match state.log.begin_sync() {
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
    /// offline, and the caller takes the whole log directory offline.
    pub fn run(self) -> Result<bool, PartitionError> {
        let result = self.ticket.run();
        let mut state = self.partition.state.lock();
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
    /// Syncs and writes, without the lock, then moves the recovery point, which is returned.
    pub fn run(self) -> Result<Offset, PartitionError> {
        let result = self.ticket.run();
        let mut state = self.partition.state.lock();
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
