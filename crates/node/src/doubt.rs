//! Leaderships in doubt: a broker that no controller has answered for a session may have lost its partitions to others.
//!
//! Until a controller answers again, the broker takes `acks=0` and `acks=1` only for partitions of which every other replica
//! that may be elected follows it. A replica that follows it was not elected, and follows no other leader.

use std::time::Duration;

use metadata::PartitionImage;
use model::{BrokerId, Moment};
use partition::Partition;

use crate::mutants::{Mutant, is_planted};

/// Whether no controller answered for a session. `heard`: time of the last answer.
pub fn are_in_doubt(now: Moment, heard: Moment, session: Duration) -> bool {
    now.since(heard) > session && !is_planted(Mutant::DoubtsNever)
}

/// Whether another leader may have been elected for a partition whose leadership is in doubt. `since`: begin of the
/// session that ends now. `was_here`: whether a broker has fetched any partition from this one since then.
pub fn is_superseded(
    partition: &Partition,
    state: &PartitionImage,
    since: Moment,
    was_here: impl Fn(BrokerId) -> bool,
) -> bool {
    // A proposal of this leader that the image does not have yet is in the leader's own book.
    let others: Vec<BrokerId> = state.isr.iter().chain(&state.elr).copied().collect();
    is_planted(Mutant::DoubtsFollowers) || !partition.is_followed(&others, since, was_here)
}
