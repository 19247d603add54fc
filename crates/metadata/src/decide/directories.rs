//! What the log directories of a process that starts are worth, by the registration before (R11, R12).
//!
//! ```text
//! registered last, and had by that process     it is as that process has left it
//!         stopped cleanly, in its epoch        and nothing is lost
//!         otherwise                            and what was synced is there
//! registered last, and not had by that one     it was put back from a copy
//! not registered last                          new; or it was away, and its replicas may have been made anew elsewhere
//! ```
//!
//! A copy of a directory of the process that was registered last names that process. It is recognised by its mark, which is
//! below the recorded one ([`super::marks`]).
//!
//! With a copy among them nothing of the broker is counted, like on another disk. Of replicas in directories that were not
//! registered last the broker itself says what they are worth, before it registers and in the name of the last
//! registration: so a crash in between changes nothing.
//!
//! Every process notes in its directories that it has them, durably, before it registers. So a directory in which the process
//! that was registered last is not noted is from before: however its process has ended since, and however often one was
//! started on it that did not come so far. Versions that note no processes note at least in which registration they stopped.

use super::eligibility::Loss;
use super::{KnownDirectories, KnownDirectory, RegisterBroker};
use crate::image::BrokerImage;
use crate::mutants::{Mutant, is_planted};
use model::Uuid;

/// What a process says of its directories, beside what is known of its broker.
pub(super) struct Directories<'a> {
    pub(super) known: &'a BrokerImage,
    pub(super) request: &'a RegisterBroker,
    /// Of an earlier release it is not known.
    pub(super) told: Option<&'a KnownDirectories>,
    /// Marks of the directories; `None` below level 4.
    pub(super) marks: Option<&'a [u64]>,
    /// Recorded marks of the directories; 0 for none.
    pub(super) recorded: &'a [u64],
}

impl Directories<'_> {
    /// What the process may have lost.
    pub(super) fn loss(&self) -> Option<Loss> {
        let is_other = !self.known.log_dirs.is_empty() && !self.has_one_as_left();
        let is_clean = self.request.clean && self.are_stopped_by_last();
        match is_clean || is_planted(Mutant::UncleanIsClean) {
            _ if is_other && !is_planted(Mutant::AnotherDiskCounts) => Some(Loss::Everything),
            _ if self.has_copy() => Some(Loss::Everything),
            true => None,
            false => Some(Loss::Unsynced),
        }
    }

    /// Whether one was registered last and is no copy. Who has one of these holds the lock of the process that was
    /// registered, which only that one's end has given free.
    pub(super) fn has_one_as_left(&self) -> bool {
        self.registered().any(|at| !self.is_copy(at))
    }

    /// Whether one was put back from a copy.
    pub(super) fn has_copy(&self) -> bool {
        self.registered().any(|at| self.is_copy(at))
    }

    /// Whether some were registered last, and others not.
    pub(super) fn are_partly_new(&self) -> bool {
        let known = |dir| self.known.log_dirs.contains(dir);
        self.has_one_as_left() && !self.request.log_dirs.iter().all(known)
    }

    /// The places of the directories that were registered last.
    fn registered(&self) -> impl Iterator<Item = usize> {
        let is_known = |(_, dir): &(usize, &Uuid)| self.known.log_dirs.contains(*dir);
        self.request.log_dirs.iter().enumerate().filter(is_known).map(|(at, _)| at)
    }

    /// State of the directory at this place, if the process reports it.
    fn told_of(&self, at: usize) -> Option<&KnownDirectory> {
        self.told.and_then(|told| told.directories.get(at))
    }

    fn is_copy(&self, at: usize) -> bool {
        let is_older = self.told_of(at).is_some_and(|directory| self.is_older(directory));
        is_older && !is_planted(Mutant::CopiesCount) || self.is_behind(at)
    }

    /// Whether the mark of a directory is below the recorded one.
    fn is_behind(&self, at: usize) -> bool {
        let mark = self.marks.and_then(|marks| marks.get(at));
        mark.zip(self.recorded.get(at)).is_some_and(|(mark, recorded)| mark < recorded)
            && !is_planted(Mutant::MarksAreIgnored)
    }

    /// Whether marks are recorded, and the registration has none: the metadata of the node is too old to know the level.
    pub(super) fn lacks_marks(&self) -> bool {
        self.marks.is_none() && self.recorded.iter().any(|recorded| *recorded > 0)
    }

    /// Whether the last process did not have it. One that was stopped in a later registration than the last shows that
    /// the metadata is what is older.
    fn is_older(&self, KnownDirectory { stopped, had_by }: &KnownDirectory) -> bool {
        let is_newer = stopped.is_some_and(|epoch| epoch > self.known.epoch);
        match had_by.is_empty() {
            true => stopped.is_some_and(|epoch| epoch < self.known.epoch),
            false => !is_newer && !had_by.contains(&self.known.incarnation),
        }
    }

    /// Whether the last process has stopped cleanly, as far as its directories say so.
    fn are_stopped_by_last(&self) -> bool {
        let is_stopped = |at: usize| {
            self.told_of(at).is_some_and(|directory| self.is_stopped_by_last(directory))
        };
        self.told.is_none() || self.registered().all(is_stopped)
    }

    /// Whether the last process has stopped cleanly with this directory. One that was registered and never heard of that has
    /// written nothing, and its stop names the registration before: it is noted behind the process of that one.
    fn is_stopped_by_last(&self, KnownDirectory { stopped, had_by }: &KnownDirectory) -> bool {
        let Some(epoch) = stopped else { return false };
        let mut unaware = had_by.iter().skip(1);
        *epoch == self.known.epoch
            || unaware.any(|process| *process == self.known.incarnation)
            || is_planted(Mutant::CopiesCount)
    }
}
