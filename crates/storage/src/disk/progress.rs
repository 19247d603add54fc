//! How much some threads have begun on disks. Whoever looks at the number now and then sees whether they get on, however much
//! they have to do, or wait for a device that does not answer.
//!
//! Every operation that `guard.rs` watches counts, when it begins: the one before has ended then.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Operations that were begun by all threads that count into it.
#[derive(Debug, Default)]
pub struct Progress(AtomicU64);

impl Progress {
    /// How many so far.
    pub fn begun(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

thread_local! {
    /// What this thread counts into.
    static COUNTED: RefCell<Option<Arc<Progress>>> = const { RefCell::new(None) };
}

/// Held as long as the thread counts. Bound to the thread.
#[derive(Debug)]
#[must_use = "counting ends when this is dropped"]
pub struct Counting {
    before: Option<Arc<Progress>>,
    _bound: PhantomData<*const ()>,
}

/// Counts into `progress` what this thread begins on disks from now on. `None`: nothing is counted.
pub fn count(progress: Option<Arc<Progress>>) -> Counting {
    let before = COUNTED.with(|counted| counted.replace(progress));
    Counting { before, _bound: PhantomData }
}

/// What this thread counts into, for the threads that it starts to help it.
pub fn counted() -> Option<Arc<Progress>> {
    COUNTED.with(|counted| counted.borrow().clone())
}

impl Drop for Counting {
    fn drop(&mut self) {
        let before = self.before.take();
        // A thread that ends may have none any more.
        let _ = COUNTED.try_with(|counted| counted.replace(before));
    }
}

/// This thread begins an operation.
#[inline]
pub(super) fn note() {
    let _ = COUNTED.try_with(|counted| {
        if let Some(progress) = &*counted.borrow() {
            progress.0.fetch_add(1, Ordering::Relaxed);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::{Disk, OpenMode, RealDisk, SimDisk};

    fn three_operations(disk: &dyn Disk, dir: &Path) {
        let file = disk.open(&dir.join("f"), OpenMode::Create).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        file.sync().unwrap();
    }

    fn what_a_thread_begins_is_counted(disk: &dyn Disk, dir: &Path) {
        let progress = Arc::new(Progress::default());
        three_operations(disk, dir);
        let counting = count(Some(Arc::clone(&progress)));
        three_operations(disk, dir);
        assert_eq!(progress.begun(), 3);
        let helped = counted();
        std::thread::scope(|scope| {
            scope.spawn(|| three_operations(disk, dir));
            scope.spawn(|| {
                let _counting = count(helped);
                three_operations(disk, dir);
            });
        });
        assert_eq!(progress.begun(), 6, "of the two threads only the one that was told to counts");
        let other = count(None);
        three_operations(disk, dir);
        drop(other);
        three_operations(disk, dir);
        drop(counting);
        three_operations(disk, dir);
        assert_eq!(progress.begun(), 9);
    }

    #[test]
    fn what_a_thread_begins_on_the_simulated_disk_is_counted_while_it_counts() {
        what_a_thread_begins_is_counted(&SimDisk::new(), Path::new(""));
    }

    #[test]
    fn what_a_thread_begins_on_the_machines_disk_is_counted_while_it_counts() {
        let dir = tempfile::tempdir().unwrap();
        what_a_thread_begins_is_counted(&RealDisk, dir.path());
    }
}
