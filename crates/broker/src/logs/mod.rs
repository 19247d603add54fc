//! The log directories of this broker: which partition is where, and what happens when a disk fails.
//!
//! Each directory has a journal of what is known of its partitions, by topic id and number: it says
//! whose a folder is, and that a partition is refused or deleted. Nothing is removed that the journal
//! does not call deleted; a folder that is neither in the journal nor in the metadata is a stray and stays (`strays.rs`).
//!
//! A failed write or sync is final (S9): the whole directory goes offline, its partitions with it,
//! until the broker starts again. Other directories go on. Read `directory.rs` (the start), `opening.rs`
//! and `keeping.rs`, which says what is to be called when.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use metadata::ClusterImage;
use metadata::decide::KnownDirectory;
use model::{
    BrokerId, Durability, LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId, TopicPartition,
    Uuid,
};
use parking_lot::Mutex;
use partition::{Partition, PartitionError, Status, SyncQueue};
use storage::disk::Disk;
use storage::journal::{Entry, Fact, Key, MetadataNote, Refused};
use storage::log_dir::LockError;
use storage::{Log, StorageError};
use tokio::sync::watch;
use tracing::{error, warn};

use self::deleting::{Leftover, Names};
use self::directory::Locked;
use self::flusher::{SyncObserver, Synced};
use self::trash::Trash;

mod absent;
mod away;
pub mod chores;
pub mod cleaner;
mod deleting;
mod directory;
mod durability;
pub mod files;
pub mod flusher;
mod foreign;
mod keeping;
mod mended;
mod missing;
mod opening;
pub mod removal;
pub mod room;
mod strays;
#[cfg(test)]
mod tests;
pub mod trash;

pub use self::deleting::Gone;
pub use self::directory::Directory;
pub use self::opening::Wanted;
pub(crate) use self::opening::{is_tried_again, tell_refusal};
pub use self::strays::{Assigned, Stray};

/// Why the log directories cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// Another process has one.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// The disk does not answer, or a small file makes no sense.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// It belongs to another node.
    #[error("{} belongs to node {found}, and this is node {configured}: set node.id={found}, or use another directory", path.display())]
    OtherNode {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        found: BrokerId,
        /// Who we are.
        configured: BrokerId,
    },
    /// It belongs to another cluster.
    #[error("{} belongs to cluster {found}, not to {configured}: use another directory", path.display())]
    OtherCluster {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Who we are.
        configured: String,
    },
    /// Apache Kafka made it.
    #[error("{} is a data folder of Apache Kafka ({sign}). Nothing was changed. Use another directory; single partitions are brought in with `highwater log adopt`", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// What tells.
        sign: String,
    },
    /// A log directory that the broker had is gone, and partitions with it.
    #[error("the log directory with the id {id} is missing, and {partitions} partitions are in no other one; {} {state}. Nothing was begun anew. Mount its disk, or put it back into log.dirs. If what it held is lost for good, make an empty file highwater-begin-anew in {} and start again: these partitions then begin empty", path.display(), path.display())]
    DirectoryMissing {
        /// The directory's id.
        id: Uuid,
        /// Partitions that are in none of the directories.
        partitions: usize,
        /// A directory that may stand in its place.
        path: PathBuf,
        /// What is known of that one.
        state: &'static str,
    },
    /// Most folders belong to topics that the metadata does not know.
    #[error("the cluster's metadata does not know {strays} of the {folders} partitions in {}: it is lost, or older than they are. Nothing was removed. Restore the metadata's folder, or move the partitions' folders away", path.display())]
    MetadataLost {
        /// The directory.
        path: PathBuf,
        /// Folders that the metadata does not know.
        strays: usize,
        /// Folders of partitions.
        folders: usize,
    },
}

/// The process that has the log directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Which broker it is.
    pub node_id: BrokerId,
    /// Which process of that broker, as it registers.
    pub incarnation: Uuid,
}

/// A log that was opened, and the high watermark from before the stop.
pub struct Opened {
    /// The log.
    pub log: Log,
    /// As it was checkpointed.
    pub high_watermark: Offset,
    /// Where its partition asks for a sync.
    pub sync_queue: Arc<SyncQueue>,
}

/// All log directories.
#[derive(Debug)]
pub struct Logs {
    directories: Vec<Directory>,
    disk: Arc<dyn Disk>,
    /// Who is where. Weak: the table of topics owns the partitions.
    homes: Mutex<HashMap<Key, Home>>,
    /// Logs that are being cut, with their new ends, of each directory.
    cutting: Vec<Mutex<HashMap<Key, Offset>>>,
    /// Partitions that could not be opened, or turned out to be damaged.
    unopened: Mutex<BTreeMap<TopicPartition, Unopened>>,
    /// Files of deleted segments.
    pub trash: Trash,
    /// Folders of deleted partitions, to be removed.
    leftovers: Mutex<Vec<Leftover>>,
    /// Deleted partitions whose folders could not be put out of the way yet.
    undeleted: Mutex<Vec<Gone>>,
    /// Partitions of which a journal did not take the log start: retried every second.
    owed_starts: Mutex<Vec<Weak<Partition>>>,
    /// Held while folders get names or lose them. Taken before any other lock here.
    names: Mutex<Names>,
    strays: Mutex<Vec<Stray>>,
    /// Partitions that are not compacted any more, by id: a topic may be made again under its name.
    uncleanable: Mutex<BTreeMap<Key, TopicPartition>>,
    /// Refusals that no journal has yet, by directory.
    unentered: Mutex<Vec<(usize, Key, Refused)>>,
    /// Partitions whose durability changed, and whose journal does not say so yet.
    becoming: Mutex<Vec<(Weak<Partition>, Durability)>>,
    /// What the metadata wanted at the start, if a directory could not be opened: one of these that
    /// is not found may be there.
    wanted_at_start: Mutex<BTreeSet<Key>>,
    /// Ids of directories without which the broker started, and in which partitions may be.
    missing: Mutex<Vec<Uuid>>,
    /// Whether missing replicas may be copied to other directories.
    copies_missing: AtomicBool,
    /// A person has said that what a missing directory held is lost.
    begins_anew: AtomicBool,
    /// How often partitions went out of reach since the start: with their directory, or one that was refused.
    failures: watch::Sender<u32>,
}

/// A partition that could not be opened.
#[derive(Debug)]
struct Unopened {
    topic_id: TopicId,
    reason: String,
    /// Whether that stays so until the next start, or until the partition is put aside.
    stays: bool,
}

/// A partition that this broker cannot serve before it is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfReach {
    /// Which.
    pub key: Key,
    /// Why.
    pub cause: UnreachableCause,
}

/// Cause for which a partition cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreachableCause {
    /// The whole directory failed while it was open.
    FailedDirectory,
    /// The partition is refused.
    Refused,
    /// The partition may be in a directory without which the broker started.
    Missing {
        /// Whether another directory may get a copy.
        may_be_copied: bool,
    },
}

#[derive(Debug)]
struct Home {
    directory: usize,
    partition: Weak<Partition>,
}

fn random_id() -> Uuid {
    Uuid::from_random(fastrand::u128(..).to_be_bytes())
}

impl Logs {
    /// Locks the directories, checks whose they are, and reads what stands in them. Returns the
    /// cluster's id too: that of the directories, or the configured one, or a new one. `metadata_dir`
    /// is where the quorum keeps its log.
    ///
    /// A directory that cannot be opened is offline; fails if none can, or if one is another's.
    pub fn open_directories(
        disk: Arc<dyn Disk>,
        paths: &[PathBuf],
        process: Process,
        cluster_id: Option<String>,
        metadata_dir: &Path,
        now: Timestamp,
    ) -> Result<(Logs, String), LogsError> {
        paths.iter().try_for_each(|path| foreign::check(&disk, path, metadata_dir))?;
        let locked: Vec<Result<Locked, LogsError>> =
            paths.iter().map(|path| Locked::new(&disk, path)).collect();
        let mut locked = locked;
        let newer = |locked: &Result<Locked, LogsError>| {
            matches!(locked, Err(LogsError::Storage(StorageError::NewerFormat { .. })))
        };
        if let Some(at) = locked.iter().position(newer) {
            // Before any directory is changed: an offline directory of a newer release would look lost.
            locked.swap_remove(at)?;
        }
        let metas = locked.iter().flatten().filter_map(|locked| locked.meta.as_ref());
        let known = metas.map(|meta| meta.cluster_id.clone()).next();
        let cluster_id = cluster_id.or(known).unwrap_or_else(|| random_id().to_string());
        let (mut directories, mut first_cause) = (Vec::new(), None);
        for (path, locked) in paths.iter().zip(locked) {
            match locked.and_then(|locked| locked.open(process, &cluster_id, now)) {
                Ok(directory) => directories.push(directory),
                Err(cause @ LogsError::Storage(_)) => {
                    directories.push(Directory::unusable(&disk, path, &cause));
                    first_cause.get_or_insert(cause);
                }
                Err(cause) => return Err(cause),
            }
        }
        if let Some(cause) = first_cause.filter(|_| directories.iter().all(Directory::is_offline)) {
            return Err(cause);
        }
        let logs = Logs {
            cutting: directories.iter().map(|_| Mutex::default()).collect(),
            directories,
            disk,
            homes: Mutex::default(),
            unopened: Mutex::default(),
            trash: Trash::default(),
            leftovers: Mutex::default(),
            undeleted: Mutex::default(),
            owed_starts: Mutex::default(),
            names: Mutex::default(),
            strays: Mutex::default(),
            uncleanable: Mutex::default(),
            unentered: Mutex::default(),
            becoming: Mutex::default(),
            wanted_at_start: Mutex::default(),
            missing: Mutex::default(),
            copies_missing: AtomicBool::new(false),
            begins_anew: AtomicBool::new(false),
            failures: watch::Sender::new(0),
        };
        logs.collect_leftovers()?;
        Ok((logs, cluster_id))
    }

    /// The directories.
    pub fn directories(&self) -> impl Iterator<Item = &Directory> {
        self.directories.iter()
    }

    /// Whether the last stop of all of them was clean.
    pub fn was_clean(&self) -> bool {
        self.directories.iter().all(Directory::was_clean)
    }

    /// Of each directory that is not offline its id, and what it says of the processes before.
    pub fn known_before(&self) -> Vec<(Uuid, KnownDirectory)> {
        let online = self.directories.iter().filter(|directory| !directory.is_offline());
        online.map(|directory| (directory.id(), directory.known_before())).collect()
    }

    /// The mark of each directory that is not offline, as its journal has it durably. Waits for no journal.
    pub fn marks(&self) -> Vec<(Uuid, u64)> {
        let online = self.directories.iter().filter(|directory| !directory.is_offline());
        online.map(|directory| (directory.id(), directory.mark())).collect()
    }

    /// The marks of these directories; 0 for one that is not known.
    pub fn marks_of(&self, ids: &[Uuid]) -> Vec<u64> {
        let mark = |id: &Uuid| {
            let known = self.directories.iter().find(|directory| directory.id() == *id);
            known.map_or(0, Directory::mark)
        };
        ids.iter().map(mark).collect()
    }

    /// As [`Logs::raise_mark`], for all directories.
    #[cfg(test)]
    pub fn raise_marks(&self) {
        (0..self.directories.len()).for_each(|at| self.raise_mark(at));
    }

    /// Raises the mark of one directory, if the directory was written to.
    pub fn raise_mark(&self, at: usize) {
        let directory = &self.directories[at];
        if directory.is_offline() {
            return;
        }
        if let Err(cause) = directory.raise_mark() {
            self.journal_failed(at, &cause);
        }
    }

    /// Raises marks that are below the recorded ones: these directories were put back from copies, and the controller counts
    /// nothing of the broker. Reports each.
    pub fn settle_copies(&self, image: &ClusterImage, me: BrokerId) {
        for (at, directory) in self.directories.iter().enumerate() {
            let (mark, recorded) = (directory.mark(), image.directory_mark(me, directory.id()));
            if directory.is_offline() || mark >= recorded {
                continue;
            }
            warn!(
                directory = %directory.path().display(),
                mark,
                recorded,
                "the log directory was put back from a copy; its replicas count nowhere until they have caught up"
            );
            if let Err(cause) = directory.raise_mark_above(recorded) {
                self.journal_failed(at, &cause);
            }
        }
    }

    /// Whether a directory was put back from a copy and its replicas have not caught up, as far as is known.
    pub fn has_copies(&self) -> bool {
        self.directories.iter().any(|directory| directory.copied().is_some())
    }

    /// Removes the notes about copies: all replicas of this broker have caught up. A directory without room keeps its note until
    /// a later call, and reports that once. Returns the number of directories that this call reported.
    pub fn forget_copies(&self) -> usize {
        let mut reported = 0;
        for (at, directory) in self.directories.iter().enumerate() {
            if directory.is_offline() {
                continue;
            }
            match directory.forget_copied() {
                Err(cause) if cause.is_full() || cause.lacks_resources() => {
                    if directory.note_stuck_copy_note() {
                        reported += 1;
                        warn!(
                            directory = %directory.path().display(),
                            %cause,
                            "cannot remove the line highwater.restored.copy from meta.properties, although the replicas have caught \
                             up; retried every second"
                        );
                    }
                }
                Err(cause) => self.fail_directory(at, &cause),
                Ok(()) => {}
            }
        }
        reported
    }

    /// Notes that this process is registered. That may be lost in a crash: the processes before are known for longer then.
    pub fn note_joined(&self, incarnation: Uuid) -> Result<(), StorageError> {
        let online = self.directories.iter().filter(|directory| !directory.is_offline());
        let mut journals = online.map(Directory::journal);
        journals.try_for_each(|journal| journal?.append(&[Entry::Joined(incarnation)]).map(drop))
    }

    /// States of the metadata folder that the journals note.
    pub fn metadata_notes(&self) -> Vec<MetadataNote> {
        let online = self.directories.iter().filter(|directory| !directory.is_offline());
        let journals = online.filter_map(|directory| directory.journal().ok());
        journals.filter_map(|journal| journal.with_state(|state| state.metadata)).collect()
    }

    /// Notes the state of the metadata folder in each directory whose journal has the level, if it is news there; the next sync
    /// of the journal makes the note durable. A directory that fails goes offline by its next write.
    pub fn note_metadata(&self, note: MetadataNote) {
        (0..self.directories.len()).for_each(|at| self.note_metadata_in(at, note));
    }

    /// As [`Logs::note_metadata`], in one directory.
    pub fn note_metadata_in(&self, at: usize, note: MetadataNote) {
        let is_news = |known: Option<MetadataNote>| match known {
            Some(known) if known.member == note.member => {
                note.index > known.index || note.term > known.term
            }
            _ => true,
        };
        let (directory, entry) = (&self.directories[at], Entry::MetadataNoted(note));
        if directory.is_offline() {
            return;
        }
        let Ok(journal) = directory.journal() else { return };
        if journal.level() < entry.level() {
            return;
        }
        let noted = journal.append_with(|state| match is_news(state.metadata) {
            true => vec![entry],
            false => Vec::new(),
        });
        if let Err(cause) = noted {
            let directory = directory.path().display();
            warn!(%directory, %cause, "cannot note the state of the metadata folder");
        }
    }

    /// Writes the finalized levels of the cluster into each directory that is not offline. A directory that
    /// fails goes offline by its next write; its levels are raised at the next start.
    pub fn raise_levels(&self, image: &ClusterImage) {
        let (journal, metadata) = (image.journal_level(), image.highwater_version());
        let metadata = u8::try_from(metadata).unwrap_or(0);
        for directory in self.directories.iter().filter(|directory| !directory.is_offline()) {
            if let Err(cause) = directory.raise_levels(journal, metadata) {
                let directory = directory.path().display();
                error!(%directory, %cause, "cannot raise the levels of the log directory");
            }
        }
    }

    /// Whether no directory has ever held anything.
    pub fn is_new(&self) -> bool {
        self.directories.iter().all(Directory::was_empty)
    }

    /// Whether the broker has more than one log directory.
    pub fn has_several_directories(&self) -> bool {
        self.directories.len() > 1
    }

    /// The directory of a partition that is open.
    pub fn directory_of(&self, partition: &Partition) -> &Directory {
        let homes = self.homes.lock();
        let at = homes.get(&key_of(partition)).map_or(0, |home| home.directory);
        &self.directories[at]
    }

    /// Open partitions in the directories of these numbers. Takes no lock of a partition.
    pub fn partitions_in(&self, directories: &[usize]) -> Vec<(TopicId, PartitionIndex)> {
        let homes = self.homes.lock();
        let here = homes.iter().filter(|(_, home)| directories.contains(&home.directory));
        here.map(|(key, _)| (key.topic_id, key.partition)).collect()
    }

    /// Whether a journal knows a partition: this broker has had it, and has its folder or refuses it.
    pub fn knows(&self, key: &Key) -> bool {
        self.directories.iter().any(|directory| directory.partition(key).is_some())
    }

    /// The newest leader epoch that a journal notes of a partition; [`LeaderEpoch::NONE`] for none.
    pub fn newest_epoch(&self, key: &Key) -> LeaderEpoch {
        let known = self.directories.iter().filter_map(|directory| directory.partition(key));
        known.map(|known| known.newest_epoch()).max().unwrap_or(LeaderEpoch::NONE)
    }

    /// Whether a partition is open in a directory that is online.
    pub fn is_open(&self, key: &Key) -> bool {
        let homes = self.homes.lock();
        let home = homes.get(key).filter(|home| home.partition.strong_count() > 0);
        home.is_some_and(|home| !self.directories[home.directory].is_offline())
    }

    /// The number of the directory of a partition that is open, for the flusher.
    pub fn directory_number(&self, partition: &Partition) -> Option<usize> {
        self.homes.lock().get(&key_of(partition)).map(|home| home.directory)
    }

    /// Partitions that could not be opened for a cause of their own, and why. A log directory that is offline is reported itself,
    /// and not each partition that may be in it.
    pub fn unopened(&self) -> Vec<(TopicPartition, String)> {
        let is_any_offline = self.directories().any(Directory::is_offline);
        let unopened = self.unopened.lock();
        let mut found: Vec<_> = unopened
            .iter()
            .map(|(name, unopened)| (name.clone(), unopened.topic_id, unopened.reason.clone()))
            .collect();
        drop(unopened);
        found.retain(|(name, topic_id, _)| {
            let key = Key { topic_id: *topic_id, partition: name.partition };
            !(is_any_offline && self.is_missing(&key))
        });
        found.into_iter().map(|(name, _, reason)| (name, reason)).collect()
    }

    /// Remembers that a partition is damaged and not compacted any more.
    pub fn note_uncleanable(&self, partition: &Partition) {
        let name = partition.topic_partition().clone();
        self.uncleanable.lock().insert(key_of(partition), name);
    }

    /// Whether a partition is damaged and not compacted any more.
    pub fn is_uncleanable(&self, partition: &Partition) -> bool {
        self.uncleanable.lock().contains_key(&key_of(partition))
    }

    /// Partitions that are damaged and not compacted any more.
    pub fn uncleanable(&self) -> Vec<TopicPartition> {
        self.uncleanable.lock().values().cloned().collect()
    }

    /// The wall clock when the directories were last written, as their journals say; `None` for new
    /// ones.
    pub fn last_wall_clock(&self) -> Option<Timestamp> {
        self.directories.iter().filter_map(Directory::last_wall_clock).max()
    }

    /// Directories that are offline, and why.
    pub fn offline(&self) -> Vec<(PathBuf, String)> {
        let offline = self.directories.iter().filter(|directory| directory.is_offline());
        offline
            .map(|directory| (directory.path().to_owned(), directory.failure().unwrap_or_default()))
            .collect()
    }

    /// Directories that take no appends for lack of room.
    pub fn full(&self) -> Vec<PathBuf> {
        let full = self.directories.iter().filter(|directory| directory.room.is_full());
        full.map(|directory| directory.path().to_owned()).collect()
    }

    /// Remembers the partition that owns a log that was opened.
    pub fn register(&self, partition: &Arc<Partition>) {
        if let Some(home) = self.homes.lock().get_mut(&key_of(partition)) {
            home.partition = Arc::downgrade(partition);
            partition.set_writable(!self.directories[home.directory].room.is_full());
        }
    }

    /// The disk failed under `partition`: its directory goes offline with all that is in it.
    pub fn fail(&self, partition: &Partition, cause: &dyn std::fmt::Display) {
        let home = self.homes.lock().get(&key_of(partition)).map(|home| home.directory);
        let Some(at) = home else { return };
        error!(partition = %partition.topic_partition(), %cause, "the log failed");
        self.fail_directory(at, cause);
    }

    fn fail_directory(&self, at: usize, cause: &dyn std::fmt::Display) {
        let directory = &self.directories[at];
        let members: Vec<Arc<Partition>> =
            self.members().into_iter().filter(|(home, _)| *home == at).map(|(_, p)| p).collect();
        self.note_failure(directory, &members, cause);
        if !directory.take_offline(cause) {
            return;
        }
        error!(
            directory = %directory.path().display(),
            %cause,
            "the disk failed; the log directory is offline until the broker is started again"
        );
        members.iter().for_each(|member| member.fail());
        self.failures.send_modify(|count| *count += 1);
    }

    /// Checks whether a directory is still at its path: one that is not has failed, although no operation has found that out.
    pub fn look_at_directory(&self, at: usize) {
        let directory = &self.directories[at];
        if !directory.is_offline()
            && let Some(cause) = directory.look()
        {
            self.fail_directory(at, &cause);
        }
    }

    /// How often partitions went out of reach since the start, from now on.
    pub fn failures(&self) -> watch::Receiver<u32> {
        self.failures.subscribe()
    }

    /// Whether a partition could not be opened when that was tried last.
    pub fn is_unopened(&self, name: &TopicPartition) -> bool {
        self.unopened.lock().contains_key(name)
    }

    /// Partitions that cannot be served before the next start: they were open in a directory that is offline now, or they
    /// are refused. Costs nothing while there are none.
    pub fn out_of_reach(&self) -> Vec<OutOfReach> {
        let mut found = Vec::new();
        if self.directories().any(Directory::is_offline) {
            let homes = self.homes.lock();
            let offline =
                homes.iter().filter(|(_, home)| self.directories[home.directory].is_offline());
            found.extend(offline.map(|(key, _)| OutOfReach {
                key: *key,
                cause: UnreachableCause::FailedDirectory,
            }));
        }
        let unopened = self.unopened.lock();
        let refused = unopened.iter().filter(|(_, unopened)| unopened.stays).map(|(name, it)| {
            let key = Key { topic_id: it.topic_id, partition: name.partition };
            let cause = match self.is_missing(&key) {
                true => UnreachableCause::Missing { may_be_copied: self.copies_missing() },
                false => UnreachableCause::Refused,
            };
            OutOfReach { key, cause }
        });
        found.extend(refused);
        found
    }

    /// Enters that what is not synced may be lost though it can be read: as durably as a failed disk
    /// allows.
    fn note_failure(
        &self,
        directory: &Directory,
        members: &[Arc<Partition>],
        cause: &dyn std::fmt::Display,
    ) {
        let Ok(journal) = directory.journal() else { return };
        let reason: Arc<str> = cause.to_string().into();
        let unsynced = members.iter().filter(|member| {
            member.with_log(|log| {
                log.failure().is_some() || log.synced_below() < log.log_end_offset()
            })
        });
        let entries: Vec<Entry> = unsynced
            .map(|member| Entry::Of(key_of(member), Fact::SyncFailed(Arc::clone(&reason))))
            .collect();
        if let Err(cause) = journal.commit(&entries) {
            warn!(directory = %directory.path().display(), %cause, "cannot enter the failure into the journal");
        }
    }

    fn members(&self) -> Vec<(usize, Arc<Partition>)> {
        let homes = self.homes.lock();
        let alive =
            homes.values().filter_map(|home| Some((home.directory, home.partition.upgrade()?)));
        alive.collect()
    }

    /// Open partitions in one directory.
    fn open_partitions_at(&self, directory: usize) -> Vec<Arc<Partition>> {
        let homes = self.homes.lock();
        let here = homes.values().filter(|home| home.directory == directory);
        here.filter_map(|home| home.partition.upgrade()).collect()
    }
}

impl SyncObserver for Logs {
    fn sync_failed(&self, partition: &Arc<Partition>, cause: &PartitionError) {
        // The files of a deleted partition may be gone under a sync.
        if partition.status() != Status::Deleted {
            self.fail(partition, cause);
        }
    }

    fn synced(&self, directory: usize, synced: &Synced) {
        self.note_synced(directory, std::slice::from_ref(synced));
    }
}

fn key_of(partition: &Partition) -> Key {
    Key { topic_id: partition.topic_id(), partition: partition.topic_partition().partition }
}
