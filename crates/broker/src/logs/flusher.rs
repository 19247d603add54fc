//! Group commit: a few threads that take partitions with unsynced writes, sync them, publish how
//! far, and go round again. There is no timer: what is appended while a sync runs belongs to the
//! next one, so batches grow with the device's latency.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use partition::{Partition, PartitionError};
use tracing::error;

use crate::counters::Counters;

/// Syncs of different files that may run at once; the file system merges their journal commits.
const THREADS: usize = 4;

/// What a failed sync is reported to: the whole log directory is offline from then on (S9).
pub type OnFailure = Box<dyn Fn(&Arc<Partition>, &PartitionError) + Send + Sync>;

/// The queue of partitions that want a sync, and the threads that serve it.
pub struct Flusher {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Signalled when the queue gets work or the broker stops.
    work: Condvar,
    counters: Arc<Counters>,
    on_failure: OnFailure,
}

#[derive(Default)]
struct Queue {
    /// Each at most once: `Partition` sees to it.
    waiting: VecDeque<Arc<Partition>>,
    /// Threads asleep: nobody is signalled when none is.
    idle: usize,
    stopping: bool,
}

impl Flusher {
    /// Starts the threads.
    pub fn start(counters: Arc<Counters>, on_failure: OnFailure) -> std::io::Result<Flusher> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            work: Condvar::new(),
            counters,
            on_failure,
        });
        let threads = (0..THREADS)
            .map(|n| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .name(format!("flusher-{n}"))
                    .stack_size(256 * 1024)
                    .spawn(move || shared.run())
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Flusher { shared, threads: Mutex::new(threads) })
    }

    /// Queues `partition`, which said that it wants a sync.
    pub fn request(&self, partition: Arc<Partition>) {
        let mut queue = self.shared.queue.lock();
        queue.waiting.push_back(partition);
        if queue.idle > 0 {
            self.shared.work.notify_one();
        }
    }

    /// Syncs what is queued, then ends the threads.
    pub fn stop(&self) {
        self.shared.queue.lock().stopping = true;
        self.shared.work.notify_all();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                error!("a flusher thread had panicked");
            }
        }
    }
}

impl Shared {
    fn run(&self) {
        while let Some(partition) = self.next() {
            self.sync(partition);
        }
    }

    /// The next partition; `None` when the broker stops and nothing is left.
    fn next(&self) -> Option<Arc<Partition>> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(partition) = queue.waiting.pop_front() {
                return Some(partition);
            }
            if queue.stopping {
                return None;
            }
            queue.idle += 1;
            self.work.wait(&mut queue);
            queue.idle -= 1;
        }
    }

    fn sync(&self, partition: Arc<Partition>) {
        let Some(sync) = partition.begin_sync() else { return };
        let began = Instant::now();
        match sync.run() {
            Ok(more) => {
                self.counters.syncs.observe(began.elapsed());
                if more {
                    self.queue.lock().waiting.push_back(partition);
                }
            }
            Err(error) => (self.on_failure)(&partition, &error),
        }
    }
}
