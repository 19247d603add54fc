//! Tokens: 256 random bits, of which the file of users has the SHA-256. A token is so long that nobody finds another one with
//! that hash, and so needs no slow one.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serving::users::TokenHash;

/// What tokens begin with, so that they are found where they should not be.
const PREFIX: &str = "hwt_";

/// This many random bytes.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    bytes
}

/// A new token.
pub fn make() -> String {
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random::<32>()))
}

/// What a file has of a token.
pub fn hash(token: &str) -> TokenHash {
    digest(&SHA256, token.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}
