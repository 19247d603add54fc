//! Pooled buffers for what comes in. Filling memory that the process has not touched yet costs more
//! than receiving, checksumming and writing the same bytes together, so buffers go round.
//!
//! Classes are powers of two from 64 KiB to 8 MiB; what is larger is allocated and freed. The pool
//! keeps at most [`RETAINED_BYTES_MAX`] of buffers that nobody uses. A buffer comes empty: memory of
//! it that nothing was ever read into has never been touched, and costs nothing.

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
/// With so many bytes on loan none are kept: memory may be short.
const LENT_BYTES_MANY: usize = 64 * 1024 * 1024;

/// The pool, shared by all connections.
#[derive(Debug, Default)]
pub struct BufferPool {
    classes: [Mutex<Vec<Vec<u8>>>; CLASSES],
    /// Bytes in `classes`.
    retained_bytes: AtomicUsize,
    /// Bytes handed out and not yet back.
    used_bytes: AtomicUsize,
    /// Most bytes that were handed out at a time.
    #[cfg(test)]
    used_bytes_max: AtomicUsize,
}

/// A buffer on loan; it goes back to the pool when dropped. It must not grow beyond the room that
/// it came with but by [`Buffer::grow`].
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    pool: Arc<BufferPool>,
}

/// The class that holds `size` bytes, if any does.
fn class_of(size: usize) -> Option<usize> {
    let units = size.div_ceil(SMALL_BYTES).max(1).next_power_of_two();
    let class = units.trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

impl BufferPool {
    /// Lends an empty buffer with room for at least `size` bytes.
    pub fn take(self: &Arc<Self>, size: usize) -> Buffer {
        let class = class_of(size);
        let pooled = class.and_then(|class| self.classes[class].lock().pop());
        let bytes = match pooled {
            Some(bytes) => {
                self.retained_bytes.fetch_sub(bytes.capacity(), Ordering::Relaxed);
                bytes
            }
            None => Vec::with_capacity(class.map_or(size, |class| SMALL_BYTES << class)),
        };
        self.lend(bytes.capacity());
        Buffer { bytes, pool: Arc::clone(self) }
    }

    fn lend(&self, bytes: usize) {
        let _before = self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        #[cfg(test)]
        self.used_bytes_max.fetch_max(_before + bytes, Ordering::Relaxed);
    }

    /// Bytes on loan now, used or not.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Most bytes on loan at a time.
    #[cfg(test)]
    pub fn used_bytes_max(&self) -> usize {
        self.used_bytes_max.load(Ordering::Relaxed)
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
                self.retained_bytes.fetch_sub(bytes.capacity(), Ordering::Relaxed);
            }
        }
    }

    fn give_back(&self, mut bytes: Vec<u8>) {
        let size = bytes.capacity();
        if self.used_bytes.fetch_sub(size, Ordering::Relaxed) > LENT_BYTES_MANY {
            return;
        }
        let Some(class) = class_of(size).filter(|class| SMALL_BYTES << class == size) else {
            return;
        };
        if self.retained_bytes.fetch_add(size, Ordering::Relaxed) + size > RETAINED_BYTES_MAX {
            self.retained_bytes.fetch_sub(size, Ordering::Relaxed);
            return;
        }
        bytes.clear();
        self.classes[class].lock().push(bytes);
    }
}

impl Buffer {
    /// Makes room for `size` bytes in all, in the same memory: the allocator moves pages of large blocks, so that the
    /// content is not held twice. With mimalloc it is, while one buffer grows.
    pub fn grow(&mut self, size: usize) {
        let before = self.bytes.capacity();
        self.bytes.reserve_exact(size.saturating_sub(self.bytes.len()));
        self.pool.lend(self.bytes.capacity() - before);
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
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
        assert_eq!((buffer.capacity(), pool.used_bytes()), (128 * 1024, 128 * 1024));
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
