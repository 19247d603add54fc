//! The two sparse indexes of a segment: offset to position, and time to offset.
//!
//! An index has a part in its file and a tail in memory that is not written yet. What was written
//! is searched by positional reads and never loaded, so an idle partition holds a few words. The
//! tail moves into the file when the segment is rolled, checkpointed or closed.
//!
//! ```text
//! .index      | relative offset u32 | position u32 |           a batch's last offset, its start
//! .timeindex  | timestamp i64 | relative offset u32 |           largest so far, where it was reached
//! ```
//!
//! An index is a hint: a reader that follows an entry checks that the batch there is the one it names.
//! Not here: when an entry is due (`segment.rs`).

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use model::{Offset, Timestamp};
use parking_lot::Mutex;

use crate::disk::{DiskFile, OpenMode};
use crate::names::{Home, OFFSET_INDEX, TIME_INDEX};

/// Entries that a search reads at once when few candidates are left.
const BLOCK_ENTRIES: u32 = 256;

/// An entry of one of the indexes.
pub(crate) trait Entry: Copy + Debug + PartialEq {
    /// Bytes in the file.
    const BYTES: usize;
    /// What the file's name ends with.
    const SUFFIX: &'static str;
    /// Appends the entry as it stands in the file.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads an entry from exactly [`Entry::BYTES`] bytes.
    fn decode(bytes: &[u8]) -> Self;
    /// What rises strictly from entry to entry.
    fn key(&self) -> i64;
    /// The offset it speaks of, from the segment's base.
    fn relative_offset(&self) -> u32;
}

/// "The batch that ends at this offset starts here."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffsetEntry {
    pub(crate) relative_offset: u32,
    pub(crate) position: u32,
}

impl Entry for OffsetEntry {
    const BYTES: usize = 8;
    const SUFFIX: &'static str = OFFSET_INDEX;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.relative_offset.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> OffsetEntry {
        OffsetEntry { relative_offset: u32_at(bytes, 0), position: u32_at(bytes, 4) }
    }

    fn key(&self) -> i64 {
        self.relative_offset as i64
    }

    fn relative_offset(&self) -> u32 {
        self.relative_offset
    }
}

/// "Up to the batch that ends at this offset, this was the largest timestamp."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeEntry {
    pub(crate) timestamp: Timestamp,
    pub(crate) relative_offset: u32,
}

impl Entry for TimeEntry {
    const BYTES: usize = 12;
    const SUFFIX: &'static str = TIME_INDEX;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp.0.to_be_bytes());
        out.extend_from_slice(&self.relative_offset.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> TimeEntry {
        let timestamp = i64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"));
        TimeEntry { timestamp: Timestamp(timestamp), relative_offset: u32_at(bytes, 8) }
    }

    fn key(&self) -> i64 {
        self.timestamp.0
    }

    fn relative_offset(&self) -> u32 {
        self.relative_offset
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// One index of one segment. Adding entries and looking at those in memory never waits for a file:
/// appends do it under the partition's lock.
#[derive(Debug)]
pub(crate) struct Index<E> {
    state: Mutex<State<E>>,
    /// Held by the thread that moves the tail into the file.
    writing: Mutex<()>,
}

#[derive(Debug)]
struct State<E> {
    /// The open file, if it was needed lately.
    file: Option<Arc<dyn DiskFile>>,
    /// Entries in the file; `None` until the file is looked at.
    written: Option<u32>,
    /// Entries behind those. Invariant: keys rise strictly through the file and then the tail.
    tail: Vec<E>,
    /// The last entry, once it is known.
    last: Option<E>,
    /// Whether the file holds what no sync has covered yet.
    unsynced: bool,
    /// Counts what is written into the file: a sync covers what was written before it began.
    writes: u64,
    /// Whether what the file holds beyond `written` is void.
    stale: bool,
}

/// The part of an index that is in its file: looked at without the index's lock.
struct InFile {
    file: Arc<dyn DiskFile>,
    /// Entries that count.
    count: u32,
}

impl<E: Entry> Index<E> {
    /// An index without entries; its file need not exist.
    pub(crate) fn empty() -> Index<E> {
        Index::with_written(Some(0))
    }

    /// An index without entries in a directory where no file can have its name yet.
    pub(crate) fn without_file() -> Index<E> {
        let index = Index::empty();
        index.state.lock().stale = false;
        index
    }

    /// An index whose file is looked at when it is first needed.
    pub(crate) fn unopened() -> Index<E> {
        Index::with_written(None)
    }

    fn with_written(written: Option<u32>) -> Index<E> {
        let (tail, last) = (Vec::new(), None);
        // A file that a crash has left under this name may hold entries that no reader may believe.
        let stale = written == Some(0);
        let state = State { file: None, written, tail, last, unsynced: false, writes: 0, stale };
        Index { state: Mutex::new(state), writing: Mutex::default() }
    }

    /// Adds an entry in memory. Its key must be larger than the last one's.
    pub(crate) fn push(&self, entry: E) {
        let mut state = self.state.lock();
        debug_assert!(state.tail.last().is_none_or(|last| last.key() < entry.key()));
        state.tail.push(entry);
        state.last = Some(entry);
    }

    /// The last entry, as far as it is known without reading the file.
    pub(crate) fn last_in_memory(&self) -> Option<E> {
        self.state.lock().last
    }

    /// Takes the entries out that are in memory.
    pub(crate) fn take_memory(&self) -> Vec<E> {
        std::mem::take(&mut self.state.lock().tail)
    }

    /// Bytes that the index has or will have on disk, as far as known without opening it.
    pub(crate) fn size_bytes(&self) -> usize {
        let state = self.state.lock();
        (state.written.unwrap_or(0) as usize + state.tail.len()) * E::BYTES
    }

    /// The last entry.
    pub(crate) fn last(&self, home: &Home, base: Offset) -> io::Result<Option<E>> {
        if let Some(last) = self.last_in_memory() {
            return Ok(Some(last));
        }
        let found = match self.in_file(home, base)? {
            Some(part) => part.last()?,
            None => None,
        };
        let mut state = self.state.lock();
        // An entry that was added meanwhile is a later one.
        state.last = state.last.or(found);
        Ok(state.last)
    }

    /// The last entry for which `value` is at most `most`; `value` must rise along the index.
    pub(crate) fn floor(
        &self,
        home: &Home,
        base: Offset,
        value: impl Fn(&E) -> i64,
        most: i64,
    ) -> io::Result<Option<E>> {
        {
            let state = self.state.lock();
            let in_tail = state.tail.partition_point(|e| value(e) <= most);
            if in_tail > 0 {
                return Ok(Some(state.tail[in_tail - 1]));
            }
        }
        match self.in_file(home, base)? {
            Some(part) => Ok(part.search(value, most)?.1),
            None => Ok(None),
        }
    }

    /// All entries of file and tail. For recovery and tests: it reads the whole file.
    pub(crate) fn entries(&self, home: &Home, base: Offset) -> io::Result<Vec<E>> {
        let mut entries = match self.in_file(home, base)? {
            Some(part) => part.block(0, part.count)?,
            None => Vec::new(),
        };
        entries.extend_from_slice(&self.state.lock().tail);
        Ok(entries)
    }

    /// Moves the tail into the file, which is made if need be. Nothing is synced. Entries may be added
    /// meanwhile; they stay in memory. Without entries no file is made, and none is opened but to cut off
    /// what is void in it.
    pub(crate) fn write_tail(&self, home: &Home, base: Offset) -> io::Result<()> {
        let _writing = self.writing.lock();
        let (stale, entries) = {
            let state = self.state.lock();
            (state.stale, state.tail.clone())
        };
        if entries.is_empty() {
            return if stale { self.cut_void(home, base) } else { Ok(()) };
        }
        let file = self.file(home, base, OpenMode::Create)?;
        let count = self.count(&*file)?;
        if stale {
            file.truncate(count as u64 * E::BYTES as u64)?;
        }
        let mut bytes = Vec::with_capacity(entries.len() * E::BYTES);
        entries.iter().for_each(|entry| entry.encode(&mut bytes));
        file.write_all_at(&bytes, count as u64 * E::BYTES as u64)?;
        self.state.lock().tail_is_written(count, &entries);
        Ok(())
    }

    /// Cuts off what the file holds behind the entries that count; a file that is not there holds nothing.
    fn cut_void(&self, home: &Home, base: Offset) -> io::Result<()> {
        let file = match self.file(home, base, OpenMode::ReadWrite) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.state.lock().stale = false;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let count = self.count(&*file)?;
        file.truncate(count as u64 * E::BYTES as u64)?;
        self.state.lock().tail_is_written(count, &[]);
        Ok(())
    }

    /// Leaves the tail in memory and voids the file: what the index would say is soon read in the segment
    /// itself.
    pub(crate) fn leave_out(&self, home: &Home, base: Offset) -> io::Result<()> {
        let _writing = self.writing.lock();
        let stale = self.state.lock().stale;
        if stale { self.cut_void(home, base) } else { Ok(()) }
    }

    /// Whether there are no entries, as far as that is known without opening the file.
    pub(crate) fn is_known_empty(&self) -> bool {
        let state = self.state.lock();
        state.written == Some(0) && state.tail.is_empty()
    }

    /// Makes the file durable if it holds what no sync has covered. One that is gone with its segment
    /// need not be.
    pub(crate) fn sync(&self, home: &Home, base: Offset) -> io::Result<()> {
        let (file, writes) = {
            let state = self.state.lock();
            if !state.unsynced {
                return Ok(());
            }
            (state.file.clone(), state.writes)
        };
        let result = match file {
            Some(file) => file.sync(),
            None => home.disk.sync_file(&home.segment_path(base, E::SUFFIX)),
        };
        match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut state = self.state.lock();
        state.unsynced &= state.writes != writes;
        Ok(())
    }

    /// Drops entries of offsets from `relative_offset` on. If some were in the file, it is cut and
    /// synced, so that a crash does not bring them back.
    pub(crate) fn truncate(
        &self,
        home: &Home,
        base: Offset,
        relative_offset: u32,
    ) -> io::Result<()> {
        {
            let mut state = self.state.lock();
            let keep = state.tail.partition_point(|e| e.relative_offset() < relative_offset);
            state.tail.truncate(keep);
            state.last = state.tail.last().copied();
        }
        let Some(part) = self.in_file(home, base)? else { return Ok(()) };
        let most = relative_offset as i64 - 1;
        let (kept, _) = part.search(|e: &E| e.relative_offset() as i64, most)?;
        if kept < part.count {
            part.file.truncate(kept as u64 * E::BYTES as u64)?;
            part.file.sync()?;
            self.state.lock().written = Some(kept);
        }
        Ok(())
    }

    /// Replaces all entries by none; the file, if there is one, is emptied.
    pub(crate) fn clear(&self, home: &Home, base: Offset) -> io::Result<()> {
        {
            let mut state = self.state.lock();
            state.tail = Vec::new();
            state.last = None;
            state.written = Some(0);
            state.unsynced = false;
        }
        match self.file(home, base, OpenMode::ReadWrite) {
            Ok(file) => file.truncate(0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether the file is missing or no whole number of entries: then it must be rebuilt.
    pub(crate) fn is_broken(&self, home: &Home, base: Offset) -> io::Result<bool> {
        match self.in_file(home, base) {
            Ok(_) => Ok(false),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::InvalidData => Ok(true),
                _ => Err(error),
            },
        }
    }

    /// Opens the file, so that searches go on in it whatever gets its name. One that is missing or
    /// broken stays so.
    pub(crate) fn hold(&self, home: &Home, base: Offset) -> io::Result<()> {
        match self.file(home, base, OpenMode::ReadWrite) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes over the entries of an index that was rebuilt; the file is left to be overwritten by
    /// the next [`Index::write_tail`]. Searches see the new entries at once. Entries that were added
    /// behind those while they were gathered stay.
    pub(crate) fn replace(&self, mut entries: Vec<E>) {
        let mut state = self.state.lock();
        let last = entries.last().map_or(i64::MIN, Entry::key);
        entries.extend(state.tail.iter().filter(|entry| entry.key() > last));
        state.written = Some(0);
        state.stale = true;
        state.last = entries.last().copied();
        state.tail = entries;
    }

    /// Trusts only the first `count` entries of the file; what is behind them is cut off with the
    /// next [`Index::write_tail`].
    pub(crate) fn trust(&self, count: u32) {
        let mut state = self.state.lock();
        assert!(state.tail.is_empty(), "recovery begins with what is in the file");
        state.written = Some(count);
        state.last = None;
        state.stale = true;
    }

    /// Closes the file. That an error of writing it back may go unnoticed does no harm: no entry is
    /// believed that the batch it names does not bear out, and what is missing is made anew.
    pub(crate) fn release(&self) {
        self.state.lock().file = None;
    }

    /// The part in the file; `None` if it is known to be empty.
    fn in_file(&self, home: &Home, base: Offset) -> io::Result<Option<InFile>> {
        if self.state.lock().written == Some(0) {
            return Ok(None);
        }
        let file = self.file(home, base, OpenMode::ReadWrite)?;
        let count = self.count(&*file)?;
        Ok(Some(InFile { file, count }))
    }

    fn file(&self, home: &Home, base: Offset, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = &self.state.lock().file {
            return Ok(Arc::clone(file));
        }
        let file = home.disk.open(&home.segment_path(base, E::SUFFIX), mode)?;
        Ok(Arc::clone(self.state.lock().file.get_or_insert(file)))
    }

    fn count(&self, file: &dyn DiskFile) -> io::Result<u32> {
        if let Some(count) = self.state.lock().written {
            return Ok(count);
        }
        let size = file.size()?;
        if size % E::BYTES as u64 != 0 || size > i32::MAX as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no whole number of entries"));
        }
        let count = (size / E::BYTES as u64) as u32;
        Ok(*self.state.lock().written.get_or_insert(count))
    }
}

impl<E: Entry> State<E> {
    /// Takes note that `entries` stand in the file behind the first `count`. If the index was rebuilt
    /// in between, what was written is void.
    fn tail_is_written(&mut self, count: u32, entries: &[E]) {
        self.unsynced = true;
        self.writes += 1;
        self.stale = self.written != Some(count) || !self.tail.starts_with(entries);
        if !self.stale {
            self.tail.drain(..entries.len());
            self.tail.shrink_to_fit();
            self.written = Some(count + entries.len() as u32);
        }
    }
}

impl InFile {
    fn last<E: Entry>(&self) -> io::Result<Option<E>> {
        self.count.checked_sub(1).map(|last| self.entry(last)).transpose()
    }

    fn entry<E: Entry>(&self, number: u32) -> io::Result<E> {
        let mut bytes = [0u8; 16];
        let bytes = &mut bytes[..E::BYTES];
        read_exactly(&*self.file, bytes, number as u64 * E::BYTES as u64)?;
        Ok(E::decode(bytes))
    }

    fn block<E: Entry>(&self, from: u32, count: u32) -> io::Result<Vec<E>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0u8; count as usize * E::BYTES];
        read_exactly(&*self.file, &mut bytes, from as u64 * E::BYTES as u64)?;
        Ok(bytes.chunks_exact(E::BYTES).map(E::decode).collect())
    }

    /// How many entries have a value of at most `most`, and the last of them: by halves down to a
    /// block.
    fn search<E: Entry>(
        &self,
        value: impl Fn(&E) -> i64,
        most: i64,
    ) -> io::Result<(u32, Option<E>)> {
        let (mut low, mut high) = (0, self.count);
        let mut found = None;
        while high - low > BLOCK_ENTRIES {
            let middle = low + (high - low) / 2;
            let entry = self.entry(middle)?;
            if value(&entry) <= most {
                (low, found) = (middle + 1, Some(entry));
            } else {
                high = middle;
            }
        }
        let block = self.block(low, high - low)?;
        let within = block.partition_point(|e| value(e) <= most);
        Ok((low + within as u32, block[..within].last().copied().or(found)))
    }
}

fn read_exactly(file: &dyn DiskFile, bytes: &mut [u8], position: u64) -> io::Result<()> {
    if file.read_at(bytes, position)? < bytes.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the index is cut short"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;

    fn entry(n: u32) -> OffsetEntry {
        OffsetEntry { relative_offset: n * 10, position: n * 100 }
    }

    fn home(dir: &std::path::Path) -> Home {
        let (unreadable, set_aside) = Default::default();
        Home { disk: Arc::new(RealDisk), dir: dir.to_owned(), unreadable, set_aside }
    }

    #[test]
    fn file_and_tail_are_searched_as_one() {
        let dir = tempfile::tempdir().unwrap();
        let (home, base) = (home(dir.path()), Offset(5));
        let index = Index::empty();
        (1..=700).for_each(|n| index.push(entry(n)));
        index.write_tail(&home, base).unwrap();
        (701..=710).for_each(|n| index.push(entry(n)));
        let floor = |most| index.floor(&home, base, |e| e.key(), most).unwrap();
        assert_eq!(floor(9), None);
        for n in [1, 255, 256, 257, 511, 699, 700, 701, 710] {
            assert_eq!(floor(n as i64 * 10), Some(entry(n)));
            assert_eq!(floor(n as i64 * 10 + 9), Some(entry(n)));
        }
        assert_eq!(index.entries(&home, base).unwrap().len(), 710);
    }

    #[test]
    fn truncation_reaches_into_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let (home, base) = (home(dir.path()), Offset(0));
        let index = Index::empty();
        (1..=20).for_each(|n| index.push(entry(n)));
        index.write_tail(&home, base).unwrap();
        (21..=30).for_each(|n| index.push(entry(n)));
        index.truncate(&home, base, 251).unwrap();
        assert_eq!(index.last(&home, base).unwrap(), Some(entry(25)));
        index.truncate(&home, base, 100).unwrap();
        assert_eq!(index.last(&home, base).unwrap(), Some(entry(9)));
        let again: Index<OffsetEntry> = Index::unopened();
        assert_eq!(again.entries(&home, base).unwrap().len(), 9);
    }

    #[test]
    fn a_file_of_half_an_entry_is_broken() {
        let dir = tempfile::tempdir().unwrap();
        let (home, base) = (home(dir.path()), Offset(0));
        let index: Index<TimeEntry> = Index::unopened();
        assert!(index.is_broken(&home, base).unwrap(), "there is no file");
        std::fs::write(home.segment_path(base, TIME_INDEX), [0; 13]).unwrap();
        assert!(index.is_broken(&home, base).unwrap());
    }
}
