//! What a client reads when it logs in: the text of `sasl.jaas.config`, and a broker's messages of SCRAM. No bytes panic; a login
//! that is read has words in its places, and a broker that does not know the password is never believed.

#![no_main]

use client::security::scram::{Hash, Opening};
use client::security::{Secret, jaas};
use libfuzzer_sys::fuzz_target;

/// The client's part of the nonce; known, so that messages that continue it are found.
const NONCE: &str = "abc";

fuzz_target!(|input: &[u8]| {
    let Some((choice, rest)) = input.split_first() else { return };
    if choice % 2 == 0 {
        let Ok(text) = std::str::from_utf8(rest) else { return };
        if let Ok(login) = jaas::parse(text) {
            assert!(text.contains(';') && login.options.len() <= text.len() / 2);
        }
        return;
    }
    let hash = if choice % 4 == 1 { Hash::SHA_256 } else { Hash::SHA_512 };
    let password = Secret::new("pencil");
    let opening = Opening::with_nonce(hash, "user", &password, NONCE).expect("both are ASCII");
    let cut = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    let (first, last) = rest.split_at(cut);
    let Ok(challenge) = opening.challenged(first) else { return };
    // More rounds only cost time.
    if challenge.iterations() > 10_000 {
        return;
    }
    let (message, proof) = challenge.prove();
    assert!(message.starts_with("c=biws,r=abc") && message.contains(",p="));
    assert!(proof.verify(last.get(1..).unwrap_or_default()).is_err(), "nothing signs by chance");
});
