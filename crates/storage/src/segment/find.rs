//! Finding things in a segment: a batch by offset, a position by time, the end of a range.
//!
//! An index entry is followed only if the batch that it leads to is one it may speak of; an index
//! that lies, or is missing, is made anew out of the batches' headers.

use std::io;

use model::{Offset, Timestamp};

use super::{Located, Peak, Segment, newest_record};
use crate::StorageError;
use crate::disk::DiskFile;
use crate::error::Context;
use crate::index::{Entry, OffsetEntry, TimeEntry};
use crate::names::{Home, LOG};
use crate::scan::{HeaderWalk, ScanError};

impl Segment {
    /// The batch that contains `offset`, or else the first one behind it; `None` if the segment
    /// ends before `offset`.
    pub(crate) fn locate(
        &self,
        home: &Home,
        offset: Offset,
    ) -> Result<Option<Located>, StorageError> {
        let from = self.start_of_search(home, offset)?;
        let file = self.file(home)?;
        self.locate_from(home, &*file, from, offset)
    }

    /// As [`Segment::locate`], from a batch known to be no later than the one wanted.
    fn locate_from(
        &self,
        home: &Home,
        file: &dyn DiskFile,
        position: u64,
        offset: Offset,
    ) -> Result<Option<Located>, StorageError> {
        let mut walk = HeaderWalk::new(file, position, self.size);
        loop {
            match walk.next() {
                Ok(Some((position, header))) if header.last_offset() >= offset => {
                    return Ok(Some(Located { position, header }));
                }
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.unreadable(home, walk.position(), offset, error)),
            }
        }
    }

    /// Where to begin looking for `offset`: the position that the index gives, if a batch begins
    /// there that ends at or before the entry's offset. Otherwise the index lies: it is rebuilt.
    fn start_of_search(&self, home: &Home, offset: Offset) -> Result<u64, StorageError> {
        let relative = self.relative(offset) as i64;
        match self.indexed_start(home, |e| e.key(), relative)? {
            Some(position) => Ok(position),
            None => {
                self.rebuild_indexes(home)?;
                Ok(self.indexed_start(home, |e| e.key(), relative)?.unwrap_or(0))
            }
        }
    }

    /// `None`: the index cannot be believed.
    pub(super) fn indexed_start(
        &self,
        home: &Home,
        value: impl Fn(&OffsetEntry) -> i64,
        most: i64,
    ) -> Result<Option<u64>, StorageError> {
        let entry = match self.offsets.floor(home, self.base, value, most) {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(Some(0)),
            Err(error) => return self.unless_broken(home, OffsetEntry::SUFFIX, error),
        };
        let position = entry.position as u64;
        let holds = *self.rebuilt.lock() || self.is_batch_of(home, position, &entry)?;
        Ok(holds.then_some(position))
    }

    /// An index that is missing or cut is `None`, anything else an error.
    pub(super) fn unless_broken<T>(
        &self,
        home: &Home,
        suffix: &str,
        error: io::Error,
    ) -> Result<Option<T>, StorageError> {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::InvalidData => Ok(None),
            _ => Err(error).during("read", &home.segment_path(self.base, suffix)),
        }
    }

    fn is_batch_of(
        &self,
        home: &Home,
        position: u64,
        entry: &OffsetEntry,
    ) -> Result<bool, StorageError> {
        let file = self.file(home)?;
        let end = self.base.plus(entry.relative_offset as i64);
        Ok(match HeaderWalk::new(&*file, position, self.size).next() {
            Ok(Some((_, header))) => self.base <= header.base_offset && header.last_offset() <= end,
            _ => false,
        })
    }

    /// Makes the indexes anew out of the headers of all batches.
    pub(super) fn rebuild_indexes(&self, home: &Home) -> Result<(), StorageError> {
        let file = self.file(home)?;
        let mut fresh = Segment::unscanned(self.base);
        let mut walk = HeaderWalk::new(&*file, 0, self.size);
        let mut next = self.base;
        loop {
            match walk.next() {
                // An index of offsets that do not rise leads anywhere.
                Ok(Some((at, header))) if header.base_offset < next => {
                    let path = home.segment_path(self.base, LOG);
                    let reason =
                        format!("offset {} follows where {next} is due", header.base_offset);
                    return Err(StorageError::damaged(&path, at, next, reason));
                }
                Ok(Some((at, header))) => {
                    next = header.next_offset();
                    fresh.note(at, &header, crate::LogConfig::default().index_interval_bytes);
                }
                Ok(None) => break,
                Err(error) => {
                    return Err(self.unreadable(home, walk.position(), self.base, error));
                }
            }
        }
        let peak = *fresh.peak.lock();
        if let Some(peak) = peak {
            fresh.note_peak(peak);
        }
        self.offsets.replace(fresh.offsets.take_memory());
        self.times.replace(fresh.times.take_memory());
        let mut known = self.peak.lock();
        // The segment may have grown since this view of it was taken.
        if known.is_none_or(|known| peak.is_some_and(|peak| peak.timestamp > known.timestamp)) {
            *known = peak;
        }
        *self.rebuilt.lock() = true;
        Ok(())
    }

    /// The position up to which whole batches reach that begin at `start` and end at or before
    /// `most`, which is less than the segment's size; `start` if none does. With it comes the offset
    /// behind the last of them, if its header was read.
    pub(crate) fn batches_end(
        &self,
        home: &Home,
        start: u64,
        most: u64,
    ) -> Result<(u64, Option<Offset>), StorageError> {
        let indexed = self.indexed_start(home, |e| e.position as i64, most as i64)?;
        let file = self.file(home)?;
        let mut walk = HeaderWalk::new(&*file, indexed.unwrap_or(start).max(start), self.size);
        let mut end = None;
        loop {
            let at = walk.position();
            match walk.next() {
                Ok(Some((_, header))) if walk.position() <= most => {
                    end = Some(header.next_offset());
                }
                Ok(_) => return Ok((at, end)),
                // What was found so far is whole; the reader meets the damage when it gets there.
                Err(ScanError::Batch(_)) if at > start => return Ok((at, end)),
                Err(error) => return Err(self.unreadable(home, at, self.base, error)),
            }
        }
    }

    /// The position at which the first batch begins that is not wholly below `limit`.
    pub(crate) fn position_of(&self, home: &Home, limit: Offset) -> Result<u64, StorageError> {
        Ok(self.locate(home, limit)?.map_or(self.size, |found| found.position))
    }

    /// The largest timestamp in the segment.
    pub(crate) fn peak(&self, home: &Home) -> Result<Peak, StorageError> {
        if let Some(peak) = *self.peak.lock() {
            return Ok(peak);
        }
        let last = match self.times.last(home, self.base) {
            Ok(last) => Some(last),
            Err(error) => self.unless_broken(home, TimeEntry::SUFFIX, error)?,
        };
        let peak = match last {
            Some(last) => self.closing_peak(home, last)?,
            None => None,
        };
        let Some(peak) = peak else {
            self.rebuild_indexes(home)?;
            return Ok(*self.peak.lock().get_or_insert(self.no_peak()));
        };
        *self.peak.lock() = Some(peak);
        Ok(peak)
    }

    /// The largest timestamp if `last`, the last entry of the time index, tells it. `None`: the entry was
    /// damaged, or entries behind it are missing, as if the file was cut.
    fn closing_peak(
        &self,
        home: &Home,
        last: Option<TimeEntry>,
    ) -> Result<Option<Peak>, StorageError> {
        let named = last.map(|entry| self.batch_named(home, &entry)).transpose()?;
        let from = match named {
            None => 0,
            Some(Some(batch)) => batch.end(),
            Some(None) => return Ok(None),
        };
        let peak = self.peak_of(last);
        let file = self.file(home)?;
        let mut walk = HeaderWalk::new(&*file, from, self.size);
        loop {
            match walk.next() {
                Ok(Some((_, header))) if newest_record(&header) > peak.timestamp => {
                    return Ok(None);
                }
                Ok(Some(_)) => {}
                Ok(None) => return Ok(Some(peak)),
                Err(error) => return Err(self.unreadable(home, walk.position(), self.base, error)),
            }
        }
    }

    /// The largest timestamp of the first batch; `None` if there is none.
    pub(crate) fn first_timestamp(&self, home: &Home) -> Result<Option<Timestamp>, StorageError> {
        if self.size == 0 {
            return Ok(None);
        }
        if let Some(known) = *self.first_timestamp.lock() {
            return Ok(Some(known));
        }
        let first = self.locate(home, self.base)?.map(|found| found.header.max_timestamp);
        *self.first_timestamp.lock() = first;
        Ok(first)
    }

    /// From where a record of at least this timestamp may be found: no earlier batch has one. Entries
    /// for offsets from `end` on, behind which the segment may have grown, count for nothing.
    pub(crate) fn position_by_time(
        &self,
        home: &Home,
        timestamp: Timestamp,
        end: Offset,
    ) -> Result<u64, StorageError> {
        let entry = self.time_entry(home, timestamp, end)?;
        Ok(self.batch_of(home, entry)?.map_or(0, |batch| batch.position))
    }

    /// The batch below `end` that has the largest timestamp of all batches up to it, as far as the
    /// time index tells: no earlier one has a larger timestamp. `None`: the index names none.
    pub(crate) fn newest_indexed(
        &self,
        home: &Home,
        end: Offset,
    ) -> Result<Option<Located>, StorageError> {
        let entry = self.time_entry(home, Timestamp(i64::MAX), end)?;
        self.batch_of(home, entry)
    }

    fn batch_of(
        &self,
        home: &Home,
        entry: Option<TimeEntry>,
    ) -> Result<Option<Located>, StorageError> {
        entry.map_or(Ok(None), |entry| self.batch_named(home, &entry))
    }

    /// The last entry of the time index with at most this timestamp, for an offset below `end`.
    fn time_entry(
        &self,
        home: &Home,
        timestamp: Timestamp,
        end: Offset,
    ) -> Result<Option<TimeEntry>, StorageError> {
        let below = self.relative(end);
        let value = |entry: &TimeEntry| match entry.relative_offset() < below {
            true => entry.key(),
            false => i64::MAX,
        };
        let most = timestamp.0.min(i64::MAX - 1);
        match self.times.floor(home, self.base, value, most) {
            Ok(entry) => Ok(entry),
            Err(error) => {
                self.unless_broken::<()>(home, TimeEntry::SUFFIX, error)?;
                self.rebuild_indexes(home)?;
                self.times
                    .floor(home, self.base, value, most)
                    .during("read", &home.segment_path(self.base, TimeEntry::SUFFIX))
            }
        }
    }

    /// The batch that an entry of the time index names; `None`: the entry was damaged. Compaction
    /// may have taken records, never moved them, so offset and timestamp must both be right.
    pub(crate) fn batch_named(
        &self,
        home: &Home,
        entry: &TimeEntry,
    ) -> Result<Option<Located>, StorageError> {
        let offset = self.base.plus(entry.relative_offset as i64);
        let found = self.locate(home, offset)?;
        Ok(found.filter(|b| {
            b.header.last_offset() == offset && b.header.max_timestamp == entry.timestamp
        }))
    }
}
