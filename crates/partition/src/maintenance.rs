//! What is done to a log besides appending and reading, in steps: decided and noted under the lock,
//! carried out on the device without it. One such work at a time ([`Partition::begin_maintenance`]), so
//! that each finds the names that the one before has left; a roll, which only makes a name, goes on
//! beside it.

use std::io;

use model::{BatchHeader, Offset, Timestamp};
use parking_lot::MutexGuard;
use replication::Event;
use storage::compaction::{Compacted, Compaction, CompactionPlan};
use storage::{
    AppendWork, CheckpointTicket, DeletedSegment, Log, Resuming, RetentionDue, RollTicket,
    StorageError,
};

use crate::error::PartitionError;
use crate::partition::{LockPatience, Partition, StateGuard, Status};

/// How often retention is asked anew because appends came behind the roll that it wanted.
const PLANS_MAX: usize = 4;

/// A checkpoint of a partition under way: nothing else changes names of its files meanwhile.
struct Checkpointing<'a> {
    partition: &'a Partition,
    /// `None` if nothing is to be written.
    ticket: Option<CheckpointTicket>,
    /// Of what was done for it so far.
    result: io::Result<()>,
    _names: MutexGuard<'a, ()>,
    /// Held if it is the last one, before the files are closed.
    end: Option<MutexGuard<'a, ()>>,
}

impl Checkpointing<'_> {
    fn go_on(&mut self, step: impl FnOnce(&CheckpointTicket) -> io::Result<()>) {
        if let (Some(ticket), Ok(())) = (&self.ticket, &self.result) {
            self.result = self.partition.with_files(|| step(ticket));
        }
    }

    /// Returns the recovery point, if it may have moved.
    fn finish(self) -> Result<Option<Offset>, PartitionError> {
        let Checkpointing { partition, ticket, result, end, .. } = self;
        let mut recovery_point = None;
        if let Some(ticket) = ticket {
            let moved = partition.maintain(|log, _| log.finish_checkpoint(ticket, result))?;
            recovery_point = Some(moved);
            partition.publish_synced();
        }
        if end.is_some() {
            partition.maintain(|log, _| {
                log.release_files();
                Ok(())
            })?;
        }
        Ok(recovery_point)
    }
}

/// Partitions that are worked on at a time: what is kept of each meanwhile takes half a KiB.
const TOGETHER_MAX: usize = 8192;

/// Stops partitions of one log directory cleanly, as [`Partition::close`] does each; returns what became
/// of each. `sync` makes everything in the directory durable: two of these calls take the place of
/// several syncs for each partition, so this is for very many.
pub fn close_together(
    partitions: &[&Partition],
    sync: impl Fn() -> io::Result<()>,
) -> Vec<Result<(), PartitionError>> {
    sync_and_release(partitions, &sync);
    let results = together(partitions, Partition::begin_close, sync);
    results.into_iter().map(|result| result.map(drop)).collect()
}

/// Syncs the batches of all these partitions and closes their files, as far as they are open: what is
/// written next opens files of its own, and there may be no descriptor left for them. A failure stays with
/// the log, and its close tells.
fn sync_and_release(partitions: &[&Partition], sync: impl Fn() -> io::Result<()>) {
    for part in partitions.chunks(TOGETHER_MAX) {
        let tickets: Vec<_> = part
            .iter()
            .filter_map(|partition| Some((partition, partition.with_log(Log::begin_sync)?)))
            .collect();
        if !tickets.is_empty() {
            let synced = sync();
            for (partition, ticket) in tickets {
                let result = ticket.synced_with_all(&synced);
                let _ = partition.maintain(|log, _| log.finish_sync(ticket, result));
            }
        }
        for partition in part {
            let _ = partition.maintain(|log, _| {
                log.release_files();
                Ok(())
            });
        }
    }
}

/// Moves the recovery points of partitions of one log directory, as [`Partition::checkpoint`] with 1
/// byte does each, and [`close_together`] for `sync`.
pub fn checkpoint_together(
    partitions: &[&Partition],
    sync: impl Fn() -> io::Result<()>,
) -> Vec<Result<Option<Offset>, PartitionError>> {
    together(partitions, |partition| partition.begin_checkpoint(1), sync)
}

fn together<'a>(
    partitions: &[&'a Partition],
    begin: impl Fn(&'a Partition) -> Result<Checkpointing<'a>, PartitionError>,
    sync: impl Fn() -> io::Result<()>,
) -> Vec<Result<Option<Offset>, PartitionError>> {
    let steps: [fn(&CheckpointTicket) -> io::Result<()>; 2] =
        [CheckpointTicket::write_unsynced, CheckpointTicket::name_unsynced];
    let mut results: Vec<_> = partitions.iter().map(|_| Ok(None)).collect();
    let mut rest = partitions.iter().enumerate().peekable();
    while rest.peek().is_some() {
        let mut begun = Vec::new();
        // Those that did not change are done at once: nothing is synced for them.
        while begun.len() < TOGETHER_MAX
            && let Some((number, partition)) = rest.next()
        {
            match begin(partition) {
                Ok(work) if work.ticket.is_some() => begun.push((number, work)),
                other => results[number] = other.and_then(Checkpointing::finish),
            }
        }
        if begun.is_empty() {
            continue;
        }
        for step in steps {
            begun.iter_mut().for_each(|(_, work)| work.go_on(step));
            let synced = sync();
            begun
                .iter_mut()
                .for_each(|(_, work)| work.go_on(|ticket| ticket.synced_with_all(&synced)));
        }
        begun.into_iter().for_each(|(number, work)| results[number] = work.finish());
    }
    results
}

impl Partition {
    /// Where the log is to start because segments have served their time; `None` if none has. To be
    /// made durable before [`Partition::retain_from`]. An active segment that is due is rolled.
    pub fn plan_retention(&self, now: Timestamp) -> Result<Option<Offset>, PartitionError> {
        let _names = self.begin_maintenance();
        let look = self.maintain(|log, _| Ok(log.retention_look()))?;
        self.believe(look.run(now))?;
        for _ in 0..PLANS_MAX {
            let due =
                self.maintain(|log, high_watermark| log.retention_due(now, high_watermark))?;
            match due {
                RetentionDue::Nothing => return Ok(None),
                RetentionDue::Before(start) => return Ok(Some(start)),
                RetentionDue::AllBehindRoll => self.roll(now)?,
            }
        }
        Ok(None)
    }

    /// Deletes the segments that end at or before `start`, which is durable as the log's start. Returns
    /// what is to be removed later.
    pub fn retain_from(&self, start: Offset) -> Result<Vec<DeletedSegment>, PartitionError> {
        let _names = self.begin_maintenance();
        self.resume()?;
        let ticket = self.maintain(|log, _| log.begin_retention(start))?;
        let Some(mut ticket) = ticket else { return Ok(Vec::new()) };
        let result = self.with_files(|| ticket.run());
        self.maintain(|log, _| log.finish_retention(ticket, result))
    }

    /// Chooses what to compact, and opens it; see [`storage::Log::plan_compaction`].
    pub fn plan_compaction(
        &self,
        now: Timestamp,
    ) -> Result<Option<CompactionPlan>, PartitionError> {
        let _names = self.begin_maintenance();
        // What only the active segment holds is not compacted.
        if self.with_log(Log::segment_count) > 1 {
            self.resume()?;
        }
        let look = self.maintain(|log, _| Ok(log.compaction_look()))?;
        self.believe(look.run())?;
        let choice =
            self.maintain(|log, high_watermark| Ok(log.compaction_choice(now, high_watermark)))?;
        choice.map(|choice| self.believe(choice.open())).transpose()
    }

    /// Puts what a compaction made in its place.
    pub fn finish_compaction(&self, compaction: Compaction) -> Result<Compacted, PartitionError> {
        let _names = self.begin_maintenance();
        let mut swap = self.maintain(|log, _| Ok(log.begin_swap(compaction)))?;
        let result = self.with_files(|| swap.run());
        self.maintain(|log, _| log.finish_swap(swap, result))
    }

    /// Moves the recovery point to the log end, if at least `bytes_min` were written since the last
    /// time; returns where it is then, `None` if nothing was to be done. A partition that was deleted
    /// is [`PartitionError::Offline`].
    pub fn checkpoint(&self, bytes_min: u64) -> Result<Option<Offset>, PartitionError> {
        let mut work = self.begin_checkpoint(bytes_min)?;
        work.go_on(CheckpointTicket::run);
        work.finish()
    }

    fn begin_checkpoint(&self, bytes_min: u64) -> Result<Checkpointing<'_>, PartitionError> {
        let names = self.begin_maintenance();
        let ticket = self.maintain(|log, _| match log.bytes_past_checkpoint() < bytes_min {
            true => Ok(None),
            false => log.begin_checkpoint(),
        })?;
        Ok(Checkpointing { partition: self, ticket, result: Ok(()), _names: names, end: None })
    }

    /// Stops cleanly; see [`storage::Log::close`]. Nothing may be appended any more.
    pub fn close(&self) -> Result<(), PartitionError> {
        let mut work = self.begin_close()?;
        work.go_on(CheckpointTicket::run);
        work.finish().map(drop)
    }

    fn begin_close(&self) -> Result<Checkpointing<'_>, PartitionError> {
        let (names, end) = (self.begin_maintenance(), Some(self.begin_rolling()));
        let ticket = self.maintain(|log, _| log.begin_close())?;
        Ok(Checkpointing { partition: self, ticket, result: Ok(()), _names: names, end })
    }

    /// A checkpoint syncs, too.
    fn publish_synced(&self) {
        let mut state = self.lock();
        let synced = state.log.synced_below();
        let effects = state.replica.step(Event::Synced { synced });
        self.publish(state, effects);
    }

    /// Rolls the active segment if it is older than `segment.ms`; for logs without appends.
    pub fn roll_if_due(&self, now: Timestamp) -> Result<bool, PartitionError> {
        let opening = self.maintain(|log, _| Ok(log.opening_of_age()))?;
        if let Some(opening) = opening {
            self.believe(opening.run())?;
        }
        let is_due = self.maintain(|log, _| log.is_roll_due(now))?;
        if is_due {
            self.roll(now)?;
        }
        Ok(is_due)
    }

    fn roll(&self, now: Timestamp) -> Result<(), PartitionError> {
        let _rolling = self.begin_rolling();
        self.resume_while_rolling()?;
        let ticket = self.maintain(|log, _| log.begin_roll_now(now))?;
        ticket.map_or(Ok(()), |ticket| self.run_roll(ticket))
    }

    fn run_roll(&self, ticket: RollTicket) -> Result<(), PartitionError> {
        let result = self.with_files(|| ticket.run());
        self.maintain(|log, _| log.finish_roll(ticket, result))
    }

    /// The lock, taken when the log is ready to be written to at its end: what must be opened, read or
    /// made for the append of this batch is done before.
    pub(crate) fn lock_to_append(
        &self,
        batch: &BatchHeader,
        bytes: u64,
        now: Timestamp,
        patience: LockPatience,
    ) -> Result<StateGuard<'_>, PartitionError> {
        let lock = || match patience {
            LockPatience::Unlimited => Ok(self.lock()),
            LockPatience::Brief => self.lock_briefly(),
        };
        let mut state = lock()?;
        if !self.is_served() || state.log.is_ready_for(batch, bytes, now) {
            return Ok(state);
        }
        drop(state);
        let _rolling = self.begin_rolling();
        loop {
            state = lock()?;
            self.note_files(&state);
            if !self.is_served() || state.log.is_ready_for(batch, bytes, now) {
                return Ok(state);
            }
            let work = state.log.before_append(batch, bytes, now)?;
            drop(state);
            match work {
                Some(AppendWork::Resume(resuming)) => self.run_resuming(resuming)?,
                Some(AppendWork::Open(active)) => self.believe(active.run())?,
                Some(AppendWork::Roll(ticket)) => self.run_roll(ticket)?,
                None => {}
            }
        }
    }

    /// Reads what the opening of the log left unread, if anything; see [`storage::Log::resuming`].
    pub fn resume(&self) -> Result<(), PartitionError> {
        if !self.with_log(Log::is_resumed) {
            return Ok(());
        }
        let _rolling = self.begin_rolling();
        self.resume_while_rolling()
    }

    pub(crate) fn resume_while_rolling(&self) -> Result<(), PartitionError> {
        let resuming = self.with_log(Log::resuming);
        resuming.map_or(Ok(()), |resuming| self.run_resuming(resuming))
    }

    /// A log that is damaged is refused as if that had been found when it was opened.
    fn run_resuming(&self, resuming: Resuming) -> Result<(), PartitionError> {
        let dir = self.with_log(|log| log.dir().to_owned());
        let resumed = resuming.run().map_err(|cause| match cause {
            StorageError::Damaged(_) | StorageError::Malformed { .. } => {
                StorageError::Refused { dir, reason: cause.to_string() }
            }
            other => other,
        });
        let resumed = self.believe(resumed)?;
        self.maintain(|log, _| {
            log.finish_resuming(resumed);
            Ok(())
        })
    }

    fn is_served(&self) -> bool {
        !matches!(self.status(), Status::Offline | Status::Deleted)
    }

    /// What became of work on files that was done without the lock. Of a partition that was deleted
    /// meanwhile, an error says nothing.
    fn believe<T>(&self, result: Result<T, StorageError>) -> Result<T, PartitionError> {
        self.note_files(&self.lock());
        result.map_err(|error| match self.status() {
            Status::Deleted => PartitionError::Deleted,
            _ => error.into(),
        })
    }
}
