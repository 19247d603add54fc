//! Descriptors: how many files are open and may be, and a few that are held for the moment when none is
//! left.
//!
//! A process may have so many files and connections open and no more. Connections are bounded, and so
//! are files of logs ([`bound_files`]): one more is refused as the system would refuse it, and the thread
//! that closes idle ones is told ([`on_shortage`]) before that. A task that may not wait on the spot
//! ([`at_once`]) is woken when a file was closed ([`on_room`]); that must be a file which was open before
//! the task tried, or two tasks that cannot go on would wake each other for ever. What must not fail for lack
//! of a descriptor (syncing a directory, replacing a small file) needs one for a moment only: should
//! the system have none, one of the reserve is given up, and taken back afterwards.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Descriptors that are held.
const HELD: usize = 16;

static HELD_NOW: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());
static OPEN_FILES: AtomicUsize = AtomicUsize::new(0);
static FILES_MAX: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Told once when files get scarce; whoever closed some registers anew.
static RELIEF: Mutex<Option<Waker>> = Mutex::new(None);
static RELIEF_WAITS: AtomicBool = AtomicBool::new(false);
/// For those who wait until a file is closed; how many do.
static ROOM: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Files that were closed so far, as far as that is told ([`closings`]).
static CLOSINGS: AtomicU64 = AtomicU64::new(0);
/// Tasks that are woken, each once, when a file is closed; how many there are.
static PUT_OFF: Mutex<VecDeque<Waker>> = Mutex::new(VecDeque::new());
static PUT_OFF_COUNT: AtomicUsize = AtomicUsize::new(0);
/// How long somebody waits who wants to open a file when so many are open as may be.
const ROOM_PATIENCE: Duration = Duration::from_millis(500);

thread_local! {
    /// Whether this thread waits for no file to be closed.
    static AT_ONCE: Cell<bool> = const { Cell::new(false) };
}

/// Does `work`, in which this thread opens files or is refused at once: a thread that serves many
/// connections must not wait for one of them.
pub fn at_once<T>(work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            AT_ONCE.set(self.0);
        }
    }
    let _before = Before(AT_ONCE.replace(true));
    work()
}

/// How many files of logs were closed so far. To be asked before a file is opened, for [`on_room`].
///
/// A file that was closed in [`at_once`] does not count: the same work may have opened it, and failed at
/// the next one.
pub fn closings() -> u64 {
    CLOSINGS.load(Ordering::SeqCst)
}

/// Has `waker` woken, once, when a file of a log was closed and the tasks that asked earlier were woken;
/// at once if one was closed since there had been `before` of [`closings`]. Being woken is no promise:
/// another task may be quicker, and the system may refuse though fewer files are open than may be. Nor
/// is it certain: a task that asked earlier may have gone. So the caller looks again of its own accord, too.
pub fn on_room(waker: &Waker, before: u64) {
    {
        let mut put_off = PUT_OFF.lock();
        if !put_off.iter().any(|other| other.will_wake(waker)) {
            put_off.push_back(waker.clone());
        }
        PUT_OFF_COUNT.store(put_off.len(), Ordering::SeqCst);
    }
    // What was closed before is not told any more.
    if closings() != before {
        waker.wake_by_ref();
    }
}

/// Wakes the task that was put off first.
fn wake_put_off() {
    let first = {
        let mut put_off = PUT_OFF.lock();
        let first = put_off.pop_front();
        PUT_OFF_COUNT.store(put_off.len(), Ordering::SeqCst);
        first
    };
    if let Some(waker) = first {
        waker.wake();
    }
}

/// Files of logs that this process has open now.
pub fn open_files() -> usize {
    OPEN_FILES.load(Ordering::Relaxed)
}

/// How many files of logs may be open from now on. Those that are open above it stay.
pub fn bound_files(max: usize) {
    FILES_MAX.store(max, Ordering::Relaxed);
}

/// Whether more than half of the files that may be open are: what is not needed soon is closed.
pub fn is_half_used() -> bool {
    open_files() > FILES_MAX.load(Ordering::Relaxed) / 2
}

/// Whether more than three quarters of the files that may be open are.
pub fn is_short() -> bool {
    let max = FILES_MAX.load(Ordering::Relaxed);
    open_files() > max - max / 4
}

/// Has `waker` woken, once, when a file is opened while [`is_short`], or refused.
pub fn on_shortage(waker: Waker) {
    *RELIEF.lock() = Some(waker);
    RELIEF_WAITS.store(true, Ordering::Release);
}

/// Counts an open file for as long as it lives.
#[derive(Debug)]
pub(super) struct Opened {
    /// Whether it counts among the files of logs.
    is_counted: bool,
    /// Whether the system has opened it.
    is_open: bool,
}

impl Opened {
    /// A file of a log. When so many are open as may be, waits a moment for another to be closed, unless
    /// called in [`at_once`]; fails then as the system does.
    pub(super) fn new() -> io::Result<Opened> {
        let has_room = try_count();
        if is_short() && RELIEF_WAITS.swap(false, Ordering::AcqRel) {
            RELIEF.lock().take().inspect(Waker::wake_by_ref);
        }
        let has_room = has_room || (!AT_ONCE.get() && wait_for_room());
        match has_room {
            true => Ok(Opened { is_counted: true, is_open: false }),
            false => Err(Errno::MFILE.into()),
        }
    }

    /// A file that is not a log's, or must be opened whatever else is.
    pub(super) fn uncounted() -> Opened {
        Opened { is_counted: false, is_open: false }
    }

    /// The system has opened the file: tasks are told when it is closed.
    pub(super) fn was_opened(mut self) -> Opened {
        self.is_open = true;
        self
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        OPEN_FILES.fetch_sub(1, Ordering::SeqCst);
        // A thread that waits takes the place, and does not come again if the system refuses.
        if WAITING.load(Ordering::SeqCst) > 0 {
            let _seen = ROOM.0.lock();
            ROOM.1.notify_one();
        }
        if self.is_open && !AT_ONCE.get() {
            CLOSINGS.fetch_add(1, Ordering::SeqCst);
            if PUT_OFF_COUNT.load(Ordering::SeqCst) > 0 {
                wake_put_off();
            }
        }
    }
}

/// Counts one more file, if it may be opened.
fn try_count() -> bool {
    let max = FILES_MAX.load(Ordering::Relaxed);
    let more = |open: usize| (open < max).then_some(open + 1);
    OPEN_FILES.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
}

fn wait_for_room() -> bool {
    let deadline = Instant::now() + ROOM_PATIENCE;
    let mut waiting = ROOM.0.lock();
    WAITING.fetch_add(1, Ordering::SeqCst);
    let has_room = loop {
        if try_count() {
            break true;
        }
        if ROOM.1.wait_until(&mut waiting, deadline).timed_out() {
            break try_count();
        }
    };
    WAITING.fetch_sub(1, Ordering::SeqCst);
    has_room
}

/// Descriptors that this process has now, those held here included; `None` where the system does not tell.
pub fn descriptors_in_use() -> Option<usize> {
    let listed = lend(|| std::fs::read_dir("/proc/self/fd")).ok()?;
    // One of them is that of the listing.
    Some(listed.count().saturating_sub(1))
}

/// Whether the system refused for lack of a descriptor: that says nothing of the disk, and nothing was
/// done. Only calls that make descriptors fail so.
pub fn lacks_descriptors(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(|errno| matches!(errno, Errno::MFILE | Errno::NFILE))
}

/// Takes descriptors into the reserve until it is full. Returns how many are held; fewer than
/// sixteen where the system gives no more.
pub fn fill() -> usize {
    let mut held = HELD_NOW.lock();
    while held.len() < HELD {
        match rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(descriptor) => held.push(descriptor),
            Err(_) => break,
        }
    }
    held.len()
}

/// Does what needs a descriptor for a moment; if there is none, at the cost of the reserve.
pub(super) fn lend<T>(operation: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let mut gave_up = false;
    loop {
        match operation() {
            Err(error) if lacks_descriptors(&error) => {
                // Dropped, and so closed, before the operation is tried again.
                match HELD_NOW.lock().pop() {
                    Some(_) => gave_up = true,
                    None => return Err(error),
                }
            }
            result => {
                if gave_up {
                    fill();
                }
                return result;
            }
        }
    }
}
