//! Taking a segment up again: after opening it, after a crash, after cutting its end. What is known of
//! it in memory is learned from its last index entry on.

use model::Offset;

use super::{Peak, Segment};
use crate::StorageError;
use crate::error::Context;
use crate::index::{Entry, OffsetEntry, TimeEntry};
use crate::names::{Home, LOG};
use crate::scan::HeaderWalk;

impl Segment {
    /// Cuts the segment at `position`, the start of a batch, durably: indexes first, so that no
    /// index ever names what is not there.
    pub(crate) fn truncate(
        &mut self,
        home: &Home,
        position: u64,
        cut: Offset,
    ) -> Result<Option<Offset>, StorageError> {
        let (base, relative) = (self.base, self.relative(cut));
        self.offsets
            .truncate(home, base, relative)
            .during("truncate", &home.segment_path(base, OffsetEntry::SUFFIX))?;
        self.times
            .truncate(home, base, relative)
            .during("truncate", &home.segment_path(base, TimeEntry::SUFFIX))?;
        let path = home.segment_path(base, LOG);
        let file = self.file(home)?;
        file.truncate(position).during("truncate", &path)?;
        file.sync().during("sync", &path)?;
        self.size = position;
        self.synced_bytes = position;
        self.compared_from = self.compared_from.min(position);
        self.reserved = 0;
        self.unsealed = true;
        self.version += 1;
        self.recompute(home)
    }

    /// Takes the segment as known up to `position`, where the batch of the last index entry begins,
    /// as it was when that entry had just been made.
    pub(crate) fn resume(&mut self, home: &Home, position: u64) -> Result<(), StorageError> {
        // Asked once, both indexes know their last entry without their file.
        let path = home.segment_path(self.base, TimeEntry::SUFFIX);
        self.offsets.last(home, self.base).during("read", &path)?;
        let last = self.times.last(home, self.base).during("read", &path)?;
        *self.peak.lock() = Some(self.peak_below(home, last, position)?);
        self.size = position;
        self.compared_from = position;
        self.synced_bytes = 0;
        self.since_entry_bytes = 0;
        self.unsealed = true;
        Ok(())
    }

    /// The largest timestamp up to the batch that `last` names, or if that lies before `position`, of
    /// the batches before there. An entry that names no batch was damaged and counts for nothing.
    fn peak_below(
        &self,
        home: &Home,
        last: Option<TimeEntry>,
        position: u64,
    ) -> Result<Peak, StorageError> {
        let named = last.map(|entry| self.batch_named(home, &entry)).transpose()?.flatten();
        let mut peak = self.peak_of(last.filter(|_| named.is_some()));
        let file = self.file(home)?;
        let mut walk = HeaderWalk::new(&*file, named.map_or(0, |batch| batch.position), position);
        loop {
            match walk.next() {
                Ok(Some((_, header))) => peak = peak.max_with(&header),
                Ok(None) => return Ok(peak),
                Err(error) => return Err(self.unreadable(home, walk.position(), self.base, error)),
            }
        }
    }

    /// Opens a segment to append to it, trusting its files. Returns the offset behind its last
    /// batch, `None` if there is none. Missing or damaged indexes are made anew.
    pub(crate) fn reopen(&mut self, home: &Home) -> Result<Option<Offset>, StorageError> {
        let path = home.segment_path(self.base, OffsetEntry::SUFFIX);
        let broken = self.offsets.is_broken(home, self.base).during("read", &path)?
            || self.times.is_broken(home, self.base).during("read", &path)?
            || self.start_is_wrong(home)?;
        if broken {
            self.rebuild_indexes(home)?;
            // One so small that there are no entries needs no files either.
            self.unsealed = !self.offsets.is_known_empty();
        }
        self.recompute(home)
    }

    /// Takes over what a view of this segment learned by [`Segment::reopen`], to which nothing was appended
    /// since.
    pub(crate) fn take_reopened(&mut self, view: &Segment) {
        self.since_entry_bytes = view.since_entry_bytes;
        self.unsealed |= view.unsealed;
    }

    fn start_is_wrong(&self, home: &Home) -> Result<bool, StorageError> {
        Ok(self.indexed_start(home, |e| e.key(), i64::MAX)?.is_none())
    }

    /// The offset behind the last batch that ends at or before `position`, a batch boundary.
    pub(crate) fn end_before(
        &self,
        home: &Home,
        position: u64,
    ) -> Result<Option<Offset>, StorageError> {
        let most = position as i64 - 1;
        let from = self.indexed_start(home, |e| e.position as i64, most)?.unwrap_or(0);
        let file = self.file(home)?;
        let mut walk = HeaderWalk::new(&*file, from, position);
        let mut end = None;
        loop {
            match walk.next() {
                Ok(Some((_, header))) => end = Some(header.next_offset()),
                Ok(None) => return Ok(end),
                Err(error) => return Err(self.unreadable(home, walk.position(), self.base, error)),
            }
        }
    }

    /// Learns again, from the last index entry on, what opening or truncation left unknown. Returns
    /// the offset behind the last batch, `None` if there is no batch.
    pub(crate) fn recompute(&mut self, home: &Home) -> Result<Option<Offset>, StorageError> {
        let base = self.base;
        *self.first_timestamp.lock() = None;
        let path = |suffix| home.segment_path(base, suffix);
        let last = self.offsets.last(home, base).during("read", &path(OffsetEntry::SUFFIX))?;
        let time = self.times.last(home, base).during("read", &path(TimeEntry::SUFFIX))?;
        let from = last.map_or(0, |entry| entry.position as u64);
        // The time index may have lost entries that the offset index has.
        let mut peak = self.peak_below(home, time, from)?;
        let mut end = None;
        let file = self.file(home)?;
        let mut walk = HeaderWalk::new(&*file, from, self.size);
        loop {
            match walk.next() {
                Ok(Some((_, header))) => {
                    end = Some(header.next_offset());
                    peak = peak.max_with(&header);
                }
                Ok(None) => break,
                Err(error) => return Err(self.unreadable(home, walk.position(), base, error)),
            }
        }
        self.since_entry_bytes = self.size - from;
        *self.peak.lock() = Some(peak);
        Ok(end)
    }
}
