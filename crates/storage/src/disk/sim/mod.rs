//! A disk in memory that loses power, lies, fills up and breaks, on demand and from a seed.
//!
//! It keeps two states of everything: what a reader sees now, and what would be there after a power
//! failure. Between them lie pending changes, which a sync moves over. [`SimDisk::after_crash`] gives
//! the disk that a machine would find when it comes up: what was durable, and of what was pending a
//! part that the seed chooses, as unkindly as real disks and file systems do:
//!
//! - of a file's pending writes any sectors of 512 bytes, each as of any moment since the last
//!   sync; its size as of any moment too, so that a file may be long and full of zeros;
//! - of the changes of names any that do not depend on one that is lost; a rename is never halved.
//!
//! Faults: an operation that fails ([`SimDisk::fail_at`]), a device of a limited capacity, syncs that
//! fail (what they should have written is then lost, though later syncs succeed), syncs that lie,
//! flipped bits, and the end of all operations at a given one ([`SimDisk::stop_at`]).
//!
//! Read next: `file.rs` for what becomes of a file, `tree.rs` for names.

mod control;
mod file;
mod seed;
mod tree;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

use self::control::{Control, Picked};
use self::seed::Seed;
use self::tree::{NodeId, Tree};
use super::{Disk, DiskFile, FileLock, OpenMode, guard};

pub use self::control::Operation;

/// Bytes that a device writes wholly or not at all.
pub const SECTOR_BYTES: usize = 512;

/// A simulated disk. Clones are the same disk; [`SimDisk::snapshot`] makes another one.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    tree: Tree,
    control: Control,
    clock: Option<Timestamp>,
    /// The tree before each operation, if [`SimDisk::keep_history`] asked for it.
    history: Option<Vec<Tree>>,
}

/// An open file of a [`SimDisk`].
#[derive(Debug)]
struct SimFile {
    shared: Arc<Mutex<Shared>>,
    node: NodeId,
    path: Arc<Path>,
    writable: bool,
}

impl SimDisk {
    /// An empty disk without faults.
    pub fn new() -> SimDisk {
        SimDisk::default()
    }

    fn of(tree: Tree) -> SimDisk {
        let shared = Shared { tree, ..Shared::default() };
        SimDisk { shared: Arc::new(Mutex::new(shared)) }
    }

    /// A copy that goes its own way: pending changes and all, but without faults and with its
    /// operations counted from 0. Costs a reference per file.
    pub fn snapshot(&self) -> SimDisk {
        SimDisk::of(self.shared.lock().tree.clone())
    }

    /// The disk that would be found if power failed now. Nothing is pending on it. The same seed on
    /// the same state gives the same disk.
    pub fn after_crash(&self, seed: u64) -> SimDisk {
        SimDisk::of(self.shared.lock().tree.after_crash(&mut Seed::new(seed)))
    }

    /// Sets the clock by which later changes of files are dated. Without it they are dated
    /// [`Timestamp::NONE`].
    pub fn set_clock(&self, now: Timestamp) {
        self.shared.lock().clock = Some(now);
    }

    /// How many operations that change or sync something were begun since the disk was made.
    pub fn operation_count(&self) -> u64 {
        self.shared.lock().control.operation_count()
    }

    /// All those operations, in order.
    pub fn operations(&self) -> Vec<Operation> {
        self.shared.lock().control.operations.clone()
    }

    /// Files that were opened since the disk was made, in order.
    pub fn opened(&self) -> Vec<PathBuf> {
        self.shared.lock().control.opened.iter().map(|path| path.to_path_buf()).collect()
    }

    /// From now on keeps the state before each operation, for [`SimDisk::history`].
    pub fn keep_history(&self) {
        let mut shared = self.shared.lock();
        assert_eq!(shared.control.operation_count(), 0, "the history begins with the disk");
        shared.history = Some(Vec::new());
    }

    /// The disk as it was before each of [`SimDisk::operations`], and as it is now: one more than
    /// there are operations.
    pub fn history(&self) -> Vec<SimDisk> {
        let shared = self.shared.lock();
        let past = shared.history.as_ref().expect("keep_history() was called");
        past.iter().chain([&shared.tree]).cloned().map(SimDisk::of).collect()
    }

    /// The machine stops before operation number `operation`, counted from 0: that one has no
    /// effect, and it and everything after it, reads too, fail.
    pub fn stop_at(&self, operation: u64) {
        self.shared.lock().control.stop_at = Some(operation);
    }

    /// Operation number `operation`, counted from 0, fails once with `errno`. A write that fails has
    /// written the first half of its bytes.
    pub fn fail_at(&self, operation: u64, errno: Errno) {
        self.shared.lock().control.fail_at = Some((operation, errno));
    }

    /// Of the operations from now on that `picks` picks, number `number`, counted from 0, fails once with `errno`, as with
    /// [`SimDisk::fail_at`]. For operations of several threads, whose order is another one each time.
    pub fn fail_picked(&self, number: u64, errno: Errno, picks: fn(&Operation) -> bool) {
        self.shared.lock().control.fail_picked = Some(Picked { before: number, errno, picks });
    }

    /// Every sync of a file or directory fails with EIO as long as this is set. As on Linux, the
    /// changes that were to be synced count as clean then: a later sync succeeds without them.
    pub fn fail_syncs(&self, failing: bool) {
        self.shared.lock().control.syncs_fail = failing;
    }

    /// Every sync succeeds without doing anything as long as this is set.
    pub fn lie_about_syncs(&self, lying: bool) {
        self.shared.lock().control.syncs_lie = lying;
    }

    /// All files together hold `bytes` at most; a write beyond that writes what fits and fails with
    /// ENOSPC. `None` for no limit.
    pub fn limit_capacity(&self, bytes: Option<u64>) {
        self.shared.lock().control.capacity_bytes = bytes;
    }

    /// Bytes that all files take, preallocated ones included.
    pub fn used_bytes(&self) -> u64 {
        self.shared.lock().tree.used_bytes()
    }

    /// Flips bit `bit` (0 to 7) of the byte at `position` of a file, for every reader and for good.
    pub fn flip_bit(&self, path: &Path, position: u64, bit: u8) {
        let mut shared = self.shared.lock();
        let node = shared.tree.find(path).expect("the file exists");
        shared.tree.file_mut(node).flip_bit(position, bit);
    }

    fn begin(&self, kind: &'static str, path: &Path) -> io::Result<MutexGuard<'_, Shared>> {
        let mut shared = self.shared.lock();
        shared.begin(kind, path)?;
        Ok(shared)
    }
}

impl Shared {
    /// Counts an operation and says whether it may happen.
    fn begin(&mut self, kind: &'static str, path: &Path) -> io::Result<()> {
        self.control.check_running()?;
        if let Some(history) = &mut self.history {
            history.push(self.tree.clone());
        }
        self.control.begin(kind, path)
    }

    fn now(&self) -> Timestamp {
        self.clock.unwrap_or(Timestamp::NONE)
    }

    fn room_bytes(&self) -> u64 {
        match self.control.capacity_bytes {
            None => u64::MAX,
            Some(capacity) => capacity.saturating_sub(self.tree.used_bytes()),
        }
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        guard::check("open", path);
        let mut shared = self.shared.lock();
        shared.control.check_running()?;
        let node = match (shared.tree.find(path), mode) {
            (Ok(_), OpenMode::CreateNew) => return Err(Errno::EXIST.into()),
            (Ok(node), _) => node,
            (Err(_), OpenMode::CreateNew | OpenMode::Create) => {
                shared.begin("create", path)?;
                shared.tree.create_file(path)?
            }
            (Err(error), _) => return Err(error),
        };
        shared.tree.file(node)?;
        shared.control.opened.push(path.into());
        let writable = mode != OpenMode::Read;
        Ok(Arc::new(SimFile { shared: self.shared.clone(), node, path: path.into(), writable }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        guard::check("read", path);
        let shared = self.shared.lock();
        shared.control.check_running()?;
        Ok(shared.tree.file(shared.tree.find(path)?)?.content().to_vec())
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        guard::check("look", path);
        let shared = self.shared.lock();
        shared.control.check_running()?;
        Ok(shared.tree.file(shared.tree.find(path)?)?.content().len() as u64)
    }

    fn modified(&self, path: &Path) -> io::Result<Timestamp> {
        guard::check("look", path);
        let shared = self.shared.lock();
        shared.control.check_running()?;
        Ok(shared.tree.file(shared.tree.find(path)?)?.modified())
    }

    fn set_modified(&self, path: &Path, time: Timestamp) -> io::Result<()> {
        guard::check("change of the time", path);
        let mut shared = self.shared.lock();
        shared.control.check_running()?;
        let node = shared.tree.find(path)?;
        shared.tree.file(node)?;
        shared.tree.file_mut(node).set_modified(time);
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        guard::check("list", dir);
        let shared = self.shared.lock();
        shared.control.check_running()?;
        shared.tree.list(dir)
    }

    fn exists(&self, path: &Path) -> bool {
        self.shared.lock().tree.find(path).is_ok()
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        guard::check("creation", dir);
        if self.exists(dir) {
            return Ok(());
        }
        self.begin("create dir", dir)?.tree.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        guard::check("rename", from);
        self.begin("rename", from)?.tree.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        guard::check("removal", path);
        self.begin("remove", path)?.tree.remove_file(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        guard::check("removal", dir);
        self.begin("remove dir", dir)?.tree.remove_dir_all(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<FileLock>> {
        self.open(path, OpenMode::Create)?;
        Ok(Some(FileLock(None)))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        guard::check("sync", dir);
        let mut shared = self.begin("sync dir", dir)?;
        let node = shared.tree.find(dir)?;
        shared.control.check_sync()?;
        if !shared.control.syncs_lie {
            shared.tree.sync_names(node);
        }
        Ok(())
    }

    fn sync_all_below(&self, dir: &Path) -> io::Result<()> {
        guard::check("sync", dir);
        let mut shared = self.begin("sync all", dir)?;
        let node = shared.tree.find(dir)?;
        if let Err(error) = shared.control.check_sync() {
            shared.tree.lose_pending_below(node);
            return Err(error);
        }
        if !shared.control.syncs_lie {
            shared.tree.sync_all_below(node);
        }
        Ok(())
    }
}

impl SimFile {
    fn begin(&self, kind: &'static str) -> io::Result<MutexGuard<'_, Shared>> {
        if !self.writable {
            return Err(Errno::BADF.into());
        }
        let mut shared = self.shared.lock();
        shared.begin(kind, &self.path)?;
        Ok(shared)
    }
}

impl DiskFile for SimFile {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        guard::check("write", &self.path);
        let mut shared = match self.begin("write") {
            Ok(shared) => shared,
            Err(error) => {
                let mut shared = self.shared.lock();
                if self.writable && shared.control.check_running().is_ok() {
                    shared.tree.file_mut(self.node).write(&bytes[..bytes.len() / 2], position);
                }
                return Err(error);
            }
        };
        let (room, now) = (shared.room_bytes(), shared.now());
        let file = shared.tree.file_mut(self.node);
        file.set_modified(now);
        let fitting = file.fitting_bytes(position, bytes.len(), room);
        file.write(&bytes[..fitting], position);
        if fitting < bytes.len() { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        guard::check("read", &self.path);
        let shared = self.shared.lock();
        shared.control.check_running()?;
        Ok(shared.tree.file(self.node)?.read(buffer, position))
    }

    fn size(&self) -> io::Result<u64> {
        let shared = self.shared.lock();
        shared.control.check_running()?;
        Ok(shared.tree.file(self.node)?.content().len() as u64)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        guard::check("truncation", &self.path);
        let mut shared = self.begin("truncate")?;
        let now = shared.now();
        let file = shared.tree.file_mut(self.node);
        file.set_modified(now);
        file.truncate(size);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        guard::check("sync", &self.path);
        let mut shared = match self.begin("sync") {
            Ok(shared) => shared,
            Err(error) => {
                let mut shared = self.shared.lock();
                if self.writable && shared.control.check_running().is_ok() {
                    shared.tree.file_mut(self.node).lose_pending();
                }
                return Err(error);
            }
        };
        if let Err(error) = shared.control.check_sync() {
            shared.tree.file_mut(self.node).lose_pending();
            return Err(error);
        }
        if !shared.control.syncs_lie {
            shared.tree.file_mut(self.node).sync();
        }
        Ok(())
    }

    fn preallocate(&self, from: u64, bytes: u64) -> io::Result<()> {
        guard::check("reservation", &self.path);
        let mut shared = self.begin("preallocate")?;
        let room = shared.room_bytes();
        shared.tree.file_mut(self.node).preallocate(from + bytes, room)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
