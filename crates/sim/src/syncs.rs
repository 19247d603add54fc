//! The queue of a simulated process's syncs, which goes with the process.
//!
//! A partition with something to sync is held by the queue, and holds the queue. A process that is killed then would keep its
//! logs and its disk for ever; a real one's memory goes with it.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use partition::SyncQueue;

thread_local! {
    /// All queues that this thread made and did not look at since.
    static MADE: RefCell<Vec<Weak<SyncQueue>>> = const { RefCell::new(Vec::new()) };
}

/// The queue of one process.
#[derive(Debug)]
pub(crate) struct Syncs(Arc<SyncQueue>);

impl Syncs {
    pub(crate) fn new() -> Syncs {
        let queue = Arc::default();
        MADE.with_borrow_mut(|made| made.push(Arc::downgrade(&queue)));
        Syncs(queue)
    }
}

impl Deref for Syncs {
    type Target = Arc<SyncQueue>;

    fn deref(&self) -> &Arc<SyncQueue> {
        &self.0
    }
}

impl Drop for Syncs {
    fn drop(&mut self) {
        drop(self.0.take(true));
    }
}

/// Nothing of any process is left, at the end of a run on this thread.
///
/// # Panics
/// If something is: a hundred thousand runs would take the machine's memory.
pub(crate) fn assert_none_left() {
    let made = MADE.take();
    let left = made.iter().filter(|queue| queue.strong_count() > 0).count();
    assert_eq!(left, 0, "processes of {} that are gone and still hold their logs", made.len());
}
