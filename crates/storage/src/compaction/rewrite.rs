//! Which records of a batch stay, and the batch that is left of them.
//!
//! A batch keeps its offsets, sequences, producer and leader epoch whatever goes from it; followers
//! and producers cannot tell. Not here: which batches are read, and where they are written.

use model::batch::{self, HEADER_BYTES};
use model::record::{Record, Records};
use model::varint::{read_i32, read_i64, size_i64, write_i32, write_i64};
use model::{BatchHeader, Offset, Timestamp, TimestampType};

const DELETE_HORIZON: i16 = 0x40;
const CODEC: i16 = 0x07;

/// What is to become of a batch as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Treatment {
    /// All its records go: an aborted transaction's, or a marker whose time has come.
    pub(super) discard_records: bool,
    /// It is a marker of a transaction without records: its time begins to run.
    pub(super) is_empty_marker: bool,
    /// It stays even without records.
    pub(super) keep_empty: bool,
}

/// What was left of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing.
    Nothing,
    /// All of it, unchanged.
    Unchanged,
    /// A new batch stands in the buffer.
    Rewritten,
}

/// The times that decide over tombstones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) now: Timestamp,
    pub(super) delete_retention_ms: i64,
}

/// Rewrites batches; holds the buffers, so that it allocates little.
#[derive(Default)]
pub(super) struct Rewriter {
    /// The records that stay, encoded.
    records: Vec<u8>,
    compressed: Vec<u8>,
    /// The new batch, after [`Left::Rewritten`].
    pub(super) batch: Vec<u8>,
    /// Records that the last batch kept.
    pub(super) kept: i32,
}

/// A record that stays: where its bytes are, and its timestamp.
struct Kept<'a> {
    bytes: &'a [u8],
    timestamp: Timestamp,
}

impl Rewriter {
    /// Decides over every record of a batch, whose uncompressed records are `payload`. `is_latest`
    /// says whether a record is the last of its key as far as is known.
    pub(super) fn rewrite(
        &mut self,
        header: &BatchHeader,
        payload: &[u8],
        treatment: Treatment,
        clock: Clock,
        mut is_latest: impl FnMut(Offset, &Record<'_>) -> bool,
    ) -> Result<Left, model::BatchError> {
        let mut kept = Vec::new();
        let mut has_tombstones = false;
        let due = header.delete_horizon().is_some_and(|horizon| clock.now >= horizon);
        let mut records = Records::new(payload, header.record_count);
        loop {
            let from = payload.len() - records.remaining_bytes();
            let Some(record) = records.next() else { break };
            let record = record?;
            let offset = header.base_offset.plus(record.offset_delta as i64);
            let tombstone = record.value.is_none() && !header.is_control();
            let stays = !treatment.discard_records
                && (header.is_control() || (is_latest(offset, &record) && !(tombstone && due)));
            if stays {
                has_tombstones |= tombstone;
                let bytes = &payload[from..payload.len() - records.remaining_bytes()];
                let timestamp = header.base_timestamp.plus_ms(record.timestamp_delta);
                kept.push(Kept { bytes, timestamp });
            }
        }
        self.kept = kept.len() as i32;
        let starts_horizon = (has_tombstones || treatment.is_empty_marker)
            && !kept.is_empty()
            && header.delete_horizon().is_none();
        if kept.is_empty() {
            return Ok(self.without_records(header, treatment));
        }
        if self.kept == header.record_count && !starts_horizon {
            return Ok(Left::Unchanged);
        }
        let horizon = starts_horizon.then(|| clock.now.plus_ms(clock.delete_retention_ms));
        self.build(header, &kept, horizon)?;
        Ok(Left::Rewritten)
    }

    fn without_records(&mut self, header: &BatchHeader, treatment: Treatment) -> Left {
        if !treatment.keep_empty {
            return Left::Nothing;
        }
        if header.record_count == 0 {
            return Left::Unchanged;
        }
        let empty = BatchHeader {
            size_bytes: HEADER_BYTES as u32,
            attributes: header.attributes & !(CODEC | DELETE_HORIZON),
            base_timestamp: Timestamp::NONE,
            record_count: 0,
            ..*header
        };
        self.batch.clear();
        self.batch.resize(HEADER_BYTES, 0);
        self.finish(&empty);
        Left::Rewritten
    }

    fn build(
        &mut self,
        header: &BatchHeader,
        kept: &[Kept<'_>],
        horizon: Option<Timestamp>,
    ) -> Result<(), model::BatchError> {
        let base_timestamp = horizon.unwrap_or(header.base_timestamp);
        self.records.clear();
        for (index, record) in kept.iter().enumerate() {
            match horizon {
                None => self.records.extend_from_slice(record.bytes),
                Some(base) => {
                    let delta = record.timestamp.ms_since(base);
                    redate(record.bytes, delta, &mut self.records).ok_or(
                        model::BatchError::Record { index: index as i32, reason: "it is cut" },
                    )?;
                }
            }
        }
        self.batch.clear();
        self.batch.resize(HEADER_BYTES, 0);
        match header.compression() {
            model::Compression::None => self.batch.extend_from_slice(&self.records),
            codec => {
                compression::compress(codec, None, &self.records, &mut self.compressed);
                self.batch.extend_from_slice(&self.compressed);
            }
        }
        let newest = kept.iter().map(|record| record.timestamp).max();
        let rewritten = BatchHeader {
            size_bytes: self.batch.len() as u32,
            attributes: header.attributes | if horizon.is_some() { DELETE_HORIZON } else { 0 },
            base_timestamp,
            max_timestamp: match header.timestamp_type() {
                TimestampType::CreateTime => newest.unwrap_or(header.max_timestamp),
                TimestampType::LogAppendTime => header.max_timestamp,
            },
            record_count: kept.len() as i32,
            ..*header
        };
        self.finish(&rewritten);
        Ok(())
    }

    fn finish(&mut self, header: &BatchHeader) {
        header.encode(&mut self.batch);
        batch::write_checksum(&mut self.batch);
    }
}

/// Copies an encoded record with another timestamp delta. `None`: the bytes are no record.
fn redate(record: &[u8], delta: i64, out: &mut Vec<u8>) -> Option<()> {
    let (length, used) = read_i32(record).ok()?;
    let body = record.get(used..)?;
    let (old, old_bytes) = read_i64(body.get(1..)?).ok()?;
    let length = length as i64 - size_i64(old) as i64 + size_i64(delta) as i64;
    write_i32(out, i32::try_from(length).ok()?);
    out.push(body[0]);
    write_i64(out, delta);
    out.extend_from_slice(&body[1 + old_bytes..]);
    Some(())
}
