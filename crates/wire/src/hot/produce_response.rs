//! The response to a produce request, written partition by partition. Versions 3 to 13.

use super::{Topic, no_tags};
use crate::api::ApiKey;
use crate::frame;
use crate::produce::{BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint};
use crate::writer::{EncodeError, Writer};
use model::{ErrorCode, Offset, PartitionIndex, Timestamp};

/// What became of one partition's records. Fields that a version lacks are left out.
#[derive(Clone, Debug)]
pub struct PartitionAnswer<'a> {
    /// The partition.
    pub partition: PartitionIndex,
    /// What went wrong, if anything.
    pub error_code: ErrorCode,
    /// Offset of the first record; -1 on an error.
    pub base_offset: Offset,
    /// When the broker appended them, if it sets timestamps; else none.
    pub log_append_time: Timestamp,
    /// The first readable offset (version 5).
    pub log_start_offset: Offset,
    /// Which records are at fault (version 8).
    pub record_errors: &'a [BatchIndexAndErrorMessage],
    /// What is wrong, in words (version 8).
    pub error_message: Option<&'a str>,
    /// Who leads, when it isn't this broker (version 10, KIP-951).
    pub current_leader: Option<LeaderIdAndEpoch>,
}

impl PartitionAnswer<'_> {
    /// Records that were appended from `base_offset` on.
    pub fn appended(
        partition: PartitionIndex,
        base_offset: Offset,
        log_append_time: Timestamp,
        log_start_offset: Offset,
    ) -> PartitionAnswer<'static> {
        PartitionAnswer {
            base_offset,
            log_append_time,
            log_start_offset,
            ..PartitionAnswer::refused(partition, ErrorCode::None)
        }
    }

    /// Records that were refused.
    pub fn refused(partition: PartitionIndex, error_code: ErrorCode) -> PartitionAnswer<'static> {
        PartitionAnswer {
            partition,
            error_code,
            base_offset: Offset(-1),
            log_append_time: Timestamp::NONE,
            log_start_offset: Offset(-1),
            record_errors: &[],
            error_message: None,
            current_leader: None,
        }
    }
}

/// Writes one response: [`ProduceResponder::begin`], then for every topic
/// [`ProduceResponder::topic`] and its partitions, then [`ProduceResponder::end`].
pub struct ProduceResponder<'w> {
    writer: &'w mut Writer,
    version: i16,
    flexible: bool,
    /// Where the frame begins in the writer.
    start: usize,
    in_topic: bool,
}

impl<'w> ProduceResponder<'w> {
    /// Begins a frame for `topic_count` topics.
    pub fn begin(
        writer: &'w mut Writer,
        version: i16,
        correlation_id: i32,
        topic_count: usize,
    ) -> Result<ProduceResponder<'w>, EncodeError> {
        if !ApiKey::Produce.has_version(version) {
            return Err(EncodeError::Version { message: "ProduceResponse", version });
        }
        let flexible = ApiKey::Produce.is_flexible(version);
        let start = frame::begin(writer);
        frame::write_response_head(writer, ApiKey::Produce, version, correlation_id);
        writer.count(topic_count, flexible)?;
        Ok(ProduceResponder { writer, version, flexible, start, in_topic: false })
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

    /// Writes one partition of the topic that was begun last.
    pub fn partition(&mut self, answer: &PartitionAnswer<'_>) -> Result<(), EncodeError> {
        let (w, version) = (&mut *self.writer, self.version);
        w.i32(answer.partition.0);
        w.i16(answer.error_code.code());
        w.i64(answer.base_offset.0);
        w.i64(answer.log_append_time.0);
        if version >= 5 {
            w.i64(answer.log_start_offset.0);
        }
        if version >= 8 {
            w.array(answer.record_errors, self.flexible, |w, e| e.encode(w, version))?;
            w.nullable_string(answer.error_message, self.flexible)?;
        }
        match &answer.current_leader {
            // A tagged field at its default is never written.
            Some(leader) if version >= 10 && *leader != LeaderIdAndEpoch::default() => {
                w.uvarint(1);
                w.tagged_field(0, |w| leader.encode(w, version))
            }
            _ => {
                no_tags(w, self.flexible);
                Ok(())
            }
        }
    }

    /// Ends the frame. `node_endpoints`: where the leaders named above are (version 10).
    pub fn end(
        mut self,
        throttle_time_ms: i32,
        node_endpoints: &[NodeEndpoint],
    ) -> Result<(), EncodeError> {
        self.end_topic();
        let version = self.version;
        self.writer.i32(throttle_time_ms);
        if version >= 10 && !node_endpoints.is_empty() {
            self.writer.uvarint(1);
            self.writer.tagged_field(0, |w| {
                w.array(node_endpoints, true, |w, endpoint| endpoint.encode(w, version))
            })?;
        } else {
            no_tags(self.writer, self.flexible);
        }
        frame::end(self.writer, self.start)
    }
}
