//! A disk all of whose files must be opened whatever else is: for the log of the metadata, which the
//! many files of other logs must not leave without a descriptor.

use std::io;
use std::path::Path;
use std::sync::Arc;

use model::Timestamp;

use super::{Disk, DiskFile, FileLock, OpenMode};

/// Another disk, each of whose files is opened by [`Disk::open_essential`].
#[derive(Clone, Debug)]
pub struct EssentialDisk(Arc<dyn Disk>);

impl EssentialDisk {
    /// `disk`, for files that are few and essential.
    pub fn new(disk: Arc<dyn Disk>) -> EssentialDisk {
        EssentialDisk(disk)
    }
}

impl Disk for EssentialDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.0.open_essential(path, mode)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.read(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        self.0.size(path)
    }

    fn modified(&self, path: &Path) -> io::Result<Timestamp> {
        self.0.modified(path)
    }

    fn set_modified(&self, path: &Path, time: Timestamp) -> io::Result<()> {
        self.0.set_modified(path, time)
    }

    fn exists(&self, path: &Path) -> bool {
        self.0.exists(path)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.0.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.remove_file(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.0.remove_dir_all(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<FileLock>> {
        self.0.lock(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }

    fn sync_all_below(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_all_below(dir)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.0.sync_file(path)
    }

    fn write_synced(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.0.write_synced(path, bytes)
    }
}
