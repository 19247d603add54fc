//! Bytes from one socket to the other: read, looked at by a [`Relay`], shaped, written. One task
//! runs both directions of a connection; nothing is read that there is no room for, so a slow
//! reader slows its writer.

use crate::alarm::Alarm;
use crate::bucket::TokenBucket;
use crate::delay::DelayLine;
use crate::frames::Broken;
use crate::memory::{PumpMemory, RETRY};
use bytes::{BufMut, Bytes, BytesMut};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{Notify, watch};

/// What looks at the bytes on their way.
pub trait Relay {
    /// Takes from `incoming` what can go on, and puts what goes on into `out`, in order. What it
    /// cannot judge yet stays in `incoming`.
    fn relay(&mut self, incoming: &mut BytesMut, out: &mut Vec<Bytes>) -> Result<(), Broken>;

    /// Whether more may be read.
    fn has_room(&self) -> bool {
        true
    }

    /// Whether the source holds memory for the bytes to come until they are read: then they are read though the sink takes
    /// nothing.
    fn relieves_source(&self) -> bool {
        false
    }

    /// Rung when [`Relay::relay`] or [`Relay::has_room`] may say something else than before.
    fn bell(&self) -> &Notify;

    /// When [`Relay::tick`] wants to be called.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Whether a pause holds requests back: then the end of the source does not end the direction.
    fn is_paused(&self) -> bool {
        false
    }

    /// From now on no request begins, and only answers to those that have begun.
    fn close(&mut self) {}

    /// Bytes that it keeps beside `incoming`.
    fn kept_bytes(&self) -> usize {
        0
    }

    /// Size of the frame that it holds until the frame is whole; 0 if it holds none.
    fn held_frame_bytes(&self) -> usize {
        0
    }

    /// Which part of a request the source owes, if that is limited in time.
    fn owes(&self, _incoming: &BytesMut) -> Owed {
        Owed::Nothing
    }

    /// Whether it was told to close, and what had begun has gone on.
    fn is_closed(&self) -> bool {
        false
    }

    /// Lets go what has been held back until `now`.
    fn tick(&mut self, _now: Instant, _out: &mut Vec<Bytes>) -> Result<(), Broken> {
        Ok(())
    }
}

/// The part of a request that a client has not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owed {
    /// Any part may take any time.
    Nothing,
    /// The front of its first request.
    First,
    /// The rest of a request.
    Rest,
}

/// What limits the rate: buckets that all must give.
#[derive(Debug, Default)]
pub struct Tolls {
    buckets: Vec<Arc<Mutex<TokenBucket>>>,
    /// The most to read at once.
    quantum_bytes: Option<usize>,
}

impl Tolls {
    /// The caps of one direction: all connections' and this one's.
    pub fn new(buckets: impl IntoIterator<Item = Arc<Mutex<TokenBucket>>>) -> Tolls {
        let buckets: Vec<_> = buckets.into_iter().collect();
        let quantum = buckets.iter().map(|bucket| lock(bucket).quantum_bytes()).min();
        Tolls { buckets, quantum_bytes: quantum }
    }

    /// Pays for bytes that were read; returns when they may pass.
    fn take(&self, now: Instant, bytes: usize) -> Instant {
        let passes = self.buckets.iter().map(|bucket| lock(bucket).take(now, bytes));
        passes.max().unwrap_or(now)
    }
}

fn lock(bucket: &Mutex<TokenBucket>) -> std::sync::MutexGuard<'_, TokenBucket> {
    bucket.lock().expect("no code under this lock panics")
}

/// Bytes to read at once at first, and at most.
const READ_BYTES_MIN: usize = 8 * 1024;
const READ_BYTES_MAX: usize = 256 * 1024;
/// Pieces that are written at once at most.
const SLICES_MAX: usize = 64;

/// Who failed.
#[derive(Debug)]
pub enum Failure {
    /// Reading, or what was read.
    Source(Broken),
    /// Writing.
    Sink(Broken),
}

/// One direction of a connection.
pub struct Pump<'a, R> {
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    relay: R,
    tolls: Tolls,
    line: DelayLine,
    /// Says when no further frame is to begin; `None` once it has said so.
    closing: Option<watch::Receiver<bool>>,
    /// Reports the begin and the end of each pause; `None` for a proxy that cannot pause.
    pausing: Option<watch::Receiver<bool>>,
    alarm: Alarm,
    memory: PumpMemory<'a>,
    /// Longest silence of a client within a request.
    silence_max: Duration,
    /// Since when the pump waits for it.
    silent_since: Option<Instant>,
    /// What was read and could not be judged yet.
    incoming: BytesMut,
    /// Bytes of its buffer at most: of a buffer whose front went on, only the rest counts as its capacity.
    buffer_bytes: usize,
    /// What goes onto the line next.
    out: Vec<Bytes>,
    /// Bytes to read at once.
    read_bytes: usize,
    /// When what was read last may pass; nothing more is read before.
    passes_at: Instant,
    /// Whether `from` has said its last.
    ended: bool,
}

impl<'a, R: Relay> Pump<'a, R> {
    /// A pump that has not moved anything yet.
    pub fn new(
        from: ReadHalf<'a>,
        to: WriteHalf<'a>,
        relay: R,
        tolls: Tolls,
        line: DelayLine,
        memory: PumpMemory<'a>,
    ) -> Pump<'a, R> {
        Pump {
            from,
            to,
            relay,
            tolls,
            line,
            closing: None,
            pausing: None,
            alarm: Alarm::default(),
            memory,
            silence_max: Duration::MAX,
            silent_since: None,
            incoming: BytesMut::new(),
            buffer_bytes: 0,
            out: Vec::new(),
            read_bytes: READ_BYTES_MIN,
            passes_at: Instant::now(),
            ended: false,
        }
    }

    /// The same, that ends between two frames once `closing` says so.
    pub fn until(self, closing: watch::Receiver<bool>) -> Pump<'a, R> {
        Pump { closing: Some(closing), ..self }
    }

    /// The same, with a relay that acts upon pauses.
    pub fn paused_by(self, pausing: Option<watch::Receiver<bool>>) -> Pump<'a, R> {
        Pump { pausing, ..self }
    }

    /// The same, that fails when the source owes a part of a request and sends nothing for so long.
    pub fn impatient(self, silence_max: Duration) -> Pump<'a, R> {
        Pump { silence_max, ..self }
    }

    /// Moves bytes until the source has ended and everything has been written; then tells the sink
    /// that nothing more will come, unless that was asked for here and not by the source.
    pub async fn run(mut self) -> Result<(), Failure> {
        loop {
            let now = Instant::now();
            self.relay.tick(now, &mut self.out).map_err(Failure::Source)?;
            self.send(now);
            self.write(now).map_err(|error| Failure::Sink(error.into()))?;
            self.settle();
            self.ended |= self.relay.is_closed();
            let has_gone_on = self.line.is_empty() && self.relay.deadline().is_none();
            if self.ended && has_gone_on && !self.relay.is_paused() {
                // A broker that hears of an end may forget what it was asked before.
                if !self.relay.is_closed() {
                    // It may be gone already: then it knows.
                    let to: &TcpStream = self.to.as_ref();
                    let _ = rustix::net::shutdown(to, rustix::net::Shutdown::Write);
                }
                return Ok(());
            }
            self.wait(now).await?;
        }
    }

    /// Waits until there is something to do, and does what was waited for, but for writing.
    async fn wait(&mut self, now: Instant) -> Result<(), Failure> {
        let has_line_room = self.line.has_room() || self.relay.relieves_source();
        let room = !self.ended && has_line_room && self.relay.has_room();
        let may_read = room && self.passes_at <= now;
        let reads = may_read && self.has_memory(now);
        let is_short = may_read && !reads;
        let owed = self.silent_by(now, reads);
        let patience = if is_short { Some(now + RETRY) } else { owed };
        let due = self.line.next_due();
        let writes = due.is_some_and(|due| due <= now);
        let paid = (room && !may_read).then_some(self.passes_at);
        let arrives = due.filter(|_| !writes);
        let deadline = [paid, arrives, self.relay.deadline()].into_iter().flatten().min();
        let source = |error: io::Error| Failure::Source(error.into());
        tokio::select! {
            biased;
            () = told(&mut self.closing), if self.closing.is_some() => {
                self.closing = None;
                self.relay.close();
                return Ok(());
            }
            () = changed(&mut self.pausing), if self.pausing.is_some() => {
                return self.look(Instant::now()).map_err(Failure::Source);
            }
            ready = self.to.writable(), if writes => {
                return ready.map_err(|error| Failure::Sink(error.into()));
            }
            rang = until(&mut self.alarm, deadline), if deadline.is_some() => {
                return rang.map_err(source);
            }
            ready = self.from.readable(), if reads => ready.map_err(source)?,
            () = self.relay.bell().notified() => {
                return self.look(Instant::now()).map_err(Failure::Source);
            }
            // The runtime's timer takes no descriptor.
            () = sleep_until(patience), if patience.is_some() => {
                return match is_short {
                    true => Ok(()),
                    false => Err(Failure::Source(Broken::Silent(self.silence_max))),
                };
            }
        }
        self.read().await.map_err(Failure::Source)
    }

    /// Bytes to read at once.
    fn helping(&self) -> usize {
        self.tolls.quantum_bytes.unwrap_or(READ_BYTES_MAX).min(self.read_bytes)
    }

    /// Free bytes that the next read needs in the buffer: of a held frame, all of its rest.
    fn growth(&self) -> usize {
        self.helping().max(self.relay.held_frame_bytes().saturating_sub(self.incoming.len()))
    }

    /// Bytes that this direction keeps.
    fn kept_bytes(&self) -> usize {
        self.buffer_bytes + self.line.kept_bytes() + self.relay.kept_bytes()
    }

    /// Charges the next read and the rewritten form of a held frame. If the memory is full, returns false and closes slower
    /// connections.
    fn has_memory(&mut self, now: Instant) -> bool {
        let buffer_bytes = self.buffer_bytes.max(self.incoming.len() + self.growth());
        let rewritten = 2 * self.relay.held_frame_bytes();
        let wanted = self.kept_bytes() - self.buffer_bytes + buffer_bytes + rewritten;
        let has = self.memory.try_hold(wanted, now);
        if !has {
            self.memory.reclaim(wanted, now);
            if self.relay.relieves_source() {
                self.memory.reclaim_own(wanted, now);
            }
        }
        has
    }

    /// Copies pieces that keep larger buffers alive, and charges the kept bytes.
    fn settle(&mut self) {
        if !self.line.is_empty() {
            self.line.compact(self.buffer_bytes);
        }
        if self.buffer_bytes > 2 * self.read_bytes.max(self.incoming.len()).max(READ_BYTES_MIN)
            && self.relay.held_frame_bytes() == 0
        {
            self.incoming = BytesMut::from(&self.incoming[..]);
            self.buffer_bytes = self.incoming.capacity();
        }
        if !self.line.is_empty() || self.ended || !self.relay.has_room() {
            self.memory.hold(self.kept_bytes());
        }
    }

    /// When the source must have sent more; nothing if it owes nothing, or if the pump does not read.
    fn silent_by(&mut self, now: Instant, reads: bool) -> Option<Instant> {
        if !reads || self.relay.owes(&self.incoming) == Owed::Nothing {
            self.silent_since = None;
            return None;
        }
        self.silent_since.get_or_insert(now).checked_add(self.silence_max)
    }

    /// Makes room for the next read. A buffer that is too small is replaced, not grown: a buffer that grows keeps its used
    /// front, which [`BytesMut::capacity`] does not count.
    fn make_room(&mut self) {
        let growth = self.growth();
        if self.incoming.capacity() - self.incoming.len() < growth
            && !self.incoming.try_reclaim(growth)
        {
            let mut buffer = BytesMut::with_capacity(self.incoming.len() + growth);
            buffer.extend_from_slice(&self.incoming);
            self.incoming = buffer;
            self.buffer_bytes = self.incoming.capacity();
        }
    }

    /// Reads what is there, up to one helping, and waits for nothing.
    async fn read(&mut self) -> Result<(), Broken> {
        let helping = self.helping();
        self.make_room();
        let mut place = (&mut self.incoming).limit(helping);
        // Not `try_read_buf`: behind less than was asked for a polled read knows that nothing is left, and no second one finds that out.
        let polled = poll_fn(|context| {
            Poll::Ready(pin!(self.from.read_buf(&mut place)).as_mut().poll(context))
        });
        let Poll::Ready(count) = polled.await else { return Ok(()) };
        let count = count?;
        self.ended = count == 0;
        let now = Instant::now();
        self.passes_at = self.tolls.take(now, count);
        let was_first = self.relay.owes(&self.incoming) == Owed::First;
        self.look(now)?;
        let owed = self.relay.owes(&self.incoming);
        if count > 0 && !(was_first && owed == Owed::First) {
            self.silent_since = None;
        }
        let is_whole = owed == Owed::Nothing && self.incoming.is_empty();
        self.memory.was_moved(count, is_whole && self.line.is_empty(), now);
        self.fit(count);
        Ok(())
    }

    /// Fits what is read at once to what came: many idle connections must not hold much memory.
    fn fit(&mut self, count: usize) {
        if count == self.read_bytes {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
        } else if count < self.read_bytes / 4 && self.read_bytes > READ_BYTES_MIN {
            self.read_bytes /= 2;
            if self.incoming.is_empty() {
                self.incoming = BytesMut::new();
                self.buffer_bytes = 0;
            }
        }
    }

    /// Has what was read looked at, and puts what may go on on its way.
    fn look(&mut self, now: Instant) -> Result<(), Broken> {
        self.relay.relay(&mut self.incoming, &mut self.out)?;
        self.send(now);
        Ok(())
    }

    fn send(&mut self, now: Instant) {
        let sent = self.passes_at.max(now);
        for piece in self.out.drain(..) {
            self.line.push(sent, piece);
        }
    }

    /// Writes what has arrived, as far as the socket takes it.
    fn write(&mut self, now: Instant) -> io::Result<()> {
        loop {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(self.line.arrived(now)) {
                *slice = IoSlice::new(piece);
                count += 1;
            }
            if count == 0 {
                return Ok(());
            }
            match self.to.try_write_vectored(&slices[..count]) {
                Ok(written) => {
                    self.line.take(written);
                    self.memory.was_moved(written, self.line.is_empty(), now);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

async fn until(alarm: &mut Alarm, deadline: Option<Instant>) -> io::Result<()> {
    match deadline {
        Some(deadline) => alarm.until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Waits until the flag changes. A flag that cannot change any more is dropped.
async fn changed(flag: &mut Option<watch::Receiver<bool>>) {
    let Some(watched) = flag else { return std::future::pending().await };
    if watched.changed().await.is_err() {
        *flag = None;
    }
}

/// Waits until the flag is set, or cannot be set any more.
async fn told(flag: &mut Option<watch::Receiver<bool>>) {
    match flag {
        Some(flag) => drop(flag.wait_for(|is_set| *is_set).await),
        None => std::future::pending().await,
    }
}
