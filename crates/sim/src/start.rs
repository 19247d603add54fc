//! How a broker comes up and goes down cleanly: markers, checkpoints, logs, in the order that S11 asks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use model::{
    BrokerEpoch, BrokerId, Durability, Moment, Offset, Timestamp, TopicId, TopicPartition, Uuid,
};
use partition::{Assignment, Partition, Settings, SyncQueue};
use storage::checkpoint;
use storage::disk::{Disk, SimDisk};
use storage::log_dir::{Loading, LogDir};
use storage::{CleanupPolicy, Log, LogConfig, Opening, StorageError};

use crate::cluster::{checkpoint_name_of, key_of, name_of, read_all};
use crate::controller::{BROKER, Controller};
use crate::message::PartitionId;
use crate::plan::PARTITIONS;

pub(crate) const TOPIC: &str = "t";
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";
/// The one partition in which groups store offsets.
pub(crate) const OFFSETS: PartitionId = PARTITIONS;

pub(crate) const LOG_DIR: &str = "data";
/// The other log directory of a machine that has two.
pub(crate) const SECOND_LOG_DIR: &str = "more";

/// Segments so small that all that happens to segments happens often.
fn settings(partition: PartitionId) -> Arc<Settings> {
    let compact = partition == OFFSETS;
    let log = LogConfig {
        segment_bytes: 4_000,
        segment_index_bytes: 400,
        index_interval_bytes: 300,
        retention_ms: -1,
        retention_bytes: if compact { -1 } else { 60_000 },
        cleanup: CleanupPolicy { delete: !compact, compact },
        min_cleanable_dirty_ratio: 0.2,
        ahead_bytes: 1_500,
        ahead_after_syncs: 2,
        ..LogConfig::default()
    };
    Arc::new(Settings { log: Arc::new(log), ..Settings::default() })
}

pub(crate) fn topic_partition(partition: PartitionId) -> TopicPartition {
    match partition {
        OFFSETS => TopicPartition::new(OFFSETS_TOPIC, 0),
        partition => TopicPartition::new(TOPIC, partition as i32),
    }
}

/// Makes the log directory on an empty disk.
pub(crate) fn format(disk: &SimDisk) {
    disk.create_dir_all(Path::new(LOG_DIR)).expect("an empty disk takes a directory");
    disk.sync_dir(Path::new("")).expect("an empty disk syncs its root");
}

/// Whose replica a partition is, and the names of its folder and of its offsets in checkpoint files.
struct Replica {
    me: BrokerId,
    topic_id: TopicId,
    folder: TopicPartition,
    checkpoint: TopicPartition,
}

impl Replica {
    /// The replica of a broker among several.
    fn of(me: BrokerId, at: PartitionId) -> Replica {
        let (folder, checkpoint) = (name_of(at), checkpoint_name_of(at));
        Replica { me, topic_id: key_of(at).topic_id, folder, checkpoint }
    }
}

/// What replicas of several brokers obey: segments so small that all that happens to them happens often, and
/// `retention_bytes` (-1: no retention).
pub(crate) fn cluster_settings(
    durability: Durability,
    min_insync_replicas: usize,
    retention_bytes: i64,
    lag_ms: u64,
) -> Arc<Settings> {
    let log = LogConfig { retention_bytes, ..LogConfig::clone(&settings(0).log) };
    Arc::new(Settings {
        log: Arc::new(log),
        durability,
        min_insync_replicas,
        replica_lag_max: Duration::from_millis(lag_ms),
        ..Settings::default()
    })
}

/// What a broker's log directory held when its process began.
pub(crate) struct OpenedReplicas {
    pub(crate) partitions: BTreeMap<PartitionId, Arc<Partition>>,
    /// Bounds of truncations that the process before stored, as far as their records are there.
    pub(crate) bounds: BTreeMap<PartitionId, Offset>,
    /// Whether the process before stopped cleanly.
    pub(crate) clean: bool,
    /// As which registration, if it did.
    pub(crate) stopped_in: Option<BrokerEpoch>,
    /// Replicas that had no folder.
    pub(crate) made_anew: Vec<PartitionId>,
}

/// Takes a partition's folder away, on the disk of a machine whose broker does not run.
pub(crate) fn remove_folder(disk: &SimDisk, partition: PartitionId) {
    for dir in [LOG_DIR, SECOND_LOG_DIR] {
        remove_replica(disk, Path::new(dir), &name_of(partition));
    }
}

/// Whether the first log directory has a partition's folder.
pub(crate) fn is_in_first(disk: &SimDisk, partition: PartitionId) -> bool {
    disk.exists(&Path::new(LOG_DIR).join(name_of(partition).to_string()))
}

/// Takes a partition's folder out of the second log directory, before a process opens it.
pub(crate) fn remove_from_second(disk: &SimDisk, partition: PartitionId) {
    remove_replica(disk, Path::new(SECOND_LOG_DIR), &name_of(partition));
}

/// Whether all batches of a replica are there: the product's journal knows the sizes of segments, and its start compares.
fn is_whole(partition: &Partition, begins: Offset) -> bool {
    partition.with_log(Log::log_start_offset) == begins && read_all(partition, begins).is_ok()
}

fn remove_replica(disk: &dyn Disk, log_dir: &Path, name: &TopicPartition) {
    let dir = log_dir.join(name.to_string());
    if disk.exists(&dir) {
        disk.remove_dir_all(&dir).expect("a healthy disk removes a folder");
        disk.sync_dir(log_dir).expect("a healthy disk syncs");
    }
}

/// Where a broker among several notes which processes had its directory; the real one has its journal for that.
const PROCESSES: &str = "processes";

/// Notes that a process has the directory, durably; returns which ones had it before, from the last one on that is known to
/// have been registered: none if that is not known.
pub(crate) fn begin_process(disk: &SimDisk, log_dir: &str, process: Uuid) -> Vec<Uuid> {
    let mut noted = processes_in(disk, log_dir);
    if noted.is_empty() {
        noted.push(Uuid::ZERO);
    }
    let before = noted.clone();
    noted.push(process);
    note_processes(disk, log_dir, &noted);
    if before[0] == Uuid::ZERO { Vec::new() } else { before }
}

/// The processes that a disk notes.
pub(crate) fn noted_processes(disk: &SimDisk) -> Vec<Uuid> {
    processes_in(disk, LOG_DIR)
}

fn processes_in(disk: &SimDisk, log_dir: &str) -> Vec<Uuid> {
    let bytes = disk.read(&Path::new(log_dir).join(PROCESSES)).unwrap_or_default();
    bytes.chunks_exact(16).map(|id| Uuid(id.try_into().expect("16 bytes"))).collect()
}

/// Notes that a process was registered.
pub(crate) fn join_process(disk: &SimDisk, log_dir: &str, process: Uuid) {
    note_processes(disk, log_dir, &[process]);
}

fn note_processes(disk: &SimDisk, log_dir: &str, processes: &[Uuid]) {
    let bytes: Vec<u8> = processes.iter().flat_map(|process| process.0).collect();
    let path = Path::new(log_dir).join(PROCESSES);
    disk.write_atomically(&path, &bytes).expect("a healthy disk takes a small file");
}

/// Where a broker among several stores the mark of its directory; the real one has its journal for that.
const MARK: &str = "mark";

/// The mark of the directory; 0 for none.
pub(crate) fn read_mark(disk: &SimDisk) -> u64 {
    let bytes = disk.read(&Path::new(LOG_DIR).join(MARK)).unwrap_or_default();
    bytes.try_into().map_or(0, u64::from_be_bytes)
}

/// Stores the mark of the directory, durably. An earlier mark that is stored late does not lower it: of several marks in a
/// journal the greatest counts.
pub(crate) fn store_mark(disk: &SimDisk, mark: u64) -> std::io::Result<()> {
    let mark = mark.max(read_mark(disk));
    disk.write_atomically(&Path::new(LOG_DIR).join(MARK), &mark.to_be_bytes())
}

/// Where a broker among several stores the bounds of its replicas; the real one has its journal for that.
const BOUNDS: &str = "bounds";

fn read_bounds(dir: &LogDir) -> BTreeMap<PartitionId, Offset> {
    let bytes = dir.disk().read(&dir.path().join(BOUNDS)).unwrap_or_default();
    let number = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().expect("8 bytes"));
    let bound = |entry: &[u8]| (number(&entry[..8]) as PartitionId, Offset(number(&entry[8..])));
    bytes.chunks_exact(16).map(bound).collect()
}

/// A log directory of the broker.
#[derive(Debug)]
pub(crate) struct LogDirectory(LogDir);

impl LogDirectory {
    pub(crate) fn new(disk: &SimDisk) -> Result<LogDirectory, StorageError> {
        LogDirectory::at(disk, LOG_DIR)
    }

    /// The log directory with this path.
    pub(crate) fn at(disk: &SimDisk, path: &str) -> Result<LogDirectory, StorageError> {
        LogDir::new(Arc::new(disk.clone()), PathBuf::from(path)).map(LogDirectory)
    }

    /// Opens all partitions as a new process does, and leads them.
    pub(crate) fn open(
        &self,
        controller: &mut Controller,
        sync_queue: &Arc<SyncQueue>,
        now: Timestamp,
    ) -> Result<Vec<Arc<Partition>>, StorageError> {
        let loading = self.0.begin_loading()?;
        let mut partitions = Vec::new();
        for id in 0..=OFFSETS {
            let name = topic_partition(id);
            let of = Replica {
                me: BROKER,
                topic_id: Uuid::from_random([id as u8; 16]),
                folder: name.clone(),
                checkpoint: name,
            };
            partitions.push(self.open_partition(&of, settings(id), &loading, sync_queue, now)?);
        }
        controller.register(now, loading.clean);
        for partition in &partitions {
            let name = partition.topic_partition();
            let image = controller.partition(&name.topic, name.partition.0 as usize);
            partition.assign(Assignment::alone(BROKER, image.leader_epoch), Moment::START);
        }
        Ok(partitions)
    }

    /// Opens the replicas of one broker among several, without a role. Those that a start refuses make it fail, or, behind a
    /// disk that `lied`, are set aside and made anew, as the broker does as soon as they count nowhere.
    pub(crate) fn open_replicas(
        &self,
        me: BrokerId,
        wanted: BTreeSet<PartitionId>,
        lied: bool,
        settings: &Arc<Settings>,
        sync_queue: &Arc<SyncQueue>,
        now: Timestamp,
    ) -> Result<OpenedReplicas, StorageError> {
        let mut loading = self.0.begin_loading()?;
        let (mut partitions, mut recalled) = (BTreeMap::new(), BTreeMap::new());
        let mut made_anew = Vec::new();
        let bounds = read_bounds(&self.0);
        for id in wanted {
            let of = Replica::of(me, id);
            let name = &of.checkpoint;
            let is_there = loading.partitions.contains(&of.folder);
            let open = |loading: &Loading| {
                self.open_partition(&of, Arc::clone(settings), loading, sync_queue, now)
            };
            let begins = loading.log_starts.get(name).copied().unwrap_or(Offset(0));
            let found = if is_there { Some(open(&loading)) } else { None };
            let opened = match found {
                Some(Ok(partition)) if !lied || is_whole(&partition, begins) => partition,
                Some(Err(refusal)) if !lied => return Err(refusal),
                missing_or_damaged => {
                    if missing_or_damaged.is_some() {
                        remove_replica(&**self.0.disk(), self.0.path(), &of.folder);
                    }
                    made_anew.push(id);
                    // What was noted is of a replica that is gone.
                    loading.recovery_points.remove(name);
                    loading.log_starts.remove(name);
                    loading.high_watermarks.remove(name);
                    loading.cleaned.remove(name);
                    open(&loading)?
                }
            };
            let bound = bounds.get(&id).filter(|_| !made_anew.contains(&id)).copied();
            if let Some(bound) = bound {
                opened.recall_committed(bound);
            }
            let end = opened.with_log(|log| log.log_end_offset());
            recalled.insert(id, bound.unwrap_or(Offset(0)).min(end));
            partitions.insert(id, opened);
        }
        if !made_anew.is_empty() {
            // Nor does the next process take the new log for the old one, damaged.
            self.store_offsets_of_replicas(partitions.iter())?;
        }
        let (clean, stopped_in) = (loading.clean, loading.broker_epoch);
        Ok(OpenedReplicas { partitions, bounds: recalled, clean, stopped_in, made_anew })
    }

    /// Makes the log of a partition that is new to a broker among several.
    pub(crate) fn open_new_replica(
        &self,
        me: BrokerId,
        at: PartitionId,
        settings: &Arc<Settings>,
        sync_queue: &Arc<SyncQueue>,
        now: Timestamp,
    ) -> Result<Arc<Partition>, StorageError> {
        let (of, loading) = (Replica::of(me, at), Loading::default());
        self.open_partition(&of, Arc::clone(settings), &loading, sync_queue, now)
    }

    fn open_partition(
        &self,
        of: &Replica,
        settings: Arc<Settings>,
        loading: &Loading,
        sync_queue: &Arc<SyncQueue>,
        now: Timestamp,
    ) -> Result<Arc<Partition>, StorageError> {
        let (name, checkpoint) = (of.folder.clone(), &of.checkpoint);
        let dir = self.0.partition_dir(&name);
        let (disk, config) = (Arc::clone(self.0.disk()), Arc::clone(&settings.log));
        // All of the log was written here, as the product's journal knows: a batch that is missing leaves a gap.
        let opening = Opening { dense_from: Some(Offset(0)), ..loading.opening(checkpoint, now) };
        let log = Log::open(disk, dir, config, opening)?;
        let high_watermark = loading.high_watermarks.get(checkpoint).copied().unwrap_or(Offset(0));
        let queue = Arc::clone(sync_queue);
        Ok(Partition::new(name, of.topic_id, of.me, log, settings, high_watermark, queue))
    }

    /// Stores what a broker stores now and then.
    pub(crate) fn store_offsets_of(
        &self,
        partitions: &[Arc<Partition>],
    ) -> Result<(), StorageError> {
        let named = partitions.iter().map(|it| (it.topic_partition().clone(), &**it));
        self.store_offsets(&named.collect::<Vec<_>>())
    }

    /// The same of a broker among several.
    pub(crate) fn store_offsets_of_replicas<'a>(
        &self,
        partitions: impl Iterator<Item = (&'a PartitionId, &'a Arc<Partition>)>,
    ) -> Result<(), StorageError> {
        let named = partitions.map(|(at, it)| (checkpoint_name_of(*at), &**it));
        self.store_offsets(&named.collect::<Vec<_>>())
    }

    fn store_offsets(&self, named: &[(TopicPartition, &Partition)]) -> Result<(), StorageError> {
        let store = |name, offset: &dyn Fn(&Partition) -> Offset| {
            let of = |(name, p): &(TopicPartition, &Partition)| (name.clone(), offset(p));
            self.0.store_offsets(name, &named.iter().map(of).collect())
        };
        store(checkpoint::RECOVERY_POINT, &|p| p.with_log(Log::recovery_point))?;
        store(checkpoint::LOG_START, &|p| p.with_log(Log::log_start_offset))?;
        store(checkpoint::CLEANER, &|p| p.with_log(Log::cleaned_below))?;
        store(checkpoint::HIGH_WATERMARK, &Partition::high_watermark)
    }

    /// Stores the bounds of all replicas, durably, as the journal does every second.
    pub(crate) fn store_bounds<'a>(
        &self,
        partitions: impl Iterator<Item = (&'a PartitionId, &'a Arc<Partition>)>,
    ) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        for (at, partition) in partitions {
            bytes.extend_from_slice(&(*at as u64).to_be_bytes());
            bytes.extend_from_slice(&partition.high_watermark().0.to_be_bytes());
        }
        self.0.disk().write_atomically(&self.0.path().join(BOUNDS), &bytes)
    }

    /// The last thing of a clean stop of the process that was registered so, when all logs are closed.
    pub(crate) fn mark_clean(&self, epoch: BrokerEpoch) -> Result<(), StorageError> {
        self.0.mark_clean(epoch)
    }
}
