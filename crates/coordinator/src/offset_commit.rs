//! OffsetCommit: a group stores positions. Members of a generation may, nobody of an older one; and
//! anybody without a generation while the group is empty.

use model::{ErrorCode, TopicPartition};

use crate::config::STRING_BYTES_MAX;
use crate::group::{Group, GroupState};
use crate::outbox::Scope;
use crate::records::{CommittedOffset, Record};
use crate::request::{OffsetCommit, PartitionCommit, TopicCommits};
use crate::response::{OffsetCommitResponse, PartitionErrors, Response};
use crate::shard::Shard;
use crate::{GroupId, ReplyTo};

impl Shard {
    pub(crate) fn commit_offsets(&mut self, to: ReplyTo, request: OffsetCommit) {
        let id = request.group.clone();
        let error = self.check_commit(&request).err();
        // A refusal depends on members and generation; what is stored, on the write alone, which is
        // later than all that the decision could have seen.
        let (topics, scope) = match error {
            Some(error) => (all_partitions(&request, error), Scope::Membership),
            None => (self.store_offsets(&request), Scope::All),
        };
        let response = Response::OffsetCommit(OffsetCommitResponse { topics });
        self.reply(&id, scope, to, response);
    }

    fn check_commit(&mut self, request: &OffsetCommit) -> Result<(), ErrorCode> {
        let has_generation = request.generation_id.0 >= 0;
        let Some(group) = self.groups.get(&request.group) else {
            // Offsets of a generation that is not known here: the group was deleted or expired.
            return if has_generation { Err(ErrorCode::IllegalGeneration) } else { Ok(()) };
        };
        if !has_generation && group.state == GroupState::Empty {
            return Ok(());
        }
        if !has_generation && request.member.is_empty() && request.instance.is_none() {
            // Somebody outside of the group must not move the positions of its members.
            return Err(ErrorCode::UnknownMemberId);
        }
        group.check_member(&request.member, request.instance.as_ref())?;
        if request.generation_id != group.generation_id {
            return Err(ErrorCode::IllegalGeneration);
        }
        match group.state {
            GroupState::CompletingRebalance => Err(ErrorCode::RebalanceInProgress),
            GroupState::Empty => unreachable!("an empty group has no members"),
            GroupState::Stable | GroupState::PreparingRebalance => {
                // Who commits is alive.
                self.restart_session(&request.group, &request.member);
                Ok(())
            }
        }
    }

    fn store_offsets(&mut self, request: &OffsetCommit) -> PartitionErrors {
        let mut records = Vec::new();
        let mut errors: PartitionErrors = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for commit in &topic.partitions {
                let error = self.check_offset(&topic.topic, commit);
                partitions.push((commit.partition, error));
                if error.is_none() {
                    records.push(self.offset_record(request, topic, commit));
                }
            }
            errors.push((topic.topic.clone(), partitions));
        }
        assert_eq!(errors.len(), request.topics.len(), "one result for each");
        if !records.is_empty() {
            let group = self.groups.entry(request.group.clone()).or_insert_with(Group::new);
            if !group.lent_offsets.is_loan() {
                group.lent_offsets = request.lent.clone();
                group.lent_metadata = request.lent_metadata.clone();
            }
            self.write(&records, None);
            self.settle_offsets(&request.group);
        }
        errors
    }

    fn check_offset(&self, topic: &str, commit: &PartitionCommit) -> ErrorCode {
        let length_max = self.config.offset_metadata_length_max;
        // Counting UTF-16 units is only needed where there are more bytes than may be units.
        let too_long = commit.metadata.len() > length_max
            && commit.metadata.encode_utf16().count() > length_max;
        if too_long {
            ErrorCode::OffsetMetadataTooLarge
        } else if topic.len() > STRING_BYTES_MAX {
            ErrorCode::UnknownTopicOrPartition
        } else {
            ErrorCode::None
        }
    }

    fn offset_record(
        &self,
        request: &OffsetCommit,
        topic: &TopicCommits,
        commit: &PartitionCommit,
    ) -> Record {
        let (name, topic_id) = (topic.topic.clone(), topic.topic_id);
        let partition = TopicPartition { topic: name, partition: commit.partition };
        let value = CommittedOffset {
            offset: commit.offset,
            leader_epoch: commit.leader_epoch,
            metadata: commit.metadata.clone(),
            commit_timestamp: self.now,
            expire_timestamp: request.retention_ms.map(|ms| self.now.plus_ms(ms)),
            topic_id,
        };
        Record::OffsetCommit { group: request.group.clone(), partition, value: Some(value) }
    }

    /// Records that take the stored positions of a group away, all of them or those that `which`
    /// chooses.
    pub(crate) fn offset_tombstones(
        &self,
        group: &GroupId,
        which: impl Fn(&TopicPartition, &CommittedOffset) -> bool,
    ) -> Vec<Record> {
        let chosen =
            self.durable.offsets(group).filter(|(partition, value)| which(partition, value));
        let tombstone = |(partition, _): (&TopicPartition, _)| Record::OffsetCommit {
            group: group.clone(),
            partition: partition.clone(),
            value: None,
        };
        chosen.map(tombstone).collect()
    }
}

/// The same error at every partition of a request.
pub(crate) fn all_partitions(request: &OffsetCommit, error: ErrorCode) -> PartitionErrors {
    let of_topic = |topic: &TopicCommits| {
        let errors = topic.partitions.iter().map(|commit| (commit.partition, error)).collect();
        (topic.topic.clone(), errors)
    };
    request.topics.iter().map(of_topic).collect()
}
