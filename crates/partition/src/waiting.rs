//! The one rule by which an append with `acks=all` is answered: by the broker, and by the simulator.

use model::{LeaderEpoch, Offset};

use crate::partition::{Partition, Status};

/// What has become of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Every replica that may be elected has it.
    Committed,
    /// It is not known yet.
    Undecided,
    /// The leader epoch in which it was appended is over, and this is what the partition is now. Another leader may
    /// have the records, or not.
    Ended(Status),
}

impl Partition {
    /// What has become of an append that ended at `needed` in this leader epoch. Cheap: no lock.
    ///
    /// The high watermark is read first, the leader epoch and the status afterwards. The other way round, a leader
    /// could become a follower in between, cut its log, and lead again: a high watermark of that time would
    /// acknowledge records that are gone. What is published is published in the opposite order.
    pub fn fate(&self, needed: Offset, epoch: LeaderEpoch) -> Fate {
        let is_reached = self.high_watermark() >= needed;
        let (now_epoch, status) = (self.epoch(), self.status());
        if status != Status::Leading || now_epoch != epoch {
            return Fate::Ended(status);
        }
        match is_reached {
            true => Fate::Committed,
            false => Fate::Undecided,
        }
    }
}
