//! What is done to logs besides appending and reading: retention, checkpoints, flushing by age,
//! forgetting producers, closing idle files, removing what was deleted. One thread, which sleeps
//! until the next chore is due.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use partition::{Durability, Partition, PartitionError};
use storage::DeletedSegment;
use storage::disk::{Disk, RealDisk};
use tracing::{debug, error, info};

use crate::configuration::BrokerConfig;
use crate::server::Server;

/// Bytes that recovery may have to read after a crash. Above it the fullest logs are checkpointed.
const UNCHECKED_BYTES_MAX: u64 = 1 << 30;
/// How often that is looked at.
const UNCHECKED_LOOK: Duration = Duration::from_secs(5);
/// How often files that nobody uses are closed, and unused buffers freed.
const IDLE_LOOK: Duration = Duration::from_secs(30);

/// The thread, and how to end it.
pub struct Chores {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

/// A chore and when it is due.
struct Due {
    at: Instant,
    every: Duration,
    chore: fn(&mut Chore),
}

/// What a chore works with.
struct Chore {
    server: Arc<Server>,
    /// Files to remove, the earliest first.
    deleted: VecDeque<(Instant, DeletedSegment)>,
}

impl Chores {
    /// Starts the thread. It ends when `server` is dropped, too.
    pub fn start(server: &Arc<Server>) -> std::io::Result<Chores> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let config = server.config();
        let (stopping, server) = (Arc::clone(&stop), Arc::downgrade(server));
        let thread = std::thread::Builder::new()
            .name("chores".to_owned())
            .stack_size(512 * 1024)
            .spawn(move || run(&stopping, &server, timetable(&config)))?;
        Ok(Chores { stop, thread: Some(thread) })
    }

    /// Ends the thread; a chore under way is finished first.
    pub fn stop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            error!("the thread of chores had panicked");
        }
    }
}

fn timetable(config: &BrokerConfig) -> Vec<Due> {
    let log = &config.log;
    let ms = Duration::from_millis;
    let first = Instant::now() + ms(log.initial_delay_ms);
    let soon = |every: Duration, chore| Due { at: Instant::now() + every, every, chore };
    let after_delay = |every: Duration, chore| Due { at: first, every, chore };
    vec![
        after_delay(ms(log.retention_check_ms.max(1)), retain),
        after_delay(ms(log.recovery_point_checkpoint_ms.max(1)), checkpoint),
        after_delay(ms(config.producers.expiration_check_ms.max(1)), expire_producers),
        soon(UNCHECKED_LOOK, bound_recovery),
        soon(IDLE_LOOK, release_idle),
        soon(Duration::from_secs(1), remove_deleted),
        soon(ms(log.flush_scheduler_ms.clamp(100, 60_000)), flush_by_age),
    ]
}

fn run(stop: &(Mutex<bool>, Condvar), server: &Weak<Server>, mut timetable: Vec<Due>) {
    let mut deleted = VecDeque::new();
    loop {
        let next = timetable.iter().map(|due| due.at).min().expect("there are chores");
        {
            let mut stopping = stop.0.lock();
            while !*stopping && Instant::now() < next {
                stop.1.wait_until(&mut stopping, next);
            }
            if *stopping {
                return;
            }
        }
        let Some(server) = server.upgrade() else { return };
        let mut chore = Chore { server, deleted: std::mem::take(&mut deleted) };
        let now = Instant::now();
        for due in timetable.iter_mut().filter(|due| due.at <= now) {
            (due.chore)(&mut chore);
            due.at = Instant::now() + due.every;
        }
        deleted = std::mem::take(&mut chore.deleted);
    }
}

fn each(server: &Server, mut act: impl FnMut(&Arc<Partition>) -> Result<(), PartitionError>) {
    for partition in server.topics.snapshot().partitions() {
        match act(partition) {
            Ok(()) | Err(PartitionError::Offline | PartitionError::Deleted) => {}
            Err(PartitionError::Storage(cause)) => server.log_failed(partition, &cause),
            Err(other) => debug!(partition = %partition.topic_partition(), %other, "chore refused"),
        }
    }
}

fn retain(chore: &mut Chore) {
    let server = Arc::clone(&chore.server);
    let now = server.now();
    each(&server, |partition| {
        let gone = partition.maintain(|log, high_watermark| log.retain(now, high_watermark))?;
        let delay = partition.settings().log.file_delete_delay_ms.max(0) as u64;
        for segment in gone {
            info!(
                partition = %partition.topic_partition(),
                base_offset = segment.base_offset.0,
                bytes = segment.size_bytes,
                "a segment has served its time"
            );
            chore.deleted.push_back((Instant::now() + Duration::from_millis(delay), segment));
        }
        Ok(())
    });
}

fn remove_deleted(chore: &mut Chore) {
    let now = Instant::now();
    let (due, later): (Vec<_>, Vec<_>) = chore.deleted.drain(..).partition(|(at, _)| *at <= now);
    chore.deleted.extend(later);
    for (_, segment) in due {
        if let Err(cause) = segment.remove(&RealDisk as &dyn Disk) {
            // It is found and removed when the log is opened again.
            debug!(base_offset = segment.base_offset.0, %cause, "cannot remove a deleted segment");
        }
    }
    chore.server.logs.remove_leftovers();
}

fn checkpoint(chore: &mut Chore) {
    let server = &chore.server;
    each(server, |partition| {
        // One that is synced needs only small files; the others have their turn in bound_recovery.
        let synced = partition.settings().durability == Durability::Fsync;
        run_checkpoint(partition, if synced { 1 } else { u64::MAX })
    });
    server.logs.checkpoint();
}

fn run_checkpoint(partition: &Arc<Partition>, bytes_min: u64) -> Result<(), PartitionError> {
    match partition.begin_checkpoint(bytes_min)? {
        Some(ticket) => ticket.run().map(drop),
        None => Ok(()),
    }
}

/// Checkpoints the logs with the most to recover until what is left is little.
fn bound_recovery(chore: &mut Chore) {
    let server = &chore.server;
    let topics = server.topics.snapshot();
    let mut unchecked: Vec<(u64, &Arc<Partition>)> = topics
        .partitions()
        .map(|partition| (partition.with_log(|log| log.bytes_past_checkpoint()), partition))
        .filter(|(bytes, _)| *bytes > 0)
        .collect();
    let mut left: u64 = unchecked.iter().map(|(bytes, _)| bytes).sum();
    if left <= UNCHECKED_BYTES_MAX {
        return;
    }
    unchecked.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    for (bytes, partition) in unchecked {
        if left <= UNCHECKED_BYTES_MAX / 2 {
            break;
        }
        if let Err(PartitionError::Storage(cause)) = run_checkpoint(partition, 1) {
            server.log_failed(partition, &cause);
        }
        left -= bytes;
    }
    server.logs.checkpoint();
}

fn flush_by_age(chore: &mut Chore) {
    let server = &chore.server;
    for partition in server.topics.load().partitions() {
        let settings = partition.settings();
        let aged = settings.durability == Durability::PageCache && settings.flush_ms < i64::MAX;
        if aged && partition.request_sync() {
            server.flusher.request(Arc::clone(partition));
        }
    }
}

fn expire_producers(chore: &mut Chore) {
    let now = chore.server.now();
    let expiration_ms = chore.server.config().producers.expiration_ms;
    each(&chore.server, |partition| {
        partition.maintain(|log, _| {
            log.expire_producers(now, expiration_ms);
            Ok(())
        })
    });
}

fn release_idle(chore: &mut Chore) {
    each(&chore.server, |partition| {
        partition.maintain(|log, _| {
            log.release_idle_files();
            Ok(())
        })
    });
    chore.server.buffers.trim();
}
