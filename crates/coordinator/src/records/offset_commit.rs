//! A stored position: OffsetCommitKey and OffsetCommitValue.
//!
//! ```text
//! key    i16 1 | group: string | topic: string | partition: i32
//! value  i16 version | offset: i64 | leader epoch: i32 (3+) | metadata: string
//!        | commit timestamp: i64 | expire timestamp: i64 (only 1) | tagged fields (4+)
//! ```
//!
//! Version 3 is written, or 1 when the client gave a retention time, which only that version holds.

use std::sync::Arc;

use model::{LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicPartition};

use super::bytes::{Reader, put_string};
use super::{KIND_OFFSET_COMMIT, RecordError};
use crate::GroupId;

const VERSION_WITH_EXPIRY: i16 = 1;
const VERSION_WRITTEN: i16 = 3;
const VERSION_FLEXIBLE: i16 = 4;

/// A position that a group stored for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next record to read.
    pub offset: Offset,
    /// The leader epoch of the last record read; -1 for none.
    pub leader_epoch: LeaderEpoch,
    /// Whatever the client wanted to keep.
    pub metadata: Arc<str>,
    /// When it was stored.
    pub commit_timestamp: Timestamp,
    /// When it expires, if the client said so (OffsetCommit versions 2 to 4).
    pub expire_timestamp: Option<Timestamp>,
}

pub(super) fn encode_key(group: &GroupId, partition: &TopicPartition) -> Vec<u8> {
    let mut key = Vec::with_capacity(10 + group.as_str().len() + partition.topic.len());
    key.extend_from_slice(&KIND_OFFSET_COMMIT.to_be_bytes());
    put_string(&mut key, group.as_str());
    put_string(&mut key, &partition.topic);
    key.extend_from_slice(&partition.partition.0.to_be_bytes());
    key
}

pub(super) fn decode_key(key: &mut Reader<'_>) -> Result<(GroupId, TopicPartition), RecordError> {
    let group = GroupId(key.string()?);
    let topic = key.string()?;
    let partition = PartitionIndex(key.i32()?);
    Ok((group, TopicPartition { topic, partition }))
}

pub(super) fn encode_value(value: &CommittedOffset) -> Vec<u8> {
    let mut out = Vec::with_capacity(32 + value.metadata.len());
    let version = match value.expire_timestamp {
        Some(_) => VERSION_WITH_EXPIRY,
        None => VERSION_WRITTEN,
    };
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&value.offset.0.to_be_bytes());
    if version >= 3 {
        out.extend_from_slice(&value.leader_epoch.0.to_be_bytes());
    }
    put_string(&mut out, &value.metadata);
    out.extend_from_slice(&value.commit_timestamp.0.to_be_bytes());
    if let Some(expire_timestamp) = value.expire_timestamp {
        out.extend_from_slice(&expire_timestamp.0.to_be_bytes());
    }
    out
}

pub(super) fn decode_value(value: &[u8]) -> Result<CommittedOffset, RecordError> {
    let mut value = Reader::new(value);
    let version = value.i16()?;
    if !(0..=VERSION_FLEXIBLE).contains(&version) {
        return Err(RecordError::UnknownVersion { kind: KIND_OFFSET_COMMIT, version });
    }
    value.set_flexible(version >= VERSION_FLEXIBLE);
    let offset = Offset(value.i64()?);
    let leader_epoch = if version >= 3 { LeaderEpoch(value.i32()?) } else { LeaderEpoch::NONE };
    let metadata = value.string()?;
    let commit_timestamp = Timestamp(value.i64()?);
    let expire = if version == VERSION_WITH_EXPIRY { value.i64()? } else { -1 };
    value.tagged_fields()?;
    let expire_timestamp = (expire != -1).then_some(Timestamp(expire));
    Ok(CommittedOffset { offset, leader_epoch, metadata, commit_timestamp, expire_timestamp })
}
