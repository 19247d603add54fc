//! The part of a read that looks at the device: finding the batch, and how far whole batches reach.
//!
//! What is handed out goes to the reader unread, so this is where a stamp that is not what was written
//! is told (`stamps.rs`). Batches that were appended or scanned since the log was opened are not looked
//! at again; of the others each header is read once, by the first who reads there.

use model::Offset;

use super::read::{FileSlice, ReadCursor};
use crate::StorageError;
use crate::names::{Home, LOG};
use crate::scan::{HeaderWalk, ScanError};
use crate::segment::Segment;
use crate::stamps::Stamps;

/// A read whose answer takes a look into indexes or batches: prepared under the log's lock, run
/// without it, for a device may take its time.
#[derive(Debug)]
pub struct ReadLookup {
    pub(super) home: Home,
    pub(super) generation: u64,
    /// Views of the segment that holds the offset and, should its end have been compacted away, of
    /// those that follow up to the next batch.
    pub(super) segments: Vec<SegmentView>,
    pub(super) offset: Offset,
    /// Where the batch begins, if a cursor told.
    pub(super) position: Option<u64>,
    pub(super) limit: Offset,
    pub(super) max_bytes: u64,
    pub(super) at_least_one: bool,
    pub(super) stamps: Stamps,
}

#[derive(Debug)]
pub(super) struct SegmentView {
    pub(super) segment: Segment,
    /// The offset behind it.
    pub(super) end: Offset,
    /// Where the batch ends that the limit lies right behind, if that is known.
    pub(super) limit_position: Option<u64>,
}

impl ReadLookup {
    /// Of what [`Log::generation`] the answer speaks.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Looks up. Fails with [`StorageError::Damaged`] if the batch with the offset is not where it must
    /// be, with [`StorageError::Io`] also when retention has put the segment away in the meantime: then
    /// look up again.
    pub fn run(&self) -> Result<Option<FileSlice>, StorageError> {
        if let Some(position) = self.position {
            let (view, expected) = (&self.segments[0], Some(self.offset));
            return match self.has_compared(view, position) {
                true => self.slice(view, position, None, self.offset),
                false => self.compared_slice(view, position, expected, self.offset),
            };
        }
        // A segment whose end was compacted away leads on to the next one.
        for view in &self.segments {
            let (segment, offset) = (&view.segment, self.offset);
            let found = segment.locate_stamped(&self.home, offset, view.end, &self.stamps)?;
            let Some(found) = found else { continue };
            let (position, first) = (found.position, found.header.base_offset);
            if first > offset && self.stamps.is_dense(offset) {
                let reason = format!("offset {first} follows where {offset} is due");
                return Err(self.missing(view, position, reason));
            }
            return match self.has_compared(view, position) {
                true => self.slice(view, position, Some(found.end()), first),
                false => self.compared_slice(view, position, Some(first), first),
            };
        }
        match self.segments.first() {
            Some(view) if self.stamps.is_dense(self.offset) => {
                let reason = format!("no batch has the offset, and the log ends at {}", self.limit);
                Err(self.missing(view, view.segment.size(), reason))
            }
            _ => Ok(None),
        }
    }

    fn missing(&self, view: &SegmentView, position: u64, reason: String) -> StorageError {
        let path = self.home.segment_path(view.segment.base, LOG);
        StorageError::damaged(&path, position, self.offset, reason)
    }

    fn most(&self, position: u64) -> u64 {
        position.saturating_add(self.max_bytes.min(i32::MAX as u64))
    }

    fn has_compared(&self, view: &SegmentView, position: u64) -> bool {
        let segment = &view.segment;
        segment.has_compared(position..self.most(position).min(segment.size()))
    }

    /// As [`ReadLookup::slice`], reading the header of every batch in the range. A batch that cannot
    /// follow the one before ends it; one that cannot be the first is an error.
    fn compared_slice(
        &self,
        view: &SegmentView,
        position: u64,
        expected: Option<Offset>,
        first_offset: Offset,
    ) -> Result<Option<FileSlice>, StorageError> {
        let segment = &view.segment;
        let file = segment.file(&self.home)?;
        let mut walk = HeaderWalk::new(&*file, position, segment.size());
        let mut chain = self.stamps.chain(expected, view.end);
        let (most, mut end) = (self.most(position), position);
        loop {
            let at = walk.position();
            let header = match walk.next() {
                Ok(Some((_, header))) => header,
                Ok(None) => break,
                Err(ScanError::Batch(_)) if at > position => break,
                Err(error) => return Err(segment.unreadable(&self.home, at, first_offset, error)),
            };
            let is_first_allowed = at == position && self.at_least_one;
            if header.base_offset >= self.limit && at > position
                || walk.position() > most && !is_first_allowed
            {
                break;
            }
            match chain.take(&header) {
                Ok(()) => end = walk.position(),
                // What stands before is right; the reader meets this one when it gets here.
                Err(_) if at > position => break,
                Err(reason) => {
                    return Err(segment.misplaced(&self.home, at, &chain, reason));
                }
            }
        }
        if end == position {
            return Ok(None);
        }
        segment.note_compared(position..end);
        let next = ReadCursor {
            offset: chain.expected().unwrap_or(Offset(-1)),
            segment: segment.base,
            position: end,
            generation: self.generation,
        };
        let size_bytes = (end - position) as u32;
        Ok(Some(FileSlice { file, position, size_bytes, first_offset, next }))
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
        let most = self.most(position);
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
