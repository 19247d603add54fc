//! One partition's log.
#![allow(unused_variables, missing_docs, clippy::todo)]

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use model::{BatchHeader, LeaderEpoch, Offset, Timestamp};

use crate::disk::{Disk, DiskFile};
use crate::{LogConfig, StorageError};

/// What recovery does with bytes that were durable once and are damaged (S12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnDamage {
    /// Fail with [`StorageError::Damaged`] and change nothing.
    #[default]
    Refuse,
    /// Keep a copy under `<name>.damaged`, cut the log before the damage: only when a replica
    /// still has the rest.
    SetAside,
}

/// What the caller knows of a log when it opens it.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// The log directory was stopped cleanly: the files are trusted as they stand.
    pub clean: bool,
    /// From `recovery-point-offset-checkpoint`: below it everything was synced.
    pub recovery_point: Offset,
    /// From `log-start-offset-checkpoint`, or 0.
    pub log_start_offset: Offset,
    /// From `cleaner-offset-checkpoint`, or 0: below it the log was compacted once.
    pub cleaned_below: Offset,
    /// The present time.
    pub now: Timestamp,
    /// What to do with damage below the recovery point.
    pub on_damage: OnDamage,
}

/// The log's opinion on an idempotent producer's batch (KIP-98).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProducerVerdict {
    Accept,
    Duplicate { base_offset: Offset, last_offset: Offset, timestamp: Timestamp },
    OutOfOrderSequence,
    InvalidEpoch,
    UnknownProducer,
}

/// A range of one segment's file: whole batches.
#[derive(Clone, Debug)]
pub struct FileSlice {
    pub file: Arc<dyn DiskFile>,
    pub position: u64,
    pub size: u32,
    pub first_offset: Offset,
    pub next: ReadCursor,
}

/// Where a reader that goes on from a slice will find its next batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadCursor {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampedOffset {
    pub timestamp: Timestamp,
    pub offset: Offset,
    pub epoch: LeaderEpoch,
}

#[derive(Debug)]
pub struct SyncTicket {}

impl SyncTicket {
    pub fn run(&self) -> io::Result<()> {
        todo!()
    }
}

#[derive(Debug)]
pub struct DeletedSegment {}

#[derive(Debug)]
pub struct Log {}

impl Log {
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        config: Arc<LogConfig>,
        opening: Opening,
    ) -> Result<Log, StorageError> {
        todo!()
    }
    pub fn log_start_offset(&self) -> Offset {
        todo!()
    }
    pub fn log_end_offset(&self) -> Offset {
        todo!()
    }
    /// Everything below it is synced.
    pub fn recovery_point(&self) -> Offset {
        todo!()
    }
    pub fn size_bytes(&self) -> u64 {
        todo!()
    }
    pub fn latest_epoch(&self) -> LeaderEpoch {
        todo!()
    }
    pub fn segment_count(&self) -> usize {
        todo!()
    }
    pub fn check_producer(&self, header: &BatchHeader) -> ProducerVerdict {
        todo!()
    }
    pub fn append(
        &mut self,
        bytes: &[u8],
        headers: &[BatchHeader],
        now: Timestamp,
    ) -> Result<(), StorageError> {
        todo!()
    }
    /// `None`: nothing below `limit` at `offset`, or the first batch is larger than `max_bytes` and
    /// `at_least_one` is not asked for.
    pub fn read(
        &self,
        offset: Offset,
        limit: Offset,
        max_bytes: u32,
        at_least_one: bool,
    ) -> Result<Option<FileSlice>, StorageError> {
        todo!()
    }
    pub fn read_from(
        &self,
        cursor: &ReadCursor,
        offset: Offset,
        limit: Offset,
        max_bytes: u32,
        at_least_one: bool,
    ) -> Result<Option<FileSlice>, StorageError> {
        todo!()
    }
    pub fn find_by_timestamp(
        &self,
        timestamp: Timestamp,
        limit: Offset,
    ) -> Result<Option<TimestampedOffset>, StorageError> {
        todo!()
    }
    pub fn find_max_timestamp(
        &self,
        limit: Offset,
    ) -> Result<Option<TimestampedOffset>, StorageError> {
        todo!()
    }
    /// The largest epoch not above `epoch` and where it ends (KIP-101, KIP-279).
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> (LeaderEpoch, Offset) {
        todo!()
    }
    pub fn epoch_at(&self, offset: Offset) -> LeaderEpoch {
        todo!()
    }
    pub fn begin_sync(&self) -> Option<SyncTicket> {
        todo!()
    }
    pub fn finish_sync(
        &mut self,
        ticket: SyncTicket,
        result: io::Result<()>,
    ) -> Result<Offset, StorageError> {
        todo!()
    }
    pub fn truncate_to(&mut self, offset: Offset) -> Result<(), StorageError> {
        todo!()
    }
    pub fn truncate_fully_and_start_at(&mut self, offset: Offset) -> Result<(), StorageError> {
        todo!()
    }
    pub fn delete_records_before(&mut self, offset: Offset) -> Result<(), StorageError> {
        todo!()
    }
    pub fn retain(
        &mut self,
        now: Timestamp,
        high_watermark: Offset,
    ) -> Result<Vec<DeletedSegment>, StorageError> {
        todo!()
    }
    pub fn roll_if_due(&mut self, now: Timestamp) -> Result<bool, StorageError> {
        todo!()
    }
    pub fn set_config(&mut self, config: Arc<LogConfig>) {
        todo!()
    }
    pub fn expire_producers(&mut self, now: Timestamp, expiration_ms: i64) {
        todo!()
    }
    pub fn last_stable_offset(&self, high_watermark: Offset) -> Offset {
        todo!()
    }
    pub fn close(&mut self) -> Result<(), StorageError> {
        todo!()
    }
}
