//! Making things durable without holding the log's lock, by tickets: taken under the lock, run
//! without it, handed back under it.
//!
//! A [`SyncTicket`] makes the batches durable: what an acknowledgement waits for. A
//! [`CheckpointTicket`] makes everything beside them durable too, so that recovery need not read
//! what lies before: index entries, producer state, epoch history. Only a checkpoint moves the
//! recovery point.
//!
//! A failed sync is final (S9): what the kernel did with the dirty pages is not known.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::Offset;

use super::Log;
use crate::StorageError;
use crate::ceiling;
use crate::disk::Disk;
use crate::error::Context;
use crate::names::{LEADER_EPOCHS, PARTITION_METADATA, SNAPSHOT, TEMPORARY, TRANSACTION_INDEX};
use crate::segment::{Segment, UnsyncedFile};

/// What of a log is durable.
#[derive(Debug)]
pub(super) struct SyncedState {
    /// Below it all batches are durable. Moved by syncs; back by truncation.
    pub(super) synced: Offset,
    /// Below it nothing needs recovery. Moved by checkpoints; back by truncation.
    pub(super) recovery_point: Offset,
    /// The largest recovery point that may stand in the log directory's checkpoint file.
    pub(super) promised: Offset,
    /// What bounds that promise, if it is not true any more; see `ceiling.rs`.
    pub(super) ceiling: Option<Offset>,
    /// Counts changes of names in the partition's directory.
    names_version: u64,
    /// The version that is durable.
    names_synced: u64,
    /// Whether the partition's directory itself may be lost.
    pub(super) parent_unsynced: bool,
    /// Bytes appended since the last checkpoint.
    pub(super) unchecked_bytes: u64,
    /// Counts truncations: a ticket from before one says nothing of what was written since.
    pub(super) truncations: u64,
}

impl SyncedState {
    /// Of a log of which everything below `synced` and every name is durable.
    pub(super) fn new(synced: Offset) -> SyncedState {
        SyncedState {
            synced,
            recovery_point: synced,
            promised: synced,
            ceiling: None,
            names_version: 0,
            names_synced: 0,
            parent_unsynced: false,
            unchecked_bytes: 0,
            truncations: 0,
        }
    }

    pub(super) fn names_changed(&mut self) {
        self.names_version += 1;
    }

    fn names_unsynced(&self) -> bool {
        self.names_synced < self.names_version || self.parent_unsynced
    }

    fn names_are_synced(&mut self, version: u64) {
        self.names_synced = self.names_synced.max(version);
        self.parent_unsynced = false;
    }
}

/// What must be synced for the log to be durable up to an offset. Running it needs no lock.
#[derive(Debug)]
#[must_use = "a ticket does nothing until it is run and handed back"]
pub struct SyncTicket {
    disk: Arc<dyn Disk>,
    /// Files by their names; those that are not open are opened to be synced.
    files: Vec<UnsyncedFile>,
    /// Indexes, of which those may be gone that a deletion or a compaction took away meanwhile.
    indexes: Vec<UnsyncedFile>,
    directories: Vec<PathBuf>,
    /// Segments by base, and their sizes when the ticket was taken.
    segments: Vec<(Offset, u64)>,
    up_to: Offset,
    truncations: u64,
    names_version: u64,
}

impl SyncTicket {
    /// Up to where the log is durable afterwards.
    pub fn up_to(&self) -> Offset {
        self.up_to
    }

    /// Syncs the files, the oldest first, then the directories. After an error nothing may be believed
    /// of what the ticket covers.
    pub fn run(&self) -> io::Result<()> {
        self.files.iter().try_for_each(|file| self.sync(file))?;
        for index in &self.indexes {
            match self.sync(index) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result?,
            }
        }
        self.directories.iter().try_for_each(|dir| self.disk.sync_dir(dir))
    }

    fn sync(&self, (path, file): &UnsyncedFile) -> io::Result<()> {
        match file {
            Some(file) => file.sync(),
            None => self.disk.sync_file(path),
        }
    }
}

/// A sync of everything, and the small files that save recovery its work. Running it needs no lock.
#[derive(Debug)]
#[must_use = "a ticket does nothing until it is run and handed back"]
pub struct CheckpointTicket {
    sync: SyncTicket,
    /// Segments by base, and what they were when the ticket was taken ([`Segment::version`]).
    versions: Vec<(Offset, u64)>,
    /// Small files, to be written under a temporary name: their name and content.
    small: Vec<(PathBuf, Vec<u8>)>,
}

impl CheckpointTicket {
    /// The recovery point afterwards.
    pub fn up_to(&self) -> Offset {
        self.sync.up_to
    }

    /// Syncs the files and writes the small ones, not yet under their names.
    pub fn run(&self) -> io::Result<()> {
        // Of the batches' sync, a full disk is no better than any other error.
        self.sync.run().map_err(io::Error::other)?;
        for (path, content) in &self.small {
            self.sync.disk.write_synced(&temporary(path), content)?;
        }
        Ok(())
    }
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    PathBuf::from(name)
}

impl Log {
    /// Below it every batch is durable: what an acknowledgement of durability may rest on.
    pub fn synced_below(&self) -> Offset {
        self.durability.synced
    }

    /// Below it nothing needs recovery: for `recovery-point-offset-checkpoint`. At most
    /// [`Log::synced_below`]; moved by [`Log::finish_checkpoint`] and [`Log::close`].
    pub fn recovery_point(&self) -> Offset {
        self.durability.recovery_point
    }

    /// Bytes that recovery would have to read, were there a crash now: a reason for a checkpoint.
    pub fn bytes_past_checkpoint(&self) -> u64 {
        self.durability.unchecked_bytes
    }

    /// A ticket that makes everything appended so far durable; `None` if it is.
    pub fn begin_sync(&self) -> Option<SyncTicket> {
        let clean = self.durability.synced == self.log_end && !self.durability.names_unsynced();
        if clean || self.failed.is_some() {
            return None;
        }
        let segments = self.segments[self.segment_of(self.durability.synced)..].iter();
        let segments = segments.filter(|segment| !segment.is_synced());
        let mut ticket = self.empty_ticket();
        for segment in segments {
            let path = self.home.segment_path(segment.base, crate::names::LOG);
            ticket.files.push((path, segment.open_file()));
            ticket.segments.push((segment.base, segment.size()));
        }
        Some(ticket)
    }

    fn empty_ticket(&self) -> SyncTicket {
        let (mut directories, mut files) = (Vec::new(), Vec::new());
        if self.durability.names_unsynced() {
            directories.push(self.home.dir.clone());
        }
        if self.durability.parent_unsynced {
            directories.push(self.home.parent().to_owned());
            // Whose records these are must be as durable as the first of them.
            let metadata = self.home.path(PARTITION_METADATA);
            if self.home.disk.exists(&metadata) {
                files.push((metadata, None));
            }
        }
        SyncTicket {
            disk: Arc::clone(&self.home.disk),
            files,
            indexes: Vec::new(),
            directories,
            segments: Vec::new(),
            up_to: self.log_end,
            truncations: self.durability.truncations,
            names_version: self.durability.names_version,
        }
    }

    /// Takes note of a sync. Returns up to where the log is durable now; if it was truncated in
    /// between, that is no further than before, and another sync is due.
    ///
    /// Fails with [`StorageError::Io`] if the sync did: then the log takes no more writes, for good.
    pub fn finish_sync(
        &mut self,
        ticket: SyncTicket,
        result: io::Result<()>,
    ) -> Result<Offset, StorageError> {
        let result = result.during("sync", &self.home.dir);
        self.failing(result)?;
        // A failure in between may have been told to another ticket only.
        self.usable()?;
        self.note_synced(&ticket);
        Ok(self.durability.synced)
    }

    fn note_synced(&mut self, ticket: &SyncTicket) {
        self.durability.names_are_synced(ticket.names_version);
        if ticket.truncations != self.durability.truncations {
            return;
        }
        self.durability.synced = self.durability.synced.max(ticket.up_to);
        for (base, size) in &ticket.segments {
            if let Ok(number) = self.segments.binary_search_by_key(base, |s| s.base) {
                self.segments[number].mark_synced(*size);
            }
        }
        self.assert_ordered();
    }

    /// A ticket that moves the recovery point to the log end; `None` if it is there.
    ///
    /// Index entries are written here, under the lock; whoever checkpoints seldom (by
    /// [`Log::bytes_past_checkpoint`]) does not notice.
    pub fn begin_checkpoint(&mut self) -> Result<Option<CheckpointTicket>, StorageError> {
        self.usable()?;
        let unsealed = self.segments.iter().any(|segment| segment.unsealed);
        let done = self.durability.recovery_point == self.log_end
            && !unsealed
            && !self.epochs_unwritten
            && !self.durability.names_unsynced();
        if done {
            return Ok(None);
        }
        let result = self.checkpoint_ticket();
        self.failing(result).map(Some)
    }

    fn checkpoint_ticket(&mut self) -> Result<CheckpointTicket, StorageError> {
        let home = &self.home;
        let mut sync = self.empty_ticket();
        let mut versions = Vec::new();
        // Index files may be new names.
        sync.directories = vec![home.dir.clone()];
        if self.durability.parent_unsynced {
            sync.directories.push(home.parent().to_owned());
        }
        for segment in self.segments.iter_mut().filter(|segment| segment.unsealed) {
            segment.write_indexes(home)?;
            sync.files.extend(segment.unsynced_log(home));
            sync.indexes.extend(segment.unsynced_indexes(home));
            if let Some(file) = &segment.unsynced_aborted {
                // Held, for deletion or compaction may take its name away at any time.
                let path = home.segment_path(segment.base, TRANSACTION_INDEX);
                sync.files.push((path, Some(Arc::clone(file))));
            }
            sync.segments.push((segment.base, segment.size()));
            versions.push((segment.base, segment.version()));
        }
        Ok(CheckpointTicket { sync, versions, small: self.small_files() })
    }

    fn small_files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut small = self.producer_files();
        if self.epochs_unwritten {
            small.push((self.home.path(LEADER_EPOCHS), self.epochs.encode()));
        }
        small
    }

    /// Takes note of a checkpoint: gives the small files their names and moves the recovery point,
    /// which is returned. If the log was truncated in between, nothing moves.
    ///
    /// Fails with [`StorageError::Io`] if the checkpoint did: the log takes no more writes.
    pub fn finish_checkpoint(
        &mut self,
        ticket: CheckpointTicket,
        result: io::Result<()>,
    ) -> Result<Offset, StorageError> {
        let result = result.during("checkpoint", &self.home.dir);
        self.failing(result)?;
        self.usable()?;
        self.note_synced(&ticket.sync);
        if ticket.sync.truncations != self.durability.truncations {
            self.drop_small_files(&ticket);
            return Ok(self.durability.recovery_point);
        }
        let result = self.publish(&ticket);
        self.failing(result)?;
        Ok(self.durability.recovery_point)
    }

    fn drop_small_files(&mut self, ticket: &CheckpointTicket) {
        for (path, _) in &ticket.small {
            // What stays behind is removed when the log is opened.
            let _ = self.home.disk.remove_file(&temporary(path));
        }
    }

    fn publish(&mut self, ticket: &CheckpointTicket) -> Result<(), StorageError> {
        for (path, _) in &ticket.small {
            self.home.disk.rename(&temporary(path), path).during("rename", path)?;
        }
        self.home.disk.sync_dir(&self.home.dir).during("sync", &self.home.dir)?;
        let up_to = ticket.sync.up_to;
        self.sealed_by(ticket);
        // Epochs assigned since the ticket was taken wait for the next checkpoint.
        self.epochs_unwritten = self.epochs.encode() != self.written_epochs(ticket);
        if self.log_end == up_to {
            self.durability.unchecked_bytes = 0;
        }
        self.durability.recovery_point = up_to;
        self.durability.promised = self.durability.promised.max(up_to);
        self.raise_ceiling(up_to)?;
        let snapshot = self.home.segment_path(up_to, SNAPSHOT);
        self.keep_useful_snapshots(up_to, ticket.small.iter().any(|(path, _)| *path == snapshot))
    }

    fn written_epochs(&self, ticket: &CheckpointTicket) -> Vec<u8> {
        let path = self.home.path(LEADER_EPOCHS);
        let written = ticket.small.iter().find(|(name, _)| *name == path);
        match written {
            Some((_, content)) => content.clone(),
            None if self.epochs_unwritten => Vec::new(),
            None => self.epochs.encode(),
        }
    }

    fn sealed_by(&mut self, ticket: &CheckpointTicket) {
        for (base, version) in &ticket.versions {
            let Ok(number) = self.segments.binary_search_by_key(base, |s| s.base) else { continue };
            let segment = &mut self.segments[number];
            // A roll since then has closed the time index, and the size is the same.
            if segment.version() == *version {
                segment.checkpointed();
            }
        }
    }

    fn raise_ceiling(&mut self, recovery_point: Offset) -> Result<(), StorageError> {
        if self.durability.ceiling.is_none() {
            return Ok(());
        }
        if recovery_point >= self.durability.promised {
            ceiling::remove(&self.home).during("remove", &self.home.dir)?;
            self.durability.ceiling = None;
        } else {
            ceiling::store(&self.home, recovery_point).during("write", &self.home.dir)?;
            self.durability.ceiling = Some(recovery_point);
        }
        Ok(())
    }

    /// Makes sure that a promise which a truncation to `offset` breaks is bounded first.
    pub(super) fn lower_ceiling(&mut self, offset: Offset) -> Result<(), StorageError> {
        let durability = &mut self.durability;
        // How far it was synced may have been noted, too.
        durability.promised = durability.promised.max(durability.synced);
        if offset < durability.promised && durability.ceiling.is_none_or(|bound| offset < bound) {
            ceiling::store(&self.home, offset).during("write", &self.home.dir)?;
            durability.ceiling = Some(offset);
        }
        Ok(())
    }

    /// Makes the names in the partition's directory durable, here and now.
    pub(super) fn sync_names_now(&mut self) -> Result<(), StorageError> {
        if !self.durability.names_unsynced() {
            return Ok(());
        }
        let home = &self.home;
        home.disk.sync_dir(&home.dir).during("sync", &home.dir)?;
        if self.durability.parent_unsynced {
            home.disk.sync_dir(home.parent()).during("sync", home.parent())?;
        }
        let version = self.durability.names_version;
        self.durability.names_are_synced(version);
        Ok(())
    }

    /// Stops cleanly: all files are complete, durable and closed. The recovery point is the log end
    /// afterwards; the next opening may be a clean one.
    pub fn close(&mut self) -> Result<(), StorageError> {
        self.usable()?;
        let home = self.home.clone();
        if self.active().size() > 0 && self.active().unsealed {
            let result = self.active_mut().seal(&home);
            self.failing(result)?;
        }
        if let Some(ticket) = self.begin_checkpoint()? {
            let result = ticket.run();
            self.finish_checkpoint(ticket, result)?;
        }
        self.segments.iter_mut().for_each(Segment::release);
        Ok(())
    }
}
