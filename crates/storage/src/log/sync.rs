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
use std::sync::atomic::{AtomicU64, Ordering};

use model::Offset;

use super::{Log, known_producers};
use crate::StorageError;
use crate::ceiling;
use crate::disk::reserve::lacks_descriptors;
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::Context;
use crate::names::{Home, LEADER_EPOCHS, PARTITION_METADATA, TEMPORARY};
use crate::segment::Segment;

/// What of a log is durable.
#[derive(Clone, Debug)]
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
    /// The version with the name of the first segment that was made in this process.
    first_named: u64,
    /// Whether the partition's directory itself may be lost.
    pub(super) parent_unsynced: bool,
    /// Bytes appended since the last checkpoint.
    pub(super) unchecked_bytes: u64,
    /// Counts truncations: a ticket from before one says nothing of what was written since.
    pub(super) truncations: Arc<AtomicU64>,
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
            first_named: 0,
            parent_unsynced: false,
            unchecked_bytes: 0,
            truncations: Arc::default(),
        }
    }

    pub(super) fn truncation_count(&self) -> u64 {
        self.truncations.load(Ordering::Acquire)
    }

    pub(super) fn truncated(&mut self) {
        self.truncations.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn names_changed(&mut self) {
        self.names_version += 1;
    }

    /// All names, the first one too, may be lost.
    pub(super) fn first_name_changed(&mut self) {
        self.names_changed();
        self.first_named = self.names_version;
    }

    fn is_first_name_unsynced(&self) -> bool {
        self.names_synced < self.first_named
    }

    pub(super) fn names_unsynced(&self) -> bool {
        self.names_synced < self.names_version || self.parent_unsynced
    }

    /// The directories to be synced if the name of the first segment may not be durable yet, and the
    /// version of the names that are durable then.
    pub(super) fn first_names_unsynced(&self, home: &Home) -> (Vec<PathBuf>, u64) {
        let mut directories = Vec::new();
        if self.is_first_name_unsynced() {
            directories.push(home.dir.clone());
        }
        if self.parent_unsynced {
            directories.push(home.parent().to_owned());
        }
        (directories, self.names_version)
    }

    /// The version of the names as they are now; for [`SyncedState::directory_is_synced`].
    pub(super) fn names_version(&self) -> u64 {
        self.names_version
    }

    /// The partition's directory was synced when its names had this version.
    pub(super) fn directory_is_synced(&mut self, version: u64) {
        self.names_synced = self.names_synced.max(version);
    }

    /// As [`SyncedState::directory_is_synced`], and so was the directory above.
    pub(super) fn names_are_synced(&mut self, version: u64) {
        self.directory_is_synced(version);
        self.parent_unsynced = false;
    }
}

/// What must be synced for the log to be durable up to an offset. Running it needs no lock.
#[derive(Debug)]
#[must_use = "a ticket does nothing until it is run and handed back"]
pub struct SyncTicket {
    disk: Arc<dyn Disk>,
    /// Whose records these are, if that must be made as durable as the first of them.
    metadata: Option<PathBuf>,
    /// Files by their names; those that are not open are opened to be synced.
    files: Vec<(PathBuf, Option<Arc<dyn DiskFile>>)>,
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

    /// Whether running it is a sync of one file that is open, and nothing else.
    pub fn is_one_open_file(&self) -> bool {
        let is_open = matches!(self.files.as_slice(), [(_, Some(_))]);
        is_open && self.directories.is_empty() && self.metadata.is_none()
    }

    /// Syncs the files, the oldest first, then the directories. After an error nothing may be believed
    /// of what the ticket covers.
    pub fn run(&self) -> io::Result<()> {
        if let Some(path) = self.metadata.as_ref().filter(|path| self.disk.exists(path)) {
            self.disk.sync_file(path)?;
        }
        for (path, file) in &self.files {
            match file {
                Some(file) => file.sync()?,
                None => self.disk.sync_file(path)?,
            }
        }
        self.directories.iter().try_for_each(|dir| self.disk.sync_dir(dir))
    }

    /// What a sync of everything below the log directory, run in the place of this ticket, means for this
    /// log.
    pub fn synced_with_all(&self, result: &io::Result<()>) -> io::Result<()> {
        result.as_ref().copied().map_err(copy_of)
    }
}

/// An error that many are told.
fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// A sync of everything, and the small files that save recovery its work. Running it needs no lock, but
/// nothing else that changes the log's names may happen meanwhile, appends and rolls excepted.
#[derive(Debug)]
#[must_use = "a ticket does nothing until it is run and handed back"]
pub struct CheckpointTicket {
    sync: SyncTicket,
    home: Home,
    /// Views of the segments whose files must be complete and durable.
    unsealed: Vec<Segment>,
    /// Small files: their name and content.
    small: Vec<(PathBuf, Vec<u8>)>,
    /// Offsets of files of the producers that are of no use afterwards.
    outdated: Vec<Offset>,
    /// The ceiling afterwards, if there is one now.
    ceiling: Option<Option<Offset>>,
    /// The log's, to see whether what the small files say was cut off meanwhile.
    truncations_now: Arc<AtomicU64>,
    /// Whether the log is closed: room that was reserved is given back.
    closes: bool,
}

impl CheckpointTicket {
    /// The recovery point afterwards.
    pub fn up_to(&self) -> Offset {
        self.sync.up_to
    }

    /// Writes the index entries, syncs everything, and replaces the small files.
    pub fn run(&self) -> io::Result<()> {
        for segment in &self.unsealed {
            self.complete(segment).map_err(into_io)?;
            segment.sync_all(&self.home).map_err(final_error)?;
        }
        self.sync.run().map_err(final_error)?;
        if self.is_outdated() {
            return Ok(());
        }
        let disk = &self.home.disk;
        for (path, content) in &self.small {
            disk.write_synced(&temporary(path), content)?;
        }
        self.name_small_files()?;
        disk.sync_dir(&self.home.dir)?;
        self.tidy()
    }

    /// The first half of what [`CheckpointTicket::run`] does, and nothing is synced: index entries and
    /// small files are written, and closed. A sync of everything below the log directory is to follow.
    pub fn write_unsynced(&self) -> io::Result<()> {
        for segment in &self.unsealed {
            self.complete(segment).map_err(into_io)?;
            // Very many logs have their turn until the sync.
            segment.release_indexes();
            if self.closes {
                segment.release_synced_file();
            }
        }
        for (path, content) in &self.small {
            let file = self.home.disk.open_essential(&temporary(path), OpenMode::Create)?;
            file.truncate(0)?;
            file.write_all_at(content, 0)?;
        }
        Ok(())
    }

    /// What a sync of everything below the log directory means for this log.
    pub fn synced_with_all(&self, result: &io::Result<()>) -> io::Result<()> {
        result.as_ref().copied().map_err(|error| final_error(copy_of(error)))
    }

    /// The second half, for what [`CheckpointTicket::write_unsynced`] has written and a sync has made
    /// durable. Another one is to follow.
    pub fn name_unsynced(&self) -> io::Result<()> {
        if self.is_outdated() {
            return Ok(());
        }
        self.name_small_files()?;
        self.tidy()
    }

    /// Whether what the small files say was cut off meanwhile.
    fn is_outdated(&self) -> bool {
        self.truncations_now.load(Ordering::Acquire) != self.sync.truncations
    }

    fn name_small_files(&self) -> io::Result<()> {
        let disk = &self.home.disk;
        self.small.iter().try_for_each(|(path, _)| disk.rename(&temporary(path), path))
    }

    /// Moves the ceiling, and removes what is of no use any more.
    fn tidy(&self) -> io::Result<()> {
        match self.ceiling {
            None => {}
            Some(None) => ceiling::remove(&self.home)?,
            Some(Some(bound)) => ceiling::store(&self.home, bound)?,
        }
        for offset in &self.outdated {
            known_producers::remove_files(&self.home, *offset).map_err(into_io)?;
        }
        Ok(())
    }

    fn complete(&self, segment: &Segment) -> Result<(), StorageError> {
        segment.write_indexes(&self.home)?;
        if self.closes { segment.give_back(&self.home) } else { Ok(()) }
    }
}

/// The error of a sync, as that of a checkpoint: bytes that were written are lost, and a full disk is as bad
/// as any other cause. But without a descriptor nothing was tried.
fn final_error(error: io::Error) -> io::Error {
    if lacks_descriptors(&error) { error } else { io::Error::other(error) }
}

fn into_io(error: StorageError) -> io::Error {
    match error {
        StorageError::Io { source, .. } => source,
        other => io::Error::other(other),
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
        if clean || self.is_cutting || self.failed.is_some() {
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

    /// Whether the name of the first segment is not durable while the active one is half full: the next
    /// roll would have to wait for it.
    pub fn wants_names_synced(&self) -> bool {
        let half = self.config.segment_bytes as u64 / 2;
        self.durability.is_first_name_unsynced() && self.active().size() >= half
    }

    /// A ticket that makes the names in the log's directory durable, and no batches; `None` if they are.
    pub fn begin_names_sync(&self) -> Option<SyncTicket> {
        let is_needed = self.durability.names_unsynced() && !self.is_cutting;
        let is_needed = is_needed && self.failed.is_none();
        is_needed.then(|| SyncTicket { up_to: self.durability.synced, ..self.empty_ticket() })
    }

    fn empty_ticket(&self) -> SyncTicket {
        let mut directories = Vec::new();
        if self.durability.names_unsynced() {
            directories.push(self.home.dir.clone());
        }
        if self.durability.parent_unsynced {
            directories.push(self.home.parent().to_owned());
        }
        let is_new = self.durability.parent_unsynced;
        SyncTicket {
            disk: Arc::clone(&self.home.disk),
            metadata: is_new.then(|| self.home.path(PARTITION_METADATA)),
            files: Vec::new(),
            directories,
            segments: Vec::new(),
            up_to: self.log_end,
            truncations: self.durability.truncation_count(),
            names_version: self.durability.names_version,
        }
    }

    /// Takes note of a sync. Returns up to where the log is durable now; if it was truncated in
    /// between, that is as far as before, and another sync is due.
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
        if ticket.truncations != self.durability.truncation_count() {
            return;
        }
        self.durability.synced = self.durability.synced.max(ticket.up_to);
        let mut covered_bytes = 0;
        for (base, size) in &ticket.segments {
            if let Ok(number) = self.segments.binary_search_by_key(base, |s| s.base) {
                covered_bytes += self.segments[number].mark_synced(*size);
            }
        }
        self.count_sync(covered_bytes);
        self.assert_ordered();
    }

    /// A ticket that moves the recovery point to the log end; `None` if it is there. Touches no file.
    pub fn begin_checkpoint(&mut self) -> Result<Option<CheckpointTicket>, StorageError> {
        self.usable()?;
        let unsealed = self.segments.iter().any(|segment| segment.unsealed);
        let done = self.durability.recovery_point == self.log_end
            && !unsealed
            && !self.epochs_unwritten
            && !self.durability.names_unsynced();
        Ok((!done).then(|| self.checkpoint_ticket()))
    }

    fn checkpoint_ticket(&self) -> CheckpointTicket {
        let mut sync = self.empty_ticket();
        // Its own directory is synced last: index files may be new names.
        sync.directories.retain(|dir| *dir != self.home.dir);
        let unsealed: Vec<Segment> =
            self.segments.iter().filter(|segment| segment.unsealed).cloned().collect();
        sync.segments = unsealed.iter().map(|segment| (segment.base, segment.size())).collect();
        let small = self.small_files();
        let kept = self.snapshots_after(self.log_end, &small);
        let outdated = self.snapshots.iter().filter(|offset| !kept.contains(offset));
        CheckpointTicket {
            outdated: outdated.copied().collect(),
            ceiling: self
                .durability
                .ceiling
                .map(|_| (self.log_end < self.durability.promised).then_some(self.log_end)),
            sync,
            home: self.home.clone(),
            unsealed,
            small,
            truncations_now: Arc::clone(&self.durability.truncations),
            closes: false,
        }
    }

    fn small_files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut small = self.producer_files();
        if self.epochs_unwritten {
            small.push((self.home.path(LEADER_EPOCHS), self.epochs.encode()));
        }
        small
    }

    /// Takes note of a checkpoint and moves the recovery point, which is returned. If the log was
    /// truncated in between, nothing moves.
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
        if ticket.sync.truncations == self.durability.truncation_count() {
            self.note_checkpoint(&ticket);
        }
        Ok(self.durability.recovery_point)
    }

    fn note_checkpoint(&mut self, ticket: &CheckpointTicket) {
        let up_to = ticket.sync.up_to;
        self.sealed_by(ticket);
        // Epochs assigned since the ticket was taken wait for the next checkpoint.
        self.epochs_unwritten = self.epochs.encode() != self.written_epochs(ticket);
        if self.log_end == up_to {
            self.durability.unchecked_bytes = 0;
        }
        self.durability.recovery_point = up_to;
        self.durability.promised = self.durability.promised.max(up_to);
        self.durability.ceiling = ticket.ceiling.unwrap_or(self.durability.ceiling);
        self.snapshots = self.snapshots_after(up_to, &ticket.small);
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
        for view in &ticket.unsealed {
            let place = self.segments.binary_search_by_key(&view.base, |s| s.base);
            let Ok(number) = place else { continue };
            let segment = &mut self.segments[number];
            // A roll since then has closed the time index, and the size is the same.
            if segment.version() == view.version() {
                segment.checkpointed();
            }
        }
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

    /// The log has its first file, if it had none: no sync that began before has seen its name, nor, it may be,
    /// that of the partition's directory.
    pub(super) fn first_file_was_made(&mut self) {
        if std::mem::take(&mut self.is_unnamed) {
            self.durability.first_name_changed();
            self.durability.parent_unsynced = true;
        }
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
        if let Some(ticket) = self.begin_close()? {
            let result = ticket.run();
            self.finish_checkpoint(ticket, result)?;
        }
        self.release_files();
        Ok(())
    }

    /// The checkpoint that [`Log::close`] makes; `None` if all is as it shall be but for files that are
    /// open.
    pub fn begin_close(&mut self) -> Result<Option<CheckpointTicket>, StorageError> {
        self.usable()?;
        let has_zeros = self.end_ahead();
        // Views that are taken for the ticket know what was reserved.
        let sealed = (self.active().unsealed || has_zeros) && self.active().size() > 0;
        let view = sealed.then(|| {
            let mut view = self.active_mut().begin_seal();
            if has_zeros {
                view.cut_is_to_be_synced();
            }
            view
        });
        let ticket = self.begin_checkpoint()?;
        Ok(ticket.map(|mut ticket| {
            ticket.closes = true;
            if let (Some(view), Some(last)) = (view, ticket.unsealed.last_mut()) {
                *last = view;
            }
            ticket
        }))
    }
}
