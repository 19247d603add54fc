//! Putting the new segments in the place of the old ones: decided under the log's lock, renamed
//! without it, taken into the log under it again.

use std::path::PathBuf;

use model::Offset;

use super::{Compacted, Compaction, Group, Place};
use crate::error::{Context, FAILED_SWAP};
use crate::log::{DeletedSegment, ProducersKept, rename_deleted, set_aside};
use crate::names::{self, Home, LOG, OFFSET_INDEX, SWAP, TIME_INDEX};
use crate::producers::aborted;
use crate::segment::Segment;
use crate::{Log, StorageError};

/// The renames that a compaction ends with. Running it needs no lock, but nothing else that changes the
/// log's names may happen meanwhile, appends and rolls excepted.
#[derive(Debug)]
#[must_use = "the new segments are not in place yet"]
pub struct SwapTicket {
    home: Home,
    place: Place,
    /// The groups to put in place, the oldest first, with views of what they replace.
    swaps: Vec<(Group, Vec<Segment>)>,
    /// Bases of new segments that are not wanted.
    unwanted: Vec<Offset>,
    /// What tells of producers behind the compacted segments, to be durable before.
    producers: Option<ProducersKept>,
    /// Below it the log is compacted afterwards, if all groups are in place.
    cleaned_below: Option<Offset>,
    /// Whether names may have changed.
    has_begun: bool,
}

impl Log {
    /// Decides which of the new segments take a place, from the front on. Where segments are not there
    /// any more as they were (the log was truncated, or segments were deleted) it ends, and the rest is
    /// dropped: later segments may have lost what tells of transactions in earlier ones.
    ///
    /// Until [`Log::finish_swap`] open files stay open: whoever opened a segment by its name could meet
    /// another one. Touches no file.
    pub fn begin_swap(&mut self, mut compaction: Compaction) -> SwapTicket {
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
        compaction.cleaned.keep();
        self.is_swapping = true;
        let (home, place, has_begun) = (self.home.clone(), compaction.cleaned.place.clone(), false);
        SwapTicket { home, place, swaps, unwanted, producers, cleaned_below, has_begun }
    }

    /// Takes the new segments in. Fails as [`SwapTicket::run`] has. If that was for lack of room or descriptors the log is
    /// as it was; otherwise it takes no more writes, and goes on reading the files that it has open: their names may
    /// be those of others.
    pub fn finish_swap(
        &mut self,
        ticket: SwapTicket,
        result: Result<Vec<DeletedSegment>, StorageError>,
    ) -> Result<Compacted, StorageError> {
        self.is_swapping = ticket.has_begun && result.is_err();
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
    ///
    /// What needs room or descriptors comes first: if there are none nothing was renamed, and the new segments are
    /// removed. Where only some of them can be put in place the rest is given up. Any other failure is fatal.
    pub fn run(&mut self) -> Result<Vec<DeletedSegment>, StorageError> {
        let mut result = self.prepare().and_then(|()| self.put_all_in_place());
        if let Err(error) = result {
            if self.has_begun {
                return Err(error.of_operation(FAILED_SWAP));
            }
            self.give_up(0);
            result = Err(error);
        }
        self.unwanted.iter().for_each(|base| self.place.remove(*base));
        result
    }

    fn put_all_in_place(&mut self) -> Result<Vec<DeletedSegment>, StorageError> {
        let mut deleted = Vec::new();
        for number in 0..self.swaps.len() {
            match self.begin_group(number) {
                Err(error) if self.has_begun && error.is_full() => {
                    self.give_up(number);
                    break;
                }
                begun => begun?,
            }
            self.has_begun = true;
            self.put_in_place(number, &mut deleted)?;
        }
        Ok(deleted)
    }

    /// Leaves the segments of this group and of those behind it as they are.
    fn give_up(&mut self, first: usize) {
        let rest = self.swaps.drain(first..).map(|(group, _)| group.replaced[0].0);
        self.unwanted.extend(rest);
        self.cleaned_below = None;
    }

    /// Makes durable what is to be so before, and opens what is read meanwhile.
    fn prepare(&mut self) -> Result<(), StorageError> {
        if let Some(producers) = &mut self.producers {
            producers.run()?;
        }
        let mut replaced = self.swaps.iter().flat_map(|(_, replaced)| replaced);
        replaced.try_for_each(|segment| segment.hold(&self.home))
    }

    fn rename(&self, from: PathBuf, to: PathBuf) -> Result<(), StorageError> {
        self.home.disk.rename(&from, &to).during("rename", &from)
    }

    fn swap_path(&self, base: Offset) -> PathBuf {
        self.home.dir.join(names::file_name(base, LOG) + SWAP)
    }

    /// The first step of a group's swap: behind it, opening the log completes the swap; before, opening undoes it.
    fn begin_group(&self, number: usize) -> Result<(), StorageError> {
        let base = self.swaps[number].0.replaced[0].0;
        self.rename(self.place.path(base, LOG), self.swap_path(base))
    }

    /// The steps behind it.
    fn put_in_place(
        &self,
        number: usize,
        deleted: &mut Vec<DeletedSegment>,
    ) -> Result<(), StorageError> {
        let home = &self.home;
        let replaced = &self.swaps[number].0.replaced;
        let base = replaced[0].0;
        let sync = || home.disk.sync_dir(&home.dir).during("sync", &home.dir);
        sync()?;
        for suffix in [OFFSET_INDEX, TIME_INDEX] {
            self.rename(self.place.path(base, suffix), home.segment_path(base, suffix))?;
        }
        // No record of an aborted transaction is left, so nothing need be known of them.
        aborted::remove(home, base)?;
        for (old, size) in &replaced[1..] {
            let paths = rename_deleted(home, *old)?;
            deleted.push(DeletedSegment::new(paths, *old, *size));
        }
        // A rename over it would free all of it at once.
        let (_, size) = replaced[0];
        let first = set_aside(home, base, LOG)?;
        deleted.extend(first.map(|path| DeletedSegment::new(vec![path], base, size)));
        sync()?;
        self.rename(self.swap_path(base), home.segment_path(base, LOG))?;
        sync()
    }
}
