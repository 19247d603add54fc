//! Deleting from the log's front: by age, by size, and by request.
//!
//! Deleting moves the log start and gives files another name; they are removed later, when nobody
//! reads them any more. Not here: compaction, which keeps the log start.
//!
//! In steps, so that the log is not locked while a device is waited for: what tells the age of segments
//! is read ([`RetentionLook`]), [`Log::retention_due`] decides, the caller makes the new log start
//! durable, [`Log::begin_retention`] takes the segments out of the log, and [`RetentionTicket::run`]
//! renames their files, in any order: an opening expects no whole log before the log start.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use model::{Offset, Timestamp};

use super::Log;
use super::known_producers::{self, ProducersKept};
use crate::disk::Disk;
use crate::disk::removal::Freeing;
use crate::error::{Context, found_no_room};
use crate::names::{self, Home};
use crate::segment::Segment;
use crate::{LogConfig, StorageError};

/// Files that no log refers to any more, to be removed after `file.delete.delay.ms`.
#[derive(Debug)]
#[must_use = "the files stay until they are removed"]
pub struct DeletedSegment {
    paths: Vec<PathBuf>,
    /// The offset that the segment began at.
    pub base_offset: Offset,
    /// Bytes of batches in it.
    pub size_bytes: u64,
}

impl DeletedSegment {
    pub(crate) fn new(paths: Vec<PathBuf>, base_offset: Offset, size_bytes: u64) -> DeletedSegment {
        DeletedSegment { paths, base_offset, size_bytes }
    }

    /// Removes the files. What fails to be removed is removed when the log is opened again.
    pub fn remove(&self, disk: &dyn Disk) -> std::io::Result<()> {
        self.free(&mut Freeing::new(disk, &mut || true)).map(drop)
    }

    /// As [`DeletedSegment::remove`], with pauses; false: not all of it is gone. May be called again.
    pub fn free(&self, freeing: &mut Freeing<'_>) -> std::io::Result<bool> {
        for path in &self.paths {
            if !freeing.file(path)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Log {
    /// Nothing before `offset` is read any more (DeleteRecords, KIP-107). Files go with the next
    /// [`Log::retain`]. An offset before the log start changes nothing.
    ///
    /// Fails with [`StorageError::OutOfRange`] behind the log's end.
    pub fn delete_records_before(&mut self, offset: Offset) -> Result<(), StorageError> {
        let (log_start, log_end) = (self.log_start, self.log_end);
        if offset > log_end {
            return Err(StorageError::OutOfRange { offset, log_start, log_end });
        }
        self.start_at(offset);
        Ok(())
    }

    fn start_at(&mut self, offset: Offset) {
        if offset > self.log_start {
            self.log_start = offset;
            let begun = self.epochs.entry_at(offset);
            if begun.map(|(epoch, _)| epoch) != self.first_epoch.map(|(epoch, _)| epoch) {
                self.first_epoch = begun;
            }
            self.epochs_unwritten |= self.epochs.truncate_start(offset);
        }
    }

    /// What must be read before [`Log::retention_due`] can tell which segments are due.
    pub fn retention_look(&self) -> RetentionLook {
        let by_age = self.config.cleanup.delete && self.config.retention_ms >= 0;
        let segments = if by_age { self.segments.clone() } else { Vec::new() };
        let (home, config) = (self.home.clone(), Arc::clone(&self.config));
        RetentionLook { home, config, segments, log_start: self.log_start }
    }

    /// Which segments have served their time: too old (`retention.ms`), too much (`retention.bytes`), or
    /// before the log start. Only what lies below the high watermark goes, and whole segments. A segment
    /// whose records carry no time is as old as its file. Segments that were not looked at
    /// ([`Log::retention_look`]) do not age. Touches no file.
    pub fn retention_due(
        &mut self,
        now: Timestamp,
        high_watermark: Offset,
    ) -> Result<RetentionDue, StorageError> {
        self.usable()?;
        self.producers.settle(high_watermark);
        let count = self.retired(now, high_watermark);
        if count == self.segments.len() {
            return Ok(RetentionDue::AllBehindRoll);
        }
        let start = self.segments[count].base.max(self.log_start);
        Ok(if count > 0 { RetentionDue::Before(start) } else { RetentionDue::Nothing })
    }

    /// Takes the segments out of the log that end at or before `start`, which is durable as the log's
    /// start: no new reader comes to them from now on. Touches no file. `None`: there are
    /// none.
    pub fn begin_retention(
        &mut self,
        start: Offset,
    ) -> Result<Option<RetentionTicket>, StorageError> {
        self.usable()?;
        let count = self.segments[1..].iter().take_while(|next| next.base <= start).count();
        if count == 0 {
            return Ok(None);
        }
        assert!(!self.is_resumed, "what producers wrote there is known");
        let next = self.segments[count].base;
        let producers = self.keep_producers_at(next);
        let retired: Vec<Segment> = self.segments.drain(..count).collect();
        self.start_at(next);
        self.cleaned_below = self.cleaned_below.max(next);
        let kept = self.snapshots.split_off(self.snapshots.partition_point(|at| *at < next));
        let outdated = std::mem::replace(&mut self.snapshots, kept);
        self.assert_ordered();
        Ok(Some(RetentionTicket {
            home: self.home.clone(),
            retired: retired.iter().map(|segment| (segment.base, segment.size())).collect(),
            producers,
            outdated,
            names_version: self.durability.names_version(),
        }))
    }

    /// Takes note of what became of the files. Fails as [`RetentionTicket::run`] has: the log takes no
    /// more writes.
    pub fn finish_retention(
        &mut self,
        ticket: RetentionTicket,
        result: Result<Vec<DeletedSegment>, StorageError>,
    ) -> Result<Vec<DeletedSegment>, StorageError> {
        let deleted = self.failing(result)?;
        self.producers_are_kept(&ticket.producers);
        self.durability.directory_is_synced(ticket.names_version);
        Ok(deleted)
    }

    /// Deletes what is due, all steps at once, for a log that has no other user and whose start is
    /// not made durable elsewhere: one segment after the other, the oldest first, each durably. An active
    /// segment that is due is rolled first.
    ///
    /// Returns what is to be removed later. Fails with [`StorageError::Io`]: the log takes no more
    /// writes.
    pub fn retain(
        &mut self,
        now: Timestamp,
        high_watermark: Offset,
    ) -> Result<Vec<DeletedSegment>, StorageError> {
        self.read_what_is_left()?;
        let look = self.retention_look().run(now);
        self.failing(look)?;
        let start = match self.retention_due(now, high_watermark)? {
            RetentionDue::Nothing => return Ok(Vec::new()),
            RetentionDue::Before(start) => start,
            RetentionDue::AllBehindRoll => {
                self.roll(self.log_end, now)?;
                self.log_end
            }
        };
        let mut deleted = Vec::new();
        while let Some(next) = self.segments.get(1).map(|next| next.base).filter(|b| *b <= start) {
            let Some(mut ticket) = self.begin_retention(next)? else { break };
            let result = ticket.run();
            deleted.extend(self.finish_retention(ticket, result)?);
        }
        Ok(deleted)
    }

    /// The files of the producers at this offset are gone with their segment.
    pub(crate) fn forget_snapshot(&mut self, base: Offset) {
        self.snapshots.retain(|offset| *offset != base);
    }

    /// How many segments at the front have served their time.
    fn retired(&self, now: Timestamp, high_watermark: Offset) -> usize {
        let config = &self.config;
        let mut count = 0;
        let mut size = self.size_bytes();
        for (number, segment) in self.segments.iter().enumerate() {
            let end = self.end_of(number);
            let is_last_and_empty = number + 1 == self.segments.len() && segment.size() == 0;
            if end > high_watermark || is_last_and_empty {
                break;
            }
            let too_much = config.retention_bytes >= 0
                && size - segment.size() >= config.retention_bytes as u64;
            let due = end <= self.log_start && number + 1 < self.segments.len()
                || config.cleanup.delete && (too_much || is_expired(config, segment, now));
            if !due {
                break;
            }
            size -= segment.size();
            count += 1;
        }
        count
    }
}

/// What retention is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionDue {
    /// All segments stay.
    Nothing,
    /// The segments that end at or before this offset go, once it is durable as the log's start.
    Before(Offset),
    /// All segments go: the active one is to be rolled, and then is to be asked again.
    AllBehindRoll,
}

/// Reads what tells the age of segments, without the log's lock, so that it is known under it.
#[derive(Debug)]
pub struct RetentionLook {
    home: Home,
    config: Arc<LogConfig>,
    /// Views of all segments, if age matters at all.
    segments: Vec<Segment>,
    log_start: Offset,
}

impl RetentionLook {
    /// Reads, from the front on, as far as segments may be due.
    pub fn run(&self, now: Timestamp) -> Result<(), StorageError> {
        for segment in &self.segments {
            segment.read_age(&self.home)?;
            let only_by_age = self.config.retention_bytes < 0 && segment.base >= self.log_start;
            if only_by_age && !is_expired(&self.config, segment, now) {
                break;
            }
        }
        Ok(())
    }
}

/// Whether a segment is too old, as far as that is known without reading.
fn is_expired(config: &LogConfig, segment: &Segment, now: Timestamp) -> bool {
    let is_due = |newest| now.ms_since(newest) > config.retention_ms;
    config.retention_ms >= 0 && segment.known_newest().is_some_and(is_due)
}

/// Segments that are not part of the log any more, and whose files are to get other names. Running it
/// needs no lock, but nothing else that changes the log's names may happen meanwhile, appends and rolls
/// excepted.
#[derive(Debug)]
#[must_use = "the files have their old names until this is run"]
pub struct RetentionTicket {
    home: Home,
    /// Bases and bytes of the segments, the oldest first.
    retired: Vec<(Offset, u64)>,
    /// What tells of producers behind them, to be durable before they go.
    producers: ProducersKept,
    /// Offsets of files of the producers that are of no use any more.
    outdated: Vec<Offset>,
    names_version: u64,
}

impl RetentionTicket {
    /// Renames the files, durably when it returns.
    pub fn run(&mut self) -> Result<Vec<DeletedSegment>, StorageError> {
        let (disk, dir) = (Arc::clone(&self.home.disk), self.home.dir.clone());
        // The name of the segment behind those that go, and of what tells of producers there.
        self.producers.run()?;
        disk.sync_dir(&dir).during("sync", &dir)?;
        let mut deleted = Vec::with_capacity(self.retired.len());
        for (base, size_bytes) in &self.retired {
            let paths = rename_deleted(&self.home, *base)?;
            deleted.push(DeletedSegment::new(paths, *base, *size_bytes));
        }
        disk.sync_dir(&dir).during("sync", &dir)?;
        for offset in &self.outdated {
            known_producers::remove_files(&self.home, *offset)?;
        }
        Ok(deleted)
    }
}

/// Gives a segment's files the names of deleted ones, and returns those that there are.
pub(crate) fn rename_deleted(home: &Home, base: Offset) -> Result<Vec<PathBuf>, StorageError> {
    const SUFFIXES: [&str; 7] = [
        names::LOG,
        names::OFFSET_INDEX,
        names::TIME_INDEX,
        names::TRANSACTION_INDEX,
        names::TRANSACTION_SUMS,
        names::SNAPSHOT,
        names::PRODUCERS,
    ];
    let set_aside = |suffix| set_aside(home, base, suffix).transpose();
    SUFFIXES.into_iter().filter_map(set_aside).collect()
}

/// Gives a file of a segment the name of a deleted one; `None` if it is not there. The name is longer than its place in the
/// directory may be: where the disk has no room for another place the file goes at once.
pub(crate) fn set_aside(
    home: &Home,
    base: Offset,
    suffix: &str,
) -> Result<Option<PathBuf>, StorageError> {
    let (from, to) = (home.segment_path(base, suffix), home.deleted_path(base, suffix));
    match home.disk.rename(&from, &to) {
        Ok(()) => Ok(Some(to)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if found_no_room(&error) => {
            home.disk.remove_file(&from).during("remove", &from)?;
            Ok(None)
        }
        Err(error) => Err(error).during("rename", &from),
    }
}
