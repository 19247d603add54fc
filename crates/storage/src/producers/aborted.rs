//! The index of the aborted transactions of one segment: `.txnindex` in Kafka's format, and `.txnsums`
//! with a checksum of each entry, which Kafka's format lacks.
//!
//! ```text
//! .txnindex  | version i16 = 0 | producer id i64 | first offset i64 | last offset i64 | last stable i64 |
//! .txnsums   | CRC-32C of segment base i64, entry number u32, and the entry's 34 bytes: u32 |
//! ```
//!
//! Entry *n* of one file belongs to entry *n* of the other. Entries are ordered by last offset, which is
//! the offset of the abort marker. [`AbortedLookup`] searches the files without the log's lock, and
//! verifies each entry that it reads. The segments keep in memory only how many entries they have.
//!
//! Both files are derived from batches: an opening that finds them in disagreement, or finds one without
//! the other, derives them again (`log/aborted.rs`).

use std::io;
use std::sync::Arc;

use model::{Offset, ProducerId};

use crate::StorageError;
use crate::disk::{DiskFile, OpenMode};
use crate::error::Context;
use crate::journal::crc32c;
use crate::names::{Home, TRANSACTION_INDEX, TRANSACTION_SUMS};

const SUM_BYTES: usize = 4;
/// Entries that one read of a sequence takes.
const ENTRIES_PER_READ: u32 = 64;

/// One transaction that was aborted, as a fetch response and the index of a segment hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Producer of the transaction.
    pub producer_id: ProducerId,
    /// Offset of its first record.
    pub first_offset: Offset,
    /// Offset of its marker.
    pub last_offset: Offset,
    /// The last stable offset right after the marker.
    pub last_stable_offset: Offset,
}

impl AbortedTransaction {
    const BYTES: usize = 34;

    fn encode(&self) -> [u8; AbortedTransaction::BYTES] {
        let mut bytes = [0; AbortedTransaction::BYTES];
        bytes[2..10].copy_from_slice(&self.producer_id.0.to_be_bytes());
        bytes[10..18].copy_from_slice(&self.first_offset.0.to_be_bytes());
        bytes[18..26].copy_from_slice(&self.last_offset.0.to_be_bytes());
        bytes[26..34].copy_from_slice(&self.last_stable_offset.0.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> AbortedTransaction {
        let at = |from: usize| {
            i64::from_be_bytes(bytes[from..from + 8].try_into().expect("eight bytes"))
        };
        AbortedTransaction {
            producer_id: ProducerId(at(2)),
            first_offset: Offset(at(10)),
            last_offset: Offset(at(18)),
            last_stable_offset: Offset(at(26)),
        }
    }
}

fn checksum(base: Offset, number: u32, entry: &[u8]) -> u32 {
    crc32c(&[&base.0.to_be_bytes(), &number.to_be_bytes(), entry])
}

/// How much of an index a segment has: enough to leave out segments without a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AbortedExtent {
    /// Number of entries.
    count: u32,
    /// Last offset of the last entry; -1 without one.
    last_marker: Offset,
}

impl Default for AbortedExtent {
    fn default() -> AbortedExtent {
        AbortedExtent { count: 0, last_marker: Offset(-1) }
    }
}

impl AbortedExtent {
    pub(crate) fn of(entries: &[AbortedTransaction]) -> AbortedExtent {
        let last_marker = entries.last().map_or(Offset(-1), |last| last.last_offset);
        AbortedExtent { count: entries.len() as u32, last_marker }
    }

    /// Whether an entry has its marker at or behind `offset`.
    pub(crate) fn reaches(&self, offset: Offset) -> bool {
        self.count > 0 && self.last_marker >= offset
    }
}

/// The entries of a segment's index, as far as the two files agree.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LoadedAborted {
    pub(crate) entries: Vec<AbortedTransaction>,
    /// Whether both files hold these entries and nothing else.
    pub(crate) is_whole: bool,
}

/// Reads and verifies both files of the segment at `base`. Without files the index is empty.
pub(crate) fn load(home: &Home, base: Offset) -> Result<LoadedAborted, StorageError> {
    let index = read_if_there(home, base, TRANSACTION_INDEX)?;
    let sums = read_if_there(home, base, TRANSACTION_SUMS)?;
    let mut entries: Vec<AbortedTransaction> = Vec::new();
    let pairs = index.chunks_exact(AbortedTransaction::BYTES).zip(sums.chunks_exact(SUM_BYTES));
    for (number, (entry, sum)) in pairs.enumerate() {
        let decoded = AbortedTransaction::decode(entry);
        let rises = entries.last().is_none_or(|last| last.last_offset < decoded.last_offset);
        if checksum(base, number as u32, entry).to_be_bytes() != *sum || !rises {
            break;
        }
        entries.push(decoded);
    }
    let is_whole = index.len() == entries.len() * AbortedTransaction::BYTES
        && sums.len() == entries.len() * SUM_BYTES;
    Ok(LoadedAborted { entries, is_whole })
}

fn read_if_there(home: &Home, base: Offset, suffix: &str) -> Result<Vec<u8>, StorageError> {
    let path = home.segment_path(base, suffix);
    match home.disk.read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.during("read", &path),
    }
}

/// Replaces the index of the segment at `base` and syncs both files; an empty index has no files.
pub(crate) fn store(
    home: &Home,
    base: Offset,
    entries: &[AbortedTransaction],
) -> Result<(), StorageError> {
    if entries.is_empty() {
        return remove(home, base);
    }
    let encoded = || entries.iter().map(AbortedTransaction::encode);
    let index: Vec<u8> = encoded().flatten().collect();
    let sums = encoded().enumerate().map(|(number, entry)| checksum(base, number as u32, &entry));
    let sums: Vec<u8> = sums.flat_map(u32::to_be_bytes).collect();
    for (suffix, bytes) in [(TRANSACTION_INDEX, index), (TRANSACTION_SUMS, sums)] {
        let path = home.segment_path(base, suffix);
        let write = || {
            let file = home.disk.open(&path, OpenMode::Create)?;
            file.truncate(0)?;
            file.write_all_at(&bytes, 0)?;
            file.sync()
        };
        write().during("write", &path)?;
    }
    Ok(())
}

/// Removes both files of the segment at `base`, if they are there.
pub(crate) fn remove(home: &Home, base: Offset) -> Result<(), StorageError> {
    for suffix in [TRANSACTION_INDEX, TRANSACTION_SUMS] {
        let path = home.segment_path(base, suffix);
        match home.disk.remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).during("remove", &path);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Adds an entry to the index of the segment at `base`, which has `extent`. Returns both files, which
/// the caller syncs.
pub(crate) fn append(
    home: &Home,
    base: Offset,
    extent: &mut AbortedExtent,
    aborted: &AbortedTransaction,
) -> Result<[Arc<dyn DiskFile>; 2], StorageError> {
    let (number, entry) = (extent.count, aborted.encode());
    let write = |suffix, bytes: &[u8]| {
        let path = home.segment_path(base, suffix);
        let file = home.disk.open(&path, OpenMode::Create).during("open", &path)?;
        let position = u64::from(number) * bytes.len() as u64;
        file.write_all_at(bytes, position).during("write", &path)?;
        Ok::<_, StorageError>(file)
    };
    let index = write(TRANSACTION_INDEX, &entry)?;
    let sums = write(TRANSACTION_SUMS, &checksum(base, number, &entry).to_be_bytes())?;
    *extent = AbortedExtent { count: number + 1, last_marker: aborted.last_offset };
    Ok([index, sums])
}

/// A search for the aborted transactions with records in a range of offsets: prepared under the log's
/// lock, run without it.
#[derive(Debug)]
pub struct AbortedLookup {
    pub(crate) home: Home,
    /// Base and extent of the segments to be searched, in order.
    pub(crate) segments: Vec<(Offset, AbortedExtent)>,
    pub(crate) from: Offset,
}

impl AbortedLookup {
    /// The aborted transactions with a record or marker at or behind the lookup's first offset and a first
    /// offset below `until`, ordered by first offset.
    ///
    /// Fails with [`StorageError::Damaged`] if an entry does not match its checksum, and with
    /// [`StorageError::Io`] also when retention or compaction has removed the files since the lookup was prepared.
    pub fn run(&self, until: Offset) -> Result<Vec<AbortedTransaction>, StorageError> {
        let mut found = Vec::new();
        for (base, extent) in &self.segments {
            let index = OpenIndex::open(&self.home, *base, extent.count)?;
            if !index.collect(self.from, until, &mut found)? {
                break;
            }
        }
        found.sort_by_key(|aborted| aborted.first_offset);
        Ok(found)
    }
}

struct OpenIndex<'a> {
    home: &'a Home,
    base: Offset,
    count: u32,
    index: Arc<dyn DiskFile>,
    sums: Arc<dyn DiskFile>,
}

impl OpenIndex<'_> {
    fn open(home: &Home, base: Offset, count: u32) -> Result<OpenIndex<'_>, StorageError> {
        let open = |suffix| {
            let path = home.segment_path(base, suffix);
            home.disk.open(&path, OpenMode::Read).during("open", &path)
        };
        let (index, sums) = (open(TRANSACTION_INDEX)?, open(TRANSACTION_SUMS)?);
        Ok(OpenIndex { home, base, count, index, sums })
    }

    /// Collects the entries that overlap the range. Returns whether a later segment may have more.
    fn collect(
        &self,
        from: Offset,
        until: Offset,
        found: &mut Vec<AbortedTransaction>,
    ) -> Result<bool, StorageError> {
        let mut number = self.first_reaching(from)?;
        while number < self.count {
            let entries = self.read(number, ENTRIES_PER_READ.min(self.count - number))?;
            number += entries.len() as u32;
            for entry in entries {
                if entry.first_offset < until {
                    found.push(entry);
                }
                // A transaction that is aborted later began at or behind this last stable offset.
                if entry.last_stable_offset >= until {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Number of the first entry whose last offset is at least `from`.
    fn first_reaching(&self, from: Offset) -> Result<u32, StorageError> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.read(middle, 1)?[0].last_offset < from {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Ok(low)
    }

    /// Reads and verifies `count` entries from `number` on.
    fn read(&self, number: u32, count: u32) -> Result<Vec<AbortedTransaction>, StorageError> {
        let read = |file: &dyn DiskFile, suffix, bytes: usize| {
            let path = self.home.segment_path(self.base, suffix);
            let position = u64::from(number) * bytes as u64;
            let mut buffer = vec![0; bytes * count as usize];
            let got = file.read_at(&mut buffer, position).during("read", &path)?;
            match got == buffer.len() {
                true => Ok(buffer),
                false => {
                    let reason = "the index of aborted transactions is shorter than it was";
                    Err(StorageError::damaged(&path, position + got as u64, self.base, reason))
                }
            }
        };
        let index = read(&*self.index, TRANSACTION_INDEX, AbortedTransaction::BYTES)?;
        let sums = read(&*self.sums, TRANSACTION_SUMS, SUM_BYTES)?;
        let entries = index.chunks_exact(AbortedTransaction::BYTES);
        let pairs = (number..).zip(entries.zip(sums.chunks_exact(SUM_BYTES)));
        let verified = pairs.map(|(number, (entry, sum))| {
            if checksum(self.base, number, entry).to_be_bytes() == *sum {
                return Ok(AbortedTransaction::decode(entry));
            }
            let path = self.home.segment_path(self.base, TRANSACTION_INDEX);
            let position = u64::from(number) * AbortedTransaction::BYTES as u64;
            let reason = "checksum mismatch in the index of aborted transactions; a restart rebuilds the index";
            Err(StorageError::damaged(&path, position, self.base, reason))
        });
        verified.collect()
    }
}
