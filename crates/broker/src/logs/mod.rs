//! The log directories of this broker: which partition is where, and what happens when a disk fails.
//!
//! A failed write or sync is final (S9): the whole directory goes offline, its partitions with it,
//! until the broker starts again. Other directories go on.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use model::{BrokerEpoch, BrokerId, Offset, Timestamp, TopicId, TopicPartition, Uuid};
use parking_lot::Mutex;
use partition::{Partition, PartitionError, Status, SyncQueue};
use storage::checkpoint::{self, Offsets};
use storage::disk::Disk;
use storage::log_dir::{DirLock, Loading, LockError, LogDir, MetaProperties};
use storage::{Log, LogConfig, Recovery, StorageError};
use tracing::{error, info, trace, warn};

use self::flusher::{SyncObserver, Synced};
use self::room::Room;
use self::trash::Trash;

pub mod chores;
pub mod cleaner;
pub mod flusher;
pub mod room;
pub mod trash;

/// Logs that are closed at once when the broker stops.
const CLOSING_THREADS: usize = 16;

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
}

/// One log directory.
#[derive(Debug)]
pub struct Directory {
    dir: LogDir,
    id: Uuid,
    /// What stood there when the broker started.
    loading: Loading,
    offline: AtomicBool,
    /// The reason, for whoever asks after the health.
    failure: Mutex<Option<String>>,
    /// Whether its volume has room.
    room: Room,
    /// Serializes the writing of its checkpoint files.
    checkpointing: Mutex<()>,
    /// Its partitions that want to be synced.
    sync_queue: Arc<SyncQueue>,
    _lock: DirLock,
}

impl Directory {
    /// Where its partitions ask for a sync.
    pub fn sync_queue(&self) -> &Arc<SyncQueue> {
        &self.sync_queue
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Its id (KIP-858).
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Whether its disk failed.
    pub fn is_offline(&self) -> bool {
        self.offline.load(Ordering::Acquire)
    }

    /// Bytes of the volume in all, and those that may still be written.
    pub fn volume_bytes(&self) -> std::io::Result<(i64, i64)> {
        let volume = rustix::fs::statvfs(self.path())?;
        let bytes = |blocks: u64| (blocks.saturating_mul(volume.f_frsize)) as i64;
        Ok((bytes(volume.f_blocks), bytes(volume.f_bavail)))
    }
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
    homes: Mutex<HashMap<(TopicId, i32), Home>>,
    /// Partitions that could not be opened, with the reason.
    unopened: Mutex<BTreeMap<TopicPartition, String>>,
    /// Files of deleted segments.
    pub trash: Trash,
    /// Directories of deleted partitions, to be removed.
    leftovers: Mutex<Vec<(usize, PathBuf)>>,
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
    /// cluster's id too: that of the directories, or the configured one, or a new one.
    pub fn open_directories(
        disk: Arc<dyn Disk>,
        paths: &[PathBuf],
        node_id: BrokerId,
        cluster_id: Option<Uuid>,
    ) -> Result<(Logs, String), LogsError> {
        let mut locked = Vec::new();
        for path in paths {
            let lock = DirLock::acquire(path)?;
            let dir = LogDir::new(Arc::clone(&disk), path.clone())?;
            let meta = dir.meta_properties()?;
            locked.push((lock, dir, meta));
        }
        let known = locked.iter().find_map(|(_, _, meta)| Some(meta.as_ref()?.cluster_id.clone()));
        let configured = cluster_id.map(|id| id.to_string());
        let cluster_id = configured.or(known).unwrap_or_else(|| random_id().to_string());
        let mut directories = Vec::new();
        for (lock, dir, meta) in locked {
            directories.push(open_directory(lock, dir, meta, node_id, &cluster_id)?);
        }
        let logs = Logs {
            directories,
            disk,
            homes: Mutex::default(),
            unopened: Mutex::default(),
            trash: Trash::default(),
            leftovers: Mutex::default(),
        };
        logs.collect_leftovers();
        Ok((logs, cluster_id))
    }

    /// The directories.
    pub fn directories(&self) -> impl Iterator<Item = &Directory> {
        self.directories.iter()
    }

    /// Whether the last stop of all of them was clean.
    pub fn was_clean(&self) -> bool {
        self.directories.iter().all(|directory| directory.loading.clean)
    }

    /// Whether no directory has ever held anything.
    pub fn is_new(&self) -> bool {
        self.directories.iter().all(|directory| directory.loading.partitions.is_empty())
    }

    /// The directory of a partition that is open.
    pub fn directory_of(&self, partition: &Partition) -> &Directory {
        let homes = self.homes.lock();
        let at = homes.get(&key_of(partition)).map_or(0, |home| home.directory);
        &self.directories[at]
    }

    /// Partitions that could not be opened, and why.
    pub fn unopened(&self) -> Vec<(TopicPartition, String)> {
        self.unopened.lock().iter().map(|(name, reason)| (name.clone(), reason.clone())).collect()
    }

    /// Directories that are offline, and why.
    pub fn offline(&self) -> Vec<(PathBuf, String)> {
        let offline = self.directories.iter().filter(|directory| directory.is_offline());
        offline
            .map(|directory| {
                let reason = directory.failure.lock().clone().unwrap_or_default();
                (directory.path().to_owned(), reason)
            })
            .collect()
    }

    /// Directories that take no appends for lack of room.
    pub fn full(&self) -> Vec<PathBuf> {
        let full = self.directories.iter().filter(|directory| directory.room.is_full());
        full.map(|directory| directory.path().to_owned()).collect()
    }

    /// Opens a partition's log, or makes one where there are fewest.
    pub fn open(
        &self,
        name: &TopicPartition,
        topic_id: TopicId,
        config: &Arc<LogConfig>,
        now: Timestamp,
    ) -> Result<Opened, StorageError> {
        let at = match self.find(name, topic_id)? {
            Some(at) => at,
            None => self.emptiest(),
        };
        let directory = &self.directories[at];
        let opening = directory.loading.opening(name, now);
        let path = directory.dir.partition_dir(name);
        let log = Log::open(Arc::clone(&self.disk), path, Arc::clone(config), opening)?;
        directory.dir.store_topic_id(name, topic_id)?;
        if let Some(recovery) = log.recovery() {
            tell_recovery(name, &log, recovery);
        }
        let checkpointed = directory.loading.high_watermarks.get(name).copied();
        self.unopened.lock().remove(name);
        let home = Home { directory: at, partition: Weak::new() };
        self.homes.lock().insert((topic_id, name.partition.0), home);
        let sync_queue = Arc::clone(&directory.sync_queue);
        Ok(Opened { log, high_watermark: checkpointed.unwrap_or(Offset(0)), sync_queue })
    }

    /// Where the partition's directory is. One that belongs to an earlier topic of the same name is
    /// put out of the way.
    fn find(
        &self,
        name: &TopicPartition,
        topic_id: TopicId,
    ) -> Result<Option<usize>, StorageError> {
        for (at, directory) in self.directories.iter().enumerate() {
            if directory.loading.partitions.binary_search(name).is_err()
                || !self.disk.exists(&directory.dir.partition_dir(name))
            {
                continue;
            }
            // An id that cannot be read was never synced, so neither was any record.
            let found = directory.dir.topic_id(name).ok().flatten();
            match found {
                Some(found) if found != topic_id => {
                    warn!(partition = %name, "put aside the log of a deleted topic of the same name");
                    let aside = directory.dir.discard(name, random_id())?;
                    self.leftovers.lock().push((at, aside));
                }
                _ => return Ok(Some(at)),
            }
        }
        Ok(None)
    }

    fn emptiest(&self) -> usize {
        let homes = self.homes.lock();
        let mut counts = vec![0usize; self.directories.len()];
        homes.values().for_each(|home| counts[home.directory] += 1);
        let online = (0..counts.len()).filter(|at| !self.directories[*at].is_offline());
        online.min_by_key(|at| counts[*at]).unwrap_or(0)
    }

    /// Remembers the partition that owns a log that was opened.
    pub fn register(&self, partition: &Arc<Partition>) {
        if let Some(home) = self.homes.lock().get_mut(&key_of(partition)) {
            home.partition = Arc::downgrade(partition);
            partition.set_writable(!self.directories[home.directory].room.is_full());
        }
    }

    /// Remembers that a partition could not be opened.
    pub fn note_offline(&self, name: &TopicPartition, cause: &dyn std::fmt::Display) {
        self.unopened.lock().insert(name.clone(), cause.to_string());
    }

    /// The disk failed under `partition`: its directory goes offline with all that is in it.
    pub fn fail(&self, partition: &Partition, cause: &dyn std::fmt::Display) {
        let (at, members) = {
            let homes = self.homes.lock();
            let Some(home) = homes.get(&key_of(partition)) else { return };
            let at = home.directory;
            let here = homes.values().filter(|home| home.directory == at);
            (at, here.filter_map(|home| home.partition.upgrade()).collect::<Vec<_>>())
        };
        let directory = &self.directories[at];
        if directory.offline.swap(true, Ordering::AcqRel) {
            return;
        }
        error!(
            directory = %directory.path().display(),
            partition = %partition.topic_partition(),
            %cause,
            "the disk failed; the log directory is offline until the broker is started again"
        );
        *directory.failure.lock() = Some(cause.to_string());
        members.iter().for_each(|member| member.fail());
    }

    /// Puts the files of a deleted partition out of the way; a chore removes them later.
    pub fn delete(&self, partition: &Partition) {
        let Some(home) = self.homes.lock().remove(&key_of(partition)) else { return };
        let directory = &self.directories[home.directory];
        match directory.dir.discard(partition.topic_partition(), random_id()) {
            Ok(aside) => self.leftovers.lock().push((home.directory, aside)),
            Err(cause) => {
                error!(partition = %partition.topic_partition(), %cause, "cannot put a deleted log aside");
            }
        }
    }

    /// Removes what nobody needs any more.
    pub fn empty_trash(&self) {
        self.trash.empty(&*self.disk);
        let leftovers = std::mem::take(&mut *self.leftovers.lock());
        for (at, path) in leftovers {
            if let Err(cause) = self.directories[at].dir.remove_leftover(&path) {
                warn!(path = %path.display(), %cause, "cannot remove the files of a deleted partition");
                self.leftovers.lock().push((at, path));
            }
        }
    }

    fn collect_leftovers(&self) {
        let mut leftovers = self.leftovers.lock();
        for (at, directory) in self.directories.iter().enumerate() {
            leftovers.extend(directory.loading.leftovers.iter().map(|path| (at, path.clone())));
        }
    }

    fn members(&self) -> Vec<(usize, Arc<Partition>)> {
        let homes = self.homes.lock();
        let alive =
            homes.values().filter_map(|home| Some((home.directory, home.partition.upgrade()?)));
        alive.collect()
    }

    /// Writes the checkpoint files of all directories that are online.
    pub fn checkpoint(&self) {
        let members = self.members();
        for (at, directory) in self.directories.iter().enumerate() {
            let here =
                members.iter().filter(|(home, _)| *home == at).map(|(_, partition)| partition);
            let here: Vec<_> = here.collect();
            if directory.is_offline() {
                continue;
            }
            if let Err(cause) = directory.checkpoint(&here) {
                match here.first() {
                    Some(partition) if cause.is_fatal() => self.fail(partition, &cause),
                    Some(_) => warn!(%cause, "checkpoints are written later"),
                    None => error!(%cause, "cannot write checkpoints"),
                }
            }
        }
    }

    /// Closes all logs and leaves the marker of a clean stop. Nothing may append any more.
    pub fn close(&self, broker_epoch: BrokerEpoch) {
        let clean: Vec<AtomicBool> =
            self.directories.iter().map(|_| AtomicBool::new(true)).collect();
        let members = self.members();
        let share = members.len().div_ceil(CLOSING_THREADS).max(1);
        // Several at once: the file system merges the commits of their syncs.
        std::thread::scope(|scope| {
            for part in members.chunks(share) {
                scope.spawn(|| part.iter().for_each(|(at, log)| close(log, &clean[*at])));
            }
        });
        self.checkpoint();
        for (directory, clean) in self.directories.iter().zip(clean) {
            if directory.is_offline() || !clean.into_inner() {
                continue;
            }
            if let Err(cause) = directory.dir.mark_clean(broker_epoch) {
                error!(directory = %directory.path().display(), %cause, "cannot mark the stop as clean");
            }
        }
    }
}

impl SyncObserver for Logs {
    fn sync_failed(&self, partition: &Arc<Partition>, cause: &PartitionError) {
        // The files of a deleted partition may be gone under a sync.
        if partition.status() != Status::Deleted {
            self.fail(partition, cause);
        }
    }

    fn round_ended(&self, directory: usize, synced: &[Synced]) {
        trace!(directory, partitions = synced.len(), "synced");
    }
}

fn close(partition: &Partition, clean: &AtomicBool) {
    if let Err(cause) = partition.maintain(|log, _| log.close()) {
        error!(partition = %partition.topic_partition(), %cause, "cannot close the log");
        clean.store(false, Ordering::Release);
    }
}

/// Says what recovery cut off. Whole batches behind the cut are usual after a power failure, for the
/// device takes sectors in any order; after the mere death of the process they are not.
fn tell_recovery(name: &TopicPartition, log: &Log, recovery: &Recovery) {
    let (end, bytes) = (log.log_end_offset(), recovery.cut_bytes);
    let (segments, whole) = (recovery.dropped_segments, recovery.cut_whole_batches);
    if let Some(damage) = &recovery.set_aside {
        warn!(partition = %name, log_end = %end, bytes, segments, ?damage, "recovery set damaged records aside; the log ends before them");
    } else if whole || segments > 0 {
        warn!(partition = %name, log_end = %end, bytes, segments, whole_batches = whole, "recovery cut more than an incomplete batch: nothing from the log end on was known to be synced; without a power failure before, check the disk");
    } else if bytes > 0 {
        info!(partition = %name, log_end = %end, bytes, "recovery cut an incomplete tail");
    }
}

fn key_of(partition: &Partition) -> (TopicId, i32) {
    (partition.topic_id(), partition.topic_partition().partition.0)
}

fn open_directory(
    lock: DirLock,
    dir: LogDir,
    meta: Option<MetaProperties>,
    node_id: BrokerId,
    cluster_id: &str,
) -> Result<Directory, LogsError> {
    let path = || dir.path().to_owned();
    let id = match meta {
        Some(meta) if meta.node_id != node_id => {
            return Err(LogsError::OtherNode {
                path: path(),
                found: meta.node_id,
                configured: node_id,
            });
        }
        Some(meta) if meta.cluster_id != cluster_id => {
            let (found, configured) = (meta.cluster_id, cluster_id.to_owned());
            return Err(LogsError::OtherCluster { path: path(), found, configured });
        }
        Some(meta) => meta.directory_id,
        None => {
            let directory_id = random_id();
            let cluster_id = cluster_id.to_owned();
            dir.store_meta_properties(&MetaProperties { node_id, cluster_id, directory_id })?;
            directory_id
        }
    };
    let loading = dir.begin_loading()?;
    let room = Room::of(dir.path());
    Ok(Directory {
        room,
        dir,
        id,
        loading,
        offline: AtomicBool::new(false),
        failure: Mutex::default(),
        checkpointing: Mutex::default(),
        sync_queue: Arc::default(),
        _lock: lock,
    })
}

impl Directory {
    fn checkpoint(&self, partitions: &[&Arc<Partition>]) -> Result<(), StorageError> {
        let _writing = self.checkpointing.lock();
        let (mut recovery, mut start) = (Offsets::new(), Offsets::new());
        let (mut committed, mut cleaned) = (Offsets::new(), Offsets::new());
        for partition in partitions {
            let name = partition.topic_partition();
            partition.with_log(|log| {
                recovery.insert(name.clone(), log.recovery_point());
                start.insert(name.clone(), log.log_start_offset());
                if log.cleaned_below() > Offset(0) {
                    cleaned.insert(name.clone(), log.cleaned_below());
                }
            });
            committed.insert(name.clone(), partition.high_watermark());
        }
        self.dir.store_offsets(checkpoint::LOG_START, &start)?;
        self.dir.store_offsets(checkpoint::HIGH_WATERMARK, &committed)?;
        self.dir.store_offsets(checkpoint::CLEANER, &cleaned)?;
        self.dir.store_offsets(checkpoint::RECOVERY_POINT, &recovery)
    }
}
