//! What requests may cost in memory, all connections together: two gates of bytes.
//!
//! - *Frames*: bytes of requests that have arrived and were not taken in yet
//!   (`queued.max.request.bytes`). Charged as they arrive, never as they are announced. The last part
//!   is kept for frames of at most 1 MiB, so that a few large ones stop nobody else's.
//! - *Decoded*: requests as the handlers see them, and answers that wait to be sent.
//!
//! Memory of group coordinators outlives requests: `shares.rs` bounds it.
//!
//! Whoever finds no room waits and is woken. That all wait for each other, each with half a frame, is
//! prevented by the *pass*: one frame of each size may use the last bytes of the gate.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answers::AnswerMemory;
use super::shares::{Content, SharedPool};

/// Frames up to this size, in bytes, may use what is kept for them. Producers' usual
/// `max.request.size` is 1 MiB.
const SMALL_FRAME_BYTES_MAX: usize = (1 << 20) + 1024;
/// What is kept for small frames, in bytes.
const KEPT_BYTES: usize = 32 << 20;
/// Bytes of decoded requests and unsent answers.
const DECODED_BYTES_MAX: usize = 48 << 20;
/// Of which this much is kept for small requests.
const DECODED_KEPT_BYTES: usize = 24 << 20;
/// Bytes that requests may hold while the broker counts as quiet.
const QUIET_BYTES_MAX: usize = 16 << 20;
/// Memory of members of groups, unless configured, in bytes.
const MEMBER_BYTES_MAX: usize = 32 << 20;
/// Memory of committed offsets, unless configured, in bytes.
const OFFSET_BYTES_MAX: usize = 64 << 20;
/// The largest request when it is decoded, in bytes.
const REQUEST_BYTES_MAX: usize = 64 << 20;
/// Bytes that the one large request with the pass may take beyond the gate: the largest request fits beside
/// those that hold [`QUIET_BYTES_MAX`].
const OVERDRAFT_BYTES: usize = REQUEST_BYTES_MAX + QUIET_BYTES_MAX - DECODED_BYTES_MAX;
/// Requests of clients that wait for a decision of the controller at a time.
const DECISIONS_MAX: usize = 256;
/// By how much the process may grow before it is asked what of it is unused, in bytes.
const UNUSED_BYTES: usize = 8 << 20;
/// The same while a flood is on, beyond what is charged.
const UNUSED_IN_NEED_BYTES: usize = 2 * UNUSED_BYTES;
/// How soon somebody who waits for memory looks again without having been woken.
pub const RETRY: Duration = Duration::from_millis(250);

/// Bytes of the process that are resident; 0 where the system does not tell.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * rustix::param::page_size()
}

/// Which part of a gate is open for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// At most 1 MiB.
    Small,
    /// More.
    Large,
}

impl Size {
    /// Of a frame of this many bytes.
    pub fn of(frame_bytes: usize) -> Size {
        if frame_bytes <= SMALL_FRAME_BYTES_MAX { Size::Small } else { Size::Large }
    }
}

/// Both gates of a broker.
#[derive(Debug)]
pub struct RequestMemory {
    /// Bytes of requests that were not taken in yet.
    pub frames: Arc<Gate>,
    /// Bytes of decoded requests and unsent answers.
    pub decoded: Arc<Gate>,
    /// Bytes of large answers.
    pub answers: Arc<AnswerMemory>,
    /// Bytes of members of groups.
    pub members: Arc<SharedPool>,
    /// Bytes of committed offsets.
    pub offsets: Arc<SharedPool>,
    /// Places of requests that wait for a decision of the controller.
    decisions: Arc<Semaphore>,
    /// Resident bytes of the process after unused ones were last given back, without those of both pools.
    settled_bytes: AtomicUsize,
}

impl RequestMemory {
    /// `frames_max`: bytes of all frames; `frame_max`: bytes of the largest one, which must fit.
    pub fn new(frames_max: usize, frame_max: usize) -> RequestMemory {
        let kept = KEPT_BYTES.min(frames_max / 4).min(frames_max.saturating_sub(frame_max));
        RequestMemory {
            frames: Arc::new(Gate::new(frames_max, kept, 0)),
            decoded: Arc::new(Gate::new(DECODED_BYTES_MAX, DECODED_KEPT_BYTES, OVERDRAFT_BYTES)),
            answers: Arc::default(),
            members: Arc::new(SharedPool::new(MEMBER_BYTES_MAX, Content::Reclaimable)),
            offsets: Arc::new(SharedPool::new(OFFSET_BYTES_MAX, Content::Lasting)),
            decisions: Arc::new(Semaphore::new(DECISIONS_MAX)),
            settled_bytes: AtomicUsize::new(resident_bytes()),
        }
    }

    /// The same with these bounds of group memory: of members, of committed offsets.
    pub fn with_groups(self, members_max: usize, offsets_max: usize) -> RequestMemory {
        RequestMemory {
            members: Arc::new(SharedPool::new(members_max, Content::Reclaimable)),
            offsets: Arc::new(SharedPool::new(offsets_max, Content::Lasting)),
            ..self
        }
    }

    /// Waits for a place among the requests that wait for a decision of the controller. A request keeps its place although
    /// its connection ends.
    pub async fn decision_place(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.decisions).acquire_owned().await.ok()
    }

    /// Bytes of requests and answers.
    fn charged_bytes(&self) -> usize {
        self.frames.used_bytes() + self.decoded.used_bytes() + self.answers.used_bytes()
    }

    /// Bytes of group coordinators.
    fn pooled_bytes(&self) -> usize {
        self.members.used_bytes() + self.offsets.used_bytes()
    }

    /// Has the allocator give back to the system what it does not use, if there is much of it: a flood
    /// of requests leaves the heap full of holes. Takes milliseconds then.
    pub fn return_unused(&self) {
        let settled = self.settled_bytes.load(Ordering::Relaxed) + self.pooled_bytes();
        if resident_bytes() > settled + UNUSED_BYTES {
            heap::release_unused();
            self.settle(resident_bytes());
        }
    }

    /// Takes note of how large the process is without what it does not use. In the middle of a flood
    /// that says nothing: the flood's holes would count as used for ever.
    fn settle(&self, resident_bytes: usize) {
        if self.charged_bytes() <= QUIET_BYTES_MAX {
            let settled = resident_bytes.saturating_sub(self.pooled_bytes());
            self.settled_bytes.store(settled, Ordering::Relaxed);
        }
    }

    /// The same while a flood is on, so that the holes do not come on top of all that is charged.
    pub fn return_unused_in_need(&self) {
        self.return_unused_beside(0);
    }

    /// `untouched`: bytes that are charged and that the process does not have yet. They would hide as many that it has unused.
    fn return_unused_beside(&self, untouched: usize) {
        let settled = self.settled_bytes.load(Ordering::Relaxed) + self.pooled_bytes();
        let charged = self.charged_bytes();
        let used = settled + charged.saturating_sub(untouched);
        if resident_bytes() > used + UNUSED_IN_NEED_BYTES {
            heap::release_unused();
            self.settle(resident_bytes());
        }
    }

    /// To be called before a request is decoded that may take `bytes`, which are charged: the holes that earlier large ones
    /// left go back first. The threads of chores do the same every second, but chores wait for disks.
    pub fn make_room_for(&self, bytes: usize) {
        if bytes > UNUSED_BYTES {
            self.return_unused_beside(bytes);
        }
    }
}

/// Bytes that may be held at a time.
#[derive(Debug)]
pub struct Gate {
    bytes_max: usize,
    /// Not for large requests.
    kept_bytes: usize,
    /// Only for whoever has the pass.
    spare_bytes: usize,
    /// What the pass of large requests allows beyond all: a request is not decoded by halves.
    overdraft_bytes: usize,
    used_bytes: AtomicUsize,
    /// Whether the pass of small, of large requests is given away.
    passes: [AtomicBool; 2],
    /// Whether `waiting` may hold somebody.
    is_waited_for: AtomicBool,
    waiting: Mutex<VecDeque<Waker>>,
}

impl Gate {
    fn new(bytes_max: usize, kept_bytes: usize, overdraft_bytes: usize) -> Gate {
        Gate {
            bytes_max,
            kept_bytes,
            spare_bytes: kept_bytes / 8,
            overdraft_bytes,
            used_bytes: AtomicUsize::new(0),
            passes: Default::default(),
            is_waited_for: AtomicBool::new(false),
            waiting: Mutex::default(),
        }
    }

    /// A charge of nothing.
    pub fn charge(self: &Arc<Gate>) -> Charge {
        Charge { gate: Arc::clone(self), bytes: 0, pass: None }
    }

    /// Bytes held now.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that may be held.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Whether more than three quarters are held.
    pub fn is_under_pressure(&self) -> bool {
        self.used_bytes() > self.bytes_max / 4 * 3
    }

    /// Has `waker` woken when bytes are given back. It may be woken for nothing.
    pub fn wait(&self, waker: &Waker) {
        let mut waiting = self.waiting.lock();
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push_back(waker.clone());
        }
        self.is_waited_for.store(true, Ordering::SeqCst);
    }

    fn limit(&self, size: Size, has_pass: bool) -> usize {
        match (size, has_pass) {
            (Size::Small, true) => self.bytes_max,
            (Size::Small, false) => self.bytes_max - self.spare_bytes,
            (Size::Large, true) if self.overdraft_bytes > 0 => {
                self.bytes_max + self.overdraft_bytes
            }
            (Size::Large, true) => self.bytes_max - self.spare_bytes,
            (Size::Large, false) => self.bytes_max - self.kept_bytes,
        }
    }

    fn try_take(&self, bytes: usize, limit: usize) -> bool {
        let take = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::SeqCst);
        if self.is_waited_for.load(Ordering::SeqCst) {
            self.wake_waiting();
        }
    }

    #[cold]
    fn wake_waiting(&self) {
        let woken = {
            let mut waiting = self.waiting.lock();
            self.is_waited_for.store(false, Ordering::SeqCst);
            std::mem::take(&mut *waiting)
        };
        woken.into_iter().for_each(Waker::wake);
    }
}

/// Bytes that somebody holds of a gate; given back when dropped.
#[derive(Debug)]
pub struct Charge {
    gate: Arc<Gate>,
    bytes: usize,
    /// The pass, if this charge has one.
    pass: Option<Size>,
}

impl Charge {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Holds exactly `bytes` from now on, whether there is room or not.
    pub fn set(&mut self, bytes: usize) {
        match bytes.cmp(&self.bytes) {
            std::cmp::Ordering::Greater => {
                self.gate.used_bytes.fetch_add(bytes - self.bytes, Ordering::Relaxed);
            }
            std::cmp::Ordering::Less => self.gate.give_back(self.bytes - bytes),
            std::cmp::Ordering::Equal => {}
        }
        self.bytes = bytes;
        if bytes == 0 {
            self.return_pass();
        }
    }

    /// Holds `bytes` from now on if there is room for them.
    pub fn try_raise(&mut self, bytes: usize, size: Size) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return true;
        }
        let taken = self.gate.try_take(more, self.gate.limit(size, self.pass == Some(size)))
            || (self.take_pass(size) && self.gate.try_take(more, self.gate.limit(size, true)));
        if taken {
            self.bytes = bytes;
        }
        taken
    }

    fn take_pass(&mut self, size: Size) -> bool {
        if self.pass.is_some() || self.gate.passes[size as usize].swap(true, Ordering::AcqRel) {
            return false;
        }
        self.pass = Some(size);
        true
    }

    fn return_pass(&mut self) {
        if let Some(size) = self.pass.take() {
            self.gate.passes[size as usize].store(false, Ordering::Release);
            self.gate.wake_waiting();
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn frames() -> Arc<Gate> {
        RequestMemory::new(128 * MIB, 100 * MIB).frames
    }

    #[test]
    fn what_is_kept_for_small_frames_large_ones_do_not_get() {
        let gate = frames();
        let mut hogs: Vec<Charge> = (0..200).map(|_| gate.charge()).collect();
        let taken = hogs.iter_mut().filter_map(|hog| hog.try_raise(MIB, Size::Large).then_some(()));
        assert_eq!(taken.count(), 101, "100 MiB, and whoever has the pass");
        let mut small = gate.charge();
        assert!(small.try_raise(MIB, Size::Small));
        drop(hogs);
        assert_eq!(gate.used_bytes(), MIB);
    }

    #[test]
    fn in_the_middle_of_a_flood_the_process_has_not_settled() {
        let memory = RequestMemory::new(128 * MIB, 100 * MIB);
        let settled = || memory.settled_bytes.load(Ordering::Relaxed);
        memory.settle(50 * MIB);
        let mut flood = memory.frames.charge();
        assert!(flood.try_raise(QUIET_BYTES_MAX + 1, Size::Large));
        memory.settle(200 * MIB);
        assert_eq!(settled(), 50 * MIB, "what the flood leaves behind is given back after it");
        drop(flood);
        memory.settle(60 * MIB);
        assert_eq!(settled(), 60 * MIB);
    }

    /// Chores look every second, but wait for disks: the next large request finds no holes even if none has looked.
    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn what_earlier_large_requests_left_goes_back_before_the_next_is_decoded() {
        const BLOCK_BYTES: usize = 16 << 10;
        // The gate of frames is empty, but unused pages of the heap are charged to no request.
        let memory = RequestMemory::new(128 * MIB, 100 * MIB);
        let mut blocks: Vec<Option<Vec<u8>>> =
            (0..4608).map(|_| Some(vec![1; BLOCK_BYTES])).collect();
        // Every other one stays, so that the heap does not shrink by itself.
        blocks.iter_mut().step_by(2).for_each(|block| *block = None);
        let full = resident_bytes();
        memory.make_room_for(UNUSED_BYTES);
        let mut next = memory.decoded.charge();
        assert!(next.try_raise(64 * MIB, Size::Large));
        memory.make_room_for(next.bytes());
        let left = resident_bytes();
        // Tests beside this one may use some, too.
        assert!(left + 16 * MIB < full, "{full} bytes before, {left} after");
        assert_eq!(blocks.iter().flatten().count(), 2304);
    }

    #[test]
    fn frames_that_fill_the_gate_by_halves_do_not_stop_each_other_for_ever() {
        let gate = frames();
        let mut frames: Vec<Charge> = (0..256).map(|_| gate.charge()).collect();
        let halves = frames
            .iter_mut()
            .filter_map(|frame| frame.try_raise(MIB / 2, Size::Small).then_some(()));
        assert_eq!(halves.count(), 250, "all that there is room for");
        let mut whole = 0;
        while !frames.is_empty() {
            let before = frames.len();
            frames.retain_mut(|frame| !(frame.bytes > 0 && frame.try_raise(MIB, Size::Small)));
            whole += before - frames.len();
            for frame in frames.iter_mut().filter(|frame| frame.bytes == 0) {
                frame.try_raise(MIB / 2, Size::Small);
            }
            assert!(frames.len() < before, "{whole} became whole, {before} wait for each other");
        }
        assert_eq!(gate.used_bytes(), 0);
    }

    #[test]
    fn the_largest_request_is_decoded_beside_small_ones() {
        let gate = RequestMemory::new(128 * MIB, 100 * MIB).decoded;
        let mut small = gate.charge();
        assert!(small.try_raise(16 * MIB, Size::Small));
        let (mut first, mut second) = (gate.charge(), gate.charge());
        assert!(first.try_raise(64 * MIB, Size::Large));
        assert!(!second.try_raise(2 * MIB, Size::Large), "one at a time");
        drop(first);
        assert!(second.try_raise(64 * MIB, Size::Large));
    }

    #[test]
    fn who_waits_is_woken_by_what_is_given_back() {
        struct Flag(AtomicBool);
        impl std::task::Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let gate = frames();
        let mut hog = gate.charge();
        hog.set(128 * MIB);
        let mut late = gate.charge();
        assert!(!late.try_raise(1, Size::Small));
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        gate.wait(&Waker::from(Arc::clone(&flag)));
        drop(hog);
        assert!(flag.0.load(Ordering::SeqCst));
        assert!(late.try_raise(1, Size::Small));
    }
}
