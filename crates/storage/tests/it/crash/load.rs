//! A scripted load of one log on a simulated disk: which operations of the disk belong to which step,
//! and what the log had to hold before and after it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::record::BatchBuilder;
use model::{BatchHeader, Compression, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};
use model::{Timestamp, TopicPartition};
use storage::checkpoint::{self, Offsets};
use storage::disk::{Disk, SimDisk};
use storage::{CleanupPolicy, DeletedSegment, Log, LogConfig, Opening, StorageError};

use super::timeline::{Batch, Timeline};

const LOG_DIR: &str = "data";
const CLEAN_MARKER: &str = "data/.kafka_cleanshutdown";
/// How long after one append the next one comes.
const STEP_MS: i64 = 1000;

/// What to do with the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Appends a batch of that many records; by an idempotent producer if its number is not 0.
    Append {
        records: i32,
        value_bytes: usize,
        producer: i64,
        codec: Compression,
    },
    /// A new leader epoch begins with the next append.
    NewEpoch,
    /// A producer comes back with a new epoch.
    BumpProducer(i64),
    Sync,
    /// Moves the recovery point and stores it and the log start, as a broker does now and then.
    Checkpoint,
    /// Stores them as they are.
    StoreCheckpoints,
    /// Cuts off that many batches, as far as there are any.
    TruncateBatches(usize),
    TruncateFully,
    /// DeleteRecords up to the middle of what is there.
    DeleteRecords,
    Retain,
    /// Compacts what can be compacted.
    Compact,
    CloseAndReopen,
    /// The process dies and comes up again; the machine stays up.
    KillAndReopen,
}

/// One step and what it did.
#[derive(Clone, Debug)]
pub struct Step {
    pub action: Action,
    /// The first operation of the disk that belongs to it, and the one behind its last.
    pub operations: std::ops::Range<u64>,
    pub before: Timeline,
    pub after: Timeline,
}

impl Step {
    /// What must have survived a crash in the middle of the step.
    pub fn durable(&self) -> Offset {
        match self.action {
            // All may be gone already, or only some of it.
            Action::TruncateFully => Offset(0),
            _ => self.before.synced.min(self.after.synced),
        }
    }
}

/// A log with the model beside it.
pub struct Load {
    pub disk: SimDisk,
    pub log: Log,
    pub timeline: Timeline,
    /// What the timeline was to become by the action that was tried last.
    pub attempted: Timeline,
    pub steps: Vec<Step>,
    /// How many compactions had something to do.
    pub compactions: u32,
    config: Arc<LogConfig>,
    now: Timestamp,
    epoch: LeaderEpoch,
    producer_epochs: [i16; 4],
}

pub fn partition() -> TopicPartition {
    TopicPartition::new("t", 0)
}

pub fn partition_dir() -> PathBuf {
    Path::new(LOG_DIR).join("t-0")
}

/// Segments, indexes and retention so small that everything happens often.
pub fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 3000,
        segment_index_bytes: 200,
        index_interval_bytes: 300,
        retention_ms: -1,
        retention_bytes: 12_000,
        cleanup: CleanupPolicy { delete: true, compact: false },
        // After each sync, whatever it covered.
        ahead_bytes: 700,
        ahead_after_syncs: 0,
        ..LogConfig::default()
    }
}

/// Opens the log as a broker does that comes up, marker and checkpoints first.
pub fn open(disk: &SimDisk, config: &Arc<LogConfig>, now: Timestamp) -> Result<Log, StorageError> {
    open_with(disk, config, opening(disk, now)?)
}

/// Opens the log as `opening` says.
pub fn open_with(
    disk: &SimDisk,
    config: &Arc<LogConfig>,
    opening: Opening,
) -> Result<Log, StorageError> {
    Log::open(Arc::new(disk.clone()), partition_dir(), Arc::clone(config), opening)
}

/// What the checkpoints say; takes the marker of a clean stop away.
pub fn opening(disk: &SimDisk, now: Timestamp) -> Result<Opening, StorageError> {
    let clean = disk.exists(Path::new(CLEAN_MARKER));
    if clean {
        disk.remove_file(Path::new(CLEAN_MARKER))
            .and_then(|()| disk.sync_dir(LOG_DIR.as_ref()))
            .map_err(|source| StorageError::Io {
                operation: "remove",
                path: CLEAN_MARKER.into(),
                source,
            })?;
    }
    let load = |name| {
        let offsets: Offsets = checkpoint::load(disk, LOG_DIR.as_ref(), name)?;
        Ok::<_, StorageError>(offsets.get(&partition()).copied().unwrap_or(Offset(0)))
    };
    Ok(Opening {
        clean,
        recovery_point: load(checkpoint::RECOVERY_POINT)?,
        log_start_offset: load(checkpoint::LOG_START)?,
        cleaned_below: load(checkpoint::CLEANER)?,
        ..Opening::unknown(now)
    })
}

/// Begins, runs and finishes a sync of all there is.
pub fn sync(log: &mut Log) -> Result<(), StorageError> {
    while let Some(ticket) = log.begin_sync() {
        let result = ticket.run();
        log.finish_sync(ticket, result)?;
    }
    Ok(())
}

/// Writes zeros ahead, as a broker does after a sync. That there is no room for them is no failure.
pub fn write_ahead(log: &mut Log) {
    if let Some(ticket) = log.begin_ahead() {
        let result = ticket.run();
        log.finish_ahead(ticket, &result);
    }
}

/// Begins, runs and finishes a checkpoint.
pub fn checkpoint(log: &mut Log) -> Result<(), StorageError> {
    if let Some(ticket) = log.begin_checkpoint()? {
        let result = ticket.run();
        log.finish_checkpoint(ticket, result)?;
    }
    Ok(())
}

pub fn store_checkpoints(disk: &SimDisk, log: &Log) -> Result<(), StorageError> {
    for (name, offset) in [
        (checkpoint::RECOVERY_POINT, log.recovery_point()),
        (checkpoint::LOG_START, log.log_start_offset()),
        (checkpoint::CLEANER, log.cleaned_below()),
    ] {
        let offsets = Offsets::from([(partition(), offset)]);
        checkpoint::store(disk, LOG_DIR.as_ref(), name, &offsets)?;
    }
    Ok(())
}

/// The last thing of a clean stop.
pub fn store_marker(disk: &SimDisk) -> Result<(), StorageError> {
    disk.write_atomically(Path::new(CLEAN_MARKER), b"{}").map_err(|source| StorageError::Io {
        operation: "write",
        path: CLEAN_MARKER.into(),
        source,
    })
}

impl Load {
    /// An empty log on a disk that keeps its history.
    pub fn new(config: LogConfig) -> Load {
        let disk = SimDisk::new();
        disk.keep_history();
        Load::on(disk, config)
    }

    /// An empty log on this disk.
    pub fn on(disk: SimDisk, config: LogConfig) -> Load {
        disk.create_dir_all(Path::new(LOG_DIR)).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        let (config, now) = (Arc::new(config), Timestamp(1_000_000));
        let log = open(&disk, &config, now).unwrap();
        let producer_epochs = [0; 4];
        let (timeline, attempted) = (Timeline::default(), Timeline::default());
        let (steps, compactions, epoch) = (Vec::new(), 0, LeaderEpoch(0));
        Load {
            disk,
            log,
            timeline,
            attempted,
            steps,
            compactions,
            config,
            now,
            epoch,
            producer_epochs,
        }
    }

    pub fn config(&self) -> &Arc<LogConfig> {
        &self.config
    }

    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Does one step; on an error the timeline stays as it was.
    pub fn run(&mut self, action: Action) -> Result<(), StorageError> {
        let (before, first) = (self.timeline.clone(), self.disk.operation_count());
        self.attempted = before.clone();
        self.act(action)?;
        let operations = first..self.disk.operation_count();
        self.steps.push(Step { action, operations, before, after: self.timeline.clone() });
        Ok(())
    }

    fn act(&mut self, action: Action) -> Result<(), StorageError> {
        match action {
            Action::Append { records, value_bytes, producer, codec } => {
                self.append(records, value_bytes, producer, codec)
            }
            Action::NewEpoch => {
                self.epoch = LeaderEpoch(self.epoch.0 + 1);
                Ok(())
            }
            Action::BumpProducer(producer) => {
                self.producer_epochs[producer as usize] += 1;
                Ok(())
            }
            Action::Sync => {
                sync(&mut self.log)?;
                self.timeline.synced = self.timeline.log_end();
                assert_eq!(self.log.synced_below(), self.timeline.synced);
                write_ahead(&mut self.log);
                Ok(())
            }
            Action::Checkpoint => {
                checkpoint(&mut self.log)?;
                self.timeline.synced = self.timeline.log_end();
                assert_eq!(self.log.recovery_point(), self.timeline.synced);
                store_checkpoints(&self.disk, &self.log)
            }
            Action::StoreCheckpoints => store_checkpoints(&self.disk, &self.log),
            Action::TruncateBatches(count) => self.truncate(count),
            Action::TruncateFully => self.truncate_fully(),
            Action::DeleteRecords => self.delete_records(),
            Action::Retain => self.retain(),
            Action::Compact => self.compact(),
            Action::CloseAndReopen => self.close_and_reopen(),
            Action::KillAndReopen => {
                self.log = open(&self.disk, &self.config, self.now)?;
                assert_eq!(self.log.log_end_offset(), self.timeline.log_end());
                assert_eq!(self.log.synced_below(), self.timeline.log_end());
                self.timeline.synced = self.timeline.log_end();
                self.timeline.log_start = self.log.log_start_offset();
                Ok(())
            }
        }
    }

    fn append(
        &mut self,
        records: i32,
        value_bytes: usize,
        producer: i64,
        codec: Compression,
    ) -> Result<(), StorageError> {
        self.now = self.now.plus_ms(STEP_MS);
        let bytes = self.batch(records, value_bytes, producer, codec);
        let header = BatchHeader::decode_checked(&bytes).unwrap();
        self.attempted.batches.push(Batch { header, bytes: bytes.clone().into() });
        self.log.append(&bytes, &[header], self.now)?;
        self.timeline = self.attempted.clone();
        assert_eq!(self.log.log_end_offset(), self.timeline.log_end());
        Ok(())
    }

    /// The next batch of this producer, stamped.
    fn batch(
        &self,
        records: i32,
        value_bytes: usize,
        producer: i64,
        codec: Compression,
    ) -> Vec<u8> {
        let mut builder = BatchBuilder::new().placed(self.timeline.log_end(), self.epoch);
        if producer != 0 {
            let epoch = ProducerEpoch(self.producer_epochs[producer as usize]);
            let last = self.timeline.producers(Offset(0)).get(&ProducerId(producer)).copied();
            let next = match last {
                Some(last) if last.epoch == epoch => last.last_sequence.plus(1),
                _ => Sequence(0),
            };
            builder = builder.producer(ProducerId(producer), epoch, next);
        }
        for i in 0..records {
            // Times go up and down, within a batch and between batches; no two batches share one.
            let step = self.now.0 / STEP_MS;
            let jitter = (step * 7 + i as i64 * 3) % 40 * 100 + step % 97;
            let key = format!("key-{}", (step + i as i64) % 5);
            let value = vec![b'a' + (self.now.0 % 26) as u8; value_bytes];
            builder.add(self.now.plus_ms(jitter), Some(key.as_bytes()), Some(&value));
        }
        if codec == Compression::None {
            return builder.finish();
        }
        let mut compressed = Vec::new();
        compression::compress(codec, None, builder.records(), &mut compressed);
        builder.finish_compressed(codec, &compressed)
    }

    fn truncate(&mut self, count: usize) -> Result<(), StorageError> {
        let keep = self.timeline.batches.len().saturating_sub(count);
        let offset = match keep {
            0 => self.timeline.base,
            keep => self.timeline.batches[keep - 1].header.next_offset(),
        };
        let offset = offset.max(self.timeline.log_start).max(self.timeline.retained_from);
        if self.compactions > 0 && offset < self.log.active_base_offset() {
            // In a compacted segment the batch before the cut may be gone: the end is another one.
            return Ok(());
        }
        self.attempted = self.timeline.clone().truncated(offset);
        if let Some(mut cut) = self.log.begin_cut(offset)? {
            let result = cut.run();
            self.log.finish_cut(cut, result)?;
        }
        self.timeline = self.attempted.clone();
        assert_eq!(self.log.log_end_offset(), self.timeline.log_end());
        Ok(())
    }

    fn truncate_fully(&mut self) -> Result<(), StorageError> {
        let offset = self.timeline.log_end().plus(100);
        let mut cut = self.log.begin_start_over(offset)?;
        let result = cut.run();
        self.log.finish_cut(cut, result)?;
        self.timeline = Timeline {
            batches: Vec::new(),
            log_start: offset,
            base: offset,
            synced: offset,
            retained_from: offset,
        };
        assert_eq!(self.log.log_end_offset(), offset);
        assert_eq!(self.log.log_start_offset(), offset);
        Ok(())
    }

    fn delete_records(&mut self) -> Result<(), StorageError> {
        let (start, end) = (self.timeline.log_start, self.timeline.synced);
        let offset = Offset((start.0 + end.0) / 2).max(start);
        self.log.delete_records_before(offset)?;
        self.timeline.log_start = offset;
        assert_eq!(self.log.log_start_offset(), offset);
        Ok(())
    }

    fn retain(&mut self) -> Result<(), StorageError> {
        let deleted = self.log.retain(self.now, self.timeline.synced)?;
        self.remove(deleted)?;
        self.timeline.log_start = self.log.log_start_offset();
        self.timeline.retained_from = self.timeline.log_start;
        Ok(())
    }

    fn compact(&mut self) -> Result<(), StorageError> {
        let Some(plan) = self.log.plan_compaction(self.now, self.timeline.synced)? else {
            return Ok(());
        };
        let compaction = plan.run(1 << 20, [1, 2], &mut |_| true)?.expect("nobody ended it");
        let compacted = self.log.finish_compaction(compaction)?;
        self.compactions += 1;
        self.remove(compacted.deleted)
    }

    fn remove(&self, deleted: Vec<DeletedSegment>) -> Result<(), StorageError> {
        deleted.iter().try_for_each(|segment| segment.remove(&self.disk)).map_err(|source| {
            StorageError::Io { operation: "remove", path: partition_dir(), source }
        })
    }

    /// Stops cleanly.
    pub fn stop(&mut self) -> Result<(), StorageError> {
        self.log.close()?;
        store_checkpoints(&self.disk, &self.log)?;
        store_marker(&self.disk)
    }

    fn close_and_reopen(&mut self) -> Result<(), StorageError> {
        self.stop()?;
        self.log = open(&self.disk, &self.config, self.now)?;
        assert_eq!(self.log.log_end_offset(), self.timeline.log_end());
        assert_eq!(self.log.log_start_offset(), self.timeline.log_start);
        self.timeline.synced = self.timeline.log_end();
        Ok(())
    }
}

/// A load in which everything happens, chosen by a seed.
pub fn script(seed: u64, appends: usize) -> Vec<Action> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut actions = Vec::new();
    for _ in 0..appends {
        let codec = match random.u8(0..10) {
            0 => Compression::Lz4,
            1 => Compression::Zstd,
            _ => Compression::None,
        };
        actions.push(Action::Append {
            records: random.i32(1..6),
            value_bytes: random.usize(0..150),
            producer: random.i64(0..4),
            codec,
        });
        actions.extend(match random.u8(0..100) {
            0..25 => Some(Action::Sync),
            25..29 => Some(Action::Checkpoint),
            29..31 => Some(Action::StoreCheckpoints),
            31..34 => Some(Action::NewEpoch),
            34..37 => Some(Action::BumpProducer(random.i64(1..4))),
            37..41 => Some(Action::TruncateBatches(random.usize(1..8))),
            41..43 => Some(Action::DeleteRecords),
            43..46 => Some(Action::Retain),
            46..48 => Some(Action::CloseAndReopen),
            48..50 => Some(Action::KillAndReopen),
            50 => Some(Action::TruncateFully),
            _ => None,
        });
    }
    actions
}
