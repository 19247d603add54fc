//! A connection is one task: it reads, serves and answers on the thread that it was woken on.
//!
//! Each time it is woken it parses every whole frame that has arrived, dispatches the requests in
//! their order, answers those at the head of the line that are complete, and sends everything in
//! one go. There is no hand-over to another thread on the way of a produce or fetch request.
//!
//! Back-pressure: while too many requests or bytes are on their way out, nothing is read.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use crate::handlers::{self, Dispatched, Session};
use crate::server::Server;

use super::buffer::SMALL_BYTES;
use super::inbox::Inbox;
use super::outbox::{Outbox, Progress};
use super::slot::{Hangup, Slot};

/// Requests of one connection that may be in progress at once.
const IN_PROGRESS_MAX: usize = 256;
/// Bytes of answers to one connection that may wait to be sent before reading stops. Ranges of
/// files count, but hold no memory.
const QUEUED_BYTES_MAX: u64 = 8 << 20;
/// How soon a connection looks again whether there is memory for its large frame.
const MEMORY_RETRY: Duration = Duration::from_millis(5);

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum Ending {
    /// The peer closed it between two requests.
    #[error("the peer closed the connection")]
    Closed,
    /// The socket failed, or the peer went away in the middle of something.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    /// The peer sent what has no meaning.
    #[error("{0}")]
    Refused(String),
    /// Nothing was heard for `connections.max.idle.ms`.
    #[error("idle for longer than connections.max.idle.ms")]
    Idle,
    /// The rest of a frame did not come.
    #[error("a request did not arrive whole within {0:?}")]
    Stalled(Duration),
}

impl From<Hangup> for Ending {
    fn from(hangup: Hangup) -> Ending {
        Ending::Refused(hangup.0)
    }
}

/// One client's connection. A future that ends when the connection does.
pub struct Connection {
    stream: TcpStream,
    server: Arc<Server>,
    session: Session,
    inbox: Inbox,
    outbox: Outbox,
    /// Requests in progress, oldest first.
    line: VecDeque<Slot>,
    timer: Pin<Box<Sleep>>,
    /// When `timer` goes off. Invariant: never later than the next thing that must be looked at.
    armed: Instant,
    /// When bytes last arrived or left.
    last_active: Instant,
    /// Whether the socket takes no more bytes until it says so.
    blocked: bool,
}

impl Connection {
    /// Serves `stream`.
    pub fn new(stream: TcpStream, server: Arc<Server>, session: Session) -> Connection {
        let limits = &server.limits;
        let inbox = Inbox::new(Arc::clone(&server.buffers), limits.frame_bytes_max);
        let now = Instant::now();
        let armed = now + limits.connection_idle_max;
        Connection {
            stream,
            server,
            session,
            inbox,
            outbox: Outbox::default(),
            line: VecDeque::new(),
            timer: Box::pin(tokio::time::sleep_until(armed.into())),
            armed,
            last_active: now,
            blocked: false,
        }
    }

    fn run(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ending>> {
        loop {
            let now = Instant::now();
            self.answer(cx, now)?;
            let again = self.send(cx, now)? | self.receive(cx, now)?;
            if !again {
                return self.wait(cx, now);
            }
        }
    }

    /// Writes the answers that are complete, as far as the line allows.
    fn answer(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<(), Ending> {
        while let Some(slot) = self.line.front_mut() {
            if self.outbox.queued_bytes() > QUEUED_BYTES_MAX {
                break;
            }
            match slot.poll(cx, now, &mut self.outbox, &self.server.counters) {
                Poll::Ready(result) => {
                    self.line.pop_front();
                    result?;
                }
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    /// Sends what is queued. Returns whether to go round again at once.
    fn send(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, Ending> {
        if self.outbox.queued_bytes() == 0 {
            return Ok(false);
        }
        if self.blocked && self.stream.poll_write_ready(cx)?.is_pending() {
            return Ok(false);
        }
        self.blocked = false;
        let before = self.outbox.queued_bytes();
        let progress = self.outbox.send(&self.stream)?;
        let sent = before - self.outbox.queued_bytes();
        self.server.counters.bytes_sent.add(sent);
        if sent > 0 {
            self.last_active = now;
        }
        match progress {
            // Answers that waited for room may go on.
            Progress::Sent => Ok(!self.line.is_empty() && before > QUEUED_BYTES_MAX),
            Progress::Yield => {
                cx.waker().wake_by_ref();
                Ok(false)
            }
            Progress::Blocked => {
                self.blocked = true;
                // Asking registers the task; if it is writable already, go round.
                Ok(self.stream.poll_write_ready(cx)?.is_ready())
            }
        }
    }

    fn may_receive(&self) -> bool {
        self.line.len() < IN_PROGRESS_MAX && self.outbox.queued_bytes() < QUEUED_BYTES_MAX
    }

    /// Whether a large frame has to wait because buffers hold as much memory as they may.
    fn lacks_memory(&self) -> bool {
        self.inbox.missing_bytes() > SMALL_BYTES
            && self.inbox.buffered_bytes() <= SMALL_BYTES
            && self.server.buffers.used_bytes() > self.server.limits.request_bytes_max
    }

    /// Reads once and dispatches all whole frames. Returns whether to go round again at once.
    fn receive(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, Ending> {
        if !self.may_receive() || self.lacks_memory() {
            return Ok(false);
        }
        let mut buffer = ReadBuf::new(self.inbox.space());
        match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
            Poll::Pending => {
                self.inbox.nothing_received();
                Ok(false)
            }
            Poll::Ready(Err(error)) => Err(error.into()),
            Poll::Ready(Ok(())) => {
                let count = buffer.filled().len();
                self.received(count, now)
            }
        }
    }

    fn received(&mut self, count: usize, now: Instant) -> Result<bool, Ending> {
        if count == 0 {
            return Err(self.closed());
        }
        self.last_active = now;
        self.inbox.received(count);
        self.server.counters.bytes_received.add(count as u64);
        while let Some(frame) =
            self.inbox.next_frame().map_err(|error| Ending::Refused(error.to_string()))?
        {
            match handlers::dispatch(&self.server, &mut self.session, frame, now)? {
                Dispatched::Slot(slot) => self.line.push_back(slot),
                Dispatched::NoAnswer => {}
            }
        }
        Ok(true)
    }

    fn closed(&self) -> Ending {
        if self.inbox.has_partial_frame() {
            return Ending::Broken(io::ErrorKind::UnexpectedEof.into());
        }
        Ending::Closed
    }

    /// Arms the timer for whatever comes first, or ends the connection if its time is up.
    fn wait(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<Result<(), Ending>> {
        let limits = &self.server.limits;
        let quiet = now.duration_since(self.last_active);
        if self.inbox.has_partial_frame() && self.may_receive() && quiet >= limits.frame_stall_max {
            return Poll::Ready(Err(Ending::Stalled(limits.frame_stall_max)));
        }
        if (self.line.is_empty() || self.blocked) && quiet >= limits.connection_idle_max {
            return Poll::Ready(Err(Ending::Idle));
        }
        let deadline = self.next_deadline(now);
        if deadline < self.armed || self.armed <= now {
            self.armed = deadline;
            self.timer.as_mut().reset(deadline.into());
        }
        if self.timer.as_mut().poll(cx).is_ready() {
            // It went off between two looks at the clock.
            self.armed = now;
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn next_deadline(&self, now: Instant) -> Instant {
        let limits = &self.server.limits;
        let patience = if self.inbox.has_partial_frame() {
            limits.frame_stall_max
        } else {
            limits.connection_idle_max
        };
        // While requests are in progress the peer may be silent for as long as it likes.
        let mut deadline = (self.last_active + patience).max(now + Duration::from_secs(1));
        if let Some(head) = self.line.front().and_then(Slot::deadline) {
            deadline = deadline.min(head);
        }
        if self.lacks_memory() {
            deadline = deadline.min(now + MEMORY_RETRY);
        }
        deadline
    }
}

impl Future for Connection {
    type Output = Ending;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ending> {
        let this = self.get_mut();
        match this.run(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) => Poll::Ready(Ending::Closed),
            Poll::Ready(Err(ending)) => Poll::Ready(ending),
        }
    }
}
