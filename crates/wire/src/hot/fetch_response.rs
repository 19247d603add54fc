//! The response to a fetch request, written around records that may stay in their files. Versions
//! 4 to 18.
//!
//! ```text
//! writer:  | length, head, topic, partition head | partition tags, next partition head | … |
//!                                                ^ records go here, by sendfile        ^
//! ```
//!
//! The frame's length counts the records that are not in the writer, so it is exact before the
//! first byte is sent.

use super::{Topic, no_tags};
use crate::api::ApiKey;
use crate::fetch::{EpochEndOffset, LeaderIdAndEpoch, NodeEndpoint};
use crate::frame;
use crate::writer::{EncodeError, Writer};
use model::{BrokerId, ErrorCode, Offset, PartitionIndex, ProducerId};
use std::ops::Range;

/// What stands in front of the topics.
#[derive(Clone, Copy, Debug)]
pub struct FetchResponseHead {
    /// How long the client should keep quiet, in milliseconds.
    pub throttle_time_ms: i32,
    /// What is wrong with the request or its session as a whole (version 7).
    pub error_code: ErrorCode,
    /// The session; 0 for none (version 7).
    pub session_id: i32,
}

/// All about a partition but its records. Fields that a version lacks are left out.
#[derive(Clone, Debug)]
pub struct FetchedPartition<'a> {
    /// The partition.
    pub partition: PartitionIndex,
    /// What went wrong, if anything.
    pub error_code: ErrorCode,
    /// Its high watermark; -1 if not known.
    pub high_watermark: Offset,
    /// Its last stable offset; -1 if not known.
    pub last_stable_offset: Offset,
    /// Its first readable offset; -1 if not known (version 5).
    pub log_start_offset: Offset,
    /// Transactions to leave out, with their first offsets; `None` for readers of everything.
    pub aborted_transactions: Option<&'a [(ProducerId, Offset)]>,
    /// A replica nearer to the consumer; [`BrokerId::NONE`] for this one (version 11).
    pub preferred_read_replica: BrokerId,
    /// Where the follower's log leaves the leader's (version 12).
    pub diverging_epoch: Option<EpochEndOffset>,
    /// Who leads, when it isn't this broker (version 12).
    pub current_leader: Option<LeaderIdAndEpoch>,
}

impl FetchedPartition<'_> {
    /// A partition of which nothing is known but what went wrong.
    pub fn failed(partition: PartitionIndex, error_code: ErrorCode) -> FetchedPartition<'static> {
        FetchedPartition {
            partition,
            error_code,
            high_watermark: Offset(-1),
            last_stable_offset: Offset(-1),
            log_start_offset: Offset(-1),
            aborted_transactions: None,
            preferred_read_replica: BrokerId::NONE,
            diverging_epoch: None,
            current_leader: None,
        }
    }
}

/// The records of a partition.
#[derive(Clone, Copy, Debug)]
pub enum Records<'a> {
    /// Null: not even an empty list.
    Null,
    /// Copied into the writer.
    Copied(&'a [u8]),
    /// Room for so many bytes in the writer, which the caller fills.
    Reserved(usize),
    /// So many bytes that the caller sends itself, between what is before and what is behind.
    Spliced(usize),
}

impl Records<'_> {
    fn size_bytes(&self) -> Option<usize> {
        match self {
            Records::Null => None,
            Records::Copied(bytes) => Some(bytes.len()),
            Records::Reserved(size) | Records::Spliced(size) => Some(*size),
        }
    }
}

/// Writes one response: [`FetchResponder::begin`], then for every topic
/// [`FetchResponder::topic`] and its partitions, then [`FetchResponder::end`].
pub struct FetchResponder<'w> {
    writer: &'w mut Writer,
    version: i16,
    flexible: bool,
    /// Where the frame begins in the writer.
    start: usize,
    in_topic: bool,
    /// Bytes of records that the frame has and the writer has not.
    spliced_bytes: usize,
}

impl<'w> FetchResponder<'w> {
    /// Begins a frame for `topic_count` topics.
    pub fn begin(
        writer: &'w mut Writer,
        version: i16,
        correlation_id: i32,
        head: FetchResponseHead,
        topic_count: usize,
    ) -> Result<FetchResponder<'w>, EncodeError> {
        if !ApiKey::Fetch.has_version(version) {
            return Err(EncodeError::Version { message: "FetchResponse", version });
        }
        let flexible = ApiKey::Fetch.is_flexible(version);
        let start = frame::begin(writer);
        frame::write_response_head(writer, ApiKey::Fetch, version, correlation_id);
        writer.i32(head.throttle_time_ms);
        if version >= 7 {
            writer.i16(head.error_code.code());
            writer.i32(head.session_id);
        }
        writer.count(topic_count, flexible)?;
        Ok(FetchResponder { writer, version, flexible, start, in_topic: false, spliced_bytes: 0 })
    }

    fn end_topic(&mut self) {
        if self.in_topic {
            no_tags(self.writer, self.flexible);
        }
    }

    /// Begins a topic with `partition_count` partitions; ends the one before.
    pub fn topic(&mut self, topic: Topic<'_>, partition_count: usize) -> Result<(), EncodeError> {
        self.end_topic();
        self.in_topic = true;
        topic.write(self.writer, self.version >= 13, self.flexible)?;
        self.writer.count(partition_count, self.flexible)
    }

    /// Writes one partition of the topic that was begun last. Returns where the records lie in the
    /// writer's buffer; for [`Records::Spliced`] an empty range where they belong.
    pub fn partition(
        &mut self,
        partition: &FetchedPartition<'_>,
        records: Records<'_>,
    ) -> Result<Range<usize>, EncodeError> {
        self.before_records(partition, records.size_bytes())?;
        let from = self.writer.bytes().len();
        match records {
            Records::Null => {}
            Records::Copied(bytes) => self.writer.raw(bytes),
            Records::Reserved(size) => self.writer.buffer().resize(from + size, 0),
            Records::Spliced(size) => self.spliced_bytes += size,
        }
        let to = self.writer.bytes().len();
        self.behind_records(partition)?;
        Ok(from..to)
    }

    /// Everything up to and including the length of the records.
    fn before_records(
        &mut self,
        partition: &FetchedPartition<'_>,
        size_bytes: Option<usize>,
    ) -> Result<(), EncodeError> {
        let (w, flexible) = (&mut *self.writer, self.flexible);
        w.i32(partition.partition.0);
        w.i16(partition.error_code.code());
        w.i64(partition.high_watermark.0);
        w.i64(partition.last_stable_offset.0);
        if self.version >= 5 {
            w.i64(partition.log_start_offset.0);
        }
        w.nullable_array(partition.aborted_transactions, flexible, |w, (producer, first)| {
            w.i64(producer.0);
            w.i64(first.0);
            no_tags(w, flexible);
            Ok(())
        })?;
        if self.version >= 11 {
            w.i32(partition.preferred_read_replica.0);
        }
        match size_bytes {
            Some(size) => w.count(size, flexible),
            None => w.nullable_bytes(None, flexible),
        }
    }

    /// The tagged fields.
    fn behind_records(&mut self, partition: &FetchedPartition<'_>) -> Result<(), EncodeError> {
        if !self.flexible {
            return Ok(());
        }
        let (w, version) = (&mut *self.writer, self.version);
        // A tagged field at its default is never written.
        let diverging = partition.diverging_epoch.as_ref().filter(|d| **d != Default::default());
        let leader = partition.current_leader.as_ref().filter(|l| **l != Default::default());
        w.uvarint(u32::from(diverging.is_some()) + u32::from(leader.is_some()));
        if let Some(diverging) = diverging {
            w.tagged_field(0, |w| diverging.encode(w, version))?;
        }
        if let Some(leader) = leader {
            w.tagged_field(1, |w| leader.encode(w, version))?;
        }
        Ok(())
    }

    /// Ends the frame and fills its length in. `node_endpoints`: where the leaders named above
    /// are (version 16). Returns the bytes of the whole frame, length and records included.
    pub fn end(mut self, node_endpoints: &[NodeEndpoint]) -> Result<usize, EncodeError> {
        self.end_topic();
        let version = self.version;
        if version >= 16 && !node_endpoints.is_empty() {
            self.writer.uvarint(1);
            self.writer.tagged_field(0, |w| {
                w.array(node_endpoints, true, |w, endpoint| endpoint.encode(w, version))
            })?;
        } else {
            no_tags(self.writer, self.flexible);
        }
        let in_writer = self.writer.bytes().len() - self.start;
        let total = in_writer + self.spliced_bytes;
        let size = total - frame::LENGTH_BYTES;
        let length = i32::try_from(size).map_err(|_| EncodeError::TooLong(size))?;
        let at = self.start..self.start + frame::LENGTH_BYTES;
        self.writer.buffer()[at].copy_from_slice(&length.to_be_bytes());
        Ok(total)
    }
}
