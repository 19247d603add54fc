//! Appending as a leader: the path of every produced record.

use model::batch;
use model::{Durability, Offset, Timestamp, TimestampType};
use replication::Event;
use storage::ProducerVerdict;

use crate::check::{CheckedBatch, check, check_size};
use crate::error::PartitionError;
use crate::partition::{Partition, State};
use crate::recompress::recompress;

/// What the producer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// Nothing; it does not even learn of errors.
    None,
    /// The leader's write.
    Leader,
    /// All in-sync replicas, synced if the topic's durability says so.
    All,
}

impl Acks {
    /// The protocol's number: 0, 1 or -1.
    pub const fn from_code(code: i16) -> Option<Acks> {
        match code {
            0 => Some(Acks::None),
            1 => Some(Acks::Leader),
            -1 => Some(Acks::All),
            _ => None,
        }
    }
}

/// Who appends, and on which terms.
#[derive(Clone, Copy, Debug)]
pub struct Append {
    /// What the producer waits for.
    pub acks: Acks,
    /// The present time.
    pub now: Timestamp,
    /// A coordinator of this broker writes its own records: no rule of the topic applies to them.
    pub internal: bool,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// It is committed when the high watermark reaches this.
    pub needed: Offset,
    /// The broker's time if that is the topic's timestamp type, else none.
    pub log_append_time: Timestamp,
    /// First readable offset.
    pub log_start: Offset,
    /// The same batch had been appended before (KIP-98); nothing was written.
    pub duplicate: bool,
    /// The flusher must be told: there is something to sync that was not before.
    pub wants_sync: bool,
}

/// Ends the process if a bug unwinds while the log may be half-changed: a restart recovers, going on
/// would serve damaged state.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

impl Partition {
    /// Appends the one batch in `records`, stamping it in place.
    pub fn append(&self, records: &mut [u8], how: Append) -> Result<Appended, PartitionError> {
        let settings = self.settings();
        let checked = if how.internal {
            CheckedBatch { header: model::BatchHeader::decode(records)? }
        } else {
            check(records, &settings, how.now)?
        };
        match recompress(records, &checked.header, &settings)? {
            None => self.append_checked(records, checked, how),
            Some(mut stored) => {
                let header = model::BatchHeader::decode(&stored)?;
                if !how.internal {
                    check_size(&header, &settings)?;
                }
                self.append_checked(&mut stored, CheckedBatch { header }, how)
            }
        }
    }

    fn append_checked(
        &self,
        records: &mut [u8],
        checked: CheckedBatch,
        how: Append,
    ) -> Result<Appended, PartitionError> {
        let mut state = self.state.lock();
        let _guard = AbortOnUnwind;
        self.check_leader(&state.replica, None)?;
        check_replicas(&state, how)?;
        match state.log.check_producer(&checked.header) {
            ProducerVerdict::Accept => {}
            ProducerVerdict::Duplicate { base_offset, last_offset, timestamp } => {
                return Ok(duplicate(&state, base_offset, last_offset, timestamp));
            }
            ProducerVerdict::OutOfOrderSequence => return Err(PartitionError::OutOfOrderSequence),
            ProducerVerdict::InvalidEpoch => return Err(PartitionError::InvalidProducerEpoch),
        }
        let base_offset = state.log.log_end_offset();
        let log_append_time = stamp(&state, records, base_offset, how.now);
        let header = model::BatchHeader::decode(records)?;
        let result = state.log.append(records, std::slice::from_ref(&header), how.now);
        if let Err(error) = result {
            if error.is_fatal() {
                let effects = state.replica.step(Event::Failed);
                self.publish(state, effects);
            }
            return Err(error.into());
        }
        let log_end = state.log.log_end_offset();
        assert_eq!(log_end, header.next_offset(), "the log ends behind the batch");
        let appended = Appended {
            base_offset,
            needed: log_end,
            log_append_time,
            log_start: state.log.log_start_offset(),
            duplicate: false,
            wants_sync: self.wants_sync(&state),
        };
        let effects = state.replica.step(Event::Appended { log_end });
        self.publish(state, effects);
        Ok(appended)
    }

    /// Whether the flusher must be told, at most once until it has begun a sync.
    fn wants_sync(&self, state: &State) -> bool {
        use std::sync::atomic::Ordering;
        let due = match state.settings.durability {
            Durability::Fsync => true,
            Durability::PageCache => {
                let unsynced = state.log.log_end_offset().0 - state.log.synced_below().0;
                unsynced >= state.settings.flush_messages
            }
        };
        due && !self.queued_for_sync.swap(true, Ordering::AcqRel)
    }
}

fn check_replicas(state: &State, how: Append) -> Result<(), PartitionError> {
    let in_sync = state.replica.leadership().map_or(0, |leadership| leadership.isr().len());
    let required = state.settings.min_insync_replicas;
    if how.acks == Acks::All && in_sync < required {
        return Err(PartitionError::NotEnoughReplicas { in_sync, required });
    }
    Ok(())
}

/// Stamps what the leader decides; returns the broker's time if the topic wants it.
fn stamp(state: &State, records: &mut [u8], base_offset: Offset, now: Timestamp) -> Timestamp {
    let log_append_time = match state.settings.timestamp_type {
        TimestampType::CreateTime => Timestamp::NONE,
        TimestampType::LogAppendTime => {
            batch::stamp_log_append_time(records, now);
            now
        }
    };
    batch::stamp(records, base_offset, state.replica.epoch());
    log_append_time
}

fn duplicate(
    state: &State,
    base_offset: Offset,
    last_offset: Offset,
    timestamp: Timestamp,
) -> Appended {
    let log_append_time = match state.settings.timestamp_type {
        TimestampType::CreateTime => Timestamp::NONE,
        TimestampType::LogAppendTime => timestamp,
    };
    Appended {
        base_offset,
        needed: last_offset.next(),
        log_append_time,
        log_start: state.log.log_start_offset(),
        duplicate: true,
        wants_sync: false,
    }
}
