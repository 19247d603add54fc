//! Faults that can be planted, so that the simulation proves that it would find them. In debug builds only, and only on
//! the thread that plants one; a release build has no trace of them.

/// A fault: a rule of replication left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The high watermark is the leader's own position (R1).
    LeaderAlone,
    /// Under `durability=fsync` written counts as synced (P3).
    WrittenIsSynced,
    /// A follower asks, and so acknowledges, before it has synced.
    AsksUnsynced,
    /// The high watermark waits for the committed ISR only, while a larger one is wanted or being asked for (KIP-497).
    CommittedIsrOnly,
    /// A replica joins the ISR with whatever it had before this leader epoch (KIP-966).
    PositionsOfEarlierEpochs,
    /// A replica joins the ISR below the start of the leader epoch and the high watermark.
    JoinsBehind,
    /// A replica joins the ISR although it lags, and leaves it at once.
    JoinsLagging,
    /// A follower takes the leader's high watermark before it looks whether the histories part (KAFKA-14704).
    HighWatermarkFirst,
    /// A follower cuts nothing.
    CutsNothing,
    /// A follower cuts down to its high watermark, which may be behind what is committed (KIP-101).
    CutsToHighWatermark,
    /// The high watermark moves with fewer members in sync than `min.insync.replicas` (KAFKA-15583).
    TooFewInSync,
    /// A proposal whose outcome is not known counts as refused (KAFKA-14144).
    UnknownIsRefused,
    /// What an earlier registration had counts for the present one (KIP-903).
    PositionsOfEarlierRegistrations,
    /// A new leader tells its high watermark although that may be behind what was told before (KIP-966).
    TellsUnsettled,
    /// That a replica outside the ISR had everything before it was away counts when it is back (KIP-903).
    CaughtUpForEver,
    /// The low watermark is the leader's own durable log start (KIP-107).
    LowWatermarkAlone,
    /// The low watermark moves with fewer members in sync than `min.insync.replicas`.
    LowWatermarkBelowMinIsr,
    /// A replica joins the ISR although it keeps records that its leader has deleted.
    JoinsUndeleted,
    /// A follower reports a log start that is not durable yet.
    ReportsUnsyncedStart,
    /// A follower refuses every truncation, also above the highest committed offset that it has known.
    BoundAtLogEnd,
    /// A follower forgets at a restart the highest committed offset that it has known.
    BoundForgotten,
    /// A follower truncates records that only an earlier generation of the metadata quorum may have committed.
    EarlierGenerationsUnbound,
    /// A follower whose last record is of this generation of the quorum truncates older records of an earlier one.
    BoundByLastRecord,
    /// A follower that is behind its leader's log start drops records of an earlier generation of the metadata quorum.
    StartsOverUnbound,
    /// Every record of an earlier generation of the quorum is bound, also below what this generation has committed.
    SharedRecordsBound,
    /// A change of the ISR forgets the start of the leader epoch (KAFKA-15021).
    IsrChangeForgetsStart,
    /// The standing of brokers is taken from a state with a new number only (KAFKA-13790).
    StandingNeedsNumber,
    /// The high watermark waits for a replica that the controller refused to take into the ISR.
    RefusedIsWaitedFor,
    /// A follower keeps records that its leader has deleted and may never have had.
    KeepsUnproven,
}

impl Mutant {
    /// All that runs with a lasting fault find.
    pub const OF_SICKNESS: [Mutant; 1] = [Mutant::RefusedIsWaitedFor];

    /// All that transcripts find: no run regenerates a quorum.
    pub const OF_GENERATIONS: [Mutant; 4] = [
        Mutant::EarlierGenerationsUnbound,
        Mutant::BoundByLastRecord,
        Mutant::StartsOverUnbound,
        Mutant::SharedRecordsBound,
    ];

    /// All that the other runs of several brokers find.
    pub const ALL: [Mutant; 23] = [
        Mutant::LeaderAlone,
        Mutant::WrittenIsSynced,
        Mutant::AsksUnsynced,
        Mutant::CommittedIsrOnly,
        Mutant::PositionsOfEarlierEpochs,
        Mutant::JoinsBehind,
        Mutant::JoinsLagging,
        Mutant::HighWatermarkFirst,
        Mutant::CutsNothing,
        Mutant::CutsToHighWatermark,
        Mutant::TooFewInSync,
        Mutant::UnknownIsRefused,
        Mutant::PositionsOfEarlierRegistrations,
        Mutant::TellsUnsettled,
        Mutant::CaughtUpForEver,
        Mutant::LowWatermarkAlone,
        Mutant::LowWatermarkBelowMinIsr,
        Mutant::JoinsUndeleted,
        Mutant::ReportsUnsyncedStart,
        Mutant::BoundAtLogEnd,
        Mutant::BoundForgotten,
        Mutant::IsrChangeForgetsStart,
        Mutant::StandingNeedsNumber,
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
