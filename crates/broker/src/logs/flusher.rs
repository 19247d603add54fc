//! Group commit: for each log directory a thread that takes the partitions with unsynced writes,
//! syncs them, publishes how far, and goes round again. A directory whose device stalls holds up its
//! own acknowledgements and no others.
//!
//! When a round begins is decided by who waits ([`Urgency`]): at once for producers and requests, at
//! most once a millisecond for consumers, and `sync.delay.ms` after the first write that nobody waits
//! for. What is appended while a round runs belongs to the next one, so batches grow with the
//! device's latency. The files of one round are synced in parallel: the file system merges the
//! commits of its journal, so that many cost little more than one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use partition::{AheadWritten, Partition, PartitionError, PartitionSync, SyncQueue, Urgency};
use tracing::error;

use crate::counters::{Counters, Durations};
use crate::vital;

/// Files of one round that are synced at once.
const SYNCS_AT_ONCE_MAX: usize = 16;
/// How often consumers alone make a round begin.
const READER_INTERVAL: Duration = Duration::from_millis(1);
/// Portions of zeros that are written after one round: the next one waits for them.
const PORTIONS_A_ROUND_MAX: usize = 4;
/// Most bytes that a data thread syncs itself.
const SYNCED_HERE_BYTES_MAX: u64 = 64 << 10;
/// A sync that takes longer is slow.
const SLOW: Duration = Duration::from_millis(2);
/// Behind a slow sync data threads do not sync in its directory for so many times as long as it took.
const SHUNNED_TIMES: u32 = 4;
/// Bytes of stack of a thread that syncs.
const STACK_BYTES: usize = 256 * 1024;

/// A partition, and what of it was synced in a round.
pub type Synced = (Arc<Partition>, partition::Synced);

/// Who is told what became of the syncs: the owner of the log directories.
pub trait SyncObserver: Send + Sync {
    /// A sync failed, or what was written ahead could not be cut off: the whole log directory is offline from then on (S9).
    fn sync_failed(&self, partition: &Arc<Partition>, cause: &PartitionError);
    /// So far a partition of this directory, counted from 0, is synced. Nobody was told yet: what is
    /// acknowledged is noted first.
    fn synced(&self, directory: usize, synced: &Synced);
    /// A round in this directory is over. Those who waited have been told already.
    fn round_ended(&self, _directory: usize, _synced: &[Synced]) {}
}

/// The threads of all log directories.
pub struct Flusher {
    directories: Vec<Arc<Directory>>,
    delay_ms: Arc<AtomicU64>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Flusher {
    /// Starts a thread for each directory's queue. `delay_ms` is how long writes that nobody waits
    /// for may stay unsynced (`sync.delay.ms`).
    pub fn start(
        queues: Vec<Arc<SyncQueue>>,
        delay_ms: u64,
        counters: &Arc<Counters>,
        observer: &Arc<dyn SyncObserver>,
    ) -> std::io::Result<Flusher> {
        let delay_ms = Arc::new(AtomicU64::new(delay_ms));
        let directories: Vec<_> = queues
            .into_iter()
            .enumerate()
            .map(|(number, queue)| {
                Arc::new(Directory {
                    number,
                    queue,
                    delay_ms: Arc::clone(&delay_ms),
                    stopping: AtomicBool::new(false),
                    thread: Mutex::new(None),
                    helpers: Helpers::default(),
                    counters: Arc::clone(counters),
                    syncs: Arc::default(),
                    observer: Arc::clone(observer),
                    began: Instant::now(),
                    shunned_until_us: AtomicU64::new(0),
                })
            })
            .collect();
        let flusher = Flusher { directories, delay_ms, threads: Mutex::default() };
        for directory in &flusher.directories {
            let running = Arc::clone(directory);
            let thread = spawn(format!("flusher-{}", directory.number), move || running.run())?;
            flusher.threads.lock().push(thread);
        }
        Ok(flusher)
    }

    /// How long syncs took, by directory in the order of their numbers.
    pub fn syncs(&self) -> impl Iterator<Item = &Arc<Durations>> {
        self.directories.iter().map(|directory| &directory.syncs)
    }

    /// How long writes that nobody waits for may stay unsynced, from the next one on.
    pub fn set_delay_ms(&self, delay_ms: u64) {
        self.delay_ms.store(delay_ms, Ordering::Relaxed);
    }

    /// Syncs a partition of this directory on the calling thread, unless a sync of it runs already; then the partition is
    /// taken up again behind that. For who would only wait for the flusher's thread otherwise.
    pub fn sync_here(&self, directory: usize, partition: &Arc<Partition>) {
        let Some(sync) = partition.begin_sync(Urgency::Now) else { return };
        let directory = &self.directories[directory];
        let synced: Vec<Synced> = directory.sync(sync).into_iter().collect();
        directory.observer.round_ended(directory.number, &synced);
        directory.write_ahead(&synced);
    }

    /// Syncs a partition of this directory on the calling thread, which serves requests and has nothing else to do, if that
    /// is one small sync on a device that is quick, and the flusher has no round to begin. Returns false, having done
    /// nothing, if it is not.
    pub fn sync_if_quick(&self, directory: usize, partition: &Arc<Partition>) -> bool {
        let directory = &self.directories[directory];
        if directory.queue.most_urgent() >= Some(Urgency::Reader) || !directory.is_quick() {
            return false;
        }
        let Some(sync) = partition.begin_small_sync(SYNCED_HERE_BYTES_MAX) else { return false };
        let synced: Vec<Synced> = directory.sync(sync).into_iter().collect();
        directory.observer.round_ended(directory.number, &synced);
        true
    }

    /// Writes zeros ahead of a log that [`Flusher::sync_if_quick`] has synced, if it wants some: when those who waited for the sync are
    /// answered. No append of this thread can come in between, which would end the writing.
    pub fn write_ahead(&self, directory: usize, partition: &Arc<Partition>) {
        self.directories[directory].write_zeros(std::iter::once(partition));
    }

    /// Syncs what is not synced, then ends the threads.
    pub fn stop(&self) {
        for directory in &self.directories {
            directory.stopping.store(true, Ordering::Release);
            if let Some(thread) = &*directory.thread.lock() {
                thread.unpark();
            }
        }
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                error!("a flusher thread had panicked");
            }
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    // Without its flusher a broker would let producers wait for ever.
    let builder = std::thread::Builder::new().name(name).stack_size(STACK_BYTES);
    builder.spawn(move || vital::thread("flusher", run))
}

/// Wakes a flusher thread that sleeps.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// One log directory's flusher.
struct Directory {
    number: usize,
    queue: Arc<SyncQueue>,
    delay_ms: Arc<AtomicU64>,
    stopping: AtomicBool,
    /// The thread, once it runs.
    thread: Mutex<Option<Thread>>,
    helpers: Helpers,
    counters: Arc<Counters>,
    /// How long syncs in this directory took.
    syncs: Arc<Durations>,
    observer: Arc<dyn SyncObserver>,
    /// When the broker began to serve: the zero of the next field.
    began: Instant,
    /// No data thread syncs here before, in microseconds.
    shunned_until_us: AtomicU64,
}

/// What the thread remembers from round to round.
struct Times {
    /// When the last round began.
    round_began: Instant,
    /// The last time at which nothing was unsynced that nobody waits for, as far as known.
    clean_at: Instant,
}

impl Directory {
    fn run(self: &Arc<Self>) {
        *self.thread.lock() = Some(std::thread::current());
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let now = Instant::now();
        let mut times = Times { round_began: now, clean_at: now };
        let mut helpers = Vec::new();
        loop {
            let stopping = self.stopping.load(Ordering::Acquire);
            let urgency = self.queue.most_urgent();
            let now = Instant::now();
            let due = match urgency {
                None if stopping => break,
                None => None,
                Some(urgency) => Some(self.due(urgency, &times)),
            };
            if stopping || due.is_some_and(|due| due <= now) {
                self.round(now, &mut times, stopping, &mut helpers);
            } else if self.queue.sleep(urgency, &waker) {
                match due {
                    Some(due) => std::thread::park_timeout(due - now),
                    None => {
                        std::thread::park();
                        times.clean_at = Instant::now();
                    }
                }
            }
        }
        self.helpers.stop();
        let panicked = helpers.into_iter().filter_map(|helper| helper.join().err()).count();
        debug_assert_eq!(panicked, 0, "a panic ends the process");
    }

    /// When a round must begin for the sake of something this urgent.
    fn due(&self, urgency: Urgency, times: &Times) -> Instant {
        let delayed = times.clean_at + Duration::from_millis(self.delay_ms.load(Ordering::Relaxed));
        match urgency {
            Urgency::Later => delayed,
            Urgency::Reader => delayed.min(times.round_began + READER_INTERVAL),
            Urgency::Now => times.clean_at.min(times.round_began),
        }
    }

    fn round(
        self: &Arc<Self>,
        now: Instant,
        times: &mut Times,
        stopping: bool,
        helpers: &mut Vec<JoinHandle<()>>,
    ) {
        times.round_began = now;
        let also_later = stopping || self.due(Urgency::Later, times) <= now;
        if also_later {
            times.clean_at = now;
        }
        let taken = self.queue.take(also_later);
        let mut syncs: Vec<PartitionSync> = taken
            .into_iter()
            .filter_map(|(urgency, partition)| partition.begin_sync(urgency))
            .collect();
        let synced = match syncs.len() {
            0 => return,
            // Most rounds of a broker with little to do: no hand-over to another thread.
            1 => self.sync(syncs.remove(0)).into_iter().collect(),
            count => {
                self.employ(count, helpers);
                self.helpers.run_all(syncs, |sync| self.sync(sync))
            }
        };
        self.observer.round_ended(self.number, &synced);
        self.write_ahead(&synced);
    }

    /// Writes zeros ahead of the logs that want some, now that all requests that waited for the round are
    /// answered. The others have their turn after another round.
    fn write_ahead(&self, synced: &[Synced]) {
        self.write_zeros(synced.iter().map(|(partition, _)| partition));
    }

    fn write_zeros<'a>(&self, partitions: impl Iterator<Item = &'a Arc<Partition>>) {
        let mut portions = 0;
        for partition in partitions {
            match partition.write_ahead() {
                AheadWritten::Nothing => continue,
                AheadWritten::Done => {}
                AheadWritten::Failed(cause) => self.observer.sync_failed(partition, &cause),
            }
            portions += 1;
            if portions == PORTIONS_A_ROUND_MAX {
                return;
            }
        }
    }

    /// Whether the last syncs here were quick.
    fn is_quick(&self) -> bool {
        let until = self.shunned_until_us.load(Ordering::Relaxed);
        until == 0 || self.began.elapsed().as_micros() as u64 >= until
    }

    fn sync(&self, sync: PartitionSync) -> Option<Synced> {
        let (began, partition) = (Instant::now(), Arc::clone(sync.partition()));
        let note = |synced: &partition::Synced| {
            let took = began.elapsed();
            self.counters.syncs.observe(took);
            self.syncs.observe(took);
            if took > SLOW {
                let until = self.began.elapsed() + took * SHUNNED_TIMES;
                self.shunned_until_us.fetch_max(until.as_micros() as u64, Ordering::Relaxed);
            }
            self.observer.synced(self.number, &(Arc::clone(&partition), synced.clone()));
        };
        match sync.run_noted(note) {
            Ok(synced) => synced.map(|synced| (partition, synced)),
            Err(cause) => {
                self.observer.sync_failed(&partition, &cause);
                None
            }
        }
    }

    /// Sees to it that there are helpers for a round of `count` syncs. They stay.
    fn employ(self: &Arc<Self>, count: usize, helpers: &mut Vec<JoinHandle<()>>) {
        while helpers.len() + 1 < count.min(SYNCS_AT_ONCE_MAX) {
            let (number, directory) = (helpers.len(), Arc::clone(self));
            let name = format!("flusher-{}-{number}", self.number);
            let helper = spawn(name, move || directory.helpers.help(|sync| directory.sync(sync)));
            match helper {
                Ok(helper) => helpers.push(helper),
                Err(cause) => {
                    // Those who are there do the work.
                    error!(%cause, "cannot start another flusher thread");
                    return;
                }
            }
        }
    }
}

/// The syncs of one round, shared out among threads.
#[derive(Default)]
struct Helpers {
    round: Mutex<Round>,
    /// Told when there is work, or none will come any more.
    work: Condvar,
    /// Told when the last sync of a round has ended.
    done: Condvar,
}

#[derive(Default)]
struct Round {
    /// Not begun.
    syncs: Vec<PartitionSync>,
    /// Begun and not ended.
    running: usize,
    synced: Vec<Synced>,
    stopping: bool,
}

impl Helpers {
    /// Runs all of a round, on this thread and those that help; returns when all have ended.
    fn run_all(
        &self,
        mut syncs: Vec<PartitionSync>,
        run: impl Fn(PartitionSync) -> Option<Synced>,
    ) -> Vec<Synced> {
        // They are taken from the end: those that somebody waits for come first.
        syncs.reverse();
        let mut round = self.round.lock();
        for _ in 1..syncs.len().min(SYNCS_AT_ONCE_MAX) {
            self.work.notify_one();
        }
        round.syncs = syncs;
        while let Some(sync) = round.syncs.pop() {
            self.run_one(&mut round, sync, &run);
        }
        while round.running > 0 {
            self.done.wait(&mut round);
        }
        std::mem::take(&mut round.synced)
    }

    /// Helps until [`Helpers::stop`].
    fn help(&self, run: impl Fn(PartitionSync) -> Option<Synced>) {
        let mut round = self.round.lock();
        while !round.stopping {
            match round.syncs.pop() {
                Some(sync) => self.run_one(&mut round, sync, &run),
                None => self.work.wait(&mut round),
            }
        }
    }

    fn run_one(
        &self,
        round: &mut parking_lot::MutexGuard<'_, Round>,
        sync: PartitionSync,
        run: &impl Fn(PartitionSync) -> Option<Synced>,
    ) {
        round.running += 1;
        let synced = parking_lot::MutexGuard::unlocked(round, || run(sync));
        round.running -= 1;
        round.synced.extend(synced);
        if round.running == 0 && round.syncs.is_empty() {
            self.done.notify_one();
        }
    }

    fn stop(&self) {
        self.round.lock().stopping = true;
        self.work.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::mpsc;

    use model::record::BatchBuilder;
    use model::{BrokerId, LeaderEpoch, Moment, Offset, Timestamp, TopicPartition, Uuid};
    use partition::{Acks, Append, Assignment, Settings, Status};
    use rustix::io::Errno;
    use storage::disk::{Disk, GatedDisk, SimDisk};
    use storage::{Log, Opening};

    use super::*;

    /// How long anything may take on a machine that is busy with much else.
    const PATIENCE: Duration = Duration::from_secs(40);
    /// A delay that no test lives to see.
    const NEVER_MS: u64 = 3_600_000;

    /// Passes on what the flusher tells.
    struct Told {
        rounds: Mutex<mpsc::Sender<(usize, Vec<Synced>)>>,
        noted: Noted,
    }

    /// What clients had been told when it was to be noted how far a partition is synced, and that.
    type Noted = Arc<Mutex<Vec<(Offset, Offset)>>>;

    impl SyncObserver for Told {
        fn sync_failed(&self, partition: &Arc<Partition>, cause: &PartitionError) {
            panic!("{}: {cause}", partition.topic_partition());
        }

        fn synced(&self, _: usize, (partition, synced): &Synced) {
            self.noted.lock().push((partition.high_watermark(), synced.up_to));
        }

        fn round_ended(&self, directory: usize, synced: &[Synced]) {
            // Who listens no more has seen enough.
            let _ = self.rounds.lock().send((directory, synced.to_vec()));
        }
    }

    struct Bench {
        disk: GatedDisk,
        queues: Vec<Arc<SyncQueue>>,
        flusher: Flusher,
        rounds: mpsc::Receiver<(usize, Vec<Synced>)>,
        noted: Noted,
    }

    /// A test that fails must not wait for a flusher that waits at the gate.
    impl Drop for Bench {
        fn drop(&mut self) {
            self.disk.open_gate();
        }
    }

    fn dir(directory: usize) -> PathBuf {
        PathBuf::from(format!("disk-{directory}"))
    }

    impl Bench {
        fn new(directories: usize, delay_ms: u64) -> Bench {
            let disk = GatedDisk::new(Arc::new(SimDisk::new()));
            (0..directories).for_each(|at| disk.create_dir_all(&dir(at)).unwrap());
            let queues: Vec<Arc<SyncQueue>> = (0..directories).map(|_| Arc::default()).collect();
            let (sender, rounds) = mpsc::channel();
            let noted = Noted::default();
            let told = Told { rounds: Mutex::new(sender), noted: Arc::clone(&noted) };
            let told: Arc<dyn SyncObserver> = Arc::new(told);
            let flusher = Flusher::start(queues.clone(), delay_ms, &Arc::default(), &told).unwrap();
            Bench { disk, queues, flusher, rounds, noted }
        }

        fn partition(&self, directory: usize, index: i32) -> Arc<Partition> {
            self.partition_on(Arc::new(self.disk.clone()), directory, index)
        }

        fn partition_on(
            &self,
            disk: Arc<dyn Disk>,
            directory: usize,
            index: i32,
        ) -> Arc<Partition> {
            let (name, settings) = (TopicPartition::new("t", index), Arc::new(Settings::default()));
            let path = dir(directory).join(name.to_string());
            let opening = Opening::unknown(Timestamp(1));
            let log = Log::open(disk, path, Arc::clone(&settings.log), opening).unwrap();
            let (id, me) = (Uuid::from_random([1; 16]), BrokerId(1));
            let queue = Arc::clone(&self.queues[directory]);
            let partition = Partition::new(name, id, me, log, settings, Offset(0), queue);
            partition.assign(Assignment::alone(me, LeaderEpoch(0)), Moment::START);
            partition
        }

        fn next_round(&self) -> (usize, Vec<Synced>) {
            self.rounds.recv_timeout(PATIENCE).expect("a round ends")
        }
    }

    fn append(partition: &Arc<Partition>, acks: Acks) -> Offset {
        let mut batch = BatchBuilder::new();
        batch.add(Timestamp(1), None, Some(b"v"));
        let how = Append { acks, now: Timestamp(1), internal: false };
        let needed = partition.append(&mut batch.finish(), how).unwrap().needed;
        if acks == Acks::All {
            partition.want_committed(needed);
        }
        needed
    }

    #[test]
    fn a_device_that_stalls_holds_up_its_own_directory_only() {
        let bench = Bench::new(2, NEVER_MS);
        let (stalled, well) = (bench.partition(0, 0), bench.partition(1, 0));
        bench.disk.close(&dir(0));
        append(&stalled, Acks::All);
        assert!(bench.disk.wait_for(1, PATIENCE));
        for _ in 0..3 {
            let needed = append(&well, Acks::All);
            let (directory, synced) = bench.next_round();
            assert_eq!((directory, synced.len(), synced[0].1.up_to), (1, 1, needed));
            assert_eq!(well.high_watermark(), needed);
        }
        assert_eq!(stalled.high_watermark(), Offset(0));
        bench.disk.open_gate();
        assert_eq!(bench.next_round().0, 0);
        assert_eq!(stalled.high_watermark(), Offset(1));
    }

    #[test]
    fn a_log_that_is_looked_after_holds_up_neither_itself_nor_another() {
        let bench = Bench::new(1, NEVER_MS);
        let (stalled, well) = (bench.partition(0, 0), bench.partition(0, 1));
        append(&stalled, Acks::All);
        bench.next_round();
        bench.disk.close(&dir(0).join("t-0"));
        let checkpointed = Arc::clone(&stalled);
        let checkpoint = std::thread::spawn(move || checkpointed.checkpoint(1));
        assert!(bench.disk.wait_for(1, PATIENCE), "a checkpoint waits for the device");
        assert_eq!(append(&stalled, Acks::Leader), Offset(2));
        let needed = append(&well, Acks::All);
        assert_eq!(bench.next_round().1[0].1.up_to, needed);
        assert_eq!(well.high_watermark(), needed);
        bench.disk.open_gate();
        assert_eq!(checkpoint.join().unwrap().unwrap(), Some(Offset(1)));
    }

    #[test]
    fn the_files_of_a_round_are_synced_side_by_side() {
        let bench = Bench::new(1, NEVER_MS);
        let partitions: Vec<_> = (0..9).map(|index| bench.partition(0, index)).collect();
        // Nobody waits for these, so that no round begins before the gate is closed; the stop's round takes all.
        partitions
            .iter()
            .for_each(|partition| assert!(append(partition, Acks::Leader) > Offset(0)));
        bench.disk.close(&dir(0));
        std::thread::scope(|scope| {
            scope.spawn(|| bench.flusher.stop());
            let all_at_once = bench.disk.wait_for(9, PATIENCE);
            bench.disk.open_gate();
            assert!(all_at_once, "nine files wait for the device at the same time");
        });
        assert_eq!(bench.next_round().1.len(), 9);
        assert!(partitions.iter().all(|partition| partition.high_watermark() == Offset(1)));
    }

    #[test]
    fn more_partitions_than_threads_are_all_of_one_round() {
        let bench = Bench::new(1, NEVER_MS);
        let partitions: Vec<_> = (0..50).map(|index| bench.partition(0, index)).collect();
        bench.disk.close(&dir(0));
        append(&partitions[0], Acks::All);
        assert!(bench.disk.wait_for(1, PATIENCE));
        partitions.iter().for_each(|partition| assert!(append(partition, Acks::All) > Offset(0)));
        bench.disk.open_gate();
        assert_eq!(bench.next_round().1.len(), 1);
        assert_eq!(bench.next_round().1.len(), 50);
    }

    #[test]
    fn a_log_that_is_synced_often_runs_over_zeros_and_one_record_costs_none() {
        for looks_for_unused in [false, true] {
            run_over_zeros_and_give_them_back(looks_for_unused);
        }
    }

    fn run_over_zeros_and_give_them_back(looks_for_unused: bool) {
        let bench = Bench::new(1, NEVER_MS);
        let (busy, idle) = (bench.partition(0, 0), bench.partition(0, 1));
        append(&idle, Acks::All);
        bench.next_round();
        let ahead = |partition: &Arc<Partition>| partition.with_log(|log| log.ahead_bytes());
        let portion = u64::from(storage::LogConfig::default().ahead_bytes);
        // They are written when the round has been told: the next one comes behind them. An append of the same
        // log meanwhile would end their writing.
        let mut rounds = 0;
        while ahead(&busy) == 0 {
            rounds += 1;
            assert!(rounds < 40, "small syncs in a row");
            append(&busy, Acks::All);
            bench.next_round();
            append(&bench.partition(0, 1 + rounds), Acks::All);
            bench.next_round();
        }
        assert!(rounds > 10, "a few records cost none");
        append(&busy, Acks::All);
        bench.next_round();
        let size = |index| {
            let name = "00000000000000000000.log";
            bench.disk.size(&dir(0).join(format!("t-{index}")).join(name)).unwrap()
        };
        let batches = busy.with_log(storage::Log::size_bytes);
        assert!(size(0) > batches + portion / 2 && ahead(&busy) > portion / 2);
        assert_eq!((ahead(&idle), size(1)), (0, idle.with_log(storage::Log::size_bytes)));
        assert_eq!(bench.queues[0].held().ahead_bytes(), ahead(&busy));
        // Two looks without small syncs; of those for unused zeros the first finds those before.
        busy.give_back_unused_ahead().unwrap();
        append(&busy, Acks::All);
        bench.next_round();
        busy.give_back_unused_ahead().unwrap();
        assert!(ahead(&busy) > 0, "a sync since the last look");
        if looks_for_unused {
            busy.give_back_unused_ahead().unwrap();
        } else {
            busy.release_idle().unwrap();
            busy.release_idle().unwrap();
        }
        assert_eq!((ahead(&busy), size(0)), (0, busy.with_log(storage::Log::size_bytes)));
        assert_eq!(bench.queues[0].held().ahead_bytes(), 0);
    }

    struct Failures(Mutex<Vec<(Status, String)>>);

    impl SyncObserver for Failures {
        fn sync_failed(&self, partition: &Arc<Partition>, cause: &PartitionError) {
            self.0.lock().push((partition.status(), cause.to_string()));
        }

        fn synced(&self, _: usize, _: &Synced) {}
    }

    #[test]
    fn it_is_noted_how_far_before_anybody_is_told() {
        let bench = Bench::new(1, NEVER_MS);
        let partitions: Vec<_> = (0..5).map(|index| bench.partition(0, index)).collect();
        for needed in 1..=3 {
            for partition in &partitions {
                append(partition, Acks::All);
            }
            let mut ended = 0;
            while ended < partitions.len() {
                ended += bench.next_round().1.len();
            }
            let mut noted = std::mem::take(&mut *bench.noted.lock());
            noted.sort_unstable();
            // A process that dies in between has acknowledged nothing that the journal does not know.
            assert_eq!(noted, vec![(Offset(needed - 1), Offset(needed)); partitions.len()]);
        }
    }

    #[test]
    fn that_zeros_without_room_cannot_be_cut_off_is_told_as_a_failed_sync_is() {
        let (bench, disk) = (Bench::new(1, NEVER_MS), SimDisk::new());
        disk.create_dir_all(&dir(0)).unwrap();
        let partition = bench.partition_on(Arc::new(disk.clone()), 0, 0);
        let failures = Arc::new(Failures(Mutex::default()));
        let directory = Directory {
            number: 0,
            queue: Arc::default(),
            delay_ms: Arc::default(),
            stopping: AtomicBool::new(false),
            thread: Mutex::new(None),
            helpers: Helpers::default(),
            counters: Arc::default(),
            syncs: Arc::default(),
            observer: Arc::clone(&failures) as Arc<dyn SyncObserver>,
            began: Instant::now(),
            shunned_until_us: AtomicU64::new(0),
        };
        for _ in 0..storage::LogConfig::default().ahead_after_syncs {
            append(&partition, Acks::Leader);
            let synced = partition.begin_sync(Urgency::Now).unwrap().run().unwrap();
            assert!(synced.is_some());
        }
        disk.limit_capacity(Some(disk.used_bytes() + 1000));
        // The zeros find no room, and the cut behind them fails.
        disk.fail_at(disk.operation_count() + 1, Errno::IO);
        let synced = partition::Synced { up_to: Offset(1), epochs: Vec::new() };
        directory.write_ahead(&[(Arc::clone(&partition), synced)]);
        let failures = failures.0.lock();
        assert!(matches!(&failures[..], [(Status::Offline, _)]), "{failures:?}");
    }

    #[test]
    fn what_nobody_waits_for_is_synced_without_another_append() {
        let bench = Bench::new(1, 5);
        let partition = bench.partition(0, 0);
        for _ in 0..3 {
            let end = append(&partition, Acks::Leader);
            assert_eq!(bench.next_round().1[0].1.up_to, end);
        }
    }

    #[test]
    fn a_round_that_somebody_waits_for_leaves_the_others_their_time() {
        let bench = Bench::new(1, NEVER_MS);
        let (waited_for, other) = (bench.partition(0, 0), bench.partition(0, 1));
        append(&other, Acks::Leader);
        append(&waited_for, Acks::All);
        let (_, synced) = bench.next_round();
        assert_eq!(synced.len(), 1);
        assert_eq!(waited_for.high_watermark(), Offset(1));
        assert_eq!(other.high_watermark(), Offset(0));
        bench.flusher.stop();
        assert_eq!(other.high_watermark(), Offset(1), "the stop waits for no timer");
    }

    /// Appends as `append` does with `acks=all`, but leaves the sync to a data thread.
    fn append_unasked(partition: &Arc<Partition>, value_bytes: usize) -> Offset {
        let mut batch = BatchBuilder::new();
        batch.add(Timestamp(1), None, Some(&vec![b'v'; value_bytes]));
        let how = Append { acks: Acks::All, now: Timestamp(1), internal: false };
        partition.append(&mut batch.finish(), how).unwrap().needed
    }

    #[test]
    fn a_data_thread_syncs_what_is_small_and_the_flusher_the_rest() {
        let bench = Bench::new(1, NEVER_MS);
        let partition = bench.partition(0, 0);
        let is_synced_here = || bench.flusher.sync_if_quick(0, &partition);
        append_unasked(&partition, 1);
        assert!(!is_synced_here(), "the names are to be synced as well");
        append(&partition, Acks::All);
        bench.next_round();
        assert!(!is_synced_here(), "there is nothing to be synced");
        // The simulated disk is quick; a thread that was held up by others is not.
        let shun_until = |us| {
            bench.flusher.directories[0].shunned_until_us.store(us, Ordering::Relaxed);
        };
        shun_until(0);
        let needed = append_unasked(&partition, 1);
        assert!(is_synced_here());
        assert_eq!(bench.next_round().1[0].1.up_to, needed);
        assert_eq!(partition.high_watermark(), needed);
        append_unasked(&partition, SYNCED_HERE_BYTES_MAX as usize);
        shun_until(0);
        assert!(!is_synced_here(), "too large");
        append(&partition, Acks::All);
        bench.next_round();
        let needed = append_unasked(&partition, 1);
        shun_until(u64::MAX);
        assert!(!is_synced_here(), "the device is slow");
        partition.want_committed(needed);
        assert_eq!(bench.next_round().1[0].1.up_to, needed);
    }

    #[test]
    fn a_slow_sync_keeps_data_threads_from_waiting_for_the_device() {
        let bench = Bench::new(1, NEVER_MS);
        let partition = bench.partition(0, 0);
        append(&partition, Acks::All);
        bench.next_round();
        bench.disk.close(&dir(0));
        append(&partition, Acks::All);
        assert!(bench.disk.wait_for(1, PATIENCE));
        std::thread::sleep(SLOW * 2);
        bench.disk.open_gate();
        bench.next_round();
        assert!(bench.flusher.directories[0].shunned_until_us.load(Ordering::Relaxed) > 0);
    }

    #[test]
    fn a_failed_sync_of_a_data_thread_is_told_as_one_of_the_flusher_is() {
        let (mut bench, disk) = (Bench::new(1, NEVER_MS), SimDisk::new());
        disk.create_dir_all(&dir(0)).unwrap();
        let failures = Arc::new(Failures(Mutex::default()));
        let observer = Arc::clone(&failures) as Arc<dyn SyncObserver>;
        bench.flusher.stop();
        bench.flusher =
            Flusher::start(bench.queues.clone(), NEVER_MS, &Arc::default(), &observer).unwrap();
        let partition = bench.partition_on(Arc::new(disk.clone()), 0, 0);
        append(&partition, Acks::Leader);
        assert!(partition.begin_sync(Urgency::Now).unwrap().run().unwrap().is_some());
        append_unasked(&partition, 1);
        disk.fail_at(disk.operation_count(), Errno::IO);
        assert!(bench.flusher.sync_if_quick(0, &partition), "the flusher has nothing to do");
        assert!(!bench.flusher.sync_if_quick(0, &partition), "it is offline");
        bench.flusher.write_ahead(0, &partition);
        bench.flusher.stop();
        let failures = failures.0.lock();
        assert!(matches!(&failures[..], [(Status::Offline, _)]), "{failures:?}");
        assert_eq!(partition.high_watermark(), Offset(1), "nobody is told that it is committed");
    }

    #[test]
    fn a_data_thread_that_syncs_runs_over_zeros_too() {
        let bench = Bench::new(1, NEVER_MS);
        let partition = bench.partition(0, 0);
        append(&partition, Acks::All);
        bench.next_round();
        let mut syncs = 1;
        while partition.with_log(|log| log.ahead_bytes()) == 0 {
            syncs += 1;
            assert!(
                syncs <= storage::LogConfig::default().ahead_after_syncs,
                "small syncs in a row"
            );
            append_unasked(&partition, 1);
            // The simulated disk is quick; a thread that was held up by others is not.
            bench.flusher.directories[0].shunned_until_us.store(0, Ordering::Relaxed);
            assert!(bench.flusher.sync_if_quick(0, &partition));
            bench.next_round();
            bench.flusher.write_ahead(0, &partition);
        }
    }

    #[test]
    fn a_partition_that_another_thread_syncs_is_taken_up_behind_that() {
        let bench = Bench::new(1, NEVER_MS);
        let partition = bench.partition(0, 0);
        append(&partition, Acks::Leader);
        let elsewhere = partition.begin_sync(Urgency::Later).unwrap();
        let needed = append(&partition, Acks::All);
        // The flusher finds that it cannot sync it now, and sleeps.
        let until = Instant::now() + PATIENCE;
        while bench.queues[0].most_urgent() == Some(Urgency::Now) {
            assert!(Instant::now() < until);
            std::thread::yield_now();
        }
        assert!(elsewhere.run().unwrap().is_some());
        assert_eq!(bench.next_round().1[0].1.up_to, needed);
        assert_eq!(partition.high_watermark(), needed);
    }

    #[test]
    fn another_delay_holds_from_the_next_write_on() {
        let bench = Bench::new(1, NEVER_MS);
        let partition = bench.partition(0, 0);
        bench.flusher.set_delay_ms(0);
        append(&partition, Acks::Leader);
        bench.next_round();
        assert_eq!(partition.high_watermark(), Offset(1));
    }
}
