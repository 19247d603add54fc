//! Who is let in to the HTTP port: at most so many at a time, and nobody who takes his time over a
//! request. The port is open to strangers and must cost them nothing, so it may not cost the broker
//! its descriptors.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// How long the header of a request may take from the first moment on, or from the last answer.
const HEADER_MAX: Duration = Duration::from_secs(10);
/// How long accepting rests after the system refused it.
const REST_AFTER_FAILURE: Duration = Duration::from_millis(50);
/// What ends the header of a request.
const HEADER_END: &[u8] = b"\r\n\r\n";

/// A listening socket that lets in so many at a time.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    room: Arc<Semaphore>,
    header_max: Duration,
}

impl Door {
    /// Lets in `connections_max` at a time; further ones are closed at once.
    pub fn new(listener: TcpListener, connections_max: usize) -> Door {
        let room = Arc::new(Semaphore::new(connections_max));
        Door { listener, room, header_max: HEADER_MAX }
    }

    /// Gives requests another time for their header.
    #[cfg(test)]
    pub fn with_header_max(mut self, header_max: Duration) -> Door {
        self.header_max = header_max;
        self
    }
}

impl axum::serve::Listener for Door {
    type Io = Visitor;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visitor, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    // Dropped, and so closed, if there is no room.
                    if let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() {
                        return (Visitor::new(stream, permit, self.header_max), peer);
                    }
                }
                Err(_) => tokio::time::sleep(REST_AFTER_FAILURE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that was let in. Reading fails when a header takes too long.
#[derive(Debug)]
pub struct Visitor {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
    header_max: Duration,
    /// Runs out if the header is not whole by then.
    timer: Pin<Box<Sleep>>,
    /// How much of [`HEADER_END`] was seen last; all of it: no header is awaited.
    seen: usize,
}

impl Visitor {
    fn new(stream: TcpStream, permit: OwnedSemaphorePermit, header_max: Duration) -> Visitor {
        let timer = Box::pin(tokio::time::sleep(header_max));
        Visitor { stream, _permit: permit, header_max, timer, seen: 0 }
    }

    fn look_at(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.seen == HEADER_END.len() {
                return;
            }
            self.seen = match *byte {
                byte if byte == HEADER_END[self.seen] => self.seen + 1,
                b'\r' => 1,
                _ => 0,
            };
        }
    }
}

impl AsyncRead for Visitor {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if let Poll::Ready(result) = Pin::new(&mut self.stream).poll_read(cx, buffer) {
            self.look_at(&buffer.filled()[before..]);
            return Poll::Ready(result);
        }
        if self.seen < HEADER_END.len() && self.timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl AsyncWrite for Visitor {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // An answer: the next request's time begins.
        self.seen = 0;
        let until = Instant::now() + self.header_max;
        self.timer.as_mut().reset(until);
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
