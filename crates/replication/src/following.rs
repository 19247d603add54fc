//! What a follower knows: whom it copies, from where it asks, and where it cuts its log (KIP-101, KIP-279,
//! KIP-320, KIP-595's diverging epochs in Fetch).

use model::{BrokerId, LeaderEpoch, Offset};

use crate::assignment::TruncationLimit;

/// Where a leader epoch ends in a log: the largest epoch there that is not above the one asked for, and the offset
/// behind its last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The leader epoch.
    pub epoch: LeaderEpoch,
    /// The offset behind its last record.
    pub end: Offset,
}

/// What a follower asks its leader for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchFrom {
    /// Whom.
    pub leader: BrokerId,
    /// The leader epoch that it follows.
    pub leader_epoch: LeaderEpoch,
    /// From where. It has everything below, as durable as the topic wants.
    pub offset: Offset,
}

/// What a follower does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It asks its leader.
    Ask(FetchFrom),
    /// What came with the answer before is not as durable yet as the topic wants. A fetch offset is an
    /// acknowledgement, so nothing is asked for before.
    Sync,
    /// It cuts its log.
    Cut(Offset),
    /// It follows nobody.
    Rest,
}

/// A cut that a follower must make before it appends anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// The new end of the log.
    pub to: Offset,
    /// The cut takes records that were known to be committed: a leader was elected that lacks them. They are put
    /// aside, counted and reported, never dropped in silence.
    pub takes_committed: bool,
}

/// The highest committed offset that a replica has known, and the newest leader epoch in which it knew it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommittedBound {
    /// Every record below was committed.
    pub offset: Offset,
    /// The leader epoch; [`LeaderEpoch::NONE`] if it is unknown.
    pub leader_epoch: LeaderEpoch,
}

/// A truncation that a follower refuses: it would remove records that the follower knows to be committed, or that a lost majority of
/// the metadata quorum may have committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedTruncation {
    /// The leader, which lacks the records.
    pub leader: BrokerId,
    /// The leader epoch in which it leads.
    pub leader_epoch: LeaderEpoch,
    /// The end of the log that the leader's history requires.
    pub to: Offset,
    /// Every record below stays: the highest committed offset that the follower has known, or the end of its records of
    /// earlier generations.
    pub committed: Offset,
    /// A permission for a newer leader epoch than this one allows the truncation.
    pub known_in: LeaderEpoch,
    /// The records are of an earlier generation of the metadata quorum than the leader epoch.
    pub is_of_earlier_generation: bool,
}

/// A follower's state in one leader epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Following {
    /// Whom it copies, or [`BrokerId::NONE`] while there is no leader.
    pub leader: BrokerId,
    /// The leader epoch.
    pub epoch: LeaderEpoch,
    /// The leader's high watermark, as last said in this leader epoch.
    pub(crate) leader_high_watermark: Offset,
    /// Where the log must be cut before anything else happens.
    pub(crate) truncating: Option<Offset>,
    /// How far the log may be truncated.
    pub(crate) limit: TruncationLimit,
    /// The truncation that was refused: nothing is fetched in this leader epoch.
    pub(crate) refused: Option<RefusedTruncation>,
    /// An answer of the leader in this leader epoch was taken: up to its end the log is the leader's.
    pub(crate) is_shared: bool,
}

impl Following {
    pub(crate) fn new(leader: BrokerId, epoch: LeaderEpoch, limit: TruncationLimit) -> Following {
        let leader_high_watermark = Offset(0);
        let (truncating, refused, is_shared) = (None, None, false);
        Following { leader, epoch, leader_high_watermark, truncating, limit, refused, is_shared }
    }

    /// Whether answers of this leader are not used any more before the log is cut or the leader epoch ends.
    pub(crate) fn is_over(&self) -> bool {
        self.truncating.is_some() || self.refused.is_some()
    }

    /// The truncation that this follower refuses, if it does.
    pub fn refused(&self) -> Option<RefusedTruncation> {
        self.refused
    }
}

/// Where a follower cuts its log when its last record is not the leader's. `leaders` is where the leader says
/// that the follower's last epoch, or the largest that it knows below, ends there; `own` where that epoch
/// ends here, if any epoch up to it is known here; `log_end` where the log ends now.
///
/// One round is not always enough (KIP-279): where the follower knows no record of the epoch that the leader
/// named, the next fetch asks with the follower's next smaller one.
pub fn truncation_point(leaders: EpochEnd, own: Option<EpochEnd>, log_end: Offset) -> Offset {
    let own_end = own.map_or(log_end, |own| own.end);
    leaders.end.min(own_end).min(log_end)
}
