//! Where a reader begins in each of its partitions, looked up at one leader apart from the others (decision 0095).
//!
//! A reader begins once the first attempt at every leader is over and one partition at least is known. The task goes on in the
//! background with the others, and rings the reader's bell for each one that it finds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::{ClientError, Cluster};
use tokio::sync::{Mutex, Notify, Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::Events;
use super::feed::Feed;
use super::places::{self, Begun, Wish};
use super::tail::Joining;

/// Limit of the first attempt at each leader. The reader begins without the partitions of those that take longer.
const FIRST_ATTEMPT_MAX: Duration = Duration::from_millis(750);
/// Limit of each later attempt.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// Lookups of all readers that have begun without some partitions.
#[derive(Debug)]
pub(super) struct LateLookups {
    attempts: Semaphore,
    /// Time of the last refresh of metadata for them.
    refreshed: Mutex<Option<Instant>>,
}

impl LateLookups {
    /// With this many attempts at a time.
    pub(super) fn new(attempts_max: usize) -> LateLookups {
        LateLookups { attempts: Semaphore::new(attempts_max), refreshed: Mutex::default() }
    }

    /// Refreshes the metadata, once for all readers that wait for leaders.
    async fn refresh(&self, cluster: &Cluster) {
        let mut refreshed = self.refreshed.lock().await;
        if refreshed.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        // A failure leaves the metadata of before.
        let _ = timeout(ATTEMPT_MAX, cluster.refresh()).await;
        *refreshed = Some(Instant::now());
    }
}

/// A message of the task.
#[derive(Debug)]
enum Found {
    /// The partition at this index of the wishes.
    One(usize, Result<Begun, ClientError>),
    /// Each leader was tried once.
    FirstAttemptOver,
}

/// The lookups of one reader. They end when this is dropped.
#[derive(Debug)]
pub(super) struct PlaceLookup {
    found: mpsc::UnboundedReceiver<Found>,
    bell: Arc<Notify>,
    /// Time of its creation, in milliseconds since 1970.
    opened_ms: i64,
    task: AbortHandle,
}

/// A partition that was not found yet.
struct PendingPlace {
    /// Index among the wishes.
    at: usize,
    feed: Arc<Feed>,
    wish: Wish,
}

struct LookupTask {
    cluster: Cluster,
    tail: mpsc::UnboundedSender<Joining>,
    asking: Arc<Semaphore>,
    late: Arc<LateLookups>,
    needs_ends: bool,
    opened_ms: i64,
    found: mpsc::UnboundedSender<Found>,
    bell: Arc<Notify>,
}

impl PlaceLookup {
    /// Begins to look these wishes up.
    pub(super) fn begin(
        events: &Events,
        wishes: &[(Arc<Feed>, Wish)],
        needs_ends: bool,
    ) -> PlaceLookup {
        let (sender, found) = mpsc::unbounded_channel();
        let bell = Arc::<Notify>::default();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let opened_ms = i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX);
        let task = LookupTask {
            cluster: events.cluster.clone(),
            tail: events.tail().clone(),
            asking: Arc::clone(&events.asking),
            late: Arc::clone(&events.late_lookups),
            needs_ends,
            opened_ms,
            found: sender,
            bell: Arc::clone(&bell),
        };
        let pending = wishes.iter().enumerate();
        let pending = pending.map(|(at, (feed, wish))| PendingPlace {
            at,
            feed: Arc::clone(feed),
            wish: *wish,
        });
        let running = tokio::spawn(task.run(pending.collect()));
        PlaceLookup { found, bell, opened_ms, task: running.abort_handle() }
    }

    /// Waits until the first attempts are over and at least one of `count` partitions is found; with `needs_all`, until all
    /// are. `None` for those to come.
    ///
    /// # Errors
    /// A partition can never be read.
    pub(super) async fn first(
        &mut self,
        count: usize,
        needs_all: bool,
    ) -> Result<Vec<Option<Begun>>, ClientError> {
        let mut begun = vec![None; count];
        let (mut missing, mut is_over) = (count, false);
        while missing > 0 && (needs_all || !is_over || missing == count) {
            match self.found.recv().await {
                Some(Found::One(at, found)) => {
                    begun[at] = Some(found?);
                    missing -= 1;
                }
                Some(Found::FirstAttemptOver) => is_over = true,
                // The gateway ends.
                None => break,
            }
        }
        Ok(begun)
    }

    /// A partition that was found since.
    pub(super) fn next(&mut self) -> Option<(usize, Result<Begun, ClientError>)> {
        loop {
            match self.found.try_recv().ok()? {
                Found::One(at, found) => return Some((at, found)),
                Found::FirstAttemptOver => {}
            }
        }
    }

    /// Rings when there is one.
    pub(super) fn bell(&self) -> &Arc<Notify> {
        &self.bell
    }

    /// The wish for a partition that the reader begins without.
    pub(super) fn late_wish(&self, wish: Wish) -> Wish {
        wish.since(self.opened_ms)
    }
}

impl Drop for PlaceLookup {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl LookupTask {
    async fn run(self, pending: Vec<PendingPlace>) {
        let permit = self.asking.acquire().await;
        let mut pending = self.attempt(pending, true).await;
        drop(permit);
        self.send(Found::FirstAttemptOver);
        for one in &mut pending {
            one.wish = one.wish.since(self.opened_ms);
        }
        while !pending.is_empty() {
            sleep(PAUSE).await;
            self.late.refresh(&self.cluster).await;
            // The semaphore is never closed.
            let Ok(_permit) = self.late.attempts.acquire().await else { return };
            pending = self.attempt(pending, false).await;
        }
    }

    fn send(&self, found: Found) {
        // The receiver's end aborts the task.
        let _ = self.found.send(found);
        self.bell.notify_one();
    }

    /// Looks partitions up once, at all leaders at the same time. Returns those that were not found. In the first attempt all
    /// partitions of a leader are one request; later one that fails delays no other.
    async fn attempt(&self, pending: Vec<PendingPlace>, is_first: bool) -> Vec<PendingPlace> {
        let metadata = self.cluster.metadata();
        let mut groups: BTreeMap<(i32, usize), Vec<PendingPlace>> = BTreeMap::new();
        let mut left = Vec::new();
        for one in pending {
            let partition = &one.feed.partition;
            let is_known = one.wish.is_at_tail() && one.feed.end().is_some();
            let leader = metadata.leader(&partition.topic, partition.partition.0);
            match leader.or(is_known.then_some(-1)) {
                Some(leader) => {
                    let own = if is_first { 0 } else { one.at };
                    groups.entry((leader, own)).or_default().push(one);
                }
                None => left.push(one),
            }
        }
        let limit = if is_first { FIRST_ATTEMPT_MAX } else { ATTEMPT_MAX };
        let mut attempts = JoinSet::new();
        for group in groups.into_values() {
            let (cluster, tail) = (self.cluster.clone(), self.tail.clone());
            let needs_ends = self.needs_ends;
            attempts.spawn(async move {
                let wishes: Vec<_> =
                    group.iter().map(|one| (Arc::clone(&one.feed), one.wish)).collect();
                let looking_up = places::begin(&cluster, &tail, &wishes, needs_ends);
                let begun = timeout(limit, looking_up).await;
                (group, begun)
            });
        }
        while let Some(joined) = attempts.join_next().await {
            // A task that is cancelled leaves with the gateway.
            let Ok((group, begun)) = joined else { continue };
            match begun {
                Ok(Ok(begun)) => {
                    let found = group.iter().zip(begun);
                    found.for_each(|(one, begun)| self.send(Found::One(one.at, Ok(begun))));
                }
                Ok(Err(error)) if !error.is_retriable() => {
                    let failed = group.iter().map(|one| Found::One(one.at, Err(error.clone())));
                    failed.for_each(|failed| self.send(failed));
                }
                Ok(Err(_)) | Err(_) => left.extend(group),
            }
        }
        left
    }
}
