//! Reading: which bytes of which file answer a fetch.

use model::{LeaderEpoch, Offset};
use storage::{FileSlice, ReadCursor};

use crate::error::PartitionError;
use crate::partition::{Partition, State};

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
    /// The term that the reader knows, if it says.
    pub known_epoch: Option<LeaderEpoch>,
    /// The term of the last record it has, if it says (KIP-595): tells whether it diverged.
    pub last_fetched_epoch: Option<LeaderEpoch>,
}

/// What one partition answers.
#[derive(Clone, Debug)]
pub struct Read {
    /// The bytes, if there are any.
    pub slice: Option<FileSlice>,
    /// Everything below is committed.
    pub high_watermark: Offset,
    /// No open transaction below.
    pub last_stable: Offset,
    /// First readable offset.
    pub log_start: Offset,
    /// The reader's history is not ours: the last term in common and where it ended.
    pub diverging: Option<(LeaderEpoch, Offset)>,
}

impl Partition {
    /// Finds what answers `request`. Reads indexes and batch headers, not records.
    pub fn read(&self, request: &ReadRequest) -> Result<Read, PartitionError> {
        let state = self.state.lock();
        self.check_leader(&state.replica, request.known_epoch)?;
        let high_watermark = state.replica.high_watermark();
        let last_stable = state.log.last_stable_offset(high_watermark);
        let mut read = Read {
            slice: None,
            high_watermark,
            last_stable,
            log_start: state.log.log_start_offset(),
            diverging: diverging(&state, request),
        };
        if read.diverging.is_some() {
            return Ok(read);
        }
        let limit = match request.isolation {
            Isolation::Committed => high_watermark,
            Isolation::Stable => last_stable,
            Isolation::LogEnd => state.log.log_end_offset(),
        };
        read.slice = slice(&state, request, limit)?;
        Ok(read)
    }
}

fn slice(
    state: &State,
    request: &ReadRequest,
    limit: Offset,
) -> Result<Option<FileSlice>, PartitionError> {
    let log_end = state.log.log_end_offset();
    if request.offset > log_end || request.offset < state.log.log_start_offset() {
        return Err(PartitionError::OutOfRange {
            offset: request.offset,
            log_start: state.log.log_start_offset(),
            log_end,
        });
    }
    // Between the limit and the log end there is nothing to see, but nothing wrong either.
    if request.offset >= limit {
        return Ok(None);
    }
    Ok(state.log.read_from(
        &request.cursor,
        request.offset,
        limit,
        request.max_bytes,
        request.at_least_one,
    )?)
}

fn diverging(state: &State, request: &ReadRequest) -> Option<(LeaderEpoch, Offset)> {
    let last = request.last_fetched_epoch.filter(|epoch| *epoch != LeaderEpoch::NONE)?;
    let (epoch, end) = state.log.end_offset_for_epoch(last);
    (epoch < last || end < request.offset).then_some((epoch, end))
}
