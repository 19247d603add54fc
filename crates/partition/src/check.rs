//! What a produced batch must be before it may be appended. Pure: bytes and rules in, verdict out;
//! called before the partition's lock is taken.
//!
//! Compressed records are looked into only where a rule needs it (keys of compacted topics); Kafka
//! decompresses all of them.

use model::batch::HEADER_BYTES;
use model::record::Records;
use model::{
    BatchError, BatchHeader, Compression, Offset, ProducerId, Sequence, Timestamp, TimestampType,
};

use crate::settings::Settings;

/// One record that was refused, as KIP-467 reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// Which record of the batch, from 0.
    pub index: i32,
    /// Why, in words for the producer's log.
    pub message: String,
}

/// Why a well-formed batch is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// More bytes than `max.message.bytes`.
    #[error("the batch of {size_bytes} bytes exceeds max.message.bytes of {max}")]
    TooLarge {
        /// The batch's.
        size_bytes: u32,
        /// The topic's.
        max: u32,
    },
    /// More bytes than `segment.bytes`.
    #[error("the batch of {size_bytes} bytes exceeds segment.bytes of {max}")]
    LargerThanSegment {
        /// The batch's.
        size_bytes: u32,
        /// The topic's.
        max: u32,
    },
    /// Something that a producer may not send.
    #[error("{0}")]
    Invalid(String),
    /// Records without a key in a compacted topic.
    #[error("compacted topics need a key in every record")]
    NoKey(Vec<RecordError>),
    /// A timestamp outside of what the topic takes.
    #[error("a timestamp is out of the range that the topic accepts")]
    Timestamp(Vec<RecordError>),
}

/// A batch that may be appended, and how it is to be stored.
#[derive(Clone, Copy, Debug)]
pub struct CheckedBatch {
    /// Its header.
    pub header: BatchHeader,
}

/// Checks the one batch that a produce request carries for a partition.
///
/// Errors: [`BatchError`] for bytes that are no batch, [`Refusal`] for what the topic does not take.
pub fn check(
    records: &[u8],
    settings: &Settings,
    now: Timestamp,
) -> Result<CheckedBatch, crate::PartitionError> {
    let header = one_batch(records)?;
    check_size(&header, settings)?;
    check_producer_fields(&header)?;
    if header.compression() == Compression::None {
        check_records(
            &header,
            Records::new(&records[HEADER_BYTES..], header.record_count),
            settings,
            now,
        )?;
    } else {
        check_compressed(&header, records, settings, now)?;
    }
    Ok(CheckedBatch { header })
}

fn one_batch(records: &[u8]) -> Result<BatchHeader, crate::PartitionError> {
    if records.is_empty() {
        return Err(invalid("a produce request carries exactly one batch a partition, not none"));
    }
    let header = BatchHeader::decode_checked(records)?;
    if header.size_bytes as usize != records.len() {
        return Err(invalid("a produce request carries exactly one batch a partition"));
    }
    Ok(header)
}

fn invalid(reason: impl Into<String>) -> crate::PartitionError {
    Refusal::Invalid(reason.into()).into()
}

/// Whether the batch is small enough, as it came and again as it is stored.
pub(crate) fn check_size(header: &BatchHeader, settings: &Settings) -> Result<(), Refusal> {
    let size_bytes = header.size_bytes;
    let max = settings.log.max_message_bytes;
    if size_bytes > max {
        return Err(Refusal::TooLarge { size_bytes, max });
    }
    let max = settings.log.segment_bytes;
    if size_bytes > max {
        return Err(Refusal::LargerThanSegment { size_bytes, max });
    }
    Ok(())
}

fn check_producer_fields(header: &BatchHeader) -> Result<(), crate::PartitionError> {
    if header.base_offset != Offset(0) {
        return Err(invalid(format!(
            "the base offset of a sent batch is 0, not {}",
            header.base_offset
        )));
    }
    if header.record_count < 1 || header.record_count != header.last_offset_delta + 1 {
        return Err(BatchError::Count {
            count: header.record_count,
            last_offset_delta: header.last_offset_delta,
        }
        .into());
    }
    if header.is_control() {
        return Err(invalid("clients may not write control batches"));
    }
    if header.producer_id != ProducerId::NONE
        && (header.base_sequence < Sequence(0) || header.producer_epoch.0 < 0)
    {
        return Err(invalid(
            "an idempotent batch needs a sequence and an epoch that are not negative",
        ));
    }
    if header.is_transactional() {
        return Err(invalid("transactions are not served"));
    }
    Ok(())
}

fn check_compressed(
    header: &BatchHeader,
    records: &[u8],
    settings: &Settings,
    now: Timestamp,
) -> Result<(), crate::PartitionError> {
    if !settings.log.cleanup.compact {
        return check_max_timestamp(header, settings, now).map_err(Into::into);
    }
    let mut uncompressed = Vec::new();
    let cap = crate::recompress::expanded_bytes_max(settings);
    compression::decompress(header.compression(), &records[HEADER_BYTES..], cap, &mut uncompressed)
        .map_err(|error| invalid(error.to_string()))?;
    check_records(header, Records::new(&uncompressed, header.record_count), settings, now)
}

/// Whether every timestamp is accepted anyway.
fn takes_any_timestamp(settings: &Settings) -> bool {
    settings.timestamp_type == TimestampType::LogAppendTime
}

fn check_max_timestamp(
    header: &BatchHeader,
    settings: &Settings,
    now: Timestamp,
) -> Result<(), Refusal> {
    if takes_any_timestamp(settings) || in_range(header.max_timestamp, settings, now) {
        return Ok(());
    }
    Err(Refusal::Timestamp(vec![timestamp_error(0, header.max_timestamp, settings, now)]))
}

fn in_range(timestamp: Timestamp, settings: &Settings, now: Timestamp) -> bool {
    timestamp == Timestamp::NONE
        || (timestamp.ms_since(now) <= settings.timestamp_after_max_ms
            && now.ms_since(timestamp) <= settings.timestamp_before_max_ms)
}

fn timestamp_error(
    index: i32,
    timestamp: Timestamp,
    settings: &Settings,
    now: Timestamp,
) -> RecordError {
    let message = format!(
        "timestamp {timestamp} is out of range: the broker's time is {now}, and records may be {} ms \
         older and {} ms newer",
        settings.timestamp_before_max_ms, settings.timestamp_after_max_ms
    );
    RecordError { index, message }
}

/// Walks the records: every one well-formed, offsets 0, 1, 2…, none too many or too few.
fn check_records(
    header: &BatchHeader,
    mut records: Records<'_>,
    settings: &Settings,
    now: Timestamp,
) -> Result<(), crate::PartitionError> {
    let needs_key = settings.log.cleanup.compact;
    let any_timestamp = takes_any_timestamp(settings);
    let (mut no_key, mut bad_time) = (Vec::new(), Vec::new());
    for index in 0..header.record_count {
        let record = records.next().expect("the count bounds the walk")?;
        if record.offset_delta != index {
            return Err(
                BatchError::Record { index, reason: "its offset is not the next one" }.into()
            );
        }
        if needs_key && record.key.is_none() {
            let message = "compacted topics accept no record without a key".to_owned();
            no_key.push(RecordError { index, message });
        }
        let timestamp = header.base_timestamp.plus_ms(record.timestamp_delta);
        if !any_timestamp && !in_range(timestamp, settings, now) {
            bad_time.push(timestamp_error(index, timestamp, settings, now));
        }
    }
    if records.remaining_bytes() > 0 {
        return Err(invalid("bytes follow the last record of the batch"));
    }
    if !no_key.is_empty() {
        return Err(Refusal::NoKey(no_key).into());
    }
    if !bad_time.is_empty() {
        return Err(Refusal::Timestamp(bad_time).into());
    }
    Ok(())
}
