//! One fetcher's thread: carries out what the room `node` says about copying from one leader.
//!
//! Everything happens on this thread: connecting, asking, appending what comes, cutting logs. So one leader's slow
//! answer, or one partition's cut, holds up the partitions of this slot and no others.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use ::link::{Purpose, Target, dial};
use bytes::{Bytes, BytesMut};
use metadata::decide::BrokerRef;
use model::batch::Batches;
use model::{BrokerId, Offset};
use node::fetching::{self, Answered, Session, Terms};
use node::{Ask, Effects, Event, Fetcher, Key, StartOver};
use partition::{Next, Partition, PartitionError, RefusedTruncation, Watch, WatchKey};
use storage::StorageError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{error, info, warn};

use super::links::ClusterLinks;
use crate::counters::ClusterCounters;
use crate::server::Server;

/// Bytes of one answer: more than any leader is asked for.
const FRAME_BYTES_MAX: usize = 1 << 30;

/// Copies until the channel of events is closed.
pub(super) fn run(
    server: Weak<Server>,
    links: Arc<ClusterLinks>,
    who: BrokerRef,
    (leader, slot): (BrokerId, u16),
    events: UnboundedReceiver<Event>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(cause) => {
            // Without it this broker's replicas would fall behind in silence.
            if let Some(server) = server.upgrade() {
                server.end(format!("cannot copy from broker {leader}: {cause}"));
            }
            return;
        }
    };
    let copying = Copying {
        server,
        links,
        who,
        slot,
        fetcher: Fetcher::new(leader),
        partitions: BTreeMap::new(),
        watch: Arc::default(),
        slots_watched: 0,
        connection: None,
        asked: None,
        look_at: None,
        lost_at: None,
        is_reported: AtomicBool::new(false),
        asked_at: None,
        gathers: false,
    };
    runtime.block_on(copying.run(events));
    // The look-up of a leader's address cannot be cancelled; the stop does not wait for the resolver.
    runtime.shutdown_background();
}

/// The request that is under way.
struct Asked {
    number: u64,
    /// When it is given up.
    until: Instant,
}

struct Connection {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    /// Part of an answer that has arrived. Its memory is used again once an answer's records are appended: new pages for
    /// each megabyte would cost as much as receiving it.
    arrived: BytesMut,
    /// How many answers in a row were small.
    small_answers: u32,
    /// What the leader knows of what is asked for.
    session: Session,
}

struct Copying {
    server: Weak<Server>,
    links: Arc<ClusterLinks>,
    who: BrokerRef,
    slot: u16,
    fetcher: Fetcher,
    /// What is copied, and the registration that tells when something was synced.
    partitions: BTreeMap<Key, (Arc<Partition>, WatchKey)>,
    watch: Arc<Watch>,
    slots_watched: u32,
    connection: Option<Connection>,
    asked: Option<Asked>,
    /// When to look although nothing happens.
    look_at: Option<Instant>,
    /// When the fetcher is told that its request is lost: after a pause.
    lost_at: Option<Instant>,
    /// Whether people were told that the leader cannot be reached.
    is_reported: AtomicBool,
    /// When the last request was sent.
    asked_at: Option<Instant>,
    /// Whether the last answer was small and of several batches: more of them gather while a round is longer.
    gathers: bool,
}

/// What woke the thread.
enum Woken {
    Event(Event),
    Answer(Result<Bytes, String>),
    Synced,
    Time,
    End,
}

impl Copying {
    async fn run(mut self, mut events: UnboundedReceiver<Event>) {
        loop {
            match self.wait(&mut events).await {
                Woken::End => break,
                Woken::Event(event) => self.take(event).await,
                Woken::Synced => self.take(Event::Look).await,
                Woken::Answer(answer) => self.answered(answer).await,
                Woken::Time => self.time().await,
            }
        }
        for (partition, key) in self.partitions.into_values() {
            partition.unwatch(key);
        }
    }

    async fn wait(&mut self, events: &mut UnboundedReceiver<Event>) -> Woken {
        let until = self.asked.as_ref().map(|asked| asked.until);
        let due = [self.look_at, self.lost_at, until].into_iter().flatten().min();
        let watch = &self.watch;
        let synced = poll_fn(|cx| {
            let mut changed = Vec::new();
            match watch.take_or_wait(&mut changed, Some(cx.waker())) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        });
        let (is_asked, connection) = (self.asked.is_some(), &mut self.connection);
        let answer = async {
            match connection {
                Some(connection) if is_asked => connection.answer().await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = events.recv() => event.map_or(Woken::End, Woken::Event),
            answer = answer => Woken::Answer(answer),
            () = synced => Woken::Synced,
            () = at(due) => Woken::Time,
        }
    }

    async fn take(&mut self, event: Event) {
        match &event {
            Event::Follow(key, partition) => self.watch_over(*key, partition),
            Event::Leave(key) => self.forget(key),
            _ => {}
        }
        let Some(server) = self.server.upgrade() else { return };
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let mut effects = Effects::default();
            self.fetcher.step(server.clock.moment(), server.now(), event, &mut effects);
            self.look_at = effects.look_at.map(|at| Instant::from_std(server.clock.instant_at(at)));
            let ask = effects.ask.take();
            let synced = sync(&server, std::mem::take(&mut effects.syncs));
            if self.carry_out(&server, effects) | synced {
                next = Some(Event::Look);
            }
            if let Some(ask) = ask {
                self.ask(&server, &ask).await;
            }
        }
    }

    fn watch_over(&mut self, key: Key, partition: &Arc<Partition>) {
        let known = self.partitions.get(&key);
        if known.is_some_and(|(known, _)| Arc::ptr_eq(known, partition)) {
            return;
        }
        self.forget(&key);
        let watch_key = partition.watch_end(&self.watch, self.slots_watched % 64);
        self.slots_watched = self.slots_watched.wrapping_add(1);
        self.partitions.insert(key, (Arc::clone(partition), watch_key));
    }

    fn forget(&mut self, key: &Key) {
        if let Some((partition, watch_key)) = self.partitions.remove(key) {
            partition.unwatch(watch_key);
        }
    }

    /// Cuts, deletes and reports. Returns whether the fetcher is to look again.
    fn carry_out(&mut self, server: &Server, effects: Effects) -> bool {
        let Effects { cuts, start_overs, gaps, anew, deletions, failures, refused, .. } = effects;
        let changed = !cuts.is_empty()
            || !start_overs.is_empty()
            || !gaps.is_empty()
            || !deletions.is_empty();
        for (_, partition, refused) in refused {
            let RefusedTruncation { leader, leader_epoch, to, committed, .. } = refused;
            let name = partition.topic_partition();
            error!(
                partition = %name, %leader, leader_epoch = leader_epoch.0, %to, %committed,
                of_earlier_generation = refused.is_of_earlier_generation,
                "cannot follow the leader: it lacks committed records, and this replica keeps them; stop the leader's broker so that this one is elected, or give the records up: highwater cluster elect --unclean {}:{}",
                name.topic, name.partition
            );
            server.counters.truncations_refused.add(1);
        }
        for (_, partition, cut) in cuts {
            let name = partition.topic_partition();
            let end = partition.with_log(storage::Log::log_end_offset);
            info!(partition = %name, from = %end, to = %cut.to, "the log parts from its leader's: what its leader lacks is cut");
            if cut.takes_committed {
                error!(partition = %name, from = %end, to = %cut.to, "records that were committed are cut: a leader was elected that lacks them");
                server.counters.committed_cuts.add(1);
            }
            server.groups.log_cut(&partition, cut.to);
            let made = server.logs.cut(&partition, cut.to);
            server.groups.log_cut(&partition, cut.to);
            self.tell_failure(server, &partition, made);
        }
        for due in start_overs {
            let StartOver { partition, leader_epoch, start, takes_committed, .. } = due;
            let name = partition.topic_partition();
            info!(partition = %name, %start, "the leader deleted the records behind the end of this log, or the records that would prove both logs alike: the follower drops its log and copies the leader's from this offset on");
            if takes_committed {
                error!(partition = %name, %start, "the log is dropped with records that a lost majority of the quorum may have committed: an unclean election allowed it");
                server.counters.committed_cuts.add(1);
            }
            server.groups.log_cut(&partition, Offset(0));
            let made = server.logs.start_over(&partition, leader_epoch, start);
            server.groups.log_cut(&partition, Offset(0));
            self.tell_failure(server, &partition, made);
        }
        for (_, partition) in gaps {
            info!(partition = %partition.topic_partition(), "offsets are missing in the leader's log, as compaction leaves it: it is copied as it is");
            let made = server.logs.allow_gaps(&partition);
            self.tell_failure(server, &partition, made);
        }
        for (_, partition, reason) in anew {
            let dir = partition.with_log(|log| log.dir().to_owned());
            server.log_failed(&partition, &StorageError::Refused { dir, reason });
        }
        delete(server, deletions);
        for (_, partition, cause) in failures {
            self.tell_failure(server, &partition, Err(cause));
        }
        changed
    }

    fn tell_failure(
        &self,
        server: &Server,
        partition: &Arc<Partition>,
        made: Result<(), PartitionError>,
    ) {
        match made {
            Ok(()) | Err(PartitionError::Deleted | PartitionError::Offline) => {}
            Err(PartitionError::Storage(cause)) => server.log_failed(partition, &cause),
            Err(cause) if server.complaints.is_news(partition.topic_partition(), &cause) => {
                warn!(partition = %partition.topic_partition(), leader = %self.fetcher.leader(), %cause, "cannot copy; it is tried again");
            }
            Err(_) => {}
        }
    }

    async fn ask(&mut self, server: &Server, ask: &Ask) {
        if self.asked.is_some() {
            // Its answer would come first.
            self.connection = None;
        }
        let followers = server.config().followers.clone();
        let wait = Duration::from_millis(followers.wait_ms_max.into());
        let patience = wait + Duration::from_millis(followers.timeout_ms);
        let until = Instant::now() + patience;
        self.asked = Some(Asked { number: ask.number, until });
        // It takes the place of one that was lost, of which the fetcher has not been told.
        self.lost_at = None;
        let terms = Terms {
            who: self.who,
            wait_ms_max: followers.wait_ms_max,
            bytes_min: followers.bytes_min,
            bytes_max: followers.response_bytes_max,
            partition_bytes_max: followers.partition_bytes_max,
        };
        let known = |key: &Key| {
            self.partitions.get(key).map_or(Offset(0), |(partition, _)| partition.high_watermark())
        };
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => match self.connect(server).await {
                Ok(connection) => connection,
                Err(reason) => return self.lose(server, &reason),
            },
        };
        let sent = match fetching::encode(ask, &mut connection.session, &terms, known) {
            Ok(frame) => {
                self.pace();
                connection.send(&frame, patience).await
            }
            Err(cause) => Err(format!("the request cannot be written: {cause}")),
        };
        match sent {
            Ok(()) => self.connection = Some(connection),
            Err(reason) => self.lose(server, &reason),
        }
    }

    /// Leaves the leader the time to gather more, if the last answer was small, had several batches and was asked for a
    /// moment ago: a stream of single records would have a round, a sync on each broker and two messages for each of
    /// them. A producer that waits for each acknowledgement sends one batch a round, and waits for nothing here.
    fn pace(&mut self) {
        let now = Instant::now();
        if let (true, Some(last)) = (self.gathers, self.asked_at)
            && let Some(rest) = ROUND_MIN.checked_sub(now - last)
        {
            // The thread is this fetcher's own, and tokio's timers count milliseconds.
            std::thread::sleep(rest);
        }
        self.asked_at = Some(Instant::now());
    }

    async fn connect(&self, server: &Server) -> Result<Connection, String> {
        let leader = self.fetcher.leader();
        let image = server.image();
        let endpoint = image.broker(leader).and_then(|it| it.endpoint(self.links.listener()));
        let endpoint = endpoint
            .ok_or_else(|| format!("broker {leader} has no listener {}", self.links.listener()))?;
        let (host, port) = (endpoint.host.clone(), endpoint.port);
        let target = Target { node: Some(leader), host, port };
        let (identity, config) = self.links.dialer();
        let purpose = Purpose::Fetcher { slot: self.slot };
        let established = dial(&target, purpose, &identity, &config).await;
        let established = established.map_err(|failure| failure.to_string())?;
        if self.is_reported.swap(false, Ordering::Relaxed) {
            info!(%leader, "the leader can be copied from again");
        }
        let stream: TcpStream = established.stream;
        let (from, to) = stream.into_split();
        Ok(Connection {
            from,
            to,
            arrived: BytesMut::new(),
            small_answers: 0,
            session: Session::default(),
        })
    }

    /// The request that is under way will have no answer: the fetcher is told after a pause.
    fn lose(&mut self, server: &Server, reason: &str) {
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            warn!(leader = %self.fetcher.leader(), reason, "cannot copy from the leader now; it is tried again");
        }
        self.connection = None;
        self.asked = None;
        // A leader that is gone is soon another: its end is no reason to rest for a second.
        let pause = Duration::from_millis(server.config().followers.backoff_ms).min(LOST_PAUSE_MAX);
        self.lost_at = Some(Instant::now() + pause);
    }

    async fn answered(&mut self, answer: Result<Bytes, String>) {
        let Some(server) = self.server.upgrade() else { return };
        let Some(asked) = self.asked.take() else { return };
        let size = answer.as_ref().map_or(0, Bytes::len);
        let answered: Result<Answered, String> = answer.and_then(|frame| {
            fetching::decode(frame, asked.number).map_err(|cause| cause.to_string())
        });
        let session = self.connection.as_mut().map(|connection| &mut connection.session);
        match (answered, session) {
            (Ok(Answered::Partitions { session_id, answers }), Some(session)) => {
                let batches = count_round(&server.counters.cluster, &answers);
                self.gathers = size < SMALL_BYTES && batches > 1;
                session.answered(session_id);
                self.take(Event::Answered(asked.number, answers)).await;
            }
            (Ok(Answered::SessionLost), Some(session)) => {
                *session = Session::default();
                self.take(Event::Lost).await;
            }
            (Ok(_), None) => self.lose(&server, "the connection is gone"),
            (Err(reason), _) => self.lose(&server, &reason),
        }
    }

    async fn time(&mut self) {
        let now = Instant::now();
        if self.asked.as_ref().is_some_and(|asked| asked.until <= now)
            && let Some(server) = self.server.upgrade()
        {
            self.lose(&server, "the leader does not answer");
        }
        if self.lost_at.is_some_and(|at| at <= now) {
            self.lost_at = None;
            self.take(Event::Lost).await;
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = None;
            self.take(Event::Look).await;
        }
    }
}

/// Counts what an answer carries, batch by batch. Returns how many batches those are.
fn count_round(counters: &ClusterCounters, answers: &fetching::Answers) -> u64 {
    counters.rounds.add(1);
    let carried = answers.iter().filter_map(|(_, answer)| answer.as_ref().ok());
    let (mut bytes, mut batches, mut records) = (0, 0, 0);
    for answer in carried {
        bytes += answer.records.len() as u64;
        // What is not a batch ends the count; the append refuses it.
        for (header, _) in Batches::new(&answer.records).map_while(Result::ok) {
            batches += 1;
            records += header.record_count.max(0) as u64;
        }
    }
    if bytes > 0 {
        counters.rounds_with_records.add(1);
        counters.replicated_bytes.add(bytes);
        counters.replicated_records.add(records);
    }
    batches
}

/// From the request for one small answer of several batches to the next request at least.
const ROUND_MIN: Duration = Duration::from_micros(1000);
/// Fewer bytes than these are a small answer.
const SMALL_BYTES: usize = 64 << 10;
/// After so many small answers in a row the memory for large ones is given back.
const SMALL_ANSWERS_MAX: u32 = 64;
/// The longest pause after a connection that ended.
const LOST_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Partitions that this thread syncs itself. More of them are synced in parallel, by the flusher.
const SYNCED_HERE_MAX: usize = 2;

/// Syncs what came, or has it synced. Returns whether to look again at once.
fn sync(server: &Server, partitions: Vec<Arc<Partition>>) -> bool {
    if partitions.len() > SYNCED_HERE_MAX {
        partitions.iter().for_each(|partition| partition.request_sync());
        return false;
    }
    let mut any = false;
    for partition in partitions {
        let Some(directory) = server.logs.directory_number(&partition) else { continue };
        server.flusher.sync_here(directory, &partition);
        any |= partition.next() != Next::Sync;
    }
    any
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Deletes what the leader has deleted, as far as it is committed here, and makes that durable.
fn delete(server: &Server, deletions: Vec<(Key, Arc<Partition>, Offset)>) {
    let mut starts = Vec::new();
    for (_, partition, start) in deletions {
        let made = partition.maintain(|log, high_watermark| {
            let start = start.min(high_watermark);
            if start <= log.log_start_offset() {
                return Ok(None);
            }
            log.delete_records_before(start)?;
            Ok(Some(log.log_start_offset()))
        });
        match made {
            Ok(start) => starts.extend(start.map(|start| (partition, start))),
            Err(PartitionError::Storage(cause)) => server.log_failed(&partition, &cause),
            Err(_) => {}
        }
    }
    if !starts.is_empty() {
        server.logs.commit_starts(&starts);
    }
}

impl Connection {
    async fn send(&mut self, frame: &[u8], patience: Duration) -> Result<(), String> {
        let sent = timeout(patience, self.to.write_all(frame)).await;
        sent.map_err(|_| "the leader takes no bytes".to_owned())?.map_err(|cause| cause.to_string())
    }

    /// The next frame, its length taken off. May be dropped in the middle and asked for again.
    async fn answer(&mut self) -> Result<Bytes, String> {
        loop {
            if let Some(frame) = self.take_frame()? {
                return Ok(frame);
            }
            match self.from.read_buf(&mut self.arrived).await {
                Ok(0) => return Err("the leader closed the connection".to_owned()),
                Ok(_) => {}
                Err(cause) => return Err(cause.to_string()),
            }
        }
    }

    fn take_frame(&mut self) -> Result<Option<Bytes>, String> {
        let Some(prefix) = self.arrived.first_chunk::<4>() else { return Ok(None) };
        let length = i32::from_be_bytes(*prefix);
        let length = usize::try_from(length).ok().filter(|length| *length <= FRAME_BYTES_MAX);
        let length = length.ok_or_else(|| "an answer of an invalid length".to_owned())?;
        let size = 4 + length;
        if self.arrived.len() < size {
            // Room is made as bytes come; what is announced is believed in steps.
            let more = (size - self.arrived.len()).min(1 << 20);
            self.arrived.reserve(more);
            return Ok(None);
        }
        let frame = self.arrived.split_to(size).freeze();
        self.rarely_large(size);
        Ok(Some(frame.slice(4..)))
    }

    /// Gives the memory of large answers back when only small ones come.
    fn rarely_large(&mut self, size: usize) {
        if size >= SMALL_BYTES {
            self.small_answers = 0;
            return;
        }
        self.small_answers = self.small_answers.saturating_add(1);
        if self.small_answers == SMALL_ANSWERS_MAX && self.arrived.is_empty() {
            self.arrived = BytesMut::new();
        }
    }
}
