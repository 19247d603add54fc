//! Syncing in three steps, so that the slow one holds no lock: begin, run, finish.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::Offset;
use replication::Event;
use storage::SyncTicket;

use crate::error::PartitionError;
use crate::partition::Partition;

/// A sync under way.
#[derive(Debug)]
pub struct PartitionSync {
    partition: Arc<Partition>,
    ticket: SyncTicket,
}

impl Partition {
    /// Begins a sync of all that is written now; `None` if all is synced. From here on an append
    /// asks for another one.
    pub fn begin_sync(self: &Arc<Self>) -> Option<PartitionSync> {
        let state = self.state.lock();
        self.queued_for_sync.store(false, Ordering::Release);
        let ticket = state.log.begin_sync()?;
        Some(PartitionSync { partition: Arc::clone(self), ticket })
    }
}

impl PartitionSync {
    /// Which partition.
    pub fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    /// Syncs, without the lock, then publishes how far. A failure is final (S9): the partition is
    /// offline, and the caller takes the whole log directory offline.
    pub fn run(self) -> Result<Offset, PartitionError> {
        let result = self.ticket.run();
        let mut state = self.partition.state.lock();
        match state.log.finish_sync(self.ticket, result) {
            Ok(synced) => {
                let effects = state.replica.step(Event::Synced { synced });
                self.partition.publish(state, effects);
                Ok(synced)
            }
            Err(error) => {
                let effects = state.replica.step(Event::Failed);
                self.partition.publish(state, effects);
                Err(error.into())
            }
        }
    }
}
