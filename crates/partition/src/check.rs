//! What a produced batch must be before it may be appended. Pure: bytes and rules in, verdict out;
//! called before the partition's lock is taken.
//!
//! The records themselves are walked in `walk.rs`. Those of a compressed batch are left alone with
//! `records.validation=header`, unless a rule of the topic needs them: keys, or another codec.

use model::batch::HEADER_BYTES;
use model::{
    BatchError, BatchHeader, Compression, Offset, ProducerId, Sequence, Timestamp, TimestampType,
    Validation,
};

use crate::PartitionError;
use crate::recompress;
use crate::settings::Settings;
use crate::walk::Walker;

/// One record that was refused, as KIP-467 reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// Which record of the batch, from 0.
    pub index: i32,
    /// Why, in words for the producer's log; the first few have them.
    pub message: Option<String>,
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
    /// More bytes of records than `records.expanded.max.bytes`.
    #[error(
        "the records of the batch expand to more than {max} bytes: send smaller batches, or raise \
         records.expanded.max.bytes"
    )]
    Expands {
        /// How many they may expand to.
        max: usize,
    },
    /// Records without a key in a compacted topic.
    #[error("compacted topics need a key in every record")]
    NoKey(Vec<RecordError>),
    /// A timestamp outside of what the topic takes.
    #[error("a timestamp is out of the range that the topic accepts")]
    Timestamp(Vec<RecordError>),
}

/// How long a check may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Well below a millisecond: for a thread that others wait for.
    Brief,
    /// As long as the batch needs.
    Whole,
}

/// A compressed batch of more bytes than this is no brief effort.
const BRIEF_BYTES_MAX: usize = 64 << 10;
/// Nor is one that expands to more bytes than this.
const BRIEF_EXPANDED_BYTES_MAX: usize = 1 << 20;

/// A batch that may be appended, and how it is to be stored.
#[derive(Clone, Debug)]
pub struct CheckedBatch {
    /// Its header as it is to be stored.
    pub header: BatchHeader,
    /// Whether that header is another than the one that was sent.
    pub is_corrected: bool,
    /// Its records, if they were decompressed as a whole because the topic wants another codec.
    pub expanded: Option<Vec<u8>>,
}

/// Checks the one batch that a produce request carries for a partition. `None`: that takes more than
/// `effort`.
///
/// Errors: [`BatchError`] for bytes that are not a batch, [`Refusal`] for what the topic does not take.
pub fn check(
    records: &[u8],
    settings: &Settings,
    now: Timestamp,
    effort: Effort,
) -> Result<Option<CheckedBatch>, PartitionError> {
    let header = one_batch(records)?;
    check_size(&header, settings)?;
    check_producer_fields(&header)?;
    check_timestamp_type(&header, settings)?;
    let walker = Walker::new(&header, settings, now);
    let expands = recompress::wanted(&header, settings).is_some();
    let mut expanded = None;
    let max_timestamp = if header.compression() == Compression::None {
        walker.uncompressed(&records[HEADER_BYTES..])?
    } else if !expands && is_header_enough(settings) {
        check_max_timestamp(&header, settings, now)?;
        header.max_timestamp
    } else {
        let brief = effort == Effort::Brief;
        if brief && records.len() > BRIEF_BYTES_MAX {
            return Ok(None);
        }
        let bytes_max = settings.expanded_bytes_max;
        let bytes_now = if brief { bytes_max.min(BRIEF_EXPANDED_BYTES_MAX) } else { bytes_max };
        let walked = match expands {
            true => walker.expanded(records, bytes_now, expanded.insert(Vec::new())),
            false => walker.compressed(records, bytes_now),
        };
        match walked {
            Err(PartitionError::Refused(Refusal::Expands { .. })) if bytes_now < bytes_max => {
                return Ok(None);
            }
            walked => walked?,
        }
    };
    Ok(Some(corrected(header, max_timestamp, settings, expanded)))
}

/// Whether a compressed batch is taken by its header.
fn is_header_enough(settings: &Settings) -> bool {
    settings.validation == Validation::Header && !settings.log.cleanup.compact
}

/// What a producer says of its batch and does not decide is made true, as Kafka does: the largest
/// timestamp is that of the records, and the timestamp type is the topic's. A delete horizon, which
/// Kafka leaves standing, would let the cleaner drop a tombstone before a reader saw it.
fn corrected(
    sent: BatchHeader,
    max_timestamp: Timestamp,
    settings: &Settings,
    expanded: Option<Vec<u8>>,
) -> CheckedBatch {
    let mut header = sent;
    // With LogAppendTime both are stamped when the batch is appended.
    if settings.timestamp_type == TimestampType::CreateTime {
        header.max_timestamp = max_timestamp;
        if sent.timestamp_type() != TimestampType::CreateTime || sent.delete_horizon().is_some() {
            header.attributes = sent.attributes_of_producer();
        }
    }
    CheckedBatch { header, is_corrected: header != sent, expanded }
}

/// Kafka refuses a batch that calls itself stamped by the broker before the broker has stamped it,
/// in a topic whose timestamps the broker sets; elsewhere the mark is taken off.
fn check_timestamp_type(header: &BatchHeader, settings: &Settings) -> Result<(), Refusal> {
    let is_stamped = header.timestamp_type() == TimestampType::LogAppendTime;
    if !is_stamped || settings.timestamp_type == TimestampType::CreateTime {
        return Ok(());
    }
    let message = "the batch says that the broker set its timestamp, which only the broker says";
    Err(Refusal::Timestamp(vec![RecordError { index: 0, message: Some(message.to_owned()) }]))
}

fn one_batch(records: &[u8]) -> Result<BatchHeader, PartitionError> {
    if records.is_empty() {
        return Err(invalid("a produce request carries exactly one batch a partition, not none"));
    }
    let header = BatchHeader::decode_checked(records)?;
    if header.size_bytes as usize != records.len() {
        return Err(invalid("a produce request carries exactly one batch a partition"));
    }
    Ok(header)
}

pub(crate) fn invalid(reason: impl Into<String>) -> PartitionError {
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

fn check_producer_fields(header: &BatchHeader) -> Result<(), PartitionError> {
    if header.base_offset != Offset(0) {
        return Err(invalid(format!(
            "the base offset of a sent batch is 0, not {}",
            header.base_offset
        )));
    }
    let offsets = i64::from(header.last_offset_delta) + 1;
    if header.record_count < 1 || i64::from(header.record_count) != offsets {
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

/// Whether every timestamp is accepted anyway.
pub(crate) fn takes_any_timestamp(settings: &Settings) -> bool {
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
    let message = out_of_range(header.max_timestamp, settings, now);
    Err(Refusal::Timestamp(vec![RecordError { index: 0, message: Some(message) }]))
}

pub(crate) fn in_range(timestamp: Timestamp, settings: &Settings, now: Timestamp) -> bool {
    timestamp == Timestamp::NONE
        || (timestamp.ms_since(now) <= settings.timestamp_after_max_ms
            && now.ms_since(timestamp) <= settings.timestamp_before_max_ms)
}

/// Why a timestamp is refused.
pub(crate) fn out_of_range(timestamp: Timestamp, settings: &Settings, now: Timestamp) -> String {
    format!(
        "timestamp {timestamp} is out of range: the broker's time is {now}, and records may be {} ms \
         older and {} ms newer",
        settings.timestamp_before_max_ms, settings.timestamp_after_max_ms
    )
}
