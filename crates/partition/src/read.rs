//! Reading: which bytes of which file answer a fetch.

use std::io::ErrorKind;

use model::{Durability, LeaderEpoch, Offset};
use replication::Acknowledgement;
use storage::{AbortedLookup, AbortedTransaction, FileSlice, ReadCursor, ReadLookup, StorageError};

use crate::error::PartitionError;
use crate::partition::{Partition, State, StateGuard};
use crate::sync::wake;
use crate::sync_queue::Urgency;

/// How far a reader may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Consumers: to the high watermark.
    Committed,
    /// Consumers with `read_committed`: to the last stable offset.
    Stable,
    /// Replicas: to the log end.
    LogEnd,
}

/// What is asked of one partition.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest {
    /// The first record wanted.
    pub offset: Offset,
    /// Where the last read ended, if it did at `offset`: saves the look-up in the index.
    pub cursor: ReadCursor,
    /// Bytes at most, but for `at_least_one`.
    pub max_bytes: u32,
    /// Give a whole batch even if it is larger (KIP-74).
    pub at_least_one: bool,
    /// How far it may see.
    pub isolation: Isolation,
    /// Whether it reads also where this broker does not lead.
    pub any_role: bool,
    /// The leader epoch that the reader knows, if it says.
    pub known_epoch: Option<LeaderEpoch>,
    /// The leader epoch of the last record the reader has, if it says (KIP-595): tells whether it diverged.
    pub last_fetched_epoch: Option<LeaderEpoch>,
}

impl ReadRequest {
    /// A reader that begins at `offset` and says nothing of itself: at most `max_bytes` bytes, but one whole
    /// batch.
    pub fn at(offset: Offset, max_bytes: u32, isolation: Isolation) -> ReadRequest {
        ReadRequest {
            offset,
            cursor: ReadCursor::default(),
            max_bytes,
            at_least_one: true,
            isolation,
            any_role: false,
            known_epoch: None,
            last_fetched_epoch: None,
        }
    }
}

/// What one partition answers.
#[derive(Clone, Debug)]
pub struct Read {
    /// The bytes, if there are any.
    pub slice: Option<FileSlice>,
    /// With [`Isolation::Stable`]: the aborted transactions with records in the slice, ordered by first
    /// offset.
    pub aborted: Vec<AbortedTransaction>,
    /// Everything below is committed.
    pub high_watermark: Offset,
    /// No open transaction below.
    pub last_stable: Offset,
    /// First readable offset.
    pub log_start: Offset,
    /// The reader's history is not ours: the last leader epoch in common and where it ended.
    pub diverging: Option<(LeaderEpoch, Offset)>,
    /// The offset lies in an earlier segment than the end that the reader may see: an answer is of one segment, and does
    /// not grow by waiting.
    pub is_segments_behind: bool,
    /// The acknowledgement in a replica's fetch, if it raised the high watermark.
    pub last_acknowledgement: Option<Acknowledgement>,
}

/// How often a look-up is begun anew because retention or compaction has put files away under it.
pub(crate) const LOOKUPS_MAX: usize = 4;

impl Partition {
    /// Finds what answers `request`. Reads indexes and batch headers, not records; and those without
    /// the lock, unless the reader follows the end of the log and nothing need be read.
    pub fn read(&self, request: &ReadRequest) -> Result<Read, PartitionError> {
        let mut tried = 0;
        loop {
            let (mut read, lookups) = self.look(request)?;
            if lookups.is_empty() {
                return Ok(read);
            }
            tried += 1;
            let found = lookups.run(&mut read);
            let is_void = {
                let state = self.lock_to_read(request)?;
                self.note_files(&state);
                state.log.generation() != lookups.generation
            };
            match found {
                Ok(()) if !is_void => return Ok(read),
                Err(error) if tried == LOOKUPS_MAX || !(is_void || is_gone(&error)) => {
                    return Err(error.into());
                }
                // The slice's file is open: the slice is whole batches even if the log has changed.
                Ok(()) if tried == LOOKUPS_MAX => return Ok(read),
                _ => {}
            }
        }
    }

    /// A client and a replica read again later; a thread that loads records of its own broker waits.
    fn lock_to_read(&self, request: &ReadRequest) -> Result<StateGuard<'_>, PartitionError> {
        match request.any_role {
            true => Ok(self.lock()),
            false => self.lock_briefly(),
        }
    }

    /// What is known under the lock, and the look-up that tells the rest.
    fn look(&self, request: &ReadRequest) -> Result<(Read, Lookups), PartitionError> {
        let mut state = self.lock_to_read(request)?;
        match request.any_role {
            true => self.check_served()?,
            false => self.check_leader(&state.replica, request.known_epoch)?,
        }
        let high_watermark = state.replica.high_watermark();
        let last_stable = state.log.last_stable_offset(high_watermark);
        let generation = state.log.generation();
        let mut lookups = Lookups { slice: None, aborted: None, generation };
        let mut read = Read {
            slice: None,
            aborted: Vec::new(),
            high_watermark,
            last_stable,
            log_start: state.log.log_start_offset(),
            diverging: diverging(&state, request),
            is_segments_behind: false,
            last_acknowledgement: None,
        };
        if read.diverging.is_some() {
            return Ok((read, lookups));
        }
        let limit = match request.isolation {
            Isolation::Committed => high_watermark,
            Isolation::Stable => last_stable,
            Isolation::LogEnd => state.log.log_end_offset(),
        };
        check_range(&state, request.offset)?;
        let waits = request.offset >= high_watermark && request.isolation != Isolation::LogEnd;
        if waits && state.settings.durability == Durability::Fsync {
            let waker = self.demand(&mut state, Urgency::Reader);
            wake(state, waker);
            return Ok((read, lookups));
        }
        // Between the limit and the log end there is nothing to see, but nothing wrong either.
        if request.offset >= limit {
            return Ok((read, lookups));
        }
        let ReadRequest { cursor, offset, max_bytes, at_least_one, .. } = *request;
        read.is_segments_behind = state.log.is_segments_behind(offset, limit);
        read.slice = state.log.read_at_once(&cursor, offset, limit, max_bytes);
        if read.slice.is_none() {
            lookups.slice =
                state.log.read_lookup(&cursor, offset, limit, max_bytes, at_least_one)?;
        }
        if request.isolation == Isolation::Stable {
            lookups.aborted = state.log.aborted_lookup(offset);
        }
        Ok((read, lookups))
    }
}

/// The reads of indexes and batch headers that complete a [`Read`], prepared under the lock.
struct Lookups {
    /// The search for the slice, unless the lock already gave it.
    slice: Option<ReadLookup>,
    /// The search for aborted transactions in the slice.
    aborted: Option<AbortedLookup>,
    /// Generation of the log when the lookups were prepared.
    generation: u64,
}

impl Lookups {
    fn is_empty(&self) -> bool {
        self.slice.is_none() && self.aborted.is_none()
    }

    fn run(&self, read: &mut Read) -> Result<(), StorageError> {
        if let Some(lookup) = &self.slice {
            read.slice = lookup.run()?;
        }
        let (Some(lookup), Some(slice)) = (&self.aborted, &read.slice) else { return Ok(()) };
        let end = slice.end_offset()?.min(read.last_stable);
        read.aborted = lookup.run(end)?;
        Ok(())
    }
}

/// Whether a file was not there: retention has given it another name.
pub(crate) fn is_gone(error: &StorageError) -> bool {
    matches!(error, StorageError::Io { source, .. } if source.kind() == ErrorKind::NotFound)
}

fn check_range(state: &State, offset: Offset) -> Result<(), PartitionError> {
    let (log_start, log_end) = (state.log.log_start_offset(), state.log.log_end_offset());
    if offset > log_end || offset < log_start {
        return Err(PartitionError::OutOfRange { offset, log_start, log_end });
    }
    Ok(())
}

fn diverging(state: &State, request: &ReadRequest) -> Option<(LeaderEpoch, Offset)> {
    let last = request.last_fetched_epoch.filter(|epoch| *epoch != LeaderEpoch::NONE)?;
    let (epoch, end) = state.log.end_offset_for_epoch(last);
    (epoch < last || end < request.offset).then_some((epoch, end))
}
