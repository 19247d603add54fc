//! Room for essential files on a full volume: the metadata log, the vote, the journals. Without them a broker neither starts nor
//! deletes anything.
//!
//! A file of a few MiB, the essential ballast, lies in each folder that has essential files. A write of an essential file
//! that finds no room shortens the ballast by a piece and is tried again, until the ballast is used up. Other files never use
//! this ballast. [`EssentialBallast::fill`] makes the ballast again once the volume has room.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::Timestamp;

use super::{Disk, DiskFile, FileLock, OpenMode};
use crate::error::found_no_room;

/// Name of the essential ballast in its folder.
pub const ESSENTIAL_BALLAST: &str = "highwater-ballast-essential";
/// Bytes of the essential ballast on a large volume.
const BYTES_MAX: u64 = 4 << 20;
/// On a small volume the essential ballast takes at most this share of it.
const SHARE: u64 = 64;
/// Bytes that one write gives back at a time.
const PIECE_BYTES: u64 = 128 << 10;

/// The essential ballast of one folder.
#[derive(Clone, Debug)]
pub struct EssentialBallast {
    path: PathBuf,
}

impl EssentialBallast {
    /// The ballast in `folder`, whether it exists or not.
    pub fn of(folder: &Path) -> EssentialBallast {
        EssentialBallast { path: folder.join(ESSENTIAL_BALLAST) }
    }

    /// Bytes of the ballast on a volume of `total` bytes.
    pub fn bytes(total: u64) -> u64 {
        BYTES_MAX.min(total / SHARE)
    }

    /// Makes or extends the ballast to `bytes` bytes. Without room the ballast stays as it is.
    pub fn fill(&self, disk: &dyn Disk, bytes: u64) -> io::Result<()> {
        let file = disk.open_essential(&self.path, OpenMode::Create)?;
        if file.size()? >= bytes {
            return Ok(());
        }
        file.preallocate(0, bytes)?;
        file.truncate(bytes)
    }

    /// Gives back a piece of the ballast. Returns false if nothing is left, or nothing could be given back.
    fn release(&self, disk: &dyn Disk) -> bool {
        let released = || -> io::Result<bool> {
            let file = disk.open_essential(&self.path, OpenMode::ReadWrite)?;
            let bytes = file.size()?;
            file.truncate(bytes.saturating_sub(PIECE_BYTES))?;
            Ok(bytes > 0)
        };
        released().unwrap_or(false)
    }
}

/// Files directly in `folder` are essential.
#[derive(Clone, Debug)]
struct EssentialFolder {
    folder: PathBuf,
    ballast: EssentialBallast,
}

/// Another disk, whose essential files may use the essential ballast.
#[derive(Debug)]
pub struct BallastDisk {
    disk: Arc<dyn Disk>,
    folders: Vec<EssentialFolder>,
}

impl BallastDisk {
    /// `folders`: each folder with essential files, and the folder in which its ballast lies.
    pub fn new(
        disk: Arc<dyn Disk>,
        folders: impl IntoIterator<Item = (PathBuf, PathBuf)>,
    ) -> BallastDisk {
        let essential = |(folder, ballast): (PathBuf, PathBuf)| EssentialFolder {
            folder,
            ballast: EssentialBallast::of(&ballast),
        };
        BallastDisk { disk, folders: folders.into_iter().map(essential).collect() }
    }

    fn ballast_of(&self, path: &Path) -> Option<&EssentialBallast> {
        let folder = path.parent()?;
        let found = self.folders.iter().find(|essential| essential.folder == folder)?;
        Some(&found.ballast)
    }

    fn open_with(
        &self,
        path: &Path,
        open: impl Fn() -> io::Result<Arc<dyn DiskFile>>,
    ) -> io::Result<Arc<dyn DiskFile>> {
        let Some(ballast) = self.ballast_of(path) else { return open() };
        let file = with_ballast(&*self.disk, ballast, open)?;
        let (disk, ballast) = (Arc::clone(&self.disk), ballast.clone());
        Ok(Arc::new(EssentialFile { file, disk, ballast }))
    }
}

/// Does it again after each piece of the ballast, as long as it finds no room.
fn with_ballast<T>(
    disk: &dyn Disk,
    ballast: &EssentialBallast,
    write: impl Fn() -> io::Result<T>,
) -> io::Result<T> {
    loop {
        match write() {
            Err(error) if found_no_room(&error) && ballast.release(disk) => {}
            result => return result,
        }
    }
}

impl Disk for BallastDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.open_with(path, || self.disk.open(path, mode))
    }

    fn open_essential(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.open_with(path, || self.disk.open_essential(path, mode))
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
        self.disk.set_modified(path, time)
    }

    fn exists(&self, path: &Path) -> bool {
        self.disk.exists(path)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match self.ballast_of(to) {
            Some(ballast) => with_ballast(&*self.disk, ballast, || self.disk.rename(from, to)),
            None => self.disk.rename(from, to),
        }
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
        self.disk.sync_dir(dir)
    }

    fn sync_all_below(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_all_below(dir)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_file(path)
    }

    fn write_synced(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        match self.ballast_of(path) {
            Some(ballast) => {
                with_ballast(&*self.disk, ballast, || self.disk.write_synced(path, bytes))
            }
            None => self.disk.write_synced(path, bytes),
        }
    }
}

/// An open essential file.
#[derive(Debug)]
struct EssentialFile {
    file: Arc<dyn DiskFile>,
    disk: Arc<dyn Disk>,
    ballast: EssentialBallast,
}

impl DiskFile for EssentialFile {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        with_ballast(&*self.disk, &self.ballast, || self.file.write_all_at(bytes, position))
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.file.truncate(size)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn preallocate(&self, from: u64, bytes: u64) -> io::Result<()> {
        self.file.preallocate(from, bytes)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;

    #[test]
    fn essential_writes_find_room_on_a_full_disk_and_other_writes_none() {
        let sim = SimDisk::new();
        let (data, folder) = (Path::new("/data"), Path::new("/data/quorum"));
        sim.create_dir_all(folder).unwrap();
        let essential = [(folder.to_owned(), data.to_owned())];
        let disk = BallastDisk::new(Arc::new(sim.clone()), essential);
        let ballast = EssentialBallast::of(data);
        ballast.fill(&sim, 3 * PIECE_BYTES).unwrap();
        let log = disk.open(&folder.join("log"), OpenMode::CreateNew).unwrap();
        let records = disk.open(&data.join("records"), OpenMode::CreateNew).unwrap();
        sim.limit_capacity(Some(3 * PIECE_BYTES));

        assert!(found_no_room(&records.write_all_at(b"r", 0).unwrap_err()));
        let piece = vec![7; PIECE_BYTES as usize];
        log.write_all_at(&piece, 0).unwrap();
        disk.write_synced(&folder.join("vote"), &piece[1..]).unwrap();
        assert_eq!(sim.size(&ballast.path).unwrap(), PIECE_BYTES, "two pieces are used");
        let error = log.write_all_at(&[piece.clone(), piece.clone()].concat(), PIECE_BYTES);
        assert!(found_no_room(&error.unwrap_err()), "the ballast is used up");
        assert_eq!(sim.size(&ballast.path).unwrap(), 0);

        sim.limit_capacity(None);
        ballast.fill(&sim, 3 * PIECE_BYTES).unwrap();
        assert_eq!(sim.size(&ballast.path).unwrap(), 3 * PIECE_BYTES);
        log.write_all_at(&piece, 0).unwrap();
        assert_eq!(sim.size(&ballast.path).unwrap(), 3 * PIECE_BYTES, "there is room");
    }

    #[test]
    fn the_essential_ballast_is_small_on_small_volumes() {
        assert_eq!(EssentialBallast::bytes(64 << 20), 1 << 20);
        assert_eq!(EssentialBallast::bytes(1 << 40), 4 << 20);
    }
}
