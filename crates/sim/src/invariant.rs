//! What must hold, by name. The names are those of the project's list of invariants.

use std::fmt;

use model::Timestamp;

/// A promise to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Invariant {
    /// What was acknowledged with `acks=all` is read back at its offset (C1).
    AckedIsReadable,
    /// What is read was sent, to this partition (C2, C12).
    NothingInvented,
    /// An offset has one value, over all acknowledgements and reads ever made (C3, C8).
    OneOffsetOneValue,
    /// An idempotent producer's record has one offset, and reading skips nothing (C4, C6).
    NoGapNoDuplicate,
    /// What one producer sent is in the order in which it sent it (C5).
    ProducerOrder,
    /// No reader ever sees the high watermark go back (R1).
    MonotonicHighWatermark,
    /// What a group stored, it gets back, or something stored later (C13).
    CommittedOffsetNeverLost,
    /// A broker that comes up has all that was ever synced (S2).
    SyncedSurvives,
    /// A broker comes up whatever the crash has left (S1, S12).
    BrokerStarts,
    /// An idempotent producer that does everything right is never refused (KIP-98).
    SequenceAccepted,
    /// Replicas of a partition have the same bytes, and no follower is ahead of its leader (R2).
    ReplicasAgree,
    /// No follower truncates committed records (R9).
    CommittedIsNotCut,
    /// No follower truncates below the committed offset that an earlier process of its directory knew, unless an unclean
    /// election allowed it (R9).
    BoundsSurvive,
    /// The same leader epoch and offset never have two contents, whoever leads (R2).
    OneContentInAnEpoch,
    /// A new leader serves and has everything that is acknowledged, and so has whoever joins an ISR; any other election is
    /// allowed, and counted (R4, R6).
    LeaderIsComplete,
    /// A deletion that was acknowledged holds on each later leader, and on each replica that joins an ISR (R13).
    DeletionHolds,
    /// No record of a topic is ever in the log of a later or an earlier topic of the same name (R14).
    TopicsStayApart,
    /// Once a broker has the metadata that proves a topic deleted, none of its folders is left (S16).
    DeletedTopicsLeaveNothing,
    /// A partition's state fits itself and the brokers' (R5).
    StatesAreSound,
    /// No ISR goes to and fro: nobody leaves it for what it lacked when it joined.
    IsrIsSteady,
    /// The high watermark waits for no replica outside the ISR because of what an earlier process of that broker had (KIP-903).
    NobodyAwayIsWaitedFor,
    /// What the controllers decide never contradicts what was decided before (R3).
    DecisionsFollow,
    /// A process that holds the lock of the one before it waits for no session.
    RestartsAtOnce,
    /// What one broker sends, another one can read.
    MessagesAreRead,
    /// Whoever waits gets an answer once the faults are over.
    EverybodyIsAnswered,
    /// A partition with enough healthy replicas acknowledges although a fault lasts (A1).
    SickBrokersStopNothing,
    /// A shared disk moves nothing, a leadership moves once in half a minute for sick disks, and a healthy broker leaves no ISR (A2).
    SickDisksMoveOnce,
    /// A leader that no controller answered for a session takes no record that another leader's followers drop (A3).
    DoubtfulRecordsAreRefused,
}

/// A broken promise: a bug.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which one.
    pub invariant: Invariant,
    /// When, on the simulated clock.
    pub at: Timestamp,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} does not hold at {} ms: {}", self.invariant, self.at, self.what)
    }
}
