//! A watch in debug builds over what is done while a partition is locked: nothing that waits for a
//! device. Every append and every read of a partition waits for its lock, on threads that serve all
//! other partitions too, so one slow directory would hold up everybody.
//!
//! Whoever takes the lock says so with [`locked`]; the disks check before they open, create, read,
//! write, list, rename, remove or sync. The one exception is [`append_writes`].

use std::cell::Cell;
use std::marker::PhantomData;
use std::path::Path;

use super::progress;

thread_local! {
    /// Locks that this thread holds.
    static LOCKED: Cell<u32> = const { Cell::new(0) };
    /// Exceptions in force on this thread.
    static EXCEPTED: Cell<u32> = const { Cell::new(0) };
}

/// Held as long as the lock is. Bound to the thread.
#[derive(Debug)]
#[must_use = "the watch ends when this is dropped"]
pub struct Locked(PhantomData<*const ()>);

/// Held as long as the exception lasts. Bound to the thread.
#[derive(Debug)]
#[must_use = "the exception ends when this is dropped"]
pub struct Excepted(PhantomData<*const ()>);

/// This thread holds a partition's lock from now on.
pub fn locked() -> Locked {
    if cfg!(debug_assertions) {
        LOCKED.with(|count| count.set(count.get() + 1));
    }
    Locked(PhantomData)
}

/// An append writes its batches at the end of the active segment, or a marker's entry into the index of
/// aborted transactions. The lock is what orders the appends, and a write goes to the page cache.
pub(crate) fn append_writes() -> Excepted {
    if cfg!(debug_assertions) {
        EXCEPTED.with(|count| count.set(count.get() + 1));
    }
    Excepted(PhantomData)
}

impl Drop for Locked {
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            LOCKED.with(|count| count.set(count.get() - 1));
        }
    }
}

impl Drop for Excepted {
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            EXCEPTED.with(|count| count.set(count.get() - 1));
        }
    }
}

/// An operation begins: it counts ([`progress`]). Panics in a debug build if this thread holds a partition's lock.
#[inline]
#[track_caller]
pub(super) fn check(operation: &str, path: &Path) {
    progress::note();
    if cfg!(debug_assertions) {
        let is_locked = LOCKED.with(Cell::get) > 0 && EXCEPTED.with(Cell::get) == 0;
        assert!(
            !is_locked,
            "{operation} of {} while a partition is locked: everybody who appends to the partition or reads it \
             would wait for the device; do this before or after, without the lock",
            path.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, OpenMode, RealDisk, SimDisk};

    fn panics(operation: impl FnOnce()) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(operation)).is_err()
    }

    fn each_operation_is_watched(disk: &dyn Disk, dir: &Path) {
        let (path, other) = (dir.join("f"), dir.join("g"));
        let file = disk.open(&path, OpenMode::Create).unwrap();
        let attempts: [(&str, &dyn Fn()); 13] = [
            ("open", &|| drop(disk.open(&path, OpenMode::Read))),
            ("create", &|| drop(disk.open(&other, OpenMode::CreateNew))),
            ("read a file", &|| drop(disk.read(&path))),
            ("list", &|| drop(disk.list(dir))),
            ("size", &|| drop(disk.size(&path))),
            ("make a directory", &|| drop(disk.create_dir_all(&dir.join("d")))),
            ("rename", &|| drop(disk.rename(&path, &other))),
            ("remove", &|| drop(disk.remove_file(&path))),
            ("sync names", &|| drop(disk.sync_dir(dir))),
            ("write", &|| drop(file.write_all_at(b"x", 0))),
            ("read", &|| drop(file.read_at(&mut [0], 0))),
            ("truncate", &|| drop(file.truncate(0))),
            ("sync", &|| drop(file.sync())),
        ];
        for (name, attempt) in attempts {
            let lock = locked();
            assert_eq!(panics(attempt), cfg!(debug_assertions), "{name} under the lock");
            drop(lock);
        }
        let lock = locked();
        let excepted = append_writes();
        file.write_all_at(b"x", 0).unwrap();
        drop((excepted, lock));
        assert_eq!(disk.read(&path).unwrap(), b"x", "nothing is watched without the lock");
    }

    #[test]
    fn a_lock_forbids_the_simulated_disk() {
        each_operation_is_watched(&SimDisk::new(), Path::new(""));
    }

    #[test]
    fn a_lock_forbids_the_machines_disk() {
        let dir = tempfile::tempdir().unwrap();
        each_operation_is_watched(&RealDisk, dir.path());
    }

    #[test]
    fn another_threads_lock_forbids_nothing() {
        let _lock = locked();
        let other = std::thread::spawn(|| SimDisk::new().open(Path::new("f"), OpenMode::Create));
        assert!(other.join().unwrap().is_ok());
    }
}
