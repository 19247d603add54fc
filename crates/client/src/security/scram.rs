//! SCRAM (RFC 5802, RFC 7677): how a client proves that it knows a password without sending it, and has the broker prove
//! the same. Values in, values out; who carries the messages is in `sasl`.
//!
//! No channel binding, as Kafka has none. Names and passwords are printable ASCII: Kafka's brokers keep others as they come,
//! RFC 5802 has them normalized, and a client cannot know which of both it meets.

use super::secret::Secret;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;

/// Kafka's least number of iterations; with fewer, a stolen exchange is guessed at too cheaply.
const ITERATIONS_MIN: u32 = 4096;
/// More would protect from nothing, and be an attack on the client's processor: about a second of it.
const ITERATIONS_MAX: u32 = 1_000_000;
/// Longer messages of a broker are refused unread, in bytes.
const MESSAGE_BYTES_MAX: usize = 4096;
/// Bytes of chance in a nonce.
const NONCE_BYTES: usize = 24;

/// Which hash a mechanism uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash(Function);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Function {
    Sha256,
    Sha512,
    /// The one of RFC 5802, for its vector; Kafka has no such mechanism.
    #[cfg(test)]
    Sha1,
}

impl Hash {
    /// SCRAM-SHA-256.
    pub const SHA_256: Hash = Hash(Function::Sha256);
    /// SCRAM-SHA-512.
    pub const SHA_512: Hash = Hash(Function::Sha512);

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self.0 {
            Function::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Function::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
            #[cfg(test)]
            Function::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
        }
    }

    fn hmac(self) -> hmac::Algorithm {
        match self.0 {
            Function::Sha256 => hmac::HMAC_SHA256,
            Function::Sha512 => hmac::HMAC_SHA512,
            #[cfg(test)]
            Function::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        }
    }

    fn digest(self) -> &'static digest::Algorithm {
        self.hmac().digest_algorithm()
    }
}

/// Why an exchange ends. Shows nothing of the password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// The name or password has characters that brokers treat differently.
    #[error("{0} has characters other than printable ASCII, which SCRAM is not used with here")]
    NotAscii(&'static str),
    /// The system gives no chance.
    #[error("the system has no random bytes")]
    NoChance,
    /// The broker's message has another form.
    #[error("the broker's message is malformed: {0}")]
    Malformed(&'static str),
    /// The nonce does not continue ours: a replay, or a broker that read nothing.
    #[error("the broker's nonce does not continue this client's")]
    Nonce,
    /// The number of iterations is out of bounds.
    #[error(
        "the broker asks for {0} iterations, and between {ITERATIONS_MIN} and {ITERATIONS_MAX} are accepted"
    )]
    Iterations(u64),
    /// The broker refuses.
    #[error("the broker says: {0}")]
    Refused(String),
    /// The broker does not know the password: it is not the one that it says.
    #[error("the broker cannot prove that it knows the password: it may be an impostor")]
    Signature,
}

/// The first half: a name and a nonce were sent.
#[derive(Debug, Clone)]
pub struct Opening {
    hash: Hash,
    /// The first message without its header.
    bare: String,
    nonce: String,
    password: Secret,
}

impl Opening {
    /// Begins with a fresh nonce.
    ///
    /// # Errors
    /// The name or the password is not printable ASCII, or the system has no random bytes.
    pub fn new(hash: Hash, user: &str, password: &Secret) -> Result<Opening, ScramError> {
        let mut nonce = [0; NONCE_BYTES];
        let system = ring::rand::SystemRandom::new();
        ring::rand::SecureRandom::fill(&system, &mut nonce).map_err(|_| ScramError::NoChance)?;
        Opening::with_nonce(hash, user, password, &BASE64.encode(nonce))
    }

    /// Begins with this nonce, printable and without commas, which must never be used twice.
    ///
    /// # Errors
    /// The name or the password is not printable ASCII.
    pub fn with_nonce(
        hash: Hash,
        user: &str,
        password: &Secret,
        nonce: &str,
    ) -> Result<Opening, ScramError> {
        let is_plain = |text: &str| text.bytes().all(|b| (b' '..=b'~').contains(&b));
        if !is_plain(user) {
            return Err(ScramError::NotAscii("the user name"));
        }
        if !is_plain(password.reveal()) {
            return Err(ScramError::NotAscii("the password"));
        }
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let bare = format!("n={user},r={nonce}");
        Ok(Opening { hash, bare, nonce: nonce.to_owned(), password: password.clone() })
    }

    /// What is sent first.
    pub fn message(&self) -> String {
        format!("n,,{}", self.bare)
    }

    /// Reads the broker's answer to it.
    ///
    /// # Errors
    /// It is malformed, does not continue this exchange, or asks for an absurd amount of work.
    pub fn challenged(self, message: &[u8]) -> Result<Challenge, ScramError> {
        let text = text_of(message)?;
        let mut attributes = text.split(',');
        let mut attribute = |name: &str, missing| {
            let found = attributes.next().and_then(|text| text.strip_prefix(name));
            found.ok_or(ScramError::Malformed(missing))
        };
        let nonce = attribute("r=", "the nonce is missing")?;
        let salt = attribute("s=", "the salt is missing")?;
        let iterations = attribute("i=", "the number of iterations is missing")?;
        let extended = nonce.strip_prefix(self.nonce.as_str()).unwrap_or_default();
        if extended.is_empty() || !extended.bytes().all(|b| (b'!'..=b'~').contains(&b)) {
            return Err(ScramError::Nonce);
        }
        let salt = BASE64.decode(salt).ok().filter(|salt| !salt.is_empty());
        let salt = salt.ok_or(ScramError::Malformed("the salt is not base64"))?;
        let is_number = !iterations.is_empty() && iterations.bytes().all(|b| b.is_ascii_digit());
        let count = iterations.parse::<u64>().ok().filter(|_| is_number);
        let count = count.ok_or(ScramError::Malformed("the iterations are not a number"))?;
        let allowed = (u64::from(ITERATIONS_MIN)..=u64::from(ITERATIONS_MAX)).contains(&count);
        let iterations = u32::try_from(count).ok().filter(|_| allowed).and_then(NonZeroU32::new);
        let iterations = iterations.ok_or(ScramError::Iterations(count))?;
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("{},{text},{without_proof}", self.bare);
        Ok(Challenge {
            hash: self.hash,
            password: self.password,
            salt,
            iterations,
            without_proof,
            signed,
        })
    }
}

/// What the broker asks to be proven.
#[derive(Debug)]
pub struct Challenge {
    hash: Hash,
    password: Secret,
    salt: Vec<u8>,
    iterations: NonZeroU32,
    without_proof: String,
    /// All that both sides sign.
    signed: String,
}

impl Challenge {
    /// How many rounds the broker asks for: between 4,096 and 1,000,000.
    pub fn iterations(&self) -> u32 {
        self.iterations.get()
    }

    /// What is sent second, and what the broker must prove then. Takes the processor for up to a second, at the largest
    /// number of iterations.
    pub fn prove(self) -> (String, Proof) {
        let algorithm = self.hash.hmac();
        let mut salted = vec![0; self.hash.digest().output_len()];
        let password = self.password.reveal().as_bytes();
        pbkdf2::derive(self.hash.pbkdf2(), self.iterations, &self.salt, password, &mut salted);
        let salted = hmac::Key::new(algorithm, &salted);
        let client_key = hmac::sign(&salted, b"Client Key");
        let stored = digest::digest(self.hash.digest(), client_key.as_ref());
        let stored = hmac::Key::new(algorithm, stored.as_ref());
        let signature = hmac::sign(&stored, self.signed.as_bytes());
        let pairs = client_key.as_ref().iter().zip(signature.as_ref());
        let proof: Vec<u8> = pairs.map(|(key, signature)| key ^ signature).collect();
        let server_key = hmac::sign(&salted, b"Server Key");
        let server_key = hmac::Key::new(algorithm, server_key.as_ref());
        let message = format!("{},p={}", self.without_proof, BASE64.encode(proof));
        (message, Proof { server_key, signed: self.signed })
    }
}

/// What the broker has to prove.
#[derive(Debug)]
pub struct Proof {
    server_key: hmac::Key,
    signed: String,
}

impl Proof {
    /// Reads the broker's last message.
    ///
    /// # Errors
    /// The broker refuses, or does not know the password.
    pub fn verify(&self, message: &[u8]) -> Result<(), ScramError> {
        let text = text_of(message)?;
        let first = text.split(',').next().unwrap_or_default();
        if let Some(reason) = first.strip_prefix("e=") {
            return Err(ScramError::Refused(reason.chars().take(100).collect()));
        }
        let signature = first.strip_prefix("v=").and_then(|text| BASE64.decode(text).ok());
        let signature = signature.ok_or(ScramError::Malformed("the signature is missing"))?;
        hmac::verify(&self.server_key, self.signed.as_bytes(), &signature)
            .map_err(|_| ScramError::Signature)
    }
}

/// A message as text: short, and without control characters.
fn text_of(message: &[u8]) -> Result<&str, ScramError> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(ScramError::Malformed("it is too long"));
    }
    let text =
        std::str::from_utf8(message).map_err(|_| ScramError::Malformed("it is not UTF-8"))?;
    if text.chars().any(char::is_control) {
        return Err(ScramError::Malformed("it has control characters"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA_1: Hash = Hash(Function::Sha1);

    fn opening(hash: Hash, nonce: &str) -> Opening {
        Opening::with_nonce(hash, "user", &Secret::new("pencil"), nonce).unwrap()
    }

    /// An exchange of a user `user` with the password `pencil`, to its end.
    fn exchange(hash: Hash, nonce: &str, server_first: &str, server_final: &str) -> String {
        let opening = opening(hash, nonce);
        assert_eq!(opening.message(), format!("n,,n=user,r={nonce}"));
        let (proof, expected) = opening.challenged(server_first.as_bytes()).unwrap().prove();
        assert_eq!(expected.verify(server_final.as_bytes()), Ok(()));
        let other = expected.verify(b"v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
        assert_eq!(other, Err(ScramError::Signature));
        proof
    }

    #[test]
    fn the_vectors_of_the_standards_are_met() {
        assert_eq!(
            exchange(
                SHA_1,
                "fyko+d2lbbFgONRv9qkxdawL",
                "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
                "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
            ),
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
        );
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        assert_eq!(
            exchange(
                Hash::SHA_256,
                "rOprNGfwEbeRWgbNEkqO",
                &format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"),
                "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
            ),
            format!("c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
        );
    }

    /// Expected values: hashlib and hmac of Python.
    #[test]
    fn sha_512_is_computed_alike() {
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let proof = exchange(
            Hash::SHA_512,
            "rOprNGfwEbeRWgbNEkqO",
            &format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=10000"),
            "v=RjtcFh+1kT0TmNH2klLiCXHiJLvMLwWuSSjecIns8FBSn0XXRb3iv2qU96STCkYC2Go0feONylPqhw46oweC5A==",
        );
        assert_eq!(
            proof,
            format!(
                "c=biws,r={nonce},p=sScffJ11LZ4TfY4PVI/6/9rMIHpix12AijdjQOPWK26er2vRtW/osDSi/hegaCFWfI91sJZd0bevncVEhUg0wQ=="
            )
        );
    }

    #[test]
    fn a_lying_broker_is_found_out() {
        use ScramError::{Iterations, Malformed, Nonce};
        let no_number = Malformed("the iterations are not a number");
        for (message, error) in [
            ("r=abc,s=AAAA,i=4096", Nonce),
            ("r=,s=AAAA,i=4096", Nonce),
            ("r=xyzabc,s=AAAA,i=4096", Nonce),
            ("r=abcd e,s=AAAA,i=4096", Nonce),
            ("r=abcd,s=AAAA,i=1", Iterations(1)),
            ("r=abcd,s=AAAA,i=4095", Iterations(4095)),
            ("r=abcd,s=AAAA,i=1000001", Iterations(1_000_001)),
            ("r=abcd,s=AAAA,i=2147483648", Iterations(1 << 31)),
            ("r=abcd,s=AAAA,i=4294971392", Iterations((1 << 32) + 4096)),
            ("r=abcd,s=AAAA,i=99999999999999999999", no_number.clone()),
            ("r=abcd,s=AAAA,i=-4096", no_number.clone()),
            ("r=abcd,s=AAAA,i=+4096", no_number.clone()),
            ("r=abcd,s=AAAA,i=", no_number),
            ("r=abcd,s=AAAA", Malformed("the number of iterations is missing")),
            ("r=abcd,s=,i=4096", Malformed("the salt is not base64")),
            ("r=abcd,s=A,i=4096", Malformed("the salt is not base64")),
            ("r=abcd", Malformed("the salt is missing")),
            ("", Malformed("the nonce is missing")),
            ("m=unknown,r=abcd,s=AAAA,i=4096", Malformed("the nonce is missing")),
            ("r=abcd,s=AAAA,i=4096\u{1b}[2J", Malformed("it has control characters")),
        ] {
            let challenged = opening(Hash::SHA_256, "abc").challenged(message.as_bytes());
            assert_eq!(challenged.map(|_| ()), Err(error), "{message}");
        }
        let long = format!("r=abc{},s=AAAA,i=4096", "d".repeat(MESSAGE_BYTES_MAX));
        let challenged = opening(Hash::SHA_256, "abc").challenged(long.as_bytes());
        assert_eq!(challenged.map(|_| ()), Err(Malformed("it is too long")));
    }

    #[test]
    fn the_last_message_is_a_signature_or_a_refusal() {
        let challenge = opening(Hash::SHA_256, "abc").challenged(b"r=abcd,s=AAAA,i=4096").unwrap();
        let (_, expected) = challenge.prove();
        let refused = ScramError::Refused("other-error".to_owned());
        for (message, error) in [
            ("e=other-error", refused),
            ("v=", ScramError::Signature),
            ("v=AAAA", ScramError::Signature),
            ("v=%", ScramError::Malformed("the signature is missing")),
            ("", ScramError::Malformed("the signature is missing")),
        ] {
            assert_eq!(expected.verify(message.as_bytes()), Err(error), "{message}");
        }
        assert!(expected.verify(&[0xff]).is_err());
    }

    #[test]
    fn names_are_escaped_and_nonces_differ() {
        let password = Secret::new("pencil");
        let opening = Opening::with_nonce(Hash::SHA_256, "a=b,c", &password, "x").unwrap();
        assert_eq!(opening.message(), "n,,n=a=3Db=2Cc,r=x");
        let message = || Opening::new(Hash::SHA_256, "user", &password).unwrap().message();
        assert_ne!(message(), message());
    }

    #[test]
    fn what_brokers_normalize_differently_is_refused() {
        let of = |user: &str, password: &str| {
            Opening::new(Hash::SHA_256, user, &Secret::new(password)).map(|_| ())
        };
        assert_eq!(of("größe", "x"), Err(ScramError::NotAscii("the user name")));
        assert_eq!(of("x", "größe"), Err(ScramError::NotAscii("the password")));
        assert_eq!(of("x", "tab\t"), Err(ScramError::NotAscii("the password")));
    }
}
