//! The few requests that are sent, encoded by hand in versions without compact fields, which every
//! Kafka-protocol broker of today serves: Produce 8, Metadata 7, CreateTopics 4, DeleteTopics 3,
//! DeleteRecords 1.

use std::time::{SystemTime, UNIX_EPOCH};

use model::Timestamp;
use model::record::BatchBuilder;

/// Where the correlation id stands in a framed request.
pub const AT_CORRELATION_ID: usize = 8;
const CLIENT_ID: &str = "rawload";
/// What the broker may take to answer, in milliseconds.
const TIMEOUT_MS: i32 = 30_000;

/// API keys and the versions spoken here.
#[derive(Clone, Copy)]
pub enum Api {
    /// Produce 8.
    Produce,
    /// Metadata 7.
    Metadata,
    /// CreateTopics 4.
    CreateTopics,
    /// DeleteTopics 3.
    DeleteTopics,
    /// DeleteRecords 1.
    DeleteRecords,
}

impl Api {
    fn key_and_version(self) -> (i16, i16) {
        match self {
            Api::Produce => (0, 8),
            Api::Metadata => (3, 7),
            Api::CreateTopics => (19, 4),
            Api::DeleteTopics => (20, 3),
            Api::DeleteRecords => (21, 1),
        }
    }
}

/// A request under construction: length, header, then what the caller appends.
struct Frame(Vec<u8>);

impl Frame {
    fn new(api: Api) -> Frame {
        let (key, version) = api.key_and_version();
        let mut frame = Frame(vec![0; 4]);
        frame.i16(key).i16(version).i32(0).string(CLIENT_ID);
        frame
    }

    fn i16(&mut self, value: i16) -> &mut Frame {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn i32(&mut self, value: i32) -> &mut Frame {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn i64(&mut self, value: i64) -> &mut Frame {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn bool(&mut self, value: bool) -> &mut Frame {
        self.0.push(u8::from(value));
        self
    }

    fn count(&mut self, count: usize) -> &mut Frame {
        self.i32(i32::try_from(count).expect("requests here are small"))
    }

    fn string(&mut self, text: &str) -> &mut Frame {
        self.i16(i16::try_from(text.len()).expect("names here are short"));
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Frame {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
        self
    }

    fn finish(mut self) -> Vec<u8> {
        let length = i32::try_from(self.0.len() - 4).expect("requests stay under 2 GiB");
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

/// Produce of one batch to one partition.
pub fn produce(topic: &str, partition: i32, acks: i16, batch: &[u8]) -> Vec<u8> {
    let mut frame = Frame::new(Api::Produce);
    frame.i16(-1); // no transactional id
    frame.i16(acks).i32(TIMEOUT_MS);
    frame.count(1).string(topic).count(1).i32(partition).bytes(batch);
    frame.finish()
}

/// Metadata of some topics, which are not created by asking.
pub fn metadata(topics: &[String]) -> Vec<u8> {
    let mut frame = Frame::new(Api::Metadata);
    frame.count(topics.len());
    for topic in topics {
        frame.string(topic);
    }
    frame.bool(false);
    frame.finish()
}

/// How large a topic is made.
#[derive(Clone, Copy)]
pub struct TopicSize {
    /// Its partitions.
    pub partitions: i32,
    /// Replicas of each.
    pub replicas: i16,
}

/// CreateTopics, all of one size.
pub fn create_topics(topics: &[String], size: TopicSize, configs: &[(String, String)]) -> Vec<u8> {
    let TopicSize { partitions, replicas } = size;
    let mut frame = Frame::new(Api::CreateTopics);
    frame.count(topics.len());
    for topic in topics {
        frame.string(topic).i32(partitions).i16(replicas).count(0).count(configs.len());
        for (key, value) in configs {
            frame.string(key).string(value);
        }
    }
    frame.i32(TIMEOUT_MS).bool(false);
    frame.finish()
}

/// DeleteTopics by name.
pub fn delete_topics(topics: &[String]) -> Vec<u8> {
    let mut frame = Frame::new(Api::DeleteTopics);
    frame.count(topics.len());
    for topic in topics {
        frame.string(topic);
    }
    frame.i32(TIMEOUT_MS);
    frame.finish()
}

/// DeleteRecords of one partition, up to its high watermark.
pub fn delete_records(topic: &str, partition: i32) -> Vec<u8> {
    let mut frame = Frame::new(Api::DeleteRecords);
    frame.count(1).string(topic).count(1).i32(partition).i64(-1).i32(TIMEOUT_MS);
    frame.finish()
}

/// Numbers a framed request.
pub fn set_correlation_id(frame: &mut [u8], correlation_id: i32) {
    frame[AT_CORRELATION_ID..][..4].copy_from_slice(&correlation_id.to_be_bytes());
}

/// An uncompressed batch of equal records without keys, at most `batch_bytes` long but of at least
/// one record, and how many records it has.
pub fn batch(record_bytes: usize, batch_bytes: usize) -> (Vec<u8>, u64) {
    let value = text(record_bytes);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    let now = Timestamp(i64::try_from(now.as_millis()).expect("milliseconds fit"));
    let mut builder = BatchBuilder::new();
    builder.add(now, None, Some(&value));
    let record_size = builder.size_bytes() - model::batch::HEADER_BYTES;
    // Later records may have a longer offset delta: four bytes of slack.
    while builder.size_bytes() + record_size + 4 <= batch_bytes {
        builder.add(now, None, Some(&value));
    }
    let count = u64::try_from(builder.record_count()).expect("counts are positive");
    (builder.finish(), count)
}

/// Letters without a pattern, the same in every run.
fn text(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b'A' + (state % 26) as u8
    };
    (0..bytes).map(|_| letter()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::batch::BatchHeader;

    #[test]
    fn a_batch_fills_its_size_and_never_exceeds_it() {
        let (bytes, records) = batch(1024, 16_384);
        assert!(bytes.len() <= 16_384 && bytes.len() > 16_384 - 1100, "{}", bytes.len());
        let header = BatchHeader::decode_checked(&bytes).unwrap();
        assert_eq!(u64::try_from(header.record_count).unwrap(), records);
    }

    #[test]
    fn a_record_larger_than_the_batch_still_goes_alone() {
        assert_eq!(batch(5000, 100).1, 1);
    }

    #[test]
    fn the_length_in_front_counts_what_follows_it() {
        let frame = metadata(&["a".to_owned()]);
        let length = i32::from_be_bytes(frame[..4].try_into().unwrap());
        assert_eq!(usize::try_from(length).unwrap(), frame.len() - 4);
    }

    #[test]
    fn the_correlation_id_lies_behind_key_and_version() {
        let mut frame = metadata(&[]);
        set_correlation_id(&mut frame, 7);
        assert_eq!(&frame[4..12], [0, 3, 0, 7, 0, 0, 0, 7]);
    }
}
