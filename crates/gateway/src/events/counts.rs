//! What is counted of event streams. Nothing for a single event: a few additions for each piece that is written.

use metrics::{ByReason, Counter, Durations, Level, Raised, reasons};
use serving::events::Reason;

reasons! {
    /// Why a stream was closed.
    Closed {
        /// Everything that was asked for is sent.
        Ended = "ended",
        /// The reader went away.
        Left = "left",
        /// The reader took nothing for too long.
        Blocked = "blocked",
        /// The reader was more than `maxLag` behind.
        Lag = "lag",
        /// A partition is not what it was: the reader comes again.
        Changed = "changed",
        /// The gateway stops.
        Stopping = "stopping",
    }
}

reasons! {
    /// Why a gap was said.
    Missed {
        /// Removed before it was read.
        Retention = "retention",
        /// The log was cut.
        Cut = "cut",
        /// The topic was made anew.
        Recreated = "recreated",
        /// The reader was slow, and asked to jump then.
        Slow = "slow",
    }
}

impl From<Reason> for Missed {
    fn from(reason: Reason) -> Missed {
        match reason {
            Reason::Retention => Missed::Retention,
            Reason::Cut => Missed::Cut,
            Reason::Recreated => Missed::Recreated,
            Reason::Slow => Missed::Slow,
        }
    }
}

/// Of all streams of a gateway.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Readers: event streams, and WebSockets that read as those do.
    pub(crate) readers: Level,
    /// Event streams that are open.
    pub(crate) streams: Level,
    /// Records that were made into events, once for each projection.
    pub(super) encoded: Counter,
    /// Events that were handed to sockets.
    pub(crate) sent: Counter,
    /// Bytes that sockets took, frames and ids included.
    pub(crate) sent_bytes: Counter,
    /// From a broker's answer to the moment at which a reader's socket had taken its events: of readers that wait at the
    /// end of the log, once for each piece.
    pub(crate) delivery: Durations,
    /// Reads of the past.
    pub(crate) catch_ups: Counter,
    /// Gaps that were said.
    pub(crate) gaps: ByReason<Missed>,
    /// Streams that were closed.
    pub(crate) closed: ByReason<Closed>,
    /// Readers that have taken nothing of what waits for them since they were last looked at, a second before.
    pub(crate) blocked: Level,
    /// Readers that read the past.
    pub(crate) catching_up: Level,
}

/// A reader that reads the past, from its first read of it until it waits for something new.
#[derive(Debug, Default)]
pub(super) struct CatchingUp<'a>(Option<Raised<'a>>);

impl<'a> CatchingUp<'a> {
    pub(super) fn begin(&mut self, counts: &'a Counts) {
        self.0.get_or_insert_with(|| counts.catching_up.raised());
    }

    pub(super) fn end(&mut self) {
        self.0 = None;
    }
}

impl Counts {
    /// Readers that were closed because they were too slow.
    fn closed_slow(&self) -> u64 {
        self.closed.of(Closed::Blocked) + self.closed.of(Closed::Lag)
    }

    /// As JSON; `held_bytes`: memory of chunks.
    pub(super) fn json(&self, held_bytes: usize) -> String {
        format!(
            "{{\"readers\":{},\"encoded_events\":{},\"sent_events\":{},\"catch_up_reads\":{},\"gaps\":{},\
             \"closed_slow\":{},\"blocked_readers\":{},\"chunk_bytes\":{held_bytes}}}",
            self.readers.get(),
            self.encoded.get(),
            self.sent.get(),
            self.catch_ups.get(),
            self.gaps.total(),
            self.closed_slow(),
            self.blocked.get(),
        )
    }
}
