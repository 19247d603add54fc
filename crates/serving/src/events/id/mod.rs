//! Resume ids: the last offset that a reader has passed in *every* partition of its stream, delivered or filtered out.
//! A client hands the last id back (`Last-Event-ID`), and any gateway goes on from there.
//!
//! Three forms are read, whichever is written:
//!
//! | form | written for | |
//! |---|---|---|
//! | `t/p@o.e.h` | one partition | topic, partition, offset, leader epoch, hash of the topic's id (8 hex digits); `.h` and `.e.h` may lack |
//! | base64url | several partitions | [`packed`] |
//! | `[{"topic":"t","partition":0,"offset":9}]` | `id=json` | KafkaSSE's; `timestamp` (milliseconds) may stand for `offset` |
//!
//! Offset -1: nothing was passed, and the next offset is 0. Leader epoch -1: not known.

mod json;
mod packed;
mod single;

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// Partitions of a stream: an id must fit into a header of 8 KiB.
pub const PARTITIONS_MAX: usize = 256;
/// Bytes of an id that is written. Proxies commonly refuse headers of more than 8 KiB.
pub const ID_BYTES_MAX: usize = 7 * 1024;
/// Bytes of an id that is read: one that was pretty-printed, or has fields of others.
const READ_BYTES_MAX: usize = 15 * 1024;

/// How ids are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum IdStyle {
    /// As few bytes as possible.
    #[default]
    Short,
    /// KafkaSSE's array.
    Json,
}

/// A hash of what a topic is: of its id, or of its name where brokers give no ids. It tells whether a topic was made
/// anew under its old name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicHash(pub u32);

impl TopicHash {
    /// Of a topic's id, as its 16 bytes.
    pub fn of_id(id: &[u8; 16]) -> TopicHash {
        TopicHash(hashed(id))
    }
}

/// 32 bits of a hash that stays the same from version to version: ids outlive gateways.
fn hashed(bytes: &[u8]) -> u32 {
    let mut hasher = SipHasher13::new_with_keys(0x6869_6768, 0x7761_7465);
    hasher.write(bytes);
    hasher.finish() as u32
}

/// A place in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The last offset that was passed; -1 for none.
    pub offset: i64,
    /// Its leader epoch; -1 if not known.
    pub leader_epoch: i32,
}

impl Position {
    /// The next offset to be read.
    pub fn next(self) -> i64 {
        self.offset + 1
    }
}

/// What an id says of one partition, to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed<'a> {
    /// The topic's name.
    pub topic: &'a str,
    /// What the topic is.
    pub topic_hash: TopicHash,
    /// The partition.
    pub partition: i32,
    /// How far.
    pub position: Position,
}

/// Writes an id. The partitions of a topic must follow each other, ascending.
pub fn write<'a>(
    style: IdStyle,
    mut passed: impl Iterator<Item = Passed<'a>> + Clone,
    out: &mut Vec<u8>,
) {
    match style {
        IdStyle::Json => json::write(passed.map(|one| (one, None)), out),
        IdStyle::Short => {
            let mut two = passed.clone();
            match (two.next(), two.next()) {
                (Some(only), None) => single::write(only, out),
                _ => packed::write(&mut passed, out),
            }
        }
    }
}

/// Writes an id of a stream that has no offset of some partitions: each of these has a time, in milliseconds since 1970, in
/// place of its position. Only [`IdStyle::Json`] can do so.
pub fn write_with_times<'a>(
    passed: impl Iterator<Item = (Passed<'a>, Option<i64>)>,
    out: &mut Vec<u8>,
) {
    json::write(passed, out);
}

/// The longest id that a stream of these partitions can have, in bytes.
pub fn bytes_max<'a>(
    style: IdStyle,
    partitions: impl Iterator<Item = (&'a str, i32)> + Clone,
) -> usize {
    let position = Position { offset: i64::MAX - 1, leader_epoch: i32::MAX - 1 };
    let topic_hash = TopicHash(u32::MAX);
    let passed =
        partitions.map(|(topic, partition)| Passed { topic, topic_hash, partition, position });
    let mut out = Vec::new();
    write(style, passed, &mut out);
    out.len()
}

/// Where an id leads in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Behind this position.
    Behind(Position),
    /// To the first record that is not older than this, in milliseconds since 1970.
    Time(i64),
}

/// A topic as an id names it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TopicKey {
    Name(String),
    /// The hash of its name.
    Hash(u32),
}

impl TopicKey {
    fn is(&self, name: &str) -> bool {
        match self {
            TopicKey::Name(known) => known == name,
            TopicKey::Hash(hash) => *hash == hashed(name.as_bytes()),
        }
    }
}

/// What an id says of one partition, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    topic: TopicKey,
    topic_hash: Option<TopicHash>,
    partition: i32,
    place: Place,
}

/// Why a text is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// It is too long.
    #[error("the id is longer than {READ_BYTES_MAX} bytes")]
    Long,
    /// It has no form that is known.
    #[error("the id is damaged: send the last one back as it came, or none")]
    Damaged,
    /// It has more partitions than a stream may have.
    #[error("the id has more than {PARTITIONS_MAX} partitions")]
    Many,
    /// It has a partition twice.
    #[error("the id has a partition twice")]
    Twice,
}

/// An id that was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResumeId(Vec<Entry>);

impl ResumeId {
    /// Reads an id in any of its forms.
    ///
    /// # Errors
    /// The text is none, or more than may be.
    pub fn read(text: &str) -> Result<ResumeId, IdError> {
        if text.len() > READ_BYTES_MAX {
            return Err(IdError::Long);
        }
        let entries = match text.as_bytes().first() {
            Some(b'[') => json::read(text)?,
            _ if text.contains('@') => vec![single::read(text)?],
            _ => packed::read(text)?,
        };
        let again = |at: usize| {
            let Entry { topic, partition, .. } = &entries[at];
            entries[..at].iter().any(|e| e.partition == *partition && e.topic == *topic)
        };
        if (0..entries.len()).any(again) {
            return Err(IdError::Twice);
        }
        Ok(ResumeId(entries))
    }

    /// What it says of a partition: where to go on, and what the topic was. Nothing, if the partition is new.
    pub fn find(&self, topic: &str, partition: i32) -> Option<(Place, Option<TopicHash>)> {
        let entry = self.0.iter().find(|e| e.partition == partition && e.topic.is(topic))?;
        Some((entry.place, entry.topic_hash))
    }
}

/// Adds an entry of a list, unless there are too many.
fn push(entries: &mut Vec<Entry>, entry: Entry) -> Result<(), IdError> {
    if entries.len() >= PARTITIONS_MAX {
        return Err(IdError::Many);
    }
    entries.push(entry);
    Ok(())
}

/// Offsets and leader epochs that a log can have: next offsets must fit, too.
fn position(offset: i64, leader_epoch: i32) -> Result<Position, IdError> {
    let fits = (-1..i64::MAX).contains(&offset) && leader_epoch >= -1;
    if fits { Ok(Position { offset, leader_epoch }) } else { Err(IdError::Damaged) }
}
