//! What is done to logs besides appending and reading: retention, checkpoints, flushing by age,
//! forgetting producers, closing idle files (not in need: `files.rs`). Not here: removing files (`removal.rs`). Threads that sleep
//! until the next chore is due.
//!
//! Each log directory has threads of its own for the chores that touch its files or the locks of its partitions: an operation that
//! hangs there holds up neither the other directories nor the chores of the broker as a whole. Retention has its own thread,
//! because it waits for two syncs of a directory for each partition, and so has the journal.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use configuration::BrokerConfig;
use model::Durability;
use model::Offset;
use node::disks::SICK_FROM;
use parking_lot::{Condvar, Mutex};
use partition::{HeldSums, Partition, PartitionError};
use storage::disk::reserve;
use tracing::{debug, error, info, warn};

use crate::groups::SILENT_AFTER;
use crate::server::Server;
use crate::{log_ends, observe, vital};

/// Bytes that recovery may have to read after a crash, one or two seconds' worth. Above it the
/// fullest logs are checkpointed, which writes back what the system had not written yet.
const UNCHECKED_BYTES_MAX: u64 = 3 << 30;
/// How often that is looked at.
const UNCHECKED_LOOK: Duration = Duration::from_secs(5);
/// Memory that what is known of idempotent producers may take, over all partitions, in bytes: some
/// three hundred thousand of them. Anybody may invent one with each batch.
const PRODUCER_BYTES_MAX: usize = 64 << 20;
/// How often that is looked at.
const PRODUCERS_LOOK: Duration = Duration::from_secs(5);
/// How often files that nobody uses are closed, and unused buffers freed.
const IDLE_LOOK: Duration = Duration::from_secs(30);
/// Time between two searches for silent groups.
const SILENT_GROUPS_LOOK: Duration = Duration::from_secs(5);
/// How often logs are looked for that keep zeros ahead of their end and are not synced any more.
const UNUSED_ZEROS_LOOK: Duration = Duration::from_secs(5);

/// How often the journal of a log directory is synced.
const JOURNAL_SYNC_EVERY: Duration = Duration::from_secs(1);

/// The threads, and how to end them.
pub struct Chores {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    is_wanted: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn is_wanted(&self) -> bool {
        *self.is_wanted.lock()
    }

    /// Waits until then; false if the thread is to end.
    fn wait_until(&self, at: Instant) -> bool {
        let mut is_wanted = self.is_wanted.lock();
        while !*is_wanted && Instant::now() < at {
            self.changed.wait_until(&mut is_wanted, at);
        }
        !*is_wanted
    }
}

/// One chore in the log directory of this number; a chore of the broker as a whole ignores the number. A long one returns early
/// when the broker stops.
type Chore = fn(&Arc<Server>, usize, &Stop);

/// A chore and when it is due.
struct Due {
    at: Instant,
    every: Duration,
    chore: Chore,
}

impl Chores {
    /// Starts the threads. They end when `server` is dropped, too.
    pub fn start(server: &Arc<Server>) -> std::io::Result<Chores> {
        let config = server.config();
        let mut chores = Chores { stop: Arc::default(), threads: Vec::new() };
        chores.spawn_run(server, "chores", 0, shared())?;
        chores.spawn_run(server, "rare-writes", 0, rare_writes())?;
        let mark_every = Duration::from_millis(config.membership.mark_interval_ms);
        for at in 0..server.logs.directories().count() {
            chores.spawn_run(server, "directory", at, timetable(&config))?;
            chores.spawn_run(server, "retention", at, retention(&config))?;
            let (stop, server) = (Arc::clone(&chores.stop), Arc::downgrade(server));
            chores.spawn(format!("journal-{at}"), move || {
                vital::thread("journal", || keep_journal(&stop, &server, at, mark_every));
            })?;
        }
        Ok(chores)
    }

    /// Starts a thread for the chores of a timetable in the log directory of this number.
    fn spawn_run(
        &mut self,
        server: &Arc<Server>,
        name: &'static str,
        at: usize,
        timetable: Vec<Due>,
    ) -> std::io::Result<()> {
        let (stop, server) = (Arc::clone(&self.stop), Arc::downgrade(server));
        self.spawn(format!("{name}-{at}"), move || {
            vital::thread(name, || run(&stop, &server, at, timetable));
        })
    }

    fn spawn(&mut self, name: String, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let thread = std::thread::Builder::new().name(name).stack_size(512 * 1024).spawn(work)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Ends the threads; a chore under way is finished first, or comes to a good end.
    pub fn stop(&mut self) {
        *self.stop.is_wanted.lock() = true;
        self.stop.changed.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                error!("a thread of chores had panicked");
            }
        }
    }
}

fn soon(every: Duration, chore: Chore) -> Due {
    Due { at: Instant::now() + every, every, chore }
}

/// Chores that touch no log directory and no lock of a partition.
fn shared() -> Vec<Due> {
    let second = Duration::from_secs(1);
    vec![
        soon(IDLE_LOOK, |server, _, _| {
            server.buffers.trim();
            server.fetch_sessions.drop_idle(Instant::now());
            server.memory.return_unused();
        }),
        // Takes descriptors back that were lent.
        soon(second, |_, _, _| {
            reserve::fill();
        }),
        soon(second, |server, _, _| server.memory.return_unused_in_need()),
        soon(SILENT_GROUPS_LOOK, |server, _, _| server.groups.release_silent(SILENT_AFTER)),
        soon(log_ends::LOOK_EVERY, |server, _, _| observe::look_at_log_ends(server)),
    ]
}

/// Chores that write to directories once in a long time. No other chore waits for them.
fn rare_writes() -> Vec<Due> {
    let second = Duration::from_secs(1);
    vec![
        soon(second, fill_essential_ballast),
        soon(second, |server, _, _| crate::health::forget_copies(server)),
    ]
}

/// Chores of each log directory.
fn timetable(config: &BrokerConfig) -> Vec<Due> {
    let log = &config.log;
    let ms = Duration::from_millis;
    let first = Instant::now() + ms(log.initial_delay_ms);
    let after_delay = |every: Duration, chore| Due { at: first, every, chore };
    vec![
        after_delay(ms(log.recovery_point_checkpoint_ms.max(1)), checkpoint),
        after_delay(ms(config.producers.expiration_check_ms.max(1)), expire_producers),
        soon(UNCHECKED_LOOK, bound_recovery),
        soon(PRODUCERS_LOOK, bound_producers),
        soon(IDLE_LOOK, release_idle),
        soon(UNUSED_ZEROS_LOOK, give_back_unused_zeros),
        soon(Duration::from_secs(1), |server, at, _| server.logs.look_at_directory(at)),
        soon(Duration::from_secs(1), look_for_room),
        soon(ms(log.flush_scheduler_ms.clamp(100, 60_000)), flush_by_age),
    ]
}

fn retention(config: &BrokerConfig) -> Vec<Due> {
    let log = &config.log;
    let first = Instant::now() + Duration::from_millis(log.initial_delay_ms);
    let every = Duration::from_millis(log.retention_check_ms.max(1));
    vec![Due { at: first, every, chore: retain }]
}

fn run(stop: &Stop, server: &Weak<Server>, at: usize, mut timetable: Vec<Due>) {
    loop {
        let next = timetable.iter().map(|due| due.at).min().expect("there are chores");
        if !stop.wait_until(next) {
            return;
        }
        let Some(server) = server.upgrade() else { return };
        let now = Instant::now();
        for due in timetable.iter_mut().filter(|due| due.at <= now) {
            (due.chore)(&server, at, stop);
            due.at = Instant::now() + due.every;
        }
    }
}

/// Keeps the journal and the mark of one log directory until the broker stops.
fn keep_journal(stop: &Stop, server: &Weak<Server>, at: usize, mark_every: Duration) {
    let mut sync_at = Instant::now() + JOURNAL_SYNC_EVERY;
    let mut mark_at = Instant::now() + mark_every;
    loop {
        if !stop.wait_until(sync_at.min(mark_at)) {
            return;
        }
        let Some(server) = server.upgrade() else { return };
        if sync_at <= Instant::now() {
            server.note_metadata_in(at);
            server.logs.sync_journal(at);
            sync_at = Instant::now() + JOURNAL_SYNC_EVERY;
        }
        if mark_at <= Instant::now() {
            server.logs.raise_mark(at);
            mark_at = Instant::now() + mark_every;
        }
    }
}

/// Numbers of the log directories in which a write hangs: the write may hold the lock of its partition.
fn hung_directories(server: &Server) -> Vec<usize> {
    let all = 0..server.logs.directories().count();
    all.filter(|at| server.sick_disks.oldest_write(*at) >= SICK_FROM).collect()
}

/// Acts upon each partition, except those in directories in which a write hangs: their turn is the next time.
pub(super) fn each(
    server: &Server,
    mut act: impl FnMut(&Arc<Partition>) -> Result<(), PartitionError>,
) {
    let hung = hung_directories(server);
    for partition in server.topics.snapshot().partitions() {
        let is_hung =
            || server.logs.directory_number(partition).is_some_and(|at| hung.contains(&at));
        if !hung.is_empty() && is_hung() {
            continue;
        }
        report(server, partition, act(partition));
    }
}

fn report(server: &Server, partition: &Arc<Partition>, result: Result<(), PartitionError>) {
    match result {
        Ok(()) | Err(PartitionError::Offline | PartitionError::Deleted) => {}
        Err(PartitionError::Storage(cause)) => server.log_failed(partition, &cause),
        Err(other) => debug!(partition = %partition.topic_partition(), %other, "chore refused"),
    }
}

/// Acts upon each partition in a log directory. Waits while a write hangs there.
fn each_in(
    server: &Server,
    at: usize,
    mut act: impl FnMut(&Arc<Partition>) -> Result<(), PartitionError>,
) {
    for partition in server.logs.open_partitions_at(at) {
        report(server, &partition, act(&partition));
    }
}

fn retain(server: &Arc<Server>, at: usize, stop: &Stop) {
    let now = server.expiry_now();
    let mut starts = Vec::new();
    each_in(server, at, |partition| {
        if let Some(start) = partition.plan_retention(now)? {
            starts.push((Arc::clone(partition), start));
        }
        Ok(())
    });
    // One sync a directory, for all partitions: then a start finishes what is begun here.
    let failed = server.logs.commit_starts(&starts);
    starts.retain(|(partition, _)| !failed.iter().any(|other| Arc::ptr_eq(other, partition)));
    for (partition, start) in &starts {
        if stop.is_wanted() {
            return;
        }
        let retained = delete_segments(server, partition, *start);
        report(server, partition, retained);
    }
}

fn delete_segments(
    server: &Server,
    partition: &Arc<Partition>,
    start: Offset,
) -> Result<(), PartitionError> {
    let gone = partition.retain_from(start)?;
    let delay_ms = partition.settings().log.file_delete_delay_ms;
    for segment in gone {
        info!(
            partition = %partition.topic_partition(),
            base_offset = segment.base_offset.0,
            bytes = segment.size_bytes,
            "deleted a segment that is past its retention"
        );
        server.logs.trash.add(segment, delay_ms);
    }
    Ok(())
}

fn look_for_room(server: &Arc<Server>, at: usize, _: &Stop) {
    server.logs.look_for_room(at, |partition, given_back| report(server, partition, given_back));
}

/// Of a metadata folder beside the log directories.
fn fill_essential_ballast(server: &Arc<Server>, _: usize, _: &Stop) {
    let config = server.config();
    if !config.log_dirs.contains(&config.metadata_dir) {
        server.logs.fill_essential_ballast(&config.metadata_dir);
    }
}

fn checkpoint(server: &Arc<Server>, at: usize, _: &Stop) {
    // One that is synced needs only small files; the others have their turn in bound_recovery.
    let is_due = |partition: &Arc<Partition>| {
        let is_synced = partition.settings().durability == Durability::Fsync;
        is_synced && partition.with_log(|log| log.bytes_past_checkpoint()) > 0
    };
    let mut due = server.logs.open_partitions_at(at);
    due.retain(is_due);
    for (partition, cause) in server.logs.checkpoint_logs(&due) {
        report(server, partition, Err(cause));
    }
    server.logs.checkpoint_directory(at, server.now());
}

/// What the partitions of all directories hold together: known without looking at any of them.
fn held(server: &Server, what: fn(&HeldSums) -> u64) -> u64 {
    server.logs.directories().map(|directory| what(directory.sync_queue().held())).sum()
}

/// The same of the partitions of one directory.
fn held_in(server: &Server, at: usize, what: fn(&HeldSums) -> u64) -> u64 {
    server.logs.directories().nth(at).map_or(0, |directory| what(directory.sync_queue().held()))
}

/// Checkpoints the logs with the most unchecked bytes until at most half of the limit is unchecked. Each directory has an equal part of the limit.
fn bound_recovery(server: &Arc<Server>, at: usize, _: &Stop) {
    let bytes_max = UNCHECKED_BYTES_MAX / server.logs.directories().count().max(1) as u64;
    if held_in(server, at, HeldSums::unchecked_bytes) <= bytes_max {
        return;
    }
    let here = server.logs.open_partitions_at(at);
    let mut unchecked: Vec<(u64, &Arc<Partition>)> = here
        .iter()
        .map(|partition| (partition.with_log(|log| log.bytes_past_checkpoint()), partition))
        .filter(|(bytes, _)| *bytes > 0)
        .collect();
    let mut left: u64 = unchecked.iter().map(|(bytes, _)| bytes).sum();
    unchecked.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    for (bytes, partition) in unchecked {
        if left <= bytes_max / 2 {
            break;
        }
        if let Err(PartitionError::Storage(cause)) = partition.checkpoint(1) {
            server.log_failed(partition, &cause);
        }
        left -= bytes;
    }
    server.logs.checkpoint_directory(at, server.now());
}

fn flush_by_age(server: &Arc<Server>, at: usize, _: &Stop) {
    let is_aged = |partition: &Partition| {
        let settings = partition.settings();
        settings.durability == Durability::PageCache && settings.flush_ms < i64::MAX
    };
    let aged = server.logs.open_partitions_at(at).into_iter().filter(|it| is_aged(it));
    aged.for_each(|partition| partition.request_sync());
}

fn expire_producers(server: &Arc<Server>, at: usize, _: &Stop) {
    let now = server.expiry_now();
    let expiration_ms = server.config().producers.expiration_ms;
    each_in(server, at, |partition| {
        partition.maintain(|log, _| {
            log.expire_producers(now, expiration_ms);
            Ok(())
        })
    });
}

/// Expires refused sequences. While all partitions keep more producers than the limit, each removes those that appended
/// longest ago, in proportion to the number that it keeps.
fn bound_producers(server: &Arc<Server>, at: usize, _: &Stop) {
    if held_in(server, at, HeldSums::refused_bytes) > 0 {
        // Takes no lock where nothing was refused, and no lock of a partition.
        let here = server.logs.open_partitions_at(at);
        here.iter().for_each(|partition| partition.expire_refused(server.now()));
    }
    let all = held(server, HeldSums::producer_bytes) as usize;
    if all <= PRODUCER_BYTES_MAX {
        return;
    }
    let here = server.logs.open_partitions_at(at);
    let known: Vec<(usize, &Arc<Partition>)> = here
        .iter()
        .map(|partition| (partition.with_log(|log| log.producer_bytes()), partition))
        .filter(|(bytes, _)| *bytes > 0)
        .collect();
    warn!(
        bytes = all,
        bytes_max = PRODUCER_BYTES_MAX,
        "too many idempotent producers are known; the oldest are forgotten, and their retries would be taken for new batches"
    );
    for (bytes, partition) in known {
        let share = (bytes as u128 * PRODUCER_BYTES_MAX as u128 / all as u128) as usize;
        let bounded = partition.maintain(|log, _| {
            log.bound_producers(share);
            Ok(())
        });
        if let Err(PartitionError::Storage(cause)) = bounded {
            server.log_failed(partition, &cause);
        }
    }
}

fn give_back_unused_zeros(server: &Arc<Server>, at: usize, _: &Stop) {
    // To cut a file may need one more: the logs can wait, and requests cannot.
    if reserve::is_short() {
        return;
    }
    if held_in(server, at, HeldSums::ahead_bytes) > 0 {
        each_in(server, at, |partition| partition.give_back_unused_ahead());
    }
}

fn release_idle(server: &Arc<Server>, at: usize, _: &Stop) {
    each_in(server, at, |partition| partition.release_idle());
}
