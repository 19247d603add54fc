//! Keeping the journals true while the broker runs.
//!
//! - After each sync, before those who wait are told: [`Logs::note_synced`]. One write, no sync of its own.
//! - Before DeleteRecords' answer, and before retention moves a file: [`Logs::commit_starts`] with the
//!   new log starts, all at once: one sync a directory.
//! - Around compaction's swap: [`Logs::swap`].
//! - Now and then: [`Logs::checkpoint`]; once a second: [`Logs::sync_journal`].

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use model::{BrokerEpoch, LeaderEpoch, Offset, Timestamp};
use partition::{Next, Partition, PartitionError, Status, checkpoint_together, close_together};
use storage::checkpoint::{self, Offsets};
use storage::disk::reserve;
use storage::journal::{Checkpoint, Entry, Fact, Key, PartitionState, State};
use storage::{Log, SealedSegment, StorageError};
use tracing::{error, warn};

use super::directory::Directory;
use super::flusher::Synced;
use super::{Logs, key_of};

/// Logs that are closed at once when the broker stops.
const CLOSING_THREADS: usize = 16;
/// From so many partitions of a directory on a stop, or a round of checkpoints, syncs the directory, not each:
/// fewer syncs, of which each may wait for what others wrote to the same file system.
const TOGETHER_FROM: usize = 256;

/// Partitions that are compared with the journal at a time: whoever enters something waits meanwhile.
const COMPARED_AT_ONCE: usize = 1024;

impl Logs {
    /// Remembers how far partitions of one directory are synced: below that, nothing is an incomplete tail
    /// to the start after a kill. Never waits for a disk.
    pub fn note_synced(&self, at: usize, synced: &[Synced]) {
        let directory = &self.directories[at];
        directory.note_write();
        // Held until it is entered: a cut that begins now is entered behind it.
        let cutting = self.cutting[at].lock();
        let ends: Vec<Offset> = synced
            .iter()
            .map(|(partition, synced)| {
                let now = partition.with_log(Log::synced_below).min(synced.up_to);
                cutting.get(&key_of(partition)).map_or(now, |to| now.min(*to))
            })
            .collect();
        // Looked at as it is noted: what is noted earlier is written before anything is entered of a successor.
        let noted = synced.iter().zip(&ends).filter(|((partition, _), _)| is_here(partition));
        let offsets = noted.clone().map(|((partition, _), end)| (key_of(partition), *end));
        let epochs = noted.flat_map(|((partition, synced), end)| {
            let is_there = |start: Offset| *end == synced.up_to || start < *end;
            let epochs = synced.epochs.iter().filter(move |(_, start)| is_there(*start));
            epochs.map(|(epoch, start)| (key_of(partition), *epoch, *start))
        });
        let noted = directory.journal().and_then(|journal| {
            journal.note_epochs(epochs);
            journal.note_synced(offsets)
        });
        if let Err(cause) = noted {
            self.journal_failed(at, &cause);
        }
    }

    /// Makes durable that these logs start at these offsets: one sync a directory, however many logs.
    /// Returns the partitions of which it is not, and reports why.
    pub fn commit_starts(&self, starts: &[(Arc<Partition>, Offset)]) -> Vec<Arc<Partition>> {
        let mut failed = Vec::new();
        let offsets: BTreeMap<Key, Offset> =
            starts.iter().map(|(partition, start)| (key_of(partition), *start)).collect();
        for (at, here) in self.by_directory(starts.iter().map(|(partition, _)| partition)) {
            let entry = |partition: &&Arc<Partition>| {
                let key = key_of(partition);
                Entry::Of(key, Fact::Start(offsets[&key]))
            };
            let directory = &self.directories[at];
            let committed = directory.journal().and_then(|journal| {
                let current = || here.iter().filter(|partition| is_here(partition));
                journal.commit_with(|_| current().map(entry).collect())
            });
            match committed {
                Ok(_) => here.iter().for_each(|partition| {
                    partition.log_start_synced(offsets[&key_of(partition)]);
                }),
                Err(cause) => {
                    error!(directory = %directory.path().display(), %cause, "cannot make log starts durable; retried every second");
                    failed.extend(here.into_iter().map(Arc::clone));
                }
            }
        }
        self.owed_starts.lock().extend(failed.iter().map(Arc::downgrade));
        failed
    }

    /// Makes log starts durable that the journal of this directory had no room for.
    fn commit_owed_starts(&self, directory: usize) {
        let owed = std::mem::take(&mut *self.owed_starts.lock());
        let owed = owed.iter().filter_map(Weak::upgrade);
        let is_here = |it: &Arc<Partition>| self.directory_number(it).unwrap_or(0) == directory;
        let (here, elsewhere): (Vec<_>, Vec<_>) = owed.partition(is_here);
        self.owed_starts.lock().extend(elsewhere.iter().map(Arc::downgrade));
        let starts: Vec<_> = here
            .into_iter()
            .filter_map(|it| it.unsynced_log_start().map(|start| (it, start)))
            .collect();
        if !starts.is_empty() {
            self.commit_starts(&starts);
        }
    }

    /// Cuts a follower's log at this offset, where its leader's parts from it, if that is still to be done. It is in the
    /// journal before, or a start after a crash in between would take what is gone for lost. A batch that reaches over the
    /// offset goes as a whole: below what the journal was told the log's own bound holds (`storage::ceiling`).
    pub fn cut(&self, partition: &Partition, to: Offset) -> Result<(), PartitionError> {
        if partition.next() != Next::Cut(to) {
            return Ok(());
        }
        self.while_cutting(partition, to, || {
            self.commit_facts(partition, [Fact::Truncated(to)])?;
            partition.cut(to).map(drop)
        })
    }

    /// Drops everything in a follower's log, which resumes at this offset, its end or behind it. The journal has both facts
    /// before the first file goes: a start after a crash in between finishes the emptying.
    pub fn start_over(
        &self,
        partition: &Partition,
        epoch: LeaderEpoch,
        start: Offset,
    ) -> Result<(), PartitionError> {
        let Next::Ask(from) = partition.next() else { return Ok(()) };
        if from.leader_epoch != epoch || from.offset > start {
            return Ok(());
        }
        let first = partition.with_log(Log::log_start_offset);
        self.while_cutting(partition, first, || {
            let facts = [Fact::Truncated(first), Fact::Start(start)];
            partition.start_over(epoch, start, || self.commit_facts(partition, facts)).map(drop)
        })
    }

    /// A follower's log may have gaps from now on: its leader's has. It is in the journal before, or the next start would take
    /// what is missing for lost.
    pub fn allow_gaps(&self, partition: &Partition) -> Result<(), PartitionError> {
        self.commit_facts(partition, [Fact::Swapped(Vec::new())])?;
        partition.allow_gaps()
    }

    /// Cuts a log to this end. Of a round of syncs that began before, and ends meanwhile or afterwards, nothing is noted
    /// that is beyond it.
    fn while_cutting(
        &self,
        partition: &Partition,
        to: Offset,
        cut: impl FnOnce() -> Result<(), PartitionError>,
    ) -> Result<(), PartitionError> {
        let key = key_of(partition);
        let home = self.homes.lock().get(&key).map(|home| home.directory);
        let cutting = &self.cutting[home.ok_or(PartitionError::Deleted)?];
        cutting.lock().insert(key, to);
        let made = cut();
        cutting.lock().remove(&key);
        made
    }

    fn commit_facts<const N: usize>(
        &self,
        partition: &Partition,
        facts: [Fact; N],
    ) -> Result<(), PartitionError> {
        let key = key_of(partition);
        let home = self.homes.lock().get(&key).map(|home| home.directory);
        let directory = &self.directories[home.ok_or(PartitionError::Deleted)?];
        let mut is_current = false;
        directory.journal()?.commit_with(|_| {
            is_current = is_here(partition);
            let facts = is_current.then_some(facts).into_iter().flatten();
            facts.map(|fact| Entry::Of(key, fact)).collect()
        })?;
        if is_current { Ok(()) } else { Err(PartitionError::Deleted) }
    }

    /// Runs `finish`, which puts a compacted log in the place of the segments with the bases
    /// `replaced`. Meanwhile the journal knows nothing of them, durably; then of what took their place.
    pub fn swap<T>(
        &self,
        partition: &Partition,
        replaced: Vec<Offset>,
        finish: impl FnOnce() -> Result<T, PartitionError>,
    ) -> Result<T, PartitionError> {
        let home = self.homes.lock().get(&key_of(partition)).map(|home| home.directory);
        let at = home.ok_or(PartitionError::Deleted)?;
        let directory = &self.directories[at];
        let _still = directory.checkpointing.lock();
        self.commit_facts(partition, [Fact::Compacted(replaced)])?;
        let done = finish();
        let is_over = matches!(done, Err(PartitionError::Offline | PartitionError::Deleted));
        if is_over || done.is_err() && partition.with_log(|log| log.failure().is_some()) {
            return done;
        }
        // Found without room, say, the old ones are still there.
        let segments = partition.with_log(Log::sealed_segments);
        let sealed = Entry::Of(key_of(partition), Fact::Sealed { complete: true, segments });
        let appended = directory.journal().and_then(|journal| {
            journal.append_with(|_| is_here(partition).then_some(sealed).into_iter().collect())
        });
        if let Err(cause) = appended {
            // The next checkpoint enters what is there.
            self.journal_failed(at, &cause);
        }
        done
    }

    fn by_directory<'a>(
        &self,
        partitions: impl IntoIterator<Item = &'a Arc<Partition>>,
    ) -> BTreeMap<usize, Vec<&'a Arc<Partition>>> {
        let homes = self.homes.lock();
        let mut by_directory: BTreeMap<usize, Vec<&Arc<Partition>>> = BTreeMap::new();
        for partition in partitions {
            if let Some(home) = homes.get(&key_of(partition)) {
                by_directory.entry(home.directory).or_default().push(partition);
            }
        }
        by_directory
    }

    /// As [`Logs::sync_journal`], for all directories.
    #[cfg(test)]
    pub fn sync_journals(&self) {
        (0..self.directories.len()).for_each(|at| self.sync_journal(at));
    }

    /// Makes the newest entries of the journal of one directory durable, and keeps the journal short. Waits for this directory
    /// and for no other one.
    pub fn sync_journal(&self, at: usize) {
        self.enter_durabilities(at);
        self.enter_refusals_in(at);
        self.commit_owed_starts(at);
        self.enter_committed(at);
        let Ok(journal) = self.directories[at].journal() else { return };
        if let Err(cause) = journal.maintain() {
            self.journal_failed(at, &cause);
        }
    }

    /// Enters the highest committed offsets that replicas have known: no follower truncates below its own, also after a restart.
    fn enter_committed(&self, at: usize) {
        let of = |partition: Arc<Partition>| {
            let offset = partition.unstored_committed()?;
            Some((partition, offset))
        };
        let here: Vec<(Arc<Partition>, Offset)> =
            self.open_partitions_at(at).into_iter().filter_map(of).collect();
        if here.is_empty() {
            return;
        }
        let Ok(journal) = self.directories[at].journal() else { return };
        let current = || here.iter().filter(|(partition, _)| is_here(partition));
        let entered = journal.append_with(|state| {
            current().filter_map(|(it, offset)| committed(state, it, *offset)).collect()
        });
        match entered {
            Ok(()) => here.iter().for_each(|(it, offset)| it.note_stored_committed(*offset)),
            Err(cause) => self.journal_failed(at, &cause),
        }
    }

    /// A full disk takes no entry, and neither does a process without descriptors; that alone loses
    /// nothing.
    pub(super) fn journal_failed(&self, at: usize, cause: &StorageError) {
        let directory = &self.directories[at];
        if directory.is_offline() {
            return;
        }
        if cause.is_full() || cause.lacks_resources() {
            warn!(directory = %directory.path().display(), %cause, "cannot enter what changed into the journal now; it is tried again");
        } else {
            self.fail_directory(at, cause);
        }
    }

    /// Moves the recovery points of partitions that were written to since they moved last; returns which
    /// could not be.
    pub fn checkpoint_logs<'a>(
        &self,
        due: &'a [Arc<Partition>],
    ) -> Vec<(&'a Arc<Partition>, PartitionError)> {
        let mut failed = Vec::new();
        for (at, here) in self.by_directory(due) {
            let dir = &self.directories[at].dir;
            let results = match here.len() >= TOGETHER_FROM {
                true => {
                    checkpoint_together(&plain(&here), || dir.disk().sync_all_below(dir.path()))
                }
                false => here.iter().map(|partition| partition.checkpoint(1)).collect(),
            };
            let errors = here.into_iter().zip(results);
            failed.extend(errors.filter_map(|(each, result)| Some((each, result.err()?))));
        }
        failed
    }

    /// Enters what changed in a log directory since the last checkpoint, and copies it into Kafka's files.
    pub fn checkpoint_directory(&self, at: usize, now: Timestamp) {
        let (directory, here) = (&self.directories[at], self.open_partitions_at(at));
        if directory.is_offline() {
            return;
        }
        if let Err(cause) = directory.checkpoint(&here.iter().collect::<Vec<_>>(), now) {
            self.journal_failed(at, &cause);
        }
    }

    /// As [`Logs::checkpoint_directory`], for all of them.
    #[cfg(test)]
    pub fn checkpoint(&self, now: Timestamp) {
        (0..self.directories.len()).for_each(|at| self.checkpoint_directory(at, now));
    }

    /// Closes all logs and says so in the journals. Nothing may append any more.
    pub fn close(&self, broker_epoch: BrokerEpoch, now: Timestamp) {
        let members = self.members();
        for (at, directory) in self.directories.iter().enumerate() {
            let here = members.iter().filter(|(home, _)| *home == at).map(|(_, member)| member);
            let here: Vec<&Arc<Partition>> = here.collect();
            let count = here.len();
            let here = directory.close_logs(here);
            let all = here.len() == count;
            if directory.is_offline() {
                continue;
            }
            if let Err(cause) = directory.close(&here, all, broker_epoch, now) {
                error!(directory = %directory.path().display(), %cause, "cannot mark the stop as clean");
            }
        }
    }

    /// Gives up the locks of all directories, behind everything else that a stop does.
    pub fn release(&self) {
        self.directories.iter().for_each(Directory::release);
    }
}

/// The last checkpoint of a partition with another high watermark: the bound of its truncations.
fn committed(state: &State, partition: &Partition, high_watermark: Offset) -> Option<Entry> {
    let key = key_of(partition);
    let known = state.partitions.get(&key)?;
    let none = Checkpoint {
        recovery_point: Offset(0),
        active: None,
        epoch: known.newest_epoch(),
        high_watermark,
        cleaned_below: Offset(0),
        at: state.at,
    };
    let last = known.checkpoint.unwrap_or(none);
    Some(Entry::Of(key, Fact::Checkpoint(Checkpoint { high_watermark, ..last })))
}

/// Whether a partition is not deleted and not put aside. Where it was, another one may have its key, of which nothing may be entered that was
/// true of this one. To be asked under the journal's lock.
pub(super) fn is_here(partition: &Partition) -> bool {
    partition.status() != Status::Deleted
}

fn plain<'a>(partitions: &[&'a Arc<Partition>]) -> Vec<&'a Partition> {
    partitions.iter().map(|partition| &***partition).collect()
}

/// Closes logs one by one, several at once: the file system merges the commits of their syncs.
fn close_each(partitions: &[&Arc<Partition>]) -> Vec<Result<(), PartitionError>> {
    let share = partitions.len().div_ceil(CLOSING_THREADS).max(1);
    std::thread::scope(|scope| {
        let close = |part: &[&Arc<Partition>]| -> Vec<_> {
            part.iter().map(|partition| partition.close()).collect()
        };
        let threads: Vec<_> =
            partitions.chunks(share).map(|part| scope.spawn(move || close(part))).collect();
        let results =
            threads.into_iter().flat_map(|thread| thread.join().expect("closing does not panic"));
        results.collect()
    })
}

/// What is news about a partition.
pub(super) fn news(partition: &Partition, known: &PartitionState, now: Timestamp) -> Vec<Fact> {
    let high_watermark = partition.high_watermark();
    let (checkpoint, log_start, sealed, derived, epochs) = partition.with_log(|log| {
        let recovery_point = log.recovery_point();
        let before = known.checkpoint.filter(|last| last.recovery_point == recovery_point);
        let checkpoint = Checkpoint {
            recovery_point,
            active: log.settled_active().or(before.and_then(|last| last.active)),
            epoch: log.epochs_written().last().map_or(LeaderEpoch::NONE, |(epoch, _)| *epoch),
            high_watermark,
            cleaned_below: log.cleaned_below(),
            at: known.checkpoint.map_or(now, |last| last.at),
        };
        let before = known.derived.as_deref();
        let now = log.derived();
        // Where not all can be told, the epochs of what is synced can.
        let epochs = match now {
            Some(_) => Vec::new(),
            None => log.epochs_since(known.newest_epoch(), recovery_point),
        };
        let derived = now.filter(|now| before.is_none_or(|before| now != before));
        let derived = derived.map(|derived| derived.kept());
        (checkpoint, log.log_start_offset(), log.sealed_segments(), derived, epochs)
    });
    let mut facts = Vec::new();
    if log_start > known.log_start {
        facts.push(Fact::Start(log_start));
    }
    facts.extend(sealed_news(sealed, known));
    // A crash may leave the first of them only: no offset is synced whose epoch is not known.
    facts.extend(epochs.into_iter().map(|(epoch, start)| Fact::Epoch(epoch, start)));
    facts.extend(derived.map(Fact::Derived));
    if known.checkpoint != Some(checkpoint) {
        facts.push(Fact::Checkpoint(Checkpoint { at: now, ..checkpoint }));
    }
    facts
}

fn sealed_news(sealed: Vec<SealedSegment>, known: &PartitionState) -> Option<Fact> {
    match &known.sealed {
        Some(before) if *before == sealed => None,
        Some(before) if sealed.starts_with(before) => {
            let segments = sealed[before.len()..].to_vec();
            Some(Fact::Sealed { complete: false, segments })
        }
        _ => Some(Fact::Sealed { complete: true, segments: sealed }),
    }
}

/// What a directory's journal does not know yet.
#[derive(Default)]
struct News<'a> {
    entries: Vec<(&'a Partition, Entry)>,
    /// Partitions of which a checkpoint covers records for the first time.
    begun: Vec<&'a Partition>,
}

impl<'a> News<'a> {
    /// What is to be entered now, of the partitions that are still here.
    fn current(entries: Vec<(&'a Partition, Entry)>) -> Vec<Entry> {
        let current = entries.into_iter().filter(|(partition, _)| is_here(partition));
        current.map(|(_, entry)| entry).collect()
    }

    fn of(&mut self, partition: &'a Partition, known: &PartitionState, now: Timestamp) {
        let is_begun = |recovery_point| recovery_point > Offset(0);
        let was_begun = known.checkpoint.is_some_and(|last| is_begun(last.recovery_point));
        for fact in news(partition, known, now) {
            if let Fact::Checkpoint(Checkpoint { recovery_point, .. }) = &fact
                && !was_begun
                && is_begun(*recovery_point)
            {
                self.begun.push(partition);
            }
            self.entries.push((partition, Entry::Of(key_of(partition), fact)));
        }
    }
}

impl Directory {
    /// Closes the logs of these partitions; returns those for which that succeeded.
    fn close_logs<'a>(&self, partitions: Vec<&'a Arc<Partition>>) -> Vec<&'a Arc<Partition>> {
        let results = match partitions.len() >= TOGETHER_FROM || reserve::is_half_used() {
            true => {
                close_together(&plain(&partitions), || self.dir.disk().sync_all_below(self.path()))
            }
            false => close_each(&partitions),
        };
        let closed = partitions.into_iter().zip(results).filter(|(partition, result)| {
            if let Err(cause) = result {
                error!(partition = %partition.topic_partition(), %cause, "cannot close the log");
            }
            result.is_ok()
        });
        closed.map(|(partition, _)| partition).collect()
    }

    fn news<'a>(
        &self,
        members: &[&'a Arc<Partition>],
        now: Timestamp,
    ) -> Result<News<'a>, StorageError> {
        let journal = self.journal()?;
        let mut all = News::default();
        for part in members.chunks(COMPARED_AT_ONCE) {
            journal.with_state(|state| {
                for partition in part {
                    let known = state.partitions.get(&key_of(partition));
                    known.inspect(|known| all.of(partition, known, now));
                }
            });
        }
        Ok(all)
    }

    /// Writes the topic's id into the folders of these partitions, for Kafka's tools: nothing here reads
    /// it again, and a folder that is being deleted needs none.
    fn copy_topic_ids(&self, begun: &[&Partition]) {
        for partition in begun.iter().filter(|partition| partition.status() != Status::Deleted) {
            let (name, id) = (partition.topic_partition(), partition.topic_id());
            if let Err(cause) = self.dir.copy_topic_id(name, id) {
                warn!(partition = %name, %cause, "cannot write the copy of the topic's id");
            }
        }
    }

    pub(super) fn checkpoint(
        &self,
        members: &[&Arc<Partition>],
        now: Timestamp,
    ) -> Result<(), StorageError> {
        let _still = self.checkpointing.lock();
        let News { entries, begun } = self.news(members, now)?;
        if entries.is_empty() {
            return Ok(());
        }
        self.journal()?.append_with(|_| News::current(entries))?;
        self.copy_topic_ids(&begun);
        self.copy_for_kafka()
    }

    fn close(
        &self,
        closed: &[&Arc<Partition>],
        all: bool,
        broker_epoch: BrokerEpoch,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        let _still = self.checkpointing.lock();
        let News { entries, begun } = self.news(closed, now)?;
        let mut entries = News::current(entries);
        entries.extend(closed.iter().map(|partition| {
            let end = partition.with_log(|log| log.log_end_offset());
            Entry::Of(key_of(partition), Fact::Closed(end))
        }));
        self.journal()?.close(&entries, broker_epoch, now)?;
        self.copy_topic_ids(&begun);
        self.copy_for_kafka()?;
        // Kafka's marker is about the whole directory.
        let refused = self.journal()?.with_state(|state| {
            state.partitions.values().any(|known| known.closed.is_none() && known.deleted.is_none())
        });
        if all && !refused {
            self.dir.copy_clean_marker(broker_epoch)?;
        }
        Ok(())
    }

    /// Writes Kafka's checkpoint files, for Kafka's tools: nothing here reads them again.
    fn copy_for_kafka(&self) -> Result<(), StorageError> {
        let (mut recovery, mut start) = (Offsets::new(), Offsets::new());
        let (mut committed, mut cleaned) = (Offsets::new(), Offsets::new());
        self.journal()?.with_state(|state| {
            for (key, known) in &state.partitions {
                let (Some(last), None) = (known.checkpoint, &known.deleted) else { continue };
                let name = State::name(*key, known);
                if last.cleaned_below > Offset(0) {
                    cleaned.insert(name.clone(), last.cleaned_below);
                }
                recovery.insert(name.clone(), last.recovery_point);
                start.insert(name.clone(), known.log_start);
                committed.insert(name, last.high_watermark);
            }
        });
        self.dir.copy_offsets(checkpoint::LOG_START, &start)?;
        self.dir.copy_offsets(checkpoint::HIGH_WATERMARK, &committed)?;
        self.dir.copy_offsets(checkpoint::CLEANER, &cleaned)?;
        self.dir.copy_offsets(checkpoint::RECOVERY_POINT, &recovery)
    }
}
