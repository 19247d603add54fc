//! Topics whose deletion this process has applied, until the broker has compared them with its folders.
//!
//! A topic id enters the metadata once and leaves it by a deletion only. So a deletion is proved by a `TopicDeleted` record, or by
//! a received snapshot that lacks a topic of the metadata before it. A missing topic id alone proves nothing: metadata that is empty,
//! that went back, or that belongs to another cluster lacks it as well.

use crate::published::{Published, Subscription};
use metadata::{ClusterImage, ImageUpdate};
use model::TopicId;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// The beginning of the steps of the image for a broker that compares deleted topics with its folders.
#[derive(Debug)]
pub struct FirstUpdate {
    /// Topics whose deletion was applied since [`crate::Quorum::take_deleted_topics`]. Their deletion may be a step of `updates` as
    /// well.
    pub deleted: BTreeSet<TopicId>,
    /// The step from the empty image to the present one.
    pub first: ImageUpdate,
    /// The steps that follow.
    pub updates: Subscription,
}

/// Collects topic ids from the first applied entry on. `None` once the collection has ended.
#[derive(Debug)]
pub(crate) struct DeletedTopics(Mutex<Option<BTreeSet<TopicId>>>);

impl DeletedTopics {
    pub(crate) fn new() -> DeletedTopics {
        DeletedTopics(Mutex::new(Some(BTreeSet::new())))
    }

    /// Adds a topic whose `TopicDeleted` record was applied.
    pub(crate) fn note(&self, topic_id: TopicId) {
        if let Some(deleted) = &mut *self.0.lock() {
            deleted.insert(topic_id);
        }
    }

    /// Adds the topics that a received snapshot deletes.
    pub(crate) fn note_missing(&self, before: &ClusterImage, after: &ClusterImage) {
        if let Some(deleted) = &mut *self.0.lock() {
            let ids = before.topics().map(|topic| topic.id);
            deleted.extend(ids.filter(|id| after.topic_by_id(*id).is_none()));
        }
    }

    /// Removes and returns the topic ids collected so far.
    pub(crate) fn take(&self) -> BTreeSet<TopicId> {
        self.0.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Subscribes to `published` and ends the collection, so that each deletion is in the collection or in a step behind the first
    /// one.
    ///
    /// The first step is taken before the collection ends: a deletion behind that would be merged into a first step that still
    /// waits, from an empty image to one without the topic, and would be in no step.
    pub(crate) fn hand_over(&self, published: &Published) -> FirstUpdate {
        let mut updates = published.subscribe();
        let first = updates.try_next().expect("a subscription begins with a step");
        FirstUpdate { deleted: self.end(), first, updates }
    }

    /// Ends the collection; returns the topic ids collected since the last [`DeletedTopics::take`].
    fn end(&self) -> BTreeSet<TopicId> {
        self.0.lock().take().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::{Entry, LeaderId, LogId, Payload, Proposal, Runtime};
    use crate::state_machine::StateMachine;
    use crate::store::open::open;
    use crate::store::snapshot::Applied;
    use metadata::MetadataRecord;
    use model::{Timestamp, Uuid};
    use openraft::RaftSnapshotBuilder;
    use openraft::storage::{RaftLogStorageExt, RaftStateMachine};
    use std::path::PathBuf;
    use std::sync::Arc;
    use storage::disk::{Disk, SimDisk};

    fn id(topic: u8) -> TopicId {
        Uuid([topic; 16])
    }

    fn created(topic: u8) -> MetadataRecord {
        MetadataRecord::TopicCreated {
            topic_id: id(topic),
            name: format!("t{topic}").as_str().into(),
            created: Timestamp(1),
            partitions: Vec::new(),
        }
    }

    fn deleted(topic: u8) -> MetadataRecord {
        MetadataRecord::TopicDeleted { topic_id: id(topic) }
    }

    fn entries(records: Vec<MetadataRecord>) -> Vec<Entry> {
        let leader = LeaderId { term: 1, node_id: 0 };
        let entry = |(index, record): (usize, MetadataRecord)| {
            let index = index as u64;
            let (decided_at, records) = (index.checked_sub(1), vec![record].into());
            let proposal = Proposal { decided_at, applied: decided_at, records, part: None };
            Entry { log_id: LogId::new(leader, index), payload: Payload::Normal(proposal) }
        };
        records.into_iter().enumerate().map(entry).collect()
    }

    async fn apply(machine: &mut StateMachine, entries: Vec<Entry>) {
        let entries = entries.into_iter().map(|entry| Ok((entry, None)));
        machine.apply(futures_util::stream::iter(entries)).await.unwrap();
    }

    fn disk() -> (Arc<dyn Disk>, PathBuf) {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        let dir = PathBuf::from("/data/__cluster_metadata-0");
        disk.create_dir_all(&dir).unwrap();
        (disk, dir)
    }

    #[tokio::test]
    async fn applied_deletions_are_collected_until_the_end() {
        let (disk, dir) = disk();
        let mut machine = StateMachine::new(disk, dir, Applied::default());
        let all = entries(vec![created(1), created(2), deleted(1), deleted(2)]);
        // Created and deleted in one step, no step of the image has the topic.
        apply(&mut machine, all[..3].to_vec()).await;
        let topics = machine.deleted_topics();
        assert_eq!(topics.take(), BTreeSet::from([id(1)]));
        assert_eq!(topics.take(), BTreeSet::new());
        apply(&mut machine, all[3..].to_vec()).await;
        assert_eq!(topics.end(), BTreeSet::from([id(2)]));
        topics.note(id(3));
        assert_eq!(topics.end(), BTreeSet::new(), "nothing is kept once the collection has ended");
    }

    #[tokio::test]
    async fn a_deletion_behind_the_end_of_the_collection_is_a_step() {
        let (disk, dir) = disk();
        let mut machine = StateMachine::new(disk, dir, Applied::default());
        let all = entries(vec![created(1), created(2), deleted(1), deleted(2)]);
        apply(&mut machine, all[..3].to_vec()).await;
        let topics = machine.deleted_topics();
        let FirstUpdate { deleted, first, mut updates } = topics.hand_over(&machine.published());
        assert_eq!(deleted, BTreeSet::from([id(1)]));
        assert!(first.after.topic_by_id(id(2)).is_some());
        apply(&mut machine, all[3..].to_vec()).await;
        let step = updates.try_next().unwrap();
        assert!(step.before.topic_by_id(id(2)).is_some(), "no step has the deletion");
        assert!(step.after.topic_by_id(id(2)).is_none());
    }

    #[tokio::test]
    async fn a_received_snapshot_deletes_the_topics_that_it_lacks() {
        Runtime::scope(1, received_snapshot()).await;
    }

    async fn received_snapshot() {
        let log = || vec![created(1), created(2), created(3), created(4), deleted(4), created(5)];
        let (away_disk, dir) = disk();
        let mut store = open(Arc::clone(&away_disk), dir.clone(), "c", 0, 1 << 20).unwrap().store;
        store.blocking_append(entries(log())).await.unwrap();
        let machine = StateMachine::new(away_disk, dir, Applied::default());
        let mut away = machine.with_log(store);
        apply(&mut away, entries(vec![created(1), created(2)])).await;

        let (leader_disk, dir) = disk();
        let mut leader = StateMachine::new(leader_disk, dir, Applied::default());
        let since = vec![deleted(1), deleted(3), created(6), deleted(6)];
        apply(&mut leader, entries(log().into_iter().chain(since).collect())).await;
        let built = leader.get_snapshot_builder().await.build_snapshot().await.unwrap();
        away.install_snapshot(&built.meta, built.snapshot).await.unwrap();
        let in_own_log = BTreeSet::from([id(1), id(3), id(4)]);
        assert_eq!(away.deleted_topics().take(), in_own_log, "6 was never known here");
        let left = away.published().version().image.topics().count();
        assert_eq!(left, 2, "2 and 5");
    }
}
