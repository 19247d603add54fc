//! The socket of a reader: the head of the answer, chunks of HTTP, and how long a reader may take nothing.

use std::io::{self, IoSlice};
use std::pin::pin;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::counts::Counts;
use crate::front::Transport;

/// Bytes that the system keeps for a reader that takes nothing. The default may grow to 4 MiB, of memory that all sockets of
/// the machine share.
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Bytes that wait unsent before the socket says that it takes no more.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES: u32 = 16 * 1024;
/// After so much silence the other side is asked whether it lives.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
/// After so long without an answer to what was sent, pings included, the other side is gone.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNANSWERED_MAX: Duration = Duration::from_secs(90);
/// How often a reader that takes nothing is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Bytes that a reader may send after its request. One that sends more is not a reader, and is closed.
const HEARD_BYTES_MAX: usize = 64 * 1024;

/// A reader's socket.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    stream: Transport,
    /// Whether the body goes in chunks; clients of HTTP/1.0 know none.
    is_chunked: bool,
    blocked_max: Duration,
    heard_bytes: usize,
    counts: &'a Counts,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        stream: Transport,
        is_chunked: bool,
        blocked_max: Duration,
        counts: &'a Counts,
    ) -> Writer<'a> {
        // A socket that keeps its defaults costs memory and nothing else.
        if let Err(cause) = tune(stream.tcp()) {
            debug!(%cause, "a socket keeps the system's own limits");
        }
        Writer { stream, is_chunked, blocked_max, heard_bytes: 0, counts }
    }

    /// Writes the head of the answer.
    pub(super) async fn head(&mut self, head: &[u8]) -> io::Result<()> {
        self.write(&mut [IoSlice::new(head)], || false).await
    }

    /// Writes two parts of the body, each a chunk of its own; a part may be empty. `is_burden` says whether a reader that
    /// takes nothing must go at once.
    pub(super) async fn body(
        &mut self,
        first: &[u8],
        second: &[u8],
        is_burden: impl Fn() -> bool,
    ) -> io::Result<()> {
        let sizes = [first, second].map(|part| match part.len() {
            // An empty chunk would end the body.
            0 => String::new(),
            _ if !self.is_chunked => String::new(),
            size => format!("{size:x}\r\n"),
        });
        let end = |size: &String| if size.is_empty() { &b""[..] } else { b"\r\n" };
        let [of_first, of_second] = &sizes;
        let parts = [
            of_first.as_bytes(),
            first,
            end(of_first),
            of_second.as_bytes(),
            second,
            end(of_second),
        ];
        self.write(&mut parts.map(IoSlice::new), is_burden).await
    }

    /// Ends the body. `is_burden` as for [`Writer::body`].
    pub(super) async fn finish(mut self, is_burden: impl Fn() -> bool) -> io::Result<()> {
        if self.is_chunked {
            self.write(&mut [IoSlice::new(b"0\r\n\r\n")], &is_burden).await?;
        }
        // With TLS it says so first, if the socket takes that.
        let close_at = Instant::now() + self.blocked_max;
        let mut ending = pin!(self.stream.shutdown());
        loop {
            let look_at = close_at.min(Instant::now() + LOOK_EVERY);
            match timeout_at(look_at, &mut ending).await {
                Ok(ended) => return ended,
                Err(_) if is_burden() || Instant::now() >= close_at => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(_) => {}
            }
        }
    }

    /// Fails when nothing was taken for too long, or when the reader is a burden then.
    async fn write(
        &mut self,
        mut parts: &mut [IoSlice<'_>],
        is_burden: impl Fn() -> bool,
    ) -> io::Result<()> {
        let (mut blocked_since, mut counted) = (None, None);
        loop {
            let is_all = parts.iter().all(|part| part.is_empty());
            let taken = match is_all {
                true => self.stream.try_flush().map(|()| 0),
                false => self.stream.try_write_vectored(parts),
            };
            match taken {
                Ok(_) if is_all => return Ok(()),
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    IoSlice::advance_slices(&mut parts, written);
                    self.counts.sent_bytes.add(written as u64);
                    (blocked_since, counted) = (None, None);
                }
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {
                    let now = Instant::now();
                    let close_at = *blocked_since.get_or_insert(now) + self.blocked_max;
                    let look_at = close_at.min(now + LOOK_EVERY);
                    let is_ready = timeout_at(look_at, self.stream.tcp().writable()).await.is_ok();
                    if !is_ready && (is_burden() || Instant::now() >= close_at) {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    if !is_ready {
                        counted.get_or_insert_with(|| self.counts.blocked.raised());
                    }
                }
                Err(cause) => return Err(cause),
            }
        }
    }

    /// Waits until the reader goes away. It has nothing to say: what it sends is read, and thrown away.
    pub(super) async fn gone(&mut self) {
        let mut bytes = [0; 512];
        loop {
            match self.stream.read(&mut bytes).await {
                Ok(0) | Err(_) => return,
                Ok(read) => self.heard_bytes += read,
            }
            if self.heard_bytes > HEARD_BYTES_MAX {
                return;
            }
        }
    }
}

/// Limits what the system keeps for a reader, and how long it takes to notice that one is gone.
pub(crate) fn tune(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_AFTER))?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
        socket.set_tcp_user_timeout(Some(UNANSWERED_MAX))?;
    }
    Ok(())
}
