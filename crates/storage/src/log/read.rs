//! Reading: from an offset to a range of one segment's file that may be sent as it stands.
//!
//! A range is whole batches; it begins with the batch that contains the offset. Payloads are never
//! looked at. Not here: what a fetch waits for, and who may read how far.

use std::sync::Arc;

use model::Offset;

use super::Log;
use crate::StorageError;
use crate::disk::DiskFile;
use crate::names::Home;
use crate::producers::transactions::{self, AbortedTransaction};
use crate::scan::HeaderWalk;
use crate::segment::Segment;

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

/// A read whose answer takes a look into indexes or batches: prepared under the log's lock, run
/// without it, for a device may take its time.
#[derive(Debug)]
pub struct ReadLookup {
    home: Home,
    generation: u64,
    /// Views of the segment that holds the offset and, should its end have been compacted away, of
    /// those that follow up to the next batch.
    segments: Vec<SegmentView>,
    offset: Offset,
    /// Where the batch begins, if a cursor told.
    position: Option<u64>,
    limit: Offset,
    max_bytes: u64,
    at_least_one: bool,
}

#[derive(Debug)]
struct SegmentView {
    segment: Segment,
    /// The offset behind it.
    end: Offset,
    /// Where the batch ends that the limit lies right behind, if that is known.
    limit_position: Option<u64>,
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
        let fits = position < end_position && end_position - position <= max_bytes as u64;
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
        }))
    }

    /// Counts what makes positions in files mean something else: a look-up from before is void.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Where a batch ends in the active segment that `limit` lies right behind, if that is known.
    fn limit_position(&self, number: usize, limit: Offset) -> Option<u64> {
        let is_active = number + 1 == self.segments.len();
        self.boundaries.as_ref().filter(|_| is_active)?.position(limit)
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
}

impl ReadLookup {
    /// Of what [`Log::generation`] the answer speaks.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Looks up. Fails with [`StorageError::Io`] also when retention has put the segment away in the
    /// meantime: then look up again.
    pub fn run(&self) -> Result<Option<FileSlice>, StorageError> {
        if let Some(position) = self.position {
            return self.slice(&self.segments[0], position, None, self.offset);
        }
        // A segment whose end was compacted away leads on to the next one.
        for view in &self.segments {
            if let Some(found) = view.segment.locate(&self.home, self.offset)? {
                let first = found.header.base_offset;
                return self.slice(view, found.position, Some(found.end()), first);
            }
        }
        Ok(None)
    }

    /// Cuts the range that begins at `position` of a segment. `first_end` is where the first batch
    /// ends, if that is known.
    fn slice(
        &self,
        view: &SegmentView,
        position: u64,
        first_end: Option<u64>,
        first_offset: Offset,
    ) -> Result<Option<FileSlice>, StorageError> {
        let (end_most, next) = self.position_of_limit(view)?;
        let most = position.saturating_add(self.max_bytes.min(i32::MAX as u64));
        let (mut end, mut next) = match end_most <= most {
            true => (end_most, Some(next)),
            false => view.segment.batches_end(&self.home, position, most)?,
        };
        if end <= position {
            if end_most <= position || !self.at_least_one {
                return Ok(None);
            }
            (end, next) = self.first_batch(view, position, first_end)?;
        }
        let next = ReadCursor {
            offset: next.unwrap_or(Offset(-1)),
            segment: view.segment.base,
            position: end,
            generation: self.generation,
        };
        let size_bytes = (end - position) as u32;
        let file = view.segment.file(&self.home)?;
        Ok(Some(FileSlice { file, position, size_bytes, first_offset, next }))
    }

    /// Up to where a segment may be read, and the offset that follows.
    fn position_of_limit(&self, view: &SegmentView) -> Result<(u64, Offset), StorageError> {
        if self.limit >= view.end {
            return Ok((view.segment.size(), view.end));
        }
        match view.limit_position {
            Some(position) => Ok((position, self.limit)),
            None => Ok((view.segment.position_of(&self.home, self.limit)?, self.limit)),
        }
    }

    fn first_batch(
        &self,
        view: &SegmentView,
        position: u64,
        first_end: Option<u64>,
    ) -> Result<(u64, Option<Offset>), StorageError> {
        if let Some(end) = first_end {
            return Ok((end, None));
        }
        let segment = &view.segment;
        let file = segment.file(&self.home)?;
        match HeaderWalk::new(&*file, position, segment.size()).next() {
            Ok(Some((at, header))) => {
                Ok((at + header.size_bytes as u64, Some(header.next_offset())))
            }
            Ok(None) => Ok((position, None)),
            Err(error) => Err(segment.unreadable(&self.home, position, segment.base, error)),
        }
    }
}
