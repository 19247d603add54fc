//! Strays: folders whose partition is not known. They are left where they are, and reported. If most folders
//! are strays, it is the cluster's metadata that is lost, and the start is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use model::{TopicPartition, Uuid};
use storage::StorageError;
use storage::journal::{Entry, Fact, Key, State};
use storage::log_dir::Folder;
use tracing::warn;

use super::directory::Directory;
use super::{Logs, LogsError};

/// A folder that the broker neither serves nor removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// Where it is.
    pub path: PathBuf,
    /// Why it is not served, in words.
    pub reason: &'static str,
}

/// What the cluster's metadata wants of this broker at its start.
#[derive(Clone, Debug, Default)]
pub struct Assigned {
    /// The partitions.
    pub partitions: BTreeMap<Key, TopicPartition>,
    /// Index of the metadata; `None` if there is no cluster yet.
    pub image_index: Option<u64>,
    /// Ids of the log directories that the broker had when it last joined the cluster.
    pub log_dirs: Vec<Uuid>,
}

/// A file by which a person says that what a missing log directory held is lost.
pub(super) const BEGIN_ANEW: &str = "highwater-begin-anew";

impl Logs {
    /// Compares the folders with what the metadata wants; to be called once, before a partition is
    /// opened.
    ///
    /// Fails with [`LogsError::MetadataLost`] if more than half of a directory's folders are strays and
    /// the metadata is not at least as new as what the folders were made by; with
    /// [`LogsError::DirectoryMissing`] if a log directory is not there, or another one is in its place.
    pub fn settle(&self, assigned: Assigned) -> Result<(), LogsError> {
        self.check_directories(&assigned)?;
        let mut strays = Vec::new();
        let leftovers: BTreeSet<PathBuf> =
            self.leftovers.lock().iter().map(|leftover| leftover.path.clone()).collect();
        for directory in self.directories().filter(|directory| !directory.is_offline()) {
            strays.extend(strays_of(directory, &assigned, &leftovers)?);
        }
        for stray in &strays {
            warn!(folder = %stray.path.display(), reason = stray.reason, "a stray folder: left where it is; `highwater log strays` tells more");
        }
        *self.strays.lock() = strays;
        if self.is_incomplete() {
            *self.wanted_at_start.lock() = assigned.partitions.into_keys().collect();
        }
        Ok(())
    }

    /// A directory whose disk is not mounted is an empty one: its partitions must not begin anew in it, nor be told to the
    /// controller as lost.
    ///
    /// Fails with [`LogsError::DirectoryMissing`] where directories were registered that are not here, and partitions with
    /// them.
    pub fn check_directories(&self, assigned: &Assigned) -> Result<(), LogsError> {
        let present = |id: &Uuid| self.directories().any(|directory| directory.id() == *id);
        // One that cannot be opened does not tell its id, and what may be in it is refused.
        let explained = self.is_incomplete();
        let explained = explained || self.begins_anew.load(Ordering::Relaxed);
        let Some(id) = assigned.log_dirs.iter().find(|id| !explained && !present(id)) else {
            return Ok(());
        };
        // What a directory has that was away may be older than what is missing.
        let was_here = |here: &&Directory| assigned.log_dirs.contains(&here.id());
        let is_known = |key: &Key| {
            self.directories().filter(was_here).any(|here| here.partition(key).is_some())
        };
        let partitions = assigned.partitions.keys().filter(|key| !is_known(key)).count();
        if partitions == 0 {
            return Ok(());
        }
        let empty = self.directories().find(|directory| directory.was_empty());
        let path = empty.or(self.directories().next()).map(|found| found.path().to_owned());
        let path = path.unwrap_or_default();
        if self.disk.exists(&path.join(BEGIN_ANEW)) {
            warn!(directory = %id, partitions, "a log directory is missing, and a person says that it is lost: its partitions begin anew");
            let file = path.join(BEGIN_ANEW);
            let removed = self.disk.remove_file(&file);
            removed.map_err(|source| {
                LogsError::Storage(StorageError::Io { operation: "remove", path: file, source })
            })?;
            self.begins_anew.store(true, Ordering::Relaxed);
            return Ok(());
        }
        let state = if empty.is_some() { "is empty" } else { "is another one" };
        Err(LogsError::DirectoryMissing { id: *id, partitions, path, state })
    }

    /// The stray folders.
    pub fn strays(&self) -> Vec<Stray> {
        self.strays.lock().clone()
    }
}

fn strays_of(
    directory: &Directory,
    assigned: &Assigned,
    leftovers: &BTreeSet<PathBuf>,
) -> Result<Vec<Stray>, LogsError> {
    let journal = directory.journal()?;
    let (known, newest) = journal.with_state(|state| {
        let live = state.partitions.iter().filter(|(_, known)| known.deleted.is_none());
        let names: BTreeMap<String, Key> =
            live.map(|(key, known)| (State::name(*key, known).to_string(), *key)).collect();
        (names, state.image_index())
    });
    let wanted: BTreeSet<String> =
        assigned.partitions.values().map(TopicPartition::to_string).collect();
    // What was made for a partition that could not be entered, or only just not, says nothing of the metadata.
    let is_counted = |folder: &Folder| {
        let has_records = |name| !directory.dir.is_without_records(name).unwrap_or(false);
        folder.partition.as_ref().is_some_and(has_records)
    };
    let (mut strays, mut count) = (Vec::new(), 0);
    let mut seen = BTreeSet::new();
    let folders = directory.dir.folders()?;
    for folder in &folders {
        let path = directory.path().join(&folder.name);
        let reason = match (&folder.partition, known.get(&folder.name)) {
            (None, _) if leftovers.contains(&path) => None,
            (None, _) => Some("put aside earlier; its deletion was not requested"),
            (Some(_), Some(key)) if assigned.partitions.contains_key(key) => None,
            (Some(_), Some(_)) => Some("its topic is not in the cluster's metadata"),
            (Some(_), None) if wanted.contains(&folder.name) => None,
            (Some(_), None) => Some("neither the journal nor the metadata knows it"),
        };
        seen.insert(folder.name.clone());
        count += usize::from(reason.is_some() && is_counted(folder));
        strays.extend(reason.map(|reason| Stray { path, reason }));
    }
    // A deletion that was decided and not yet acted upon leaves strays too: then the metadata is newer.
    let is_newer = newest > 0 && assigned.image_index.is_some_and(|index| index >= newest);
    if count > 0 && !is_newer {
        // Only where there are strays: each look lists a folder.
        let total = folders.iter().filter(|folder| is_counted(folder)).count();
        if count * 2 > total {
            let path = directory.path().to_owned();
            return Err(LogsError::MetadataLost { path, strays: count, folders: total });
        }
    }
    let gone = known
        .iter()
        .filter(|(name, key)| !seen.contains(*name) && !assigned.partitions.contains_key(key));
    let gone: Vec<Entry> = gone.map(|(_, key)| Entry::Of(*key, Fact::Forgotten)).collect();
    journal.append(&gone)?;
    Ok(strays)
}
