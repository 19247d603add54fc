//! One member of a group whose records are pushed: its consumer, what its client has and has acknowledged, and what is
//! committed. The consumer does one thing at a time, in the background of whoever serves the client: poll, find out where to
//! begin, commit. Whoever serves the client calls [`Session::next`] again and again, and may drop that at any time.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::offsets::CommittedOffset;
use client::{ClientError, Cluster, Consumer, ConsumerConfig, Fetched, OffsetReset};
use model::{ErrorCode, Offset, TopicPartition};
use serving::error::ApiError;
use serving::events::{Gap, Projection, Reason, ResumeId};
use serving::push::Tracker;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;

use super::exclusivity::{EXCLUSIVE, displaced};
use super::reading::{AHEAD_BYTES, Found, Out, Reread, Rereading, Shelf};
use super::settling::{Begun, Settlement, settle};
use super::{AckById, Entry, Groups};
use crate::charge::{Charge, Room};
use crate::events::EVENT_BYTES_MAX;

/// Bytes that a fetch asks a broker for.
const FETCH_BYTES: i32 = 256 * 1024;
/// How long a poll waits for records: acknowledgements that come meanwhile are committed behind it.
const POLL: Duration = Duration::from_millis(250);
/// How often it is looked whether the group shares its partitions out, while no records are wanted.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often acknowledgements are committed.
const COMMIT_EVERY: Duration = Duration::from_millis(100);
/// How often partitions without a leader are looked up again.
const UNSETTLED_PAUSE: Duration = Duration::from_secs(1);
/// How long a session rests after brokers failed, or memory was short.
const REST: Duration = Duration::from_millis(500);
/// After so long without a heartbeat a member is gone: another one, after a kill of its gateway, waits no longer.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long other members wait for one that does not join again.
const REBALANCE_MAX: Duration = Duration::from_secs(60);
/// A member whose client takes nothing does not poll, and stays a member nevertheless.
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(365 * 86_400);
/// How long the last commit and leaving the group may take.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// How a client acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acking {
    /// Each message, in any order.
    Each,
    /// All before an id.
    ById,
    /// By having been sent something.
    Sent,
}

/// What a session is for.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) group: String,
    pub(crate) topics: Vec<String>,
    /// Whether no other member of a gateway may be in the group.
    pub(crate) is_exclusive: bool,
    /// `group.instance.id`.
    pub(crate) instance: Option<String>,
    /// Whether a group without an offset begins at the first record, and not behind the last.
    pub(crate) from_earliest: bool,
    pub(crate) acking: Acking,
    pub(crate) projection: Projection,
    /// Where the client was, if it is to go on there.
    pub(crate) id: Option<ResumeId>,
    /// Bytes of what one record is sent as; of one that would have more, the client is told.
    pub(crate) event_bytes_max: usize,
}

/// Why a session ends.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) words: String,
    /// Whether the same request may succeed a moment later: other clients needed the place or the memory.
    pub(crate) is_for_now: bool,
}

impl Failure {
    fn lasting(words: String) -> Failure {
        Failure { words, is_for_now: false }
    }

    fn for_now(words: &str) -> Failure {
        Failure { words: words.to_owned(), is_for_now: true }
    }
}

/// What the consumer has done.
enum Done {
    Polled(Result<Vec<Fetched>, ClientError>),
    Settled(Result<Settlement, ClientError>),
    /// Of the partitions that were left.
    SettledLeft(Result<Settlement, ClientError>),
    /// An exclusive member displaces this one.
    Displaced(ApiError),
    Committed(HashMap<TopicPartition, CommittedOffset>, Result<(), ClientError>),
}

type Work = Pin<Box<dyn Future<Output = (Consumer, Done)> + Send>>;

/// A member.
pub(crate) struct Session {
    cluster: Cluster,
    groups: Arc<Groups>,
    wanted: Wanted,
    /// `None` while it works, and after the end.
    consumer: Option<Consumer>,
    work: Option<Work>,
    /// Ends a poll that is under way: one that waits for the other members of the group may take as long as they do.
    ending: Arc<Notify>,
    /// A record that is read again.
    rereading: Option<Rereading>,
    /// The group's generation that `trackers` are of, once [`Session::is_settled`].
    generation: i32,
    is_settled: bool,
    /// Assigned partitions without a committed offset whose leaders did not answer: they have no tracker yet.
    unsettled: Vec<TopicPartition>,
    /// Time of the next attempt to settle them.
    unsettled_at: Instant,
    trackers: BTreeMap<TopicPartition, Tracker>,
    /// Where partitions begin of which the group has no offset: committed before anything is sent, or a client that comes
    /// again would begin somewhere else.
    starts: HashMap<TopicPartition, i64>,
    /// Offsets that the client has acknowledged, if it does not acknowledge each message.
    acked: HashMap<TopicPartition, i64>,
    /// Records that are on their way to the client.
    shelf: Shelf,
    began: Instant,
    commit_at: Instant,
    rest_until: Instant,
    charge: Charge,
    entry: Entry,
}

impl Session {
    /// A member that has not joined yet.
    pub(crate) fn new(
        cluster: &Cluster,
        groups: &Arc<Groups>,
        wanted: Wanted,
        entry: Entry,
        charge: Charge,
    ) -> Result<Session, ClientError> {
        let config = ConsumerConfig {
            group_instance_id: wanted.instance.clone(),
            user_data: Bytes::from_static(if wanted.is_exclusive { EXCLUSIVE } else { b"" }),
            session_timeout: SESSION_TIMEOUT,
            rebalance_timeout: REBALANCE_MAX,
            poll_interval_max: POLL_INTERVAL_MAX,
            // Only for places that retention has passed: where a group begins is settled here.
            offset_reset: OffsetReset::Earliest,
            auto_commit: None,
            read_committed: true,
            fetch_bytes_max: FETCH_BYTES,
            partition_bytes_max: FETCH_BYTES,
            prefetch: false,
            ..ConsumerConfig::group(&wanted.group)
        };
        let mut consumer = Consumer::new(cluster.clone(), config);
        let topics: Vec<&str> = wanted.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics)?;
        let now = Instant::now();
        Ok(Session {
            cluster: cluster.clone(),
            groups: Arc::clone(groups),
            shelf: Shelf::new(wanted.projection.clone(), wanted.event_bytes_max, charge.beside()),
            wanted,
            consumer: Some(consumer),
            work: None,
            ending: Arc::default(),
            rereading: None,
            generation: -1,
            is_settled: false,
            unsettled: Vec::new(),
            unsettled_at: now,
            trackers: BTreeMap::new(),
            starts: HashMap::new(),
            acked: HashMap::new(),
            began: now,
            commit_at: now,
            rest_until: now,
            charge,
            entry,
        })
    }

    /// The partitions that it has, and what is known of each.
    pub(crate) fn trackers(&self) -> impl Iterator<Item = (&TopicPartition, &Tracker)> + Clone {
        self.trackers.iter()
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Notes that all that was taken is written.
    pub(crate) fn was_written(&mut self) {
        if self.wanted.acking == Acking::Sent {
            let all = self.trackers.iter();
            self.acked =
                all.map(|(partition, tracker)| (partition.clone(), tracker.passed())).collect();
        }
    }

    /// Messages that are sent and not acknowledged.
    pub(crate) fn open_count(&self) -> usize {
        self.trackers.values().map(Tracker::open_count).sum()
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Whether records may be sent: it is known where to go on after a loss of everything here.
    fn is_ready(&self) -> bool {
        self.is_settled && self.starts.is_empty()
    }

    /// The next that the client is to be sent, and what that is charged with; `takes`: whether it takes messages, too; `again`:
    /// such that it had before.
    pub(crate) fn take(&mut self, takes: bool, again: bool) -> Option<(Out, Charge)> {
        if !self.is_ready() {
            return None;
        }
        loop {
            let Some((out, charge)) = self.shelf.take(takes, again) else {
                if self.shelf.lacks_memory() {
                    self.give_back();
                }
                return None;
            };
            match &out {
                Out::Message { partition, offset, .. } => {
                    let tracker = self.trackers.get_mut(partition);
                    let Some(tracker) = tracker.filter(|tracker| *offset >= tracker.passed())
                    else {
                        continue;
                    };
                    match self.wanted.acking {
                        Acking::Each => tracker.send(*offset),
                        Acking::ById | Acking::Sent => tracker.pass(*offset + 1),
                    }
                }
                Out::Again { partition, offset, .. } => {
                    // Acknowledged while it was read again, or given to another member.
                    let tracker = self.trackers.get(partition);
                    if !tracker.is_some_and(|tracker| tracker.is_open(*offset)) {
                        continue;
                    }
                }
                Out::Pass { partition, next } => {
                    if let Some(tracker) = self.trackers.get_mut(partition) {
                        tracker.pass(*next);
                    }
                    continue;
                }
                Out::Notice(_) => {}
            }
            self.advance();
            return Some((out, charge));
        }
    }

    /// Gives back what was fetched, because there is no memory to send it: others may need what it holds to go on.
    fn give_back(&mut self) {
        for partition in self.shelf.give_back() {
            if let Some(tracker) = self.trackers.get(&partition) {
                self.shelf.read_on(partition, tracker.passed());
            }
        }
        self.hold_nothing();
        self.rest_until = Instant::now() + REST;
    }

    /// Nothing is charged but what every member is.
    fn hold_nothing(&mut self) {
        // To hold less always succeeds.
        let _ = self.charge.set(CHARGED_BYTES);
    }

    /// The tracker of a partition that it has.
    pub(crate) fn tracker(&mut self, topic: &str, partition: i32) -> Option<&mut Tracker> {
        self.trackers.get_mut(&TopicPartition::new(topic, partition))
    }

    /// Has a message be sent again after this time.
    pub(crate) fn nack(&mut self, topic: &str, partition: i32, offset: i64, after_ms: u64) {
        let due_ms = self.now_ms().saturating_add(after_ms);
        if let Some(tracker) = self.tracker(topic, partition) {
            tracker.nack(offset, due_ms);
        }
    }

    /// Notes that the client acknowledged something, or refused it: the pools take members without progress first.
    pub(crate) fn advance(&self) {
        self.charge.advance();
        self.entry.advance();
    }

    /// Acknowledges all before an id; in how many partitions that is so: in none, if each message is acknowledged by itself.
    pub(crate) fn ack_by_id(&mut self, id: &ResumeId) -> usize {
        if self.wanted.acking == Acking::Each {
            return 0;
        }
        self.advance();
        let mut count = 0;
        for (partition, tracker) in &self.trackers {
            let Some(next) = super::settling::next_by_id(&self.cluster, id, partition) else {
                continue;
            };
            // What was never sent is not acknowledged.
            let next = next.min(tracker.passed());
            let known = self.acked.entry(partition.clone()).or_insert(next);
            *known = (*known).max(next);
            count += 1;
        }
        count
    }

    /// What is to be committed now.
    fn to_commit(&self) -> HashMap<TopicPartition, CommittedOffset> {
        let starts = self.starts.iter().map(|(partition, offset)| (partition, *offset));
        let done = self.trackers.iter().filter_map(|(partition, tracker)| {
            let offset = match self.wanted.acking {
                Acking::Each => tracker.to_commit(),
                Acking::ById | Acking::Sent => {
                    let acked = self.acked.get(partition).copied();
                    acked.filter(|acked| *acked > tracker.last_committed())
                }
            };
            Some((partition, offset?))
        });
        let all = starts.chain(done);
        all.map(|(partition, offset)| (partition.clone(), CommittedOffset::at(Offset(offset))))
            .collect()
    }

    /// Goes on: does what is to be done next, or waits until something is. `wants`: whether the client takes messages now;
    /// `rereads`: whether it takes such that it had before.
    ///
    /// # Errors
    /// The session cannot go on.
    pub(crate) async fn next(&mut self, wants: bool, rereads: bool) -> Result<(), Failure> {
        self.begin(wants);
        self.reread(rereads);
        let wake_at = self.wake_at();
        tokio::select! {
            asked = self.entry.asked() => {
                let Some(AckById { id, tell }) = asked else {
                    let words = "clients with fewer members of groups need the place of this one: reconnect";
                    return Err(Failure::for_now(words));
                };
                // Who asked may have gone.
                let _ = tell.try_send(self.ack_by_id(&id));
                Ok(())
            }
            () = self.charge.revoked() => {
                let words = "clients with less memory need that of this member: reconnect";
                Err(Failure::for_now(words))
            }
            (consumer, done) = finished(&mut self.work) => {
                self.work = None;
                self.consumer = Some(consumer);
                self.settle_work(done)
            }
            (of, result) = finished(&mut self.rereading) => {
                self.rereading = None;
                self.take_reread(of, result);
                Ok(())
            }
            () = sleep_until(wake_at) => Ok(()),
        }
    }

    fn wake_at(&self) -> Instant {
        let due_ms = self.trackers.values().filter_map(Tracker::next_due_ms).min();
        let due = due_ms.map(|due_ms| self.began + Duration::from_millis(due_ms));
        let now = Instant::now();
        // Not at once again, where what is due waits for the one before it.
        let due = due.map(|due| due.max(now + Duration::from_millis(1)));
        let commit = (self.work.is_none()).then_some(self.commit_at.max(self.rest_until));
        let commit = commit.filter(|commit| *commit > now);
        [due, commit].into_iter().flatten().min().unwrap_or(now + LOOK_EVERY).min(now + LOOK_EVERY)
    }

    /// Begins what is to be done next, if anything is.
    fn begin(&mut self, wants: bool) {
        let now = Instant::now();
        if self.work.is_some() || now < self.rest_until {
            return;
        }
        let Some(consumer) = self.consumer.take() else { return };
        let must_join = consumer.must_join();
        let is_member = self.generation >= 0;
        if is_member && !self.is_settled && !must_join {
            let (from_earliest, is_exclusive) =
                (self.wanted.from_earliest, self.wanted.is_exclusive);
            let (cluster, group) = (self.cluster.clone(), self.wanted.group.clone());
            self.work = Some(Box::pin(async move {
                let done = match displaced(cluster.clone(), &consumer, &group, is_exclusive).await {
                    Ok(Some(reason)) => Done::Displaced(reason),
                    Ok(None) => {
                        let assigned = consumer.assignment();
                        Done::Settled(settle(&consumer, &cluster, assigned, from_earliest).await)
                    }
                    Err(error) => Done::Settled(Err(error)),
                };
                (consumer, done)
            }));
            return;
        }
        let has_unsettled = self.is_settled && !self.unsettled.is_empty();
        if is_member && has_unsettled && !must_join && now >= self.unsettled_at {
            let (left, from_earliest) = (self.unsettled.clone(), self.wanted.from_earliest);
            let cluster = self.cluster.clone();
            self.work = Some(Box::pin(async move {
                let settled = settle(&consumer, &cluster, left, from_earliest).await;
                (consumer, Done::SettledLeft(settled))
            }));
            return;
        }
        // Before it joins again is the last moment.
        if self.is_settled && (now >= self.commit_at || must_join) {
            let offsets = self.to_commit();
            if !offsets.is_empty() {
                self.work = Some(Box::pin(commit(consumer, offsets)));
                return;
            }
        }
        if must_join || wants && self.is_ready() && self.shelf.is_empty() {
            let mut consumer = consumer;
            if self.shelf.is_empty() {
                self.hold_nothing();
            }
            for (partition, at) in self.shelf.take_refetch() {
                // It is assigned, or else read by another member.
                let _ = consumer.seek(&partition, at);
            }
            let wait = if must_join { Duration::ZERO } else { POLL };
            self.work = Some(Box::pin(poll(consumer, wait, Arc::clone(&self.ending))));
            return;
        }
        self.consumer = Some(consumer);
    }

    /// Begins to read a record again that is due.
    fn reread(&mut self, rereads: bool) {
        if !rereads || !self.is_ready() || self.rereading.is_some() {
            return;
        }
        let now_ms = self.now_ms();
        let due = self.trackers.iter_mut().find_map(|(partition, tracker)| {
            tracker.take_due(now_ms).map(|again| (partition.clone(), again))
        });
        if let Some((partition, again)) = due {
            self.rereading = Some(super::reading::reread(&self.groups.lane, partition, again));
        }
    }

    /// Takes what was found where a message was read again. Of one that is gone nothing more is to come: it is done.
    fn take_reread(&mut self, of: Reread, result: Result<Found, ClientError>) {
        // Another member may have the partition by now, and the client may have acknowledged it.
        let due_ms = self.now_ms() + REST.as_millis() as u64;
        let tracker = self.trackers.get_mut(&of.partition);
        let Some(tracker) = tracker.filter(|tracker| tracker.is_open(of.offset)) else { return };
        match result {
            Ok(Found::Text(text)) => {
                if !self.shelf.put_again(of.clone(), text) {
                    tracker.nack(of.offset, due_ms);
                }
            }
            Ok(Found::Gone) => {
                tracker.ack(of.offset);
                let (reason, from, to) = (Reason::Retention, of.offset, of.offset + 1);
                self.shelf.say_gap(&of.partition, &Gap { reason, from, to });
                self.groups.counts.gaps.count(reason.into());
            }
            Ok(Found::Damaged(words)) => {
                tracker.ack(of.offset);
                self.shelf.say_lost(&of, &words);
            }
            Ok(Found::NotYet) | Err(_) => {
                tracker.nack(of.offset, due_ms);
            }
        }
    }

    fn settle_work(&mut self, done: Done) -> Result<(), Failure> {
        match done {
            Done::Polled(Ok(fetched)) => {
                self.take_fetched(fetched);
                Ok(())
            }
            Done::Displaced(reason) => Err(Failure::lasting(reason.message.into_owned())),
            Done::Settled(Ok(settlement)) => {
                self.take_settlement(settlement);
                Ok(())
            }
            Done::SettledLeft(settled) => {
                self.unsettled_at = Instant::now() + UNSETTLED_PAUSE;
                match settled {
                    Ok(Settlement { begun, left }) => {
                        self.take_begun(begun, BTreeMap::new());
                        self.leave_unsettled(left);
                        Ok(())
                    }
                    Err(error) if error.is_retriable() => Ok(()),
                    Err(error) => {
                        self.starts_again(&error);
                        self.fail(&error)
                    }
                }
            }
            Done::Committed(offsets, Ok(())) => {
                self.commit_at = Instant::now() + COMMIT_EVERY;
                for (partition, committed) in offsets {
                    self.starts.remove(&partition);
                    if let Some(tracker) = self.trackers.get_mut(&partition) {
                        tracker.committed(committed.offset.0);
                    }
                }
                Ok(())
            }
            Done::Committed(_, Err(error)) => {
                self.commit_at = Instant::now() + REST;
                // What is not committed now is committed once the member has joined again, or comes again.
                self.starts_again(&error);
                self.fail(&error)
            }
            Done::Polled(Err(error)) | Done::Settled(Err(error)) => self.fail(&error),
        }
    }

    /// A member that the group does not know any more settles anew, and it joins by its next poll.
    fn starts_again(&mut self, error: &ClientError) {
        let is_over = matches!(
            error.code(),
            Some(
                ErrorCode::IllegalGeneration
                    | ErrorCode::UnknownMemberId
                    | ErrorCode::RebalanceInProgress
            )
        );
        if is_over {
            self.is_settled = false;
            self.shelf.clear();
            self.generation = -1;
            self.starts.clear();
        }
    }

    /// Rests after what may be over soon; everything else ends the session.
    fn fail(&mut self, error: &ClientError) -> Result<(), Failure> {
        let is_of_group = matches!(
            error.code(),
            Some(
                ErrorCode::IllegalGeneration
                    | ErrorCode::UnknownMemberId
                    | ErrorCode::RebalanceInProgress
            )
        );
        if !error.is_retriable() && !is_of_group {
            return Err(Failure::lasting(error.to_string()));
        }
        debug!(group = %self.wanted.group, %error, "a member that records are pushed to waits");
        self.rest_until = Instant::now() + REST;
        Ok(())
    }

    fn take_fetched(&mut self, fetched: Vec<Fetched>) {
        let consumer = self.consumer.as_mut().expect("it has just come back");
        let generation = consumer.generation_id().unwrap_or(-1);
        if generation != self.generation || !self.is_settled {
            // Records that were read in between are read again from where it is settled to begin.
            self.generation = generation;
            self.is_settled = false;
            self.starts.clear();
            self.shelf.clear();
            return;
        }
        let bytes = fetched.iter().map(Fetched::size_bytes).sum::<usize>();
        let bytes = self.shelf.fetched_bytes() + bytes;
        // A batch may be larger than all the room: the largest ones come, a few at a time.
        let bytes = bytes.min(self.charge.limit_bytes() / FETCHED_PART);
        let has_room = self.charge.set(CHARGED_BYTES + bytes).is_ok();
        for fetched in fetched {
            let at = fetched.fetch_offset;
            let Some(tracker) = self.trackers.get_mut(&fetched.partition).filter(|_| has_room)
            else {
                let _ = consumer.seek(&fetched.partition, at);
                if self.unsettled.contains(&fetched.partition) {
                    // It has a leader.
                    self.unsettled_at = Instant::now();
                }
                continue;
            };
            let ahead = self.shelf.behind(&fetched.partition);
            let from = ahead.unwrap_or(tracker.passed());
            if at.0 != from {
                let reason = if at.0 > from { Reason::Retention } else { Reason::Cut };
                self.shelf.say_gap(&fetched.partition, &Gap { reason, from, to: at.0 });
                self.groups.counts.gaps.count(reason.into());
            }
            if at.0 < from {
                *tracker = Tracker::new(at.0);
                // It was of records that are not there any more. Whoever comes again begins here, too: what the group
                // had committed has gone with the topic, or lies behind the end.
                self.acked.remove(&fetched.partition);
                self.starts.insert(fetched.partition.clone(), at.0);
            }
            if ahead.is_none() {
                tracker.pass(at.0);
            }
            self.shelf.put(fetched);
        }
        if !has_room {
            self.rest_until = Instant::now() + REST;
        }
    }

    fn take_settlement(&mut self, Settlement { begun, left }: Settlement) {
        let before = std::mem::take(&mut self.trackers);
        self.acked.retain(|partition, _| begun.iter().any(|begun| begun.partition == *partition));
        if !left.is_empty() && self.unsettled != left {
            self.shelf.say_waiting(&left);
        }
        self.unsettled_at = Instant::now() + UNSETTLED_PAUSE;
        self.take_begun(begun, before);
        self.leave_unsettled(left);
        self.is_settled = true;
    }

    /// Notes partitions to settle later. An id counts once: behind it, acknowledgements do.
    fn leave_unsettled(&mut self, left: Vec<TopicPartition>) {
        if left.is_empty() {
            self.wanted.id = None;
        }
        self.unsettled = left;
    }

    fn take_begun(&mut self, begun: Vec<Begun>, mut before: BTreeMap<TopicPartition, Tracker>) {
        let consumer = self.consumer.as_mut().expect("it has just come back");
        for Begun { partition, committed, start } in begun {
            // If nobody else has committed meanwhile, the client goes on with what it has.
            let same = before.remove(&partition).filter(|tracker| {
                committed.is_some_and(|committed| committed == tracker.last_committed())
            });
            let mut tracker = same.unwrap_or_else(|| Tracker::new(start));
            if let Some(id) = &self.wanted.id
                && let Some(next) = super::settling::next_by_id(&self.cluster, id, &partition)
                && next > tracker.passed()
            {
                tracker.pass(next);
                self.acked.insert(partition.clone(), next);
            }
            if committed.is_none() {
                self.starts.insert(partition.clone(), start);
            }
            // It is assigned: nothing has joined since.
            let _ = consumer.seek(&partition, Offset(tracker.passed()));
            self.trackers.insert(partition, tracker);
        }
    }

    /// Commits what is acknowledged and leaves the group, within some seconds.
    pub(crate) async fn close(mut self) {
        self.ending.notify_one();
        let closing = async {
            if let Some(work) = self.work.take() {
                let (consumer, done) = work.await;
                self.consumer = Some(consumer);
                let _ = self.settle_work(done);
            }
            let offsets = if self.is_settled { self.to_commit() } else { HashMap::new() };
            let Some(mut consumer) = self.consumer.take() else { return };
            if !offsets.is_empty()
                && let Err(error) = consumer.commit_offsets(&offsets).await
            {
                debug!(group = %self.wanted.group, %error, "the last commit of a member failed");
            }
            let _ = consumer.close().await;
        };
        if timeout(CLOSE_MAX, closing).await.is_err() {
            debug!(group = %self.wanted.group, "a member has not left its group in time");
        }
    }
}

/// What a member is charged for as long as it is there, beside its connection: its consumer, its trackers, and texts.
pub(crate) const CHARGED_BYTES: usize = 64 * 1024 + AHEAD_BYTES;
/// The part of the room that what was fetched is charged with at most. As much again and a half may be one text
/// ([`event_bytes_max`]): so the largest record fits beside what it was fetched as.
const FETCHED_PART: usize = 4;

/// Bytes that one record may be sent as, so that this fits into the room for what is read.
pub(crate) fn event_bytes_max(room: &Room) -> usize {
    (room.limit_bytes() / 8 * 3).min(EVENT_BYTES_MAX)
}

/// Polls until there is something, or it is to end: then the consumer leaves its group at once, and the other members do not
/// wait for one that is gone.
async fn poll(mut consumer: Consumer, wait: Duration, ending: Arc<Notify>) -> (Consumer, Done) {
    let polled = tokio::select! {
        polled = consumer.poll(wait) => polled,
        () = ending.notified() => Ok(Vec::new()),
    };
    (consumer, Done::Polled(polled))
}

async fn commit(
    mut consumer: Consumer,
    offsets: HashMap<TopicPartition, CommittedOffset>,
) -> (Consumer, Done) {
    let committed = consumer.commit_offsets(&offsets).await;
    (consumer, Done::Committed(offsets, committed))
}

/// What comes of a work that is under way; never, if none is.
async fn finished<T>(work: &mut Option<Pin<Box<dyn Future<Output = T> + Send>>>) -> T {
    match work {
        Some(work) => work.as_mut().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use client::ClusterConfig;

    use super::*;

    #[tokio::test]
    async fn a_poll_that_waits_for_its_group_ends_when_it_is_told_to() {
        let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let cluster = Cluster::new(ClusterConfig::new(&nowhere.to_string()));
        // It tries to join for minutes.
        let config =
            ConsumerConfig { rebalance_timeout: POLL_INTERVAL_MAX, ..ConsumerConfig::group("g") };
        let mut consumer = Consumer::new(cluster, config);
        consumer.subscribe(&["t"]).unwrap();
        let ending = Arc::<Notify>::default();
        let polling = tokio::spawn(poll(consumer, Duration::ZERO, Arc::clone(&ending)));
        ending.notify_one();
        let ended = timeout(Duration::from_secs(60), polling).await;
        let (_, done) = ended.expect("it waits on").unwrap();
        assert!(matches!(done, Done::Polled(Ok(fetched)) if fetched.is_empty()));
    }
}
