//! Memory that outlives the request that caused it, shared by owners: client addresses or users (decision 0065).
//!
//! A pool bounds one kind of such memory. An owner that is alone may use all of a pool whose content can be
//! taken back. When the pool is full, an owner below its fair share gets room: the pool's user takes memory
//! back from owners above theirs. An owner above its fair share gets the room that idle content leaves.
//! Content that cannot be taken back, such as committed offsets, always leaves a quarter of the free bytes to
//! other owners.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::MemoryLoan;

/// How often a pool reports that it is full.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// How often an owner above its fair share has idle content looked for.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// Whether the content of a pool can be taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Members of groups, which may join again.
    Reclaimable,
    /// Committed offsets.
    Lasting,
}

/// Bytes of one kind of memory, of all owners.
#[derive(Debug)]
pub struct SharedPool<O> {
    bytes_max: usize,
    content: Content,
    state: Mutex<PoolState<O>>,
}

#[derive(Debug)]
struct PoolState<O> {
    used_bytes: usize,
    /// Of these, bytes of members that have not joined with their ids yet.
    pending_bytes: usize,
    /// Invariant: no owner with 0 bytes.
    by_owner: HashMap<O, usize>,
    reported: Option<Instant>,
    idle_sought: Option<Instant>,
}

impl<O> Default for PoolState<O> {
    fn default() -> PoolState<O> {
        PoolState {
            used_bytes: 0,
            pending_bytes: 0,
            by_owner: HashMap::new(),
            reported: None,
            idle_sought: None,
        }
    }
}

impl<O: Clone + Eq + Hash> PoolState<O> {
    fn used_by(&self, owner: &O) -> usize {
        self.by_owner.get(owner).copied().unwrap_or(0)
    }

    /// The share of one of all owners, `owner` included.
    fn fair_share(&self, owner: &O, bytes_max: usize) -> usize {
        let others = self.by_owner.len() - usize::from(self.by_owner.contains_key(owner));
        bytes_max / (others + 1)
    }

    fn change(&mut self, owner: &O, before: usize, after: usize) {
        self.used_bytes = self.used_bytes - before + after;
        match self.by_owner.get_mut(owner) {
            Some(own) => {
                *own = *own - before + after;
                if *own == 0 {
                    self.by_owner.remove(owner);
                }
            }
            None if after > 0 => drop(self.by_owner.insert(owner.clone(), after)),
            None => {}
        }
    }
}

/// The pool is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolShortage {
    /// Bytes that must be taken back.
    pub needed_bytes: usize,
    /// Whether the owner stays within its fair share, so that others must give memory back.
    pub is_within_share: bool,
}

impl<O: Clone + Eq + Hash> SharedPool<O> {
    /// A pool of at most `bytes_max`.
    pub fn new(bytes_max: usize, content: Content) -> SharedPool<O> {
        SharedPool { bytes_max, content, state: Mutex::default() }
    }

    /// Bytes used.
    pub fn used_bytes(&self) -> usize {
        self.state.lock().used_bytes
    }

    /// Bytes that may be used.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes that are free.
    pub fn free_bytes(&self) -> usize {
        self.bytes_max.saturating_sub(self.used_bytes())
    }

    /// Whether members that have not joined with their ids use any bytes.
    pub fn has_pending(&self) -> bool {
        self.state.lock().pending_bytes > 0
    }

    /// Whether the owner uses more than its fair share.
    pub fn is_above_share(&self, owner: O) -> bool {
        let state = self.state.lock();
        state.used_by(&owner) > state.fair_share(&owner, self.bytes_max)
    }

    /// Owners that use more than the fair share of one of all owners, `owner` included, and their bytes above that share;
    /// those that use the most first.
    pub fn owners_above_share(&self, owner: &O) -> Vec<(O, usize)> {
        let state = self.state.lock();
        let share = state.fair_share(owner, self.bytes_max);
        let others =
            state.by_owner.iter().filter(|(other, bytes)| **bytes > share && *other != owner);
        let mut above: Vec<_> =
            others.map(|(other, bytes)| (other.clone(), bytes - share)).collect();
        above.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        above
    }

    /// A share of nothing.
    pub fn share(self: &Arc<SharedPool<O>>, owner: O) -> PoolShare<O> {
        let (bytes, is_pending) = (AtomicUsize::new(0), AtomicBool::new(false));
        PoolShare { pool: Arc::clone(self), owner, bytes, is_pending }
    }

    /// A share of `bytes` in place of one of `former_bytes`, which is returned later. A share that does not grow
    /// is always granted.
    pub fn hold(
        self: &Arc<SharedPool<O>>,
        owner: O,
        bytes: usize,
        former_bytes: usize,
    ) -> Result<PoolShare<O>, PoolShortage> {
        let mut state = self.state.lock();
        let used = match self.content {
            Content::Reclaimable => state.used_bytes,
            Content::Lasting => {
                let others = state.used_bytes - state.used_by(&owner);
                let kept_for_others = self.bytes_max.saturating_sub(others) / 4;
                state.used_bytes + kept_for_others
            }
        };
        if used + bytes > self.bytes_max && bytes > former_bytes {
            let share = state.fair_share(&owner, self.bytes_max);
            let needed_bytes = used + bytes - self.bytes_max;
            let is_within_share = state.used_by(&owner) + bytes <= share;
            return Err(PoolShortage { needed_bytes, is_within_share });
        }
        state.change(&owner, 0, bytes);
        drop(state);
        let share = self.share(owner);
        share.bytes.store(bytes, Ordering::Relaxed);
        Ok(share)
    }

    /// Whether idle content may be looked for on behalf of an owner above its fair share.
    pub fn may_seek_idle(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let is_due = state.idle_sought.is_none_or(|at| now.duration_since(at) >= IDLE_INTERVAL);
        if is_due {
            state.idle_sought = Some(now);
        }
        is_due
    }

    /// Whether a refusal is to be reported: the last report is a minute old.
    pub fn is_report_due(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let is_due = state.reported.is_none_or(|at| now.duration_since(at) >= REPORT_INTERVAL);
        if is_due {
            state.reported = Some(now);
        }
        is_due
    }
}

/// Bytes of a pool that an owner uses; returned when dropped.
#[derive(Debug)]
pub struct PoolShare<O: Clone + Eq + Hash> {
    pool: Arc<SharedPool<O>>,
    owner: O,
    bytes: AtomicUsize,
    is_pending: AtomicBool,
}

impl<O: Clone + Eq + Hash> PoolShare<O> {
    /// The address or user.
    pub fn owner(&self) -> O {
        self.owner.clone()
    }

    /// A share of as many bytes more for the same owner, if the pool has room.
    pub fn hold_more(&self, bytes: usize) -> Result<PoolShare<O>, PoolShortage> {
        self.pool.hold(self.owner.clone(), bytes, 0)
    }

    /// Whether a refusal of this pool is to be reported.
    pub fn is_report_due(&self) -> bool {
        self.pool.is_report_due(Instant::now())
    }

    /// Splits the share: this one keeps `bytes`, the other gets the rest.
    pub fn split(self, bytes: usize) -> (PoolShare<O>, PoolShare<O>) {
        let rest = self.pool.share(self.owner.clone());
        let all = self.bytes.swap(bytes, Ordering::Relaxed);
        rest.bytes.store(all.saturating_sub(bytes), Ordering::Relaxed);
        (self, rest)
    }
}

impl<O: Clone + Eq + Hash> PoolShare<O> {
    fn change_to(&self, bytes: usize) {
        let mut state = self.pool.state.lock();
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        state.change(&self.owner, before, bytes);
        if self.is_pending.load(Ordering::Relaxed) {
            state.pending_bytes = state.pending_bytes - before + bytes;
        }
    }
}

impl<O: Clone + Eq + Hash + Send + Sync + 'static> MemoryLoan for PoolShare<O> {
    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn set_bytes(&self, bytes: usize) {
        self.change_to(bytes);
    }

    fn mark_pending(&self, is_pending: bool) {
        let mut state = self.pool.state.lock();
        let bytes = self.bytes.load(Ordering::Relaxed);
        match (self.is_pending.swap(is_pending, Ordering::Relaxed), is_pending) {
            (false, true) => state.pending_bytes += bytes,
            (true, false) => state.pending_bytes -= bytes,
            _ => {}
        }
    }
}

impl<O: Clone + Eq + Hash> Drop for PoolShare<O> {
    fn drop(&mut self) {
        self.change_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Owner = Option<std::net::IpAddr>;

    const HOG: Owner = Some(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)));
    const OTHER: Owner = Some(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)));

    fn pool(content: Content) -> Arc<SharedPool<Owner>> {
        Arc::new(SharedPool::new(1000, content))
    }

    #[test]
    fn an_owner_alone_may_use_all_and_another_is_owed_its_half() {
        let pool = pool(Content::Reclaimable);
        let all = pool.hold(HOG, 1000, 0).unwrap();
        let short = pool.hold(HOG, 1, 0).unwrap_err();
        assert_eq!(short, PoolShortage { needed_bytes: 1, is_within_share: false });
        let short = pool.hold(OTHER, 500, 0).unwrap_err();
        assert_eq!(short, PoolShortage { needed_bytes: 500, is_within_share: true });
        assert!(!pool.hold(OTHER, 501, 0).unwrap_err().is_within_share);
        drop(all);
        assert_eq!((pool.used_bytes(), pool.hold(OTHER, 1000, 0).is_ok()), (0, true));
    }

    #[test]
    fn owners_above_their_share_are_named_those_with_the_most_first() {
        let pool = Arc::new(SharedPool::<u8>::new(1000, Content::Reclaimable));
        let _shares =
            [(1, 350), (2, 500), (3, 50)].map(|(owner, bytes)| pool.hold(owner, bytes, 0));
        assert_eq!(pool.owners_above_share(&3), [(2, 500 - 333), (1, 350 - 333)]);
        assert_eq!(pool.owners_above_share(&2), [(1, 350 - 333)]);
        assert_eq!(pool.owners_above_share(&4), [(2, 250), (1, 100)], "one more than there are");
    }

    #[test]
    fn a_share_that_does_not_grow_is_replaced_in_a_full_pool() {
        let pool = pool(Content::Reclaimable);
        let _all = pool.hold(HOG, 1000, 0).unwrap();
        assert!(pool.hold(HOG, 100, 100).is_ok());
        assert!(pool.hold(HOG, 101, 100).is_err());
    }

    #[test]
    fn lasting_content_leaves_a_quarter_to_each_next_owner() {
        let pool = pool(Content::Lasting);
        let hog = pool.share(HOG);
        assert!(hog.hold_more(751).is_err());
        let _kept = hog.hold_more(750).unwrap();
        assert!(pool.hold(OTHER, 189, 0).is_err());
        assert!(pool.hold(OTHER, 188, 0).is_ok());
    }

    #[test]
    fn pending_bytes_are_counted_while_they_are_pending() {
        let pool = pool(Content::Reclaimable);
        let (first, second) = pool.hold(HOG, 300, 0).unwrap().split(100);
        assert_eq!((first.bytes(), second.bytes(), pool.used_bytes()), (100, 200, 300));
        first.mark_pending(true);
        first.mark_pending(true);
        second.mark_pending(true);
        drop(second);
        assert!(pool.has_pending());
        first.mark_pending(false);
        assert!(!pool.has_pending());
        drop(first);
        assert_eq!(pool.used_bytes(), 0);
    }
}
