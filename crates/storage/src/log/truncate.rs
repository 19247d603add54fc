//! Cutting the log's end: what a follower does that has more than its leader.
//!
//! The order of the steps keeps every crash in between harmless: first the promise that recovery
//! relies on is bounded, then whole segments go from the end, each durably before the next, then
//! the segment that stays is cut, then what is derived from batches is derived anew.

use model::{LeaderEpoch, Offset};

use super::Log;
use super::append::Boundaries;
use crate::StorageError;
use crate::error::Context;
use crate::segment::Segment;

impl Log {
    /// Drops every record at or behind `offset`. A batch that contains it goes as a whole, so that
    /// the log end may be lower than asked for; an offset at or behind the end changes nothing, one
    /// before the first segment empties the log and starts it there.
    ///
    /// Durable when it returns. Fails with [`StorageError::Io`]: the log takes no more writes.
    pub fn truncate_to(&mut self, offset: Offset) -> Result<(), StorageError> {
        self.usable()?;
        if offset >= self.log_end {
            self.end_gaps(offset);
            return Ok(());
        }
        if offset < self.segments[0].base {
            return self.truncate_fully_and_start_at(offset);
        }
        let result = self.truncate_within(offset);
        self.failing(result)?;
        self.assert_ordered();
        Ok(())
    }

    /// At or behind `end` there is nothing. What comes there has no gap, if nothing says so anew: so the next opening
    /// will be told by whoever noted the cut.
    pub(super) fn end_gaps(&mut self, end: Offset) {
        self.dense_from = self.dense_from.map(|from| from.min(end));
    }

    fn truncate_within(&mut self, offset: Offset) -> Result<(), StorageError> {
        let home = self.home.clone();
        let number = self.segment_of(offset);
        let cut = self.segments[number].locate(&home, offset)?;
        let first_cut = cut.as_ref().map_or(offset, |found| found.header.base_offset);
        let segment = &self.segments[number];
        let position = cut.as_ref().map_or(segment.size(), |found| found.position);
        let end = segment.end_before(&home, position)?.unwrap_or(segment.base);
        self.lower_ceiling(end)?;
        self.end_ahead();
        self.generation += 1;
        self.durability.truncated();
        self.boundaries = Boundaries::default();
        self.drop_segments_behind(number)?;
        let segment = self.active_mut();
        match cut {
            Some(found) => segment.truncate(&home, found.position, first_cut)?,
            None => segment.recompute(&home)?,
        };
        self.log_end = end;
        if self.log_end < self.log_start {
            // The records before the cut are deleted already: nothing of the log is left.
            let start = self.log_start.min(offset);
            return self.start_over(start);
        }
        self.forget_behind_end()
    }

    /// Removes the segments behind the one that stays, the last one first.
    fn drop_segments_behind(&mut self, number: usize) -> Result<(), StorageError> {
        while self.segments.len() > number + 1 {
            let last = self.segments.pop().expect("one more than are kept");
            self.remove_segment_files(last.base)?;
            self.home.disk.sync_dir(&self.home.dir).during("sync", &self.home.dir)?;
        }
        Ok(())
    }

    /// Derives anew what depends on batches that are gone.
    fn forget_behind_end(&mut self) -> Result<(), StorageError> {
        let end = self.log_end;
        let durability = &mut self.durability;
        durability.synced = durability.synced.min(end);
        durability.recovery_point = durability.recovery_point.min(end);
        self.cleaned_below = self.cleaned_below.min(end);
        self.end_gaps(end);
        while self.snapshots.last().is_some_and(|offset| *offset > end) {
            let offset = self.snapshots.pop().expect("it has a last one");
            self.remove_snapshot(offset)?;
        }
        self.drop_aborted_behind(end)?;
        self.home.disk.sync_dir(&self.home.dir).during("sync", &self.home.dir)?;
        let are_cut = self.epochs.truncate_end(end);
        self.told_epoch = self.told_epoch.min(self.epochs.latest());
        if are_cut {
            self.store_epochs()?;
        }
        self.reload_producers()
    }

    /// Writes the epochs of a log whose end has gone. A full disk is no failure: the file keeps the state of a crash
    /// right before this write, and the next write of the epochs has these.
    fn store_epochs(&mut self) -> Result<(), StorageError> {
        let stored = self.epochs.store(&self.home);
        self.epochs_unwritten = matches!(&stored, Err(cause) if cause.is_full());
        if self.epochs_unwritten { Ok(()) } else { stored }
    }

    /// Empties the log and starts it at `offset`: what a follower does whose leader's log begins
    /// behind this one's end.
    ///
    /// Durable when it returns. Fails with [`StorageError::Io`]: the log takes no more writes.
    pub fn truncate_fully_and_start_at(&mut self, offset: Offset) -> Result<(), StorageError> {
        self.usable()?;
        assert!(offset >= Offset(0), "no log starts before 0");
        let result = self.start_over(offset);
        self.failing(result)?;
        self.assert_ordered();
        Ok(())
    }

    /// Nothing that was promised holds while segments go one by one.
    pub(super) fn bound_emptying(&mut self, offset: Offset) -> Result<(), StorageError> {
        self.lower_ceiling(self.segments.first().map_or(offset, |first| first.base).min(offset))
    }

    pub(super) fn start_over(&mut self, offset: Offset) -> Result<(), StorageError> {
        let home = self.home.clone();
        self.bound_emptying(offset)?;
        self.end_ahead();
        self.generation += 1;
        self.durability.truncated();
        self.boundaries = Boundaries::default();
        let bases: Vec<Offset> = self.segments.iter().map(|segment| segment.base).collect();
        for base in bases.into_iter().rev() {
            self.remove_segment_files(base)?;
            home.disk.sync_dir(&home.dir).during("sync", &home.dir)?;
        }
        while let Some(snapshot) = self.snapshots.pop() {
            self.remove_snapshot(snapshot)?;
        }
        self.segments = vec![Segment::create(&home, offset)?];
        self.durability.first_name_changed();
        self.first_file_was_made();
        self.sync_names_now()?;
        (self.log_start, self.log_end) = (offset, offset);
        self.cleaned_below = offset;
        self.end_gaps(offset);
        self.durability.synced = offset;
        self.durability.recovery_point = offset;
        self.durability.unchecked_bytes = 0;
        self.producers = Default::default();
        self.epochs = Default::default();
        self.told_epoch = LeaderEpoch::NONE;
        self.first_epoch = None;
        self.store_epochs()
    }
}
