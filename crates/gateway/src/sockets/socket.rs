//! One WebSocket: texts in and out, pings, and the end (RFC 6455). Frames are taken apart and put together by tungstenite;
//! here is what bounds it: how much is written ahead, how long a client may take nothing or say nothing, how often it may ask
//! whether we live, and what it is told when it has to go.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, Sink, Stream};
use pools::Lease;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Utf8Bytes};

use super::line::{Line, NoMemory};
use crate::charge::{Charge, Room};
use crate::share_owner::ShareOwner;

/// Bytes that wait to be written before no more are put behind them.
const AHEAD_BYTES: usize = 64 * 1024;
/// Bytes that are read at once; the buffer is there as long as the connection.
const READ_BYTES: usize = 4 * 1024;
/// Bytes that are gathered before they are written.
const WRITE_BYTES: usize = 16 * 1024;
/// Pings of a client, or pongs that nobody asked for, within the time between two of ours.
const PINGS_MAX: u32 = 1000;
/// Pongs that wait to be written.
const PONGS_MAX: u32 = 64;
/// Between how many of our pings a client may be silent.
const SILENT_PINGS: u32 = 3;
/// How long the last word may take, and the client's answer to it.
const FAREWELL_MAX: Duration = Duration::from_secs(2);
/// Memory of a socket that waits, in bytes: its task, its reader of one partition or its producer, the connection, and
/// both buffers. `tests/socket_memory.rs` measures it.
pub(super) const SOCKET_BYTES: usize = 24 * 1024;
/// Memory of each further partition of its reader, in bytes.
pub(super) const PARTITION_BYTES: usize = 128;
/// Steps in which a larger buffer for writing is charged.
const STEP_BYTES: usize = 8 * 1024;
/// Bytes of the words in a last frame (RFC 6455, 5.5).
const WORDS_BYTES_MAX: usize = 123;

/// What limits a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of one message, and of one frame, that come from the client.
    pub(crate) message_bytes_max: usize,
    /// After so long without a byte taken the client is told to go.
    pub(crate) blocked_max: Duration,
    /// How often the client is asked whether it lives.
    pub(crate) ping_every: Duration,
    /// Whether messages of bytes are taken, and not texts alone.
    pub(crate) takes_bytes: bool,
}

impl Limits {
    fn config(&self) -> WebSocketConfig {
        WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .write_buffer_size(WRITE_BYTES)
            .max_message_size(Some(self.message_bytes_max))
            .max_frame_size(Some(self.message_bytes_max))
    }
}

/// Why it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The client has gone, and hears nothing any more.
    Left,
    /// The client is told so.
    Told(u16, Cow<'static, str>),
}

impl End {
    /// All is done that there was to be done.
    pub(crate) fn done() -> End {
        End::told(CloseCode::Normal, "")
    }

    /// The gateway goes away, or the client has to come again: it goes on where it was.
    pub(crate) fn away(words: impl Into<Cow<'static, str>>) -> End {
        End::told(CloseCode::Away, words)
    }

    /// The client has done what it may not.
    pub(crate) fn policy(words: impl Into<Cow<'static, str>>) -> End {
        End::told(CloseCode::Policy, words)
    }

    /// There is no memory, or no broker, for now.
    pub(crate) fn later(words: impl Into<Cow<'static, str>>) -> End {
        End::told(CloseCode::Again, words)
    }

    /// What is asked for cannot be had.
    pub(crate) fn failed(words: impl Into<Cow<'static, str>>) -> End {
        End::told(CloseCode::Error, words)
    }

    fn told(code: CloseCode, words: impl Into<Cow<'static, str>>) -> End {
        End::Told(code.into(), words.into())
    }

    /// What is wrong with what came.
    fn of(error: &Error) -> End {
        match error {
            Error::Io(cause) if cause.get_ref().is_some_and(|inner| inner.is::<NoMemory>()) => {
                End::later(NoMemory.to_string())
            }
            Error::Utf8(_) => End::told(CloseCode::Invalid, "a text that is not UTF-8"),
            Error::Capacity(error) => End::told(CloseCode::Size, error.to_string()),
            Error::Protocol(error) => End::told(CloseCode::Protocol, error.to_string()),
            _ => End::Left,
        }
    }
}

/// What has happened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The client has sent this.
    Heard(Utf8Bytes),
    /// The client has sent these, and not a text.
    HeardBytes(Bytes),
    /// All that was put has been taken by the system.
    Taken,
}

/// A WebSocket.
pub(crate) struct Socket<S> {
    /// `None` only while its buffers are replaced.
    stream: Option<WebSocketStream<Line<S>>>,
    limits: Limits,
    /// Whether anything waits to be written, and how many bytes of ours at most.
    is_dirty: bool,
    ahead_bytes: usize,
    /// What is written ahead beyond what every connection is charged for.
    charge: Charge,
    /// Memory of the socket itself. The pool takes it back for clients with fewer sockets.
    lease: Lease<ShareOwner>,
    /// Bytes of the lease without a larger buffer.
    own_bytes: usize,
    /// The most bytes that were ahead at a time since the buffers were new: the library keeps a buffer of that size.
    peak_bytes: usize,
    /// Whether the client ended the conversation, which only the library's state knows.
    is_closing: bool,
    heard_at: Instant,
    ping_at: Instant,
    /// Since the last ping of ours.
    pings: u32,
    /// Since all was written.
    pongs: u32,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// A socket of which the handshake is done. `read`: what the client has sent behind it already.
    pub(crate) async fn new(
        stream: S,
        read: Bytes,
        limits: Limits,
        room: &Room,
        lease: Lease<ShareOwner>,
    ) -> Socket<S> {
        let line = Line::new(stream, room, &read);
        let (role, config) = (Role::Server, Some(limits.config()));
        let stream = WebSocketStream::from_partially_read(line, read.to_vec(), role, config).await;
        let (now, own_bytes) = (Instant::now(), lease.units());
        Socket {
            stream: Some(stream),
            limits,
            is_dirty: false,
            ahead_bytes: 0,
            charge: Charge::new(room),
            lease,
            own_bytes,
            peak_bytes: WRITE_BYTES,
            is_closing: false,
            heard_at: now,
            ping_at: now + limits.ping_every,
            pings: 0,
            pongs: 0,
        }
    }

    fn stream(&mut self) -> &mut WebSocketStream<Line<S>> {
        self.stream.as_mut().expect("a socket has its stream but while the buffers are replaced")
    }

    /// Whether more is to be put before something was taken.
    pub(crate) fn has_room(&self) -> bool {
        self.ahead_bytes < AHEAD_BYTES
    }

    /// Since when the client has taken nothing of what waits for it.
    pub(crate) fn blocked_since(&self) -> Option<Instant> {
        self.stream.as_ref().and_then(|stream| stream.get_ref().blocked_since())
    }

    /// Puts a text behind what waits to be written.
    ///
    /// # Errors
    /// There is no memory for it, or the client is gone.
    pub(crate) fn put(&mut self, text: &[u8]) -> Result<(), End> {
        let text = Utf8Bytes::try_from(Bytes::copy_from_slice(text));
        let text = text.expect("what is said is written as UTF-8");
        self.put_message(Message::Text(text))
    }

    /// The same with any message.
    pub(super) fn put_message(&mut self, message: Message) -> Result<(), End> {
        let ahead = self.ahead_bytes + message.len();
        self.keep_buffer(ahead)?;
        // One text may be as large as a record: what every connection may hold is charged with it, and the rest here.
        if self.charge.set(ahead.saturating_sub(AHEAD_BYTES)).is_err() {
            return Err(End::later("the gateway has no memory for the next message now"));
        }
        self.ahead_bytes = ahead;
        self.send(message)
    }

    /// Charges a buffer for this many bytes until the buffers are replaced.
    fn keep_buffer(&mut self, bytes: usize) -> Result<(), End> {
        if bytes <= self.peak_bytes {
            return Ok(());
        }
        let peak_bytes = bytes.next_multiple_of(STEP_BYTES);
        let grown = self.own_bytes + 2 * (peak_bytes - WRITE_BYTES);
        if !self.lease.try_grow(grown) {
            return Err(End::later("the gateway has no memory for the next message now"));
        }
        self.peak_bytes = peak_bytes;
        Ok(())
    }

    fn send(&mut self, message: Message) -> Result<(), End> {
        self.is_dirty = true;
        Pin::new(self.stream()).start_send(message).map_err(|error| End::of(&error))
    }

    /// Waits for what happens next. Nothing is lost if it is not waited for to its end. `hears`: whether texts are taken from
    /// the client now.
    ///
    /// # Errors
    /// The client has gone, or has to go.
    pub(crate) async fn turn(&mut self, hears: bool) -> Result<Turn, End> {
        poll_fn(|cx| self.poll_turn(cx, hears)).await
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>, hears: bool) -> Poll<Result<Turn, End>> {
        if self.lease.poll_revoked(cx).is_ready() {
            let words = "clients with fewer WebSockets need the memory of this one: reconnect";
            return Poll::Ready(Err(End::later(words)));
        }
        if self.is_dirty {
            match Pin::new(self.stream()).poll_flush(cx) {
                Poll::Ready(Ok(())) => {
                    self.was_taken();
                    return Poll::Ready(Ok(Turn::Taken));
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Err(End::Left)),
                Poll::Pending => {}
            }
        }
        match hears {
            true => self.poll_hear(cx),
            false => Poll::Pending,
        }
    }

    fn poll_hear(&mut self, cx: &mut Context<'_>) -> Poll<Result<Turn, End>> {
        loop {
            let Poll::Ready(next) = Pin::new(self.stream()).poll_next(cx) else {
                match self.replace_large_buffers() {
                    // The new stream has not registered the task.
                    true => continue,
                    false => return Poll::Pending,
                }
            };
            let message = match next {
                None => return Poll::Ready(Err(End::Left)),
                Some(Err(error)) => return Poll::Ready(Err(End::of(&error))),
                Some(Ok(message)) => message,
            };
            if let Some(turn) = self.hear(message)? {
                return Poll::Ready(Ok(turn));
            }
            if self.is_dirty {
                // A pong is to be written, and whether that can be is looked at first.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Replaces large, empty buffers of the library by new ones, and returns the charge of the old ones. Returns
    /// whether it replaced them. Precondition: no whole message is unread.
    fn replace_large_buffers(&mut self) -> bool {
        let peak_bytes = self.peak_bytes;
        let line = self.stream().get_mut();
        let is_large = peak_bytes > WRITE_BYTES || line.has_large_buffer();
        if !is_large || !line.is_between_messages() || self.is_dirty || self.is_closing {
            return false;
        }
        let Some(stream) = self.stream.take() else { return false };
        let mut line = stream.into_inner();
        line.buffers_are_new();
        let config = Some(self.limits.config());
        let fresh = WebSocketStream::from_raw_socket(line, Role::Server, config).now_or_never();
        self.stream = Some(fresh.expect("a stream without a handshake waits for nothing"));
        self.peak_bytes = WRITE_BYTES;
        self.lease.set(self.own_bytes);
        true
    }

    fn was_taken(&mut self) {
        if self.ahead_bytes > 0 {
            self.lease.advance(std::time::Instant::now());
        }
        (self.is_dirty, self.ahead_bytes, self.pongs) = (false, 0, 0);
        // To hold less always succeeds.
        let _ = self.charge.set(0);
    }

    fn hear(&mut self, message: Message) -> Result<Option<Turn>, End> {
        self.heard_at = Instant::now();
        let line = self.stream().get_mut();
        match &message {
            Message::Text(_) | Message::Binary(_) => {
                line.message_is_whole();
                self.lease.advance(std::time::Instant::now());
            }
            // It may come between two parts of a message, of which what has come is still there.
            control => line.was_control(control.len()),
        }
        match message {
            Message::Text(text) => return Ok(Some(Turn::Heard(text))),
            Message::Binary(bytes) if self.limits.takes_bytes => {
                return Ok(Some(Turn::HeardBytes(bytes)));
            }
            Message::Binary(_) => {
                return Err(End::told(CloseCode::Unsupported, "texts are expected, not bytes"));
            }
            Message::Ping(_) => {
                (self.is_dirty, self.pongs) = (true, self.pongs + 1);
                self.count_ping()?;
                if self.pongs > PONGS_MAX {
                    return Err(End::policy("pings without taking an answer"));
                }
            }
            Message::Pong(_) => self.count_ping()?,
            // It is answered by the library, and nothing comes behind it.
            Message::Close(_) => (self.is_dirty, self.is_closing) = (true, true),
            Message::Frame(_) => {}
        }
        Ok(None)
    }

    fn count_ping(&mut self) -> Result<(), End> {
        self.pings += 1;
        match self.pings > PINGS_MAX {
            true => Err(End::policy("too many pings")),
            false => Ok(()),
        }
    }

    /// When the clock is to be looked at, whatever happens before.
    pub(crate) fn look_at(&self) -> Instant {
        let blocked = self.blocked_since().map(|since| since + self.limits.blocked_max);
        blocked.map_or(self.ping_at, |blocked| blocked.min(self.ping_at))
    }

    /// Looks at the clock.
    ///
    /// # Errors
    /// The client has taken nothing for too long, or said nothing.
    pub(crate) fn look(&mut self) -> Result<(), End> {
        let now = Instant::now();
        if self.blocked_since().is_some_and(|since| now - since >= self.limits.blocked_max) {
            return Err(End::policy("nothing was taken for too long: come again"));
        }
        if now < self.ping_at {
            return Ok(());
        }
        self.ping_at = now + self.limits.ping_every;
        self.pings = 0;
        if now - self.heard_at >= self.limits.ping_every * SILENT_PINGS {
            return Err(End::policy("no answer to pings"));
        }
        // One that takes nothing now need not be asked.
        if self.blocked_since().is_some() { Ok(()) } else { self.send(Message::Ping(Bytes::new())) }
    }

    /// Says the last word, and waits for a moment until the client has heard it.
    pub(crate) async fn close(mut self, end: &End) {
        let End::Told(code, words) = end else { return };
        let reason = Utf8Bytes::from(cut(words, WORDS_BYTES_MAX));
        let frame = CloseFrame { code: CloseCode::from(*code), reason };
        // The client may send its next request as soon as it has the last frame.
        self.stream().get_mut().buffers_are_new();
        let farewell = async {
            if self.send(Message::Close(Some(frame))).is_err() {
                return;
            }
            poll_fn(|cx| Pin::new(self.stream()).poll_flush(cx).map(drop)).await;
            let Some(stream) = self.stream.take() else { return };
            let mut line = stream.into_inner();
            let _ = line.shutdown().await;
            // Bytes that are not read when a socket is closed would take the last word with them.
            let mut rest = [0; 4096];
            while line.read(&mut rest).await.is_ok_and(|read| read > 0) {
                line.buffers_are_new();
            }
        };
        // Who does not answer is left.
        let _ = timeout(FAREWELL_MAX, farewell).await;
    }
}

/// The beginning of a text, at most so many bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
