//! Finding offsets by time, exactly: to the record, not to the batch.

use std::cell::Cell;

use compression::records::RecordStream;
use model::{BatchHeader, LeaderEpoch, Offset, Timestamp, TimestampType};

use super::Log;
use crate::names::Home;
use crate::scan::BatchScan;
use crate::segment::Segment;
use crate::stamps::Stamps;
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

/// What a search by time needs of a log: taken under the log's lock, used without it, for as long as
/// reading and decompressing takes.
#[derive(Debug)]
pub struct TimeLookup {
    home: Home,
    /// Views of the segments that hold anything between log start and limit, with their ends.
    segments: Vec<(Segment, Offset)>,
    /// What stands before the checksums of their batches.
    stamps: Stamps,
    log_start: Offset,
    limit: Offset,
}

/// A segment, and the offset behind it.
type Bounded<'a> = (&'a Segment, Offset);

impl Log {
    /// Prepares a search by time among the records below `limit`. Reads nothing.
    pub fn time_lookup(&self, limit: Offset) -> TimeLookup {
        let from = self.segment_of(self.log_start);
        let segments = (from..self.segments.len())
            .map(|number| (self.segments[number].clone(), self.end_of(number)))
            .take_while(|(segment, _)| segment.base < limit)
            .collect();
        let (home, stamps) = (self.home.clone(), self.stamps_from(self.segments[from].base));
        TimeLookup { home, segments, stamps, log_start: self.log_start, limit }
    }

    /// As [`TimeLookup::first_at`], while the log is locked.
    pub fn find_by_timestamp(
        &self,
        timestamp: Timestamp,
        limit: Offset,
    ) -> Result<Option<TimestampedOffset>, StorageError> {
        self.time_lookup(limit).first_at(timestamp)
    }

    /// As [`TimeLookup::newest`], while the log is locked.
    pub fn find_max_timestamp(
        &self,
        limit: Offset,
    ) -> Result<Option<TimestampedOffset>, StorageError> {
        self.time_lookup(limit).newest()
    }
}

impl TimeLookup {
    /// The first record, from the log start on and below the limit, whose timestamp is at least
    /// `timestamp`. Decompresses batches where it must.
    ///
    /// Fails with [`StorageError::Io`] also when retention or compaction has put a segment away in
    /// the meantime: then look up again.
    pub fn first_at(
        &self,
        timestamp: Timestamp,
    ) -> Result<Option<TimestampedOffset>, StorageError> {
        for (segment, end) in &self.segments {
            if segment.peak(&self.home)?.timestamp < timestamp {
                continue;
            }
            let from = segment.position_by_time(&self.home, timestamp, self.limit.min(*end))?;
            let wanted = |t: Timestamp| t >= timestamp;
            if let Some(found) = self.find_in(&(segment, *end), from, timestamp, wanted)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The first of the records with the largest timestamp below the limit (KIP-734). `None` if
    /// there is no record with a timestamp. Fails as [`TimeLookup::first_at`] does.
    pub fn newest(&self) -> Result<Option<TimestampedOffset>, StorageError> {
        let mut best: Option<TimestampedOffset> = None;
        for (segment, end) in &self.segments {
            let peak = segment.peak(&self.home)?;
            let known = best.map_or(Timestamp::NONE, |best| best.timestamp);
            if peak.timestamp <= known {
                continue;
            }
            let limit = self.limit.min(*end);
            let mut found = None;
            if peak.offset < limit && segment.base >= self.log_start {
                let from = segment.position_by_time(&self.home, peak.timestamp, limit)?;
                let wanted = |t: Timestamp| t == peak.timestamp;
                found = self.find_in(&(segment, *end), from, peak.timestamp, wanted)?;
            }
            // The header of a batch may promise more than its records hold.
            if found.is_none() {
                found = self.largest_in(&(segment, *end), limit, known)?;
            }
            best = found.or(best);
        }
        Ok(best)
    }

    /// The first record of a segment with a timestamp that is `wanted`, in a batch that has one of
    /// at least `least`.
    fn find_in(
        &self,
        segment: &Bounded<'_>,
        from: u64,
        least: Timestamp,
        wanted: impl Fn(Timestamp) -> bool,
    ) -> Result<Option<TimestampedOffset>, StorageError> {
        let mut first = None;
        self.each_record(segment, from, &Cell::new(least), |found| {
            if wanted(found.timestamp) {
                first = Some(found);
            }
            first.is_none()
        })?;
        Ok(first)
    }

    /// The first record of a segment with the largest timestamp above `known`: from the batch on that
    /// has the largest timestamp of those before the limit, as far as the time index tells.
    fn largest_in(
        &self,
        bounded: &Bounded<'_>,
        limit: Offset,
        known: Timestamp,
    ) -> Result<Option<TimestampedOffset>, StorageError> {
        let segment = bounded.0;
        let indexed = segment.newest_indexed(&self.home, limit)?;
        let indexed = indexed.filter(|batch| batch.header.base_offset >= self.log_start);
        let from = match &indexed {
            Some(batch) => batch.position,
            None => segment.position_of(&self.home, self.log_start)?,
        };
        let best = self.largest_from(bounded, from, known)?;
        let promised = indexed.map_or(Timestamp::NONE, |batch| batch.header.max_timestamp);
        if best.map_or(known, |best| best.timestamp) < promised {
            // A header that promises more than its records hold has hidden those before it.
            return self.largest_from(bounded, 0, known);
        }
        Ok(best)
    }

    fn largest_from(
        &self,
        segment: &Bounded<'_>,
        from: u64,
        known: Timestamp,
    ) -> Result<Option<TimestampedOffset>, StorageError> {
        let mut best: Option<TimestampedOffset> = None;
        let above = |timestamp: Timestamp| Timestamp(timestamp.0.saturating_add(1));
        // Batches that cannot hold a larger one are not decompressed.
        let least = Cell::new(above(known));
        self.each_record(segment, from, &least, |found| {
            if found.timestamp >= least.get() {
                best = Some(found);
                least.set(above(found.timestamp));
            }
            true
        })?;
        Ok(best)
    }

    /// Visits the records between log start and limit in a segment, from a position on, of the
    /// batches whose largest timestamp is at least `least`, until the visitor returns `false`.
    /// The records of control batches count, as they do in Kafka. A batch that cannot be read is noted
    /// and costs its own records only.
    fn each_record(
        &self,
        (segment, end): &Bounded<'_>,
        from: u64,
        least: &Cell<Timestamp>,
        mut visit: impl FnMut(TimestampedOffset) -> bool,
    ) -> Result<(), StorageError> {
        let file = segment.file(&self.home)?;
        let mut scan = BatchScan::new(&*file, from, segment.size());
        let mut chain = self.stamps.chain((from == 0).then_some(segment.base), *end);
        let mut buffer = Vec::new();
        loop {
            let at = scan.position();
            let unreadable = |error| segment.unreadable(&self.home, at, segment.base, error);
            let Some(((_, header, batch), damage)) =
                scan.next_even_damaged().map_err(unreadable)?
            else {
                return Ok(());
            };
            // Of a damaged batch the offsets may be what is wrong.
            match damage.is_some() {
                true => chain = self.stamps.chain(None, *end),
                false => chain
                    .take(&header)
                    .map_err(|reason| segment.misplaced(&self.home, at, &chain, reason))?,
            }
            if header.base_offset >= self.limit {
                return Ok(());
            }
            if header.max_timestamp < least.get() || header.last_offset() < self.log_start {
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
                if offset >= self.limit || (offset >= self.log_start && !visit(found)) {
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
