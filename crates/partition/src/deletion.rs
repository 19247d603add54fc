//! Waiting until deleted records are deleted on every replica that serves or may be elected (KIP-107).

use std::task::{Context, Poll, Waker};

use model::Offset;
use replication::Event;

use crate::partition::{Partition, State, Status};

/// One request that waits for a partition's low watermark.
#[derive(Debug)]
pub(crate) struct DeletionWaiter {
    needed: Offset,
    waker: Waker,
}

/// Key of a waiting request; see [`Partition::poll_deleted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletionKey(usize);

/// Bytes that one waiting request takes in a partition.
pub const DELETION_WAITER_BYTES: usize = size_of::<DeletionWaiter>();

impl Partition {
    /// Lowest durable log start of all replicas that serve or may be elected; `None` if this broker does not lead,
    /// or does not know.
    pub fn low_watermark(&self) -> Option<Offset> {
        self.lock().replica.low_watermark()
    }

    /// Ready with the low watermark when that has reached `needed`, or with the partition's status if this broker
    /// does not lead. Otherwise registers the task in `key`, and wakes it when one of both may be so.
    ///
    /// A caller that stops waiting calls [`Partition::leave_deletion`] with its key.
    pub fn poll_deleted(
        &self,
        cx: &mut Context<'_>,
        needed: Offset,
        key: &mut Option<DeletionKey>,
    ) -> Poll<Result<Offset, Status>> {
        let mut state = self.lock();
        remove(&mut state, key.take());
        let status = self.status();
        if status != Status::Leading {
            return Poll::Ready(Err(status));
        }
        match state.replica.low_watermark() {
            Some(low) if low >= needed => Poll::Ready(Ok(low)),
            _ => {
                let waiter = DeletionWaiter { needed, waker: cx.waker().clone() };
                *key = Some(DeletionKey(state.deletions.insert(waiter)));
                Poll::Pending
            }
        }
    }

    /// Ends a wait.
    pub fn leave_deletion(&self, key: DeletionKey) {
        remove(&mut self.lock(), Some(key));
    }

    /// How many requests wait for the low watermark.
    pub fn deletion_waiter_count(&self) -> usize {
        self.lock().deletions.len()
    }

    /// The journal durably has this log start. A follower's next fetch reports it to the leader.
    pub fn log_start_synced(&self, log_start: Offset) {
        let mut state = self.lock();
        let effects = state.replica.step(Event::LogStartSynced { log_start });
        self.tell_synced(&state);
        self.publish(state, effects);
    }

    /// First offset that this replica keeps whatever crash comes.
    pub fn durable_log_start(&self) -> Offset {
        self.lock().replica.durable_log_start()
    }

    /// The log start in memory, if the journal does not durably have it yet.
    pub fn unsynced_log_start(&self) -> Option<Offset> {
        let state = self.lock();
        let log_start = state.log.log_start_offset();
        (state.replica.durable_log_start() < log_start).then_some(log_start)
    }
}

/// Wakes the requests of which the wait may be over.
pub(crate) fn wake_deletions(state: &State, status: Status) {
    if state.deletions.is_empty() {
        return;
    }
    let low = state.replica.low_watermark();
    let is_over = |needed| status != Status::Leading || low.is_some_and(|low| low >= needed);
    // The woken request removes itself: its key must stay its own until then.
    let over = state.deletions.iter().filter(|(_, waiter)| is_over(waiter.needed));
    over.for_each(|(_, waiter)| waiter.waker.wake_by_ref());
}

fn remove(state: &mut State, key: Option<DeletionKey>) {
    if let Some(DeletionKey(at)) = key {
        state.deletions.try_remove(at);
    }
}
