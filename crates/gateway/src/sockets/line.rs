//! The connection below a WebSocket. It knows how long the client has taken nothing, and charges what the client has sent of
//! a message that is not whole yet: a frame says how long it will be long before it is there.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::frame_edges::FrameEdges;
use crate::charge::{Charge, Room};

/// Bytes of a message that are part of what a connection is charged for anyway.
const UNCHARGED_BYTES: usize = 8 * 1024;
/// The head of a control frame of a client, whose payload has at most 125 bytes: two bytes, and its mask.
const CONTROL_HEAD_BYTES: usize = 6;
/// In steps of so many bytes the rest is charged.
const STEP_BYTES: usize = 64 * 1024;

/// There is no memory for what the client sends.
#[derive(Debug, thiserror::Error)]
#[error("the gateway has no memory for this message now")]
pub(super) struct NoMemory;

/// The connection.
pub(super) struct Line<S> {
    inner: S,
    /// Since when the client has taken nothing of what waits for it.
    blocked_since: Option<Instant>,
    /// Bytes that have come since the last whole message, but for control frames.
    heard_bytes: usize,
    /// The most of them since the buffers of the WebSocket were new: the library keeps a read buffer of that size.
    peak_heard_bytes: usize,
    edges: FrameEdges,
    charge: Charge,
}

impl<S> Line<S> {
    /// Charges messages that arrive to this room. `read`: bytes that were read before.
    pub(super) fn new(inner: S, room: &Room, read: &[u8]) -> Line<S> {
        let mut edges = FrameEdges::default();
        edges.pass(read);
        Line {
            inner,
            blocked_since: None,
            heard_bytes: 0,
            peak_heard_bytes: 0,
            edges,
            charge: Charge::new(room),
        }
    }

    /// Whether the last byte that was read ends a frame that ends a message.
    pub(super) fn is_between_messages(&self) -> bool {
        self.edges.is_between_messages()
    }

    /// Whether the library keeps a large read buffer.
    pub(super) fn has_large_buffer(&self) -> bool {
        self.peak_heard_bytes > UNCHARGED_BYTES
    }

    /// The buffers of the WebSocket are new.
    pub(super) fn buffers_are_new(&mut self) {
        (self.heard_bytes, self.peak_heard_bytes) = (0, 0);
        // To hold less always succeeds.
        let _ = self.charge.set(0);
    }

    pub(super) fn blocked_since(&self) -> Option<Instant> {
        self.blocked_since
    }

    /// A message is whole. The read buffer of its size stays charged until the buffers are new.
    pub(super) fn message_is_whole(&mut self) {
        self.heard_bytes = 0;
    }

    /// A control frame with a payload of so many bytes is taken. It belongs to no message.
    pub(super) fn was_control(&mut self, bytes: usize) {
        self.heard_bytes = self.heard_bytes.saturating_sub(CONTROL_HEAD_BYTES + bytes);
    }

    fn was_heard(&mut self, bytes: usize) -> io::Result<()> {
        self.heard_bytes += bytes;
        self.peak_heard_bytes = self.peak_heard_bytes.max(self.heard_bytes);
        let steps = self.peak_heard_bytes.saturating_sub(UNCHARGED_BYTES).div_ceil(STEP_BYTES);
        if steps > 0 {
            self.charge.set(steps * STEP_BYTES).map_err(|_| io::Error::other(NoMemory))?;
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Line<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if let Poll::Ready(Ok(())) = result {
            self.edges.pass(&buffer.filled()[before..]);
            self.was_heard(buffer.filled().len() - before)?;
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Line<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, bytes);
        match result {
            Poll::Ready(_) => self.blocked_since = None,
            Poll::Pending => {
                self.blocked_since.get_or_insert_with(Instant::now);
            }
        }
        result
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
