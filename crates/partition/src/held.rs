//! How much the partitions of one log directory hold together of what is bounded for all of them: kept
//! by the partitions as they change, so that no reader of the figure goes over a hundred thousand of them to add it up.

use std::sync::atomic::{AtomicU64, Ordering};

use storage::Log;

/// What the partitions of one log directory hold together.
#[derive(Debug, Default)]
pub struct HeldSums {
    unchecked_bytes: AtomicU64,
    producer_bytes: AtomicU64,
    refused_bytes: AtomicU64,
    ahead_bytes: AtomicU64,
}

/// What one log holds of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    unchecked_bytes: u64,
    producer_bytes: u64,
    ahead_bytes: u64,
}

impl Held {
    pub(crate) fn by(log: &Log) -> Held {
        Held {
            unchecked_bytes: log.bytes_past_checkpoint(),
            producer_bytes: log.producer_bytes() as u64,
            ahead_bytes: log.ahead_bytes(),
        }
    }
}

impl HeldSums {
    /// Bytes appended that no checkpoint covers: recovery would have to read them after a crash.
    pub fn unchecked_bytes(&self) -> u64 {
        self.unchecked_bytes.load(Ordering::Relaxed)
    }

    /// Memory that the idempotent producers take that are known, in bytes.
    pub fn producer_bytes(&self) -> u64 {
        self.producer_bytes.load(Ordering::Relaxed)
    }

    /// Memory of refused sequences of idempotent producers, in bytes. Part of [`HeldSums::producer_bytes`].
    pub fn refused_bytes(&self) -> u64 {
        self.refused_bytes.load(Ordering::Relaxed)
    }

    /// Zeros that were written ahead, or are being written, in bytes.
    pub fn ahead_bytes(&self) -> u64 {
        self.ahead_bytes.load(Ordering::Relaxed)
    }

    /// Counts the memory of the refused sequences of one partition: `before` bytes until now, `now` bytes from now on.
    pub(crate) fn move_refused_bytes(&self, before: u64, now: u64) {
        if now == before {
            return;
        }
        // Wraps where the bytes become fewer, and so do the sums.
        for sum in [&self.producer_bytes, &self.refused_bytes] {
            sum.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// One log held so much before, and holds so much now.
    pub(crate) fn moved(&self, before: Held, now: Held) {
        let add = |sum: &AtomicU64, before: u64, now: u64| {
            if now != before {
                // Wraps where it becomes less, and so does the sum.
                sum.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
            }
        };
        add(&self.unchecked_bytes, before.unchecked_bytes, now.unchecked_bytes);
        add(&self.producer_bytes, before.producer_bytes, now.producer_bytes);
        add(&self.ahead_bytes, before.ahead_bytes, now.ahead_bytes);
    }
}
