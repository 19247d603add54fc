//! What the journal says: facts about one partition, or about the whole log directory.
//!
//! ```text
//! kind (u8)   fields
//! 0           topic id, partition: whom the entries behind it are about, until the next one
//! 1..=127     a fact
//! 128..       length (u32), then so many bytes: an entry that a reader without the kind may skip
//! ```
//!
//! Each kind has a level ([`Entry::level`]); a journal holds no kind above the level of its directory. Kinds
//! from 128 on have level 1: every release from 0.1.0 on skips those that it does not know.

use std::sync::Arc;

use model::level::JOURNAL_LEVEL_MAX;
use model::{LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId, Uuid, later_release};

use crate::{ActiveSegment, Derived, SealedSegment};

use super::codec::{Reader, Unreadable, put_bytes, put_offset, put_offset_or_none, put_text};

/// A partition's identity: a topic made again under an old name has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition's number.
    pub partition: PartitionIndex,
}

/// A partition is this broker's: durable before the partition serves. A second one replaces the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The topic's name: with the partition's number, the name of the folder.
    pub topic: Arc<str>,
    /// Offsets are contiguous from here on; `None` while that is not known.
    pub dense_from: Option<Offset>,
    /// Whether records are acknowledged only when they are synced (`durability=fsync`).
    pub fsync: bool,
    /// Index of the cluster's metadata that wanted the partition here; 0 if not known.
    pub image_index: u64,
    /// Whether a person had it mended without records that are lost, and it was not decided since that it counts as complete all
    /// the same: that is for the first start that knows whether other brokers have everything.
    pub mended: bool,
}

/// What was true of a log at its last checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Below it nothing needs recovery.
    pub recovery_point: Offset,
    /// The active segment at the recovery point; `None` if not known.
    pub active: Option<ActiveSegment>,
    /// The newest leader epoch of the log; -1 for none.
    pub epoch: LeaderEpoch,
    /// The high watermark: a hint for replicas, no bound for recovery (it may not be synced).
    pub high_watermark: Offset,
    /// Below it the log was compacted.
    pub cleaned_below: Offset,
    /// The wall clock.
    pub at: Timestamp,
}

/// Why a partition is not served until a person or a replica mends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The first offset that is missing or cannot be read; `None` if not known.
    pub offset: Option<Offset>,
    /// The reason, in words.
    pub reason: Arc<str>,
}

/// State of the node's metadata folder: the folder holds at least this much unless it is an older copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataNote {
    /// Number of the quorum's member that the folder is.
    pub member: u64,
    /// Index of the newest entry that the node acted upon and that is durable in the folder.
    pub index: u64,
    /// Term of the newest vote that is durable in the folder.
    pub term: u64,
}

/// A fact about one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The partition is this broker's.
    Opened(Opened),
    /// A checkpoint was made.
    Checkpoint(Checkpoint),
    /// What is derived from the batches below the end of the log, for an opening that reads none.
    Derived(Derived),
    /// Records of a leader epoch begin here. Entered no later than the first fact that says that they are
    /// synced: below the synced offset no epoch is missing.
    Epoch(LeaderEpoch, Offset),
    /// Everything below this offset is synced.
    Synced(Offset),
    /// All sealed segments (`complete`), or those sealed since the last such fact.
    Sealed {
        /// Whether segments that are not named are none.
        complete: bool,
        /// The segments.
        segments: Vec<SealedSegment>,
    },
    /// Offsets may be missing from now on. Earlier versions said so of each compaction, with the bases of
    /// the segments: as [`Fact::Compacted`].
    Swapped(Vec<Offset>),
    /// These segments are being replaced by compaction, which leaves no gap: nothing is known of them until
    /// the next [`Fact::Sealed`]. Durable before the first rename.
    Compacted(Vec<Offset>),
    /// The log starts here: durable before the answer, and before any file goes.
    Start(Offset),
    /// The log is cut here: durable before the cut.
    Truncated(Offset),
    /// The log was closed cleanly and ends here.
    Closed(Offset),
    /// The partition is not served.
    Refused(Refused),
    /// A sync of the log failed: what the disk holds above the synced offset is not known.
    SyncFailed(Arc<str>),
    /// A person mended the partition: it is no longer refused.
    Mended,
    /// The partition was deleted; its folder gets this name. Durable before the rename.
    Deleted {
        /// The folder's name on its way out.
        aside: Arc<str>,
    },
    /// Nothing is left of the partition here.
    Forgotten,
}

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The broker started: from here on nothing counts as closed.
    Started(Timestamp),
    /// This process has the directory: durable before the process registers with it.
    Begun(Uuid),
    /// The process was registered: which ones had the directory before does not matter any more.
    Joined(Uuid),
    /// The newest mark of the directory, by which a copy of the directory is recognised (`node::marks`). Level 2.
    Marked(u64),
    /// The newest state of the node's metadata folder, by which an older copy of that folder is recognised. Level 2.
    MetadataNoted(MetadataNote),
    /// A fact about a partition.
    Of(Key, Fact),
}

/// The bit of a kind whose entries carry their length, so that an older release skips them.
const SKIPPABLE: u8 = 0x80;

impl Entry {
    /// The level of the directory's journal from which on entries of this kind are written.
    pub fn level(&self) -> u8 {
        match self {
            Entry::Started(_) | Entry::Begun(_) | Entry::Joined(_) => 1,
            Entry::Marked(_) | Entry::MetadataNoted(_) => 2,
            Entry::Of(_, fact) => fact.level(),
        }
    }
}

impl Fact {
    /// The level of the directory's journal from which on facts of this kind are written.
    pub fn level(&self) -> u8 {
        match self {
            Fact::Opened(_)
            | Fact::Checkpoint(_)
            | Fact::Derived(_)
            | Fact::Epoch(..)
            | Fact::Synced(_)
            | Fact::Sealed { .. }
            | Fact::Swapped(_)
            | Fact::Compacted(_)
            | Fact::Start(_)
            | Fact::Truncated(_)
            | Fact::Closed(_)
            | Fact::Refused(_)
            | Fact::SyncFailed(_)
            | Fact::Mended
            | Fact::Deleted { .. }
            | Fact::Forgotten => 1,
        }
    }
}

const KEY: u8 = 0;
const STARTED: u8 = 1;
const OPENED: u8 = 2;
const CHECKPOINT: u8 = 3;
const SYNCED: u8 = 4;
const SEALED: u8 = 5;
const SWAPPED: u8 = 6;
const START: u8 = 7;
const TRUNCATED: u8 = 8;
const CLOSED: u8 = 9;
const REFUSED: u8 = 10;
const SYNC_FAILED: u8 = 11;
const MENDED: u8 = 12;
const DELETED: u8 = 13;
const FORGOTTEN: u8 = 14;
/// Of earlier versions, which told of no epoch that began behind it.
const DERIVED_ALONE: u8 = 15;
const EPOCH: u8 = 16;
const DERIVED: u8 = 17;
const BEGUN: u8 = 18;
const JOINED: u8 = 19;
const COMPACTED: u8 = 20;
/// A reader must not skip marks: a directory that loses its mark is taken for a copy.
const MARKED: u8 = 21;
/// A reader must not skip these notes: the node would vote with an older copy of its metadata folder.
const METADATA_NOTED: u8 = 22;

/// First in a frame: the id of the log directory that the journal belongs to. No fact: an earlier release skips it, and the copy
/// of `meta.properties` in the snapshot has the same id.
const DIRECTORY: u8 = 0x81;

/// The log directory that the entries of a frame name, if they name one.
pub(super) fn named_directory(entries: &[u8]) -> Option<Uuid> {
    let mut reader = Reader(entries);
    let is_named = reader.u8() == Ok(DIRECTORY);
    let id = is_named.then(|| reader.bytes().ok()).flatten()?;
    id.try_into().ok().map(Uuid)
}

/// Kinds of a [later release](later_release): an entry without fields at a level of its own, and one that earlier releases
/// skip.
const LATER: u8 = 0x60;
const LATER_SKIPPABLE: u8 = 0xe0;

/// Flags of an opened partition.
const FSYNC: u8 = 1;
const MENDED_UNDECIDED: u8 = 2;

/// Writes entries one behind the other, and each partition's key once in a row.
#[derive(Default)]
pub(super) struct EntryWriter {
    pub(super) bytes: Vec<u8>,
    key: Option<Key>,
}

impl EntryWriter {
    /// Entries of a frame in the journal of this log directory.
    pub(super) fn of_directory(directory: Option<Uuid>) -> EntryWriter {
        let mut entries = EntryWriter::default();
        if let Some(id) = directory {
            entries.bytes.push(DIRECTORY);
            put_bytes(&mut entries.bytes, &id.0);
        }
        entries
    }

    /// Goes on behind these bytes.
    pub(super) fn behind(bytes: Vec<u8>) -> EntryWriter {
        EntryWriter { bytes, key: None }
    }

    pub(super) fn put(&mut self, entry: &Entry) {
        match entry {
            Entry::Started(at) => {
                self.bytes.push(STARTED);
                self.bytes.extend_from_slice(&at.0.to_be_bytes());
            }
            Entry::Begun(process) => self.put_process(BEGUN, *process),
            Entry::Joined(process) => self.put_process(JOINED, *process),
            Entry::Marked(mark) => {
                self.bytes.push(MARKED);
                self.bytes.extend_from_slice(&mark.to_be_bytes());
            }
            Entry::MetadataNoted(note) => {
                self.bytes.push(METADATA_NOTED);
                for field in [note.member, note.index, note.term] {
                    self.bytes.extend_from_slice(&field.to_be_bytes());
                }
            }
            Entry::Of(key, fact) => self.put_fact(*key, fact),
        }
    }

    /// Adds entries of a [later release](later_release) to a journal of this level.
    pub(super) fn put_later(&mut self, level: u8) {
        self.bytes.push(LATER_SKIPPABLE);
        put_bytes(&mut self.bytes, b"later");
        if level > JOURNAL_LEVEL_MAX {
            self.bytes.push(LATER);
        }
    }

    fn put_process(&mut self, kind: u8, process: Uuid) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&process.0);
    }

    pub(super) fn put_fact(&mut self, key: Key, fact: &Fact) {
        if self.key != Some(key) {
            self.key = Some(key);
            self.bytes.push(KEY);
            self.bytes.extend_from_slice(&key.topic_id.0);
            self.bytes.extend_from_slice(&key.partition.0.to_be_bytes());
        }
        encode(fact, &mut self.bytes);
    }
}

fn encode(fact: &Fact, out: &mut Vec<u8>) {
    match fact {
        Fact::Opened(opened) => {
            out.push(OPENED);
            put_text(out, &opened.topic);
            put_offset_or_none(out, opened.dense_from);
            let mended = if opened.mended { MENDED_UNDECIDED } else { 0 };
            out.push(if opened.fsync { FSYNC } else { 0 } | mended);
            out.extend_from_slice(&opened.image_index.to_be_bytes());
        }
        Fact::Checkpoint(checkpoint) => {
            out.push(CHECKPOINT);
            encode_checkpoint(checkpoint, out);
        }
        Fact::Derived(derived) => {
            let kind = if derived.tells_newer { DERIVED } else { DERIVED_ALONE };
            tagged_offset(kind, derived.end, out);
            out.push(derived.has_producers.into());
            out.extend_from_slice(&(derived.epochs.len() as u32).to_be_bytes());
            for (epoch, start) in &derived.epochs {
                out.extend_from_slice(&epoch.0.to_be_bytes());
                put_offset(out, *start);
            }
        }
        Fact::Epoch(epoch, start) => {
            out.push(EPOCH);
            out.extend_from_slice(&epoch.0.to_be_bytes());
            put_offset(out, *start);
        }
        Fact::Synced(offset) => tagged_offset(SYNCED, *offset, out),
        Fact::Sealed { complete, segments } => {
            out.extend_from_slice(&[SEALED, (*complete).into()]);
            out.extend_from_slice(&(segments.len() as u32).to_be_bytes());
            for segment in segments {
                put_offset(out, segment.base);
                out.extend_from_slice(&segment.size_bytes.to_be_bytes());
            }
        }
        Fact::Swapped(bases) | Fact::Compacted(bases) => {
            let has_gaps = matches!(fact, Fact::Swapped(_));
            out.push(if has_gaps { SWAPPED } else { COMPACTED });
            out.extend_from_slice(&(bases.len() as u32).to_be_bytes());
            bases.iter().for_each(|base| put_offset(out, *base));
        }
        Fact::Start(offset) => tagged_offset(START, *offset, out),
        Fact::Truncated(offset) => tagged_offset(TRUNCATED, *offset, out),
        Fact::Closed(offset) => tagged_offset(CLOSED, *offset, out),
        Fact::Refused(refused) => {
            out.push(REFUSED);
            put_offset_or_none(out, refused.offset);
            put_text(out, &refused.reason);
        }
        Fact::SyncFailed(reason) => {
            out.push(SYNC_FAILED);
            put_text(out, reason);
        }
        Fact::Mended => out.push(MENDED),
        Fact::Deleted { aside } => {
            out.push(DELETED);
            put_bytes(out, aside.as_bytes());
        }
        Fact::Forgotten => out.push(FORGOTTEN),
    }
}

fn tagged_offset(kind: u8, offset: Offset, out: &mut Vec<u8>) {
    out.push(kind);
    put_offset(out, offset);
}

fn encode_checkpoint(checkpoint: &Checkpoint, out: &mut Vec<u8>) {
    put_offset(out, checkpoint.recovery_point);
    out.push(checkpoint.active.is_some().into());
    if let Some(active) = checkpoint.active {
        put_offset(out, active.base);
        put_offset(out, active.end);
        out.extend_from_slice(&active.size_bytes.to_be_bytes());
    }
    out.extend_from_slice(&checkpoint.epoch.0.to_be_bytes());
    put_offset(out, checkpoint.high_watermark);
    put_offset(out, checkpoint.cleaned_below);
    out.extend_from_slice(&checkpoint.at.0.to_be_bytes());
}

/// Reads what an [`EntryWriter`] wrote, entry by entry.
pub(super) struct EntryReader<'a> {
    reader: Reader<'a>,
    key: Option<Key>,
}

impl<'a> EntryReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> EntryReader<'a> {
        EntryReader { reader: Reader(bytes), key: None }
    }

    /// The next entry; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Unreadable> {
        while !self.reader.is_empty() {
            match self.reader.u8()? {
                kind if kind & SKIPPABLE != 0 => {
                    let body = self.reader.bytes()?;
                    if let Some(entry) = decode_skippable(kind, self.key, body)? {
                        return Ok(Some(entry));
                    }
                }
                KEY => {
                    let topic_id = Uuid(self.reader.array()?);
                    let partition = PartitionIndex(self.reader.i32()?);
                    self.key = Some(Key { topic_id, partition });
                }
                STARTED => return Ok(Some(Entry::Started(Timestamp(self.reader.i64()?)))),
                BEGUN => return Ok(Some(Entry::Begun(Uuid(self.reader.array()?)))),
                JOINED => return Ok(Some(Entry::Joined(Uuid(self.reader.array()?)))),
                MARKED => return Ok(Some(Entry::Marked(self.reader.u64()?))),
                METADATA_NOTED => {
                    let (member, index) = (self.reader.u64()?, self.reader.u64()?);
                    let note = MetadataNote { member, index, term: self.reader.u64()? };
                    return Ok(Some(Entry::MetadataNoted(note)));
                }
                LATER if later_release::is_played() => {}
                kind => {
                    let key = self.key.ok_or(Unreadable::new("an entry is about no partition"))?;
                    return Ok(Some(Entry::Of(key, decode(kind, &mut self.reader)?)));
                }
            }
        }
        Ok(None)
    }
}

/// Decodes an entry whose kind has the bit [`SKIPPABLE`]; `None` for a kind of a newer release. Bytes behind
/// the known fields are fields of a newer release.
fn decode_skippable(
    _kind: u8,
    _key: Option<Key>,
    _body: &[u8],
) -> Result<Option<Entry>, Unreadable> {
    // This release writes no such kind.
    Ok(None)
}

fn decode(kind: u8, reader: &mut Reader<'_>) -> Result<Fact, Unreadable> {
    Ok(match kind {
        OPENED => Fact::Opened(decode_opened(reader)?),
        CHECKPOINT => Fact::Checkpoint(decode_checkpoint(reader)?),
        kind @ (DERIVED | DERIVED_ALONE) => {
            let (end, has_producers) = (reader.offset()?, reader.flag()?);
            let count = reader.u32()?;
            let read = |_| Ok((LeaderEpoch(reader.i32()?), reader.offset()?));
            let epochs = (0..count).map(read).collect::<Result<_, _>>()?;
            Fact::Derived(Derived { end, epochs, has_producers, tells_newer: kind == DERIVED })
        }
        EPOCH => Fact::Epoch(LeaderEpoch(reader.i32()?), reader.offset()?),
        SYNCED => Fact::Synced(reader.offset()?),
        SEALED => {
            let (complete, count) = (reader.flag()?, reader.u32()?);
            let read = |_| Ok(SealedSegment { base: reader.offset()?, size_bytes: reader.u64()? });
            Fact::Sealed { complete, segments: (0..count).map(read).collect::<Result<_, _>>()? }
        }
        kind @ (SWAPPED | COMPACTED) => {
            let count = reader.u32()?;
            let bases = (0..count).map(|_| reader.offset()).collect::<Result<_, _>>()?;
            if kind == SWAPPED { Fact::Swapped(bases) } else { Fact::Compacted(bases) }
        }
        START => Fact::Start(reader.offset()?),
        TRUNCATED => Fact::Truncated(reader.offset()?),
        CLOSED => Fact::Closed(reader.offset()?),
        REFUSED => {
            Fact::Refused(Refused { offset: reader.offset_or_none()?, reason: reader.text()? })
        }
        SYNC_FAILED => Fact::SyncFailed(reader.text()?),
        MENDED => Fact::Mended,
        DELETED => Fact::Deleted { aside: reader.text()? },
        FORGOTTEN => Fact::Forgotten,
        other => {
            let words = "a newer release wrote it, start that release";
            return Err(Unreadable(format!("unknown kind of entry {other}: {words}")));
        }
    })
}

fn decode_opened(reader: &mut Reader<'_>) -> Result<Opened, Unreadable> {
    let (topic, dense_from, flags) = (reader.text()?, reader.offset_or_none()?, reader.u8()?);
    if flags & !(FSYNC | MENDED_UNDECIDED) != 0 {
        return Err(Unreadable(format!("invalid flags {flags}")));
    }
    Ok(Opened {
        topic,
        dense_from,
        fsync: flags & FSYNC != 0,
        image_index: reader.u64()?,
        mended: flags & MENDED_UNDECIDED != 0,
    })
}

fn decode_checkpoint(reader: &mut Reader<'_>) -> Result<Checkpoint, Unreadable> {
    let recovery_point = reader.offset()?;
    let active = match reader.flag()? {
        false => None,
        true => Some(ActiveSegment {
            base: reader.offset()?,
            end: reader.offset()?,
            size_bytes: reader.u64()?,
        }),
    };
    Ok(Checkpoint {
        recovery_point,
        active,
        epoch: LeaderEpoch(reader.i32()?),
        high_watermark: reader.offset()?,
        cleaned_below: reader.offset()?,
        at: Timestamp(reader.i64()?),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::level::JOURNAL_LEVEL_MIN;

    use super::*;

    /// An entry of a newer release that may be skipped, with its length.
    fn newer(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        put_bytes(&mut bytes, body);
        bytes
    }

    fn read_all(bytes: &[u8]) -> Result<Vec<Entry>, Unreadable> {
        let mut entries = EntryReader::new(bytes);
        let mut read = Vec::new();
        while let Some(entry) = entries.next()? {
            read.push(entry);
        }
        Ok(read)
    }

    /// The number of an entry's kind. A new entry has to be added here and to [`every_entry`].
    fn kind_of(entry: &Entry) -> u8 {
        match entry {
            Entry::Started(_) => STARTED,
            Entry::Begun(_) => BEGUN,
            Entry::Joined(_) => JOINED,
            Entry::Marked(_) => MARKED,
            Entry::MetadataNoted(_) => METADATA_NOTED,
            Entry::Of(_, fact) => match fact {
                Fact::Opened(_) => OPENED,
                Fact::Checkpoint(_) => CHECKPOINT,
                Fact::Derived(derived) if derived.tells_newer => DERIVED,
                Fact::Derived(_) => DERIVED_ALONE,
                Fact::Epoch(..) => EPOCH,
                Fact::Synced(_) => SYNCED,
                Fact::Sealed { .. } => SEALED,
                Fact::Swapped(_) => SWAPPED,
                Fact::Compacted(_) => COMPACTED,
                Fact::Start(_) => START,
                Fact::Truncated(_) => TRUNCATED,
                Fact::Closed(_) => CLOSED,
                Fact::Refused(_) => REFUSED,
                Fact::SyncFailed(_) => SYNC_FAILED,
                Fact::Mended => MENDED,
                Fact::Deleted { .. } => DELETED,
                Fact::Forgotten => FORGOTTEN,
            },
        }
    }

    /// An entry of every kind.
    fn every_entry() -> Vec<Entry> {
        let key = Key { topic_id: Uuid([1; 16]), partition: PartitionIndex(0) };
        let checkpoint = Checkpoint {
            recovery_point: Offset(3),
            active: Some(ActiveSegment { base: Offset(0), end: Offset(3), size_bytes: 9 }),
            epoch: LeaderEpoch(1),
            high_watermark: Offset(3),
            cleaned_below: Offset(0),
            at: Timestamp(5),
        };
        let derived = |tells_newer| Derived {
            end: Offset(3),
            has_producers: true,
            epochs: vec![(LeaderEpoch(1), Offset(0))],
            tells_newer,
        };
        let opened = Opened {
            topic: "t".into(),
            dense_from: Some(Offset(0)),
            fsync: true,
            image_index: 7,
            mended: false,
        };
        let segment = SealedSegment { base: Offset(0), size_bytes: 9 };
        let facts = [
            Fact::Opened(opened),
            Fact::Checkpoint(checkpoint),
            Fact::Derived(derived(true)),
            Fact::Derived(derived(false)),
            Fact::Epoch(LeaderEpoch(1), Offset(0)),
            Fact::Synced(Offset(3)),
            Fact::Sealed { complete: true, segments: vec![segment] },
            Fact::Swapped(vec![Offset(0)]),
            Fact::Compacted(vec![Offset(0)]),
            Fact::Start(Offset(1)),
            Fact::Truncated(Offset(2)),
            Fact::Closed(Offset(3)),
            Fact::Refused(Refused { offset: Some(Offset(1)), reason: "r".into() }),
            Fact::SyncFailed("r".into()),
            Fact::Mended,
            Fact::Deleted { aside: "a".into() },
            Fact::Forgotten,
        ];
        let whole = [
            Entry::Started(Timestamp(5)),
            Entry::Begun(Uuid([2; 16])),
            Entry::Joined(Uuid([3; 16])),
            Entry::Marked(1 << 40),
            Entry::MetadataNoted(MetadataNote { member: (7 << 32) | 1, index: 9, term: 4 }),
        ];
        whole.into_iter().chain(facts.map(|fact| Entry::Of(key, fact))).collect()
    }

    #[test]
    fn every_kind_is_read_with_newer_entries_around_and_no_other_kind_is_known() {
        let entries = every_entry();
        let known: BTreeSet<u8> = entries.iter().map(kind_of).collect();
        assert_eq!(known.len(), entries.len(), "one of each");
        let mut writer = EntryWriter::default();
        for entry in &entries {
            writer.bytes.extend_from_slice(&newer(0xfe, b"newer"));
            writer.put(entry);
            assert!((JOURNAL_LEVEL_MIN..=JOURNAL_LEVEL_MAX).contains(&entry.level()), "{entry:?}");
            assert_eq!(kind_of(entry) & SKIPPABLE, 0, "{entry:?}: a later release would lose it");
        }
        assert_eq!(read_all(&writer.bytes), Ok(entries));
        // A kind that is not known is the word of a newer release, behind a key as in front of it.
        let key = Key { topic_id: Uuid([1; 16]), partition: PartitionIndex(0) };
        for kind in (1..SKIPPABLE).filter(|kind| !known.contains(kind)) {
            let mut writer = EntryWriter::default();
            writer.put(&Entry::Of(key, Fact::Forgotten));
            writer.bytes.push(kind);
            let Unreadable(reason) = read_all(&writer.bytes).unwrap_err();
            assert!(reason.contains("start that release"), "kind {kind}: {reason}");
        }
    }

    #[test]
    fn a_newer_entry_with_the_skip_bit_is_skipped_and_another_is_an_error() {
        let key = Key { topic_id: Uuid([1; 16]), partition: PartitionIndex(0) };
        let known = [
            Entry::Started(Timestamp(5)),
            Entry::Of(key, Fact::Start(Offset(9))),
            Entry::Of(key, Fact::Forgotten),
        ];
        for kind in [0x80, 0xc7, 0xff] {
            for body in [&b""[..], b"x", &[0xff; 300]] {
                let mut writer = EntryWriter::default();
                for entry in &known {
                    writer.bytes.extend_from_slice(&newer(kind, body));
                    writer.put(entry);
                }
                writer.bytes.extend_from_slice(&newer(kind, body));
                assert_eq!(read_all(&writer.bytes), Ok(known.to_vec()), "kind {kind}");
                writer.bytes.pop();
                assert!(body.is_empty() || read_all(&writer.bytes).is_err(), "cut");
            }
        }
        let mut writer = EntryWriter::default();
        writer.put(&known[1]);
        writer.bytes.extend_from_slice(&newer(0x7f, b"x"));
        assert!(read_all(&writer.bytes).is_err());
    }
}
