//! Looking at the cluster: every 15 seconds while pages are asked for, each minute otherwise, and not at all before
//! the first request. Rounds never take more than a fifth of the time, so that a cluster that answers slowly is asked less.

mod columns;
mod kept;
mod memory;
mod round;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{Admin, Cluster};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tracing::debug;

use crate::snapshot::Snapshot;
use kept::Kept;
use memory::Memory;
pub(crate) use round::dirs_of;

/// Between two rounds while pages are asked for.
const WATCHED: Duration = Duration::from_secs(15);
/// Between two rounds otherwise.
const UNWATCHED: Duration = Duration::from_secs(60);
/// So long after a request pages count as being asked for.
const LOOKED_AT: Duration = Duration::from_secs(45);
/// How long one round may take.
const ROUND_MAX: Duration = Duration::from_secs(30);
/// How long a request waits for the first snapshot.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long it waits for a newer one than there is: a round takes some milliseconds where brokers are well.
const PATIENCE_FOR_NEWER: Duration = Duration::from_secs(2);
/// A round that took so long is followed by a rest of so many times that.
const REST: u32 = 4;

/// A look at so many partitions, of topics or groups, leaves megabytes of the heap unused.
const LARGE: usize = 5_000;

/// Between two writings of what a restart shall not lose.
const WRITTEN_EVERY: Duration = Duration::from_secs(300);

/// Requests that read records at a time: each may expand a batch, and what all of them hold is bounded by that.
const READERS_MAX: usize = 4;

/// A snapshot, or why there is none; nothing before the first round.
type Seen = Option<Result<Arc<Snapshot>, String>>;

/// Looks at a cluster, for all pages.
#[derive(Debug)]
pub(crate) struct Looker {
    shared: Arc<Shared>,
    /// A permit for each request that reads records.
    pub(crate) readers: Semaphore,
    /// The task that looks, once there is one.
    task: Mutex<Option<AbortHandle>>,
}

struct Shared {
    admin: Admin,
    kept: Kept,
    seen: watch::Sender<Seen>,
    looked_at: Mutex<Instant>,
    /// When the last round ended.
    ended: Mutex<Option<Instant>>,
    /// A page is asked for again.
    wake: Notify,
    /// The last look is not worth anything any more.
    is_stale: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Drop for Looker {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().ok().and_then(|task| task.take()) {
            task.abort();
        }
    }
}

impl Looker {
    /// `dir`: where is kept what a restart shall not lose.
    pub(crate) fn new(cluster: Cluster, dir: Option<&Path>) -> Looker {
        let shared = Shared {
            admin: Admin::new(cluster),
            kept: Kept::within(dir),
            seen: watch::Sender::new(None),
            looked_at: Mutex::new(Instant::now()),
            ended: Mutex::default(),
            wake: Notify::new(),
            is_stale: AtomicBool::new(false),
        };
        let readers = Semaphore::new(READERS_MAX);
        Looker { shared: Arc::new(shared), readers, task: Mutex::default() }
    }

    /// Ends looking, and writes what a restart shall not lose.
    pub(crate) fn stop(&self) {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
        if let Some(Ok(snapshot)) = &*self.shared.seen.borrow() {
            self.shared.kept.write(snapshot);
        }
    }

    /// For what is asked besides.
    pub(crate) fn admin(&self) -> &Admin {
        &self.shared.admin
    }

    /// What the cluster looks like: the last look, if that is not older than one interval; else the next, if it comes soon.
    ///
    /// # Errors
    /// Not one look has succeeded: why the last did not.
    pub(crate) async fn snapshot(&self) -> Result<Arc<Snapshot>, String> {
        *lock(&self.shared.looked_at) = Instant::now();
        let mut seen = self.shared.seen.subscribe();
        seen.mark_unchanged();
        self.begin();
        let is_fresh =
            lock(&self.shared.ended).is_some_and(|at| at.elapsed() < WATCHED + WATCHED / 2);
        if !is_fresh {
            self.shared.wake.notify_one();
            let patience = if seen.borrow().is_some() { PATIENCE_FOR_NEWER } else { PATIENCE };
            // An old look is better than none.
            let _ = timeout(patience, seen.changed()).await;
        }
        let slow = || format!("the brokers have not answered within {} s", PATIENCE.as_secs());
        seen.borrow().clone().unwrap_or_else(|| Err(slow()))
    }

    /// Something was changed: the next page shows it, if the cluster does.
    pub(crate) fn look_again(&self) {
        *lock(&self.shared.ended) = None;
        self.shared.is_stale.store(true, Ordering::Relaxed);
        self.shared.wake.notify_one();
    }

    /// A look that begins from now on; `None` if none succeeds soon. Who asks for other pages meanwhile does not wait for it.
    pub(crate) async fn newer(&self) -> Option<Arc<Snapshot>> {
        let asked_ms = round::now_ms();
        let mut seen = self.shared.seen.subscribe();
        self.shared.is_stale.store(true, Ordering::Relaxed);
        self.shared.wake.notify_one();
        let begun_since = |seen: &Seen| match seen {
            Some(Ok(snapshot)) => Some(Arc::clone(snapshot)).filter(|s| s.began_ms >= asked_ms),
            _ => None,
        };
        let found = seen.wait_for(|seen| begun_since(seen).is_some());
        let found = timeout(PATIENCE_FOR_NEWER, found).await.ok()?.ok()?;
        begun_since(&found)
    }

    /// Begins to look, unless that has begun.
    fn begin(&self) {
        let mut task = lock(&self.task);
        if task.as_ref().is_none_or(AbortHandle::is_finished) {
            *task = Some(tokio::spawn(look(Arc::clone(&self.shared))).abort_handle());
        }
    }
}

async fn look(shared: Arc<Shared>) {
    let mut memory = Memory::of(shared.kept.read());
    let mut written = Instant::now();
    loop {
        let began = Instant::now();
        let slow =
            || Err(format!("the brokers have not answered within {} s", ROUND_MAX.as_secs()));
        let looked = timeout(ROUND_MAX, round::look(&shared.admin, &mut memory)).await;
        let looked = looked.unwrap_or_else(|_| slow());
        if let Err(reason) = &looked {
            debug!(%reason, "the console could not look at the cluster");
        }
        *lock(&shared.ended) = Some(Instant::now());
        let looked = looked.map(Arc::new);
        let last = shared.seen.borrow().clone();
        if let (Err(_), Some(Ok(last))) = (&looked, last) {
            // The brokers may be stopped first, and a stop of the console then has nothing to write.
            shared.kept.write_aside(&last).await;
            written = Instant::now();
        }
        // What was seen before goes here, unless a page is being made of it.
        drop(shared.seen.send_replace(Some(looked.clone())));
        if looked.as_ref().is_ok_and(|snapshot| snapshot.size() >= LARGE) {
            // It takes milliseconds, and the gateway's threads have other things to do. A panic there was told already.
            let _ = tokio::task::spawn_blocking(heap::release_unused).await;
        }
        if let Ok(snapshot) = looked
            && written.elapsed() >= WRITTEN_EVERY
        {
            shared.kept.write_aside(&snapshot).await;
            written = Instant::now();
        }
        rest(&shared, began.elapsed()).await;
    }
}

/// Waits until the next round is due; the first page after a rest does not wait for a minute.
async fn rest(shared: &Shared, took: Duration) {
    let ended = Instant::now();
    tokio::time::sleep((took * REST).min(UNWATCHED)).await;
    loop {
        let is_watched = lock(&shared.looked_at).elapsed() < LOOKED_AT;
        let pause = if is_watched { WATCHED } else { UNWATCHED };
        let left = pause.saturating_sub(ended.elapsed());
        let is_stale = shared.is_stale.swap(false, Ordering::Relaxed);
        if is_stale || left.is_zero() || timeout(left, shared.wake.notified()).await.is_err() {
            return;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no code under these locks panics")
}
