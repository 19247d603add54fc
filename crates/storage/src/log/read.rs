//! Reading: from an offset to a range of one segment's file that may be sent as it stands.
//!
//! A range is whole batches; it begins with the batch that contains the offset. Payloads are never
//! looked at. Not here: what a fetch waits for, and who may read how far.

use std::path::PathBuf;
use std::sync::Arc;

use model::Offset;

use super::Log;
use super::lookup::{ReadLookup, SegmentView};
use crate::StorageError;
use crate::disk::DiskFile;
use crate::error::Context;
use crate::names::{LOG, file_name};
use crate::producers::aborted::{AbortedLookup, AbortedTransaction};
use crate::scan::{HeaderWalk, ScanError};
use crate::stamps::Stamps;

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

impl FileSlice {
    /// The offset behind the last batch. Reads the batch headers if the look-up did not.
    pub fn end_offset(&self) -> Result<Offset, StorageError> {
        if let Some(offset) = self.next.offset() {
            return Ok(offset);
        }
        let path = PathBuf::from(file_name(self.next.segment, LOG));
        let mut walk = HeaderWalk::new(&*self.file, self.position, self.next.position);
        let mut end = self.first_offset;
        loop {
            match walk.next() {
                Ok(Some((_, header))) => end = header.next_offset(),
                Ok(None) => return Ok(end),
                Err(ScanError::Io(error)) => return Err(error).during("read", &path),
                Err(ScanError::Batch(error)) => {
                    return Err(StorageError::batch(&path, walk.position(), end, error));
                }
            }
        }
    }
}

/// Where a reader goes on; spares the look-up in an index. Good or not, using it is safe: the log
/// checks it and falls back to a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCursor {
    /// The offset that the batch at the position contains or precedes; -1 if that is not known.
    pub(super) offset: Offset,
    pub(super) segment: Offset,
    pub(super) position: u64,
    pub(super) generation: u64,
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
        self.read_from(&ReadCursor::default(), offset, limit, max_bytes, at_least_one)
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
        let lookup = self.read_lookup(cursor, offset, limit, max_bytes, at_least_one)?;
        lookup.map_or(Ok(None), |lookup| lookup.run())
    }

    /// The answer to [`Log::read_from`] if it is known without a look at the device: for whoever
    /// follows the end of the log. `None`: a [`Log::read_lookup`] must tell.
    pub fn read_at_once(
        &self,
        cursor: &ReadCursor,
        offset: Offset,
        limit: Offset,
        max_bytes: u32,
    ) -> Option<FileSlice> {
        let (number, position) = self.place_of(cursor, offset)?;
        let (segment, end) = (&self.segments[number], self.end_of(number));
        let (end_position, next) = match limit >= end {
            true => (segment.size(), end),
            false => (self.limit_position(number, limit)?, limit),
        };
        let fits = position < end_position
            && end_position - position <= max_bytes as u64
            && segment.has_compared(position..end_position);
        let file = segment.open_file().filter(|_| fits && max_bytes <= i32::MAX as u32)?;
        Some(FileSlice {
            file,
            position,
            size_bytes: (end_position - position) as u32,
            first_offset: offset,
            next: ReadCursor {
                offset: next,
                segment: segment.base,
                position: end_position,
                generation: self.generation,
            },
        })
    }

    /// Prepares a [`Log::read_from`]. `None`: there is nothing below the limit.
    pub fn read_lookup(
        &self,
        cursor: &ReadCursor,
        offset: Offset,
        limit: Offset,
        max_bytes: u32,
        at_least_one: bool,
    ) -> Result<Option<ReadLookup>, StorageError> {
        let limit = self.checked_limit(offset, limit)?;
        if offset >= limit {
            return Ok(None);
        }
        let (first, position) = match self.place_of(cursor, offset) {
            Some((number, position)) => (number, Some(position)),
            None => (self.segment_of(offset), None),
        };
        let mut segments = Vec::with_capacity(2);
        for number in first..self.segments.len() {
            let segment = self.segments[number].clone();
            let is_last = position.is_some() || (number > first && segment.size() > 0);
            let limit_position = self.limit_position(number, limit);
            segments.push(SegmentView { segment, end: self.end_of(number), limit_position });
            if is_last {
                break;
            }
        }
        Ok(Some(ReadLookup {
            home: self.home.clone(),
            generation: self.generation,
            segments,
            offset,
            position,
            limit,
            max_bytes: max_bytes as u64,
            at_least_one,
            stamps: self.stamps_from(offset),
        }))
    }

    /// What the stamps of batches must be from `offset` on.
    pub(crate) fn stamps_from(&self, offset: Offset) -> Stamps {
        let epochs = if self.epochs_fall { &[] } else { self.epochs.entries() };
        Stamps::new(self.dense_from.unwrap_or(Offset(i64::MAX)), offset, epochs)
    }

    /// Whether `offset` lies in a segment before the one in which a reader that may see up to `limit` ends. True only of
    /// a limit in the active segment.
    pub fn is_segments_behind(&self, offset: Offset, limit: Offset) -> bool {
        self.segments.last().is_some_and(|active| offset < active.base && active.base <= limit)
    }

    /// Counts what makes positions in files mean something else: a look-up from before is void.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Where a batch ends in the active segment that `limit` lies right behind, if that is known.
    fn limit_position(&self, number: usize, limit: Offset) -> Option<u64> {
        let is_active = number + 1 == self.segments.len();
        is_active.then(|| self.boundaries.position(limit))?
    }

    /// The aborted transactions that have records between two offsets, for `read_committed`.
    pub fn aborted_transactions(
        &self,
        from: Offset,
        until: Offset,
    ) -> Result<Vec<AbortedTransaction>, StorageError> {
        self.aborted_lookup(from).map_or_else(|| Ok(Vec::new()), |lookup| lookup.run(until))
    }

    /// Prepares a search for the aborted transactions with records at or behind `from`. `None`: the log
    /// has none. Touches no file.
    pub fn aborted_lookup(&self, from: Offset) -> Option<AbortedLookup> {
        let segments = self.segments[self.segment_of(from)..].iter();
        let reaching = segments.filter(|segment| segment.aborted.reaches(from));
        let segments: Vec<_> = reaching.map(|segment| (segment.base, segment.aborted)).collect();
        (!segments.is_empty()).then(|| AbortedLookup { home: self.home.clone(), segments, from })
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
}
