//! One segment: a file of batches, its two indexes, and what must be known to use them.
//!
//! A segment opens its files when they are first needed and gives them back when they have lain
//! idle, so an idle partition holds no descriptor. The last segment of a log is the active one; it
//! differs from the others only in that it grows.
//!
//! Not here: when to roll, what an offset means for the log as a whole (`log/`).

use std::io;
use std::sync::Arc;

use model::{BatchHeader, Offset, Timestamp};
use parking_lot::Mutex;

use crate::StorageError;
use crate::disk::{DiskFile, OpenMode};
use crate::error::Context;
use crate::index::{Entry, Index, OffsetEntry, TimeEntry};
use crate::names::{Home, LOG};
use crate::scan::{HeaderWalk, ScanError};

/// Below this size nothing is reserved: most partitions stay small.
const PREALLOCATE_FROM_BYTES: u64 = 256 << 10;
/// Least that is reserved at once.
const PREALLOCATE_LEAST_BYTES: u64 = 1 << 20;
/// Most that is reserved at once.
const PREALLOCATE_MOST_BYTES: u64 = 64 << 20;

/// A timestamp, and the last offset of the batch that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peak {
    pub(crate) timestamp: Timestamp,
    pub(crate) offset: Offset,
}

impl Peak {
    fn max_with(self, header: &BatchHeader) -> Peak {
        if header.max_timestamp <= self.timestamp {
            return self;
        }
        Peak { timestamp: header.max_timestamp, offset: header.last_offset() }
    }
}

/// A batch found in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) position: u64,
    pub(crate) header: BatchHeader,
}

impl Located {
    /// Where the next batch begins.
    pub(crate) fn end(&self) -> u64 {
        self.position + self.header.size_bytes as u64
    }
}

/// The largest timestamp of a batch's records. One that compaction has emptied keeps the timestamp in
/// its header, but there is nothing to be found at that time.
fn newest_record(header: &BatchHeader) -> Timestamp {
    if header.record_count == 0 { Timestamp::NONE } else { header.max_timestamp }
}

#[derive(Debug, Default)]
struct Handle {
    file: Option<Arc<dyn DiskFile>>,
    /// Whether it was asked for since the last look for idle ones.
    used: bool,
}

#[derive(Debug)]
pub(crate) struct Segment {
    /// Offsets in it are at least this.
    pub(crate) base: Offset,
    /// Bytes of batches. Invariant: the end of a whole batch; the file is no shorter.
    size: u64,
    handle: Mutex<Handle>,
    /// Of every batch that ends more than an interval behind the last entry: where it starts.
    pub(crate) offsets: Index<OffsetEntry>,
    /// The largest timestamp so far, each time an offset entry was made and it had grown.
    pub(crate) times: Index<TimeEntry>,
    /// Bytes of batches since the last index entry, the batch it names included.
    since_entry_bytes: u64,
    /// The largest timestamp in it; `None` until somebody asks.
    peak: Mutex<Option<Peak>>,
    /// The largest timestamp of its first batch; `None` until somebody asks, or it is empty.
    first_timestamp: Mutex<Option<Timestamp>>,
    /// Up to where room was reserved in the file.
    reserved: u64,
    /// Whether log or index files hold what no checkpoint has covered yet. Invariant: false implies
    /// that all files are complete and durable.
    pub(crate) unsealed: bool,
    /// Bytes of batches that a sync has covered.
    synced_bytes: u64,
    /// Whether an index entry must be checked no more: it was rebuilt once.
    rebuilt: Mutex<bool>,
}

impl Segment {
    /// A segment whose files are there, complete and to be believed.
    pub(crate) fn sealed(base: Offset, size: u64) -> Segment {
        let mut segment = Segment::with_indexes(base, Index::unopened(), Index::unopened());
        segment.size = size;
        segment.synced_bytes = size;
        segment
    }

    /// An empty segment in a file that is made here, or emptied.
    pub(crate) fn create(home: &Home, base: Offset) -> Result<Segment, StorageError> {
        let path = home.segment_path(base, LOG);
        let open = || {
            let file = home.disk.open(&path, OpenMode::Create)?;
            file.truncate(0)?;
            Ok(file)
        };
        let file = open().during("create", &path)?;
        let mut segment = Segment::with_indexes(base, Index::empty(), Index::empty());
        segment
            .offsets
            .clear(home, base)
            .during("clear", &home.segment_path(base, OffsetEntry::SUFFIX))?;
        segment
            .times
            .clear(home, base)
            .during("clear", &home.segment_path(base, TimeEntry::SUFFIX))?;
        *segment.handle.get_mut() = Handle { file: Some(file), used: true };
        *segment.peak.get_mut() = Some(Peak { timestamp: Timestamp::NONE, offset: base });
        segment.unsealed = true;
        Ok(segment)
    }

    /// A segment that recovery will fill: nothing is taken as known yet.
    pub(crate) fn unscanned(base: Offset) -> Segment {
        let mut segment = Segment::with_indexes(base, Index::empty(), Index::empty());
        *segment.peak.get_mut() = Some(Peak { timestamp: Timestamp::NONE, offset: base });
        segment.unsealed = true;
        segment
    }

    fn with_indexes(base: Offset, offsets: Index<OffsetEntry>, times: Index<TimeEntry>) -> Segment {
        Segment {
            base,
            size: 0,
            handle: Mutex::new(Handle::default()),
            offsets,
            times,
            since_entry_bytes: 0,
            peak: Mutex::new(None),
            first_timestamp: Mutex::new(None),
            reserved: 0,
            unsealed: false,
            synced_bytes: 0,
            rebuilt: Mutex::new(false),
        }
    }

    /// Bytes of batches.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The segment's file, opened if need be.
    pub(crate) fn file(&self, home: &Home) -> Result<Arc<dyn DiskFile>, StorageError> {
        let mut handle = self.handle.lock();
        handle.used = true;
        if let Some(file) = &handle.file {
            return Ok(Arc::clone(file));
        }
        let path = home.segment_path(self.base, LOG);
        let file = home.disk.open(&path, OpenMode::ReadWrite).during("open", &path)?;
        handle.file = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Closes what has not been used since the last call.
    pub(crate) fn release_idle(&mut self) {
        let handle = self.handle.get_mut();
        if !std::mem::take(&mut handle.used) {
            self.release();
        }
    }

    /// Closes the files. A file that must still be synced stays open, so that an error of writing
    /// it back is not lost with the descriptor.
    pub(crate) fn release(&mut self) {
        if self.synced_bytes == self.size {
            self.handle.get_mut().file = None;
        }
        self.offsets.release();
        self.times.release();
    }

    fn no_peak(&self) -> Peak {
        Peak { timestamp: Timestamp::NONE, offset: self.base }
    }

    fn peak_of(&self, entry: Option<TimeEntry>) -> Peak {
        entry.map_or(self.no_peak(), |entry| Peak {
            timestamp: entry.timestamp,
            offset: self.base.plus(entry.relative_offset as i64),
        })
    }

    /// Whether `offset` can be told from the base in 31 bits, as the indexes do.
    pub(crate) fn reaches(&self, offset: Offset) -> bool {
        offset.0 - self.base.0 <= i32::MAX as i64
    }

    fn relative(&self, offset: Offset) -> u32 {
        (offset.0 - self.base.0).clamp(0, u32::MAX as i64) as u32
    }

    /// A sync has covered the first `bytes` bytes.
    pub(crate) fn mark_synced(&mut self, bytes: u64) {
        self.synced_bytes = self.synced_bytes.max(bytes.min(self.size));
    }

    /// Whether a sync has covered all batches.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced_bytes == self.size
    }

    /// A checkpoint has covered everything in it.
    pub(crate) fn checkpointed(&mut self) {
        self.unsealed = false;
        self.synced_bytes = self.size;
        self.offsets.synced();
        self.times.synced();
    }

    /// The open file, if it is open.
    pub(crate) fn open_file(&self) -> Option<Arc<dyn DiskFile>> {
        self.handle.lock().file.clone()
    }

    /// Writes batches at the end. On an error the end is where it was, as far as the disk obeys.
    pub(crate) fn write(
        &mut self,
        home: &Home,
        bytes: &[u8],
        reserve_bytes: Option<u64>,
    ) -> Result<(), StorageError> {
        let file = self.file_mut(home)?;
        let end = self.size + bytes.len() as u64;
        if end > self.reserved {
            self.reserve(&*file, end, reserve_bytes);
        }
        if let Err(error) = file.write_all_at(bytes, self.size) {
            // Whether this cut succeeds or not, the caller stops writing here for good.
            let _ = file.truncate(self.size);
            return Err(error).during("write", &home.segment_path(self.base, LOG));
        }
        self.size = end;
        self.unsealed = true;
        Ok(())
    }

    fn file_mut(&mut self, home: &Home) -> Result<Arc<dyn DiskFile>, StorageError> {
        let handle = self.handle.get_mut();
        handle.used = true;
        match &handle.file {
            Some(file) => Ok(Arc::clone(file)),
            None => self.file(home),
        }
    }

    /// Reserves room ahead of the end, in growing steps. Failing to is no failure: the write that
    /// follows tells whether there is room.
    fn reserve(&mut self, file: &dyn DiskFile, end: u64, whole: Option<u64>) {
        let until = match whole {
            Some(bytes) => bytes.max(end),
            None if end < PREALLOCATE_FROM_BYTES => return,
            None => end + (end / 4).clamp(PREALLOCATE_LEAST_BYTES, PREALLOCATE_MOST_BYTES),
        };
        let _ = file.preallocate(self.size, until - self.size);
        self.reserved = until;
    }

    /// Takes a batch into the indexes that stands at `position` now. Allocates only when an index
    /// grows.
    pub(crate) fn note(&mut self, position: u64, header: &BatchHeader, interval_bytes: u32) {
        let relative_offset = self.relative(header.last_offset());
        let peak = self.peak.get_mut();
        let now = Peak { timestamp: newest_record(header), offset: header.last_offset() };
        let peak = match peak {
            Some(known) if known.timestamp >= now.timestamp => *known,
            _ => *peak.insert(now),
        };
        if position == 0 {
            *self.first_timestamp.get_mut() = Some(header.max_timestamp);
        }
        if self.since_entry_bytes > interval_bytes as u64 {
            self.offsets.push(OffsetEntry { relative_offset, position: position as u32 });
            self.note_peak(peak);
            self.since_entry_bytes = 0;
        }
        self.since_entry_bytes += header.size_bytes as u64;
    }

    /// Adds the largest timestamp to the time index, unless it has it.
    fn note_peak(&mut self, peak: Peak) {
        let entry =
            TimeEntry { timestamp: peak.timestamp, relative_offset: self.relative(peak.offset) };
        // Nothing known counts as "no timestamp", which never enters the index.
        let last = self.times.last_in_memory().map_or(Timestamp::NONE, |last| last.timestamp);
        if last < entry.timestamp {
            self.times.push(entry);
        }
    }

    /// Adds the largest timestamp of all to the time index.
    pub(crate) fn note_last_peak(&mut self) {
        if let Some(peak) = *self.peak.get_mut() {
            self.note_peak(peak);
        }
    }

    /// Whether an index has no room for another entry.
    pub(crate) fn is_index_full(&mut self, index_bytes: u32) -> bool {
        // The time index keeps room for the entry that closes it.
        self.offsets.size_bytes() + OffsetEntry::BYTES > index_bytes as usize
            || self.times.size_bytes() + 2 * TimeEntry::BYTES > index_bytes as usize
    }

    /// Ends the segment's growth: the largest timestamp enters the time index, the indexes go into
    /// their files, room that was reserved is given back. Nothing is synced.
    pub(crate) fn seal(&mut self, home: &Home) -> Result<(), StorageError> {
        self.note_last_peak();
        self.unsealed = true;
        self.write_indexes(home)?;
        self.give_back(home)
    }

    /// Gives back room that was reserved behind the end.
    pub(crate) fn give_back(&mut self, home: &Home) -> Result<(), StorageError> {
        if self.reserved > self.size {
            let file = self.file_mut(home)?;
            file.truncate(self.size).during("truncate", &home.segment_path(self.base, LOG))?;
            self.reserved = 0;
        }
        Ok(())
    }

    /// Moves the entries in memory into the index files. Nothing is synced.
    pub(crate) fn write_indexes(&mut self, home: &Home) -> Result<(), StorageError> {
        let base = self.base;
        self.offsets
            .write_tail(home, base)
            .during("write", &home.segment_path(base, OffsetEntry::SUFFIX))?;
        self.times
            .write_tail(home, base)
            .during("write", &home.segment_path(base, TimeEntry::SUFFIX))
    }

    /// All files of the segment that must be synced for it to need no recovery: log and indexes.
    pub(crate) fn unsynced_files(
        &self,
        home: &Home,
    ) -> Result<Vec<Arc<dyn DiskFile>>, StorageError> {
        let mut files = vec![self.file(home)?];
        files.extend(self.offsets.unsynced_file());
        files.extend(self.times.unsynced_file());
        Ok(files)
    }

    /// The batch that contains `offset`, or else the first one behind it; `None` if the segment
    /// ends before `offset`.
    pub(crate) fn locate(
        &self,
        home: &Home,
        offset: Offset,
    ) -> Result<Option<Located>, StorageError> {
        let from = self.start_of_search(home, offset)?;
        let file = self.file(home)?;
        self.locate_from(home, &*file, from, offset)
    }

    /// As [`Segment::locate`], from a batch known to be no later than the one wanted.
    fn locate_from(
        &self,
        home: &Home,
        file: &dyn DiskFile,
        position: u64,
        offset: Offset,
    ) -> Result<Option<Located>, StorageError> {
        let mut walk = HeaderWalk::new(file, position, self.size);
        loop {
            match walk.next() {
                Ok(Some((position, header))) if header.last_offset() >= offset => {
                    return Ok(Some(Located { position, header }));
                }
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.unreadable(home, walk.position(), offset, error)),
            }
        }
    }

    /// Where to begin looking for `offset`: the position that the index gives, if a batch begins
    /// there that ends at or before the entry's offset. Otherwise the index lies: it is rebuilt.
    fn start_of_search(&self, home: &Home, offset: Offset) -> Result<u64, StorageError> {
        let relative = self.relative(offset) as i64;
        match self.indexed_start(home, |e| e.key(), relative)? {
            Some(position) => Ok(position),
            None => {
                self.rebuild_indexes(home)?;
                Ok(self.indexed_start(home, |e| e.key(), relative)?.unwrap_or(0))
            }
        }
    }

    /// `None`: the index cannot be believed.
    fn indexed_start(
        &self,
        home: &Home,
        value: impl Fn(&OffsetEntry) -> i64,
        most: i64,
    ) -> Result<Option<u64>, StorageError> {
        let entry = match self.offsets.floor(home, self.base, value, most) {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(Some(0)),
            Err(error) => return self.unless_broken(home, OffsetEntry::SUFFIX, error),
        };
        let position = entry.position as u64;
        let holds = *self.rebuilt.lock() || self.is_batch_of(home, position, &entry)?;
        Ok(holds.then_some(position))
    }

    /// An index that is missing or cut is `None`, anything else an error.
    fn unless_broken<T>(
        &self,
        home: &Home,
        suffix: &str,
        error: io::Error,
    ) -> Result<Option<T>, StorageError> {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::InvalidData => Ok(None),
            _ => Err(error).during("read", &home.segment_path(self.base, suffix)),
        }
    }

    fn is_batch_of(
        &self,
        home: &Home,
        position: u64,
        entry: &OffsetEntry,
    ) -> Result<bool, StorageError> {
        let file = self.file(home)?;
        let end = self.base.plus(entry.relative_offset as i64);
        Ok(match HeaderWalk::new(&*file, position, self.size).next() {
            Ok(Some((_, header))) => self.base <= header.base_offset && header.last_offset() <= end,
            _ => false,
        })
    }

    /// Makes the indexes anew out of the headers of all batches.
    fn rebuild_indexes(&self, home: &Home) -> Result<(), StorageError> {
        let file = self.file(home)?;
        let mut fresh = Segment::unscanned(self.base);
        let mut walk = HeaderWalk::new(&*file, 0, self.size);
        loop {
            match walk.next() {
                Ok(Some((at, header))) => {
                    fresh.note(at, &header, crate::LogConfig::default().index_interval_bytes);
                }
                Ok(None) => break,
                Err(error) => {
                    return Err(self.unreadable(home, walk.position(), self.base, error));
                }
            }
        }
        let peak = *fresh.peak.get_mut();
        if let Some(peak) = peak {
            fresh.note_peak(peak);
        }
        self.offsets.replace(fresh.offsets.take_memory());
        self.times.replace(fresh.times.take_memory());
        *self.peak.lock() = peak;
        *self.rebuilt.lock() = true;
        Ok(())
    }

    /// The position up to which whole batches reach that begin at `start` and end at or before
    /// `most`, which is less than the segment's size; `start` if none does. With it comes the offset
    /// behind the last of them, if its header was read.
    pub(crate) fn batches_end(
        &self,
        home: &Home,
        start: u64,
        most: u64,
    ) -> Result<(u64, Option<Offset>), StorageError> {
        let indexed = self.indexed_start(home, |e| e.position as i64, most as i64)?;
        let file = self.file(home)?;
        let mut walk = HeaderWalk::new(&*file, indexed.unwrap_or(start).max(start), self.size);
        let mut end = None;
        loop {
            let at = walk.position();
            match walk.next() {
                Ok(Some((_, header))) if walk.position() <= most => {
                    end = Some(header.next_offset());
                }
                Ok(_) => return Ok((at, end)),
                // What was found so far is whole; the reader meets the damage when it gets there.
                Err(ScanError::Batch(_)) if at > start => return Ok((at, end)),
                Err(error) => return Err(self.unreadable(home, at, self.base, error)),
            }
        }
    }

    /// The position at which the first batch begins that is not wholly below `limit`.
    pub(crate) fn position_of(&self, home: &Home, limit: Offset) -> Result<u64, StorageError> {
        Ok(self.locate(home, limit)?.map_or(self.size, |found| found.position))
    }

    /// The largest timestamp in the segment.
    pub(crate) fn peak(&self, home: &Home) -> Result<Peak, StorageError> {
        if let Some(peak) = *self.peak.lock() {
            return Ok(peak);
        }
        let last = match self.times.last(home, self.base) {
            Ok(last) => Some(last),
            Err(error) => self.unless_broken(home, TimeEntry::SUFFIX, error)?,
        };
        let believed = match last {
            Some(Some(entry)) => self.batch_named(home, &entry)?.is_some(),
            Some(None) => true,
            None => false,
        };
        if !believed {
            self.rebuild_indexes(home)?;
            return Ok(*self.peak.lock().get_or_insert(self.no_peak()));
        }
        let peak = self.peak_of(last.flatten());
        *self.peak.lock() = Some(peak);
        Ok(peak)
    }

    /// The largest timestamp of the first batch; `None` if there is none.
    pub(crate) fn first_timestamp(&self, home: &Home) -> Result<Option<Timestamp>, StorageError> {
        if self.size == 0 {
            return Ok(None);
        }
        if let Some(known) = *self.first_timestamp.lock() {
            return Ok(Some(known));
        }
        let first = self.locate(home, self.base)?.map(|found| found.header.max_timestamp);
        *self.first_timestamp.lock() = first;
        Ok(first)
    }

    /// From where a record of at least this timestamp may be found: no earlier batch has one.
    pub(crate) fn position_by_time(
        &self,
        home: &Home,
        timestamp: Timestamp,
    ) -> Result<u64, StorageError> {
        let entry = match self.times.floor(home, self.base, |e| e.key(), timestamp.0) {
            Ok(entry) => entry,
            Err(error) => {
                self.unless_broken::<()>(home, TimeEntry::SUFFIX, error)?;
                self.rebuild_indexes(home)?;
                return self.position_by_time(home, timestamp);
            }
        };
        let Some(entry) = entry else { return Ok(0) };
        Ok(self.batch_named(home, &entry)?.map_or(0, |batch| batch.position))
    }

    /// The batch that an entry of the time index names; `None`: the entry was damaged. Compaction
    /// may have taken records, never moved them, so offset and timestamp must both be right.
    fn batch_named(&self, home: &Home, entry: &TimeEntry) -> Result<Option<Located>, StorageError> {
        let offset = self.base.plus(entry.relative_offset as i64);
        let found = self.locate(home, offset)?;
        Ok(found.filter(|b| {
            b.header.last_offset() == offset && b.header.max_timestamp == entry.timestamp
        }))
    }

    /// Takes a batch in that a scan found behind the known end.
    pub(crate) fn extend(&mut self, position: u64, header: &BatchHeader, interval_bytes: u32) {
        assert_eq!(position, self.size, "a scan takes batches in one after the other");
        self.note(position, header, interval_bytes);
        self.size = position + header.size_bytes as u64;
    }

    /// Cuts the segment at `position`, the start of a batch, durably: indexes first, so that no
    /// index ever names what is not there.
    pub(crate) fn truncate(
        &mut self,
        home: &Home,
        position: u64,
        cut: Offset,
    ) -> Result<Option<Offset>, StorageError> {
        let (base, relative) = (self.base, self.relative(cut));
        self.offsets
            .truncate(home, base, relative)
            .during("truncate", &home.segment_path(base, OffsetEntry::SUFFIX))?;
        self.times
            .truncate(home, base, relative)
            .during("truncate", &home.segment_path(base, TimeEntry::SUFFIX))?;
        let path = home.segment_path(base, LOG);
        let file = self.file(home)?;
        file.truncate(position).during("truncate", &path)?;
        file.sync().during("sync", &path)?;
        self.size = position;
        self.synced_bytes = position;
        self.reserved = 0;
        self.unsealed = true;
        self.recompute(home)
    }

    /// Takes the segment as known up to `position`, where the batch of the last index entry begins,
    /// as it was when that entry had just been made.
    pub(crate) fn resume(&mut self, home: &Home, position: u64) -> Result<(), StorageError> {
        // Asked once, both indexes know their last entry without their file.
        let path = home.segment_path(self.base, TimeEntry::SUFFIX);
        self.offsets.last(home, self.base).during("read", &path)?;
        let last = self.times.last(home, self.base).during("read", &path)?;
        *self.peak.get_mut() = Some(self.peak_below(home, last, position)?);
        self.size = position;
        self.synced_bytes = 0;
        self.since_entry_bytes = 0;
        self.unsealed = true;
        Ok(())
    }

    /// The largest timestamp up to the batch that `last` names, or if that lies before `position`, of
    /// the batches before there. An entry that names no batch was damaged and counts for nothing.
    fn peak_below(
        &self,
        home: &Home,
        last: Option<TimeEntry>,
        position: u64,
    ) -> Result<Peak, StorageError> {
        let named = last.map(|entry| self.batch_named(home, &entry)).transpose()?.flatten();
        let mut peak = self.peak_of(last.filter(|_| named.is_some()));
        let file = self.file(home)?;
        let mut walk = HeaderWalk::new(&*file, named.map_or(0, |batch| batch.position), position);
        loop {
            match walk.next() {
                Ok(Some((_, header))) => peak = peak.max_with(&header),
                Ok(None) => return Ok(peak),
                Err(error) => return Err(self.unreadable(home, walk.position(), self.base, error)),
            }
        }
    }

    /// Opens a segment to append to it, trusting its files. Returns the offset behind its last
    /// batch, `None` if there is none. Missing or damaged indexes are made anew.
    pub(crate) fn reopen(&mut self, home: &Home) -> Result<Option<Offset>, StorageError> {
        let path = home.segment_path(self.base, OffsetEntry::SUFFIX);
        let broken = self.offsets.is_broken(home, self.base).during("read", &path)?
            || self.times.is_broken(home, self.base).during("read", &path)?
            || self.start_is_wrong(home)?;
        if broken {
            self.rebuild_indexes(home)?;
            self.unsealed = true;
        }
        self.recompute(home)
    }

    fn start_is_wrong(&self, home: &Home) -> Result<bool, StorageError> {
        Ok(self.indexed_start(home, |e| e.key(), i64::MAX)?.is_none())
    }

    /// The offset behind the last batch that ends at or before `position`, a batch boundary.
    pub(crate) fn end_before(
        &self,
        home: &Home,
        position: u64,
    ) -> Result<Option<Offset>, StorageError> {
        let most = position as i64 - 1;
        let from = self.indexed_start(home, |e| e.position as i64, most)?.unwrap_or(0);
        let file = self.file(home)?;
        let mut walk = HeaderWalk::new(&*file, from, position);
        let mut end = None;
        loop {
            match walk.next() {
                Ok(Some((_, header))) => end = Some(header.next_offset()),
                Ok(None) => return Ok(end),
                Err(error) => return Err(self.unreadable(home, walk.position(), self.base, error)),
            }
        }
    }

    /// Learns again, from the last index entry on, what opening or truncation left unknown. Returns
    /// the offset behind the last batch, `None` if there is no batch.
    pub(crate) fn recompute(&mut self, home: &Home) -> Result<Option<Offset>, StorageError> {
        let base = self.base;
        *self.first_timestamp.get_mut() = None;
        let path = |suffix| home.segment_path(base, suffix);
        let last = self.offsets.last(home, base).during("read", &path(OffsetEntry::SUFFIX))?;
        let time = self.times.last(home, base).during("read", &path(TimeEntry::SUFFIX))?;
        let mut peak = self.peak_of(time);
        let from = last.map_or(0, |entry| entry.position as u64);
        let mut end = None;
        let file = self.file(home)?;
        let mut walk = HeaderWalk::new(&*file, from, self.size);
        loop {
            match walk.next() {
                Ok(Some((_, header))) => {
                    end = Some(header.next_offset());
                    if newest_record(&header) > peak.timestamp {
                        let (timestamp, offset) = (newest_record(&header), header.last_offset());
                        peak = Peak { timestamp, offset };
                    }
                }
                Ok(None) => break,
                Err(error) => return Err(self.unreadable(home, walk.position(), base, error)),
            }
        }
        self.since_entry_bytes = self.size - from;
        *self.peak.get_mut() = Some(peak);
        Ok(end)
    }

    /// What a scan that stopped means for whoever wanted `offset`.
    pub(crate) fn unreadable(
        &self,
        home: &Home,
        position: u64,
        offset: Offset,
        error: ScanError,
    ) -> StorageError {
        let path = home.segment_path(self.base, LOG);
        match error {
            ScanError::Batch(error) => StorageError::batch(&path, position, offset, error),
            ScanError::Io(source) => StorageError::Io { operation: "read", path, source },
        }
    }
}
