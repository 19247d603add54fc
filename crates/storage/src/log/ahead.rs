//! Zeros written ahead of the end of a log that is synced often and in small portions.
//!
//! A sync of a file that has grown waits until the file system has noted the new size, and the place of
//! the new blocks, in a journal of its own. A write over zeros that are on the device changes neither:
//! its sync is one write and a flush. So for such a log the file's end runs ahead of the log's, by zeros,
//! and whatever reads the file knows that it may end in zeros.
//!
//! Which logs: those of which [`LogConfig::ahead_after_syncs`](crate::LogConfig::ahead_after_syncs) syncs
//! in a row covered an eighth of a portion at most. A portion then serves eight syncs and more, and a log
//! that is written fast is not written twice. The caller counts anew now and then
//! ([`Log::is_ahead_idle`]), so a log that was written once gets none; one that is synced seldom gives
//! them back, and one that is not synced at all does so soon ([`Log::is_ahead_unused`]).
//!
//! The zeros are written without the log's lock ([`ZerosTicket::run`]) and made durable by the log's next
//! sync. Appends go on meanwhile. An append that reaches the zeros under way ends their writing first: it
//! waits for at most one write of 64 KiB into the page cache, as it would for the file's own lock in the
//! kernel. So what is appended is written behind the zeros at the same place, never before them.

use std::io;
use std::sync::Arc;

use model::Offset;
use parking_lot::Mutex;

use super::Log;
use crate::StorageError;
use crate::disk::DiskFile;
use crate::names::Home;
use crate::segment::Segment;

/// A portion serves at least so many syncs.
const SYNCS_A_PORTION_MIN: u64 = 8;
/// Bytes of zeros that are written at once.
const CHUNK_BYTES: usize = 64 << 10;
static ZEROS: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];

/// The zeros behind the end of the active segment.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Up to here the file holds batches and zeros.
    until: u64,
    /// Whether a sync has covered batches since the last look.
    was_used: bool,
    /// Zeros that are being written behind `until`.
    under_way: Option<UnderWay>,
}

#[derive(Debug)]
struct UnderWay {
    from: u64,
    to: u64,
    claim: Arc<Claim>,
}

/// Whether zeros may still be written. Held locked while some are.
#[derive(Debug)]
struct Claim(Mutex<bool>);

impl Claim {
    /// No more zeros are written when this returns.
    fn end(&self) {
        *self.0.lock() = false;
    }
}

impl Ahead {
    fn reach(&self) -> u64 {
        self.under_way.as_ref().map_or(self.until, |under_way| under_way.to)
    }
}

/// Zeros to be written. Running it needs no lock; appends go on meanwhile.
#[derive(Debug)]
#[must_use = "nothing is written until this is run and handed back"]
pub struct ZerosTicket {
    file: Arc<dyn DiskFile>,
    from: u64,
    to: u64,
    claim: Arc<Claim>,
}

impl ZerosTicket {
    /// Writes the zeros. `false`: appends have come where they were to stand, or the end of the log has moved
    /// in another way, and the rest is not written.
    pub fn run(&self) -> io::Result<bool> {
        let mut at = self.from;
        while at < self.to {
            let bytes = (self.to - at).min(CHUNK_BYTES as u64);
            let holds = self.claim.0.lock();
            if !*holds {
                return Ok(false);
            }
            self.file.write_all_at(&ZEROS[..bytes as usize], at)?;
            at += bytes;
        }
        Ok(true)
    }
}

/// Zeros to be given back. Running it needs no lock; nothing is appended meanwhile.
#[derive(Debug)]
#[must_use = "nothing is given back until this is run and handed back"]
pub struct GiveBackTicket {
    home: Home,
    active: Segment,
    /// What is behind the end for as long as the file is not cut.
    ahead: Box<Ahead>,
}

impl GiveBackTicket {
    /// Cuts the file where the log ends.
    pub fn run(&self) -> Result<(), StorageError> {
        self.active.give_back(&self.home)
    }
}

impl Log {
    /// Bytes of zeros behind the end of the log, written or being written.
    pub fn ahead_bytes(&self) -> u64 {
        self.ahead.as_ref().map_or(0, |ahead| ahead.reach().saturating_sub(self.active().size()))
    }

    /// Whether zeros were written, or partly written, behind the end of the log and not given back.
    pub fn is_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// Zeros that should be written now; `None`: the log is not synced in small portions, or enough are left.
    /// Touches no file.
    pub fn begin_ahead(&mut self) -> Option<ZerosTicket> {
        let portion = u64::from(self.config.ahead_bytes);
        let is_wanted = portion > 0 && self.small_syncs >= self.config.ahead_after_syncs;
        if !is_wanted
            || self.is_rolling
            || self.is_cutting
            || self.is_resumed
            || self.failed.is_some()
        {
            return None;
        }
        let size = self.active().size();
        let until = match self.ahead.as_deref() {
            Some(Ahead { under_way: Some(_), .. }) => return None,
            Some(ahead) => ahead.until.max(size),
            None => size,
        };
        let to = (until + portion).min(u64::from(self.config.segment_bytes));
        if until - size >= portion / 2 || to <= until {
            return None;
        }
        let file = self.active().open_file()?;
        let claim = Arc::new(Claim(Mutex::new(true)));
        let under_way = UnderWay { from: until, to, claim: Arc::clone(&claim) };
        self.ahead = Some(Box::new(Ahead { until, was_used: true, under_way: Some(under_way) }));
        self.active_mut().may_reach(to);
        Some(ZerosTicket { file, from: until, to, claim })
    }

    /// Takes note of zeros. That they could not be written is no failure: syncs cost what they did without.
    pub fn finish_ahead(&mut self, ticket: ZerosTicket, result: &io::Result<bool>) {
        let Some(ahead) = &mut self.ahead else { return };
        let is_this = |under_way: &mut UnderWay| Arc::ptr_eq(&under_way.claim, &ticket.claim);
        if ahead.under_way.take_if(is_this).is_some() && matches!(result, Ok(true)) {
            ahead.until = ticket.to;
        } else {
            // Too many appends for a portion, or no room: not before other small syncs.
            self.small_syncs = 0;
        }
    }

    /// Whether zeros lie ahead of a log that had too few small syncs since the last call to be worth it; and
    /// counts anew.
    pub fn is_ahead_idle(&mut self) -> bool {
        let is_busy = std::mem::take(&mut self.small_syncs) >= self.config.ahead_after_syncs;
        self.ahead.is_some() && !is_busy
    }

    /// Whether zeros lie ahead of a log of which nothing was synced since the last call.
    pub fn is_ahead_unused(&mut self) -> bool {
        self.ahead.as_mut().is_some_and(|ahead| !std::mem::take(&mut ahead.was_used))
    }

    /// Begins to give the zeros back; `None`: there are none. Nothing may be appended until the ticket is handed
    /// back. Touches no file.
    pub fn begin_give_back(&mut self) -> Option<GiveBackTicket> {
        if self.is_rolling || self.is_cutting || self.failed.is_some() {
            return None;
        }
        let Ahead { until, was_used, .. } = **self.ahead.as_ref()?;
        let ahead = Box::new(Ahead { until, was_used, under_way: None });
        self.end_ahead();
        self.is_rolling = true;
        Some(GiveBackTicket { home: self.home.clone(), active: self.active().clone(), ahead })
    }

    /// Appends go on. Fails as the cut did; but where the file could not be opened for lack of a descriptor,
    /// the zeros are there as before, to be given back another time.
    pub fn finish_give_back(
        &mut self,
        ticket: GiveBackTicket,
        result: Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        self.is_rolling = false;
        let cut = ticket.active.size();
        if result.as_ref().is_err_and(StorageError::lacks_resources) {
            self.ahead = Some(ticket.ahead);
            return Ok(());
        }
        self.failing(result)?;
        assert_eq!(cut, self.active().size(), "nothing was appended while the file was cut");
        // No sync of its own: the checkpoint after the next append makes the cut durable.
        self.active_mut().was_cut();
        Ok(())
    }

    /// A sync has covered so many bytes of batches.
    pub(super) fn count_sync(&mut self, bytes: u64) {
        let most = u64::from(self.config.ahead_bytes) / SYNCS_A_PORTION_MIN;
        if let Some(ahead) = self.ahead.as_mut().filter(|_| bytes > 0) {
            ahead.was_used = true;
        }
        match bytes {
            0 => {}
            _ if bytes <= most => self.small_syncs = self.small_syncs.saturating_add(1),
            _ => self.small_syncs = 0,
        }
    }

    /// An append will write up to `end`: zeros are written behind it no more.
    pub(super) fn pass_zeros(&mut self, end: u64) {
        let Some(ahead) = &mut self.ahead else { return };
        if let Some(passed) = ahead.under_way.take_if(|under_way| end > under_way.from) {
            passed.claim.end();
        }
    }

    /// The end of the active segment's file changes in another way than by an append: no zeros are written
    /// from now on. Whether there were any.
    pub(super) fn end_ahead(&mut self) -> bool {
        self.small_syncs = 0;
        let Some(ahead) = self.ahead.take() else { return false };
        if let Some(under_way) = &ahead.under_way {
            under_way.claim.end();
        }
        true
    }

    /// Cuts the zeros off that an opening found behind the segments.
    pub(super) fn cut_zeros(
        &mut self,
        sizes: &std::collections::BTreeMap<Offset, super::zeros::FoundSize>,
    ) -> Result<(), StorageError> {
        for segment in &mut self.segments {
            let found = sizes.get(&segment.base);
            if found.is_some_and(|found| found.file_bytes > segment.size()) {
                segment.cut_file(&self.home)?;
                segment.was_cut();
            }
        }
        Ok(())
    }
}
