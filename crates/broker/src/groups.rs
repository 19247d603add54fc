//! Hosting the group coordinators: one [`Shard`] behind each partition of `__consumer_offsets` that
//! this broker leads.
//!
//! The shard decides; this host appends what it wants written, tells it when that is committed, and
//! carries its answers to whoever waits. An answer that depends on a write does not leave the shard
//! before the write is committed, so this file cannot get that wrong.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Wake, Waker};

use coordinator::{
    Effects, Event, GroupConfig, Loader, ReplyTo, Request, Response, Shard, WriteId,
};
use model::record::BatchBuilder;
use model::{ErrorCode, LeaderEpoch, Offset};
use parking_lot::{Mutex, RwLock};
use partition::{Acks, Append, Partition, PartitionError, Status};
use tokio::sync::{Notify, oneshot};
use tracing::{error, info};

use crate::clock::Clock;
use crate::handlers::error_code;
use crate::logs::flusher::Flusher;
use crate::read_log;

/// The topic that keeps what groups have committed.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// The coordinators on this broker.
pub struct Groups {
    config: GroupConfig,
    clock: Clock,
    flusher: Arc<Flusher>,
    control: tokio::runtime::Handle,
    shards: RwLock<HashMap<i32, Arc<Host>>>,
}

/// One shard, and what surrounds it.
struct Host {
    partition: Arc<Partition>,
    epoch: LeaderEpoch,
    clock: Clock,
    flusher: Arc<Flusher>,
    /// `None` while it loads, and after it was unloaded.
    hosted: Mutex<Option<Hosted>>,
    /// Told when a write may be committed, or a deadline may have come nearer.
    signal: Arc<Signal>,
}

struct Hosted {
    shard: Shard,
    waiting: HashMap<ReplyTo, oneshot::Sender<Response>>,
    next_reply: u64,
    /// Writes in the log that are not known to be committed, with the offset that commits each.
    /// Invariant: offsets rise.
    uncommitted: VecDeque<(WriteId, Offset)>,
}

/// Wakes a host's task. The partition calls it under its own lock, so it must not do more.
#[derive(Default)]
struct Signal(Notify);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}

/// Java's `String.hashCode`, by which Kafka finds a group's partition.
fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit as i32))
}

/// The partition of `__consumer_offsets` that a group belongs to, out of `count`.
pub fn partition_of(group: &str, count: i32) -> i32 {
    (java_hash(group) & i32::MAX) % count.max(1)
}

impl Groups {
    /// No coordinator yet.
    pub fn new(
        config: GroupConfig,
        clock: Clock,
        flusher: Arc<Flusher>,
        control: tokio::runtime::Handle,
    ) -> Groups {
        Groups { config, clock, flusher, control, shards: RwLock::default() }
    }

    /// Loads the shard behind `partition`, which this broker leads since `epoch`. Returns at once;
    /// until it is loaded its groups are answered COORDINATOR_LOAD_IN_PROGRESS.
    pub fn load(&self, partition: Arc<Partition>, epoch: LeaderEpoch) {
        let index = partition.topic_partition().partition.0;
        let host = Arc::new(Host {
            partition,
            epoch,
            clock: self.clock.clone(),
            flusher: Arc::clone(&self.flusher),
            hosted: Mutex::new(None),
            signal: Arc::default(),
        });
        if let Some(old) = self.shards.write().insert(index, Arc::clone(&host)) {
            old.unload();
        }
        let config = self.config.clone();
        self.control.spawn(async move {
            let loading = Arc::clone(&host);
            let loaded = tokio::task::spawn_blocking(move || loading.load(config)).await;
            if matches!(loaded, Ok(true)) {
                host.run().await;
            }
        });
    }

    /// Ends the shard of this partition: another broker leads it, or the topic is gone.
    pub fn unload(&self, partition_index: i32) {
        let host = self.shards.write().remove(&partition_index);
        if let Some(host) = host {
            host.unload();
        }
    }

    /// Ends all shards.
    pub fn unload_all(&self) {
        let hosts: Vec<_> = self.shards.write().drain().collect();
        hosts.into_iter().for_each(|(_, host)| host.unload());
    }

    /// Asks the coordinator of the group that lives on `partition_index`.
    pub async fn ask(&self, partition_index: i32, request: Request) -> Result<Response, ErrorCode> {
        let host = self.shards.read().get(&partition_index).cloned();
        host.ok_or(ErrorCode::NotCoordinator)?.ask(request).await
    }

    /// The partitions whose shards are here.
    pub fn partitions(&self) -> Vec<i32> {
        let mut indexes: Vec<i32> = self.shards.read().keys().copied().collect();
        indexes.sort_unstable();
        indexes
    }

    /// Shows what the loaded shards have recorded.
    pub fn each_durable(&self, mut look: impl FnMut(&coordinator::Durable)) {
        let hosts: Vec<_> = self.shards.read().values().cloned().collect();
        for host in hosts {
            if let Some(hosted) = &*host.hosted.lock() {
                look(hosted.shard.durable());
            }
        }
    }

    /// Tells all shards that topics are gone.
    pub fn topics_deleted(&self, topics: &[Arc<str>]) {
        let hosts: Vec<_> = self.shards.read().values().cloned().collect();
        for host in hosts {
            host.step(Event::TopicsDeleted { topics: topics.to_vec() });
        }
    }
}

impl Host {
    /// Reads the partition's records into a shard. False if it is not wanted any more.
    fn load(&self, config: GroupConfig) -> bool {
        let mut loader = Loader::new(config);
        let mut records = 0u64;
        let read = read_log::for_each_record(&self.partition, |key, value| {
            records += 1;
            let Some(key) = key else { return };
            if let Err(cause) = loader.replay(key, value) {
                error!(partition = %self.partition.topic_partition(), %cause, "skipped a record of groups");
            }
        });
        if let Err(cause) = read {
            error!(partition = %self.partition.topic_partition(), %cause, "cannot load its groups");
            return false;
        }
        let (shard, effects) = loader.finish(self.clock.steady());
        let mut slot = self.hosted.lock();
        if self.is_over() {
            return false;
        }
        let hosted = slot.insert(Hosted {
            shard,
            waiting: HashMap::new(),
            next_reply: 0,
            uncommitted: VecDeque::new(),
        });
        self.carry_out(hosted, effects);
        self.report_committed(hosted);
        if records > 0 {
            info!(partition = %self.partition.topic_partition(), records, "groups loaded");
        }
        true
    }

    fn is_over(&self) -> bool {
        self.partition.status() != Status::Leading || self.partition.epoch() != self.epoch
    }

    /// Runs the timers and the commits until the shard is unloaded.
    async fn run(self: Arc<Self>) {
        loop {
            let deadline = match &*self.hosted.lock() {
                None => return,
                Some(hosted) => hosted.shard.next_deadline(),
            };
            let deadline = deadline.map(|at| self.clock.instant_of(at).into());
            tokio::select! {
                () = self.signal.0.notified() => self.committed(),
                () = sleep_until(deadline) => self.step(Event::Expire),
            }
            if self.is_over() {
                self.unload();
            }
        }
    }

    async fn ask(&self, request: Request) -> Result<Response, ErrorCode> {
        let answer = {
            let mut slot = self.hosted.lock();
            let hosted = slot.as_mut().ok_or(ErrorCode::CoordinatorLoadInProgress)?;
            let (sender, answer) = oneshot::channel();
            let reply_to = ReplyTo(hosted.next_reply);
            hosted.next_reply += 1;
            hosted.waiting.insert(reply_to, sender);
            let before = hosted.shard.next_deadline();
            self.step_locked(hosted, Event::Request { reply_to, request });
            if hosted.shard.next_deadline() < before {
                self.signal.0.notify_one();
            }
            answer
        };
        // The shard answers every request; without an answer it was unloaded.
        answer.await.map_err(|_| ErrorCode::NotCoordinator)
    }

    fn step(&self, event: Event) {
        if let Some(hosted) = &mut *self.hosted.lock() {
            self.step_locked(hosted, event);
        }
    }

    fn step_locked(&self, hosted: &mut Hosted, event: Event) {
        let mut effects = Effects::default();
        hosted.shard.step(self.clock.steady(), event, &mut effects);
        self.carry_out(hosted, effects);
        self.report_committed(hosted);
    }

    /// Appends the writes and sends the answers. A write that fails is told to the shard, whose
    /// effects are carried out in turn.
    fn carry_out(&self, hosted: &mut Hosted, mut effects: Effects) {
        loop {
            for reply in effects.replies.drain(..) {
                if let Some(sender) = hosted.waiting.remove(&reply.to) {
                    // The client may have gone: then nobody wants the answer.
                    let _ = sender.send(reply.response);
                }
            }
            let Some(failed) = self.append_all(hosted, &mut effects) else { return };
            hosted.shard.step(self.clock.steady(), failed, &mut effects);
        }
    }

    fn append_all(&self, hosted: &mut Hosted, effects: &mut Effects) -> Option<Event> {
        for write in effects.writes.drain(..) {
            match self.append(&write) {
                Ok(needed) => hosted.uncommitted.push_back((write.id, needed)),
                Err(cause) => {
                    error!(partition = %self.partition.topic_partition(), %cause, "cannot record a group");
                    let error = error_code::of_partition(&cause);
                    return Some(Event::AppendFailed { from: write.id, error });
                }
            }
        }
        None
    }

    fn append(&self, write: &coordinator::Write) -> Result<Offset, PartitionError> {
        let mut batch = BatchBuilder::new();
        for record in &write.records {
            batch.add(write.timestamp, Some(&record.key), record.value.as_deref());
        }
        let how = Append { acks: Acks::All, now: self.clock.now(), internal: true };
        let appended = self.partition.append(&mut batch.finish(), how)?;
        if appended.wants_sync {
            self.flusher.request(Arc::clone(&self.partition));
        }
        Ok(appended.needed)
    }

    /// Tells the shard what is committed, and asks to be woken for the rest.
    fn report_committed(&self, hosted: &mut Hosted) {
        let waker = Waker::from(Arc::clone(&self.signal));
        while let Some((_, needed)) = hosted.uncommitted.front() {
            if self.partition.high_watermark() < *needed {
                if self.is_over() || self.partition.park(*needed, &waker) {
                    return;
                }
                continue;
            }
            let (write, _) = hosted.uncommitted.pop_front().expect("it was just looked at");
            let mut effects = Effects::default();
            hosted.shard.step(self.clock.steady(), Event::Committed { write }, &mut effects);
            self.carry_out(hosted, effects);
        }
    }

    fn committed(&self) {
        if let Some(hosted) = &mut *self.hosted.lock() {
            self.report_committed(hosted);
        }
    }

    fn unload(&self) {
        let Some(mut hosted) = self.hosted.lock().take() else { return };
        let mut effects = Effects::default();
        hosted.shard.unload(&mut effects);
        for reply in effects.replies {
            if let Some(sender) = hosted.waiting.remove(&reply.to) {
                let _ = sender.send(reply.response);
            }
        }
        self.signal.0.notify_one();
    }
}

async fn sleep_until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// What the configuration says of groups.
pub fn group_config(config: &configuration::BrokerConfig) -> GroupConfig {
    GroupConfig {
        session_timeout_ms_min: config.groups.session_timeout_ms_min,
        session_timeout_ms_max: config.groups.session_timeout_ms_max,
        group_size_max: config.groups.size_max.max(1),
        initial_rebalance_delay_ms: config.groups.initial_rebalance_delay_ms as i64,
        offset_metadata_length_max: config.offsets.metadata_bytes_max,
        offsets_retention_ms: config.offsets.retention_minutes.saturating_mul(60_000),
        offsets_retention_check_interval_ms: config.offsets.retention_check_ms as i64,
        write_timeout_ms: config.offsets.commit_timeout_ms as i64,
        ..GroupConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_live_where_kafka_looks_for_them() {
        // Java: "my-group".hashCode() == -1906497762, "".hashCode() == 0.
        assert_eq!(java_hash("my-group"), -1906497762);
        assert_eq!(java_hash(""), 0);
        assert_eq!(partition_of("", 50), 0);
        assert_eq!(partition_of("my-group", 50), (-1906497762i32 & i32::MAX) % 50);
    }
}
