//! Damage in the middle of the log, told from a write that a crash cut off.
//!
//! Opening a log after a crash cuts it where the first batch fails its check, for what follows was
//! never durable. But entries are synced one proposal after the other: a whole entry *behind* a
//! damaged one says that the damaged one was durable, and perhaps acknowledged. Such a log must not
//! be cut, and its node must not vote: it is refused before anything is changed.

use model::BatchHeader;
use model::batch::HEADER_BYTES;
use std::io;
use std::path::Path;
use storage::disk::Disk;

/// Offsets further on than this are no entry that could follow.
const AHEAD_MAX: i64 = 1 << 20;

/// Fails if a whole entry stands behind a damaged one, at or behind `recovery_point`.
pub(super) fn check(disk: &dyn Disk, dir: &Path, recovery_point: u64) -> io::Result<()> {
    let names = match disk.list(dir) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let is_log = |name: &&String| name.len() == 24 && name.ends_with(".log");
    let logs: Vec<&String> = names.iter().filter(is_log).collect();
    let base = |name: &String| name[..20].parse::<u64>().unwrap_or(0);
    // The segment that contains the recovery point, and those behind it.
    let first = logs.partition_point(|name| base(name) <= recovery_point).saturating_sub(1);
    let mut damaged: Option<String> = None;
    for name in &logs[first..] {
        let bytes = disk.read(&dir.join(name))?;
        if let Some(place) = &damaged {
            if find_whole(&bytes, 0, base(name) as i64).is_some() {
                return Err(refuse(place));
            }
        } else if let Some((position, expected)) = first_damage(&bytes, base(name) as i64) {
            let place = format!("{} at byte {position}", dir.join(name).display());
            if find_whole(&bytes, position + 1, expected).is_some() {
                return Err(refuse(&place));
            }
            damaged = Some(place);
        }
    }
    Ok(())
}

fn refuse(place: &str) -> io::Error {
    let text =
        format!("{place} is damaged, and whole entries follow: it was not cut off by a crash");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Where the first batch stands that is not whole, and the offset that is due there.
fn first_damage(bytes: &[u8], base: i64) -> Option<(usize, i64)> {
    let (mut position, mut expected) = (0, base);
    while position < bytes.len() {
        match BatchHeader::decode_checked(&bytes[position..]) {
            Ok(header) if header.base_offset.0 >= expected => {
                position += header.size_bytes as usize;
                expected = header.next_offset().0;
            }
            _ => return Some((position, expected)),
        }
    }
    None
}

/// A whole batch at or behind `from` whose offset could follow `expected`.
fn find_whole(bytes: &[u8], from: usize, expected: i64) -> Option<usize> {
    let last = bytes.len().checked_sub(HEADER_BYTES)?;
    (from..=last).find(|position| {
        let ahead = i64::from_be_bytes(bytes[*position..*position + 8].try_into().expect("eight"));
        (expected..expected.saturating_add(AHEAD_MAX)).contains(&ahead)
            && BatchHeader::decode_checked(&bytes[*position..]).is_ok()
    })
}
