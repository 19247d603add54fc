//! Consuming: partitions that are assigned by hand or by a group, fetched in sessions, handed out
//! as they came.
//!
//! A consumer belongs to one task and does its work within [`Consumer::poll`]; only heartbeats run
//! beside it. While the caller works on what a poll gave, the next records are on their way.
//! Read [`fetcher`], then [`group`].

pub mod assignor;
mod config;
mod fetched;
mod fetcher;
mod group;
mod lookups;
mod once;
mod session;

pub use config::{ConsumerConfig, OffsetReset};
pub use fetched::{ConsumerRecord, Fetched};
pub use group::{partitions_of_assignment, user_data_of};
pub use once::{Once, look_once, read_once};

use crate::cluster::{Cluster, TopicLease};
use crate::error::ClientError;
use crate::offsets::{self, CommittedOffset, Committer, FoundOffset, OffsetSpec};
use fetcher::{Fetcher, Place};
use group::Membership;
use lookups::PositionLookups;
use model::{ErrorCode, LeaderEpoch, Offset, TopicPartition};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A consumer.
pub struct Consumer {
    cluster: Cluster,
    config: ConsumerConfig,
    places: HashMap<TopicPartition, Place>,
    /// The topics of `places`, and those that are subscribed to.
    leases: HashMap<Arc<str>, TopicLease>,
    /// Whether there may be leases that are not needed any more.
    has_left: bool,
    /// Records that were taken in and that no poll has handed out: the positions are behind them already. A poll that is
    /// dropped, or fails, leaves them to the next one.
    ready: Vec<Fetched>,
    fetcher: Fetcher,
    lookups: PositionLookups,
    /// Begin of the time in which no partition has a position although look-ups failed.
    lost_since: Option<Instant>,
    /// Refreshes of metadata that pointed to the wrong broker; `None` while it does not.
    staleness: Option<Staleness>,
    membership: Option<Membership>,
    /// The group wants something.
    changed: Arc<Notify>,
    committed_at: Instant,
    /// Time spent on joining the group.
    rebalancing: Duration,
}

/// Behind so long an absence of a leader or of all brokers, attempts are rarer: a consumer of a cluster that is gone costs
/// next to no CPU.
const LONG_ABSENCE: Duration = Duration::from_secs(5);
const LONG_ABSENCE_PAUSE: Duration = Duration::from_secs(1);

/// Pause between two attempts that fail since `since`.
fn pause_of_absence(cluster: &Cluster, since: Instant) -> Duration {
    let is_long = since.elapsed() > LONG_ABSENCE;
    if is_long { LONG_ABSENCE_PAUSE } else { cluster.config().retry_backoff }
}

/// An answer to a fetch may take so much longer than the wait for records.
const ANSWER_SLACK: Duration = Duration::from_secs(1);

/// Partitions of a consumer that have no leader, no position, or a leader that does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadablePartitions {
    /// Reason of the first one, with its name.
    pub reason: String,
    /// Begin of that.
    pub since: Instant,
    /// Number of them.
    pub count: usize,
    /// Number of assigned partitions.
    pub of: usize,
}

impl std::fmt::Display for UnreadablePartitions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let UnreadablePartitions { reason, count, of, .. } = self;
        let verb = if *count == 1 { "is" } else { "are" };
        write!(formatter, "{reason}; {count} of {of} partitions {verb} not readable")
    }
}

/// Row of refreshes of metadata that remained stale.
#[derive(Clone, Copy)]
struct Staleness {
    since: Instant,
    /// Earliest next refresh.
    next: Instant,
}

impl Consumer {
    /// A consumer of nothing yet.
    pub fn new(cluster: Cluster, config: ConsumerConfig) -> Consumer {
        Consumer {
            fetcher: Fetcher::new(cluster.clone()),
            lookups: PositionLookups::new(cluster.clone()),
            lost_since: None,
            staleness: None,
            cluster,
            config,
            places: HashMap::new(),
            leases: HashMap::new(),
            has_left: false,
            ready: Vec::new(),
            membership: None,
            changed: Arc::default(),
            committed_at: Instant::now(),
            rebalancing: Duration::ZERO,
        }
    }

    /// Reads these partitions, and no others; begins where the group has committed, or else where
    /// `offset_reset` says.
    pub async fn assign(&mut self, partitions: &[TopicPartition]) -> Result<(), ClientError> {
        if self.membership.is_some() {
            let text = "partitions are assigned by the group".to_owned();
            return Err(ClientError::Usage(text));
        }
        let leases: Vec<_> = partitions.iter().map(|p| self.cluster.lease(&p.topic)).collect();
        for lease in &leases {
            lease.topic().await?;
        }
        self.place(partitions);
        Ok(())
    }

    /// Reads one partition more, from this offset on. Nothing is looked up: whether there is such a partition turns out
    /// when brokers are asked.
    pub fn add(&mut self, partition: TopicPartition, offset: Offset) {
        self.lease(&partition.topic);
        self.forget_ready(&partition);
        self.places.insert(partition, Place::at(offset));
    }

    /// Reads a partition no more.
    pub fn remove(&mut self, partition: &TopicPartition) {
        self.forget_ready(partition);
        self.places.remove(partition);
        self.has_left = true;
        if self.places.is_empty() {
            // Else the next poll does it, for all that have left.
            self.give_leases_back();
        }
    }

    fn lease(&mut self, topic: &Arc<str>) {
        if !self.leases.contains_key(topic) {
            self.leases.insert(topic.clone(), self.cluster.lease(topic));
        }
    }

    /// Gives back the leases of topics that are neither read nor subscribed to.
    fn give_leases_back(&mut self) {
        self.has_left = false;
        let mut needed: HashSet<&str> = self.places.keys().map(|p| &*p.topic).collect();
        needed.extend(self.membership.iter().flat_map(|m| m.topics()).map(String::as_str));
        self.leases.retain(|topic, _| needed.contains(&**topic));
    }

    /// Drops what was taken in of a partition: it is read from elsewhere now, or not at all.
    fn forget_ready(&mut self, partition: &TopicPartition) {
        self.ready.retain(|fetched| fetched.partition != *partition);
    }

    /// Partitions that were given up since the last call, if [`ConsumerConfig::failures_apart`] says so, and why.
    pub fn take_failures(&mut self) -> Vec<(TopicPartition, ClientError)> {
        std::mem::take(&mut self.fetcher.failures)
    }

    /// Replaces the assignment; partitions that stay keep their places.
    fn place(&mut self, partitions: &[TopicPartition]) {
        let mut old = std::mem::take(&mut self.places);
        let kept = |p: &TopicPartition| (p.clone(), old.remove(p).unwrap_or_default());
        self.places = partitions.iter().map(kept).collect();
        self.ready.retain(|fetched| self.places.contains_key(&fetched.partition));
        partitions.iter().for_each(|partition| self.lease(&partition.topic));
        self.give_leases_back();
    }

    /// Reads these topics as a member of the group. Partitions come with the polls. One that is a member already stays one: it
    /// goes on with what it has until the next poll, which commits that, where commits are automatic, and joins again with
    /// these topics.
    pub fn subscribe(&mut self, topics: &[&str]) -> Result<(), ClientError> {
        let Some(group_id) = self.config.group_id.clone() else {
            return Err(ClientError::Usage("a group.id is needed to subscribe".to_owned()));
        };
        let topics: BTreeSet<String> = topics.iter().map(|t| (*t).to_owned()).collect();
        topics.iter().for_each(|topic| self.lease(&topic.as_str().into()));
        if let Some(membership) = &mut self.membership {
            membership.subscribe(topics);
            self.give_leases_back();
            return Ok(());
        }
        let changed = self.changed.clone();
        self.places.clear();
        self.ready.clear();
        self.membership = Some(Membership::new(self.cluster.clone(), group_id, topics, changed));
        self.give_leases_back();
        Ok(())
    }

    /// The topics that are subscribed to, in their order.
    pub fn subscription(&self) -> Vec<String> {
        self.membership.iter().flat_map(|m| m.topics().iter().cloned()).collect()
    }

    /// The partitions that are read now, in their order.
    pub fn assignment(&self) -> Vec<TopicPartition> {
        let mut out: Vec<_> = self.places.keys().cloned().collect();
        out.sort();
        out
    }

    /// The partitions that cannot be read now; `None` if there are none. New records of readable partitions are not waited for
    /// in this sense.
    pub fn unreadable(&self) -> Option<UnreadablePartitions> {
        let answer_max = self.config.fetch_wait_max + ANSWER_SLACK;
        let stale_since = self.staleness.map(|stale| stale.since);
        let mut unreadable: Option<UnreadablePartitions> = None;
        for partition in self.assignment() {
            let place = &self.places[&partition];
            let obstacle = match place.position {
                _ if place.paused => None,
                Some(_) => self.fetcher.obstacle(&partition, answer_max),
                None => self.lookups.obstacle(&partition).map(|reason| (reason, None)),
            };
            let Some((reason, since)) = obstacle else { continue };
            let since = since.or(stale_since).unwrap_or_else(Instant::now);
            match &mut unreadable {
                Some(others) => others.count += 1,
                None => {
                    let (count, of) = (1, self.places.len());
                    unreadable = Some(UnreadablePartitions { reason, since, count, of });
                }
            }
        }
        unreadable
    }

    /// How long polls have waited for the group to share its partitions out, all together.
    pub fn rebalance_time(&self) -> Duration {
        self.rebalancing
    }

    /// The group's generation that the assignment is of; `None` without a group. Offsets that were read
    /// in another one may belong to another member by now.
    pub fn generation_id(&self) -> Option<i32> {
        self.membership.as_ref().map(Membership::generation_id)
    }

    /// Id of this member in its group; empty before it has joined, `None` without a group.
    pub fn member_id(&self) -> Option<&str> {
        self.membership.as_ref().map(Membership::member_id)
    }

    /// Whether the next poll joins the group again: the last moment to commit what was read.
    pub fn must_join(&self) -> bool {
        self.membership.as_ref().is_some_and(Membership::must_join)
    }

    /// The next offset of a partition, if it is known: behind what polls have handed out.
    pub fn position(&self, partition: &TopicPartition) -> Option<Offset> {
        let next = self.places.get(partition)?.position;
        self.first_ready(partition).map(|fetched| fetched.fetch_offset).or(next)
    }

    fn first_ready(&self, partition: &TopicPartition) -> Option<&Fetched> {
        self.ready.iter().find(|fetched| fetched.partition == *partition)
    }

    /// Goes on at this offset.
    pub fn seek(&mut self, partition: &TopicPartition, offset: Offset) -> Result<(), ClientError> {
        let place = self.place_of(partition)?;
        *place = Place { paused: place.paused, ..Place::at(offset) };
        self.forget_ready(partition);
        Ok(())
    }

    /// Fetches no more of a partition until it is resumed.
    pub fn pause(&mut self, partition: &TopicPartition) -> Result<(), ClientError> {
        self.place_of(partition).map(|place| place.paused = true)
    }

    /// Fetches it again.
    pub fn resume(&mut self, partition: &TopicPartition) -> Result<(), ClientError> {
        self.place_of(partition).map(|place| place.paused = false)
    }

    fn place_of(&mut self, partition: &TopicPartition) -> Result<&mut Place, ClientError> {
        let unassigned = || ClientError::Usage(format!("{partition} is not assigned"));
        self.places.get_mut(partition).ok_or_else(unassigned)
    }

    /// How long the fetch requests took that were answered since the last call, in the order of
    /// the answers; those before the first call are not known.
    pub fn take_fetch_times(&mut self) -> Vec<Duration> {
        self.fetcher.times.replace(Vec::new()).unwrap_or_default()
    }

    /// The next records, or nothing when there are none for so long. A poll in which the group
    /// shares its partitions out anew takes as long as that takes.
    ///
    /// A poll may be dropped before it is done: what it has taken in comes with the next one.
    pub async fn poll(&mut self, timeout: Duration) -> Result<Vec<Fetched>, ClientError> {
        let deadline = Instant::now() + timeout;
        self.commit_if_due().await?;
        loop {
            self.keep_membership().await?;
            self.find_positions().await?;
            if self.has_left {
                self.give_leases_back();
            }
            self.refresh_if_stale().await?;
            self.take_positions()?;
            self.take_answers()?;
            if !self.config.prefetch && !self.ready.is_empty() {
                return Ok(std::mem::take(&mut self.ready));
            }
            // Behind the answers, so that brokers that answered are asked again: either the next
            // records travel while the caller works, or there is something to wait for.
            self.fetcher.send(&self.places, &self.config).await?;
            if !self.ready.is_empty() || !self.fetcher.failures.is_empty() {
                return Ok(std::mem::take(&mut self.ready));
            }
            if !self.wait(deadline).await? {
                return Ok(Vec::new());
            }
        }
    }

    /// Asks for metadata if something pointed to the wrong broker, or if it has grown old. While no broker
    /// can be reached the poll goes on: there may be one again before its time is over.
    async fn refresh_if_stale(&mut self) -> Result<(), ClientError> {
        if self.staleness.is_some_and(|stale| stale.next > Instant::now()) {
            // Partitions that can be read do not wait for metadata of others.
            return Ok(());
        }
        let refreshed = match std::mem::take(&mut self.fetcher.stale) {
            true => {
                let since = self.staleness.map_or_else(Instant::now, |stale| stale.since);
                let next = Instant::now() + self.pause_of(since);
                self.staleness = Some(Staleness { since, next });
                self.cluster.refresh().await
            }
            false => {
                self.staleness = None;
                self.cluster.refresh_if_old().await
            }
        };
        match refreshed {
            Err(error) if error.is_retriable() => {
                tracing::debug!(%error, "cannot refresh metadata");
                self.fetcher.stale = true;
                Ok(())
            }
            result => result,
        }
    }

    /// Pause between two refreshes of metadata that is stale since `since`.
    fn pause_of(&self, since: Instant) -> Duration {
        pause_of_absence(&self.cluster, since)
    }

    fn take_answers(&mut self) -> Result<(), ClientError> {
        while let Some(answer) = self.fetcher.try_answer() {
            let count = self.places.len();
            let taken = self.fetcher.take(answer, &mut self.places, &self.config);
            self.has_left |= self.places.len() < count;
            self.ready.extend(taken?);
        }
        Ok(())
    }

    /// Waits for something to happen; false when the time is over.
    async fn wait(&mut self, deadline: Instant) -> Result<bool, ClientError> {
        let again = self.pause_of(self.staleness.map_or_else(Instant::now, |stale| stale.since));
        let unsettled = self.fetcher.stale || self.places.values().any(|p| p.position.is_none());
        let mut until = deadline.min(self.fetcher.next_attempt().unwrap_or(deadline));
        if unsettled {
            until = until.min(Instant::now() + again);
        }
        tokio::select! {
            answer = self.fetcher.answer() => {
                // Handed back, so that one place takes answers.
                self.fetcher.put_back(answer);
                return Ok(true);
            }
            () = self.lookups.wait() => return Ok(true),
            () = self.changed.notified() => return Ok(true),
            () = tokio::time::sleep_until(until.into()) => {}
        }
        Ok(Instant::now() < deadline)
    }

    /// Joins (again) if need be.
    async fn keep_membership(&mut self) -> Result<(), ClientError> {
        let Some(membership) = &mut self.membership else { return Ok(()) };
        if !membership.poll()? {
            return Ok(());
        }
        if self.config.auto_commit.is_some() && membership.is_member() {
            // In the old generation; a failure means that it is over, and others will read again.
            if let Err(error) = self.commit().await {
                tracing::debug!(%error, "the last commit of a generation failed");
            }
        }
        let Some(membership) = &mut self.membership else { return Ok(()) };
        let began = Instant::now();
        let assigned = membership.join(&self.config).await?;
        self.rebalancing += began.elapsed();
        self.places.clear();
        self.ready.clear();
        self.lookups.forget();
        self.place(&assigned);
        Ok(())
    }

    /// Finds out where to begin in partitions that have no position.
    async fn find_positions(&mut self) -> Result<(), ClientError> {
        let unknown = self.places.iter().filter(|(_, place)| place.position.is_none());
        let (mut reset, mut committed) = (Vec::new(), Vec::new());
        for (partition, place) in unknown {
            let list = if place.reset { &mut reset } else { &mut committed };
            list.push(partition.clone());
        }
        if let Some(group_id) = self.config.group_id.as_deref().filter(|_| !committed.is_empty()) {
            let found =
                offsets::committed_offsets(&self.cluster, group_id, Some(&committed)).await?;
            for (partition, committed) in found {
                self.places.insert(partition, Place::at(committed.offset));
            }
            committed.retain(|p| self.places[p].position.is_none());
        }
        reset.append(&mut committed);
        if reset.is_empty() { Ok(()) } else { self.reset(&reset) }
    }

    /// Begins to look up where these partitions begin.
    fn reset(&mut self, partitions: &[TopicPartition]) -> Result<(), ClientError> {
        let spec = match self.config.offset_reset {
            OffsetReset::Earliest => OffsetSpec::Earliest,
            OffsetReset::Latest => OffsetSpec::Latest,
            OffsetReset::Fail => {
                let what = format!("{} has no offset to begin at", partitions[0]);
                return Err(ClientError::refused(what, ErrorCode::OffsetOutOfRange));
            }
        };
        self.lookups.begin(partitions, spec, self.config.read_committed);
        Ok(())
    }

    /// Takes the results of look-ups in. A partition that fails is looked up again; the poll fails when none has a
    /// position for `call_timeout`.
    fn take_positions(&mut self) -> Result<(), ClientError> {
        let mut failure = None;
        for (partition, found) in self.lookups.take() {
            let place = self.places.get_mut(&partition).filter(|place| place.position.is_none());
            match (place, found) {
                // Removed, or placed by the caller meanwhile.
                (None, _) => {}
                (Some(place), Ok(found)) => {
                    let offset = found.offset.unwrap_or(Offset(0));
                    *place = Place { paused: place.paused, ..Place::at(offset) };
                }
                (Some(_), Err(error)) if error.is_retriable() => {
                    tracing::debug!(%partition, %error, "cannot find the position");
                    self.fetcher.stale = true;
                    failure = Some(error);
                }
                (Some(_), Err(error)) => return Err(error),
            }
        }
        if self.places.values().any(|place| place.position.is_some()) {
            self.lost_since = None;
            return Ok(());
        }
        let Some(error) = failure else { return Ok(()) };
        let since = *self.lost_since.get_or_insert_with(Instant::now);
        if since.elapsed() < self.cluster.config().call_timeout {
            return Ok(());
        }
        self.lost_since = None;
        Err(error)
    }

    /// Looks offsets up: first, last, or by time.
    pub async fn offsets(
        &self,
        wanted: &[(TopicPartition, OffsetSpec)],
    ) -> Result<HashMap<TopicPartition, FoundOffset>, ClientError> {
        offsets::list_offsets(&self.cluster, wanted, self.config.read_committed).await
    }

    /// Looks offsets up as [`Consumer::offsets`] does, but once, and for no longer than `patience`: see
    /// [`offsets::list_available`].
    pub async fn available_offsets(
        &self,
        wanted: &[(TopicPartition, OffsetSpec)],
        patience: Duration,
    ) -> HashMap<TopicPartition, Result<FoundOffset, ClientError>> {
        let read_committed = self.config.read_committed;
        offsets::list_available(&self.cluster, wanted, read_committed, patience).await
    }

    async fn commit_if_due(&mut self) -> Result<(), ClientError> {
        let due = self.config.auto_commit.is_some_and(|every| self.committed_at.elapsed() >= every);
        if !due || self.config.group_id.is_none() {
            return Ok(());
        }
        match self.commit().await {
            // The group moves on; what was read is read again by whoever gets it.
            Err(error) if error.code().is_some() => {
                tracing::debug!(%error, "an automatic commit failed");
                Ok(())
            }
            result => result,
        }
    }

    /// Commits the positions: everything that polls have given so far.
    pub async fn commit(&mut self) -> Result<(), ClientError> {
        let positions = self.places.iter().filter_map(|(partition, place)| {
            let leader_epoch = place.leader_epoch.unwrap_or(LeaderEpoch::NONE);
            let position = self.position(partition)?;
            let committed = CommittedOffset { leader_epoch, ..CommittedOffset::at(position) };
            Some((partition.clone(), committed))
        });
        let positions = positions.collect();
        self.commit_offsets(&positions).await
    }

    /// Commits these offsets.
    pub async fn commit_offsets(
        &mut self,
        offsets: &HashMap<TopicPartition, CommittedOffset>,
    ) -> Result<(), ClientError> {
        self.committed_at = Instant::now();
        if offsets.is_empty() {
            return Ok(());
        }
        let Some(group_id) = &self.config.group_id else {
            return Err(ClientError::Usage("a group.id is needed to commit".to_owned()));
        };
        let committer = match &self.membership {
            Some(membership) => membership.committer(&self.config),
            None => Committer::administrator(),
        };
        let answers = offsets::commit_offsets(&self.cluster, group_id, &committer, offsets).await?;
        match answers.iter().find(|(_, code)| !code.is_none()) {
            Some((partition, code)) => {
                Err(ClientError::refused(format!("commit of {partition}"), *code))
            }
            None => Ok(()),
        }
    }

    /// What the group has committed.
    pub async fn committed(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<HashMap<TopicPartition, CommittedOffset>, ClientError> {
        let Some(group_id) = &self.config.group_id else {
            return Err(ClientError::Usage("a group.id is needed for that".to_owned()));
        };
        offsets::committed_offsets(&self.cluster, group_id, Some(partitions)).await
    }

    /// Commits, if commits are automatic, and leaves the group.
    pub async fn close(mut self) -> Result<(), ClientError> {
        let grouped = self.membership.is_some() || self.config.group_id.is_some();
        let mut result = Ok(());
        if self.config.auto_commit.is_some() && grouped {
            result = self.commit().await;
        }
        if let Some(mut membership) = self.membership.take() {
            result = result.and(membership.leave(&self.config).await);
        }
        result
    }
}
