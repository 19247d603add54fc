//! One segment: a file of batches, its two indexes, and what must be known to use them.
//!
//! A segment opens its files when they are first needed and gives them back when they have lain
//! idle, so an idle partition holds no descriptor. The last segment of a log is the active one; it
//! differs from the others only in that it grows.
//!
//! Not here: finding things in it (`segment/find.rs`, `segment/stamped.rs`), taking it up again
//! (`segment/reopen.rs`), when to roll, what an offset means for the log as a whole (`log/`).

mod find;
mod reopen;
mod stamped;

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;

use model::{BatchHeader, Offset, Timestamp};
use parking_lot::Mutex;

use crate::StorageError;
use crate::disk::{DiskFile, OpenMode, guard};
use crate::error::{Context, FAILED_CUT};
use crate::index::{Entry, Index, OffsetEntry, TimeEntry};
use crate::names::{Home, LOG};
use crate::producers::aborted::AbortedExtent;
use crate::scan::ScanError;

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
        let timestamp = newest_record(header);
        if timestamp <= self.timestamp {
            return self;
        }
        Peak { timestamp, offset: header.last_offset() }
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

/// When a segment's file was last changed.
#[derive(Clone, Copy, Debug)]
struct FileTime {
    modified: Timestamp,
    /// Bytes of batches that the file had then.
    size: u64,
}

#[derive(Debug, Default)]
struct Handle {
    file: Option<Arc<dyn DiskFile>>,
    /// Whether it was asked for since the last look for idle ones.
    used: bool,
}

/// A segment. A clone is a view of it as it is now: it has the same files and indexes, which may
/// grow, and ends where the segment ended; so look-ups in it need no lock.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Offsets in it are at least this.
    pub(crate) base: Offset,
    /// Bytes of batches. Invariant: the end of a whole batch; the file is no shorter.
    size: u64,
    shared: Arc<Shared>,
    /// Bytes of batches since the last index entry, the batch it names included.
    since_entry_bytes: u64,
    /// Up to where room was reserved in the file.
    reserved: u64,
    /// Whether log or index files hold what no checkpoint has covered yet. Invariant: false implies
    /// that all files are complete and durable.
    pub(crate) unsealed: bool,
    /// Counts what changes log or index files: an equal one says that they are as they were.
    version: u64,
    /// Both files of the index of aborted transactions, from when they were written to until a checkpoint covers them.
    pub(crate) unsynced_aborted: Option<[Arc<dyn DiskFile>; 2]>,
    /// How many aborted transactions the segment's index has.
    pub(crate) aborted: AbortedExtent,
    /// Bytes of batches that a sync has covered.
    synced_bytes: u64,
    /// Whether zeros were cut off the file's end, and no checkpoint has covered that.
    is_cut_unsynced: bool,
    /// From this position on, batches were appended or scanned since the segment was opened.
    compared_from: u64,
}

/// What a segment and the views of it have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    handle: Mutex<Handle>,
    /// Of every batch that ends more than an interval behind the last entry: where it starts.
    pub(crate) offsets: Index<OffsetEntry>,
    /// The largest timestamp so far, each time an offset entry was made and it had grown.
    pub(crate) times: Index<TimeEntry>,
    /// The largest timestamp in it; `None` until it is asked for.
    peak: Mutex<Option<Peak>>,
    /// The largest timestamp of its first batch; `None` until it is asked for, or it is empty.
    first_timestamp: Mutex<Option<Timestamp>>,
    /// Age of a segment whose records carry no time; `None` until it is read.
    file_time: Mutex<Option<FileTime>>,
    /// Set once the index has been rebuilt; it is trusted afterwards.
    rebuilt: Mutex<bool>,
    /// Where below `compared_from` a reader has compared the batches' stamps.
    compared: Mutex<Range<u64>>,
}

impl std::ops::Deref for Segment {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Segment {
    /// A segment whose files are there, complete and to be believed.
    pub(crate) fn sealed(base: Offset, size: u64) -> Segment {
        let mut segment = Segment::with_indexes(base, Index::unopened(), Index::unopened());
        segment.size = size;
        segment.synced_bytes = size;
        segment.compared_from = size;
        segment
    }

    /// A segment whose file is there, and empty. What its indexes may hold is void.
    pub(crate) fn empty(base: Offset) -> Segment {
        let segment = Segment::with_indexes(base, Index::empty(), Index::empty());
        *segment.peak.lock() = Some(Peak { timestamp: Timestamp::NONE, offset: base });
        segment
    }

    /// A segment without files: the first record makes the first of them.
    pub(crate) fn unmade(base: Offset) -> Segment {
        let segment = Segment::with_indexes(base, Index::without_file(), Index::without_file());
        *segment.peak.lock() = Some(segment.no_peak());
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
        let mut segment = Segment::empty(base);
        segment
            .offsets
            .clear(home, base)
            .during("clear", &home.segment_path(base, OffsetEntry::SUFFIX))?;
        segment
            .times
            .clear(home, base)
            .during("clear", &home.segment_path(base, TimeEntry::SUFFIX))?;
        *segment.handle.lock() = Handle { file: Some(file), used: true };
        segment.unsealed = true;
        Ok(segment)
    }

    /// A segment that recovery will fill: nothing is taken as known yet.
    pub(crate) fn unscanned(base: Offset) -> Segment {
        let mut segment = Segment::with_indexes(base, Index::empty(), Index::empty());
        *segment.peak.lock() = Some(Peak { timestamp: Timestamp::NONE, offset: base });
        segment.unsealed = true;
        segment
    }

    fn with_indexes(base: Offset, offsets: Index<OffsetEntry>, times: Index<TimeEntry>) -> Segment {
        Segment {
            base,
            size: 0,
            shared: Arc::new(Shared {
                handle: Mutex::default(),
                offsets,
                times,
                peak: Mutex::default(),
                first_timestamp: Mutex::default(),
                file_time: Mutex::default(),
                rebuilt: Mutex::default(),
                compared: Mutex::default(),
            }),
            since_entry_bytes: 0,
            reserved: 0,
            unsealed: false,
            version: 0,
            unsynced_aborted: None,
            aborted: AbortedExtent::default(),
            synced_bytes: 0,
            is_cut_unsynced: false,
            compared_from: 0,
        }
    }

    /// Bytes of batches.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Counts what changes the segment's files, in memory or on the disk.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The segment's file, opened if need be; made if nothing was written to it and it is not there.
    pub(crate) fn file(&self, home: &Home) -> Result<Arc<dyn DiskFile>, StorageError> {
        {
            let mut handle = self.handle.lock();
            handle.used = true;
            if let Some(file) = &handle.file {
                return Ok(Arc::clone(file));
            }
        }
        // An append that looks whether the file is open does not wait until it is.
        let path = home.segment_path(self.base, LOG);
        let mode = if self.size == 0 { OpenMode::Create } else { OpenMode::ReadWrite };
        let file = home.disk.open(&path, mode).during("open", &path)?;
        Ok(Arc::clone(self.handle.lock().file.get_or_insert(file)))
    }

    /// Closes what has not been used since the last call; whether nothing was.
    pub(crate) fn release_idle(&mut self) -> bool {
        let used = std::mem::take(&mut self.handle.lock().used);
        if !used {
            self.release();
        }
        !used
    }

    /// Closes the files. A file that must still be synced stays open, so that an error of writing
    /// it back is not lost with the descriptor.
    pub(crate) fn release(&mut self) {
        self.release_synced_file();
        self.release_indexes();
    }

    /// Closes the segment's file if all batches in it are synced.
    pub(crate) fn release_synced_file(&self) {
        if self.synced_bytes == self.size {
            self.handle.lock().file = None;
        }
    }

    /// Closes the files, whatever was not synced: the log is deleted.
    pub(crate) fn abandon(&mut self) {
        self.unsynced_aborted = None;
        self.handle.lock().file = None;
        self.release_indexes();
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

    /// Whether the indexes were made anew, for an entry was wrong.
    pub(crate) fn was_rebuilt(&self) -> bool {
        *self.rebuilt.lock()
    }

    /// A sync has covered the first `bytes` bytes.
    /// Returns how many of them no sync had covered.
    pub(crate) fn mark_synced(&mut self, bytes: u64) -> u64 {
        let before = self.synced_bytes;
        self.synced_bytes = before.max(bytes.min(self.size));
        self.synced_bytes - before
    }

    /// Whether a sync has covered all batches.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced_bytes == self.size
    }

    /// A checkpoint has covered everything in it.
    pub(crate) fn checkpointed(&mut self) {
        self.unsealed = false;
        self.unsynced_aborted = None;
        self.synced_bytes = self.size;
        self.is_cut_unsynced = false;
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
        let file = self.file(home)?;
        let end = self.size + bytes.len() as u64;
        let _excepted = guard::append_writes();
        if end > self.reserved {
            self.reserve(&*file, end, reserve_bytes);
        }
        if let Err(error) = file.write_all_at(bytes, self.size) {
            let operation = match file.truncate(self.size) {
                Ok(()) => "write",
                Err(_) => FAILED_CUT,
            };
            // A clean stop makes the cut durable: behind it, bytes of the write would be damage.
            self.unsealed = true;
            self.cut_is_to_be_synced();
            self.version += 1;
            return Err(error).during(operation, &home.segment_path(self.base, LOG));
        }
        self.size = end;
        self.unsealed = true;
        self.version += 1;
        Ok(())
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

    /// After a crash it is not known what was reserved behind the end: sealing gives it back.
    pub(crate) fn forget_reservation(&mut self) {
        self.reserved = self.size + 1;
    }

    /// The file may have zeros behind the end up to `until`: sealing cuts them off.
    pub(crate) fn may_reach(&mut self, until: u64) {
        self.reserved = self.reserved.max(until);
    }

    /// The file is cut where the batches end, which the next checkpoint is to make durable: a sync under way
    /// may not have seen the cut.
    pub(crate) fn cut_is_to_be_synced(&mut self) {
        self.is_cut_unsynced = true;
    }

    /// Nothing is reserved behind the end any more; see [`Segment::cut_is_to_be_synced`].
    pub(crate) fn was_cut(&mut self) {
        self.reserved = 0;
        self.cut_is_to_be_synced();
        self.version += 1;
    }

    /// Takes a batch into the indexes that stands at `position` now. Allocates only when an index
    /// grows.
    pub(crate) fn note(&mut self, position: u64, header: &BatchHeader, interval_bytes: u32) {
        let relative_offset = self.relative(header.last_offset());
        let now = Peak { timestamp: newest_record(header), offset: header.last_offset() };
        let peak = {
            let mut peak = self.peak.lock();
            match *peak {
                Some(known) if known.timestamp >= now.timestamp => known,
                _ => *peak.insert(now),
            }
        };
        if position == 0 {
            *self.first_timestamp.lock() = Some(header.max_timestamp);
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
        let peak = *self.peak.lock();
        if let Some(peak) = peak {
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
        let view = self.begin_seal();
        view.end_seal(home)
    }

    /// The part of [`Segment::seal`] that touches no file. What is left is done with the view that is
    /// returned ([`Segment::end_seal`]).
    pub(crate) fn begin_seal(&mut self) -> Segment {
        self.note_last_peak();
        self.unsealed = true;
        self.version += 1;
        let view = self.clone();
        self.reserved = 0;
        view
    }

    /// The part of [`Segment::seal`] that touches files.
    pub(crate) fn end_seal(&self, home: &Home) -> Result<(), StorageError> {
        self.write_indexes(home)?;
        // They are hardly read soon, and a log may roll often.
        self.release_indexes();
        self.give_back(home)
    }

    /// Gives back room that was reserved behind the end.
    pub(crate) fn give_back(&self, home: &Home) -> Result<(), StorageError> {
        if self.reserved > self.size { self.cut_file(home) } else { Ok(()) }
    }

    /// Cuts the file where the batches end.
    pub(crate) fn cut_file(&self, home: &Home) -> Result<(), StorageError> {
        let file = self.file(home)?;
        file.truncate(self.size).during("truncate", &home.segment_path(self.base, LOG))
    }

    /// As much may be reserved as `view` says: what was begun with the view was not done.
    pub(crate) fn keep_reservation(&mut self, view: &Segment) {
        self.may_reach(view.reserved);
    }

    /// Moves the entries in memory into the index files. Nothing is synced. A segment too small for an
    /// entry in the one has neither file: whoever looks for something reads its headers from the start,
    /// and most of very many segments are so small.
    pub(crate) fn write_indexes(&self, home: &Home) -> Result<(), StorageError> {
        let base = self.base;
        self.offsets
            .write_tail(home, base)
            .during("write", &home.segment_path(base, OffsetEntry::SUFFIX))?;
        let times = match self.offsets.is_known_empty() {
            true => self.times.leave_out(home, base),
            false => self.times.write_tail(home, base),
        };
        times.during("write", &home.segment_path(base, TimeEntry::SUFFIX))
    }

    /// Closes the files of the indexes.
    pub(crate) fn release_indexes(&self) {
        self.offsets.release();
        self.times.release();
    }

    /// Syncs all files that must be durable for the segment to need no recovery: log, indexes, and
    /// the index of aborted transactions if it was written to.
    pub(crate) fn sync_all(&self, home: &Home) -> io::Result<()> {
        match self.open_file() {
            _ if self.is_synced() && !self.is_cut_unsynced => {}
            Some(file) => file.sync()?,
            None => home.disk.sync_file(&home.segment_path(self.base, LOG))?,
        }
        self.offsets.sync(home, self.base)?;
        self.times.sync(home, self.base)?;
        self.unsynced_aborted.iter().flatten().try_for_each(|file| file.sync())
    }

    /// Opens all files, so that whoever reads the segment goes on with them whatever gets their names.
    pub(crate) fn hold(&self, home: &Home) -> Result<(), StorageError> {
        self.file(home)?;
        let path = |suffix| home.segment_path(self.base, suffix);
        self.offsets.hold(home, self.base).during("open", &path(OffsetEntry::SUFFIX))?;
        self.times.hold(home, self.base).during("open", &path(TimeEntry::SUFFIX))
    }

    /// The largest timestamp in it, if that is known without reading.
    pub(crate) fn known_peak(&self) -> Option<Peak> {
        *self.peak.lock()
    }

    /// The largest timestamp of its first batch, if that is known without reading.
    pub(crate) fn known_first_timestamp(&self) -> Option<Timestamp> {
        *self.first_timestamp.lock()
    }

    /// The largest timestamp of its batches, or if none has one, the time of the file's last change: the age of the
    /// segment, as in Apache Kafka (`LogSegment.largestTimestamp`). `None`: unknown without [`Segment::read_age`].
    pub(crate) fn known_newest(&self) -> Option<Timestamp> {
        let carried = self.known_peak()?.timestamp;
        if carried > Timestamp::NONE {
            return Some(carried);
        }
        // Compaction may have left nothing but empty batches; their headers still have a time.
        if let Some(first) = self.known_first_timestamp().filter(|first| *first > Timestamp::NONE) {
            return Some(first);
        }
        // The file may have grown since.
        let read = self.file_time.lock().filter(|read| read.size == self.size);
        read.map(|read| read.modified).filter(|modified| *modified > Timestamp::NONE)
    }

    /// Reads the age that [`Segment::known_newest`] returns.
    pub(crate) fn read_age(&self, home: &Home) -> Result<(), StorageError> {
        let is_dated = self.peak(home)?.timestamp > Timestamp::NONE
            || self.first_timestamp(home)?.is_some_and(|first| first > Timestamp::NONE);
        if is_dated || self.size == 0 {
            return Ok(());
        }
        let path = home.segment_path(self.base, LOG);
        let modified = match home.disk.modified(&path) {
            // Removed meanwhile, with its log.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found.during("look up", &path)?,
        };
        *self.file_time.lock() = Some(FileTime { modified, size: self.size });
        Ok(())
    }

    /// Takes a batch in that a scan found behind the known end.
    pub(crate) fn extend(&mut self, position: u64, header: &BatchHeader, interval_bytes: u32) {
        assert_eq!(position, self.size, "a scan takes batches in one after the other");
        self.note(position, header, interval_bytes);
        self.size = position + header.size_bytes as u64;
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
