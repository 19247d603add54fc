//! Records as REST proxies write them, and as many of them as an answer may have.

use std::fmt::Write;
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
    count: usize,
    text: String,
}

impl Page {
    /// An empty one, with room for this many records and bytes of keys and values; one record finds room in any case.
    pub(crate) fn new(embedded: Embedded, records_max: usize, bytes_max: usize) -> Page {
        Page {
            embedded,
            records_left: records_max,
            bytes_left: bytes_max,
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
        let before = self.text.len();
        if self.count > 0 {
            self.text.push(',');
        }
        if let Err(why) = write_record(&mut self.text, self.embedded, partition, record) {
            self.text.truncate(before);
            let words = format!("{partition}, offset {}: {why}", record.offset);
            return Err(ApiError::new(Kind::NotAcceptable, words));
        }
        self.count += 1;
        self.records_left -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(size_bytes);
        Ok(ControlFlow::Continue(()))
    }
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
            out.push_str(&text(bytes));
        }
        Embedded::Binary => {
            out.push('"');
            STANDARD.encode_string(bytes, out);
            out.push('"');
        }
    }
    Ok(())
}
