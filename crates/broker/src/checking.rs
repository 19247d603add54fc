//! Looking into large batches beside the data threads: as many at once as there are cores, so that
//! connections with small requests go on being served.

use std::cell::Cell;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Threads that may wait for their turn; beyond that the caller does the work where it is. Each is one
/// of the runtime's blocking threads, which others need as well.
const WAITING_MAX: usize = 32;

/// Who may look into a large batch now.
#[derive(Debug)]
pub struct Checking {
    turns: Mutex<Turns>,
    /// Told when a turn ends.
    ended: Condvar,
    /// Requests beyond Produce and Fetch that are handled beside the data threads: half of the cores stay free for records.
    requests: Arc<Semaphore>,
}

#[derive(Debug)]
struct Turns {
    free: usize,
    waiting: usize,
}

/// One thread's turn.
struct Turn<'a>(&'a Checking);

thread_local! {
    /// Whether this thread has a turn.
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        HAS_TURN.set(false);
        self.0.turns.lock().free += 1;
        self.0.ended.notify_one();
    }
}

impl Default for Checking {
    /// As many turns as there are cores.
    fn default() -> Checking {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        Checking::new(cores)
    }
}

impl Checking {
    fn new(turns: usize) -> Checking {
        let turns = Turns { free: turns.max(1), waiting: 0 };
        let requests = Arc::new(Semaphore::new((turns.free / 2).max(1)));
        Checking { turns: Mutex::new(turns), ended: Condvar::new(), requests }
    }

    /// Waits for the turn of a large request, for one step of its work. No thread waits meanwhile, and turns are in the
    /// order of the requests.
    pub fn request_turn(
        &self,
    ) -> impl Future<Output = Option<OwnedSemaphorePermit>> + Send + use<> {
        let requests = Arc::clone(&self.requests);
        // The semaphore is never closed.
        async move { requests.acquire_owned().await.ok() }
    }

    /// Does `work`, which takes long, on this thread, after another one has taken over what else this
    /// thread had to do. Returns when it is done: a connection's requests keep their order. Work within such work is done at
    /// once: a second turn could wait for the first one.
    ///
    /// Only for threads of a runtime with several.
    pub fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        if HAS_TURN.get() || self.turns.lock().waiting >= WAITING_MAX {
            return work();
        }
        tokio::task::block_in_place(|| {
            let _turn = self.turn();
            work()
        })
    }

    fn turn(&self) -> Turn<'_> {
        let mut turns = self.turns.lock();
        turns.waiting += 1;
        while turns.free == 0 {
            self.ended.wait(&mut turns);
        }
        turns.waiting -= 1;
        turns.free -= 1;
        HAS_TURN.set(true);
        Turn(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_more_are_at_work_than_there_are_turns_and_all_are_done() {
        let checking = Arc::new(Checking::new(2));
        let (at_work, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..WAITING_MAX {
            let (checking, at_work, most) =
                (Arc::clone(&checking), Arc::clone(&at_work), Arc::clone(&most));
            tasks.spawn(async move {
                checking.aside(|| {
                    most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    at_work.fetch_sub(1, Ordering::SeqCst);
                })
            });
        }
        assert_eq!(tasks.join_all().await.len(), WAITING_MAX);
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
        assert_eq!(checking.turns.lock().free, 2);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_within_work_needs_no_second_turn() {
        let checking = Arc::new(Checking::new(1));
        let within = Arc::clone(&checking);
        let done = tokio::spawn(async move { within.aside(|| within.aside(|| 7)) });
        assert_eq!(done.await.unwrap(), 7);
        assert_eq!(tokio::spawn(async move { checking.aside(|| 8) }).await.unwrap(), 8);
    }
}
