//! Leader epochs that a replica's log has and the metadata does not: a lost majority of the quorum decided them, and the survivor of
//! which the quorum was regenerated never received them.
//!
//! Records of such an epoch may be acknowledged. So the partition has no leader until an operator requests an unclean election,
//! which begins a leader epoch above all that were found.
//!
//! A leader epoch holds the generation of the quorum and, in its low bits, the number of the election. That number is comparable over
//! generations: the metadata lacks the election of a log with a greater one.

use super::eligibility::View;
use super::{Answer, Draft, FoundEpoch, Refusal, ReportLeaderEpochs, SWEEP_PARTITIONS_MAX};
use crate::mutants::{Mutant, is_planted};
use crate::record::MetadataRecord;
use model::{ErrorCode, PartitionIndex, TopicId};

/// One answer for each partition, in order.
type Noted = Answer<Vec<(TopicId, PartitionIndex, Answer<()>)>>;

fn refuse<T>(error: ErrorCode, message: impl Into<String>) -> Answer<T> {
    Err(Refusal::new(error, message))
}

impl Draft {
    /// Records the leader epochs of a broker's logs that the metadata does not have. Their partitions lose their leaders.
    pub(super) fn note_found_epochs(&mut self, request: &ReportLeaderEpochs) -> Noted {
        if !self.image().detects_copies() {
            let message = "Reports of leader epochs need highwater.version 4.";
            return refuse(ErrorCode::UnsupportedVersion, message);
        }
        self.check_epoch(&request.broker)?;
        if request.partitions.len() > SWEEP_PARTITIONS_MAX {
            let message = format!("Name at most {SWEEP_PARTITIONS_MAX} partitions at once.");
            return refuse(ErrorCode::InvalidRequest, message);
        }
        let one = |of: &FoundEpoch| (of.topic_id, of.partition, self.note_found_epoch(of));
        Ok(request.partitions.iter().map(one).collect())
    }

    fn note_found_epoch(&mut self, of: &FoundEpoch) -> Answer<()> {
        let FoundEpoch { topic_id, partition, leader_epoch } = *of;
        let Some(topic) = self.image().topic_by_id(topic_id).cloned() else {
            return refuse(ErrorCode::UnknownTopicId, "There is no topic with this id.");
        };
        let Some(old) = topic.partition(partition) else {
            return refuse(ErrorCode::UnknownTopicOrPartition, "There is no such partition.");
        };
        let generation = old.leader_epoch.generation();
        let leader_epoch = leader_epoch.in_generation(generation);
        let is_known = !old.lacks_election(leader_epoch)
            || topic
                .found_epoch(partition)
                .is_some_and(|found| leader_epoch <= found.in_generation(generation));
        if is_known || is_planted(Mutant::FoundEpochsAreIgnored) {
            return Ok(());
        }
        self.push(MetadataRecord::LeaderEpochFound { topic_id, partition, leader_epoch });
        let Some(topic) = self.image().topic_by_id(topic_id).cloned() else { return Ok(()) };
        if let Some(new) = View::of(self.image(), &topic).settled(partition, old) {
            self.change(topic_id, partition, &new);
        }
        Ok(())
    }
}
