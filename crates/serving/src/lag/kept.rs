//! The histories of all groups in one file, so that a restart does not forget a day.
//!
//! ```text
//! HWLG, version (1), count (u32), then for each group: length of its id (u32), the id, its history (see `history`);
//! CRC-32C of all of that (u32). Little-endian. What does not fit is not believed.
//! ```

use crc_fast::crc32_iscsi;

use super::history::{BYTES, History, Unreadable};

const MAGIC: &[u8; 4] = b"HWLG";
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 4 + 1 + 4;

/// The file of these groups.
pub fn to_bytes<'a>(groups: impl ExactSizeIterator<Item = (&'a str, &'a History)>) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + groups.len() * (BYTES + 32));
    out.extend_from_slice(MAGIC);
    out.push(VERSION);
    out.extend_from_slice(&(groups.len() as u32).to_le_bytes());
    for (id, history) in groups {
        out.extend_from_slice(&(id.len() as u32).to_le_bytes());
        out.extend_from_slice(id.as_bytes());
        out.extend_from_slice(&history.to_bytes());
    }
    out.extend_from_slice(&crc(&out).to_le_bytes());
    out
}

fn crc(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// The groups of such a file.
///
/// # Errors
/// It is none, or damaged.
pub fn from_bytes(bytes: &[u8]) -> Result<Vec<(String, History)>, Unreadable> {
    let wrong = Unreadable::Length(bytes.len());
    let (body, check) = bytes.split_last_chunk::<4>().ok_or(wrong)?;
    if body.len() < HEAD_BYTES {
        return Err(wrong);
    }
    if !body.starts_with(MAGIC) || body[4] != VERSION {
        return Err(Unreadable::Kind);
    }
    if crc(body) != u32::from_le_bytes(*check) {
        return Err(Unreadable::Checksum);
    }
    let count = u32::from_le_bytes([body[5], body[6], body[7], body[8]]);
    let mut rest = &body[HEAD_BYTES..];
    let mut groups = Vec::new();
    for _ in 0..count {
        let (length, behind) = rest.split_first_chunk::<4>().ok_or(wrong)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (id, behind) = behind.split_at_checked(length).ok_or(wrong)?;
        let (history, behind) = behind.split_at_checked(BYTES).ok_or(wrong)?;
        let id = std::str::from_utf8(id).map_err(|_| Unreadable::Kind)?;
        groups.push((id.to_owned(), History::from_bytes(history)?));
        rest = behind;
    }
    if rest.is_empty() { Ok(groups) } else { Err(wrong) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lag::history::Lag;
    use proptest::prelude::*;

    fn history(records: u64) -> History {
        let mut history = History::default();
        history.note(1_700_000_000_000, Lag { records, ms: records * 10 });
        history
    }

    #[test]
    fn groups_come_back_and_damage_does_not() {
        let (one, two) = (history(5), history(70));
        let bytes = to_bytes([("a", &one), ("", &two)].into_iter());
        let read = from_bytes(&bytes).unwrap();
        assert_eq!(read, [("a".to_owned(), one), (String::new(), two)]);
        for at in (0..bytes.len()).step_by(97) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(from_bytes(&damaged).is_err(), "byte {at}");
            assert!(from_bytes(&bytes[..at]).is_err(), "cut at {at}");
        }
        assert_eq!(from_bytes(&to_bytes(std::iter::empty())), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn no_bytes_are_more_than_refused(body: Vec<u8>, count in 0u32..4) {
            let _ = from_bytes(&body);
            // With a head and a checksum that hold.
            let mut bytes = [&MAGIC[..], &[VERSION], &count.to_le_bytes(), &body].concat();
            bytes.extend_from_slice(&crc(&bytes).to_le_bytes());
            let _ = from_bytes(&bytes);
        }
    }
}
