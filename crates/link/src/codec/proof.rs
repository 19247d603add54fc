//! Proving a shared secret without saying it.
//!
//! A proof is HMAC-SHA-256, keyed with the secret, over the role of who proves and both Hellos as they
//! were sent. Both carry a nonce, so no proof fits another connection; the role keeps a proof from being
//! sent back to its maker; and nothing in a Hello can be changed on the way.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::fmt;

/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;

/// The value of `inter.broker.secret`. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// The secret; `None` if it is empty.
    pub fn new(value: impl Into<Vec<u8>>) -> Option<Secret> {
        let value = value.into();
        (!value.is_empty()).then(|| Secret(value.into_boxed_slice()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Who proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Who made the connection.
    Dialer,
    /// Who took it.
    Acceptor,
}

impl Role {
    fn label(self) -> &'static [u8] {
        match self {
            Role::Dialer => b"highwater link: dialer",
            Role::Acceptor => b"highwater link: acceptor",
        }
    }
}

/// Both Hellos of a connection, as they were sent.
#[derive(Clone, Copy, Debug)]
pub struct Transcript<'a> {
    /// The Hello of who made the connection.
    pub dialer: &'a [u8],
    /// The Hello of who took it.
    pub acceptor: &'a [u8],
}

fn mac(secret: &Secret, role: Role, said: Transcript<'_>) -> Hmac<Sha256> {
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(&secret.0).expect("a key of any length");
    for part in [role.label(), said.dialer, said.acceptor] {
        // Counted, so that no byte can move from one part to the next.
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac
}

/// The proof of one side.
pub fn prove(secret: &Secret, role: Role, said: Transcript<'_>) -> [u8; PROOF_BYTES] {
    mac(secret, role, said).finalize().into_bytes().into()
}

/// Whether a proof is that side's. Takes the same time wherever the first difference is.
pub fn is_proof(
    secret: &Secret,
    role: Role,
    said: Transcript<'_>,
    proof: &[u8; PROOF_BYTES],
) -> bool {
    mac(secret, role, said).verify_slice(proof).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text).unwrap()
    }

    const SAID: Transcript<'_> =
        Transcript { dialer: b"hello, I am 1", acceptor: b"hello, I am 2" };

    #[test]
    fn only_the_same_secret_role_and_words_prove() {
        let proof = prove(&secret("s"), Role::Dialer, SAID);
        assert!(is_proof(&secret("s"), Role::Dialer, SAID, &proof));
        assert!(!is_proof(&secret("t"), Role::Dialer, SAID, &proof));
        assert!(!is_proof(&secret("s"), Role::Acceptor, SAID, &proof), "sent back");
        let moved = Transcript { dialer: b"hello, I am 1h", acceptor: b"ello, I am 2" };
        assert!(!is_proof(&secret("s"), Role::Dialer, moved, &proof));
        for bit in 0..PROOF_BYTES * 8 {
            let mut flipped = proof;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_proof(&secret("s"), Role::Dialer, SAID, &flipped));
        }
    }

    /// Another implementation computed it: Python's `hmac`, over the parts with their lengths.
    #[test]
    fn a_proof_stays_what_it_is() {
        let proof = prove(&secret("a secret"), Role::Acceptor, SAID);
        let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "4b3522504d9a013148e70ce0d2a3588684afd02114732c7d4fd9cf2c7fb04204");
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", secret("hunter2")), "Secret(…)");
        assert_eq!(Secret::new(""), None);
    }
}
