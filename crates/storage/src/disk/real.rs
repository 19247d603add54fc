//! The machine's own file system, by positioned system calls; no seek, no buffer of ours, no mmap.

use std::fs::{self, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use model::Timestamp;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::{Errno, retry_on_intr};

use super::reserve::{Opened, lend};
use super::{Disk, DiskFile, FileLock, OpenMode, guard};

/// The file system under the process. Has no state: any two are the same disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

/// A descriptor that is closed with its last owner.
#[derive(Debug)]
struct RealFile(OwnedFd, #[allow(dead_code, reason = "counts while it lives")] Opened);

/// Opens a file of the machine that counts as `opened` says.
fn open(path: &Path, mode: OpenMode, opened: Opened) -> io::Result<RealFile> {
    let fd = retry_on_intr(|| rustix::fs::open(path, flags(mode), FILE_MODE))?;
    Ok(RealFile(fd, opened.was_opened()))
}

/// Opens a file of the machine for a moment, or one that must be opened whatever else is open.
fn open_surely(path: &Path, mode: OpenMode) -> io::Result<RealFile> {
    lend(|| open(path, mode, Opened::uncounted()))
}

/// Owner writes, group reads: records are nobody else's business.
const FILE_MODE: Mode = Mode::from_raw_mode(0o640);

fn flags(mode: OpenMode) -> OFlags {
    let access = match mode {
        OpenMode::Read => OFlags::RDONLY,
        OpenMode::ReadWrite => OFlags::RDWR,
        OpenMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        OpenMode::Create => OFlags::RDWR | OFlags::CREATE,
    };
    access | OFlags::CLOEXEC
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        guard::check("open", path);
        Ok(Arc::new(open(path, mode, Opened::new()?)?))
    }

    fn open_essential(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        guard::check("open", path);
        Ok(Arc::new(open_surely(path, mode)?))
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        guard::check("look", path);
        Ok(rustix::fs::stat(path)?.st_size as u64)
    }

    fn modified(&self, path: &Path) -> io::Result<Timestamp> {
        guard::check("look", path);
        let found = rustix::fs::stat(path)?;
        Ok(Timestamp(found.st_mtime * 1000 + found.st_mtime_nsec as i64 / 1_000_000))
    }

    fn set_modified(&self, path: &Path, time: Timestamp) -> io::Result<()> {
        guard::check("change of the time", path);
        let (tv_sec, tv_nsec) = (time.0.div_euclid(1000), time.0.rem_euclid(1000) * 1_000_000);
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec, tv_nsec },
        };
        Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())?)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        guard::check("read", path);
        lend(|| fs::read(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        guard::check("list", dir);
        let mut names = Vec::new();
        for entry in lend(|| fs::read_dir(dir))? {
            // No file of ours has such a name, so it is a stranger's and none of our concern.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        guard::check("creation", dir);
        fs::create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        guard::check("rename", from);
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        guard::check("removal", path);
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        guard::check("removal", dir);
        lend(|| fs::remove_dir_all(dir))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<FileLock>> {
        let options = fs::File::options().create(true).truncate(false).write(true).clone();
        let file = lend(|| options.open(path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(FileLock(Some(file)))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        guard::check("sync", dir);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = || Ok(retry_on_intr(|| rustix::fs::open(dir, flags, Mode::empty()))?);
        let fd = lend(open)?;
        // An interrupted sync has reported nothing yet, so to repeat it hides no error.
        Ok(retry_on_intr(|| rustix::fs::fsync(&fd))?)
    }

    fn sync_all_below(&self, dir: &Path) -> io::Result<()> {
        guard::check("sync", dir);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = lend(|| Ok(retry_on_intr(|| rustix::fs::open(dir, flags, Mode::empty()))?))?;
        Ok(retry_on_intr(|| rustix::fs::syncfs(&fd))?)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        guard::check("sync", path);
        open_surely(path, OpenMode::ReadWrite)?.sync()
    }

    fn write_synced(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        guard::check("write", path);
        let file = open_surely(path, OpenMode::Create)?;
        file.truncate(0)?;
        file.write_all_at(bytes, 0)?;
        file.sync()
    }
}

impl DiskFile for RealFile {
    fn write_all_at(&self, mut bytes: &[u8], mut position: u64) -> io::Result<()> {
        guard::check("write", Path::new("an open file"));
        while !bytes.is_empty() {
            match retry_on_intr(|| rustix::io::pwrite(&self.0, bytes, position))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => {
                    bytes = &bytes[written..];
                    position += written as u64;
                }
            }
        }
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        guard::check("read", Path::new("an open file"));
        let mut filled = 0;
        while filled < buffer.len() {
            let rest = &mut buffer[filled..];
            match retry_on_intr(|| {
                rustix::io::pread(&self.0, &mut *rest, position + filled as u64)
            })? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(filled)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.0)?.st_size as u64)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        guard::check("truncation", Path::new("an open file"));
        Ok(retry_on_intr(|| rustix::fs::ftruncate(&self.0, size))?)
    }

    fn sync(&self) -> io::Result<()> {
        guard::check("sync", Path::new("an open file"));
        Ok(retry_on_intr(|| rustix::fs::fdatasync(&self.0))?)
    }

    fn preallocate(&self, from: u64, bytes: u64) -> io::Result<()> {
        guard::check("reservation", Path::new("an open file"));
        let keep = FallocateFlags::KEEP_SIZE;
        match retry_on_intr(|| rustix::fs::fallocate(&self.0, keep, from, bytes)) {
            // This file system has no reservations; writing works all the same.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            result => Ok(result?),
        }
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}
