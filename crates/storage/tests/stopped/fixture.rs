//! A log directory with one partition, as a broker leaves it, and a start that believes its journal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::batch::Batches;
use model::record::BatchBuilder;
use model::{
    BatchHeader, BrokerId, Durability, LeaderEpoch, Offset, PartitionIndex, Timestamp,
    TopicPartition, Uuid,
};
use storage::disk::{Disk, OpenMode, SimDisk};
use storage::journal::{Checkpoint, Entry, Fact, Journal, Key, Opened, Refused, State};
use storage::log_dir::{LogDir, MetaProperties};
use storage::stopped::Stopped;
use storage::{Log, LogConfig, Opening, StorageError};

pub const NOW: Timestamp = Timestamp(1_700_000_000_000);
pub const EPOCH: LeaderEpoch = LeaderEpoch(3);
/// Records of the partition, one a batch.
pub const COUNT: i64 = 30;

pub fn dir() -> &'static Path {
    Path::new("data")
}

pub fn folder() -> PathBuf {
    folder_of(0)
}

/// The folder of a partition.
pub fn folder_of(number: i32) -> PathBuf {
    dir().join(format!("t-{number}"))
}

pub fn name() -> TopicPartition {
    TopicPartition::new("t", 0)
}

pub fn key() -> Key {
    key_of(0)
}

/// The key of a partition in the journal.
pub fn key_of(number: i32) -> Key {
    Key { topic_id: Uuid([1; 16]), partition: PartitionIndex(number) }
}

fn config() -> Arc<LogConfig> {
    Arc::new(LogConfig { segment_bytes: 700, index_interval_bytes: 150, ..LogConfig::default() })
}

pub fn opened(dense_from: Option<Offset>) -> Fact {
    let (fsync, image_index, mended) = (true, 7, false);
    Fact::Opened(Opened { topic: "t".into(), dense_from, fsync, image_index, mended })
}

/// A log directory whose journal knows one partition, of which `facts` are said.
pub fn log_directory(disk: &SimDisk, facts: &[Fact]) {
    disk.create_dir_all(dir()).unwrap();
    let meta = MetaProperties {
        node_id: BrokerId(1),
        cluster_id: "c".to_owned(),
        directory_id: Uuid([2; 16]),
        journal_level: 1,
        metadata_level: 0,
        unknown_lines: Vec::new(),
    };
    let log_dir = LogDir::at(Arc::new(disk.clone()), dir().to_owned());
    log_dir.store_meta_properties(&meta).unwrap();
    let state = State { meta: meta.encode().into_bytes(), ..State::default() };
    let journal = Journal::create(Arc::new(disk.clone()), dir(), state).unwrap();
    let entries: Vec<Entry> = facts.iter().map(|fact| Entry::Of(key(), fact.clone())).collect();
    journal.commit(&entries).unwrap();
    disk.sync_dir(Path::new("")).unwrap();
}

/// Writes a partition's log into `folder`; what the journal would know of it.
pub fn write_log(disk: &SimDisk, folder: &Path, epoch: LeaderEpoch) -> Vec<Fact> {
    let opening = Opening::unknown(NOW);
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut log = Log::open(disk, folder.to_owned(), config(), opening).unwrap();
    for offset in 0..COUNT {
        append(&mut log, offset, epoch);
    }
    log.close().unwrap();
    let end = log.log_end_offset();
    vec![
        opened(Some(Offset(0))),
        Fact::Checkpoint(Checkpoint {
            recovery_point: end,
            active: log.settled_active(),
            epoch: log.latest_epoch(),
            high_watermark: end,
            cleaned_below: Offset(0),
            at: NOW,
        }),
        Fact::Synced(end),
        Fact::Sealed { complete: true, segments: log.sealed_segments() },
    ]
}

pub fn append(log: &mut Log, offset: i64, epoch: LeaderEpoch) {
    let mut batch = BatchBuilder::new().placed(Offset(offset), epoch);
    batch.add(NOW, None, Some(format!("value {offset}").as_bytes()));
    let bytes = batch.finish();
    let header = BatchHeader::decode(&bytes).unwrap();
    log.append(&bytes, &[header], NOW).unwrap();
}

/// A directory with a whole partition, which `harm` damages and a start has refused.
pub fn refused(harm: impl FnOnce(&SimDisk)) -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir_all(dir()).unwrap();
    let facts = write_log(&disk, &folder(), EPOCH);
    log_directory(&disk, &facts);
    harm(&disk);
    // What lies below the recovery point is not read again by a start: something else found it then.
    let refusal = serve(&disk.snapshot()).err();
    let reason = refusal.map_or("found damaged".into(), |refusal| refusal.to_string().into());
    let journal = Journal::open(Arc::new(disk.clone()), dir(), true).unwrap().unwrap();
    journal.commit(&[Entry::Of(key(), Fact::Refused(Refused { offset: None, reason }))]).unwrap();
    disk
}

pub fn stopped(disk: &SimDisk) -> Stopped {
    Stopped::open(Arc::new(disk.clone()), dir()).unwrap()
}

/// Opens the partition as a start does after a crash; fails if it is refused.
pub fn serve(disk: &SimDisk) -> Result<Log, StorageError> {
    serve_partition(disk, 0)
}

/// Opens a partition as a start does after a crash; fails if the journal refuses the partition.
pub fn serve_partition(disk: &SimDisk, number: i32) -> Result<Log, StorageError> {
    let folder = folder_of(number);
    let journal = Journal::open(Arc::new(disk.clone()), dir(), true)?.unwrap();
    let known = journal.partition(&key_of(number)).expect("the partition is known");
    let refused = |reason: &str| {
        Err(StorageError::Refused { dir: folder.clone(), reason: reason.to_owned() })
    };
    if let Some(found) = &known.refused {
        return refused(&found.reason);
    }
    if !disk.exists(&folder) {
        return refused("the folder is missing");
    }
    let last = known.checkpoint;
    let opening = Opening {
        recovery_point: last.map_or(Offset(0), |last| last.recovery_point),
        synced: known.synced,
        log_start_offset: known.log_start,
        cleaned_below: last.map_or(Offset(0), |last| last.cleaned_below),
        dense_from: known.opened.dense_from,
        epoch_max: Some(EPOCH),
        sealed: known.sealed.clone(),
        active: last.and_then(|last| last.active),
        durability: Durability::Fsync,
        ..Opening::unknown(NOW)
    };
    Log::open(Arc::new(disk.clone()), folder, config(), opening)
}

/// The offsets of the records that can be read, with their values.
pub fn records(log: &Log) -> BTreeMap<i64, String> {
    let (mut found, mut offset) = (BTreeMap::new(), log.log_start_offset());
    while let Some(slice) = log.read(offset, log.log_end_offset(), 1 << 20, true).unwrap() {
        let mut bytes = vec![0; slice.size_bytes as usize];
        slice.file.read_at(&mut bytes, slice.position).unwrap();
        for batch in Batches::new(&bytes) {
            let (header, bytes) = batch.unwrap();
            BatchHeader::decode_checked(bytes).unwrap();
            let mut expanded = Vec::new();
            let records =
                compression::records::read(&header, bytes, 1 << 20, &mut expanded).unwrap();
            for record in records.map(Result::unwrap).filter(|_| !header.is_control()) {
                let at = header.base_offset.0 + i64::from(record.offset_delta);
                let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                found.insert(at, value);
            }
            offset = header.next_offset();
        }
    }
    found
}

/// What the partition must hold without these offsets.
pub fn expected(without: &[i64]) -> BTreeMap<i64, String> {
    let kept = (0..COUNT).filter(|offset| !without.contains(offset));
    kept.map(|offset| (offset, format!("value {offset}"))).collect()
}

/// Every file of a folder with its bytes.
pub fn files(disk: &SimDisk, folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = disk.list(folder).unwrap();
    names.into_iter().map(|name| (name.clone(), disk.read(&folder.join(name)).unwrap())).collect()
}

/// The segments of a folder.
pub fn segments(disk: &SimDisk, folder: &Path) -> Vec<PathBuf> {
    let names = disk.list(folder).unwrap();
    names.iter().filter(|name| name.ends_with(".log")).map(|name| folder.join(name)).collect()
}

/// Writes over a file.
pub fn overwrite(disk: &SimDisk, path: &Path, position: u64, bytes: &[u8]) {
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    file.write_all_at(bytes, position).unwrap();
    file.sync().unwrap();
}

/// Cuts a file.
pub fn cut(disk: &SimDisk, path: &Path, size_bytes: u64) {
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    file.truncate(size_bytes).unwrap();
    file.sync().unwrap();
}

/// Every disk that a crash can leave of `run`, which begins on `before`: the process dies, or the power
/// fails.
pub fn crashes(before: &SimDisk, run: impl FnOnce(&SimDisk)) -> Vec<SimDisk> {
    let disk = before.snapshot();
    disk.keep_history();
    run(&disk);
    let mut found = Vec::new();
    for state in disk.history() {
        found.push(state.snapshot());
        found.extend((0..3).map(|seed| state.after_crash(seed)));
    }
    found
}
