//! A file that was filled with zeros beforehand, over which requests are written and synced: no size
//! changes, no block is allocated, so a sync is one write of data and a flush. Nothing that keeps
//! records on a device in a file can be cheaper: the floor under a broker that syncs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that are prepared; behind them the first ones are written over.
const PREPARED_BYTES: u64 = 128 << 20;
/// Zeros that are written at once.
const STEP_BYTES: usize = 1 << 20;

/// The file, and where the next bytes go.
#[derive(Debug)]
pub(super) struct SyncedFile {
    file: File,
    at: u64,
}

impl SyncedFile {
    /// Makes the file and its zeros, and syncs them.
    pub(super) fn create(path: &Path) -> io::Result<SyncedFile> {
        let file = File::options().write(true).create(true).truncate(true).open(path)?;
        let zeros = vec![0; STEP_BYTES];
        for at in (0..PREPARED_BYTES).step_by(STEP_BYTES) {
            file.write_all_at(&zeros, at)?;
        }
        file.sync_all()?;
        Ok(SyncedFile { file, at: 0 })
    }

    /// Writes `bytes`, at most as many as are prepared, without syncing them.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        if length > PREPARED_BYTES {
            return Err(io::Error::other(format!("{length} bytes are more than were prepared")));
        }
        if self.at + length > PREPARED_BYTES {
            self.at = 0;
        }
        self.file.write_all_at(bytes, self.at)?;
        self.at += length;
        Ok(())
    }

    /// Brings what was written onto the device.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_one_behind_the_other_and_the_size_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        let mut file = SyncedFile::create(&path).unwrap();
        file.write(b"first").unwrap();
        file.write(b"second").unwrap();
        file.sync().unwrap();
        assert_eq!(path.metadata().unwrap().len(), PREPARED_BYTES);
        let mut start = [1; 12];
        File::open(&path).unwrap().read_exact_at(&mut start, 0).unwrap();
        assert_eq!(&start, b"firstsecond\0");
    }

    #[test]
    fn behind_the_end_the_first_bytes_are_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        let mut file = SyncedFile::create(&path).unwrap();
        file.at = PREPARED_BYTES - 3;
        file.write(b"long").unwrap();
        assert_eq!((file.at, path.metadata().unwrap().len()), (4, PREPARED_BYTES));
        assert!(file.write(&vec![0; PREPARED_BYTES as usize + 1]).is_err());
    }
}
