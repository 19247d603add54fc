//! The files that save reading all batches to know the producers, and what is derived from them and
//! from the batches behind them.
//!
//! There are two of each offset: ours with all that is known (`producers/state_file.rs`), and Kafka's
//! with less (`producers/snapshot.rs`). At the same offset ours wins. Where there is only Kafka's,
//! the batches before it are read, from an older file of ours on if there is one, for what Kafka's
//! leaves out.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use model::{BatchHeader, Offset};

use super::Log;
use super::append::Boundaries;
use super::sync::SyncedState;
use crate::StorageError;
use crate::disk::DiskFile;
use crate::epoch_history::EpochHistory;
use crate::error::Context;
use crate::names::{Home, LOG, PRODUCERS, SNAPSHOT};
use crate::producers::aborted::AbortedTransaction;
use crate::producers::{Producers, snapshot, state_file};
use crate::scan::HeaderWalk;

/// Where no producer is known, no file is written unless at least so much of the log would have to be
/// read to know that again.
const UNNOTED_BYTES_MAX: u64 = 64 << 10;
/// So much of the log is looked at for what Kafka's file leaves out, to the whole segment.
const EARLIER_BYTES_MAX: u64 = 256 << 20;

impl Log {
    /// Derives the producers from the newest file and the batches behind it.
    pub(super) fn reload_producers(&mut self) -> Result<(), StorageError> {
        let before = std::mem::take(&mut self.producers);
        self.replay_producers(self.log_end, self.log_end)?;
        // When they appended is told by no batch.
        self.producers.keep_append_times(&before);
        (self.is_resumed, self.may_know_producers) = (false, false);
        Ok(())
    }

    /// The producers as they were when the log ended at `offset`, a batch boundary.
    pub(super) fn producers_at(&mut self, offset: Offset) -> Result<Producers, StorageError> {
        let now = self.producers.clone();
        let result = self.replay_producers(offset, offset);
        let mut then = std::mem::replace(&mut self.producers, now);
        then.keep_append_times(&self.producers);
        result.map(|_| then)
    }

    /// Derives the producers from a file at or below `most` and the batches behind it, up to `until`.
    /// Returns the aborted transactions whose markers were met on the way.
    pub(super) fn replay_producers(
        &mut self,
        most: Offset,
        until: Offset,
    ) -> Result<Vec<AbortedTransaction>, StorageError> {
        let from = self.load_producers(most)?;
        self.walk_producers(from, until)
    }

    /// Takes in what the batches between two offsets tell of producers.
    fn walk_producers(
        &mut self,
        from: Offset,
        until: Offset,
    ) -> Result<Vec<AbortedTransaction>, StorageError> {
        let mut aborted = Vec::new();
        let home = self.home.clone();
        for number in self.segment_of(from)..self.segments.len() {
            let segment = &self.segments[number];
            if segment.base >= until {
                break;
            }
            let Some(start) = segment.locate(&home, from)? else { continue };
            let (base, size) = (segment.base, segment.size());
            let file = segment.file(&home)?;
            let mut walk = HeaderWalk::new(&*file, start.position, size);
            loop {
                let header = match walk.next() {
                    Ok(Some((_, header))) if header.base_offset < until => header,
                    Ok(_) => break,
                    Err(error) => {
                        let at = walk.position();
                        return Err(self.segments[number].unreadable(&home, at, base, error));
                    }
                };
                let batch = match header.is_control() {
                    true => read_batch(&home, base, &*file, walk.position(), &header)?,
                    false => Vec::new(),
                };
                aborted.extend(self.take_in_producer(&header, &batch, self.opened_at));
            }
        }
        Ok(aborted)
    }

    /// Loads the newest good file at or below `most`; damaged ones go. Returns its offset, or the first
    /// offset there is.
    fn load_producers(&mut self, most: Offset) -> Result<Offset, StorageError> {
        self.producers = Producers::default();
        for offset in self.producer_files_up_to(most) {
            if let Some(own) = self.load_own(offset)? {
                self.producers = own;
                return Ok(offset);
            }
            if let Some(kafkas) = self.load_file(offset, SNAPSHOT, snapshot::decode)? {
                self.take_kafkas(offset, kafkas)?;
                return Ok(offset);
            }
            self.snapshots.retain(|known| *known != offset);
        }
        Ok(self.segments[0].base)
    }

    /// Takes over what Kafka's file of `offset` tells, and the earlier batches of these producers out of
    /// the log.
    fn take_kafkas(&mut self, offset: Offset, kafkas: Producers) -> Result<(), StorageError> {
        if kafkas.len() > 0 {
            let from = self.load_earlier(offset)?;
            self.walk_producers(from, offset)?;
        }
        let earlier = std::mem::replace(&mut self.producers, kafkas);
        self.producers.set_unknown_append_times(self.opened_at);
        self.producers.remember_earlier(&earlier);
        Ok(())
    }

    /// Loads the newest file of ours before `offset`, as far as it is worth looking for. Returns from
    /// where on batches are to be read.
    fn load_earlier(&mut self, offset: Offset) -> Result<Offset, StorageError> {
        let mut bytes = 0;
        let mut first = offset;
        for number in (0..=self.segment_of(offset)).rev() {
            first = self.segments[number].base;
            bytes += self.segments[number].size();
            if bytes >= EARLIER_BYTES_MAX {
                break;
            }
        }
        for earlier in self.producer_files_up_to(offset.plus(-1)) {
            if earlier < first {
                break;
            }
            if let Some(own) = self.load_own(earlier)? {
                self.producers = own;
                return Ok(earlier);
            }
        }
        Ok(first)
    }

    fn load_own(&self, offset: Offset) -> Result<Option<Producers>, StorageError> {
        self.load_file(offset, PRODUCERS, |bytes| state_file::decode(bytes, offset))
    }

    /// Offsets of which there is a file, from the newest on.
    fn producer_files_up_to(&self, most: Offset) -> Vec<Offset> {
        self.snapshots.iter().copied().filter(|offset| *offset <= most).rev().collect()
    }

    fn load_file(
        &self,
        offset: Offset,
        suffix: &str,
        decode: impl Fn(&[u8]) -> Option<Producers>,
    ) -> Result<Option<Producers>, StorageError> {
        let path = self.home.segment_path(offset, suffix);
        let bytes = match self.home.disk.read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).during("read", &path),
        };
        let found = decode(&bytes);
        if found.is_none() {
            remove_if_there(&self.home, &path)?;
        }
        Ok(found)
    }

    /// The files of the producers at the log end, with their content; none where reading the log again
    /// costs no more.
    pub(super) fn producer_files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        if self.is_resumed {
            // They are as they were written.
            return Vec::new();
        }
        if self.producers.len() == 0 && self.bytes_behind_newest_file() < UNNOTED_BYTES_MAX {
            return Vec::new();
        }
        files_of(&self.home, &self.producers, self.log_end)
    }

    /// Bytes of the segments that must be read to know the producers, were no file written now.
    fn bytes_behind_newest_file(&self) -> u64 {
        let from = self.snapshots.last().copied().unwrap_or(self.segments[0].base);
        if from >= self.log_end {
            return 0;
        }
        self.segments[self.segment_of(from)..].iter().map(|segment| segment.size()).sum()
    }

    /// What is to be done for durable files of the producers at the base of a segment: of what the
    /// batches before it tell of them and will not tell any more.
    pub(crate) fn keep_producers_at(&self, next: Offset) -> ProducersKept {
        let is_needed = self.producers.len() > 0;
        // A roll leaves files. If there are none, this log came from elsewhere, or they were lost; and what a roll
        // leaves is not synced, so a power failure may have left only their names.
        let known = match self.snapshots.contains(&next) {
            true => Producers::default(),
            false => self.producers.clone(),
        };
        let log = is_needed.then(|| Box::new(self.view_with(known)));
        ProducersKept { next, log }
    }

    /// There are files of the producers at this offset.
    pub(crate) fn producers_are_kept(&mut self, kept: &ProducersKept) {
        if let (true, Err(at)) = (kept.log.is_some(), self.snapshots.binary_search(&kept.next)) {
            self.snapshots.insert(at, kept.next);
        }
    }

    /// The log as it is now, to be read without its lock.
    pub(super) fn view(&self) -> Log {
        self.view_with(self.producers.clone())
    }

    fn view_with(&self, producers: Producers) -> Log {
        Log {
            home: self.home.clone(),
            config: Arc::clone(&self.config),
            segments: self.segments.clone(),
            producers,
            epochs: EpochHistory::default(),
            epochs_unwritten: false,
            snapshots: self.snapshots.clone(),
            durability: SyncedState::new(self.log_start),
            boundaries: Boundaries::default(),
            ahead: None,
            failed: None,
            recovery: None,
            ..*self
        }
    }

    /// Offsets of the files of the producers that stay after a checkpoint: those at a segment's base, and
    /// from the newest one at or below the recovery point on. `small`: what the checkpoint writes.
    pub(super) fn snapshots_after(
        &self,
        recovery_point: Offset,
        small: &[(PathBuf, Vec<u8>)],
    ) -> Vec<Offset> {
        let mut snapshots = self.snapshots.clone();
        let snapshot = self.home.segment_path(recovery_point, SNAPSHOT);
        if let (true, Err(at)) = (
            small.iter().any(|(path, _)| *path == snapshot),
            snapshots.binary_search(&recovery_point),
        ) {
            snapshots.insert(at, recovery_point);
        }
        let below = snapshots.partition_point(|offset| *offset <= recovery_point);
        let newest = below.checked_sub(1).map_or(recovery_point, |last| snapshots[last]);
        let bases: Vec<Offset> = self.segments.iter().map(|segment| segment.base).collect();
        snapshots.retain(|offset| *offset >= newest || bases.binary_search(offset).is_ok());
        snapshots
    }

    /// Removes both files of an offset.
    pub(super) fn remove_snapshot(&self, offset: Offset) -> Result<(), StorageError> {
        remove_files(&self.home, offset)
    }
}

/// Files of the producers at the base of a segment, to be made durable. Running it needs no lock.
#[derive(Debug)]
pub(crate) struct ProducersKept {
    next: Offset,
    /// What the files are made of, if there are no good ones; `None` if there is nothing to tell.
    log: Option<Box<Log>>,
}

impl ProducersKept {
    /// Writes the files if there are no good ones, and syncs them; their names are the caller's.
    pub(crate) fn run(&mut self) -> Result<(), StorageError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let (home, next) = (log.home.clone(), self.next);
        if log.snapshots.contains(&next) && log.load_own(next)?.is_some() {
            return sync_files(&home, next);
        }
        for (path, content) in files_of(&home, &log.producers_at(next)?, next) {
            home.disk.write_atomically(&path, &content).during("write", &path)?;
        }
        Ok(())
    }
}

/// Syncs both files of an offset.
fn sync_files(home: &Home, offset: Offset) -> Result<(), StorageError> {
    for suffix in [SNAPSHOT, PRODUCERS] {
        let path = home.segment_path(offset, suffix);
        match home.disk.sync_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).during("sync", &path);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes both files of an offset.
pub(crate) fn remove_files(home: &Home, offset: Offset) -> Result<(), StorageError> {
    for suffix in [SNAPSHOT, PRODUCERS] {
        remove_if_there(home, &home.segment_path(offset, suffix))?;
    }
    Ok(())
}

fn files_of(home: &Home, producers: &Producers, offset: Offset) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = vec![(home.segment_path(offset, SNAPSHOT), snapshot::encode(producers))];
    if producers.len() > 0 {
        let own = state_file::encode(producers, offset);
        files.push((home.segment_path(offset, PRODUCERS), own));
    }
    files
}

fn remove_if_there(home: &Home, path: &std::path::Path) -> Result<(), StorageError> {
    match home.disk.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).during("remove", path),
        _ => Ok(()),
    }
}

/// The whole batch that ends at `end`.
fn read_batch(
    home: &Home,
    base: Offset,
    file: &dyn DiskFile,
    end: u64,
    header: &BatchHeader,
) -> Result<Vec<u8>, StorageError> {
    let mut bytes = vec![0; header.size_bytes as usize];
    let got = file
        .read_at(&mut bytes, end - header.size_bytes as u64)
        .during("read", &home.segment_path(base, LOG))?;
    bytes.truncate(got);
    Ok(bytes)
}
