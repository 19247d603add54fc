//! A record on its way into a batch, and how large it may become there.

use super::Shared;
use crate::error::ClientError;
use model::Timestamp;
use model::batch::HEADER_BYTES;
use model::record::Header;
use model::varint::size_i64;
use std::sync::atomic::Ordering;

/// A record to be produced.
#[derive(Debug, Clone, Copy, Default)]
pub struct Record<'a> {
    /// The key, or null.
    pub key: Option<&'a [u8]>,
    /// The value, or null: a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: &'a [Header<'a>],
    /// When it happened; `None`: the time of sending.
    pub timestamp: Option<Timestamp>,
    /// Where it goes; `None` to go by its key, or wherever it suits.
    pub partition: Option<i32>,
    /// A number of the caller's, which comes back in [`BatchReport::tags`](super::BatchReport). Not
    /// sent.
    pub tag: u64,
}

impl<'a> Record<'a> {
    /// A record with a value only.
    pub fn value(value: &'a [u8]) -> Record<'a> {
        Record { value: Some(value), ..Record::default() }
    }

    /// A record with a key and a value.
    pub fn keyed(key: &'a [u8], value: &'a [u8]) -> Record<'a> {
        Record { key: Some(key), value: Some(value), ..Record::default() }
    }

    /// Bytes that it takes in a batch at most, by Kafka's own estimate: 21 for length, attributes,
    /// timestamp and offset, then key, value and headers exactly.
    pub(super) fn size_bytes_max(&self) -> usize {
        let sized = |bytes: Option<&[u8]>| {
            bytes.map_or(1, |bytes| size_i64(bytes.len() as i64) + bytes.len())
        };
        let headers: usize =
            self.headers.iter().map(|(name, v)| sized(Some(name.as_bytes())) + sized(*v)).sum();
        let count = size_i64(self.headers.len() as i64);
        21 + sized(self.key) + sized(self.value) + count + headers
    }
}

/// Refuses what can never be sent; the record's size in bytes at most.
#[inline]
pub(super) fn check(shared: &Shared, record: &Record<'_>) -> Result<usize, ClientError> {
    let size_bytes = record.size_bytes_max();
    let limit_bytes = shared.config.request_bytes_max;
    if HEADER_BYTES + size_bytes > limit_bytes {
        let error = ClientError::RecordTooLarge { size_bytes, limit_bytes };
        shared.fail_transaction(&error);
        return Err(error);
    }
    if shared.shut.load(Ordering::Acquire) != 0 {
        return Err(shared.refusal());
    }
    Ok(size_bytes)
}
