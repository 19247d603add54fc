//! Whether two requests ask the same.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

/// A number that stands for what a request asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u128);

/// Makes fingerprints. Without its key no stranger can find two requests with one fingerprint.
#[derive(Debug, Clone)]
pub struct Seal {
    key: [u64; 2],
}

impl Seal {
    /// One with this key, which should be random.
    pub fn new(key: [u64; 2]) -> Seal {
        Seal { key }
    }

    /// The fingerprint of a request's parts, in this order: query, type of the body, body.
    pub fn fingerprint(&self, parts: &[&[u8]]) -> Fingerprint {
        let mut hasher = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        for part in parts {
            // So that bytes cannot move from one part to the next.
            hasher.write_u64(part.len() as u64);
            hasher.write(part);
        }
        Fingerprint(hasher.finish128().as_u128())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_parts_have_another_fingerprint() {
        let seal = Seal::new([1, 2]);
        let of = |parts: &[&[u8]]| seal.fingerprint(parts);
        assert_eq!(of(&[b"ab", b"c"]), of(&[b"ab", b"c"]));
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"ab", b"c", b""]));
        assert_ne!(of(&[b"ab"]), Seal::new([2, 1]).fingerprint(&[b"ab"]));
    }
}
