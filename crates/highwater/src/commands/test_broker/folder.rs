//! Folder of a test broker's data, and removal of the folders that killed test brokers left.

use std::ffi::OsString;
use std::fs::{self, DirEntry, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::getuid;
use storage::disk::RealDisk;
use storage::log_dir::DirLock;

use super::cannot_start;
use crate::commands::cluster_up;
use crate::failure::Failure;

/// Beginning of the name of a temporary folder.
const PREFIX: &str = "highwater-test-";
/// File in a temporary folder, with the folder's name. The test broker locks the file, and the kernel releases the lock at the
/// end of the process.
const LOCK: &str = ".test-broker.lock";
/// File that a broker locks in each of its directories. Only brokers create it.
const OF_A_BROKER: &str = ".lock";

/// The folder of the data.
#[derive(Debug)]
pub enum Folder {
    /// Removed at the end.
    Temporary {
        path: PathBuf,
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
            keep(path)?;
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

    /// A folder with a name of its own below `parent`, locked by this process.
    ///
    /// # Errors
    /// The folder cannot be created or locked.
    pub fn create_temporary(parent: &Path) -> io::Result<Folder> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = lock_new(folder.path())?;
        // Removed by `remove_folder`, which keeps an order.
        Ok(Folder::Temporary { path: folder.keep(), _lock: lock })
    }

    pub fn path(&self) -> &Path {
        match self {
            Folder::Temporary { path, .. } | Folder::Named(path) => path,
        }
    }

    /// The path of a temporary folder.
    pub fn temporary(&self) -> Option<&Path> {
        match self {
            Folder::Temporary { path, .. } => Some(path),
            Folder::Named(_) => None,
        }
    }

    /// Removes a temporary folder. A rest that cannot be removed is named.
    pub fn remove(self) {
        if let Folder::Temporary { path, .. } = &self
            && let Err(error) = remove_folder(path)
        {
            // A closed standard error takes no report.
            let _ = writeln!(io::stderr(), "cannot remove {}: {error}", path.display());
        }
    }
}

/// Creates and locks the lock file, and writes the folder's name. No process removes a folder whose lock file lacks the name.
fn lock_new(folder: &Path) -> io::Result<File> {
    let mut file = File::create(folder.join(LOCK))?;
    file.try_lock()?;
    file.write_all(name_of(folder).as_bytes())?;
    Ok(file)
}

fn name_of(folder: &Path) -> OsString {
    folder.file_name().unwrap_or_default().to_owned()
}

/// Turns the temporary folder of a dead test broker, if `folder` is one, into a folder that no test broker removes.
fn keep(folder: &Path) -> Result<(), Failure> {
    let path = folder.join(LOCK);
    let unusable = |error: io::Error| {
        Failure::new(format!("cannot use the folder {}", folder.display()))
            .detail(format!("{}: {error}", path.display()))
    };
    let lock = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unusable(error)),
    };
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(Failure::new(format!("cannot use the folder {}", folder.display()))
                .detail("another test broker uses or removes the folder")
                .hint("stop the other test broker, or name another folder by --data-dir"));
        }
        Err(TryLockError::Error(error)) => return Err(unusable(error)),
    }
    // The process that removed the folder had the lock before.
    if !is_file_at(&lock, &path) {
        return Ok(());
    }
    fs::remove_file(&path).map_err(unusable)
}

/// Whether the open file is the one at the path.
fn is_file_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(found)) = (file.metadata(), fs::metadata(path)) else { return false };
    (open.dev(), open.ino()) == (found.dev(), found.ino())
}

/// Removes a temporary folder, the lock file last: the next test broker continues a removal that is cut short.
pub fn remove_folder(folder: &Path) -> io::Result<()> {
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

/// Removes a folder unless it is a copy, or a process holds its lock or the lock of a broker's directory.
fn remove_orphan(folder: &Path) -> io::Result<()> {
    let path = folder.join(LOCK);
    // Before the lock: the owner of a copy finds the lock free. Copies and renamed folders have the name of another folder.
    if fs::read(&path)? != name_of(folder).as_bytes() {
        return Ok(());
    }
    let lock = File::open(&path)?;
    lock.try_lock()?;
    // A test broker that was given the folder by --data-dir has removed the file meanwhile.
    if !is_file_at(&lock, &path) {
        return Ok(());
    }
    // Several brokers live a moment longer than the process that started them.
    let brokers = File::open(folder.join(cluster_up::FOLDER_LOCK)).ok();
    if let Some(brokers) = &brokers {
        brokers.try_lock()?;
    }
    let _directories = lock_broker_directories(folder)?;
    remove_folder(folder)
}

/// Locks of the data directories of brokers: the folder, and the directories in it. `highwater start` may use each of them.
fn lock_broker_directories(folder: &Path) -> io::Result<Vec<DirLock>> {
    let mut locks = Vec::new();
    let mut lock = |path: &Path| -> io::Result<()> {
        if path.join(OF_A_BROKER).exists() {
            locks.push(DirLock::acquire(&RealDisk, path).map_err(io::Error::other)?);
        }
        Ok(())
    };
    lock(folder)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            lock(&entry.path())?;
        }
    }
    Ok(locks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder as a killed test broker leaves it.
    fn orphan(parent: &Path, name: &str) -> PathBuf {
        let folder = parent.join(format!("{PREFIX}{name}"));
        fs::create_dir_all(folder.join("t-0")).unwrap();
        fs::write(folder.join("t-0/00000000000000000000.log"), "records").unwrap();
        fs::write(folder.join(LOCK), name_of(&folder).as_bytes()).unwrap();
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
    fn folders_whose_brokers_run_are_kept() {
        let parent = tempfile::tempdir().unwrap();
        let single = orphan(parent.path(), "single");
        let several = orphan(parent.path(), "several");
        let broker = several.join("broker-1");
        fs::create_dir(&broker).unwrap();
        let locks = [&single, &broker].map(|at| DirLock::acquire(&RealDisk, at).unwrap());
        remove_orphans(parent.path());
        for kept in [&single, &several] {
            assert!(kept.join("t-0/00000000000000000000.log").exists(), "{}", kept.display());
        }
        drop(locks);
        remove_orphans(parent.path());
        assert!(!single.exists() && !several.exists());
    }

    #[test]
    fn copies_and_renamed_folders_are_kept() {
        let parent = tempfile::tempdir().unwrap();
        let renamed = parent.path().join(format!("{PREFIX}saved"));
        fs::rename(orphan(parent.path(), "x"), &renamed).unwrap();
        let unfinished = orphan(parent.path(), "unfinished");
        fs::write(unfinished.join(LOCK), "").unwrap();
        remove_orphans(parent.path());
        assert!(renamed.exists() && unfinished.exists());
    }

    #[test]
    fn a_named_folder_is_no_longer_temporary() {
        let parent = tempfile::tempdir().unwrap();
        let folder = orphan(parent.path(), "x");
        let other = File::open(folder.join(LOCK)).unwrap();
        other.try_lock().unwrap();
        let refusal = Folder::take(Some(&folder)).err().unwrap().to_string();
        assert!(refusal.contains("another test broker"), "{refusal}");
        drop(other);
        let named = Folder::take(Some(&folder)).unwrap();
        assert!(!folder.join(LOCK).exists());
        remove_orphans(parent.path());
        named.remove();
        assert!(folder.join("t-0/00000000000000000000.log").exists());
    }

    #[test]
    fn a_temporary_folder_has_its_name_and_is_removed_whole() {
        let parent = tempfile::tempdir().unwrap();
        let Folder::Temporary { path, _lock } = Folder::create_temporary(parent.path()).unwrap()
        else {
            panic!("a named folder")
        };
        assert_eq!(fs::read(path.join(LOCK)).unwrap(), name_of(&path).as_bytes());
        fs::write(path.join("a"), "").unwrap();
        remove_folder(&path).unwrap();
        assert!(!path.exists());
    }
}
