//! A delay line: bytes on their way, each piece with the time at which it arrives. It waits for
//! nobody and reads no clock: time comes in with the call.

use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Pieces whose memory an empty line keeps.
const PIECES_KEPT: usize = 16;
/// Memory of a piece beside its bytes.
const PIECE_BYTES: usize = 128;

/// Bytes that arrive together.
#[derive(Debug)]
struct Piece {
    due: Instant,
    bytes: Bytes,
    kept_bytes: usize,
}

/// The bytes between two sockets, in order.
#[derive(Debug)]
pub struct DelayLine {
    delay: Duration,
    jitter: Duration,
    /// The bytes at which no more should be pushed.
    capacity_bytes: usize,
    random: fastrand::Rng,
    /// Invariant: the times never fall; no piece is empty.
    pieces: VecDeque<Piece>,
    /// Memory of the pieces, in bytes: that of a piece is there until its last byte is taken.
    kept_bytes: usize,
    /// Pieces at the front whose memory is at most twice their size.
    compact_count: usize,
    /// Invariant: the sum of the pieces' sizes.
    size_bytes: usize,
    /// When what was pushed last is due.
    last_due: Option<Instant>,
}

impl DelayLine {
    /// A line that takes `delay`, and up to `jitter` more, drawn from `seed`.
    pub fn new(delay: Duration, jitter: Duration, capacity_bytes: usize, seed: u64) -> DelayLine {
        DelayLine {
            delay,
            jitter,
            capacity_bytes,
            random: fastrand::Rng::with_seed(seed),
            pieces: VecDeque::new(),
            kept_bytes: 0,
            compact_count: 0,
            size_bytes: 0,
            last_due: None,
        }
    }

    /// Whether more may be pushed. A line takes what is pushed all the same: a frame that has
    /// been begun is not cut.
    pub fn has_room(&self) -> bool {
        self.size_bytes < self.capacity_bytes
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Puts a piece on its way at `sent`. It never overtakes one that was pushed before.
    pub fn push(&mut self, sent: Instant, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        let due = sent + self.delay + self.jitter.mul_f64(self.random.f64());
        let due = self.last_due.map_or(due, |last| last.max(due));
        self.last_due = Some(due);
        self.size_bytes += piece.len();
        let kept_bytes = PIECE_BYTES + 2 * piece.len();
        self.kept_bytes += kept_bytes;
        self.pieces.push_back(Piece { due, bytes: piece, kept_bytes });
    }

    /// Memory of the delayed pieces in bytes, once the line is [compact](DelayLine::compact).
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Copies pieces that may keep a buffer of `buffer_bytes` alive which is more than twice their size.
    pub fn compact(&mut self, buffer_bytes: usize) {
        for piece in self.pieces.iter_mut().skip(self.compact_count) {
            if 2 * piece.bytes.len() < buffer_bytes {
                piece.bytes = Bytes::copy_from_slice(&piece.bytes);
            }
        }
        self.compact_count = self.pieces.len();
    }

    /// When the first piece is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.pieces.front().map(|piece| piece.due)
    }

    /// What has arrived by `now`, in order.
    pub fn arrived(&self, now: Instant) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().take_while(move |piece| piece.due <= now).map(|piece| &piece.bytes[..])
    }

    /// Takes the first `bytes` off the line. They must be there.
    pub fn take(&mut self, mut bytes: usize) {
        self.size_bytes -= bytes;
        while bytes > 0 {
            let piece = self.pieces.front_mut().expect("what is taken is there");
            let taken = bytes.min(piece.bytes.len());
            piece.bytes.advance(taken);
            bytes -= taken;
            if piece.bytes.is_empty() {
                self.kept_bytes -= piece.kept_bytes;
                self.pieces.pop_front();
                self.compact_count = self.compact_count.saturating_sub(1);
            }
        }
        if self.pieces.is_empty() {
            // As many as there were at a time would stay.
            self.pieces.shrink_to(PIECES_KEPT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn line(delay: Duration, jitter: Duration) -> DelayLine {
        DelayLine::new(delay, jitter, 10, 7)
    }

    fn arrived(line: &DelayLine, now: Instant) -> Vec<u8> {
        line.arrived(now).flatten().copied().collect()
    }

    #[test]
    fn nothing_arrives_before_its_time_and_all_of_it_then() {
        let start = Instant::now();
        let mut line = line(5 * MS, Duration::ZERO);
        line.push(start, Bytes::from_static(b"abc"));
        line.push(start + MS, Bytes::from_static(b"de"));
        assert_eq!(arrived(&line, start + 5 * MS - Duration::from_nanos(1)), b"");
        assert_eq!(arrived(&line, start + 5 * MS), b"abc");
        assert_eq!(arrived(&line, start + 6 * MS), b"abcde");
        line.take(4);
        assert_eq!(arrived(&line, start + 6 * MS), b"e");
        assert_eq!(line.next_due(), Some(start + 6 * MS));
        line.take(1);
        assert!(line.is_empty() && line.next_due().is_none());
    }

    #[test]
    fn jitter_delays_and_keeps_the_order() {
        let start = Instant::now();
        let mut line = line(5 * MS, 4 * MS);
        let mut dues = Vec::new();
        for i in 0..100 {
            line.push(start + i * Duration::from_micros(10), Bytes::from_static(b"x"));
            dues.push(line.pieces.back().unwrap().due);
        }
        assert!(dues.is_sorted());
        assert!(dues[0] >= start + 5 * MS && *dues.last().unwrap() <= start + 10 * MS);
        assert!(dues[0] != start + 5 * MS, "the jitter is not zero");
    }

    #[test]
    fn one_seed_gives_one_jitter() {
        let start = Instant::now();
        let due = |seed| {
            let mut line = DelayLine::new(MS, MS, 10, seed);
            line.push(start, Bytes::from_static(b"x"));
            line.next_due()
        };
        assert_eq!(due(1), due(1));
        assert_ne!(due(1), due(2));
    }

    #[test]
    fn a_piece_is_charged_until_its_last_byte_is_taken() {
        let mut line = line(Duration::ZERO, Duration::ZERO);
        let now = Instant::now();
        let buffer = Bytes::from(vec![7; 1000]);
        line.push(now, buffer.slice(..600));
        line.push(now, buffer.slice(600..700));
        let own = |line: &DelayLine, at: usize| {
            !buffer.as_ptr_range().contains(&line.pieces[at].bytes.as_ptr())
        };
        line.compact(buffer.len());
        assert!(!own(&line, 0) && own(&line, 1), "a small piece keeps no large buffer alive");
        let all = line.kept_bytes();
        assert!(all >= 1400);
        line.take(599);
        assert_eq!(line.kept_bytes(), all);
        line.take(1);
        assert!(line.kept_bytes() < 600);
        line.take(100);
        assert_eq!(line.kept_bytes(), 0);
    }

    #[test]
    fn a_full_line_says_so_until_something_leaves() {
        let mut line = line(MS, Duration::ZERO);
        line.push(Instant::now(), Bytes::from_static(b"0123456789"));
        assert!(!line.has_room());
        line.take(1);
        assert!(line.has_room());
    }
}
