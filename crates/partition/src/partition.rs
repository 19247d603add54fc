//! The partition itself: its lock, what is published beside it, and its roles.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;
use std::time::Duration;

use model::{BrokerId, Durability, LeaderEpoch, Moment, Offset, TopicId, TopicPartition};
use parking_lot::{Mutex, MutexGuard};
use replication::{
    Assignment, CommittedBound, Effects, Event, Proposal, RefusedTruncation, Replica, Role, Rules,
};
use slab::Slab;
use storage::disk::{guard, hand_over};
use storage::{Log, StorageError};

use crate::deletion::{DeletionWaiter, wake_deletions};
use crate::error::PartitionError;
use crate::held::Held;
use crate::proposals::Proposals;
use crate::refused_sequences::RefusedSequences;
use crate::settings::Settings;
use crate::sync::SyncState;
use crate::sync_queue::{AppendAdmission, SyncQueue};
use crate::watch::{Watch, WatchKey, Watched};

/// Longest wait for the lock of a partition that a thread takes for an ordinary one: the lock is held for microseconds.
const LOCK_PATIENCE: Duration = Duration::from_millis(100);

/// How long an append waits for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockPatience {
    /// As long as it takes: the caller has no other work.
    Unlimited,
    /// As [`Partition::lock_briefly`].
    Brief,
}

/// What a partition can be asked for at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// This broker leads it.
    Leading,
    /// Another broker leads it, or none.
    Following,
    /// Its log failed.
    Offline,
    /// Its topic was deleted.
    Deleted,
}

impl Status {
    fn from_u8(value: u8) -> Status {
        match value {
            0 => Status::Leading,
            1 => Status::Following,
            2 => Status::Offline,
            _ => Status::Deleted,
        }
    }
}

/// One partition on this broker.
#[derive(Debug)]
pub struct Partition {
    topic_partition: TopicPartition,
    topic_id: TopicId,
    state: Mutex<State>,
    /// Held while the names of the log's files change or are synced: by retention, checkpoints,
    /// compaction's swap, the stop, deletion. No append and no read waits for it.
    maintenance: Mutex<()>,
    /// Held while the next segment is made: an append meanwhile waits for that, and for no sync.
    /// Taken behind `maintenance` and before the lock.
    rolling: Mutex<()>,
    /// Copy of the replica's, for those who wait without the lock. Invariant: never ahead of it.
    high_watermark: AtomicI64,
    /// The highest committed offset that the journal knows.
    stored_committed: AtomicI64,
    /// Whether it is a follower that refuses a truncation.
    refuses: AtomicBool,
    /// Copy of the replica's leader epoch.
    epoch: AtomicI32,
    /// Copy of what the role allows.
    status: AtomicU8,
    /// Whether files of the log may be open, for the thread that looks for some to close among very
    /// many partitions. Moved under the lock: behind what opens a file, and by
    /// [`Partition::release_files_in_need`].
    may_hold_files: AtomicBool,
    /// Whether the volume has room for appends. Moved by the thread that watches the volume.
    writable: AtomicBool,
    /// Sequences of idempotent producers that were refused a moment ago. Its lock is the innermost one.
    pub(crate) refused: Mutex<RefusedSequences>,
    /// Whether `refused` holds any sequence. Changed under the lock of `refused`.
    pub(crate) has_refused: AtomicBool,
    /// Where the partition asks for a sync: the queue of its log directory.
    pub(crate) sync_queue: Arc<SyncQueue>,
    /// Where it says that it has an ISR to propose, once somebody wants to know.
    proposals: OnceLock<Arc<Proposals>>,
    /// Itself, to enter that queue.
    pub(crate) this: Weak<Partition>,
}

/// A place among those who wait for the high watermark; see [`Partition::park`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaiterKey {
    needed: Offset,
    number: u64,
}

/// One who waits for the high watermark.
#[derive(Debug)]
struct Waiter {
    key: WaiterKey,
    waker: Waker,
}

/// The lock, held. In debug builds no file may be touched meanwhile (`storage::disk::guard`).
#[derive(Debug)]
pub(crate) struct StateGuard<'a> {
    // Dropped in this order.
    state: MutexGuard<'a, State>,
    _locked: guard::Locked,
}

impl Deref for StateGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// What the lock guards.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) log: Log,
    pub(crate) replica: Replica,
    pub(crate) settings: Arc<Settings>,
    /// What is asked of the flusher, and what it does.
    pub(crate) sync: SyncState,
    /// What of the log is counted in the sums of the directory.
    held: Held,
    /// Those who wait for the high watermark. Invariant: sorted by offset.
    waiters: VecDeque<Waiter>,
    /// How many have waited so far: numbers them.
    waiters_numbered: u64,
    /// DeleteRecords requests that wait for the low watermark.
    pub(crate) deletions: Slab<DeletionWaiter>,
    /// Those who wait for anything new that is committed.
    pub(crate) watchers: Slab<(Arc<Watch>, u32)>,
    /// An ISR that the controller is to be asked for, and was not yet.
    proposal: Option<Proposal>,
    /// Replicas, which wait for anything new.
    replicas_waiting: Slab<(Arc<Watch>, u32)>,
}

impl Partition {
    /// A partition over its opened log, without a leader. `checkpointed` is the high watermark
    /// stored before the last stop; `sync_queue` is that of the log directory.
    pub fn new(
        topic_partition: TopicPartition,
        topic_id: TopicId,
        me: BrokerId,
        log: Log,
        settings: Arc<Settings>,
        checkpointed: Offset,
        sync_queue: Arc<SyncQueue>,
    ) -> Arc<Partition> {
        let replica = Replica::opened(
            me,
            rules(&settings),
            log.log_start_offset(),
            log.synced_below(),
            log.log_end_offset(),
            checkpointed,
        );
        let high_watermark = AtomicI64::new(replica.high_watermark().0);
        let state = State {
            log,
            replica,
            settings,
            sync: SyncState::default(),
            held: Held::default(),
            waiters: VecDeque::new(),
            waiters_numbered: 0,
            deletions: Slab::new(),
            watchers: Slab::new(),
            proposal: None,
            replicas_waiting: Slab::new(),
        };
        let partition = Arc::new_cyclic(|this| Partition {
            topic_partition,
            topic_id,
            state: Mutex::new(state),
            maintenance: Mutex::default(),
            rolling: Mutex::default(),
            high_watermark,
            stored_committed: AtomicI64::new(0),
            refuses: AtomicBool::new(false),
            epoch: AtomicI32::new(LeaderEpoch::NONE.0),
            status: AtomicU8::new(Status::Following as u8),
            may_hold_files: AtomicBool::new(true),
            writable: AtomicBool::new(true),
            refused: Mutex::default(),
            has_refused: AtomicBool::new(false),
            sync_queue,
            proposals: OnceLock::new(),
            this: Weak::clone(this),
        });
        partition.count_held(&mut partition.lock());
        partition
    }

    /// Brings the sums of the directory up to what the log holds now. A partition that was deleted holds
    /// nothing, whatever work on it ends afterwards.
    pub(crate) fn count_held(&self, state: &mut State) {
        if self.status() == Status::Deleted {
            return;
        }
        self.hold(state, Held::by(&state.log));
    }

    fn hold(&self, state: &mut State, held: Held) {
        let before = std::mem::replace(&mut state.held, held);
        self.sync_queue.held().moved(before, held);
    }

    /// Waits for the lock as long as that takes. A wait of more than [`LOCK_PATIENCE`] lets another thread serve the other
    /// connections of this one: the holder of the lock writes to a device that hangs.
    pub(crate) fn lock(&self) -> StateGuard<'_> {
        let state = self.state.try_lock_for(LOCK_PATIENCE);
        let state = state.unwrap_or_else(|| hand_over::wait(|| self.state.lock()));
        StateGuard { state, _locked: guard::locked() }
    }

    /// As [`Partition::lock`], for a request that can be tried again: fails with [`PartitionError::DirectoryHangs`] after
    /// [`LOCK_PATIENCE`], and at once while writes in the log directory hang.
    pub(crate) fn lock_briefly(&self) -> Result<StateGuard<'_>, PartitionError> {
        let state = match self.sync_queue.admission() {
            AppendAdmission::Admitted => self.state.try_lock_for(LOCK_PATIENCE),
            _ => self.state.try_lock(),
        };
        let state = state.ok_or(PartitionError::DirectoryHangs)?;
        Ok(StateGuard { state, _locked: guard::locked() })
    }

    /// The thread that changes the names of the log's files holds this throughout, and the lock in between.
    pub(crate) fn begin_maintenance(&self) -> MutexGuard<'_, ()> {
        self.maintenance.lock()
    }

    /// The thread that makes the next segment holds this throughout.
    pub(crate) fn begin_rolling(&self) -> MutexGuard<'_, ()> {
        let rolling = self.rolling.try_lock_for(LOCK_PATIENCE);
        rolling.unwrap_or_else(|| hand_over::wait(|| self.rolling.lock()))
    }

    /// Its name.
    pub fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    /// Its topic's id.
    pub fn topic_id(&self) -> TopicId {
        self.topic_id
    }

    /// What it can be asked for.
    pub fn status(&self) -> Status {
        Status::from_u8(self.status.load(Ordering::Acquire))
    }

    /// Whether appends are taken, as far as room on the disk goes.
    pub fn is_writable(&self) -> bool {
        self.writable.load(Ordering::Relaxed)
    }

    /// Takes appends from now on, or refuses them for lack of room on the disk.
    pub fn set_writable(&self, writable: bool) {
        self.writable.store(writable, Ordering::Relaxed);
    }

    /// The leader epoch.
    pub fn epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.epoch.load(Ordering::Acquire))
    }

    /// Everything below is committed. Cheap: no lock.
    pub fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark.load(Ordering::Acquire))
    }

    /// Takes over the highest committed offset that an earlier process stored. To be called before the first role. The leader
    /// epoch in which it was known is at least that of the record below it.
    pub fn recall_committed(&self, offset: Offset) {
        let mut state = self.lock();
        let offset = offset.min(state.log.log_end_offset());
        let leader_epoch = match offset > state.log.log_start_offset() {
            true => state.log.epoch_at(Offset(offset.0 - 1)),
            false => LeaderEpoch::NONE,
        };
        state.replica.recall(CommittedBound { offset, leader_epoch });
        self.stored_committed.store(offset.0, Ordering::Relaxed);
        self.publish(state, Effects::default());
    }

    /// The highest committed offset that this replica has known, if that bounds truncations and is not stored yet. It does not of
    /// a partition with one replica, nor under `page-cache`. Cheap where nothing was committed since.
    pub fn unstored_committed(&self) -> Option<Offset> {
        let stored = Offset(self.stored_committed.load(Ordering::Relaxed));
        if stored == self.high_watermark() {
            return None;
        }
        let state = self.lock();
        let offset = state.replica.high_watermark();
        let is_alone = state.replica.leadership().is_some_and(|book| book.peers().is_empty());
        if is_alone || state.settings.durability == Durability::PageCache {
            self.stored_committed.store(offset.0, Ordering::Relaxed);
            return None;
        }
        Some(offset)
    }

    /// That offset is in the journal.
    pub fn note_stored_committed(&self, offset: Offset) {
        self.stored_committed.store(offset.0, Ordering::Relaxed);
    }

    /// The truncation that this follower refuses, if it does. Cheap where it refuses none.
    pub fn refused_truncation(&self) -> Option<RefusedTruncation> {
        match self.refuses.load(Ordering::Acquire) {
            true => self.lock().replica.refused(),
            false => None,
        }
    }

    /// The image says this of the partition, and now is this moment: this broker leads from now on, follows,
    /// or goes on with another ISR.
    ///
    /// A cut that is under way ends first: a leader begins its epoch where its log ends.
    pub fn assign(&self, assignment: Assignment, now: Moment) {
        let _end = self.begin_rolling();
        self.take_role(self.lock(), assignment, now);
    }

    /// As [`Partition::assign`], but for a log whose end is at work, as it is during a cut or an append that hangs: gives the
    /// assignment back then, and has changed nothing. [`Partition::wait_for_cut`] says when to try again.
    pub fn try_assign(&self, assignment: Assignment, now: Moment) -> Result<(), Assignment> {
        let Some(_end) = self.rolling.try_lock() else { return Err(assignment) };
        let Ok(state) = self.lock_briefly() else { return Err(assignment) };
        self.take_role(state, assignment, now);
        Ok(())
    }

    /// Waits until nothing is at work at the log's end: as long as its disk takes.
    pub fn wait_for_cut(&self) {
        let _end = self.begin_rolling();
        drop(self.lock());
    }

    /// The caller holds the log's end.
    fn take_role(&self, mut state: StateGuard<'_>, assignment: Assignment, now: Moment) {
        if assignment.leader == state.replica.me() {
            state.log.assign_epoch(assignment.leader_epoch);
        }
        let effects = state.replica.step(Event::Assigned(assignment, now));
        self.publish_and_sync(state, effects);
    }

    /// Says in `proposals` from now on that it has an ISR to propose. Only the first call counts.
    pub fn tell_proposals(&self, proposals: &Arc<Proposals>) {
        let state = self.lock();
        let is_first = self.proposals.set(Arc::clone(proposals)).is_ok();
        if is_first && state.proposal.is_some() {
            proposals.push(Weak::clone(&self.this));
        }
    }

    /// The ISR that the controller is to be asked for, once: whoever takes it asks, and tells the answer by
    /// [`Partition::isr_answered`].
    pub fn take_proposal(&self) -> Option<Proposal> {
        let mut state = self.lock();
        let pending = state.replica.leadership().and_then(|book| book.pending()).cloned();
        // One that was made before the role ended is of no use any more.
        state.proposal.take().filter(|proposal| pending.as_ref() == Some(proposal))
    }

    /// Obeys another configuration.
    pub fn set_settings(&self, settings: Arc<Settings>) {
        let mut state = self.lock();
        state.log.set_config(Arc::clone(&settings.log));
        let effects = state.replica.step(Event::RulesChanged(rules(&settings)));
        state.settings = settings;
        self.publish(state, effects);
    }

    /// The configuration it obeys.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.lock().settings)
    }

    /// Wakes `waker` when everything below `needed` is committed, or when waiting has become
    /// pointless, and sees to it that what is needed is synced if that is what it takes. Returns
    /// `None`, and does nothing, when that is already so.
    ///
    /// A caller that gives up waiting calls [`Partition::leave`].
    pub fn park(&self, needed: Offset, waker: &Waker) -> Option<WaiterKey> {
        let mut state = self.lock();
        if self.status() != Status::Leading || state.replica.high_watermark() >= needed {
            return None;
        }
        // Appends come in order, so it is nearly always the last; a repeated look is not.
        let at = state.waiters.partition_point(|waiter| waiter.key.needed <= needed);
        let last = at.checked_sub(1).map(|before| &state.waiters[before]);
        let key = match last.filter(|last| last.key.needed == needed) {
            Some(last) if last.waker.will_wake(waker) => last.key,
            _ => {
                state.waiters_numbered += 1;
                let key = WaiterKey { needed, number: state.waiters_numbered };
                state.waiters.insert(at, Waiter { key, waker: waker.clone() });
                key
            }
        };
        self.wanted_below(state, needed);
        Some(key)
    }

    /// Ends a wait: a request that has timed out, or whose client has gone, is woken no more.
    pub fn leave(&self, key: WaiterKey) {
        // A waiter that stays because the lock is held for long is woken in vain.
        let Ok(mut state) = self.lock_briefly() else { return };
        let first = state.waiters.partition_point(|waiter| waiter.key.needed < key.needed);
        let same = state.waiters.iter().skip(first);
        let found = same.take_while(|waiter| waiter.key.needed == key.needed);
        if let Some(at) = found.map(|waiter| waiter.key).position(|here| here == key) {
            state.waiters.remove(first + at);
        }
    }

    /// How many wait for the high watermark.
    pub fn waiter_count(&self) -> usize {
        self.lock().waiters.len()
    }

    /// Registers `watch`: it is told under `slot` of everything new here, from now on.
    pub fn watch(&self, watch: &Arc<Watch>, slot: u32) -> WatchKey {
        WatchKey(Watched::Committed(self.lock().watchers.insert((Arc::clone(watch), slot))))
    }

    /// Fails with [`PartitionError::DirectoryHangs`] if the lock is held for long: a registration would wait for that.
    pub fn check_lockable(&self) -> Result<(), PartitionError> {
        self.lock_briefly().map(drop)
    }

    /// Whether and how appends to the log directory are admitted. Cheap: no lock.
    pub fn admission(&self) -> AppendAdmission {
        self.sync_queue.admission()
    }

    /// As [`Partition::watch`], for a replica: told of every append as well, for it copies what is not committed
    /// yet, and nothing is before it has.
    ///
    /// Of a follower's partition it tells whenever something was synced: what the follower waits for before it asks
    /// its leader again.
    pub fn watch_end(&self, watch: &Arc<Watch>, slot: u32) -> WatchKey {
        WatchKey(Watched::End(self.lock().replicas_waiting.insert((Arc::clone(watch), slot))))
    }

    /// Ends a registration.
    pub fn unwatch(&self, key: WatchKey) {
        let mut state = self.lock();
        match key.0 {
            Watched::Committed(at) => state.watchers.try_remove(at),
            Watched::End(at) => state.replicas_waiting.try_remove(at),
        };
    }

    /// Lets `look` read the log under the lock: for questions that need no method of their own.
    pub fn with_log<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        look(&self.lock().log)
    }

    /// The topic was deleted: no client is served any more. The directory is the caller's business. The files are
    /// closed: fetch sessions of clients that went away hold the partition for a while, and deleted files that are
    /// open take their place on the disk. What is done to the log's files ends before this returns, and nothing is begun
    /// afterwards: another topic may have the directory's name then.
    pub fn mark_deleted(&self) {
        let _names = self.begin_maintenance();
        let _end = self.begin_rolling();
        let mut state = self.lock();
        self.status.store(Status::Deleted as u8, Ordering::Release);
        self.sync_queue.taken_care_of(std::mem::take(&mut state.sync.unsynced_bytes));
        state.log.abandon_files();
        self.clear_refused();
        self.hold(&mut state, Held::default());
        self.tell_all(state);
    }

    /// Lets `change` maintain the log under the lock, in memory: no file may be touched. A failure that
    /// makes the log untrustworthy takes the partition offline (S9).
    pub fn maintain<T>(
        &self,
        change: impl FnOnce(&mut Log, Offset) -> Result<T, StorageError>,
    ) -> Result<T, PartitionError> {
        let mut state = self.lock();
        if matches!(self.status(), Status::Offline | Status::Deleted) {
            return Err(PartitionError::Offline);
        }
        let high_watermark = state.replica.high_watermark();
        let log_start_before = state.log.log_start_offset();
        let result = change(&mut state.log, high_watermark);
        self.count_held(&mut state);
        let log_start = state.log.log_start_offset();
        if log_start != log_start_before {
            // Fetch sessions tell their clients, and replicas delete the same records.
            let waiting = state.watchers.iter().chain(&state.replicas_waiting);
            waiting.for_each(|(_, (watch, slot))| watch.notify(*slot));
        }
        let effects = match &result {
            Err(error) if error.is_fatal() => state.replica.step(Event::Failed),
            _ => state.replica.step(Event::LogStartMoved { log_start }),
        };
        self.publish(state, effects);
        Ok(result?)
    }

    /// Whether files of the log may be open. Cheap: no lock.
    pub fn may_hold_files(&self) -> bool {
        self.may_hold_files.load(Ordering::Relaxed)
    }

    /// Files may be open from now on. The caller has the lock, and has opened what it opens.
    pub(crate) fn note_files(&self, _: &StateGuard<'_>) {
        self.may_hold_files.store(true, Ordering::Relaxed);
    }

    /// Does what may open files of the log, without the lock.
    pub(crate) fn with_files<T>(&self, work: impl FnOnce() -> T) -> T {
        let result = work();
        self.note_files(&self.lock());
        result
    }

    /// Closes files of the log by `release`, if any may be open.
    pub fn release_files_in_need(&self, release: fn(&mut Log)) -> Result<(), PartitionError> {
        if !self.may_hold_files() {
            return Ok(());
        }
        self.maintain(|log, _| {
            release(log);
            if !log.has_open_files() {
                // Those of indexes may be, which only searches need.
                log.release_files();
            }
            self.may_hold_files.store(log.has_open_files(), Ordering::Relaxed);
            Ok(())
        })
    }

    /// Takes the partition offline because its disk failed.
    pub fn fail(&self) {
        let mut state = self.lock();
        let effects = state.replica.step(Event::Failed);
        self.publish(state, effects);
    }

    /// Publishes what a step changed and wakes those who waited for it.
    pub(crate) fn publish(&self, mut state: StateGuard<'_>, effects: Effects) {
        let status = match state.replica.role() {
            Role::Leader(_) => Status::Leading,
            Role::Follower(_) => Status::Following,
            Role::Offline => Status::Offline,
        };
        self.epoch.store(state.replica.epoch().0, Ordering::Release);
        self.refuses.store(state.replica.refused().is_some(), Ordering::Release);
        if self.status() != Status::Deleted {
            self.status.store(status as u8, Ordering::Release);
        }
        let high_watermark = state.replica.high_watermark();
        self.high_watermark.store(high_watermark.0, Ordering::Release);
        wake_deletions(&state, self.status());
        if effects.proposal.is_some() {
            state.proposal = effects.proposal;
            if let Some(proposals) = self.proposals.get() {
                proposals.push(Weak::clone(&self.this));
            }
        }
        if effects.role_ended {
            return self.tell_all(state);
        }
        if effects.high_watermark.is_some() {
            self.tell_committed(&mut state, high_watermark);
        }
    }

    /// As [`Partition::publish`], and what was written before the role changed is synced soon.
    fn publish_and_sync(&self, state: StateGuard<'_>, effects: Effects) {
        self.publish(state, effects);
        self.request_sync();
    }

    /// Tells replicas that there is something to copy.
    pub(crate) fn tell_appended(&self, state: &State) {
        for (_, (watch, slot)) in &state.replicas_waiting {
            watch.notify(*slot);
        }
    }

    /// What a follower received is synced: its fetcher may ask again.
    pub(crate) fn tell_synced(&self, state: &State) {
        if self.status() == Status::Following {
            state.replicas_waiting.iter().for_each(|(_, (watch, slot))| watch.notify(*slot));
        }
    }

    fn tell_committed(&self, state: &mut State, high_watermark: Offset) {
        for (_, (watch, slot)) in state.watchers.iter().chain(&state.replicas_waiting) {
            watch.notify(*slot);
        }
        let mut last: Option<Waker> = None;
        while let Some(waiter) = state.waiters.front() {
            if waiter.key.needed > high_watermark {
                break;
            }
            let Waiter { waker, .. } = state.waiters.pop_front().expect("it was just looked at");
            // A connection with many requests in flight is woken once.
            if last.as_ref().is_none_or(|last| !last.will_wake(&waker)) {
                waker.wake_by_ref();
            }
            last = Some(waker);
        }
    }

    fn tell_all(&self, mut state: StateGuard<'_>) {
        for (_, (watch, slot)) in state.watchers.iter().chain(&state.replicas_waiting) {
            watch.notify(*slot);
        }
        for waiter in state.waiters.drain(..) {
            waiter.waker.wake();
        }
        wake_deletions(&state, self.status());
    }

    /// Whether it has a log to serve at all.
    pub(crate) fn check_served(&self) -> Result<(), PartitionError> {
        match self.status() {
            Status::Deleted => Err(PartitionError::Deleted),
            Status::Offline => Err(PartitionError::Offline),
            Status::Leading | Status::Following => Ok(()),
        }
    }

    /// Whether it may serve what only a leader may, in the leader epoch that the client knows (KIP-320).
    pub(crate) fn check_leader(
        &self,
        replica: &Replica,
        known: Option<LeaderEpoch>,
    ) -> Result<(), PartitionError> {
        self.check_served()?;
        let current = replica.epoch();
        match known.filter(|known| *known != LeaderEpoch::NONE) {
            Some(known) if known < current => return Err(PartitionError::FencedEpoch { current }),
            Some(known) if known > current => return Err(PartitionError::UnknownEpoch { current }),
            _ => {}
        }
        match replica.role() {
            Role::Leader(_) => Ok(()),
            Role::Follower(_) | Role::Offline => Err(PartitionError::NotLeader),
        }
    }
}

/// What the replica's machine obeys.
fn rules(settings: &Settings) -> Rules {
    Rules {
        durability: settings.durability,
        min_insync_replicas: settings.min_insync_replicas,
        lag_max: settings.replica_lag_max,
    }
}
