//! A disk that knows the age of its oldest unfinished write or sync, for each log directory. The creation of a file or folder
//! counts as a write.
//!
//! A device that hangs ends no operation and reports no error. The age is readable without a lock and without the device.
//! Files of a compaction are not counted: syncing them takes long on a healthy device, and no request waits for them.

use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use model::Timestamp;

use super::{Disk, DiskFile, FileLock, OpenMode};
use crate::names::CLEANED;

/// Operations that are counted at a time. Further ones run uncounted.
const SLOTS: usize = 64;
/// Bit of a slot: the operation is a sync.
const IS_SYNC: u64 = 1;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Slot that this thread tries first: threads seldom share a cache line then.
    static FIRST_SLOT: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed) % SLOTS);
}

/// Begin times of the unfinished writes and syncs in one log directory.
#[derive(Debug)]
pub struct OperationAges {
    opened_at: Instant,
    /// Begin of an operation, in microseconds since `opened_at` plus one, times two; plus one for a sync. Zero: free.
    slots: [AtomicU64; SLOTS],
    /// End of the last operation, in microseconds since `opened_at`.
    ended_at: AtomicU64,
}

impl Default for OperationAges {
    fn default() -> OperationAges {
        OperationAges {
            opened_at: Instant::now(),
            slots: [const { AtomicU64::new(0) }; SLOTS],
            ended_at: AtomicU64::new(0),
        }
    }
}

impl OperationAges {
    /// Age of the oldest unfinished operation; zero if there is none.
    pub fn oldest(&self) -> Duration {
        self.oldest_of(|_| true)
    }

    /// Age of the oldest unfinished operation other than a sync; zero without one. A write that is that old holds its
    /// thread: it ends in the page cache of a healthy system, also while the device is slow.
    pub fn oldest_write(&self) -> Duration {
        self.oldest_of(|slot| slot & IS_SYNC == 0)
    }

    fn oldest_of(&self, counts: impl Fn(u64) -> bool) -> Duration {
        let slots = self.slots.iter().map(|slot| slot.load(Ordering::Relaxed));
        let oldest = slots.filter(|slot| *slot > 0 && counts(*slot)).min();
        let age = |slot| self.opened_at.elapsed().saturating_sub(Duration::from_micros(slot >> 1));
        oldest.map_or(Duration::ZERO, age)
    }

    /// Time since an operation last ended; since the directory was opened, if none has.
    pub fn last_ended(&self) -> Duration {
        let ended_at = Duration::from_micros(self.ended_at.load(Ordering::Relaxed));
        self.opened_at.elapsed().saturating_sub(ended_at)
    }

    /// Counts a write until the result is dropped. Its end shows that the device works.
    fn begin(&self) -> UnfinishedOperation<'_> {
        self.count(true, 0)
    }

    /// Counts a sync. Its end shows that the device works.
    fn begin_sync(&self) -> UnfinishedOperation<'_> {
        self.count(true, IS_SYNC)
    }

    /// Counts an operation that may end without the device, such as the creation of a file.
    fn begin_cached(&self) -> UnfinishedOperation<'_> {
        self.count(false, 0)
    }

    fn count(&self, is_proof: bool, kind: u64) -> UnfinishedOperation<'_> {
        let now = ((self.opened_at.elapsed().as_micros() as u64 + 1) << 1) | kind;
        let first = FIRST_SLOT.get();
        let slots = (0..SLOTS).map(|at| &self.slots[(first + at) % SLOTS]);
        let take = |slot: &&AtomicU64| {
            slot.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        UnfinishedOperation { ages: self, slot: slots.into_iter().find(take), is_proof }
    }
}

struct UnfinishedOperation<'a> {
    ages: &'a OperationAges,
    slot: Option<&'a AtomicU64>,
    /// Whether its end counts as the end of an operation on the device.
    is_proof: bool,
}

impl Drop for UnfinishedOperation<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            slot.store(0, Ordering::Relaxed);
        }
        if self.is_proof {
            let now = self.ages.opened_at.elapsed().as_micros() as u64;
            self.ages.ended_at.store(now, Ordering::Relaxed);
        }
    }
}

/// Another disk whose unfinished operations are counted by log directory.
#[derive(Clone, Debug)]
pub struct TimedDisk {
    disk: Arc<dyn Disk>,
    directories: Arc<[(PathBuf, Arc<OperationAges>)]>,
}

impl TimedDisk {
    /// Counts operations below each of these log directories.
    pub fn new(disk: Arc<dyn Disk>, directories: &[PathBuf]) -> TimedDisk {
        let of = |path: &PathBuf| (path.clone(), Arc::default());
        TimedDisk { disk, directories: directories.iter().map(of).collect() }
    }

    /// Ages of the operations in a log directory that was named to [`TimedDisk::new`].
    pub fn ages_in(&self, directory: &Path) -> Option<Arc<OperationAges>> {
        let mut directories = self.directories.iter();
        directories.find(|(path, _)| path == directory).map(|(_, ages)| Arc::clone(ages))
    }

    /// Ages of the directory that a path is in; `None` for a path elsewhere or of a compaction.
    fn ages_of(&self, path: &Path) -> Option<&Arc<OperationAges>> {
        if path.to_string_lossy().ends_with(CLEANED) {
            return None;
        }
        let mut directories = self.directories.iter();
        directories.find(|(root, _)| path.starts_with(root)).map(|(_, ages)| ages)
    }

    fn begin_sync(&self, path: &Path) -> Option<UnfinishedOperation<'_>> {
        self.ages_of(path).map(|ages| ages.begin_sync())
    }

    fn begin_cached(&self, path: &Path) -> Option<UnfinishedOperation<'_>> {
        self.ages_of(path).map(|ages| ages.begin_cached())
    }

    fn timed(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        match self.ages_of(path) {
            Some(ages) => Arc::new(TimedFile { file, ages: Arc::clone(ages) }),
            None => file,
        }
    }
}

impl Disk for TimedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let _operation = self.begin_cached(path);
        Ok(self.timed(path, self.disk.open(path, mode)?))
    }

    fn open_essential(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let _operation = self.begin_cached(path);
        Ok(self.timed(path, self.disk.open_essential(path, mode)?))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.disk.read(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        self.disk.size(path)
    }

    fn modified(&self, path: &Path) -> io::Result<Timestamp> {
        self.disk.modified(path)
    }

    fn set_modified(&self, path: &Path, time: Timestamp) -> io::Result<()> {
        let _operation = self.begin_cached(path);
        self.disk.set_modified(path, time)
    }

    fn exists(&self, path: &Path) -> bool {
        self.disk.exists(path)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let _operation = self.begin_cached(dir);
        self.disk.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _operation = self.begin_cached(to);
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir_all(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<FileLock>> {
        self.disk.lock(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let _operation = self.ages_of(dir).map(|ages| ages.count(false, IS_SYNC));
        self.disk.sync_dir(dir)
    }

    fn sync_all_below(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_all_below(dir)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let _operation = self.begin_sync(path);
        self.disk.sync_file(path)
    }

    fn write_synced(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let _operation = self.begin_sync(path);
        self.disk.write_synced(path, bytes)
    }
}

#[derive(Debug)]
struct TimedFile {
    file: Arc<dyn DiskFile>,
    ages: Arc<OperationAges>,
}

impl DiskFile for TimedFile {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let _operation = self.ages.begin();
        self.file.write_all_at(bytes, position)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        let _operation = self.ages.begin_cached();
        self.file.truncate(size)
    }

    fn sync(&self) -> io::Result<()> {
        let _operation = self.ages.begin_sync();
        self.file.sync()
    }

    fn preallocate(&self, from: u64, bytes: u64) -> io::Result<()> {
        let _operation = self.ages.begin_cached();
        self.file.preallocate(from, bytes)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::SimDisk;
    use super::*;

    #[test]
    fn an_unfinished_operation_ages_until_it_ends() {
        let ages = OperationAges::default();
        assert_eq!(ages.oldest(), Duration::ZERO);
        let first = ages.begin();
        let second = ages.begin();
        while ages.oldest() < Duration::from_millis(2) {
            std::thread::yield_now();
        }
        let third = ages.begin();
        drop(first);
        assert!(ages.oldest() >= Duration::from_millis(2), "the second one is as old");
        drop((second, third));
        assert_eq!(ages.oldest(), Duration::ZERO);
    }

    #[test]
    fn a_sync_that_hangs_is_no_write_that_hangs() {
        let ages = OperationAges::default();
        let sync = ages.begin_sync();
        while ages.oldest() < Duration::from_millis(2) {
            std::thread::yield_now();
        }
        assert_eq!(ages.oldest_write(), Duration::ZERO);
        let write = ages.begin();
        while ages.oldest_write() < Duration::from_millis(2) {
            std::thread::yield_now();
        }
        assert!(ages.oldest() >= ages.oldest_write());
        drop(sync);
        assert!(ages.oldest_write() >= Duration::from_millis(2));
        drop(write);
        assert_eq!((ages.oldest(), ages.oldest_write()), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn more_operations_than_slots_run_uncounted() {
        let ages = OperationAges::default();
        let many: Vec<_> = (0..SLOTS + 3).map(|_| ages.begin()).collect();
        assert_eq!(many.iter().filter(|one| one.slot.is_some()).count(), SLOTS);
        drop(many);
        assert_eq!(ages.oldest(), Duration::ZERO);
    }

    #[test]
    fn operations_count_for_the_directory_of_their_file() {
        let roots = [PathBuf::from("/a"), PathBuf::from("/b")];
        let disk = TimedDisk::new(Arc::new(SimDisk::new()), &roots);
        let is_of = |path: &str, root: &str| {
            let of_root = disk.ages_in(Path::new(root)).unwrap();
            disk.ages_of(Path::new(path)).is_some_and(|ages| Arc::ptr_eq(ages, &of_root))
        };
        assert!(is_of("/a/t-0/0.log", "/a") && is_of("/b/t-0/0.log", "/b"));
        assert!(disk.ages_of(Path::new("/ab/t-0/0.log")).is_none());
        assert!(disk.ages_of(Path::new("/a/t-0/0.log.cleaned")).is_none());
    }

    #[test]
    fn a_creation_is_counted_and_proves_nothing() {
        let ages = OperationAges::default();
        let creation = ages.begin_cached();
        while ages.oldest() < Duration::from_millis(2) {
            std::thread::yield_now();
        }
        drop(creation);
        assert_eq!(ages.oldest(), Duration::ZERO);
        assert_eq!(ages.ended_at.load(Ordering::Relaxed), 0, "no operation of the device ended");
        drop(ages.begin());
        assert!(ages.ended_at.load(Ordering::Relaxed) > 0);
    }
}
