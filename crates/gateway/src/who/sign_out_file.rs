//! The file of sign-outs beside the file of the key (`console.key.file`): gateways that share the key file share it, and it
//! outlives the process. It is replaced as a whole, under a lock.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serving::claims::Claims;
use serving::sign_outs::{DamagedSignOuts, FILE_BYTES_MAX, SignOuts};

use super::book::{Mark, mark};

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SignOutFileError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Damaged(#[from] DamagedSignOuts),
}

/// The file.
#[derive(Debug, Clone)]
pub(super) struct SignOutFile(PathBuf);

impl SignOutFile {
    /// The file beside this key file.
    pub(super) fn beside(key_file: &Path) -> SignOutFile {
        SignOutFile(with_suffix(key_file, ".signed-out"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The file's mark; `None` without a file.
    pub(super) fn mark(&self) -> io::Result<Option<Mark>> {
        match std::fs::metadata(&self.0) {
            Ok(found) => Ok(Some(mark(&found))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the file; a missing one is empty.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub(super) fn load(&self) -> Result<(Option<Mark>, SignOuts), SignOutFileError> {
        let file = match File::open(&self.0) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((None, SignOuts::default()));
            }
            Err(error) => return Err(error.into()),
        };
        let mark = mark(&file.metadata()?);
        let mut text = String::new();
        file.take(FILE_BYTES_MAX as u64).read_to_string(&mut text)?;
        Ok((Some(mark), SignOuts::parse(&text)?))
    }

    /// Adds a session to the file and drops expired ones; a file that has the session is not written. `now_s`: seconds since
    /// 1970. Returns all sessions of the file.
    ///
    /// # Errors
    /// The file cannot be read or written, or is damaged; the file is as before.
    pub(super) fn add(&self, session: &Claims, now_s: u64) -> Result<SignOuts, SignOutFileError> {
        let (user, id, expires_s) = (&session.user, session.id, session.expires_s);
        // The lock has a file of its own, because the other one is replaced.
        let lock = private().create(true).truncate(false).open(with_suffix(&self.0, ".lock"))?;
        lock.lock()?;
        let (_, mut all) = self.load()?;
        if all.has(user, id, expires_s) {
            return Ok(all);
        }
        all.sign_out(user, id, expires_s, now_s);
        let new = with_suffix(&self.0, ".new");
        let mut file = private().create(true).truncate(true).open(&new)?;
        file.write_all(all.text().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &self.0)?;
        Ok(all)
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use serving::claims::Use;

    use super::*;

    fn session(user: &str, id: u128, expires_s: u64) -> Claims {
        Claims { good_for: Use::Session, expires_s, id, stamp: 0, user: user.to_owned() }
    }

    #[test]
    fn expired_sessions_leave_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = SignOutFile::beside(&dir.path().join("key"));
        for (user, id, expires_s) in [("ann", 1, 100), ("bob", 2, 100), ("bob", 3, 300)] {
            file.add(&session(user, id, expires_s), 0).unwrap();
        }
        file.add(&session("eve", 4, 300), 200).unwrap();
        let mut left = SignOuts::default();
        left.sign_out("bob", 3, 300, 0);
        left.sign_out("eve", 4, 300, 0);
        assert_eq!(file.load().unwrap().1, left);
    }

    #[test]
    fn a_session_that_the_file_has_is_not_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = SignOutFile::beside(&dir.path().join("key"));
        file.add(&session("ann", 1, 100), 0).unwrap();
        let written =
            || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(file.path()).unwrap());
        let first = written();
        file.add(&session("ann", 1, 100), 0).unwrap();
        assert_eq!(written(), first);
        file.add(&session("ann", 2, 100), 0).unwrap();
        assert_ne!(written(), first);
    }
}
