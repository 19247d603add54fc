//! Who waits for partitions to change without asking again and again.
//!
//! A fetch session registers one [`Watch`] with all its partitions, each under a slot of its own,
//! and stays registered. A partition that changes sets the slot's bit, and wakes the session's task
//! if that waits. An idle consumer of a thousand partitions therefore costs an append to one of
//! them one bit, and its next fetch looks at one partition.

use std::task::Waker;

use parking_lot::Mutex;

/// Where a partition keeps a registered watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchKey(pub(crate) Watched);

/// What is waited for, and the place among those who do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// What is committed.
    Committed(usize),
    /// Whatever is appended.
    End(usize),
}

/// A set of partitions that somebody watches.
#[derive(Debug, Default)]
pub struct Watch {
    state: Mutex<WatchState>,
}

#[derive(Debug, Default)]
struct WatchState {
    /// One bit a slot: changed since it was last taken.
    changed: Vec<u64>,
    /// Whom to wake at the next change. Taken when used.
    waker: Option<Waker>,
}

impl WatchState {
    fn set(&mut self, slot: u32) {
        let word = slot as usize / 64;
        if self.changed.len() <= word {
            self.changed.resize(word + 1, 0);
        }
        self.changed[word] |= 1 << (slot % 64);
    }
}

impl Watch {
    /// The partition of this slot changed.
    pub fn notify(&self, slot: u32) {
        let waker = {
            let mut state = self.state.lock();
            state.set(slot);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// There will be something new in this slot once it is synced. Returns whether somebody waits,
    /// who is not woken yet; otherwise the slot counts as changed, so that whoever is about to wait
    /// looks at it once more.
    pub fn touch(&self, slot: u32) -> bool {
        let mut state = self.state.lock();
        let is_waiting = state.waker.is_some();
        if !is_waiting {
            state.set(slot);
        }
        is_waiting
    }

    /// Moves the changed slots into `changed` (bits are added to what is there).
    /// If there are none, `waker` is woken by the next change; returns whether there were any.
    pub fn take_or_wait(&self, changed: &mut Vec<u64>, waker: Option<&Waker>) -> bool {
        let mut state = self.state.lock();
        let mut any = false;
        if changed.len() < state.changed.len() {
            changed.resize(state.changed.len(), 0);
        }
        for (to, from) in changed.iter_mut().zip(&mut state.changed) {
            any |= *from != 0;
            *to |= std::mem::take(from);
        }
        state.waker = if any { None } else { waker.cloned() };
        any
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_change_is_seen_once_and_wakes_once() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let watch = Watch::default();
        let mut changed = Vec::new();
        assert!(!watch.take_or_wait(&mut changed, Some(&waker)));
        watch.notify(3);
        watch.notify(70);
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "woken by the first change only");
        assert!(watch.take_or_wait(&mut changed, Some(&waker)));
        assert_eq!(changed, [1 << 3, 1 << 6]);
        watch.notify(3);
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "changes were there: nobody waited");
    }
}
