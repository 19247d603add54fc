//! One log directory: opening it at the start, and taking it offline.
//!
//! The journal says what the directory holds. Kafka's files are read once, where there is neither a
//! journal nor its witness in `meta.properties`: a directory from before there were journals is
//! adopted. A data folder of Apache Kafka is refused before any file is touched (`foreign.rs`).

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use metadata::decide::KnownDirectory;
use model::{BrokerId, Timestamp, Uuid};
use node::MarkKeeper;
use parking_lot::Mutex;
use partition::SyncQueue;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use storage::StorageError;
use storage::disk::Disk;
use storage::journal::{
    Entry, Fact, JOURNAL_LEVEL_MIN, Journal, Key, PartitionState, SNAPSHOT, State,
};
use storage::log_dir::{DirLock, LogDir, MetaProperties};
use tracing::{error, info, warn};

use super::room::Room;
use super::{Gone, LogsError, Process, random_id};

/// Deletions that an earlier process began, by [`Directory::finish_deletions`].
#[derive(Debug, Default)]
pub(super) struct Finished {
    /// Folders that may be removed, by their names, and of what is gone already and not forgotten.
    pub aside: Vec<(Key, String)>,
    /// Partitions whose folders could not be renamed for lack of room.
    pub without_room: Vec<Gone>,
}

/// Level of journals that have marks.
const MARKS_LEVEL: u8 = 2;

/// One log directory.
#[derive(Debug)]
pub struct Directory {
    pub(super) dir: LogDir,
    id: Uuid,
    /// What is known of its partitions; `None` if the directory could not be opened.
    journal: Option<Journal>,
    /// Partitions that were closed cleanly and not opened since.
    closed: Mutex<HashSet<Key>>,
    was_clean: bool,
    /// What it says of the processes that had it before this one.
    known_before: KnownDirectory,
    was_empty: bool,
    /// The wall clock when it was last written; `None` for a new one.
    last_wall_clock: Option<Timestamp>,
    /// The mark, by which a copy of the directory is recognised.
    mark: Mutex<MarkKeeper>,
    /// The mark and the recorded mark, if the directory was put back from a copy and its replicas have not caught up.
    copied: Mutex<Option<(u64, u64)>>,
    /// Whether the last removal of the note about a copy lacked room. Invariant: such a failure is reported already.
    is_copy_note_stuck: AtomicBool,
    /// Held while `meta.properties` is read and replaced.
    meta: Mutex<()>,
    /// The folder itself, whatever has its path now; `None` where there is no machine behind the disk.
    folder: Option<OwnedFd>,
    offline: AtomicBool,
    /// How many folders have been renamed, and how many of the first of these renames are durable. Invariant: while they differ, no
    /// folder of a deleted partition is removed.
    renamed: AtomicU64,
    durably_renamed: AtomicU64,
    /// The reason, for whoever asks after the health.
    failure: Mutex<Option<String>>,
    /// Whether its volume has room.
    pub(super) room: Room,
    /// Its partitions that want to be synced.
    sync_queue: Arc<SyncQueue>,
    /// Held while a checkpoint is entered, and while compaction replaces segments.
    pub(super) checkpointing: Mutex<()>,
    /// Held until the directory is closed.
    lock: Mutex<Option<DirLock>>,
}

/// A hold on the folder at `path`, by which it is known again.
fn hold_folder(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

/// A directory that is locked, and whose it says it is.
pub(super) struct Locked {
    pub(super) dir: LogDir,
    pub(super) meta: Option<MetaProperties>,
    lock: DirLock,
}

impl Locked {
    /// Makes the directory if need be, locks it and reads `meta.properties`.
    pub(super) fn new(disk: &Arc<dyn Disk>, path: &Path) -> Result<Locked, LogsError> {
        let dir = LogDir::new(Arc::clone(disk), path.to_owned())?;
        let lock = DirLock::acquire(&**disk, path)?;
        let meta = dir.meta_properties()?;
        Ok(Locked { dir, meta, lock })
    }

    /// Opens the directory: its journal, or the adoption of what stands there.
    pub(super) fn open(
        self,
        Process { node_id, incarnation }: Process,
        cluster_id: &str,
        now: Timestamp,
    ) -> Result<Directory, LogsError> {
        if let Some(meta) = &self.meta {
            check_owner(self.dir.path(), meta, node_id, cluster_id)?;
        }
        let witnessed = self.meta.as_ref().is_some_and(|meta| meta.journal_level > 0);
        let disk = Arc::clone(self.dir.disk());
        let (journal, meta, last) = match Journal::open(disk, self.dir.path(), witnessed)? {
            Some(journal) => {
                let meta = compared(&self.dir, self.meta, &journal)?;
                check_owner(self.dir.path(), &meta, node_id, cluster_id)?;
                let last = journal.with_state(last_wall_clock);
                (journal, meta, Some(last))
            }
            None => {
                let (journal, meta) = adopt(&self.dir, self.meta, node_id, cluster_id, now)?;
                (journal, meta, None)
            }
        };
        let id = meta.directory_id;
        let directory = Directory::begin(self.dir, self.lock, id, journal, incarnation, now)?;
        Ok(Directory { last_wall_clock: last, ..directory })
    }
}

/// The latest time that the journal notes: of a start, a stop or a checkpoint.
fn last_wall_clock(state: &State) -> Timestamp {
    let checkpoints = state.partitions.values().filter_map(|known| known.checkpoint);
    checkpoints.map(|last| last.at).fold(state.at, Timestamp::max)
}

fn check_owner(
    path: &Path,
    meta: &MetaProperties,
    node_id: BrokerId,
    cluster_id: &str,
) -> Result<(), LogsError> {
    let path = path.to_owned();
    if meta.node_id != node_id {
        return Err(LogsError::OtherNode { path, found: meta.node_id, configured: node_id });
    }
    if meta.cluster_id != cluster_id {
        let (found, configured) = (meta.cluster_id.clone(), cluster_id.to_owned());
        return Err(LogsError::OtherCluster { path, found, configured });
    }
    Ok(())
}

/// `meta.properties`, compared with the journal's copy: a copy without its file is written again, two
/// that contradict each other are an error: there is no telling which is right.
fn compared(
    dir: &LogDir,
    found: Option<MetaProperties>,
    journal: &Journal,
) -> Result<MetaProperties, StorageError> {
    let path = dir.path().join("meta.properties");
    let malformed = |reason: String| StorageError::Malformed { path: path.clone(), reason };
    let text = journal.with_state(|state| String::from_utf8_lossy(&state.meta).into_owned());
    let copy = MetaProperties::decode(&text).map_err(malformed)?;
    match found {
        Some(found) if !found.has_same_owner(&copy) => Err(malformed(format!(
            "differs from its copy in highwater-partitions, which says cluster {}, node {}, directory {}: \
             restore the file",
            copy.cluster_id, copy.node_id, copy.directory_id
        ))),
        Some(found) if found.journal_level >= copy.journal_level => {
            // A crash may come between the file and its copy.
            journal.raise_level(&found)?;
            Ok(found)
        }
        Some(found) => {
            let completed = MetaProperties { journal_level: copy.journal_level, ..found };
            dir.store_meta_properties(&completed)?;
            Ok(completed)
        }
        None => {
            warn!(path = %path.display(), "missing; written again from its copy");
            dir.store_meta_properties(&copy)?;
            Ok(copy)
        }
    }
}

/// Begins a journal where there is none. It is durable before the witness says that it exists.
fn adopt(
    dir: &LogDir,
    known: Option<MetaProperties>,
    node_id: BrokerId,
    cluster_id: &str,
    now: Timestamp,
) -> Result<(Journal, MetaProperties), StorageError> {
    let directory_id = known.as_ref().map_or_else(random_id, |meta| meta.directory_id);
    let cluster_id = cluster_id.to_owned();
    let unknown_lines = known.map_or_else(Vec::new, |meta| meta.unknown_lines);
    let meta = MetaProperties {
        node_id,
        cluster_id,
        directory_id,
        journal_level: JOURNAL_LEVEL_MIN,
        metadata_level: 0,
        unknown_lines,
    };
    let state = dir.adopted(&meta, now)?;
    let partitions = state.partitions.len();
    let journal = Journal::create(Arc::clone(dir.disk()), dir.path(), state)?;
    dir.store_meta_properties(&meta)?;
    if partitions > 0 {
        info!(directory = %dir.path().display(), partitions, "adopted a log directory from before there were journals");
    }
    Ok((journal, meta))
}

impl Directory {
    /// From here on nothing counts as cleanly stopped, and it is known which process has the directory: durably, before any
    /// log is touched (S11) and before the process registers.
    fn begin(
        dir: LogDir,
        lock: DirLock,
        id: Uuid,
        journal: Journal,
        incarnation: Uuid,
        now: Timestamp,
    ) -> Result<Directory, StorageError> {
        let mark = journal.with_state(|state| MarkKeeper::of_journal(state.mark));
        let copied = dir.meta_properties()?.and_then(|meta| meta.restored_copy());
        let (was_clean, known_before, was_empty, closed) = journal.with_state(|state| {
            let is_closed = |(key, known): (&Key, &Arc<PartitionState>)| {
                (state.closed && known.closed.is_some()).then_some(*key)
            };
            let closed = state.partitions.iter().filter_map(is_closed).collect();
            let stopped = state.broker_epoch.filter(|_| state.closed);
            // One of which nothing is known was noted by a version that noted none.
            let is_known = state.processes.first().is_some_and(|first| *first != Uuid::ZERO);
            let had_by = if is_known { state.processes.clone() } else { Vec::new() };
            let known_before = KnownDirectory { stopped, had_by };
            (state.closed, known_before, state.partitions.is_empty(), closed)
        });
        journal.commit(&[Entry::Started(now), Entry::Begun(incarnation)])?;
        dir.remove_clean_marker()?;
        Ok(Directory {
            room: Room::of(dir.path()),
            sync_queue: Arc::default(),
            folder: hold_folder(dir.path()),
            dir,
            id,
            journal: Some(journal),
            closed: Mutex::new(closed),
            was_clean,
            known_before,
            was_empty,
            last_wall_clock: None,
            mark: Mutex::new(mark),
            copied: Mutex::new(copied),
            is_copy_note_stuck: AtomicBool::default(),
            meta: Mutex::default(),
            offline: AtomicBool::new(false),
            renamed: AtomicU64::new(0),
            durably_renamed: AtomicU64::new(0),
            failure: Mutex::default(),
            checkpointing: Mutex::default(),
            lock: Mutex::new(Some(lock)),
        })
    }

    /// A directory that could not be opened: the others serve.
    pub(super) fn unusable(disk: &Arc<dyn Disk>, path: &Path, cause: &LogsError) -> Directory {
        error!(directory = %path.display(), %cause, "cannot open the log directory; it is offline until the broker is started again");
        Directory {
            room: Room::of(path),
            sync_queue: Arc::default(),
            dir: LogDir::at(Arc::clone(disk), path.to_owned()),
            id: Uuid::ZERO,
            journal: None,
            closed: Mutex::default(),
            was_clean: false,
            known_before: KnownDirectory::default(),
            was_empty: false,
            last_wall_clock: None,
            mark: Mutex::default(),
            copied: Mutex::default(),
            is_copy_note_stuck: AtomicBool::default(),
            meta: Mutex::default(),
            folder: None,
            offline: AtomicBool::new(true),
            renamed: AtomicU64::new(0),
            durably_renamed: AtomicU64::new(0),
            failure: Mutex::new(Some(cause.to_string())),
            checkpointing: Mutex::default(),
            lock: Mutex::default(),
        }
    }

    /// Lets another process have the directory: nothing of this broker writes there any more.
    pub(super) fn release(&self) {
        self.lock.lock().take();
    }

    /// Writes the finalized levels of the cluster into `meta.properties`, durably, and raises the journal to
    /// its level. Does nothing if the directory is at these levels or above.
    pub(super) fn raise_levels(&self, journal: u8, metadata: u8) -> Result<(), StorageError> {
        let raise = |known: MetaProperties| MetaProperties {
            journal_level: known.journal_level.max(journal),
            metadata_level: known.metadata_level.max(metadata),
            ..known
        };
        let Some(raised) = self.change_meta(raise)? else { return Ok(()) };
        self.journal()?.raise_level(&raised)?;
        let (directory, levels) =
            (self.path().display(), (raised.journal_level, raised.metadata_level));
        info!(%directory, journal = levels.0, metadata = levels.1, "raised the levels of the log directory");
        Ok(())
    }

    /// Changes `meta.properties`, durably. `None`: there is nothing to change, or no such file.
    pub(super) fn change_meta(
        &self,
        change: impl FnOnce(MetaProperties) -> MetaProperties,
    ) -> Result<Option<MetaProperties>, StorageError> {
        let _alone = self.meta.lock();
        let Some(known) = self.dir.meta_properties()? else { return Ok(None) };
        let changed = change(known.clone());
        if changed == known {
            return Ok(None);
        }
        self.dir.store_meta_properties(&changed)?;
        Ok(Some(changed))
    }

    /// The mark that the journal has, durably; 0 for none.
    pub(super) fn mark(&self) -> u64 {
        self.mark.lock().reported()
    }

    /// Notes a write to the directory.
    pub(super) fn note_write(&self) {
        self.mark.lock().note_write();
    }

    /// Raises the mark, durably, if the directory was written to since the last time. Does nothing below the level of journals
    /// that have marks.
    pub(super) fn raise_mark(&self) -> Result<(), StorageError> {
        self.store_mark(MarkKeeper::begin)
    }

    /// The mark and the recorded mark of a directory that was put back from a copy, until its replicas have caught up. Also after a
    /// restart: `meta.properties` notes both.
    pub fn copied(&self) -> Option<(u64, u64)> {
        *self.copied.lock()
    }

    /// The replicas have caught up.
    pub(super) fn forget_copied(&self) -> Result<(), StorageError> {
        if self.copied().is_some() {
            self.change_meta(|meta| meta.with_restored_copy(None))?;
            *self.copied.lock() = None;
        }
        self.is_copy_note_stuck.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Notes that the removal of the note about a copy lacked room. Returns whether that is news.
    pub(super) fn note_stuck_copy_note(&self) -> bool {
        !self.is_copy_note_stuck.swap(true, Ordering::Relaxed)
    }

    /// Raises the mark above the recorded one, durably: the directory was recognised as a copy, and its replicas count nowhere.
    /// Does nothing below the level of journals that have marks: the next start recognises the copy again.
    pub(super) fn raise_mark_above(&self, recorded: u64) -> Result<(), StorageError> {
        let marks = Some((self.mark(), recorded));
        *self.copied.lock() = marks;
        if self.journal()?.level() >= MARKS_LEVEL {
            // Before the mark: with a greater one the next start recognises no copy.
            self.change_meta(|meta| meta.with_restored_copy(marks))?;
        }
        self.store_mark(|keeper| Some(keeper.begin_above(recorded)))
    }

    /// Stores the mark that `begin` begins, durably. A journal below the level of marks would leave the mark out: it would be
    /// reported, and lost at the next start.
    fn store_mark(
        &self,
        begin: impl FnOnce(&mut MarkKeeper) -> Option<u64>,
    ) -> Result<(), StorageError> {
        let journal = self.journal()?;
        if journal.level() < MARKS_LEVEL {
            return Ok(());
        }
        let Some(mark) = begin(&mut self.mark.lock()) else { return Ok(()) };
        let stored = journal.commit(&[Entry::Marked(mark)]);
        let mut keeper = self.mark.lock();
        match &stored {
            Ok(()) => keeper.finish(mark),
            Err(_) => keeper.give_up(),
        }
        stored
    }

    /// Where its partitions ask for a sync.
    pub fn sync_queue(&self) -> &Arc<SyncQueue> {
        &self.sync_queue
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Its id (KIP-858); zero if it could not be opened.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Whether its disk failed, or it could not be opened.
    pub fn is_offline(&self) -> bool {
        self.offline.load(Ordering::Acquire)
    }

    /// Whether it could not be opened at the start: what it holds is not known.
    pub fn is_unknown(&self) -> bool {
        self.journal.is_none()
    }

    pub(super) fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// What it says of the processes that had it before this one.
    pub(super) fn known_before(&self) -> KnownDirectory {
        self.known_before.clone()
    }

    /// The wall clock when it was last written; `None` for a new one.
    pub(super) fn last_wall_clock(&self) -> Option<Timestamp> {
        self.last_wall_clock
    }

    pub(super) fn was_empty(&self) -> bool {
        self.was_empty
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Why the directory cannot be what it was at the start, if that shows: the folder is gone, another one has its path, or it was emptied. Files
    /// that are open are written to all the same, and no start would find their records again.
    pub(super) fn look(&self) -> Option<String> {
        let held = rustix::fs::fstat(self.folder.as_ref()?).ok()?;
        let is_told = |cause: &Errno| *cause != Errno::NOMEM;
        match rustix::fs::stat(self.path()) {
            Ok(found) if (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino) => {}
            Ok(_) => return Some("another folder has taken its place".to_owned()),
            Err(cause) => return is_told(&cause).then(|| format!("the folder is gone: {cause}")),
        }
        let journal = rustix::fs::stat(self.path().join(SNAPSHOT));
        let cause = journal.err().filter(is_told)?;
        Some(format!("the folder was emptied: {SNAPSHOT}: {cause}"))
    }

    /// Takes it offline; false if it was.
    pub(super) fn take_offline(&self, cause: &dyn std::fmt::Display) -> bool {
        let first = !self.offline.swap(true, Ordering::AcqRel);
        if first {
            *self.failure.lock() = Some(cause.to_string());
        }
        first
    }

    /// Bytes of the volume in all, and those that may still be written.
    pub fn volume_bytes(&self) -> std::io::Result<(i64, i64)> {
        volume_bytes(self.path())
    }

    /// Room on the directory's volume.
    pub(crate) fn room(&self) -> &Room {
        &self.room
    }

    /// The journal, if the directory may be used.
    pub(super) fn journal(&self) -> Result<&Journal, StorageError> {
        match &self.journal {
            Some(journal) if !self.is_offline() => Ok(journal),
            _ => Err(StorageError::Failed {
                dir: self.path().to_owned(),
                reason: self.failure().unwrap_or_else(|| "the directory is offline".to_owned()),
            }),
        }
    }

    /// What is known of a partition, whether the directory may be used or not.
    pub(super) fn partition(&self, key: &Key) -> Option<Arc<PartitionState>> {
        let known = self.entered(key)?;
        known.deleted.is_none().then_some(known)
    }

    /// What is known of a partition, be it deleted.
    pub(super) fn entered(&self, key: &Key) -> Option<Arc<PartitionState>> {
        self.journal.as_ref()?.partition(key)
    }

    /// Whether a partition was closed cleanly; from now on it is open.
    pub(super) fn take_closed(&self, key: &Key) -> bool {
        self.closed.lock().remove(key)
    }

    /// Gives a folder another name, which is owed until [`Directory::sync_names`] succeeds.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        self.dir.rename(from, to)?;
        self.renamed.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Makes the names in the directory durable.
    pub(super) fn sync_names(&self) -> Result<(), StorageError> {
        // A rename that is made during the sync is not covered.
        let covered = self.renamed.load(Ordering::Acquire);
        self.dir.sync_names()?;
        self.durably_renamed.fetch_max(covered, Ordering::AcqRel);
        Ok(())
    }

    /// Whether a folder's new name may not be durable yet.
    pub(super) fn owes_names(&self) -> bool {
        let durably_renamed = self.durably_renamed.load(Ordering::Acquire);
        durably_renamed < self.renamed.load(Ordering::Acquire)
    }

    /// Finishes the deletions that were entered: renames what was not renamed, and returns what is to
    /// be removed.
    pub(super) fn finish_deletions(&self) -> Result<Finished, StorageError> {
        let journal = self.journal()?;
        let (deleted, needed) = journal.with_state(|state| {
            let (mut deleted, mut needed) = (Vec::new(), HashSet::new());
            for (key, known) in &state.partitions {
                let name = State::name(*key, known);
                match &known.deleted {
                    Some(aside) => deleted.push((*key, name, aside.to_string())),
                    None => drop(needed.insert(name.to_string())),
                }
            }
            (deleted, needed)
        });
        let exists = |name: &str| self.dir.disk().exists(&self.path().join(name));
        let (mut finished, mut gone) = (Finished::default(), Vec::new());
        // Only what the journal calls deleted, and nothing that has its name since (S15).
        for (key, name, aside) in deleted {
            let text = name.to_string();
            if !exists(&aside) && exists(&text) && !needed.contains(&text) {
                match self.rename(&text, &aside) {
                    Err(cause) if cause.is_full() => {
                        let gone = Gone { topic_id: key.topic_id, name, delay_ms: 0 };
                        finished.without_room.push(gone);
                        continue;
                    }
                    renamed => renamed?,
                }
                match self.sync_names() {
                    Err(cause) if cause.lacks_resources() => {}
                    synced => synced?,
                }
            }
            match exists(&aside) {
                true => finished.aside.push((key, aside)),
                false => gone.push((key, aside)),
            }
        }
        let entries = gone.iter().map(|(key, _)| Entry::Of(*key, Fact::Forgotten));
        match journal.append(&entries.collect::<Vec<_>>()) {
            // They are forgotten when there is room.
            Err(cause) if cause.is_full() => finished.aside.extend(gone),
            appended => drop(appended?),
        }
        Ok(finished)
    }
}

/// Bytes of the volume of `path` in all, and those that may still be written.
pub(super) fn volume_bytes(path: &Path) -> std::io::Result<(i64, i64)> {
    let volume = rustix::fs::statvfs(path)?;
    let bytes = |blocks: u64| (blocks.saturating_mul(volume.f_frsize)) as i64;
    Ok((bytes(volume.f_blocks), bytes(volume.f_bavail)))
}
