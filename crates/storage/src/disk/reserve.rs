//! Descriptors: how many files are open and may be, and a few that are held for the moment when none is
//! left.
//!
//! A process may have so many files and connections open and no more. Connections are bounded, and so
//! are files of logs ([`bound_files`]): one more is refused as the system would refuse it, and whoever
//! can close idle ones is told ([`on_shortage`]) before it comes to that. What must not fail for lack
//! of a descriptor (syncing a directory, replacing a small file) needs one for a moment only: should
//! the system have none, one of the reserve is given up, and taken back afterwards.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
/// How long somebody waits who wants to open a file when so many are open as may be.
const ROOM_PATIENCE: Duration = Duration::from_millis(500);

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
pub(super) struct Opened(bool);

impl Opened {
    /// A file of a log. When so many are open as may be, waits a moment for another to be closed; fails
    /// then as the system does.
    pub(super) fn new() -> io::Result<Opened> {
        let has_room = try_count();
        if is_short() && RELIEF_WAITS.swap(false, Ordering::AcqRel) {
            RELIEF.lock().take().inspect(Waker::wake_by_ref);
        }
        if has_room || wait_for_room() { Ok(Opened(true)) } else { Err(Errno::MFILE.into()) }
    }

    /// A file that is not a log's, or must be opened whatever else is.
    pub(super) fn uncounted() -> Opened {
        Opened(false)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.0 {
            OPEN_FILES.fetch_sub(1, Ordering::SeqCst);
            if WAITING.load(Ordering::SeqCst) > 0 {
                let _seen = ROOM.0.lock();
                ROOM.1.notify_one();
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
