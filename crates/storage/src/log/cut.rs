//! Cutting the log's end without its lock: a follower that met a new leader's history cuts while its broker serves
//! everything else.
//!
//! The cut is made on a view of the log, which shares its files; the view takes the log's place when it is done.
//! Meanwhile the log is neither appended to nor synced, so that nobody can promise what is about to go; and its
//! generation has moved on, so that whoever began to look something up before looks again.

use std::sync::Arc;

use model::Offset;

use super::Log;
use crate::StorageError;

/// A cut under way. Running it needs no lock, but nothing else may be done to the log meanwhile, reading included.
#[derive(Debug)]
#[must_use = "nothing is cut until this is run and handed back"]
pub struct CutTicket {
    view: Log,
    what: Cut,
    /// The view's generation before the cut: it moves on with the first step that takes something away.
    untouched: u64,
}

#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Records at or behind the offset go.
    Behind(Offset),
    /// All go, and the log starts there.
    AllAndStartAt(Offset),
}

impl CutTicket {
    /// Writes the bound that emptying the log needs, durably: this alone may lack room. To be called before the caller
    /// notes durably that the log is emptied, so that a full disk fails before the note. The log stays as it is.
    pub fn prepare(&mut self) -> Result<(), StorageError> {
        match self.what {
            Cut::Behind(_) => Ok(()),
            Cut::AllAndStartAt(offset) => self.view.bound_emptying(offset),
        }
    }

    /// Cuts, durably when it returns; see [`Log::truncate_to`] and [`Log::truncate_fully_and_start_at`].
    pub fn run(&mut self) -> Result<(), StorageError> {
        match self.what {
            Cut::Behind(offset) => self.view.truncate_to(offset),
            Cut::AllAndStartAt(offset) => self.view.truncate_fully_and_start_at(offset),
        }
    }
}

impl Log {
    /// Begins to drop every record at or behind `to`; see [`Log::truncate_to`]. `None`: the log ends there or before.
    pub fn begin_cut(&mut self, to: Offset) -> Result<Option<CutTicket>, StorageError> {
        self.usable()?;
        if to >= self.log_end {
            self.end_gaps(to);
            return Ok(None);
        }
        Ok(Some(self.begin(Cut::Behind(to))))
    }

    /// Begins to empty the log and to start it at `offset`; see [`Log::truncate_fully_and_start_at`].
    pub fn begin_start_over(&mut self, offset: Offset) -> Result<CutTicket, StorageError> {
        self.usable()?;
        Ok(self.begin(Cut::AllAndStartAt(offset)))
    }

    fn begin(&mut self, what: Cut) -> CutTicket {
        self.end_ahead();
        self.generation += 1;
        self.durability.truncated();
        self.is_cutting = true;
        let view = self.twin();
        CutTicket { untouched: view.generation, view, what }
    }

    /// Takes the log as it was cut; returns where it ends. Fails as [`CutTicket::run`] has. If that was for lack of room or of
    /// descriptors, and before anything was taken away, the log is as it was, and the cut may be made later; otherwise
    /// the log takes no more writes.
    pub fn finish_cut(
        &mut self,
        ticket: CutTicket,
        result: Result<(), StorageError>,
    ) -> Result<Offset, StorageError> {
        let has_begun = ticket.view.generation > ticket.untouched;
        let result = result.map_err(|cause| match cause {
            StorageError::Io { .. } if has_begun && !cause.is_fatal() => {
                self.failed.get_or_insert_with(|| cause.to_string().into());
                StorageError::Failed { dir: self.home.dir.clone(), reason: cause.to_string() }
            }
            other => other,
        });
        let mut view = ticket.view;
        view.config = Arc::clone(&self.config);
        view.recovery = self.recovery.take();
        view.told_epoch = view.told_epoch.min(self.told_epoch);
        view.generation = view.generation.max(self.generation) + 1;
        view.is_cutting = false;
        view.failed = view.failed.or_else(|| self.failed.take());
        *self = view;
        self.failing(result)?;
        self.usable()?;
        Ok(self.log_end)
    }

    /// The log as it is now, on the same files, to be written to.
    fn twin(&self) -> Log {
        Log {
            epochs: self.epochs.clone(),
            epochs_unwritten: self.epochs_unwritten,
            durability: self.durability.clone(),
            failed: self.failed.clone(),
            ..self.view()
        }
    }
}
