//! What the rest of the broker sees: the image, how far it is, and every step in order.
//!
//! Steps reach subscribers merged where they are slow: a subscriber never misses a change and
//! never makes the quorum wait, and what waits for it is one step, however long it sleeps.

use arc_swap::ArcSwap;
use metadata::{ClusterImage, ImageDelta, ImageUpdate};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::{Notify, watch};

/// An image and its place in the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Version {
    pub(crate) image: Arc<ClusterImage>,
    /// Index of the entry that last changed it; what a proposal is decided at.
    pub(crate) changed_at: Option<u64>,
}

/// The current version, and who waits for the next.
#[derive(Debug)]
pub(crate) struct Published {
    version: ArcSwap<Version>,
    /// Indexes below this one are applied. Moves after `version`.
    applied_below: watch::Sender<u64>,
    /// Indexes below this one would be in a snapshot that was taken now. Moves before `applied_below`.
    settled_below: AtomicU64,
    subscribers: Mutex<Vec<Weak<Slot>>>,
}

/// What waits for one subscriber.
#[derive(Debug)]
struct Slot {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// All steps since the subscriber looked, as one.
    update: Option<ImageUpdate>,
    closed: bool,
}

/// The steps of the cluster in order, without a gap. Begins with the step from the empty image.
#[derive(Debug)]
pub struct Subscription {
    slot: Arc<Slot>,
}

impl Subscription {
    /// The next step: waits until there is one. `None` when the quorum has stopped.
    pub async fn next(&mut self) -> Option<ImageUpdate> {
        let slot = Arc::clone(&self.slot);
        loop {
            if let Some(update) = self.try_next() {
                return Some(update);
            }
            if slot.waiting.lock().closed {
                return None;
            }
            // A change since then has left its permit.
            slot.changed.notified().await;
        }
    }

    /// The next step if there is one.
    pub fn try_next(&mut self) -> Option<ImageUpdate> {
        self.slot.waiting.lock().update.take()
    }
}

impl Slot {
    fn add(&self, update: &ImageUpdate) {
        let mut waiting = self.waiting.lock();
        waiting.update = Some(match waiting.update.take() {
            None => update.clone(),
            Some(earlier) => merge(earlier, update),
        });
        drop(waiting);
        self.changed.notify_one();
    }

    fn close(&self) {
        self.waiting.lock().closed = true;
        self.changed.notify_one();
    }
}

fn merge(earlier: ImageUpdate, later: &ImageUpdate) -> ImageUpdate {
    assert!(Arc::ptr_eq(&earlier.after, &later.before), "steps follow each other");
    let mut delta = earlier.delta;
    Arc::make_mut(&mut delta).merge(&later.delta);
    let after = Arc::clone(&later.after);
    ImageUpdate { index: later.index, before: earlier.before, after, delta }
}

impl Published {
    pub(crate) fn new(version: Version, applied_below: u64) -> Published {
        Published {
            version: ArcSwap::from_pointee(version),
            applied_below: watch::Sender::new(applied_below),
            settled_below: AtomicU64::new(applied_below),
            subscribers: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn version(&self) -> Arc<Version> {
        self.version.load_full()
    }

    /// Another image, and what is different. Called by the state machine only, in order.
    pub(crate) fn publish(&self, index: u64, version: Version, delta: ImageDelta) {
        let mut subscribers = self.subscribers.lock();
        let before = Arc::clone(&self.version.load().image);
        let after = Arc::clone(&version.image);
        self.version.store(Arc::new(version));
        let update = ImageUpdate { index, before, after, delta: Arc::new(delta) };
        subscribers.retain(|slot| match slot.upgrade() {
            Some(slot) => {
                slot.add(&update);
                true
            }
            None => false,
        });
    }

    /// Everything up to an index is in the image that is published.
    pub(crate) fn applied(&self, index: u64) {
        self.applied_below.send_replace(index + 1);
    }

    /// Everything below an index would be in a snapshot that was taken now.
    pub(crate) fn settled(&self, below: u64) {
        self.settled_below.store(below, Ordering::Release);
    }

    /// Below which index everything would be in a snapshot that was taken now.
    pub(crate) fn settled_below(&self) -> u64 {
        self.settled_below.load(Ordering::Acquire)
    }

    /// Tells of every entry that is applied, if slowly: only the newest counts.
    pub(crate) fn watch_applied(&self) -> watch::Receiver<u64> {
        self.applied_below.subscribe()
    }

    /// Index of the newest entry applied.
    pub(crate) fn applied_index(&self) -> Option<u64> {
        self.applied_below.borrow().checked_sub(1)
    }

    pub(crate) fn subscribe(&self) -> Subscription {
        let mut subscribers = self.subscribers.lock();
        let version = self.version.load();
        let before = Arc::new(ClusterImage::default());
        let after = Arc::clone(&version.image);
        let delta = Arc::new(ImageDelta::between(&before, &after));
        let index = version.changed_at.unwrap_or(0);
        let first = ImageUpdate { index, before, after, delta };
        let waiting = Waiting { update: Some(first), closed: false };
        let slot = Arc::new(Slot { waiting: Mutex::new(waiting), changed: Notify::new() });
        subscribers.push(Arc::downgrade(&slot));
        Subscription { slot }
    }

    /// Waits until an index is applied. `false`: the quorum stopped before.
    pub(crate) async fn wait_applied(&self, index: u64) -> bool {
        let mut applied = self.applied_below.subscribe();
        applied.wait_for(|below| *below > index).await.is_ok()
    }

    /// Nothing comes any more.
    pub(crate) fn close(&self) {
        self.subscribers.lock().iter().filter_map(Weak::upgrade).for_each(|slot| slot.close());
    }
}
