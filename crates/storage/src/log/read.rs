//! Reading: from an offset to a range of one segment's file that may be sent as it stands.
//!
//! A range is whole batches; it begins with the batch that contains the offset. Payloads are never
//! looked at. Not here: what a fetch waits for, and who may read how far.

use std::sync::Arc;

use model::Offset;

use super::Log;
use crate::StorageError;
use crate::disk::DiskFile;
use crate::producers::transactions::{self, AbortedTransaction};
use crate::scan::HeaderWalk;

/// Whole batches, one behind the other, in one segment's file. Holding it keeps the file readable
/// even if the segment is deleted.
#[derive(Clone, Debug)]
pub struct FileSlice {
    /// The segment's file.
    pub file: Arc<dyn DiskFile>,
    /// Where in it the first batch begins, in bytes.
    pub position: u64,
    /// Bytes of all batches; never 0.
    pub size_bytes: u32,
    /// No record in it has a smaller offset: the base offset of the first batch, or the offset that
    /// a cursor stood at.
    pub first_offset: Offset,
    /// For [`Log::read_from`]: where whoever has read this goes on.
    pub next: ReadCursor,
}

/// Where a reader goes on; spares the look-up in an index. Good or not, using it is safe: the log
/// checks it and falls back to a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCursor {
    /// The offset that the batch at the position contains or precedes; -1 if that is not known.
    offset: Offset,
    segment: Offset,
    position: u64,
    generation: u64,
}

impl ReadCursor {
    /// The offset to go on at, if the slice's last header was read; otherwise the reader learns it
    /// from the batches.
    pub fn offset(&self) -> Option<Offset> {
        (self.offset >= Offset(0)).then_some(self.offset)
    }
}

impl Default for ReadCursor {
    /// A cursor that no offset matches: for a reader's first read.
    fn default() -> ReadCursor {
        ReadCursor { offset: Offset(-1), segment: Offset(-1), position: 0, generation: 0 }
    }
}

/// What a reader asks for, behind its offset.
#[derive(Clone, Copy)]
struct Bounds {
    limit: Offset,
    max_bytes: u64,
    at_least_one: bool,
}

impl Log {
    /// Finds what can be read at `offset`: whole batches of one segment below `limit` (exclusive, a
    /// batch boundary: high watermark, last stable offset or log end), at most `max_bytes` bytes,
    /// but with `at_least_one` at least the first batch (KIP-74).
    ///
    /// `None`: nothing there below the limit, or a first batch larger than `max_bytes`. Fails with
    /// [`StorageError::OutOfRange`] outside of the log; its end is within.
    pub fn read(
        &self,
        offset: Offset,
        limit: Offset,
        max_bytes: u32,
        at_least_one: bool,
    ) -> Result<Option<FileSlice>, StorageError> {
        let limit = self.checked_limit(offset, limit)?;
        if offset >= limit {
            return Ok(None);
        }
        let bounds = Bounds { limit, max_bytes: max_bytes as u64, at_least_one };
        // A segment whose end was compacted away leads on to the next one.
        for number in self.segment_of(offset)..self.segments.len() {
            if let Some(found) = self.segments[number].locate(&self.home, offset)? {
                let first = found.header.base_offset;
                return self.slice(number, found.position, Some(found.end()), first, bounds);
            }
        }
        Ok(None)
    }

    /// As [`Log::read`], for a reader that goes on where a slice ended: pass its `next`. Whoever
    /// follows the end of a log spares the look-ups so. When nothing was there (`None`), the cursor
    /// stays good.
    pub fn read_from(
        &self,
        cursor: &ReadCursor,
        offset: Offset,
        limit: Offset,
        max_bytes: u32,
        at_least_one: bool,
    ) -> Result<Option<FileSlice>, StorageError> {
        let limit_here = self.checked_limit(offset, limit)?;
        if offset >= limit_here {
            return Ok(None);
        }
        let Some((number, position)) = self.place_of(cursor, offset) else {
            return self.read(offset, limit, max_bytes, at_least_one);
        };
        let bounds = Bounds { limit: limit_here, max_bytes: max_bytes as u64, at_least_one };
        self.slice(number, position, None, offset, bounds)
    }

    /// The aborted transactions that have records between two offsets, for `read_committed`.
    pub fn aborted_transactions(
        &self,
        from: Offset,
        until: Offset,
    ) -> Result<Vec<AbortedTransaction>, StorageError> {
        let mut found = Vec::new();
        for segment in &self.segments[self.segment_of(from)..] {
            let aborted = transactions::load_aborted(&self.home, segment.base)?;
            let overlaps =
                |t: &&AbortedTransaction| t.last_offset >= from && t.first_offset < until;
            found.extend(aborted.iter().filter(overlaps));
            // Whatever aborts later began behind a last stable offset that is this far.
            if aborted.iter().any(|t| t.last_stable_offset >= until) {
                break;
            }
        }
        Ok(found)
    }

    fn checked_limit(&self, offset: Offset, limit: Offset) -> Result<Offset, StorageError> {
        let (log_start, log_end) = (self.log_start, self.log_end);
        if offset < log_start || offset > log_end {
            return Err(StorageError::OutOfRange { offset, log_start, log_end });
        }
        Ok(limit.min(log_end))
    }

    fn place_of(&self, cursor: &ReadCursor, offset: Offset) -> Option<(usize, u64)> {
        if cursor.generation != self.generation || cursor.offset != offset {
            return None;
        }
        let number = match self.segments.last() {
            Some(active) if active.base == cursor.segment => self.segments.len() - 1,
            _ => self.segments.binary_search_by_key(&cursor.segment, |s| s.base).ok()?,
        };
        if cursor.position < self.segments[number].size() {
            return Some((number, cursor.position));
        }
        // The segment was rolled since: the next one goes on.
        (number + 1 < self.segments.len()).then_some((number + 1, 0))
    }

    /// Cuts the range that begins at `position` of a segment. `first_end` is where the first batch
    /// ends, if that is known.
    fn slice(
        &self,
        number: usize,
        position: u64,
        first_end: Option<u64>,
        first_offset: Offset,
        bounds: Bounds,
    ) -> Result<Option<FileSlice>, StorageError> {
        let segment = &self.segments[number];
        let (end_most, next) = self.position_of_limit(number, bounds.limit)?;
        let most = position.saturating_add(bounds.max_bytes.min(i32::MAX as u64));
        let (mut end, mut next) = match end_most <= most {
            true => (end_most, Some(next)),
            false => segment.batches_end(&self.home, position, most)?,
        };
        if end <= position {
            if end_most <= position || !bounds.at_least_one {
                return Ok(None);
            }
            (end, next) = self.first_batch(number, position, first_end)?;
        }
        let next = self.cursor(number, end, next.unwrap_or(Offset(-1)));
        let size_bytes = (end - position) as u32;
        let file = segment.file(&self.home)?;
        Ok(Some(FileSlice { file, position, size_bytes, first_offset, next }))
    }

    /// Up to where a segment may be read, and the offset that follows.
    fn position_of_limit(
        &self,
        number: usize,
        limit: Offset,
    ) -> Result<(u64, Offset), StorageError> {
        let segment = &self.segments[number];
        let end = self.end_of(number);
        if limit >= end {
            return Ok((segment.size(), end));
        }
        let known = match number + 1 == self.segments.len() {
            true => self.boundaries.as_ref().and_then(|b| b.position(limit)),
            false => None,
        };
        match known {
            Some(position) => Ok((position, limit)),
            None => Ok((segment.position_of(&self.home, limit)?, limit)),
        }
    }

    fn first_batch(
        &self,
        number: usize,
        position: u64,
        first_end: Option<u64>,
    ) -> Result<(u64, Option<Offset>), StorageError> {
        if let Some(end) = first_end {
            return Ok((end, None));
        }
        let segment = &self.segments[number];
        let file = segment.file(&self.home)?;
        match HeaderWalk::new(&*file, position, segment.size()).next() {
            Ok(Some((at, header))) => {
                Ok((at + header.size_bytes as u64, Some(header.next_offset())))
            }
            Ok(None) => Ok((position, None)),
            Err(error) => Err(segment.unreadable(&self.home, position, segment.base, error)),
        }
    }

    fn cursor(&self, number: usize, position: u64, offset: Offset) -> ReadCursor {
        ReadCursor {
            offset,
            segment: self.segments[number].base,
            position,
            generation: self.generation,
        }
    }
}
