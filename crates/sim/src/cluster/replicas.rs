//! Replicas of a broker that come and go with the topics of its metadata, as the product's broker acts upon a step: replicas of
//! deleted topics are closed and deleted first, then new ones are opened.

use std::collections::BTreeSet;
use std::sync::Arc;

use metadata::{ClusterImage, ImageDelta, ImageUpdate, LocalChangeKind, PartitionImage};
use model::{BrokerId, Moment, Timestamp, TopicId};
use node::Key;
use node::fetcher::Event;
use partition::Settings;

use super::broker::{ClusterBroker, state_of};
use super::topics::{key_of, partition_of};
use crate::message::PartitionId;

impl ClusterBroker {
    /// Acts upon the topics that came and went between the image that was acted upon last and `image`. `deleted`: topics whose
    /// deletion the broker has applied. Returns the replicas to be opened.
    pub(super) fn change_replicas(
        &mut self,
        image: &Arc<ClusterImage>,
        deleted: &BTreeSet<TopicId>,
        now: Moment,
        clock: Timestamp,
    ) -> Vec<PartitionId> {
        let before = Arc::clone(&self.image);
        // As in the product, the first step is one from the empty image.
        let is_first = before.broker(self.id).is_none();
        if is_first {
            for at in self.folders.find_deleted(deleted, image) {
                self.remove_replica(at, now, clock);
            }
        }
        let delta = Arc::new(ImageDelta::between(&before, image));
        let known = Arc::clone(&before);
        let update = ImageUpdate { index: 0, before, after: Arc::clone(image), delta };
        let mut wanted = Vec::new();
        for change in update.local_changes(self.id) {
            let key = Key { topic_id: change.topic_id, partition: change.partition };
            let Some(at) = partition_of(key) else { continue };
            match change.kind {
                LocalChangeKind::Remove => self.remove_replica(at, now, clock),
                LocalChangeKind::Lead(_) | LocalChangeKind::Follow(_) => wanted.push(at),
            }
        }
        self.remove_unassigned(&known, image, now, clock);
        wanted.retain(|at| !self.partitions.contains_key(at) && !self.log_dirs.is_missing(*at));
        if is_first {
            // The controller may count a replica that the broker never made, or that is lost.
            let is_counted = |state: &PartitionImage| counts(image, state, self.id);
            let counted = wanted.iter().filter(|at| state_of(image, **at).is_some_and(is_counted));
            self.made_anew.extend(counted);
        }
        wanted
    }

    /// The machines of a founding cluster have all partitions of the topic, also those that are assigned to other brokers.
    fn remove_unassigned(
        &mut self,
        before: &ClusterImage,
        image: &ClusterImage,
        now: Moment,
        clock: Timestamp,
    ) {
        let has_topic = |image: &ClusterImage, at: &PartitionId| {
            image.topic_by_id(key_of(*at).topic_id).is_some()
        };
        let is_left = |at: &PartitionId| {
            has_topic(before, at) && !has_topic(image, at) && !self.assigned.contains_key(at)
        };
        let left: Vec<PartitionId> = self.partitions.keys().copied().filter(is_left).collect();
        left.into_iter().for_each(|at| self.remove_replica(at, now, clock));
    }

    /// Closes a replica, and deletes its folder. So is the folder of a replica whose disk failed: a new replica of the same name
    /// would be in another log directory, which a broker does not have here.
    fn remove_replica(&mut self, at: PartitionId, now: Moment, clock: Timestamp) {
        let leaders: Vec<BrokerId> = self.fetchers.keys().copied().collect();
        for leader in leaders {
            self.step(leader, now, clock, Event::Leave(key_of(at)));
        }
        if let Some(replica) = self.partitions.remove(&at) {
            replica.mark_deleted();
        }
        self.assigned.remove(&at);
        self.bounds.remove(&at);
        self.made_anew.retain(|anew| *anew != at);
        self.fetched_since.retain(|(of, _), _| *of != at);
        self.out_of_reach.remove(&at);
        self.folders.delete(at);
    }

    /// Opens the log of a replica that has none yet.
    pub(super) fn open_replica(
        &mut self,
        at: PartitionId,
        settings: &Arc<Settings>,
        clock: Timestamp,
    ) {
        self.folders.make_room();
        self.folders.make_way(at);
        let is_known = self.folders.live().contains(&at);
        match self.log_dirs.open_new_replica(self.id, at, settings, &self.sync_queue, clock) {
            Ok(replica) => {
                self.partitions.insert(at, replica);
                self.folders.enter([at].into_iter());
                if is_known {
                    // The journal of the first directory durably has the copy of a missing replica.
                    self.folders.sync_names();
                }
            }
            Err(error) => self.is_failed |= error.is_fatal(),
        }
    }
}

/// Whether a replica counts that its broker must create again. Below `highwater.version` 1 the last member of an ISR stays in it
/// although it reported that it is empty: then nothing was acknowledged without it.
pub(super) fn counts(image: &ClusterImage, state: &PartitionImage, me: BrokerId) -> bool {
    let is_last = !image.has_eligible_replicas() && state.isr == [me];
    state.is_complete(me) && !is_last
}
