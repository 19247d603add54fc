//! Answers: their status, their JSON, their headers.

use std::fmt::Write;

use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};
use serving::choice::{Row, Rule};
use serving::error::{ApiError, Kind};

use crate::front::Handover;
use crate::outgoing::{Outgoing, Parts};
use crate::{events, sockets};

/// The type of answers that REST proxies have too.
pub(crate) const OF_PROXIES: &str = "application/vnd.kafka.v2+json";
const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
/// After how many seconds a client may try again.
const RETRY_AFTER_S: &str = "1";

/// An answer that is not on its way yet.
#[derive(Debug)]
pub(crate) struct Answer {
    status: StatusCode,
    content_type: &'static str,
    body: Bytes,
    headers: HeaderMap,
    /// What the connection is used for in place of an answer.
    handover: Option<Box<Handover>>,
    /// What goes on behind `body`.
    parts: Option<Parts>,
}

/// Where a record went, or why it did not.
pub(crate) struct Placed {
    pub(crate) partition: Option<i32>,
    pub(crate) broker: Option<i32>,
    pub(crate) result: Result<i64, ApiError>,
}

impl Answer {
    fn new(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
        Answer {
            status,
            content_type,
            body: body.into(),
            headers: HeaderMap::new(),
            handover: None,
            parts: None,
        }
    }

    /// A body of this type.
    pub(crate) fn of(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
        Answer::new(StatusCode::OK, content_type, body)
    }

    /// A JSON value that REST proxies have too.
    pub(crate) fn as_proxies(body: String) -> Answer {
        Answer::of(OF_PROXIES, body)
    }

    /// A JSON value of ours.
    pub(crate) fn json(body: impl Into<String>) -> Answer {
        Answer::of(JSON, body.into())
    }

    /// Events that are all there is: the connection is closed behind them, as any stream's.
    pub(crate) fn event_stream(body: String) -> Answer {
        Answer::new(StatusCode::OK, EVENTS, body)
            .with(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
            .with(header::CONNECTION, HeaderValue::from_static("close"))
    }

    /// No answer of the HTTP library's: the connection is handed over.
    pub(crate) fn stream(opened: events::Opened) -> Answer {
        let handover = Some(Box::new(Handover::Events(opened)));
        Answer { handover, ..Answer::event_stream(String::new()) }
    }

    /// The same for a member of a group.
    pub(crate) fn member(opened: events::OpenedMember) -> Answer {
        let handover = Some(Box::new(Handover::Member(Box::new(opened))));
        Answer { handover, ..Answer::event_stream(String::new()) }
    }

    /// No answer of the HTTP library's, either.
    pub(crate) fn socket(opened: sockets::Opened) -> Answer {
        Answer { handover: Some(Box::new(Handover::Socket(opened))), ..nothing() }
    }

    /// JSON objects that are made while they are sent.
    pub(crate) fn in_parts(parts: Parts) -> Answer {
        Answer { parts: Some(parts), ..Answer::json("") }
    }

    /// What the connection is handed over for.
    pub(crate) fn take_handover(&mut self) -> Option<Box<Handover>> {
        self.handover.take()
    }

    /// The same with another status.
    pub(crate) fn with_status(self, status: StatusCode) -> Answer {
        Answer { status, ..self }
    }

    /// Adds a header.
    pub(crate) fn with(mut self, name: header::HeaderName, value: HeaderValue) -> Answer {
        self.headers.insert(name, value);
        self
    }

    /// The same, as one that was given before.
    pub(crate) fn replayed(self) -> Answer {
        let replayed = header::HeaderName::from_static("idempotency-replayed");
        self.with(replayed, HeaderValue::from_static("true"))
    }

    /// Not to be kept by whoever passes it on.
    pub(crate) fn unstored(self) -> Answer {
        self.with(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
    }

    /// Says where the time went.
    pub(crate) fn timed(self, timing: &str) -> Answer {
        let value = HeaderValue::from_str(timing);
        self.with(header::HeaderName::from_static("server-timing"), value.expect("numbers"))
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// The answer as it goes out.
    pub(crate) fn into_response(self) -> Response<Outgoing> {
        let has_body = !self.body.is_empty() || self.parts.is_some();
        let body = self.parts.map_or_else(|| Outgoing::from(self.body), Outgoing::Parts);
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        if has_body {
            let content_type = HeaderValue::from_static(self.content_type);
            response.headers_mut().insert(header::CONTENT_TYPE, content_type);
        }
        response
    }
}

/// Nothing is promised.
pub(crate) fn nothing() -> Answer {
    Answer::new(StatusCode::NO_CONTENT, JSON, String::new())
}

/// Where the one record went.
pub(crate) fn offset(placed: &Placed) -> Answer {
    let mut body = String::with_capacity(64);
    write_placed(&mut body, placed).expect("a String takes every write");
    Answer::json(body)
}

/// Where the records went, or why one did not.
pub(crate) fn offsets(placed: impl ExactSizeIterator<Item = Placed>) -> Answer {
    let mut body = String::with_capacity(72 + 80 * placed.len());
    body.push_str("{\"offsets\":[");
    for (at, placed) in placed.enumerate() {
        if at > 0 {
            body.push(',');
        }
        write_placed(&mut body, &placed).expect("a String takes every write");
    }
    // There are no schemas.
    body.push_str("],\"key_schema_id\":null,\"value_schema_id\":null}");
    Answer::as_proxies(body)
}

fn write_placed(out: &mut String, placed: &Placed) -> std::fmt::Result {
    match &placed.result {
        Ok(offset) => {
            let partition = placed.partition.expect("a record with an offset is in a partition");
            // There are as many of these as records: not through `write!`.
            out.push_str("{\"partition\":");
            push_number(out, partition.into());
            out.push_str(",\"offset\":");
            push_number(out, *offset);
            if let Some(broker) = placed.broker {
                out.push_str(",\"broker\":");
                push_number(out, broker.into());
            }
            out.push_str(",\"error_code\":null,\"error\":null}");
        }
        Err(error) => {
            match placed.partition {
                Some(partition) => write!(out, "{{\"partition\":{partition},")?,
                None => out.push_str("{\"partition\":null,"),
            }
            // One proxy calls the words so, another so.
            write!(out, "\"offset\":null,\"error\":{},", text(&error.message))?;
            write_error(out, error)?;
            out.push('}');
        }
    }
    Ok(())
}

/// Appends a number in decimal.
pub(crate) fn push_number(out: &mut String, number: i64) {
    let mut digits = [b'0'; 19];
    let (mut rest, mut first) = (number.unsigned_abs(), digits.len());
    while rest > 0 || first == digits.len() {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    if number < 0 {
        out.push('-');
    }
    out.push_str(std::str::from_utf8(&digits[first..]).expect("digits are ASCII"));
}

pub(crate) fn write_error(
    out: &mut String,
    ApiError { kind, message }: &ApiError,
) -> std::fmt::Result {
    let (code, retriable) = (kind.error_code(), kind.retriable());
    write!(out, "\"error_code\":{code},\"message\":{},", text(message))?;
    write!(out, "\"written\":\"{}\",\"retriable\":{retriable}", kind.written().name())
}

/// A JSON string.
pub(crate) fn text(text: &str) -> String {
    serde_json::to_string(text).expect("a text is a JSON string")
}

/// The answer to a request that failed as a whole.
pub(crate) fn failed(error: &ApiError) -> Answer {
    let mut body = String::from("{");
    write_error(&mut body, error).expect("a String takes every write");
    body.push('}');
    let status = StatusCode::from_u16(error.kind.status()).expect("the table has statuses");
    let answer = Answer::json(body).with_status(status);
    match error.kind {
        Kind::Full | Kind::Unavailable | Kind::NoLeader | Kind::KafkaForNow => {
            answer.with(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S))
        }
        _ => answer,
    }
}

/// How many records went where.
pub(crate) fn distribution(topic: &str, rows: &[Row]) -> Answer {
    let mut body = format!("{{\"topic\":{},\"counts\":[", text(topic));
    for (at, row) in rows.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let (strategy, partitioner) = match row.rule {
            Rule::Given => ("none", "partition"),
            Rule::Chosen(pair) => {
                (pair.broker.map_or("none", |broker| broker.name()), pair.partition.name())
            }
        };
        let broker = row.broker.map_or("null".to_owned(), |broker| broker.to_string());
        let (partition, records) = (row.partition, row.records);
        write!(
            body,
            "{comma}{{\"broker_strategy\":\"{strategy}\",\"partitioner\":\"{partitioner}\",\"broker\":{broker},\
             \"partition\":{partition},\"records\":{records}}}"
        )
        .expect("a String takes every write");
    }
    body.push_str("]}");
    Answer::json(body)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use serving::choice::{BrokerStrategy, Pair, Strategy};

    use super::*;

    fn parsed(answer: &Answer) -> Value {
        serde_json::from_slice(&answer.body).unwrap()
    }

    #[test]
    fn offsets_stand_as_in_rest_proxies_and_errors_say_whether_anything_was_written() {
        let error = |kind| Err(ApiError::new(kind, "\"quoted\"\n"));
        let placed = [
            Placed { partition: Some(0), broker: None, result: Ok(7) },
            Placed { partition: Some(1), broker: Some(3), result: Ok(8) },
            Placed { partition: Some(2), broker: None, result: error(Kind::Undecided) },
            Placed { partition: None, broker: None, result: error(Kind::NoPartition) },
        ];
        let answer = offsets(placed.into_iter());
        let expected = json!({
            "offsets": [
                {"partition": 0, "offset": 7, "error_code": null, "error": null},
                {"partition": 1, "offset": 8, "broker": 3, "error_code": null, "error": null},
                {"partition": 2, "offset": null, "error_code": 50401, "error": "\"quoted\"\n",
                    "message": "\"quoted\"\n", "written": "unknown", "retriable": true},
                {"partition": null, "offset": null, "error_code": 40402, "error": "\"quoted\"\n",
                    "message": "\"quoted\"\n", "written": "no", "retriable": false},
            ],
            "key_schema_id": null,
            "value_schema_id": null,
        });
        assert_eq!(parsed(&answer), expected);
    }

    #[test]
    fn numbers_stand_in_decimal() {
        for number in [0, 7, 10, -1, 1_234_567_890, i64::MAX, i64::MIN] {
            let mut out = String::new();
            push_number(&mut out, number);
            assert_eq!(out, number.to_string());
        }
    }

    #[test]
    fn a_failure_has_its_status_and_says_when_to_come_again() {
        let full = failed(&ApiError::new(Kind::Full, "full"));
        let body =
            json!({"error_code": 429, "message": "full", "written": "no", "retriable": true});
        assert_eq!((full.status(), parsed(&full)), (429, body));
        assert_eq!(full.headers[header::RETRY_AFTER], "1");
        let undecided = failed(&ApiError::new(Kind::Undecided, ""));
        assert_eq!(undecided.status(), 504);
        assert!(!undecided.headers.contains_key(header::RETRY_AFTER));
    }

    #[test]
    fn counts_name_the_strategies_that_led_to_them() {
        let pair = Pair { broker: Some(BrokerStrategy::Cs6Mod), partition: Strategy::HashMod };
        let row = |rule, broker| Row { rule, broker, partition: 4, records: 9 };
        let answer = distribution("t", &[row(Rule::Given, None), row(Rule::Chosen(pair), Some(2))]);
        let expected = json!({"topic": "t", "counts": [
            {"broker_strategy": "none", "partitioner": "partition", "broker": null, "partition": 4,
                "records": 9},
            {"broker_strategy": "cs6-mod", "partitioner": "hash-mod", "broker": 2, "partition": 4,
                "records": 9},
        ]});
        assert_eq!(parsed(&answer), expected);
    }
}
