//! The draft: an image plus the records that made it so, not yet committed.

use super::UncleanElection;
use crate::delta::unclean_election;
use crate::image::{ClusterImage, PartitionImage};
use crate::mutants::{Mutant, is_planted};
use crate::record::MetadataRecord;
use model::{LeaderEpoch, PartitionIndex, TopicId};

/// A copy of the image to decide on. Invariant: the image it began as, after `records`, is `image`.
#[derive(Clone, Debug)]
pub struct Draft {
    image: ClusterImage,
    records: Vec<MetadataRecord>,
    unclean: Vec<UncleanElection>,
}

impl Draft {
    /// A draft of an image, without a record yet.
    pub fn new(image: ClusterImage) -> Draft {
        Draft { image, records: Vec::new(), unclean: Vec::new() }
    }

    /// The image as it will be.
    pub fn image(&self) -> &ClusterImage {
        &self.image
    }

    /// What has been decided.
    pub fn records(&self) -> &[MetadataRecord] {
        &self.records
    }

    /// What has been decided, for the log.
    pub fn into_records(self) -> Vec<MetadataRecord> {
        self.records
    }

    /// The elections among it after which acknowledged records may be missing.
    pub fn unclean_elections(&self) -> &[UncleanElection] {
        &self.unclean
    }

    /// Decides the next state of a partition, and counts it if the new leader is not one of those that
    /// have every acknowledged record (R4).
    pub(super) fn change(
        &mut self,
        topic_id: TopicId,
        partition: PartitionIndex,
        state: &PartitionImage,
    ) {
        let old = self.image.topic_by_id(topic_id).and_then(|topic| topic.partition(partition));
        let mut state = state.to_record(partition);
        state.restarted.retain(|id| state.elr.contains(id));
        let unclean = unclean_election(old, topic_id, &state);
        if unclean.is_some() {
            self.allow_truncation(topic_id, partition, state.leader_epoch);
        }
        self.unclean.extend(unclean);
        self.push(MetadataRecord::partition_changed(topic_id, state));
    }

    /// Allows followers to truncate committed records that the leader of this leader epoch lacks.
    pub(super) fn allow_truncation(
        &mut self,
        topic_id: TopicId,
        partition: PartitionIndex,
        leader_epoch: LeaderEpoch,
    ) {
        if self.image.detects_copies() && !is_planted(Mutant::UncleanAllowsNothing) {
            self.push(MetadataRecord::TruncationAllowed { topic_id, partition, leader_epoch });
        }
    }

    /// Decides a fact. It must fit the facts so far: anything else is a bug of the decision.
    pub(super) fn push(&mut self, record: MetadataRecord) {
        assert!(
            record.level() <= self.image.highwater_version(),
            "every broker reads what is written"
        );
        self.image.replay(&record).expect("a decision never contradicts the facts it was made on");
        self.records.push(record);
    }

    /// Runs `decision`; with `only_validate` (or a refusal) nothing of it stays.
    pub(super) fn attempt<T>(
        &mut self,
        only_validate: bool,
        decision: impl FnOnce(&mut Draft) -> super::Answer<T>,
    ) -> super::Answer<T> {
        let (image, records, unclean) =
            (self.image.clone(), self.records.len(), self.unclean.len());
        let answer = decision(self);
        if only_validate || answer.is_err() {
            self.image = image;
            self.records.truncate(records);
            self.unclean.truncate(unclean);
        }
        answer
    }
}
