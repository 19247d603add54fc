//! Cookies and tickets: claims with a signature, HMAC-SHA256 under a key that the gateways of one address share by a file, or
//! that each makes up at its start.

use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serving::claims::{Claims, Use};
use serving::sign_outs::SignOuts;
use tokio::time::timeout;
use tracing::warn;

use super::book::Mark;
use super::sign_out_file::{SignOutFile, SignOutFileError};
use super::tokens::random;

/// Age of the last read from which the file of sign-outs is read again.
const FRESH: Duration = Duration::from_secs(1);
/// Time that a request waits for a read of the file of sign-outs: a shared directory may hang.
const READ_MAX: Duration = Duration::from_secs(2);
/// Time that a sign-out waits for its write.
const WRITE_MAX: Duration = Duration::from_secs(5);
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
    /// Sessions of the file of sign-outs when the key was read.
    signed_out: SignOuts,
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
        SigningKey { bytes: random(), file: None, signed_out: SignOuts::default() }
    }

    /// The key in a file; a file that is missing is made, readable to its owner alone.
    ///
    /// # Errors
    /// The file cannot be read or made, or has no key in it.
    pub fn of_file(path: &Path) -> Result<SigningKey, KeyError> {
        let bytes = SigningKey::bytes_of(path)?;
        // Sessions that were signed out must not be valid again.
        let found = SignOutFile::beside(path).load();
        let (_, signed_out) = found.map_err(|error| KeyError::SignOuts(error.to_string()))?;
        Ok(SigningKey { bytes, file: Some(path.to_owned()), signed_out })
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
    ended: Arc<Mutex<SignOuts>>,
    /// Where sign-outs outlive this process; `None` for a key that does not.
    file: Option<SignOutFile>,
    /// The last read of the file. A read holds the lock, so that a directory that hangs holds one thread.
    last_read: Arc<tokio::sync::Mutex<LastRead>>,
    /// Held by a write of the file, for the same reason.
    writing: Arc<tokio::sync::Mutex<()>>,
    /// Whether the read under way has taken longer than [`READ_MAX`].
    is_read_late: AtomicBool,
    /// Whether a read has found sign-outs that no caller of [`Signer::follow`] has reported.
    has_news: Arc<AtomicBool>,
}

/// The last read of the file of sign-outs.
#[derive(Default)]
struct LastRead {
    at: Option<Instant>,
    mark: Option<Option<Mark>>,
    /// The failure that was reported last.
    reported: Option<String>,
}

impl Signer {
    pub(super) fn new(key: &SigningKey) -> Signer {
        Signer {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key.bytes),
            ended: Arc::new(Mutex::new(key.signed_out.clone())),
            file: key.file.as_deref().map(SignOutFile::beside),
            last_read: Arc::default(),
            writing: Arc::default(),
            is_read_late: AtomicBool::new(false),
            has_news: Arc::default(),
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

    /// Makes a session void: in this process at once, and in those that share the key file within a second. Claims of a ticket
    /// change nothing.
    ///
    /// # Errors
    /// The file cannot be written: the session is void in this process only.
    pub(super) async fn end(&self, claims: &Claims, now_s: u64) -> Result<(), String> {
        if claims.good_for != Use::Session {
            return Ok(());
        }
        self.ended().sign_out(&claims.user, claims.id, claims.expires_s, now_s);
        let Some(file) = self.file.clone() else { return Ok(()) };
        let path = file.path().display().to_string();
        let (writing, session) = (Arc::clone(&self.writing), claims.clone());
        let added = timeout(WRITE_MAX, async {
            let turn = writing.lock_owned().await;
            let add = move || {
                let added = file.add(&session, now_s);
                drop(turn);
                added
            };
            tokio::task::spawn_blocking(add).await
        });
        match added.await {
            Ok(Ok(Ok(all))) => self.ended().merge(&all),
            Ok(Ok(Err(error))) => return Err(format!("cannot write {path}: {error}")),
            Ok(Err(_)) => return Err(format!("cannot write {path}: the gateway stops")),
            Err(_) => {
                return Err(format!("cannot write {path} within {} s", WRITE_MAX.as_secs()));
            }
        }
        Ok(())
    }

    /// Reads the file of sign-outs if the last read is a second old and the file has changed; waits at most [`READ_MAX`] for
    /// that, and not at all for a read that is late already. Returns whether there are sign-outs that no earlier call has reported.
    pub(super) async fn follow(&self) -> bool {
        let Some(file) = self.file.clone() else { return false };
        let read = async {
            let mut last_read = match Arc::clone(&self.last_read).try_lock_owned() {
                Ok(last_read) => last_read,
                Err(_) if self.is_read_late.load(Ordering::Acquire) => return,
                Err(_) => Arc::clone(&self.last_read).lock_owned().await,
            };
            self.is_read_late.store(false, Ordering::Release);
            if last_read.at.is_some_and(|at| at.elapsed() < FRESH) {
                return;
            }
            let (ended, has_news) = (Arc::clone(&self.ended), Arc::clone(&self.has_news));
            let read = move || {
                if let Some(all) = last_read.read(&file) {
                    ended.lock().expect("no code under it panics").merge(&all);
                    has_news.store(true, Ordering::Release);
                }
            };
            let _ = tokio::task::spawn_blocking(read).await;
        };
        if timeout(READ_MAX, read).await.is_err() {
            // The read continues, and a later call reports its sign-outs.
            self.is_read_late.store(true, Ordering::Release);
        }
        self.has_news.swap(false, Ordering::Acquire)
    }
}

impl LastRead {
    /// Reads the file; `None` if it is as it was, or cannot be read.
    fn read(&mut self, file: &SignOutFile) -> Option<SignOuts> {
        let load = || -> Result<_, SignOutFileError> {
            match self.mark == Some(file.mark()?) {
                true => Ok(None),
                false => file.load().map(Some),
            }
        };
        let loaded = load();
        self.at = Some(Instant::now());
        match loaded {
            Ok(None) => None,
            Ok(Some((mark, all))) => {
                (self.mark, self.reported) = (Some(mark), None);
                Some(all)
            }
            Err(error) => {
                let (error, path) = (error.to_string(), file.path().display());
                if self.reported.as_ref() != Some(&error) {
                    warn!("cannot read sign-outs of other gateways from {path}: {error}");
                    self.reported = Some(error);
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

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

    #[tokio::test]
    async fn sign_outs_are_known_before_the_first_read_and_without_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let first = Signer::new(&SigningKey::of_file(&path).unwrap());
        first.end(&session(1), 0).await.unwrap();
        let restarted = Signer::new(&SigningKey::of_file(&path).unwrap());
        std::fs::remove_file(SignOutFile::beside(&path).path()).unwrap();
        let is_valid = |id| restarted.read(&restarted.sign(&session(id)), 0).is_some();
        assert!(!is_valid(1) && is_valid(2));
        restarted.follow().await;
        assert!(!is_valid(1));
    }

    #[tokio::test]
    async fn a_ticket_is_not_signed_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let signer = Signer::new(&SigningKey::of_file(&path).unwrap());
        // Clients without a login have tickets whose user has an empty name, which the file cannot have.
        signer.end(&Claims { user: String::new(), ..claims() }, 0).await.unwrap();
        assert!(!SignOutFile::beside(&path).path().exists());
    }

    #[tokio::test]
    async fn a_directory_that_hangs_delays_no_request_after_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let signer = Signer::new(&SigningKey::of_file(&path).unwrap());
        // An open of a named pipe hangs until the pipe has a writer.
        let pipe = SignOutFile::beside(&path).path().to_owned();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let first = timeout(Duration::from_secs(60), signer.follow()).await;
        // Each of these calls is finished when it is polled once.
        let later: Vec<_> = (0..100).map(|_| signer.follow().now_or_never()).collect();
        let writer = std::fs::OpenOptions::new().write(true).open(&pipe);
        drop(writer.unwrap());
        assert_eq!(first.ok(), Some(false));
        assert_eq!(later, [Some(false); 100]);
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
