//! Appending as a leader: the path of every produced record.

use std::sync::Arc;
use std::task::Waker;

use model::batch;
use model::{BatchHeader, Durability, LeaderEpoch, Offset, Timestamp, TimestampType};
use replication::Event;
use storage::ProducerVerdict;
use storage::disk::hand_over;

use crate::check::{CheckedBatch, Effort, check, check_size};
use crate::error::PartitionError;
use crate::partition::{LockPatience, Partition, State, Status};
use crate::recompress::recompress;
use crate::sync_queue::{AppendAdmission, Urgency};

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
    /// The leader epoch in which this was answered: whether it is committed is said of this one
    /// ([`Partition::fate`]).
    pub epoch: LeaderEpoch,
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

/// A batch that was checked and may be appended.
#[derive(Debug)]
pub struct Prepared {
    header: BatchHeader,
    /// The batch as the topic's codec makes it; `None`: the one that was sent.
    stored: Option<Vec<u8>>,
}

impl Partition {
    /// Appends the one batch in `records`, stamping it in place. Checks it first, however long that
    /// takes.
    ///
    /// A coordinator's own records are written also while a write in the log directory hangs: on this thread, whose other work
    /// another one takes over.
    pub fn append(&self, records: &mut [u8], how: Append) -> Result<Appended, PartitionError> {
        match how.internal && self.admission() != AppendAdmission::Admitted {
            true => hand_over::wait(|| self.append_whole(records, how)),
            false => self.append_whole(records, how),
        }
    }

    fn append_whole(&self, records: &mut [u8], how: Append) -> Result<Appended, PartitionError> {
        let prepared = self.prepare(records, how, Effort::Whole)?;
        self.append_prepared(records, prepared.expect("no effort is too much"), how)
    }

    /// Checks the one batch in `records`, corrects what its header says of it, and compresses it
    /// anew if the topic wants that; no lock is held meanwhile. `None`: that takes more than `effort`.
    pub fn prepare(
        &self,
        records: &mut [u8],
        how: Append,
        effort: Effort,
    ) -> Result<Option<Prepared>, PartitionError> {
        let prepared = self.prepare_batch(records, how, effort);
        if let Err(error) = &prepared {
            self.note_refused_bytes(records, error, how.now);
        }
        prepared
    }

    fn prepare_batch(
        &self,
        records: &mut [u8],
        how: Append,
        effort: Effort,
    ) -> Result<Option<Prepared>, PartitionError> {
        if !self.is_writable() {
            return Err(PartitionError::DiskFull);
        }
        if !how.internal && self.admission() != AppendAdmission::Admitted {
            self.check_served()?;
            return Err(match self.status() {
                Status::Leading => PartitionError::DirectoryHangs,
                _ => PartitionError::NotLeader,
            });
        }
        let settings = match how.internal {
            true => self.settings(),
            false => Arc::clone(&self.lock_briefly()?.settings),
        };
        let checked = if how.internal {
            let header = BatchHeader::decode(records)?;
            CheckedBatch { header, is_corrected: false, expanded: None }
        } else {
            match check(records, &settings, how.now, effort)? {
                Some(checked) => checked,
                None => return Ok(None),
            }
        };
        if let Some(stored) = recompress(records, &checked, &settings) {
            let header = BatchHeader::decode(&stored)?;
            if !how.internal {
                check_size(&header, &settings)?;
            }
            return Ok(Some(Prepared { header, stored: Some(stored) }));
        }
        let header = checked.header;
        if checked.is_corrected {
            batch::correct(records, header.attributes, header.max_timestamp);
        }
        Ok(Some(Prepared { header, stored: None }))
    }

    /// Appends the batch that [`Partition::prepare`] was called with, stamping it in place.
    pub fn append_prepared(
        &self,
        records: &mut [u8],
        prepared: Prepared,
        how: Append,
    ) -> Result<Appended, PartitionError> {
        let Prepared { header, stored } = prepared;
        let appended = match stored {
            None => self.append_checked(records, &header, how),
            Some(mut stored) => self.append_checked(&mut stored, &header, how),
        };
        if let Err(error) = &appended {
            self.note_refused(&header, error, how.now);
        }
        appended
    }

    fn append_checked(
        &self,
        records: &mut [u8],
        checked: &BatchHeader,
        how: Append,
    ) -> Result<Appended, PartitionError> {
        let patience = if how.internal { LockPatience::Unlimited } else { LockPatience::Brief };
        let bytes = records.len() as u64;
        let mut state = self.lock_to_append(checked, bytes, how.now, patience)?;
        let _guard = AbortOnUnwind;
        self.check_leader(&state.replica, None)?;
        check_replicas(&state, how)?;
        match state.log.check_producer(checked) {
            // The log accepts any sequence of a producer without state.
            ProducerVerdict::Accept => {
                if let Some(refusal) = self.refusal_before(&state.log, checked, how.now) {
                    return Err(PartitionError::BehindRefused(refusal));
                }
            }
            ProducerVerdict::Duplicate { base_offset, last_offset, timestamp } => {
                return Ok(duplicate(&state, base_offset, last_offset, timestamp));
            }
            ProducerVerdict::OutOfOrderSequence => {
                let refusal = self.refusal_before(&state.log, checked, how.now);
                let error = PartitionError::OutOfOrderSequence;
                return Err(refusal.map_or(error, PartitionError::BehindRefused));
            }
            ProducerVerdict::InvalidEpoch => return Err(PartitionError::InvalidProducerEpoch),
        }
        let base_offset = state.log.log_end_offset();
        let log_append_time = stamp(&state, records, base_offset, how.now);
        let header = BatchHeader::decode(records)?;
        let result = state.log.append(records, std::slice::from_ref(&header), how.now);
        if let Err(error) = result {
            if error.is_fatal() {
                let effects = state.replica.step(Event::Failed);
                self.publish(state, effects);
            }
            return Err(error.into());
        }
        self.forget_refused(&header);
        self.count_held(&mut state);
        let log_end = state.log.log_end_offset();
        assert_eq!(log_end, header.next_offset(), "the log ends behind the batch");
        let appended = Appended {
            base_offset,
            needed: log_end,
            log_append_time,
            log_start: state.log.log_start_offset(),
            duplicate: false,
            epoch: state.replica.epoch(),
        };
        let was_committed = state.replica.high_watermark() == base_offset;
        let effects = state.replica.step(Event::Appended { log_end });
        let waker = self.appended(&mut state, records.len() as u64, how.acks, was_committed);
        self.tell_appended(&state);
        self.publish(state, effects);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(appended)
    }

    /// Tells the flusher what it must know of an append, in so far as nobody else does: whoever
    /// appends with `acks=all` asks for the sync when its whole request is appended.
    fn appended(
        &self,
        state: &mut State,
        bytes: u64,
        acks: Acks,
        was_committed: bool,
    ) -> Option<Waker> {
        if state.settings.durability == Durability::PageCache {
            let unsynced = state.log.log_end_offset().0 - state.log.synced_below().0;
            if unsynced >= state.settings.flush_messages {
                return self.demand(state, Urgency::Now);
            }
            let is_due = state.log.wants_names_synced();
            return if is_due { self.demand(state, Urgency::Later) } else { None };
        }
        state.sync.unsynced_bytes += bytes;
        let too_many = self.sync_queue.appended(bytes);
        let urgency = match was_committed && state.has_waiting_reader() {
            true => Urgency::Reader,
            false => Urgency::Later,
        };
        let waker = if acks == Acks::All { None } else { self.demand(state, urgency) };
        waker.or(too_many)
    }
}

impl State {
    /// Whether a consumer waits at the end of the log. One that has looked and does not wait yet
    /// looks again.
    fn has_waiting_reader(&self) -> bool {
        self.watchers.iter().fold(false, |any, (_, (watch, slot))| any | watch.touch(*slot))
    }
}

fn check_replicas(state: &State, how: Append) -> Result<(), PartitionError> {
    let in_sync = state.replica.leadership().map_or(0, |leadership| leadership.isr().len());
    // As in Kafka: a topic with fewer replicas than it asks for in sync is served by those there are.
    let required = state.replica.required_in_sync();
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
        epoch: state.replica.epoch(),
    }
}
