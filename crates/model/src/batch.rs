//! The record batch, format version 2 (magic 2, KIP-98): what is written, sent and checksummed.
//!
//! ```text
//!  0        8     12    16 17      21  23      27         35         43
//!  | base   |batch|epoch|m| crc    |att| last  | base     | max      |
//!  | offset |len  |     | | 32C    |   | delta | timestamp| timestamp|
//!  43         51  53      57      61
//!  | producer |p. | base  | record| records…
//!  | id       |ep.| seq.  | count |
//! ```
//!
//! The checksum covers everything from the attributes on, so the two fields that a leader stamps,
//! base offset and leader epoch, may be patched in place without touching it.

use crate::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// Bytes of the fixed header, up to the first record.
pub const HEADER_BYTES: usize = 61;
/// Bytes before the field `batch length` begins to count.
pub const LENGTH_FROM: usize = 12;
/// The only format version that Kafka 4 and we accept.
pub const MAGIC: i8 = 2;

const AT_BATCH_LENGTH: usize = 8;
const AT_LEADER_EPOCH: usize = 12;
const AT_MAGIC: usize = 16;
const AT_CRC: usize = 17;
const AT_ATTRIBUTES: usize = 21;
const AT_LAST_OFFSET_DELTA: usize = 23;
const AT_BASE_TIMESTAMP: usize = 27;
const AT_MAX_TIMESTAMP: usize = 35;
const AT_PRODUCER_ID: usize = 43;
const AT_PRODUCER_EPOCH: usize = 51;
const AT_BASE_SEQUENCE: usize = 53;
const AT_RECORD_COUNT: usize = 57;

const ATTRIBUTE_CODEC: i16 = 0x07;
const ATTRIBUTE_LOG_APPEND_TIME: i16 = 0x08;
const ATTRIBUTE_TRANSACTIONAL: i16 = 0x10;
const ATTRIBUTE_CONTROL: i16 = 0x20;
const ATTRIBUTE_DELETE_HORIZON: i16 = 0x40;

/// The attributes that a producer decides. The timestamp type is the topic's, the delete horizon the
/// cleaner's; the other bits have no meaning yet.
const ATTRIBUTES_OF_PRODUCERS: i16 = ATTRIBUTE_CODEC | ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// Snappy, in the framing of the Java library xerial, or raw.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// RFC 8878.
    Zstd,
}

impl Compression {
    /// The codec of this number in the attributes; `None` for a number without one.
    pub const fn from_code(code: i16) -> Option<Compression> {
        match code {
            0 => Some(Compression::None),
            1 => Some(Compression::Gzip),
            2 => Some(Compression::Snappy),
            3 => Some(Compression::Lz4),
            4 => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// The number in the attributes.
    pub const fn code(self) -> i16 {
        match self {
            Compression::None => 0,
            Compression::Gzip => 1,
            Compression::Snappy => 2,
            Compression::Lz4 => 3,
            Compression::Zstd => 4,
        }
    }

    /// The name in configurations (`compression.type`).
    pub const fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }
}

/// Who set the timestamps of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum TimestampType {
    /// The producer, record by record.
    #[default]
    CreateTime,
    /// The broker, for the whole batch, when it appended it.
    LogAppendTime,
}

/// Why bytes are not a batch that may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end before the header or the batch does.
    #[error("a batch of {needed} bytes has {available}")]
    Truncated {
        /// Bytes that the batch says it has.
        needed: usize,
        /// Bytes that are there.
        available: usize,
    },
    /// A length that no batch has.
    #[error("invalid length {0} of a batch")]
    Length(i32),
    /// A format version other than 2.
    #[error("format version (magic) {0} is not served; only 2 is")]
    Magic(i8),
    /// The checksum does not match the bytes.
    #[error("the checksum says {expected:#010x}, the bytes say {actual:#010x}")]
    Checksum {
        /// What the header carries.
        expected: u32,
        /// What the bytes give.
        actual: u32,
    },
    /// A codec number without a codec.
    #[error("no compression codec has number {0}")]
    Codec(i16),
    /// `last offset delta` and `record count` contradict each other, or are negative.
    #[error("{count} records, but the last offset delta is {last_offset_delta}")]
    Count {
        /// The header's record count.
        count: i32,
        /// The header's last offset delta.
        last_offset_delta: i32,
    },
    /// A record within the batch is malformed.
    #[error("record {index}: {reason}")]
    Record {
        /// Which record, from 0.
        index: i32,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// The fixed header of a batch, decoded. All that the broker needs to know on the hot path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record. In a produce request it means nothing (usually 0).
    pub base_offset: Offset,
    /// Bytes of the whole batch, header and the twelve bytes before the length's count included.
    pub size_bytes: u32,
    /// Leader epoch in which it was appended; meaningless in a produce request.
    pub leader_epoch: LeaderEpoch,
    /// CRC-32C of everything from the attributes to the end.
    pub crc: u32,
    /// Codec, timestamp type, transactional, control, delete horizon.
    pub attributes: i16,
    /// Offset of the last record, from the first.
    /// Invariant: >= 0; in what a producer sends it is `record_count - 1`, compaction may widen it.
    pub last_offset_delta: i32,
    /// Timestamp of the first record, or the delete horizon if the attributes say so.
    pub base_timestamp: Timestamp,
    /// Largest timestamp of the batch.
    pub max_timestamp: Timestamp,
    /// Who wrote it, if idempotent.
    pub producer_id: ProducerId,
    /// That producer's incarnation.
    pub producer_epoch: ProducerEpoch,
    /// Sequence of the first record.
    pub base_sequence: Sequence,
    /// How many records there are.
    pub record_count: i32,
}

fn i16_at(bytes: &[u8], at: usize) -> i16 {
    i16::from_be_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl BatchHeader {
    /// Decodes the header at the front of `bytes`, which need not hold the whole batch.
    /// Checks length, magic, codec and counts; not the checksum.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        if bytes.len() < HEADER_BYTES {
            return Err(BatchError::Truncated { needed: HEADER_BYTES, available: bytes.len() });
        }
        let magic = bytes[AT_MAGIC] as i8;
        if magic != MAGIC {
            return Err(BatchError::Magic(magic));
        }
        let length = i32_at(bytes, AT_BATCH_LENGTH);
        if length < (HEADER_BYTES - LENGTH_FROM) as i32 || length > i32::MAX - LENGTH_FROM as i32 {
            return Err(BatchError::Length(length));
        }
        let header = BatchHeader {
            base_offset: Offset(i64_at(bytes, 0)),
            size_bytes: length as u32 + LENGTH_FROM as u32,
            leader_epoch: LeaderEpoch(i32_at(bytes, AT_LEADER_EPOCH)),
            crc: i32_at(bytes, AT_CRC) as u32,
            attributes: i16_at(bytes, AT_ATTRIBUTES),
            last_offset_delta: i32_at(bytes, AT_LAST_OFFSET_DELTA),
            base_timestamp: Timestamp(i64_at(bytes, AT_BASE_TIMESTAMP)),
            max_timestamp: Timestamp(i64_at(bytes, AT_MAX_TIMESTAMP)),
            producer_id: ProducerId(i64_at(bytes, AT_PRODUCER_ID)),
            producer_epoch: ProducerEpoch(i16_at(bytes, AT_PRODUCER_EPOCH)),
            base_sequence: Sequence(i32_at(bytes, AT_BASE_SEQUENCE)),
            record_count: i32_at(bytes, AT_RECORD_COUNT),
        };
        header.check_counts()?;
        Ok(header)
    }

    fn check_counts(&self) -> Result<(), BatchError> {
        if Compression::from_code(self.attributes & ATTRIBUTE_CODEC).is_none() {
            return Err(BatchError::Codec(self.attributes & ATTRIBUTE_CODEC));
        }
        // Compaction keeps the offset range of a batch and drops records, down to none.
        let count = self.record_count as i64;
        if count < 0 || self.last_offset_delta < 0 || count > self.last_offset_delta as i64 + 1 {
            return Err(BatchError::Count {
                count: self.record_count,
                last_offset_delta: self.last_offset_delta,
            });
        }
        Ok(())
    }

    /// Decodes the batch at the front of `bytes` and checks that all of it is there and that its
    /// checksum holds. `bytes` may go on behind it.
    #[inline]
    pub fn decode_checked(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let header = BatchHeader::decode(bytes)?;
        let size = header.size_bytes as usize;
        if bytes.len() < size {
            return Err(BatchError::Truncated { needed: size, available: bytes.len() });
        }
        let actual = checksum(&bytes[..size]);
        if actual != header.crc {
            return Err(BatchError::Checksum { expected: header.crc, actual });
        }
        Ok(header)
    }

    /// How the records are compressed.
    pub fn compression(&self) -> Compression {
        Compression::from_code(self.attributes & ATTRIBUTE_CODEC).expect("decode() checked it")
    }

    /// Who set the timestamps.
    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & ATTRIBUTE_LOG_APPEND_TIME != 0 {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    /// Whether it belongs to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & ATTRIBUTE_TRANSACTIONAL != 0
    }

    /// Whether it carries a marker for brokers and clients rather than records for users.
    pub fn is_control(&self) -> bool {
        self.attributes & ATTRIBUTE_CONTROL != 0
    }

    /// The attributes, of which no bit is left that is not the producer's to decide.
    pub fn attributes_of_producer(&self) -> i16 {
        self.attributes & ATTRIBUTES_OF_PRODUCERS
    }

    /// When the cleaner may drop this batch's tombstones (KIP-534), if it has set a time.
    pub fn delete_horizon(&self) -> Option<Timestamp> {
        (self.attributes & ATTRIBUTE_DELETE_HORIZON != 0).then_some(self.base_timestamp)
    }

    /// Offset of the last record.
    pub fn last_offset(&self) -> Offset {
        self.base_offset.plus(self.last_offset_delta as i64)
    }

    /// The offset behind the batch.
    pub fn next_offset(&self) -> Offset {
        self.last_offset().next()
    }

    /// Sequence of the last record; [`Sequence::NONE`] if the producer is not idempotent.
    pub fn last_sequence(&self) -> Sequence {
        if self.base_sequence == Sequence::NONE {
            return Sequence::NONE;
        }
        self.base_sequence.plus(self.last_offset_delta)
    }

    /// Whether it only holds the place of batches of which compaction left nothing: it has no record and no marker, and
    /// tells of no producer.
    pub fn is_placeholder(&self) -> bool {
        self.record_count == 0 && !self.producer_id.is_idempotent() && !self.is_control()
    }

    /// The whole batch of a header without records, with its checksum.
    pub fn encode_empty(&self) -> [u8; HEADER_BYTES] {
        assert!(self.record_count == 0 && self.size_bytes as usize == HEADER_BYTES, "{self:?}");
        let mut bytes = [0; HEADER_BYTES];
        self.encode(&mut bytes);
        write_checksum(&mut bytes);
        bytes
    }

    /// Writes the header over the front of `bytes`, checksum included as it stands.
    pub fn encode(&self, bytes: &mut [u8]) {
        assert!(bytes.len() >= HEADER_BYTES, "the header needs {HEADER_BYTES} bytes");
        bytes[0..8].copy_from_slice(&self.base_offset.0.to_be_bytes());
        let length = self.size_bytes - LENGTH_FROM as u32;
        bytes[AT_BATCH_LENGTH..][..4].copy_from_slice(&length.to_be_bytes());
        bytes[AT_LEADER_EPOCH..][..4].copy_from_slice(&self.leader_epoch.0.to_be_bytes());
        bytes[AT_MAGIC] = MAGIC as u8;
        bytes[AT_CRC..][..4].copy_from_slice(&self.crc.to_be_bytes());
        bytes[AT_ATTRIBUTES..][..2].copy_from_slice(&self.attributes.to_be_bytes());
        bytes[AT_LAST_OFFSET_DELTA..][..4].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        bytes[AT_BASE_TIMESTAMP..][..8].copy_from_slice(&self.base_timestamp.0.to_be_bytes());
        bytes[AT_MAX_TIMESTAMP..][..8].copy_from_slice(&self.max_timestamp.0.to_be_bytes());
        bytes[AT_PRODUCER_ID..][..8].copy_from_slice(&self.producer_id.0.to_be_bytes());
        bytes[AT_PRODUCER_EPOCH..][..2].copy_from_slice(&self.producer_epoch.0.to_be_bytes());
        bytes[AT_BASE_SEQUENCE..][..4].copy_from_slice(&self.base_sequence.0.to_be_bytes());
        bytes[AT_RECORD_COUNT..][..4].copy_from_slice(&self.record_count.to_be_bytes());
    }
}

/// The CRC-32C of one whole batch, from its attributes to its end.
pub fn checksum(batch: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(&batch[AT_ATTRIBUTES..])
}

/// Stamps what a leader decides at append. Both fields lie outside the checksum.
#[inline]
pub fn stamp(batch: &mut [u8], base_offset: Offset, leader_epoch: LeaderEpoch) {
    batch[0..8].copy_from_slice(&base_offset.0.to_be_bytes());
    batch[AT_LEADER_EPOCH..][..4].copy_from_slice(&leader_epoch.0.to_be_bytes());
}

/// Turns a batch into one of LogAppendTime: attribute, largest timestamp, and a new checksum.
pub fn stamp_log_append_time(batch: &mut [u8], now: Timestamp) {
    let kept = i16_at(batch, AT_ATTRIBUTES) & ATTRIBUTES_OF_PRODUCERS;
    let attributes = kept | ATTRIBUTE_LOG_APPEND_TIME;
    batch[AT_ATTRIBUTES..][..2].copy_from_slice(&attributes.to_be_bytes());
    batch[AT_MAX_TIMESTAMP..][..8].copy_from_slice(&now.0.to_be_bytes());
    write_checksum(batch);
}

/// Corrects what the header of a batch says of its records, and its checksum.
pub fn correct(batch: &mut [u8], attributes: i16, max_timestamp: Timestamp) {
    batch[AT_ATTRIBUTES..][..2].copy_from_slice(&attributes.to_be_bytes());
    batch[AT_MAX_TIMESTAMP..][..8].copy_from_slice(&max_timestamp.0.to_be_bytes());
    write_checksum(batch);
}

/// Computes the checksum of a batch and writes it into the header.
pub fn write_checksum(batch: &mut [u8]) {
    let crc = checksum(batch);
    batch[AT_CRC..][..4].copy_from_slice(&crc.to_be_bytes());
}

/// The batches that stand one behind the other in some bytes. Checksums are not checked here.
///
/// Ends at the end of the bytes; bytes that are no whole batch give one error, then the end.
pub struct Batches<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Batches<'a> {
    /// Iterates over `bytes` from their front.
    pub fn new(bytes: &'a [u8]) -> Batches<'a> {
        Batches { bytes, position: 0 }
    }

    /// Where the next batch begins, in bytes from the front.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<(BatchHeader, &'a [u8]), BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.position..];
        if rest.is_empty() {
            return None;
        }
        let header = match BatchHeader::decode(rest) {
            Ok(header) => header,
            Err(error) => return self.fail(error),
        };
        let size = header.size_bytes as usize;
        if rest.len() < size {
            return self.fail(BatchError::Truncated { needed: size, available: rest.len() });
        }
        self.position += size;
        Some(Ok((header, &rest[..size])))
    }
}

impl<'a> Batches<'a> {
    fn fail(&mut self, error: BatchError) -> Option<<Self as Iterator>::Item> {
        self.position = self.bytes.len();
        Some(Err(error))
    }
}
