//! Files that no log refers to any more and somebody may still be reading: they are removed after
//! `file.delete.delay.ms`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use storage::DeletedSegment;
use storage::disk::removal::Freeing;
use tracing::warn;

/// How long what could not be removed is left alone, in milliseconds.
const RETRY_MS: i64 = 10_000;

/// The files, and when each may go.
#[derive(Debug, Default)]
pub struct Trash {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By when they may go; the number tells apart those of one moment.
    segments: BTreeMap<(Instant, u64), DeletedSegment>,
    next_number: u64,
}

impl Trash {
    /// Removes the files of `segment` when `delay_ms` have passed.
    pub fn add(&self, segment: DeletedSegment, delay_ms: i64) {
        let due = Instant::now() + Duration::from_millis(delay_ms.max(0) as u64);
        let mut waiting = self.waiting.lock();
        waiting.next_number += 1;
        let number = waiting.next_number;
        waiting.segments.insert((due, number), segment);
    }

    /// Bytes of the files that may be removed now.
    pub fn due_bytes(&self) -> u64 {
        let now = (Instant::now(), u64::MAX);
        self.waiting.lock().segments.range(..=now).map(|(_, segment)| segment.size_bytes).sum()
    }

    /// Segments whose files are still there.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.waiting.lock().segments.len()
    }

    /// Takes out a segment whose files may be removed now.
    pub(super) fn take_due(&self) -> Option<DeletedSegment> {
        let mut waiting = self.waiting.lock();
        let (due, _) = *waiting.segments.first_key_value()?.0;
        if due > Instant::now() {
            return None;
        }
        waiting.segments.pop_first().map(|(_, segment)| segment)
    }

    /// Removes a segment's files, with pauses; false: no more is to be removed now. What is left is tried again.
    pub(super) fn remove(&self, segment: DeletedSegment, freeing: &mut Freeing<'_>) -> bool {
        match segment.free(freeing) {
            Ok(true) => true,
            Ok(false) => {
                self.add(segment, 0);
                false
            }
            Err(cause) => {
                warn!(base_offset = segment.base_offset.0, %cause, "cannot remove a deleted segment; this is tried again");
                self.add(segment, RETRY_MS);
                true
            }
        }
    }
}
