//! Frames: what is said on a connection once both sides have said Hello.
//!
//! ```text
//! 4 length   1 kind   …
//!            1 proof      0 or 32 bytes
//!            2 accepted   0 or 32 bytes
//!            3 refused    1 kind of refusal   2+ words
//!            4 call       4 id   2 service   4 patience in ms   the message
//!            5 answer     4 id   the message
//!            6 declined   4 id   1 kind   2+ words
//! ```

use super::fields::{Reader, Writer, cut};
use super::proof::PROOF_BYTES;
use super::refusal::Refused;
use super::{CodecError, LENGTH_BYTES};
use bytes::Bytes;
use std::fmt;

/// Bytes of a call's frame besides its message, the length not counted.
pub const CALL_BYTES: usize = 11;
/// Bytes of the words of a call that was declined.
const WORDS_BYTES_MAX: usize = 1024;

/// Why a call was not answered, as its receiver tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decline {
    /// It has too many calls already. Nothing was done.
    Busy,
    /// It does not serve that. Nothing was done.
    NoService,
    /// It could not do it, or not whole.
    Failed,
    /// Its answer would not have fit a frame. It was done.
    AnswerTooLarge,
    /// Of a kind that a newer release has.
    Other(u8),
}

impl Decline {
    fn code(self) -> u8 {
        match self {
            Decline::Busy => 1,
            Decline::NoService => 2,
            Decline::Failed => 3,
            Decline::AnswerTooLarge => 4,
            Decline::Other(code) => code,
        }
    }

    fn from_code(code: u8) -> Decline {
        match code {
            1 => Decline::Busy,
            2 => Decline::NoService,
            3 => Decline::Failed,
            4 => Decline::AnswerTooLarge,
            other => Decline::Other(other),
        }
    }
}

/// A call that was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declined {
    /// For programs.
    pub why: Decline,
    /// For people.
    pub words: String,
}

impl Declined {
    /// Declined for a reason, in words.
    pub fn new(why: Decline, words: impl Into<String>) -> Declined {
        Declined { why, words: words.into() }
    }
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The dialer's proof; none without a secret.
    Proof(Option<[u8; PROOF_BYTES]>),
    /// The acceptor takes the connection; its proof.
    Accepted(Option<[u8; PROOF_BYTES]>),
    /// The connection ends, and why.
    Refused(Refused),
    /// A question.
    Call {
        /// Tells its answer from others. Used once on a connection.
        id: u32,
        /// Who is asked: see [`crate::service`].
        service: u16,
        /// Milliseconds that the caller waits.
        patience_ms: u32,
        /// What is asked.
        message: Bytes,
    },
    /// The answer to a call.
    Answer {
        /// The call's.
        id: u32,
        /// What is answered.
        message: Bytes,
    },
    /// No answer to a call.
    Declined {
        /// The call's.
        id: u32,
        /// Why.
        declined: Declined,
    },
}

impl Frame {
    /// The bytes, length among them.
    pub fn encode(&self) -> Vec<u8> {
        let mut start = Vec::with_capacity(LENGTH_BYTES + CALL_BYTES + self.message().len());
        start.extend_from_slice(&[0; LENGTH_BYTES]);
        let mut out = Writer::after(start);
        match self {
            Frame::Proof(proof) => {
                out.u8(1);
                out.bytes(proof.as_ref().map_or(&[], |proof| &proof[..]));
            }
            Frame::Accepted(proof) => {
                out.u8(2);
                out.bytes(proof.as_ref().map_or(&[], |proof| &proof[..]));
            }
            Frame::Refused(refused) => {
                out.u8(3);
                refused.write(&mut out);
            }
            Frame::Call { id, service, patience_ms, message } => {
                out.u8(4);
                out.u32(*id);
                out.u16(*service);
                out.u32(*patience_ms);
                out.bytes(message);
            }
            Frame::Answer { id, message } => {
                out.u8(5);
                out.u32(*id);
                out.bytes(message);
            }
            Frame::Declined { id, declined } => {
                out.u8(6);
                out.u32(*id);
                out.u8(declined.why.code());
                out.text(cut(&declined.words, WORDS_BYTES_MAX));
            }
        }
        let mut bytes = out.into_bytes();
        let length = u32::try_from(bytes.len() - LENGTH_BYTES).expect("no message has 4 GiB");
        bytes[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    fn message(&self) -> &[u8] {
        match self {
            Frame::Call { message, .. } | Frame::Answer { message, .. } => message,
            _ => &[],
        }
    }

    /// Reads what follows a length. The message is a part of `payload`, not a copy.
    pub fn decode(payload: &Bytes) -> Result<Frame, CodecError> {
        let mut fields = Reader::new(payload);
        let frame = match fields.u8()? {
            1 => return proof(fields).map(Frame::Proof),
            2 => return proof(fields).map(Frame::Accepted),
            3 => Frame::Refused(Refused::read(&mut fields)?),
            4 => {
                let (id, service, patience_ms) = (fields.u32()?, fields.u16()?, fields.u32()?);
                let message = payload.slice_ref(fields.rest());
                return Ok(Frame::Call { id, service, patience_ms, message });
            }
            5 => {
                let id = fields.u32()?;
                return Ok(Frame::Answer { id, message: payload.slice_ref(fields.rest()) });
            }
            6 => {
                let (id, why) = (fields.u32()?, Decline::from_code(fields.u8()?));
                let words = fields.text()?.chars().filter(|c| !c.is_control()).collect();
                Frame::Declined { id, declined: Declined { why, words } }
            }
            _ => return Err(CodecError::Value("an unknown kind of frame")),
        };
        fields.end()?;
        Ok(frame)
    }
}

fn proof(fields: Reader<'_>) -> Result<Option<[u8; PROOF_BYTES]>, CodecError> {
    match fields.rest() {
        [] => Ok(None),
        bytes => {
            let proof = bytes.try_into();
            proof.map(Some).map_err(|_| CodecError::Value("a proof that has not 32 bytes"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::checked_length;
    use super::super::refusal::Refusal;
    use super::*;

    fn samples() -> Vec<(Frame, &'static str)> {
        let message = Bytes::from_static(b"why?");
        let refused = Refused::new(Refusal::Secret, "no");
        let declined = Declined::new(Decline::Busy, "later");
        vec![
            (Frame::Proof(None), "0000000101"),
            (
                Frame::Accepted(Some([0xab; 32])),
                concat!(
                    "0000002102",
                    "abababababababababababababababababababababababababababababababab"
                ),
            ),
            (Frame::Refused(refused), "00000006030400026e6f"),
            (
                Frame::Call { id: 7, service: 1, patience_ms: 250, message: message.clone() },
                "0000000f04000000070001000000fa7768793f",
            ),
            (Frame::Answer { id: 7, message }, "0000000905000000077768793f"),
            (Frame::Declined { id: 8, declined }, "0000000d06000000080100056c61746572"),
        ]
    }

    /// These bytes are what other releases send.
    #[test]
    fn the_bytes_of_frames_stay_what_they_are() {
        for (frame, golden) in samples() {
            let bytes = frame.encode();
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, golden, "{frame:?}");
            let length = checked_length(bytes[..4].try_into().unwrap(), 4096).unwrap();
            assert_eq!(length, bytes.len() - 4);
            assert_eq!(Frame::decode(&Bytes::from(bytes).slice(4..)), Ok(frame));
        }
    }

    /// The number of a frame's kind. A variant that is new has to be added here and to [`samples`].
    fn kind_of(frame: &Frame) -> u8 {
        match frame {
            Frame::Proof(_) => 1,
            Frame::Accepted(_) => 2,
            Frame::Refused(_) => 3,
            Frame::Call { .. } => 4,
            Frame::Answer { .. } => 5,
            Frame::Declined { .. } => 6,
        }
    }

    /// A kind that is new, or a field behind the last one, is refused: a newer release may send either only under a version of the
    /// link that both nodes speak. The message of a call or an answer is of another format, and ends with the frame.
    #[test]
    fn newer_kinds_and_fields_of_every_frame_are_refused() {
        let known: Vec<u8> = samples().iter().map(|(frame, _)| kind_of(frame)).collect();
        assert_eq!(known, [1, 2, 3, 4, 5, 6]);
        for (frame, _) in samples() {
            let mut bytes = frame.encode().split_off(LENGTH_BYTES);
            bytes.push(0);
            let read = Frame::decode(&Bytes::copy_from_slice(&bytes));
            match (&frame, read) {
                (Frame::Call { message, .. }, Ok(Frame::Call { message: read, .. }))
                | (Frame::Answer { message, .. }, Ok(Frame::Answer { message: read, .. })) => {
                    assert_eq!(read[..], [&message[..], &[0]].concat());
                }
                (_, read) => assert!(read.is_err(), "{frame:?}"),
            }
            for kind in (0..=u8::MAX).filter(|kind| !known.contains(kind)) {
                bytes[0] = kind;
                let read = Frame::decode(&Bytes::copy_from_slice(&bytes));
                assert_eq!(read, Err(CodecError::Value("an unknown kind of frame")), "{kind}");
            }
        }
    }

    /// Reasons that only a newer release has are handed on, with their words.
    #[test]
    fn newer_reasons_are_read_as_such() {
        for code in 11..=u8::MAX {
            let refused = Refused::new(Refusal::Other(code), "no");
            let declined = Declined::new(Decline::Other(code), "no");
            for frame in [Frame::Refused(refused), Frame::Declined { id: 1, declined }] {
                let bytes = Bytes::from(frame.encode()).slice(LENGTH_BYTES..);
                assert_eq!(Frame::decode(&bytes), Ok(frame));
            }
        }
    }

    #[test]
    fn every_cut_is_an_error_or_another_message() {
        for (frame, _) in samples() {
            let bytes = Bytes::from(frame.encode());
            for end in 4..bytes.len() {
                // What is not counted may be shorter; all else is missed.
                match Frame::decode(&bytes.slice(4..end)) {
                    Ok(Frame::Call { message, .. } | Frame::Answer { message, .. }) => {
                        assert!(message.len() < 4);
                    }
                    Ok(Frame::Proof(None) | Frame::Accepted(None)) => {}
                    Ok(other) => panic!("{other:?} out of a cut {frame:?}"),
                    Err(_) => {}
                }
            }
        }
    }

    #[test]
    fn unknown_kinds_and_bytes_behind_are_errors() {
        for payload in [&b"\0"[..], b"\x07", b"\xff", b"\x03\x01\0\0more", b"\x01short"] {
            assert!(Frame::decode(&Bytes::copy_from_slice(payload)).is_err(), "{payload:?}");
        }
        assert_eq!(Decline::from_code(200).code(), 200);
    }

    #[test]
    fn a_calls_frame_has_the_bytes_that_are_said() {
        let call = Frame::Call { id: 1, service: 1, patience_ms: 1, message: Bytes::new() };
        assert_eq!(call.encode().len(), LENGTH_BYTES + CALL_BYTES);
    }
}
