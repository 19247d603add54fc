//! A disk of which some device stalls when a test says so: syncs, reads, or writes, below a directory wait at a
//! gate.
//!
//! With it a test decides by the order of events that no thread waits for a device which should not, where
//! a slow disk would need a clock and luck.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use model::Timestamp;
use parking_lot::{Condvar, Mutex};

use super::{Disk, DiskFile, FileLock, OpenMode};

/// Another disk behind a gate for its syncs, reads or writes. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct GatedDisk {
    disk: Arc<dyn Disk>,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

/// What waits at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sync,
    Read,
    Write,
}

#[derive(Debug, Default)]
struct State {
    /// What waits, and below which directory.
    closed: Option<(Kind, PathBuf)>,
    /// How often the gate was opened. Who waited then passes, even if it was closed again at once.
    opened: u64,
    waiting: usize,
}

#[derive(Debug)]
struct GatedFile {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    gate: Arc<Gate>,
}

impl GatedDisk {
    /// `disk`, with the gate open.
    pub fn new(disk: Arc<dyn Disk>) -> GatedDisk {
        GatedDisk { disk, gate: Arc::default() }
    }

    /// From now on syncs of everything below `dir` wait.
    pub fn close(&self, dir: &Path) {
        self.gate.state.lock().closed = Some((Kind::Sync, dir.to_owned()));
    }

    /// From now on reads of all open files below `dir` wait.
    pub fn close_to_reads(&self, dir: &Path) {
        self.gate.state.lock().closed = Some((Kind::Read, dir.to_owned()));
    }

    /// From now on writes to all open files below `dir` wait.
    pub fn close_to_writes(&self, dir: &Path) {
        self.gate.state.lock().closed = Some((Kind::Write, dir.to_owned()));
    }

    /// Lets everything through.
    pub fn open_gate(&self) {
        let mut state = self.gate.state.lock();
        state.closed = None;
        state.opened += 1;
        self.gate.changed.notify_all();
    }

    /// Waits until `count` syncs, reads or writes wait at the gate; false if they do not within `patience`.
    pub fn wait_for(&self, count: usize, patience: Duration) -> bool {
        let mut state = self.gate.state.lock();
        let too_few = |state: &mut State| state.waiting < count;
        !self.gate.changed.wait_while_for(&mut state, too_few, patience).timed_out()
    }
}

impl Gate {
    fn pass(&self, kind: Kind, path: &Path) {
        let mut state = self.state.lock();
        let is_closed = |state: &mut State| {
            let closed = state.closed.as_ref();
            closed.is_some_and(|(closed, dir)| *closed == kind && path.starts_with(dir))
        };
        if !is_closed(&mut state) {
            return;
        }
        state.waiting += 1;
        self.changed.notify_all();
        let opened = state.opened;
        self.changed.wait_while(&mut state, |state| state.opened == opened && is_closed(state));
        state.waiting -= 1;
    }
}

impl Disk for GatedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(path, mode)?;
        Ok(Arc::new(GatedFile { file, path: path.to_owned(), gate: Arc::clone(&self.gate) }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.disk.read(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<FileLock>> {
        self.disk.lock(path)
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        self.disk.size(path)
    }

    fn modified(&self, path: &Path) -> io::Result<Timestamp> {
        self.disk.modified(path)
    }

    fn set_modified(&self, path: &Path, time: Timestamp) -> io::Result<()> {
        self.disk.set_modified(path, time)
    }

    fn exists(&self, path: &Path) -> bool {
        self.disk.exists(path)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir_all(dir)
    }

    fn sync_all_below(&self, dir: &Path) -> io::Result<()> {
        self.gate.pass(Kind::Sync, dir);
        self.disk.sync_all_below(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.gate.pass(Kind::Sync, dir);
        self.disk.sync_dir(dir)
    }
}

impl DiskFile for GatedFile {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.gate.pass(Kind::Write, &self.path);
        self.file.write_all_at(bytes, position)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.gate.pass(Kind::Read, &self.path);
        self.file.read_at(buffer, position)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.file.truncate(size)
    }

    fn sync(&self) -> io::Result<()> {
        self.gate.pass(Kind::Sync, &self.path);
        self.file.sync()
    }

    fn preallocate(&self, from: u64, bytes: u64) -> io::Result<()> {
        self.file.preallocate(from, bytes)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_fd()
    }
}
