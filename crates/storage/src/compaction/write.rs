//! Writing the new segments of a compaction, under temporary names and durably.
//!
//! Where no offset is missing before, none is missing afterwards: an empty batch takes the place of those that
//! went, with their leader epoch. Base offsets are outside of checksums, and in a gap none could be told from
//! another.

use std::path::Path;
use std::sync::Arc;

use model::batch::HEADER_BYTES;
use model::{BatchHeader, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::aborted::Aborted;
use super::offset_map::OffsetMap;
use super::rewrite::{Clock, Left, Rewriter, Treatment};
use super::run::Met;
use super::{CompactionPlan, Group, Place, Source, Tally};
use crate::StorageError;
use crate::disk::{DiskFile, OpenMode};
use crate::error::Context;
use crate::index::{Entry, OffsetEntry, TimeEntry};
use crate::names::{LOG, OFFSET_INDEX, TIME_INDEX};
use crate::producers::transactions::Marker;
use crate::scan::{BatchScan, ScanError};
use crate::segment::Segment;

/// Bytes collected before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// The writing of all new segments, front to end.
pub(super) struct Writing<'a> {
    plan: &'a CompactionPlan,
    place: &'a Place,
    /// The last offsets of all keys between where the plan begins to be dirty and `until`.
    map: &'a OffsetMap,
    until: Offset,
    aborted: Aborted,
    rewriter: Rewriter,
    pub(super) tally: Tally,
}

/// A new segment being written.
struct Target {
    place: Place,
    base: Offset,
    file: Arc<dyn DiskFile>,
    /// Bytes of batches written or collected.
    size: u64,
    collected: Vec<u8>,
    /// Empty batches for those that went since the last one that stayed, one for each leader epoch.
    gone: Vec<BatchHeader>,
    /// Gathers the index entries.
    indexes: Segment,
    changed: bool,
}

impl<'a> Writing<'a> {
    pub(super) fn new(
        plan: &'a CompactionPlan,
        place: &'a Place,
        map: &'a OffsetMap,
        until: Offset,
        tally: Tally,
    ) -> Writing<'a> {
        let aborted = Aborted::new(&plan.aborted);
        Writing { plan, place, map, until, aborted, rewriter: Rewriter::default(), tally }
    }

    /// Writes what stays of these segments into one. `None`: the pace ended it.
    pub(super) fn group(
        &mut self,
        sources: &[Source],
        pace: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Group>, StorageError> {
        let plan = self.plan;
        let mut target = plan.begin_target(self.place, sources[0].base)?;
        target.changed = sources.len() > 1;
        for (number, source) in sources.iter().enumerate() {
            let mut scan = BatchScan::new(&*source.file, 0, source.size);
            let mut chain = plan.chain(source);
            loop {
                let at = scan.position();
                let next =
                    scan.next_even_damaged().map_err(|error| plan.unreadable(source, at, error))?;
                let Some(((_, header, bytes), damage)) = next else { break };
                plan.compare(&mut chain, source, at, &header, damage.is_some())?;
                if !pace(header.size_bytes as u64) {
                    return Ok(None);
                }
                let end = at + header.size_bytes as u64;
                let is_last = number + 1 == sources.len() && end == source.size;
                let met = Met { source, at, header, bytes };
                match damage {
                    None => self.batch(&met, is_last, &mut target)?,
                    Some(error) => self.keep_unreadable(&met, &error, &mut target)?,
                }
            }
        }
        self.tally.bytes_written += target.size;
        plan.end_target(target, sources).map(Some)
    }

    /// Writes what stays of one batch.
    fn batch(
        &mut self,
        met: &Met<'_>,
        is_last: bool,
        target: &mut Target,
    ) -> Result<(), StorageError> {
        let plan = self.plan;
        let treatment = self.treatment(met, is_last);
        self.tally.bytes_read += met.header.size_bytes as u64;
        if met.header.is_placeholder() && !treatment.keep_empty {
            // Made anew, together with its neighbours.
            plan.let_go(target, &met.header);
            return Ok(());
        }
        self.tally.records_read += met.header.record_count as u64;
        let clock = Clock { now: plan.now, delete_retention_ms: plan.config.delete_retention_ms };
        let (map, until) = (self.map, self.until);
        let is_latest = |offset, key: Option<&[u8]>| is_latest(map, until, offset, key);
        let left = match self.rewriter.rewrite(&met.header, met.bytes, treatment, clock, is_latest)
        {
            Ok(left) => left,
            Err(error) => return self.keep_unreadable(met, &error, target),
        };
        self.tally.records_kept += self.rewriter.kept as u64;
        target.changed |= left != Left::Unchanged;
        match left {
            Left::Nothing => {
                plan.let_go(target, &met.header);
                Ok(())
            }
            Left::Unchanged => plan.put(target, &met.header, met.bytes),
            Left::Rewritten => {
                let header = BatchHeader::decode(&self.rewriter.batch)
                    .map_err(|e| plan.unreadable(met.source, met.at, ScanError::Batch(e)))?;
                plan.put(target, &header, &self.rewriter.batch)
            }
        }
    }

    /// A batch whose records cannot be told: it stays as it is.
    fn keep_unreadable(
        &mut self,
        met: &Met<'_>,
        reason: &dyn std::fmt::Display,
        target: &mut Target,
    ) -> Result<(), StorageError> {
        self.tally.batches_unreadable += 1;
        self.plan.note_unreadable(met, reason);
        self.plan.put(target, &met.header, met.bytes)
    }

    fn treatment(&mut self, met: &Met<'_>, is_last: bool) -> Treatment {
        let header = &met.header;
        let mut is_empty_marker = false;
        let discard_records = if header.is_control() {
            is_empty_marker = self.aborted.meets_marker(header, Marker::read(header, met.bytes));
            let due = header.delete_horizon().is_some_and(|horizon| horizon <= self.plan.now);
            is_empty_marker && due
        } else {
            self.aborted.meets_batch(header)
        };
        let keep_empty = is_last || self.plan.is_a_producers_last(header);
        Treatment { discard_records, is_empty_marker, keep_empty }
    }
}

impl CompactionPlan {
    fn is_a_producers_last(&self, header: &BatchHeader) -> bool {
        header.producer_id.is_idempotent()
            && match header.is_control() {
                false => self.last_batches.binary_search(&header.last_offset()).is_ok(),
                true => self.markers_only.contains(&(header.producer_id, header.producer_epoch)),
            }
    }

    fn begin_target(&self, place: &Place, base: Offset) -> Result<Target, StorageError> {
        let path = place.path(base, LOG);
        let open = || {
            let file = self.home.disk.open(&path, OpenMode::Create)?;
            file.truncate(0)?;
            Ok(file)
        };
        let file = open().during("create", &path)?;
        let indexes = Segment::unscanned(base);
        Ok(Target {
            place: place.clone(),
            base,
            file,
            size: 0,
            collected: Vec::new(),
            gone: Vec::new(),
            indexes,
            changed: false,
        })
    }

    /// Notes a batch of which nothing stays. Where offsets may be missing anyway, nothing takes its place.
    fn let_go(&self, target: &mut Target, header: &BatchHeader) {
        if !self.stamps.is_dense(header.base_offset) {
            return;
        }
        if let Some(last) = target.gone.last_mut()
            && last.leader_epoch == header.leader_epoch
            && last.next_offset() == header.base_offset
            && let Ok(delta) = i32::try_from(header.last_offset().0 - last.base_offset.0)
        {
            last.last_offset_delta = delta;
            last.max_timestamp = last.max_timestamp.max(header.max_timestamp);
            return;
        }
        target.gone.push(empty_for(header));
    }

    /// Writes a batch that stays, and the empty ones before it.
    fn put(
        &self,
        target: &mut Target,
        header: &BatchHeader,
        batch: &[u8],
    ) -> Result<(), StorageError> {
        self.put_empty(target)?;
        self.collect_batch(target, header, batch)
    }

    fn put_empty(&self, target: &mut Target) -> Result<(), StorageError> {
        for empty in std::mem::take(&mut target.gone) {
            self.collect_batch(target, &empty, &empty.encode_empty())?;
        }
        Ok(())
    }

    fn collect_batch(
        &self,
        target: &mut Target,
        header: &BatchHeader,
        batch: &[u8],
    ) -> Result<(), StorageError> {
        target.indexes.note(target.size, header, self.config.index_interval_bytes);
        target.collected.extend_from_slice(batch);
        target.size += batch.len() as u64;
        if target.collected.len() >= WRITE_BYTES {
            self.write_collected(target)?;
        }
        Ok(())
    }

    fn write_collected(&self, target: &mut Target) -> Result<(), StorageError> {
        let at = target.size - target.collected.len() as u64;
        let path = target.place.path(target.base, LOG);
        target.file.write_all_at(&target.collected, at).during("write", &path)?;
        target.collected.clear();
        Ok(())
    }

    /// Writes what is left and the indexes, all of it durably.
    fn end_target(&self, mut target: Target, sources: &[Source]) -> Result<Group, StorageError> {
        self.put_empty(&mut target)?;
        self.write_collected(&mut target)?;
        let path = target.place.path(target.base, LOG);
        // No room found that late loses nothing: nothing depends on the file yet.
        target.file.sync().during("write", &path)?;
        // Compaction makes no record younger.
        let modified = sources.iter().map(|source| source.modified).max();
        if let Some(modified) = modified.filter(|time| *time > Timestamp::NONE) {
            self.home.disk.set_modified(&path, modified).during("date", &path)?;
        }
        let (offsets, times) = target.indexes.into_entries();
        self.write_index(&target.place.path(target.base, OFFSET_INDEX), &offsets)?;
        self.write_index(&target.place.path(target.base, TIME_INDEX), &times)?;
        let replaced: Vec<_> = sources.iter().map(|source| (source.base, source.size)).collect();
        // Empty batches may have come, or gone.
        let changed =
            target.changed || target.size != replaced.iter().map(|(_, size)| size).sum::<u64>();
        Ok(Group { replaced, size: target.size, changed })
    }

    fn write_index<E: Entry>(&self, path: &Path, entries: &[E]) -> Result<(), StorageError> {
        let mut bytes = Vec::with_capacity(entries.len() * E::BYTES);
        entries.iter().for_each(|entry| entry.encode(&mut bytes));
        let write = || {
            let file = self.home.disk.open(path, OpenMode::Create)?;
            file.truncate(0)?;
            file.write_all_at(&bytes, 0)?;
            file.sync()
        };
        write().during("write", path)
    }
}

/// The empty batch that has the offsets, the leader epoch and the time of one that went: a segment is as old
/// as its batches.
fn empty_for(gone: &BatchHeader) -> BatchHeader {
    BatchHeader {
        size_bytes: HEADER_BYTES as u32,
        crc: 0,
        attributes: 0,
        base_timestamp: Timestamp::NONE,
        producer_id: ProducerId::NONE,
        producer_epoch: ProducerEpoch::NONE,
        base_sequence: Sequence::NONE,
        record_count: 0,
        ..*gone
    }
}

/// Whether no later record of the same key is known. A record without a key has no place in a
/// compacted log.
fn is_latest(map: &OffsetMap, until: Offset, offset: Offset, key: Option<&[u8]>) -> bool {
    if offset >= until {
        return true;
    }
    key.is_some_and(|key| map.get(key).is_none_or(|last| offset >= last))
}

impl Segment {
    /// The entries of indexes that were gathered in memory, the largest timestamp included.
    fn into_entries(mut self) -> (Vec<OffsetEntry>, Vec<TimeEntry>) {
        self.note_last_peak();
        (self.offsets.take_memory(), self.times.take_memory())
    }
}
