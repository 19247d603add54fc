//! 128-bit ids as Kafka writes them: 22 characters of URL-safe base64 without padding.

use std::fmt;
use std::str::FromStr;

/// A 128-bit id. The caller supplies the random bytes: this room has no randomness.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

/// A topic's id (KIP-516): a topic made again under an old name has another one.
pub type TopicId = Uuid;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl Uuid {
    /// "No id", as the protocol writes it.
    pub const ZERO: Uuid = Uuid([0; 16]);

    /// A version 4 id out of 16 random bytes.
    pub fn from_random(mut bytes: [u8; 16]) -> Uuid {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Uuid(bytes)
    }

    /// Whether it is [`Uuid::ZERO`].
    pub fn is_zero(&self) -> bool {
        *self == Uuid::ZERO
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; 22];
        let value = u128::from_be_bytes(self.0);
        for (i, place) in text.iter_mut().enumerate() {
            // 22 digits of six bits hold 132: the last digit carries four bits of zeros.
            let shift = 122 - 6 * i as i32;
            let digit = if shift >= 0 { value >> shift } else { value << -shift };
            *place = ALPHABET[(digit & 63) as usize];
        }
        f.write_str(std::str::from_utf8(&text).expect("the alphabet is ASCII"))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 22 characters of URL-safe base64.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an id of 22 characters of URL-safe base64")]
pub struct InvalidUuid(pub String);

impl FromStr for Uuid {
    type Err = InvalidUuid;

    fn from_str(text: &str) -> Result<Uuid, InvalidUuid> {
        let invalid = || InvalidUuid(text.to_owned());
        if text.len() != 22 {
            return Err(invalid());
        }
        let mut value: u128 = 0;
        for (i, byte) in text.bytes().enumerate() {
            let digit = ALPHABET.iter().position(|c| *c == byte).ok_or_else(invalid)? as u128;
            if i < 21 {
                value = (value << 6) | digit;
            } else if digit & 0x0f == 0 {
                value = (value << 2) | (digit >> 4);
            } else {
                return Err(invalid());
            }
        }
        Ok(Uuid(value.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for bytes in [[0; 16], [255; 16], *b"0123456789abcdef"] {
            let id = Uuid(bytes);
            assert_eq!(id.to_string().parse::<Uuid>(), Ok(id));
        }
        assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(Uuid([255; 16]).to_string(), "_____________________w");
    }

    #[test]
    fn refuses_what_no_id_prints() {
        assert!("short".parse::<Uuid>().is_err());
        assert!("_____________________x".parse::<Uuid>().is_err());
        assert!("AAAAAAAAAAAAAAAAAAAA+A".parse::<Uuid>().is_err());
    }
}
