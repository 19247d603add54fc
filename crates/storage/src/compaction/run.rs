//! The long part of a compaction: reading the dirty part for the last offset of every key, and
//! choosing which segments become one. `write.rs` then writes them.

use compression::records::RecordStream;
use model::{BatchHeader, Offset};

use super::aborted::Aborted;
use super::offset_map::OffsetMap;
use super::write::Writing;
use super::{Cleaned, Compaction, CompactionPlan, Place, Source, Tally};
use crate::names::LOG;
use crate::producers::transactions::Marker;
use crate::scan::{BatchScan, ScanError};
use crate::stamps::Chain;
use crate::{StorageError, UnreadableBatch};

/// A batch of a segment, met on the way.
pub(super) struct Met<'a> {
    pub(super) source: &'a Source,
    /// Where it begins in the segment.
    pub(super) at: u64,
    pub(super) header: BatchHeader,
    pub(super) bytes: &'a [u8],
}

impl CompactionPlan {
    /// Does the work: takes at most `memory_bytes` for keys, hashed under `hash_key`, which should
    /// be random, and names files by it, so two at once must have different ones. `pace` is told of bytes read and written as it goes on; it may slow the work down,
    /// and ends it by `false`: then nothing comes of it (`None`). Whatever ends it, no file is left.
    ///
    /// A batch whose records cannot be read stays as it is. Fails with [`StorageError::Damaged`] where
    /// not even the end of a batch can be told: the log is not to be compacted any more until somebody
    /// has looked at it.
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
        let place = Place { home: self.home.clone(), mark: hash_key[0] };
        let mut writing = Writing::new(self, &place, &map, until, tally);
        let mut cleaned = Cleaned { place: place.clone(), bases: Vec::new() };
        for sources in self.grouped(until) {
            cleaned.bases.push(sources[0].base);
            match writing.group(sources, pace)? {
                Some(group) => groups.push(group),
                None => return Ok(None),
            }
        }
        let tally = writing.tally;
        let (cleaned_below, generation) = (until, self.generation);
        Ok(Some(Compaction { groups, cleaned, cleaned_below, generation, tally }))
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
            let mut chain = self.chain(source);
            loop {
                let at = scan.position();
                let next =
                    scan.next_even_damaged().map_err(|error| self.unreadable(source, at, error))?;
                let Some(((_, header, batch), damage)) = next else { break };
                self.compare(&mut chain, source, at, &header, damage.is_some())?;
                // It stays as it is, and hides nothing: whatever it said of a key is not known.
                if damage.is_some() {
                    continue;
                }
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
                let met = Met { source, at, header, bytes: batch };
                if let Some(full_at) = self.collect_keys(&met, map, &mut buffer) {
                    tally.memory_full = true;
                    return Ok(Some(full_at));
                }
            }
        }
        Ok(Some(self.sources.last().map_or(self.dirty_from, |last| last.end)))
    }

    /// Notes the keys of a batch, as far as it can be read. Returns the offset of the record that
    /// there was no room for.
    fn collect_keys(
        &self,
        met: &Met<'_>,
        map: &mut OffsetMap,
        buffer: &mut Vec<u8>,
    ) -> Option<Offset> {
        let mut records = RecordStream::new(&met.header, met.bytes, u64::MAX, buffer);
        while let Some(Ok((head, key))) = records.next_key() {
            let offset = met.header.base_offset.plus(i64::from(head.offset_delta));
            let key = key.filter(|_| offset >= self.dirty_from);
            if key.is_some_and(|key| map.put(key, offset).is_err()) {
                return Some(offset);
            }
        }
        None
    }

    /// Follows the batches of a segment.
    pub(super) fn chain(&self, source: &Source) -> Chain<'_> {
        self.stamps.chain(Some(source.base), source.end)
    }

    /// Fails with [`StorageError::Damaged`] if a batch cannot be the next one: written anew it would be in the
    /// wrong place for good.
    pub(super) fn compare<'a>(
        &'a self,
        chain: &mut Chain<'a>,
        source: &Source,
        at: u64,
        header: &BatchHeader,
        is_damaged: bool,
    ) -> Result<(), StorageError> {
        if is_damaged {
            // Its offsets may be what is wrong.
            *chain = self.stamps.chain(None, source.end);
            return Ok(());
        }
        chain.take(header).map_err(|reason| {
            let path = self.home.segment_path(source.base, LOG);
            StorageError::damaged(&path, at, chain.expected().unwrap_or(source.base), reason)
        })
    }

    /// Notes a batch that cannot be read.
    pub(super) fn note_unreadable(&self, met: &Met<'_>, reason: &dyn std::fmt::Display) {
        self.home.unreadable.note(UnreadableBatch {
            path: self.home.segment_path(met.source.base, LOG),
            position: met.at,
            offset: met.header.base_offset,
            reason: reason.to_string(),
        });
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

    pub(super) fn unreadable(&self, source: &Source, at: u64, error: ScanError) -> StorageError {
        let path = self.home.segment_path(source.base, LOG);
        match error {
            ScanError::Batch(error) => StorageError::batch(&path, at, source.base, error),
            ScanError::Io(source) => StorageError::Io { operation: "read", path, source },
        }
    }
}
