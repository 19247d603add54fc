//! Removing stored positions: by request (KIP-496), with their topic, or with their group.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{ErrorCode, PartitionIndex, TopicId, TopicPartition};

use crate::group::{Group, GroupState};
use crate::outbox::{Scope, Then};
use crate::records::Record;
use crate::request::{OffsetDelete, TopicPartitions};
use crate::response::{OffsetDeleteResponse, PartitionErrors, Response};
use crate::shard::Shard;
use crate::timers::TimerKey;
use crate::{GroupId, MemberId, ReplyTo};

impl Shard {
    pub(crate) fn delete_offsets(&mut self, to: ReplyTo, request: OffsetDelete) {
        let id = &request.group;
        let response = match self.check_offset_delete(id) {
            Err(error) => OffsetDeleteResponse { error, topics: Vec::new() },
            Ok(()) => {
                let mut records = Vec::new();
                let topics = request.topics.iter().map(|asked| asked.topic.clone());
                let read = self.groups[id].subscribed_among(topics.collect());
                let delete = |asked: &TopicPartitions| {
                    let is_read = read.contains(&asked.topic);
                    self.delete_topic_offsets(id, asked, is_read, &mut records)
                };
                let topics: PartitionErrors = request.topics.iter().map(delete).collect();
                if !records.is_empty() {
                    self.write(&records, None);
                    self.settle_offsets(id);
                }
                OffsetDeleteResponse { error: ErrorCode::None, topics }
            }
        };
        self.reply(id, Scope::All, to, Response::OffsetDelete(response));
    }

    /// Members of other protocol types may read any topic; nobody knows.
    fn check_offset_delete(&self, id: &GroupId) -> Result<(), ErrorCode> {
        let group = self.groups.get(id).ok_or(ErrorCode::GroupIdNotFound)?;
        if group.state != GroupState::Empty && !group.is_consumer_group() {
            return Err(ErrorCode::NonEmptyGroup);
        }
        Ok(())
    }

    fn delete_topic_offsets(
        &self,
        id: &GroupId,
        asked: &TopicPartitions,
        is_read: bool,
        records: &mut Vec<Record>,
    ) -> (Arc<str>, Vec<(PartitionIndex, ErrorCode)>) {
        let error = if is_read { ErrorCode::GroupSubscribedToTopic } else { ErrorCode::None };
        for partition in asked.partitions.iter().filter(|_| !is_read) {
            let key = TopicPartition { topic: asked.topic.clone(), partition: *partition };
            if self.durable.offset(id, &key).is_some() {
                let group = id.clone();
                records.push(Record::OffsetCommit { group, partition: key, value: None });
            }
        }
        let errors = asked.partitions.iter().map(|partition| (*partition, error)).collect();
        (asked.topic.clone(), errors)
    }

    /// Topics are gone, and with them what every group stored for them.
    pub(crate) fn delete_topics(&mut self, topics: &[(Arc<str>, TopicId)]) {
        let gone: BTreeSet<(&str, TopicId)> =
            topics.iter().map(|(name, id)| (&**name, *id)).collect();
        let groups: Vec<GroupId> = self.groups.keys().cloned().collect();
        for id in groups {
            let records = self.offset_tombstones(&id, |partition, value| {
                gone.contains(&(&*partition.topic, value.topic_id))
            });
            if !records.is_empty() {
                self.write(&records, None);
                self.settle_offsets(&id);
            }
        }
    }

    /// DeleteGroups, for one group.
    pub(crate) fn delete_group(&mut self, to: ReplyTo, id: GroupId) {
        let error = match self.groups.get(&id).map(|group| group.state) {
            None => ErrorCode::GroupIdNotFound,
            Some(GroupState::Empty) => {
                self.forget_group(&id, true);
                ErrorCode::None
            }
            Some(_) => ErrorCode::NonEmptyGroup,
        };
        self.reply(&id, Scope::All, to, Response::DeleteGroup(error));
    }

    /// Removes an empty group with all it stored. `always_write`: also if nothing says that it
    /// ever was, so that the answer waits for the log.
    pub(crate) fn forget_group(&mut self, id: &GroupId, always_write: bool) {
        let mut group = self.groups.remove(id).expect("the caller saw it");
        assert_eq!(group.state, GroupState::Empty, "only an empty group is removed");
        for member in std::mem::take(&mut group.pending_members).into_keys() {
            self.timers.cancel(&TimerKey::PendingMember(id.clone(), member));
        }
        let mut records = self.offset_tombstones(id, |_, _| true);
        if always_write || self.durable.group(id).is_some() {
            records.push(Record::GroupMetadata { group: id.clone(), value: None });
        }
        if !records.is_empty() {
            let then = Then::Deleted { group: id.clone(), was: Box::new(group) };
            self.write(&records, Some(then));
        }
        assert!(!self.durable.has_offsets(id) && self.durable.group(id).is_none());
    }

    /// The records that removed a group are not in the log: it is what it was. A group made since
    /// under the same name gives way, for its generations, begun anew, are those of the old one.
    pub(crate) fn deletion_failed(&mut self, id: &GroupId, was: Group, error: ErrorCode) {
        assert!(was.members.is_empty() && was.pending_members.is_empty());
        let since = self.groups.insert(id.clone(), was);
        let Some(since) = since else { return };
        self.timers.cancel(&TimerKey::Join(id.clone()));
        self.timers.cancel(&TimerKey::Sync(id.clone()));
        for member in since.pending_members.into_keys() {
            self.timers.cancel(&TimerKey::PendingMember(id.clone(), member));
        }
        for (member_id, member) in since.members {
            self.timers.cancel(&TimerKey::Session(id.clone(), member_id));
            self.refuse_waiting(member, MemberId::default(), error);
        }
    }
}
