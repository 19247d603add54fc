//! A fetch request in a compact form that is filled again and again: one vector of partitions, one
//! of topics, one string for all names. Versions 4 to 18. What a large request took is given back
//! by [`FetchRequest::shrink`].

use super::{Topic, skip_tags};
use crate::api::ApiKey;
use crate::reader::{DecodeError, Reader};
use model::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionIndex, Uuid};
use std::ops::Range;

/// Elements, or bytes of names, for which memory is kept between two requests.
const KEPT_MAX: usize = 1024;

/// One topic of a request, once for each time it is named.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TopicEntry {
    /// Where the name lies in [`FetchRequest::names`].
    Name(Range<u32>),
    Id(Uuid),
}

/// What one partition is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    /// Which of the request's topics: for [`FetchRequest::topic`].
    pub topic: u32,
    /// The partition's number.
    pub partition: PartitionIndex,
    /// The leader epoch that the fetcher believes in; none if it does not know (version 9).
    pub current_leader_epoch: LeaderEpoch,
    /// From where.
    pub fetch_offset: Offset,
    /// The leader epoch of the last record that the fetcher has; none if it has none (version 12).
    pub last_fetched_epoch: LeaderEpoch,
    /// A follower's own first offset; -1 from a consumer (version 5).
    pub log_start_offset: Offset,
    /// At most so many bytes of this partition, but for the first batch.
    pub partition_max_bytes: i32,
    /// The log directory of the follower's replica (version 17).
    pub replica_directory_id: Uuid,
    /// The high watermark that the follower knows; `i64::MAX` if it does not say (version 18).
    pub high_watermark: Offset,
}

/// A partition that a session shall forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForgottenPartition {
    /// Which of the request's topics: for [`FetchRequest::topic`].
    pub topic: u32,
    /// The partition's number.
    pub partition: PartitionIndex,
}

/// A fetch request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// The follower; -1 for a consumer.
    pub replica_id: BrokerId,
    /// The follower's incarnation; -1 if not given (version 15).
    pub replica_epoch: BrokerEpoch,
    /// How long to wait for `min_bytes`, in milliseconds.
    pub max_wait_ms: i32,
    /// As many bytes are worth an answer before the wait is over.
    pub min_bytes: i32,
    /// At most so many bytes, but for the first batch.
    pub max_bytes: i32,
    /// 0: read uncommitted; 1: read committed.
    pub isolation_level: i8,
    /// The session; 0 for none or a new one (KIP-227, version 7).
    pub session_id: i32,
    /// The session's counter; -1 for no session, 0 for a new one.
    pub session_epoch: i32,
    /// What is asked for, in the request's order.
    pub partitions: Vec<FetchPartition>,
    /// What the session shall forget.
    pub forgotten: Vec<ForgottenPartition>,
    /// The consumer's rack; empty for none (version 11).
    pub rack_id: String,
    topics: Vec<TopicEntry>,
    names: String,
}

impl Default for FetchRequest {
    fn default() -> FetchRequest {
        FetchRequest {
            replica_id: BrokerId::NONE,
            replica_epoch: BrokerEpoch(-1),
            max_wait_ms: 0,
            min_bytes: 0,
            max_bytes: i32::MAX,
            isolation_level: 0,
            session_id: 0,
            session_epoch: -1,
            partitions: Vec::new(),
            forgotten: Vec::new(),
            rack_id: String::new(),
            topics: Vec::new(),
            names: String::new(),
        }
    }
}

/// What a follower says about itself in a tagged field.
#[derive(Clone, Copy)]
struct Replica {
    id: i32,
    epoch: i64,
}

impl FetchRequest {
    /// The topic of this number in the request.
    pub fn topic(&self, topic: u32) -> Topic<'_> {
        match &self.topics[topic as usize] {
            TopicEntry::Id(id) => Topic::Id(*id),
            TopicEntry::Name(at) => Topic::Name(&self.names[at.start as usize..at.end as usize]),
        }
    }

    /// Reads the message that takes up all of `bytes`, over what was here before; its memory is
    /// kept. After an error the contents mean nothing.
    pub fn decode(&mut self, bytes: &[u8], version: i16) -> Result<(), DecodeError> {
        self.decode_at_most(bytes, version, usize::MAX)
    }

    /// Gives back what a large request took. Cheap after a small one.
    pub fn shrink(&mut self) {
        if self.partitions.capacity() > KEPT_MAX {
            self.partitions = Vec::new();
        }
        if self.forgotten.capacity() > KEPT_MAX {
            self.forgotten = Vec::new();
        }
        if self.topics.capacity() > KEPT_MAX {
            self.topics = Vec::new();
        }
        if self.names.capacity() > 16 * KEPT_MAX {
            self.names = String::new();
        }
        if self.rack_id.capacity() > KEPT_MAX {
            self.rack_id = String::new();
        }
    }

    /// As [`FetchRequest::decode`], for a request that names at most `partitions_max` partitions, and
    /// at most as many topics; to forget one counts too.
    pub fn decode_at_most(
        &mut self,
        bytes: &[u8],
        version: i16,
        partitions_max: usize,
    ) -> Result<(), DecodeError> {
        if !ApiKey::Fetch.has_version(version) {
            return Err(DecodeError::Version { message: "FetchRequest", version });
        }
        self.clear();
        let mut reader = Reader::new(bytes);
        let flexible = ApiKey::Fetch.is_flexible(version);
        let mut decoder = Decoder { reader: &mut reader, version, flexible, left: partitions_max };
        decoder.head(self)?;
        decoder.topics(self)?;
        decoder.tail(self)?;
        reader.finish()
    }

    fn clear(&mut self) {
        self.replica_id = BrokerId::NONE;
        self.replica_epoch = BrokerEpoch(-1);
        (self.session_id, self.session_epoch) = (0, -1);
        self.partitions.clear();
        self.forgotten.clear();
        self.rack_id.clear();
        self.topics.clear();
        self.names.clear();
    }

    fn add_topic(&mut self, topic: Topic<'_>) -> u32 {
        let entry = match topic {
            Topic::Id(id) => TopicEntry::Id(id),
            Topic::Name(name) => {
                let start = self.names.len() as u32;
                self.names.push_str(name);
                TopicEntry::Name(start..self.names.len() as u32)
            }
        };
        self.topics.push(entry);
        self.topics.len() as u32 - 1
    }
}

/// Reads one message of one version.
struct Decoder<'r, 'a> {
    reader: &'r mut Reader<'a>,
    version: i16,
    flexible: bool,
    /// Partitions that may still be named.
    left: usize,
}

impl Decoder<'_, '_> {
    fn head(&mut self, out: &mut FetchRequest) -> Result<(), DecodeError> {
        let r = &mut *self.reader;
        if self.version <= 14 {
            out.replica_id = BrokerId(r.i32()?);
        }
        out.max_wait_ms = r.i32()?;
        out.min_bytes = r.i32()?;
        out.max_bytes = r.i32()?;
        out.isolation_level = r.i8()?;
        if self.version >= 7 {
            out.session_id = r.i32()?;
            out.session_epoch = r.i32()?;
        }
        Ok(())
    }

    fn topic(&mut self, out: &mut FetchRequest) -> Result<u32, DecodeError> {
        let topic = Topic::read(self.reader, self.version >= 13, self.flexible)?;
        Ok(out.add_topic(topic))
    }

    fn count(&mut self, min_bytes: usize) -> Result<usize, DecodeError> {
        self.reader.array_count(self.flexible, min_bytes)?.ok_or(DecodeError::Null)
    }

    /// The count of an array of partitions, each of which takes `size` bytes of memory.
    fn partitions(&mut self, min_bytes: usize, size: usize) -> Result<usize, DecodeError> {
        let count = self.count(min_bytes)?;
        let left = self.left;
        self.left =
            left.checked_sub(count).ok_or(DecodeError::TooMany { found: count, max: left })?;
        self.reader.charge(count * size)?;
        Ok(count)
    }

    /// The count of an array of topics.
    fn topic_count(&mut self) -> Result<usize, DecodeError> {
        // A topic takes at least a length, a count and, when flexible, the tags: three bytes.
        let count = self.count(3)?;
        if count > self.left {
            return Err(DecodeError::TooMany { found: count, max: self.left });
        }
        self.reader.charge(count * size_of::<TopicEntry>())?;
        Ok(count)
    }

    fn topics(&mut self, out: &mut FetchRequest) -> Result<(), DecodeError> {
        // A partition takes at least its number, its offset and its limit: sixteen bytes.
        for _ in 0..self.topic_count()? {
            let topic = self.topic(out)?;
            for _ in 0..self.partitions(16, size_of::<FetchPartition>())? {
                let partition = self.partition(topic)?;
                out.partitions.push(partition);
            }
            skip_tags(self.reader, self.flexible)?;
        }
        Ok(())
    }

    fn partition(&mut self, topic: u32) -> Result<FetchPartition, DecodeError> {
        let (r, version) = (&mut *self.reader, self.version);
        let partition = PartitionIndex(r.i32()?);
        let current_leader_epoch = LeaderEpoch(if version >= 9 { r.i32()? } else { -1 });
        let fetch_offset = Offset(r.i64()?);
        let last_fetched_epoch = LeaderEpoch(if version >= 12 { r.i32()? } else { -1 });
        let log_start_offset = Offset(if version >= 5 { r.i64()? } else { -1 });
        let mut out = FetchPartition {
            topic,
            partition,
            current_leader_epoch,
            fetch_offset,
            last_fetched_epoch,
            log_start_offset,
            partition_max_bytes: r.i32()?,
            replica_directory_id: Uuid::ZERO,
            high_watermark: Offset(i64::MAX),
        };
        if self.flexible {
            r.tagged_fields(|tag, r| {
                match tag {
                    0 if version >= 17 => out.replica_directory_id = r.uuid()?,
                    1 if version >= 18 => out.high_watermark = Offset(r.i64()?),
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(out)
    }

    fn tail(&mut self, out: &mut FetchRequest) -> Result<(), DecodeError> {
        if self.version >= 7 {
            for _ in 0..self.topic_count()? {
                let topic = self.topic(out)?;
                for _ in 0..self.partitions(4, size_of::<ForgottenPartition>())? {
                    let partition = PartitionIndex(self.reader.i32()?);
                    out.forgotten.push(ForgottenPartition { topic, partition });
                }
                skip_tags(self.reader, self.flexible)?;
            }
        }
        if self.version >= 11 {
            out.rack_id.push_str(self.reader.str(self.flexible)?);
        }
        if self.flexible {
            self.tags(out)?;
        }
        Ok(())
    }

    fn tags(&mut self, out: &mut FetchRequest) -> Result<(), DecodeError> {
        let version = self.version;
        let mut replica = None;
        self.reader.tagged_fields(|tag, r| {
            match tag {
                // The cluster's id, which only controllers look at; read so that it is checked.
                0 => drop(r.nullable_str(true)?),
                1 if version >= 15 => {
                    replica = Some(Replica { id: r.i32()?, epoch: r.i64()? });
                    r.skip_tagged_fields()?;
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if let Some(Replica { id, epoch }) = replica {
            (out.replica_id, out.replica_epoch) = (BrokerId(id), BrokerEpoch(epoch));
        }
        Ok(())
    }
}
