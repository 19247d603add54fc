//! What is told of each record, in JSON.

use std::fmt::Write;
use std::sync::OnceLock;

use jiff::Timestamp;

use super::super::sending::Outcome;
use crate::answer::{text, write_error};
use crate::request::v3::{Described, Type};

/// What is told of every record of a request.
#[derive(Debug, Clone)]
pub(in crate::produce) struct About {
    /// As JSON strings.
    cluster_id: String,
    topic: String,
}

/// What is told of a whole request.
#[derive(Debug)]
pub(in crate::produce) struct Reports {
    about: About,
    /// Timestamp of records that have none in the request, in milliseconds since 1970.
    pub(in crate::produce) received_ms: i64,
    /// Known when the records are read.
    described: OnceLock<Vec<Described>>,
}

impl About {
    pub(super) fn new(cluster_id: &str, topic: &str) -> About {
        About { cluster_id: text(cluster_id), topic: text(topic) }
    }

    /// Writes what became of a record, on a line.
    pub(super) fn write(&self, out: &mut String, described: &Described, outcome: &Outcome) {
        self.try_write(out, described, outcome).expect("a String takes every write");
    }

    fn try_write(
        &self,
        out: &mut String,
        described: &Described,
        outcome: &Outcome,
    ) -> std::fmt::Result {
        out.push('{');
        match (&outcome.result, outcome.choice) {
            (Ok(landed), Some(choice)) => {
                let About { cluster_id, topic } = self;
                write!(
                    out,
                    "\"error_code\":200,\"cluster_id\":{cluster_id},\"topic_name\":{topic}"
                )?;
                write!(out, ",\"partition_id\":{},\"offset\":{}", choice.partition, landed.offset)?;
                if let Some(broker) = choice.broker {
                    write!(out, ",\"broker\":{broker}")?;
                }
                let ms = landed.appended_ms.or(described.timestamp_ms);
                if let Some(time) = ms.and_then(|ms| Timestamp::from_millisecond(ms).ok()) {
                    write!(out, ",\"timestamp\":\"{time}\"")?;
                }
                write_part(out, "key", described.key)?;
                write_part(out, "value", described.value)?;
            }
            (Ok(_), None) => unreachable!("a record with an offset is in a partition"),
            (Err(error), _) => write_error(out, error)?,
        }
        out.push_str("}\n");
        Ok(())
    }
}

fn write_part(out: &mut String, name: &str, part: Option<(Type, usize)>) -> std::fmt::Result {
    match part {
        Some((kind, size)) => {
            write!(out, ",\"{name}\":{{\"type\":\"{}\",\"size\":{size}}}", kind.name())
        }
        None => Ok(()),
    }
}

impl Reports {
    pub(super) fn new(about: About, received_ms: i64) -> Reports {
        Reports { about, received_ms, described: OnceLock::new() }
    }

    /// These are the records. Read twice, they are the same.
    pub(super) fn describe(&self, described: impl Iterator<Item = Described>) {
        self.described.get_or_init(|| described.collect());
    }

    /// A line for each record. `received_ms`: timestamp of records that have none, in milliseconds since 1970: of
    /// this request, or of the first one with its key.
    pub(in crate::produce) fn written(&self, outcomes: &[Outcome], received_ms: i64) -> String {
        let mut out = String::with_capacity(256 * outcomes.len());
        let described = self.described.get().map(Vec::as_slice).unwrap_or_default();
        for (described, outcome) in described.iter().zip(outcomes) {
            let timestamp_ms = described.timestamp_ms.or(Some(received_ms));
            self.about.write(&mut out, &Described { timestamp_ms, ..*described }, outcome);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use serving::choice::Choice;
    use serving::error::{ApiError, Kind};

    use super::super::super::sending::Landed;
    use super::*;

    #[test]
    fn a_report_says_where_the_record_is_and_what_it_had() {
        let about = About::new("\"id\"", "t");
        let described = Described {
            key: Some((Type::Binary, 7)),
            value: None,
            timestamp_ms: Some(1_700_000_000_250),
        };
        let choice = Some(Choice { partition: 2, broker: None });
        let report = |result| -> Value {
            let mut out = String::new();
            about.write(&mut out, &described, &Outcome { choice, result });
            assert!(out.ends_with("}\n"));
            serde_json::from_str(&out).unwrap()
        };
        let mut expected = json!({"error_code": 200, "cluster_id": "\"id\"", "topic_name": "t",
            "partition_id": 2, "offset": 5, "timestamp": "2023-11-14T22:13:20.25Z",
            "key": {"type": "BINARY", "size": 7}});
        assert_eq!(report(Ok(Landed { offset: 5, appended_ms: None })), expected);
        expected["timestamp"] = json!("1970-01-01T00:00:00Z");
        let appended = report(Ok(Landed { offset: 5, appended_ms: Some(0) }));
        assert_eq!(appended, expected, "the broker's time is the record's");
        let lost = report(Err(ApiError::new(Kind::Undecided, "words")));
        let expected = json!({"error_code": 50401, "message": "words", "written": "unknown",
            "retriable": true});
        assert_eq!(lost, expected);
    }
}
