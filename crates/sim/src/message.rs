//! What clients and the broker say to each other: the protocol's meaning without its bytes.

use model::{ErrorCode, Offset};
use partition::Acks;

/// A producer or consumer, by number: producers first.
pub(crate) type ClientId = usize;

/// A partition by its place in [`crate::broker::Broker`].
pub(crate) type PartitionId = usize;

#[derive(Clone, Debug)]
pub(crate) enum Request {
    Produce { partition: PartitionId, acks: Acks, records: Vec<u8> },
    Fetch { partition: PartitionId, offset: Offset },
    DeleteRecords { partition: PartitionId, offset: Offset },
    CommitOffsets { offsets: Vec<(PartitionId, Offset)> },
    FetchOffsets,
}

#[derive(Clone, Debug)]
pub(crate) enum Response {
    /// The base offset.
    Produced(Result<Offset, Refused>),
    Fetched(Result<Fetched, Refused>),
    /// The log start.
    Deleted(Result<Offset, Refused>),
    Committed(ErrorCode),
    Offsets(Result<Vec<(PartitionId, Offset)>, ErrorCode>),
}

#[derive(Clone, Debug)]
pub(crate) struct Fetched {
    pub(crate) bytes: Vec<u8>,
    pub(crate) high_watermark: Offset,
    pub(crate) log_start: Offset,
}

/// How a broker refuses; coarse, for that is all that these clients tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Ask again.
    Retriable,
    /// Send again: this batch was not appended, but an earlier attempt may have been.
    NotAppended,
    /// The broker has no partition of that topic id (UNKNOWN_TOPIC_ID): it is deleted, or the broker has not opened it yet.
    UnknownTopicId,
    /// A sequence number is not the next one.
    OutOfOrderSequence,
    /// The offset is not in the log, which starts here.
    OutOfRange { log_start: Offset },
    /// Something else, which none of these clients provokes.
    Invalid,
}
