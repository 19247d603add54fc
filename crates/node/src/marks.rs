//! The mark of one log directory, by which a copy that is put back is recognised.
//!
//! ```text
//! raised      at most once an interval, and only if something was written to the directory since
//! durable     in the directory's journal, before
//! reported    in heartbeats, before
//! recorded    by the controller
//! ```
//!
//! So the mark in a directory is never below the recorded one, whatever crash comes. A copy has the mark of its time: it is
//! recognised once a later mark is recorded. A younger copy looks like the directory itself.

use crate::mutants::{Mutant, is_planted};

/// The mark of a log directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkKeeper {
    /// Durable in the journal.
    durable: u64,
    /// Being made durable; not below `durable`.
    begun: u64,
    is_written: bool,
}

impl MarkKeeper {
    /// With the mark that the journal has; 0 for none.
    pub fn of_journal(mark: u64) -> MarkKeeper {
        MarkKeeper { durable: mark, begun: mark, is_written: false }
    }

    /// Notes a write to the directory.
    pub fn note_write(&mut self) {
        self.is_written = true;
    }

    /// The mark that is to be made durable in the journal now, if the directory was written to since the last one. Must be
    /// followed by [`MarkKeeper::finish`] or [`MarkKeeper::give_up`].
    pub fn begin(&mut self) -> Option<u64> {
        if !std::mem::take(&mut self.is_written) {
            return None;
        }
        self.begun = self.begun.max(self.durable) + 1;
        if is_planted(Mutant::MarksInMemory) {
            self.durable = self.begun;
            return None;
        }
        Some(self.begun)
    }

    /// As [`MarkKeeper::begin`], whether or not the directory was written to, with a mark above `recorded`. The next start does
    /// not recognise the directory as a copy again.
    pub fn begin_above(&mut self, recorded: u64) -> u64 {
        self.begun = self.begun.max(self.durable).max(recorded) + 1;
        self.begun
    }

    /// A mark is durable.
    pub fn finish(&mut self, mark: u64) {
        self.durable = self.durable.max(mark);
    }

    /// A mark could not be made durable: another one is begun later.
    pub fn give_up(&mut self) {
        self.is_written = true;
    }

    /// The mark that heartbeats report.
    pub fn reported(&self) -> u64 {
        if is_planted(Mutant::ReportsUndurableMarks) { self.begun } else { self.durable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_reported_when_it_is_durable() {
        let mut mark = MarkKeeper::of_journal(4);
        assert_eq!((mark.begin(), mark.reported()), (None, 4), "nothing was written");
        mark.note_write();
        assert_eq!((mark.begin(), mark.reported()), (Some(5), 4));
        mark.finish(5);
        assert_eq!((mark.begin(), mark.reported()), (None, 5));
    }

    #[test]
    fn a_mark_that_could_not_be_stored_is_followed_by_a_greater_one() {
        let mut mark = MarkKeeper::default();
        mark.note_write();
        assert_eq!(mark.begin(), Some(1));
        mark.give_up();
        assert_eq!((mark.begin(), mark.reported()), (Some(2), 0));
    }

    #[test]
    fn a_copy_gets_a_mark_above_the_recorded_one() {
        let mut mark = MarkKeeper::of_journal(4);
        assert_eq!(mark.begin_above(9), 10);
        mark.finish(10);
        assert_eq!(mark.reported(), 10);
    }
}
