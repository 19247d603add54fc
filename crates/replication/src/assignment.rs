//! What the controller has decided about one partition, as far as a replica of it must know.

use model::{BrokerEpoch, BrokerId, LeaderEpoch};

/// Whether a broker may be taken into the ISR (KIP-841).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It serves, and this is its registration (KIP-903): an earlier one may have had another disk.
    Serves(BrokerEpoch),
    /// It is fenced, about to stop, or not registered.
    Absent,
}

/// One broker that the partition is assigned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignedReplica {
    /// Which.
    pub broker: BrokerId,
    /// Whether it may be taken into the ISR.
    pub standing: Standing,
}

/// Whether a follower may truncate its log below the highest committed offset that it has known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncationLimit {
    /// The follower truncates wherever the leader's history parts from its own (`highwater.version` below 4).
    Unlimited,
    /// The follower truncates below that offset only if it last knew the offset in a leader epoch before this one:
    /// the newest leader epoch for which an unclean election, or a person, allowed the truncation.
    /// [`LeaderEpoch::NONE`]: none was allowed.
    Committed(LeaderEpoch),
}

impl TruncationLimit {
    /// Whether committed records may be truncated that were last known in the leader epoch `known_in`.
    pub fn allows(self, known_in: LeaderEpoch) -> bool {
        match self {
            TruncationLimit::Unlimited => true,
            TruncationLimit::Committed(allowed_in) => allowed_in > known_in,
        }
    }
}

/// The state of one partition in the image, with the standing of its brokers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The leader, or [`BrokerId::NONE`].
    pub leader: BrokerId,
    /// The leader's epoch. Invariant: never falls.
    pub leader_epoch: LeaderEpoch,
    /// Rises with every change of the partition's state (KIP-497).
    pub partition_epoch: i32,
    /// Every broker that has a replica, the preferred leader first.
    pub replicas: Vec<AssignedReplica>,
    /// In-sync replicas. Invariant: within `replicas`; the leader is one of them.
    pub isr: Vec<BrokerId>,
    /// The leader was elected although it may lack acknowledged records, and has not said since that it
    /// has taken that in (KIP-704).
    pub recovering: bool,
    /// How far a follower may truncate its log.
    pub truncation: TruncationLimit,
    /// The image does not count records of this partition as synced, and a leader may prove that they are: the partition was
    /// under `durability=page-cache`, and this leader epoch began with `fsync` or later. `false` below `highwater.version` 4.
    pub awaits_durability: bool,
}

impl Assignment {
    /// A partition with one replica, which leads.
    pub fn alone(me: BrokerId, leader_epoch: LeaderEpoch) -> Assignment {
        Assignment {
            leader: me,
            leader_epoch,
            partition_epoch: 0,
            replicas: vec![AssignedReplica { broker: me, standing: Standing::Absent }],
            isr: vec![me],
            recovering: false,
            truncation: TruncationLimit::Unlimited,
            awaits_durability: false,
        }
    }
}
