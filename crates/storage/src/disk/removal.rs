//! Removing large files piece by piece.
//!
//! A file system that frees gigabytes at once, and tells the device so, makes the syncs of all other files wait meanwhile:
//! on ext4 mounted with `discard` for more than half a second. Freed in pieces with pauses in between, nobody notices.
//! Readers that still have the file open meet its end early, so this is for files of which that may be expected no more.

use std::io::{self, ErrorKind};
use std::path::Path;

use super::{Disk, OpenMode};

/// Most bytes that are freed at once.
pub const PIECE_BYTES: u64 = 4 << 20;

/// Removes a file. `pause` is called behind each piece; when it returns `false` the rest is left, and so does this.
/// A file that is not there is removed already.
pub fn remove_file(
    disk: &dyn Disk,
    path: &Path,
    pause: &mut dyn FnMut() -> bool,
) -> io::Result<bool> {
    let mut rest = match disk.size(path) {
        Ok(size) => size,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    if rest > PIECE_BYTES {
        let file = disk.open(path, OpenMode::ReadWrite)?;
        while rest > PIECE_BYTES {
            rest -= PIECE_BYTES;
            file.truncate(rest)?;
            if !pause() {
                return Ok(false);
            }
        }
    }
    disk.remove_file(path)?;
    Ok(rest == 0 || pause())
}

/// Removes a directory of files; as [`remove_file`] does each.
pub fn remove_dir(
    disk: &dyn Disk,
    dir: &Path,
    pause: &mut dyn FnMut() -> bool,
) -> io::Result<bool> {
    for name in disk.list(dir)? {
        let path = dir.join(name);
        // A folder goes with the directory.
        let is_large = disk.size(&path).is_ok_and(|size| size > PIECE_BYTES);
        if is_large && !remove_file(disk, &path, pause)? {
            return Ok(false);
        }
    }
    disk.remove_dir_all(dir)?;
    Ok(true)
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
        assert!(remove_file(&disk, path, &mut pause).unwrap());
        assert_eq!(sizes, [Some(PIECE_BYTES + 1), Some(1), None]);
        assert!(
            remove_dir(&disk, Path::new("d"), &mut || panic!("nothing large is left")).unwrap()
        );
        assert!(!disk.exists(Path::new("d")));
        assert!(remove_file(&disk, path, &mut || true).unwrap(), "twice changes nothing");
    }

    #[test]
    fn what_is_interrupted_is_finished_later() {
        let disk = disk_with(&[3 * PIECE_BYTES]);
        let dir = Path::new("d");
        assert!(!remove_dir(&disk, dir, &mut || false).unwrap());
        assert_eq!(disk.size(Path::new("d/0")).unwrap(), 2 * PIECE_BYTES);
        assert!(remove_dir(&disk, dir, &mut || true).unwrap());
        assert!(!disk.exists(dir));
    }
}
