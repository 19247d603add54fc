//! The long part of a compaction: reading for the last offsets, writing what stays.

use std::collections::{BTreeMap, BTreeSet};

use model::batch::HEADER_BYTES;
use model::record::{Record, Records};
use model::{BatchHeader, Compression, Offset, ProducerId};

use super::offset_map::OffsetMap;
use super::rewrite::{Clock, Left, Rewriter, Treatment};
use super::{Compaction, CompactionPlan, Group, Source, Tally, cleaned_path};
use crate::StorageError;
use crate::disk::OpenMode;
use crate::error::Context;
use crate::index::{Entry, OffsetEntry, TimeEntry};
use crate::names::{LOG, OFFSET_INDEX, TIME_INDEX};
use crate::producers::transactions::{AbortedTransaction, Marker};
use crate::scan::{BatchScan, ScanError};
use crate::segment::Segment;

/// Bytes collected before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// Which transactions are under way at a place in the log that is read from front to end.
struct Aborted {
    /// Aborted ones not reached yet, the next one last.
    ahead: Vec<AbortedTransaction>,
    /// Aborted ones by producer: where each ends, and whether a batch of it was met.
    within: BTreeMap<ProducerId, (Offset, bool)>,
    /// Producers of others, of which a batch was met and no marker yet.
    committing: BTreeSet<ProducerId>,
}

impl Aborted {
    fn new(all: &[AbortedTransaction]) -> Aborted {
        let mut ahead = all.to_vec();
        ahead.sort_by_key(|aborted| std::cmp::Reverse(aborted.first_offset));
        Aborted { ahead, within: BTreeMap::new(), committing: BTreeSet::new() }
    }

    /// Moves on to a batch. A transaction ends at its marker's offset whether the marker is still
    /// there or was compacted away.
    fn reach(&mut self, header: &BatchHeader) {
        if self.ahead.is_empty() && self.within.is_empty() {
            return;
        }
        let (first, last) = (header.base_offset, header.last_offset());
        self.within.retain(|_, (end, _)| *end >= first);
        while let Some(next) = self.ahead.pop_if(|next| next.first_offset <= last) {
            if next.last_offset >= first {
                self.within.insert(next.producer_id, (next.last_offset, false));
            }
        }
    }

    /// Whether a batch of records belongs to an aborted transaction.
    fn meets_batch(&mut self, header: &BatchHeader) -> bool {
        self.reach(header);
        if !header.is_transactional() {
            return false;
        }
        match self.within.get_mut(&header.producer_id) {
            Some((_, met)) => {
                *met = true;
                true
            }
            None => {
                self.committing.insert(header.producer_id);
                false
            }
        }
    }

    /// Whether the transaction that a marker ends has no batch left in front of it.
    fn meets_marker(&mut self, header: &BatchHeader, marker: Option<Marker>) -> bool {
        self.reach(header);
        match marker {
            Some(marker) if marker.aborts => {
                !self.within.remove(&header.producer_id).is_some_and(|(_, met)| met)
            }
            Some(_) => !self.committing.remove(&header.producer_id),
            None => false,
        }
    }
}

/// A new segment being written.
struct Target {
    base: Offset,
    file: std::sync::Arc<dyn crate::disk::DiskFile>,
    /// Bytes of batches written or collected.
    size: u64,
    collected: Vec<u8>,
    /// Gathers the index entries.
    indexes: Segment,
    changed: bool,
}

impl CompactionPlan {
    /// Does the work: takes at most `memory_bytes` for keys, hashed under `hash_key`, which should
    /// be random. `pace` is told of bytes read and written as it goes on; it may slow the work down,
    /// and ends it by `false`: then nothing comes of it (`None`).
    ///
    /// Fails with [`StorageError::Damaged`] on a batch that cannot be read: the log is not to be
    /// compacted any more until somebody has looked at it.
    pub fn run(
        &self,
        memory_bytes: usize,
        hash_key: [u64; 2],
        pace: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Compaction>, StorageError> {
        let mut tally = Tally::default();
        let mut map = OffsetMap::new(memory_bytes, hash_key);
        let Some(until) = self.collect(&mut map, &mut tally, pace)? else { return Ok(None) };
        tally.keys = map.len() as u64;
        let mut groups = Vec::new();
        let mut aborted = Aborted::new(&self.aborted);
        for sources in self.grouped(until) {
            match self.write_group(sources, &map, until, &mut aborted, &mut tally, pace)? {
                Some(group) => groups.push(group),
                None => return Ok(None),
            }
        }
        Ok(Some(Compaction { groups, cleaned_below: until, generation: self.generation, tally }))
    }

    /// Reads the dirty part for the last offset of every key. Returns up to where the map speaks:
    /// less than asked for if it was full. `None`: the pace ended it.
    fn collect(
        &self,
        map: &mut OffsetMap,
        tally: &mut Tally,
        pace: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Offset>, StorageError> {
        let mut aborted = Aborted::new(&self.aborted);
        let mut buffer = Vec::new();
        for source in self.sources.iter().filter(|source| source.end > self.dirty_from) {
            let mut scan = BatchScan::new(&*source.file, 0, source.size);
            loop {
                let at = scan.position();
                let next = scan.next().map_err(|error| self.unreadable(source, at, error))?;
                let Some((_, header, batch)) = next else { break };
                tally.bytes_read += header.size_bytes as u64;
                if header.is_control() {
                    aborted.meets_marker(&header, Marker::read(&header, batch));
                    continue;
                }
                if aborted.meets_batch(&header) || header.last_offset() < self.dirty_from {
                    continue;
                }
                if !pace(header.size_bytes as u64) {
                    return Ok(None);
                }
                let payload = self.payload(source, at, &header, batch, &mut buffer)?;
                for record in Records::new(payload, header.record_count) {
                    let record =
                        record.map_err(|e| self.unreadable(source, at, ScanError::Batch(e)))?;
                    let offset = header.base_offset.plus(record.offset_delta as i64);
                    let Some(key) = record.key.filter(|_| offset >= self.dirty_from) else {
                        continue;
                    };
                    if map.put(key, offset).is_err() {
                        tally.memory_full = true;
                        return Ok(Some(offset));
                    }
                }
            }
        }
        Ok(Some(self.sources.last().map_or(self.dirty_from, |last| last.end)))
    }

    fn payload<'a>(
        &self,
        source: &Source,
        at: u64,
        header: &BatchHeader,
        batch: &'a [u8],
        buffer: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], StorageError> {
        if header.compression() == Compression::None || header.record_count == 0 {
            return Ok(&batch[HEADER_BYTES..]);
        }
        let cap = self.config.expansion_cap_bytes();
        compression::decompress(header.compression(), &batch[HEADER_BYTES..], cap, buffer)
            .map_err(|error| {
                let path = self.home.segment_path(source.base, LOG);
                StorageError::damaged(&path, at, header.base_offset, error.to_string())
            })?;
        Ok(buffer)
    }

    /// The segments that hold anything below `until`, in runs that fit one new segment.
    fn grouped(&self, until: Offset) -> Vec<&[Source]> {
        let count = self.sources.iter().take_while(|source| source.base < until).count();
        let mut rest = &self.sources[..count];
        let mut groups = Vec::new();
        while let Some(first) = rest.first() {
            let mut size = 0;
            let fits = |source: &&Source| {
                size += source.size;
                let index_bytes = size / self.config.index_interval_bytes.max(1) as u64 * 12;
                size <= self.config.segment_bytes as u64
                    && source.end.0 - first.base.0 <= i32::MAX as i64
                    && index_bytes <= self.config.segment_index_bytes as u64
            };
            let length = rest.iter().take_while(fits).count().max(1);
            let (group, behind) = rest.split_at(length);
            groups.push(group);
            rest = behind;
        }
        groups
    }

    fn write_group(
        &self,
        sources: &[Source],
        map: &OffsetMap,
        until: Offset,
        aborted: &mut Aborted,
        tally: &mut Tally,
        pace: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Group>, StorageError> {
        let mut target = self.begin_target(sources[0].base)?;
        target.changed = sources.len() > 1;
        let mut rewriter = Rewriter::default();
        let mut buffer = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            let mut scan = BatchScan::new(&*source.file, 0, source.size);
            loop {
                let at = scan.position();
                let next = scan.next().map_err(|error| self.unreadable(source, at, error))?;
                let Some((_, header, batch)) = next else { break };
                if !pace(header.size_bytes as u64) {
                    return Ok(None);
                }
                let end = at + header.size_bytes as u64;
                let is_last = number + 1 == sources.len() && end == source.size;
                let treatment = self.treatment(&header, batch, is_last, aborted);
                tally.bytes_read += header.size_bytes as u64;
                tally.records_read += header.record_count as u64;
                let payload = self.payload(source, at, &header, batch, &mut buffer)?;
                let clock =
                    Clock { now: self.now, delete_retention_ms: self.config.delete_retention_ms };
                let is_latest = |offset, record: &Record<'_>| is_latest(map, until, offset, record);
                let left = rewriter
                    .rewrite(&header, payload, treatment, clock, is_latest)
                    .map_err(|error| self.unreadable(source, at, ScanError::Batch(error)))?;
                tally.records_kept += rewriter.kept as u64;
                match left {
                    Left::Nothing => target.changed = true,
                    Left::Unchanged => self.put(&mut target, &header, batch)?,
                    Left::Rewritten => {
                        target.changed = true;
                        let header = BatchHeader::decode(&rewriter.batch).map_err(|error| {
                            self.unreadable(source, at, ScanError::Batch(error))
                        })?;
                        self.put(&mut target, &header, &rewriter.batch)?;
                    }
                }
            }
        }
        self.end_target(target, sources, tally).map(Some)
    }

    fn treatment(
        &self,
        header: &BatchHeader,
        batch: &[u8],
        is_last: bool,
        aborted: &mut Aborted,
    ) -> Treatment {
        let mut is_empty_marker = false;
        let discard_records = if header.is_control() {
            is_empty_marker = aborted.meets_marker(header, Marker::read(header, batch));
            is_empty_marker && header.delete_horizon().is_some_and(|horizon| horizon <= self.now)
        } else {
            aborted.meets_batch(header)
        };
        let keep_empty = is_last || self.is_a_producers_last(header);
        Treatment { discard_records, is_empty_marker, keep_empty }
    }

    fn is_a_producers_last(&self, header: &BatchHeader) -> bool {
        header.producer_id.is_idempotent()
            && match header.is_control() {
                false => self.last_batches.binary_search(&header.last_offset()).is_ok(),
                true => self.markers_only.contains(&(header.producer_id, header.producer_epoch)),
            }
    }

    fn begin_target(&self, base: Offset) -> Result<Target, StorageError> {
        let path = cleaned_path(&self.home, base, LOG);
        let open = || {
            let file = self.home.disk.open(&path, OpenMode::Create)?;
            file.truncate(0)?;
            Ok(file)
        };
        let file = open().during("create", &path)?;
        let indexes = Segment::unscanned(base);
        Ok(Target { base, file, size: 0, collected: Vec::new(), indexes, changed: false })
    }

    fn put(
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
        let path = cleaned_path(&self.home, target.base, LOG);
        target.file.write_all_at(&target.collected, at).during("write", &path)?;
        target.collected.clear();
        Ok(())
    }

    /// Writes what is left and the indexes, all of it durably.
    fn end_target(
        &self,
        mut target: Target,
        sources: &[Source],
        tally: &mut Tally,
    ) -> Result<Group, StorageError> {
        self.write_collected(&mut target)?;
        let path = cleaned_path(&self.home, target.base, LOG);
        target.file.sync().during("sync", &path)?;
        let (offsets, times) = target.indexes.into_entries();
        self.write_index(target.base, OFFSET_INDEX, &offsets)?;
        self.write_index(target.base, TIME_INDEX, &times)?;
        tally.bytes_written += target.size;
        let replaced = sources.iter().map(|source| (source.base, source.size)).collect();
        Ok(Group { replaced, size: target.size, changed: target.changed })
    }

    fn write_index<E: Entry>(
        &self,
        base: Offset,
        suffix: &str,
        entries: &[E],
    ) -> Result<(), StorageError> {
        let path = cleaned_path(&self.home, base, suffix);
        let mut bytes = Vec::with_capacity(entries.len() * E::BYTES);
        entries.iter().for_each(|entry| entry.encode(&mut bytes));
        let write = || {
            let file = self.home.disk.open(&path, OpenMode::Create)?;
            file.truncate(0)?;
            file.write_all_at(&bytes, 0)?;
            file.sync()
        };
        write().during("write", &path)
    }

    fn unreadable(&self, source: &Source, at: u64, error: ScanError) -> StorageError {
        let path = self.home.segment_path(source.base, LOG);
        match error {
            ScanError::Batch(error) => StorageError::batch(&path, at, source.base, error),
            ScanError::Io(source) => StorageError::Io { operation: "read", path, source },
        }
    }
}

/// Whether no later record of the same key is known. A record without a key has no place in a
/// compacted log.
fn is_latest(map: &OffsetMap, until: Offset, offset: Offset, record: &Record<'_>) -> bool {
    if offset >= until {
        return true;
    }
    record.key.is_some_and(|key| map.get(key).is_none_or(|last| offset >= last))
}

impl Segment {
    /// The entries of indexes that were gathered in memory, the largest timestamp included.
    fn into_entries(mut self) -> (Vec<OffsetEntry>, Vec<TimeEntry>) {
        self.note_last_peak();
        (self.offsets.take_memory(), self.times.take_memory())
    }
}
