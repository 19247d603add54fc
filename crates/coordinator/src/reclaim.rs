//! Memory that a shard keeps, and how the host takes it back.
//!
//! Every string that the shard keeps belongs to a loan of the host ([`Lent`]): the ids and protocols of a
//! member, the assignments of a group, its offsets. The host decides which members must go, and the shard
//! removes them as if their sessions had ended.

use model::{ErrorCode, Timestamp};

use crate::group::{Group, GroupState};
use crate::request::{Lent, OffsetCommit, kept_group_bytes, kept_offset_bytes};
use crate::shard::Shard;
use crate::timers::TimerKey;
use crate::{GroupId, MemberId};

/// The loans to one group, for a host that needs memory.
#[derive(Clone, Debug)]
pub struct GroupMemory {
    /// The group.
    pub group: GroupId,
    /// The last time that one of its members was heard of; the time of its last change without members.
    pub heard: Timestamp,
    /// Members, each with the loan for its ids.
    pub members: Vec<(MemberId, Lent)>,
    /// Members that have not joined with their ids yet, each with the time since then.
    pub pending: Vec<(MemberId, Timestamp)>,
    /// Whether the group has committed offsets, so that it stays without members.
    pub has_offsets: bool,
}

/// Bytes by which the stored positions of a group grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffsetGrowth {
    /// All memory.
    pub kept_bytes: usize,
    /// Metadata, which is a part of it.
    pub metadata_bytes: usize,
}

impl Shard {
    /// The loans to all groups.
    pub fn memory(&self) -> Vec<GroupMemory> {
        self.groups.iter().map(|(id, group)| self.group_memory(id, group)).collect()
    }

    fn group_memory(&self, id: &GroupId, group: &Group) -> GroupMemory {
        let members = group.members.iter();
        let heard = members.clone().map(|(member_id, member)| {
            let deadline = self.timers.deadline(&TimerKey::Session(id.clone(), member_id.clone()));
            match deadline {
                Some(at) if member.is_new => at.plus_ms(-self.config.new_member_join_timeout_ms),
                Some(at) if !member.is_kept_by_waiting() => {
                    at.plus_ms(-i64::from(member.session_timeout_ms))
                }
                // Its client waits for an answer.
                _ => self.now,
            }
        });
        GroupMemory {
            group: id.clone(),
            heard: heard.max().or(group.state_timestamp).unwrap_or(Timestamp::NONE),
            members: members.map(|(id, own)| (id.clone(), own.lent_identity.clone())).collect(),
            pending: group
                .pending_members
                .iter()
                .map(|(id, own)| (id.clone(), own.since))
                .collect(),
            has_offsets: self.durable.has_offsets(id),
        }
    }

    /// Bytes of the loans to a member: those it may use again when it joins again.
    pub fn member_bytes(&self, group: &GroupId, member: &MemberId) -> usize {
        let member = self.groups.get(group).and_then(|group| group.members.get(member));
        member.map_or(0, |own| own.lent_identity.bytes() + own.lent.bytes())
    }

    /// Bytes of the loan for the assignments of a group: those its leader may use again.
    pub fn assignment_bytes(&self, group: &GroupId) -> usize {
        self.groups.get(group).map_or(0, |group| group.lent.bytes())
    }

    /// Bytes of the stored positions of a group.
    pub fn offset_bytes(&self, group: &GroupId) -> usize {
        self.durable.offset_bytes(group)
    }

    /// Bytes of the members of a group and of their assignments.
    pub fn described_bytes(&self, group: &GroupId) -> usize {
        let Some(group) = self.groups.get(group) else { return 0 };
        let member = |own: &crate::member::Member| own.lent_identity.bytes() + own.lent.bytes();
        group.members.values().map(member).sum::<usize>() + group.lent.bytes()
    }

    /// Bytes of the list of all groups, decoded and encoded.
    pub fn listed_bytes(&self) -> usize {
        /// A group in the list, without its strings.
        const LISTED_BYTES: usize = 192;
        let groups = self.groups.iter();
        let of_group = |(id, group): (&GroupId, &Group)| {
            let protocol_type = group.protocol_type.as_ref().map_or(0, |text| text.len());
            LISTED_BYTES + 2 * (id.as_str().len() + protocol_type)
        };
        groups.map(of_group).sum()
    }

    /// Bytes by which the stored positions of a group grow with this commit.
    pub fn offset_growth(&self, commit: &OffsetCommit) -> OffsetGrowth {
        let mut growth = OffsetGrowth::default();
        if !self.durable.has_offsets(&commit.group) {
            growth.kept_bytes += kept_group_bytes(commit.group.as_str().len());
        }
        for topic in &commit.topics {
            for one in &topic.partitions {
                let key =
                    model::TopicPartition { topic: topic.topic.clone(), partition: one.partition };
                let before = self.durable.offset(&commit.group, &key);
                let kept = |metadata: usize| kept_offset_bytes(topic.topic.len(), metadata);
                let former = before.map_or(0, |value| value.metadata.len());
                let former_kept = before.map_or(0, |_| kept(former));
                growth.kept_bytes += kept(one.metadata.len()).saturating_sub(former_kept);
                growth.metadata_bytes += one.metadata.len().saturating_sub(former);
            }
        }
        growth
    }

    /// Charges the stored positions of a group, which have changed.
    pub(crate) fn settle_offsets(&mut self, id: &GroupId) {
        let Some(group) = self.groups.get(id) else { return };
        let kept = match self.durable.has_offsets(id) {
            true => kept_group_bytes(id.as_str().len()) + self.durable.offset_bytes(id),
            // The loan stays: a write that fails brings the positions back.
            false => 0,
        };
        group.lent_offsets.set_bytes(kept);
        group.lent_metadata.set_bytes(self.durable.metadata_bytes(id));
    }

    /// Charges all stored positions: many may have been taken back.
    pub(crate) fn settle_all_offsets(&mut self) {
        let groups: Vec<GroupId> = self.groups.keys().cloned().collect();
        groups.iter().for_each(|id| self.settle_offsets(id));
    }

    pub(crate) fn reclaim(&mut self, id: &GroupId, members: &[MemberId]) {
        let mut has_left = false;
        for member in members {
            let Some(group) = self.groups.get_mut(id) else { return };
            if group.pending_members.remove(member).is_some() {
                self.timers.cancel(&TimerKey::PendingMember(id.clone(), member.clone()));
            } else if group.members.contains_key(member) {
                self.drop_member(id, member, ErrorCode::UnknownMemberId);
                has_left = true;
            }
        }
        let Some(group) = self.groups.get(id) else { return };
        match group.state {
            GroupState::Stable | GroupState::CompletingRebalance if has_left => {
                self.prepare_rebalance(id, "the broker lacks memory for its members");
            }
            GroupState::PreparingRebalance => self.complete_abandoned_join(id),
            _ => {}
        }
        let group = &self.groups[id];
        let is_unused = group.state == GroupState::Empty && group.pending_members.is_empty();
        if is_unused && !self.durable.has_offsets(id) {
            self.forget_group(id, false);
        }
    }

    /// Ends a join phase without members at once: the first one of a group would wait for its deadline.
    fn complete_abandoned_join(&mut self, id: &GroupId) {
        let group = self.groups.get_mut(id).expect("the caller has it");
        if group.members.is_empty() && group.pending_members.is_empty() {
            group.is_initial_rebalance = false;
        }
        self.complete_join_if_all_joined(id);
    }

    /// Removes a group that has nothing but its id: ids that were given out have not come back.
    pub(crate) fn forget_if_blank(&mut self, id: &GroupId) {
        let Some(group) = self.groups.get(id) else { return };
        let is_blank = group.state == GroupState::Empty
            && group.pending_members.is_empty()
            && self.durable.group(id).is_none()
            && !self.durable.has_offsets(id)
            && self.outbox.is_settled(id);
        if is_blank {
            self.groups.remove(id);
        }
    }
}
