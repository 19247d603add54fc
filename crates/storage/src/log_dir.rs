//! A log directory: the place of many partitions, with what belongs to all of them.
//!
//! ```text
//! .lock                                 held by the process that owns the directory
//! meta.properties                       whose directory this is
//! .kafka_cleanshutdown                  the last stop was clean; gone while the broker runs
//! *-checkpoint                          offsets of all partitions (`checkpoint.rs`)
//! orders-0/  orders-1/                  partitions
//! orders-2.<id>-delete/                 a partition on its way out
//! ```
//!
//! Not here: what is in a partition's directory (`log/`), and when checkpoints are written.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{BrokerEpoch, BrokerId, Offset, Timestamp, TopicId, TopicPartition, Uuid};

use crate::checkpoint::{self, Offsets};
use crate::disk::{Disk, OpenMode};
use crate::error::Context;
use crate::names::PARTITION_METADATA;
use crate::{Log, Opening, StorageError};

const LOCK: &str = ".lock";
const META: &str = "meta.properties";
const CLEAN_MARKER: &str = ".kafka_cleanshutdown";
/// Behind the name of a partition's directory that is to be removed.
const DELETED_DIR: &str = "-delete";
/// The longest name of a directory that common file systems take, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Why a log directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error(
        "another process uses the log directory {}; stop it, or configure another directory", .0.display()
    )]
    Held(PathBuf),
    /// The lock file cannot be made or locked.
    #[error("cannot lock the log directory {}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
}

/// The exclusive right to a log directory, for as long as it lives.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

impl DirLock {
    /// Takes the lock of a directory, which is made if need be. Does not wait.
    pub fn acquire(dir: &Path) -> Result<DirLock, LockError> {
        let failed = |error| LockError::Io(dir.to_owned(), error);
        std::fs::create_dir_all(dir).map_err(failed)?;
        let options = File::options().create(true).truncate(false).write(true).clone();
        let file = options.open(dir.join(LOCK)).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(DirLock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(LockError::Held(dir.to_owned())),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

/// Whose log directory this is (`meta.properties`, version 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    /// The broker, `node.id`.
    pub node_id: BrokerId,
    /// The cluster, `cluster.id`.
    pub cluster_id: String,
    /// The directory itself, `directory.id` (KIP-858).
    pub directory_id: Uuid,
}

impl MetaProperties {
    fn encode(&self) -> String {
        let MetaProperties { node_id, cluster_id, directory_id } = self;
        format!(
            "version=1\nnode.id={node_id}\ncluster.id={cluster_id}\ndirectory.id={directory_id}\n"
        )
    }

    fn decode(text: &str) -> Result<MetaProperties, String> {
        let of = |key: &str| {
            let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
            let mut values = lines.filter_map(|line| line.split_once('='));
            let value = values.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim());
            value.ok_or(format!("{key} is missing"))
        };
        if of("version")? != "1" {
            return Err("only version 1 is known".to_owned());
        }
        let node_id = of("node.id")?.parse().map_err(|_| "node.id is no number".to_owned())?;
        let directory_id = of("directory.id")?.parse().map_err(|e| format!("directory.id: {e}"))?;
        let cluster_id = of("cluster.id")?.to_owned();
        Ok(MetaProperties { node_id: BrokerId(node_id), cluster_id, directory_id })
    }
}

/// What a log directory held when its logs began to be loaded.
#[derive(Clone, Debug, Default)]
pub struct Loading {
    /// The last stop was clean: every log may be opened so.
    pub clean: bool,
    /// The incarnation of the broker that stopped cleanly, if it said so (KIP-966).
    pub broker_epoch: Option<BrokerEpoch>,
    /// The partitions that have a directory, in order.
    pub partitions: Vec<TopicPartition>,
    /// Directories of partitions that were being deleted; to be removed.
    pub leftovers: Vec<PathBuf>,
    /// Below them nothing needs recovery.
    pub recovery_points: Offsets,
    /// Where logs start that do not start with their first segment.
    pub log_starts: Offsets,
    /// High watermarks when they were last written.
    pub high_watermarks: Offsets,
    /// Below them logs were compacted.
    pub cleaned: Offsets,
}

impl Loading {
    /// How a partition's log is to be opened.
    pub fn opening(&self, partition: &TopicPartition, now: Timestamp) -> Opening {
        let of = |offsets: &Offsets| offsets.get(partition).copied().unwrap_or(Offset(0));
        Opening {
            clean: self.clean,
            recovery_point: of(&self.recovery_points),
            log_start_offset: of(&self.log_starts),
            cleaned_below: of(&self.cleaned),
            ..Opening::unknown(now)
        }
    }
}

/// A directory of partitions.
#[derive(Clone, Debug)]
pub struct LogDir {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl LogDir {
    /// The log directory at `path`, which is made if need be.
    pub fn new(disk: Arc<dyn Disk>, path: PathBuf) -> Result<LogDir, StorageError> {
        if !disk.exists(&path) {
            disk.create_dir_all(&path).during("create", &path)?;
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                disk.sync_dir(parent).during("sync", parent)?;
            }
        }
        Ok(LogDir { disk, path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The disk it is on.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Where a partition's log is or would be. The topic's name must have been validated.
    pub fn partition_dir(&self, partition: &TopicPartition) -> PathBuf {
        self.path.join(partition.to_string())
    }

    /// Whose directory it is; `None` if nobody has said so yet.
    pub fn meta_properties(&self) -> Result<Option<MetaProperties>, StorageError> {
        let path = self.path.join(META);
        match read_text(&*self.disk, &path)? {
            None => Ok(None),
            Some(text) => MetaProperties::decode(&text)
                .map(Some)
                .map_err(|reason| StorageError::Malformed { path, reason }),
        }
    }

    /// Says whose directory it is, durably.
    pub fn store_meta_properties(&self, meta: &MetaProperties) -> Result<(), StorageError> {
        self.write(META, meta.encode().as_bytes())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StorageError> {
        let path = self.path.join(name);
        self.disk.write_atomically(&path, bytes).during("write", &path)
    }

    /// Finds out what is there to be loaded. From here on the directory does not count as cleanly
    /// stopped: the marker is gone, durably, before any log is touched (S11).
    pub fn begin_loading(&self) -> Result<Loading, StorageError> {
        let mut loading = Loading::default();
        let marker = self.path.join(CLEAN_MARKER);
        if let Some(text) = read_text(&*self.disk, &marker)? {
            loading.clean = true;
            loading.broker_epoch = marked_epoch(&text);
            self.disk.remove_file(&marker).during("remove", &marker)?;
            self.disk.sync_dir(&self.path).during("sync", &self.path)?;
        }
        for name in self.disk.list(&self.path).during("list", &self.path)? {
            if name.ends_with(DELETED_DIR) {
                loading.leftovers.push(self.path.join(name));
            } else if let Some(partition) = partition_of(&name) {
                loading.partitions.push(partition);
            }
        }
        loading.partitions.sort();
        loading.recovery_points = self.offsets(checkpoint::RECOVERY_POINT)?;
        loading.log_starts = self.offsets(checkpoint::LOG_START)?;
        loading.high_watermarks = self.offsets(checkpoint::HIGH_WATERMARK)?;
        loading.cleaned = self.offsets(checkpoint::CLEANER)?;
        Ok(loading)
    }

    /// A checkpoint file that makes no sense is as good as none: everything is recovered then.
    fn offsets(&self, name: &str) -> Result<Offsets, StorageError> {
        match checkpoint::load(&*self.disk, &self.path, name) {
            Err(StorageError::Malformed { .. }) => Ok(Offsets::new()),
            other => other,
        }
    }

    /// Replaces one of the checkpoint files, durably and atomically.
    pub fn store_offsets(&self, name: &str, offsets: &Offsets) -> Result<(), StorageError> {
        checkpoint::store(&*self.disk, &self.path, name, offsets)
    }

    /// Says that everything was stopped cleanly: to be called when every log is closed and the
    /// checkpoints are written, and not at all if one of them failed.
    pub fn mark_clean(&self, broker_epoch: BrokerEpoch) -> Result<(), StorageError> {
        let text = format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}");
        self.write(CLEAN_MARKER, text.as_bytes())
    }

    /// The topic id in a partition's directory (`partition.metadata`); `None` if there is none.
    pub fn topic_id(&self, partition: &TopicPartition) -> Result<Option<TopicId>, StorageError> {
        let path = self.partition_dir(partition).join(PARTITION_METADATA);
        let Some(text) = read_text(&*self.disk, &path)? else { return Ok(None) };
        let mut lines = text.lines();
        let id = match (lines.next(), lines.next()) {
            (Some("version: 0"), Some(line)) => line.strip_prefix("topic_id: "),
            _ => None,
        };
        match id.and_then(|id| id.trim().parse().ok()) {
            Some(id) => Ok(Some(id)),
            None => Err(StorageError::Malformed { path, reason: "it holds no topic id".into() }),
        }
    }

    /// Writes the topic id into a partition's directory, which must exist. It becomes durable
    /// together with the first records: a new log's first sync includes it.
    pub fn store_topic_id(
        &self,
        partition: &TopicPartition,
        id: TopicId,
    ) -> Result<(), StorageError> {
        let path = self.partition_dir(partition).join(PARTITION_METADATA);
        let text = format!("version: 0\ntopic_id: {id}\n");
        let file = self.disk.open(&path, OpenMode::Create).during("create", &path)?;
        file.truncate(0).during("truncate", &path)?;
        file.write_all_at(text.as_bytes(), 0).during("write", &path)
    }

    /// Puts the directory of a deleted partition out of the way, durably; returns where it is now,
    /// for [`LogDir::remove_leftover`]. Those who still read its files go on reading.
    pub fn discard(
        &self,
        partition: &TopicPartition,
        unique: Uuid,
    ) -> Result<PathBuf, StorageError> {
        discard(&*self.disk, &self.partition_dir(partition), unique)
    }

    /// Removes a directory of a deleted partition, with all that is in it.
    pub fn remove_leftover(&self, path: &Path) -> Result<(), StorageError> {
        assert!(path.parent() == Some(&self.path), "it lies in this log directory");
        self.disk.remove_dir_all(path).during("remove", path)
    }
}

impl Log {
    /// Takes the log out of its log directory: the partition's directory gets a name that no
    /// partition has, durably. The new path is returned, to be removed after
    /// `file.delete.delay.ms`. `unique` keeps it apart from those of its namesakes.
    pub fn delete(self, unique: Uuid) -> Result<PathBuf, StorageError> {
        discard(&*self.home.disk, self.dir(), unique)
    }
}

/// Gives a partition's directory its name on the way out, durably; returns the new path.
fn discard(disk: &dyn Disk, dir: &Path, unique: Uuid) -> Result<PathBuf, StorageError> {
    let name = dir.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.expect("a partition's directory has a name");
    let parent = dir.parent().expect("a partition's directory is in a log directory");
    let to = parent.join(deleted_name(&name, unique));
    disk.rename(dir, &to).during("rename", dir)?;
    disk.sync_dir(parent).during("sync", parent)?;
    Ok(to)
}

fn deleted_name(name: &str, unique: Uuid) -> String {
    let (topic, partition) = name.rsplit_once('-').unwrap_or((name, "0"));
    let id: String = unique.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let end = format!("-{partition}.{id}{DELETED_DIR}");
    let topic = &topic[..topic.len().min(NAME_BYTES_MAX - end.len())];
    format!("{topic}{end}")
}

/// The partition that a directory of this name holds.
fn partition_of(name: &str) -> Option<TopicPartition> {
    let (topic, number) = name.rsplit_once('-')?;
    model::topic_name::validate(topic).ok()?;
    let partition = number.parse::<i32>().ok()?;
    let partition = TopicPartition::new(topic, partition);
    (partition.to_string() == name).then_some(partition)
}

/// The broker epoch in a clean marker; older ones hold none.
fn marked_epoch(text: &str) -> Option<BrokerEpoch> {
    let after = text.split_once("\"brokerEpoch\":")?.1.trim_start();
    let end = after.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(after.len());
    after[..end].parse().ok().map(BrokerEpoch)
}

fn read_text(disk: &dyn Disk, path: &Path) -> Result<Option<String>, StorageError> {
    match disk.read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).during("read", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LogConfig;
    use crate::disk::RealDisk;

    fn log_dir(dir: &Path) -> LogDir {
        LogDir::new(Arc::new(RealDisk), dir.to_owned()).unwrap()
    }

    #[test]
    fn a_second_owner_is_told_plainly() {
        let dir = tempfile::tempdir().unwrap();
        let lock = DirLock::acquire(dir.path()).unwrap();
        let refused = DirLock::acquire(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("another process uses the log directory"), "{refused}");
        drop(lock);
        DirLock::acquire(dir.path()).unwrap();
    }

    #[test]
    fn the_clean_marker_is_good_for_one_start() {
        let dir = tempfile::tempdir().unwrap();
        let log_dir = log_dir(dir.path());
        assert!(!log_dir.begin_loading().unwrap().clean);
        log_dir.mark_clean(BrokerEpoch(12)).unwrap();
        let text = std::fs::read_to_string(dir.path().join(".kafka_cleanshutdown")).unwrap();
        assert_eq!(text, "{\"version\":0,\"brokerEpoch\":12}", "as Kafka writes it");
        let loading = log_dir.begin_loading().unwrap();
        assert_eq!((loading.clean, loading.broker_epoch), (true, Some(BrokerEpoch(12))));
        assert!(!log_dir.begin_loading().unwrap().clean);
    }

    #[test]
    fn partitions_and_leftovers_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let log_dir = log_dir(dir.path());
        let open = |name: &str| {
            let path = dir.path().join(name);
            let opening = Opening::unknown(Timestamp(0));
            Log::open(Arc::new(RealDisk), path, Arc::new(LogConfig::default()), opening).unwrap()
        };
        open("a.b-0");
        open("with-dash-12");
        let left = open("gone-3").delete(Uuid([0xab; 16])).unwrap();
        for other in ["no-partition-x", "x--1", "y-007", "plain", ".."] {
            let _ = std::fs::create_dir(dir.path().join(other));
        }
        let mut offsets = Offsets::new();
        offsets.insert(TopicPartition::new("a.b", 0), Offset(5));
        log_dir.store_offsets(checkpoint::RECOVERY_POINT, &offsets).unwrap();
        let loading = log_dir.begin_loading().unwrap();
        let expected = [TopicPartition::new("a.b", 0), TopicPartition::new("with-dash", 12)];
        assert_eq!(loading.partitions[..2], expected);
        assert_eq!(loading.leftovers, std::slice::from_ref(&left));
        assert!(left.ends_with(format!("gone-3.{}-delete", "ab".repeat(16))));
        assert_eq!(loading.opening(&expected[0], Timestamp(1)).recovery_point, Offset(5));
        assert_eq!(loading.opening(&expected[1], Timestamp(1)).recovery_point, Offset(0));
        log_dir.remove_leftover(&left).unwrap();
        assert!(log_dir.begin_loading().unwrap().leftovers.is_empty());
        assert!(deleted_name(&format!("{}-0", "t".repeat(249)), Uuid([1; 16])).len() <= 255);
    }

    #[test]
    fn identities_and_back() {
        let dir = tempfile::tempdir().unwrap();
        let log_dir = log_dir(dir.path());
        assert_eq!(log_dir.meta_properties().unwrap(), None);
        let meta = MetaProperties {
            node_id: BrokerId(7),
            cluster_id: "KXTdOubuy3EwLD2kuE7f4g".to_owned(),
            directory_id: Uuid([9; 16]),
        };
        log_dir.store_meta_properties(&meta).unwrap();
        assert_eq!(log_dir.meta_properties().unwrap(), Some(meta));
        std::fs::write(dir.path().join("meta.properties"), "#x\nversion=0\n").unwrap();
        assert!(log_dir.meta_properties().is_err());

        let partition = TopicPartition::new("t", 0);
        std::fs::create_dir(log_dir.partition_dir(&partition)).unwrap();
        assert_eq!(log_dir.topic_id(&partition).unwrap(), None);
        log_dir.store_topic_id(&partition, Uuid([3; 16])).unwrap();
        assert_eq!(log_dir.topic_id(&partition).unwrap(), Some(Uuid([3; 16])));
        let file = log_dir.partition_dir(&partition).join("partition.metadata");
        std::fs::write(&file, "version: 0\ntopic_id: 49ViXu6RTeuzS7qOB5KV1A").unwrap();
        assert_eq!(
            log_dir.topic_id(&partition).unwrap().unwrap().to_string(),
            "49ViXu6RTeuzS7qOB5KV1A"
        );
    }
}
