//! The broker's side of SCRAM and PLAIN, written from RFC 5802 and RFC 4616 and from nothing of the client's; and its lies.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;

/// What a broker does that it should not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Lie {
    None,
    /// It does not know the password, and signs by another one.
    Signature,
    /// It answers with a nonce of its own.
    Nonce,
    /// It gives the client's nonce back as it was.
    SameNonce,
    Iterations(u64),
    /// Half of its first message.
    Cut,
    /// It does not answer the first message.
    Silence,
    /// Its last message is empty: the client shall believe it unproven.
    NoProof,
}

/// One login on the broker's side.
pub struct Login {
    pub mechanism: String,
    pub user: String,
    pub password: String,
    pub lie: Lie,
    /// What both sides sign, but for the client's last message.
    begun: Option<(String, String)>,
}

impl Login {
    pub fn new(mechanism: &str, user: &str, password: &str, lie: Lie) -> Login {
        let text = str::to_owned;
        Login {
            mechanism: text(mechanism),
            user: text(user),
            password: text(password),
            lie,
            begun: None,
        }
    }

    /// The answer to a message and whether it is the last one; `Err` if the login fails.
    pub fn answer(&mut self, message: &[u8]) -> Result<(Vec<u8>, bool), String> {
        let failed = format!("Authentication failed with SASL mechanism {}", self.mechanism);
        if self.mechanism == "PLAIN" {
            let expected = format!("\0{}\0{}", self.user, self.password);
            let is_right = message == expected.as_bytes();
            return if is_right { Ok((Vec::new(), true)) } else { Err(failed) };
        }
        let Ok(message) = std::str::from_utf8(message) else { return Err(failed) };
        let begun = self.begun.take();
        let is_last = begun.is_some();
        let answer = match &begun {
            None => self.first(message),
            Some(begun) => self.last(begun, message),
        };
        answer.map(|text| (text.into_bytes(), is_last)).ok_or(failed)
    }

    fn first(&mut self, message: &str) -> Option<String> {
        let bare = message.strip_prefix("n,,")?;
        let (name, nonce) = bare.split_once(",r=")?;
        let name = name.strip_prefix("n=")?.replace("=2C", ",").replace("=3D", "=");
        if name != self.user {
            return None;
        }
        let nonce = match self.lie {
            Lie::Nonce => "0123456789abcdef".to_owned(),
            Lie::SameNonce => nonce.to_owned(),
            _ => format!("{nonce}{:016x}", fastrand::u64(..)),
        };
        let iterations = if let Lie::Iterations(count) = self.lie { count } else { 4096 };
        let first = format!("r={nonce},s={},i={iterations}", BASE64.encode("salt of bread"));
        self.begun = Some((bare.to_owned(), first.clone()));
        Some(if self.lie == Lie::Cut { first[..first.len() / 2].to_owned() } else { first })
    }

    fn last(&self, (bare, first): &(String, String), message: &str) -> Option<String> {
        let (without_proof, proof) = message.rsplit_once(",p=")?;
        let nonce = first.split(',').next()?;
        if without_proof != format!("c=biws,{nonce}") {
            return None;
        }
        let is_512 = self.mechanism == "SCRAM-SHA-512";
        let (kdf, mac, hash) = if is_512 {
            (pbkdf2::PBKDF2_HMAC_SHA512, hmac::HMAC_SHA512, &digest::SHA512)
        } else {
            (pbkdf2::PBKDF2_HMAC_SHA256, hmac::HMAC_SHA256, &digest::SHA256)
        };
        let sign = |key: &[u8], text: &str| {
            hmac::sign(&hmac::Key::new(mac, key), text.as_bytes()).as_ref().to_vec()
        };
        let salted = |password: &str| {
            let mut salted = vec![0; hash.output_len()];
            let rounds = NonZeroU32::new(4096)?;
            pbkdf2::derive(kdf, rounds, b"salt of bread", password.as_bytes(), &mut salted);
            Some(salted)
        };
        let signed = format!("{bare},{first},{without_proof}");
        // The proof gives the client's key, of which the broker keeps the hash.
        let stored = digest::digest(hash, &sign(&salted(&self.password)?, "Client Key"));
        let signature = sign(stored.as_ref(), &signed);
        let proof = BASE64.decode(proof).ok()?;
        let key: Vec<u8> = proof.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        if digest::digest(hash, &key).as_ref() != stored.as_ref() {
            return None;
        }
        let password = if self.lie == Lie::Signature { "another" } else { &self.password };
        let server_key = sign(&salted(password)?, "Server Key");
        Some(match self.lie {
            Lie::NoProof => String::new(),
            _ => format!("v={}", BASE64.encode(sign(&server_key, &signed))),
        })
    }
}
