//! Files that no log refers to any more and somebody may still be reading: they are removed after
//! `file.delete.delay.ms`.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use storage::DeletedSegment;
use storage::disk::Disk;
use tracing::debug;

/// The files, and when each may go.
#[derive(Debug, Default)]
pub struct Trash {
    waiting: Mutex<Vec<(Instant, DeletedSegment)>>,
}

impl Trash {
    /// Removes the files of `segment` when `delay_ms` have passed.
    pub fn add(&self, segment: DeletedSegment, delay_ms: i64) {
        let delay = Duration::from_millis(delay_ms.max(0) as u64);
        self.waiting.lock().push((Instant::now() + delay, segment));
    }

    /// Bytes of the files that may be removed now.
    pub fn due_bytes(&self) -> u64 {
        let now = Instant::now();
        let waiting = self.waiting.lock();
        waiting.iter().filter(|(at, _)| *at <= now).map(|(_, segment)| segment.size_bytes).sum()
    }

    /// Removes what is due, with pauses; what is left because `pause` says so, or because it cannot be
    /// removed, is found and removed when the log is opened again.
    pub fn empty(&self, disk: &dyn Disk, pause: &mut dyn FnMut() -> bool) {
        let now = Instant::now();
        let due: Vec<_> = self.waiting.lock().extract_if(.., |(at, _)| *at <= now).collect();
        for (_, segment) in due {
            match segment.remove_in_pieces(disk, pause) {
                Ok(true) => {}
                Ok(false) => return,
                Err(cause) => {
                    debug!(base_offset = segment.base_offset.0, %cause, "cannot remove a deleted segment");
                }
            }
        }
    }
}
