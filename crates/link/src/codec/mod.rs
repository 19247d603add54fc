//! The link's bytes, pure: fields, Hello, frames, refusals and proofs. No socket, no clock.
//!
//! ```text
//! dialer                                   acceptor
//!   | magic, length, Hello  ------------------> |   is judged
//!   | <------------------  magic, length, Hello |   or a frame: refused, in words
//!   | length, proof  -------------------------> |
//!   | <-----------------------  length, accepted|   with a proof of its own, or refused
//!   | length, call  --------------------------> |   many in flight
//!   | <-------------  length, answer or declined|   in any order
//! ```
//!
//! A length is four bytes, big-endian like every number here, and counts what follows it. The magic is not a
//! length that a Kafka client sends (it would announce more than a gigabyte), so a port can serve both.

pub mod frame;
pub mod hello;
pub mod proof;
pub mod refusal;

pub use model::fields;

use model::fields::FieldError;

/// Bytes of a length.
pub const LENGTH_BYTES: usize = 4;

/// A message that is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// It ends within a field.
    #[error("the message ends within a field")]
    Short,
    /// A frame's length that no frame may have. What follows has no meaning.
    #[error("a frame of {length} bytes; at most {max} are accepted")]
    Length {
        /// What the frame says.
        length: u32,
        /// What is accepted.
        max: usize,
    },
    /// A field has a value that it cannot have.
    #[error("a field has a value that it cannot have: {0}")]
    Value(&'static str),
}

impl From<FieldError> for CodecError {
    fn from(error: FieldError) -> CodecError {
        match error {
            FieldError::Short => CodecError::Short,
            FieldError::Value(what) => CodecError::Value(what),
        }
    }
}

/// The length of a frame, if it is one that a frame of at most `max` bytes can have. To be asked before
/// anything is allocated.
pub fn checked_length(prefix: [u8; LENGTH_BYTES], max: usize) -> Result<usize, CodecError> {
    let length = u32::from_be_bytes(prefix);
    match usize::try_from(length) {
        Ok(bytes) if (1..=max).contains(&bytes) => Ok(bytes),
        _ => Err(CodecError::Length { length, max }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_out_of_range_are_refused() {
        for length in [0, 4097, u32::MAX, u32::from_be_bytes(hello::MAGIC)] {
            let refused = CodecError::Length { length, max: 4096 };
            assert_eq!(checked_length(length.to_be_bytes(), 4096), Err(refused));
        }
        for length in [1, 4096] {
            assert_eq!(checked_length(u32::to_be_bytes(length), 4096), Ok(length as usize));
        }
    }
}
