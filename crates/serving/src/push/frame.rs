//! What clients of WebSockets are told: JSON texts, one a message. Records stand as in Pulsar, or as in our event streams
//! with `data=record`. What is said besides has a `type`, which records have not.

use std::io::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::message_id;
use crate::error::ApiError;
use crate::events::encoding::{self, Event};
use crate::events::gap::Gap;
use crate::events::notice::End;

const TAKES: &str = "a Vec takes every write";

/// How records stand in texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Topic, partition, offset, key, value, headers.
    Native,
    /// As Pulsar's messages.
    Pulsar,
}

/// A header of a record.
type Header<'a> = (&'a str, Option<&'a [u8]>);

/// Writes a record. `redeliveries`: how often it was sent to this client before.
pub fn write_record<'a>(
    dialect: Dialect,
    base64: bool,
    event: &Event<'_>,
    headers: impl Iterator<Item = Header<'a>> + Clone,
    redeliveries: u32,
    out: &mut Vec<u8>,
) {
    match dialect {
        Dialect::Native => encoding::write_json_record(base64, event, headers, out),
        Dialect::Pulsar => write_message(event, headers, redeliveries, out),
    }
}

/// `{"messageId":…,"payload":…,"properties":{…},"publishTime":…,"redeliveryCount":0,"key":…}`. A key that is not UTF-8 is
/// base64 and says so; headers that cannot be properties (null, not UTF-8, of a name that another has) are all in `headers`.
fn write_message<'a>(
    event: &Event<'_>,
    headers: impl Iterator<Item = Header<'a>> + Clone,
    redeliveries: u32,
    out: &mut Vec<u8>,
) {
    let id = message_id::write(event.topic, event.partition, event.offset);
    write!(out, "{{\"messageId\":\"{id}\",\"payload\":").expect(TAKES);
    write_base64(event.value, out);
    out.extend(b",\"properties\":{");
    let is_plain = write_properties(headers.clone(), out);
    write!(out, "}},\"publishTime\":\"{}\"", Moment(event.timestamp_ms)).expect(TAKES);
    write!(out, ",\"redeliveryCount\":{redeliveries}").expect(TAKES);
    if let Some(key) = event.key {
        match std::str::from_utf8(key) {
            Ok(text) => {
                out.extend(b",\"key\":");
                encoding::write_text(text, out);
            }
            Err(_) => {
                out.extend(b",\"keyEncoding\":\"base64\",\"key\":");
                write_base64(Some(key), out);
            }
        }
    }
    if !is_plain {
        write_headers(headers, out);
    }
    out.push(b'}');
}

/// Writes the headers that can be properties; whether all could.
fn write_properties<'a>(headers: impl Iterator<Item = Header<'a>>, out: &mut Vec<u8>) -> bool {
    let mut names: Vec<&str> = Vec::new();
    let mut is_plain = true;
    for (name, value) in headers {
        let text = value.and_then(|value| std::str::from_utf8(value).ok());
        let Some(text) = text.filter(|_| !names.contains(&name)) else {
            is_plain = false;
            continue;
        };
        if !names.is_empty() {
            out.push(b',');
        }
        encoding::write_text(name, out);
        out.push(b':');
        encoding::write_text(text, out);
        // Of the names of a record with very many headers the first are compared: the rest is in `headers`.
        match names.len() < NAMES_MAX {
            true => names.push(name),
            false => return false,
        }
    }
    is_plain
}

/// Properties of one record; further headers are not properties.
const NAMES_MAX: usize = 256;

fn write_headers<'a>(headers: impl Iterator<Item = Header<'a>>, out: &mut Vec<u8>) {
    out.extend(b",\"headers\":[");
    for (at, (name, value)) in headers.enumerate() {
        out.extend(if at > 0 { &b",{\"key\":"[..] } else { b"{\"key\":" });
        encoding::write_text(name, out);
        out.extend(b",\"value\":");
        write_base64(value, out);
        out.push(b'}');
    }
    out.push(b']');
}

fn write_base64(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    match bytes {
        None => out.extend(b"null"),
        Some(bytes) => write!(out, "\"{}\"", BASE64_STANDARD.encode(bytes)).expect(TAKES),
    }
}

/// Says which offsets are missing.
pub fn write_gap(topic: &str, partition: i32, gap: &Gap, out: &mut Vec<u8>) {
    let Gap { reason, from, to } = gap;
    let reason = reason.name();
    write!(
        out,
        "{{\"type\":\"gap\",\"topic\":\"{topic}\",\"partition\":{partition},\"reason\":\"{reason}\",\"from\":{from},\"to\":{to}}}"
    )
    .expect(TAKES);
}

/// Partitions that one text names at most.
const NAMED_MAX: usize = 16;

/// Says which partitions have no leader that answers. Their records come once one does. `count`: of all such partitions;
/// the first 16 are named.
pub fn write_waiting<'a>(
    partitions: impl ExactSizeIterator<Item = (&'a str, i32)>,
    out: &mut Vec<u8>,
) {
    let count = partitions.len();
    write!(out, "{{\"type\":\"waiting\",\"count\":{count},\"partitions\":[").expect(TAKES);
    for (at, (topic, partition)) in partitions.take(NAMED_MAX).enumerate() {
        let comma = if at > 0 { "," } else { "" };
        // Names of topics need no escapes.
        write!(out, "{comma}{{\"topic\":\"{topic}\",\"partition\":{partition}}}").expect(TAKES);
    }
    out.extend(b"]}");
}

/// Says which records cannot be sent, and why.
pub fn write_error(topic: &str, partition: i32, offset: i64, message: &str, out: &mut Vec<u8>) {
    write!(
        out,
        "{{\"type\":\"error\",\"topic\":\"{topic}\",\"partition\":{partition},\"offset\":{offset},\"message\":"
    )
    .expect(TAKES);
    encoding::write_text(message, out);
    out.push(b'}');
}

/// Says that records end that were to end.
pub fn end(end: End) -> String {
    format!("{{\"type\":\"end\",\"reason\":\"{}\"}}", end.name())
}

/// Answers whether a topic has an end, and is at it: topics of Kafka have none.
pub fn end_of_topic() -> String {
    "{\"endOfTopic\":false}".to_owned()
}

/// Says where a record went that a client sent. `context`: what the client sent with it.
pub fn produced(id: &str, context: Option<&str>) -> String {
    let mut out = format!("{{\"result\":\"ok\",\"messageId\":\"{id}\"").into_bytes();
    write_context(context, &mut out);
    finish(out)
}

/// Says why a record is not known to be in the topic, and whether it may be.
pub fn not_produced(error: &ApiError, context: Option<&str>) -> String {
    let (code, retriable) = (error.kind.error_code(), error.kind.retriable());
    let mut out = format!("{{\"result\":\"send-error:{code}\",\"errorCode\":{code},\"errorMsg\":");
    out += &serde_json::to_string(&error.message).expect("a text is a JSON string");
    let written = error.kind.written().name();
    out += &format!(",\"written\":\"{written}\",\"retriable\":{retriable}");
    let mut out = out.into_bytes();
    write_context(context, &mut out);
    finish(out)
}

fn write_context(context: Option<&str>, out: &mut Vec<u8>) {
    if let Some(context) = context {
        out.extend(b",\"context\":");
        encoding::write_text(context, out);
    }
}

fn finish(mut out: Vec<u8>) -> String {
    out.push(b'}');
    String::from_utf8(out).expect("all parts are texts")
}

/// A time in milliseconds since 1970, written after RFC 3339 in UTC. Years beyond 9999 have more digits.
struct Moment(i64);

impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (days, ms) = (self.0.div_euclid(86_400_000), self.0.rem_euclid(86_400_000));
        let (year, month, day) = date(days);
        let (seconds, ms) = (ms / 1000, ms % 1000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }
}

/// Year, month and day so many days after 1 January 1970, in the Gregorian calendar. Years are counted from March on, so that
/// a leap day is the last of one; 400 years have 146,097 days.
fn date(days: i64) -> (i64, i64, i64) {
    // Days since 1 March of the year 0.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let leaps = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::error::Kind;
    use crate::events::gap::Reason;
    use crate::events::id::TopicHash;

    const EVENT: Event<'_> = Event {
        topic: "t",
        topic_hash: TopicHash(0),
        partition: 2,
        offset: 41,
        leader_epoch: 7,
        timestamp_ms: 1_732_500_000_123,
        key: Some(b"k\"1"),
        value: Some(b"\xff\x00"),
    };

    fn message(event: &Event<'_>, headers: &[Header<'_>], redeliveries: u32) -> Value {
        let mut out = Vec::new();
        write_record(
            Dialect::Pulsar,
            false,
            event,
            headers.iter().copied(),
            redeliveries,
            &mut out,
        );
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn a_record_stands_as_in_pulsar() {
        let expected = json!({
            "messageId": message_id::write("t", 2, 41), "payload": "/wA=", "properties": {"a": "1"},
            "publishTime": "2024-11-25T02:00:00.123Z", "redeliveryCount": 3, "key": "k\"1",
        });
        assert_eq!(message(&EVENT, &[("a", Some(b"1"))], 3), expected);
    }

    #[test]
    fn what_pulsar_has_no_place_for_is_not_lost() {
        let event = Event { key: Some(b"\xfe"), value: None, ..EVENT };
        let told = message(&event, &[("a", Some(b"1")), ("a", Some(b"2")), ("b", None)], 0);
        assert_eq!((&told["payload"], &told["key"]), (&Value::Null, &json!("/g==")));
        assert_eq!(told["keyEncoding"], "base64");
        assert_eq!(told["properties"], json!({"a": "1"}));
        let headers = json!([{"key": "a", "value": "MQ=="}, {"key": "a", "value": "Mg=="},
            {"key": "b", "value": null}]);
        assert_eq!(told["headers"], headers);
        let names: Vec<String> = (0..300).map(|at| format!("h{at}")).collect();
        let many: Vec<Header<'_>> = names.iter().map(|name| (&**name, Some(&b"v"[..]))).collect();
        let told = message(&EVENT, &many, 0);
        assert_eq!(told["headers"].as_array().unwrap().len(), 300);
        assert!(message(&Event { key: None, ..EVENT }, &[], 0).get("key").is_none());
    }

    #[test]
    fn everything_else_has_a_type_or_a_result() {
        let mut out = Vec::new();
        write_gap("t", 1, &Gap { reason: Reason::Retention, from: 3, to: 7 }, &mut out);
        let expected = json!({"type": "gap", "topic": "t", "partition": 1, "reason": "retention",
            "from": 3, "to": 7});
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), expected);
        out.clear();
        write_waiting((0..20).map(|partition| ("t", partition)), &mut out);
        let told: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((told["type"].as_str(), told["count"].as_u64()), (Some("waiting"), Some(20)));
        assert_eq!(told["partitions"].as_array().unwrap().len(), 16);
        assert_eq!(told["partitions"][1], json!({"topic": "t", "partition": 1}));
        out.clear();
        write_error("t", 1, 9, "a \"quoted\"\nword", &mut out);
        let told: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(told["message"], "a \"quoted\"\nword");
        let parsed = |text: String| serde_json::from_str::<Value>(&text).unwrap();
        assert_eq!(parsed(end(End::Limit)), json!({"type": "end", "reason": "limit"}));
        let told = parsed(produced("id", Some("c\"1")));
        assert_eq!(told, json!({"result": "ok", "messageId": "id", "context": "c\"1"}));
        let told = parsed(not_produced(&ApiError::new(Kind::Undecided, "\"late\""), None));
        let expected = json!({"result": "send-error:50401", "errorCode": 50401,
            "errorMsg": "\"late\"", "written": "unknown", "retriable": true});
        assert_eq!(told, expected);
    }

    #[test]
    fn times_are_written_as_calendars_have_them() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Moment(ms).to_string(), text);
        }
        // No time that a record can have is beyond it.
        for ms in [i64::MIN, i64::MAX] {
            assert!(Moment(ms).to_string().ends_with('Z'));
        }
    }
}
