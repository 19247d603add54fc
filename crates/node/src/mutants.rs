//! Faults that can be planted, so that the simulation proves that it would find them. In debug builds only, and only on
//! the thread that plants one; a release build has no trace of them.

/// A fault: something that is lost between brokers, or left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A follower's request does not say the leader epoch of its last record (KIP-595).
    DropsLastEpochs,
    /// A leader's answer does not say where the histories part (KIP-595).
    DropsDivergences,
    /// An election by log ends takes the first answer.
    ElectsByFirstEnd,
    /// An election by log ends waits for a replica since it opened, although the replica went away later.
    WaitsFromOpening,
    /// An election by log ends takes the first answer that arrives after the wait.
    ElectsLateAnswerAtOnce,
    /// A heartbeat reports a mark of a log directory before the journal has it durably.
    ReportsUndurableMarks,
    /// The mark of a log directory is raised in memory only.
    MarksInMemory,
    /// A heartbeat does not say in which registration its broker lives.
    DropsHeartbeatEpochs,
    /// The folder of a deleted topic is taken for that of a topic with the same name (S15).
    FoldersByName,
    /// The answer to a fetch is taken for a partition of another topic with the same number.
    AnswersByNumber,
    /// A controller that polled late suspects brokers for its own lateness.
    SuspectsForOwnLateness,
    /// A suspicion of a paused broker counts as wrong.
    PausesAreWrongSuspicions,
    /// Preferred leaderships return to a directory as soon as it is healthy.
    ReturnsAtOnce,
    /// A leadership that moved for a sick disk moves again at once.
    MovesAgainAtOnce,
    /// An idle disk counts as healthy beside a hung one, though both may be one device.
    IdleDisksAreHealthy,
    /// A hung write or sync makes no disk sick.
    HangsAreHealthy,
    /// No broker is suspected.
    SuspectsNone,
    /// A leader that no controller answers takes all records.
    DoubtsNever,
    /// A leader that no controller answers refuses records although all replicas follow it.
    DoubtsFollowers,
    /// An answer of the controller counts although the broker has not acted upon the metadata that the answer names.
    CountsOutdatedAnswers,
}

impl Mutant {
    /// All that the simulation finds. Unit tests find [`Mutant::SuspectsForOwnLateness`], [`Mutant::PausesAreWrongSuspicions`],
    /// [`Mutant::AnswersByNumber`], [`Mutant::WaitsFromOpening`] and [`Mutant::ElectsLateAnswerAtOnce`].
    pub const ALL: [Mutant; 7] = [
        Mutant::DropsLastEpochs,
        Mutant::DropsDivergences,
        Mutant::ElectsByFirstEnd,
        Mutant::ReportsUndurableMarks,
        Mutant::MarksInMemory,
        Mutant::DropsHeartbeatEpochs,
        Mutant::FoldersByName,
    ];

    /// All that runs with a lasting fault find.
    pub const OF_SICKNESS: [Mutant; 8] = [
        Mutant::ReturnsAtOnce,
        Mutant::MovesAgainAtOnce,
        Mutant::IdleDisksAreHealthy,
        Mutant::HangsAreHealthy,
        Mutant::SuspectsNone,
        Mutant::DoubtsNever,
        Mutant::DoubtsFollowers,
        Mutant::CountsOutdatedAnswers,
    ];
}

#[cfg(debug_assertions)]
mod planted {
    use super::Mutant;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Plants a fault on this thread, or none.
    pub fn plant(mutant: Option<Mutant>) {
        PLANTED.with(|planted| planted.set(mutant));
    }

    pub(crate) fn is_planted(mutant: Mutant) -> bool {
        PLANTED.with(|planted| planted.get() == Some(mutant))
    }
}

#[cfg(not(debug_assertions))]
mod planted {
    use super::Mutant;

    pub(crate) const fn is_planted(_: Mutant) -> bool {
        false
    }
}

pub(crate) use planted::is_planted;
#[cfg(debug_assertions)]
pub use planted::plant;
