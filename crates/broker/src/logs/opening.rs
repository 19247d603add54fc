//! Opening partitions: finding their directories, opening their logs, several at once, and entering
//! into the journals what was found, with one sync a directory before any of them serves.

use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use model::{Durability, LeaderEpoch, Offset, Timestamp, TopicId, TopicPartition};
use parking_lot::Mutex;
use partition::Partition;
use storage::disk::reserve;
use storage::journal::{Entry, Fact, Key, Opened as OpenedFact, PartitionState, Refused, State};
use storage::log_dir::stray_name;
use storage::{Log, LogConfig, Opening, Recovery, StorageError};
use tracing::{error, info, warn};

use super::directory::Directory;
use super::strays::Stray;
use super::{Home, Logs, Opened, Unopened, random_id};

/// How long a log that is to be opened waits for a descriptor.
const DESCRIPTORS_PATIENCE: Duration = Duration::from_secs(10);
/// How often it looks.
const DESCRIPTORS_LOOK: Duration = Duration::from_millis(20);

/// Logs that are opened at once for each core, at least: after a crash most of the time is spent in waiting for the device.
const OPENING_A_CORE: usize = 2;

/// Does all of the work on so many threads, each of which takes some when it has done what it had: a few logs may be much
/// larger than the others, and next to each other. What came of it, in the order of the work.
fn side_by_side<W: Send, T: Send>(
    work: Vec<W>,
    threads: usize,
    each: impl Fn(W) -> T + Sync,
) -> Vec<T> {
    let threads = threads.min(work.len());
    if threads <= 1 {
        return work.into_iter().map(each).collect();
    }
    let left = Mutex::new(work.into_iter().enumerate());
    let take = || left.lock().next();
    let run = || {
        let mut done = Vec::new();
        while let Some((number, work)) = take() {
            done.push((number, each(work)));
        }
        done
    };
    let mut done: Vec<(usize, T)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Vec<(usize, T)>>| {
            thread.join().expect("opening does not panic")
        };
        threads.into_iter().flat_map(join).collect()
    });
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, done)| done).collect()
}

/// A partition that is to be opened.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its name.
    pub name: TopicPartition,
    /// Its topic's id.
    pub topic_id: TopicId,
    /// Its log's configuration.
    pub config: Arc<LogConfig>,
    /// What an acknowledged record will have gone through.
    pub durability: Durability,
    /// Its leader epoch in the metadata: no record has a larger one.
    pub epoch: LeaderEpoch,
}

impl Wanted {
    fn key(&self) -> Key {
        Key { topic_id: self.topic_id, partition: self.name.partition }
    }
}

/// Where a partition goes, and what is known of it.
struct Place {
    directory: usize,
    /// `None` for a new one.
    known: Option<Arc<PartitionState>>,
}

type Attempt = (Option<Place>, Result<Log, StorageError>);

impl Logs {
    /// Opens partitions' logs, or makes them where there are fewest. They may serve as soon as this
    /// returns: that they are here is durable. `image_index` is the metadata's that wants them;
    /// `threads` logs are opened at once, or more if there are cores for more.
    ///
    /// A log that is damaged is refused, and stays so, over any number of starts, until it is mended.
    pub fn open(
        &self,
        wanted: &[Wanted],
        image_index: u64,
        threads: usize,
        now: Timestamp,
    ) -> Vec<Result<Opened, StorageError>> {
        let mut counts = self.partition_counts();
        let places = wanted.iter().map(|wanted| self.place(wanted, &mut counts)).collect();
        let mut attempts = self.open_logs(wanted, places, threads, now);
        self.enter(wanted, &mut attempts, image_index);
        let opened = wanted.iter().zip(attempts).map(|(wanted, (place, log))| {
            let opened =
                log.map(|log| self.opened(wanted, &place.expect("a log has a place"), log));
            match &opened {
                Ok(_) => drop(self.unopened.lock().remove(&wanted.name)),
                Err(cause) => {
                    self.note_unopened(wanted.name.clone(), wanted.topic_id, cause);
                }
            }
            opened
        });
        opened.collect()
    }

    /// Notes that a partition cannot be opened; says whether that is news.
    fn note_unopened(&self, name: TopicPartition, topic_id: TopicId, cause: &StorageError) -> bool {
        // What lacks a descriptor, or room, is opened again later: see `to_be_opened_again`.
        let stays = refusal(cause).is_some() || matches!(cause, StorageError::Failed { .. });
        let unopened = Unopened { topic_id, reason: cause.to_string(), stays };
        let before = self.unopened.lock().insert(name, unopened);
        if stays && before.as_ref().is_none_or(|before| !before.stays) {
            self.failures.send_modify(|count| *count += 1);
        }
        before.is_none()
    }

    /// Partitions that could not be opened for lack of room or descriptors, and may be by now; none while no directory has room.
    pub fn to_be_opened_again(&self) -> Vec<Key> {
        let has_room = |directory: &Directory| !directory.is_offline() && !directory.room.is_full();
        if !self.directories.iter().any(has_room) {
            return Vec::new();
        }
        let unopened = self.unopened.lock();
        let waiting = unopened.iter().filter(|(_, unopened)| !unopened.stays);
        let key = |(name, unopened): (&TopicPartition, &Unopened)| Key {
            topic_id: unopened.topic_id,
            partition: name.partition,
        };
        waiting.map(key).collect()
    }

    /// Refuses a partition, from now on and over any number of starts, whose files turned out to be
    /// damaged when more of them was read than at its opening.
    pub fn refuse(&self, partition: &Partition, cause: &StorageError) {
        let name = partition.topic_partition();
        let key = super::key_of(partition);
        let home = self.homes.lock().get(&key).map(|home| home.directory);
        let (Some(at), Some(refused)) = (home, refusal(cause)) else { return };
        partition.fail();
        if !self.note_unopened(name.clone(), key.topic_id, cause) {
            return;
        }
        tell_refusal(name, cause);
        let entry = [Entry::Of(key, Fact::Refused(refused))];
        if let Err(cause) =
            self.directories[at].journal().and_then(|journal| journal.commit(&entry))
        {
            self.journal_failed(at, &cause);
        }
    }

    /// Puts the folder of a partition that a journal refuses out of the way, under another name, and forgets it: it is
    /// opened anew next time, empty. Returns the folder, which is kept until a person removes it; `None` if no
    /// directory that can be used refuses the partition.
    ///
    /// A crash in between leaves a partition without a folder, which is refused and put out of the way again.
    pub fn set_aside(
        &self,
        key: &Key,
        name: &TopicPartition,
    ) -> Result<Option<PathBuf>, StorageError> {
        let Some(directory) = self.refusing(key) else { return Ok(None) };
        let reason = "put aside: it could not be opened, and was copied anew from another broker";
        let path = self.put_aside(directory, key, name, reason)?;
        self.unopened.lock().remove(name);
        self.uncleanable.lock().remove(key);
        // It was here, and in no directory that could not be opened.
        self.wanted_at_start.lock().remove(key);
        Ok(Some(path))
    }

    /// Puts the folder that a directory has of a partition out of the way, under another name, and forgets it. Returns the
    /// folder. A crash in between leaves a partition without a folder.
    pub(super) fn put_aside(
        &self,
        directory: &Directory,
        key: &Key,
        name: &TopicPartition,
        reason: &'static str,
    ) -> Result<PathBuf, StorageError> {
        let aside = stray_name(&name.to_string(), random_id());
        let path = directory.path().join(&aside);
        if self.disk.exists(&directory.dir.partition_dir(name)) {
            directory.dir.rename(&name.to_string(), &aside)?;
            directory.dir.sync_names()?;
            self.strays.lock().push(Stray { path: path.clone(), reason });
        }
        directory.journal()?.commit(&[Entry::Of(*key, Fact::Forgotten)])?;
        Ok(path)
    }

    /// Whether a directory that can be used refuses a partition.
    pub fn refuses(&self, key: &Key) -> bool {
        self.refusing(key).is_some()
    }

    fn refusing(&self, key: &Key) -> Option<&Directory> {
        let is_refused = |known: Arc<PartitionState>| known.refused.is_some();
        let mut online = self.directories.iter().filter(|directory| !directory.is_offline());
        online.find(|it| it.partition(key).is_some_and(is_refused))
    }

    fn opened(&self, wanted: &Wanted, place: &Place, log: Log) -> Opened {
        if let Some(recovery) = log.recovery() {
            tell_recovery(&wanted.name, &log, recovery);
        }
        let home = Home { directory: place.directory, partition: Weak::new() };
        self.homes.lock().insert(wanted.key(), home);
        let checkpoint = place.known.as_ref().and_then(|known| known.checkpoint);
        let high_watermark = checkpoint.map_or(Offset(0), |last| last.high_watermark);
        let sync_queue = Arc::clone(self.directories[place.directory].sync_queue());
        Opened { log, high_watermark, sync_queue }
    }

    fn partition_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.directories.len()];
        self.homes.lock().values().for_each(|home| counts[home.directory] += 1);
        counts
    }

    /// Finds the directory of a partition: by its topic's id, never by its name alone.
    fn place(&self, wanted: &Wanted, counts: &mut [usize]) -> Result<Place, StorageError> {
        let key = wanted.key();
        for (at, directory) in self.directories.iter().enumerate() {
            let Some(known) = directory.partition(&key) else { continue };
            directory.journal()?;
            let dir = directory.dir.partition_dir(&wanted.name);
            if let Some(refused) = &known.refused {
                let reason = refused.reason.to_string();
                return Err(StorageError::Refused { dir, reason });
            }
            return Ok(Place { directory: at, known: Some(known) });
        }
        if self.wanted_at_start.lock().contains(&key) {
            let unknown = self.directories.iter().find(|directory| directory.is_unknown());
            let dir = unknown.map_or_else(PathBuf::new, |directory| directory.path().to_owned());
            let reason = "the partition may be in this log directory, which could not be opened";
            return Err(StorageError::Refused { dir, reason: reason.to_owned() });
        }
        let directory = self.make_room(&wanted.name, counts)?;
        counts[directory] += 1;
        Ok(Place { directory, known: None })
    }

    /// The emptiest directory, of those with room if there are any, in which nothing has the partition's name any more.
    fn make_room(&self, name: &TopicPartition, counts: &[usize]) -> Result<usize, StorageError> {
        let online = (0..counts.len()).filter(|at| !self.directories[*at].is_offline());
        let by_room = |at: &usize| (self.directories[*at].room.is_full(), counts[*at]);
        let Some(chosen) = online.min_by_key(by_room) else {
            let dir = self.directories.first().map(|directory| directory.path().to_owned());
            let reason = "all log directories are offline".to_owned();
            return Err(StorageError::Failed { dir: dir.unwrap_or_default(), reason });
        };
        let directory = &self.directories[chosen];
        if !self.disk.exists(&directory.dir.partition_dir(name)) {
            return Ok(chosen);
        }
        // Of one that was deleted, and not put out of the way for lack of room.
        self.delete_again();
        let is_free = !self.disk.exists(&directory.dir.partition_dir(name));
        if is_free || self.finish_deletion(chosen, name)? {
            return Ok(chosen);
        }
        let owner = directory.journal()?.with_state(|state| {
            let mut live = state.partitions.iter().filter(|(_, known)| known.deleted.is_none());
            live.find(|(key, known)| State::name(**key, known) == *name).map(|(key, _)| *key)
        });
        if owner.is_none() && directory.dir.is_without_records(name)? {
            // A crash interrupted its making: nothing was served from it.
            return Ok(chosen);
        }
        let aside = stray_name(&name.to_string(), random_id());
        warn!(partition = %name, folder = aside, "put aside a folder whose name a new partition needs; its deletion was not requested");
        directory.dir.rename(&name.to_string(), &aside)?;
        directory.dir.sync_names()?;
        if let Some(owner) = owner {
            self.not_undeleted(&owner);
            directory.journal()?.append(&[Entry::Of(owner, Fact::Forgotten)])?;
        }
        let reason = "put aside: a new topic has its name";
        self.strays.lock().push(Stray { path: directory.path().join(&aside), reason });
        Ok(chosen)
    }

    fn open_logs(
        &self,
        wanted: &[Wanted],
        places: Vec<Result<Place, StorageError>>,
        threads: usize,
        now: Timestamp,
    ) -> Vec<Attempt> {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = threads.max(cores * OPENING_A_CORE);
        let work: Vec<(&Wanted, Result<Place, StorageError>)> = wanted.iter().zip(places).collect();
        side_by_side(work, threads, |(wanted, place)| self.try_open(wanted, place, now))
    }

    fn try_open(
        &self,
        wanted: &Wanted,
        place: Result<Place, StorageError>,
        now: Timestamp,
    ) -> Attempt {
        match place {
            Err(cause) => (None, Err(cause)),
            Ok(place) => {
                let log = isolated(|| self.open_when_possible(wanted, &place, now)).unwrap_or_else(
                    |panicked| {
                        let dir = self.directories[place.directory].dir.partition_dir(&wanted.name);
                        Err(StorageError::Failed { dir, reason: panicked.to_string() })
                    },
                );
                (Some(place), log)
            }
        }
    }

    /// Opens a log, and waits a while for descriptors if there is none: chores close idle files.
    fn open_when_possible(
        &self,
        wanted: &Wanted,
        place: &Place,
        now: Timestamp,
    ) -> Result<Log, StorageError> {
        let patience = Instant::now() + DESCRIPTORS_PATIENCE;
        loop {
            match self.open_log(wanted, place, now) {
                Err(cause) if cause.lacks_resources() && Instant::now() < patience => {
                    std::thread::sleep(DESCRIPTORS_LOOK);
                }
                Ok(mut log) if reserve::is_half_used() => {
                    // Its files are opened again when they are needed: a request that makes very many
                    // partitions must not use all descriptors up.
                    log.release_files();
                    return Ok(log);
                }
                result => return result,
            }
        }
    }

    fn open_log(
        &self,
        wanted: &Wanted,
        place: &Place,
        now: Timestamp,
    ) -> Result<Log, StorageError> {
        let directory = &self.directories[place.directory];
        let path = directory.dir.partition_dir(&wanted.name);
        let mut clean = false;
        let opening = match &place.known {
            None => Opening::unknown(now),
            Some(_) if !self.disk.exists(&path) => {
                let reason = "the folder is missing, and its deletion was not requested";
                return Err(StorageError::Refused { dir: path, reason: reason.to_owned() });
            }
            Some(known) => {
                clean = directory.take_closed(&wanted.key()) && known.sync_failed.is_none();
                opening(wanted, known, clean, now)
            }
        };
        let config = Arc::clone(&wanted.config);
        let mut log = Log::open(Arc::clone(&self.disk), path, config, opening)?;
        if let Some(known) = &place.known {
            check_start(&log, known)?;
        }
        // As it is entered.
        log.begin_dense();
        // Where a checkpoint was made, the copy was written with it; without records there is none.
        let had_checkpoint = place.known.as_ref().is_some_and(|known| known.checkpoint.is_some());
        let is_resumed = had_checkpoint && log.recovery().is_none();
        if !clean && !is_resumed && log.log_end_offset() > Offset(0) {
            directory.dir.copy_topic_id(&wanted.name, wanted.topic_id)?;
        }
        Ok(log)
    }

    /// Enters what was opened, made and refused: one sync a directory.
    fn enter(&self, wanted: &[Wanted], attempts: &mut [Attempt], image_index: u64) {
        for (at, directory) in self.directories.iter().enumerate() {
            let (mut entries, mut made) = (Vec::new(), false);
            for (wanted, (place, log)) in wanted.iter().zip(attempts.iter()) {
                let Some(place) = place.as_ref().filter(|place| place.directory == at) else {
                    continue;
                };
                made |= place.known.is_none() && log.is_ok();
                let facts = facts_of(wanted, place, log, image_index);
                entries.extend(facts.into_iter().map(|fact| Entry::Of(wanted.key(), fact)));
            }
            if entries.is_empty() {
                continue;
            }
            let entered = directory.journal().and_then(|journal| {
                if made {
                    // A folder that the journal knows and that is not there counts as lost.
                    directory.dir.sync_names()?;
                }
                journal.commit(&entries)
            });
            let Err(cause) = entered else { continue };
            // What found no room has changed nothing.
            self.journal_failed(at, &cause);
            for (place, log) in attempts.iter_mut() {
                if place.as_ref().is_some_and(|place| place.directory == at) && log.is_ok() {
                    *log = Err(same_cause(&cause, directory.path()));
                }
            }
        }
    }
}

/// Why the partitions of a directory are not opened, for each of them.
fn same_cause(cause: &StorageError, dir: &Path) -> StorageError {
    if let StorageError::Io { operation, path, source } = cause
        && let Some(code) = source.raw_os_error()
    {
        let source = io::Error::from_raw_os_error(code);
        return StorageError::Io { operation, path: path.clone(), source };
    }
    StorageError::Failed { dir: dir.to_owned(), reason: cause.to_string() }
}

/// Opening a log panicked.
#[derive(Debug, thiserror::Error)]
#[error("a bug: opening the log panicked; nothing else is affected")]
struct OpeningPanicked;

/// Opens one log. What is wrong with that one, be it a bug that its files brought to light, must not
/// keep the others from serving: nothing has seen the log yet.
fn isolated<T>(open: impl FnOnce() -> T) -> Result<T, OpeningPanicked> {
    catch_unwind(AssertUnwindSafe(open)).map_err(|_| OpeningPanicked)
}

/// What is known of a log that was there before.
fn opening(wanted: &Wanted, known: &PartitionState, clean: bool, now: Timestamp) -> Opening {
    let checkpoint = known.checkpoint;
    let fsync = known.opened.fsync;
    Opening {
        clean,
        recovery_point: checkpoint.map_or(Offset(0), |last| last.recovery_point),
        synced: known.synced,
        log_start_offset: known.log_start,
        cleaned_below: checkpoint.map_or(Offset(0), |last| last.cleaned_below),
        dense_from: known.opened.dense_from,
        epoch_max: Some(wanted.epoch),
        sealed: known.sealed.clone(),
        active: checkpoint.and_then(|last| last.active),
        derived: known.derived.as_deref().cloned(),
        newer_epochs: known.newer_epochs.to_vec(),
        durability: if fsync { Durability::Fsync } else { Durability::PageCache },
        after_failed_sync: known.sync_failed.is_some(),
        ..Opening::unknown(now)
    }
}

/// Segments go from the front only after the journal has the new start: one that begins later without
/// that has lost some. Of a log that was adopted the start is not known so well.
fn check_start(log: &Log, known: &PartitionState) -> Result<(), StorageError> {
    let (found, start) = (log.log_start_offset(), known.log_start);
    if found <= start || known.opened.dense_from.is_none_or(|dense| dense > start) {
        return Ok(());
    }
    let reason = format!(
        "the log starts at {found}, and the deletion of its records from {start} on was not requested"
    );
    Err(StorageError::Refused { dir: log.dir().to_owned(), reason })
}

/// What is entered about a partition after it was opened, or refused.
fn facts_of(
    wanted: &Wanted,
    place: &Place,
    log: &Result<Log, StorageError>,
    image_index: u64,
) -> Vec<Fact> {
    let log = match log {
        Ok(log) => log,
        Err(cause) => {
            let refused = refusal(cause).filter(|_| place.known.is_some());
            return refused.map(Fact::Refused).into_iter().collect();
        }
    };
    let known = place.known.as_deref();
    let mut facts = Vec::new();
    let opened = OpenedFact {
        topic: Arc::clone(&wanted.name.topic),
        // What was there before may have gaps; what this broker appends has none.
        dense_from: known
            .map_or(Some(Offset(0)), |known| known.opened.dense_from)
            .or(Some(log.log_end_offset())),
        fsync: wanted.durability == Durability::Fsync,
        image_index: known.map_or(image_index, |known| known.opened.image_index),
        mended: known.is_some_and(|known| known.opened.mended),
    };
    if known.is_none_or(|known| known.opened != opened) {
        facts.push(Fact::Opened(opened));
    }
    match known {
        None => facts.push(Fact::Sealed { complete: true, segments: Vec::new() }),
        Some(known) if known.sync_failed.is_some() => facts.push(Fact::Mended),
        Some(_) => {}
    }
    facts
}

/// Whether a failure is remembered: not that of a disk that does not answer at the moment.
fn refusal(cause: &StorageError) -> Option<Refused> {
    let reason: Arc<str> = match cause {
        StorageError::Refused { reason, .. } => reason.as_str().into(),
        StorageError::Damaged(_) | StorageError::Malformed { .. } => cause.to_string().into(),
        _ => return None,
    };
    let offset = match cause {
        StorageError::Damaged(damage) => Some(damage.offset).filter(|offset| *offset >= Offset(0)),
        _ => None,
    };
    Some(Refused { offset, reason })
}

/// Says that a partition is not served, and what can be done.
pub(crate) fn tell_refusal(name: &TopicPartition, cause: &StorageError) {
    error!(partition = %name, error = %cause, "cannot open the log; the partition is offline; with the broker stopped, `highwater log mend DIR --partition NAME` shows what would be lost by going on without what is damaged");
}

/// Says what recovery cut off. Whole batches behind the cut are usual after a power failure, for the
/// device takes sectors in any order; after the mere death of the process they are not.
fn tell_recovery(name: &TopicPartition, log: &Log, recovery: &Recovery) {
    let (end, bytes) = (log.log_end_offset(), recovery.cut_bytes);
    let (segments, whole) = (recovery.dropped_segments, recovery.cut_whole_batches);
    if let Some(damage) = &recovery.set_aside {
        warn!(partition = %name, log_end = %end, bytes, segments, ?damage, "recovery set damaged records aside; the log ends before them");
    } else if whole || segments > 0 {
        warn!(partition = %name, log_end = %end, bytes, segments, whole_batches = whole, "recovery cut more than an incomplete batch: nothing from the log end on was known to be synced; without a power failure before, check the disk");
    } else if bytes > 0 {
        info!(partition = %name, log_end = %end, bytes, "recovery cut an incomplete tail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_opening_one_log_is_an_error_of_that_one() {
        let opened: Vec<_> =
            (0..3).map(|n| isolated(|| if n == 1 { panic!("a bug") } else { n })).collect();
        assert!(matches!(opened[..], [Ok(0), Err(OpeningPanicked), Ok(2)]));
    }

    #[test]
    fn all_work_is_done_once_and_keeps_its_order() {
        for (count, threads) in [(0, 4), (1, 4), (2, 4), (100, 1), (100, 7)] {
            let done = side_by_side((0..count).collect(), threads, |number: usize| number * 3);
            assert_eq!(done, (0..count).map(|number| number * 3).collect::<Vec<_>>());
        }
    }

    /// What is large, and stands next to each other in the list, is not left to one thread.
    #[test]
    fn a_thread_that_is_held_up_leaves_the_rest_to_the_others() {
        let (told, others_done) = std::sync::mpsc::channel();
        let (told, others_done) = (Mutex::new(told), Mutex::new(others_done));
        let done = side_by_side((0..20).collect(), 2, |number: usize| {
            if number == 0 {
                let patience = Duration::from_secs(40);
                return (1..20).all(|_| others_done.lock().recv_timeout(patience).is_ok());
            }
            told.lock().send(()).is_ok()
        });
        assert_eq!(done, [true; 20]);
    }
}
