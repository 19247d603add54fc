//! A record as an event. Chunks of events are made once and sent to many readers, so an event depends on the record
//! and on the [`Projection`] alone.
//!
//! ```text
//! id: orders/3@41.7.1a2b3c4d      if the projection has ids
//! event: tombstone                only where the data is not the value as it stands
//! data: first line of the value
//! data: second line
//!
//! ```

use std::io::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::filter::Filter;
use super::id::{self, IdStyle, Passed, Position, TopicHash};
use crate::push::frame::{self, Dialect};

/// What the data of an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Form {
    /// The value.
    #[default]
    Value,
    /// A JSON object with everything that the record has.
    Record,
    /// No event, but a text for a WebSocket.
    Frame(Dialect),
}

/// What decides how the records of a partition look: readers with the same one share chunks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Projection {
    /// What the data is.
    pub form: Form,
    /// Whether keys, values and headers are base64 always, or only where they cannot be text.
    pub base64: bool,
    /// Whether each event has an id, which one partition alone allows.
    pub ids: Option<IdStyle>,
    /// Which records there are.
    pub filter: Filter,
}

/// A record.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Its topic.
    pub topic: &'a str,
    /// What the topic is.
    pub topic_hash: TopicHash,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// The leader epoch that it was written in.
    pub leader_epoch: i32,
    /// Milliseconds since 1970.
    pub timestamp_ms: i64,
    /// The key, or null.
    pub key: Option<&'a [u8]>,
    /// The value, or null.
    pub value: Option<&'a [u8]>,
}

/// Writes the event of a record. False, and nothing is written, if the projection leaves the record out.
pub fn write<'a>(
    projection: &Projection,
    event: &Event<'a>,
    headers: impl Iterator<Item = (&'a str, Option<&'a [u8]>)> + Clone,
    out: &mut Vec<u8>,
) -> bool {
    let is_wanted = projection.filter.wants(event.key, headers.clone());
    if is_wanted {
        write_wanted(projection, event, headers, out);
    }
    is_wanted
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The projection leaves it out.
    LeftOut,
    /// Its event stands there.
    Event,
    /// Its event would have so many bytes, or more, and nothing is written.
    TooLarge(usize),
}

/// As [`write`], but no event of more than `bytes_max`: escapes make one of six times its record, for each projection.
pub fn write_within<'a>(
    projection: &Projection,
    event: &Event<'a>,
    headers: impl Iterator<Item = (&'a str, Option<&'a [u8]>)> + Clone,
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> Written {
    if !projection.filter.wants(event.key, headers.clone()) {
        return Written::LeftOut;
    }
    let size = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    let besides = || {
        let headers = headers.clone().map(|(name, value)| name.len() + size(value));
        size(event.key) + headers.sum::<usize>()
    };
    // No form makes less of them.
    let least = size(event.value) + if projection.form == Form::Value { 0 } else { besides() };
    if least > bytes_max {
        return Written::TooLarge(least);
    }
    let begin = out.len();
    write_wanted(projection, event, headers, out);
    let bytes = out.len() - begin;
    if bytes <= bytes_max {
        return Written::Event;
    }
    out.truncate(begin);
    out.shrink_to(begin);
    Written::TooLarge(bytes)
}

fn write_wanted<'a>(
    projection: &Projection,
    event: &Event<'a>,
    headers: impl Iterator<Item = (&'a str, Option<&'a [u8]>)> + Clone,
    out: &mut Vec<u8>,
) {
    if let Form::Frame(dialect) = projection.form {
        return frame::write_record(dialect, projection.base64, event, headers, 0, out);
    }
    if let Some(style) = projection.ids {
        let position = Position { offset: event.offset, leader_epoch: event.leader_epoch };
        let Event { topic, topic_hash, partition, .. } = *event;
        let passed = Passed { topic, topic_hash, partition, position };
        write_id_line(style, passed, out);
    }
    match projection.form {
        Form::Value => write_value(projection.base64, event.value, out),
        Form::Record => {
            out.extend(b"data: ");
            write_json_record(projection.base64, event, headers, out);
            out.push(b'\n');
        }
        Form::Frame(_) => unreachable!("written above"),
    }
    out.push(b'\n');
}

/// The line of an event that says where its reader is behind it.
pub fn write_id_line(style: IdStyle, passed: Passed<'_>, out: &mut Vec<u8>) {
    out.extend(b"id: ");
    id::write(style, std::iter::once(passed), out);
    out.push(b'\n');
}

/// The value as it stands, if a reader can get that out of its event again: a CR would end a line, and what is not
/// UTF-8 would be replaced.
fn write_value(base64: bool, value: Option<&[u8]>, out: &mut Vec<u8>) {
    match value {
        None => out.extend(b"event: tombstone\ndata: \n"),
        Some(value) if base64 => write_base64(value, out),
        Some(value) => match std::str::from_utf8(value) {
            Ok(text) if !text.contains('\r') => {
                for line in text.split('\n') {
                    out.extend(b"data: ");
                    out.extend(line.as_bytes());
                    out.push(b'\n');
                }
            }
            _ => {
                out.extend(b"event: base64\n");
                write_base64(value, out);
            }
        },
    }
}

fn write_base64(value: &[u8], out: &mut Vec<u8>) {
    out.extend(b"data: ");
    out.extend(BASE64_STANDARD.encode(value).as_bytes());
    out.push(b'\n');
}

/// `{"topic":…,"partition":…,"offset":…,"timestamp":…,"key":…,"value":…,"headers":[{"key":…,"value":…}]}`. JSON has no
/// line breaks of its own here, so one line is enough.
pub(crate) fn write_json_record<'a>(
    base64: bool,
    event: &Event<'_>,
    headers: impl Iterator<Item = (&'a str, Option<&'a [u8]>)>,
    out: &mut Vec<u8>,
) {
    let Event { topic, partition, offset, timestamp_ms, .. } = event;
    write!(
        out,
        "{{\"topic\":\"{topic}\",\"partition\":{partition},\"offset\":{offset},\"timestamp\":{timestamp_ms},\"key\":"
    )
    .expect(TAKES);
    write_json(base64, event.key, out);
    out.extend(b",\"value\":");
    write_json(base64, event.value, out);
    out.extend(b",\"headers\":[");
    for (at, (name, value)) in headers.enumerate() {
        out.extend(if at > 0 { &b",{\"key\":"[..] } else { b"{\"key\":" });
        write_text(name, out);
        out.extend(b",\"value\":");
        write_json(base64, value, out);
        out.push(b'}');
    }
    out.extend(b"]}");
}

const TAKES: &str = "a Vec takes every write";

/// Null, a string, or `{"base64":…}` for bytes that are not UTF-8.
fn write_json(base64: bool, bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    let Some(bytes) = bytes else { return out.extend(b"null") };
    match std::str::from_utf8(bytes) {
        Ok(text) if !base64 => write_text(text, out),
        _ => write!(out, "{{\"base64\":\"{}\"}}", BASE64_STANDARD.encode(bytes)).expect(TAKES),
    }
}

pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a text is a JSON string, and a Vec takes every write");
}
