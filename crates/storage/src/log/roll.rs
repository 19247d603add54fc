//! Rolling: the active segment is closed for good and the next one begins.
//!
//! In three steps, so that no file is made while the log is locked: [`Log::begin_roll`] decides and
//! notes, [`RollTicket::run`] seals the old files and makes the new one, [`Log::finish_roll`] appends to
//! it from then on. In between nothing is appended. The new name is made durable by the next sync.
//!
//! Names that are not durable may be lost one without the other. Recovery ends the log at the first
//! hole, which lies behind all that was synced; only in front of the first segment it would see none,
//! so the first name is durable before there is a second.

use std::path::PathBuf;

use model::{BatchHeader, Offset, Timestamp};

use super::Log;
use super::append::Boundaries;
use super::resume::Resuming;
use crate::StorageError;
use crate::error::Context;
use crate::names::{self, Home};
use crate::segment::Segment;

/// What must be done on the device before batches can be appended. Running it needs no lock.
#[derive(Debug)]
#[must_use = "nothing is prepared until this is run and handed back"]
pub enum AppendWork {
    /// What the opening left unread is to be read; handed back to [`Log::finish_resuming`].
    Resume(Resuming),
    /// The active segment's file is to be opened and its age to be read.
    Open(OpenActive),
    /// The next segment is to be made; handed back to [`Log::finish_roll`].
    Roll(RollTicket),
}

/// Opens what an append needs and reads how old it is.
#[derive(Debug)]
pub struct OpenActive {
    home: Home,
    active: Segment,
}

impl OpenActive {
    /// Opens and reads.
    pub fn run(&self) -> Result<(), StorageError> {
        self.active.file(&self.home)?;
        self.active.first_timestamp(&self.home).map(drop)
    }
}

/// A roll under way. Running it needs no lock; nothing else may change the end of the log meanwhile.
#[derive(Debug)]
#[must_use = "nothing is rolled until this is run and handed back"]
pub struct RollTicket {
    home: Home,
    /// The active segment as it will stay.
    active: Segment,
    /// Whether zeros behind the end of it are cut off.
    had_zeros: bool,
    /// Where the next one begins.
    base: Offset,
    /// What tells of producers at the log end: files and their content.
    producers: Vec<(PathBuf, Vec<u8>)>,
    /// Directories whose names must be durable before: see above.
    directories: Vec<PathBuf>,
    /// The version of the names that this makes durable.
    names_version: u64,
    now: Timestamp,
}

impl RollTicket {
    /// Seals the files of the active segment and makes those of the next one.
    pub fn run(&self) -> Result<NextSegment, StorageError> {
        let (home, disk) = (&self.home, &self.home.disk);
        for dir in &self.directories {
            disk.sync_dir(dir).during("sync", dir)?;
        }
        self.active.end_seal(home)?;
        for (path, content) in &self.producers {
            // Not synced: a torn one is noticed, and an older one serves.
            disk.write_unsynced(path, content).during("write", path)?;
        }
        let next = Segment::create(home, self.base)?;
        if self.gives_way() {
            remove_segment_files(home, self.active.base)?;
        }
        Ok(NextSegment(next))
    }

    /// An empty segment in front of a gap too wide for it gives way.
    fn gives_way(&self) -> bool {
        self.active.size() == 0
    }
}

/// The segment that will be appended to.
#[derive(Debug)]
pub struct NextSegment(Segment);

impl Log {
    /// Whether a batch of `bytes` bytes whose header, as the producer made it, is `batch` can be appended
    /// by a mere write ([`Log::append`]), or is refused; otherwise [`Log::before_append`] says what is
    /// to be done first. Touches no file.
    pub fn is_ready_for(&mut self, batch: &BatchHeader, bytes: u64, now: Timestamp) -> bool {
        if self.failed.is_some() {
            return true;
        }
        let last_offset = self.last_offset_of(batch);
        !self.is_rolling
            && !self.is_cutting
            && !self.is_resumed
            && self.is_opened()
            && matches!(self.must_roll(bytes, last_offset, batch.max_timestamp, now), Ok(false))
    }

    fn last_offset_of(&self, batch: &BatchHeader) -> Offset {
        self.log_end.plus(batch.last_offset().0 - batch.base_offset.0)
    }

    /// What must be done before the batch is appended. `None`: nothing, as long as the log stays locked.
    /// One caller at a time: no other caller appends until what is returned is done and handed back.
    pub fn before_append(
        &mut self,
        batch: &BatchHeader,
        bytes: u64,
        now: Timestamp,
    ) -> Result<Option<AppendWork>, StorageError> {
        self.usable()?;
        let last_offset = self.last_offset_of(batch);
        if let Some(resuming) = self.resuming() {
            return Ok(Some(AppendWork::Resume(resuming)));
        }
        if let Some(active) = self.opening_of_active() {
            return Ok(Some(AppendWork::Open(active)));
        }
        if !self.must_roll(bytes, last_offset, batch.max_timestamp, now)? {
            return Ok(None);
        }
        let base = self.base_for(self.log_end, last_offset);
        Ok(self.begin_roll(base, now).map(AppendWork::Roll))
    }

    /// What must be opened and read before [`Log::is_roll_due`] need do neither.
    pub fn opening_of_age(&self) -> Option<OpenActive> {
        self.opening_of_active().filter(|_| self.active().size() > 0)
    }

    /// What must be opened and read before an append need do neither.
    fn opening_of_active(&self) -> Option<OpenActive> {
        let (home, active) = (self.home.clone(), self.active().clone());
        (!self.is_opened()).then_some(OpenActive { home, active })
    }

    /// Whether an append need neither open a file nor read one.
    fn is_opened(&self) -> bool {
        let active = self.active();
        let is_known = active.size() == 0 || active.known_first_timestamp().is_some();
        is_known && active.open_file().is_some()
    }

    /// Begins to close the active segment, so that the next one begins at `base`. `None`: it begins
    /// there and is empty.
    pub(super) fn begin_roll(&mut self, base: Offset, now: Timestamp) -> Option<RollTicket> {
        assert!(base >= self.log_end, "a segment begins behind all that was written");
        assert!(!self.is_resumed, "what ends here was read before");
        if self.active().size() == 0 && self.active().base == base {
            return None;
        }
        let (directories, names_version) = self.durability.first_names_unsynced(&self.home);
        let producers = match self.snapshots.last() == Some(&self.log_end) {
            true => Vec::new(),
            false => self.producer_files(),
        };
        let had_zeros = self.end_ahead();
        let active = self.active_mut().begin_seal();
        self.is_rolling = true;
        let home = self.home.clone();
        Some(RollTicket {
            home,
            active,
            had_zeros,
            base,
            producers,
            directories,
            names_version,
            now,
        })
    }

    /// Begins a roll of the active segment whatever its age. `None`: it is empty.
    pub fn begin_roll_now(&mut self, now: Timestamp) -> Result<Option<RollTicket>, StorageError> {
        self.usable()?;
        Ok(self.begin_roll(self.log_end, now))
    }

    /// Appends go to the new segment from now on. Fails as [`RollTicket::run`] has: then they go on in
    /// the old one, if the log takes any.
    pub fn finish_roll(
        &mut self,
        ticket: RollTicket,
        result: Result<NextSegment, StorageError>,
    ) -> Result<(), StorageError> {
        self.is_rolling = false;
        if result.is_err() {
            self.active_mut().keep_reservation(&ticket.active);
        }
        let NextSegment(next) = self.failing(result)?;
        assert!(ticket.base >= self.log_end, "nothing was appended while the segment was rolled");
        if !ticket.directories.is_empty() {
            self.durability.names_are_synced(ticket.names_version);
        }
        if !ticket.producers.is_empty() {
            self.snapshots.push(self.log_end);
        }
        if ticket.gives_way() {
            self.segments.pop();
        } else if ticket.had_zeros {
            self.active_mut().was_cut();
        }
        self.segments.push(next);
        self.durability.names_changed();
        self.boundaries = Boundaries::default();
        self.active_since = ticket.now;
        Ok(())
    }

    /// All three steps at once, for a log that has no other user.
    pub(crate) fn roll(&mut self, base: Offset, now: Timestamp) -> Result<(), StorageError> {
        self.read_what_is_left()?;
        let Some(ticket) = self.begin_roll(base, now) else { return Ok(()) };
        let result = ticket.run();
        self.finish_roll(ticket, result)
    }

    /// Rolls the active segment if it is not empty and older than `segment.ms`, counted to `now`.
    /// Says whether it did. For logs without appends.
    pub fn roll_if_due(&mut self, now: Timestamp) -> Result<bool, StorageError> {
        let is_due = self.is_roll_due(now)?;
        if is_due {
            self.roll(self.log_end, now)?;
        }
        Ok(is_due)
    }

    /// Whether the active segment is not empty and older than `segment.ms`, counted to `now`.
    pub fn is_roll_due(&self, now: Timestamp) -> Result<bool, StorageError> {
        self.usable()?;
        Ok(self.active().size() > 0 && self.is_old(now, now)?)
    }

    /// Removes all files of a segment.
    pub(super) fn remove_segment_files(&mut self, base: Offset) -> Result<(), StorageError> {
        remove_segment_files(&self.home, base)
    }
}

/// Files of a segment, the log first: without it the others mean nothing.
const SUFFIXES: [&str; 5] = [
    names::LOG,
    names::OFFSET_INDEX,
    names::TIME_INDEX,
    names::TRANSACTION_INDEX,
    names::TRANSACTION_SUMS,
];

/// Removes all files of a segment.
pub(super) fn remove_segment_files(home: &Home, base: Offset) -> Result<(), StorageError> {
    for suffix in SUFFIXES {
        let path = home.segment_path(base, suffix);
        match home.disk.remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).during("remove", &path);
            }
            _ => {}
        }
    }
    Ok(())
}
