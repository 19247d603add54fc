//! What a shard hears and what it wants done: the whole contract with the host.
//!
//! The host appends every [`Write`] of a step to the partition's log, in order, and reports
//! [`Event::Committed`] once the high watermark has passed its last record in the leader epoch it
//! was appended in. Answers that depend on a write stay inside the shard until then: whatever comes
//! out in [`Effects::replies`] may be sent at once, so a host cannot send an answer too early.

use std::sync::Arc;

use model::{ErrorCode, Timestamp, TopicId};

use crate::{GroupId, MemberId, ReplyTo, Request, Response, WriteId};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client asks. Exactly one answer to `reply_to` follows, in this step or a later one.
    Request {
        /// Where the answer goes; never used before.
        reply_to: ReplyTo,
        /// What is asked.
        request: Request,
    },
    /// This write and all before it are committed: below the high watermark, in the same leader
    /// epoch as they were appended in. Reporting one twice, or an older one, is harmless.
    Committed {
        /// The last of them.
        write: WriteId,
    },
    /// This write could not be appended; neither it nor any later one is in the log. The shard
    /// takes them all back and answers with the error.
    AppendFailed {
        /// The first of them.
        from: WriteId,
        /// What the log said, such as NOT_ENOUGH_REPLICAS or MESSAGE_TOO_LARGE.
        error: ErrorCode,
    },
    /// Topics are gone: offsets that were stored for them go too. A topic made again under the same
    /// name has another id, and keeps its offsets.
    TopicsDeleted {
        /// Name and id of each, as stored with the offsets: the id is zero where it is not known.
        topics: Vec<(Arc<str>, TopicId)>,
    },
    /// The host needs memory: these members go, pending ones too. A group without members and without offsets
    /// goes with them.
    Reclaim {
        /// Their group.
        group: GroupId,
        /// Their ids. Ids of others are skipped.
        members: Vec<MemberId>,
    },
    /// Time has passed, to [`crate::Shard::next_deadline`] or beyond.
    Expire,
}

/// What the host must do, in any order: both lists are free to go.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "a write that is not appended and a reply that is not sent are lost"]
pub struct Effects {
    /// Appends to the partition's log, in this order.
    pub writes: Vec<Write>,
    /// Answers that may be sent at once.
    pub replies: Vec<Reply>,
}

/// One batch for the partition's log, atomic: all of its records or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// To report it by.
    pub id: WriteId,
    /// The timestamp of its records.
    pub timestamp: Timestamp,
    /// At least one.
    pub records: Vec<RecordBytes>,
}

impl RecordBytes {
    /// Bytes of key and value.
    pub fn size_bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }
}

/// A record in Kafka's formats of `__consumer_offsets`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordBytes {
    /// What the log is compacted by.
    pub key: Vec<u8>,
    /// `None` is a tombstone.
    pub value: Option<Vec<u8>>,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// From the request.
    pub to: ReplyTo,
    /// What to say.
    pub response: Response,
}
