//! A connection is one task: it reads, serves and answers on the thread that it was woken on.
//!
//! Each time it is woken it parses the whole frames that have arrived, dispatches the requests in
//! their order, answers those at the head of the line that are complete, and sends everything in
//! one go. There is no hand-over to another thread on the way of a produce or fetch request.
//!
//! Back-pressure: while too many requests or bytes are on their way out, nothing is read.
//!
//! The line: Produce and Fetch are pipelined. Any other request is taken in only when all before it
//! are answered, and nothing is taken in behind it until it is done: what Kafka does to every
//! request by muting the channel. So a connection has at most one such request decoded, and requests
//! have the effect of their order. What is not read is not lost: the peer's hang-up is noticed.
//!
//! A Produce for which no file can be opened is put off: its frame stays at the front of the inbox, and the
//! connection takes it up where it stopped when files were closed.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::BufMut;
use model::Offset;
use partition::Partition;
use storage::disk::reserve;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tracing::error;

use crate::handlers::produce::ProduceInProgress;
use crate::handlers::{self, Dispatched, PutOff, Session};
use crate::server::Server;

use super::arrival::{AGE_MAX, Arrival, Verdict};
use super::buffer::SMALL_BYTES;
use super::hangup::{self, Hung};
use super::inbox::{Front, Inbox};
use super::memory::{self, Charge};
use super::outbox::{Outbox, Progress, SendFailure};
use super::slot::{Hangup, Slot};

/// Requests of one connection that may be in progress at once.
const IN_PROGRESS_MAX: usize = 256;
/// How long a connection that always has something to do keeps its thread before others have a turn. Most
/// requests take microseconds; of those that take longer a client may send as many as it likes.
const TURN_MAX: Duration = Duration::from_millis(1);
/// Bytes of answers to one connection that may wait to be sent before reading stops. Ranges of
/// files count, but hold no memory.
const QUEUED_BYTES_MAX: u64 = 8 << 20;
/// From one durable request to the next: a connection on which they come less often has another thread sync.
const OFTEN: Duration = Duration::from_millis(2);
/// How long a client may take for an answer that holds memory, before it must read it at [`READ_RATE_MIN`] while
/// others wait for that memory.
const READ_GRACE: Duration = Duration::from_secs(10);
/// Bytes a second.
const READ_RATE_MIN: u64 = 64 << 10;
/// How often a connection that reads nothing, though bytes have come, looks whether its peer is
/// still there.
const HANGUP_LOOK: Duration = Duration::from_secs(1);
/// How long requests that were sent before a hang-up may wait to be taken in.
const HANGUP_GRACE: Duration = Duration::from_secs(10);

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
    #[error("nothing of the rest of a request has come for {0:?}")]
    Stalled(Duration),
    /// A frame took longer than any may.
    #[error("a request did not arrive whole within {0:?}")]
    TooOld(Duration),
    /// Memory was short, and this frame the slowest.
    #[error(
        "memory for requests is short, and of those on their way this one brought the fewest bytes a second"
    )]
    GivenUp,
    /// A large answer was read too slowly while others waited for its memory.
    #[error(
        "a large answer was read at less than 64 KiB/s while other clients waited for its memory"
    )]
    Unread,
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
    /// Its number among those of the broker.
    number: u64,
    /// When a durable request came last.
    durable_at: Option<Instant>,
    /// What all in the line wait for, if this thread is to sync it before it asks them.
    own_sync: Option<(Arc<Partition>, Offset)>,
    /// What this thread has synced, until the answers are sent.
    synced: Option<Arc<Partition>>,
    /// Whether this turn may have woken others, whom no thread but this one can serve before the turn ends.
    may_have_woken: bool,
    /// The request at the front of the inbox, if it was begun and waits for a file to be closed.
    put_off: Option<Box<PutOff>>,
    timer: Pin<Box<Sleep>>,
    /// When `timer` goes off. Invariant: never later than the next thing that must be looked at.
    armed: Instant,
    /// When bytes last arrived or left, or reading was taken up again.
    last_active: Instant,
    /// Whether the socket takes no more bytes until it says so.
    blocked: bool,
    /// Whether nothing is read any more, for the broker stops.
    draining: bool,
    /// Whether bytes that come are read at once.
    reading: bool,
    /// Whether reading stopped for lack of memory.
    lacks_memory: bool,
    /// The frame that is on its way.
    arrival: Arrival,
    /// Memory of answers that wait to be sent.
    answers: Charge,
    /// Since when the peer is known to be gone while requests of it are still to be taken in.
    hung_up: Option<Instant>,
    /// How long the connection may be idle.
    idle_max: Duration,
    /// Since when queued answers hold memory, and bytes sent since.
    held_since: Option<(Instant, u64)>,
}

/// How far the frames that are here were taken in.
struct TakenIn {
    /// Whether any was.
    any: bool,
    /// Whether more may be read.
    may_read: bool,
}

impl Connection {
    /// Serves `stream`.
    pub fn new(stream: TcpStream, server: Arc<Server>, session: Session) -> Connection {
        let limits = &server.limits;
        let frames = &server.memory.frames;
        let inbox = Inbox::new(Arc::clone(&server.buffers), frames, limits.frame_bytes_max);
        let answers = server.memory.decoded.charge_of_answers();
        let idle_max = limits.connection_idle_max;
        let now = Instant::now();
        let armed = now + limits.connection_idle_max;
        let number = server.lone.number();
        Connection {
            stream,
            server,
            session,
            inbox,
            outbox: Outbox::default(),
            line: VecDeque::new(),
            number,
            durable_at: None,
            own_sync: None,
            synced: None,
            may_have_woken: false,
            put_off: None,
            timer: Box::pin(tokio::time::sleep_until(armed.into())),
            armed,
            last_active: now,
            blocked: false,
            draining: false,
            reading: true,
            lacks_memory: false,
            arrival: Arrival::default(),
            answers,
            hung_up: None,
            idle_max,
            held_since: None,
        }
    }

    /// Lets the connection be idle for at most `idle_max`, or as long as all others if that is less.
    pub fn limit_idle(&mut self, idle_max: Duration) {
        self.idle_max = self.idle_max.min(idle_max);
        self.armed = self.armed.min(Instant::now() + self.idle_max);
        self.timer.as_mut().reset(self.armed.into());
    }

    /// Reads nothing any more: the future ends when what was appended is answered.
    pub fn drain(&mut self) {
        self.draining = true;
        if let Some(Dispatched::Slot(slot)) = self.put_off.take().map(|put_off| put_off.give_up()) {
            self.line.push_back(slot);
        }
        // Only those behind which nothing is answered: the peer tells answers apart by their order.
        while self.line.back().is_some_and(Slot::may_be_dropped) {
            self.line.pop_back();
        }
        // A fetch in front of such an answer does not wait for records that nobody can produce now.
        let now = Instant::now();
        for slot in &mut self.line {
            slot.hurry(now);
        }
    }

    fn is_drained(&self) -> bool {
        self.draining && self.line.is_empty() && self.outbox.queued_bytes() == 0
    }

    fn run(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ending>> {
        let mut began = None;
        self.may_have_woken = false;
        loop {
            let now = Instant::now();
            self.server.lone.served(self.number, now);
            let is_over = now.duration_since(*began.get_or_insert(now)) > TURN_MAX;
            if is_over || (self.own_sync.is_some() && self.may_have_woken) {
                // Woken again behind the others of this thread, and behind a look at the sockets.
                let _ = pin!(tokio::task::yield_now()).poll(cx);
                return Poll::Pending;
            }
            self.sync_own(now);
            self.answer(cx, now)?;
            let mut again = self.send(cx, now)?;
            if let Some(partition) = self.synced.take() {
                self.server.write_ahead(&partition);
            }
            again |= self.receive(cx, now)?;
            if self.is_drained() {
                return Poll::Ready(Ok(()));
            }
            if !again {
                return self.wait(cx, now);
            }
        }
    }

    /// Has what a request appended synced: by this thread, behind all that is to be taken in now, or by another. This thread does it
    /// while it has nobody else to serve, and small requests for one partition come often.
    fn ask_for_syncs(&mut self, produce: &ProduceInProgress, now: Instant) {
        let Some((partition, needed)) = produce.only_awaited() else { return produce.ask() };
        let comes_often = self.durable_at.is_some_and(|before| now - before <= OFTEN);
        self.durable_at = Some(now);
        let joins = match &self.own_sync {
            None => self.line.is_empty() && comes_often,
            Some((own, _)) => Arc::ptr_eq(own, partition),
        };
        if joins && self.server.lone.is_alone(self.number, now) {
            self.own_sync = Some((Arc::clone(partition), needed));
        } else {
            produce.ask();
        }
    }

    /// Syncs what this thread is to sync, or leaves that to the flusher: another connection may have been served since it
    /// was asked for.
    fn sync_own(&mut self, now: Instant) {
        let Some((partition, needed)) = self.own_sync.take() else { return };
        let is_alone = self.server.lone.is_alone(self.number, now);
        match is_alone && self.server.sync_here(&partition) {
            true => {
                // A consumer waits for what is committed now. It stands in the slot of this thread's runtime from which no other
                // thread takes it.
                self.may_have_woken = true;
                self.synced = Some(partition);
            }
            false => partition.want_committed(needed),
        }
    }

    /// Writes the answers that are complete, as far as the line allows.
    fn answer(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<(), Ending> {
        while let Some(slot) = self.line.front_mut() {
            if self.outbox.queued_bytes() > QUEUED_BYTES_MAX {
                break;
            }
            match slot.poll(cx, now, &mut self.outbox, &self.session.asker(&self.server)) {
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
        if self.held_since.is_none() && self.holds_answers() {
            self.held_since = Some((now, 0));
        }
        if self.blocked && self.stream.poll_write_ready(cx)?.is_pending() {
            return Ok(false);
        }
        self.blocked = false;
        let before = self.outbox.queued_bytes();
        let sending = self.outbox.send(&self.stream);
        let progress = sending.map_err(|failure| unsent(&self.server, failure))?;
        let sent = before - self.outbox.queued_bytes();
        self.server.counters.bytes_sent.add(sent);
        if sent > 0 {
            self.last_active = now;
        }
        let holds_answers = self.holds_answers();
        match &mut self.held_since {
            _ if !holds_answers => self.held_since = None,
            Some((_, all)) => *all += sent,
            None => {}
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

    /// Takes in the frames that are here, then reads once and takes in what came. Returns whether to
    /// go round again at once.
    fn receive(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, Ending> {
        self.lacks_memory = false;
        if self.draining {
            return Ok(false);
        }
        let taken_in = self.take_in(cx, now)?;
        if taken_in.any {
            return Ok(true);
        }
        let room = if taken_in.may_read { self.room(cx) } else { None };
        let Some(room) = room else {
            self.reading = false;
            return Ok(false);
        };
        if !self.reading {
            self.reading = true;
            self.last_active = now;
        }
        let mut space = self.inbox.buffer().limit(room);
        match pin!(self.stream.read_buf(&mut space)).poll(cx) {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(error)) => Err(error.into()),
            Poll::Ready(Ok(0)) => Err(self.closed()),
            Poll::Ready(Ok(count)) => {
                self.last_active = now;
                self.server.counters.bytes_received.add(count as u64);
                self.take_in(cx, now)?;
                Ok(true)
            }
        }
    }

    fn room(&mut self, cx: &Context<'_>) -> Option<usize> {
        let room = self.inbox.room();
        if room.is_none() {
            self.server.memory.frames.wait(cx.waker());
            self.lacks_memory = true;
        }
        room
    }

    /// Dispatches whole frames as far as the line and memory allow.
    fn take_in(&mut self, cx: &Context<'_>, now: Instant) -> Result<TakenIn, Ending> {
        let mut any = false;
        loop {
            if self.line.len() >= IN_PROGRESS_MAX
                || self.outbox.queued_bytes() >= QUEUED_BYTES_MAX
                || self.line.back().is_some_and(Slot::blocks_line)
            {
                return Ok(TakenIn { any, may_read: false });
            }
            let front = self.inbox.front().map_err(|error| Ending::Refused(error.to_string()))?;
            let Front::Whole { api, size_bytes } = front else {
                return Ok(TakenIn { any, may_read: true });
            };
            if !self.line.is_empty() && !api.is_some_and(handlers::is_pipelined) {
                return Ok(TakenIn { any, may_read: false });
            }
            let Some(charge) = handlers::admit(&self.server, api, size_bytes) else {
                self.server.memory.decoded.wait(cx.waker());
                self.lacks_memory = true;
                return Ok(TakenIn { any, may_read: false });
            };
            let frame = self.inbox.next_frame().ok().flatten().expect("a whole frame is there");
            let closings = reserve::closings();
            let dispatched = match self.put_off.take() {
                Some(put_off) => put_off.go_on(&self.server, frame, now)?,
                None => handlers::dispatch(&self.server, &mut self.session, frame, charge, now)?,
            };
            match dispatched {
                Dispatched::Slot(slot) => {
                    match &slot {
                        Slot::Produce(produce) => self.ask_for_syncs(produce, now),
                        _ => self.may_have_woken = true,
                    }
                    self.line.push_back(slot);
                }
                Dispatched::NoAnswer => {}
                Dispatched::PutOff(put_off) => {
                    self.inbox.put_back(size_bytes);
                    self.put_off = Some(put_off);
                    reserve::on_room(cx.waker(), closings);
                    return Ok(TakenIn { any, may_read: false });
                }
            }
            any = true;
        }
    }

    fn closed(&self) -> Ending {
        if self.inbox.buffered_bytes() > 0 {
            return Ending::Broken(io::ErrorKind::UnexpectedEof.into());
        }
        Ending::Closed
    }

    /// Arms the timer for whatever comes first, or ends the connection if its time is up.
    fn wait(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<Result<(), Ending>> {
        self.settle(cx, now)?;
        let limits = &self.server.limits;
        let quiet = now.duration_since(self.last_active);
        if self.reading && self.inbox.incomplete().is_some() && quiet >= limits.frame_stall_max {
            return Poll::Ready(Err(Ending::Stalled(limits.frame_stall_max)));
        }
        let waits_for_peer = self.line.is_empty() && self.put_off.is_none();
        if (waits_for_peer || self.blocked) && quiet >= self.idle_max {
            return Poll::Ready(Err(Ending::Idle));
        }
        let deadline = self.next_deadline(cx, now)?;
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

    /// Accounts for what is held while waiting, and gives up what may not be held any longer.
    fn settle(&mut self, cx: &Context<'_>, now: Instant) -> Result<(), Ending> {
        self.inbox.settle();
        let answers = self.outbox.memory_bytes();
        let is_reserved = self.outbox.has_room();
        self.answers.set(if answers > SMALL_BYTES && !is_reserved { answers } else { 0 });
        if self.is_read_too_slowly(now) {
            return Err(Ending::Unread);
        }
        let (incomplete, bytes) = (self.inbox.incomplete(), self.inbox.buffered_bytes());
        match self.arrival.look(incomplete, bytes, self.reading, now) {
            Verdict::Fine => {}
            Verdict::GivenUp => return Err(Ending::GivenUp),
            Verdict::TooOld => return Err(Ending::TooOld(AGE_MAX)),
        }
        if incomplete.is_some() {
            self.arrival.list(&self.server.slow_frames, cx.waker());
        }
        let (frames, holds) = (&self.server.memory.frames, self.inbox.charged_bytes());
        if self.lacks_memory || holds > SMALL_BYTES {
            self.server.slow_frames.relieve(frames, now);
        }
        // A whole request is never given up. If it waits behind a long poll, that is answered now.
        let stuck = !self.reading && holds > SMALL_BYTES && frames.is_under_pressure();
        if stuck && self.line.front_mut().is_some_and(|head| head.hurry(now)) {
            cx.waker().wake_by_ref();
        }
        Ok(())
    }

    /// Whether answers that wait to be sent are charged.
    fn holds_answers(&self) -> bool {
        self.outbox.has_room() || self.outbox.memory_bytes() > SMALL_BYTES
    }

    /// Whether others wait for the memory of an answer that this client hardly reads.
    fn is_read_too_slowly(&self, now: Instant) -> bool {
        let Some((since, sent)) = self.held_since else { return false };
        let elapsed = now.duration_since(since);
        let memory = &self.server.memory;
        (memory.answers.is_waited_for() || memory.decoded.is_waited_for())
            && elapsed >= READ_GRACE
            && sent < elapsed.as_secs() * READ_RATE_MIN
    }

    fn next_deadline(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<Instant, Ending> {
        let limits = &self.server.limits;
        let incomplete = self.reading && self.inbox.incomplete().is_some();
        let patience = if incomplete { limits.frame_stall_max } else { self.idle_max };
        // While requests are in progress the peer may be silent for as long as it likes.
        let mut deadline = (self.last_active + patience).max(now + Duration::from_secs(1));
        let mut not_later_than =
            |at: Option<Instant>| deadline = at.map_or(deadline, |at| deadline.min(at));
        // While too much is queued no answer is asked for: whatever is due waits until the peer has read.
        let is_asked = self.outbox.queued_bytes() <= QUEUED_BYTES_MAX;
        not_later_than(self.line.front().filter(|_| is_asked).and_then(Slot::deadline));
        not_later_than(self.arrival.deadline());
        not_later_than(self.held_since.map(|_| now + HANGUP_LOOK));
        not_later_than(self.lacks_memory.then(|| now + memory::RETRY));
        not_later_than(self.put_off.as_ref().map(|put_off| put_off.look_again(now)));
        if !self.reading {
            let holds = self.inbox.charged_bytes() > SMALL_BYTES;
            not_later_than(holds.then(|| now + HANGUP_LOOK));
            not_later_than(self.look_for_hangup(cx, now)?);
        }
        Ok(deadline)
    }

    /// While nothing is read: ends the connection if the peer has hung up. Returns when to look again
    /// if that will not be told.
    fn look_for_hangup(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
    ) -> Result<Option<Instant>, Ending> {
        if self.stream.poll_read_ready(cx)?.is_pending() {
            return Ok(None);
        }
        match hangup::look(&self.stream)? {
            Hung::No => self.hung_up = None,
            Hung::Up => return Err(self.closed()),
            Hung::UpWithUnread => {
                let since = *self.hung_up.get_or_insert(now);
                if now.duration_since(since) >= HANGUP_GRACE {
                    return Err(self.closed());
                }
            }
        }
        Ok(Some(now + HANGUP_LOOK))
    }
}

/// How a connection ends on which nothing more can be sent.
fn unsent(server: &Server, failure: SendFailure) -> Ending {
    match failure {
        SendFailure::Socket(cause) => Ending::Broken(cause),
        SendFailure::File { file, cause } => {
            if server.unsent.note(&file) {
                error!(%cause, "records that were promised to a client cannot be read: its connection ends. The next answer with records of the same segment says which partition it is");
            }
            Ending::Broken(cause)
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some((partition, needed)) = self.own_sync.take() {
            partition.want_committed(needed);
        }
        self.session.end(&self.server);
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
