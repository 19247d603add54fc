//! Log directories that are missing at a start: the broker registered with them before, and does not have them now.
//!
//! A broker of a cluster starts without a missing directory. An empty folder in its place is offline, partitions that may
//! be in the missing directory are refused, and other directories get copies of them only after
//! `highwater.missing.directory.copy.after.ms`: the disk may be mounted late.
//!
//! The other directories note the id of a missing one in `meta.properties`, before the broker registers without it. A
//! further start would else take the empty folder for a new directory, and its partitions for empty ones.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use model::{TopicPartition, Uuid};
use storage::StorageError;
use storage::journal::Key;
use tracing::{error, info, warn};

use super::directory::Directory;
use super::strays::BEGIN_ANEW;
use super::{Assigned, Logs};

impl Logs {
    /// Lets the broker start without directories that are missing, if partitions may be in them. Called once, before the
    /// broker registers.
    ///
    /// # Errors
    /// The ids of the missing directories cannot be noted.
    pub fn start_without_missing(&self, assigned: &Assigned) -> Result<(), StorageError> {
        let noted = self.noted_missing()?;
        let expected: BTreeSet<Uuid> = assigned.log_dirs.iter().chain(&noted).copied().collect();
        let present = |id: &Uuid| self.directories().any(|directory| directory.id() == *id);
        let missing: Vec<Uuid> = expected.into_iter().filter(|id| !present(id)).collect();
        let is_known = |key: &Key| self.directories().any(|here| here.partition(key).is_some());
        let partitions = assigned.partitions.keys().filter(|key| !is_known(key)).count();
        if missing.is_empty() || partitions == 0 || self.are_declared_lost(assigned, &missing)? {
            return self.note_missing(&noted, &[]);
        }
        // A directory that cannot be opened does not show its id, and is offline already.
        let unreadable = self.directories().filter(|directory| directory.is_unknown()).count();
        let is_new = |it: &&Directory| it.was_empty() && !assigned.log_dirs.contains(&it.id());
        let empty = self.directories().filter(|it| !it.is_offline()).filter(is_new);
        let absent = &missing[unreadable.min(missing.len())..];
        for (id, directory) in absent.iter().zip(empty) {
            let path = directory.path().display();
            directory.take_offline(&format!(
                "log directory {id} is missing, and {path} is empty: mount its disk and start the broker again"
            ));
            error!(directory = %path, missing = %id, "log directory is missing and its folder is empty: it is offline; mount its disk and start the broker again, or make a file highwater-begin-anew there if its records are lost");
        }
        warn!(
            partitions,
            ?missing,
            "starting without log directories: their replicas are copied to other directories later if the disks stay away"
        );
        *self.missing.lock() = missing.clone();
        self.note_missing(&noted, &missing)
    }

    /// Whether a person made the file that declares missing directories lost. [`Logs::check_directories`] removes the file if
    /// the broker is still registered with a missing directory.
    fn are_declared_lost(
        &self,
        assigned: &Assigned,
        missing: &[Uuid],
    ) -> Result<bool, StorageError> {
        let files = self.directories().map(|it| it.path().join(BEGIN_ANEW));
        let files: Vec<PathBuf> = files.filter(|file| self.disk.exists(file)).collect();
        if !missing.iter().any(|id| assigned.log_dirs.contains(id)) {
            for path in &files {
                self.disk.remove_file(path).map_err(|source| StorageError::Io {
                    operation: "remove",
                    path: path.clone(),
                    source,
                })?;
            }
        }
        Ok(!files.is_empty())
    }

    /// Whether the broker started without a directory in which partitions may be.
    pub fn is_incomplete(&self) -> bool {
        self.directories().any(Directory::is_unknown) || !self.missing.lock().is_empty()
    }

    /// Whether a partition may be in a directory without which the broker started.
    pub fn is_missing(&self, key: &Key) -> bool {
        self.wanted_at_start.lock().contains(key) && !self.knows(key)
    }

    /// Missing replicas may be copied to other directories from now on.
    pub fn allow_copies_of_missing(&self) {
        if !self.copies_missing.swap(true, Ordering::Relaxed) {
            info!(
                "log directories stayed away: their replicas are copied to other directories where others are complete"
            );
        }
    }

    /// Whether [`Logs::allow_copies_of_missing`] was called.
    pub fn copies_missing(&self) -> bool {
        self.copies_missing.load(Ordering::Relaxed)
    }

    /// Stops to refuse a missing partition, so that another directory gets a copy. False if it is not missing, or may not
    /// be copied yet.
    pub fn forget_missing(&self, key: &Key, name: &TopicPartition) -> bool {
        if !self.copies_missing() || !self.is_missing(key) {
            return false;
        }
        self.wanted_at_start.lock().remove(key);
        self.unopened.lock().remove(name);
        true
    }

    /// Removes the note of missing directories: no partition may be in them any more.
    ///
    /// # Errors
    /// A directory cannot be written to.
    pub fn forget_missing_directories(&self) -> Result<(), StorageError> {
        let noted = self.noted_missing()?;
        self.missing.lock().clear();
        self.note_missing(&noted, &[])
    }

    /// Ids of missing directories that an earlier start noted.
    fn noted_missing(&self) -> Result<Vec<Uuid>, StorageError> {
        let mut noted = BTreeSet::new();
        for directory in self.directories().filter(|directory| !directory.is_offline()) {
            let meta = directory.dir.meta_properties()?;
            noted.extend(meta.into_iter().flat_map(|meta| meta.missing_directories()));
        }
        Ok(noted.into_iter().collect())
    }

    fn note_missing(&self, noted: &[Uuid], missing: &[Uuid]) -> Result<(), StorageError> {
        if noted.is_empty() && missing.is_empty() {
            return Ok(());
        }
        for directory in self.directories().filter(|directory| !directory.is_offline()) {
            directory.change_meta(|meta| meta.with_missing_directories(missing))?;
        }
        Ok(())
    }
}
