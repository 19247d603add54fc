//! The incoming side of a connection: bytes in, frames out.
//!
//! A frame is a length of four bytes and that many bytes. Small frames are found in a buffer of
//! 64 KiB that may hold many of them; a larger one gets a buffer of its own and is read straight
//! into it. While nothing is buffered the connection holds no buffer at all: ten thousand idle
//! connections hold none.

use std::sync::Arc;

use super::buffer::{Buffer, BufferPool, SMALL_BYTES};

/// Bytes of a frame's length.
pub const LENGTH_BYTES: usize = 4;
/// After a large frame another one is likely: read just enough to learn its size, so that little
/// has to be moved into the buffer that it gets.
const FIRST_READ_AFTER_LARGE_BYTES: usize = 512;

/// A frame's length that no frame may have. The connection ends: what follows has no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {length} bytes; at most {max} are accepted (socket.request.max.bytes)")]
pub struct FrameTooLarge {
    /// What the frame says.
    pub length: i32,
    /// What is accepted.
    pub max: usize,
}

/// What has been received and not been taken yet.
#[derive(Debug)]
pub struct Inbox {
    pool: Arc<BufferPool>,
    /// Invariant: `None` exactly when nothing is buffered and no read is under way.
    buffer: Option<Buffer>,
    /// Received bytes are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Bytes of the largest frame that is accepted, length not counted.
    frame_bytes_max: usize,
    after_large: bool,
}

impl Inbox {
    /// An empty inbox for frames of at most `frame_bytes_max` bytes.
    pub fn new(pool: Arc<BufferPool>, frame_bytes_max: usize) -> Inbox {
        Inbox { pool, buffer: None, start: 0, end: 0, frame_bytes_max, after_large: false }
    }

    /// Bytes received and not taken.
    pub fn buffered_bytes(&self) -> usize {
        self.end - self.start
    }

    /// Whether the front of a frame is here whose rest is not.
    pub fn has_partial_frame(&self) -> bool {
        self.buffered_bytes() > 0
    }

    /// Bytes that the next frame lacks, if its length is known.
    pub fn missing_bytes(&self) -> usize {
        match self.frame_length() {
            Ok(Some(length)) => (LENGTH_BYTES + length).saturating_sub(self.buffered_bytes()),
            _ => 0,
        }
    }

    fn frame_length(&self) -> Result<Option<usize>, FrameTooLarge> {
        let Some(buffer) = &self.buffer else { return Ok(None) };
        let Some(bytes) = buffer[self.start..self.end].first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = i32::from_be_bytes(*bytes);
        match usize::try_from(length) {
            Ok(length) if length <= self.frame_bytes_max => Ok(Some(length)),
            _ => Err(FrameTooLarge { length, max: self.frame_bytes_max }),
        }
    }

    /// The next whole frame without its length, or `None` until more is read.
    pub fn next_frame(&mut self) -> Result<Option<&mut [u8]>, FrameTooLarge> {
        let Some(length) = self.frame_length()? else {
            self.release_when_empty();
            return Ok(None);
        };
        if self.buffered_bytes() < LENGTH_BYTES + length {
            return Ok(None);
        }
        let from = self.start + LENGTH_BYTES;
        self.start = from + length;
        self.after_large = length > SMALL_BYTES;
        let buffer = self.buffer.as_mut().expect("a frame was found in it");
        Ok(Some(&mut buffer[from..from + length]))
    }

    fn release_when_empty(&mut self) {
        if self.start == self.end {
            self.buffer = None;
            self.start = 0;
            self.end = 0;
        }
    }

    /// Where to read to. Never empty. Call [`Inbox::received`] with what came.
    pub fn space(&mut self) -> &mut [u8] {
        self.make_room();
        let limit = if self.after_large && self.start == self.end {
            FIRST_READ_AFTER_LARGE_BYTES
        } else {
            usize::MAX
        };
        let end = self.end;
        let buffer = self.buffer.as_mut().expect("room was made");
        let until = buffer.len().min(end.saturating_add(limit));
        &mut buffer[end..until]
    }

    /// `count` bytes were read into [`Inbox::space`].
    pub fn received(&mut self, count: usize) {
        self.end += count;
        assert!(
            self.buffer.as_ref().is_some_and(|buffer| self.end <= buffer.len()),
            "no more was received than there was room for"
        );
    }

    /// Gives the buffer back after a read that brought nothing.
    pub fn nothing_received(&mut self) {
        self.release_when_empty();
    }

    /// Makes sure that the frame under way fits behind `start`, and that there is room at `end`.
    fn make_room(&mut self) {
        let needed = match self.frame_length() {
            Ok(Some(length)) => LENGTH_BYTES + length,
            // Too large a frame never gets here: next_frame() said so.
            _ => LENGTH_BYTES,
        };
        let Some(buffer) = &mut self.buffer else {
            self.buffer = Some(self.pool.take(SMALL_BYTES));
            return;
        };
        let buffered = self.end - self.start;
        if needed > buffer.len() {
            let mut larger = self.pool.take(needed);
            larger[..buffered].copy_from_slice(&buffer[self.start..self.end]);
            *buffer = larger;
        } else if self.start + needed > buffer.len() || self.end == buffer.len() {
            buffer.copy_within(self.start..self.end, 0);
        } else {
            return;
        }
        self.start = 0;
        self.end = buffered;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox() -> Inbox {
        Inbox::new(Arc::new(BufferPool::default()), 1 << 20)
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
            let space = inbox.space();
            let count = space.len().min(step).min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            inbox.received(count);
            bytes = &bytes[count..];
            while let Some(frame) = inbox.next_frame().unwrap() {
                frames.push(frame.to_vec());
            }
        }
        frames
    }

    #[test]
    fn frames_come_out_whole_however_they_arrive() {
        let sizes = [0, 1, 100, 70_000, 3, 65_536, 65_532, 1 << 20, 20_000, 20_000, 50_000];
        let stream: Vec<u8> =
            sizes.iter().enumerate().flat_map(|(i, size)| frame(*size, i as u8)).collect();
        for step in [1_000, 16_384, 65_536, 1 << 21] {
            let frames = feed(&mut inbox(), &stream, step);
            assert_eq!(frames.len(), sizes.len(), "step {step}");
            for (i, (frame, size)) in frames.iter().zip(sizes).enumerate() {
                assert!(frame.len() == size && frame.iter().all(|b| *b == i as u8));
            }
        }
    }

    #[test]
    fn an_idle_inbox_holds_no_buffer() {
        let mut inbox = inbox();
        feed(&mut inbox, &frame(10, 1), 64);
        assert!(inbox.buffer.is_none());
        inbox.space();
        inbox.nothing_received();
        assert_eq!(inbox.pool.used_bytes(), 0);
    }

    #[test]
    fn lengths_out_of_range_are_refused_before_anything_is_allocated() {
        for length in [-1, i32::MIN, (1 << 20) + 1, i32::MAX] {
            let mut inbox = inbox();
            inbox.space()[..4].copy_from_slice(&length.to_be_bytes());
            inbox.received(4);
            assert_eq!(inbox.next_frame(), Err(FrameTooLarge { length, max: 1 << 20 }));
            assert_eq!(inbox.pool.used_bytes(), SMALL_BYTES);
        }
    }
}
