//! The records of `__consumer_offsets`, byte for byte as Kafka 4.3 writes them, so that Kafka's
//! own tools read our log and we read Kafka's. Records of other kinds of groups are skipped.
//!
//! Every key begins with its kind (i16): 0 and 1 an offset commit, 2 a classic group. Every value
//! begins with its version (i16). Layouts: [`offset_commit`], [`group_metadata`].

mod bytes;
pub mod group_metadata;
pub mod offset_commit;

use model::TopicPartition;

use crate::{GroupId, RecordBytes};
pub(crate) use bytes::Reader;
pub use group_metadata::{GroupRecord, MemberRecord};
pub use offset_commit::CommittedOffset;

const KIND_OFFSET_COMMIT_LEGACY: i16 = 0;
const KIND_OFFSET_COMMIT: i16 = 1;
const KIND_GROUP_METADATA: i16 = 2;

/// A fact about a group. The durable state of a shard is what its records say, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A group stored a position for a partition; `None`: it has none any more.
    OffsetCommit {
        /// Whose.
        group: GroupId,
        /// Of which partition.
        partition: TopicPartition,
        /// The position.
        value: Option<CommittedOffset>,
    },
    /// A group completed a rebalance, or became empty; `None`: it is no more.
    GroupMetadata {
        /// Which group.
        group: GroupId,
        /// Its generation and members.
        value: Option<GroupRecord>,
    },
}

/// Why bytes are not a record of this log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A field ends behind the bytes, or a length or a text is none.
    #[error("a record of the group log is malformed: {0}")]
    Malformed(&'static str),
    /// Of a release that we do not know.
    #[error("version {version} of a value of kind {kind} is not known")]
    UnknownVersion {
        /// The kind that the key says.
        kind: i16,
        /// The version that the value says.
        version: i16,
    },
}

impl Record {
    /// Whose record it is.
    pub fn group(&self) -> &GroupId {
        match self {
            Record::OffsetCommit { group, .. } | Record::GroupMetadata { group, .. } => group,
        }
    }

    /// The bytes for the log. Strings must fit the format: whoever decides checks them first.
    pub fn encode(&self) -> RecordBytes {
        let bytes = match self {
            Record::OffsetCommit { group, partition, value } => RecordBytes {
                key: offset_commit::encode_key(group, partition),
                value: value.as_ref().map(offset_commit::encode_value),
            },
            Record::GroupMetadata { group, value } => RecordBytes {
                key: group_metadata::encode_key(group),
                value: value.as_ref().map(group_metadata::encode_value),
            },
        };
        assert!(bytes.key.len() > 2, "a key has a kind and a name");
        bytes
    }

    /// The record of these bytes; `None` for a kind of record that is not ours to understand.
    pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<Record>, RecordError> {
        let mut key = Reader::new(key);
        match key.i16()? {
            KIND_OFFSET_COMMIT_LEGACY | KIND_OFFSET_COMMIT => {
                let (group, partition) = offset_commit::decode_key(&mut key)?;
                let value = value.map(offset_commit::decode_value).transpose()?;
                Ok(Some(Record::OffsetCommit { group, partition, value }))
            }
            KIND_GROUP_METADATA => {
                let group = group_metadata::decode_key(&mut key)?;
                let value = value.map(group_metadata::decode_value).transpose()?;
                Ok(Some(Record::GroupMetadata { group, value }))
            }
            _ => Ok(None),
        }
    }
}
