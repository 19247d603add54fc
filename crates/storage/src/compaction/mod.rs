//! Compaction: of every key the last record stays, at its offset.
//!
//! Three steps, of which only the first and the last need the partition's lock:
//!
//! 1. [`Log::plan_compaction`] chooses sealed segments that are durable, decided and old enough.
//! 2. [`CompactionPlan::run`] reads the dirty ones for the last offset of every key (`offset_map.rs`),
//!    then writes all of them anew without the records that are outdated (`rewrite.rs`), several
//!    small segments into one. Sealed segments do not change, so this takes as long as it takes.
//! 3. [`Log::finish_compaction`] puts the new segments in the place of the old ones, again in three
//!    steps, so that no file is renamed under the lock (`swap.rs`).
//!
//! What stays besides: tombstones and the markers of empty transactions until their delete horizon
//! (KIP-534), which the first compaction that meets them sets; the last batch of every producer that
//! the log knows, if only as an empty one, or its next retry would pass for new; and the last batch
//! of every new segment, likewise, so that no offset is missing between segments. Within a segment an
//! empty batch stands where batches went, if no offset was missing before: then each batch begins where
//! the one before ends, and a base offset that is not the right one is noticed.

mod aborted;
mod offset_map;
mod rewrite;
mod run;
mod swap;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use model::{Offset, ProducerEpoch, ProducerId, Timestamp};

use crate::disk::DiskFile;
use crate::error::Context;
use crate::log::DeletedSegment;
use crate::names::{self, CLEANED, Home, LOG, OFFSET_INDEX, TIME_INDEX};
use crate::producers::aborted::{AbortedLookup, AbortedTransaction};
use crate::segment::Segment;
use crate::stamps::Stamps;
use crate::{Log, LogConfig, StorageError};

pub use swap::SwapTicket;

/// A sealed segment to be compacted.
#[derive(Debug)]
struct Source {
    base: Offset,
    /// The offset behind it.
    end: Offset,
    size: u64,
    file: Arc<dyn DiskFile>,
    /// When the file was last changed.
    modified: Timestamp,
}

/// What to compact. Holds the files, so that it runs without the log.
#[derive(Debug)]
pub struct CompactionPlan {
    home: Home,
    config: Arc<LogConfig>,
    /// All segments from the first one up to where may be compacted.
    sources: Vec<Source>,
    /// What stands before the checksums of their batches.
    stamps: Stamps,
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

/// Files of new segments under their temporary names. They go with this, unless they are kept for the swap: a disk
/// without room is not to be filled by what came to nothing.
#[derive(Debug)]
struct Cleaned {
    place: Place,
    bases: Vec<Offset>,
}

impl Cleaned {
    /// From now on the files stay, whatever becomes of this.
    fn keep(&mut self) {
        self.bases.clear();
    }
}

impl Drop for Cleaned {
    fn drop(&mut self) {
        self.bases.iter().for_each(|base| self.place.remove(*base));
    }
}

/// What a compaction made, to be put in place by [`Log::finish_compaction`]. Dropped before, its files are removed.
#[derive(Debug)]
#[must_use = "the new segments are not in place yet"]
pub struct Compaction {
    groups: Vec<Group>,
    cleaned: Cleaned,
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
    ///
    /// All steps at once, for a log that has no other user.
    pub fn plan_compaction(
        &self,
        now: Timestamp,
        high_watermark: Offset,
    ) -> Result<Option<CompactionPlan>, StorageError> {
        self.compaction_look().run()?;
        self.compaction_choice(now, high_watermark).map(CompactionChoice::open).transpose()
    }

    /// What must be read before [`Log::compaction_choice`] can tell what is worth it.
    pub fn compaction_look(&self) -> CompactionLook {
        let sealed = if self.config.cleanup.compact { self.segments.len() - 1 } else { 0 };
        let by_age = self.config.min_compaction_lag_ms > 0;
        let dirty = (0..sealed).find(|number| self.end_of(*number) > self.cleaned_below);
        CompactionLook {
            home: self.home.clone(),
            aged: if by_age { self.segments[..sealed].to_vec() } else { Vec::new() },
            first_dirty: dirty.map(|number| self.segments[number].clone()),
        }
    }

    /// As [`Log::plan_compaction`], without opening the files. Segments whose age was not looked at
    /// ([`Log::compaction_look`]) count as young.
    pub fn compaction_choice(
        &self,
        now: Timestamp,
        high_watermark: Offset,
    ) -> Option<CompactionChoice> {
        // Producers must be known: their last batches stay.
        if !self.config.cleanup.compact || self.failure().is_some() || self.is_resumed() {
            return None;
        }
        let count = self.compactable(now, high_watermark);
        if count == 0 || !self.is_worth_compacting(count, now) {
            return None;
        }
        let segments = self.segments[..count].iter().enumerate();
        Some(CompactionChoice {
            home: self.home.clone(),
            config: Arc::clone(&self.config),
            segments: segments.map(|(n, segment)| (segment.clone(), self.end_of(n))).collect(),
            aborted: self.aborted_lookup(self.segments[0].base),
            stamps: self.stamps_from(self.segments[0].base),
            dirty_from: self.cleaned_below.max(self.segments[0].base),
            last_batches: self.producers.last_offsets(),
            markers_only: self.producers.markers_only(),
            generation: self.generation,
            now,
        })
    }

    /// How many segments from the first on may be compacted: sealed, durable, without an open
    /// transaction, and old enough.
    fn compactable(&self, now: Timestamp, high_watermark: Offset) -> usize {
        let decided = self.last_stable_offset(high_watermark).min(self.synced_below());
        let mut count = 0;
        for number in 0..self.segments.len() - 1 {
            let lag_ms = self.config.min_compaction_lag_ms;
            let is_within_lag = |newest| now.ms_since(newest) < lag_ms;
            let newest = self.segments[number].known_newest();
            let young = lag_ms > 0 && newest.is_none_or(is_within_lag);
            let clean = self.end_of(number) <= self.cleaned_below;
            if self.end_of(number) > decided || (young && !clean) {
                break;
            }
            count += 1;
        }
        count
    }

    fn is_worth_compacting(&self, count: usize, now: Timestamp) -> bool {
        let size = |numbers: std::ops::Range<usize>| -> u64 {
            self.segments[numbers].iter().map(Segment::size).sum()
        };
        let first_dirty = (0..count).find(|number| self.end_of(*number) > self.cleaned_below);
        let Some(first_dirty) = first_dirty else { return false };
        let (clean, dirty) = (size(0..first_dirty), size(first_dirty..count));
        if dirty == 0 {
            return false;
        }
        let ratio = dirty as f64 / (clean + dirty) as f64;
        if ratio > self.config.min_cleanable_dirty_ratio {
            return true;
        }
        let first = self.segments[first_dirty].known_first_timestamp();
        first.is_some_and(|first| {
            first > Timestamp::NONE && now.ms_since(first) > self.config.max_compaction_lag_ms
        })
    }

    /// Puts the new segments in the place of the old ones: all three steps at once, for a log that
    /// nobody else waits for; see [`Log::begin_swap`].
    ///
    /// Fails with [`StorageError::Io`]: the log takes no more writes.
    pub fn finish_compaction(&mut self, compaction: Compaction) -> Result<Compacted, StorageError> {
        let mut swap = self.begin_swap(compaction);
        let result = swap.run();
        self.finish_swap(swap, result)
    }

    /// Whether the log has all segments that a plan reads. If not, their files may be going while it reads, and what it finds is
    /// not damage.
    pub fn still_has(&self, plan: &CompactionPlan) -> bool {
        let here = |source: &Source| {
            let found = self.segments.binary_search_by_key(&source.base, |segment| segment.base);
            found.is_ok_and(|at| self.segments[at].size() == source.size)
        };
        plan.generation == self.generation && plan.sources.iter().all(here)
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
}

/// Reads what tells the age of segments, without the log's lock, so that it is known under it.
#[derive(Debug)]
pub struct CompactionLook {
    home: Home,
    /// Views of the segments whose age matters.
    aged: Vec<Segment>,
    first_dirty: Option<Segment>,
}

impl CompactionLook {
    /// Reads.
    pub fn run(&self) -> Result<(), StorageError> {
        for segment in &self.aged {
            segment.read_age(&self.home)?;
        }
        match &self.first_dirty {
            Some(dirty) => dirty.first_timestamp(&self.home).map(drop),
            None => Ok(()),
        }
    }
}

/// What to compact, as chosen under the log's lock.
#[derive(Debug)]
#[must_use = "its files are to be opened"]
pub struct CompactionChoice {
    home: Home,
    config: Arc<LogConfig>,
    /// The segments with their ends.
    segments: Vec<(Segment, Offset)>,
    /// Search for the aborted transactions with records in these segments.
    aborted: Option<AbortedLookup>,
    stamps: Stamps,
    dirty_from: Offset,
    last_batches: Vec<Offset>,
    markers_only: Vec<(ProducerId, ProducerEpoch)>,
    generation: u64,
    now: Timestamp,
}

impl CompactionChoice {
    /// Opens the files, before anything gives them other names. Needs no lock.
    pub fn open(self) -> Result<CompactionPlan, StorageError> {
        let mut sources = Vec::with_capacity(self.segments.len());
        for (segment, end) in &self.segments {
            let path = self.home.segment_path(segment.base, LOG);
            sources.push(Source {
                modified: self.home.disk.modified(&path).during("look up", &path)?,
                base: segment.base,
                end: *end,
                size: segment.size(),
                file: segment.file(&self.home)?,
            });
        }
        let until = sources.last().map_or(self.dirty_from, |last| last.end);
        Ok(CompactionPlan {
            aborted: self.aborted.map_or_else(|| Ok(Vec::new()), |lookup| lookup.run(until))?,
            home: self.home,
            config: self.config,
            sources,
            stamps: self.stamps,
            dirty_from: self.dirty_from,
            last_batches: self.last_batches,
            markers_only: self.markers_only,
            generation: self.generation,
            now: self.now,
        })
    }
}

/// Where one compaction writes. No other has its mark: a topic may be deleted and made again meanwhile, and what is then written
/// for the new one goes into a folder of the same name.
#[derive(Clone, Debug)]
struct Place {
    home: Home,
    mark: u64,
}

impl Place {
    fn path(&self, base: Offset, suffix: &str) -> PathBuf {
        let name = names::file_name(base, suffix);
        self.home.dir.join(format!("{name}.{:016x}{CLEANED}", self.mark))
    }

    /// Removes what was written of a new segment. What stays behind is removed when the log is opened.
    fn remove(&self, base: Offset) {
        for suffix in [LOG, OFFSET_INDEX, TIME_INDEX] {
            let _ = self.home.disk.remove_file(&self.path(base, suffix));
        }
    }
}
