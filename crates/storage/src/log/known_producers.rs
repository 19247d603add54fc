//! The files that save reading all batches to know the producers, and what is derived from them and
//! from the batches behind them.
//!
//! There are two of each offset: ours with all that is known (`producers/state_file.rs`), and Kafka's
//! with less (`producers/snapshot.rs`). At the same offset ours wins. Where there is only Kafka's,
//! the batches before it are read, from an older file of ours on if there is one, for what Kafka's
//! leaves out.

use std::io;
use std::path::PathBuf;

use model::{BatchHeader, Offset};

use super::Log;
use crate::StorageError;
use crate::disk::{DiskFile, OpenMode};
use crate::error::Context;
use crate::names::{Home, LOG, PRODUCERS, SNAPSHOT};
use crate::producers::transactions::AbortedTransaction;
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

    /// Writes the state of the producers at the log end. It is not synced: a torn one is noticed, and
    /// an older one serves.
    pub(super) fn write_producers(&mut self) -> Result<(), StorageError> {
        if self.snapshots.last() == Some(&self.log_end) {
            return Ok(());
        }
        let files = self.producer_files();
        for (path, content) in &files {
            let write = || {
                let file = self.home.disk.open(path, OpenMode::Create)?;
                file.truncate(0)?;
                file.write_all_at(content, 0)
            };
            write().during("write", path)?;
        }
        if !files.is_empty() {
            self.snapshots.push(self.log_end);
        }
        Ok(())
    }

    /// Makes sure of durable files at the base of a segment: of what the batches before it tell of
    /// producers and will not tell any more.
    pub(crate) fn keep_producers_at(&mut self, next: Offset) -> Result<(), StorageError> {
        if self.producers.len() == 0 {
            return Ok(());
        }
        let home = self.home.clone();
        if let Err(at) = self.snapshots.binary_search(&next) {
            for (path, content) in files_of(&home, &self.producers_at(next)?, next) {
                home.disk.write_atomically(&path, &content).during("write", &path)?;
            }
            self.snapshots.insert(at, next);
            return Ok(());
        }
        for suffix in [SNAPSHOT, PRODUCERS] {
            let path = home.segment_path(next, suffix);
            match home.disk.open(&path, OpenMode::ReadWrite) {
                Ok(file) => file.sync().during("sync", &path)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).during("open", &path),
            }
        }
        Ok(())
    }

    /// Removes files that are neither at a segment's base nor the newest at or below the recovery point:
    /// checkpoints leave some each. `written`: those at the recovery point were just written.
    pub(super) fn keep_useful_snapshots(
        &mut self,
        recovery_point: Offset,
        written: bool,
    ) -> Result<(), StorageError> {
        if written && self.snapshots.last() != Some(&recovery_point) {
            self.snapshots.push(recovery_point);
            self.snapshots.sort_unstable();
            self.snapshots.dedup();
        }
        let below = self.snapshots.partition_point(|offset| *offset <= recovery_point);
        let newest = below.checked_sub(1).map_or(recovery_point, |last| self.snapshots[last]);
        let bases: Vec<Offset> = self.segments.iter().map(|segment| segment.base).collect();
        let keep = |offset: &Offset| *offset >= newest || bases.binary_search(offset).is_ok();
        let (kept, dropped): (Vec<_>, Vec<_>) = self.snapshots.iter().copied().partition(keep);
        self.snapshots = kept;
        dropped.into_iter().try_for_each(|offset| self.remove_snapshot(offset))
    }

    /// Removes both files of an offset.
    pub(super) fn remove_snapshot(&self, offset: Offset) -> Result<(), StorageError> {
        for suffix in [SNAPSHOT, PRODUCERS] {
            remove_if_there(&self.home, &self.home.segment_path(offset, suffix))?;
        }
        Ok(())
    }
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
