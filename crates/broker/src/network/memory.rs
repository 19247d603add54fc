//! What requests may cost in memory, all connections together: two gates of bytes, and a bound of their sum.
//!
//! - *Frames*: bytes of requests that have arrived and were not taken in yet
//!   (`queued.max.request.bytes`). Charged as they arrive, never as they are announced. The last part
//!   is kept for frames of at most 1 MiB, so that a few large ones stop nobody else's.
//! - *Decoded*: requests as the handlers see them, and answers that wait to be sent.
//!
//! Memory of group coordinators outlives requests: `shares.rs` bounds it.
//!
//! - *The sum* ([`RequestBound`], decision 0089): a large decoded request waits until frames have left, and large frames
//!   do not grow meanwhile.
//!
//! Whoever finds no room waits and is woken. That all wait for each other, each with half a frame, is
//! prevented by the *pass*: one frame of each size may use the last bytes of the gate.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answers::AnswerMemory;
use super::shares::{Content, SharedPool};
use crate::groups::GroupPools;

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
/// Part of the memory of committed offsets that their metadata may take.
const OFFSET_METADATA_PART: usize = 8;
/// Bytes of metadata of committed offsets at least, in a smaller memory.
const OFFSET_METADATA_MIN: usize = 4 << 20;
/// The largest request when it is decoded, in bytes.
const REQUEST_BYTES_MAX: usize = 64 << 20;
/// Bytes of the largest frame of an API other than Produce: frame and decoded request fit into the memory of all requests
/// together. The decoder refuses nearly every larger one, since strings alone exceed [`REQUEST_BYTES_MAX`].
pub const DECODED_FRAME_BYTES_MAX: usize = 60 << 20;
/// The least bound of frames and decoded requests together, in bytes, without the part that is kept for decoded ones.
const SUM_BYTES_MIN: usize = 104 << 20;
/// How long the demand of a large request keeps large frames from growing. Its connection renews it every [`RETRY`].
const DEMAND_VALID: Duration = Duration::from_secs(2);
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
    /// Bytes of metadata of committed offsets, which `offsets` contains.
    pub offset_metadata: Arc<SharedPool>,
    /// Places of requests that wait for a decision of the controller.
    decisions: Arc<Semaphore>,
    /// Resident bytes of the process after unused ones were last given back, without those of both pools.
    settled_bytes: AtomicUsize,
}

impl RequestMemory {
    /// `frames_max`: bytes of all frames; `frame_max`: bytes of the largest one, which must fit.
    pub fn new(frames_max: usize, frame_max: usize) -> RequestMemory {
        let frames_limits = GateLimits {
            bytes_max: frames_max,
            kept_bytes: KEPT_BYTES.min(frames_max / 4),
            // The largest frame fits with the pass.
            spare_bytes: (KEPT_BYTES.min(frames_max / 4) / 8)
                .min(frames_max.saturating_sub(frame_max)),
            overdraft_bytes: 0,
        };
        let decoded_limits = GateLimits {
            bytes_max: DECODED_BYTES_MAX,
            kept_bytes: DECODED_KEPT_BYTES,
            spare_bytes: DECODED_KEPT_BYTES / 8,
            overdraft_bytes: OVERDRAFT_BYTES,
        };
        let bound = Arc::new(RequestBound::new(&frames_limits));
        RequestMemory {
            frames: Arc::new(Gate::new(GateKind::Frames, frames_limits, &bound)),
            decoded: Arc::new(Gate::new(GateKind::Decoded, decoded_limits, &bound)),
            answers: Arc::default(),
            members: Arc::new(SharedPool::new(MEMBER_BYTES_MAX, Content::Reclaimable)),
            offsets: Arc::new(SharedPool::new(OFFSET_BYTES_MAX, Content::Lasting)),
            offset_metadata: metadata_pool(OFFSET_BYTES_MAX),
            decisions: Arc::new(Semaphore::new(DECISIONS_MAX)),
            settled_bytes: AtomicUsize::new(resident_bytes()),
        }
    }

    /// The same with these bounds of group memory: of members, of committed offsets.
    pub fn with_groups(self, members_max: usize, offsets_max: usize) -> RequestMemory {
        RequestMemory {
            members: Arc::new(SharedPool::new(members_max, Content::Reclaimable)),
            offsets: Arc::new(SharedPool::new(offsets_max, Content::Lasting)),
            offset_metadata: metadata_pool(offsets_max),
            ..self
        }
    }

    /// The pools of group coordinators.
    pub fn group_pools(&self) -> GroupPools {
        GroupPools {
            members: Arc::clone(&self.members),
            offsets: Arc::clone(&self.offsets),
            offset_metadata: Arc::clone(&self.offset_metadata),
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

/// Metadata of offsets in a pool of offsets of this size. Clients commit few bytes of it, and nothing that lasts is taken back.
fn metadata_pool(offsets_max: usize) -> Arc<SharedPool> {
    let metadata_max =
        (offsets_max / OFFSET_METADATA_PART).max(OFFSET_METADATA_MIN).min(offsets_max);
    Arc::new(SharedPool::new(metadata_max, Content::Lasting))
}

/// The content of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GateKind {
    Frames,
    Decoded,
}

/// The bounds of one gate, in bytes.
#[derive(Debug)]
struct GateLimits {
    bytes_max: usize,
    /// Not for large requests.
    kept_bytes: usize,
    /// Only for the holder of the pass.
    spare_bytes: usize,
    /// Bytes that the pass of large requests allows beyond all: a request is not decoded by halves.
    overdraft_bytes: usize,
}

/// The bound of frames and decoded requests together (decision 0089).
///
/// At least [`DECODED_KEPT_BYTES`] of it are for decoded requests, so that frames that do not become whole delay no small
/// request. A larger request demands its bytes: large frames do not grow until it has them, and the slowest of these
/// frames are given up.
#[derive(Debug)]
struct RequestBound {
    bytes_max: usize,
    /// Bytes that a large decoded request leaves to small frames.
    spare_bytes: usize,
    /// Bytes that other decoded requests leave to small frames.
    kept_bytes: usize,
    frame_bytes: AtomicUsize,
    /// Without unsent answers, which may exceed their gate.
    decoded_bytes: AtomicUsize,
    /// Bytes that the large request with the pass waits for, and the time of its last attempt.
    demand: Mutex<Option<(usize, Instant)>>,
}

impl RequestBound {
    fn new(frames: &GateLimits) -> RequestBound {
        RequestBound {
            bytes_max: frames.bytes_max.max(SUM_BYTES_MIN) + DECODED_KEPT_BYTES,
            spare_bytes: frames.spare_bytes,
            kept_bytes: frames.kept_bytes,
            frame_bytes: AtomicUsize::new(0),
            decoded_bytes: AtomicUsize::new(0),
            demand: Mutex::new(None),
        }
    }

    fn used_bytes(&self, kind: GateKind) -> &AtomicUsize {
        match kind {
            GateKind::Frames => &self.frame_bytes,
            GateKind::Decoded => &self.decoded_bytes,
        }
    }

    /// Bytes that a large request waits for.
    fn demanded_bytes(&self) -> usize {
        let demand = *self.demand.lock();
        demand.filter(|(_, at)| at.elapsed() < DEMAND_VALID).map_or(0, |(bytes, _)| bytes)
    }

    /// Bytes that decoded requests have, or may have at any time.
    fn decoded_or_kept_bytes(&self) -> usize {
        self.decoded_bytes.load(Ordering::Relaxed).max(DECODED_KEPT_BYTES)
    }

    /// Most bytes of all frames after one of this size has grown.
    fn frames_limit(&self, size: Size, has_pass: bool) -> usize {
        let beside = match size {
            Size::Small => self.decoded_or_kept_bytes(),
            Size::Large => {
                let decoded = self.decoded_bytes.load(Ordering::Relaxed);
                (decoded + self.demanded_bytes()).max(DECODED_KEPT_BYTES)
            }
        };
        let kept = match (size, has_pass) {
            (Size::Small, true) => 0,
            (Size::Small, false) | (Size::Large, true) => self.spare_bytes,
            (Size::Large, false) => self.kept_bytes,
        };
        self.bytes_max.saturating_sub(beside + kept)
    }

    /// Most bytes of all decoded requests after one of this size has been admitted.
    fn decoded_limit(&self, size: Size) -> usize {
        let kept = match size {
            Size::Small => self.kept_bytes,
            Size::Large => self.spare_bytes,
        };
        let frames = self.frame_bytes.load(Ordering::Relaxed);
        self.bytes_max.saturating_sub(frames + kept).max(DECODED_KEPT_BYTES)
    }

    fn is_under_pressure(&self) -> bool {
        let used = self.frame_bytes.load(Ordering::Relaxed) + self.decoded_or_kept_bytes();
        used + self.demanded_bytes() > self.bytes_max / 4 * 3
    }
}

/// Bytes that may be held at a time.
#[derive(Debug)]
pub struct Gate {
    kind: GateKind,
    limits: GateLimits,
    bound: Arc<RequestBound>,
    used_bytes: AtomicUsize,
    /// Whether the pass of small, of large requests is given away.
    passes: [AtomicBool; 2],
    /// Whether `waiting` may hold a waker.
    is_waited_for: AtomicBool,
    /// Connections that wait for this gate. Bytes that leave the other one do not wake them: they try again after
    /// [`RETRY`].
    waiting: Mutex<VecDeque<Waker>>,
}

impl Gate {
    fn new(kind: GateKind, limits: GateLimits, bound: &Arc<RequestBound>) -> Gate {
        Gate {
            kind,
            limits,
            bound: Arc::clone(bound),
            used_bytes: AtomicUsize::new(0),
            passes: Default::default(),
            is_waited_for: AtomicBool::new(false),
            waiting: Mutex::default(),
        }
    }

    /// A charge of nothing.
    pub fn charge(self: &Arc<Gate>) -> Charge {
        Charge { gate: Arc::clone(self), bytes: 0, pass: None, is_bounded: true }
    }

    /// A charge of nothing, of unsent answers: they exist whether there is room or not, and delay no frame.
    pub fn charge_of_answers(self: &Arc<Gate>) -> Charge {
        let mut charge = self.charge();
        charge.is_bounded = false;
        charge
    }

    /// Bytes held now.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that may be held.
    pub fn bytes_max(&self) -> usize {
        self.limits.bytes_max
    }

    /// Whether more than three quarters are held, of the gate or of the sum of both.
    pub fn is_under_pressure(&self) -> bool {
        self.used_bytes() > self.bytes_max() / 4 * 3 || self.bound.is_under_pressure()
    }

    /// Whether a connection waits for bytes. It tries again every [`RETRY`].
    pub fn is_waited_for(&self) -> bool {
        self.is_waited_for.load(Ordering::Relaxed)
    }

    /// Has `waker` woken when bytes are given back. It may be woken for nothing.
    pub fn wait(&self, waker: &Waker) {
        let mut waiting = self.waiting.lock();
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push_back(waker.clone());
        }
        self.is_waited_for.store(true, Ordering::SeqCst);
    }

    /// Most bytes of the gate itself.
    fn own_limit(&self, size: Size, has_pass: bool) -> usize {
        let GateLimits { bytes_max, kept_bytes, spare_bytes, overdraft_bytes } = self.limits;
        match (size, has_pass) {
            (Size::Small, true) => bytes_max,
            (Size::Small, false) => bytes_max - spare_bytes,
            (Size::Large, true) if overdraft_bytes > 0 => bytes_max + overdraft_bytes,
            (Size::Large, true) => bytes_max - spare_bytes,
            (Size::Large, false) => bytes_max - kept_bytes,
        }
    }

    /// Most bytes of the gate beside the other one.
    fn shared_limit(&self, size: Size, has_pass: bool) -> usize {
        match self.kind {
            GateKind::Frames => self.bound.frames_limit(size, has_pass),
            GateKind::Decoded => self.bound.decoded_limit(size),
        }
    }

    /// Takes bytes of the gate and of the bound of both, or of neither. Threads that take bytes of both gates at the same
    /// time may exceed the bound by one step each.
    fn try_take(&self, bytes: usize, size: Size, has_pass: bool) -> bool {
        let in_bound = self.bound.used_bytes(self.kind);
        if in_bound.load(Ordering::Relaxed) + bytes > self.shared_limit(size, has_pass) {
            return false;
        }
        let limit = self.own_limit(size, has_pass);
        let take = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
        if self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return false;
        }
        in_bound.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    fn give_back(&self, bytes: usize, is_bounded: bool) {
        self.used_bytes.fetch_sub(bytes, Ordering::SeqCst);
        if is_bounded {
            self.bound.used_bytes(self.kind).fetch_sub(bytes, Ordering::SeqCst);
        }
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
    /// Whether it counts in the bound of both gates.
    is_bounded: bool,
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
                let more = bytes - self.bytes;
                self.gate.used_bytes.fetch_add(more, Ordering::Relaxed);
                if self.is_bounded {
                    let in_bound = self.gate.bound.used_bytes(self.gate.kind);
                    in_bound.fetch_add(more, Ordering::Relaxed);
                }
            }
            std::cmp::Ordering::Less => {
                self.gate.give_back(self.bytes - bytes, self.is_bounded);
            }
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
        let taken = self.gate.try_take(more, size, self.pass == Some(size))
            || (self.take_pass(size) && self.gate.try_take(more, size, true));
        if taken {
            self.bytes = bytes;
        }
        if self.gate.kind == GateKind::Decoded {
            self.note_demand(more, taken);
        }
        taken
    }

    /// Records the demand of a large request with the pass, or its end. A request that was not admitted is charged again
    /// later: its pass returns without a wake-up, since two requests that wait would wake each other all the time.
    fn note_demand(&mut self, more: usize, taken: bool) {
        if self.pass == Some(Size::Large) {
            *self.gate.bound.demand.lock() = (!taken).then(|| (more, Instant::now()));
        }
        if let Some(size) = self.pass.filter(|_| !taken && self.bytes == 0) {
            self.pass = None;
            self.gate.passes[size as usize].store(false, Ordering::Release);
        }
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
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;

    const MIB: usize = 1 << 20;

    fn frames() -> Arc<Gate> {
        RequestMemory::new(128 * MIB, 100 * MIB).frames
    }

    /// The output of a future that is ready.
    fn poll_once<F: Future>(future: &mut Pin<Box<F>>) -> Option<F::Output> {
        let mut context = Context::from_waker(Waker::noop());
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_request_waits_for_a_place_while_256_others_wait_for_decisions() {
        let memory = RequestMemory::new(128 * MIB, 100 * MIB);
        let place = || Box::pin(memory.decision_place());
        let mut places: Vec<_> = (0..256).map(|_| poll_once(&mut place()).unwrap()).collect();
        let mut next = place();
        assert!(poll_once(&mut next).is_none());
        places.pop();
        assert!(poll_once(&mut next).is_some());
    }

    #[test]
    fn what_is_kept_for_small_frames_large_ones_do_not_get() {
        let gate = frames();
        let mut hogs: Vec<Charge> = (0..200).map(|_| gate.charge()).collect();
        let taken = hogs.iter_mut().filter_map(|hog| hog.try_raise(MIB, Size::Large).then_some(()));
        assert_eq!(taken.count(), 97, "96 MiB, and one more with the pass");
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
        assert_eq!(halves.count(), 249, "all that there is room for");
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

    /// The most that frames and decoded requests hold together by default, in MiB.
    const SUM_MIB_MAX: usize = 128;

    fn by_default() -> RequestMemory {
        RequestMemory::new(104 * MIB, 100 * MIB)
    }

    /// Raises charges of one gate by 1 MiB each until none can grow.
    fn fill(charges: &mut [Charge], size: Size) {
        while charges.iter_mut().any(|charge| charge.try_raise(charge.bytes + MIB, size)) {}
    }

    #[test]
    fn frames_and_decoded_requests_together_keep_one_bound() {
        for sizes in [[Size::Small, Size::Large], [Size::Large, Size::Small]] {
            for frames_first in [true, false] {
                let memory = by_default();
                let charges = |gate: &Arc<Gate>| [gate.charge(), gate.charge(), gate.charge()];
                let (mut frames, mut decoded) = (charges(&memory.frames), charges(&memory.decoded));
                let gates = if frames_first { [true, false] } else { [false, true] };
                for is_frames in gates {
                    let charges = if is_frames { &mut frames } else { &mut decoded };
                    sizes.iter().for_each(|size| fill(charges, *size));
                }
                let used = [&memory.frames, &memory.decoded].map(|gate| gate.used_bytes() / MIB);
                assert!(used[0] + used[1] <= SUM_MIB_MAX, "{used:?} MiB of frames and decoded");
                assert!(used[1] >= 23, "{used:?}: decoded requests keep their part");
            }
        }
    }

    #[test]
    fn a_large_request_waits_for_frames_that_do_not_grow_meanwhile() {
        let memory = by_default();
        let mut dripping = [memory.frames.charge(), memory.frames.charge()];
        let whole = 4 * MIB;
        assert!(dripping[1].try_raise(whole, Size::Large));
        fill(&mut dripping[..1], Size::Large);
        let try_decode = || {
            let mut charge = memory.decoded.charge();
            charge.try_raise(REQUEST_BYTES_MAX, Size::Large).then_some(charge)
        };
        assert!(try_decode().is_none(), "{} bytes of frames", memory.frames.used_bytes());
        assert!(memory.frames.is_under_pressure(), "the slowest frame is given up");
        assert!(!dripping[1].try_raise(whole + MIB, Size::Large), "a large frame grows");
        let (mut small, mut decoded) = (memory.frames.charge(), memory.decoded.charge());
        assert!(small.try_raise(MIB, Size::Small) && decoded.try_raise(MIB, Size::Small));
        drop(decoded);
        // The slowest one is given up.
        dripping[0].set(0);
        let large = try_decode().expect("frames have left");
        assert!(dripping[1].try_raise(whole + MIB, Size::Large), "there is room again");
        fill(&mut dripping, Size::Large);
        assert!(small.try_raise(2 * MIB, Size::Small), "large frames leave a part to small ones");
        let used = (memory.frames.used_bytes() + memory.decoded.used_bytes()) / MIB;
        assert!(used <= SUM_MIB_MAX, "{used} MiB");
        drop(large);
    }

    #[test]
    fn the_largest_frame_is_decoded_beside_the_part_of_small_requests() {
        let memory = by_default();
        let (mut frame, mut small) = (memory.frames.charge(), memory.frames.charge());
        assert!(small.try_raise(MIB / 2, Size::Small));
        assert!(frame.try_raise(DECODED_FRAME_BYTES_MAX, Size::Large));
        assert!(memory.decoded.charge().try_raise(REQUEST_BYTES_MAX, Size::Large));
        frame.set(0);
        assert!(frame.try_raise(100 * MIB, Size::Large), "the largest batch arrives");
    }

    #[test]
    fn unsent_answers_delay_no_frame() {
        let memory = by_default();
        let mut answers = memory.decoded.charge_of_answers();
        answers.set(500 * MIB);
        assert!(memory.frames.charge().try_raise(100 * MIB, Size::Large));
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
