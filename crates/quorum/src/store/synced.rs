//! The file `synced`: below which index every entry was synced, as far as the process got to note it.
//!
//! ```text
//! 00000000000000000057 9ae3b61f\n      two lines; the larger number that has its checksum counts
//! 00000000000000000058 0b1c22d4\n
//! ```
//!
//! The note is written after each sync of the log and is not synced itself. After the death of the
//! process it is exact: an entry below it that is damaged or missing was acknowledged, perhaps, and is
//! not cut off as an incomplete write. After a power failure it may be older, and says less.

use std::io;
use std::path::Path;
use std::sync::Arc;
use storage::disk::{Disk, DiskFile, OpenMode};

const NAME: &str = "synced";
/// Twenty digits, a space, eight digits, a line feed.
const LINE_BYTES: usize = 30;

/// The note, and the file that it stands in.
#[derive(Debug)]
pub(super) struct SyncedNote {
    file: Arc<dyn DiskFile>,
    /// What the file says. Invariant: every entry below it was synced.
    below: u64,
    /// The line to be written next: the other one stays whole if writing it is cut off.
    next_line: u64,
}

fn line(below: u64) -> Vec<u8> {
    let digits = format!("{below:020} ");
    let crc = crc_fast::crc32_iscsi(digits.as_bytes());
    format!("{digits}{crc:08x}\n").into_bytes()
}

fn parse(line_bytes: &[u8]) -> Option<u64> {
    let below = std::str::from_utf8(line_bytes.get(..20)?).ok()?.parse().ok()?;
    (line(below) == line_bytes).then_some(below)
}

/// What the note in a folder says: 0 if there is none, or none that can be read.
pub(super) fn read(disk: &dyn Disk, dir: &Path) -> io::Result<u64> {
    let bytes = match disk.read(&dir.join(NAME)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    Ok(bytes.chunks(LINE_BYTES).filter_map(parse).max().unwrap_or(0))
}

impl SyncedNote {
    /// Opens the note in a folder that is there, or makes it.
    pub(super) fn open(disk: &dyn Disk, dir: &Path) -> io::Result<SyncedNote> {
        let below = read(disk, dir)?;
        let file = disk.open(&dir.join(NAME), OpenMode::Create)?;
        Ok(SyncedNote { file, below, next_line: 0 })
    }

    /// Every entry below an index was synced.
    pub(super) fn advance(&mut self, below: u64) -> io::Result<()> {
        if below <= self.below {
            return Ok(());
        }
        self.file.write_all_at(&line(below), self.next_line * LINE_BYTES as u64)?;
        self.below = below;
        self.next_line = 1 - self.next_line;
        Ok(())
    }

    /// The entries from an index on are about to be removed. Durable when it returns: a note that came
    /// back would call the log damaged.
    pub(super) fn lower(&mut self, below: u64) -> io::Result<()> {
        if below >= self.below {
            return Ok(());
        }
        self.file.write_all_at(&[line(below), line(below)].concat(), 0)?;
        self.file.sync()?;
        self.below = below;
        Ok(())
    }

    /// The newest index that was synced, if any.
    pub(super) fn last(&self) -> Option<u64> {
        self.below.checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::disk::SimDisk;

    #[test]
    fn the_note_and_back_and_a_flipped_bit_is_no_larger_number() {
        let disk = SimDisk::new();
        let dir = Path::new("/q");
        disk.create_dir_all(dir).unwrap();
        let mut note = SyncedNote::open(&disk, dir).unwrap();
        for below in [3, 9, 57] {
            note.advance(below).unwrap();
            assert_eq!(read(&disk, dir).unwrap(), below);
        }
        for bit in 0..2 * LINE_BYTES as u64 * 8 {
            let flipped = disk.snapshot();
            flipped.flip_bit(&dir.join(NAME), bit / 8, (bit % 8) as u8);
            assert!([9, 57].contains(&read(&flipped, dir).unwrap()), "bit {bit}");
        }
        note.lower(5).unwrap();
        assert_eq!((read(&disk, dir).unwrap(), note.last()), (5, Some(4)));
    }
}
