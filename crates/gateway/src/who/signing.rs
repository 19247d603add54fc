//! Cookies and tickets: claims with a signature, HMAC-SHA256 under a key that the gateways of one address share by a file, or
//! that each makes up at its start.

use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serving::claims::{Claims, Use};
use serving::sign_outs::SignOuts;
use tracing::warn;

use super::book::Mark;
use super::sign_out_file::{SignOutFile, SignOutFileError};
use super::tokens::random;

/// How long the file of sign-outs is believed without a read.
const FRESH: Duration = Duration::from_secs(1);
/// Bytes of the longest text that is looked at.
const TEXT_BYTES_MAX: usize = 8 * 1024;

/// Seconds since 1970.
pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What signs.
#[derive(Clone)]
pub struct SigningKey {
    bytes: [u8; 32],
    /// The file that the key was read from.
    file: Option<PathBuf>,
}

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
    /// The file of sign-outs beside the key file cannot be used.
    #[error("sign-outs beside the key file: {0}")]
    SignOuts(String),
}

impl SigningKey {
    /// One that nobody knows, and that is gone with this process.
    pub fn random() -> SigningKey {
        SigningKey { bytes: random(), file: None }
    }

    /// The key in a file; a file that is missing is made, readable to its owner alone.
    ///
    /// # Errors
    /// The file cannot be read or made, or has no key in it.
    pub fn of_file(path: &Path) -> Result<SigningKey, KeyError> {
        let bytes = SigningKey::bytes_of(path)?;
        // Sessions that were signed out must not be valid again.
        SignOutFile::beside(path).load().map_err(|error| KeyError::SignOuts(error.to_string()))?;
        Ok(SigningKey { bytes, file: Some(path.to_owned()) })
    }

    fn bytes_of(path: &Path) -> Result<[u8; 32], KeyError> {
        let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        match made {
            Ok(mut file) => {
                let key = random::<32>();
                file.write_all(format!("{}\n", serving::users::hex(&key)).as_bytes())?;
                file.sync_all()?;
                return Ok(key);
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
        Ok(key)
    }
}

/// Signs, and believes what it has signed.
pub(super) struct Signer {
    key: hmac::Key,
    ended: Mutex<SignOuts>,
    /// Where sign-outs outlive this process; `None` for a key that does not.
    file: Option<SignOutFile>,
    /// The last read of the file.
    followed: tokio::sync::Mutex<Followed>,
}

/// The last read of the file of sign-outs.
#[derive(Default)]
struct Followed {
    at: Option<Instant>,
    mark: Option<Option<Mark>>,
    /// The failure that was reported last.
    reported: Option<String>,
}

impl Signer {
    pub(super) fn new(key: &SigningKey) -> Signer {
        Signer {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key.bytes),
            ended: Mutex::default(),
            file: key.file.as_deref().map(SignOutFile::beside),
            followed: tokio::sync::Mutex::default(),
        }
    }

    /// The claims with their signature, in characters that may stand in a cookie and in an address.
    pub(super) fn sign(&self, claims: &Claims) -> String {
        let body = URL_SAFE_NO_PAD.encode(claims.text());
        let tag = hmac::sign(&self.key, body.as_bytes());
        format!("{body}.{}", URL_SAFE_NO_PAD.encode(tag))
    }

    /// The claims of a text that was signed here and is not void; `None` for any other.
    pub(super) fn read(&self, text: &str, now_s: u64) -> Option<Claims> {
        self.signed(text, now_s).filter(|claims| {
            claims.good_for != Use::Session
                || !self.is_ended(&claims.user, claims.id, claims.expires_s)
        })
    }

    /// The same, of sessions that were ended before their time, too.
    pub(super) fn signed(&self, text: &str, now_s: u64) -> Option<Claims> {
        let (body, tag) = text.split_once('.').filter(|_| text.len() <= TEXT_BYTES_MAX)?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        hmac::verify(&self.key, body.as_bytes(), &tag).ok()?;
        let body = String::from_utf8(URL_SAFE_NO_PAD.decode(body).ok()?).ok()?;
        Claims::parse(&body).filter(|claims| !claims.is_void_at(now_s))
    }

    fn ended(&self) -> MutexGuard<'_, SignOuts> {
        self.ended.lock().expect("no code under it panics")
    }

    /// Whether a session was ended before its time.
    pub(super) fn is_ended(&self, user: &str, id: u128, expires_s: u64) -> bool {
        self.ended().has(user, id, expires_s)
    }

    /// From now on the session is void: in this process at once, and in those that share the key file within a second.
    ///
    /// # Errors
    /// The file cannot be written: the session is void in this process only.
    pub(super) async fn end(&self, claims: &Claims, now_s: u64) -> Result<(), String> {
        let mut one = SignOuts::default();
        one.sign_out(&claims.user, claims.id, claims.expires_s, now_s);
        self.ended().sign_out(&claims.user, claims.id, claims.expires_s, now_s);
        let Some(file) = self.file.clone() else { return Ok(()) };
        let path = file.path().display().to_string();
        let added = tokio::task::spawn_blocking(move || file.add(&one)).await;
        let all = match added {
            Ok(added) => added.map_err(|error| format!("cannot write {path}: {error}"))?,
            Err(_) => return Err(format!("cannot write {path}: the gateway stops")),
        };
        self.ended().merge(&all);
        Ok(())
    }

    /// Reads the file of sign-outs if the last read is a second old and the file has changed. Returns whether there are new
    /// ones.
    pub(super) async fn follow(&self) -> bool {
        let Some(file) = self.file.clone() else { return false };
        let mut followed = self.followed.lock().await;
        if followed.at.is_some_and(|at| at.elapsed() < FRESH) {
            return false;
        }
        let before = followed.mark;
        let path = file.path().display().to_string();
        let found = tokio::task::spawn_blocking(move || {
            if before == Some(file.mark()?) {
                return Ok(None);
            }
            file.load().map(Some)
        });
        let found: Result<_, SignOutFileError> = match found.await {
            Ok(found) => found,
            Err(_) => return false,
        };
        followed.at = Some(Instant::now());
        match found {
            Ok(None) => false,
            Ok(Some((mark, all))) => {
                (followed.mark, followed.reported) = (Some(mark), None);
                self.ended().merge(&all);
                true
            }
            Err(error) => {
                let error = error.to_string();
                if followed.reported.as_ref() != Some(&error) {
                    warn!("cannot read sign-outs of other gateways from {path}: {error}");
                    followed.reported = Some(error);
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        let good_for = Use::Ticket(vec!["orders".to_owned()]);
        Claims { good_for, expires_s: 1000, id: 7, stamp: 9, user: "alice".to_owned() }
    }

    #[tokio::test]
    async fn one_bit_off_is_not_believed() {
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
        signer.end(&claims(), 0).await.unwrap();
        assert_eq!(signer.read(&text, 0), Some(claims()), "tickets are not logins");
    }

    fn session(id: u128) -> Claims {
        Claims { good_for: Use::Session, id, ..claims() }
    }

    #[tokio::test]
    async fn sign_outs_reach_signers_of_one_key_file_and_outlive_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let signer = || Signer::new(&SigningKey::of_file(&path).unwrap());
        let (one, other) = (signer(), signer());
        other.follow().await;
        one.end(&session(1), 0).await.unwrap();
        other.end(&session(2), 0).await.unwrap();
        let is_valid = |signer: &Signer, id| signer.read(&signer.sign(&session(id)), 0).is_some();
        let both = async {
            while is_valid(&one, 2) || is_valid(&other, 1) {
                one.follow().await;
                other.follow().await;
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), both).await.expect("each has both");
        drop((one, other));
        let later = signer();
        later.follow().await;
        assert_eq!([1, 2, 3].map(|id| is_valid(&later, id)), [false, false, true]);
        // A damaged file makes nothing valid again.
        let file = SignOutFile::beside(&path);
        std::fs::write(file.path(), "highwater sign-outs 1\n").unwrap();
        assert!(matches!(SigningKey::of_file(&path), Err(KeyError::SignOuts(_))));
        assert!(later.end(&session(3), 0).await.unwrap_err().contains("damaged"));
        assert!(!is_valid(&later, 3), "in this process it is void");
    }

    #[test]
    fn a_key_is_made_once_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let first = SigningKey::of_file(&path).unwrap();
        assert_eq!(first.bytes, SigningKey::of_file(&path).unwrap().bytes);
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o777, 0o600);
        let whole = std::fs::read_to_string(&path).unwrap();
        for text in ["", "00", &whole[1..], &whole.replace('\n', "0"), &"é".repeat(32)] {
            std::fs::write(&path, text).unwrap();
            assert!(matches!(SigningKey::of_file(&path), Err(KeyError::Content)), "{text:?}");
        }
    }
}
