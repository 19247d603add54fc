//! Questions about offsets: ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

use model::{LeaderEpoch, Offset, Timestamp};
use storage::{StorageError, TimeLookup, TimestampedOffset};

use crate::error::PartitionError;
use crate::partition::Partition;
use crate::read::{Isolation, LOOKUPS_MAX, is_gone};

/// Which offset is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetQuery {
    /// The one behind the last that this isolation sees.
    Latest(Isolation),
    /// The first readable one.
    Earliest,
    /// The record with the largest timestamp (KIP-734).
    MaxTimestamp,
    /// The first record at or after this time.
    Timestamp(Timestamp),
}

/// Where a leader epoch ended (KIP-101).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The largest leader epoch that is not above the one asked for.
    pub epoch: LeaderEpoch,
    /// The offset behind its last record.
    pub end: Offset,
}

impl Partition {
    /// Answers `query`, if any record answers it.
    ///
    /// Fails with [`PartitionError::EndNotSettled`] where the answer depends on how far the partition is committed, and a new
    /// leader does not know that yet: the end that was told before must not go back.
    pub fn find_offset(
        &self,
        query: OffsetQuery,
        known_epoch: Option<LeaderEpoch>,
    ) -> Result<Option<TimestampedOffset>, PartitionError> {
        let state = self.lock();
        self.check_leader(&state.replica, known_epoch)?;
        let high_watermark = state.replica.high_watermark();
        let is_settled = state.replica.is_high_watermark_settled();
        let at = |offset| TimestampedOffset {
            timestamp: Timestamp::NONE,
            offset,
            epoch: state.log.epoch_at(offset),
        };
        // Behind the end nothing is written yet: its leader epoch is the present one.
        let end = |offset| TimestampedOffset {
            timestamp: Timestamp::NONE,
            offset,
            epoch: state.replica.epoch(),
        };
        let found = match query {
            OffsetQuery::Latest(Isolation::Committed | Isolation::Stable) if !is_settled => None,
            OffsetQuery::Latest(Isolation::Committed) => Some(end(high_watermark)),
            OffsetQuery::Latest(Isolation::Stable) => {
                Some(end(state.log.last_stable_offset(high_watermark)))
            }
            OffsetQuery::Latest(Isolation::LogEnd) => Some(end(state.log.log_end_offset())),
            OffsetQuery::Earliest => Some(at(state.log.log_start_offset())),
            OffsetQuery::MaxTimestamp => {
                drop(state);
                self.look_up_time(known_epoch, |lookup| lookup.newest())?
            }
            OffsetQuery::Timestamp(timestamp) => {
                drop(state);
                self.look_up_time(known_epoch, |lookup| lookup.first_at(timestamp))?
            }
        };
        match found {
            None if !is_settled => Err(PartitionError::EndNotSettled),
            found => Ok(found),
        }
    }

    /// Searches by time what is committed. May read and decompress segments: without the lock.
    fn look_up_time(
        &self,
        known_epoch: Option<LeaderEpoch>,
        search: impl Fn(&TimeLookup) -> Result<Option<TimestampedOffset>, StorageError>,
    ) -> Result<Option<TimestampedOffset>, PartitionError> {
        let mut tried = 0;
        loop {
            let (lookup, generation) = {
                let state = self.lock();
                self.check_leader(&state.replica, known_epoch)?;
                let limit = state.replica.high_watermark();
                (state.log.time_lookup(limit), state.log.generation())
            };
            tried += 1;
            let found = self.with_files(|| search(&lookup));
            let is_void = self.lock().log.generation() != generation;
            match found {
                Ok(found) if !is_void || tried == LOOKUPS_MAX => return Ok(found),
                Err(error) if tried == LOOKUPS_MAX || !(is_void || is_gone(&error)) => {
                    return Err(error.into());
                }
                // Retention or compaction has put files away under the search.
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// The leader epoch of the last synced record, and the offset behind that record, whatever the role. Where no record is left,
    /// the leader epoch that the next one would have.
    pub fn synced_end(&self) -> (LeaderEpoch, Offset) {
        let state = self.lock();
        let end = state.log.synced_below();
        let last = if end > state.log.log_start_offset() { Offset(end.0 - 1) } else { end };
        (state.log.epoch_at(last), end)
    }

    /// Where the leader epoch `epoch` ended here.
    pub fn epoch_end(
        &self,
        epoch: LeaderEpoch,
        known_epoch: Option<LeaderEpoch>,
    ) -> Result<EpochEnd, PartitionError> {
        let state = self.lock();
        self.check_leader(&state.replica, known_epoch)?;
        let (epoch, end) = state.log.end_offset_for_epoch(epoch);
        Ok(EpochEnd { epoch, end })
    }

    /// Deletes records below `offset`, or below the high watermark if `None`. Returns the new log
    /// start.
    pub fn delete_records(&self, offset: Option<Offset>) -> Result<Offset, PartitionError> {
        self.check_leader(&self.lock().replica, None)?;
        self.maintain(|log, high_watermark| {
            let offset = offset.unwrap_or(high_watermark);
            if offset > high_watermark {
                return Err(storage::StorageError::OutOfRange {
                    offset,
                    log_start: log.log_start_offset(),
                    log_end: high_watermark,
                });
            }
            if offset > log.log_start_offset() {
                log.delete_records_before(offset)?;
            }
            Ok(log.log_start_offset())
        })
    }
}
