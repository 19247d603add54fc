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
//! durable by the checkpoint that moved it. What fails its check behind everything that was synced
//! (the *bound*: the recovery point, or the synced offset if the caller knows one) was never durable
//! as a whole: the log is cut there, and what follows goes, so that it stays a prefix of what was
//! appended (S2). What fails below the bound is damage, and nothing is cut (S12).
//!
//! Base offset, length and leader epoch of a batch lie outside its checksum. Where offsets are dense
//! (`Opening::dense_from`) only one base offset is right, and epochs never fall.

use model::{BatchError, BatchHeader, LeaderEpoch, Offset};

use super::Log;
use super::listed::Contradiction;
use super::open::Found;
use super::opening::{Recovery, Trust};
use super::zeros::may_end_before;
use crate::StorageError;
use crate::disk::OpenMode;
use crate::epoch_history::EpochHistory;
use crate::error::{Context, Damage};
use crate::index::Entry;
use crate::names::{self, DAMAGED, LOG};
use crate::scan::{BatchScan, HeaderWalk, ScanError, only_zeros, valid_batch_behind};
use crate::segment::Segment;

/// Where a scan stopped before the end of the files.
struct Stop {
    /// The segment's place in the list of those found.
    number: usize,
    /// Bytes of it that are good.
    position: u64,
    reason: String,
    /// Whether no crash leaves such bytes, wherever they stand.
    no_crash: bool,
}

/// What is known after each segment of a scan.
struct Scan<'a> {
    found: &'a Found,
    trust: &'a Trust<'a>,
    contradiction: Option<Contradiction>,
    /// The largest leader epoch of a batch that was read.
    epoch: LeaderEpoch,
    recovery: Recovery,
}

impl Scan<'_> {
    /// Why a batch whose checksum holds cannot be the one that begins at `expected`, and whether no
    /// crash could have left it.
    fn objection(&self, header: &BatchHeader, expected: Offset) -> Option<(String, bool)> {
        let found = header.base_offset;
        let dense = self.trust.is_dense(expected);
        if found < expected || (found > expected && dense) {
            // The first bytes of an offset may have been lost with the sector before.
            return Some((format!("offset {found} follows where {expected} is due"), false));
        }
        // A sector that loses bytes of the epoch loses the length too, so these were changed later.
        let wrong = self.trust.wrong_epoch(header.leader_epoch, found, expected, self.epoch)?;
        Some((wrong, true))
    }
}

impl Log {
    /// Opens the segments that `found` names after a crash, or where a clean stop left something
    /// else than is there.
    pub(super) fn recover(
        &mut self,
        found: &Found,
        trust: &Trust<'_>,
        contradiction: Option<Contradiction>,
    ) -> Result<(), StorageError> {
        if contradiction.as_ref().is_some_and(|wrong| wrong.base < found.bases[0]) {
            return self.set_all_aside(found, trust, contradiction);
        }
        // A segment that ends at the recovery point may have been sealed after the checkpoint.
        let mut trusted =
            found.bases.partition_point(|base| *base < trust.recovery_point).max(1) - 1;
        if let Some(wrong) = &contradiction {
            let before = found.bases.partition_point(|base| *base <= wrong.base).max(1) - 1;
            trusted = trusted.min(before);
        }
        for base in &found.bases[..trusted] {
            self.segments.push(Segment::sealed(*base, found.segment_bytes(*base)));
        }
        let (epoch, recovery) = (LeaderEpoch::NONE, Recovery::default());
        let mut scan = Scan { found, trust, contradiction, epoch, recovery };
        let scan_from = self.scan(trusted, &mut scan)?;
        scan.recovery.rewritten_bytes = self.rewrite_unsynced(trust)?;
        self.recovery = Some(Box::new(scan.recovery));
        self.durability.synced = trust.bound.min(self.log_end);
        self.durability.recovery_point = trust.recovery_point.min(self.log_end);
        self.durability.unchecked_bytes = self.segments[trusted..].iter().map(Segment::size).sum();
        // A process that crashed may have left names that only the page cache knows.
        self.durability.first_name_changed();
        self.durability.parent_unsynced = true;
        self.drop_snapshots_behind_end()?;
        self.derive_producers(trusted, scan_from)?;
        self.check_epochs(trust)
    }

    /// The front of the log is gone: what is behind it cannot stay.
    fn set_all_aside(
        &mut self,
        found: &Found,
        trust: &Trust<'_>,
        contradiction: Option<Contradiction>,
    ) -> Result<(), StorageError> {
        self.segments = found.bases.iter().map(|base| Segment::sealed(*base, 0)).collect();
        self.keep_copies(&found.bases, 0)?;
        self.start_over(trust.opening.log_start_offset)?;
        let set_aside = contradiction.map(|wrong| wrong.damage(&self.home));
        self.recovery = Some(Box::new(Recovery { set_aside, ..Recovery::default() }));
        Ok(())
    }

    /// Scans the segments from number `first` on. Returns the offset from which on batches were
    /// read.
    fn scan(&mut self, first: usize, scan: &mut Scan<'_>) -> Result<Offset, StorageError> {
        let bases = &scan.found.bases;
        let mut scan_from = bases[first];
        self.log_end = scan_from;
        let mut stop = None;
        for (number, &base) in bases.iter().enumerate().skip(first) {
            if number > first {
                if let Some(reason) = self.break_before(base, scan) {
                    let position = self.active().size();
                    stop = Some(Stop { number: number - 1, position, reason, no_crash: false });
                    break;
                }
                let home = self.home.clone();
                self.active_mut().seal(&home)?;
                self.log_end = base;
            }
            let (from, stopped) = self.scan_segment(number, scan)?;
            if number == first {
                scan_from = from;
            }
            if stopped.is_some() {
                stop = stopped;
                break;
            }
        }
        self.act_on(stop, scan)?;
        Ok(scan_from)
    }

    /// Why the segment at `base` cannot be the one that follows the last one scanned.
    fn break_before(&self, base: Offset, scan: &Scan<'_>) -> Option<String> {
        if let Some(wrong) = scan.contradiction.as_ref().filter(|wrong| wrong.base < base) {
            return Some(wrong.reason.clone());
        }
        let dense = scan.trust.is_dense(self.log_end);
        let compacted = base <= scan.trust.opening.cleaned_below && base > self.log_end;
        // Of segments before the log start a deletion that was begun may have left any.
        let deleted = base <= scan.trust.opening.log_start_offset && base > self.log_end;
        let follows =
            base == self.log_end || deleted || !dense && (self.is_wide_gap(base) || compacted);
        (!follows).then(|| format!("the next segment begins at {base}"))
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
        number: usize,
        scan: &mut Scan<'_>,
    ) -> Result<(Offset, Option<Stop>), StorageError> {
        let home = self.home.clone();
        let base = scan.found.bases[number];
        let path = home.segment_path(base, LOG);
        let file_size = scan.found.segment_bytes(base);
        let mut segment = Segment::sealed(base, file_size);
        let mut scan_from = base;
        match segment.trust_below(&home, scan.trust.recovery_point)? {
            Some(header) => scan_from = header.base_offset,
            None => segment = Segment::unscanned(base),
        }
        self.epochs.truncate_end(scan_from);
        let file = segment.file(&home)?;
        let start = segment.size();
        let mut batches = BatchScan::new(&*file, start, file_size);
        let mut expected = scan_from;
        let stop = loop {
            let (position, header) = match batches.next() {
                Ok(Some((position, header, _))) => (position, header),
                Ok(None) => break None,
                Err(ScanError::Batch(error)) => {
                    let at = segment.size();
                    let reason = (error.to_string(), false);
                    let zeros = only_zeros(&*file, at, file_size).during("read", &path)?;
                    let next = scan.found.bases.get(number + 1);
                    let is_end = zeros && may_end_before(next.copied(), base, expected);
                    break if is_end { None } else { Some(reason) };
                }
                Err(ScanError::Io(error)) => return Err(error).during("read", &path),
            };
            if let Some(objection) = scan.objection(&header, expected) {
                break Some(objection);
            }
            if !segment.reaches(header.last_offset()) {
                break Some((format!("offset {} is out of reach", header.base_offset), false));
            }
            segment.extend(position, &header, self.config.index_interval_bytes);
            self.epochs_fall |= header.leader_epoch < scan.epoch;
            self.epochs.assign(header.leader_epoch, header.base_offset);
            scan.epoch = scan.epoch.max(header.leader_epoch);
            expected = header.next_offset();
        };
        segment.forget_reservation();
        // A process that died may have cut zeros off it that only the page cache knows to be gone.
        segment.cut_is_to_be_synced();
        scan.recovery.scanned_bytes += segment.size() - start;
        self.log_end = expected;
        let position = segment.size();
        self.segments.push(segment);
        Ok((scan_from, stop.map(|(reason, no_crash)| Stop { number, position, reason, no_crash })))
    }

    /// Cuts the log where the scan stopped, or refuses to.
    fn act_on(&mut self, stop: Option<Stop>, scan: &mut Scan<'_>) -> Result<(), StorageError> {
        let (found, trust, end) = (scan.found, scan.trust, self.log_end);
        let Some(stop) = stop.or_else(|| self.wrong_end(scan)) else { return Ok(()) };
        // After a clean stop nothing was under way that could have been torn.
        if end < trust.bound || stop.no_crash || trust.opening.clean || scan.contradiction.is_some()
        {
            let segment = self.home.segment_path(found.bases[stop.number], LOG);
            let damage =
                Damage { segment, position: stop.position, offset: end, reason: stop.reason };
            if !trust.sets_damage_aside() {
                return Err(StorageError::Damaged(Box::new(damage)));
            }
            self.lower_ceiling(end)?;
            self.keep_copies(&found.bases[stop.number..], stop.position)?;
            scan.recovery.set_aside = Some(damage);
        }
        self.cut(found, stop.number, stop.position, &mut scan.recovery)
    }

    /// A log whose batches are all whole, and that does not end where it must.
    fn wrong_end(&self, scan: &Scan<'_>) -> Option<Stop> {
        let (end, trust) = (self.log_end, scan.trust);
        let closed = trust.opening.active.filter(|active| trust.opening.clean && active.end != end);
        let reason = match (&scan.contradiction, closed) {
            (Some(wrong), _) => wrong.reason.clone(),
            _ if end < trust.bound => {
                format!("the log ends here, and was synced below offset {}", trust.bound)
            }
            (None, Some(closed)) => {
                format!("the log ends here, and ended at {} when it was closed", closed.end)
            }
            (None, None) => return None,
        };
        let number = scan.found.bases.len() - 1;
        Some(Stop { number, position: self.active().size(), reason, no_crash: false })
    }

    /// Copies what will be cut off under names that no other code reads.
    pub(super) fn keep_copies(&self, bases: &[Offset], position: u64) -> Result<(), StorageError> {
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
        self.derive_aborted(first, scan_from, &met)
    }

    /// Compares the epoch history with the batches at its seams, for its file has no checksum; if
    /// they disagree, it is made anew.
    pub(super) fn check_epochs(&mut self, trust: &Trust<'_>) -> Result<(), StorageError> {
        self.epochs.truncate_end(self.log_end);
        let known = |most| self.epochs.latest() <= most || !trust.is_dense(self.log_end);
        let good = trust.opening.epoch_max.is_none_or(known)
            && self.first_epoch_is_covered()?
            && self.epochs.entries().iter().try_fold(true, |good, (epoch, start)| {
                Ok::<bool, StorageError>(good && self.is_seam(*epoch, *start)?)
            })?;
        if !good {
            (self.epochs, self.epochs_fall) = self.derive_epochs(trust)?;
            self.epochs_unwritten = true;
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

    /// The epoch history as the headers of all batches tell it, and whether epochs fall anywhere. Fails with [`StorageError::Damaged`] if
    /// they contradict each other where no crash and no other broker can have made that so.
    fn derive_epochs(&self, trust: &Trust<'_>) -> Result<(EpochHistory, bool), StorageError> {
        let mut fall = false;
        let mut epochs = EpochHistory::default();
        for segment in &self.segments {
            let file = segment.file(&self.home)?;
            let mut walk = HeaderWalk::new(&*file, 0, segment.size());
            loop {
                match walk.next() {
                    Ok(Some((at, header))) => {
                        let (epoch, offset) = (header.leader_epoch, header.base_offset);
                        if let Some(reason) =
                            trust.wrong_epoch(epoch, offset, offset, epochs.latest())
                        {
                            let path = self.home.segment_path(segment.base, LOG);
                            return Err(StorageError::damaged(&path, at, offset, reason));
                        }
                        fall |= epoch < epochs.latest();
                        epochs.assign(epoch, offset);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        let at = walk.position();
                        return Err(segment.unreadable(&self.home, at, segment.base, error));
                    }
                }
            }
        }
        Ok((epochs, fall))
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
        let mut known =
            times[..rising].partition_point(|e| e.relative_offset() <= last.relative_offset);
        self.offsets.trust(count as u32);
        // An entry that names no batch is what a crash has left of a write, such as zeros.
        while known > 0 && !matches!(self.batch_named(home, &times[known - 1]), Ok(Some(_))) {
            known -= 1;
        }
        if self.was_rebuilt() {
            // An entry below the last one lies, which the search for a batch has found out: none of the
            // index is believed, and all of the segment is scanned.
            return Ok(None);
        }
        self.times.trust(known as u32);
        self.resume(home, last.position as u64)?;
        Ok(Some(header))
    }
}
