//! Partitions that were deleted, and files that no log refers to any more: how they leave the disk.
//!
//! That a partition is deleted is durable first; then its folder gets another name, and goes after `file.delete.delay.ms`, in
//! pieces, in turn with the segments that retention and compaction have set aside. What fails is tried again, or a full disk could
//! not be emptied: nothing here gives up before the broker stops, and the next start finishes what the journal calls deleted.
//!
//! A folder has its partition's name, and a topic that is made again has the name of the one before. So a folder is renamed only
//! while no other partition has its name, or is being given it ([`Names`]), and only once for each deletion (S15).

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{PartitionIndex, TopicId, TopicPartition};
use storage::StorageError;
use storage::disk::removal::Freeing;
use storage::journal::{Entry, Fact, Journal, Key, PartitionState, State};
use storage::log_dir::deleted_name;
use tracing::{debug, error, warn};

use super::directory::{Directory, Finished};
use super::{Logs, random_id, removal};

/// How long what could not be removed is left alone.
const RETRY: Duration = Duration::from_secs(10);
/// How often the bytes that wait are counted anew.
const COUNTED_EVERY: Duration = Duration::from_secs(1);

/// A partition whose topic was deleted.
#[derive(Clone, Debug)]
pub struct Gone {
    /// The topic's id.
    pub topic_id: TopicId,
    /// The partition's name.
    pub name: TopicPartition,
    /// How long its folder stays, under another name, in milliseconds (`file.delete.delay.ms`).
    pub delay_ms: i64,
}

impl Gone {
    fn key(&self) -> Key {
        Key { topic_id: self.topic_id, partition: self.name.partition }
    }
}

/// Whose the folders are whose names are changing, beside what the journals say.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Folders, by directory, of partitions that are being opened and that no journal knows yet.
    pub taken: BTreeSet<(usize, TopicPartition)>,
    /// Names on their way out, by directory, that folders of deleted partitions have got: whatever has the old name since is
    /// another partition's.
    given: HashSet<(usize, String)>,
}

impl Names {
    /// Whether a folder is being made under this name.
    fn is_taken(&self, directory: usize, name: &TopicPartition) -> bool {
        !self.taken.is_empty() && self.taken.contains(&(directory, name.clone()))
    }
}

/// The folder of a deleted partition, under its other name.
#[derive(Debug)]
pub(super) struct Leftover {
    pub directory: usize,
    pub key: Key,
    /// Where it is; its name is what the journal calls it.
    pub path: PathBuf,
    /// When it may be removed.
    pub due: Instant,
    /// When its removal failed last.
    pub failed_at: Option<Instant>,
}

impl Leftover {
    pub fn new(directory: usize, key: Key, path: PathBuf, due: Instant) -> Leftover {
        Leftover { directory, key, path, due, failed_at: None }
    }
}

impl Logs {
    /// Puts the folders of deleted partitions out of the way; a chore removes them later. That they
    /// are deleted is durable first: only that permits their removal, now or after a crash.
    pub fn delete(&self, deleted: &[Gone]) {
        for gone in deleted {
            let key = gone.key();
            self.homes.lock().remove(&key);
            self.uncleanable.lock().remove(&key);
            self.unentered.lock().retain(|(_, refused, _)| *refused != key);
            let mut unopened = self.unopened.lock();
            // A topic of the same name may be there already.
            if unopened.get(&gone.name).is_some_and(|unopened| unopened.topic_id == gone.topic_id) {
                unopened.remove(&gone.name);
            }
        }
        let causes = self.put_out_of_the_way(&mut self.names.lock(), deleted);
        for (at, cause) in causes {
            let directory = &self.directories[at];
            if !directory.is_offline() {
                error!(directory = %directory.path().display(), %cause, "cannot put deleted logs aside; this is tried again every second");
            }
        }
    }

    /// Tries again what [`Logs::delete`] could not do. Returns what went wrong in which directory.
    pub(super) fn delete_again(&self, names: &mut Names) -> Vec<(usize, StorageError)> {
        let undeleted = std::mem::take(&mut *self.undeleted.lock());
        let causes = self.put_out_of_the_way(names, &undeleted);
        for (at, cause) in &causes {
            let directory = self.directories[*at].path().display();
            debug!(%directory, %cause, "still cannot put deleted logs aside");
        }
        causes
    }

    /// Whether a partition is deleted and its folder still has its name.
    pub(super) fn is_undeleted(&self, key: &Key) -> bool {
        self.undeleted.lock().iter().any(|gone| gone.key() == *key)
    }

    /// Returns what went wrong where; what is left to be done is noted.
    fn put_out_of_the_way(
        &self,
        names: &mut Names,
        deleted: &[Gone],
    ) -> Vec<(usize, StorageError)> {
        let mut causes = Vec::new();
        if deleted.is_empty() {
            return causes;
        }
        for (at, directory) in self.directories.iter().enumerate() {
            let (undeleted, result) = self.put_out_of_the_way_in(names, at, deleted);
            causes.extend(result.err().map(|cause| (at, cause)));
            // A directory that is offline is not used before the next start.
            if !directory.is_offline() {
                self.undeleted.lock().extend(undeleted);
            }
        }
        causes
    }

    /// Does so with those that are in this directory; returns those that could not be put out of the way.
    fn put_out_of_the_way_in(
        &self,
        names: &mut Names,
        at: usize,
        deleted: &[Gone],
    ) -> (Vec<Gone>, Result<(), StorageError>) {
        let directory = &self.directories[at];
        let (mut here, mut entries) = (Vec::new(), Vec::new());
        for gone in deleted {
            let Some(known) = directory.entered(&gone.key()) else { continue };
            let aside = known.deleted.clone().unwrap_or_else(|| {
                let aside: Arc<str> = deleted_name(&gone.name.to_string(), random_id()).into();
                entries.push(Entry::Of(gone.key(), Fact::Deleted { aside: Arc::clone(&aside) }));
                aside
            });
            here.push((gone, aside));
        }
        if here.is_empty() {
            return (Vec::new(), Ok(()));
        }
        let all = || here.iter().map(|(gone, _)| (*gone).clone()).collect();
        let entered = directory.journal().and_then(|journal| {
            journal.commit(&entries)?;
            Ok(names_in_use(journal, here.iter().map(|(gone, _)| &gone.name)))
        });
        let in_use = match entered {
            Ok(in_use) => in_use,
            Err(cause) => {
                self.journal_failed(at, &cause);
                return (all(), Err(cause));
            }
        };
        let (mut left, mut result) = (Vec::new(), Ok(()));
        for (gone, aside) in &here {
            let is_in_use = in_use.contains(&gone.name);
            if let Err(cause) = self.rename_deleted(names, at, gone, aside, is_in_use) {
                left.push((*gone).clone());
                result = Err(cause);
            }
        }
        (left, result.and(self.sync_names_in_time(at)))
    }

    /// Makes the names in a directory durable. A failure is final, as of every sync (S9); a lack of descriptors is none, for the disk
    /// was not asked.
    pub(super) fn sync_names(&self, at: usize) -> Result<(), StorageError> {
        let directory = &self.directories[at];
        let synced = directory.sync_names();
        synced.inspect_err(|cause| match cause.lacks_resources() {
            true => debug!(directory = %directory.path().display(), %cause, "cannot make the names of folders durable now"),
            false => self.fail_directory(at, cause),
        })
    }

    /// As [`Logs::sync_names`], where nothing is lost by a crash before: for lack of descriptors the names are owed, and the chore that
    /// removes folders tries again.
    pub(super) fn sync_names_in_time(&self, at: usize) -> Result<(), StorageError> {
        match self.sync_names(at) {
            Err(cause) if cause.lacks_resources() => Ok(()),
            synced => synced,
        }
    }

    /// Gives a folder another name, durably. For lack of descriptors it has the one before again.
    pub(super) fn rename_durably(
        &self,
        at: usize,
        from: &str,
        to: &str,
    ) -> Result<(), StorageError> {
        let directory = &self.directories[at];
        directory.rename(from, to)?;
        self.sync_names(at).or_else(|cause| {
            if cause.lacks_resources() {
                directory.rename(to, from).inspect_err(|cause| self.fail_directory(at, cause))?;
            }
            Err(cause)
        })
    }

    /// Makes names durable that are owed.
    fn sync_owed_names(&self) {
        let owing = |directory: &Directory| directory.owes_names() && !directory.is_offline();
        for at in (0..self.directories.len()).filter(|at| owing(&self.directories[*at])) {
            // What failed was told, and what lacks a descriptor is tried again.
            let _synced = self.sync_names(at);
        }
    }

    /// Gives the folder of a deleted partition its other name, unless it is another partition's by now: one that is `in_use`, or that
    /// has got its name since this one's was taken away (S15).
    fn rename_deleted(
        &self,
        names: &mut Names,
        at: usize,
        gone: &Gone,
        aside: &str,
        is_in_use: bool,
    ) -> Result<(), StorageError> {
        let directory = &self.directories[at];
        let (name, path) = (gone.name.to_string(), directory.path().join(aside));
        let given = (at, aside.to_owned());
        if names.given.contains(&given) {
            return Ok(());
        }
        let is_anothers = is_in_use || names.is_taken(at, &gone.name);
        let exists = |name: &str| self.disk.exists(&directory.path().join(name));
        if !is_anothers && exists(&name) && !exists(aside) {
            directory.rename(&name, aside)?;
        }
        names.given.insert(given);
        let due = Instant::now() + Duration::from_millis(gone.delay_ms.max(0) as u64);
        self.leftovers.lock().push(Leftover::new(at, gone.key(), path, due));
        Ok(())
    }

    /// Whether a folder that has this name is one of a partition whose deletion is durable: then it gets its other name.
    pub(super) fn finish_deletion(
        &self,
        names: &mut Names,
        at: usize,
        name: &TopicPartition,
    ) -> Result<bool, StorageError> {
        let directory = &self.directories[at];
        if !names_in_use(directory.journal()?, [name]).is_empty() {
            return Ok(false);
        }
        let deleted = directory.journal()?.with_state(|state| {
            let named = |key: &Key, known| State::name(*key, known) == *name;
            let deleted = state.partitions.iter().filter(|(key, known)| named(key, known));
            deleted.filter_map(|(key, known)| Some((*key, known.deleted.clone()?))).collect()
        });
        let deleted: Vec<(Key, Arc<str>)> = deleted;
        let is_unfinished = |aside: &str| {
            let was_given = names.given.contains(&(at, aside.to_owned()));
            !was_given && !self.disk.exists(&directory.path().join(aside))
        };
        let Some((key, aside)) = deleted.into_iter().find(|(_, aside)| is_unfinished(aside)) else {
            return Ok(false);
        };
        let gone = Gone { topic_id: key.topic_id, name: name.clone(), delay_ms: 0 };
        self.rename_deleted(names, at, &gone, &aside, false)?;
        self.sync_names_in_time(at)?;
        self.not_undeleted(&key);
        Ok(true)
    }

    /// A replica that was deleted here is made again, before its old folder is gone. What is left of that goes soon: the journal does not
    /// know it any more, and for a start it would be a stray.
    pub(super) fn hasten_removal(&self, key: &Key) {
        let mut leftovers = self.leftovers.lock();
        leftovers.iter_mut().filter(|old| old.key == *key).for_each(|old| old.due = Instant::now());
    }

    /// Removes a partition from the deletions to be tried again: its folder has been renamed, or the folder of that name now belongs to
    /// another topic.
    pub(super) fn not_undeleted(&self, key: &Key) {
        self.undeleted.lock().retain(|gone| gone.key() != *key);
    }

    /// Removes deleted files: those that have waited for `file.delete.delay.ms`, and the folders of
    /// a directory that has no room. Large files go piece by piece, with a `pause` behind each, unless room is
    /// needed; `pause` is told how long ([`removal::pause`]), and when it returns `false` the rest is left.
    pub fn empty_trash(&self, pause: &mut dyn FnMut(Duration) -> bool) {
        self.delete_again(&mut self.names.lock());
        self.sync_owed_names();
        let (mut due, folder_bytes) = (VecDeque::new(), Cell::new(0u64));
        let mut counted: Option<(Instant, u64)> = None;
        let mut pause = || {
            if self.directories.iter().any(|directory| directory.room.is_full()) {
                return true;
            }
            if counted.is_none_or(|(at, _)| at.elapsed() >= COUNTED_EVERY) {
                counted = Some((Instant::now(), self.trash.due_bytes()));
            }
            let segments = counted.map_or(0, |(_, bytes)| bytes);
            pause(removal::pause(folder_bytes.get() + segments, self.usable_bytes()))
        };
        let mut freeing = Freeing::new(&*self.disk, &mut pause);
        loop {
            for leftover in self.leftovers_due() {
                let bytes = self.bytes_below(&leftover.path);
                folder_bytes.set(folder_bytes.get() + bytes);
                due.push_back((bytes, leftover));
            }
            let (segment, folder) = (self.trash.take_due(), due.pop_front());
            if segment.is_none() && folder.is_none() {
                return;
            }
            // In turn: neither waits until the last of the others is gone.
            if segment.is_some_and(|segment| !self.trash.remove(segment, &mut freeing)) {
                due.extend(folder);
                break;
            }
            let Some((bytes, leftover)) = folder else { continue };
            let goes_on = self.remove(leftover, &mut freeing);
            folder_bytes.set(folder_bytes.get() - bytes);
            if !goes_on {
                break;
            }
        }
        self.leftovers.lock().extend(due.into_iter().map(|(_, leftover)| leftover));
    }

    /// Takes out the folders that may be removed now.
    fn leftovers_due(&self) -> Vec<Leftover> {
        let now = Instant::now();
        let is_due = |leftover: &mut Leftover| {
            leftover.failed_at.is_none_or(|at| now.duration_since(at) >= RETRY)
                && (leftover.due <= now || self.directories[leftover.directory].room.is_full())
                // Else a crash could bring it back under the name of its partition, forgotten by the journal: a stray.
                && !self.directories[leftover.directory].owes_names()
        };
        self.leftovers.lock().extract_if(.., is_due).collect()
    }

    /// Bytes of a folder's files; what cannot be looked at counts nothing.
    fn bytes_below(&self, folder: &Path) -> u64 {
        let names = self.disk.list(folder).unwrap_or_default();
        names.iter().filter_map(|name| self.disk.size(&folder.join(name)).ok()).sum()
    }

    /// Bytes that may still be written where there is least room.
    pub(super) fn usable_bytes(&self) -> Option<u64> {
        let usable = self.directories.iter().filter_map(|directory| directory.volume_bytes().ok());
        usable.map(|(_, usable)| usable.max(0) as u64).min()
    }

    /// Removes a folder, or puts it back; false: no more is to be removed now.
    fn remove(&self, leftover: Leftover, freeing: &mut Freeing<'_>) -> bool {
        let failed_at = match self.try_to_remove(&leftover, freeing) {
            Ok(true) => return true,
            Ok(false) => None,
            Err(cause) => {
                warn!(path = %leftover.path.display(), %cause, "cannot remove the files of a deleted partition");
                Some(Instant::now())
            }
        };
        self.leftovers.lock().push(Leftover { failed_at, ..leftover });
        failed_at.is_some()
    }

    /// Whether nothing is left of the folder.
    fn try_to_remove(
        &self,
        leftover: &Leftover,
        freeing: &mut Freeing<'_>,
    ) -> Result<bool, StorageError> {
        let directory = &self.directories[leftover.directory];
        let is_there = self.disk.exists(&leftover.path);
        if is_there && !directory.dir.free_leftover(&leftover.path, freeing)? {
            return Ok(false);
        }
        let aside = leftover.path.file_name().unwrap_or_default().to_string_lossy();
        directory.journal()?.append_with(|state| {
            // Made again since, it is another replica with the same key.
            let known = state.partitions.get(&leftover.key);
            let is_it = known.is_some_and(|known| known.deleted.as_deref() == Some(&*aside));
            is_it.then_some(Entry::Of(leftover.key, Fact::Forgotten)).into_iter().collect()
        })?;
        self.names.lock().given.remove(&(leftover.directory, aside.into_owned()));
        Ok(true)
    }

    /// Takes up what the journals call deleted, at the start. A directory in which that fails is offline.
    ///
    /// Fails if none is left.
    pub(super) fn collect_leftovers(&self) -> Result<(), StorageError> {
        let mut first_cause = None;
        for (at, directory) in self.directories.iter().enumerate() {
            if directory.is_offline() {
                continue;
            }
            match directory.finish_deletions() {
                Ok(finished) => self.take_up(at, finished),
                Err(cause) => {
                    self.fail_directory(at, &cause);
                    first_cause.get_or_insert(cause);
                }
            }
        }
        match first_cause.filter(|_| self.directories.iter().all(Directory::is_offline)) {
            Some(cause) => Err(cause),
            None => Ok(()),
        }
    }

    fn take_up(&self, at: usize, finished: Finished) {
        for (key, aside) in finished.aside {
            let path = self.directories[at].path().join(&aside);
            self.names.lock().given.insert((at, aside));
            self.leftovers.lock().push(Leftover::new(at, key, path, Instant::now()));
        }
        self.undeleted.lock().extend(finished.without_room);
    }
}

/// Those of these names that partitions of a directory have which are not deleted.
fn names_in_use<'a>(
    journal: &Journal,
    asked: impl IntoIterator<Item = &'a TopicPartition>,
) -> HashSet<&'a TopicPartition> {
    let asked: HashMap<(&str, PartitionIndex), &TopicPartition> =
        asked.into_iter().map(|name| ((&*name.topic, name.partition), name)).collect();
    journal.with_state(|state| {
        let live = state.partitions.iter().filter(|(_, known)| known.deleted.is_none());
        let name = |(key, known): (&Key, &Arc<PartitionState>)| {
            asked.get(&(&*known.opened.topic, key.partition)).copied()
        };
        live.filter_map(name).collect()
    })
}
