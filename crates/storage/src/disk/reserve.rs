//! Descriptors: how many files are open, and a few that are held for the moment when none is left.
//!
//! A process may have so many files and connections open and no more. Connections are bounded so that
//! files have their share, but what must not fail for lack of a descriptor (syncing a directory,
//! replacing a small file) needs one for a moment only: then one of the reserve is given up, and taken
//! back afterwards.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

/// Descriptors that are held.
const HELD: usize = 16;

static HELD_NOW: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());
static OPEN_FILES: AtomicUsize = AtomicUsize::new(0);

/// Files of logs that this process has open now.
pub fn open_files() -> usize {
    OPEN_FILES.load(Ordering::Relaxed)
}

/// Counts an open file for as long as it lives.
#[derive(Debug)]
pub(super) struct Opened;

impl Opened {
    pub(super) fn new() -> Opened {
        OPEN_FILES.fetch_add(1, Ordering::Relaxed);
        Opened
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        OPEN_FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether the system refused for lack of a descriptor: that says nothing of the disk, and nothing was
/// done. Only calls that make descriptors fail so.
pub fn lacks_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
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
