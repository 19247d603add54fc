//! Syncs and checkpoints of one broker, and the bounds of truncations that are stored with them.

use metadata::record::COPIES_LEVEL;
use model::{LeaderEpoch, Moment, Offset, Timestamp};
use node::Key;
use partition::Urgency;

use super::broker::{ClusterBroker, is_fatal, state_of};
use super::topics::key_of;
use crate::invariant::Invariant;
use crate::message::PartitionId;

/// Bytes past the recovery point that are worth a checkpoint.
const CHECKPOINT_BYTES_MIN: u64 = 2_000;

impl ClusterBroker {
    /// How urgent a round of syncs is, if one may begin.
    pub(crate) fn wants_sync(&self) -> Option<Urgency> {
        if self.syncing.is_empty() { self.sync_queue.most_urgent() } else { None }
    }

    /// The flusher begins a round; true if there is a sync to run.
    pub(crate) fn begin_sync(&mut self, also_later: bool) -> bool {
        if self.syncing.is_empty() {
            let taken = self.sync_queue.take(also_later).into_iter();
            self.syncing =
                taken.filter_map(|(urgency, partition)| partition.begin_sync(urgency)).collect();
        }
        !self.syncing.is_empty()
    }

    /// The device is done with one file; true if the round goes on.
    pub(crate) fn run_sync(&mut self, now: Moment, clock: Timestamp) -> bool {
        if let Some(sync) = self.syncing.pop() {
            self.is_failed |= sync.run().is_err();
            self.look(now, clock);
        }
        !self.syncing.is_empty()
    }

    /// Moves recovery points on where enough was written, and stores all offsets.
    pub(crate) fn checkpoint(&mut self) {
        let is_in_reach = |(at, _): &(&PartitionId, _)| !self.out_of_reach.contains(at);
        let mut in_reach = self.partitions.iter().filter(is_in_reach);
        let moved = in_reach
            .try_for_each(|(_, partition)| partition.checkpoint(CHECKPOINT_BYTES_MIN).map(drop));
        self.is_failed |= moved.is_err_and(|error| is_fatal(&error));
        // A disk without room takes them when it has some: the real journal has room of its own.
        let _ = self.log_dirs.store_bounds(&self.partitions);
        let stored = self.log_dirs.store_offsets_of_replicas(&self.partitions);
        self.is_failed |= stored.is_err_and(|error| error.is_fatal());
        self.folders.empty_trash();
    }

    /// Checks that a truncation keeps the records that an earlier process knew to be committed, unless an unclean election
    /// allows it.
    pub(super) fn check_bound(&mut self, at: PartitionId, to: Offset) {
        let Key { topic_id, partition } = key_of(at);
        let topic = self.image.topic_by_id(topic_id);
        let allowed = topic.map(|topic| topic.truncation_allowed(partition));
        let is_durable = state_of(&self.image, at).is_some_and(|it| it.durable);
        let is_bound = self.image.highwater_version() >= COPIES_LEVEL
            && is_durable
            && allowed == Some(LeaderEpoch::NONE);
        let bound = self.bounds.get(&at).copied().unwrap_or(Offset(0));
        if is_bound && to < bound {
            let what = format!("{} cuts {at} at {to}, and knew {bound} before its start", self.id);
            self.broken = Some((at, (Invariant::BoundsSurvive, what)));
        }
    }
}
