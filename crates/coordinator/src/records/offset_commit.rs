//! A stored position: OffsetCommitKey and OffsetCommitValue.
//!
//! ```text
//! key    i16 1 | group: string | topic: string | partition: i32
//! value  i16 version | offset: i64 | leader epoch: i32 (3+) | metadata: string
//!        | commit timestamp: i64 | expire timestamp: i64 (only 1) | tags (4+): 0 topic id
//! ```
//!
//! Version 4 is written, or 1 when the client gave a retention time, which only that version holds.

use std::sync::Arc;

use model::{LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId, TopicPartition, Uuid};

use super::bytes::{Reader, put_compact_string, put_string};
use super::{KIND_OFFSET_COMMIT, RecordError};
use crate::GroupId;

const VERSION_WITH_EXPIRY: i16 = 1;
const VERSION_WRITTEN: i16 = 4;
const TAG_TOPIC_ID: u32 = 0;

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
    /// The topic's id when it was stored; zero if it is not known, as in records of old releases.
    pub topic_id: TopicId,
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
    let mut out = Vec::with_capacity(52 + value.metadata.len());
    let version = match value.expire_timestamp {
        Some(_) => VERSION_WITH_EXPIRY,
        None => VERSION_WRITTEN,
    };
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&value.offset.0.to_be_bytes());
    if let Some(expire_timestamp) = value.expire_timestamp {
        put_string(&mut out, &value.metadata);
        out.extend_from_slice(&value.commit_timestamp.0.to_be_bytes());
        out.extend_from_slice(&expire_timestamp.0.to_be_bytes());
        return out;
    }
    out.extend_from_slice(&value.leader_epoch.0.to_be_bytes());
    put_compact_string(&mut out, &value.metadata);
    out.extend_from_slice(&value.commit_timestamp.0.to_be_bytes());
    if value.topic_id.is_zero() {
        out.push(0);
    } else {
        // One tagged field: its tag, its size, its bytes.
        out.extend_from_slice(&[1, TAG_TOPIC_ID as u8, 16]);
        out.extend_from_slice(&value.topic_id.0);
    }
    out
}

pub(super) fn decode_value(value: &[u8]) -> Result<CommittedOffset, RecordError> {
    let mut value = Reader::new(value);
    let version = value.i16()?;
    if !(0..=VERSION_WRITTEN).contains(&version) {
        return Err(RecordError::UnknownVersion { kind: KIND_OFFSET_COMMIT, version });
    }
    value.set_flexible(version >= 4);
    let offset = Offset(value.i64()?);
    let leader_epoch = if version >= 3 { LeaderEpoch(value.i32()?) } else { LeaderEpoch::NONE };
    let metadata = value.string()?;
    let commit_timestamp = Timestamp(value.i64()?);
    let expire = if version == VERSION_WITH_EXPIRY { value.i64()? } else { -1 };
    let expire_timestamp = (expire != -1).then_some(Timestamp(expire));
    let mut topic_id = Uuid::ZERO;
    value.tagged_fields(|tag, bytes| {
        if tag == TAG_TOPIC_ID
            && let Ok(bytes) = bytes.try_into()
        {
            topic_id = Uuid(bytes);
        }
    })?;
    Ok(CommittedOffset {
        offset,
        leader_epoch,
        metadata,
        commit_timestamp,
        expire_timestamp,
        topic_id,
    })
}
