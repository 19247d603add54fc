//! Opening partitions: finding their directories, opening their logs, several at once, and entering
//! into the journals what was found, with one sync a directory before any of them serves.

use std::collections::HashSet;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use model::{Durability, LeaderEpoch, Offset, Timestamp, TopicId, TopicPartition};
use parking_lot::Mutex;
use partition::Partition;
use storage::disk::{progress, reserve};
use storage::journal::{Entry, Fact, Key, Opened as OpenedFact, PartitionState, Refused, State};
use storage::log_dir::stray_name;
use storage::{Log, LogConfig, Opening, Recovery, StorageError};
use tracing::{error, info, warn};

use super::deleting::Names;
use super::directory::Directory;
use super::strays::Stray;
use super::{Home, Logs, Opened, Unopened, random_id};

/// How long logs that are to be opened wait for descriptors while none of them can be opened.
const DESCRIPTORS_PATIENCE: Duration = Duration::from_secs(10);
/// How often it looks.
const DESCRIPTORS_LOOK: Duration = Duration::from_millis(20);

/// How long logs that are opened together wait for descriptors: from the last one on that was opened. A thousand that wait each for its own
/// time would hold up everything else for an hour.
struct Patience {
    max: Duration,
    until: Mutex<Instant>,
}

impl Patience {
    fn of(max: Duration) -> Patience {
        Patience { max, until: Mutex::new(Instant::now() + max) }
    }

    fn is_left(&self) -> bool {
        Instant::now() < *self.until.lock()
    }

    /// A log was opened: descriptors come free.
    fn renew(&self) {
        *self.until.lock() = Instant::now() + self.max;
    }
}

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
    let counted = progress::counted();
    let take = || left.lock().next();
    let run = || {
        let _counting = progress::count(counted.clone());
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
        self.open_within(DESCRIPTORS_PATIENCE, wanted, image_index, threads, now)
    }

    /// As [`Logs::open`], for partitions that could not be opened: none of them waits for a descriptor, they are tried again anyway.
    pub fn open_again(
        &self,
        wanted: &[Wanted],
        image_index: u64,
        threads: usize,
        now: Timestamp,
    ) -> Vec<Result<Opened, StorageError>> {
        self.open_within(Duration::ZERO, wanted, image_index, threads, now)
    }

    /// `patience`: how long a log waits for descriptors.
    fn open_within(
        &self,
        patience: Duration,
        wanted: &[Wanted],
        image_index: u64,
        threads: usize,
        now: Timestamp,
    ) -> Vec<Result<Opened, StorageError>> {
        let patience = Patience::of(patience);
        let mut counts = self.partition_counts();
        let places = {
            let mut names = self.names.lock();
            wanted.iter().map(|wanted| self.place(wanted, &mut counts, &mut names)).collect()
        };
        let mut attempts = self.open_logs(wanted, places, threads, |wanted, place| {
            self.open_when_possible(wanted, place, now, &patience)
        });
        self.enter(wanted, &mut attempts, image_index);
        // From here on the journals say whose the folders are.
        self.names.lock().taken.clear();
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
        let stays = !is_tried_again(cause);
        let unopened = Unopened { topic_id, reason: cause.to_string(), stays };
        let before = self.unopened.lock().insert(name, unopened);
        if stays && before.as_ref().is_none_or(|before| !before.stays) {
            self.failures.send_modify(|count| *count += 1);
        }
        before.is_none()
    }

    /// Partitions that could not be opened for lack of room or descriptors, and may be by now: their directory has room, or any if none
    /// has them yet.
    pub fn to_be_opened_again(&self) -> Vec<Key> {
        let has_room = |directory: &Directory| !directory.is_offline() && !directory.room.is_full();
        let mut waiting: Vec<Key> = {
            let unopened = self.unopened.lock();
            let waiting = unopened.iter().filter(|(_, unopened)| !unopened.stays);
            let key = |(name, unopened): (&TopicPartition, &Unopened)| Key {
                topic_id: unopened.topic_id,
                partition: name.partition,
            };
            waiting.map(key).collect()
        };
        waiting.retain(|key| match self.known_live(key) {
            Some((at, _)) => has_room(&self.directories[at]),
            None => self.directories.iter().any(has_room),
        });
        waiting
    }

    /// Refuses a partition, from now on and over any number of starts, whose files turned out to be
    /// damaged when more of them was read than at its opening.
    pub fn refuse(&self, partition: &Partition, cause: &StorageError) {
        self.refuse_soon(partition, cause);
        self.enter_refusals();
    }

    /// As [`Logs::refuse`], without a wait for a disk: [`Logs::sync_journal`] writes the refusal within a second. For faults that the
    /// next start detects again if the process ends before that.
    pub fn refuse_soon(&self, partition: &Partition, cause: &StorageError) {
        let name = partition.topic_partition();
        let key = super::key_of(partition);
        let home = self.homes.lock().get(&key).map(|home| home.directory);
        let (Some(at), Some(refused)) = (home, refusal(cause)) else { return };
        partition.fail();
        if !self.note_unopened(name.clone(), key.topic_id, cause) {
            return;
        }
        tell_refusal(name, cause);
        self.unentered.lock().push((at, key, refused));
    }

    /// Enters refusals that no journal has yet. What finds no room is tried again.
    fn enter_refusals(&self) {
        (0..self.directories.len()).for_each(|at| self.enter_refusals_in(at));
    }

    /// As [`Logs::enter_refusals`], of the partitions in one directory.
    pub(super) fn enter_refusals_in(&self, directory: usize) {
        let mut unentered = self.unentered.lock().clone();
        unentered.retain(|(at, ..)| *at == directory);
        for (at, key, refused) in unentered {
            let directory = &self.directories[at];
            let is_it = |unentered: &(usize, Key, Refused)| (unentered.0, unentered.1) == (at, key);
            let entered = directory.journal().and_then(|journal| {
                journal.commit_with(|state| {
                    // A partition that is deleted meanwhile, and made again, is another one.
                    let is_wanted = self.unentered.lock().iter().any(is_it);
                    let known = state.partitions.get(&key).filter(|_| is_wanted);
                    let is_served = |known: &&Arc<PartitionState>| {
                        known.refused.is_none() && known.deleted.is_none()
                    };
                    let entry = Entry::Of(key, Fact::Refused(refused));
                    known.filter(is_served).map(|_| entry).into_iter().collect()
                })
            });
            match &entered {
                // What was told of it before found nothing that could be put aside.
                Ok(()) => self.failures.send_modify(|count| *count += 1),
                Err(cause) => self.journal_failed(at, cause),
            }
            if entered.is_ok() || directory.is_offline() {
                self.unentered.lock().retain(|unentered| !is_it(unentered));
            }
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
        let is_it = |other: &Directory| std::ptr::eq(other, directory);
        let at = self.directories.iter().position(is_it).expect("the directory is one of them");
        if self.disk.exists(&directory.dir.partition_dir(name)) {
            self.rename_durably(at, &name.to_string(), &aside)?;
            self.strays.lock().push(Stray { path: path.clone(), reason });
        }
        let forgotten = directory.journal()?.commit(&[Entry::Of(*key, Fact::Forgotten)]);
        forgotten.inspect_err(|cause| self.journal_failed(at, cause))?;
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
    fn place(
        &self,
        wanted: &Wanted,
        counts: &mut [usize],
        names: &mut Names,
    ) -> Result<Place, StorageError> {
        let key = wanted.key();
        if self.is_undeleted(&key) {
            // It was deleted and is wanted again: what was deleted is not what is wanted.
            let causes = self.delete_again(names);
            if let Some((at, _)) = self.known_live(&key)
                && self.is_undeleted(&key)
            {
                return Err(self.still_named(at, causes));
            }
        }
        if let Some((at, known)) = self.known_live(&key) {
            let directory = &self.directories[at];
            directory.journal()?;
            let dir = directory.dir.partition_dir(&wanted.name);
            if let Some(refused) = &known.refused {
                let reason = refused.reason.to_string();
                return Err(StorageError::Refused { dir, reason });
            }
            return Ok(Place { directory: at, known: Some(known) });
        }
        if self.wanted_at_start.lock().contains(&key) {
            let mut directories = self.directories.iter();
            let unknown = directories.find(|directory| directory.is_offline());
            let dir = unknown.map_or_else(PathBuf::new, |directory| directory.path().to_owned());
            let reason = "the partition may be in this log directory, which could not be opened or is missing";
            return Err(StorageError::Refused { dir, reason: reason.to_owned() });
        }
        let directory = self.make_room(&wanted.name, counts, names)?;
        counts[directory] += 1;
        names.taken.insert((directory, wanted.name.clone()));
        // What of an earlier one could not be renamed in another directory is left to the next start.
        self.not_undeleted(&key);
        Ok(Place { directory, known: None })
    }

    /// The directory that has a partition, and what it knows of it.
    fn known_live(&self, key: &Key) -> Option<(usize, Arc<PartitionState>)> {
        let mut directories = self.directories.iter().enumerate();
        directories.find_map(|(at, directory)| Some((at, directory.partition(key)?)))
    }

    /// Why the folder of a deleted partition still has its name in this directory, of what went wrong when that was tried.
    fn still_named(&self, at: usize, causes: Vec<(usize, StorageError)>) -> StorageError {
        let here = causes.into_iter().find(|(directory, _)| *directory == at);
        here.map(|(_, cause)| cause).unwrap_or_else(|| StorageError::Failed {
            dir: self.directories[at].path().to_owned(),
            reason: "a deleted partition could not be put out of the way".to_owned(),
        })
    }

    /// The emptiest directory, of those with room if there are any, in which nothing has the partition's name any more.
    fn make_room(
        &self,
        name: &TopicPartition,
        counts: &[usize],
        names: &mut Names,
    ) -> Result<usize, StorageError> {
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
        let causes = self.delete_again(names);
        let is_free = !self.disk.exists(&directory.dir.partition_dir(name));
        if is_free || self.finish_deletion(names, chosen, name)? {
            return Ok(chosen);
        }
        let owner = directory.journal()?.with_state(|state| {
            let mut live = state.partitions.iter().filter(|(_, known)| known.deleted.is_none());
            live.find(|(key, known)| State::name(**key, known) == *name).map(|(key, _)| *key)
        });
        if owner.is_some_and(|owner| self.is_undeleted(&owner)) {
            // It goes when its deletion can be entered. As a stray it would stay for ever.
            return Err(self.still_named(chosen, causes));
        }
        if owner.is_none() && directory.dir.is_without_records(name)? {
            // A crash interrupted its making: nothing was served from it.
            return Ok(chosen);
        }
        let aside = stray_name(&name.to_string(), random_id());
        warn!(partition = %name, folder = aside, "put aside a folder whose name a new partition needs; its deletion was not requested");
        directory.rename(&name.to_string(), &aside)?;
        self.sync_names_in_time(chosen)?;
        if let Some(owner) = owner {
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
        open: impl Fn(&Wanted, &Place) -> Result<Log, StorageError> + Sync,
    ) -> Vec<Attempt> {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = threads.max(cores * OPENING_A_CORE);
        let work: Vec<(&Wanted, Result<Place, StorageError>)> = wanted.iter().zip(places).collect();
        side_by_side(work, threads, |(wanted, place)| self.try_open(wanted, place, &open))
    }

    fn try_open(
        &self,
        wanted: &Wanted,
        place: Result<Place, StorageError>,
        open: impl Fn(&Wanted, &Place) -> Result<Log, StorageError>,
    ) -> Attempt {
        match place {
            Err(cause) => (None, Err(cause)),
            Ok(place) => {
                let log = isolated(|| open(wanted, &place)).unwrap_or_else(|panicked| {
                    let dir = self.directories[place.directory].dir.partition_dir(&wanted.name);
                    Err(StorageError::Failed { dir, reason: panicked.to_string() })
                });
                (Some(place), log)
            }
        }
    }

    /// Opens a log, and waits for descriptors if there is none, as far as `patience` goes: chores close idle files.
    fn open_when_possible(
        &self,
        wanted: &Wanted,
        place: &Place,
        now: Timestamp,
        patience: &Patience,
    ) -> Result<Log, StorageError> {
        loop {
            let may_wait = patience.is_left();
            let open = || self.open_log(wanted, place, now);
            match if may_wait { open() } else { reserve::at_once(open) } {
                Err(cause) if cause.lacks_resources() && may_wait => {
                    std::thread::sleep(DESCRIPTORS_LOOK);
                }
                Ok(mut log) => {
                    patience.renew();
                    if reserve::is_half_used() {
                        // Its files are opened again when they are needed: a request that makes very many
                        // partitions must not use all descriptors up.
                        log.release_files();
                    }
                    return Ok(log);
                }
                Err(cause) => return Err(cause),
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

    /// Enters what was opened, made and refused: one sync a directory. What cannot be entered is not served.
    fn enter(&self, wanted: &[Wanted], attempts: &mut [Attempt], image_index: u64) {
        for (at, directory) in self.directories.iter().enumerate() {
            let here = Here::of(at, directory, wanted, attempts, image_index);
            let entered = here.enter_in(directory);
            match &entered {
                Ok(()) => here.again.iter().for_each(|key| self.hasten_removal(key)),
                // What found no room has changed nothing.
                Err(cause) => self.journal_failed(at, cause),
            }
            if let Some(cause) = &here.failed_write {
                self.fail_directory(at, cause);
            }
            let is_offline = directory.is_offline();
            if entered.is_err() && !is_offline {
                let refused = here.refused.into_iter().map(|(key, refused)| (at, key, refused));
                self.unentered.lock().extend(refused);
            }
            for (number, (place, log)) in attempts.iter_mut().enumerate() {
                let is_here = place.as_ref().is_some_and(|place| place.directory == at);
                let is_left_out = entered.is_err() && here.with_facts.contains(&number);
                if !is_here || log.is_err() || !(is_offline || is_left_out) {
                    continue;
                }
                let why = entered.as_ref().err().map(|cause| same_cause(cause, directory.path()));
                if let Some(cause) = why.or(directory.journal().err()) {
                    *log = Err(cause);
                }
            }
        }
    }
}

/// What is to be entered into one directory's journal after logs were opened.
#[derive(Default)]
struct Here {
    entries: Vec<Entry>,
    /// The attempts that something is entered about, by their numbers.
    with_facts: HashSet<usize>,
    /// Whether a folder was made.
    made: bool,
    /// Partitions that were deleted here and are made again.
    again: Vec<Key>,
    refused: Vec<(Key, Refused)>,
    /// Why the directory is not to be trusted any more, if a write or a sync failed.
    failed_write: Option<String>,
}

impl Here {
    fn of(
        at: usize,
        directory: &Directory,
        wanted: &[Wanted],
        attempts: &[Attempt],
        image_index: u64,
    ) -> Here {
        let mut here = Here::default();
        for (number, (wanted, (place, log))) in wanted.iter().zip(attempts).enumerate() {
            let Some(place) = place.as_ref().filter(|place| place.directory == at) else {
                continue;
            };
            let (key, is_new) = (wanted.key(), place.known.is_none() && log.is_ok());
            here.made |= is_new;
            if is_new && directory.entered(&key).is_some() {
                // A replica that was deleted here comes back: nothing of what was known then holds.
                here.entries.push(Entry::Of(key, Fact::Forgotten));
                here.again.push(key);
            }
            for fact in facts_of(wanted, place, log, image_index) {
                if let Fact::Refused(refused) = &fact {
                    here.refused.push((key, refused.clone()));
                }
                here.with_facts.insert(number);
                here.entries.push(Entry::Of(key, fact));
            }
            let failed_write = log.as_ref().err().filter(|cause| cause.is_failed_write());
            here.failed_write =
                here.failed_write.or_else(|| failed_write.map(StorageError::to_string));
        }
        here
    }

    fn enter_in(&self, directory: &Directory) -> Result<(), StorageError> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let journal = directory.journal()?;
        if self.made {
            // A folder that the journal knows and that is not there counts as lost.
            directory.sync_names()?;
        }
        journal.commit(&self.entries)
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
            let fact = match cause.is_failed_write() {
                // What that was to make durable is not believed at the next opening.
                true => Some(Fact::SyncFailed(cause.to_string().into())),
                false => refusal(cause).map(Fact::Refused),
            };
            return fact.filter(|_| place.known.is_some()).into_iter().collect();
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

/// Whether a log that could not be opened may be opened later in this process, without a hand: it lacked room, or a descriptor. Any other
/// failure may have lost what the next opening would believe (S9).
pub(crate) fn is_tried_again(cause: &StorageError) -> bool {
    cause.is_full() || cause.lacks_resources()
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
