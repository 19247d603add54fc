//! Records as REST proxies write them, and as many of them as an answer may have.

use std::fmt::Write;
use std::io;
use std::ops::ControlFlow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{ConsumerRecord, Fetched};
use model::{Offset, TopicPartition};
use serde_json::value::RawValue;
use serving::error::{ApiError, Kind};

use crate::answer::text;
use crate::produce::of_refusal;
use crate::request::Embedded;

/// Bytes that a batch may expand to.
const EXPANDED_BYTES_MAX: usize = 64 << 20;

/// Records of one answer: a JSON list.
pub(crate) struct Page {
    embedded: Embedded,
    records_left: usize,
    bytes_left: usize,
    text_bytes_max: usize,
    count: usize,
    text: String,
}

/// Why a record is not on a page.
enum NotWritten {
    /// It cannot be written in this form.
    Form(&'static str),
    /// The text would have so many bytes.
    Size(usize),
}

impl Page {
    /// An empty one, with room for this many records and bytes of keys and values; one record finds room in any case, unless
    /// the text would have more than `text_bytes_max`.
    pub(crate) fn new(
        embedded: Embedded,
        records_max: usize,
        bytes_max: usize,
        text_bytes_max: usize,
    ) -> Page {
        Page {
            embedded,
            records_left: records_max,
            bytes_left: bytes_max,
            text_bytes_max,
            count: 0,
            text: "[".to_owned(),
        }
    }

    /// Whether there is no record.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The text of the list.
    pub(crate) fn finish(mut self) -> String {
        self.text.push(']');
        self.text
    }

    /// Takes records, as many as there is room for; tells the offset at which to read on. A record that cannot be
    /// written ends the page before it.
    ///
    /// # Errors
    /// The first record cannot be written in this form, or a batch is damaged.
    pub(crate) fn take(&mut self, fetched: &Fetched) -> Result<Offset, ApiError> {
        let (mut buffer, mut failed) = (Vec::new(), None);
        let next = fetched.read(EXPANDED_BYTES_MAX, &mut buffer, |record| {
            match self.add(&fetched.partition, &record) {
                Ok(taken) => taken,
                Err(error) => {
                    failed = Some(error).filter(|_| self.is_empty());
                    ControlFlow::Break(())
                }
            }
        });
        match (failed, next) {
            (Some(error), _) => Err(error),
            (None, Ok(next)) => Ok(next),
            (None, Err(error)) => Err(of_refusal(&error)),
        }
    }

    fn add(
        &mut self,
        partition: &TopicPartition,
        record: &ConsumerRecord<'_>,
    ) -> Result<ControlFlow<()>, ApiError> {
        let size_bytes = size_bytes(record);
        let fits = self.records_left > 0 && (size_bytes <= self.bytes_left || self.is_empty());
        if !fits {
            return Ok(ControlFlow::Break(()));
        }
        if let Err(why) = self.write(partition, record) {
            let place = format!("{partition}, offset {}", record.offset);
            return match why {
                NotWritten::Form(why) => {
                    let behind = record.offset.0 + 1;
                    let words = format!(
                        "{place}: {why}; read it in another form, or continue behind it at offset {behind}"
                    );
                    Err(ApiError::new(Kind::NotAcceptable, words))
                }
                NotWritten::Size(_) if !self.is_empty() => Ok(ControlFlow::Break(())),
                NotWritten::Size(bytes) => {
                    let words = format!(
                        "{place}: the record takes {bytes} bytes in this form, and the gateway has memory for {}",
                        self.text_bytes_max
                    );
                    Err(ApiError::new(Kind::Full, words))
                }
            };
        }
        self.count += 1;
        self.records_left -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(size_bytes);
        Ok(ControlFlow::Continue(()))
    }

    /// Adds the text of a record, or nothing.
    fn write(
        &mut self,
        partition: &TopicPartition,
        record: &ConsumerRecord<'_>,
    ) -> Result<(), NotWritten> {
        // Escapes make a record six times as large, and a batch expands: known before any of it is written.
        let bytes = self.text.len() + text_bytes(self.embedded, record);
        if bytes > self.text_bytes_max {
            return Err(NotWritten::Size(bytes));
        }
        let before = self.text.len();
        self.text.reserve(bytes - before);
        if self.count > 0 {
            self.text.push(',');
        }
        write_record(&mut self.text, self.embedded, partition, record).map_err(|why| {
            self.text.truncate(before);
            NotWritten::Form(why)
        })
    }
}

/// Bytes of the text of keys, values and headers.
fn text_bytes(embedded: Embedded, record: &ConsumerRecord<'_>) -> usize {
    let of = |embedded, bytes: Option<&[u8]>| {
        let bytes = bytes.unwrap_or_default();
        match embedded {
            Embedded::Json => bytes.len(),
            Embedded::Binary => bytes.len().div_ceil(3) * 4,
            Embedded::Text => escaped_bytes(bytes),
        }
    };
    let headers = record
        .headers()
        .map(|(name, value)| escaped_bytes(name.as_bytes()) + of(Embedded::Binary, value));
    of(embedded, record.key) + of(embedded, record.value) + headers.sum::<usize>()
}

/// Bytes of a text in JSON.
fn escaped_bytes(text: &[u8]) -> usize {
    let of = |byte: &u8| match byte {
        b'"' | b'\\' | 8..=10 | 12..=13 => 2,
        0..=31 => 6,
        _ => 1,
    };
    text.iter().map(of).sum()
}

fn size_bytes(record: &ConsumerRecord<'_>) -> usize {
    let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    let headers = record.headers().map(|(name, value)| name.len() + length(value));
    length(record.key) + length(record.value) + headers.sum::<usize>()
}

/// Writes a record; the error says what of it cannot be written.
fn write_record(
    out: &mut String,
    embedded: Embedded,
    partition: &TopicPartition,
    record: &ConsumerRecord<'_>,
) -> Result<(), &'static str> {
    let (topic, index) = (text(&partition.topic), partition.partition);
    let _ = write!(out, "{{\"topic\":{topic},\"key\":");
    write_bytes(out, embedded, record.key)?;
    out.push_str(",\"value\":");
    write_bytes(out, embedded, record.value)?;
    let (offset, timestamp) = (record.offset, record.timestamp.0);
    let _ = write!(out, ",\"partition\":{index},\"offset\":{offset},\"timestamp\":{timestamp}");
    let mut separator = ",\"headers\":[";
    let mut end = "";
    for (name, value) in record.headers() {
        let _ = write!(out, "{separator}{{\"key\":{},\"value\":", text(name));
        write_bytes(out, Embedded::Binary, value)?;
        out.push('}');
        (separator, end) = (",", "]");
    }
    out.push_str(end);
    out.push('}');
    Ok(())
}

/// Takes what serde writes, which are texts one by one.
struct Fragments<'a>(&'a mut String);

impl io::Write for Fragments<'_> {
    fn write(&mut self, fragment: &[u8]) -> io::Result<usize> {
        self.0.push_str(std::str::from_utf8(fragment).map_err(io::Error::other)?);
        Ok(fragment.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a JSON string: a value may have many bytes, so there is no copy of it in between.
fn write_text(out: &mut String, text: &str) {
    serde_json::to_writer(Fragments(out), text).expect("a String takes every write");
}

fn write_bytes(
    out: &mut String,
    embedded: Embedded,
    bytes: Option<&[u8]>,
) -> Result<(), &'static str> {
    let Some(bytes) = bytes else {
        out.push_str("null");
        return Ok(());
    };
    match embedded {
        Embedded::Json => {
            let json: &RawValue = serde_json::from_slice(bytes)
                .map_err(|_| "key or value is not JSON: read it as binary or text")?;
            out.push_str(json.get());
        }
        Embedded::Text => {
            let bytes = std::str::from_utf8(bytes)
                .map_err(|_| "key or value is not UTF-8: read it as binary")?;
            write_text(out, bytes);
        }
        Embedded::Binary => {
            out.push('"');
            STANDARD.encode_string(bytes, out);
            out.push('"');
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_text_takes_is_known_before_it_is_written() {
        let all: String = (0..=0x2ff).filter_map(char::from_u32).collect();
        for value in ["", "a", "ab", "\u{1}\u{1f}\u{7f}\\\"\n\r\t\u{8}\u{c}", "é€😀", &all] {
            let mut out = "[".to_owned();
            write_text(&mut out, value);
            assert_eq!(out[1..], text(value));
            assert_eq!(out.len() - 3, escaped_bytes(value.as_bytes()), "{value:?}");
        }
    }
}
