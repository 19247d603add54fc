//! Where partitions say that they have an ISR to propose: whoever talks to the controller looks here, not at
//! every partition.

use std::sync::{Arc, Weak};
use std::task::Waker;

use parking_lot::Mutex;

use crate::partition::Partition;

/// Partitions whose [`Partition::take_proposal`] has something.
#[derive(Debug, Default)]
pub struct Proposals {
    state: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    partitions: Vec<Weak<Partition>>,
    waker: Option<Waker>,
}

impl Proposals {
    /// A partition has a proposal. Called under the partition's lock, so waking must do no more than wake.
    pub(crate) fn push(&self, partition: Weak<Partition>) {
        let mut waiting = self.state.lock();
        waiting.partitions.push(partition);
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The partitions since the last look, some perhaps twice. If there are none, `waker` is woken by the next one.
    pub fn take_or_wait(&self, waker: &Waker) -> Vec<Arc<Partition>> {
        let mut waiting = self.state.lock();
        let taken = std::mem::take(&mut waiting.partitions);
        if taken.is_empty() {
            waiting.waker = Some(waker.clone());
        }
        drop(waiting);
        taken.iter().filter_map(Weak::upgrade).collect()
    }
}
