//! Questions about offsets: ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

use model::{LeaderEpoch, Offset, Timestamp};
use storage::TimestampedOffset;

use crate::error::PartitionError;
use crate::partition::Partition;
use crate::read::Isolation;

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

/// Where a term ended (KIP-101).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The largest term that is not above the one asked for.
    pub epoch: LeaderEpoch,
    /// The offset behind its last record.
    pub end: Offset,
}

impl Partition {
    /// Answers `query`, if any record answers it.
    pub fn find_offset(
        &self,
        query: OffsetQuery,
        known_epoch: Option<LeaderEpoch>,
    ) -> Result<Option<TimestampedOffset>, PartitionError> {
        let state = self.state.lock();
        self.check_leader(&state.replica, known_epoch)?;
        let high_watermark = state.replica.high_watermark();
        let at = |offset| TimestampedOffset {
            timestamp: Timestamp::NONE,
            offset,
            epoch: state.log.epoch_at(offset),
        };
        // Behind the end nothing is written yet: its term is the present one.
        let end = |offset| TimestampedOffset {
            timestamp: Timestamp::NONE,
            offset,
            epoch: state.replica.epoch(),
        };
        Ok(match query {
            OffsetQuery::Latest(Isolation::Committed) => Some(end(high_watermark)),
            OffsetQuery::Latest(Isolation::Stable) => {
                Some(end(state.log.last_stable_offset(high_watermark)))
            }
            OffsetQuery::Latest(Isolation::LogEnd) => Some(end(state.log.log_end_offset())),
            OffsetQuery::Earliest => Some(at(state.log.log_start_offset())),
            OffsetQuery::MaxTimestamp => state.log.find_max_timestamp(high_watermark)?,
            OffsetQuery::Timestamp(timestamp) => {
                state.log.find_by_timestamp(timestamp, high_watermark)?
            }
        })
    }

    /// Where the term `epoch` ended here.
    pub fn epoch_end(
        &self,
        epoch: LeaderEpoch,
        known_epoch: Option<LeaderEpoch>,
    ) -> Result<EpochEnd, PartitionError> {
        let state = self.state.lock();
        self.check_leader(&state.replica, known_epoch)?;
        let (epoch, end) = state.log.end_offset_for_epoch(epoch);
        Ok(EpochEnd { epoch, end })
    }

    /// Deletes records below `offset`, or below the high watermark if `None`. Returns the new log
    /// start.
    pub fn delete_records(&self, offset: Option<Offset>) -> Result<Offset, PartitionError> {
        self.check_leader(&self.state.lock().replica, None)?;
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
