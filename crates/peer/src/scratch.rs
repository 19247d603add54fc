//! Temporary folders for brokers' data that do not outlive us: removed when dropped, and by the next one who makes such a
//! folder if we were killed.
//!
//! A folder belongs to whoever holds the lock on its file `owner`; the kernel lets go of it however a process ends.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// The file whose lock says that a folder is in use.
const OWNER: &str = "owner";
/// How the names of such folders begin, here and in every version of this program.
const PREFIXES: [&str; 2] = ["apache-kafka-", "highwater-lab-"];
/// Folders of this process, for [`remove_all`].
static OURS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Whose data a folder holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// That of Apache Kafka's brokers.
    Kafkas,
    /// That of this program's broker, or of the lab itself.
    Ours,
}

/// A temporary folder, removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// A fresh folder where temporary data goes. Those of processes that were killed are removed first.
    pub fn make(whose: Whose) -> Result<Scratch> {
        let parent = std::env::temp_dir();
        remove_ownerless(&parent);
        Scratch::make_in(&parent, whose)
    }

    fn make_in(parent: &Path, whose: Whose) -> Result<Scratch> {
        let prefix = match whose {
            Whose::Kafkas => PREFIXES[0],
            Whose::Ours => PREFIXES[1],
        };
        let folder = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(parent)
            .with_context(|| format!("cannot make a folder in {}", parent.display()))?;
        // Locked before it has its name: a folder with an owner's file that nobody holds is abandoned.
        let fresh = folder.path().join("owner.new");
        let lock = File::create(&fresh)?;
        lock.lock()?;
        fs::rename(&fresh, folder.path().join(OWNER))?;
        ours().push(folder.path().to_owned());
        Ok(Scratch { folder, _lock: lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        ours().retain(|path| path != self.folder.path());
    }
}

/// Removes all folders of this process: for a program that is about to end without dropping anything.
pub fn remove_all() {
    for path in std::mem::take(&mut *ours()) {
        let _gone = fs::remove_dir_all(path);
    }
}

fn ours() -> MutexGuard<'static, Vec<PathBuf>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the folders in `parent` whose owners have gone. What cannot be removed stays: it is not ours to judge.
fn remove_ownerless(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_such = PREFIXES.iter().any(|prefix| name.to_string_lossy().starts_with(prefix));
        if is_such && is_ownerless(&entry.path()) {
            let _gone = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether a folder of this user has an owner's file that nobody holds.
fn is_ownerless(folder: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let is_users = fs::symlink_metadata(folder).is_ok_and(|found| found.uid() == user);
    is_users && File::open(folder.join(OWNER)).is_ok_and(|owner| owner.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_those_who_were_killed_are_removed_and_no_others() {
        let parent = tempfile::tempdir().unwrap();
        let abandoned = parent.path().join("apache-kafka-1");
        fs::create_dir_all(abandoned.join("node-1")).unwrap();
        File::create(abandoned.join(OWNER)).unwrap();
        let held = Scratch::make_in(parent.path(), Whose::Ours).unwrap();
        let anothers = parent.path().join("apache-kafka-of-somebody");
        fs::create_dir(&anothers).unwrap();
        remove_ownerless(parent.path());
        assert!(!abandoned.exists());
        assert!(held.path().exists() && anothers.exists());
        let path = held.path().to_owned();
        drop(held);
        assert!(!path.exists());
    }
}
