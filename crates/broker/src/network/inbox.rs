//! The incoming side of a connection: bytes in, frames out.
//!
//! A frame is a length of four bytes and that many bytes. Small frames are found in a buffer of
//! 64 KiB that may hold many of them; a larger one gets a buffer of its own and is read straight
//! into it. While nothing is buffered the connection holds no buffer at all: ten thousand idle
//! connections hold none.
//!
//! What a frame announces costs nothing. Its bytes are charged to the gate of frames as they arrive,
//! in steps of 64 KiB; without room for the next step nothing more is read.

use std::sync::Arc;

use wire::ApiKey;

use super::buffer::{Buffer, BufferPool, SMALL_BYTES};
use super::memory::{Charge, DECODED_FRAME_BYTES_MAX, Gate, Size};

/// Bytes of a frame's length.
pub const LENGTH_BYTES: usize = 4;
/// After a large frame another one is likely: read just enough to learn its size, so that little
/// has to be moved into the buffer that it gets.
const FIRST_READ_AFTER_LARGE_BYTES: usize = 512;
/// Large frames are charged in steps of this many bytes.
const STEP_BYTES: usize = 64 * 1024;
/// What lies in the 64 KiB that every connection may use is charged in steps of this many bytes.
const SMALL_STEP_BYTES: usize = 4096;
/// One read takes at most this many bytes of a large frame.
const READ_BYTES_MAX: usize = 1 << 20;
/// While buffers on loan have this much room in all, a frame gets a buffer of its whole size at
/// once; above it buffers double as bytes arrive, so that announcements take no address space.
const RESERVED_BYTES_MAX: usize = 256 << 20;

/// A frame's length that no frame may have. The connection ends: what follows has no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a frame of {length} bytes; at most {max} are accepted ({}){}",
    match max {
        &DECODED_FRAME_BYTES_MAX => "the limit of all requests but Produce",
        _ => "socket.request.max.bytes",
    },
    foreign_protocol(*length)
)]
pub struct FrameTooLarge {
    /// What the frame says.
    pub length: i32,
    /// What is accepted.
    pub max: usize,
}

/// A hint if the first four bytes of a connection belong to another protocol.
fn foreign_protocol(length: i32) -> &'static str {
    match &length.to_be_bytes() {
        [0x16, 0x03, ..] => {
            "; the bytes look like a TLS handshake: this listener is PLAINTEXT, set security.protocol=PLAINTEXT"
        }
        b"GET " | b"POST" | b"PUT " | b"HEAD" | b"DELE" | b"OPTI" | b"PATC" | b"CONN" | b"PRI " => {
            "; the bytes look like HTTP: the gateway serves HTTP on gateway.listener"
        }
        b"PROX" | b"\r\n\r\n" => {
            "; the bytes look like a PROXY protocol header: turn it off at the load balancer"
        }
        b"SSH-" => "; the bytes look like SSH",
        _ => "",
    }
}

/// What stands at the front of the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    /// No whole frame.
    Incomplete,
    /// A whole frame.
    Whole {
        /// Its API, if it is one that there is.
        api: Option<ApiKey>,
        /// Its bytes, without the length.
        size_bytes: usize,
    },
}

/// What has been received and not been taken yet.
#[derive(Debug)]
pub struct Inbox {
    pool: Arc<BufferPool>,
    /// Received bytes are `buffer[start..]`. Invariant: `None` exactly when nothing is buffered and
    /// no read is under way.
    buffer: Option<Buffer>,
    start: usize,
    /// Bytes of the largest frame that is accepted, length not counted.
    frame_bytes_max: usize,
    after_large: bool,
    /// What the buffered bytes are charged with; settled when nothing more is to be read.
    charge: Charge,
    /// How many frames were taken: tells one incomplete frame from the next.
    taken: u64,
}

impl Inbox {
    /// An empty inbox for frames of at most `frame_bytes_max` bytes.
    pub fn new(pool: Arc<BufferPool>, gate: &Arc<Gate>, frame_bytes_max: usize) -> Inbox {
        Inbox {
            pool,
            buffer: None,
            start: 0,
            frame_bytes_max,
            after_large: false,
            charge: gate.charge(),
            taken: 0,
        }
    }

    /// Bytes received and not taken.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.len() - self.start)
    }

    /// Bytes that are charged for it.
    pub fn charged_bytes(&self) -> usize {
        self.charge.bytes()
    }

    /// The number of the frame that has begun to arrive and is not whole, if there is one.
    pub fn incomplete(&self) -> Option<u64> {
        let buffered = self.buffered_bytes();
        if buffered == 0 {
            return None;
        }
        match self.frame_length() {
            Ok(Some(length)) if buffered >= LENGTH_BYTES + length => None,
            _ => Some(self.taken),
        }
    }

    fn frame_length(&self) -> Result<Option<usize>, FrameTooLarge> {
        let Some(buffer) = &self.buffer else { return Ok(None) };
        let Some(bytes) = buffer[self.start..].first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = i32::from_be_bytes(*bytes);
        let max = match usize::try_from(length) {
            Ok(length) if length <= DECODED_FRAME_BYTES_MAX.min(self.frame_bytes_max) => {
                return Ok(Some(length));
            }
            // Its API may have arrived.
            Ok(_) if self.api_code().is_some_and(|code| code != ApiKey::Produce as i16) => {
                DECODED_FRAME_BYTES_MAX.min(self.frame_bytes_max)
            }
            _ => self.frame_bytes_max,
        };
        match usize::try_from(length) {
            Ok(length) if length <= max => Ok(Some(length)),
            _ => Err(FrameTooLarge { length, max }),
        }
    }

    /// The code of the API of the frame at the front, if it has arrived.
    fn api_code(&self) -> Option<i16> {
        let bytes = &self.buffer.as_ref()?[self.start..];
        bytes.get(LENGTH_BYTES..)?.first_chunk::<2>().map(|code| i16::from_be_bytes(*code))
    }

    /// What stands at the front.
    pub fn front(&self) -> Result<Front, FrameTooLarge> {
        let Some(length) = self.frame_length()? else { return Ok(Front::Incomplete) };
        if self.buffered_bytes() < LENGTH_BYTES + length {
            return Ok(Front::Incomplete);
        }
        let buffer = self.buffer.as_ref().expect("a frame was found in it");
        let code = buffer[self.start + LENGTH_BYTES..][..length].first_chunk::<2>();
        let api = code.and_then(|code| ApiKey::from_code(i16::from_be_bytes(*code)));
        Ok(Front::Whole { api, size_bytes: length })
    }

    /// The next whole frame without its length, or `None` until more is read.
    pub fn next_frame(&mut self) -> Result<Option<&mut [u8]>, FrameTooLarge> {
        let Some(length) = self.frame_length()? else { return Ok(None) };
        if self.buffered_bytes() < LENGTH_BYTES + length {
            return Ok(None);
        }
        let from = self.start + LENGTH_BYTES;
        self.start = from + length;
        self.after_large = length > SMALL_BYTES;
        self.taken += 1;
        let buffer = self.buffer.as_mut().expect("a frame was found in it");
        Ok(Some(&mut buffer[from..from + length]))
    }

    /// Puts the frame of `length` bytes that was taken last back to the front: it is taken again later.
    /// Nothing was read since it was taken.
    pub fn put_back(&mut self, length: usize) {
        assert!(self.start >= LENGTH_BYTES + length, "the frame was taken out of this buffer");
        self.start -= LENGTH_BYTES + length;
        self.taken -= 1;
    }

    /// Charges exactly what is buffered, and gives back an empty buffer. To be called when nothing
    /// more is read for now.
    pub fn settle(&mut self) {
        let buffered = self.buffered_bytes();
        if buffered == 0 {
            self.buffer = None;
            self.start = 0;
        }
        self.charge.set(charged_for(buffered));
    }

    /// Makes room and says how many bytes may be read into [`Inbox::buffer`] now, at least one;
    /// `None` while there is no memory for more of the frame that is arriving.
    pub fn room(&mut self) -> Option<usize> {
        let needed = match self.frame_length() {
            Ok(Some(length)) => LENGTH_BYTES + length,
            // Too large a frame never gets here: front() said so.
            _ => LENGTH_BYTES,
        };
        if self.buffer.is_none() {
            self.buffer = Some(self.pool.take(SMALL_BYTES));
            self.start = 0;
        }
        if needed <= SMALL_BYTES {
            self.make_room(needed, needed);
            let buffer = self.buffer.as_ref().expect("it was made");
            let room = buffer.capacity() - buffer.len();
            let first_after_large = self.after_large && buffer.len() == self.start;
            return Some(if first_after_large {
                room.min(FIRST_READ_AFTER_LARGE_BYTES)
            } else {
                room
            });
        }
        let until = self.charge_ahead(needed)?;
        self.make_room(needed, until);
        let buffer = self.buffer.as_ref().expect("it was made");
        // What lies behind the frame is read later: it would have to be moved.
        let most = needed.min(until) - self.buffered_bytes();
        Some(most.min(buffer.capacity() - buffer.len()))
    }

    /// Charges the next bytes of a large frame: as many as one read takes, or if there is no room
    /// for them, the next step. Returns how much of the frame may be buffered then.
    fn charge_ahead(&mut self, needed: usize) -> Option<usize> {
        let (buffered, size) = (self.buffered_bytes(), Size::of(needed));
        [READ_BYTES_MAX, 1].into_iter().find_map(|ahead| {
            let until = charged_for((buffered + ahead).min(needed));
            self.charge.try_raise(until, size).then_some(until)
        })
    }

    /// Where to read to, behind what it holds.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.buffer.as_mut().expect("room was made")
    }

    /// Moves what is buffered to where the frame of `needed` bytes has room, at least up to its
    /// byte `until`.
    fn make_room(&mut self, needed: usize, until: usize) {
        let start = std::mem::take(&mut self.start);
        let buffer = self.buffer.as_mut().expect("there is a buffer");
        let until = until.min(needed);
        if until > buffer.capacity() {
            let whole = self.pool.used_bytes() + needed <= RESERVED_BYTES_MAX;
            let larger = if whole { needed } else { until.max(2 * buffer.capacity()).min(needed) };
            if buffer.capacity() > SMALL_BYTES {
                // A copy would hold the frame twice, and only one of them is charged.
                buffer.drain(..start);
                buffer.grow(larger);
            } else {
                let mut larger = self.pool.take(larger);
                larger.extend_from_slice(&buffer[start..]);
                *buffer = larger;
            }
        } else if start + until > buffer.capacity() || buffer.len() == buffer.capacity() {
            buffer.drain(..start);
        } else {
            self.start = start;
        }
    }
}

/// What so many buffered bytes are charged with.
fn charged_for(buffered: usize) -> usize {
    let step = if buffered <= SMALL_BYTES { SMALL_STEP_BYTES } else { STEP_BYTES };
    buffered.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::memory::RequestMemory;

    fn inbox_of(memory: &RequestMemory) -> Inbox {
        Inbox::new(Arc::new(BufferPool::default()), &memory.frames, 1 << 20)
    }

    fn inbox() -> Inbox {
        inbox_of(&RequestMemory::new(128 << 20, 1 << 20))
    }

    fn frame(length: usize, fill: u8) -> Vec<u8> {
        let mut bytes = (length as i32).to_be_bytes().to_vec();
        bytes.resize(LENGTH_BYTES + length, fill);
        bytes
    }

    /// Feeds `bytes` in reads of at most `step` and collects the frames.
    fn feed(inbox: &mut Inbox, mut bytes: &[u8], step: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            let room = inbox.room().expect("there is memory");
            let count = room.min(step).min(bytes.len());
            assert!(count > 0, "room for at least a byte");
            let capacity = inbox.buffer().capacity();
            inbox.buffer().extend_from_slice(&bytes[..count]);
            assert_eq!(inbox.buffer().capacity(), capacity, "the pool's buffers do not grow");
            bytes = &bytes[count..];
            while let Some(frame) = inbox.next_frame().unwrap() {
                frames.push(frame.to_vec());
            }
            inbox.settle();
        }
        frames
    }

    #[test]
    fn frames_come_out_whole_however_they_arrive() {
        let sizes = [0, 1, 100, 70_000, 3, 65_536, 65_532, 1 << 20, 20_000, 20_000, 50_000];
        let stream: Vec<u8> =
            sizes.iter().enumerate().flat_map(|(i, size)| frame(*size, i as u8)).collect();
        for step in [1_000, 16_384, 65_536, 1 << 21] {
            let mut inbox = inbox();
            let frames = feed(&mut inbox, &stream, step);
            assert_eq!(frames.len(), sizes.len(), "step {step}");
            for (i, (frame, size)) in frames.iter().zip(sizes).enumerate() {
                assert!(frame.len() == size && frame.iter().all(|b| *b == i as u8));
            }
            assert_eq!((inbox.charged_bytes(), inbox.pool.used_bytes()), (0, 0), "all given back");
        }
    }

    #[test]
    fn a_frame_that_is_put_back_comes_again_before_the_next_and_stays_charged() {
        for length in [100, 70_000] {
            let mut inbox = inbox();
            let stream = [frame(length, 1), frame(10, 2)].concat();
            for part in [&stream[..LENGTH_BYTES + length], &stream[LENGTH_BYTES + length..]] {
                let mut part = part;
                while !part.is_empty() {
                    let count = inbox.room().expect("there is memory").min(part.len()).max(1);
                    inbox.buffer().extend_from_slice(&part[..count]);
                    part = &part[count..];
                }
                if inbox.taken == 0 {
                    assert_eq!(inbox.next_frame().unwrap().unwrap().len(), length);
                    inbox.put_back(length);
                    inbox.settle();
                    assert!(inbox.charged_bytes() >= length && inbox.incomplete().is_none());
                    let again = inbox.next_frame().unwrap().unwrap();
                    assert!(again.len() == length && again.iter().all(|byte| *byte == 1));
                }
            }
            assert_eq!(inbox.next_frame().unwrap().unwrap(), [2; 10]);
        }
    }

    #[test]
    fn a_buffer_that_doubles_gives_the_same_frames() {
        let mut inbox = inbox();
        // As if others had taken all room that may be announced.
        let _taken = inbox.pool.take(RESERVED_BYTES_MAX);
        let frames = feed(&mut inbox, &[frame(1 << 20, 7), frame(300_000, 8)].concat(), 50_000);
        assert!(frames[0].len() == 1 << 20 && frames[0].iter().all(|b| *b == 7));
        assert!(frames[1].len() == 300_000 && frames[1].iter().all(|b| *b == 8));
    }

    #[test]
    fn a_frame_that_arrives_is_not_held_twice() {
        const FRAME_BYTES: usize = 12 << 20;
        let memory = RequestMemory::new(128 << 20, 100 << 20);
        let mut inbox = Inbox::new(Arc::new(BufferPool::default()), &memory.frames, FRAME_BYTES);
        // As if others had taken all room that may be announced: the buffer doubles.
        let _taken = inbox.pool.take(RESERVED_BYTES_MAX);
        let frames = feed(&mut inbox, &frame(FRAME_BYTES, 7), 50_000);
        assert!(frames.len() == 1 && frames[0].iter().all(|byte| *byte == 7));
        let lent = inbox.pool.used_bytes_max() - RESERVED_BYTES_MAX;
        assert!(lent <= LENGTH_BYTES + FRAME_BYTES, "{lent} bytes for a frame of {FRAME_BYTES}");
    }

    #[test]
    fn only_produce_may_send_the_largest_frames() {
        let memory = RequestMemory::new(104 << 20, 100 << 20);
        for (api, accepted) in [(0_i16, true), (1, false), (3, false), (18, false)] {
            let pool = Arc::new(BufferPool::default());
            let mut inbox = Inbox::new(pool, &memory.frames, 100 << 20);
            inbox.room();
            inbox.buffer().extend_from_slice(&(DECODED_FRAME_BYTES_MAX as i32 + 1).to_be_bytes());
            assert_eq!(inbox.front(), Ok(Front::Incomplete), "its API is not known");
            inbox.buffer().extend_from_slice(&api.to_be_bytes());
            assert_eq!(inbox.front().is_ok(), accepted, "API {api}");
        }
    }

    #[test]
    fn an_idle_inbox_holds_no_buffer() {
        let mut inbox = inbox();
        feed(&mut inbox, &frame(10, 1), 64);
        assert!(inbox.buffer.is_none());
        inbox.room();
        inbox.settle();
        assert_eq!(inbox.pool.used_bytes(), 0);
    }

    #[test]
    fn lengths_out_of_range_are_refused_before_anything_is_allocated() {
        for length in [-1, i32::MIN, (1 << 20) + 1, i32::MAX] {
            let mut inbox = inbox();
            inbox.room();
            inbox.buffer().extend_from_slice(&length.to_be_bytes());
            let refused = FrameTooLarge { length, max: 1 << 20 };
            assert_eq!(inbox.front(), Err(refused));
            assert_eq!(inbox.next_frame(), Err(refused));
            assert_eq!(inbox.pool.used_bytes(), SMALL_BYTES);
        }
    }

    #[test]
    fn other_protocols_are_named() {
        let cases: [(&[u8; 4], &str); 6] = [
            (b"\x16\x03\x01\x02", "TLS handshake"),
            (b"GET ", "HTTP"),
            (b"PRI ", "HTTP"),
            (b"PROX", "PROXY protocol"),
            (b"\r\n\r\n", "PROXY protocol"),
            (b"SSH-", "SSH"),
        ];
        for (bytes, name) in cases {
            let mut inbox = inbox();
            inbox.room();
            inbox.buffer().extend_from_slice(bytes);
            let message = inbox.front().unwrap_err().to_string();
            assert!(message.contains(name), "{message}");
        }
        let plain = FrameTooLarge { length: i32::MAX, max: 1 }.to_string();
        assert!(plain.ends_with("(socket.request.max.bytes)"), "{plain}");
    }

    #[test]
    fn what_was_only_announced_is_not_charged() {
        let memory = RequestMemory::new(128 << 20, 1 << 20);
        let mut inbox = inbox_of(&memory);
        feed(&mut inbox, &frame(1 << 20, 1)[..70_000], 70_000);
        assert_eq!(memory.frames.used_bytes(), 128 * 1024, "two steps");
        assert_eq!(inbox.incomplete(), Some(0));
    }

    #[test]
    fn without_memory_small_frames_go_on_and_large_ones_wait() {
        let memory = RequestMemory::new(8 << 20, 1 << 20);
        let mut hog = memory.frames.charge();
        hog.set(8 << 20);
        let mut small = inbox_of(&memory);
        assert_eq!(feed(&mut small, &frame(60_000, 1), 10_000).len(), 1);
        let mut large = inbox_of(&memory);
        let bytes = frame(100_000, 2);
        feed(&mut large, &bytes[..SMALL_BYTES], SMALL_BYTES);
        assert_eq!(large.room(), None);
        drop(hog);
        assert_eq!(feed(&mut large, &bytes[SMALL_BYTES..], 10_000).len(), 1);
    }
}
