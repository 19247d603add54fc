//! The socket of a connection, which fails when its client takes too long: over the head of a request, between two
//! requests, or over taking an answer. How long a body may take is known where bodies are read.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

use super::transport::Transport;
use crate::settings::Settings;

/// How long a connection may be silent between two requests.
const IDLE_MAX: Duration = Duration::from_secs(75);

/// Which part of a request is awaited; and, of one whose body is read while it is answered, whether the client has ended
/// its side of the connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pace(Arc<Watched>);

#[derive(Debug, Default)]
struct Watched {
    part: AtomicU8,
    has_client_ended: AtomicBool,
    client_ended: Notify,
    /// When the answer must be written, if it must be by then.
    end_by: OnceLock<Instant>,
    /// The task that waits for the client to take something.
    writer: AtomicWaker,
}

impl Pace {
    /// The head of a request.
    const HEAD: u8 = 0;
    /// Its body, or what is done with it.
    const ANSWER: u8 = 1;
    /// That its answer is written.
    const WRITE: u8 = 2;
    /// More of its body, while its answer is written.
    const BOTH: u8 = 3;

    /// A request is there, with its whole head.
    pub(super) fn begin(&self) {
        self.set(Pace::ANSWER);
    }

    /// A request is there whose body is read while it is answered.
    pub(super) fn begin_both(&self) {
        self.set(Pace::BOTH);
    }

    fn set(&self, part: u8) {
        self.0.part.store(part, Ordering::Relaxed);
    }

    fn is(&self, part: u8) -> bool {
        self.0.part.load(Ordering::Relaxed) == part
    }

    /// Its answer is there.
    pub(super) fn end(&self) {
        self.set(Pace::WRITE);
    }

    /// From `at` on the connection fails, whatever its client takes of the answer.
    pub(crate) fn end_by(&self, at: Instant) {
        let _ = self.0.end_by.set(at);
        self.0.writer.wake();
    }

    fn awaits_head(&self) -> bool {
        self.is(Pace::HEAD)
    }

    /// Something was written. Whether that was an answer: it may have been the word to go on with a body.
    fn was_answer(&self) -> bool {
        self.0
            .part
            .compare_exchange(Pace::WRITE, Pace::HEAD, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// The client has ended its side. Whether the connection is to be kept for what it has still to be answered.
    fn end_of_client(&self) -> bool {
        let is_kept = self.is(Pace::BOTH);
        if is_kept {
            self.0.has_client_ended.store(true, Ordering::Release);
            self.0.client_ended.notify_waiters();
        }
        is_kept
    }

    /// Waits until the client has ended its side, while the body of its request is read.
    pub(crate) async fn client_ended(&self) {
        let ended = self.0.client_ended.notified();
        tokio::pin!(ended);
        // Registered before the look, so that an end in between is not missed.
        ended.as_mut().enable();
        if !self.0.has_client_ended.load(Ordering::Acquire) {
            ended.await;
        }
    }
}

/// The end of an answer that is written while the request's body is read.
#[derive(Debug)]
pub(super) struct EndOfBoth(pub(super) Pace);

impl Drop for EndOfBoth {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The socket.
#[derive(Debug)]
pub(super) struct Guest {
    stream: Transport,
    pace: Pace,
    head_timeout: Duration,
    write_timeout: Duration,
    /// Whether some bytes of a head have come.
    in_head: bool,
    /// When the head must be whole, or its first byte be there.
    read_by: Instant,
    /// When something must have been taken of an answer; `None` while everything is.
    write_by: Option<Instant>,
    /// Rings at `rings_at` or before: it is set anew only for what is due earlier, and otherwise looks again when it
    /// rings, so that a request costs no timer.
    timer: Pin<Box<Sleep>>,
    rings_at: Instant,
}

impl Guest {
    pub(super) fn new(stream: Transport, pace: Pace, settings: &Settings) -> Guest {
        Guest::with_timeouts(stream, pace, settings.head_timeout, settings.write_timeout)
    }

    fn with_timeouts(
        stream: Transport,
        pace: Pace,
        head_timeout: Duration,
        write_timeout: Duration,
    ) -> Guest {
        // One that connects and says nothing is not idle: it has not even begun.
        let read_by = Instant::now() + head_timeout;
        let timer = Box::pin(tokio::time::sleep_until(read_by));
        Guest {
            stream,
            pace,
            head_timeout,
            write_timeout,
            in_head: false,
            read_by,
            write_by: None,
            timer,
            rings_at: read_by,
        }
    }

    /// The socket, to be written to without HTTP's library.
    pub(super) fn into_stream(self) -> Transport {
        self.stream
    }

    /// Whether `deadline` is over; else the task is woken then.
    fn is_over(&mut self, cx: &mut Context<'_>, deadline: Instant) -> bool {
        if deadline < self.rings_at {
            self.set(deadline);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return true;
            }
            self.set(deadline);
        }
        false
    }

    fn set(&mut self, at: Instant) {
        self.timer.as_mut().reset(at);
        self.rings_at = at;
    }

    fn was_read(&mut self) {
        if self.pace.awaits_head() && !self.in_head {
            self.in_head = true;
            self.read_by = Instant::now() + self.head_timeout;
        }
    }

    /// Something goes out. Behind an answer the next request may take its time; the answer may be written in many pieces, and
    /// only the first of them tells that it has begun.
    fn was_written(&mut self) {
        self.write_by = None;
        if self.pace.was_answer() {
            self.in_head = false;
        }
        if self.pace.awaits_head() && !self.in_head {
            self.read_by = Instant::now() + IDLE_MAX;
        }
    }

    /// Fails when the answer should have been written before.
    fn check_end(&self) -> io::Result<()> {
        let is_late = self.pace.0.end_by.get().is_some_and(|end_by| Instant::now() >= *end_by);
        if is_late { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    /// Looks at the clock while the client takes nothing.
    fn wait_to_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let deadline = *self.write_by.get_or_insert_with(|| Instant::now() + self.write_timeout);
        self.pace.0.writer.register(cx.waker());
        let end_by = self.pace.0.end_by.get().copied();
        match self.is_over(cx, end_by.map_or(deadline, |end_by| end_by.min(deadline))) {
            true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            false => Poll::Pending,
        }
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if let Poll::Ready(result) = Pin::new(&mut self.stream).poll_read(cx, buffer) {
            let is_end = result.is_ok() && buffer.filled().len() == before;
            if is_end && self.pace.end_of_client() {
                // The HTTP library would take the client for gone, and it may only have ended its body.
                return Poll::Pending;
            }
            self.was_read();
            return Poll::Ready(result);
        }
        let deadline = self.read_by;
        if self.pace.awaits_head() && self.is_over(cx, deadline) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl AsyncWrite for Guest {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_end()?;
        let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(cx, bytes) else {
            return self.wait_to_write(cx);
        };
        self.was_written();
        Poll::Ready(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_end()?;
        let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
        else {
            return self.wait_to_write(cx);
        };
        self.was_written();
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_that_is_taken_slowly_is_not_silence() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let pace = Pace::default();
        let (stream, limit) = (Transport::Plain(stream), Duration::from_secs(5));
        let mut guest = Guest::with_timeouts(stream, pace.clone(), limit, limit);
        pace.begin();
        pace.end();
        guest.was_written();
        let mut read_by = guest.read_by;
        for _ in 0..3 {
            // Any moment later.
            tokio::time::sleep(Duration::from_millis(2)).await;
            guest.was_written();
            assert!(guest.read_by > read_by, "a later piece of the same answer");
            read_by = guest.read_by;
        }
        // The next head has begun: it must be whole in its own time, whatever is still written.
        guest.was_read();
        let in_head = guest.read_by;
        guest.was_written();
        assert_eq!(guest.read_by, in_head);
    }
    #[tokio::test]
    async fn an_answer_that_must_have_ended_ends_while_its_client_takes_nothing() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let pace = Pace::default();
        let (stream, limit) = (Transport::Plain(stream), Duration::from_secs(3600));
        let mut guest = Guest::with_timeouts(stream, pace.clone(), limit, limit);
        pace.begin_both();
        let (full, is_full) = tokio::sync::oneshot::channel();
        let writing = tokio::spawn(async move {
            let bytes = [0; 64 * 1024];
            let mut full = Some(full);
            std::future::poll_fn(move |cx| {
                loop {
                    match Pin::new(&mut guest).poll_write(cx, &bytes) {
                        Poll::Ready(Ok(_)) => {}
                        Poll::Ready(Err(error)) => return Poll::Ready(error),
                        Poll::Pending => {
                            let _ = full.take().map(|full| full.send(()));
                            return Poll::Pending;
                        }
                    }
                }
            })
            .await
        });
        is_full.await.unwrap();
        pace.end_by(Instant::now());
        // A small part of the time that a client has for taking something.
        let ended = tokio::time::timeout(limit / 60, writing).await.expect("it ends");
        assert_eq!(ended.unwrap().kind(), io::ErrorKind::TimedOut);
    }
}
