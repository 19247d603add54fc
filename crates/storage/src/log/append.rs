//! Appending. Not here: how the active segment is rolled (`roll.rs`).
//!
//! Batches come validated and stamped; here they are written in one piece, then indexed. Nothing is
//! allocated for a batch but the growth of an index.

use model::{BatchHeader, Offset, Timestamp};

use super::Log;
use crate::StorageError;
use crate::disk::guard;
use crate::producers::aborted::{self, AbortedTransaction};
use crate::producers::transactions::Marker;

/// Ends of batches remembered; a high watermark is rarely further behind.
const BOUNDARIES: usize = 32;

/// Where the batches appended last end in the active segment. Takes memory for as many as there were:
/// very many partitions are appended to once in a while.
#[derive(Debug, Default)]
pub(super) struct Boundaries {
    ends: Vec<(Offset, u64)>,
    /// The oldest one, once there are as many as are kept.
    next: usize,
}

impl Boundaries {
    fn push(&mut self, end: Offset, position: u64) {
        if self.ends.len() == BOUNDARIES {
            self.ends[self.next] = (end, position);
            self.next = (self.next + 1) % BOUNDARIES;
            return;
        }
        if self.ends.len() == self.ends.capacity() {
            self.ends.reserve_exact(self.ends.len().max(1));
        }
        self.ends.push((end, position));
    }

    /// The position at which the batch ends that `offset` lies right behind.
    pub(super) fn position(&self, offset: Offset) -> Option<u64> {
        self.ends.iter().find(|(end, _)| *end == offset).map(|(_, position)| *position)
    }
}

impl Log {
    /// Appends batches that were validated and stamped: `bytes` holds those that `headers` describe,
    /// one behind the other, at offsets from the log end on (a follower's may leave gaps).
    ///
    /// One write, unless they do not fit one segment. The segment is rolled before if it would grow
    /// too large, is too old, or has a full index. Afterwards [`Log::log_end_offset`] has moved;
    /// durable is nothing yet.
    ///
    /// Fails with [`StorageError::OutOfOrder`], having changed nothing; with [`StorageError::Io`]
    /// when the write failed: what was written is cut off again, and the log takes no more writes.
    pub fn append(
        &mut self,
        bytes: &[u8],
        headers: &[BatchHeader],
        now: Timestamp,
    ) -> Result<(), StorageError> {
        self.usable()?;
        self.read_what_is_left()?;
        self.check_order(headers)?;
        let total: u64 = headers.iter().map(|header| header.size_bytes as u64).sum();
        assert_eq!(total, bytes.len() as u64, "the headers are those of the bytes");
        let (mut bytes, mut headers) = (bytes, headers);
        while !headers.is_empty() {
            let (count, size) = self.fitting(headers);
            let end = self.log_end;
            let result = self.append_piece(&bytes[..size], &headers[..count], now);
            let result = self.failing(result);
            if let (Err(error), true) = (&result, self.log_end > end) {
                // What was written stands in the log, and not all that belongs to it was noted.
                self.failed.get_or_insert_with(|| error.to_string().into());
                self.usable()?;
            }
            result?;
            (bytes, headers) = (&bytes[size..], &headers[count..]);
        }
        Ok(())
    }

    fn check_order(&self, headers: &[BatchHeader]) -> Result<(), StorageError> {
        let mut expected = self.log_end;
        for header in headers {
            if header.base_offset < expected {
                return Err(StorageError::OutOfOrder { expected, found: header.base_offset });
            }
            expected = header.next_offset();
        }
        Ok(())
    }

    /// What was written was cut off, and the zeros with it; but some may have been written behind the cut.
    fn write_failed(&mut self, error: StorageError) -> StorageError {
        // Nothing was written, and so nothing cut.
        if error.lacks_resources() || !self.end_ahead() {
            return error;
        }
        let _excepted = guard::append_writes();
        self.active().cut_file(&self.home).err().unwrap_or(error)
    }

    /// How many of the batches, and how many bytes, fit one segment. At least one, whatever its
    /// size.
    fn fitting(&self, headers: &[BatchHeader]) -> (usize, usize) {
        let most = self.config.segment_bytes as u64;
        let mut size = 0;
        for (count, header) in headers.iter().enumerate() {
            let span = header.last_offset().0 - headers[0].base_offset.0;
            let larger = size + header.size_bytes as u64;
            if count > 0 && (larger > most || span > i32::MAX as i64) {
                return (count, size as usize);
            }
            size = larger;
        }
        (headers.len(), size as usize)
    }

    fn append_piece(
        &mut self,
        bytes: &[u8],
        headers: &[BatchHeader],
        now: Timestamp,
    ) -> Result<(), StorageError> {
        let (Some(first), Some(last)) = (headers.first(), headers.last()) else { return Ok(()) };
        let newest = headers.iter().map(|header| header.max_timestamp).max().unwrap_or(now);
        if self.must_roll(bytes.len() as u64, last.last_offset(), newest, now)? {
            let base = self.base_for(first.base_offset, last.last_offset());
            self.roll(base, now)?;
        }
        let reserve = self.config.preallocate.then_some(self.config.segment_bytes as u64);
        let mut position = self.active().size();
        self.pass_zeros(position + bytes.len() as u64);
        let home = &self.home;
        let active = self.segments.last_mut().expect("a log has an active segment");
        if let Err(error) = active.write(home, bytes, reserve) {
            return Err(self.write_failed(error));
        }
        self.first_file_was_made();
        let mut rest = bytes;
        for header in headers {
            let (batch, behind) = rest.split_at(header.size_bytes as usize);
            self.take_in(position, header, batch, now)?;
            position += header.size_bytes as u64;
            rest = behind;
        }
        Ok(())
    }

    /// Brings all that is known of the log up to a batch that now stands at `position`.
    fn take_in(
        &mut self,
        position: u64,
        header: &BatchHeader,
        batch: &[u8],
        now: Timestamp,
    ) -> Result<(), StorageError> {
        let interval = self.config.index_interval_bytes;
        self.active_mut().note(position, header, interval);
        if header.leader_epoch < self.epochs.latest() {
            // This broker led in a later epoch, and wrote nothing: the leader that it follows now has records of an
            // earlier one that this log lacked.
            self.epochs_unwritten |= self.epochs.truncate_end(header.base_offset);
        }
        self.epochs_unwritten |= self.epochs.assign(header.leader_epoch, header.base_offset)
            || self.epochs.begins_at(header.base_offset);
        if header.base_offset > self.log_end {
            // A leader's log may have gaps, and those were moved behind before they were acknowledged.
            self.dense_from = self.dense_from.map(|from| from.max(header.base_offset));
        }
        self.log_end = header.next_offset();
        self.boundaries.push(self.log_end, position + header.size_bytes as u64);
        self.durability.unchecked_bytes += header.size_bytes as u64;
        if let Some(entry) = self.take_in_producer(header, batch, now) {
            let _excepted = guard::append_writes();
            let active = self.segments.last_mut().expect("a log has an active segment");
            let files = aborted::append(&self.home, active.base, &mut active.aborted, &entry)?;
            active.unsynced_aborted = Some(files);
        }
        Ok(())
    }

    /// The part of taking a batch in that concerns producers, appended at `now`. Returns the transaction that the batch
    /// aborted, if it is a marker that does.
    pub(super) fn take_in_producer(
        &mut self,
        header: &BatchHeader,
        batch: &[u8],
        now: Timestamp,
    ) -> Option<AbortedTransaction> {
        if !header.producer_id.is_idempotent() {
            return None;
        }
        let completed = self.producers.apply(header, Marker::read(header, batch), now)?;
        completed.aborted.then(|| AbortedTransaction {
            producer_id: completed.producer_id,
            first_offset: completed.first_offset,
            last_offset: completed.last_offset,
            last_stable_offset: self.producers.stable_after(&completed),
        })
    }

    /// Whether batches of `bytes` bytes that end at `last_offset` begin a new segment.
    pub(super) fn must_roll(
        &mut self,
        bytes: u64,
        last_offset: Offset,
        newest: Timestamp,
        now: Timestamp,
    ) -> Result<bool, StorageError> {
        let (size, index_bytes) = (self.active().size(), self.config.segment_index_bytes);
        if !self.active().reaches(last_offset) {
            return Ok(true);
        }
        if size == 0 {
            return Ok(false);
        }
        if size + bytes > self.config.segment_bytes as u64
            || self.active_mut().is_index_full(index_bytes)
        {
            return Ok(true);
        }
        self.is_old(newest, now)
    }

    /// Whether the active segment has lived for `segment.ms`: from its first record to `newest`, or
    /// if its records carry no time, from when it was opened to `now`.
    pub(super) fn is_old(&self, newest: Timestamp, now: Timestamp) -> Result<bool, StorageError> {
        let config = &self.config;
        // What must be compacted by a time must be in a sealed segment by then.
        let segment_ms = match config.cleanup.compact && config.max_compaction_lag_ms > 0 {
            true => config.segment_ms.min(config.max_compaction_lag_ms),
            false => config.segment_ms,
        };
        let lifetime = segment_ms.saturating_sub(config.segment_jitter_ms);
        let first = self.active().first_timestamp(&self.home)?;
        let waited = match first {
            Some(first) if first > Timestamp::NONE => newest.ms_since(first),
            _ => now.ms_since(self.active_since),
        };
        Ok(waited > lifetime)
    }

    /// The base of a new segment for these batches: the log end, so that no offset lies between
    /// segments, unless a gap is too wide for the indexes.
    pub(super) fn base_for(&self, first: Offset, last: Offset) -> Offset {
        if last.0 - self.log_end.0 > i32::MAX as i64 {
            return first;
        }
        self.log_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_boundaries_are_kept_and_few_take_little_room() {
        let mut boundaries = Boundaries::default();
        assert_eq!(boundaries.ends.capacity(), 0);
        for end in 1..=100 {
            boundaries.push(Offset(end), end as u64 * 10);
            let count = boundaries.ends.len();
            assert!(boundaries.ends.capacity() < 2 * count, "{count}");
        }
        assert_eq!(boundaries.position(Offset(100 - BOUNDARIES as i64)), None);
        for end in 101 - BOUNDARIES as i64..=100 {
            assert_eq!(boundaries.position(Offset(end)), Some(end as u64 * 10));
        }
    }
}
