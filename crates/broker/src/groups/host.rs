//! One shard, and what surrounds it: loading, appending, committing, timers.
//!
//! The shard decides; this host appends what it wants written, tells it when that is committed, and
//! carries its answers to the requests that wait. An answer that depends on a write does not leave the
//! shard before the write is committed, so this file cannot get that wrong.
//!
//! An append takes as long as its disk, and whoever looks at the shard meanwhile waits for it. So everything here runs on the data
//! threads, beside the requests, or on threads that may wait; never on the control thread.
//!
//! A shard is loaded from all of the partition's records or not at all: a record that cannot be read
//! was a position or a member that somebody relies on. Until loading succeeds, which is tried again
//! and again, the groups are answered as by a broker that is not their coordinator, as in Kafka.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use coordinator::request::{Lent, MemoryLoan, OffsetCommit};
use coordinator::{
    Effects, Event, GroupConfig, GroupId, GroupMemory, Loader, LoanFor, MemberId, ReplyTo, Request,
    Response, Shard, WriteId,
};
use model::record::BatchBuilder;
use model::{ErrorCode, LeaderEpoch, Offset, TopicId, TopicPartition};
use parking_lot::Mutex;
use partition::{Acks, Append, Fate, Partition, PartitionError, Refusal, Status};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::GroupPools;
use super::standby::Standby;
use crate::clock::Clock;
use crate::handlers::error_code;
use crate::network::shares::{Owner, PoolShare};
use crate::read_log::{self, Range, ReadLogError};
use crate::vital;

/// The pause before loading is tried again; it doubles each time.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(2);
/// The longest pause.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// One shard, and what surrounds it.
pub(super) struct Host {
    partition: Arc<Partition>,
    epoch: LeaderEpoch,
    clock: Clock,
    /// Charged with the memory of the shard.
    memory: GroupPools,
    /// The thread that must wait for no disk.
    control: ThreadId,
    stage: Mutex<Stage>,
    /// Topics that are gone, name and id, and of which the shard's records do not say so yet: it was not
    /// loaded, or could not write. Locked behind `stage`.
    topics_gone: Mutex<Vec<(Arc<str>, TopicId)>>,
    /// Told when a write may be committed, a deadline may have come nearer, or the shard ends.
    signal: Arc<Signal>,
}

/// How far the shard is.
enum Stage {
    /// Its records are read, or are not known to be committed.
    Loading,
    Serving(Box<Hosted>),
    /// Its records cannot be read, for this reason.
    Failed(String),
    /// It was unloaded. There is no way back.
    Ended,
}

struct Hosted {
    shard: Shard,
    waiting: HashMap<ReplyTo, oneshot::Sender<Response>>,
    next_reply: u64,
    /// Writes in the log that are not known to be committed, with the offset that commits each.
    /// Invariant: offsets rise.
    uncommitted: VecDeque<(WriteId, Offset)>,
    /// How many writes the log did not take.
    failed_appends: u64,
    /// When the shard is told again that topics are gone.
    retry_at: Option<Instant>,
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

/// Why a shard could not be loaded.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error(transparent)]
    Read(#[from] ReadLogError),
    #[error("a bug: reading the records panicked")]
    Panicked,
}

impl Host {
    pub(super) fn new(
        partition: Arc<Partition>,
        epoch: LeaderEpoch,
        clock: Clock,
        memory: GroupPools,
        control: ThreadId,
    ) -> Host {
        let (stage, topics_gone) = (Mutex::new(Stage::Loading), Mutex::default());
        let signal = Arc::default();
        Host { partition, epoch, clock, memory, control, stage, topics_gone, signal }
    }

    pub(super) fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    /// Whether it is the shard of this partition in this leader epoch, and not over.
    pub(super) fn is_of(&self, partition: &Arc<Partition>, epoch: LeaderEpoch) -> bool {
        Arc::ptr_eq(&self.partition, partition) && self.epoch == epoch && !self.has_ended()
    }

    /// Loads the shard, and runs it until it is unloaded.
    pub(super) async fn load_and_serve(
        self: Arc<Self>,
        config: GroupConfig,
        mut standby: Option<Arc<Standby>>,
    ) {
        let mut pause = RETRY_AFTER_MIN;
        loop {
            match self.load(config.clone(), standby.take()).await {
                Ok(Some(loader)) => {
                    if self.begin(loader).await {
                        self.run().await;
                    }
                    return self.unload();
                }
                Ok(None) => return self.unload(),
                Err(cause) => {
                    let partition = self.partition.topic_partition();
                    error!(%partition, %cause, retry_s = pause.as_secs(), "cannot load the groups of this partition");
                    self.fail(&cause);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.ended() => return,
            }
            pause = (pause * 2).min(RETRY_AFTER_MAX);
        }
    }

    /// Reads the partition's records, but those that were read ahead, and waits until all of them are committed: what is
    /// not may be taken back, and no client may hear of it. `None` if the shard is not wanted any more.
    async fn load(
        self: &Arc<Self>,
        config: GroupConfig,
        standby: Option<Arc<Standby>>,
    ) -> Result<Option<Loader>, LoadError> {
        let host = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || host.read(config, standby)).await;
        let (loader, end) = match read {
            Ok(read) => read?,
            Err(ended) if ended.is_panic() => return Err(LoadError::Panicked),
            // The broker stops.
            Err(_) => return Ok(None),
        };
        self.partition.request_sync();
        Ok(self.is_committed(end).await.then_some(loader))
    }

    fn read(
        &self,
        config: GroupConfig,
        standby: Option<Arc<Standby>>,
    ) -> Result<(Loader, Offset), ReadLogError> {
        let ahead = standby.and_then(|standby| standby.take());
        let (mut loader, from) = match ahead {
            Some((loader, from)) => (loader, Some(from)),
            None => (Loader::new(config), None),
        };
        let mut records = 0u64;
        let range = Range { from, ..Range::ALL };
        let end = read_log::for_each_entry(&self.partition, range, |entry| {
            records += 1;
            read_log::replay_entry(&mut loader, entry)
        })?;
        let read_ahead_to = from.filter(|from| from.0 > 0).map(|from| from.0);
        if records > 0 || read_ahead_to.is_some() {
            info!(partition = %self.partition.topic_partition(), records, read_ahead_to, "groups loaded");
        }
        Ok((loader, end))
    }

    /// Waits until everything below `end` is committed. False if the shard ended before.
    async fn is_committed(&self, end: Offset) -> bool {
        let waker = Waker::from(Arc::clone(&self.signal));
        loop {
            if self.has_ended() {
                return false;
            }
            match self.partition.fate(end, self.epoch) {
                Fate::Committed => return true,
                Fate::Ended(_) => return false,
                Fate::Undecided => {}
            }
            if self.partition.park(end, &waker).is_some() {
                self.signal.0.notified().await;
            }
        }
    }

    /// Begins to serve, on a thread that may wait: many groups take their time, and some of them a record. False if the shard is
    /// not wanted any more.
    async fn begin(self: &Arc<Self>, loader: Loader) -> bool {
        let host = Arc::clone(self);
        vital::waiting(move || host.serve(loader)).await.unwrap_or(false)
    }

    fn serve(&self, loader: Loader) -> bool {
        let mut stage = self.stage.lock();
        if matches!(*stage, Stage::Ended) || self.is_over() {
            return false;
        }
        let (shard, effects) = loader.finish(self.clock.steady(), |of, bytes| self.lend(of, bytes));
        let mut hosted = Box::new(Hosted {
            shard,
            waiting: HashMap::new(),
            next_reply: 0,
            uncommitted: VecDeque::new(),
            failed_appends: 0,
            retry_at: None,
        });
        self.carry_out(&mut hosted, effects);
        self.report_committed(&mut hosted);
        self.forget_topics(&mut hosted);
        *stage = Stage::Serving(hosted);
        true
    }

    /// Charges the memory of a loaded member or group, whether there is room or not.
    fn lend(&self, of: LoanFor, bytes: usize) -> Lent {
        let pool = match of {
            LoanFor::Members => &self.memory.members,
            LoanFor::Offsets => &self.memory.offsets,
            LoanFor::OffsetMetadata => &self.memory.offset_metadata,
        };
        let share = pool.share(None);
        share.set_bytes(bytes);
        Lent::new(share)
    }

    /// The loans to all groups; none unless the shard serves.
    pub(super) fn memory(&self) -> Vec<GroupMemory> {
        let mut memory = Vec::new();
        self.with_hosted(|hosted| memory = hosted.shard.memory());
        memory
    }

    /// Removes members, to take their memory back.
    pub(super) fn reclaim(&self, group: GroupId, members: Vec<MemberId>) {
        self.with_hosted(|hosted| self.step(hosted, Event::Reclaim { group, members }));
    }

    /// A figure of the shard; 0 unless it serves.
    pub(super) fn bytes_of(&self, bytes: impl FnOnce(&Shard) -> usize) -> usize {
        let mut found = 0;
        self.with_hosted(|hosted| found = bytes(&hosted.shard));
        found
    }

    fn fail(&self, cause: &LoadError) {
        let mut stage = self.stage.lock();
        if !matches!(*stage, Stage::Ended) {
            *stage = Stage::Failed(cause.to_string());
        }
    }

    /// The reason why the shard could not be loaded, if that is so.
    pub(super) fn failure(&self) -> Option<(TopicPartition, String)> {
        match &*self.stage.lock() {
            Stage::Failed(reason) => {
                Some((self.partition.topic_partition().clone(), reason.clone()))
            }
            Stage::Loading | Stage::Serving(_) | Stage::Ended => None,
        }
    }

    fn has_ended(&self) -> bool {
        matches!(*self.stage.lock(), Stage::Ended)
    }

    async fn ended(&self) {
        while !self.has_ended() {
            self.signal.0.notified().await;
        }
    }

    fn is_over(&self) -> bool {
        self.partition.status() != Status::Leading || self.partition.epoch() != self.epoch
    }

    /// Runs the timers and the commits until the shard is unloaded, on the data threads.
    async fn run(&self) {
        loop {
            let (deadline, retry_at) = match &*self.stage.lock() {
                Stage::Serving(hosted) => (hosted.shard.next_deadline(), hosted.retry_at),
                Stage::Loading | Stage::Failed(_) | Stage::Ended => return,
            };
            let deadline = deadline.map(|at| self.clock.instant_of(at).into());
            tokio::select! {
                () = self.signal.0.notified() => self.with_hosted(|hosted| self.report_committed(hosted)),
                () = sleep_until(deadline) => self.with_hosted(|hosted| self.step(hosted, Event::Expire)),
                () = sleep_until(retry_at) => self.with_hosted(|hosted| self.forget_topics(hosted)),
            }
            if self.is_over() {
                self.unload();
            }
        }
    }

    /// Does something with the shard if it serves.
    fn with_hosted(&self, act: impl FnOnce(&mut Hosted)) {
        if let Stage::Serving(hosted) = &mut *self.stage.lock() {
            act(hosted);
        }
    }

    /// Shows what the shard has recorded, if it serves.
    pub(super) fn look(&self, look: impl FnOnce(&coordinator::Durable)) {
        self.with_hosted(|hosted| look(hosted.shard.durable()));
    }

    /// Topics are gone, name and id of each: what groups stored for them goes too, now or, if the shard
    /// cannot write it now, later.
    pub(super) fn topics_deleted(&self, topics: &[(Arc<str>, TopicId)]) {
        let mut stage = self.stage.lock();
        self.topics_gone.lock().extend_from_slice(topics);
        if let Stage::Serving(hosted) = &mut *stage {
            self.forget_topics(hosted);
        }
        drop(stage);
        self.signal.0.notify_one();
    }

    fn forget_topics(&self, hosted: &mut Hosted) {
        hosted.retry_at = None;
        let topics = std::mem::take(&mut *self.topics_gone.lock());
        if topics.is_empty() {
            return;
        }
        let failed_before = hosted.failed_appends;
        self.step(hosted, Event::TopicsDeleted { topics: topics.clone() });
        if hosted.failed_appends > failed_before {
            self.topics_gone.lock().extend(topics);
            hosted.retry_at = Some(Instant::now() + RETRY_AFTER_MIN);
        }
    }

    pub(super) async fn ask(&self, request: Request) -> Result<Response, ErrorCode> {
        let answer = {
            let mut stage = self.stage.lock();
            let hosted = match &mut *stage {
                Stage::Serving(hosted) => hosted,
                Stage::Loading => return Err(ErrorCode::CoordinatorLoadInProgress),
                Stage::Failed(_) | Stage::Ended => return Err(ErrorCode::NotCoordinator),
            };
            let _room = match &request {
                Request::OffsetCommit(commit) => room_for_offsets(&hosted.shard, commit)?,
                _ => [None, None],
            };
            let (sender, answer) = oneshot::channel();
            let reply_to = ReplyTo(hosted.next_reply);
            hosted.next_reply += 1;
            hosted.waiting.insert(reply_to, sender);
            let before = hosted.shard.next_deadline();
            self.step(hosted, Event::Request { reply_to, request });
            if hosted.shard.next_deadline() < before {
                self.signal.0.notify_one();
            }
            answer
        };
        // The shard answers every request; without an answer it was unloaded.
        answer.await.map_err(|_| ErrorCode::NotCoordinator)
    }

    fn step(&self, hosted: &mut Hosted, event: Event) {
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
                    hosted.failed_appends += 1;
                    let error = error_code::of_partition(&cause);
                    return Some(Event::AppendFailed { from: write.id, error });
                }
            }
        }
        None
    }

    fn append(&self, write: &coordinator::Write) -> Result<Offset, PartitionError> {
        debug_assert_ne!(
            std::thread::current().id(),
            self.control,
            "a group is recorded on the control thread, and what that carries would wait for the disk"
        );
        self.check_size(write)?;
        let mut batch = BatchBuilder::new();
        for record in &write.records {
            batch.add(write.timestamp, Some(&record.key), record.value.as_deref());
        }
        let how = Append { acks: Acks::All, now: self.clock.now(), internal: true };
        let appended = self.partition.append(&mut batch.finish(), how)?;
        if appended.epoch != self.epoch {
            return Err(PartitionError::NotLeader);
        }
        self.partition.want_committed(appended.needed);
        Ok(appended.needed)
    }

    /// Tells the shard what is committed, and asks to be woken for the rest.
    fn report_committed(&self, hosted: &mut Hosted) {
        let waker = Waker::from(Arc::clone(&self.signal));
        while let Some((_, needed)) = hosted.uncommitted.front() {
            match self.partition.fate(*needed, self.epoch) {
                Fate::Committed => {}
                // What was appended in an epoch that is over may have been cut away, whatever is committed now.
                Fate::Ended(_) => return,
                Fate::Undecided if self.partition.park(*needed, &waker).is_some() => return,
                Fate::Undecided => continue,
            }
            let (write, _) = hosted.uncommitted.pop_front().expect("it was just looked at");
            let mut effects = Effects::default();
            hosted.shard.step(self.clock.steady(), Event::Committed { write }, &mut effects);
            self.carry_out(hosted, effects);
        }
    }

    /// Refuses a record that is larger than the topic takes, as a member with megabytes of metadata
    /// makes it. Tombstones are always taken: nothing would ever go away otherwise.
    fn check_size(&self, write: &coordinator::Write) -> Result<(), PartitionError> {
        let max = self.partition.settings().log.max_message_bytes;
        let with_value = write.records.iter().filter(|record| record.value.is_some());
        match with_value.map(|record| record.size_bytes()).max() {
            Some(size) if size > max as usize => {
                let size_bytes = u32::try_from(size).unwrap_or(u32::MAX);
                Err(Refusal::TooLarge { size_bytes, max }.into())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn unload(&self) {
        let before = std::mem::replace(&mut *self.stage.lock(), Stage::Ended);
        self.signal.0.notify_one();
        let Stage::Serving(mut hosted) = before else { return };
        let mut effects = Effects::default();
        hosted.shard.unload(&mut effects);
        for reply in effects.replies {
            if let Some(sender) = hosted.waiting.remove(&reply.to) {
                // The client may have gone: then nobody wants the answer.
                let _ = sender.send(reply.response);
            }
        }
    }
}

/// Room for offsets that the group does not have yet, until the shard has charged them.
fn room_for_offsets(
    shard: &Shard,
    commit: &OffsetCommit,
) -> Result<[Option<PoolShare>; 2], ErrorCode> {
    let growth = shard.offset_growth(commit);
    let metadata = room_for_growth(&commit.lent_metadata, growth.metadata_bytes, |owner| {
        warn!(
            ?owner,
            "memory for metadata of committed offsets is full: OffsetCommit requests with more metadata are refused; raise group.coordinator.offsets.memory.max.bytes, an eighth of which is for metadata, or delete groups that are not used"
        );
    })?;
    let all = room_for_growth(&commit.lent, growth.kept_bytes, |owner| {
        warn!(
            ?owner,
            "memory for committed offsets is full: OffsetCommit requests for further partitions are refused; raise group.coordinator.offsets.memory.max.bytes, or delete groups that are not used"
        );
    })?;
    Ok([metadata, all])
}

fn room_for_growth(
    lent: &Lent,
    bytes: usize,
    report: impl FnOnce(Owner),
) -> Result<Option<PoolShare>, ErrorCode> {
    let Some(share) = lent.account::<PoolShare>().filter(|_| bytes > 0) else { return Ok(None) };
    share.hold_more(bytes).map(Some).map_err(|_| {
        if share.is_report_due() {
            report(share.owner());
        }
        ErrorCode::CoordinatorNotAvailable
    })
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
