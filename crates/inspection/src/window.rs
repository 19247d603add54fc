//! Reads a file from front to back through a window, so that its size does not matter.

use std::io;
use std::path::Path;
use std::sync::Arc;

use storage::disk::{Disk, DiskFile, OpenMode};

/// Bytes that are read at once.
const WINDOW_BYTES: usize = 1 << 20;

pub(super) struct Window {
    file: Arc<dyn DiskFile>,
    size: u64,
    bytes: Vec<u8>,
    /// Where in the file `bytes` begins.
    start: u64,
}

impl Window {
    pub(super) fn open(disk: &dyn Disk, path: &Path) -> io::Result<Window> {
        let file = disk.open(path, OpenMode::Read)?;
        Ok(Window { size: file.size()?, file, bytes: Vec::new(), start: 0 })
    }

    /// Bytes of the file when it was opened.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// `length` bytes from `position`; fewer at the end of the file.
    pub(super) fn at(&mut self, position: u64, length: usize) -> io::Result<&[u8]> {
        let left = usize::try_from(self.size.saturating_sub(position)).unwrap_or(usize::MAX);
        let length = length.min(left);
        let end = self.start + self.bytes.len() as u64;
        if position < self.start || position + length as u64 > end {
            self.bytes.resize(length.max(WINDOW_BYTES.min(left)), 0);
            let read = read_full(&*self.file, &mut self.bytes, position)?;
            self.bytes.truncate(read);
            self.start = position;
        }
        let from = (position - self.start) as usize;
        let to = (from + length).min(self.bytes.len());
        Ok(&self.bytes[from.min(to)..to])
    }
}

fn read_full(file: &dyn DiskFile, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], position + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}
