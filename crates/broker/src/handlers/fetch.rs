//! Fetch (key 1), versions 4 to 18.
//!
//! - Answers are whole batches as they lie in the segment, from the batch that holds the wanted
//!   offset on; large ranges leave by `sendfile`, small ones are copied behind their header.
//! - Waits for `min_bytes` until `max_wait_ms`; an append wakes exactly the sessions that watch the
//!   partition. The first batch is given even if it is larger than asked for (KIP-74).
//! - Bytes that only a limit of the request holds back count toward `min_bytes`, as in Kafka, which cuts batches at the
//!   limit; a fetch from a segment before the last one is answered at once; `min_bytes` is at most the sum of the limits.
//! - A request for which no file can be opened, and which has nothing else to answer, waits until one was
//!   closed: for `max_wait_ms`, at least one second.
//! - v7 sessions (KIP-227); v9 leader epochs (KIP-320); v12 divergence (KIP-595); v13 topic ids
//!   (KIP-516); v15 replicas in a tagged field (KIP-903); v16 the new leader and where it is (KIP-951); v18
//!   the high watermark that the fetcher knows.
//! - Replicas fetch up to the end of the log, over connections between brokers only; on any other one a request that
//!   claims to be a replica's is refused. A replica's fetch acknowledges what is below its offset. One that is out of
//!   range is told where the log begins and ends; a new high watermark without records leaves after some
//!   milliseconds.
//! - Records that cannot be read cost their partition KAFKA_STORAGE_ERROR, as far as that shows before the answer leaves.
//!   Where a large range fails that is being sent, the connection ends, as in Kafka.

mod answer;

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use model::{BrokerId, ErrorCode, LeaderEpoch, Moment, Offset, PartitionIndex};
use node::answering::{Follower, Wanted};
use partition::{Isolation, Partition, PartitionError, Read, ReadRequest};
use storage::disk::reserve;
use wire::frame::RequestHead;
use wire::hot::Topic as WireTopic;
use wire::hot::fetch::FetchRequest;

use crate::complaints::Complaints;
use crate::fetch_session::{Entry, FetchSession, SessionOf, SessionUse, SharedSession, TopicKey};
use crate::network::memory::Charge;
use crate::network::outbox::Outbox;
use crate::network::slot::{Hangup, Slot};
use crate::server::Server;
use crate::topics::{Topic, Topics};

use super::current_leader::Asker;
use super::produce::PUT_OFF_LOOK;
use super::{Dispatched, known_epoch};

/// The epoch of a request without a session, or of a session's end.
const EPOCH_FINAL: i32 = -1;
/// The epoch of a request that wants a new session.
const EPOCH_INITIAL: i32 = 0;

/// How long a request at least waits for a file to be closed, whatever its own time-out.
const PUT_OFF_LEAST: Duration = Duration::from_secs(1);

/// A request may name twice as many partitions as there are, and so many more: what was deleted a
/// moment ago, or is not known here yet, is asked for too.
const NAMED_BEYOND: usize = 4096;

/// How long a new high watermark waits for records that it could go with to a replica.
const NEWS_WAIT: Duration = Duration::from_millis(5);

/// Who fetches, as far as the connection knows.
pub struct Fetching<'a> {
    /// The sessions that the connection has used.
    pub sessions: &'a mut SessionUse,
    /// The broker at its other end, if it has proven to be one.
    pub broker: Option<BrokerId>,
}

/// How many partitions one request, or one session, may name.
fn named_max(server: &Server) -> usize {
    2 * server.topics.partition_count() + NAMED_BEYOND
}

/// Where the request's partitions are kept.
enum Held {
    /// In the cache, to be found by the next request.
    Session(SharedSession),
    /// Here only.
    Own(Box<FetchSession>),
}

/// A fetch request that is not answered yet.
pub struct FetchInProgress {
    server: Arc<Server>,
    correlation_id: i32,
    version: i16,
    held: Held,
    session_id: i32,
    /// Answer every partition, not only those with something new.
    full: bool,
    error_code: ErrorCode,
    min_bytes: u64,
    max_bytes: u32,
    isolation: Isolation,
    /// The broker that fetches, if it is one.
    replica: Option<Follower>,
    arrived: Instant,
    deadline: Instant,
    /// When to look again, if it waits for a file to be closed and none is.
    look_again: Option<Instant>,
    /// The memory of a large request, held until it is answered.
    _memory: Option<Charge>,
}

/// What was found for one partition.
struct Found {
    slot: u32,
    topic: TopicKey,
    partition_index: i32,
    result: Result<Read, ErrorCode>,
    /// The leader epoch that the client knows, if it says.
    known_epoch: Option<LeaderEpoch>,
    /// Where the log begins and ends, for a replica that is out of range.
    range: Option<(Offset, Offset)>,
}

/// What one look at the partitions gave.
#[derive(Default)]
struct Look {
    found: Vec<Found>,
    bytes: u64,
    /// `bytes`, and those that only a limit of the request holds back.
    reachable_bytes: u64,
    /// Something that must not wait for `min_bytes`.
    urgent: bool,
}

/// Takes the request in.
pub fn begin(
    server: &Arc<Server>,
    from: Fetching<'_>,
    request: &mut FetchRequest,
    head: &RequestHead<'_>,
    body: &[u8],
    memory: Option<Charge>,
    now: Instant,
) -> Result<Dispatched, Hangup> {
    let decoded = request.decode_at_most(body, head.version, named_max(server));
    if let Err(error) = decoded {
        request.shrink();
        return Err(Hangup(format!("a malformed Fetch: {error}")));
    }
    let max_bytes = request.max_bytes.clamp(0, server.limits.fetch_bytes_max as i32) as u32;
    let mut fetch = FetchInProgress {
        server: Arc::clone(server),
        correlation_id: head.correlation_id,
        version: head.version,
        held: Held::Own(Box::default()),
        session_id: 0,
        full: true,
        error_code: ErrorCode::None,
        min_bytes: (request.min_bytes.max(0) as u64).min(max_bytes as u64),
        max_bytes,
        isolation: if request.isolation_level == 1 {
            Isolation::Stable
        } else {
            Isolation::Committed
        },
        replica: None,
        arrived: now,
        look_again: None,
        deadline: now + Duration::from_millis(request.max_wait_ms.max(0) as u64),
        _memory: memory,
    };
    match Follower::of(request, from.broker) {
        Ok(None) => fetch.take_in(request, from.sessions, now),
        Ok(replica) => {
            if let Some(follower) = &replica {
                server.contacts.note_follower(follower.broker, server.clock.moment());
            }
            (fetch.replica, fetch.isolation) = (replica, Isolation::LogEnd);
            fetch.take_in(request, from.sessions, now);
        }
        Err(code) => fetch.error_code = code,
    }
    if !(0..=1).contains(&request.isolation_level) {
        fetch.error_code = ErrorCode::InvalidRequest;
    }
    fetch.cap_min_bytes();
    request.shrink();
    Ok(Dispatched::Slot(Slot::Fetch(Box::new(fetch))))
}

impl FetchInProgress {
    /// Finds or makes the session; an error here is the answer.
    fn take_in(&mut self, request: &FetchRequest, user: &mut SessionUse, now: Instant) {
        match request.session_epoch {
            EPOCH_FINAL | EPOCH_INITIAL => self.begin_full(request, user, now),
            _ => {
                if let Err(code) = self.resume(request, user, now) {
                    self.error_code = code;
                }
            }
        }
    }

    fn begin_full(&mut self, request: &FetchRequest, user: &mut SessionUse, now: Instant) {
        if request.session_id != 0 {
            self.server.fetch_sessions.remove(request.session_id);
        }
        let mut session = Box::<FetchSession>::default();
        update(&mut session, request, &self.server.topics.load());
        if request.session_epoch == EPOCH_FINAL || session.is_empty() {
            self.held = Held::Own(session);
            return;
        }
        let of = if self.replica.is_some() { SessionOf::Replica } else { SessionOf::Client };
        match self.server.fetch_sessions.create(session, of, self.version >= 13, user, now) {
            Ok(shared) => {
                self.session_id = shared.lock().id;
                self.held = Held::Session(shared);
            }
            Err(session) => self.held = Held::Own(session),
        }
    }

    fn resume(
        &mut self,
        request: &FetchRequest,
        user: &mut SessionUse,
        now: Instant,
    ) -> Result<(), ErrorCode> {
        let sessions = &self.server.fetch_sessions;
        self.session_id = request.session_id;
        let shared = sessions.get(request.session_id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        {
            let mut cached = shared.lock();
            if cached.next_epoch != request.session_epoch {
                return Err(ErrorCode::InvalidFetchSessionEpoch);
            }
            if cached.uses_topic_ids != (self.version >= 13) {
                return Err(ErrorCode::FetchSessionTopicIdError);
            }
            cached.next_epoch = cached.next_epoch.checked_add(1).unwrap_or(1);
            cached.last_used = now;
            update(&mut cached.session, request, &self.server.topics.load());
            if cached.session.is_empty() {
                sessions.remove(cached.id);
                self.session_id = 0;
            } else if !sessions.note_use(&mut cached, user, named_max(&self.server)) {
                // It has grown too large to be kept: the client makes a new one, or goes without.
                sessions.remove(cached.id);
                return Err(ErrorCode::FetchSessionIdNotFound);
            }
        }
        self.full = false;
        self.held = Held::Session(shared);
        Ok(())
    }

    /// Lowers `min_bytes` to the bytes that the limits of all partitions allow together.
    fn cap_min_bytes(&mut self) {
        let min_bytes = self.min_bytes;
        let allowed = |session: &FetchSession| session.allowed_bytes(min_bytes);
        self.min_bytes = match &self.held {
            Held::Own(session) => allowed(session),
            Held::Session(shared) => allowed(&shared.lock().session),
        };
    }

    /// Writes the answer if there is enough of it, or it is time.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        out: &mut Outbox,
        asker: &Asker<'_>,
    ) -> Poll<Result<(), Hangup>> {
        if self.error_code != ErrorCode::None {
            return Poll::Ready(self.write(Look::default(), out, asker));
        }
        match self.gather(cx, now) {
            Some(look) => Poll::Ready(self.write(look, out, asker)),
            None => Poll::Pending,
        }
    }

    /// Looks until there is enough or it is time; `None` if the task will be woken by a change.
    fn gather(&mut self, cx: &mut Context<'_>, now: Instant) -> Option<Look> {
        let topics = self.server.topics.load();
        let terms = Terms {
            topics: &topics,
            complaints: &self.server.complaints,
            isolation: self.isolation,
            replica: self.replica.map(|replica| (replica, self.server.clock.moment())),
            server: &self.server,
            has_news: Cell::new(false),
            full: self.full,
            min_bytes: self.min_bytes,
            max_bytes: self.max_bytes,
            may_wait: now < self.deadline,
            may_be_put_off: now < self.put_off_until(),
            is_put_off: Cell::new(false),
            waker: cx.waker(),
        };
        let look = match &mut self.held {
            Held::Own(session) => terms.gather(session),
            Held::Session(shared) => terms.gather(&mut shared.lock().session),
        };
        // The one wake for a file that is closed may have gone to a request that was answered meanwhile.
        let due = if now < self.deadline { self.deadline } else { self.put_off_until() };
        self.look_again = terms.is_put_off.get().then(|| due.min(now + PUT_OFF_LOOK));
        if look.is_none() && terms.has_news.get() {
            self.deadline = self.deadline.min(now + NEWS_WAIT);
        }
        look
    }

    /// Answers with what there is as soon as it is asked. Returns whether that changes anything.
    pub fn hurry(&mut self, now: Instant) -> bool {
        let waits = self.deadline > now;
        self.deadline = self.deadline.min(now);
        waits
    }

    /// When the request came.
    pub fn arrived(&self) -> Instant {
        self.arrived
    }

    /// When it is answered with whatever there is, or looks again.
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.look_again.unwrap_or(self.deadline))
    }

    /// How long it waits for a file to be closed.
    fn put_off_until(&self) -> Instant {
        self.deadline.max(self.arrived + PUT_OFF_LEAST)
    }
}

/// Names topics for a session: partitions of one topic share its name's memory, with the table of
/// topics if it is known.
struct Keys<'a> {
    request: &'a FetchRequest,
    topics: &'a Topics,
    last: Option<(u32, TopicKey)>,
}

impl Keys<'_> {
    fn of(&mut self, topic: u32) -> TopicKey {
        if let Some((last, key)) = &self.last
            && *last == topic
        {
            return key.clone();
        }
        let key = match self.request.topic(topic) {
            WireTopic::Id(id) => TopicKey::Id(id),
            WireTopic::Name(name) => TopicKey::Name(
                self.topics.by_name(name).map_or_else(|| name.into(), |known| known.name.clone()),
            ),
        };
        self.last = Some((topic, key.clone()));
        key
    }
}

/// The topic that a client names so, if partitions of it are here.
fn known_topic<'a>(topics: &'a Topics, key: &TopicKey) -> Option<&'a Arc<Topic>> {
    match key {
        TopicKey::Name(name) => topics.by_name(name),
        TopicKey::Id(id) => topics.by_id(id),
    }
}

/// Brings a session up to date with what a request says.
fn update(session: &mut FetchSession, request: &FetchRequest, topics: &Topics) {
    let mut keys = Keys { request, topics, last: None };
    for forgotten in &request.forgotten {
        session.forget(keys.of(forgotten.topic), forgotten.partition.0);
    }
    for partition in &request.partitions {
        let wanted = Wanted::of(partition);
        session.want(keys.of(partition.topic), partition.partition.0, wanted);
    }
}

/// How a request looks at its partitions.
struct Terms<'a> {
    topics: &'a Topics,
    complaints: &'a Complaints,
    isolation: Isolation,
    /// The broker that fetches, and now.
    replica: Option<(Follower, Moment)>,
    server: &'a Server,
    /// Whether the last look found a high watermark that a replica does not know.
    has_news: Cell<bool>,
    full: bool,
    min_bytes: u64,
    max_bytes: u32,
    may_wait: bool,
    /// Whether it may wait for a file to be closed.
    may_be_put_off: bool,
    /// Whether the last look found no file to be opened.
    is_put_off: Cell<bool>,
    waker: &'a Waker,
}

impl Terms<'_> {
    fn gather(&self, session: &mut FetchSession) -> Option<Look> {
        loop {
            self.is_put_off.set(false);
            self.has_news.set(false);
            let look = self.look(session);
            let enough =
                look.urgent || look.reachable_bytes >= self.min_bytes || session.is_empty();
            let waits_for_file = self.is_put_off.get() && look.bytes == 0 && !look.urgent;
            if (enough || !self.may_wait) && !waits_for_file {
                self.tell(session, &look);
                return Some(look);
            }
            // What this look found is looked up again: it is only positions.
            self.put_back(session, &look);
            if !session.changed_or_wait(self.waker) {
                return None;
            }
        }
    }

    fn look(&self, session: &mut FetchSession) -> Look {
        let mut look = Look::default();
        for slot in session.ready_slots() {
            let left = (self.max_bytes as u64).saturating_sub(look.bytes);
            let found = self.look_at(session, slot, left as u32, look.bytes == 0);
            let entry = session.entry_mut(slot);
            let size = found.result.as_ref().map_or(0, size_bytes);
            let reachable =
                found.result.as_ref().map_or(0, |read| self.reachable(entry, read, left));
            look.reachable_bytes = look.reachable_bytes.saturating_add(reachable);
            let urgent = match &found.result {
                Ok(read) => read.diverging.is_some(),
                Err(_) => true,
            };
            let news = is_news(entry, &found.result);
            if news && self.replica.is_some() {
                self.has_news.set(true);
            }
            if size > 0 || urgent || self.full || news {
                look.bytes += size;
                look.urgent |= urgent;
                look.found.push(found);
            } else if self.is_exhausted(entry, &found.result) {
                session.clear_ready(slot);
            }
        }
        look.found.sort_by(|a, b| order(&a.topic, &b.topic));
        look
    }

    fn look_at(
        &self,
        session: &mut FetchSession,
        slot: u32,
        left_bytes: u32,
        first: bool,
    ) -> Found {
        let entry = session.entry_mut(slot);
        let (topic, partition_index) = (entry.topic.clone(), entry.partition_index);
        let index = PartitionIndex(partition_index);
        let known = known_topic(self.topics, &topic);
        let absence = || match &topic {
            TopicKey::Name(name) => self.server.absence_of_name(name, index),
            TopicKey::Id(id) => self.server.absence_of(id, index),
        };
        let mut range = None;
        let held = known.and_then(|known| Some((known, known.partition(index)?)));
        let result = match held {
            Some(held) => self.read(session, slot, held, left_bytes, first, &mut range),
            None => Err(absence()),
        };
        let known_epoch = known_epoch(session.entry_mut(slot).wanted.known_epoch);
        Found { slot, topic, partition_index, result, known_epoch, range }
    }

    fn read(
        &self,
        session: &mut FetchSession,
        slot: u32,
        (topic, partition): (&Arc<Topic>, &Arc<Partition>),
        left_bytes: u32,
        first: bool,
        range: &mut Option<(Offset, Offset)>,
    ) -> Result<Read, ErrorCode> {
        // Registered before it is read, so that nothing appended in between is missed.
        if !session.is_connected(slot, partition) {
            if let Err(PartitionError::DirectoryHangs) = partition.check_lockable() {
                return Ok(unreadable(session.entry_mut(slot), partition));
            }
            session.connect(slot, partition, self.replica.is_some());
        }
        let entry = session.entry_mut(slot);
        let request = ReadRequest {
            offset: entry.wanted.offset,
            cursor: entry.cursor,
            max_bytes: entry.wanted.max_bytes.min(left_bytes),
            at_least_one: first,
            isolation: self.isolation,
            known_epoch: known_epoch(entry.wanted.known_epoch),
            any_role: false,
            last_fetched_epoch: known_epoch(entry.wanted.last_fetched_epoch),
        };
        let closings = reserve::closings();
        // A data thread does not wait until a file is closed.
        let look = || match self.replica {
            None => partition.read(&request),
            Some((replica, now)) => {
                let asked = replica.read(&entry.wanted, entry.cursor, left_bytes, first, now);
                partition.serve_replica(&asked)
            }
        };
        let read = match reserve::at_once(look) {
            Err(error) if self.may_be_put_off && error.lacks_resources() => {
                Ok(self.put_off(partition, closings))
            }
            Err(PartitionError::DirectoryHangs) => Ok(unreadable(entry, partition)),
            read => read,
        };
        if let (Err(PartitionError::OutOfRange { log_start, log_end, .. }), Some(_)) =
            (&read, self.replica)
        {
            *range = Some((*log_start, *log_end));
        }
        if let (Err(PartitionError::FollowerAhead { position }), Some((replica, _))) =
            (&read, self.replica)
        {
            self.server.log_lost_its_end(partition, replica.broker, *position);
        }
        if let (Ok(Read { last_acknowledgement: Some(last), .. }), Some((_, now))) =
            (&read, self.replica)
        {
            self.server.acknowledgers.lock().note(now, last.broker, last.took);
        }
        if let (Ok(Read { slice: Some(slice), .. }), None) = (&read, self.replica) {
            topic.counters.fetch_requests.add(1);
            topic.counters.bytes_out.add(slice.size_bytes as u64);
        }
        let by_id = matches!(entry.topic, TopicKey::Id(_));
        read.map_err(|error| match error {
            // A topic that is being deleted may still be found: whoever named it by id learns that the
            // id is unknown, as a moment later.
            PartitionError::Deleted if by_id => ErrorCode::UnknownTopicId,
            other => self.complaints.code_of(partition, &other),
        })
    }

    /// No file could be opened: there is something to be had, and this looks again when one was closed.
    fn put_off(&self, partition: &Partition, closings: u64) -> Read {
        self.is_put_off.set(true);
        reserve::on_room(self.waker, closings);
        without_records(partition, partition.with_log(|log| log.log_start_offset()))
    }

    /// Whether there is nothing to be had until the partition changes. That an answer had no room
    /// for a batch is another matter: that partition has to be looked at by the next request, which
    /// does not mention it.
    fn is_exhausted(&self, entry: &Entry, result: &Result<Read, ErrorCode>) -> bool {
        let Ok(read) = result else { return false };
        read.slice.is_none() && entry.wanted.offset >= self.visible_end(read)
    }

    /// The offset up to which the client may read. For a replica: at least up to it.
    fn visible_end(&self, read: &Read) -> Offset {
        match self.isolation {
            Isolation::Stable => read.last_stable,
            Isolation::Committed | Isolation::LogEnd => read.high_watermark,
        }
    }

    /// The bytes of a partition that count toward `min_bytes`, where the request has room for `left` more bytes: an
    /// answer has whole batches, and stops before the first one that exceeds a limit.
    fn reachable(&self, entry: &Entry, read: &Read, left: u64) -> u64 {
        if read.is_segments_behind {
            return u64::MAX;
        }
        let size = size_bytes(read);
        let next =
            read.slice.as_ref().map_or(Some(entry.wanted.offset), |slice| slice.next.offset());
        // The offset behind a slice is known unless a limit has cut it.
        match next.is_some_and(|next| next >= self.visible_end(read)) {
            true => size,
            false => size.max(left.min(entry.wanted.max_bytes as u64)),
        }
    }

    /// Nothing was sent: what was found stays to be found, unless it was nothing.
    fn put_back(&self, session: &mut FetchSession, look: &Look) {
        for found in &look.found {
            let entry = session.entry_mut(found.slot);
            let exhausted = self.is_exhausted(entry, &found.result);
            // A replica is told of a new high watermark when its time is up.
            let is_to_be_told = self.replica.is_some() && is_news(entry, &found.result);
            if exhausted && !self.full && !is_to_be_told {
                session.clear_ready(found.slot);
            }
        }
    }

    /// Remembers what the client is being told.
    fn tell(&self, session: &mut FetchSession, look: &Look) {
        for found in &look.found {
            let entry = session.entry_mut(found.slot);
            let exhausted = self.is_exhausted(entry, &found.result);
            entry.told_error = found.result.is_err();
            let Ok(read) = &found.result else { continue };
            entry.told_high_watermark = read.high_watermark;
            entry.told_log_start = read.log_start;
            match &read.slice {
                Some(slice) => {
                    entry.cursor = slice.next;
                    session.served(found.slot);
                }
                None if exhausted => session.clear_ready(found.slot),
                None => {}
            }
        }
    }
}

fn size_bytes(read: &Read) -> u64 {
    read.slice.as_ref().map_or(0, |slice| slice.size_bytes as u64)
}

/// Whether the client has not been told this yet.
fn is_news(entry: &Entry, result: &Result<Read, ErrorCode>) -> bool {
    match result {
        Err(_) => true,
        Ok(read) => {
            entry.told_error
                || read.high_watermark != entry.told_high_watermark
                || read.log_start != entry.told_log_start
        }
    }
}

/// The answer for a partition in a write that hangs: no records, and the offsets that are known without the log.
fn unreadable(entry: &Entry, partition: &Partition) -> Read {
    without_records(partition, entry.told_log_start.max(Offset(0)))
}

fn without_records(partition: &Partition, log_start: Offset) -> Read {
    let high_watermark = partition.high_watermark();
    Read {
        slice: None,
        high_watermark,
        aborted: Vec::new(),
        last_stable: high_watermark,
        log_start,
        diverging: None,
        is_segments_behind: false,
        last_acknowledgement: None,
    }
}

/// Any order that puts the partitions of one topic side by side.
fn order(a: &TopicKey, b: &TopicKey) -> std::cmp::Ordering {
    match (a, b) {
        (TopicKey::Name(a), TopicKey::Name(b)) => a.cmp(b),
        (TopicKey::Id(a), TopicKey::Id(b)) => a.cmp(b),
        (TopicKey::Name(_), TopicKey::Id(_)) => std::cmp::Ordering::Less,
        (TopicKey::Id(_), TopicKey::Name(_)) => std::cmp::Ordering::Greater,
    }
}
