//! How well a topic's records compress, as Kafka's producer estimates it: batches are full when they
//! are expected to be, which is known for certain only afterwards.

use model::batch::HEADER_BYTES;
use std::sync::atomic::{AtomicU32, Ordering};

/// Compressed size by uncompressed size of a topic's batches. It falls slowly and rises fast: a batch
/// that grows too large costs more than one that stays small.
#[derive(Debug)]
pub(super) struct CompressionRatio(AtomicU32);

impl Default for CompressionRatio {
    fn default() -> CompressionRatio {
        CompressionRatio(AtomicU32::new(1.0f32.to_bits()))
    }
}

impl CompressionRatio {
    const STEP_DOWN: f32 = 0.005;
    const STEP_UP: f32 = 0.05;
    /// What is added to be on the safe side.
    const MARGIN: f64 = 1.05;

    fn get(&self) -> f32 {
        f32::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// A batch turned out so. Two at the same time may overwrite each other: it is an estimate.
    pub(super) fn observe(&self, compressed_bytes: usize, uncompressed_bytes: usize) {
        let (observed, before) =
            (compressed_bytes as f32 / uncompressed_bytes.max(1) as f32, self.get());
        let after = if observed > before {
            observed.max(before + CompressionRatio::STEP_UP)
        } else {
            observed.max(before - CompressionRatio::STEP_DOWN)
        };
        self.0.store(after.to_bits(), Ordering::Relaxed);
    }

    /// Uncompressed bytes, header included, at which a batch is expected to have `batch_bytes`; at
    /// most `bytes_max` unless `batch_bytes` is more, so that a batch of records that do not compress
    /// after all can still be sent.
    pub(super) fn limit_bytes(&self, batch_bytes: usize, bytes_max: usize) -> usize {
        let room = batch_bytes.saturating_sub(HEADER_BYTES) as f64;
        let limit = room / (f64::from(self.get()).max(0.001) * CompressionRatio::MARGIN);
        (HEADER_BYTES + limit as usize).min(bytes_max.max(batch_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_falls_slowly_and_rises_fast() {
        let ratio = CompressionRatio::default();
        ratio.observe(50, 100);
        assert!((ratio.get() - 0.995).abs() < 1e-6);
        for _ in 0..200 {
            ratio.observe(50, 100);
        }
        assert!((ratio.get() - 0.5).abs() < 1e-6);
        ratio.observe(51, 100);
        assert!((ratio.get() - 0.55).abs() < 1e-6);
        ratio.observe(90, 100);
        assert!((ratio.get() - 0.9).abs() < 1e-6);
    }

    #[test]
    fn a_batch_may_be_larger_before_it_is_compressed_but_not_without_end() {
        let ratio = CompressionRatio::default();
        assert_eq!(ratio.limit_bytes(16_384, 1 << 20), 61 + 15_545);
        for _ in 0..200 {
            ratio.observe(1, 1000);
        }
        assert_eq!(ratio.limit_bytes(16_384, 1 << 20), 1 << 20);
        assert_eq!(ratio.limit_bytes(2 << 20, 1 << 20), 2 << 20);
    }
}
