//! The file of sign-outs beside the file of the key (`console.key.file`): gateways that share the key file share it, and it
//! outlives the process. It is replaced as a whole, under a lock.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

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

    /// Adds sign-outs to the file. Returns all that it has then.
    ///
    /// # Errors
    /// The file cannot be read or written, or is damaged; it is as before.
    pub(super) fn add(&self, more: &SignOuts) -> Result<SignOuts, SignOutFileError> {
        // The lock has a file of its own, because the other one is replaced.
        let lock = private().create(true).truncate(false).open(with_suffix(&self.0, ".lock"))?;
        lock.lock()?;
        let (_, mut all) = self.load()?;
        all.merge(more);
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
