//! Checks the small files of a partition: producer snapshots, and where each leader epoch began.
//!
//! ```text
//! .snapshot | version i16 | CRC-32C u32 of all that follows | count i32 | count × 46 bytes |
//! entry     | producer id i64 | epoch i16 | last sequence i32 | last offset i64 | delta i32 |
//!           | timestamp i64 | coordinator epoch i32 | transaction start i64 |
//! ```

use std::io;
use std::path::Path;

use storage::disk::Disk;

use super::finding::{FileKind, Finding, Tell};

const HEAD_BYTES: usize = 10;
const ENTRY_BYTES: usize = 46;
const VERSION: i16 = 1;

fn be<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("as many bytes as are asked for")
}

/// `<offset>.snapshot`: the producers of everything below `below`.
pub(super) fn producers(
    disk: &dyn Disk,
    path: &Path,
    below: i64,
    tell: &mut Tell<'_>,
) -> io::Result<()> {
    let bytes = disk.read(path)?;
    tell(path, Finding::Begin(FileKind::ProducerSnapshot));
    let wrong = wrong_head(&bytes);
    if let Some(reason) = &wrong {
        tell(path, Finding::Damage { position: Some(0), reason });
    }
    let entries = bytes.get(HEAD_BYTES..).unwrap_or_default().chunks_exact(ENTRY_BYTES);
    let mut entry_count = 0;
    for entry in entries.filter(|_| wrong.is_none()) {
        let position = (HEAD_BYTES + entry_count * ENTRY_BYTES) as u64;
        entry_count += 1;
        let last_offset = tell_producer(path, entry, tell);
        if last_offset >= below {
            let reason = format!("a snapshot of what is below {below} holds offset {last_offset}");
            tell(path, Finding::Damage { position: Some(position), reason: &reason });
        }
    }
    let (size_bytes, entry_count) = (bytes.len() as u64, entry_count as u64);
    tell(path, Finding::End { size_bytes, entry_count, record_count: 0 });
    Ok(())
}

fn wrong_head(bytes: &[u8]) -> Option<String> {
    if bytes.len() < HEAD_BYTES {
        return Some(format!("{} bytes are too few for a snapshot", bytes.len()));
    }
    let version = i16::from_be_bytes(be(bytes, 0));
    if version != VERSION {
        return Some(format!("unknown version {version} of snapshots"));
    }
    let expected = u32::from_be_bytes(be(bytes, 2));
    let actual = crc_fast::crc32_iscsi(&bytes[6..]);
    if expected != actual {
        return Some(format!("the checksum says {expected:#010x}, the bytes say {actual:#010x}"));
    }
    let count = i32::from_be_bytes(be(bytes, 6));
    let fits = usize::try_from(count).ok().and_then(|count| count.checked_mul(ENTRY_BYTES));
    (fits != Some(bytes.len() - HEAD_BYTES))
        .then(|| format!("{count} producers do not take {} bytes", bytes.len() - HEAD_BYTES))
}

fn tell_producer(path: &Path, entry: &[u8], tell: &mut Tell<'_>) -> i64 {
    let last_offset = i64::from_be_bytes(be(entry, 14));
    tell(
        path,
        Finding::Producer {
            producer_id: i64::from_be_bytes(be(entry, 0)),
            epoch: i16::from_be_bytes(be(entry, 8)),
            last_sequence: i32::from_be_bytes(be(entry, 10)),
            last_offset,
            timestamp: i64::from_be_bytes(be(entry, 26)),
            transaction_start: i64::from_be_bytes(be(entry, 38)),
        },
    );
    last_offset
}

/// `leader-epoch-checkpoint`: version, count, then `epoch offset` lines.
pub(super) fn epochs(disk: &dyn Disk, path: &Path, tell: &mut Tell<'_>) -> io::Result<()> {
    let bytes = disk.read(path)?;
    tell(path, Finding::Begin(FileKind::LeaderEpochs));
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    let head = (lines.next(), lines.next().and_then(|count| count.trim().parse::<usize>().ok()));
    let mut entries: Vec<(i32, i64)> = Vec::new();
    let mut wrong = None;
    for line in lines {
        match line.split_once(' ').map(|(epoch, at)| (epoch.parse(), at.trim().parse())) {
            Some((Ok(epoch), Ok(start_offset))) => {
                tell(path, Finding::Epoch { epoch, start_offset });
                entries.push((epoch, start_offset));
            }
            _ => wrong = Some(format!("invalid line {line:?}")),
        }
    }
    if head != (Some("0"), Some(entries.len())) {
        wrong.get_or_insert(format!("the head does not announce {} lines", entries.len()));
    }
    if !entries.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1) {
        wrong.get_or_insert("leader epochs or offsets do not rise".to_owned());
    }
    if let Some(reason) = &wrong {
        tell(path, Finding::Damage { position: None, reason });
    }
    let (size_bytes, entry_count) = (bytes.len() as u64, entries.len() as u64);
    tell(path, Finding::End { size_bytes, entry_count, record_count: 0 });
    Ok(())
}
