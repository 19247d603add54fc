//! Putting the new segments in the place of the old ones: decided under the log's lock, renamed
//! without it, taken into the log under it again.

use std::path::PathBuf;

use model::Offset;

use super::{Compacted, Compaction, Group, cleaned_path};
use crate::error::Context;
use crate::log::{DeletedSegment, ProducersKept, rename_deleted};
use crate::names::{self, Home, LOG, OFFSET_INDEX, SWAP, TIME_INDEX, TRANSACTION_INDEX};
use crate::producers::transactions;
use crate::segment::Segment;
use crate::{Log, StorageError};

/// The renames that a compaction ends with. Running it needs no lock, but nothing else that changes the
/// log's names may happen meanwhile, appends and rolls excepted.
#[derive(Debug)]
#[must_use = "the new segments are not in place yet"]
pub struct SwapTicket {
    home: Home,
    /// The groups to put in place, the oldest first, with views of what they replace.
    swaps: Vec<(Group, Vec<Segment>)>,
    /// Bases of new segments that are not wanted.
    unwanted: Vec<Offset>,
    /// What tells of producers behind the compacted segments, to be durable before.
    producers: Option<ProducersKept>,
    /// Below it the log is compacted afterwards, if all groups are in place.
    cleaned_below: Option<Offset>,
}

impl Log {
    /// Decides which of the new segments take a place, from the front on. Where segments are not there
    /// any more as they were (the log was truncated, or segments were deleted) it ends, and the rest is
    /// dropped: later segments may have lost what tells of transactions in earlier ones.
    ///
    /// Until [`Log::finish_swap`] open files stay open: whoever opened a segment by its name could meet
    /// another one. Touches no file.
    pub fn begin_swap(&mut self, compaction: Compaction) -> SwapTicket {
        let mut valid = compaction.generation == self.generation && self.failure().is_none();
        let producers = if valid { self.producers_behind(&compaction) } else { None };
        let (mut swaps, mut unwanted) = (Vec::new(), Vec::new());
        for group in compaction.groups {
            let place = self.place_of_group(&group);
            valid &= place.is_some();
            match place {
                Some(first) if valid && group.changed => {
                    let replaced = self.segments[first..first + group.replaced.len()].to_vec();
                    swaps.push((group, replaced));
                }
                _ => unwanted.push(group.replaced[0].0),
            }
        }
        let cleaned_below = valid.then_some(compaction.cleaned_below);
        self.is_swapping = true;
        SwapTicket { home: self.home.clone(), swaps, unwanted, producers, cleaned_below }
    }

    /// Takes the new segments in. Fails as [`SwapTicket::run`] has: the log takes no more writes.
    pub fn finish_swap(
        &mut self,
        ticket: SwapTicket,
        result: Result<Vec<DeletedSegment>, StorageError>,
    ) -> Result<Compacted, StorageError> {
        self.is_swapping = false;
        let deleted = self.failing(result)?;
        let before = self.size_bytes();
        if let Some(kept) = &ticket.producers {
            self.producers_are_kept(kept);
        }
        for (group, replaced) in ticket.swaps {
            let first = self.place_of_group(&group).expect("nothing else has changed the segments");
            let new = Segment::sealed(group.replaced[0].0, group.size);
            self.segments.splice(first..first + replaced.len(), [new]);
            for old in &replaced[1..] {
                self.forget_snapshot(old.base);
            }
        }
        if let Some(cleaned_below) = ticket.cleaned_below {
            self.cleaned_below = self.cleaned_below.max(cleaned_below);
        }
        self.generation += 1;
        let freed_bytes = before.saturating_sub(self.size_bytes());
        Ok(Compacted { deleted, freed_bytes })
    }

    /// Of a producer whose last batch is behind the compacted segments, no batch within them stays.
    /// If that last one is truncated away, a snapshot must tell of those before it.
    fn producers_behind(&self, compaction: &Compaction) -> Option<ProducersKept> {
        let last = compaction.groups.last().and_then(|group| group.replaced.last());
        let (last, _) = last?;
        let next = self.segments.get(self.segment_of(*last) + 1)?.base;
        Some(self.keep_producers_at(next))
    }
}

impl SwapTicket {
    /// Renames, durably when it returns. Returns what is to be removed later.
    pub fn run(&mut self) -> Result<Vec<DeletedSegment>, StorageError> {
        let mut deleted = Vec::new();
        if let Some(producers) = &mut self.producers {
            producers.run()?;
        }
        for (group, replaced) in &self.swaps {
            replaced.iter().try_for_each(|segment| segment.hold(&self.home))?;
            self.swap(group, &mut deleted)?;
        }
        for base in &self.unwanted {
            for suffix in [LOG, OFFSET_INDEX, TIME_INDEX] {
                // What stays behind is removed when the log is opened.
                let _ = self.home.disk.remove_file(&cleaned_path(&self.home, *base, suffix));
            }
        }
        Ok(deleted)
    }

    /// The swap: after the first step, opening the log completes it; before, opening undoes it.
    fn swap(&self, group: &Group, deleted: &mut Vec<DeletedSegment>) -> Result<(), StorageError> {
        let home = &self.home;
        let base = group.replaced[0].0;
        let sync = || home.disk.sync_dir(&home.dir).during("sync", &home.dir);
        let rename =
            |from: PathBuf, to: PathBuf| home.disk.rename(&from, &to).during("rename", &from);
        let swap = home.dir.join(names::file_name(base, LOG) + SWAP);
        rename(cleaned_path(home, base, LOG), swap.clone())?;
        sync()?;
        for suffix in [OFFSET_INDEX, TIME_INDEX] {
            rename(cleaned_path(home, base, suffix), home.segment_path(base, suffix))?;
        }
        // No record of an aborted transaction is left, so nothing need be known of them.
        let aborted = home.segment_path(base, TRANSACTION_INDEX);
        transactions::store_aborted(home, &aborted, &[])?;
        for (old, size) in &group.replaced[1..] {
            let paths = rename_deleted(home, *old)?;
            deleted.push(DeletedSegment::new(paths, *old, *size));
        }
        sync()?;
        rename(swap, home.segment_path(base, LOG))?;
        sync()
    }
}
