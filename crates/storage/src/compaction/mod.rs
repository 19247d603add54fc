//! Compaction: of every key the last record stays, at its offset.
//!
//! Three steps, of which only the first and the last need the partition's lock:
//!
//! 1. [`Log::plan_compaction`] chooses sealed segments that are durable, decided and old enough.
//! 2. [`CompactionPlan::run`] reads the dirty ones for the last offset of every key (`offset_map.rs`),
//!    then writes all of them anew without the records that are outdated (`rewrite.rs`), several
//!    small segments into one. Sealed segments do not change, so this takes as long as it takes.
//! 3. [`Log::finish_compaction`] puts the new segments in the place of the old ones.
//!
//! What stays besides: tombstones and the markers of empty transactions until their delete horizon
//! (KIP-534), which the first compaction that meets them sets; the last batch of every producer that
//! the log knows, if only as an empty one, or its next retry would pass for new; and the last batch
//! of every new segment, likewise, so that no offset is missing between segments.

mod aborted;
mod offset_map;
mod rewrite;
mod run;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use model::{Offset, ProducerEpoch, ProducerId, Timestamp};

use crate::disk::DiskFile;
use crate::error::Context;
use crate::log::DeletedSegment;
use crate::names::{self, CLEANED, Home, LOG, OFFSET_INDEX, SWAP, TIME_INDEX, TRANSACTION_INDEX};
use crate::producers::transactions::{self, AbortedTransaction};
use crate::segment::Segment;
use crate::{Log, LogConfig, StorageError};

/// A sealed segment to be compacted.
#[derive(Debug)]
struct Source {
    base: Offset,
    /// The offset behind it.
    end: Offset,
    size: u64,
    file: Arc<dyn DiskFile>,
}

/// What to compact. Holds the files, so that it runs without the log.
#[derive(Debug)]
pub struct CompactionPlan {
    home: Home,
    config: Arc<LogConfig>,
    /// All segments from the first one up to where may be compacted.
    sources: Vec<Source>,
    /// From here on it was never compacted.
    dirty_from: Offset,
    /// The aborted transactions that reach into the segments.
    aborted: Vec<AbortedTransaction>,
    /// Last offsets of the last batches of known producers, in order.
    last_batches: Vec<Offset>,
    /// Producers whose present incarnation wrote nothing but a marker.
    markers_only: Vec<(ProducerId, ProducerEpoch)>,
    generation: u64,
    now: Timestamp,
}

/// One new segment, complete and durable under a temporary name.
#[derive(Debug)]
struct Group {
    /// The segments that it replaces, by base and size; it has the first one's base.
    replaced: Vec<(Offset, u64)>,
    size: u64,
    /// Whether it differs from what it replaces.
    changed: bool,
}

/// What a compaction made, to be put in place by [`Log::finish_compaction`].
#[derive(Debug)]
#[must_use = "the new segments are not in place yet"]
pub struct Compaction {
    groups: Vec<Group>,
    cleaned_below: Offset,
    generation: u64,
    /// What it did.
    pub tally: Tally,
}

impl Compaction {
    /// The segments that will be gone or different afterwards, by their bases.
    pub fn replaces(&self) -> Vec<Offset> {
        let changed = self.groups.iter().filter(|group| group.changed);
        changed.flat_map(|group| group.replaced.iter().map(|(base, _)| *base)).collect()
    }
}

/// Figures of one compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes of batches read, the dirty ones twice.
    pub bytes_read: u64,
    /// Bytes of batches written.
    pub bytes_written: u64,
    /// Records read.
    pub records_read: u64,
    /// Records that stayed.
    pub records_kept: u64,
    /// Different keys in the dirty part.
    pub keys: u64,
    /// Batches whose records cannot be read; they stay as they are.
    pub batches_unreadable: u64,
    /// Whether the memory for keys was too small for all of the dirty part.
    pub memory_full: bool,
}

/// What [`Log::finish_compaction`] did.
#[derive(Debug)]
#[must_use = "the old files stay until they are removed"]
pub struct Compacted {
    /// Files to be removed after `file.delete.delay.ms`.
    pub deleted: Vec<DeletedSegment>,
    /// Bytes by which the log has become smaller; setting delete horizons may make it larger.
    pub freed_bytes: u64,
}

impl Log {
    /// Chooses what to compact. `None`: `cleanup.policy` says not to, or it is not worth it yet
    /// (`min.cleanable.dirty.ratio`, unless `max.compaction.lag.ms` has passed).
    pub fn plan_compaction(
        &self,
        now: Timestamp,
        high_watermark: Offset,
    ) -> Result<Option<CompactionPlan>, StorageError> {
        if !self.config.cleanup.compact || self.failure().is_some() {
            return Ok(None);
        }
        let count = self.compactable(now, high_watermark)?;
        if count == 0 || !self.is_worth_compacting(count, now)? {
            return Ok(None);
        }
        let mut sources = Vec::with_capacity(count);
        for (number, segment) in self.segments[..count].iter().enumerate() {
            sources.push(Source {
                base: segment.base,
                end: self.end_of(number),
                size: segment.size(),
                file: segment.file(&self.home)?,
            });
        }
        Ok(Some(CompactionPlan {
            home: self.home.clone(),
            config: Arc::clone(&self.config),
            sources,
            aborted: self.aborted_transactions(self.segments[0].base, self.end_of(count - 1))?,
            dirty_from: self.cleaned_below.max(self.segments[0].base),
            last_batches: self.producers.last_offsets(),
            markers_only: self.producers.markers_only(),
            generation: self.generation,
            now,
        }))
    }

    /// How many segments from the first on may be compacted: sealed, durable, without an open
    /// transaction, and old enough.
    fn compactable(&self, now: Timestamp, high_watermark: Offset) -> Result<usize, StorageError> {
        let decided = self.last_stable_offset(high_watermark).min(self.synced_below());
        let mut count = 0;
        for number in 0..self.segments.len() - 1 {
            let young = self.config.min_compaction_lag_ms > 0
                && now.ms_since(self.segments[number].peak(&self.home)?.timestamp)
                    < self.config.min_compaction_lag_ms;
            let clean = self.end_of(number) <= self.cleaned_below;
            if self.end_of(number) > decided || (young && !clean) {
                break;
            }
            count += 1;
        }
        Ok(count)
    }

    fn is_worth_compacting(&self, count: usize, now: Timestamp) -> Result<bool, StorageError> {
        let size = |numbers: std::ops::Range<usize>| -> u64 {
            self.segments[numbers].iter().map(Segment::size).sum()
        };
        let first_dirty = (0..count).find(|number| self.end_of(*number) > self.cleaned_below);
        let Some(first_dirty) = first_dirty else { return Ok(false) };
        let (clean, dirty) = (size(0..first_dirty), size(first_dirty..count));
        if dirty == 0 {
            return Ok(false);
        }
        let ratio = dirty as f64 / (clean + dirty) as f64;
        if ratio > self.config.min_cleanable_dirty_ratio {
            return Ok(true);
        }
        let first = self.segments[first_dirty].first_timestamp(&self.home)?;
        Ok(first.is_some_and(|first| {
            first > Timestamp::NONE && now.ms_since(first) > self.config.max_compaction_lag_ms
        }))
    }

    /// Puts the new segments in the place of the old ones, from the front. Where segments are not
    /// there any more as they were (the log was truncated, or segments were deleted) it ends, and the
    /// rest is dropped: later segments may have lost what tells of transactions in earlier ones.
    ///
    /// Fails with [`StorageError::Io`]: the log takes no more writes.
    pub fn finish_compaction(&mut self, compaction: Compaction) -> Result<Compacted, StorageError> {
        let mut done = Compacted { deleted: Vec::new(), freed_bytes: 0 };
        let before = self.size_bytes();
        let mut valid = compaction.generation == self.generation && self.failure().is_none();
        if valid {
            let result = self.keep_producers_behind(&compaction);
            self.failing(result)?;
        }
        for group in &compaction.groups {
            let place = self.place_of_group(group);
            valid &= place.is_some();
            match place {
                Some(first) if valid && group.changed => {
                    let result = self.swap(group, first, &mut done.deleted);
                    self.failing(result)?;
                }
                _ => self.drop_cleaned(group.replaced[0].0),
            }
        }
        if valid {
            self.cleaned_below = self.cleaned_below.max(compaction.cleaned_below);
        }
        self.generation += 1;
        done.freed_bytes = before.saturating_sub(self.size_bytes());
        Ok(done)
    }

    /// Of a producer whose last batch is behind the compacted segments, no batch within them stays.
    /// If that last one is truncated away, a snapshot must tell of those before it.
    fn keep_producers_behind(&mut self, compaction: &Compaction) -> Result<(), StorageError> {
        let last = compaction.groups.last().and_then(|group| group.replaced.last());
        let Some((last, _)) = last else { return Ok(()) };
        match self.segments.get(self.segment_of(*last) + 1).map(|next| next.base) {
            Some(next) => self.keep_producers_at(next),
            None => Ok(()),
        }
    }

    /// Where the group's segments are, if all of them are as they were.
    fn place_of_group(&self, group: &Group) -> Option<usize> {
        let first = self.segments.binary_search_by_key(&group.replaced[0].0, |s| s.base).ok()?;
        let here = self.segments.get(first..first + group.replaced.len())?;
        let same = here
            .iter()
            .zip(&group.replaced)
            .all(|(segment, (base, size))| segment.base == *base && segment.size() == *size);
        same.then_some(first)
    }

    /// The swap: after the first step, opening the log completes it; before, opening undoes it.
    fn swap(
        &mut self,
        group: &Group,
        first: usize,
        deleted: &mut Vec<DeletedSegment>,
    ) -> Result<(), StorageError> {
        let home = self.home.clone();
        let base = group.replaced[0].0;
        let sync = || home.disk.sync_dir(&home.dir).during("sync", &home.dir);
        let rename =
            |from: PathBuf, to: PathBuf| home.disk.rename(&from, &to).during("rename", &from);
        let swap = home.dir.join(names::file_name(base, LOG) + SWAP);
        rename(cleaned_path(&home, base, LOG), swap.clone())?;
        sync()?;
        for suffix in [OFFSET_INDEX, TIME_INDEX] {
            rename(cleaned_path(&home, base, suffix), home.segment_path(base, suffix))?;
        }
        // No record of an aborted transaction is left, so nothing need be known of them.
        let aborted = home.segment_path(base, TRANSACTION_INDEX);
        transactions::store_aborted(&home, &aborted, &[])?;
        for (old, size) in &group.replaced[1..] {
            let paths = self.rename_deleted(*old)?;
            deleted.push(DeletedSegment::new(paths, *old, *size));
        }
        sync()?;
        rename(swap, home.segment_path(base, LOG))?;
        sync()?;
        let new = Segment::sealed(base, group.size);
        self.segments.splice(first..first + group.replaced.len(), [new]);
        Ok(())
    }

    fn drop_cleaned(&self, base: Offset) {
        for suffix in [LOG, OFFSET_INDEX, TIME_INDEX] {
            // What stays behind is removed when the log is opened.
            let _ = self.home.disk.remove_file(&cleaned_path(&self.home, base, suffix));
        }
    }
}

fn cleaned_path(home: &Home, base: Offset, suffix: &str) -> PathBuf {
    home.dir.join(names::file_name(base, suffix) + CLEANED)
}
