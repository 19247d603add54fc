//! Recovery after a crash: what lies past the recovery point is read and checked, batch by batch.
//!
//! ```text
//!             recovery point
//!                   v
//! | trusted | trusted . . scanned | scanned | torn
//! ```
//!
//! Segments that end below the recovery point are trusted. In the one that contains it, or ends at
//! it, the scan begins at the last index entry below it: index entries up to there were made
//! durable by the checkpoint that moved it. What fails its check behind the recovery point was
//! never durable as a whole: the log is cut there, and what follows goes, so that it stays a prefix
//! of what was appended (S2). What fails below it is damage, and nothing is cut (S12).

use model::{BatchError, BatchHeader, Offset};

use super::Log;
use super::open::{Found, OnDamage, Opening, Recovery};
use crate::StorageError;
use crate::disk::OpenMode;
use crate::epoch_history::EpochHistory;
use crate::error::{Context, Damage};
use crate::index::Entry;
use crate::names::{self, DAMAGED, LOG, TRANSACTION_INDEX};
use crate::producers::transactions;
use crate::scan::{BatchScan, HeaderWalk, ScanError, valid_batch_behind};
use crate::segment::Segment;

/// Where a scan stopped before the end of the files.
struct Stop {
    /// The segment's place in the list of those found.
    number: usize,
    /// Bytes of it that are good.
    position: u64,
    reason: String,
}

impl Log {
    /// Opens the segments that `found` names after a crash.
    pub(super) fn recover(
        &mut self,
        found: &Found,
        recovery_point: Offset,
        opening: Opening,
    ) -> Result<(), StorageError> {
        let mut recovery = Recovery::default();
        // A segment that ends at the recovery point may have been sealed after the checkpoint.
        let trusted = found.bases.partition_point(|base| *base < recovery_point).max(1) - 1;
        for base in &found.bases[..trusted] {
            let size = self.segment_file_size(*base)?;
            self.segments.push(Segment::sealed(*base, size));
        }
        let scan_from = self.scan(found, trusted, recovery_point, &mut recovery, opening)?;
        self.recovery = Some(Box::new(recovery));
        self.durability.synced = recovery_point.min(self.log_end);
        self.durability.recovery_point = self.durability.synced;
        self.durability.unchecked_bytes = self.segments[trusted..].iter().map(Segment::size).sum();
        // A process that crashed may have left names that only the page cache knows.
        self.durability.names_changed();
        self.durability.parent_unsynced = true;
        self.drop_snapshots_behind_end()?;
        self.derive_producers(trusted, scan_from)?;
        self.check_epochs()?;
        self.epochs_unwritten = true;
        Ok(())
    }

    /// Scans the segments from number `first` on. Returns the offset from which on batches were
    /// read.
    fn scan(
        &mut self,
        found: &Found,
        first: usize,
        recovery_point: Offset,
        recovery: &mut Recovery,
        opening: Opening,
    ) -> Result<Offset, StorageError> {
        let mut scan_from = found.bases[first];
        self.log_end = scan_from;
        let mut stop = None;
        for number in first..found.bases.len() {
            let base = found.bases[number];
            if number > first {
                let home = self.home.clone();
                self.active_mut().seal(&home)?;
                if base.0 - self.log_end.0 != 0 && !self.is_wide_gap(base) {
                    let reason = format!("the next segment begins at {base}");
                    let position = self.active().size();
                    stop = Some(Stop { number: number - 1, position, reason });
                    break;
                }
                self.log_end = base;
            }
            let from = self.scan_segment(base, recovery_point, recovery)?;
            if number == first {
                scan_from = from.0;
            }
            if let Some((position, reason)) = from.1 {
                stop = Some(Stop { number, position, reason });
                break;
            }
        }
        self.act_on(stop, found, recovery_point, recovery, opening)?;
        Ok(scan_from)
    }

    /// Whether the last segment could not have been continued up to `base`: then no batch is
    /// missing in between.
    fn is_wide_gap(&self, base: Offset) -> bool {
        base > self.log_end && base.0 - self.active().base.0 > i32::MAX as i64
    }

    /// Scans one segment and adds it to the list. Returns from which offset on, and where and why
    /// it stopped early.
    fn scan_segment(
        &mut self,
        base: Offset,
        recovery_point: Offset,
        recovery: &mut Recovery,
    ) -> Result<(Offset, Option<(u64, String)>), StorageError> {
        let home = self.home.clone();
        let path = home.segment_path(base, LOG);
        let file_size = self.segment_file_size(base)?;
        let mut segment = Segment::sealed(base, file_size);
        let mut scan_from = base;
        match segment.trust_below(&home, recovery_point)? {
            Some(header) => scan_from = header.base_offset,
            None => segment = Segment::unscanned(base),
        }
        self.epochs.truncate_end(scan_from);
        let file = segment.file(&home)?;
        let start = segment.size();
        let mut scan = BatchScan::new(&*file, start, file_size);
        let mut expected = scan_from;
        let stop = loop {
            match scan.next() {
                Ok(Some((_, header, _))) if header.base_offset < expected => {
                    let found = header.base_offset;
                    let reason = format!("offset {found} follows where {expected} is due");
                    break Some((segment.size(), reason));
                }
                Ok(Some((_, header, _))) if !segment.reaches(header.last_offset()) => {
                    let found = header.base_offset;
                    break Some((segment.size(), format!("offset {found} is out of reach")));
                }
                Ok(Some((position, header, _))) => {
                    segment.extend(position, &header, self.config.index_interval_bytes);
                    self.epochs.assign(header.leader_epoch, header.base_offset);
                    expected = header.next_offset();
                }
                Ok(None) => break None,
                Err(ScanError::Batch(error)) => break Some((scan.position(), error.to_string())),
                Err(ScanError::Io(error)) => return Err(error).during("read", &path),
            }
        };
        segment.forget_reservation();
        recovery.scanned_bytes += segment.size() - start;
        self.log_end = expected;
        self.segments.push(segment);
        Ok((scan_from, stop))
    }

    /// Cuts the log where the scan stopped, or refuses to.
    fn act_on(
        &mut self,
        stop: Option<Stop>,
        found: &Found,
        recovery_point: Offset,
        recovery: &mut Recovery,
        opening: Opening,
    ) -> Result<(), StorageError> {
        let end = self.log_end;
        let stop = stop.or_else(|| {
            (end < recovery_point).then(|| Stop {
                number: found.bases.len() - 1,
                position: self.active().size(),
                reason: format!("the log ends here, below recovery point {recovery_point}"),
            })
        });
        let Some(stop) = stop else { return Ok(()) };
        if end < recovery_point {
            let segment = self.home.segment_path(found.bases[stop.number], LOG);
            let damage =
                Damage { segment, position: stop.position, offset: end, reason: stop.reason };
            if opening.on_damage == OnDamage::Refuse {
                return Err(StorageError::Damaged(Box::new(damage)));
            }
            self.lower_ceiling(end)?;
            self.keep_copies(&found.bases[stop.number..], stop.position)?;
            recovery.set_aside = Some(damage);
        }
        self.cut(found, stop.number, stop.position, recovery)
    }

    /// Copies what will be cut off under names that nobody else reads.
    fn keep_copies(&self, bases: &[Offset], position: u64) -> Result<(), StorageError> {
        const CHUNK_BYTES: usize = 1 << 20;
        let disk = &self.home.disk;
        for (number, base) in bases.iter().enumerate() {
            let path = self.home.segment_path(*base, LOG);
            let copy = self.home.dir.join(names::file_name(*base, LOG) + DAMAGED);
            let mut at = if number == 0 { position } else { 0 };
            let mut copying = || {
                let from = disk.open(&path, OpenMode::Read)?;
                let to = disk.open(&copy, OpenMode::Create)?;
                to.truncate(0)?;
                let mut buffer = vec![0; CHUNK_BYTES];
                let mut written = 0;
                loop {
                    let got = from.read_at(&mut buffer, at)?;
                    to.write_all_at(&buffer[..got], written)?;
                    (at, written) = (at + got as u64, written + got as u64);
                    if got < CHUNK_BYTES {
                        return to.sync();
                    }
                }
            };
            copying().during("copy", &path)?;
        }
        disk.sync_dir(&self.home.dir).during("sync", &self.home.dir)
    }

    /// Drops the segments behind number `number`, the last one first, then cuts that one.
    fn cut(
        &mut self,
        found: &Found,
        number: usize,
        position: u64,
        recovery: &mut Recovery,
    ) -> Result<(), StorageError> {
        let home = self.home.clone();
        let size = self.segment_file_size(found.bases[number])?;
        let file = self.active().file(&home)?;
        let path = home.segment_path(found.bases[number], LOG);
        recovery.cut_whole_batches =
            valid_batch_behind(&*file, position, size).during("read", &path)?;
        for base in found.bases[number + 1..].iter().rev() {
            recovery.dropped_segments += 1;
            recovery.cut_bytes += self.segment_file_size(*base)?;
            self.remove_segment_files(*base)?;
            home.disk.sync_dir(&home.dir).during("sync", &home.dir)?;
        }
        recovery.cut_bytes += size.saturating_sub(position);
        let cutting = || {
            file.truncate(position)?;
            file.sync()
        };
        cutting().during("truncate", &path)
    }

    /// Derives the producers, and the aborted transactions of the segments that were scanned.
    fn derive_producers(&mut self, first: usize, scan_from: Offset) -> Result<(), StorageError> {
        let met = self.replay_producers(scan_from, self.log_end)?;
        if self.snapshots.iter().any(|offset| *offset > scan_from) {
            // A newer snapshot may know producers whose batches were deleted.
            self.reload_producers()?;
        }
        for number in first..self.segments.len() {
            let (base, end) = (self.segments[number].base, self.end_of(number));
            let mut aborted = transactions::load_aborted(&self.home, base)?;
            aborted.retain(|t| t.last_offset < scan_from);
            let here = |t: &&transactions::AbortedTransaction| {
                t.last_offset >= scan_from.max(base) && t.last_offset < end
            };
            aborted.extend(met.iter().filter(here));
            let path = self.home.segment_path(base, TRANSACTION_INDEX);
            transactions::store_aborted(&self.home, &path, &aborted)?;
        }
        Ok(())
    }

    /// Drops aborted transactions whose markers were cut off.
    pub(super) fn drop_aborted_behind(&self, end: Offset) -> Result<(), StorageError> {
        let base = self.active().base;
        let mut aborted = transactions::load_aborted(&self.home, base)?;
        let before = aborted.len();
        aborted.retain(|t| t.last_offset < end);
        if aborted.len() == before {
            return Ok(());
        }
        let path = self.home.segment_path(base, TRANSACTION_INDEX);
        transactions::store_aborted(&self.home, &path, &aborted)
    }

    /// Compares the epoch history with the batches at its seams, for its file has no checksum; if
    /// they disagree, it is made anew.
    fn check_epochs(&mut self) -> Result<(), StorageError> {
        self.epochs.truncate_end(self.log_end);
        let good = self.first_epoch_is_covered()?
            && self.epochs.entries().iter().try_fold(true, |good, (epoch, start)| {
                Ok::<bool, StorageError>(good && self.is_seam(*epoch, *start)?)
            })?;
        if !good {
            self.epochs = self.derive_epochs()?;
        }
        Ok(())
    }

    /// Whether the history begins no later than the log's first batch.
    fn first_epoch_is_covered(&self) -> Result<bool, StorageError> {
        let first = self.segments[0].base;
        let first = first.max(self.log_start);
        let Some(batch) = self.batch_at(first)? else { return Ok(true) };
        let known = self.epochs.epoch_at(batch.base_offset.max(first));
        Ok(known == batch.leader_epoch || batch.leader_epoch < model::LeaderEpoch(0))
    }

    /// Whether the batches around `start` say that `epoch` began there.
    fn is_seam(&self, epoch: model::LeaderEpoch, start: Offset) -> Result<bool, StorageError> {
        let begins = match self.batch_at(start)? {
            None => true,
            // Compaction may have removed the first batches of an epoch, or all of them.
            Some(batch) if batch.base_offset > start => batch.leader_epoch >= epoch,
            Some(batch) => batch.leader_epoch == epoch,
        };
        if start <= self.segments[0].base.max(self.log_start) {
            return Ok(begins);
        }
        let before = self.batch_at(start.plus(-1))?;
        Ok(begins
            && before.is_none_or(|batch| batch.base_offset >= start || batch.leader_epoch < epoch))
    }

    /// The batch that contains `offset`, or the first one behind it.
    fn batch_at(&self, offset: Offset) -> Result<Option<BatchHeader>, StorageError> {
        for segment in &self.segments[self.segment_of(offset)..] {
            if let Some(found) = segment.locate(&self.home, offset)? {
                return Ok(Some(found.header));
            }
        }
        Ok(None)
    }

    /// The epoch history as the headers of all batches tell it.
    fn derive_epochs(&self) -> Result<EpochHistory, StorageError> {
        let mut epochs = EpochHistory::default();
        for segment in &self.segments {
            let file = segment.file(&self.home)?;
            let mut walk = HeaderWalk::new(&*file, 0, segment.size());
            loop {
                match walk.next() {
                    Ok(Some((_, header))) => {
                        epochs.assign(header.leader_epoch, header.base_offset);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        let at = walk.position();
                        return Err(segment.unreadable(&self.home, at, segment.base, error));
                    }
                }
            }
        }
        Ok(epochs)
    }
}

impl Segment {
    /// Trusts the index entries below the recovery point and takes the segment as known up to the
    /// last batch they name, whose header is returned; the scan begins with that batch. `None`: no
    /// entry is of use.
    fn trust_below(
        &mut self,
        home: &names::Home,
        recovery_point: Offset,
    ) -> Result<Option<BatchHeader>, StorageError> {
        let base = self.base;
        if self.offsets.is_broken(home, base).during("read", &home.segment_path(base, LOG))?
            || self.times.is_broken(home, base).during("read", &home.segment_path(base, LOG))?
        {
            return Ok(None);
        }
        let path = home.segment_path(base, names::OFFSET_INDEX);
        let offsets = self.offsets.entries(home, base).during("read", &path)?;
        let below = recovery_point.0 - base.0;
        let mut count = 0usize;
        let mut before = (-1i64, -1i64);
        for entry in &offsets {
            let here = (entry.relative_offset as i64, entry.position as i64);
            if here.0 <= before.0 || here.1 <= before.1 || here.0 >= below {
                break;
            }
            before = here;
            count += 1;
        }
        let Some(last) = count.checked_sub(1).map(|last| offsets[last]) else { return Ok(None) };
        let file = self.file(home)?;
        let end = base.plus(last.relative_offset as i64);
        let header = match BatchScan::new(&*file, last.position as u64, self.size()).next() {
            Ok(Some((_, header, _))) if header.last_offset() == end => header,
            Ok(_) | Err(ScanError::Batch(BatchError::Truncated { .. })) => return Ok(None),
            Err(ScanError::Batch(_)) => return Ok(None),
            Err(ScanError::Io(error)) => return Err(error).during("read", &path),
        };
        let path = home.segment_path(base, names::TIME_INDEX);
        let times = self.times.entries(home, base).during("read", &path)?;
        let rising = times.windows(2).take_while(|pair| {
            pair[0].timestamp < pair[1].timestamp
                && pair[0].relative_offset <= pair[1].relative_offset
        });
        let rising = if times.is_empty() { 0 } else { rising.count() + 1 };
        let known =
            times[..rising].partition_point(|e| e.relative_offset() <= last.relative_offset);
        self.offsets.trust(count as u32);
        self.times.trust(known as u32);
        self.resume(home, last.position as u64)?;
        Ok(Some(header))
    }
}
