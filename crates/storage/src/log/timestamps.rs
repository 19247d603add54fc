//! Finding offsets by time, exactly: to the record, not to the batch.

use compression::records::RecordStream;
use model::{BatchHeader, LeaderEpoch, Offset, Timestamp, TimestampType};

use super::Log;
use crate::scan::BatchScan;
use crate::segment::Segment;
use crate::{StorageError, UnreadableBatch};

/// A record found by its timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampedOffset {
    /// Its timestamp.
    pub timestamp: Timestamp,
    /// Its offset.
    pub offset: Offset,
    /// The leader epoch of its batch.
    pub epoch: LeaderEpoch,
}

impl Log {
    /// The first record, from the log start on and below `limit`, whose timestamp is at least
    /// `timestamp`. Decompresses batches where it must.
    pub fn find_by_timestamp(
        &self,
        timestamp: Timestamp,
        limit: Offset,
    ) -> Result<Option<TimestampedOffset>, StorageError> {
        for segment in &self.segments[self.segment_of(self.log_start)..] {
            if segment.base >= limit {
                break;
            }
            if segment.peak(&self.home)?.timestamp < timestamp {
                continue;
            }
            let from = segment.position_by_time(&self.home, timestamp)?;
            let wanted = |t: Timestamp| t >= timestamp;
            if let Some(found) = self.find_in(segment, from, limit, timestamp, wanted)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The first of the records with the largest timestamp below `limit` (KIP-734). `None` if there
    /// is no record with a timestamp.
    pub fn find_max_timestamp(
        &self,
        limit: Offset,
    ) -> Result<Option<TimestampedOffset>, StorageError> {
        let mut best: Option<TimestampedOffset> = None;
        for (number, segment) in self.segments.iter().enumerate() {
            let peak = segment.peak(&self.home)?;
            let known = best.map_or(Timestamp::NONE, |best| best.timestamp);
            if peak.timestamp <= known || self.end_of(number) <= self.log_start {
                continue;
            }
            let whole = peak.offset < limit && segment.base >= self.log_start;
            let mut found = None;
            if whole {
                let from = segment.position_by_time(&self.home, peak.timestamp)?;
                let wanted = |t: Timestamp| t == peak.timestamp;
                found = self.find_in(segment, from, limit, peak.timestamp, wanted)?;
            }
            // The header of a batch may promise more than its records hold.
            if found.is_none() {
                found = self.largest_in(segment, limit, known)?;
            }
            best = found.or(best);
        }
        Ok(best)
    }

    /// The first record of a segment with a timestamp that is `wanted`, in a batch that has one of
    /// at least `least`.
    fn find_in(
        &self,
        segment: &Segment,
        from: u64,
        limit: Offset,
        least: Timestamp,
        wanted: impl Fn(Timestamp) -> bool,
    ) -> Result<Option<TimestampedOffset>, StorageError> {
        let mut first = None;
        self.each_record(segment, from, limit, least, |found| {
            if wanted(found.timestamp) {
                first = Some(found);
            }
            first.is_none()
        })?;
        Ok(first)
    }

    /// The first record of a segment with the largest timestamp above `least`.
    fn largest_in(
        &self,
        segment: &Segment,
        limit: Offset,
        least: Timestamp,
    ) -> Result<Option<TimestampedOffset>, StorageError> {
        let mut best: Option<TimestampedOffset> = None;
        let above = Timestamp(least.0.saturating_add(1));
        self.each_record(segment, 0, limit, above, |found| {
            if found.timestamp > best.map_or(least, |best| best.timestamp) {
                best = Some(found);
            }
            true
        })?;
        Ok(best)
    }

    /// Visits the records between log start and `limit` in a segment, from a position on, of the
    /// batches whose largest timestamp is at least `least`, until the visitor returns `false`.
    /// The records of control batches count, as they do in Kafka. A batch that cannot be read is noted
    /// and costs its own records only.
    fn each_record(
        &self,
        segment: &Segment,
        from: u64,
        limit: Offset,
        least: Timestamp,
        mut visit: impl FnMut(TimestampedOffset) -> bool,
    ) -> Result<(), StorageError> {
        let file = segment.file(&self.home)?;
        let mut scan = BatchScan::new(&*file, from, segment.size());
        let mut buffer = Vec::new();
        loop {
            let at = scan.position();
            let unreadable = |error| segment.unreadable(&self.home, at, segment.base, error);
            let Some(((_, header, batch), damage)) =
                scan.next_even_damaged().map_err(unreadable)?
            else {
                return Ok(());
            };
            if header.base_offset >= limit {
                return Ok(());
            }
            if header.max_timestamp < least || header.last_offset() < self.log_start {
                continue;
            }
            if let Some(error) = damage {
                self.note_unreadable(segment, at, &header, &error);
                continue;
            }
            let mut records = RecordStream::new(&header, batch, u64::MAX, &mut buffer);
            while let Some(read) = records.next_head() {
                let head = match read {
                    Ok(head) => head,
                    // This batch tells no more; those behind it do.
                    Err(error) => {
                        self.note_unreadable(segment, at, &header, &error);
                        break;
                    }
                };
                let offset = header.base_offset.plus(i64::from(head.offset_delta));
                let timestamp = match header.timestamp_type() {
                    TimestampType::CreateTime => {
                        header.base_timestamp.plus_ms(head.timestamp_delta)
                    }
                    TimestampType::LogAppendTime => header.max_timestamp,
                };
                let found = TimestampedOffset { timestamp, offset, epoch: header.leader_epoch };
                if offset >= limit || (offset >= self.log_start && !visit(found)) {
                    return Ok(());
                }
            }
        }
    }

    fn note_unreadable(
        &self,
        segment: &Segment,
        position: u64,
        header: &BatchHeader,
        reason: &dyn std::fmt::Display,
    ) {
        self.home.unreadable.note(UnreadableBatch {
            path: self.home.segment_path(segment.base, crate::names::LOG),
            position,
            offset: header.base_offset,
            reason: reason.to_string(),
        });
    }
}
