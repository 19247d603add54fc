//! One entry of the log as bytes: a Kafka batch of one record.
//!
//! The record's offset is the entry's index, the batch's leader epoch its term. The value is text,
//! so that `kafka-dump-log` shows it: a first line of JSON that says what it is and who led, then
//! a line for every metadata record.
//!
//! An entry also says what was known when it was written: up to which index the log was synced
//! (`synced`), and, if it carries records, up to which index the leader had applied (`applied`). The
//! first proves that a damaged entry before it was durable, the second what became of the entries
//! before it. Entries of version 0 say neither.
//!
//! A decision that is too large for one entry stands in several (`part`): its lines are then cut anywhere.
//! Such entries have version 2, so that a release that would take a part for the whole refuses them.

use crate::mutants::{Mutant, is_planted};
use crate::{Entry, Members, Part, Payload, Place, Proposal, is_node_id};
use metadata::{DecodeError, MetadataRecord};
use model::batch::{BatchError, BatchHeader, HEADER_BYTES};
use model::record::{BatchBuilder, Records};
use model::{LeaderEpoch, Offset, Timestamp};
use serde::{Deserialize, Serialize};

/// The newest version of an entry's first line that this code reads.
const ENTRY_VERSION: u16 = 2;
/// The version of an entry that is whole.
const WHOLE_VERSION: u16 = 1;

/// The first line.
#[derive(Serialize, Deserialize)]
struct FirstLine {
    v: u16,
    term: u64,
    leader: u64,
    #[serde(default)]
    synced: Option<u64>,
    entry: Kind,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// A new leader's first word.
    Blank,
    /// Metadata records, on the lines that follow.
    Records {
        decided_at: Option<u64>,
        #[serde(default)]
        applied: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<PartNumber>,
    },
    /// The voters; two lists while one gives way to the other.
    Members { voters: Vec<Vec<u64>>, learners: Vec<u64> },
}

/// Which part of a decision the lines are.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct PartNumber {
    number: u32,
    last: bool,
}

/// Why bytes of the log are not an entry.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// The batch has no whole record.
    #[error("entry {index}: {source}")]
    Batch {
        /// Its offset.
        index: i64,
        /// Why.
        source: BatchError,
    },
    /// It says nothing that an entry can say.
    #[error("entry {index}: {reason}")]
    Malformed {
        /// Its offset.
        index: i64,
        /// Why.
        reason: String,
    },
    /// One of its metadata records cannot be read.
    #[error("entry {index}: {source}")]
    Record {
        /// Its offset.
        index: i64,
        /// Why.
        source: DecodeError,
    },
    /// It is of a version that this release does not know.
    #[error("entry {index} has version {version}, which a newer release wrote: start that release")]
    Version {
        /// Its offset.
        index: i64,
        /// Its version.
        version: u16,
    },
}

impl From<EntryError> for std::io::Error {
    fn from(error: EntryError) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::InvalidData, error)
    }
}

/// The entry as a batch. `synced` is the index up to which the log is synced now; `now` is only for
/// people who read the log.
pub fn encode(entry: &Entry, synced: Option<u64>, now: Timestamp) -> Vec<u8> {
    let mut lines = Vec::new();
    let mut version = WHOLE_VERSION;
    let kind = match &entry.payload {
        Payload::Blank => Kind::Blank,
        Payload::Proposal(Proposal { decided_at, applied, records, part: None }) => {
            let lost = usize::from(is_planted(Mutant::DropsLastRecords) && records.len() > 1);
            MetadataRecord::encode_lines(&records[..records.len() - lost], &mut lines);
            Kind::Records { decided_at: *decided_at, applied: *applied, part: None }
        }
        Payload::Proposal(Proposal { decided_at, applied, part: Some(part), .. }) => {
            version = ENTRY_VERSION;
            lines.extend_from_slice(&part.text);
            let part = Some(PartNumber { number: part.number, last: part.is_last });
            Kind::Records { decided_at: *decided_at, applied: *applied, part }
        }
        Payload::Members(Members { voters, learners }) => {
            Kind::Members { voters: voters.clone(), learners: learners.clone() }
        }
    };
    let Place { term, leader, index } = entry.place;
    let first = FirstLine { v: version, term, leader, synced, entry: kind };
    let mut value = serde_json::to_vec(&first).expect("writing JSON to memory cannot fail");
    value.push(b'\n');
    value.append(&mut lines);
    let offset = i64::try_from(index).expect("an index fits an offset");
    let epoch = i32::try_from(term).expect("a term fits a leader epoch");
    let mut batch = BatchBuilder::new().placed(Offset(offset), LeaderEpoch(epoch));
    batch.add(now, None, Some(&value));
    batch.finish()
}

/// What an entry says of itself and of the log at the time when it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Where it stands.
    pub place: Place,
    /// Whether the entry is of a version that says how far the log was synced.
    pub tells_synced: bool,
    /// Up to this index the log was synced when the entry was written.
    pub synced: Option<u64>,
    /// The members, if it says who they are.
    pub members: Option<Members>,
}

/// The place of an entry in a batch whose checksum was checked, without its records.
pub fn stamp(header: &BatchHeader, batch: &[u8]) -> Result<Stamp, EntryError> {
    let (first, _) = split(header, batch)?;
    let place = place(header, &first)?;
    let members = match first.entry {
        Kind::Members { voters, learners } => Some(Members { voters, learners }),
        Kind::Blank | Kind::Records { .. } => None,
    };
    Ok(Stamp { place, tells_synced: first.v > 0, synced: first.synced, members })
}

/// The entry in a batch whose checksum was checked.
pub fn decode(header: &BatchHeader, batch: &[u8]) -> Result<Entry, EntryError> {
    let index = header.base_offset.0;
    let (first, rest) = split(header, batch)?;
    let place = place(header, &first)?;
    let payload = match first.entry {
        Kind::Blank => Payload::Blank,
        Kind::Members { voters, learners } => {
            let mut nodes = voters.iter().flatten().chain(&learners);
            if let Some(node) = nodes.find(|id| !is_node_id(**id)) {
                let reason = format!("no node can have the id {node}");
                return Err(EntryError::Malformed { index, reason });
            }
            // Of no voters every set of members would be a majority.
            if voters.is_empty() || voters.iter().any(Vec::is_empty) {
                let reason = "a configuration without voters".to_owned();
                return Err(EntryError::Malformed { index, reason });
            }
            Payload::Members(Members { voters, learners })
        }
        Kind::Records { decided_at, applied, part: Some(PartNumber { number, last }) } => {
            // Behind the line feed of the first line, which is there if the text is.
            let text = rest.get(1..).unwrap_or_default().into();
            let part = Some(Part { number, is_last: last, text });
            Payload::Proposal(Proposal { decided_at, applied, records: [].into(), part })
        }
        Kind::Records { decided_at, applied, part: None } => {
            let records = MetadataRecord::decode_lines(rest);
            let records = records.map_err(|source| EntryError::Record { index, source })?;
            Payload::Proposal(Proposal { decided_at, applied, records: records.into(), part: None })
        }
    };
    Ok(Entry { place, payload })
}

/// The first line, and the lines that follow.
fn split<'a>(header: &BatchHeader, batch: &'a [u8]) -> Result<(FirstLine, &'a [u8]), EntryError> {
    let index = header.base_offset.0;
    let malformed = |reason: String| EntryError::Malformed { index, reason };
    let mut records = Records::new(&batch[HEADER_BYTES..], header.record_count);
    let record = records.next().ok_or_else(|| malformed("the batch has no record".into()))?;
    let record = record.map_err(|source| EntryError::Batch { index, source })?;
    let value = record.value.ok_or_else(|| malformed("the record has no value".into()))?;
    let split = value.iter().position(|byte| *byte == b'\n').unwrap_or(value.len());
    let (first, rest) = value.split_at(split);
    let first: FirstLine =
        serde_json::from_slice(first).map_err(|error| malformed(error.to_string()))?;
    if first.v > ENTRY_VERSION {
        return Err(EntryError::Version { index, version: first.v });
    }
    Ok((first, rest))
}

/// Index and term. They stand outside the batch's checksum as well, and must agree.
fn place(header: &BatchHeader, first: &FirstLine) -> Result<Place, EntryError> {
    let index = header.base_offset.0;
    let malformed = |reason: String| EntryError::Malformed { index, reason };
    let place_index = u64::try_from(index).map_err(|_| malformed("a negative index".into()))?;
    if index == i64::MAX {
        return Err(malformed("an index behind which there is none".into()));
    }
    if i32::try_from(first.term) != Ok(header.leader_epoch.0) || !is_node_id(first.leader) {
        let FirstLine { term, leader, .. } = first;
        let epoch = header.leader_epoch.0;
        let reason =
            format!("the batch has leader epoch {epoch}, the entry term {term} of node {leader}");
        return Err(malformed(reason));
    }
    Ok(Place { term: first.term, leader: first.leader, index: place_index })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(payload: Payload) -> Entry {
        let place = Place { term: 3, leader: 2, index: 7 };
        let entry = Entry { place, payload };
        let bytes = encode(&entry, Some(4), Timestamp(1));
        let header = BatchHeader::decode_checked(&bytes).unwrap();
        assert_eq!((header.base_offset, header.leader_epoch), (Offset(7), LeaderEpoch(3)));
        let decoded = decode(&header, &bytes).unwrap();
        assert_eq!(decoded, entry);
        let told = stamp(&header, &bytes).unwrap();
        let members = match &entry.payload {
            Payload::Members(members) => Some(members.clone()),
            _ => None,
        };
        assert_eq!(told, Stamp { place, tells_synced: true, synced: Some(4), members });
        decoded
    }

    #[test]
    fn entries_and_back() {
        round_trip(Payload::Blank);
        let voters = vec![vec![1, 2], vec![2, 3]];
        round_trip(Payload::Members(Members { voters, learners: vec![9] }));
        let records = vec![MetadataRecord::ClusterCreated { cluster_id: "c\n".into() }];
        round_trip(Payload::Proposal(Proposal {
            decided_at: Some(5),
            applied: Some(6),
            records: records.into(),
            part: None,
        }));
        let records = Arc::new([]);
        let (decided_at, applied) = (None, None);
        round_trip(Payload::Proposal(Proposal { decided_at, applied, records, part: None }));
    }

    #[test]
    fn parts_and_back() {
        for (number, is_last, text) in [(0, false, "{\"a"), (1, true, "\n\nb\"}\n"), (2, true, "")]
        {
            let part = Some(Part { number, is_last, text: text.as_bytes().into() });
            let records = Arc::new([]);
            let (decided_at, applied) = (Some(5), Some(6));
            round_trip(Payload::Proposal(Proposal { decided_at, applied, records, part }));
        }
    }

    #[test]
    fn only_a_part_has_the_version_that_releases_without_parts_refuse() {
        let version = |part: Option<Part>| {
            let proposal =
                Proposal { decided_at: None, applied: None, records: Arc::new([]), part };
            let place = Place { term: 1, leader: 1, index: 0 };
            let entry = Entry { place, payload: Payload::Proposal(proposal) };
            let bytes = encode(&entry, None, Timestamp(1));
            let header = BatchHeader::decode_checked(&bytes).unwrap();
            split(&header, &bytes).unwrap().0.v
        };
        assert_eq!(version(None), 1);
        let text = Arc::new([]);
        assert_eq!(version(Some(Part { number: 0, is_last: true, text })), 2);
    }

    use std::sync::Arc;

    /// The entry in a batch with this first line.
    fn read(first: &str, lines: &str) -> Result<Entry, EntryError> {
        let mut batch = BatchBuilder::new().placed(Offset(4), LeaderEpoch(1));
        batch.add(Timestamp(0), None, Some(format!("{first}\n{lines}").as_bytes()));
        let bytes = batch.finish();
        let header = BatchHeader::decode_checked(&bytes).unwrap();
        decode(&header, &bytes)
    }

    #[test]
    fn newer_fields_of_any_entry_are_skipped_and_newer_versions_and_kinds_are_refused() {
        let with = |version: u16, entry: &str, more: &str| {
            let first =
                format!("{{\"v\":{version},\"term\":1,\"leader\":1,{more}\"entry\":{entry}}}");
            read(&first, "")
        };
        let more = "\"newer\":[{\"a\":1}],";
        for (entry, newer) in [
            ("\"blank\"", "\"blank\""),
            ("{\"records\":{\"decided_at\":1}}", "{\"records\":{\"newer\":7,\"decided_at\":1}}"),
            (
                "{\"records\":{\"decided_at\":1,\"part\":{\"number\":0,\"last\":true}}}",
                "{\"records\":{\"decided_at\":1,\"part\":{\"number\":0,\"newer\":7,\"last\":true}}}",
            ),
            (
                "{\"members\":{\"voters\":[[1]],\"learners\":[]}}",
                "{\"members\":{\"newer\":7,\"voters\":[[1]],\"learners\":[]}}",
            ),
        ] {
            let known = with(WHOLE_VERSION, entry, "").unwrap();
            // A new kind of payload has to be added above.
            match &known.payload {
                Payload::Blank | Payload::Proposal(_) | Payload::Members(_) => {}
            }
            assert_eq!(with(WHOLE_VERSION, newer, more).unwrap(), known, "{newer}");
            let version = ENTRY_VERSION + 1;
            let refused = with(version, entry, "").unwrap_err();
            assert!(matches!(refused, EntryError::Version { version: v, .. } if v == version));
            assert!(refused.to_string().contains("start that release"), "{refused}");
        }
        assert!(matches!(with(1, "{\"newer\":{}}", ""), Err(EntryError::Malformed { .. })));
        let refused = read(
            "{\"v\":1,\"term\":1,\"leader\":1,\"entry\":{\"records\":{\"decided_at\":1}}}",
            "{\"newer\":{}}\n",
        );
        assert!(matches!(
            refused,
            Err(EntryError::Record { source: DecodeError::UnknownType(_), .. })
        ));
    }

    #[test]
    fn an_entry_of_version_0_is_read() {
        let value =
            b"{\"v\":0,\"term\":1,\"leader\":1,\"entry\":{\"records\":{\"decided_at\":1}}}\n";
        let mut batch = BatchBuilder::new().placed(Offset(4), LeaderEpoch(1));
        batch.add(Timestamp(0), None, Some(value));
        let bytes = batch.finish();
        let header = BatchHeader::decode_checked(&bytes).unwrap();
        let Payload::Proposal(proposal) = decode(&header, &bytes).unwrap().payload else {
            panic!()
        };
        assert_eq!((proposal.decided_at, proposal.applied), (Some(1), None));
        assert!(!stamp(&header, &bytes).unwrap().tells_synced);
    }

    #[test]
    fn a_leader_epoch_that_is_not_the_entrys_is_damage() {
        let place = Place { term: 3, leader: 2, index: 7 };
        let mut bytes = encode(&Entry { place, payload: Payload::Blank }, None, Timestamp(1));
        // Outside the checksum: the partition leader epoch.
        bytes[15] ^= 4;
        let header = BatchHeader::decode_checked(&bytes).unwrap();
        assert!(decode(&header, &bytes).is_err() && stamp(&header, &bytes).is_err());
    }

    #[test]
    fn members_without_voters_and_an_index_without_a_next_one_are_damage() {
        let read = |index: i64, members: Members| {
            let place = Place { term: 1, leader: 1, index: index as u64 };
            let entry = Entry { place, payload: Payload::Members(members) };
            let bytes = encode(&entry, None, Timestamp(1));
            let header = BatchHeader::decode_checked(&bytes).unwrap();
            decode(&header, &bytes).map(|read| assert_eq!(read, entry))
        };
        let members = |voters: &[&[u64]]| Members {
            voters: voters.iter().map(|config| config.to_vec()).collect(),
            learners: vec![2],
        };
        read(i64::MAX - 1, members(&[&[1], &[1, 3]])).unwrap();
        let none: &[u64] = &[];
        for voters in [&[][..], &[none], &[&[1], none]] {
            let error = read(7, members(voters)).unwrap_err().to_string();
            assert!(error.contains("without voters"), "{error}");
        }
        let error = read(i64::MAX, members(&[&[1]])).unwrap_err().to_string();
        assert!(error.contains("an index behind which there is none"), "{error}");
    }

    #[test]
    fn a_newer_version_or_record_type_is_named() {
        for (value, word) in [
            (&br#"{"v":9,"term":1,"leader":1,"entry":"blank"}"#[..], "version 9"),
            (
                b"{\"v\":0,\"term\":1,\"leader\":1,\"entry\":{\"records\":{\"decided_at\":1}}}\n{\"new\":{}}\n",
                "\"new\" is unknown",
            ),
            (b"", "EOF"),
        ] {
            let mut batch = BatchBuilder::new().placed(Offset(4), LeaderEpoch(1));
            batch.add(Timestamp(0), None, Some(value));
            let bytes = batch.finish();
            let header = BatchHeader::decode_checked(&bytes).unwrap();
            let error = decode(&header, &bytes).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("entry 4"), "{error}");
        }
    }
}
