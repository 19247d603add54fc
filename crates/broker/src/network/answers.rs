//! Memory of large answers (decision 0066): reserved before an answer is built, and held until it is sent.
//!
//! Requests wait for room in turn and are never refused. The address that holds the least comes first, so that
//! clients that leave large answers unread delay each other only. Of one address, which may be that of a proxy, the
//! connection that holds the least comes first. While requests wait, a connection loses its answer if its client reads
//! too slowly ([`AnswerMemory::is_waited_for`]).

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, oneshot};

/// Answers of at most this many bytes are built without a reservation.
pub const FREE_BYTES_MAX: usize = 1 << 20;
/// Answers of at most this many bytes are built at once; building a larger one takes about 100 µs or more.
const QUICK_BYTES_MAX: usize = 16 << 10;
/// All reservations together, in bytes. A larger answer has all of them.
const ANSWER_BYTES_MAX: usize = 48 << 20;

/// Reservations of all connections.
#[derive(Debug)]
pub struct AnswerMemory {
    bytes_max: usize,
    state: Mutex<AnswerState>,
    is_waited_for: AtomicBool,
    /// Held while an answer is built whose decoded form is much larger than its frame.
    building: Arc<tokio::sync::Mutex<()>>,
    /// Answers above [`QUICK_BYTES_MAX`] that are built at a time: half of the cores stay free for records.
    builders: Arc<Semaphore>,
}

/// The turn of an answer that is built. It ends when the answer is encoded.
#[derive(Debug)]
pub struct BuildTurn {
    /// No other answer above [`FREE_BYTES_MAX`] is built.
    _alone: Option<OwnedMutexGuard<()>>,
    _builder: OwnedSemaphorePermit,
}

#[derive(Debug, Default)]
struct AnswerState {
    used_bytes: usize,
    /// Invariant: no address with 0 bytes.
    by_address: HashMap<IpAddr, usize>,
    /// Invariant: no connection with 0 bytes.
    by_connection: HashMap<SocketAddr, usize>,
    /// In the order in which they came.
    waiting: Vec<AnswerWaiter>,
}

#[derive(Debug)]
struct AnswerWaiter {
    peer: SocketAddr,
    bytes: usize,
    granted: oneshot::Sender<AnswerRoom>,
}

impl Default for AnswerMemory {
    fn default() -> AnswerMemory {
        AnswerMemory::new(ANSWER_BYTES_MAX)
    }
}

impl AnswerMemory {
    fn new(bytes_max: usize) -> AnswerMemory {
        let is_waited_for = AtomicBool::new(false);
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let builders = Arc::new(Semaphore::new((cores / 2).max(1)));
        let (state, building) = (Mutex::default(), Arc::default());
        AnswerMemory { bytes_max, state, is_waited_for, building, builders }
    }

    /// Bytes reserved.
    pub fn used_bytes(&self) -> usize {
        self.state.lock().used_bytes
    }

    /// Bytes that may be reserved.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Whether requests wait for room.
    pub fn is_waited_for(&self) -> bool {
        self.is_waited_for.load(Ordering::Relaxed)
    }

    /// Waits for room for an answer of at most `bytes` on the connection of `peer`.
    pub async fn reserve(self: &Arc<AnswerMemory>, peer: SocketAddr, bytes: usize) -> AnswerRoom {
        let bytes = bytes.min(self.bytes_max);
        let (granted, room) = oneshot::channel();
        self.state.lock().waiting.push(AnswerWaiter { peer, bytes, granted });
        self.grant();
        room.await.expect("a waiter is granted or has gone")
    }

    /// Waits for the turn of an answer of at most `bytes` whose decoded form is much larger than its frame. `None` for
    /// a small one, which has no turn.
    pub async fn turn_to_build(&self, bytes: usize) -> Option<BuildTurn> {
        if bytes <= QUICK_BYTES_MAX {
            return None;
        }
        let alone = match bytes > FREE_BYTES_MAX {
            true => Some(Arc::clone(&self.building).lock_owned().await),
            false => None,
        };
        // The semaphore is never closed.
        let builder = Arc::clone(&self.builders).acquire_owned().await.ok()?;
        Some(BuildTurn { _alone: alone, _builder: builder })
    }

    /// Grants what there is room for. The next one in turn is not overtaken.
    fn grant(self: &Arc<AnswerMemory>) {
        let mut rooms = Vec::new();
        let mut state = self.state.lock();
        state.waiting.retain(|waiter| !waiter.granted.is_closed());
        while let Some(next) = state.next_in_turn() {
            let bytes = state.waiting[next].bytes;
            if state.used_bytes > 0 && state.used_bytes + bytes > self.bytes_max {
                break;
            }
            let AnswerWaiter { peer, granted, .. } = state.waiting.remove(next);
            state.used_bytes += bytes;
            *state.by_address.entry(address_of(peer)).or_default() += bytes;
            *state.by_connection.entry(peer).or_default() += bytes;
            rooms.push((granted, AnswerRoom { memory: Arc::clone(self), peer, bytes }));
        }
        self.is_waited_for.store(!state.waiting.is_empty(), Ordering::Relaxed);
        drop(state);
        for (granted, room) in rooms {
            // The waiter may have gone meanwhile: its room is dropped, which grants it to the next one.
            let _ = granted.send(room);
        }
    }
}

impl AnswerState {
    /// Of the address that holds the least, the first waiter of the connection that holds the least.
    fn next_in_turn(&self) -> Option<usize> {
        let rank = |waiter: &AnswerWaiter| {
            let of_address = self.by_address.get(&address_of(waiter.peer)).copied().unwrap_or(0);
            let own = self.by_connection.get(&waiter.peer).copied().unwrap_or(0);
            (of_address, own)
        };
        let waiting = self.waiting.iter().enumerate();
        waiting.map(|(at, waiter)| (rank(waiter), at)).min().map(|(_, at)| at)
    }
}

/// The address that an answer counts for.
fn address_of(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}

/// Takes `bytes` off; a holder of none is removed.
fn lower<K: Hash + Eq>(held: &mut HashMap<K, usize>, holder: &K, bytes: usize) {
    if let Some(own) = held.get_mut(holder) {
        *own -= bytes;
        if *own == 0 {
            held.remove(holder);
        }
    }
}

/// Room for one answer; returned when dropped.
#[derive(Debug)]
pub struct AnswerRoom {
    memory: Arc<AnswerMemory>,
    peer: SocketAddr,
    bytes: usize,
}

impl AnswerRoom {
    /// Returns all but `bytes`: the answer is built.
    pub fn shrink_to(&mut self, bytes: usize) {
        let returned = self.bytes.saturating_sub(bytes);
        if returned == 0 {
            return;
        }
        self.bytes -= returned;
        {
            let mut state = self.memory.state.lock();
            state.used_bytes -= returned;
            lower(&mut state.by_address, &address_of(self.peer), returned);
            lower(&mut state.by_connection, &self.peer, returned);
        }
        self.memory.grant();
    }
}

impl Drop for AnswerRoom {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::net::Ipv4Addr;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    const HOG: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 1);
    const OTHER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 1);

    fn granted(waiting: Pin<&mut impl Future<Output = AnswerRoom>>) -> Option<AnswerRoom> {
        match waiting.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(room) => Some(room),
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_address_that_holds_least_comes_first_and_no_answer_is_refused() {
        let memory = Arc::new(AnswerMemory::new(100));
        let mut first = granted(pin!(memory.reserve(HOG, 60))).expect("there is room");
        let mut second = pin!(memory.reserve(HOG, 60));
        let mut other = pin!(memory.reserve(OTHER, 60));
        let mut large = pin!(memory.reserve(OTHER, 1_000));
        assert!(granted(second.as_mut()).is_none() && granted(other.as_mut()).is_none());
        assert!(granted(large.as_mut()).is_none() && memory.is_waited_for());
        first.shrink_to(40);
        let other = granted(other.as_mut()).expect("it holds nothing yet");
        assert!(granted(second.as_mut()).is_none());
        drop(first);
        assert!(granted(second.as_mut()).is_none(), "60 of 100 bytes are held");
        drop(other);
        let second = granted(second.as_mut()).expect("it came first");
        assert!(granted(large.as_mut()).is_none());
        drop(second);
        let large = granted(large.as_mut()).expect("all of the memory is free");
        assert_eq!((memory.used_bytes(), memory.is_waited_for()), (100, false));
        drop(large);
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn of_one_address_the_connection_that_holds_least_comes_first() {
        let memory = Arc::new(AnswerMemory::new(100));
        let beside = SocketAddr::new(HOG.ip(), 2);
        let first = granted(pin!(memory.reserve(HOG, 60))).expect("there is room");
        let second = granted(pin!(memory.reserve(HOG, 40))).expect("there is room");
        let mut third = pin!(memory.reserve(HOG, 40));
        let mut new = pin!(memory.reserve(beside, 40));
        assert!(granted(third.as_mut()).is_none() && granted(new.as_mut()).is_none());
        drop(second);
        let new = granted(new.as_mut()).expect("its connection holds nothing");
        assert!(granted(third.as_mut()).is_none());
        drop((first, new));
        assert!(granted(third.as_mut()).is_some());
        assert!(memory.state.lock().by_connection.is_empty());
    }

    #[test]
    fn large_answers_are_built_in_turn_and_small_ones_at_once() {
        let memory = AnswerMemory::new(100);
        let turn = |bytes| {
            let mut waiting = Box::pin(memory.turn_to_build(bytes));
            match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(turn) => Ok(turn),
                Poll::Pending => Err(waiting),
            }
        };
        let builders = memory.builders.available_permits();
        let turns: Vec<_> = (0..builders).map(|_| turn(QUICK_BYTES_MAX + 1).ok()).collect();
        assert!(turns.iter().all(|turn| matches!(turn, Some(Some(_)))));
        let next = turn(FREE_BYTES_MAX + 1);
        assert!(next.is_err(), "each builder has an answer");
        assert!(matches!(turn(QUICK_BYTES_MAX), Ok(None)));
        drop(turns);
        let mut next = next.expect_err("it waits");
        let turn = next.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(turn, Poll::Ready(Some(_))));
    }

    #[test]
    fn a_waiter_that_has_gone_is_skipped() {
        let memory = Arc::new(AnswerMemory::new(100));
        let first = granted(pin!(memory.reserve(HOG, 100))).expect("there is room");
        {
            let mut gone = pin!(memory.reserve(OTHER, 100));
            assert!(granted(gone.as_mut()).is_none());
        }
        let mut next = pin!(memory.reserve(HOG, 100));
        assert!(granted(next.as_mut()).is_none());
        drop(first);
        assert!(granted(next.as_mut()).is_some());
    }
}
