//! Cookies and tickets: claims with a signature, HMAC-SHA256 under a key that the gateways of one address share by a file, or
//! that each makes up at its start.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serving::claims::Claims;

use super::tokens::random;

/// Sessions that were ended before their time and are remembered.
const ENDED_MAX: usize = 10_000;
/// Bytes of the longest text that is looked at.
const TEXT_BYTES_MAX: usize = 8 * 1024;

/// Seconds since 1970.
pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What signs.
#[derive(Clone)]
pub struct SigningKey([u8; 32]);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

/// Why a file has no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It cannot be read or made.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error(
        "expected 64 hexadecimal digits and nothing else; remove the file, and a new key is made"
    )]
    Content,
}

impl SigningKey {
    /// One that nobody knows, and that is gone with this process.
    pub fn random() -> SigningKey {
        SigningKey(random())
    }

    /// The key in a file; a file that is missing is made, readable to its owner alone.
    ///
    /// # Errors
    /// The file cannot be read or made, or has no key in it.
    pub fn of_file(path: &Path) -> Result<SigningKey, KeyError> {
        let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        match made {
            Ok(mut file) => {
                let key = random::<32>();
                file.write_all(format!("{}\n", serving::users::hex(&key)).as_bytes())?;
                file.sync_all()?;
                return Ok(SigningKey(key));
            }
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
            Err(cause) => return Err(cause.into()),
        }
        let text = std::fs::read_to_string(path)?;
        let digits = text.trim_end();
        let is_hex = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut key = [0; 32];
        for (at, byte) in key.iter_mut().enumerate() {
            let pair = digits.get(2 * at..2 * at + 2).filter(|_| is_hex);
            *byte =
                pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()).ok_or(KeyError::Content)?;
        }
        Ok(SigningKey(key))
    }
}

/// Signs, and believes what it has signed.
pub(super) struct Signer {
    key: hmac::Key,
    /// Sessions that were ended, with when they would have ended by themselves.
    ended: Mutex<HashMap<u128, u64>>,
}

impl Signer {
    pub(super) fn new(key: &SigningKey) -> Signer {
        Signer { key: hmac::Key::new(hmac::HMAC_SHA256, &key.0), ended: Mutex::default() }
    }

    /// The claims with their signature, in characters that may stand in a cookie and in an address.
    pub(super) fn sign(&self, claims: &Claims) -> String {
        let body = URL_SAFE_NO_PAD.encode(claims.text());
        let tag = hmac::sign(&self.key, body.as_bytes());
        format!("{body}.{}", URL_SAFE_NO_PAD.encode(tag))
    }

    /// The claims of a text that was signed here and is not void; `None` for any other.
    pub(super) fn read(&self, text: &str, now_s: u64) -> Option<Claims> {
        let (body, tag) = text.split_once('.').filter(|_| text.len() <= TEXT_BYTES_MAX)?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        hmac::verify(&self.key, body.as_bytes(), &tag).ok()?;
        let body = String::from_utf8(URL_SAFE_NO_PAD.decode(body).ok()?).ok()?;
        let claims = Claims::parse(&body)?;
        let is_ended =
            || self.ended.lock().expect("no code under it panics").contains_key(&claims.id);
        (!claims.is_void_at(now_s) && !is_ended()).then_some(claims)
    }

    /// From now on the session is void, in this process.
    pub(super) fn end(&self, id: u128, expires_s: u64, now_s: u64) {
        let mut ended = self.ended.lock().expect("no code under it panics");
        ended.retain(|_, expires_s| *expires_s > now_s);
        if ended.len() < ENDED_MAX {
            ended.insert(id, expires_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use serving::claims::Use;

    use super::*;

    fn claims() -> Claims {
        let good_for = Use::Ticket(vec!["orders".to_owned()]);
        Claims { good_for, expires_s: 1000, id: 7, stamp: 9, user: "alice".to_owned() }
    }

    #[test]
    fn one_bit_off_is_not_believed() {
        let signer = Signer::new(&SigningKey::random());
        let text = signer.sign(&claims());
        assert_eq!(signer.read(&text, 999), Some(claims()));
        assert_eq!(signer.read(&text, 1000), None, "too late");
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                if let Ok(flipped) = String::from_utf8(bytes) {
                    assert_eq!(signer.read(&flipped, 0), None, "bit {bit} of {at}: {flipped}");
                }
            }
            assert_eq!(signer.read(&text[..at], 0), None, "cut at {at}");
        }
        assert_eq!(Signer::new(&SigningKey::random()).read(&text, 0), None, "another key");
        signer.end(7, 1000, 0);
        assert_eq!(signer.read(&text, 0), None, "it was ended");
    }

    #[test]
    fn a_key_is_made_once_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let first = SigningKey::of_file(&path).unwrap();
        assert_eq!(first.0, SigningKey::of_file(&path).unwrap().0);
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o777, 0o600);
        let whole = std::fs::read_to_string(&path).unwrap();
        for text in ["", "00", &whole[1..], &whole.replace('\n', "0"), &"é".repeat(32)] {
            std::fs::write(&path, text).unwrap();
            assert!(matches!(SigningKey::of_file(&path), Err(KeyError::Content)), "{text:?}");
        }
    }
}
