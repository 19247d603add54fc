//! KafkaSSE's id: a JSON array of objects with `topic`, `partition` and `offset` or `timestamp`. Ours say
//! `leader_epoch` and `topic_hash`, too; other fields are passed over, because others may have written them. A partition
//! that a stream has no offset of has a `timestamp`.

use std::io::Write;

use serde_json::Value;

use super::{Entry, IdError, Passed, Place, TopicHash, TopicKey, position, push};

/// Writes an id. A partition with a time has that, in milliseconds, in place of its offset.
pub(super) fn write<'a>(
    passed: impl Iterator<Item = (Passed<'a>, Option<i64>)>,
    out: &mut Vec<u8>,
) {
    const TAKES: &str = "a Vec takes every write";
    out.push(b'[');
    for (at, (Passed { topic, topic_hash, partition, position }, time)) in passed.enumerate() {
        let comma = if at > 0 { "," } else { "" };
        // Names of topics need no escapes.
        write!(out, "{comma}{{\"topic\":\"{topic}\",\"partition\":{partition},").expect(TAKES);
        match time {
            Some(time) => write!(out, "\"timestamp\":{time}").expect(TAKES),
            None => {
                let (offset, epoch) = (position.offset, position.leader_epoch);
                write!(out, "\"offset\":{offset},\"leader_epoch\":{epoch}").expect(TAKES);
            }
        }
        write!(out, ",\"topic_hash\":{}}}", topic_hash.0).expect(TAKES);
    }
    out.push(b']');
}

pub(super) fn read(text: &str) -> Result<Vec<Entry>, IdError> {
    let Ok(Value::Array(list)) = serde_json::from_str(text) else { return Err(IdError::Damaged) };
    let mut entries = Vec::new();
    for one in &list {
        push(&mut entries, entry(one)?)?;
    }
    Ok(entries)
}

fn entry(one: &Value) -> Result<Entry, IdError> {
    let damaged = IdError::Damaged;
    let number = |name: &str| match one.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_i64().map(Some).ok_or(damaged),
    };
    let topic = one.get("topic").and_then(Value::as_str).ok_or(damaged)?;
    let partition = number("partition")?.and_then(|p| i32::try_from(p).ok()).filter(|p| *p >= 0);
    let leader_epoch = i32::try_from(number("leader_epoch")?.unwrap_or(-1)).map_err(|_| damaged)?;
    let topic_hash = number("topic_hash")?.map(|hash| u32::try_from(hash).map_err(|_| damaged));
    let place = match (number("offset")?, number("timestamp")?) {
        (Some(offset), _) => Place::Behind(position(offset, leader_epoch)?),
        (None, Some(time)) if time >= 0 => Place::Time(time),
        _ => return Err(damaged),
    };
    Ok(Entry {
        topic: TopicKey::Name(topic.to_owned()),
        topic_hash: topic_hash.transpose()?.map(TopicHash),
        partition: partition.ok_or(damaged)?,
        place,
    })
}
