//! Which records of a batch stay, and the batch that is left of them.
//!
//! A batch keeps its offsets, sequences, producer and leader epoch whatever goes from it; followers
//! and producers cannot tell. Not here: which batches are read, and where they are written.

use compression::Encoder;
use compression::records::{RecordStream, RecordsError};
use model::batch::{self, HEADER_BYTES};
use model::varint::{read_i32, read_i64, size_i64, write_i32, write_i64};
use model::{BatchError, BatchHeader, Offset, Timestamp, TimestampType};

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
    /// A window of the records.
    window: Vec<u8>,
    /// A record with another timestamp.
    redated: Vec<u8>,
    /// The new batch, after [`Left::Rewritten`].
    pub(super) batch: Vec<u8>,
    /// Records that the last batch kept.
    pub(super) kept: i32,
}

/// What decides over the records of one batch.
struct Rule<'a, F> {
    header: &'a BatchHeader,
    discards: bool,
    /// Whether the time of tombstones has come.
    due: bool,
    is_latest: F,
}

impl<F: Fn(Offset, Option<&[u8]>) -> bool> Rule<'_, F> {
    fn keeps(&self, offset_delta: i32, key: Option<&[u8]>, has_value: bool) -> bool {
        let offset = self.header.base_offset.plus(i64::from(offset_delta));
        !self.discards
            && (self.header.is_control()
                || ((self.is_latest)(offset, key) && (has_value || !self.due)))
    }
}

/// What a first walk over a batch found.
struct Survey {
    kept: i32,
    has_tombstones: bool,
    /// The largest timestamp of the records that stay.
    newest: Option<Timestamp>,
}

impl Rewriter {
    /// Decides over every record of a whole batch. `is_latest` says whether the record at an offset
    /// with a key is the last of that key as far as is known. The batch is walked once, and again if
    /// it has to be rewritten: no more than one record is in memory uncompressed.
    pub(super) fn rewrite(
        &mut self,
        header: &BatchHeader,
        batch: &[u8],
        treatment: Treatment,
        clock: Clock,
        is_latest: impl Fn(Offset, Option<&[u8]>) -> bool,
    ) -> Result<Left, RecordsError> {
        let due = header.delete_horizon().is_some_and(|horizon| clock.now >= horizon);
        let rule = Rule { header, discards: treatment.discard_records, due, is_latest };
        let survey = self.survey(batch, &rule)?;
        self.kept = survey.kept;
        let starts_horizon = (survey.has_tombstones || treatment.is_empty_marker)
            && survey.kept > 0
            && header.delete_horizon().is_none();
        if survey.kept == 0 {
            return Ok(self.without_records(header, treatment));
        }
        if self.kept == header.record_count && !starts_horizon {
            return Ok(Left::Unchanged);
        }
        let horizon = starts_horizon.then(|| clock.now.plus_ms(clock.delete_retention_ms));
        self.build(batch, &rule, &survey, horizon)?;
        Ok(Left::Rewritten)
    }

    fn survey(
        &mut self,
        batch: &[u8],
        rule: &Rule<'_, impl Fn(Offset, Option<&[u8]>) -> bool>,
    ) -> Result<Survey, RecordsError> {
        let mut survey = Survey { kept: 0, has_tombstones: false, newest: None };
        // All of them go: what they are does not matter.
        if rule.discards {
            return Ok(survey);
        }
        let mut records = RecordStream::new(rule.header, batch, u64::MAX, &mut self.window);
        while let Some(read) = records.next_key() {
            let (head, key) = read?;
            if rule.keeps(head.offset_delta, key, head.has_value) {
                survey.kept += 1;
                survey.has_tombstones |= !head.has_value && !rule.header.is_control();
                let timestamp = rule.header.base_timestamp.plus_ms(head.timestamp_delta);
                survey.newest = survey.newest.max(Some(timestamp));
            }
        }
        Ok(survey)
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
        batch: &[u8],
        rule: &Rule<'_, impl Fn(Offset, Option<&[u8]>) -> bool>,
        survey: &Survey,
        horizon: Option<Timestamp>,
    ) -> Result<(), RecordsError> {
        let header = rule.header;
        let mut out = std::mem::take(&mut self.batch);
        out.clear();
        out.resize(HEADER_BYTES, 0);
        let mut encoder = Encoder::new(header.compression(), None, out);
        let mut records = RecordStream::new(header, batch, u64::MAX, &mut self.window);
        while let Some(read) = records.next_whole() {
            let (record, bytes) = read?;
            if !rule.keeps(record.offset_delta, record.key, record.value.is_some()) {
                continue;
            }
            match horizon {
                None => encoder.write(bytes),
                Some(base) => {
                    let timestamp = header.base_timestamp.plus_ms(record.timestamp_delta);
                    self.redated.clear();
                    redate(bytes, timestamp.ms_since(base), &mut self.redated).ok_or(
                        BatchError::Record { index: record.offset_delta, reason: "it is cut" },
                    )?;
                    encoder.write(&self.redated);
                }
            }
        }
        drop(records);
        self.batch = encoder.finish();
        let rewritten = BatchHeader {
            size_bytes: self.batch.len() as u32,
            attributes: header.attributes | if horizon.is_some() { DELETE_HORIZON } else { 0 },
            base_timestamp: horizon.unwrap_or(header.base_timestamp),
            max_timestamp: match header.timestamp_type() {
                TimestampType::CreateTime => survey.newest.unwrap_or(header.max_timestamp),
                TimestampType::LogAppendTime => header.max_timestamp,
            },
            record_count: survey.kept,
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
