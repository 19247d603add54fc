//! Deleting from the log's front: by age, by size, and by request.
//!
//! Deleting moves the log start and gives files another name; they are removed later, when nobody
//! reads them any more. Not here: compaction, which keeps the log start.

use std::path::PathBuf;

use model::{Offset, Timestamp};

use super::Log;
use crate::StorageError;
use crate::disk::Disk;
use crate::error::Context;
use crate::names::{self, DELETED};

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
        for path in &self.paths {
            match disk.remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
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
            self.epochs_unwritten |= self.epochs.truncate_start(offset);
        }
    }

    /// Where the log would start if [`Log::retain`] ran now; `None` if nothing has served its time. To be
    /// made durable before the files go ([`Log::retain_from`]). An active segment that is due is
    /// rolled.
    pub fn plan_retention(
        &mut self,
        now: Timestamp,
        high_watermark: Offset,
    ) -> Result<Option<Offset>, StorageError> {
        self.usable()?;
        self.producers.settle(high_watermark);
        let count = self.retired(now, high_watermark)?;
        if count == self.segments.len() {
            let result = self.roll(self.log_end, now);
            self.failing(result)?;
        }
        Ok((count > 0).then(|| self.segments[count].base.max(self.log_start)))
    }

    /// Deletes the segments that end at or before `start`, which is durable as the log's start.
    pub fn retain_from(&mut self, start: Offset) -> Result<Vec<DeletedSegment>, StorageError> {
        self.usable()?;
        let mut deleted = Vec::new();
        while self.segments.len() > 1 && self.segments[1].base <= start {
            let result = self.delete_first();
            deleted.push(self.failing(result)?);
        }
        self.assert_ordered();
        Ok(deleted)
    }

    /// Deletes the segments that the configuration has no use for: too old (`retention.ms`), too
    /// much (`retention.bytes`), or before the log start. Only what lies below the high watermark
    /// goes, and whole segments; an active segment that is due is rolled first. Records without
    /// timestamps do not age.
    ///
    /// Returns what is to be removed later. Fails with [`StorageError::Io`]: the log takes no more
    /// writes.
    pub fn retain(
        &mut self,
        now: Timestamp,
        high_watermark: Offset,
    ) -> Result<Vec<DeletedSegment>, StorageError> {
        match self.plan_retention(now, high_watermark)? {
            Some(start) => self.retain_from(start),
            None => Ok(Vec::new()),
        }
    }

    /// How many segments at the front have served their time.
    fn retired(&self, now: Timestamp, high_watermark: Offset) -> Result<usize, StorageError> {
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
                || config.cleanup.delete && (too_much || self.is_expired(number, now)?);
            if !due {
                break;
            }
            size -= segment.size();
            count += 1;
        }
        Ok(count)
    }

    fn is_expired(&self, number: usize, now: Timestamp) -> Result<bool, StorageError> {
        if self.config.retention_ms < 0 {
            return Ok(false);
        }
        let segment = &self.segments[number];
        let mut newest = segment.peak(&self.home)?.timestamp;
        if newest == Timestamp::NONE {
            // Compaction may have left nothing but empty batches; their headers still have a time.
            newest = segment.first_timestamp(&self.home)?.unwrap_or(Timestamp::NONE);
        }
        Ok(newest > Timestamp::NONE && now.ms_since(newest) > self.config.retention_ms)
    }

    /// Renames the files of the first segment, durably, so that no later one ever goes before it.
    fn delete_first(&mut self) -> Result<DeletedSegment, StorageError> {
        assert!(self.segments.len() > 1, "the active segment stays");
        let segment = &self.segments[0];
        let (base, size_bytes) = (segment.base, segment.size());
        self.keep_producers_at(self.segments[1].base)?;
        let paths = self.rename_deleted(base)?;
        self.home.disk.sync_dir(&self.home.dir).during("sync", &self.home.dir)?;
        self.segments.remove(0);
        let start = self.segments[0].base;
        let kept = self.snapshots.split_off(self.snapshots.partition_point(|at| *at < start));
        for offset in std::mem::replace(&mut self.snapshots, kept) {
            self.remove_snapshot(offset)?;
        }
        self.start_at(start);
        self.cleaned_below = self.cleaned_below.max(start);
        Ok(DeletedSegment::new(paths, base, size_bytes))
    }

    /// Gives a segment's files the names of deleted ones.
    pub(crate) fn rename_deleted(&mut self, base: Offset) -> Result<Vec<PathBuf>, StorageError> {
        const SUFFIXES: [&str; 6] = [
            names::LOG,
            names::OFFSET_INDEX,
            names::TIME_INDEX,
            names::TRANSACTION_INDEX,
            names::SNAPSHOT,
            names::PRODUCERS,
        ];
        let mut paths = Vec::with_capacity(SUFFIXES.len());
        for suffix in SUFFIXES {
            let from = self.home.segment_path(base, suffix);
            let to = self.home.dir.join(names::file_name(base, suffix) + DELETED);
            match self.home.disk.rename(&from, &to) {
                Ok(()) => paths.push(to),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).during("rename", &from),
            }
        }
        self.snapshots.retain(|offset| *offset != base);
        Ok(paths)
    }
}
