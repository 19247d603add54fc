//! Opening a partition's directory.
//!
//! Where everything is as the caller knows it, no file is opened (`resume.rs`). Otherwise, after a clean
//! stop the files are trusted: the directory is listed, the end of the active segment is read from its
//! last index entry on, and the newest producer snapshot and the epoch file are loaded. Nothing else is
//! opened. After a crash `recover.rs` checks what lies past the recovery point. What an interrupted
//! deletion, compaction or write left behind is tidied up in both cases.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use model::{Durability, LeaderEpoch, Offset};

use super::append::Boundaries;
use super::opening::{Opening, Trust};
use super::sync::SyncedState;
use super::zeros::{self, FoundSize};
use super::{Log, listed};
use crate::ceiling;
use crate::disk::Disk;
use crate::epoch_history::EpochHistory;
use crate::error::Context;
use crate::names::{
    self, CEILING, CLEANED, DELETED, Home, LEADER_EPOCHS, LOG, OFFSET_INDEX, PRODUCERS, SNAPSHOT,
    SWAP, TEMPORARY, TIME_INDEX, TRANSACTION_INDEX, TRANSACTION_SUMS,
};
use crate::producers::Producers;
use crate::scan::HeaderWalk;
use crate::segment::Segment;
use crate::{LogConfig, StorageError};

/// What a partition's directory holds, by kind.
pub(super) struct Found {
    /// Base offsets of segments.
    pub(super) bases: Vec<Offset>,
    /// Offsets of which there is a file of the producers, ours or Kafka's.
    pub(super) snapshots: Vec<Offset>,
    /// The directory was made just now.
    is_new: bool,
    /// Whether the files of these are there.
    pub(super) has_ceiling: bool,
    pub(super) has_epochs: bool,
    /// Base offsets of segments with a file of the index of aborted transactions.
    pub(super) aborted: BTreeSet<Offset>,
    /// The sizes of the segments' files, once they are needed.
    pub(super) sizes: BTreeMap<Offset, FoundSize>,
}

impl Found {
    /// Bytes of a segment; see [`FoundSize::bytes`].
    pub(super) fn segment_bytes(&self, base: Offset) -> u64 {
        self.sizes[&base].bytes
    }
}

impl Log {
    /// Opens the log in `dir`, or makes one. Clean or not as `opening` says; a clean opening of
    /// files that make no sense becomes an unclean one.
    ///
    /// Several logs may be opened at the same time. Fails with [`StorageError::Damaged`] if bytes
    /// below the recovery point are not what they were, [`StorageError::Io`] if the disk does not
    /// answer.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        config: Arc<LogConfig>,
        opening: Opening,
    ) -> Result<Log, StorageError> {
        let home = Home { disk, dir, unreadable: Arc::default(), set_aside: Arc::default() };
        let mut found = tidy(&home)?;
        let ceiling = if found.has_ceiling { ceiling::load(&home)? } else { None };
        let trust = Trust::new(&opening, ceiling);
        let mut log = Log::without_segments(home, config, &trust, ceiling);
        if found.bases.is_empty() {
            log.begin_anew(&found, &trust, ceiling)?;
            return Ok(log);
        }
        log.snapshots = found.snapshots.clone();
        log.told_epoch = trust.newest_epoch();
        if log.resume(&found, &trust)? {
            log.settle_ends(&trust)?;
            log.verify_aborted(&found)?;
            log.segments.shrink_to_fit();
            log.assert_ordered();
            log.doubt_first_name();
            return Ok(log);
        }
        if found.has_epochs {
            log.epochs = EpochHistory::load(&log.home)?.unwrap_or_default();
        }
        let epochs_in_file = log.epochs.clone();
        found.sizes = zeros::sizes(&log.home, &found.bases, &trust)?;
        let contradiction = listed::contradiction(&found, &trust);
        if let Some(wrong) = contradiction.as_ref().filter(|_| !trust.sets_damage_aside()) {
            return Err(StorageError::Damaged(Box::new(wrong.damage(&log.home))));
        }
        let trusted = opening.clean && !opening.after_failed_sync && contradiction.is_none();
        if !trusted || !log.open_clean(&found, &trust)? {
            log.segments.clear();
            log.recover(&found, &trust, contradiction)?;
        }
        log.settle_ends(&trust)?;
        log.verify_aborted(&found)?;
        log.cut_zeros(&found.sizes)?;
        log.sync_recovered()?;
        log.epochs_unwritten |= log.epochs != epochs_in_file;
        if log.epochs_fall {
            log.fallen_epoch = log.epochs.latest();
        }
        log.segments.iter_mut().for_each(Segment::release);
        log.segments.shrink_to_fit();
        log.assert_ordered();
        log.doubt_first_name();
        Ok(log)
    }

    /// The process before may have made the first file and written nothing into it: then nobody has synced its name,
    /// and the first sync of records must, or a power failure takes them with the file.
    fn doubt_first_name(&mut self) {
        self.is_unnamed |= self.segments.len() == 1 && self.active().size() == 0;
    }

    fn without_segments(
        home: Home,
        config: Arc<LogConfig>,
        trust: &Trust<'_>,
        ceiling: Option<Offset>,
    ) -> Log {
        let opening = trust.opening;
        let mut durability = SyncedState::new(Offset(0));
        durability.promised = opening.recovery_point.max(opening.synced);
        durability.ceiling = ceiling;
        Log {
            home,
            config,
            segments: Vec::new(),
            log_start: opening.log_start_offset,
            log_end: opening.log_start_offset,
            producers: Producers::default(),
            epochs: EpochHistory::default(),
            epochs_fall: false,
            epochs_unwritten: false,
            told_epoch: LeaderEpoch::NONE,
            first_epoch: None,
            fallen_epoch: LeaderEpoch::NONE,
            snapshots: Vec::new(),
            durability,
            generation: 0,
            boundaries: Boundaries::default(),
            active_since: opening.now,
            opened_at: opening.now,
            cleaned_below: opening.cleaned_below,
            dense_from: opening.dense_from,
            is_rolling: false,
            is_swapping: false,
            is_cutting: false,
            is_resumed: false,
            may_know_producers: false,
            is_unnamed: false,
            small_syncs: 0,
            ahead: None,
            failed: None,
            recovery: None,
        }
    }

    /// Begins a log in a directory without segments: one that was never written to, or one whose
    /// emptying was interrupted, which the ceiling tells. The first append makes the first file.
    fn begin_anew(
        &mut self,
        found: &Found,
        trust: &Trust<'_>,
        ceiling: Option<Offset>,
    ) -> Result<(), StorageError> {
        let opening = trust.opening;
        let had_records = trust.bound > opening.log_start_offset && !found.is_new;
        let missing = (had_records || trust.knows_segments()) && ceiling.is_none();
        if missing && trust.sets_damage_aside() {
            self.lower_ceiling(opening.log_start_offset)?;
        } else if missing {
            let path = self.home.segment_path(opening.log_start_offset, LOG);
            let reason =
                format!("all segments are gone, below offset {} they were synced", trust.bound);
            return Err(StorageError::damaged(&path, 0, opening.log_start_offset, reason));
        }
        for offset in &found.snapshots {
            self.remove_snapshot(*offset)?;
        }
        let start = opening.log_start_offset.max(Offset(0));
        self.segments = vec![Segment::unmade(start)];
        self.is_unnamed = true;
        (self.log_start, self.log_end) = (start, start);
        self.durability.synced = start;
        self.durability.recovery_point = start;
        self.epochs_unwritten = found.has_epochs;
        Ok(())
    }

    /// Trusts the files. `false`: the active segment cannot be read, or the log ends elsewhere than it
    /// did when it was closed; recovery tells where.
    fn open_clean(&mut self, found: &Found, trust: &Trust<'_>) -> Result<bool, StorageError> {
        for base in &found.bases {
            self.segments.push(Segment::sealed(*base, found.segment_bytes(*base)));
        }
        let home = self.home.clone();
        let base = self.active().base;
        let end = if self.active().size() == 0 {
            // Most of very many partitions: no file of theirs is opened.
            *self.active_mut() = Segment::empty(base);
            base
        } else {
            match self.active_mut().reopen(&home) {
                Ok(end) => end.unwrap_or(base),
                Err(StorageError::Damaged(_)) => return Ok(false),
                Err(error) => return Err(error),
            }
        };
        if end < trust.bound || trust.opening.active.is_some_and(|active| active.end != end) {
            return Ok(false);
        }
        self.log_end = end;
        self.durability.synced = end;
        self.durability.recovery_point = end;
        self.epochs_unwritten |= self.epochs.truncate_end(end);
        self.drop_snapshots_behind_end()?;
        self.reload_producers()?;
        self.check_epochs(trust)?;
        Ok(true)
    }

    /// Makes durable what recovery found behind the recovery point: after the mere death of a process
    /// it may be in the page cache alone, and nobody may be shown it before it is safe. So what was
    /// acknowledged is readable from the first moment on.
    fn sync_recovered(&mut self) -> Result<(), StorageError> {
        while self.synced_below() < self.log_end {
            let Some(ticket) = self.begin_sync() else { return Ok(()) };
            let result = ticket.run();
            self.finish_sync(ticket, result)?;
        }
        // All of it was synced before, perhaps by another process: no file need stay open for that.
        self.segments.iter_mut().for_each(|segment| {
            segment.mark_synced(segment.size());
        });
        Ok(())
    }

    pub(super) fn segment_file_size(&self, base: Offset) -> Result<u64, StorageError> {
        let path = self.home.segment_path(base, LOG);
        self.home.disk.size(&path).during("open", &path)
    }

    /// Brings log start and end into line with each other and with the segments.
    fn settle_ends(&mut self, trust: &Trust<'_>) -> Result<(), StorageError> {
        let first = self.segments[0].base;
        self.log_start = trust.opening.log_start_offset.max(first);
        self.cleaned_below = self.cleaned_below.clamp(first, self.log_end.max(first));
        if trust.proves_unfinished_emptying(self.log_end) {
            return self.truncate_fully_and_start_at(self.log_start);
        }
        if self.log_start > self.log_end {
            return self.start_behind_end(trust);
        }
        self.epochs_unwritten |= self.epochs.truncate_start(self.log_start);
        Ok(())
    }

    /// The log start lies behind all that is there. Only records that were synced are ever deleted
    /// under `fsync`, and a clean stop syncs; so either one of the two offsets is not what it was, or
    /// deleted records of the page cache went with the power, and those before them with them.
    fn start_behind_end(&mut self, trust: &Trust<'_>) -> Result<(), StorageError> {
        let opening = trust.opening;
        let lost_unsynced = opening.durability == Durability::PageCache && !opening.clean;
        if !lost_unsynced {
            let (start, end) = (self.log_start, self.log_end);
            if !trust.sets_damage_aside() {
                let path = self.home.segment_path(self.active().base, LOG);
                let reason = format!("the log ends here, before its start at offset {start}");
                return Err(StorageError::damaged(&path, self.active().size(), end, reason));
            }
            let bases: Vec<Offset> = self.segments.iter().map(|segment| segment.base).collect();
            self.keep_copies(&bases, 0)?;
        }
        self.truncate_fully_and_start_at(self.log_start)
    }

    pub(super) fn drop_snapshots_behind_end(&mut self) -> Result<(), StorageError> {
        let kept = self.snapshots.partition_point(|offset| *offset <= self.log_end);
        let gone = self.snapshots.split_off(kept);
        gone.iter().try_for_each(|offset| self.remove_snapshot(*offset))?;
        if gone.is_empty() {
            return Ok(());
        }
        // One that came back after another crash would speak of records that were never written.
        self.home.disk.sync_dir(&self.home.dir).during("sync", &self.home.dir)
    }
}

/// Lists the directory, made if need be, and brings to an end what was interrupted in it: deleted
/// files go, half-written ones go, a compacted log that is complete takes its place.
fn tidy(home: &Home) -> Result<Found, StorageError> {
    let names = match home.disk.list(&home.dir) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            home.disk.create_dir_all(&home.dir).during("create", &home.dir)?;
            let (bases, snapshots) = (Vec::new(), Vec::new());
            let (has_ceiling, has_epochs) = (false, false);
            let (is_new, aborted, sizes) = (true, BTreeSet::new(), BTreeMap::new());
            return Ok(Found { bases, snapshots, is_new, has_ceiling, has_epochs, aborted, sizes });
        }
        Err(error) => return Err(error).during("list", &home.dir),
    };
    for name in &names {
        if [DELETED, CLEANED, TEMPORARY].iter().any(|end| name.ends_with(end)) {
            let path = home.path(name);
            home.disk.remove_file(&path).during("remove", &path)?;
        }
    }
    let of = |suffix: &str| -> BTreeSet<Offset> {
        names.iter().filter_map(|name| names::base_offset(name, suffix)).collect()
    };
    let mut bases = of(LOG);
    for base in names.iter().filter_map(|name| names::base_offset(name.strip_suffix(SWAP)?, LOG)) {
        complete_swap(home, base, &mut bases)?;
    }
    // A crash may keep the name of an index and lose that of its log.
    for suffix in [OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, TRANSACTION_SUMS] {
        for orphan in of(suffix).difference(&bases) {
            remove_if_there(home, &home.segment_path(*orphan, suffix))?;
        }
    }
    let bases = bases.into_iter().collect();
    let snapshots = of(SNAPSHOT).union(&of(PRODUCERS)).copied().collect();
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    let (has_ceiling, has_epochs) = (has(CEILING), has(LEADER_EPOCHS));
    let aborted = of(TRANSACTION_INDEX).union(&of(TRANSACTION_SUMS)).copied().collect();
    let (is_new, sizes) = (false, BTreeMap::new());
    Ok(Found { bases, snapshots, is_new, has_ceiling, has_epochs, aborted, sizes })
}

fn remove_if_there(home: &Home, path: &std::path::Path) -> Result<(), StorageError> {
    match home.disk.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).during("remove", path),
        _ => Ok(()),
    }
}

/// Puts a compacted log in the place of those it was made of: all that begin within its offsets.
/// Its indexes are made anew, for those with its name may be the old ones.
fn complete_swap(
    home: &Home,
    base: Offset,
    bases: &mut BTreeSet<Offset>,
) -> Result<(), StorageError> {
    let swap = home.dir.join(names::file_name(base, LOG) + SWAP);
    let end = last_offset_in(home, &swap)?.unwrap_or(base);
    let replaced: Vec<Offset> = bases.range(base..=end).copied().collect();
    for old in replaced {
        for suffix in [OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, TRANSACTION_SUMS, LOG] {
            remove_if_there(home, &home.segment_path(old, suffix))?;
        }
        bases.remove(&old);
    }
    // The old files must be gone for good before the name tells no more that they have to go.
    home.disk.sync_dir(&home.dir).during("sync", &home.dir)?;
    let path = home.segment_path(base, LOG);
    home.disk.rename(&swap, &path).during("rename", &path)?;
    home.disk.sync_dir(&home.dir).during("sync", &home.dir)?;
    bases.insert(base);
    Ok(())
}

fn last_offset_in(home: &Home, path: &std::path::Path) -> Result<Option<Offset>, StorageError> {
    let file = home.disk.open(path, crate::disk::OpenMode::Read).during("open", path)?;
    let size = file.size().during("open", path)?;
    let mut walk = HeaderWalk::new(&*file, 0, size);
    let mut last = None;
    loop {
        match walk.next() {
            Ok(Some((_, header))) => last = Some(header.last_offset()),
            Ok(None) => return Ok(last),
            Err(crate::scan::ScanError::Io(error)) => return Err(error).during("read", path),
            Err(crate::scan::ScanError::Batch(error)) => {
                let offset = last.unwrap_or(Offset(0));
                return Err(StorageError::batch(path, walk.position(), offset, error));
            }
        }
    }
}
