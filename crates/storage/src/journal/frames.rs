//! The journal file: a head, then frames of entries, one behind the other.
//!
//! ```text
//! head    "HWJRNL01"  seq of the snapshot it follows (u64)  CRC-32C of both
//! frame   length (u32)  CRC-32C of length and rest (u32)  seq (u64)  durable seq (u64)  entries
//! ```
//!
//! The first entry of a frame names the log directory (`entry.rs`), unless a release before wrote the frame: the journal of
//! another directory, as after a restore that mixed files up, has plausible sequence numbers.
//!
//! Sequence numbers count frames, without a gap. The durable seq of a frame is the last one that was
//! synced when the frame was written: if a frame cannot be read although a later one says that it
//! was durable, the file is damaged; otherwise an incomplete write ends it.

use super::codec::{Reader, Unreadable, crc32c};
use super::entry::{Entry, EntryReader, named_directory};
use model::Uuid;

const MAGIC: &[u8; 8] = b"HWJRNL01";
pub(super) const HEAD_BYTES: usize = 20;
const FRAME_HEAD_BYTES: usize = 24;
/// Entries are gathered into frames of about this size: what an incomplete write can take is small,
/// and so is what a search for later frames has to check.
pub(super) const FRAME_BYTES: usize = 32 * 1024;
/// No frame is longer. A single entry may be longer than [`FRAME_BYTES`]: a list of segments.
pub(super) const FRAME_BYTES_MAX: usize = 64 << 20;

pub(super) fn encode_head(base: u64) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&base.to_be_bytes());
    let crc = crc32c(&[&head]);
    head.extend_from_slice(&crc.to_be_bytes());
    head
}

fn decode_head(bytes: &[u8]) -> Result<u64, Unreadable> {
    let mut reader = Reader(bytes);
    let head = reader.take(HEAD_BYTES - 4)?;
    if &head[..8] != MAGIC || reader.u32()? != crc32c(&[head]) {
        return Err(Unreadable::new("damaged in its first 20 bytes"));
    }
    Reader(&head[8..]).u64()
}

pub(super) fn encode_frame(seq: u64, durable: u64, entries: &[u8], out: &mut Vec<u8>) {
    let length = (16 + entries.len() as u32).to_be_bytes();
    let (seq, durable) = (seq.to_be_bytes(), durable.to_be_bytes());
    let crc = crc32c(&[&length, &seq, &durable, entries]);
    for part in [&length[..], &crc.to_be_bytes(), &seq, &durable, entries] {
        out.extend_from_slice(part);
    }
}

struct Frame<'a> {
    seq: u64,
    durable: u64,
    entries: &'a [u8],
    size_bytes: usize,
}

/// The frame that begins with the first of `bytes`, if a whole one does. `plausible` sees its
/// number before the checksum is computed.
fn frame(bytes: &[u8], plausible: impl Fn(u64) -> bool) -> Option<Frame<'_>> {
    let mut reader = Reader(bytes);
    let length = reader.u32().ok()?;
    let crc = reader.u32().ok()?;
    if length < 16 || length as usize > FRAME_BYTES_MAX {
        return None;
    }
    let body = reader.take(length as usize).ok()?;
    let mut reader = Reader(body);
    let (seq, durable) = (reader.u64().ok()?, reader.u64().ok()?);
    let sound = plausible(seq) && crc == crc32c(&[&length.to_be_bytes(), body]);
    sound.then_some(Frame { seq, durable, entries: reader.0, size_bytes: 8 + body.len() })
}

/// What a journal file holds.
pub(super) struct Journaled {
    /// The seq of the snapshot that the file was begun for.
    pub(super) base: u64,
    /// The seq of the last frame; the snapshot's if there is none.
    pub(super) seq: u64,
    /// The last seq that is known to be durable.
    pub(super) durable: u64,
    /// Bytes of head and whole frames.
    pub(super) size_bytes: usize,
    /// Bytes of them that are known to be durable.
    pub(super) durable_bytes: usize,
    /// Bytes behind them: an incomplete write.
    pub(super) cut_bytes: usize,
}

/// Reads a journal file; `take` gets the entries of the frames behind `snapshot`, the seq of the
/// snapshot. `durable` is the last seq that is known to have been durable, `directory` the id of the log directory, if it is
/// known.
///
/// Fails on damage: a frame that was durable and cannot be read, frames out of order, a file that
/// follows a later snapshot, a file of another log directory.
pub(super) fn read(
    bytes: &[u8],
    snapshot: u64,
    durable: u64,
    directory: Option<Uuid>,
    mut take: impl FnMut(Entry) -> Result<(), Unreadable>,
) -> Result<Journaled, Unreadable> {
    let base = decode_head(bytes)?;
    if base > snapshot {
        return Err(Unreadable(format!("follows snapshot {base}, and the snapshot is {snapshot}")));
    }
    let (mut seq, mut at, mut durable) = (base, HEAD_BYTES, durable);
    while let Some(frame) = frame(&bytes[at..], |found| found == seq + 1) {
        if frame.durable > seq {
            return Err(Unreadable(format!(
                "frame {} says that {} was durable",
                seq + 1,
                frame.durable
            )));
        }
        check_directory(&frame, directory)?;
        if frame.seq > snapshot {
            let mut entries = EntryReader::new(frame.entries);
            while let Some(entry) = entries.next()? {
                take(entry)?;
            }
        }
        durable = durable.max(frame.durable);
        (seq, at) = (frame.seq, at + frame.size_bytes);
    }
    let durable = durable.max(latest_durable(&bytes[at..], seq));
    // What the snapshot holds may be missing here.
    if durable > seq.max(snapshot) {
        let missing = seq + 1;
        return Err(Unreadable(format!("damaged at byte {at}: frame {missing} was durable")));
    }
    let (size_bytes, cut_bytes) = (at, bytes.len() - at);
    let durable_bytes = end_of(&bytes[..at], base, durable.max(snapshot));
    Ok(Journaled { base, seq: seq.max(snapshot), durable, size_bytes, durable_bytes, cut_bytes })
}

fn check_directory(frame: &Frame<'_>, directory: Option<Uuid>) -> Result<(), Unreadable> {
    match (named_directory(frame.entries), directory) {
        (Some(named), Some(here)) if named != here => Err(Unreadable(format!(
            "written for the log directory {named}, and this is {here}. Put the journal of this directory back"
        ))),
        _ => Ok(()),
    }
}

/// Where frame `last` ends among whole frames behind the head; the end of all of them if they end before it.
fn end_of(bytes: &[u8], base: u64, last: u64) -> usize {
    let (mut at, mut seq) = (HEAD_BYTES, base);
    while seq < last
        && let Ok(length) = Reader(&bytes[at..]).u32()
    {
        (at, seq) = (at + 8 + length as usize, seq + 1);
    }
    at
}

/// The largest durable seq of a whole frame anywhere in `bytes`, which lie behind frame `seq`.
fn latest_durable(bytes: &[u8], seq: u64) -> u64 {
    // There cannot be more frames than fit into the bytes.
    let most = seq + 1 + (bytes.len() / FRAME_HEAD_BYTES) as u64;
    let (mut at, mut latest) = (0, 0);
    while at < bytes.len() {
        match frame(&bytes[at..], |found| found > seq && found <= most) {
            Some(frame) => {
                latest = latest.max(frame.durable);
                at += frame.size_bytes;
            }
            None => at += 1,
        }
    }
    latest
}
