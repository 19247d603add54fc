//! Units (bytes or places) that are lent to holders, and taken back while the pool is contended.
//!
//! A pool without contention grants every request that fits. When a request does not fit, owners that use more than
//! the requesting one would are not granted any growth, and [`Lease::reclaim`] revokes leases: of the owner that uses
//! the most, the one without progress for the longest time. A revoked holder is woken and drops its lease.

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a refused request keeps larger owners from growing. HTTP clients retry after one second.
const CONTENTION: Duration = Duration::from_secs(2);

/// Units of one kind, of all owners.
#[derive(Debug)]
pub struct LeasePool<O> {
    units_max: usize,
    began: Instant,
    state: Mutex<PoolState<O>>,
}

#[derive(Debug)]
struct PoolState<O> {
    used: usize,
    /// Of these, units of revoked leases whose holders have not dropped them yet.
    leaving: usize,
    /// Invariant: no owner with 0 units.
    by_owner: HashMap<O, usize>,
    /// All leases, by number.
    leases: HashMap<u64, Entry<O>>,
    next_number: u64,
    contention: Option<Contention>,
}

/// A request that was refused.
#[derive(Debug, Clone, Copy)]
struct Contention {
    until: Instant,
    /// Units that the requesting owner would have: other owners may not grow beyond.
    ceiling: usize,
}

#[derive(Debug)]
struct Entry<O> {
    owner: O,
    units: usize,
    holder: Arc<Holder>,
}

/// State of a lease that its holder and the pool share without the pool's lock.
#[derive(Debug)]
struct Holder {
    /// Milliseconds of the pool's time.
    progress_ms: AtomicU64,
    is_revoked: AtomicBool,
    /// Whether the holder leaves when the lease is revoked.
    is_revocable: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Holder {
    fn revoke(&self) {
        self.is_revoked.store(true, Ordering::SeqCst);
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }

    fn is_revoked(&self) -> bool {
        self.is_revoked.load(Ordering::SeqCst)
    }
}

impl<O: Clone + Eq + Hash> PoolState<O> {
    fn used_by(&self, owner: &O) -> usize {
        self.by_owner.get(owner).copied().unwrap_or(0)
    }

    fn change(&mut self, number: u64, units: usize) {
        let Some(entry) = self.leases.get_mut(&number) else { return };
        let before = std::mem::replace(&mut entry.units, units);
        self.used = self.used - before + units;
        if entry.holder.is_revoked() {
            self.leaving = self.leaving - before + units;
        }
        let own = self.by_owner.get(&entry.owner).copied().unwrap_or(0) - before + units;
        match own {
            0 => drop(self.by_owner.remove(&entry.owner)),
            own => drop(self.by_owner.insert(entry.owner.clone(), own)),
        }
    }

    /// Units of the owner that uses the most, beside this one.
    fn largest_beside(&self, owner: &O) -> usize {
        let others = self.by_owner.iter().filter(|(other, _)| *other != owner);
        others.map(|(_, units)| *units).max().unwrap_or(0)
    }

    /// Notes that a request was refused which would give its owner `units`, if another owner uses more.
    fn note_refusal(&mut self, owner: &O, units: usize, now: Instant) {
        if units >= self.largest_beside(owner) {
            return;
        }
        let before = self.contention.filter(|contention| now < contention.until);
        let ceiling = before.map_or(units, |before| before.ceiling.min(units));
        self.contention = Some(Contention { until: now + CONTENTION, ceiling });
    }

    /// Whether owners with fewer units wait.
    fn is_above_ceiling(&self, units: usize, now: Instant) -> bool {
        self.contention.is_some_and(|c| now < c.until && units > c.ceiling)
    }

    /// The lease without progress for the longest time: of the owner that uses the most and more than `units`, or else
    /// of `owner` itself. Its progress was before one of the two times, in milliseconds.
    fn choose(&self, owner: &O, units: usize, others_before: u64, own_before: u64) -> Option<u64> {
        let held = |entry: &Entry<O>| {
            let is_revocable = entry.holder.is_revocable.load(Ordering::Relaxed);
            if !is_revocable || entry.holder.is_revoked() || entry.units == 0 {
                return None;
            }
            let used = self.used_by(&entry.owner);
            let progress = entry.holder.progress_ms.load(Ordering::Relaxed);
            let is_own = entry.owner == *owner;
            let before = if is_own { own_before } else { others_before };
            let is_liable = progress < before && (is_own || used > units);
            is_liable.then_some((is_own, usize::MAX - used, progress))
        };
        let candidates = self
            .leases
            .iter()
            .filter_map(|(number, entry)| held(entry).map(|rank| (rank, *number)));
        candidates.min().map(|(_, number)| number)
    }

    /// Revokes leases of owners that use more than this one would with `more` units, and frees their units at once.
    /// Returns whether there is room for `more`.
    fn make_room(&mut self, owner: &O, more: usize, units_max: usize) -> bool {
        while self.used + more > units_max {
            let own = self.used_by(owner) + more;
            let Some(victim) = self.choose(owner, own, u64::MAX, 0) else { return false };
            self.change(victim, 0);
            self.revoke(victim);
        }
        true
    }

    fn revoke(&mut self, number: u64) {
        if let Some(entry) = self.leases.get(&number) {
            self.leaving += entry.units;
            entry.holder.revoke();
        }
    }
}

impl<O: Clone + Eq + Hash> LeasePool<O> {
    /// A pool of at most `units_max`.
    pub fn new(units_max: usize) -> LeasePool<O> {
        let state = PoolState {
            used: 0,
            leaving: 0,
            by_owner: HashMap::new(),
            leases: HashMap::new(),
            next_number: 0,
            contention: None,
        };
        LeasePool { units_max, began: Instant::now(), state: Mutex::new(state) }
    }

    /// Units lent.
    pub fn used_units(&self) -> usize {
        self.state.lock().used
    }

    /// Units that may be lent.
    pub fn units_max(&self) -> usize {
        self.units_max
    }

    /// A lease of no units.
    pub fn open(self: &Arc<LeasePool<O>>, owner: O, now: Instant) -> Lease<O> {
        let holder = Arc::new(Holder {
            progress_ms: AtomicU64::new(self.ms(now)),
            is_revoked: AtomicBool::new(false),
            is_revocable: AtomicBool::new(true),
            waker: Mutex::default(),
        });
        let mut state = self.state.lock();
        let number = state.next_number;
        state.next_number += 1;
        let entry = Entry { owner: owner.clone(), units: 0, holder: Arc::clone(&holder) };
        state.leases.insert(number, entry);
        drop(state);
        Lease { pool: Arc::clone(self), owner, number, holder }
    }

    /// A lease of `units`. In a full pool, leases of owners that use more are revoked, and their units are lent again
    /// at once: their holders leave within moments. `None`: the pool is full, and no owner uses more.
    pub fn admit(
        self: &Arc<LeasePool<O>>,
        owner: O,
        units: usize,
        now: Instant,
    ) -> Option<Lease<O>> {
        let lease = self.open(owner, now);
        let mut state = self.state.lock();
        let is_room_made = state.make_room(&lease.owner, units, self.units_max);
        if is_room_made {
            state.change(lease.number, units);
        }
        drop(state);
        is_room_made.then_some(lease)
    }

    /// Whether [`LeasePool::admit`] of one unit would succeed for this owner. Revokes nothing.
    pub fn has_room(&self, owner: &O) -> bool {
        let state = self.state.lock();
        let own = state.used_by(owner) + 1;
        state.used < self.units_max || state.choose(owner, own, u64::MAX, 0).is_some()
    }

    /// The first time of progress, in milliseconds, at most `patience` ago.
    fn before(&self, now: Instant, patience: Duration) -> u64 {
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        (self.ms(now) + 1).saturating_sub(patience_ms)
    }

    fn ms(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_millis() as u64
    }
}

/// Units that a holder has; returned when dropped.
#[derive(Debug)]
pub struct Lease<O: Clone + Eq + Hash> {
    pool: Arc<LeasePool<O>>,
    owner: O,
    number: u64,
    holder: Arc<Holder>,
}

impl<O: Clone + Eq + Hash> Lease<O> {
    /// The address or user.
    pub fn owner(&self) -> &O {
        &self.owner
    }

    /// Whether the pool may take the lease back; it may, unless this was called. A lease whose holder watches nothing is
    /// held until it is dropped.
    pub fn set_revocable(&self, is_revocable: bool) {
        self.holder.is_revocable.store(is_revocable, Ordering::Relaxed);
    }

    /// Keeps the lease until it is dropped, unless the pool has taken it back. Returns whether the lease is kept.
    #[must_use = "a revoked lease must be dropped"]
    pub fn keep(&self) -> bool {
        // Under the lock: the pool may be choosing this lease.
        let _state = self.pool.state.lock();
        self.set_revocable(false);
        !self.is_revoked()
    }

    /// Units held.
    pub fn units(&self) -> usize {
        self.pool.state.lock().leases.get(&self.number).map_or(0, |entry| entry.units)
    }

    /// Holds exactly `units` from now on, whether there is room or not.
    pub fn set(&self, units: usize) {
        self.pool.state.lock().change(self.number, units);
    }

    /// Changes the lease to `units`. Returns false, and leaves the lease as it is, if the pool is full or owners with fewer units
    /// wait.
    pub fn try_set(&self, units: usize, now: Instant) -> bool {
        let mut state = self.pool.state.lock();
        let before = state.leases.get(&self.number).map_or(0, |entry| entry.units);
        if units > before {
            let more = units - before;
            let own = state.used_by(&self.owner) + more;
            if state.used + more > self.pool.units_max {
                state.note_refusal(&self.owner, own, now);
                return false;
            }
            // A refusal by the ceiling renews no contention: the pool has room.
            if state.is_above_ceiling(own, now) {
                return false;
            }
            if state.contention.is_some_and(|contention| own <= contention.ceiling) {
                state.contention = None;
            }
        }
        state.change(self.number, units);
        true
    }

    /// Changes the lease to `units`. In a full pool, leases of owners that use more are revoked, as by
    /// [`LeasePool::admit`]. Returns false, and leaves the lease as it is, if no owner uses more.
    pub fn try_grow(&self, units: usize) -> bool {
        let mut state = self.pool.state.lock();
        let before = state.leases.get(&self.number).map_or(0, |entry| entry.units);
        let is_room_made =
            state.make_room(&self.owner, units.saturating_sub(before), self.pool.units_max);
        if is_room_made {
            state.change(self.number, units);
        }
        is_room_made
    }

    /// Revokes leases until `more` units are free or about to be: of owners that use more than this one would, those
    /// without progress for `patience`; else of this owner, those without progress for `own_patience`, this lease
    /// included. Returns the count.
    pub fn reclaim(
        &self,
        more: usize,
        now: Instant,
        patience: Duration,
        own_patience: Duration,
    ) -> usize {
        let (others_before, own_before) =
            (self.pool.before(now, patience), self.pool.before(now, own_patience));
        let mut state = self.pool.state.lock();
        let own = state.used_by(&self.owner) + more;
        let mut count = 0;
        while state.used - state.leaving + more > self.pool.units_max {
            let chosen = state.choose(&self.owner, own, others_before, own_before);
            let Some(victim) = chosen else { break };
            state.revoke(victim);
            count += 1;
        }
        count
    }

    /// Revokes leases of this owner until `more` units are free or about to be: those of more than `units_min` units without
    /// progress for `patience`, the slowest first, this lease included. Returns the count.
    pub fn reclaim_own(
        &self,
        more: usize,
        now: Instant,
        patience: Duration,
        units_min: usize,
    ) -> usize {
        let before = self.pool.before(now, patience);
        let mut state = self.pool.state.lock();
        let mut count = 0;
        while state.used - state.leaving + more > self.pool.units_max {
            let slow = state.leases.iter().filter_map(|(number, entry)| {
                let progress = entry.holder.progress_ms.load(Ordering::Relaxed);
                let is_liable = entry.owner == self.owner
                    && entry.units > units_min
                    && progress < before
                    && entry.holder.is_revocable.load(Ordering::Relaxed)
                    && !entry.holder.is_revoked();
                is_liable.then_some((progress, *number))
            });
            let Some((_, victim)) = slow.min() else { break };
            state.revoke(victim);
            count += 1;
        }
        count
    }

    /// Revokes leases of owners that use more than this one would with `more` units, those without progress for
    /// `patience`, until they hold `more` units. For a shortage beside the pool: holders of the same memory may hold no
    /// leases. Returns the count.
    pub fn reclaim_beside(&self, more: usize, now: Instant, patience: Duration) -> usize {
        let before = self.pool.before(now, patience);
        let mut state = self.pool.state.lock();
        let own = state.used_by(&self.owner) + more;
        state.note_refusal(&self.owner, own, now);
        let mut count = 0;
        while state.leaving < more {
            let Some(victim) = state.choose(&self.owner, own, before, 0) else { break };
            state.revoke(victim);
            count += 1;
        }
        count
    }

    /// Notes that the holder made progress.
    pub fn advance(&self, now: Instant) {
        self.holder.progress_ms.store(self.pool.ms(now), Ordering::Relaxed);
    }

    /// Whether the pool has taken the lease back: the holder must drop it.
    pub fn is_revoked(&self) -> bool {
        self.holder.is_revoked()
    }

    /// Waits until the pool takes the lease back. One task at a time may wait.
    pub async fn revoked(&self) {
        poll_fn(|context| self.poll_revoked(context)).await;
    }

    /// Like [`Lease::revoked`], for callers that poll.
    pub fn poll_revoked(&self, context: &mut Context<'_>) -> Poll<()> {
        if !self.is_revoked() {
            *self.holder.waker.lock() = Some(context.waker().clone());
        }
        // A revocation in between has found no waker.
        if self.is_revoked() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<O: Clone + Eq + Hash> Drop for Lease<O> {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.change(self.number, 0);
        state.leases.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    const HOG: u8 = 1;
    const OTHER: u8 = 2;
    const SECOND: Duration = Duration::from_secs(1);

    fn pool(units: usize) -> Arc<LeasePool<u8>> {
        Arc::new(LeasePool::new(units))
    }

    #[test]
    fn an_owner_alone_has_all_and_another_gets_half_of_the_places() {
        let (pool, now) = (pool(10), Instant::now());
        let hog: Vec<_> = (0..10).map(|_| pool.admit(HOG, 1, now).unwrap()).collect();
        assert!(pool.admit(HOG, 1, now).is_none());
        assert!(!pool.has_room(&HOG) && pool.has_room(&OTHER));
        hog.iter().skip(5).for_each(|lease| lease.advance(now + SECOND));
        let others: Vec<_> = std::iter::from_fn(|| pool.admit(OTHER, 1, now)).take(10).collect();
        assert_eq!(others.len(), 5);
        assert!(!pool.has_room(&OTHER), "both have the same");
        let revoked: Vec<_> = hog.iter().map(Lease::is_revoked).collect();
        assert_eq!(revoked, [vec![true; 5], vec![false; 5]].concat(), "those without progress");
        assert!(pool.admit(HOG, 1, now).is_none(), "both have the same");
        drop(hog);
        assert_eq!(pool.used_units(), 5);
    }

    #[test]
    fn a_shortage_beside_the_pool_revokes_slow_leases_of_larger_owners() {
        let (pool, now) = (pool(100), Instant::now());
        let [slow, fast, other] = [(HOG, 40), (HOG, 20), (OTHER, 5)].map(|(owner, units)| {
            let lease = pool.open(owner, now);
            lease.set(units);
            lease
        });
        let later = now + 2 * SECOND;
        assert_eq!(other.reclaim_beside(10, now, SECOND), 0, "both have had progress");
        fast.advance(later);
        assert_eq!(other.reclaim_beside(10, later, SECOND), 1);
        assert!(slow.is_revoked() && !fast.is_revoked());
        assert_eq!(other.reclaim_beside(40, later, SECOND), 0, "40 units are leaving");
        assert!(!fast.try_set(21, later), "the other owner waits");
        assert_eq!(other.reclaim_beside(90, later + 2 * SECOND, SECOND), 0, "as many as the other");
    }

    #[test]
    fn a_lease_is_kept_unless_it_is_revoked() {
        let (pool, now) = (pool(100), Instant::now());
        let [slow, slower, other] = [(HOG, 40), (HOG, 50), (OTHER, 5)].map(|(owner, units)| {
            let lease = pool.open(owner, now);
            lease.set(units);
            lease
        });
        assert!(slow.keep());
        let later = now + 2 * SECOND;
        assert_eq!(other.reclaim(20, later, SECOND, SECOND), 1);
        assert!(!slow.is_revoked() && slower.is_revoked());
        assert!(!slower.keep());
        assert_eq!(other.reclaim(90, later, SECOND, Duration::MAX), 0, "the rest is kept");
    }

    #[test]
    fn an_owner_above_others_does_not_grow_while_they_wait() {
        let (pool, now) = (pool(100), Instant::now());
        let (hog, other) = (pool.open(HOG, now), pool.open(OTHER, now));
        assert!(hog.try_set(95, now));
        assert!(other.try_set(5, now));
        assert!(!other.try_set(15, now));
        assert!(hog.try_set(60, now));
        assert!(!hog.try_set(70, now), "another one waits");
        assert!(other.try_set(15, now));
        assert!(hog.try_set(70, now), "none waits");
        assert!(!other.try_set(40, now));
        assert!(hog.try_set(80, now + CONTENTION), "the waiting one has given up");
    }

    #[test]
    fn a_refusal_in_a_pool_with_room_prolongs_no_contention() {
        let (pool, now) = (pool(100), Instant::now());
        let (hog, middle, small) = (pool.open(3, now), pool.open(HOG, now), pool.open(OTHER, now));
        assert!(hog.try_set(90, now) && middle.try_set(10, now));
        assert!(!small.try_set(5, now), "the pool is full");
        hog.set(20);
        for tenth in 1..=15 {
            assert!(!middle.try_set(15, now + tenth * SECOND / 10), "the small one may come back");
        }
        assert!(middle.try_set(15, now + CONTENTION), "the small one has given up");
    }

    #[test]
    fn a_lease_that_grows_revokes_leases_of_larger_owners() {
        let (pool, now) = (pool(10), Instant::now());
        let hog: Vec<_> = (0..9).map(|_| pool.admit(HOG, 1, now).unwrap()).collect();
        let other = pool.admit(OTHER, 1, now).unwrap();
        assert!(other.try_grow(4));
        assert_eq!(hog.iter().filter(|lease| lease.is_revoked()).count(), 3);
        assert!(!hog[8].try_grow(2), "no owner uses more");
        assert!(!other.try_grow(9), "the hog would use less");
        assert_eq!((other.units(), pool.used_units()), (4, 10));
    }

    #[test]
    fn the_slowest_lease_of_the_largest_owner_is_revoked() {
        let (pool, now) = (pool(100), Instant::now());
        let hog: Vec<_> = (0..3).map(|_| pool.open(HOG, now)).collect();
        assert!(hog.iter().all(|lease| lease.try_set(30, now)));
        let other = pool.open(OTHER, now);
        assert!(!other.try_set(20, now));
        [0, 2].iter().for_each(|at: &usize| hog[*at].advance(now + SECOND));
        assert_eq!(other.reclaim(20, now + SECOND / 2, SECOND, SECOND), 0, "all were fast enough");
        assert_eq!(other.reclaim(20, now + SECOND, SECOND, SECOND), 1);
        assert!(hog[1].is_revoked());
        assert_eq!(other.reclaim(20, now + SECOND, SECOND, SECOND), 0, "enough is leaving");
        assert!(!other.try_set(20, now + SECOND), "it has not left");
        hog[1].set(0);
        assert!(other.try_set(20, now + SECOND));
    }

    #[test]
    fn an_owner_alone_loses_its_slowest_lease_the_requesting_one_included() {
        let (pool, now) = (pool(100), Instant::now());
        let (slow, fast) = (pool.open(HOG, now), pool.open(HOG, now));
        assert!(slow.try_set(50, now) && fast.try_set(50, now));
        fast.advance(now + 10 * SECOND);
        assert!(!fast.try_set(60, now + 10 * SECOND));
        assert_eq!(slow.reclaim(10, now + 9 * SECOND, SECOND, 10 * SECOND), 0);
        assert_eq!(slow.reclaim(10, now + 10 * SECOND, SECOND, 10 * SECOND), 1);
        assert!(slow.is_revoked() && !fast.is_revoked());
        drop(slow);
        assert!(fast.try_set(100, now + 10 * SECOND));
    }

    #[test]
    fn an_owner_takes_back_its_slow_large_leases_and_keeps_idle_small_ones() {
        let (pool, now) = (pool(100), Instant::now());
        let [idle, slow, slower, waiting, other] =
            [(HOG, 5), (HOG, 30), (HOG, 40), (HOG, 5), (OTHER, 20)].map(|(owner, units)| {
                let lease = pool.open(owner, now);
                lease.set(units);
                lease
            });
        slow.advance(now + SECOND);
        assert_eq!(waiting.reclaim_own(20, now + SECOND / 2, SECOND, 10), 0, "all had progress");
        assert_eq!(waiting.reclaim_own(20, now + 2 * SECOND, SECOND, 10), 1);
        assert!(slower.is_revoked());
        assert_eq!(waiting.reclaim_own(90, now + 3 * SECOND, SECOND, 10), 1);
        assert!(slow.is_revoked() && !idle.is_revoked() && !waiting.is_revoked());
        assert!(!other.is_revoked());
    }

    #[test]
    fn a_holder_that_waits_is_woken_when_its_lease_is_revoked() {
        struct Count(AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let (pool, now) = (pool(2), Instant::now());
        let hog = pool.admit(HOG, 1, now).unwrap();
        assert!(pool.admit(OTHER, 2, now).is_none(), "it would have more than the other one");
        let _more = pool.admit(HOG, 1, now + SECOND).unwrap();
        let woken = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&woken));
        assert!(hog.poll_revoked(&mut Context::from_waker(&waker)).is_pending());
        assert!(pool.admit(OTHER, 1, now).is_some());
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert!(hog.poll_revoked(&mut Context::from_waker(&waker)).is_ready());
    }
}
