//! Pooled buffers for what comes in. Filling memory that the process has not touched yet costs more
//! than receiving, checksumming and writing the same bytes together, so buffers go round.
//!
//! Classes are powers of two from 64 KiB to 8 MiB; what is larger is allocated and freed. The pool
//! keeps at most [`RETAINED_BYTES_MAX`] of buffers that nobody uses.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Bytes of the smallest class: what a connection reads into while its frames are small.
pub const SMALL_BYTES: usize = 64 * 1024;
/// How many classes there are: 64 KiB, 128 KiB, … 8 MiB.
const CLASSES: usize = 8;
/// Unused bytes that the pool keeps for the next frame.
const RETAINED_BYTES_MAX: usize = 12 * 1024 * 1024;

/// The pool, shared by all connections.
#[derive(Debug, Default)]
pub struct BufferPool {
    classes: [Mutex<Vec<Box<[u8]>>>; CLASSES],
    /// Bytes in `classes`.
    retained_bytes: AtomicUsize,
    /// Bytes handed out and not yet back.
    used_bytes: AtomicUsize,
}

/// A buffer on loan; it goes back to the pool when dropped.
#[derive(Debug)]
pub struct Buffer {
    bytes: Box<[u8]>,
    pool: Arc<BufferPool>,
}

/// The class that holds `size` bytes, if any does.
fn class_of(size: usize) -> Option<usize> {
    let units = size.div_ceil(SMALL_BYTES).max(1).next_power_of_two();
    let class = units.trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

impl BufferPool {
    /// Lends a buffer of at least `size` bytes. Its contents are whatever they were.
    pub fn take(self: &Arc<Self>, size: usize) -> Buffer {
        let class = class_of(size);
        let pooled = class.and_then(|class| self.classes[class].lock().pop());
        let bytes = match pooled {
            Some(bytes) => {
                self.retained_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
                bytes
            }
            // Zeroed memory of this size comes untouched from the system: pages cost on first use.
            None => vec![0; class.map_or(size, |class| SMALL_BYTES << class)].into_boxed_slice(),
        };
        self.used_bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        Buffer { bytes, pool: Arc::clone(self) }
    }

    /// Bytes on loan now.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes kept for later.
    #[cfg(test)]
    fn retained_bytes(&self) -> usize {
        self.retained_bytes.load(Ordering::Relaxed)
    }

    /// Frees what nobody uses. Called when the broker has been idle for a while.
    pub fn trim(&self) {
        for class in &self.classes {
            for bytes in class.lock().drain(..) {
                self.retained_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
            }
        }
    }

    fn give_back(&self, bytes: Box<[u8]>) {
        let size = bytes.len();
        self.used_bytes.fetch_sub(size, Ordering::Relaxed);
        let Some(class) = class_of(size).filter(|class| SMALL_BYTES << class == size) else {
            return;
        };
        if self.retained_bytes.fetch_add(size, Ordering::Relaxed) + size > RETAINED_BYTES_MAX {
            self.retained_bytes.fetch_sub(size, Ordering::Relaxed);
            return;
        }
        self.classes[class].lock().push(bytes);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_goes_round() {
        let pool = Arc::new(BufferPool::default());
        let buffer = pool.take(100_000);
        assert_eq!((buffer.len(), pool.used_bytes()), (128 * 1024, 128 * 1024));
        let at = buffer.as_ptr();
        drop(buffer);
        assert_eq!((pool.used_bytes(), pool.retained_bytes()), (0, 128 * 1024));
        assert_eq!(pool.take(SMALL_BYTES + 1).as_ptr(), at);
    }

    #[test]
    fn what_is_too_large_or_too_much_is_freed() {
        let pool = Arc::new(BufferPool::default());
        drop(pool.take(9 * 1024 * 1024));
        assert_eq!(pool.retained_bytes(), 0);
        let many: Vec<_> = (0..10).map(|_| pool.take(2 * 1024 * 1024)).collect();
        drop(many);
        assert_eq!(pool.retained_bytes(), RETAINED_BYTES_MAX);
        pool.trim();
        assert_eq!(pool.retained_bytes(), 0);
    }
}
