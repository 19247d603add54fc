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

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{BrokerEpoch, Offset, Timestamp, TopicId, TopicPartition, Uuid};

use crate::checkpoint::{self, Offsets};
use crate::disk::removal::Freeing;
use crate::disk::{Disk, FileLock, OpenMode};

use crate::error::Context;
use crate::journal::{Checkpoint, Key, Opened, PartitionState, State};
use crate::names::PARTITION_METADATA;
use crate::{Log, Opening, StorageError};

pub use crate::meta_properties::MetaProperties;

const LOCK: &str = ".lock";
const META: &str = "meta.properties";
const CLEAN_MARKER: &str = ".kafka_cleanshutdown";
/// Behind the name of a partition's directory that is to be removed.
const DELETED_DIR: &str = "-delete";
/// Behind the name of a partition's directory whose topic is not known.
const STRAY_DIR: &str = "-stray";
/// The topic of the quorum's own log, which is no partition of this room.
const METADATA_TOPIC: &str = "__cluster_metadata";
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
    _file: FileLock,
}

impl DirLock {
    /// Takes the lock of a directory, which must exist. Does not wait.
    pub fn acquire(disk: &dyn Disk, dir: &Path) -> Result<DirLock, LockError> {
        match disk.lock(&dir.join(LOCK)) {
            Ok(Some(file)) => Ok(DirLock { _file: file }),
            Ok(None) => Err(LockError::Held(dir.to_owned())),
            Err(error) => Err(LockError::Io(dir.to_owned(), error)),
        }
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

/// A folder in a log directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Its name.
    pub name: String,
    /// The partition that has this name; `None` for one that was put aside.
    pub partition: Option<TopicPartition>,
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
        let is_new = |path: &&Path| !path.as_os_str().is_empty() && !disk.exists(path);
        let made: Vec<PathBuf> = path.ancestors().take_while(is_new).map(Path::to_owned).collect();
        disk.create_dir_all(&path).during("create", &path)?;
        // The name of each directory that was made stands in the one above.
        for parent in made.iter().filter_map(|made| made.parent()) {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            disk.sync_dir(parent).during("sync", parent)?;
        }
        Ok(LogDir { disk, path })
    }

    /// The log directory at `path`, whether it is there or not.
    pub fn at(disk: Arc<dyn Disk>, path: PathBuf) -> LogDir {
        LogDir { disk, path }
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

    /// The owner and the levels of the directory; `None` without the file.
    ///
    /// Fails with [`StorageError::NewerFormat`] if a newer release raised a level.
    pub fn meta_properties(&self) -> Result<Option<MetaProperties>, StorageError> {
        let path = self.path.join(META);
        match read_text(&*self.disk, &path)? {
            None => Ok(None),
            Some(text) => {
                let meta = MetaProperties::decode(&text);
                let meta =
                    meta.map_err(|reason| StorageError::Malformed { path: path.clone(), reason })?;
                meta.check_levels(&path)?;
                Ok(Some(meta))
            }
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

    /// Replaces one of the checkpoint files without waiting for the device: for Kafka's tools, where
    /// the journal is what counts.
    pub fn copy_offsets(&self, name: &str, offsets: &Offsets) -> Result<(), StorageError> {
        self.write_unsynced(name, &checkpoint::text(offsets))
    }

    /// Says to Kafka's tools that everything was stopped cleanly, as [`LogDir::copy_offsets`] does.
    pub fn copy_clean_marker(&self, broker_epoch: BrokerEpoch) -> Result<(), StorageError> {
        self.write_unsynced(CLEAN_MARKER, marker(broker_epoch).as_bytes())
    }

    /// Takes the marker of a clean stop away, if there is one.
    pub fn remove_clean_marker(&self) -> Result<(), StorageError> {
        let path = self.path.join(CLEAN_MARKER);
        match self.disk.remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).during("remove", &path)
            }
            _ => Ok(()),
        }
    }

    fn write_unsynced(&self, name: &str, bytes: &[u8]) -> Result<(), StorageError> {
        let (path, aside) = (self.path.join(name), self.path.join(format!("{name}.tmp")));
        let file = self.disk.open_essential(&aside, OpenMode::Create).during("open", &aside)?;
        file.truncate(0).during("truncate", &aside)?;
        let written = file.write_all_at(bytes, 0).during("write", &aside);
        if written.is_err() {
            // A disk without room is not to be filled by what came to nothing.
            let _ = self.disk.remove_file(&aside);
        }
        written?;
        self.disk.rename(&aside, &path).during("rename", &aside)
    }

    /// What Kafka's files, or those of a version without a journal, say of the partitions here: the
    /// state that the journal begins with. `meta` is `meta.properties` as it will be. A folder whose
    /// topic id cannot be read is not taken over. Changes nothing.
    pub fn adopted(&self, meta: &MetaProperties, now: Timestamp) -> Result<State, StorageError> {
        let marker = read_text(&*self.disk, &self.path.join(CLEAN_MARKER))?;
        let mut state = State {
            closed: marker.is_some(),
            broker_epoch: marker.as_deref().and_then(marked_epoch),
            at: now,
            meta: meta.encode().into_bytes(),
            ..State::default()
        };
        let recovery_points = self.offsets(checkpoint::RECOVERY_POINT)?;
        let log_starts = self.offsets(checkpoint::LOG_START)?;
        let high_watermarks = self.offsets(checkpoint::HIGH_WATERMARK)?;
        let cleaned = self.offsets(checkpoint::CLEANER)?;
        for name in self.folders()?.into_iter().filter_map(|folder| folder.partition) {
            let Ok(Some(topic_id)) = self.topic_id(&name) else { continue };
            let of = |offsets: &Offsets| offsets.get(&name).copied().unwrap_or(Offset(0));
            let mut partition = PartitionState::new(Opened {
                topic: Arc::clone(&name.topic),
                dense_from: None,
                fsync: false,
                image_index: 0,
                mended: false,
            });
            partition.log_start = of(&log_starts);
            partition.checkpoint = Some(Checkpoint {
                recovery_point: of(&recovery_points),
                active: None,
                epoch: model::LeaderEpoch::NONE,
                high_watermark: of(&high_watermarks),
                cleaned_below: of(&cleaned),
                at: now,
            });
            partition.synced = of(&recovery_points);
            // The end is not known: the files of a clean stop are trusted as they stand.
            partition.closed = state.closed.then_some(of(&recovery_points));
            let key = Key { topic_id, partition: name.partition };
            state.partitions.insert(key, Arc::new(partition));
        }
        Ok(state)
    }

    /// Says that everything was stopped cleanly: to be called when every log is closed and the
    /// checkpoints are written, and not at all if one of them failed.
    pub fn mark_clean(&self, broker_epoch: BrokerEpoch) -> Result<(), StorageError> {
        self.write(CLEAN_MARKER, marker(broker_epoch).as_bytes())
    }

    /// The topic id in a partition's directory (`partition.metadata`); `None` if there is none.
    pub fn topic_id(&self, partition: &TopicPartition) -> Result<Option<TopicId>, StorageError> {
        self.topic_id_in(&self.partition_dir(partition))
    }

    /// The topic id in a folder, whatever its name; `None` if there is none.
    pub fn topic_id_in(&self, folder: &Path) -> Result<Option<TopicId>, StorageError> {
        let path = folder.join(PARTITION_METADATA);
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

    /// Writes the topic id into a partition's directory, which must exist, unless it stands there.
    /// For Kafka's tools, and so not durably: the journal knows whose the directory is.
    pub fn copy_topic_id(
        &self,
        partition: &TopicPartition,
        id: TopicId,
    ) -> Result<(), StorageError> {
        if self.topic_id(partition).is_ok_and(|found| found == Some(id)) {
            return Ok(());
        }
        self.store_id_in(&self.partition_dir(partition), id)
    }

    /// Writes the topic id into a folder, which must exist.
    pub(crate) fn store_id_in(&self, folder: &Path, id: TopicId) -> Result<(), StorageError> {
        let path = folder.join(PARTITION_METADATA);
        let text = format!("version: 0\ntopic_id: {id}\n");
        let file = self.disk.open_essential(&path, OpenMode::Create).during("open", &path)?;
        file.truncate(0).during("truncate", &path)?;
        file.write_all_at(text.as_bytes(), 0).during("write", &path)
    }

    /// The names in the directory that are folders of partitions, or were: with what is known of
    /// them from the name alone.
    pub fn folders(&self) -> Result<Vec<Folder>, StorageError> {
        let names = self.disk.list(&self.path).during("list", &self.path)?;
        let folder = |name: String| {
            let partition = partition_of(&name).filter(|found| &*found.topic != METADATA_TOPIC);
            let aside = [DELETED_DIR, STRAY_DIR].iter().any(|end| name.ends_with(end));
            (partition.is_some() || aside).then_some(Folder { name, partition })
        };
        Ok(names.into_iter().filter_map(folder).collect())
    }

    /// The names of all folders in the directory that are a partition's, or that a broker or a tool has
    /// put aside; the quorum's own is none.
    pub fn folders_and_asides(&self) -> Result<Vec<String>, StorageError> {
        let mut names = self.disk.list(&self.path).during("list", &self.path)?;
        names.retain(|name| {
            let partition = partition_of(name).filter(|found| &*found.topic != METADATA_TOPIC);
            partition.is_some() || Aside::parse(name).is_some()
        });
        Ok(names)
    }

    /// Gives a folder of this directory another name, not durably.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        let path = self.path.join(from);
        self.disk.rename(&path, &self.path.join(to)).during("rename", &path)
    }

    /// Makes the names in the directory durable.
    pub fn sync_names(&self) -> Result<(), StorageError> {
        self.disk.sync_dir(&self.path).during("sync", &self.path)
    }

    /// Whether a partition's folder holds no records and never did: a crash interrupted its making.
    pub fn is_without_records(&self, partition: &TopicPartition) -> Result<bool, StorageError> {
        let dir = self.partition_dir(partition);
        let names = self.disk.list(&dir).during("list", &dir)?;
        for name in names.iter().filter(|name| name.ends_with(crate::names::LOG)) {
            let path = dir.join(name);
            let first = crate::names::base_offset(name, crate::names::LOG) == Some(Offset(0));
            if !first || self.disk.size(&path).during("open", &path)? > 0 {
                return Ok(false);
            }
        }
        Ok(!names.iter().any(|name| {
            name.contains('.')
                && !name.ends_with(crate::names::LOG)
                && name != PARTITION_METADATA
                && !name.ends_with(crate::names::TEMPORARY)
        }))
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

    /// Removes a directory of a deleted partition, with all that is in it; see [`Freeing::dir`].
    pub fn remove_leftover(
        &self,
        path: &Path,
        pause: &mut dyn FnMut() -> bool,
    ) -> Result<bool, StorageError> {
        self.free_leftover(path, &mut Freeing::new(&*self.disk, pause))
    }

    /// As [`LogDir::remove_leftover`], among other files that go.
    pub fn free_leftover(
        &self,
        path: &Path,
        freeing: &mut Freeing<'_>,
    ) -> Result<bool, StorageError> {
        assert!(path.parent() == Some(&self.path), "it lies in this log directory");
        freeing.dir(path).during("remove", path)
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

/// The name of a partition's folder on its way out. `unique` keeps it apart from its namesakes.
pub fn deleted_name(name: &str, unique: Uuid) -> String {
    aside_name(name, unique, DELETED_DIR)
}

/// The name of a folder that is put aside because its name is needed and its topic is not known.
pub fn stray_name(name: &str, unique: Uuid) -> String {
    aside_name(name, unique, STRAY_DIR)
}

/// What a folder that is no partition's is, as its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsideKind {
    /// A deleted partition on its way out.
    Deleted,
    /// Put aside because its name was needed.
    Stray,
    /// A partition that is being made by a tool: worth nothing if the tool does not run.
    Building,
    /// A partition that gave way to one made by a tool, which has not finished yet.
    Replaced,
    /// A partition as it was before it was mended.
    BeforeMend,
}

impl AsideKind {
    const ALL: [AsideKind; 5] = [
        AsideKind::Deleted,
        AsideKind::Stray,
        AsideKind::Building,
        AsideKind::Replaced,
        AsideKind::BeforeMend,
    ];

    fn suffix(self) -> &'static str {
        match self {
            AsideKind::Deleted => DELETED_DIR,
            AsideKind::Stray => STRAY_DIR,
            AsideKind::Building => "-building",
            AsideKind::Replaced => "-replaced",
            AsideKind::BeforeMend => "-before-mend",
        }
    }
}

/// A folder that was put aside, as its name tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// The partition that it was; of a long topic name only the beginning is known.
    pub partition: TopicPartition,
    /// What keeps it apart from its namesakes.
    pub unique: Uuid,
    /// What it is.
    pub kind: AsideKind,
}

impl Aside {
    /// Reads a folder's name; `None` for one that was not put aside.
    pub fn parse(name: &str) -> Option<Aside> {
        let kind = *AsideKind::ALL.iter().find(|kind| name.ends_with(kind.suffix()))?;
        let (partition, digits) = name.strip_suffix(kind.suffix())?.rsplit_once('.')?;
        let unique = (digits.len() == 32).then(|| u128::from_str_radix(digits, 16).ok())??;
        let partition = partition_of(partition)?;
        Some(Aside { partition, unique: Uuid(unique.to_be_bytes()), kind })
    }

    /// The folder's name.
    pub fn name(&self) -> String {
        aside_name(&self.partition.to_string(), self.unique, self.kind.suffix())
    }

    /// Whether it is, or may be, one of this partition.
    pub fn is_of(&self, partition: &TopicPartition) -> bool {
        Aside { partition: partition.clone(), ..self.clone() }.name() == self.name()
    }
}

fn aside_name(name: &str, unique: Uuid, suffix: &str) -> String {
    let (topic, partition) = name.rsplit_once('-').unwrap_or((name, "0"));
    let id: String = unique.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let end = format!("-{partition}.{id}{suffix}");
    let topic = &topic[..topic.len().min(NAME_BYTES_MAX - end.len())];
    format!("{topic}{end}")
}

/// The partition that a directory of this name holds; `None` if no partition has this name.
pub fn partition_of(name: &str) -> Option<TopicPartition> {
    let (topic, number) = name.rsplit_once('-')?;
    model::topic_name::validate(topic).ok()?;
    let partition = number.parse::<i32>().ok()?;
    let partition = TopicPartition::new(topic, partition);
    (partition.to_string() == name).then_some(partition)
}

fn marker(broker_epoch: BrokerEpoch) -> String {
    format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}")
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
    use crate::disk::{RealDisk, SimDisk};
    use model::BrokerId;

    #[test]
    fn a_directory_that_was_made_is_there_after_a_power_failure() {
        for seed in 0..20 {
            let disk = SimDisk::new();
            let path = PathBuf::from("several/that/were/made");
            LogDir::new(Arc::new(disk.clone()), path.clone()).unwrap();
            assert!(disk.after_crash(seed).exists(&path), "seed {seed}");
        }
    }

    fn log_dir(dir: &Path) -> LogDir {
        LogDir::new(Arc::new(RealDisk), dir.to_owned()).unwrap()
    }

    #[test]
    fn a_second_owner_is_told_plainly() {
        let dir = tempfile::tempdir().unwrap();
        let lock = DirLock::acquire(&RealDisk, dir.path()).unwrap();
        let refused = DirLock::acquire(&RealDisk, dir.path()).unwrap_err().to_string();
        assert!(refused.contains("another process uses the log directory"), "{refused}");
        drop(lock);
        DirLock::acquire(&RealDisk, dir.path()).unwrap();
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
        assert!(log_dir.remove_leftover(&left, &mut || true).unwrap());
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
            journal_level: 0,
            metadata_level: 0,
            unknown_lines: vec!["newer=1".to_owned()],
        };
        let with_journal = MetaProperties { journal_level: 1, ..meta.clone() };
        for meta in [meta, with_journal] {
            log_dir.store_meta_properties(&meta).unwrap();
            assert_eq!(log_dir.meta_properties().unwrap(), Some(meta));
        }
        std::fs::write(dir.path().join("meta.properties"), "#x\nversion=0\n").unwrap();
        assert!(log_dir.meta_properties().is_err());

        let partition = TopicPartition::new("t", 0);
        std::fs::create_dir(log_dir.partition_dir(&partition)).unwrap();
        assert_eq!(log_dir.topic_id(&partition).unwrap(), None);
        log_dir.copy_topic_id(&partition, Uuid([3; 16])).unwrap();
        assert_eq!(log_dir.topic_id(&partition).unwrap(), Some(Uuid([3; 16])));
        let file = log_dir.partition_dir(&partition).join("partition.metadata");
        std::fs::write(&file, "version: 0\ntopic_id: 49ViXu6RTeuzS7qOB5KV1A").unwrap();
        assert_eq!(
            log_dir.topic_id(&partition).unwrap().unwrap().to_string(),
            "49ViXu6RTeuzS7qOB5KV1A"
        );
    }
}
