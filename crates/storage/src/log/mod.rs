//! One partition's log: a sequence of segments of which the last one grows.
//!
//! ```text
//!  log start          recovery point    synced        log end
//!  v                        v              v             v
//!  |  segment 0  |  segment 1  |   segment 2 (active)    |
//! ```
//!
//! **Invariants.** log start <= log end; recovery point <= synced <= log end. Segments are never
//! empty of a last one; their bases rise. What was appended is in the files in that order, without
//! a hole. Producer state and epoch history are functions of the batches in the log.
//!
//! The methods are spread over this folder by subject: `opening.rs`, `open.rs`, `listed.rs` and
//! `recover.rs` (`rewrite.rs`), `resume.rs`, `zeros.rs`, `known_producers.rs`, `append.rs`, `ahead.rs`, `roll.rs`,
//! `read.rs` (`lookup.rs`), `sync.rs`,
//! `truncate.rs`, `retention.rs`,
//! `timestamps.rs`. Compaction is a room of its own beside it.

mod aborted;
mod ahead;
mod append;
mod cut;
mod known_producers;
mod listed;
mod lookup;
mod open;
mod opening;
mod read;
mod recover;
mod resume;
mod retention;
mod rewrite;
mod roll;
mod sync;
mod timestamps;
mod truncate;
pub(crate) mod zeros;

use std::path::Path;
use std::sync::Arc;

use model::{BatchHeader, LeaderEpoch, Offset, Sequence, Timestamp};

use crate::epoch_history::EpochHistory;
use crate::names::Home;
use crate::producers::{ProducerSummary, ProducerVerdict, Producers};
use crate::segment::Segment;
use crate::{LogConfig, StorageError, UnreadableBatch};

pub use ahead::{GiveBackTicket, ZerosTicket};
pub use cut::CutTicket;
pub(crate) use known_producers::ProducersKept;
pub use lookup::ReadLookup;
pub use opening::{ActiveSegment, OnDamage, Opening, Recovery, SealedSegment};
pub use read::{FileSlice, ReadCursor};
pub use resume::{Derived, DerivedView, Resumed, Resuming};
pub use retention::{DeletedSegment, RetentionDue, RetentionLook, RetentionTicket};
pub(crate) use retention::{rename_deleted, set_aside};
pub use roll::{AppendWork, NextSegment, OpenActive, RollTicket};
pub use sync::{CheckpointTicket, SyncTicket};
pub use timestamps::{TimeLookup, TimestampedOffset};

use ahead::Ahead;
use append::Boundaries;
use sync::SyncedState;

/// One partition's log. The caller holds the partition's lock around every call.
#[derive(Debug)]
pub struct Log {
    pub(crate) home: Home,
    pub(crate) config: Arc<LogConfig>,
    /// Invariant: never empty; bases rise strictly; the last one is the active one.
    pub(crate) segments: Vec<Segment>,
    /// The first offset that may be read. Moved by retention and DeleteRecords, never back but by
    /// truncation below it.
    pub(crate) log_start: Offset,
    /// The offset of the next record. Moved by appends and truncations.
    log_end: Offset,
    pub(crate) producers: Producers,
    epochs: EpochHistory,
    /// Whether batches were found whose epoch is smaller than that of one before: `epochs` does not speak
    /// for every batch then.
    epochs_fall: bool,
    /// Whether `epochs` differs from its file.
    epochs_unwritten: bool,
    /// The newest leader epoch that the caller knows of; see [`Log::tell_epochs`].
    told_epoch: LeaderEpoch,
    /// The epoch in which the log starts, and where it began, if records of it were deleted.
    first_epoch: Option<(LeaderEpoch, Offset)>,
    /// The newest one at the opening where epochs fall: of it and those before nothing is told.
    fallen_epoch: LeaderEpoch,
    /// Offsets of which there is a file of the producers, ours or Kafka's, in order.
    snapshots: Vec<Offset>,
    durability: SyncedState,
    /// Counts what makes positions in files mean something else: truncations and compactions.
    pub(crate) generation: u64,
    /// Ends of the batches appended last, so that a high watermark near the end costs no search.
    boundaries: Boundaries,
    /// When the active segment was made or opened; it rolls by this if its records have no time.
    active_since: Timestamp,
    /// When the log was opened: producers of whom nothing else is known appended then.
    opened_at: Timestamp,
    /// Below it the log was compacted once.
    pub(crate) cleaned_below: Offset,
    /// From here on no offset is missing; `None` while that is not known.
    dense_from: Option<Offset>,
    /// Whether the next segment is being made: nothing is appended meanwhile.
    is_rolling: bool,
    /// Whether compaction renames files at the moment: then files that are open stay so.
    pub(crate) is_swapping: bool,
    /// Whether the log's end is being cut: nothing is appended, synced or written ahead meanwhile.
    is_cutting: bool,
    /// Whether the end of the active segment's indexes and the state of the producers were not read yet.
    is_resumed: bool,
    /// Whether producers are known once they are read.
    may_know_producers: bool,
    /// Whether nothing of the log has a name that is known to be durable: the sync of the next append
    /// makes the names of the first segment and of the directory durable.
    is_unnamed: bool,
    /// Syncs in a row that covered little, since the caller counts.
    small_syncs: u16,
    /// The zeros behind the end of the active segment. Invariant: `None` after a roll, a truncation, a close.
    ahead: Option<Box<Ahead>>,
    /// Why nothing is written any more, if so (S9).
    failed: Option<Box<str>>,
    recovery: Option<Box<Recovery>>,
}

impl Log {
    /// How often, since the last call, a look-up or a compaction met a batch whose records cannot be
    /// read, and the first of these batches. It cost them that batch's records.
    pub fn take_unreadable(&self) -> Option<(u64, UnreadableBatch)> {
        self.home.unreadable.take()
    }

    /// Whether offsets may be missing from this one on, where batches are appended now: nothing says of the log that none
    /// are.
    pub fn may_have_gap_at(&self, offset: Offset) -> bool {
        self.dense_from.is_none_or(|from| from > offset)
    }

    /// Batches with offsets missing in between are appended from now on. The caller remembers it, durably, before: for the next
    /// opening an offset that is missing where it was not allowed to be is damage.
    pub fn allow_gaps(&mut self) {
        self.dense_from = None;
    }

    /// From the log's end on no offset is missing, if that is not so from an earlier one on: what is appended here has none.
    pub fn begin_dense(&mut self) {
        self.dense_from.get_or_insert(self.log_end);
    }

    /// The partition's directory.
    pub fn dir(&self) -> &Path {
        &self.home.dir
    }

    /// The configuration in force.
    pub fn config(&self) -> &Arc<LogConfig> {
        &self.config
    }

    /// Another configuration from now on.
    pub fn set_config(&mut self, config: Arc<LogConfig>) {
        self.config = config;
    }

    /// The first offset that can be read.
    pub fn log_start_offset(&self) -> Offset {
        self.log_start
    }

    /// The offset that the next record will have.
    pub fn log_end_offset(&self) -> Offset {
        self.log_end
    }

    /// Bytes of all segments' batches.
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(Segment::size).sum()
    }

    /// How many segments there are; at least one.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Where the active segment begins.
    pub fn active_base_offset(&self) -> Offset {
        self.active().base
    }

    /// The segments that are not appended to any more and lie below the recovery point: durable, and
    /// to be found again by the next opening.
    pub fn sealed_segments(&self) -> Vec<SealedSegment> {
        let recovery_point = self.recovery_point();
        let pairs = self.segments.iter().zip(&self.segments[1..]);
        let sealed = pairs.take_while(|(_, next)| next.base <= recovery_point);
        sealed
            .map(|(segment, _)| SealedSegment { base: segment.base, size_bytes: segment.size() })
            .collect()
    }

    /// The active segment, if all of it lies below the recovery point.
    pub fn settled_active(&self) -> Option<ActiveSegment> {
        let active = ActiveSegment {
            base: self.active().base,
            end: self.log_end,
            size_bytes: self.active().size(),
        };
        (self.recovery_point() == self.log_end).then_some(active)
    }

    /// What recovery had to do, if the log was not stopped cleanly.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_deref()
    }

    /// Below it the log was compacted once; for `cleaner-offset-checkpoint`.
    pub fn cleaned_below(&self) -> Offset {
        self.cleaned_below
    }

    /// The largest leader epoch in the log or assigned to it; [`LeaderEpoch::NONE`] if none.
    pub fn latest_epoch(&self) -> LeaderEpoch {
        self.epochs.latest()
    }

    /// The leader epoch that the record at `offset` has, or would have.
    pub fn epoch_at(&self, offset: Offset) -> LeaderEpoch {
        self.epochs.epoch_at(offset)
    }

    /// All leader epochs in the log with the offsets at which they began.
    pub fn epochs(&self) -> &[(LeaderEpoch, Offset)] {
        self.epochs.entries()
    }

    /// The leader epochs of which there are records, with the offsets at which they began.
    pub fn epochs_written(&self) -> &[(LeaderEpoch, Offset)] {
        self.epochs.written_before(self.log_end)
    }

    /// The leader epochs newer than `known` of which there are records below `end`, with the offsets at which
    /// they began: what the caller must remember no later than that these records are synced, for nothing in
    /// a batch tells that its epoch is not what was written.
    pub fn epochs_since(&self, known: LeaderEpoch, end: Offset) -> Vec<(LeaderEpoch, Offset)> {
        let written = self.epochs.written_before(end.min(self.log_end));
        let known = known.max(self.fallen_epoch);
        let newer = &written[written.partition_point(|(epoch, _)| *epoch <= known)..];
        // That records were deleted may be forgotten in a crash, and the epoch began before them.
        let began = |(epoch, start): &(LeaderEpoch, Offset)| match self.first_epoch {
            Some((first, began)) if first == *epoch => (first, began),
            _ => (*epoch, *start),
        };
        newer.iter().map(began).collect()
    }

    /// [`Log::epochs_since`] the last call, or since the opening. There are none nearly always.
    pub fn tell_epochs(&mut self, end: Offset) -> Vec<(LeaderEpoch, Offset)> {
        let news = self.epochs_since(self.told_epoch, end);
        self.told_epoch = news.last().map_or(self.told_epoch, |(epoch, _)| *epoch);
        news
    }

    /// The largest epoch not above `epoch`, and the offset at which the next larger one begins or
    /// the log ends (KIP-101, KIP-279). Epoch and offset -1: this log knows only smaller ones.
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> (LeaderEpoch, Offset) {
        self.epochs.end_offset_for(epoch, self.log_end)
    }

    /// A leader epoch begins at the log's end, before anything is written in it. As long as nothing is, no
    /// file tells of it: a broker that starts with very many partitions leads each in a new epoch.
    pub fn assign_epoch(&mut self, epoch: LeaderEpoch) {
        self.epochs.assign(epoch, self.log_end);
    }

    /// What is to become of a producer's batch (KIP-98); changes nothing. Batches of producers that
    /// are not idempotent, and control batches, are accepted.
    pub fn check_producer(&self, header: &BatchHeader) -> ProducerVerdict {
        self.producers.check(header)
    }

    /// First sequence that the log accepts next of the producer and the producer epoch of `header`. `None` for a producer without
    /// state here: the log accepts any sequence of that one.
    pub fn next_sequence(&self, header: &BatchHeader) -> Option<Sequence> {
        self.producers.next_sequence(header)
    }

    /// The producers known, in order of their ids.
    pub fn producers(&self) -> impl Iterator<Item = ProducerSummary> + '_ {
        self.producers.summaries()
    }

    /// Forgets producers that appended nothing for `expiration_ms` milliseconds
    /// (`producer.id.expiration.ms`), by this broker's clock and whatever the times of their records;
    /// and of the idle ones those beyond the newest ten thousand.
    pub fn expire_producers(&mut self, now: Timestamp, expiration_ms: i64) {
        self.producers.expire(now, expiration_ms);
    }

    /// Memory that the producers take, in bytes; one log bounds it to 16 MiB by itself.
    pub fn producer_bytes(&self) -> usize {
        self.producers.memory_bytes()
    }

    /// Forgets the producers that appended longest ago, so that the others take no more than so much
    /// memory. Those with an open transaction stay.
    pub fn bound_producers(&mut self, bytes_max: usize) {
        self.producers.bound_bytes(bytes_max);
    }

    /// The first offset at or below the high watermark that is not decided: an open transaction
    /// begins there.
    pub fn last_stable_offset(&self, high_watermark: Offset) -> Offset {
        // Records below the log start are deleted, those of an open transaction too.
        self.producers.last_stable_offset(high_watermark).max(self.log_start).min(high_watermark)
    }

    /// Why the log takes no writes any more, if so.
    pub fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Closes files that were not used since the last call, unless they hold what is not synced, and frees
    /// what makes it quick to go on with them.
    pub fn release_idle_files(&mut self) {
        if self.is_swapping {
            return;
        }
        let mut is_idle = false;
        for segment in &mut self.segments {
            is_idle = segment.release_idle();
        }
        // Of the active segment, which is the last one.
        if is_idle {
            self.boundaries = Boundaries::default();
        }
    }

    /// Closes all files but those that hold what is not synced. They are opened again when needed.
    pub fn release_files(&mut self) {
        if self.is_swapping {
            return;
        }
        self.segments.iter_mut().for_each(Segment::release);
    }

    /// Whether the file of a segment is open, or one that a change of names under way holds. Those of the
    /// indexes do not count: [`Log::release_files`] closes them at any other time.
    pub fn has_open_files(&self) -> bool {
        let is_open =
            |segment: &Segment| segment.open_file().is_some() || segment.unsynced_aborted.is_some();
        self.is_swapping || self.segments.iter().any(is_open)
    }

    /// Closes all files, whatever was not synced: the log is deleted, and whoever still holds it shall not keep its
    /// blocks on the disk.
    pub fn abandon_files(&mut self) {
        self.end_ahead();
        self.segments.iter_mut().for_each(Segment::abandon);
    }

    pub(crate) fn active(&self) -> &Segment {
        self.segments.last().expect("a log has an active segment")
    }

    fn active_mut(&mut self) -> &mut Segment {
        self.segments.last_mut().expect("a log has an active segment")
    }

    /// The segment that `offset` lies in, or would; the first one for an offset before it.
    pub(crate) fn segment_of(&self, offset: Offset) -> usize {
        self.segments.partition_point(|segment| segment.base <= offset).saturating_sub(1)
    }

    /// The offset behind a segment: where the next one begins, or the log ends.
    pub(crate) fn end_of(&self, segment: usize) -> Offset {
        self.segments.get(segment + 1).map_or(self.log_end, |next| next.base)
    }

    fn usable(&self) -> Result<(), StorageError> {
        match &self.failed {
            None => Ok(()),
            Some(reason) => {
                Err(StorageError::Failed { dir: self.home.dir.clone(), reason: reason.to_string() })
            }
        }
    }

    /// Makes a failed write final: whatever the disk says later, it is not believed. An error that
    /// says nothing of the disk ([`StorageError::lacks_resources`]) leaves the log as it is.
    pub(crate) fn failing<T>(
        &mut self,
        result: Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        if let Err(error @ StorageError::Io { .. }) = &result
            && error.is_fatal()
        {
            self.failed.get_or_insert_with(|| error.to_string().into());
        }
        result
    }

    fn assert_ordered(&self) {
        assert!(self.log_start <= self.log_end, "the log starts before it ends");
        assert!(self.durability.synced <= self.log_end, "nothing is synced that is not there");
        let is_synced = self.durability.recovery_point <= self.durability.synced;
        assert!(is_synced, "the recovery point is not above what is synced");
    }
}
