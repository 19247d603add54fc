//! A produce request, walked where it lies: the records stay in the frame, as ranges of it, so
//! that the broker can stamp and write that very memory. Versions 3 to 13.

use super::{Topic, skip_tags};
use crate::api::ApiKey;
use crate::reader::{DecodeError, Reader};
use std::ops::Range;

/// What stands in front of the topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProduceHead<'a> {
    /// The transaction's owner, if there is one.
    pub transactional_id: Option<&'a str>,
    /// 0: no answer at all; 1: the leader has it; -1: all in-sync replicas have it.
    pub acks: i16,
    /// How long to wait for `acks`, in milliseconds.
    pub timeout_ms: i32,
}

/// The records for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRecords<'a> {
    /// The topic.
    pub topic: Topic<'a>,
    /// Whether it is the first partition of a topic in this request.
    pub first_of_topic: bool,
    /// The partition's number; as the client wrote it, it may be negative.
    pub partition: i32,
    /// Where its record batches lie in the frame; `None` for null.
    pub records: Option<Range<usize>>,
}

/// Reads the head of the request in `frame`, whose message begins at `body_from`
/// ([`crate::frame::RequestHead::body_from`]), and returns the partitions behind it.
///
/// Nothing may be acted upon before the iteration has ended without an error: collect first.
pub fn walk(
    frame: &[u8],
    body_from: usize,
    version: i16,
) -> Result<(ProduceHead<'_>, Partitions<'_>), DecodeError> {
    if !ApiKey::Produce.has_version(version) {
        return Err(DecodeError::Version { message: "ProduceRequest", version });
    }
    let flexible = ApiKey::Produce.is_flexible(version);
    let mut reader = Reader::new(frame);
    reader.take(body_from)?;
    let head = ProduceHead {
        transactional_id: reader.nullable_str(flexible)?,
        acks: reader.i16()?,
        timeout_ms: reader.i32()?,
    };
    let by_id = version >= 13;
    let mut walk = Partitions {
        reader,
        flexible,
        by_id,
        topics_left: 0,
        partitions_left: 0,
        topic: Topic::Name(""),
        first_of_topic: false,
        ended: false,
    };
    walk.topics_left = walk.array_count()?;
    Ok((head, walk))
}

/// The partitions of one request, in their order. One error ends the iteration; that bytes follow
/// the message is an error too.
#[derive(Debug)]
pub struct Partitions<'a> {
    reader: Reader<'a>,
    flexible: bool,
    by_id: bool,
    /// Topics behind the one being read.
    topics_left: usize,
    /// Partitions of the topic being read.
    partitions_left: usize,
    topic: Topic<'a>,
    first_of_topic: bool,
    ended: bool,
}

impl<'a> Partitions<'a> {
    /// The count of an array. Its elements take at least three bytes: one for the name's length
    /// or four for the partition, one for the inner length, one for the tags.
    fn array_count(&mut self) -> Result<usize, DecodeError> {
        self.reader.array_count(self.flexible, 3)?.ok_or(DecodeError::Null)
    }

    fn advance(&mut self) -> Result<Option<PartitionRecords<'a>>, DecodeError> {
        while self.partitions_left == 0 {
            if self.topics_left == 0 {
                skip_tags(&mut self.reader, self.flexible)?;
                self.reader.finish()?;
                return Ok(None);
            }
            self.topics_left -= 1;
            self.topic = Topic::read(&mut self.reader, self.by_id, self.flexible)?;
            self.first_of_topic = true;
            self.partitions_left = self.array_count()?;
            if self.partitions_left == 0 {
                skip_tags(&mut self.reader, self.flexible)?;
            }
        }
        self.partition().map(Some)
    }

    fn partition(&mut self) -> Result<PartitionRecords<'a>, DecodeError> {
        let partition = self.reader.i32()?;
        let records = self.reader.nullable_slice(self.flexible)?;
        let end = self.reader.position();
        skip_tags(&mut self.reader, self.flexible)?;
        self.partitions_left -= 1;
        if self.partitions_left == 0 {
            skip_tags(&mut self.reader, self.flexible)?;
        }
        Ok(PartitionRecords {
            topic: self.topic,
            first_of_topic: std::mem::take(&mut self.first_of_topic),
            partition,
            records: records.map(|records| end - records.len()..end),
        })
    }
}

impl<'a> Iterator for Partitions<'a> {
    type Item = Result<PartitionRecords<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.advance().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}
