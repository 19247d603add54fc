//! Frames of WebSockets (RFC 6455), as a client sees them.

use super::Malformed;

/// The longest message that is read, bytes.
const MESSAGE_BYTES_MAX: usize = 128 << 20;
/// Of the first byte: whether a message ends with this frame.
const FIN: u8 = 0x80;
/// Of the second byte: whether the payload is masked.
const MASK: u8 = 0x80;
const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// What a gateway says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said<'a> {
    /// A whole message.
    Message(&'a [u8]),
    /// Wants an answer with the same bytes.
    Ping(&'a [u8]),
    /// It ends, with a code and words.
    Close(&'a [u8]),
}

/// Makes messages out of bytes as they come.
#[derive(Debug, Clone, Default)]
pub struct FrameParser {
    /// What came of a frame that is not whole.
    rest: Vec<u8>,
    /// The beginning of a message that comes in several frames; `None` between messages.
    message: Option<Vec<u8>>,
}

/// A frame at the beginning of some bytes.
struct Frame<'a> {
    is_last: bool,
    opcode: u8,
    payload: &'a [u8],
    size: usize,
}

impl FrameParser {
    /// Hands everything that is said whole in `bytes` to `each`.
    ///
    /// # Errors
    /// These are not frames that a server sends.
    pub fn take(&mut self, bytes: &[u8], mut each: impl FnMut(Said<'_>)) -> Result<(), Malformed> {
        let mut all = std::mem::take(&mut self.rest);
        let mut from = 0;
        let bytes = match all.is_empty() {
            true => bytes,
            false => {
                all.extend(bytes);
                &all[..]
            }
        };
        while let Some(frame) = frame(&bytes[from..])? {
            from += frame.size;
            self.take_frame(&frame, &mut each)?;
        }
        self.rest = bytes[from..].to_vec();
        Ok(())
    }

    fn take_frame(
        &mut self,
        frame: &Frame<'_>,
        each: &mut impl FnMut(Said<'_>),
    ) -> Result<(), Malformed> {
        match (frame.opcode, &mut self.message) {
            (PING, _) => each(Said::Ping(frame.payload)),
            (PONG, _) => {}
            (CLOSE, _) => each(Said::Close(frame.payload)),
            (TEXT | BINARY, None) if frame.is_last => each(Said::Message(frame.payload)),
            (TEXT | BINARY, None) => self.message = Some(frame.payload.to_vec()),
            (CONTINUATION, Some(message)) => {
                message.extend(frame.payload);
                if message.len() > MESSAGE_BYTES_MAX {
                    return Err(Malformed::new("message: too long"));
                }
                if frame.is_last {
                    each(Said::Message(message));
                    self.message = None;
                }
            }
            _ => return Err(Malformed::new("order of frames")),
        }
        Ok(())
    }
}

/// The first frame; `None` if it has not come whole.
fn frame(bytes: &[u8]) -> Result<Option<Frame<'_>>, Malformed> {
    let Some(([first, second], rest)) = bytes.split_first_chunk::<2>() else { return Ok(None) };
    // Servers do not mask, and there is no extension that would use the other bits.
    if second & MASK != 0 || first & 0x70 != 0 {
        return Err(Malformed::new("frame"));
    }
    let (length, rest) = match second {
        126 => match rest.split_first_chunk::<2>() {
            Some((length, rest)) => (u64::from(u16::from_be_bytes(*length)), rest),
            None => return Ok(None),
        },
        127 => match rest.split_first_chunk::<8>() {
            Some((length, rest)) => (u64::from_be_bytes(*length), rest),
            None => return Ok(None),
        },
        short => (u64::from(*short), rest),
    };
    if length > MESSAGE_BYTES_MAX as u64 {
        return Err(Malformed::new("frame: too long"));
    }
    let Some(payload) = rest.get(..length as usize) else { return Ok(None) };
    let size = bytes.len() - rest.len() + payload.len();
    Ok(Some(Frame { is_last: first & FIN != 0, opcode: first & 0x0f, payload, size }))
}

/// Writes a text as a client does: in one frame, masked.
pub fn write_text(text: &[u8], out: &mut Vec<u8>) {
    write(TEXT, text, out);
}

/// Writes the answer to a ping.
pub fn write_pong(bytes: &[u8], out: &mut Vec<u8>) {
    write(PONG, bytes, out);
}

fn write(opcode: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.push(FIN | opcode);
    match payload.len() {
        short @ ..126 => out.push(MASK | short as u8),
        some @ ..0x1_0000 => {
            out.push(MASK | 126);
            out.extend((some as u16).to_be_bytes());
        }
        long => {
            out.push(MASK | 127);
            out.extend((long as u64).to_be_bytes());
        }
    }
    let mask = fastrand::u32(..).to_be_bytes();
    out.extend(mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

/// The head of a request that opens a WebSocket.
pub fn opening(target: &str, host: &str) -> String {
    // Any 16 bytes will do: the answer's proof is for caches between, and there are none.
    format!(
        "GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pieces: &[&[u8]]) -> Result<Vec<String>, Malformed> {
        let (mut parser, mut all) = (FrameParser::default(), Vec::new());
        for piece in pieces {
            parser.take(piece, |said| {
                all.push(match said {
                    Said::Message(text) => format!("m {}", String::from_utf8_lossy(text)),
                    Said::Ping(bytes) => format!("p {}", bytes.len()),
                    Said::Close(bytes) => format!("c {}", bytes.len()),
                });
            })?;
        }
        Ok(all)
    }

    #[test]
    fn messages_may_be_cut_anywhere_and_come_in_several_frames() {
        let mut stream = b"\x81\x02hi\x01\x03abc\x89\x01p\x80\x01d\x82\x7e\x00\x80".to_vec();
        stream.extend([b'x'; 128]);
        stream.extend(b"\x88\x02\x03\xe8");
        let long = format!("m {}", "x".repeat(128));
        for cut in 0..=stream.len() {
            let all = said(&[&stream[..cut], &stream[cut..]]).unwrap();
            assert_eq!(all, ["m hi", "p 1", "m abcd", &long, "c 2"], "{cut}");
        }
    }

    #[test]
    fn what_no_server_sends_is_refused() {
        for bytes in [
            &b"\x81\x82mask"[..],
            b"\xf1\x00",
            b"\x80\x00",
            b"\x01\x00\x81\x00",
            b"\x83\x00",
            b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert!(said(&[bytes]).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn what_a_client_writes_is_masked() {
        for length in [0, 5, 125, 126, 0xffff, 0x1_0000] {
            let mut out = Vec::new();
            write_text(&vec![b'x'; length], &mut out);
            let head = out.len() - length;
            assert_eq!(out[1] & MASK, MASK);
            let mask = out[head - 4..head].to_vec();
            let mut unmasked = out[head..].iter().zip(mask.iter().cycle()).map(|(b, m)| b ^ m);
            assert!(unmasked.all(|byte| byte == b'x'), "{length}");
        }
    }
}
