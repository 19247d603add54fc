//! Files of which a range could not be sent, though the header of an answer had promised it: the connection ended.
//!
//! From then on each range of such a file is read through before it is promised, so the next answer says which partition
//! cannot be read, and no connection ends for it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use storage::FileSlice;
use storage::disk::DiskFile;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// The files, as long as they are open.
#[derive(Debug, Default)]
pub struct Unsent {
    /// Whether there are any: what nearly every answer asks.
    any: AtomicBool,
    files: Mutex<Vec<Weak<dyn DiskFile>>>,
}

impl Unsent {
    /// Remembers a file. Returns whether that is news.
    pub fn note(&self, file: &Arc<dyn DiskFile>) -> bool {
        let mut files = self.files.lock();
        files.retain(|other| other.strong_count() > 0);
        if is_among(&files, file) {
            return false;
        }
        files.push(Arc::downgrade(file));
        self.any.store(true, Ordering::Release);
        true
    }

    /// Whether ranges of this file are to be read through before they are promised.
    pub fn contains(&self, file: &Arc<dyn DiskFile>) -> bool {
        self.any.load(Ordering::Acquire) && is_among(&self.files.lock(), file)
    }
}

fn is_among(files: &[Weak<dyn DiskFile>], file: &Arc<dyn DiskFile>) -> bool {
    files.iter().any(|other| other.upgrade().is_some_and(|other| Arc::ptr_eq(&other, file)))
}

/// Reads a range, and keeps nothing of it.
pub fn read_through(slice: &FileSlice) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES.min(slice.size_bytes as usize)];
    let (mut position, end) = (slice.position, slice.position + u64::from(slice.size_bytes));
    while position < end {
        let wanted = piece.len().min((end - position) as usize);
        read_whole(&*slice.file, &mut piece[..wanted], position)?;
        position += wanted as u64;
    }
    Ok(())
}

/// Fills `buffer`; a file that ends before is an error.
pub fn read_whole(file: &dyn DiskFile, buffer: &mut [u8], position: u64) -> io::Result<()> {
    let read = file.read_at(buffer, position)?;
    if read < buffer.len() {
        return Err(ends_early());
    }
    Ok(())
}

/// A segment's file is shorter than its log.
pub fn ends_early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "a segment's file ends before its last record")
}
