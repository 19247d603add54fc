//! Writing anew, in place, what an earlier process wrote and no sync is known to have covered.
//!
//! After a failed sync the kernel takes the pages for clean and goes on showing them: their checksums
//! are right, the next sync has nothing to do and succeeds, and the device does not have them. So
//! before such bytes are believed they are written once more, the same bytes at the same place, which
//! makes the pages dirty again, and then synced. A crash in the middle changes nothing.
//!
//! Under `durability=fsync` that is done after every unclean stop, for the failure may have left no
//! note; what lies above the synced offset is little then. Under `page-cache` it may be much, and
//! nothing was promised, so only a known failure is a reason.

use model::{Durability, Offset};

use super::Log;
use super::opening::Trust;
use crate::StorageError;
use crate::disk::DiskFile;
use crate::error::Context;
use crate::names::LOG;

const CHUNK_BYTES: u64 = 1 << 20;

impl Log {
    /// Writes the batches from the bound on anew, if there is reason to. Returns how many bytes;
    /// syncing them is left to the caller.
    pub(super) fn rewrite_unsynced(&self, trust: &Trust<'_>) -> Result<u64, StorageError> {
        let opening = trust.opening;
        let wanted = opening.after_failed_sync || opening.durability == Durability::Fsync;
        if !wanted || trust.bound >= self.log_end {
            return Ok(0);
        }
        (self.segment_of(trust.bound)..self.segments.len())
            .map(|number| self.rewrite_segment(number, trust.bound))
            .sum()
    }

    fn rewrite_segment(&self, number: usize, from: Offset) -> Result<u64, StorageError> {
        let segment = &self.segments[number];
        let start = segment.position_of(&self.home, from)?;
        let file = segment.file(&self.home)?;
        let path = self.home.segment_path(segment.base, LOG);
        rewrite(&*file, start, segment.size()).during("write", &path)?;
        Ok(segment.size() - start)
    }
}

/// Writes the bytes between two positions of a file over themselves.
fn rewrite(file: &dyn DiskFile, start: u64, end: u64) -> std::io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES.min(end - start) as usize];
    let mut position = start;
    while position < end {
        let wanted = CHUNK_BYTES.min(end - position) as usize;
        let got = file.read_at(&mut buffer[..wanted], position)?;
        if got < wanted {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        file.write_all_at(&buffer[..wanted], position)?;
        position += wanted as u64;
    }
    Ok(())
}
