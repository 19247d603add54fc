//! Edges of the frames that a client sends (RFC 6455, 5.2). The library keeps its buffers at the size of the largest message;
//! new buffers lose nothing where the bytes that were read end with a whole message.

/// Bytes of the longest head of a frame: two, a length of eight, and a mask of four.
const HEAD_BYTES_MAX: usize = 14;

/// Position of the bytes that were read within frames and messages.
#[derive(Debug, Default)]
pub(super) struct FrameEdges {
    /// Bytes of a head that is incomplete.
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    payload_left: u64,
    /// Whether the last data frame ends no message.
    is_in_message: bool,
}

impl FrameEdges {
    /// Passes bytes that were read.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.payload_left > 0 {
                let passed =
                    bytes.len().min(usize::try_from(self.payload_left).unwrap_or(usize::MAX));
                self.payload_left -= passed as u64;
                bytes = &bytes[passed..];
                continue;
            }
            self.head[self.head_bytes] = *first;
            self.head_bytes += 1;
            bytes = rest;
            if self.head_bytes == self.head_bytes_needed() {
                self.begin_payload();
            }
        }
    }

    /// Whether the last byte that was passed ends a frame that ends a message.
    pub(super) fn is_between_messages(&self) -> bool {
        self.head_bytes == 0 && self.payload_left == 0 && !self.is_in_message
    }

    fn length_bytes(&self) -> usize {
        match self.head[1] & 0x7f {
            127 => 8,
            126 => 2,
            _ => 0,
        }
    }

    /// Bytes of the head, as far as those that are there tell.
    fn head_bytes_needed(&self) -> usize {
        if self.head_bytes < 2 {
            return 2;
        }
        let is_masked = self.head[1] & 0x80 != 0;
        2 + self.length_bytes() + if is_masked { 4 } else { 0 }
    }

    fn begin_payload(&mut self) {
        let long = &self.head[2..2 + self.length_bytes()];
        self.payload_left = match long {
            [] => u64::from(self.head[1] & 0x7f),
            long => long.iter().fold(0, |length, byte| length << 8 | u64::from(*byte)),
        };
        let [first, ..] = self.head;
        let is_control = first & 0x08 != 0;
        if !is_control {
            self.is_in_message = first & 0x80 == 0;
        }
        self.head_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A masked frame.
    fn frame(first: u8, payload_bytes: usize) -> Vec<u8> {
        let mut frame = vec![first];
        match payload_bytes {
            0..=125 => frame.push(0x80 | payload_bytes as u8),
            126..=0xffff => {
                frame.push(0x80 | 126);
                frame.extend((payload_bytes as u16).to_be_bytes());
            }
            _ => {
                frame.push(0x80 | 127);
                frame.extend((payload_bytes as u64).to_be_bytes());
            }
        }
        frame.resize(frame.len() + 4 + payload_bytes, 0xff);
        frame
    }

    #[test]
    fn messages_end_where_their_last_frames_end() {
        // Two messages, the second one of three frames with a ping in between, and a close.
        let frames = [
            (frame(0x81, 5), true),
            (frame(0x02, 126), false),
            (frame(0x00, 70_000), false),
            (frame(0x89, 125), false),
            (frame(0x80, 0), true),
            (frame(0x88, 2), true),
        ];
        let mut edges = FrameEdges::default();
        assert!(edges.is_between_messages());
        for (frame, ends_message) in &frames {
            for (at, byte) in frame.iter().enumerate() {
                edges.pass(&[*byte]);
                let is_last = at + 1 == frame.len();
                assert_eq!(edges.is_between_messages(), is_last && *ends_message, "{at}");
            }
        }
        let all: Vec<u8> = frames.into_iter().flat_map(|(frame, _)| frame).collect();
        for at in 0..300 {
            let mut edges = FrameEdges::default();
            edges.pass(&all[..at]);
            edges.pass(&all[at..]);
            assert!(edges.is_between_messages(), "{at}");
        }
    }
}
