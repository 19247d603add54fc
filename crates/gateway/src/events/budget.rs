//! Memory of all chunks together: what was put in first goes first, whichever partition it is of. A chunk that a reader
//! still writes is counted until it is written.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use super::feed::Track;

/// Entries of chunks that are gone, up to which none are looked for.
const STALE_MAX: usize = 1024;

/// What chunks may hold.
#[derive(Debug)]
pub(super) struct Budget {
    limit_bytes: usize,
    /// Bytes of one event.
    pub(super) event_bytes_max: usize,
    held_bytes: AtomicUsize,
    held_count: AtomicUsize,
    /// Chunks in the order in which they came.
    order: Mutex<VecDeque<Entry>>,
}

/// A chunk that was put in.
#[derive(Debug)]
struct Entry {
    track: Weak<Track>,
    /// Its first offset.
    from: i64,
    /// When it was made, or stretched last, as far as is known here.
    made_at: Instant,
}

/// Memory of one chunk, until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.held_count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Budget {
    pub(super) fn new(limit_bytes: usize, event_bytes_max: usize) -> Arc<Budget> {
        Arc::new(Budget {
            limit_bytes,
            event_bytes_max,
            held_bytes: AtomicUsize::new(0),
            held_count: AtomicUsize::new(0),
            order: Mutex::default(),
        })
    }

    /// Counts a chunk.
    pub(super) fn hold(self: &Arc<Budget>, bytes: usize) -> Held {
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.held_count.fetch_add(1, Ordering::Relaxed);
        Held { budget: Arc::clone(self), bytes }
    }

    /// Notes that a chunk was put into a track; takes out the oldest ones, as many as are too many.
    pub(super) fn note(&self, track: &Arc<Track>, from: i64) {
        let mut order = self.order.lock().expect("no code under it panics");
        order.push_back(Entry { track: Arc::downgrade(track), from, made_at: Instant::now() });
        if order.len() > STALE_MAX + 2 * self.held_count.load(Ordering::Relaxed) {
            order.retain(|entry| entry.track.strong_count() > 0);
        }
        // What has just come is waited for.
        while self.is_over() && order.len() > 1 {
            let Some(entry) = order.pop_front() else { break };
            // A track's lock is never held where this one is taken.
            let Some(known) = entry.track.upgrade() else { continue };
            if let Some(made_at) = known.forget(entry.from, entry.made_at) {
                // It has grown since, and its end is as new as that.
                order.push_back(Entry { made_at, ..entry });
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.held_bytes() > self.limit_bytes
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }
}
