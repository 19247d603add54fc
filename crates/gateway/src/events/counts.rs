//! What is counted of event streams.

use std::sync::atomic::{AtomicU64, Ordering};

/// One number; it may go down.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn less_one(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Of all streams of a gateway.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Streams that are open.
    pub(super) readers: Count,
    /// Records that were made into events, once for each projection.
    pub(super) encoded: Count,
    /// Events that were handed to sockets.
    pub(super) sent: Count,
    /// Reads of the past.
    pub(super) catch_ups: Count,
    /// Gaps that were said.
    pub(super) gaps: Count,
    /// Readers that were closed because they were too slow.
    pub(super) slow: Count,
    /// Readers that have taken nothing of what waits for them since they were last looked at, a second before.
    pub(super) blocked: Count,
}

/// Counts one more for as long as it lives.
#[derive(Debug)]
pub(super) struct OneMore<'a>(&'a Count);

impl Count {
    pub(super) fn one_more(&self) -> OneMore<'_> {
        self.add(1);
        OneMore(self)
    }
}

impl Drop for OneMore<'_> {
    fn drop(&mut self) {
        self.0.less_one();
    }
}

impl Counts {
    /// As JSON; `held_bytes`: memory of chunks.
    pub(super) fn json(&self, held_bytes: usize) -> String {
        let Counts { readers, encoded, sent, catch_ups, gaps, slow, blocked } = self;
        format!(
            "{{\"readers\":{},\"encoded_events\":{},\"sent_events\":{},\"catch_up_reads\":{},\"gaps\":{},\
             \"closed_slow\":{},\"blocked_readers\":{},\"chunk_bytes\":{held_bytes}}}",
            readers.get(),
            encoded.get(),
            sent.get(),
            catch_ups.get(),
            gaps.get(),
            slow.get(),
            blocked.get(),
        )
    }
}
