//! Removing large files piece by piece.
//!
//! A file system that frees gigabytes at once, and tells the device so, makes the syncs of all other files wait meanwhile:
//! on ext4 mounted with `discard` for more than half a second. Freed in pieces with pauses in between, nobody notices.
//! Readers that still have the file open meet its end early, so this is for files of which that may be expected no more.

use std::io::{self, ErrorKind};
use std::path::Path;

use super::{Disk, OpenMode};

/// Most bytes that are freed at once, and a pause is made behind as many.
pub const PIECE_BYTES: u64 = 4 << 20;
/// What a file counts for at least: its name and its inode cost the file system's journal something, too.
const FILE_COST: u64 = 16 << 10;

/// Frees files, with a pause behind each [`PIECE_BYTES`] of them.
pub struct Freeing<'a> {
    disk: &'a dyn Disk,
    pause: &'a mut dyn FnMut() -> bool,
    /// Freed since the last pause.
    unpaused: u64,
}

impl<'a> Freeing<'a> {
    /// When `pause` returns `false` the rest is left, and so does whoever called it.
    pub fn new(disk: &'a dyn Disk, pause: &'a mut dyn FnMut() -> bool) -> Freeing<'a> {
        Freeing { disk, pause, unpaused: 0 }
    }

    /// Removes a file; false: `pause` said no, and of this or of what comes next something is left. A file that is not there is
    /// removed already.
    pub fn file(&mut self, path: &Path) -> io::Result<bool> {
        let mut rest = match self.disk.size(path) {
            Ok(size) => size,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(error),
        };
        if rest > PIECE_BYTES {
            // Whoever is short of descriptors needs what is freed here.
            let file = self.disk.open_essential(path, OpenMode::ReadWrite)?;
            while rest > PIECE_BYTES {
                rest -= PIECE_BYTES;
                file.truncate(rest)?;
                if !self.freed(PIECE_BYTES) {
                    return Ok(false);
                }
            }
        }
        self.disk.remove_file(path)?;
        Ok(self.freed(rest.max(FILE_COST)))
    }

    /// Removes a directory of files; as [`Freeing::file`] does each.
    pub fn dir(&mut self, dir: &Path) -> io::Result<bool> {
        for name in self.disk.list(dir)? {
            let path = dir.join(name);
            let size = self.disk.size(&path).unwrap_or(0);
            let goes_on = match size > PIECE_BYTES {
                true => self.file(&path)?,
                // A folder goes with the directory.
                false => self.disk.remove_file(&path).is_err() || self.freed(size.max(FILE_COST)),
            };
            if !goes_on {
                return Ok(false);
            }
        }
        self.disk.remove_dir_all(dir)?;
        Ok(true)
    }

    /// Whether to go on.
    fn freed(&mut self, bytes: u64) -> bool {
        self.unpaused += bytes;
        if self.unpaused < PIECE_BYTES {
            return true;
        }
        self.unpaused = 0;
        (self.pause)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;

    fn disk_with(sizes: &[u64]) -> SimDisk {
        let disk = SimDisk::new();
        disk.create_dir_all(Path::new("d")).unwrap();
        for (number, size) in sizes.iter().enumerate() {
            let path = Path::new("d").join(number.to_string());
            let file = disk.open(&path, OpenMode::CreateNew).unwrap();
            file.write_all_at(&vec![7; *size as usize], 0).unwrap();
        }
        disk
    }

    #[test]
    fn a_large_file_goes_in_pieces_and_a_small_one_at_once() {
        let disk = disk_with(&[2 * PIECE_BYTES + 1, 5]);
        let mut sizes = Vec::new();
        let path = Path::new("d/0");
        let mut pause = || {
            sizes.push(disk.size(path).ok());
            true
        };
        let mut freeing = Freeing::new(&disk, &mut pause);
        assert!(freeing.file(path).unwrap());
        assert!(freeing.dir(Path::new("d")).unwrap());
        assert_eq!(sizes, [Some(PIECE_BYTES + 1), Some(1)], "nothing large was left then");
        assert!(!disk.exists(Path::new("d")));
        let mut never = || panic!("nothing is freed");
        assert!(Freeing::new(&disk, &mut never).file(path).unwrap(), "twice changes nothing");
    }

    #[test]
    fn small_files_share_a_pause_and_none_goes_without_any() {
        let disk = disk_with(&[PIECE_BYTES / 4; 9]);
        let mut pauses = 0;
        let mut pause = || {
            pauses += 1;
            true
        };
        let mut freeing = Freeing::new(&disk, &mut pause);
        assert!(freeing.file(Path::new("d/8")).unwrap());
        assert!(freeing.dir(Path::new("d")).unwrap());
        assert_eq!(pauses, 2);
        let disk = disk_with(&[0; 600]);
        let mut pauses = 0;
        let mut pause = || {
            pauses += 1;
            true
        };
        assert!(Freeing::new(&disk, &mut pause).dir(Path::new("d")).unwrap());
        assert_eq!(pauses, 2, "an empty file is a name and an inode");
    }

    #[test]
    fn what_is_interrupted_is_finished_later() {
        let disk = disk_with(&[3 * PIECE_BYTES]);
        let dir = Path::new("d");
        assert!(!Freeing::new(&disk, &mut || false).dir(dir).unwrap());
        assert_eq!(disk.size(Path::new("d/0")).unwrap(), 2 * PIECE_BYTES);
        assert!(Freeing::new(&disk, &mut || true).dir(dir).unwrap());
        assert!(!disk.exists(dir));
    }
}
