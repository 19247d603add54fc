//! The checksum at the end of a small file: the last field of the JSON object that ends it.
//!
//! ```text
//! {"version":1, … ,"crc":"9ae3b61f"}\n
//! ^------ CRC-32C of this ------^
//! ```
//!
//! A file of version 0 has none. One bit cannot make a file with a checksum look like one without:
//! either the version still says that there must be one, or the checksum is still found.

use serde::Deserialize;

/// Before the checksum's eight digits.
const BEFORE: &[u8] = b",\"crc\":\"";
/// Behind them.
const BEHIND: &[u8] = b"\"}\n";
const DIGITS: usize = 8;

fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Adds the checksum to a file that ends with a JSON object and a line feed.
pub(crate) fn seal(bytes: &mut Vec<u8>) {
    assert!(bytes.ends_with(b"}\n"), "only an object can be given one more field");
    bytes.truncate(bytes.len() - 2);
    let crc = crc32c(bytes);
    bytes.extend_from_slice(BEFORE);
    bytes.extend_from_slice(format!("{crc:08x}").as_bytes());
    bytes.extend_from_slice(BEHIND);
}

/// The version in the object that the file begins with. No other field is looked at.
fn version(bytes: &[u8]) -> Result<u16, String> {
    #[derive(Deserialize)]
    struct OnlyVersion {
        version: u16,
    }
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let found: Result<OnlyVersion, _> = serde_json::from_slice(line);
    found.map(|found| found.version).map_err(|error| error.to_string())
}

/// The version of a file whose checksum is there and right.
pub(super) fn whole_version(bytes: &[u8]) -> Option<u16> {
    let (content, stored) = split(bytes)?;
    let is_whole = format!("{:08x}", crc32c(content)).as_bytes() == stored;
    version(bytes).ok().filter(|_| is_whole)
}

/// Checks the file's version and, from version 1 on, its checksum; the reason if it is not what was
/// written.
pub(crate) fn check(bytes: &[u8], version_max: u16) -> Result<(), String> {
    let Some((content, stored)) = split(bytes) else {
        return match version(bytes)? {
            0 => Ok(()),
            newer if newer > version_max => Err(too_new(newer)),
            _ => Err("the checksum at its end is missing or damaged".into()),
        };
    };
    let computed = format!("{:08x}", crc32c(content)).into_bytes();
    if computed != stored {
        let (stored, computed) =
            (String::from_utf8_lossy(stored), String::from_utf8_lossy(&computed));
        return Err(format!("its checksum is {stored}, its content has checksum {computed}"));
    }
    match version(bytes)? {
        newer if newer > version_max => Err(too_new(newer)),
        _ => Ok(()),
    }
}

fn too_new(version: u16) -> String {
    format!("it has version {version}, which a newer release wrote: start that release")
}

/// The bytes below the checksum, and the checksum's digits, if the file ends with one.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let body = bytes.strip_suffix(BEHIND)?;
    let (content, digits) = body.split_at_checked(body.len().checked_sub(DIGITS)?)?;
    Some((content.strip_suffix(BEFORE)?, digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_bit_and_any_cut_is_noticed() {
        let mut sealed = b"{\"version\":1,\"text\":\"abc\"}\n".to_vec();
        seal(&mut sealed);
        assert_eq!(check(&sealed, 1), Ok(()));
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&flipped, 1).is_err(), "bit {bit}");
        }
        for cut in 0..sealed.len() {
            assert!(check(&sealed[..cut], 1).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn version_0_has_none_and_a_newer_one_is_named() {
        assert_eq!(check(b"{\"version\":0}\n", 1), Ok(()));
        let error = check(b"{\"version\":7}\n", 1).unwrap_err();
        assert!(error.contains("version 7"), "{error}");
    }
}
