//! Taking a log up without opening a file of it, where the caller's list, the directory and the sizes of
//! the segments say that nothing was appended since the log's last checkpoint, and nothing is missing.
//!
//! A file that is longer by zeros is as recorded, too: they were written ahead of a log that fell idle.
//!
//! Most of very many partitions are found so, after a clean stop and after a crash. What the batches would
//! tell comes from the caller ([`Derived`]): the leader epochs at once; of producers only whether there are
//! any. Their state, and where the indexes of the active segment end, are read before the first append, or
//! before segments are deleted or compacted ([`Log::resuming`]). Reads need neither.

use model::{LeaderEpoch, Offset};

use super::Log;
use super::open::Found;
use super::opening::{ActiveSegment, Opening, Trust};
use super::zeros::ends_in_zeros;
use crate::StorageError;
use crate::epoch_history::EpochHistory;
use crate::names::LOG;
use crate::segment::Segment;

/// What is derived from all batches of a log, as it was when the log ended at `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived {
    /// The log end offset.
    pub end: Offset,
    /// The leader epochs of which there were records, with the offsets at which they began.
    pub epochs: Vec<(LeaderEpoch, Offset)>,
    /// Whether idempotent producers were known. None of them had an open transaction.
    pub has_producers: bool,
    /// Whether epochs that begin behind `end` are told when they begin: that no newer one is told then means
    /// that there is none.
    pub tells_newer: bool,
}

/// What a log that was resumed still has to read. Running it needs no lock.
#[derive(Debug)]
#[must_use = "nothing is read until this is run and handed back"]
pub struct Resuming {
    log: Box<Log>,
}

/// What was read.
#[derive(Debug)]
pub struct Resumed {
    log: Box<Log>,
}

impl Resuming {
    /// Reads where the active segment's indexes end, and the state of the producers.
    ///
    /// Fails with [`StorageError::Damaged`] if the log does not end where it did.
    pub fn run(mut self) -> Result<Resumed, StorageError> {
        let log = &mut self.log;
        let (home, end) = (log.home.clone(), log.log_end);
        if log.active().size() > 0 {
            let found = log.active_mut().reopen(&home)?.unwrap_or(log.active().base);
            if found != end {
                let path = home.segment_path(log.active().base, LOG);
                let reason = format!(
                    "the log ends at {found}, and ended at {end} when its files were last complete"
                );
                return Err(StorageError::damaged(&path, log.active().size(), found, reason));
            }
        }
        log.drop_snapshots_behind_end()?;
        log.reload_producers()?;
        Ok(Resumed { log: self.log })
    }
}

impl Log {
    /// The log as the caller knows it, if everything is as recorded. `None`: it is to be opened, and
    /// recovered if need be.
    pub(super) fn resume(
        &mut self,
        found: &Found,
        trust: &Trust<'_>,
    ) -> Result<bool, StorageError> {
        let opening = trust.opening;
        let Some(active) = opening.active.or_else(|| never_written(opening)) else {
            return Ok(false);
        };
        let sealed = opening.sealed.as_deref().unwrap_or_default();
        let listed = sealed.iter().map(|segment| segment.base).chain([active.base]);
        let is_whole = opening.sealed.is_some() && listed.eq(found.bases.iter().copied());
        let ends = trust.bound == active.end && opening.log_start_offset <= active.end;
        let is_new = opening.active.is_none();
        if !is_whole || !ends || opening.after_failed_sync || found.has_ceiling {
            return Ok(false);
        }
        let Some(derived) = derived_at(&active, found, opening) else { return Ok(false) };
        let Some(epochs) = EpochHistory::of(derived.epochs) else { return Ok(false) };
        if opening.epoch_max.is_some_and(|most| epochs.latest() > most) {
            return Ok(false);
        }
        for recorded in sealed {
            if self.segment_file_size(recorded.base)? != recorded.size_bytes {
                return Ok(false);
            }
        }
        let file_bytes = self.segment_file_size(active.base)?;
        let has_zeros = file_bytes > active.size_bytes
            && ends_in_zeros(&self.home, active.base, active.size_bytes, file_bytes)?;
        if file_bytes != active.size_bytes && !has_zeros {
            return Ok(false);
        }
        self.segments = sealed.iter().map(|s| Segment::sealed(s.base, s.size_bytes)).collect();
        self.segments.push(match active.size_bytes {
            0 => Segment::empty(active.base),
            bytes => Segment::sealed(active.base, bytes),
        });
        if has_zeros {
            // Written ahead by a process that died: this one may never append, and would keep them.
            self.active().cut_file(&self.home)?;
            self.active_mut().cut_is_to_be_synced();
            self.active_mut().release();
        }
        self.epochs = epochs;
        self.log_end = active.end;
        self.durability.synced = active.end;
        self.durability.recovery_point = active.end;
        if is_new {
            // No checkpoint has made its names durable.
            self.is_unnamed = true;
        }
        self.is_resumed = active.size_bytes > 0 || derived.has_producers;
        self.may_know_producers = derived.has_producers;
        Ok(true)
    }

    /// What the caller may remember of the log for the next opening; `None` where it must read the log:
    /// not all is below the recovery point, or a transaction is open.
    pub fn derived(&self) -> Option<DerivedView<'_>> {
        let is_settled = self.recovery_point() == self.log_end && !self.epochs_fall;
        (is_settled && !self.producers.has_open_transaction()).then(|| DerivedView {
            end: self.log_end,
            epochs: self.epochs_written(),
            has_producers: self.producers.len() > 0 || self.may_know_producers,
        })
    }

    /// Whether something of the log is still to be read before it is appended to; see [`Log::resuming`].
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// What is still to be read before an append, before segments are deleted, and before whoever asks
    /// for producers is told; `None`: nothing. Touches no file.
    pub fn resuming(&self) -> Option<Resuming> {
        self.is_resumed.then(|| Resuming { log: Box::new(self.view()) })
    }

    /// Takes in what was read. Nothing is appended before.
    pub fn finish_resuming(&mut self, resumed: Resumed) {
        if !self.is_resumed {
            return;
        }
        let read = *resumed.log;
        assert_eq!(read.log_end, self.log_end, "nothing is appended to a log before it is read");
        self.active_mut().take_reopened(read.active());
        self.producers = read.producers;
        self.snapshots.retain(|offset| read.snapshots.contains(offset));
        (self.is_resumed, self.may_know_producers) = (false, false);
    }

    /// All steps at once, for a log that has no other user.
    pub(super) fn read_what_is_left(&mut self) -> Result<(), StorageError> {
        let Some(resuming) = self.resuming() else { return Ok(()) };
        let resumed = resuming.run()?;
        self.finish_resuming(resumed);
        Ok(())
    }
}

/// [`Derived`], borrowed.
#[derive(Clone, Copy, Debug)]
pub struct DerivedView<'a> {
    /// As there.
    pub end: Offset,
    /// As there.
    pub epochs: &'a [(LeaderEpoch, Offset)],
    /// As there.
    pub has_producers: bool,
}

impl DerivedView<'_> {
    /// To be kept.
    pub fn kept(&self) -> Derived {
        let DerivedView { end, epochs, has_producers } = *self;
        Derived { end, epochs: epochs.to_vec(), has_producers, tells_newer: true }
    }
}

impl PartialEq<Derived> for DerivedView<'_> {
    fn eq(&self, other: &Derived) -> bool {
        (self.end, self.has_producers, true) == (other.end, other.has_producers, other.tells_newer)
            && self.epochs == other.epochs
    }
}

/// The active segment of a log that was made, and had no checkpoint since.
fn never_written(opening: &Opening) -> Option<ActiveSegment> {
    let is_new =
        opening.sealed.as_ref().is_some_and(Vec::is_empty) && opening.log_start_offset == Offset(0);
    is_new.then_some(ActiveSegment { base: Offset(0), end: Offset(0), size_bytes: 0 })
}

/// What is derived from the batches of a log that ends so.
fn derived_at(active: &ActiveSegment, found: &Found, opening: &Opening) -> Option<Derived> {
    let known = opening.derived.clone().filter(|derived| derived.end == active.end);
    // Of a log without batches there is nothing to derive.
    let is_blank = active.size_bytes == 0
        && found.bases.len() == 1
        && found.snapshots.is_empty()
        && !found.has_epochs;
    let blank =
        Derived { end: active.end, epochs: Vec::new(), has_producers: false, tells_newer: true };
    known.or(is_blank.then_some(blank))
}
