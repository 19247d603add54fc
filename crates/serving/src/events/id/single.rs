//! The id of one partition: `topic/partition@offset.epoch.hash`. Topics have no `/` and no `@` in their names.

use std::io::Write;

use super::{Entry, IdError, Passed, Place, TopicHash, TopicKey, position};

pub(super) fn write(passed: Passed<'_>, out: &mut Vec<u8>) {
    let Passed { topic, topic_hash, partition, position } = passed;
    write!(out, "{topic}/{partition}@{}.{}", position.offset, position.leader_epoch)
        .and_then(|()| write!(out, ".{:08x}", topic_hash.0))
        .expect("a Vec takes every write");
}

pub(super) fn read(text: &str) -> Result<Entry, IdError> {
    let damaged = IdError::Damaged;
    let (topic, rest) = text.split_once('/').ok_or(damaged)?;
    let (partition, place) = rest.split_once('@').ok_or(damaged)?;
    let mut parts = place.split('.');
    let offset = number(parts.next().unwrap_or_default())?;
    let leader_epoch = parts.next().map_or(Ok(-1), number)?;
    let topic_hash = parts.next().map(hash).transpose()?;
    let partition = number(partition)?;
    if topic.is_empty() || partition < 0 || parts.next().is_some() {
        return Err(damaged);
    }
    let place = Place::Behind(position(offset, leader_epoch)?);
    Ok(Entry { topic: TopicKey::Name(topic.to_owned()), topic_hash, partition, place })
}

/// A number as it is written: no sign but a minus, no blanks.
fn number<T: std::str::FromStr>(text: &str) -> Result<T, IdError> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or(IdError::Damaged)
}

fn hash(text: &str) -> Result<TopicHash, IdError> {
    let is_hash = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let hash = u32::from_str_radix(text, 16).ok().filter(|_| is_hash);
    hash.map(TopicHash).ok_or(IdError::Damaged)
}
