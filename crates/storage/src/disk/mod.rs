//! The disk as the log sees it: files with positions, names in directories, and the two syncs that
//! make each of them durable. Everything that touches a file system goes through [`Disk`], so that
//! a test can put a disk that crashes, lies and fills up in its place ([`SimDisk`]).
//!
//! Not here: what the files mean. Read next: `real.rs`, then `sim.rs`.
//!
//! What a caller may rely on, and no more:
//!
//! - Bytes survive a crash once [`DiskFile::sync`] has returned after they were written.
//! - A name (created, renamed, removed) survives once [`Disk::sync_dir`] of its directory has.
//! - A rename is atomic: after a crash the name leads to the old file or to the new one.
//! - After a failed sync nothing is known of what was written since the last good one, and a later
//!   sync that succeeds says nothing about it.

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use model::Timestamp;

pub mod ballast;
mod essential;
mod gated;
pub mod guard;
pub mod hand_over;
pub mod progress;
mod real;
pub mod removal;
pub mod reserve;
pub mod sim;
mod timed;

pub use ballast::{BallastDisk, EssentialBallast};
pub use essential::EssentialDisk;
pub use gated::GatedDisk;
pub use real::RealDisk;
pub use sim::SimDisk;
pub use timed::{OperationAges, TimedDisk};

/// What [`Disk::open`] may do, and what must be there for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenMode {
    /// An existing file, only to be read.
    Read,
    /// An existing file, to be read and written.
    ReadWrite,
    /// A new file, to be read and written; fails with `AlreadyExists` if the name is taken.
    CreateNew,
    /// An existing or else new file, to be read and written. Its content stays.
    Create,
}

/// A file system. Paths are taken as they are; nothing here knows a data directory.
pub trait Disk: Send + Sync + Debug {
    /// Opens a file. A new name is durable only after [`Disk::sync_dir`] of its directory.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// The same for a file without which nothing goes on, such as a journal: how many files of logs
    /// are open does not matter ([`reserve`]).
    fn open_essential(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.open(path, mode)
    }
    /// Reads a whole file; meant for small ones.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The names in a directory, of files and directories, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Bytes of the file with this name, as [`DiskFile::size`] would say.
    fn size(&self, path: &Path) -> io::Result<u64> {
        self.open(path, OpenMode::Read)?.size()
    }
    /// Time of the last change of the file's content, by the clock of the file system.
    fn modified(&self, path: &Path) -> io::Result<Timestamp>;
    /// Sets the time that [`Disk::modified`] returns. A power failure may take it back.
    fn set_modified(&self, path: &Path, time: Timestamp) -> io::Result<()>;
    /// Whether something has this name. An error of the device counts as no.
    fn exists(&self, path: &Path) -> bool;
    /// Makes a directory and those above it; succeeds if they are there.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Gives a file or directory another name, over a file that has it already.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file's name. Who has it open keeps reading it.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory with all that is in it.
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Takes the exclusive lock of a file, which is made if need be, for as long as the result lives;
    /// `None` if another process has it. Does not wait.
    fn lock(&self, path: &Path) -> io::Result<Option<FileLock>>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes everything below a directory durable, contents and names, at once: for very many files. May
    /// wait for whatever others wrote to the same file system.
    fn sync_all_below(&self, dir: &Path) -> io::Result<()>;

    /// Makes what was written to a file durable that nobody has open.
    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.open(path, OpenMode::ReadWrite)?.sync()
    }

    /// Makes a file hold `bytes` and nothing else, and syncs it; its name is another matter.
    fn write_synced(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = self.open(path, OpenMode::Create)?;
        file.truncate(0)?;
        file.write_all_at(bytes, 0)?;
        file.sync()
    }

    /// Makes a file hold `bytes` and nothing else; nothing is synced.
    fn write_unsynced(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = self.open(path, OpenMode::Create)?;
        file.truncate(0)?;
        file.write_all_at(bytes, 0)
    }

    /// Replaces the content of `path` so that after any crash it is the old or the new one, whole:
    /// `path.tmp` is written and synced, then renamed over `path`, then the directory is synced.
    fn write_atomically(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(".tmp");
        let temporary = Path::new(&name);
        self.write_synced(temporary, bytes)?;
        self.rename(temporary, path)?;
        match path.parent() {
            Some(parent) => self.sync_dir(parent),
            None => Ok(()),
        }
    }
}

/// The lock of a file, until it is dropped. A simulated machine has one process: nothing to hold.
#[derive(Debug)]
pub struct FileLock(#[allow(dead_code, reason = "held, not read")] Option<std::fs::File>);

/// An open file. All methods may be called from several threads at once.
pub trait DiskFile: Send + Sync + Debug {
    /// Writes all bytes from `position` on; a gap behind the end reads as zeros. On an error any
    /// part of them may have been written.
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;
    /// Fills `buffer` from `position` on; returns fewer bytes only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// Bytes up to the end of the file; preallocated room does not count.
    fn size(&self) -> io::Result<u64>;
    /// Cuts or extends the file to `size` bytes, and gives back room preallocated behind it.
    fn truncate(&self, size: u64) -> io::Result<()>;
    /// Makes what was written, and the size, durable (fdatasync).
    fn sync(&self) -> io::Result<()>;
    /// Reserves room for `bytes` bytes from position `from` on without changing the size. A hint: a
    /// file system without reservations succeeds; one without room fails with `StorageFull`.
    fn preallocate(&self, from: u64, bytes: u64) -> io::Result<()>;
    /// The descriptor to send from; `None` where there is no kernel behind the file.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;
}
