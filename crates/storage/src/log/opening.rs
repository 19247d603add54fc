//! What the caller of an opening knows of the log, what the opening may therefore rely on, and what
//! recovery tells about it afterwards.
//!
//! Not here: how a log is opened (`open.rs`) and recovered (`recover.rs`).

use std::cell::OnceCell;

use model::{Durability, LeaderEpoch, Offset, Timestamp};

use super::resume::Derived;
use crate::epoch_history::EpochHistory;
use crate::error::Damage;

/// What recovery does with bytes that were durable once and are damaged (S12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnDamage {
    /// Fail with [`StorageError::Damaged`](crate::StorageError::Damaged) and change nothing.
    #[default]
    Refuse,
    /// Keep a copy under `<name>.damaged`, cut the log before the damage: only for a follower whose
    /// leader still has the rest.
    SetAside,
}

/// A segment that no longer grew when the caller took note of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedSegment {
    /// The offset in its name.
    pub base: Offset,
    /// Bytes of its `.log` file.
    pub size_bytes: u64,
}

/// The active segment as it was at the last checkpoint or clean stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveSegment {
    /// The offset in its name.
    pub base: Offset,
    /// The log end offset.
    pub end: Offset,
    /// Bytes of its batches up to there.
    pub size_bytes: u64,
}

/// What the caller knows of a log when it opens it. A field whose value is not known takes the value
/// that [`Opening::unknown`] gives it; then nothing is compared with it.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The log was closed and nothing was written since: the files are trusted as they stand, as far
    /// as they agree with `sealed`, `active`, `synced` and `recovery_point`.
    pub clean: bool,
    /// Below it everything was durable and needs no recovery, index entries included; or 0.
    pub recovery_point: Offset,
    /// Below it every batch was synced ([`Log::synced_below`](super::Log::synced_below)); or 0.
    /// Never a high watermark: that of Kafka, or of a time of `page-cache`, was not synced. Between
    /// `recovery_point` and here batches are read and checked, but none is "an incomplete tail".
    pub synced: Offset,
    /// The first offset that may be read; a new log starts there; or 0.
    pub log_start_offset: Offset,
    /// Below it the log was compacted once; or 0.
    pub cleaned_below: Offset,
    /// From here on no offset is missing and leader epochs never fall, for this log assigned them, and
    /// compaction leaves no gap. Batches that were taken over with gaps must have moved it, durably,
    /// before they were acknowledged.
    pub dense_from: Option<Offset>,
    /// The leader epoch of the partition in the metadata. From `dense_from` on no batch has a larger
    /// one.
    pub epoch_max: Option<LeaderEpoch>,
    /// The sealed segments that must be there, in order of their bases.
    pub sealed: Option<Vec<SealedSegment>>,
    /// What the active segment held at least (clean: exactly).
    pub active: Option<ActiveSegment>,
    /// What is derived from the batches, as it was at the end of `active`.
    pub derived: Option<Derived>,
    /// Leader epochs of which records were written since, with the offsets at which they began: all that
    /// began below what is synced.
    pub newer_epochs: Vec<(LeaderEpoch, Offset)>,
    /// What an acknowledged record had gone through. `PageCache` where it is not known: then less is
    /// taken for damage, and nothing is written anew.
    pub durability: Durability,
    /// A sync of this log or of its directory failed before: the page cache may show what the device
    /// does not have. What lies above `synced` is written anew before it is believed.
    pub after_failed_sync: bool,
    /// The present time.
    pub now: Timestamp,
    /// What to do about damage.
    pub on_damage: OnDamage,
}

impl Opening {
    /// Of a log of which nothing is known: a new one, or one to be checked from its beginning.
    pub fn unknown(now: Timestamp) -> Opening {
        Opening {
            clean: false,
            recovery_point: Offset(0),
            synced: Offset(0),
            log_start_offset: Offset(0),
            cleaned_below: Offset(0),
            dense_from: None,
            epoch_max: None,
            sealed: None,
            active: None,
            derived: None,
            newer_epochs: Vec::new(),
            durability: Durability::PageCache,
            after_failed_sync: false,
            now,
            on_damage: OnDamage::Refuse,
        }
    }
}

/// What an opening relies on.
pub(super) struct Trust<'a> {
    pub(super) opening: &'a Opening,
    /// Below it index entries and batches are durable; what a truncation took back is not counted.
    pub(super) recovery_point: Offset,
    /// Below it every batch is durable: what is missing or unreadable there is damage.
    pub(super) bound: Offset,
    /// The bound that a truncation wrote, if one did; see `ceiling.rs`.
    ceiling: Option<Offset>,
    /// Computed when it is needed: most logs are opened without.
    known_epochs: OnceCell<EpochHistory>,
}

impl Trust<'_> {
    /// `ceiling` bounds what the caller says, if a truncation has made that untrue; see `ceiling.rs`.
    pub(super) fn new(opening: &Opening, ceiling: Option<Offset>) -> Trust<'_> {
        let most = ceiling.unwrap_or(Offset(i64::MAX));
        let recovery_point = opening.recovery_point.min(most);
        let bound = opening.synced.min(most).max(recovery_point);
        Trust { opening, recovery_point, bound, ceiling, known_epochs: OnceCell::new() }
    }

    /// The newest leader epoch that the caller knows of; [`LeaderEpoch::NONE`] if none.
    pub(super) fn newest_epoch(&self) -> LeaderEpoch {
        let derived = self.opening.derived.as_ref().and_then(|derived| derived.epochs.last());
        let newest = self.opening.newer_epochs.last().or(derived);
        newest.map_or(LeaderEpoch::NONE, |(epoch, _)| *epoch)
    }

    /// The epoch of the records at `offset`, if the caller knows it: not of those that are deleted, whose epoch
    /// begins where the log does.
    fn known_epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let opening = self.opening;
        if offset >= self.bound || offset < opening.log_start_offset {
            return None;
        }
        // An earlier version told of no epoch that began behind the last checkpoint.
        let untold = opening.derived.as_ref().filter(|derived| !derived.tells_newer);
        let first_told = opening.newer_epochs.first().map(|(_, start)| *start);
        if untold.is_some_and(|derived| offset >= derived.end)
            && first_told.is_none_or(|start| offset < start)
        {
            return None;
        }
        let known = self.known_epochs.get_or_init(|| {
            let derived = self.opening.derived.iter().flat_map(|derived| &derived.epochs);
            let mut known = EpochHistory::default();
            for (epoch, start) in derived.chain(&self.opening.newer_epochs) {
                known.assign(*epoch, *start);
            }
            known
        });
        Some(known.epoch_at(offset)).filter(|epoch| *epoch != LeaderEpoch::NONE)
    }

    /// Whether an offset missing at `offset` is damage.
    pub(super) fn is_dense(&self, offset: Offset) -> bool {
        let from = self.opening.dense_from;
        from.is_some_and(|from| offset >= from)
    }

    /// Why a batch at `offset` that stands where `due` is due, behind one with the epoch `before`, cannot
    /// have this epoch. Compaction leaves gaps, and an epoch may begin in one: where the batch is due, another
    /// one may have been in force.
    pub(super) fn wrong_epoch(
        &self,
        epoch: LeaderEpoch,
        offset: Offset,
        due: Offset,
        before: LeaderEpoch,
    ) -> Option<String> {
        // Kafka has written batches without an epoch.
        let known = self.known_epoch_at(offset).filter(|_| epoch != LeaderEpoch::NONE);
        if let Some(known) = known.filter(|known| *known != epoch) {
            return Some(format!("leader epoch {epoch} at offset {offset}, where it was {known}"));
        }
        if !self.is_dense(due) {
            return None;
        }
        if epoch < before {
            return Some(format!("leader epoch {epoch} follows {before}"));
        }
        let most = self.opening.epoch_max.filter(|most| epoch > *most)?;
        Some(format!("leader epoch {epoch}, and the metadata knows none above {most}"))
    }

    /// Whether the log has ever ended behind its start, or segments of it are known.
    pub(super) fn knows_segments(&self) -> bool {
        let active = self.opening.active.as_ref();
        active.is_some_and(|active| active.end > self.opening.log_start_offset)
            || self.opening.sealed.as_ref().is_some_and(|sealed| !sealed.is_empty())
    }

    /// Whether a log that ends at `log_end` was to be emptied up to its start, and a crash came in between.
    ///
    /// Two facts prove it together. The caller names nothing as synced up to the start, although only synced records are
    /// deleted under `fsync`; and the bound is there that emptying writes first. Under `page-cache` records that are not
    /// synced are deleted too, so nothing proves it.
    pub(super) fn proves_unfinished_emptying(&self, log_end: Offset) -> bool {
        let opening = self.opening;
        let start = opening.log_start_offset;
        let promised = opening.synced.max(opening.recovery_point);
        opening.durability == Durability::Fsync
            && !opening.clean
            && promised < start
            && self.ceiling.is_some_and(|ceiling| ceiling < start)
            && log_end <= start
    }

    pub(super) fn sets_damage_aside(&self) -> bool {
        self.opening.on_damage == OnDamage::SetAside
    }
}

/// What recovery found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes of batches that were read and checked.
    pub scanned_bytes: u64,
    /// Bytes that were written anew in place and synced before they were believed.
    pub rewritten_bytes: u64,
    /// Bytes cut off the end: they were never durable as a whole.
    pub cut_bytes: u64,
    /// Segments dropped behind that cut.
    pub dropped_segments: usize,
    /// Whether whole batches stood behind the cut. After a power failure that is usual; without one
    /// it is a sign of a disk that lost what it had taken.
    pub cut_whole_batches: bool,
    /// Damage that was set aside ([`OnDamage::SetAside`]); the log ends before it.
    pub set_aside: Option<Damage>,
}
