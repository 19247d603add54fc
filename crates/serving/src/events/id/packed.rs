//! The id of several partitions, as base64url without padding:
//!
//! ```text
//! version 1 | for each topic: hash of its name (4 bytes), hash of its id (4 bytes, both big-endian),
//!             for each partition, ascending:
//!                 partition - the one before (-1 before the first), offset + 1, leader epoch + 1;
//!             0
//! ```
//!
//! Numbers are varints: seven bits a byte, low ones first.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::{Entry, IdError, Passed, Place, TopicHash, TopicKey, hashed, position, push};

const VERSION: u8 = 1;

pub(super) fn write<'a>(passed: &mut impl Iterator<Item = Passed<'a>>, out: &mut Vec<u8>) {
    let mut raw = vec![VERSION];
    let mut before: Option<Passed<'a>> = None;
    for one in passed {
        if before.is_none_or(|before| before.topic != one.topic) {
            if before.take().is_some() {
                put(&mut raw, 0);
            }
            raw.extend(hashed(one.topic.as_bytes()).to_be_bytes());
            raw.extend(one.topic_hash.0.to_be_bytes());
        }
        let step =
            i64::from(one.partition) - before.map_or(-1, |before| i64::from(before.partition));
        assert!(step > 0, "the partitions of a topic ascend");
        put(&mut raw, step as u64);
        put(&mut raw, (one.position.offset + 1) as u64);
        put(&mut raw, (i64::from(one.position.leader_epoch) + 1) as u64);
        before = Some(one);
    }
    if before.is_some() {
        put(&mut raw, 0);
    }
    out.extend(BASE64_URL_SAFE_NO_PAD.encode(raw).as_bytes());
}

pub(super) fn read(text: &str) -> Result<Vec<Entry>, IdError> {
    let raw = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| IdError::Damaged)?;
    let Some((&VERSION, mut rest)) = raw.split_first() else { return Err(IdError::Damaged) };
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (name, id) = (take_hash(&mut rest)?, take_hash(&mut rest)?);
        let mut partition = -1;
        loop {
            let step = take(&mut rest)?;
            if step == 0 {
                break;
            }
            partition = partition_behind(partition, step)?;
            let offset = i64::try_from(take(&mut rest)?).map_err(|_| IdError::Damaged)? - 1;
            let leader_epoch = i64::try_from(take(&mut rest)?).map_err(|_| IdError::Damaged)? - 1;
            let leader_epoch = i32::try_from(leader_epoch).map_err(|_| IdError::Damaged)?;
            let place = Place::Behind(position(offset, leader_epoch)?);
            let (topic, topic_hash) = (TopicKey::Hash(name), Some(TopicHash(id)));
            push(&mut entries, Entry { topic, topic_hash, partition, place })?;
        }
    }
    Ok(entries)
}

fn partition_behind(before: i32, step: u64) -> Result<i32, IdError> {
    let step = i64::try_from(step).map_err(|_| IdError::Damaged)?;
    let partition = i64::from(before).checked_add(step).ok_or(IdError::Damaged)?;
    i32::try_from(partition).map_err(|_| IdError::Damaged)
}

fn take_hash(rest: &mut &[u8]) -> Result<u32, IdError> {
    let (bytes, behind) = rest.split_first_chunk::<4>().ok_or(IdError::Damaged)?;
    *rest = behind;
    Ok(u32::from_be_bytes(*bytes))
}

fn put(raw: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        raw.push(value as u8 | 0x80);
        value >>= 7;
    }
    raw.push(value as u8);
}

/// A varint of 64 bits; longer ones, and bits beyond, are refused.
fn take(rest: &mut &[u8]) -> Result<u64, IdError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, behind) = rest.split_first().ok_or(IdError::Damaged)?;
        *rest = behind;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return Err(IdError::Damaged);
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(IdError::Damaged)
}
