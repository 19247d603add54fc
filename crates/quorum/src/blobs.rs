//! What other members send in pieces: a snapshot, or a request that fits no message. Kept until it is asked
//! for, so that a transfer that broke off goes on where it was.

use ledger::message::WholeId;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The largest thing that is taken in pieces.
const WHOLE_BYTES_MAX: u64 = 1 << 30;
/// Members of which something is kept: more than there are voters.
const SENDERS_MAX: usize = 8;

/// What arrived of one thing.
struct Arriving {
    id: WholeId,
    bytes: Vec<u8>,
}

/// What has arrived, one thing of each sender.
#[derive(Default)]
pub(crate) struct Blobs {
    by_sender: Mutex<BTreeMap<u64, Arriving>>,
}

impl Blobs {
    /// Takes a piece. Returns how many bytes are there: the sender goes on from that. A piece from elsewhere
    /// changes nothing; one of another thing makes the one before be forgotten.
    pub(crate) fn add(
        &self,
        from: u64,
        id: WholeId,
        offset: u64,
        piece: &[u8],
    ) -> Result<u64, String> {
        if id.length > WHOLE_BYTES_MAX {
            let length = id.length;
            return Err(format!("{length} bytes in pieces; at most {WHOLE_BYTES_MAX} are taken"));
        }
        let mut by_sender = self.by_sender.lock();
        if by_sender.len() >= SENDERS_MAX && !by_sender.contains_key(&from) {
            by_sender.pop_first();
        }
        let new = || Arriving { id, bytes: Vec::new() };
        let arriving = by_sender.entry(from).or_insert_with(new);
        if arriving.id != id {
            *arriving = new();
        }
        let have = arriving.bytes.len() as u64;
        let fits = piece.len() as u64 <= id.length - have;
        if offset != have || !fits {
            return Ok(have);
        }
        arriving.bytes.extend_from_slice(piece);
        Ok(arriving.bytes.len() as u64)
    }

    /// The whole thing, if it is there and what it was; it is forgotten then. What is not what it was is
    /// forgotten as well.
    pub(crate) fn take(&self, from: u64, id: WholeId) -> Option<Vec<u8>> {
        let mut by_sender = self.by_sender.lock();
        let arriving = by_sender.get(&from)?;
        if arriving.id != id || (arriving.bytes.len() as u64) < id.length {
            return None;
        }
        let whole = by_sender.remove(&from)?.bytes;
        drop(by_sender);
        (WholeId::of(&whole) == id).then_some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_become_the_whole_and_go_on_where_they_broke_off() {
        let (blobs, id) = (Blobs::default(), WholeId::of(b"abcdef"));
        assert_eq!(blobs.add(1, id, 0, b""), Ok(0));
        assert_eq!(blobs.add(1, id, 0, b"abc"), Ok(3));
        assert_eq!(blobs.add(1, id, 0, b"abc"), Ok(3), "sent twice");
        assert_eq!(blobs.add(1, id, 5, b"f"), Ok(3), "one is missing");
        assert_eq!(blobs.take(1, id), None);
        assert_eq!(blobs.add(1, id, 3, b"defg"), Ok(3), "more than there is");
        assert_eq!(blobs.add(1, id, 3, b"def"), Ok(6));
        assert_eq!(blobs.take(2, id), None, "another's");
        assert_eq!(blobs.take(1, id), Some(b"abcdef".to_vec()));
        assert_eq!(blobs.take(1, id), None, "it is given once");
    }

    #[test]
    fn another_thing_begins_anew_and_damage_is_forgotten() {
        let (blobs, id) = (Blobs::default(), WholeId::of(b"abc"));
        assert_eq!(blobs.add(1, WholeId::of(b"older"), 0, b"old"), Ok(3));
        assert_eq!(blobs.add(1, id, 3, b"c"), Ok(0));
        assert_eq!(blobs.add(1, id, 0, b"abX"), Ok(3));
        assert_eq!(blobs.take(1, id), None);
        assert_eq!(blobs.add(1, id, 0, b""), Ok(0), "it is sent again");
        let huge = WholeId { length: u64::MAX, checksum: 0 };
        assert!(blobs.add(1, huge, 0, b"abc").is_err());
    }

    #[test]
    fn of_very_many_senders_few_are_kept() {
        let (blobs, id) = (Blobs::default(), WholeId::of(b"abc"));
        for sender in 0..1000 {
            assert_eq!(blobs.add(sender, id, 0, b"ab"), Ok(2));
        }
        assert_eq!(blobs.by_sender.lock().len(), SENDERS_MAX);
    }
}
