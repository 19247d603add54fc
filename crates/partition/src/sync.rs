//! Syncing in three steps, so that the slow one holds no lock: begin, run, finish; and asking for it.
//!
//! A partition stands in each list of its directory's [`SyncQueue`] at most once, and one sync of it
//! runs at a time. What is appended while a sync runs belongs to the next one: that is the group
//! commit.

use std::sync::Arc;
use std::task::Waker;

use model::{Durability, LeaderEpoch, Offset};
use replication::Event;
use storage::SyncTicket;

use crate::error::PartitionError;
use crate::partition::{Partition, State, StateGuard, Status};
use crate::sync_queue::{URGENCIES, Urgency};

/// What the flusher was asked for, and whether it is at work.
#[derive(Debug)]
pub(crate) struct SyncState {
    /// In which lists of the queue the partition stands, by urgency.
    queued: [bool; URGENCIES],
    /// Up to where the sync reaches that runs, if one does.
    running: Option<Offset>,
    /// Asked for by the flusher while a sync ran: asked for anew behind it.
    again: Option<Urgency>,
    /// Replicas were handed everything below.
    pub(crate) handed_out: Offset,
    /// Bytes appended since the last sync began, as the queue has counted them.
    pub(crate) unsynced_bytes: u64,
}

impl Default for SyncState {
    fn default() -> SyncState {
        SyncState {
            queued: [false; URGENCIES],
            running: None,
            again: None,
            handed_out: Offset(0),
            unsynced_bytes: 0,
        }
    }
}

/// What a sync made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// Everything below this offset is synced.
    pub up_to: Offset,
    /// The leader epochs that began below it since the sync before, with their first offsets.
    pub epochs: Vec<(LeaderEpoch, Offset)>,
}

/// A sync under way.
#[derive(Debug)]
pub struct PartitionSync {
    partition: Arc<Partition>,
    ticket: SyncTicket,
}

impl Partition {
    /// Begins a sync of all that is written now, for a partition that the queue gave out with this
    /// urgency. `None`: all is synced, or a sync runs already and takes the partition up again, or
    /// no caller waits for a deleted partition, whose files are elsewhere.
    pub fn begin_sync(self: &Arc<Self>, urgency: Urgency) -> Option<PartitionSync> {
        let mut state = self.lock();
        state.sync.queued[urgency as usize] = false;
        if self.status() == Status::Deleted {
            return None;
        }
        if state.sync.running.is_some() {
            // Another thread syncs it. Whoever gives this out would find it in the queue again and again meanwhile.
            state.sync.again = state.sync.again.max(Some(urgency));
            return None;
        }
        self.sync_queue.taken_care_of(std::mem::take(&mut state.sync.unsynced_bytes));
        let only_names =
            urgency == Urgency::Later && state.settings.durability == Durability::PageCache;
        let ticket = match only_names {
            true => state.log.begin_names_sync()?,
            false => state.log.begin_sync()?,
        };
        state.sync.running = Some(ticket.up_to());
        Some(PartitionSync { partition: Arc::clone(self), ticket })
    }

    /// Begins a sync of all that is written now, for a thread that serves requests and would only wait for it. `None`: that is the
    /// flusher's, and nothing has changed: more than `bytes_max` bytes are to be written, more than one file is to be
    /// synced, others decide as well when it is committed, or a sync runs already.
    pub fn begin_small_sync(self: &Arc<Self>, bytes_max: u64) -> Option<PartitionSync> {
        let mut state = self.lock();
        let is_alone = state.replica.leadership().is_some_and(|term| term.isr().len() == 1);
        let is_small = state.sync.running.is_none()
            && state.sync.unsynced_bytes <= bytes_max
            && state.settings.durability == Durability::Fsync;
        if !is_alone || !is_small || self.status() != Status::Leading {
            return None;
        }
        let ticket = state.log.begin_sync()?;
        if !ticket.is_one_open_file() {
            return None;
        }
        self.sync_queue.taken_care_of(std::mem::take(&mut state.sync.unsynced_bytes));
        state.sync.running = Some(ticket.up_to());
        Some(PartitionSync { partition: Arc::clone(self), ticket })
    }

    /// A sync has ended: asks for the next one, if the flusher wanted to begin it meanwhile.
    fn demand_again(&self) {
        let mut state = self.lock();
        let again = state.sync.again.take();
        let waker = again.and_then(|urgency| self.demand(&mut state, urgency));
        wake(state, waker);
    }

    /// Asks for a sync of what is written now, if anything is not synced, although no caller waits.
    pub fn request_sync(&self) {
        let mut state = self.lock();
        let waker = self.demand(&mut state, Urgency::Now);
        wake(state, waker);
    }

    /// A caller waits until everything below `needed` is committed: asks for a sync if that is what
    /// it takes.
    pub(crate) fn wanted_below(&self, mut state: StateGuard<'_>, needed: Offset) {
        let is_synced = state.log.synced_below() >= needed;
        let counts_synced = state.settings.durability == Durability::Fsync;
        let urgency = match waits_for_replicas(&state, needed) {
            // Nothing is committed before they have synced as well: the round begins when they are handed the bytes, and
            // all sync at the same time.
            true => Urgency::Later,
            false => Urgency::Now,
        };
        let waker = match is_synced || !counts_synced {
            true => None,
            false => self.demand(&mut state, urgency),
        };
        wake(state, waker);
    }

    /// An append with `acks=all` asks for the sync here, once for all that it appended.
    pub fn want_committed(&self, needed: Offset) {
        self.wanted_below(self.lock(), needed);
    }

    /// Where the log ends, if this broker alone decides when that is committed and has not synced it
    /// yet: then a sync is asked for, and the high watermark will get there. A client that has
    /// written with `acks=1` waits for this before it asks where the log ends, or deletes up to
    /// there.
    pub fn want_end_committed(&self) -> Option<Offset> {
        let state = self.lock();
        let alone = state.replica.leadership().is_some_and(|term| term.isr().len() == 1);
        let log_end = state.log.log_end_offset();
        if !alone || state.replica.high_watermark() >= log_end {
            return None;
        }
        self.wanted_below(state, log_end);
        Some(log_end)
    }

    /// Enters the queue, unless everything is synced or about to be, or the partition stands there
    /// already. Whoever is returned is to be woken by [`wake`].
    #[must_use]
    pub(crate) fn demand(&self, state: &mut State, urgency: Urgency) -> Option<Waker> {
        let log_end = state.log.log_end_offset();
        if state.log.synced_below() == log_end || state.sync.running == Some(log_end) {
            return None;
        }
        let queued = &mut state.sync.queued[urgency as usize];
        if *queued {
            return None;
        }
        let this = self.this.upgrade()?;
        *queued = true;
        self.sync_queue.push(urgency, this)
    }
}

/// Whether what is below `needed` needs other replicas to be committed, and none of them was handed all of it yet.
fn waits_for_replicas(state: &State, needed: Offset) -> bool {
    let is_alone = state.replica.leadership().is_none_or(|book| book.isr().len() == 1);
    !is_alone && needed > state.sync.handed_out
}

/// Wakes the flusher when the partition's lock is free: the flusher's first step is to take it.
pub(crate) fn wake(state: StateGuard<'_>, waker: Option<Waker>) {
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl PartitionSync {
    /// Which partition.
    pub fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    /// Syncs, without the lock, then publishes how far. `None` if the partition was
    /// deleted meanwhile. A failure is final (S9): the partition is offline, and the caller takes the
    /// whole log directory offline. But what was deleted meanwhile cannot fail: its files were moved
    /// away, which says nothing of the disk.
    pub fn run(self) -> Result<Option<Synced>, PartitionError> {
        self.run_noted(|_| ())
    }

    /// As [`PartitionSync::run`]. `note` writes down how far, before anybody is told: what was
    /// acknowledged is then known as synced to a start after the process was killed.
    pub fn run_noted(self, note: impl FnOnce(&Synced)) -> Result<Option<Synced>, PartitionError> {
        let partition = Arc::clone(&self.partition);
        let ended = self.run_and_tell(note);
        partition.demand_again();
        ended
    }

    fn run_and_tell(self, note: impl FnOnce(&Synced)) -> Result<Option<Synced>, PartitionError> {
        let (partition, up_to) = (Arc::clone(&self.partition), self.ticket.up_to());
        let Some(synced) = self.sync()? else { return Ok(None) };
        note(&synced);
        let mut state = partition.lock();
        state.sync.running = None;
        if partition.status() == Status::Deleted {
            return Ok(None);
        }
        // It may have been truncated since.
        let reached = synced.up_to.min(state.log.synced_below());
        let effects = state.replica.step(Event::Synced { synced: reached });
        partition.tell_synced(&state);
        partition.publish(state, effects);
        if reached < up_to {
            // What was written since a truncation has been asked for by nobody.
            partition.request_sync();
        }
        Ok(Some(synced))
    }

    /// Syncs, and tells nobody but the log. No other sync begins before it is told.
    fn sync(self) -> Result<Option<Synced>, PartitionError> {
        let result = self.ticket.run();
        let mut state = self.partition.lock();
        if self.partition.status() == Status::Deleted {
            state.sync.running = None;
            return Ok(None);
        }
        match state.log.finish_sync(self.ticket, result) {
            Ok(up_to) => Ok(Some(Synced { up_to, epochs: state.log.tell_epochs(up_to) })),
            // Nothing was synced, and nothing was lost: it is tried again.
            Err(error) if !error.is_fatal() => {
                state.sync.running = None;
                drop(state);
                self.partition.request_sync();
                Ok(None)
            }
            Err(error) => {
                state.sync.running = None;
                let effects = state.replica.step(Event::Failed);
                self.partition.publish(state, effects);
                Err(error.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use model::record::BatchBuilder;
    use model::{
        BrokerId, LeaderEpoch, Moment, ProducerEpoch, ProducerId, Sequence, Timestamp,
        TopicPartition, Uuid,
    };
    use replication::Assignment;
    use storage::Log;
    use storage::disk::SimDisk;
    use storage::log_dir::LogDir;

    use super::*;
    use crate::append::{Acks, Append};
    use crate::read::{Isolation, Read, ReadRequest};
    use crate::settings::Settings;
    use crate::sync_queue::UNSYNCED_BYTES_MAX;
    use crate::watch::Watch;

    /// A partition with a record that is not synced, and how to take its files away.
    fn unsynced() -> (Arc<Partition>, impl Fn()) {
        let log_dir = LogDir::new(Arc::new(SimDisk::new()), PathBuf::from("data")).unwrap();
        let (name, settings) = (TopicPartition::new("t", 0), Arc::new(Settings::default()));
        let now = Timestamp(1);
        let opening = log_dir.begin_loading().unwrap().opening(&name, now);
        let (disk, dir) = (Arc::clone(log_dir.disk()), log_dir.partition_dir(&name));
        let log = Log::open(disk, dir, Arc::clone(&settings.log), opening).unwrap();
        let me = BrokerId(1);
        let id = Uuid::from_random([1; 16]);
        let queue = Arc::default();
        let partition = Partition::new(name.clone(), id, me, log, settings, Offset(0), queue);
        partition.assign(Assignment::alone(me, LeaderEpoch(0)), Moment::START);
        append(&partition, Acks::Leader);
        let take_away = move || drop(log_dir.discard(&name, Uuid::from_random([2; 16])).unwrap());
        (partition, take_away)
    }

    /// Appends one record; returns the log end afterwards.
    fn append(partition: &Arc<Partition>, acks: Acks) -> Offset {
        let mut batch = BatchBuilder::new();
        batch.add(Timestamp(1), None, Some(b"v"));
        let how = Append { acks, now: Timestamp(1), internal: false };
        partition.append(&mut batch.finish(), how).unwrap().needed
    }

    /// What the flusher does with one round.
    fn round(partition: &Arc<Partition>, also_later: bool) -> usize {
        let taken = partition.sync_queue.take(also_later);
        let syncs = taken.iter().filter_map(|(urgency, taken)| taken.begin_sync(*urgency));
        let syncs: Vec<_> = syncs.collect();
        let count = syncs.len();
        syncs.into_iter().for_each(|sync| assert!(sync.run().unwrap().is_some()));
        count
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Count {
        fn taken(&self) -> usize {
            self.0.swap(0, Ordering::Relaxed)
        }
    }

    fn read_at(partition: &Arc<Partition>, offset: Offset) -> Read {
        let request = ReadRequest::at(offset, 1 << 20, Isolation::Committed);
        partition.read(&request).unwrap()
    }

    #[test]
    fn a_directory_knows_how_much_its_partitions_hold() {
        let (partition, _) = unsynced();
        let held = || {
            let sums = partition.sync_queue.held();
            (sums.unchecked_bytes(), sums.producer_bytes())
        };
        let unchecked = || partition.with_log(|log| log.bytes_past_checkpoint());
        assert!(unchecked() > 0);
        assert_eq!(held(), (unchecked(), 0));
        let mut batch = BatchBuilder::new();
        batch.add(Timestamp(1), None, Some(b"v"));
        let mut batch = batch.producer(ProducerId(7), ProducerEpoch(0), Sequence(0)).finish();
        let how = Append { acks: Acks::Leader, now: Timestamp(1), internal: false };
        partition.append(&mut batch, how).unwrap();
        let producers = partition.with_log(|log| log.producer_bytes()) as u64;
        assert!(producers > 0);
        assert_eq!(held(), (unchecked(), producers));
        partition.checkpoint(1).unwrap();
        assert_eq!(held(), (0, producers));
        append(&partition, Acks::Leader);
        partition.mark_deleted();
        assert_eq!(held(), (0, 0));
    }

    #[test]
    fn many_appends_that_nobody_waits_for_are_one_sync() {
        let (partition, _) = unsynced();
        (0..100).for_each(|_| assert!(append(&partition, Acks::Leader) > Offset(0)));
        assert_eq!(partition.sync_queue.most_urgent(), Some(Urgency::Later));
        assert_eq!(round(&partition, false), 0, "it is not time yet");
        assert_eq!(round(&partition, true), 1);
        assert_eq!(partition.high_watermark(), Offset(101));
        assert_eq!(partition.sync_queue.most_urgent(), None);
    }

    #[test]
    fn whoever_waits_for_the_high_watermark_asks_for_a_round() {
        let (partition, _) = unsynced();
        let queue = Arc::clone(&partition.sync_queue);
        let (flusher, waiter) = (Arc::new(Count::default()), Arc::new(Count::default()));
        assert!(queue.sleep(Some(Urgency::Later), &Waker::from(Arc::clone(&flusher))));
        let needed = append(&partition, Acks::All);
        assert_eq!(flusher.taken(), 0, "the request asks once for all that it appends");
        partition.want_committed(needed);
        assert_eq!(queue.most_urgent(), Some(Urgency::Now));
        assert_eq!(flusher.taken(), 1);
        let waker = Waker::from(Arc::clone(&waiter));
        assert!(partition.park(needed, &waker).is_some());
        assert_eq!(round(&partition, false), 1);
        assert_eq!(waiter.taken(), 1);
        assert!(partition.park(needed, &waker).is_none(), "it is committed");
    }

    #[test]
    fn what_is_appended_during_a_sync_is_asked_for_again() {
        let (partition, _) = unsynced();
        partition.request_sync();
        let taken = partition.sync_queue.take(false);
        let sync = taken[0].1.begin_sync(taken[0].0).unwrap();
        partition.request_sync();
        assert_eq!(partition.sync_queue.take(true).len(), 1, "the one that nobody waits for");
        let needed = append(&partition, Acks::All);
        partition.want_committed(needed);
        assert_eq!(sync.run().unwrap().map(|synced| synced.up_to), Some(Offset(1)));
        assert_eq!(partition.high_watermark(), Offset(1));
        assert_eq!(round(&partition, false), 1);
        assert_eq!(partition.high_watermark(), needed);
    }

    #[test]
    fn a_request_that_leaves_is_not_woken_and_takes_no_room() {
        let (partition, _) = unsynced();
        let gone = Arc::new(Count::default());
        let stays = Arc::new(Count::default());
        let needed = append(&partition, Acks::All);
        let key = partition.park(needed, &Waker::from(Arc::clone(&gone))).unwrap();
        partition.park(needed, &Waker::from(Arc::clone(&stays))).unwrap();
        partition.leave(key);
        partition.leave(key);
        assert_eq!(partition.waiter_count(), 1);
        assert_eq!(round(&partition, false), 1);
        assert_eq!((gone.taken(), stays.taken()), (0, 1));
        assert_eq!(partition.waiter_count(), 0);
    }

    #[test]
    fn a_consumer_at_the_end_asks_and_one_that_is_behind_does_not() {
        let (partition, _) = unsynced();
        assert_eq!(round(&partition, true), 1);
        append(&partition, Acks::Leader);
        assert!(read_at(&partition, Offset(0)).slice.is_some());
        assert_eq!(partition.sync_queue.most_urgent(), Some(Urgency::Later));
        assert!(read_at(&partition, Offset(1)).slice.is_none());
        assert_eq!(partition.sync_queue.most_urgent(), Some(Urgency::Reader));
        assert_eq!(round(&partition, false), 1);
        assert!(read_at(&partition, Offset(1)).slice.is_some());
    }

    #[test]
    fn a_consumer_that_waits_asks_with_the_first_append() {
        let (partition, _) = unsynced();
        let watch = Arc::new(Watch::default());
        partition.watch(&watch, 0);
        assert_eq!(round(&partition, true), 1);
        let mut changed = Vec::new();
        watch.take_or_wait(&mut changed, None);
        append(&partition, Acks::Leader);
        assert_eq!(partition.sync_queue.most_urgent(), Some(Urgency::Later), "nobody waits");
        let waiter = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&waiter));
        assert!(watch.take_or_wait(&mut changed, Some(&waker)), "it looks again before it waits");
        assert!(read_at(&partition, Offset(1)).slice.is_none());
        assert!(!watch.take_or_wait(&mut changed, Some(&waker)));
        assert_eq!(round(&partition, false), 1, "its look has asked");
        assert_eq!(waiter.taken(), 1);
        watch.take_or_wait(&mut changed, None);
        assert!(!watch.take_or_wait(&mut changed, Some(&waker)), "at the end, with nothing behind");
        append(&partition, Acks::Leader);
        assert_eq!(partition.sync_queue.most_urgent(), Some(Urgency::Reader));
        assert_eq!(waiter.taken(), 0, "there is nothing to be read yet");
        assert_eq!(round(&partition, false), 1);
        assert_eq!(waiter.taken(), 1);
    }

    #[test]
    fn too_many_bytes_are_synced_at_once() {
        let (partition, _) = unsynced();
        let queue = &partition.sync_queue;
        assert!(queue.appended(UNSYNCED_BYTES_MAX - 200).is_none());
        assert_eq!(queue.most_urgent(), Some(Urgency::Later));
        (0..3).for_each(|_| assert!(append(&partition, Acks::Leader) > Offset(0)));
        assert_eq!(queue.most_urgent(), Some(Urgency::Now));
        assert_eq!(round(&partition, false), 1, "those that nobody waits for");
        assert_eq!(queue.most_urgent(), None);
    }

    #[test]
    fn the_end_is_waited_for_by_whoever_asks_where_it_is() {
        let (partition, _) = unsynced();
        assert_eq!(partition.want_end_committed(), Some(Offset(1)));
        assert_eq!(partition.sync_queue.most_urgent(), Some(Urgency::Now));
        assert_eq!(round(&partition, false), 1);
        assert_eq!(partition.want_end_committed(), None);
    }

    #[test]
    fn a_partition_that_is_deleted_in_the_middle_of_a_sync_has_not_failed() {
        let (partition, take_away) = unsynced();
        let sync = partition.begin_sync(Urgency::Later).unwrap();
        partition.mark_deleted();
        take_away();
        assert_eq!(sync.run().unwrap(), None, "nothing is left to be synced");
        assert_eq!(partition.status(), Status::Deleted);
    }

    #[test]
    fn a_deleted_partition_in_the_queue_is_passed_over() {
        let (partition, take_away) = unsynced();
        partition.mark_deleted();
        take_away();
        assert!(partition.begin_sync(Urgency::Later).is_none());
    }
}
