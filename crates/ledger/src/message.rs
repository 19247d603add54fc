//! What members say to each other, as bytes.
//!
//! ```text
//! 1 version   1 kind   2+ cluster id   8 sender   8 addressee   what the kind has
//!
//! requests:    1 append        vote, last entry before?, committed?, 4 count, entries
//!              2 vote          vote, last entry?, 1 whether a leader hands over
//!              3 pre-vote      the same
//!              4 transfer      vote of the leader, 8 to whom, last entry?
//!              5 piece         8 length, 8 checksum of the whole; 8 offset; the bytes
//!              6 snapshot      vote; 8 length, 8 checksum of what was sent in pieces
//!              7 large         8 length, 8 checksum of a request that was sent in pieces
//!              8 introduce     nothing: which member is the addressed broker? Only its id counts in the addressee
//!              9 older copy    vote of the leader, the entry that the member had acknowledged; from level 4 on
//! answers:  0x80 refused       2+ words
//!           0x81 appended      0 all | 1 up to an entry? | 2 conflict | 3 a higher vote
//!           0x82 voted         vote, 1 whether granted, last entry?
//!           0x84 transferred   0 done | 1 the vote is another: 2 votes | 2 the log lacks: 2 entries?
//!           0x85 taken         8 how many bytes of the whole are there
//!           0x86 installed     vote
//!           0x87 missing       the whole is not there, or not what its checksum says
//!           0x88 introduced    1 its folder is blank (0), waits for a new cluster (1) or has metadata (2): the sender
//!                              is the member
//!           0x89 older copy    1 whether the member lacks the entry and leaves the quorum
//!
//! vote: 8 term, 8 node, 1 whether committed     last entry, an entry's place: 8 term, 8 leader, 8 index
//! ?: 1 whether it is there                      entries: 4 length, then a batch as in the log
//! ```
//!
//! Whatever a peer sends, reading it gives a message or an error.

use model::batch::BatchError;
use model::fields::{FieldError, Reader, Writer};
use model::{BatchHeader, Timestamp};

use crate::crc64::crc64_nvme;
use crate::entry::{self, EntryError};
use crate::mutants::{Mutant, is_planted};
use crate::{Entry, Place, Vote, is_node_id};

/// The version that is written, and the only one that is read.
const VERSION: u8 = 1;

/// Why bytes are not a message.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// A field is missing, or has a value that it cannot have.
    #[error("not a message between members: {0}")]
    Field(#[from] FieldError),
    /// It is of a version that this release does not know.
    #[error("a message of version {0}, and this release reads version {VERSION}")]
    Version(u8),
    /// It is of a kind that this release does not know.
    #[error("a message of the unknown kind {0}")]
    Kind(u8),
    /// The batch of an entry in it is damaged.
    #[error("an entry in a message is damaged: {0}")]
    Batch(#[from] BatchError),
    /// An entry in it says nothing that an entry can say.
    #[error(transparent)]
    Entry(#[from] EntryError),
}

/// Who talks to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// In which cluster.
    pub cluster_id: &'a str,
    /// The sender's number ([`crate::node_id`]).
    pub from: u64,
    /// The addressee's.
    pub to: u64,
}

/// Something that is sent in pieces, told from others by its length and checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeId {
    /// Bytes.
    pub length: u64,
    /// Their CRC-64/NVME.
    pub checksum: u64,
}

impl WholeId {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> WholeId {
        WholeId { length: bytes.len() as u64, checksum: crc64_nvme(bytes) }
    }
}

/// A leader's entries, and that it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// As what the sender leads.
    pub vote: Vote,
    /// The entry before the first of `entries`.
    pub before: Option<Place>,
    /// The newest entry that is known to be committed.
    pub committed: Option<Place>,
    /// Entries that follow each other; none in a heartbeat.
    pub entries: Vec<Entry>,
}

/// The wish to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Election {
    /// Who wants to, in which term.
    pub vote: Vote,
    /// The last entry of its log.
    pub last: Option<Place>,
    /// Whether a leader hands over to it: a voter lets a living leader go for that only.
    pub is_handed_over: bool,
}

/// What a member asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Take these entries.
    Append(Append),
    /// Vote for the sender.
    Vote(Election),
    /// Say whether you would vote for the sender.
    PreVote(Election),
    /// Let another member lead.
    TransferLeader {
        /// As what the sender leads.
        from: Vote,
        /// The member that is to lead.
        to: u64,
        /// What that member must have.
        last: Option<Place>,
    },
    /// A piece of something large.
    Piece {
        /// Of what.
        whole: WholeId,
        /// Where it belongs there, in bytes.
        offset: u64,
        /// The piece.
        bytes: Vec<u8>,
    },
    /// Install the snapshot that was sent in pieces.
    Snapshot {
        /// As what the sender leads.
        vote: Vote,
        /// Which one.
        whole: WholeId,
    },
    /// Answer the request that was sent in pieces.
    Large(WholeId),
    /// Say which member the addressed broker is, and what its folder holds.
    Introduce,
    /// A report to a member whose log lacks an entry that the member had acknowledged: its folder is an older copy. Sent from
    /// `highwater.version` 4 on.
    OlderCopy {
        /// The leadership of the sender.
        vote: Vote,
        /// The newest entry that the member had acknowledged to the sender.
        acknowledged: Place,
    },
}

/// What the folder of a member holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Nothing: it has neither voted nor been told anything.
    Nothing,
    /// The first entry of a new cluster, and no vote for anybody.
    Founding,
    /// Metadata, or a vote.
    Metadata,
}

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// All entries are in the log.
    All,
    /// Those up to this one are.
    UpTo(Option<Place>),
    /// None: the log has another entry, or no one, in the place of the one before them.
    Conflict,
    /// None: the receiver lets another one lead.
    HigherVote(Vote),
}

/// A voter's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voted {
    /// Whom it lets lead.
    pub vote: Vote,
    /// Whether that is the sender.
    pub is_granted: bool,
    /// The last entry of its log.
    pub last: Option<Place>,
}

/// Why a member does not take the lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTransferred {
    /// The sender leads no more.
    VoteChanged {
        /// As what the sender leads.
        expected: Vote,
        /// Whom the receiver lets lead.
        actual: Vote,
    },
    /// It lacks entries.
    LogBehind {
        /// The last entry that it must have.
        expected: Option<Place>,
        /// The last one that it has.
        actual: Option<Place>,
    },
}

/// What a member answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Request::Append`].
    Append(Appended),
    /// To [`Request::Vote`] and [`Request::PreVote`].
    Vote(Voted),
    /// To [`Request::TransferLeader`].
    TransferLeader(Result<(), NotTransferred>),
    /// So many bytes of the whole are there.
    Taken(u64),
    /// The snapshot is installed; whom the receiver lets lead.
    Snapshot(Vote),
    /// The whole is not there: send it again.
    Missing,
    /// The sender is this member, whose folder holds so much.
    Introduced(Holds),
    /// To [`Request::OlderCopy`]: whether the member lacks the entry and leaves the quorum.
    OlderCopy(bool),
    /// The message was not for this node, or the node cannot answer.
    Refused(String),
}

/// Begins a message.
fn begin(head: Head<'_>, kind: u8) -> Writer {
    let mut out = Writer::default();
    out.u8(VERSION);
    out.u8(kind);
    out.text(head.cluster_id);
    out.u64(head.from);
    out.u64(head.to);
    out
}

/// Reads the front of a message.
fn open(bytes: &[u8]) -> Result<(Head<'_>, u8, Reader<'_>), MessageError> {
    let mut fields = Reader::new(bytes);
    let version = fields.u8()?;
    if version != VERSION {
        return Err(MessageError::Version(version));
    }
    let kind = fields.u8()?;
    let head =
        Head { cluster_id: fields.text()?, from: node(&mut fields)?, to: node(&mut fields)? };
    Ok((head, kind, fields))
}

impl Request {
    /// The message's bytes.
    ///
    /// # Panics
    /// If the index or term of an entry is beyond what a log can hold.
    pub fn encode(&self, head: Head<'_>) -> Vec<u8> {
        match self {
            Request::Append(append) => {
                let committed = append.committed.filter(|_| !is_planted(Mutant::DropsCommitted));
                let mut out = begin(head, 1);
                write_vote(&mut out, &append.vote);
                write_place(&mut out, append.before);
                write_place(&mut out, committed);
                out.u32(u32::try_from(append.entries.len()).expect("some hundred are sent"));
                for entry in &append.entries {
                    // When it was written is for people who read a log, and each member has its own.
                    out.counted(&entry::encode(entry, None, Timestamp(0)));
                }
                out.into_bytes()
            }
            Request::Vote(election) => write_election(head, 2, election),
            Request::PreVote(election) => write_election(head, 3, election),
            Request::TransferLeader { from, to, last } => {
                let mut out = begin(head, 4);
                write_vote(&mut out, from);
                out.u64(*to);
                write_place(&mut out, *last);
                out.into_bytes()
            }
            Request::Piece { whole, offset, bytes } => {
                let mut out = begin(head, 5);
                write_whole(&mut out, *whole);
                out.u64(*offset);
                out.bytes(bytes);
                out.into_bytes()
            }
            Request::Snapshot { vote, whole } => {
                let mut out = begin(head, 6);
                write_vote(&mut out, vote);
                write_whole(&mut out, *whole);
                out.into_bytes()
            }
            Request::Introduce => begin(head, 8).into_bytes(),
            Request::OlderCopy { vote, acknowledged } => {
                let mut out = begin(head, 9);
                write_vote(&mut out, vote);
                write_place(&mut out, Some(*acknowledged));
                out.into_bytes()
            }
            Request::Large(whole) => {
                let mut out = begin(head, 7);
                write_whole(&mut out, *whole);
                out.into_bytes()
            }
        }
    }

    /// Reads what [`Request::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<(Head<'_>, Request), MessageError> {
        let (head, kind, mut fields) = open(bytes)?;
        let fields = &mut fields;
        let request = match kind {
            1 => Request::Append(read_append(fields)?),
            2 => Request::Vote(read_election(fields)?),
            3 => Request::PreVote(read_election(fields)?),
            4 => {
                let (from, to) = (read_vote(fields)?, node(fields)?);
                Request::TransferLeader { from, to, last: read_place(fields)? }
            }
            5 => {
                let (whole, offset) = (read_whole(fields)?, fields.u64()?);
                let bytes = fields.rest().to_vec();
                return Ok((head, Request::Piece { whole, offset, bytes }));
            }
            6 => Request::Snapshot { vote: read_vote(fields)?, whole: read_whole(fields)? },
            7 => Request::Large(read_whole(fields)?),
            8 => Request::Introduce,
            9 => {
                let (vote, acknowledged) = (read_vote(fields)?, read_place(fields)?);
                let missing = FieldError::Value("no acknowledged entry");
                Request::OlderCopy { vote, acknowledged: acknowledged.ok_or(missing)? }
            }
            other => return Err(MessageError::Kind(other)),
        };
        fields.end()?;
        Ok((head, request))
    }
}

impl Reply {
    /// The message's bytes.
    pub fn encode(&self, head: Head<'_>) -> Vec<u8> {
        match self {
            Reply::Refused(words) => {
                let mut out = begin(head, 0x80);
                out.text(words);
                out.into_bytes()
            }
            Reply::Append(reply) => {
                let mut out = begin(head, 0x81);
                match reply {
                    Appended::All => out.u8(0),
                    Appended::UpTo(last) => {
                        out.u8(1);
                        write_place(&mut out, *last);
                    }
                    Appended::Conflict => out.u8(2),
                    Appended::HigherVote(vote) => {
                        out.u8(3);
                        write_vote(&mut out, vote);
                    }
                }
                out.into_bytes()
            }
            Reply::Vote(reply) => {
                let mut out = begin(head, 0x82);
                write_vote(&mut out, &reply.vote);
                out.flag(reply.is_granted);
                write_place(&mut out, reply.last);
                out.into_bytes()
            }
            Reply::TransferLeader(reply) => write_transferred(head, reply),
            Reply::Taken(count) => {
                let mut out = begin(head, 0x85);
                out.u64(*count);
                out.into_bytes()
            }
            Reply::Snapshot(vote) => {
                let mut out = begin(head, 0x86);
                write_vote(&mut out, vote);
                out.into_bytes()
            }
            Reply::Missing => begin(head, 0x87).into_bytes(),
            Reply::Introduced(holds) => {
                let mut out = begin(head, 0x88);
                out.u8(match holds {
                    Holds::Nothing => 0,
                    Holds::Founding => 1,
                    Holds::Metadata => 2,
                });
                out.into_bytes()
            }
            Reply::OlderCopy(leaves) => {
                let mut out = begin(head, 0x89);
                out.flag(*leaves);
                out.into_bytes()
            }
        }
    }

    /// Reads what [`Reply::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<(Head<'_>, Reply), MessageError> {
        let (head, kind, mut fields) = open(bytes)?;
        let fields = &mut fields;
        let reply = match kind {
            0x80 => Reply::Refused(fields.text()?.to_owned()),
            0x81 => Reply::Append(match fields.u8()? {
                0 => Appended::All,
                1 => Appended::UpTo(read_place(fields)?),
                2 => Appended::Conflict,
                3 => Appended::HigherVote(read_vote(fields)?),
                _ => return Err(FieldError::Value("an unknown outcome of an append").into()),
            }),
            0x82 => {
                let (vote, is_granted) = (read_vote(fields)?, fields.flag()?);
                Reply::Vote(Voted { vote, is_granted, last: read_place(fields)? })
            }
            0x84 => Reply::TransferLeader(read_transferred(fields)?),
            0x85 => Reply::Taken(fields.u64()?),
            0x86 => Reply::Snapshot(read_vote(fields)?),
            0x87 => Reply::Missing,
            0x88 => Reply::Introduced(match fields.u8()? {
                0 => Holds::Nothing,
                1 => Holds::Founding,
                2 => Holds::Metadata,
                _ => return Err(FieldError::Value("an unknown state of a folder").into()),
            }),
            0x89 => Reply::OlderCopy(fields.flag()?),
            other => return Err(MessageError::Kind(other)),
        };
        fields.end()?;
        Ok((head, reply))
    }
}

fn write_election(head: Head<'_>, kind: u8, election: &Election) -> Vec<u8> {
    let mut out = begin(head, kind);
    write_vote(&mut out, &election.vote);
    write_place(&mut out, election.last);
    // Without it a voter would not let a living leader go, and nobody would see why.
    out.flag(election.is_handed_over);
    out.into_bytes()
}

fn read_election(fields: &mut Reader<'_>) -> Result<Election, FieldError> {
    let (vote, last) = (read_vote(fields)?, read_place(fields)?);
    Ok(Election { vote, last, is_handed_over: fields.flag()? })
}

fn read_append(fields: &mut Reader<'_>) -> Result<Append, MessageError> {
    let vote = read_vote(fields)?;
    let (before, committed) = (read_place(fields)?, read_place(fields)?);
    let count = fields.u32()?;
    // What is counted is not believed before it is there.
    let mut entries: Vec<Entry> = Vec::new();
    for _ in 0..count {
        entries.push(read_entry(fields.counted()?)?);
    }
    // Who replicates takes for granted that they follow each other.
    let mut last = before.map(|place| place.index);
    for entry in &entries {
        if last.is_some_and(|last| entry.place.index != last + 1) {
            return Err(FieldError::Value("entries that do not follow each other").into());
        }
        last = Some(entry.place.index);
    }
    Ok(Append { vote, before, committed, entries })
}

fn read_entry(batch: &[u8]) -> Result<Entry, MessageError> {
    let header = BatchHeader::decode_checked(batch)?;
    if header.size_bytes as usize != batch.len() {
        return Err(FieldError::Value("bytes behind an entry").into());
    }
    Ok(entry::decode(&header, batch)?)
}

fn write_transferred(head: Head<'_>, reply: &Result<(), NotTransferred>) -> Vec<u8> {
    let mut out = begin(head, 0x84);
    match reply {
        Ok(()) => out.u8(0),
        Err(NotTransferred::VoteChanged { expected, actual }) => {
            out.u8(1);
            write_vote(&mut out, expected);
            write_vote(&mut out, actual);
        }
        Err(NotTransferred::LogBehind { expected, actual }) => {
            out.u8(2);
            write_place(&mut out, *expected);
            write_place(&mut out, *actual);
        }
    }
    out.into_bytes()
}

fn read_transferred(fields: &mut Reader<'_>) -> Result<Result<(), NotTransferred>, FieldError> {
    match fields.u8()? {
        0 => Ok(Ok(())),
        1 => {
            let (expected, actual) = (read_vote(fields)?, read_vote(fields)?);
            Ok(Err(NotTransferred::VoteChanged { expected, actual }))
        }
        2 => {
            let (expected, actual) = (read_place(fields)?, read_place(fields)?);
            Ok(Err(NotTransferred::LogBehind { expected, actual }))
        }
        _ => Err(FieldError::Value("an unknown outcome of a transfer")),
    }
}

fn node(fields: &mut Reader<'_>) -> Result<u64, FieldError> {
    let node = fields.u64()?;
    if !is_node_id(node) {
        return Err(FieldError::Value("a number that no node can have"));
    }
    Ok(node)
}

/// A term: it becomes a leader epoch of the log.
fn term(fields: &mut Reader<'_>) -> Result<u64, FieldError> {
    let term = fields.u64()?;
    i32::try_from(term).map_err(|_| FieldError::Value("a term that no log can hold"))?;
    Ok(term)
}

fn write_vote(out: &mut Writer, vote: &Vote) {
    out.u64(vote.term);
    out.u64(vote.node);
    out.flag(vote.committed);
}

fn read_vote(fields: &mut Reader<'_>) -> Result<Vote, FieldError> {
    Ok(Vote { term: term(fields)?, node: node(fields)?, committed: fields.flag()? })
}

fn write_place(out: &mut Writer, place: Option<Place>) {
    out.flag(place.is_some());
    if let Some(place) = place {
        out.u64(place.term);
        out.u64(place.leader);
        out.u64(place.index);
    }
}

fn read_place(fields: &mut Reader<'_>) -> Result<Option<Place>, FieldError> {
    if !fields.flag()? {
        return Ok(None);
    }
    let (term, leader, index) = (term(fields)?, node(fields)?, fields.u64()?);
    // One more must be an index too.
    if index >= i64::MAX as u64 {
        return Err(FieldError::Value("an index that no log can hold"));
    }
    Ok(Some(Place { term, leader, index }))
}

fn write_whole(out: &mut Writer, whole: WholeId) {
    out.u64(whole.length);
    out.u64(whole.checksum);
}

fn read_whole(fields: &mut Reader<'_>) -> Result<WholeId, FieldError> {
    Ok(WholeId { length: fields.u64()?, checksum: fields.u64()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Members, Part, Payload, Proposal};
    use metadata::MetadataRecord;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    const HEAD: Head<'static> = Head { cluster_id: "c", from: 1, to: 2 };

    fn vote(term: u64) -> Vote {
        Vote { term, node: 1, committed: true }
    }

    fn place(index: u64) -> Place {
        Place { term: 3, leader: 1, index }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn append(entries: Vec<Entry>) -> Request {
        let (before, committed) = (Some(place(6)), Some(place(5)));
        Request::Append(Append { vote: vote(3), before, committed, entries })
    }

    fn entries() -> Vec<Entry> {
        let records = vec![MetadataRecord::ClusterCreated { cluster_id: "c\n".into() }];
        let whole =
            Proposal { decided_at: Some(5), applied: Some(6), records: records.into(), part: None };
        let part = Part { number: 1, is_last: true, text: Arc::from(&b"\"}\n"[..]) };
        let part = Proposal { records: [].into(), part: Some(part), ..whole.clone() };
        let members = Members { voters: vec![vec![1, 2], vec![2, 3]], learners: vec![9] };
        let payloads = [
            Payload::Blank,
            Payload::Members(members),
            Payload::Proposal(whole),
            Payload::Proposal(part),
        ];
        let numbered = payloads.into_iter().zip(7..);
        numbered.map(|(payload, index)| Entry { place: place(index), payload }).collect()
    }

    fn requests() -> Vec<Request> {
        let election = Election { vote: vote(4), last: None, is_handed_over: true };
        let other = Election { vote: vote(4), last: Some(place(9)), is_handed_over: false };
        let whole = WholeId { length: 10, checksum: 11 };
        vec![
            append(entries()),
            append(Vec::new()),
            Request::Vote(election),
            Request::PreVote(other),
            Request::TransferLeader { from: vote(3), to: 2, last: Some(place(9)) },
            Request::Piece { whole, offset: 4, bytes: vec![1, 2, 3] },
            Request::Snapshot { vote: vote(3), whole },
            Request::Large(whole),
            Request::Introduce,
            Request::OlderCopy { vote: vote(3), acknowledged: place(9) },
        ]
    }

    fn replies() -> Vec<Reply> {
        let changed = NotTransferred::VoteChanged { expected: vote(1), actual: vote(2) };
        let lacks = NotTransferred::LogBehind { expected: Some(place(3)), actual: None };
        let voted = Voted { vote: vote(4), is_granted: true, last: Some(place(9)) };
        vec![
            Reply::Refused("in words".into()),
            Reply::Append(Appended::All),
            Reply::Append(Appended::UpTo(Some(place(3)))),
            Reply::Append(Appended::Conflict),
            Reply::Append(Appended::HigherVote(vote(8))),
            Reply::Vote(voted),
            Reply::TransferLeader(Ok(())),
            Reply::TransferLeader(Err(changed)),
            Reply::TransferLeader(Err(lacks)),
            Reply::Taken(99),
            Reply::Snapshot(vote(4)),
            Reply::Missing,
            Reply::Introduced(Holds::Nothing),
            Reply::Introduced(Holds::Founding),
            Reply::Introduced(Holds::Metadata),
            Reply::OlderCopy(true),
        ]
    }

    /// The number of a request. A variant that is new has to be added here and to [`requests`].
    fn request_number(request: &Request) -> u8 {
        match request {
            Request::Append(_) => 1,
            Request::Vote(_) => 2,
            Request::PreVote(_) => 3,
            Request::TransferLeader { .. } => 4,
            Request::Piece { .. } => 5,
            Request::Snapshot { .. } => 6,
            Request::Large(_) => 7,
            Request::Introduce => 8,
            Request::OlderCopy { .. } => 9,
        }
    }

    /// The number of an answer. A variant that is new has to be added here and to [`replies`].
    fn reply_number(reply: &Reply) -> u8 {
        match reply {
            Reply::Refused(_) => 0x80,
            Reply::Append(_) => 0x81,
            Reply::Vote(_) => 0x82,
            Reply::TransferLeader(_) => 0x84,
            Reply::Taken(_) => 0x85,
            Reply::Snapshot(_) => 0x86,
            Reply::Missing => 0x87,
            Reply::Introduced(_) => 0x88,
            Reply::OlderCopy(_) => 0x89,
        }
    }

    #[test]
    fn every_message_is_among_the_samples_and_no_other_kind_is_known() {
        let known = requests().iter().map(request_number).collect::<BTreeSet<u8>>();
        assert!(known.iter().copied().eq(1..=9));
        let replied = replies().iter().map(reply_number).collect::<BTreeSet<u8>>();
        let expected = [0x80, 0x81, 0x82, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89];
        assert!(replied.iter().copied().eq(expected));
        let mut bytes = Request::Introduce.encode(HEAD);
        for kind in 0..=u8::MAX {
            bytes[1] = kind;
            let request = Request::decode(&bytes);
            let reply = Reply::decode(&bytes);
            let is_unknown =
                |error: &MessageError| matches!(error, MessageError::Kind(k) if *k == kind);
            assert_eq!(request.as_ref().is_err_and(is_unknown), !known.contains(&kind), "{kind}");
            assert_eq!(reply.as_ref().is_err_and(is_unknown), !replied.contains(&kind), "{kind}");
        }
    }

    /// A message of a newer version, or with a field that this release does not know, is refused whole, so a newer release
    /// may send neither below a level that every member has.
    #[test]
    fn a_newer_version_or_field_of_any_message_is_refused() {
        let mut messages: Vec<Vec<u8>> = Vec::new();
        messages.extend(requests().iter().map(|request| request.encode(HEAD)));
        messages.extend(replies().iter().map(|reply| reply.encode(HEAD)));
        for mut bytes in messages {
            let read = |bytes: &[u8]| match bytes[1] < 0x80 {
                true => Request::decode(bytes).err(),
                false => Reply::decode(bytes).err(),
            };
            assert!(read(&bytes).is_none());
            // A piece has no length of its own; its checksum detects appended bytes.
            if bytes[1] != 5 {
                bytes.push(0);
                assert!(matches!(read(&bytes), Some(MessageError::Field(_))), "{}", hex(&bytes));
            }
            bytes[0] = 2;
            assert!(matches!(read(&bytes), Some(MessageError::Version(2))), "{}", hex(&bytes));
        }
    }

    #[test]
    fn messages_and_back() {
        for request in requests() {
            let bytes = request.encode(HEAD);
            let (head, read) = Request::decode(&bytes).unwrap();
            assert_eq!((head, &read), (HEAD, &request));
            assert!(Reply::decode(&bytes).is_err(), "a request is not an answer: {request:?}");
        }
        for reply in replies() {
            let bytes = reply.encode(HEAD);
            let (head, read) = Reply::decode(&bytes).unwrap();
            assert_eq!((head, &read), (HEAD, &reply));
            assert!(Request::decode(&bytes).is_err(), "an answer is not a request: {reply:?}");
        }
    }

    /// These bytes are what other releases send.
    #[test]
    fn the_bytes_of_messages_stay_what_they_are() {
        let head = "000163".to_owned() + "0000000000000001" + "0000000000000002";
        let vote_of = |term: u64| format!("{term:016x}000000000000000101");
        let id_of = |index: u64| format!("0100000000000000030000000000000001{index:016x}");
        let golden = [
            format!("0101{head}{}{}{}00000000", vote_of(3), id_of(6), id_of(5)),
            format!("0102{head}{}0001", vote_of(4)),
            format!("0103{head}{}{}00", vote_of(4), id_of(9)),
            format!("0104{head}{}0000000000000002{}", vote_of(3), id_of(9)),
            format!("0105{head}000000000000000a000000000000000b0000000000000004010203"),
            format!("0106{head}{}000000000000000a000000000000000b", vote_of(3)),
            format!("0107{head}000000000000000a000000000000000b"),
            format!("0108{head}"),
            format!("0109{head}{}{}", vote_of(3), id_of(9)),
        ];
        for (request, golden) in requests().iter().skip(1).zip(golden) {
            assert_eq!(hex(&request.encode(HEAD)), golden, "{request:?}");
        }
        let golden = [
            format!("0180{head}0008{}", hex(b"in words")),
            format!("0181{head}00"),
            format!("0181{head}01{}", id_of(3)),
            format!("0181{head}02"),
            format!("0181{head}03{}", vote_of(8)),
            format!("0182{head}{}01{}", vote_of(4), id_of(9)),
            format!("0184{head}00"),
            format!("0184{head}01{}{}", vote_of(1), vote_of(2)),
            format!("0184{head}02{}00", id_of(3)),
            format!("0185{head}0000000000000063"),
            format!("0186{head}{}", vote_of(4)),
            format!("0187{head}"),
            format!("0188{head}00"),
            format!("0188{head}01"),
            format!("0188{head}02"),
            format!("0189{head}01"),
        ];
        for (reply, golden) in replies().iter().zip(golden) {
            assert_eq!(hex(&reply.encode(HEAD)), golden, "{reply:?}");
        }
        // An entry is a batch of the log.
        let blank = Entry { place: place(7), payload: Payload::Blank };
        let batch = entry::encode(&blank, None, Timestamp(0));
        let mut expected = hex(&append(Vec::new()).encode(HEAD));
        expected.truncate(expected.len() - 8);
        expected += &format!("00000001{:08x}{}", batch.len(), hex(&batch));
        assert_eq!(hex(&append(vec![blank]).encode(HEAD)), expected);
    }

    #[test]
    fn what_no_member_says_is_an_error() {
        for bytes in [&b""[..], b"{}", b"\x01", b"\x02\x01", b"\x01\x0a\0\x01c"] {
            assert!(Request::decode(bytes).is_err() && Reply::decode(bytes).is_err());
        }
        let with = |request: Request, at: usize, value: u8| {
            let mut bytes = request.encode(HEAD);
            bytes[at] = value;
            Request::decode(&bytes).map(drop)
        };
        assert!(matches!(with(append(Vec::new()), 0, 2), Err(MessageError::Version(2))));
        assert!(matches!(with(append(Vec::new()), 1, 10), Err(MessageError::Kind(10))));
        let report = Request::OlderCopy { vote: vote(3), acknowledged: place(9) };
        let entry_flag = report.encode(HEAD).len() - 25;
        assert!(with(report, entry_flag, 0).is_err(), "a report without an entry");
        assert!(with(append(Vec::new()), 9, 0x80).is_err(), "a sender that no node can be");
        assert!(with(append(Vec::new()), 21, 1).is_err(), "a term that no log can hold");
        let gap = vec![Entry { place: place(8), payload: Payload::Blank }];
        assert!(Request::decode(&append(gap).encode(HEAD)).is_err(), "entry 7 is missing");
    }

    #[test]
    fn every_cut_and_flipped_bit_of_an_append_is_an_error_or_another_message() {
        let bytes = append(entries()).encode(HEAD);
        for cut in 0..bytes.len() {
            assert!(Request::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let entries_begin = append(Vec::new()).encode(HEAD).len();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // Nothing panics; and an entry that is not what was sent is not taken. Its index and term stand
            // outside the batch's checksum, and inside the entry or in line with the others.
            let read = Request::decode(&flipped);
            if bit / 8 >= entries_begin {
                assert!(read.is_err(), "bit {bit}");
            }
        }
    }
}
