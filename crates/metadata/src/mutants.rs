//! Faults that can be planted, so that the simulation proves that it would find them. In debug builds only, and only on
//! the thread that plants one; a release build has no trace of them.

/// A fault: a rule of the decisions left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A process that did not stop cleanly counts as one that did (KIP-966, KAFKA-18635).
    UncleanIsClean,
    /// A broker that was not stopped cleanly goes on leading in the same leader epoch (KAFKA-18106).
    UncleanLeadsOn,
    /// A broker on another disk counts as the old one (R12).
    AnotherDiskCounts,
    /// Replicas that had to be made anew go on counting.
    EmptyReplicasCount,
    /// Who led last is elected although it is fenced (KAFKA-19522).
    FencedLastLeader,
    /// Who serves is elected, complete or not (R4).
    AnybodyLeads,
    /// A fenced broker, or one that is about to stop, joins an ISR (KIP-841).
    FencedJoins,
    /// Another registration of a broker joins an ISR than the one that caught up (KIP-903).
    AnyRegistrationJoins,
    /// Replicas out of sync stay eligible when the ISR has enough members (KIP-966).
    EligibleForEver,
    /// A broker that is back waits for the session of its dead predecessor.
    WaitsForSession,
    /// A replica that was withdrawn while its broker runs leaves its leader in the same leader epoch, which knows how far
    /// the replica was.
    WithdrawnIsRemembered,
    /// Replicas on failed disks are given up whether another one is complete or not.
    BothAreGivenUp,
    /// A replica that its broker cannot serve is elected, and joins ISRs (KIP-858).
    OfflineLeads,
    /// A log directory that was restored from a copy counts as the directory of the last process (KIP-966).
    CopiesCount,
    /// A log directory with a mark below the recorded one counts as the directory of the last process.
    MarksAreIgnored,
    /// An eligible replica whose broker registered again is elected without comparing log ends.
    RestartedIsTrusted,
    /// An unclean election takes the first replica that answered, whatever the others have.
    UncleanTakesFirst,
    /// An unclean election allows no truncation.
    UncleanAllowsNothing,
    /// The broker epochs of an ISR's members are lost on the way to the controller (KIP-903).
    DropsMemberEpochs,
    /// A smaller `min.insync.replicas` leaves replicas eligible (KAFKA-16540).
    SmallerMinIsrKeepsEligible,
    /// Which processes had the log directories before is lost on the way to the controller.
    DropsHolders,
    /// A broker that is silent, or has a sick disk, joins ISRs.
    UnfitJoins,
    /// A replica is relieved although nothing is known of the health of the others.
    RelievesToAnyReplica,
    /// A replica is relieved although its ISR falls below `min.insync.replicas`.
    RelievesBelowMinimum,
    /// A replica in a missing log directory leads (KIP-858).
    MissingLeads,
    /// A replica in a missing log directory is given up for one whose broker is silent or fenced.
    UnheardReplicasCount,
    /// A replica in a missing log directory is given up although no other replica is in sync.
    LastMissingIsGivenUp,
    /// A leader epoch that only a replica's log has is ignored.
    FoundEpochsAreIgnored,
    /// A regenerated quorum continues leader epochs in the generation of the lost one.
    EarlierGenerationsCount,
}

impl Mutant {
    /// All that the simulation finds. The transcript of relief finds the others.
    pub const ALL: [Mutant; 22] = [
        Mutant::UncleanIsClean,
        Mutant::UncleanLeadsOn,
        Mutant::AnotherDiskCounts,
        Mutant::EmptyReplicasCount,
        Mutant::FencedLastLeader,
        Mutant::AnybodyLeads,
        Mutant::FencedJoins,
        Mutant::AnyRegistrationJoins,
        Mutant::EligibleForEver,
        Mutant::WaitsForSession,
        Mutant::WithdrawnIsRemembered,
        Mutant::BothAreGivenUp,
        Mutant::OfflineLeads,
        Mutant::CopiesCount,
        Mutant::MarksAreIgnored,
        Mutant::RestartedIsTrusted,
        Mutant::UncleanTakesFirst,
        Mutant::UncleanAllowsNothing,
        Mutant::DropsMemberEpochs,
        Mutant::DropsHolders,
        Mutant::SmallerMinIsrKeepsEligible,
        Mutant::MissingLeads,
    ];

    /// Rules of relief ([`crate::decide::RelieveReplicas`]).
    pub const OF_RELIEF: [Mutant; 3] =
        [Mutant::UnfitJoins, Mutant::RelievesToAnyReplica, Mutant::RelievesBelowMinimum];

    /// Rules of missing log directories ([`crate::decide::GiveUpMissing`]).
    pub const OF_MISSING: [Mutant; 2] =
        [Mutant::UnheardReplicasCount, Mutant::LastMissingIsGivenUp];

    /// Rules of leader epochs that only logs have ([`crate::decide::ReportLeaderEpochs`]).
    pub const OF_FOUND_EPOCHS: [Mutant; 2] =
        [Mutant::FoundEpochsAreIgnored, Mutant::EarlierGenerationsCount];
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
