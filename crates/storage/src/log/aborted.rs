//! Keeping the index of aborted transactions (`producers/aborted.rs`) in agreement with the batches: at an
//! opening, after a crash and at a truncation.

use model::Offset;

use super::Log;
use super::open::Found;
use crate::StorageError;
use crate::producers::aborted::{self, AbortedExtent, AbortedTransaction};

impl Log {
    /// Verifies the indexes of all segments that have one, and derives those again whose checksums do not
    /// match, or that an earlier release wrote without checksums.
    pub(super) fn verify_aborted(&mut self, found: &Found) -> Result<(), StorageError> {
        for base in &found.aborted {
            let number = self.segments.binary_search_by_key(base, |segment| segment.base);
            let Ok(number) = number else { continue };
            let loaded = aborted::load(&self.home, *base)?;
            match loaded.is_whole {
                true => self.segments[number].aborted = AbortedExtent::of(&loaded.entries),
                false => self.rebuild_aborted(number)?,
            }
        }
        Ok(())
    }

    /// Derives the index of one segment from its batches.
    fn rebuild_aborted(&mut self, number: usize) -> Result<(), StorageError> {
        let entries = self.aborted_in(number, self.end_of(number))?;
        self.segments[number].aborted = AbortedExtent::of(&entries);
        match aborted::store(&self.home, self.segments[number].base, &entries) {
            // Reads fail by the checksums until there is room, and the opening after that derives the index.
            Err(cause) if cause.is_full() => Ok(()),
            stored => stored,
        }
    }

    /// The aborted transactions whose markers lie in a segment below `until`, derived from the batches.
    fn aborted_in(
        &mut self,
        number: usize,
        until: Offset,
    ) -> Result<Vec<AbortedTransaction>, StorageError> {
        let base = self.segments[number].base;
        let producers = self.producers.clone();
        let replayed = self.replay_producers(base, until);
        self.producers = producers;
        let mut entries = replayed?;
        entries.retain(|entry| entry.last_offset >= base && entry.last_offset < until);
        Ok(entries)
    }

    /// Stores the indexes of the segments from number `first` on after a scan that read the batches from
    /// `scan_from` on and met the markers `met`.
    pub(super) fn derive_aborted(
        &mut self,
        first: usize,
        scan_from: Offset,
        met: &[AbortedTransaction],
    ) -> Result<(), StorageError> {
        for number in first..self.segments.len() {
            let (base, end) = (self.segments[number].base, self.end_of(number));
            let mut entries = match base < scan_from {
                true => self.aborted_before(number, scan_from)?,
                false => Vec::new(),
            };
            let is_here = |entry: &&AbortedTransaction| {
                entry.last_offset >= scan_from.max(base) && entry.last_offset < end
            };
            entries.extend(met.iter().filter(is_here));
            self.segments[number].aborted = AbortedExtent::of(&entries);
            aborted::store(&self.home, base, &entries)?;
        }
        Ok(())
    }

    /// Drops aborted transactions whose markers were cut off.
    pub(super) fn drop_aborted_behind(&mut self, end: Offset) -> Result<(), StorageError> {
        if !self.active().aborted.reaches(end) {
            return Ok(());
        }
        let number = self.segments.len() - 1;
        let entries = self.aborted_before(number, end)?;
        self.segments[number].aborted = AbortedExtent::of(&entries);
        aborted::store(&self.home, self.segments[number].base, &entries)
    }

    /// The entries of a segment's index with a marker below `end`: from the files if they agree, else
    /// from the batches.
    fn aborted_before(
        &mut self,
        number: usize,
        end: Offset,
    ) -> Result<Vec<AbortedTransaction>, StorageError> {
        let loaded = aborted::load(&self.home, self.segments[number].base)?;
        if !loaded.is_whole {
            return self.aborted_in(number, end);
        }
        let mut entries = loaded.entries;
        entries.retain(|entry| entry.last_offset < end);
        Ok(entries)
    }
}
