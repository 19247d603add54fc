//! Checks the three indexes of a segment against the segment itself: whoever follows an entry must
//! not miss a record.
//!
//! ```text
//! .index      | relative offset u32 | position u32 |
//! .timeindex  | timestamp i64 | relative offset u32 |
//! .txnindex   | version i16 | producer id | first offset | last offset | last stable offset |
//!             (the last four are i64)
//! .txnsums    | CRC-32C of segment base i64, entry number u32 and the 34 bytes of the entry: u32 |
//! ```

use std::io;
use std::path::Path;

use storage::disk::Disk;

use super::finding::{FileKind, Finding, Tell};
use super::segment::Segment;

const OFFSET_ENTRY_BYTES: usize = 8;
const TIME_ENTRY_BYTES: usize = 12;
const ABORTED_ENTRY_BYTES: usize = 34;
/// Bytes of a checksum in `.txnsums`, one for each entry of `.txnindex`.
const SUM_BYTES: usize = 4;

/// The segment that an index belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Indexed<'a> {
    pub(super) base: i64,
    pub(super) segment: &'a Segment,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Reads a file of entries of one size; `entry` tells of one and answers what is wrong with it.
fn read(
    disk: &dyn Disk,
    path: &Path,
    kind: FileKind,
    entry_bytes: usize,
    tell: &mut Tell<'_>,
    mut entry: impl FnMut(&[u8], &mut Tell<'_>) -> Option<String>,
) -> io::Result<()> {
    let bytes = disk.read(path)?;
    tell(path, Finding::Begin(kind));
    // Space that was reserved for entries to come holds zeros; no entry but the first can be zero.
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let count = end.div_ceil(entry_bytes).min(bytes.len() / entry_bytes);
    let mut chunks = bytes.chunks_exact(entry_bytes);
    for (at, chunk) in chunks.by_ref().take(count).enumerate() {
        if let Some(reason) = entry(chunk, tell) {
            let position = Some((at * entry_bytes) as u64);
            tell(path, Finding::Damage { position, reason: &reason });
        }
    }
    let odd = bytes.len() % entry_bytes;
    if odd != 0 {
        let position = Some((bytes.len() - odd) as u64);
        let reason = format!("the last {odd} bytes are less than an entry of {entry_bytes}");
        tell(path, Finding::Damage { position, reason: &reason });
    }
    let size_bytes = bytes.len() as u64;
    tell(path, Finding::End { size_bytes, entry_count: count as u64, record_count: 0 });
    Ok(())
}

/// `.index`
pub(super) fn offsets(
    disk: &dyn Disk,
    path: &Path,
    of: Indexed<'_>,
    tell: &mut Tell<'_>,
) -> io::Result<()> {
    let mut before: Option<(i64, u32)> = None;
    read(disk, path, FileKind::OffsetIndex, OFFSET_ENTRY_BYTES, tell, |bytes, tell| {
        let offset = of.base + i64::from(u32_at(bytes, 0));
        let position = u32_at(bytes, 4);
        tell(path, Finding::OffsetEntry { offset, position });
        let rises = before.is_none_or(|(o, p)| offset > o && position > p);
        before = Some((offset, position));
        if !rises {
            return Some(format!("offset {offset} at position {position} does not rise"));
        }
        let Some(at) = of.segment.batch_at(u64::from(position)) else {
            return Some(format!("offset {offset}: no batch begins at position {position}"));
        };
        let (first, last) =
            (of.segment.batches[at].base_offset, of.segment.batches[at].last_offset);
        (!(first..=last).contains(&offset)).then(|| {
            format!("the batch at position {position} holds {first} to {last}, not {offset}")
        })
    })
}

/// `.timeindex`
pub(super) fn times(
    disk: &dyn Disk,
    path: &Path,
    of: Indexed<'_>,
    tell: &mut Tell<'_>,
) -> io::Result<()> {
    let mut before: Option<(i64, i64)> = None;
    read(disk, path, FileKind::TimeIndex, TIME_ENTRY_BYTES, tell, |bytes, tell| {
        let timestamp = i64_at(bytes, 0);
        let offset = of.base + i64::from(u32_at(bytes, 8));
        tell(path, Finding::TimeEntry { timestamp, offset });
        let rises = before.is_none_or(|(t, o)| timestamp >= t && offset >= o);
        before = Some((timestamp, offset));
        if !rises {
            return Some(format!("timestamp {timestamp} at offset {offset} does not rise"));
        }
        if offset >= of.segment.next_offset(of.base) && !of.segment.batches.is_empty() {
            return Some(format!("offset {offset} lies behind the segment"));
        }
        // Who looks for a later time begins at the entry: nothing before it may be later.
        let latest =
            of.segment.max_timestamp_before(offset).filter(|latest| *latest > timestamp)?;
        Some(format!("before offset {offset} there is the later time {latest}, not {timestamp}"))
    })
}

/// `.txnindex`
pub(super) fn aborted(disk: &dyn Disk, path: &Path, tell: &mut Tell<'_>) -> io::Result<()> {
    let mut before = i64::MIN;
    let sums = disk.read(&path.with_extension("txnsums")).ok();
    let base = path.file_stem().and_then(|stem| stem.to_str()?.parse::<i64>().ok());
    let mut number = 0u32;
    read(disk, path, FileKind::TransactionIndex, ABORTED_ENTRY_BYTES, tell, |bytes, tell| {
        let version = i16::from_be_bytes([bytes[0], bytes[1]]);
        let [producer_id, first_offset, last_offset, last_stable_offset] =
            [2, 10, 18, 26].map(|at| i64_at(bytes, at));
        tell(path, Finding::Aborted { producer_id, first_offset, last_offset, last_stable_offset });
        let rises = last_offset > before;
        before = last_offset;
        let at = number as usize * SUM_BYTES;
        let sum = entry_sum(base.unwrap_or(0), number, bytes);
        number += 1;
        if sums.as_ref().is_some_and(|sums| sums.get(at..at + SUM_BYTES) != Some(&sum)) {
            return Some("the checksum of the entry does not match".to_owned());
        }
        if version != 0 {
            return Some(format!("unknown version {version}"));
        }
        (first_offset > last_offset || !rises)
            .then(|| format!("offsets {first_offset} to {last_offset} are out of order"))
    })
}

fn entry_sum(base: i64, number: u32, entry: &[u8]) -> [u8; SUM_BYTES] {
    let bytes = [&base.to_be_bytes()[..], &number.to_be_bytes(), entry].concat();
    crc_fast::crc32_iscsi(&bytes).to_be_bytes()
}
