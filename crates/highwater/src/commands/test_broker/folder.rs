//! Folder of a test broker's data, and removal of the folders that killed test brokers left.

use std::fs::{self, DirEntry, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::getuid;
use tempfile::TempDir;

use super::cannot_start;
use crate::commands::cluster_up;
use crate::failure::Failure;

/// Beginning of the name of a temporary folder.
const PREFIX: &str = "highwater-test-";
/// File in a temporary folder. The test broker locks the file, and the kernel releases the lock at the end of the process.
const LOCK: &str = ".test-broker.lock";
/// Attempts to create a temporary folder that no other process removes meanwhile.
const ATTEMPTS_MAX: u32 = 10;

/// The folder of the data.
pub enum Folder {
    /// Removed at the end.
    Temporary {
        folder: TempDir,
        /// Locked as long as this process lives.
        _lock: File,
    },
    /// Left as it is.
    Named(PathBuf),
}

impl Folder {
    /// The named folder, or a temporary one. Starts to remove the temporary folders of dead processes.
    pub fn take(named: Option<&Path>) -> Result<Folder, Failure> {
        if let Some(path) = named {
            return Ok(Folder::Named(path.to_owned()));
        }
        let parent = std::env::temp_dir();
        let folder = Folder::create_temporary(&parent)
            .map_err(|error| cannot_start().detail(format!("no temporary folder: {error}")))?;
        let cleaning = std::thread::Builder::new().name("orphans".to_owned());
        // Without a thread the folders stay for the next test broker.
        let _ = cleaning.spawn(move || remove_orphans(&parent));
        Ok(folder)
    }

    fn create_temporary(parent: &Path) -> io::Result<Folder> {
        let mut cause = io::Error::other("another process removes each folder at once");
        for _ in 0..ATTEMPTS_MAX {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
            match lock_new(folder.path()) {
                Ok(lock) => return Ok(Folder::Temporary { folder, _lock: lock }),
                Err(error) => cause = error,
            }
        }
        Err(cause)
    }

    pub fn path(&self) -> &Path {
        match self {
            Folder::Temporary { folder, .. } => folder.path(),
            Folder::Named(path) => path,
        }
    }

    /// The path of a temporary folder.
    pub fn temporary(&self) -> Option<&Path> {
        match self {
            Folder::Temporary { folder, .. } => Some(folder.path()),
            Folder::Named(_) => None,
        }
    }

    /// Removes a temporary folder. A rest that cannot be removed is named.
    pub fn remove(self) {
        if let Folder::Temporary { folder, .. } = self {
            let path = folder.path().display().to_string();
            if let Err(error) = folder.close() {
                // A closed standard error takes no report.
                let _ = writeln!(io::stderr(), "cannot remove {path}: {error}");
            }
        }
    }
}

/// Creates and locks the lock file. Fails if another process took the folder for an orphan between both steps.
fn lock_new(folder: &Path) -> io::Result<File> {
    let path = folder.join(LOCK);
    let file = File::create(&path)?;
    file.try_lock()?;
    // Locked after the other process had removed the file and released the lock.
    fs::metadata(&path)?;
    Ok(file)
}

/// Removes the temporary folders below `parent` whose processes have ended.
fn remove_orphans(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if is_own_folder(&entry) {
            // The next test broker tries again.
            let _ = remove_orphan(&entry.path());
        }
    }
}

/// Whether the entry is a directory, not a link, of this user and with the name of a temporary folder.
fn is_own_folder(entry: &DirEntry) -> bool {
    let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
    is_named
        && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == getuid().as_raw())
}

/// Removes a folder unless a process holds its lock.
fn remove_orphan(folder: &Path) -> io::Result<()> {
    let lock = File::open(folder.join(LOCK))?;
    lock.try_lock()?;
    // Several brokers live a moment longer than the process that started them.
    if let Ok(brokers) = File::open(folder.join(cluster_up::FOLDER_LOCK)) {
        brokers.try_lock()?;
    }
    // The lock file last: a removal that is cut short is continued by the next test broker.
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == LOCK {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    fs::remove_dir_all(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder as a killed test broker leaves it.
    fn orphan(parent: &Path, name: &str) -> PathBuf {
        let folder = parent.join(format!("{PREFIX}{name}"));
        fs::create_dir_all(folder.join("t-0")).unwrap();
        fs::write(folder.join("t-0/00000000000000000000.log"), "records").unwrap();
        fs::write(folder.join(LOCK), "").unwrap();
        folder
    }

    #[test]
    fn only_folders_without_a_living_process_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let dead = orphan(parent.path(), "dead");
        let alive = orphan(parent.path(), "alive");
        let lock = File::open(alive.join(LOCK)).unwrap();
        lock.try_lock().unwrap();
        let with_brokers = orphan(parent.path(), "brokers");
        fs::write(with_brokers.join(cluster_up::FOLDER_LOCK), "").unwrap();
        let brokers = File::open(with_brokers.join(cluster_up::FOLDER_LOCK)).unwrap();
        brokers.try_lock().unwrap();
        let unlocked = parent.path().join(format!("{PREFIX}other"));
        fs::create_dir(&unlocked).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let behind_link = orphan(elsewhere.path(), "linked");
        let link = parent.path().join(format!("{PREFIX}link"));
        std::os::unix::fs::symlink(&behind_link, link).unwrap();
        remove_orphans(parent.path());
        assert!(!dead.exists());
        for kept in [&alive, &with_brokers, &unlocked, &behind_link] {
            assert!(kept.exists(), "{}", kept.display());
        }
        drop((lock, brokers));
        remove_orphans(parent.path());
        assert!(!alive.exists() && !with_brokers.exists());
        assert!(unlocked.exists() && behind_link.exists());
    }

    #[test]
    fn a_folder_that_another_process_removes_is_not_taken() {
        let parent = tempfile::tempdir().unwrap();
        let folder = orphan(parent.path(), "x");
        let other = File::open(folder.join(LOCK)).unwrap();
        other.try_lock().unwrap();
        assert!(lock_new(&folder).is_err());
        drop(other);
        assert!(lock_new(&folder).is_ok());
    }
}
