//! Compaction: threads that look for logs worth compacting and compact them, one each at a time.
//! What is worth it and how it is done is decided in the room `storage`.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use configuration::Cleaner as Settings;
use model::{PartitionIndex, TopicId};
use parking_lot::{Condvar, Mutex};
use partition::{Partition, PartitionError, Status};
use storage::StorageError;
use storage::compaction::{Compaction, CompactionPlan};
use tracing::{debug, error, info};

use crate::server::Server;
use crate::vital;

/// The least share of a thread's buffer that is filled: with none nothing could be compacted.
const LOAD_FACTOR_MIN: f64 = 0.1;

/// The threads, and how to end them.
pub struct Cleaner {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Told when the broker stops.
    changed: Condvar,
    /// The threads by their number. The first adds those that are missing when
    /// `log.cleaner.threads` is raised; those above a lowered number end by themselves.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    stopping: bool,
    /// Logs that a thread works on.
    busy: HashSet<(TopicId, PartitionIndex)>,
}

impl Cleaner {
    /// Starts `log.cleaner.threads` threads, or none if `log.cleaner.enable` is false.
    pub fn start(server: &Arc<Server>) -> std::io::Result<Cleaner> {
        let settings = server.config().log.cleaner.clone();
        let shared = Arc::new(Shared::default());
        if settings.enabled {
            shared.start_threads(&Arc::downgrade(server), settings.threads)?;
        }
        Ok(Cleaner { shared })
    }

    /// Ends the threads; a compaction under way is given up, nothing of it stays.
    pub fn stop(&mut self) {
        self.shared.state.lock().stopping = true;
        self.shared.changed.notify_all();
        let threads = std::mem::take(&mut *self.shared.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                error!("a cleaner thread had panicked");
            }
        }
    }
}

impl Shared {
    /// Starts threads until there are `count`.
    fn start_threads(
        self: &Arc<Shared>,
        server: &Weak<Server>,
        count: usize,
    ) -> std::io::Result<()> {
        let mut threads = self.threads.lock();
        if self.state.lock().stopping {
            return Ok(());
        }
        for number in 0..count {
            if threads.get(number).is_some_and(|thread| !thread.is_finished()) {
                continue;
            }
            let (shared, server) = (Arc::clone(self), Weak::clone(server));
            let thread = std::thread::Builder::new()
                .name(format!("cleaner-{number}"))
                .stack_size(512 * 1024)
                .spawn(move || vital::thread("cleaner", || shared.run(&server, number)))?;
            match threads.get_mut(number) {
                Some(ended) => *ended = thread,
                None => threads.push(thread),
            }
        }
        Ok(())
    }

    /// Whether the thread of this number goes on; the first also starts those that are missing.
    fn is_wanted(self: &Arc<Shared>, server: &Weak<Server>, number: usize) -> bool {
        let Some(wanted) = server.upgrade().map(|server| server.config().log.cleaner.threads)
        else {
            return false;
        };
        if number == 0
            && let Err(error) = self.start_threads(server, wanted)
        {
            error!(%error, "cannot start more cleaner threads");
        }
        number == 0 || number < wanted
    }

    fn run(self: &Arc<Shared>, server: &Weak<Server>, number: usize) {
        while self.is_wanted(server, number) {
            let Some(backoff) = self.round(server) else { return };
            let mut state = self.state.lock();
            if !state.stopping {
                self.changed.wait_for(&mut state, backoff);
            }
            if state.stopping {
                return;
            }
        }
    }

    /// Looks at every log once. Returns how long to rest; `None` when the broker is gone.
    fn round(&self, server: &Weak<Server>) -> Option<Duration> {
        let server = server.upgrade()?;
        let settings = server.config().log.cleaner.clone();
        let topics = server.topics.snapshot();
        let compacted = topics
            .iter()
            .filter(|topic| topic.settings().is_some_and(|settings| settings.log.cleanup.compact));
        for partition in compacted.flat_map(|topic| topic.partitions.iter().flatten()) {
            if !server.logs.is_uncleanable(partition) && self.claim(partition) {
                self.clean(&server, partition, &settings);
                self.state.lock().busy.remove(&key_of(partition));
            }
        }
        Some(Duration::from_millis(settings.backoff_ms.max(1)))
    }

    fn claim(&self, partition: &Partition) -> bool {
        let key = key_of(partition);
        let mut state = self.state.lock();
        !state.stopping && state.busy.insert(key)
    }

    fn clean(&self, server: &Server, partition: &Arc<Partition>, settings: &Settings) {
        let result = self.compact(server, partition, settings);
        server.tell_unreadable(partition);
        let Err(PartitionError::Storage(cause)) = result else { return };
        if let StorageError::Damaged(_) = cause {
            error!(partition = %partition.topic_partition(), %cause, "not compacted any more");
            server.logs.note_uncleanable(partition);
        }
        server.log_failed(partition, &cause);
    }

    fn compact(
        &self,
        server: &Server,
        partition: &Arc<Partition>,
        settings: &Settings,
    ) -> Result<(), PartitionError> {
        let now = server.expiry_now();
        let Some(plan) = partition.plan_compaction(now)? else { return Ok(()) };
        let compaction = match self.work(partition, &plan, settings) {
            Err(PartitionError::Storage(cause))
                if is_of_files_that_go(partition, &plan, &cause) =>
            {
                debug!(partition = %partition.topic_partition(), %cause, "segments were deleted while they were compacted");
                return Ok(());
            }
            made => made?,
        };
        let Some(compaction) = compaction else { return Ok(()) };
        let (tally, replaced) = (compaction.tally, compaction.replaces());
        let finish = || partition.finish_compaction(compaction);
        let done = server.logs.swap(partition, replaced, finish)?;
        info!(
            partition = %partition.topic_partition(),
            records_read = tally.records_read,
            records_kept = tally.records_kept,
            freed_bytes = done.freed_bytes,
            "compacted"
        );
        let delay_ms = partition.settings().log.file_delete_delay_ms;
        done.deleted.into_iter().for_each(|segment| server.logs.trash.add(segment, delay_ms));
        Ok(())
    }

    fn work(
        &self,
        partition: &Partition,
        plan: &CompactionPlan,
        settings: &Settings,
    ) -> Result<Option<Compaction>, PartitionError> {
        let threads = settings.threads.max(1) as u64;
        let share = settings.buffer_load_factor.clamp(LOAD_FACTOR_MIN, 1.0);
        let memory = (settings.dedupe_buffer_bytes / threads) as f64 * share;
        let began = Instant::now();
        let (mut done, limit) = (0u64, settings.io_bytes_per_s_max);
        let mut pace = |bytes: u64| {
            done += bytes;
            let due = Duration::try_from_secs_f64(done as f64 / limit).unwrap_or(Duration::ZERO);
            let ahead = due.saturating_sub(began.elapsed());
            self.rest(ahead) && partition.status() != Status::Deleted
        };
        let hash_key = [fastrand::u64(..), fastrand::u64(..)];
        Ok(plan.run(memory as usize, hash_key, &mut pace)?)
    }

    /// Rests for a while; false when the broker stops.
    fn rest(&self, ahead: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.stopping && !ahead.is_zero() {
            self.changed.wait_for(&mut state, ahead);
        }
        !state.stopping
    }
}

/// Whether a compaction failed because its segments were deleted meanwhile: their files are cut piece by piece then, also under
/// those who read them.
fn is_of_files_that_go(partition: &Partition, plan: &CompactionPlan, cause: &StorageError) -> bool {
    let ends_early = match cause {
        StorageError::Damaged(_) => true,
        StorageError::Io { source, .. } => source.kind() == ErrorKind::UnexpectedEof,
        _ => false,
    };
    ends_early
        && (partition.status() == Status::Deleted || !partition.with_log(|log| log.still_has(plan)))
}

/// By id: a topic made again under the name of one that cannot be read is another one.
fn key_of(partition: &Partition) -> (TopicId, PartitionIndex) {
    (partition.topic_id(), partition.topic_partition().partition)
}
