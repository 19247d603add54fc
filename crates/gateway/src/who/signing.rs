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
use serving::claims::{Claims, Use};

use super::tokens::random;

/// Sessions of one user that were ended before their time and are remembered one by one.
const ENDED_MAX: usize = 64;
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
    /// What was ended, by user.
    ended: Mutex<HashMap<String, Ended>>,
}

/// Sessions of a user that were ended before their time.
///
/// Of somebody who logs in and out all day not every session is remembered: as all last equally long, those that began before one that is
/// forgotten are void with it. So what was ended stays so, and a user can void no sessions but its own.
#[derive(Debug, Default)]
struct Ended {
    /// Each, with when it would have ended by itself. Invariant: at most [`ENDED_MAX`].
    sessions: Vec<(u128, u64)>,
    /// Sessions that would end by themselves until then are void.
    before_s: u64,
}

impl Ended {
    fn end(&mut self, id: u128, expires_s: u64, now_s: u64) {
        self.sessions.retain(|(_, expires_s)| *expires_s > now_s);
        self.sessions.push((id, expires_s));
        if self.sessions.len() > ENDED_MAX {
            let oldest = self.sessions.iter().map(|(_, expires_s)| *expires_s).min();
            self.before_s = self.before_s.max(oldest.unwrap_or(0));
            self.sessions.retain(|(_, expires_s)| *expires_s > self.before_s);
        }
    }

    fn has(&self, id: u128, expires_s: u64) -> bool {
        expires_s <= self.before_s || self.sessions.iter().any(|(ended, _)| *ended == id)
    }

    /// Whether all that it remembers has ended by itself.
    fn is_over(&self, now_s: u64) -> bool {
        self.before_s <= now_s && self.sessions.iter().all(|(_, expires_s)| *expires_s <= now_s)
    }
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
        let is_ended = claims.good_for == Use::Session
            && self.is_ended(&claims.user, claims.id, claims.expires_s);
        (!claims.is_void_at(now_s) && !is_ended).then_some(claims)
    }

    /// Whether a session was ended before its time.
    pub(super) fn is_ended(&self, user: &str, id: u128, expires_s: u64) -> bool {
        let ended = self.ended.lock().expect("no code under it panics");
        ended.get(user).is_some_and(|ended| ended.has(id, expires_s))
    }

    /// From now on the session is void, in this process.
    pub(super) fn end(&self, claims: &Claims, now_s: u64) {
        let mut ended = self.ended.lock().expect("no code under it panics");
        ended.retain(|_, ended| !ended.is_over(now_s));
        let of_user = ended.entry(claims.user.clone()).or_default();
        of_user.end(claims.id, claims.expires_s, now_s);
    }
}

#[cfg(test)]
mod tests {
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
        signer.end(&claims(), 0);
        assert_eq!(signer.read(&text, 0), Some(claims()), "tickets are not logins");
    }

    #[test]
    fn a_session_that_was_ended_stays_so_however_many_are() {
        let signer = Signer::new(&SigningKey::random());
        let session = |user: &str, id: u128, expires_s: u64| Claims {
            good_for: Use::Session,
            id,
            expires_s,
            user: user.to_owned(),
            ..claims()
        };
        let is_believed = |session: &Claims| signer.read(&signer.sign(session), 0).is_some();
        let others = session("bob", 1, 500);
        let kept = session("alice", 999_999, 11_000);
        // All of them within a second, and one after the other.
        for (count, expires_s) in
            [(5_000, |_| 600), (5_000, |id: u64| 1_000 + id)] as [(u64, fn(u64) -> u64); 2]
        {
            let made: Vec<_> =
                (0..count).map(|id| session("alice", id.into(), expires_s(id))).collect();
            for session in &made {
                signer.end(session, 0);
                assert!(!is_believed(session));
            }
            assert!(made.iter().all(|session| !is_believed(session)));
            assert!(is_believed(&kept) && is_believed(&others));
            assert!(signer.ended.lock().unwrap()["alice"].sessions.len() <= ENDED_MAX);
        }
        signer.end(&others, 20_000);
        assert_eq!(signer.ended.lock().unwrap().len(), 1, "what is over is not remembered");
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
