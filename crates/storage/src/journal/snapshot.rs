//! The snapshot: everything that was known at one seq, in one file.
//!
//! ```text
//! 0    "HWSNAP01"
//! 8    slot 0: seq (u64), CRC-32C      the last seq of the journal that is known to be durable;
//! 20   slot 1: likewise                written in turn, in place, after each sync of the journal
//! 32   length of the body (u64)
//! 40   CRC-32C of everything but the slots
//! 44   body: seq (u64), closed (u8), broker epoch (i64, -1 for none), wall clock (i64),
//!      meta.properties (length u32, bytes), entries
//! ```
//!
//! The slots lie in one sector, so a write of one is whole or not at all. They are not synced: after
//! the mere death of the process they are exact, after a power failure they may be old.

use model::{BrokerEpoch, Timestamp};

use super::codec::{Reader, Unreadable, crc32c, put_bytes};
use super::state::State;

const MAGIC: &[u8; 8] = b"HWSNAP01";
const SLOTS: usize = 2;
const SLOT_BYTES: usize = 12;
const FIRST_SLOT: usize = MAGIC.len();
const BODY_BYTES: usize = FIRST_SLOT + SLOTS * SLOT_BYTES;
const BODY: usize = BODY_BYTES + 12;

/// Where slot number `slot` lies in the file.
pub(super) fn slot_position(slot: usize) -> u64 {
    (FIRST_SLOT + slot % SLOTS * SLOT_BYTES) as u64
}

pub(super) fn encode_slot(slot: usize, seq: u64) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    bytes[..8].copy_from_slice(&seq.to_be_bytes());
    let crc = crc32c(&[&[(slot % SLOTS) as u8], &bytes[..8]]);
    bytes[8..].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// The seq in a slot, if the slot can be read.
fn decode_slot(bytes: &[u8], slot: usize) -> Option<u64> {
    let at = slot_position(slot) as usize;
    let found = bytes.get(at..at + SLOT_BYTES)?;
    let seq = u64::from_be_bytes(found[..8].try_into().ok()?);
    (encode_slot(slot, seq) == found).then_some(seq)
}

/// The file for `state`, which is that at `seq`.
pub(super) fn encode(state: &State, seq: u64) -> Vec<u8> {
    let mut body = seq.to_be_bytes().to_vec();
    body.push(state.closed.into());
    body.extend_from_slice(&state.broker_epoch.map_or(-1, |epoch| epoch.0).to_be_bytes());
    body.extend_from_slice(&state.at.0.to_be_bytes());
    put_bytes(&mut body, &state.meta);
    let body = state.entries_behind(body);
    let length = (body.len() as u64).to_be_bytes();
    let crc = crc32c(&[MAGIC, &length, &body]).to_be_bytes();
    let mut file = Vec::with_capacity(BODY + body.len());
    file.extend_from_slice(MAGIC);
    (0..SLOTS).for_each(|slot| file.extend_from_slice(&encode_slot(slot, seq)));
    for part in [&length[..], &crc, &body] {
        file.extend_from_slice(part);
    }
    file
}

/// What a snapshot file holds.
pub(super) struct Snapshot {
    pub(super) state: State,
    /// The seq of the last frame that the snapshot holds.
    pub(super) seq: u64,
    /// The last seq that is known to be durable.
    pub(super) durable: u64,
}

/// Reads a snapshot file. Fails if any byte is not what was written, but for one of the slots.
pub(super) fn decode(file: &[u8]) -> Result<Snapshot, Unreadable> {
    let body = checked_body(file)?;
    let mut reader = Reader(body);
    let seq = reader.u64()?;
    let closed = reader.flag()?;
    let broker_epoch = Some(reader.i64()?).filter(|epoch| *epoch != -1).map(BrokerEpoch);
    let at = Timestamp(reader.i64()?);
    let meta = reader.bytes()?.to_vec();
    let mut state = State { closed, broker_epoch, at, meta, ..State::default() };
    state.decode_entries(reader.0)?;
    let durable = (0..SLOTS).filter_map(|slot| decode_slot(file, slot)).max();
    let durable = durable.ok_or(Unreadable::new("damaged: neither slot can be read"))?;
    Ok(Snapshot { state, seq, durable: durable.max(seq) })
}

fn checked_body(file: &[u8]) -> Result<&[u8], Unreadable> {
    let mut reader = Reader(file);
    let magic = reader.take(MAGIC.len())?;
    reader.take(SLOTS * SLOT_BYTES)?;
    let length = reader.array::<8>()?;
    let crc = reader.u32()?;
    if magic != MAGIC {
        return Err(Unreadable::new("not a snapshot of partitions, or of another version"));
    }
    let body = reader.0;
    if u64::from_be_bytes(length) != body.len() as u64 || crc != crc32c(&[magic, &length, body]) {
        return Err(Unreadable::new("damaged: the checksum does not match"));
    }
    Ok(body)
}
