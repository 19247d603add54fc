//! The requests that the writer has not finished: how old the oldest one is, and whether votes are durable.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use tokio::sync::watch;
use tokio::time::Instant;

/// Bytes of entries that may wait for the writer. An append above that waits.
const BYTES_MAX: u64 = 64 << 20;

/// Counts requests from the moment they are queued until the writer has finished them.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// When each unfinished request was queued, and its bytes, in the order of the queue.
    unfinished: Mutex<VecDeque<(Instant, u64)>>,
    state: watch::Sender<BacklogState>,
}

/// Progress of the writer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BacklogState {
    /// When the oldest unfinished request was queued.
    pub(crate) oldest: Option<Instant>,
    /// Bytes of all unfinished entries.
    bytes: u64,
    /// Votes that were saved.
    votes_queued: u64,
    /// Votes of those that are durable.
    votes_durable: u64,
    /// The write or sync that failed. The writer writes nothing more.
    pub(crate) failure: Option<String>,
}

impl Backlog {
    /// Nothing is queued.
    pub(super) fn new() -> Backlog {
        Backlog { unfinished: Mutex::default(), state: watch::Sender::default() }
    }

    /// Counts a request of `bytes` bytes that is about to be queued.
    pub(super) fn add(&self, bytes: u64, is_vote: bool) {
        let mut unfinished = self.unfinished.lock();
        unfinished.push_back((Instant::now(), bytes));
        let oldest = unfinished.front().map(|(at, _)| *at);
        self.state.send_modify(|state| {
            state.oldest = oldest;
            state.bytes += bytes;
            state.votes_queued += u64::from(is_vote);
        });
    }

    /// Counts the oldest `count` requests as finished.
    pub(super) fn finish(&self, count: usize) {
        let mut unfinished = self.unfinished.lock();
        let count = count.min(unfinished.len());
        let bytes: u64 = unfinished.drain(..count).map(|(_, bytes)| bytes).sum();
        let oldest = unfinished.front().map(|(at, _)| *at);
        self.state.send_modify(|state| {
            state.oldest = oldest;
            state.bytes -= bytes;
        });
    }

    /// Notes that the next vote that was queued is durable.
    pub(super) fn note_durable_vote(&self) {
        self.state.send_modify(|state| state.votes_durable += 1);
    }

    /// Notes the first failure.
    pub(super) fn fail(&self, reason: &str) {
        self.state.send_if_modified(|state| {
            let is_first = state.failure.is_none();
            state.failure.get_or_insert_with(|| reason.to_owned());
            is_first
        });
    }

    /// Reports every change of the writer's progress.
    pub(crate) fn watch(&self) -> watch::Receiver<BacklogState> {
        self.state.subscribe()
    }

    /// Waits until another entry may be queued.
    pub(super) async fn wait_for_room(&self) {
        let mut state = self.state.subscribe();
        // The sender lives as long as this backlog does.
        let _ = state.wait_for(|state| state.bytes < BYTES_MAX || state.failure.is_some()).await;
    }

    /// Waits until every request is finished.
    #[cfg(test)]
    pub(super) async fn wait_until_empty(&self) {
        let _ = self.state.subscribe().wait_for(|state| state.oldest.is_none()).await;
    }

    /// Waits until every vote that was saved before this call is durable. Fails if the writer has failed.
    pub(crate) async fn wait_votes_durable(&self) -> io::Result<()> {
        let queued = self.state.borrow().votes_queued;
        let mut state = self.state.subscribe();
        let done = |state: &BacklogState| state.votes_durable >= queued || state.failure.is_some();
        let state = state.wait_for(done).await.map_err(io::Error::other)?;
        match (&state.failure, state.votes_durable >= queued) {
            (Some(reason), false) => Err(io::Error::other(reason.clone())),
            _ => Ok(()),
        }
    }
}
