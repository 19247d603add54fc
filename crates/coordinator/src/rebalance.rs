//! The phases of a rebalance: members come together, the next generation begins, members go. Who
//! asks for what is in `join`, `sync` and `leave`.

use std::sync::Arc;

use model::ErrorCode;

use crate::group::GroupState;
use crate::member::Member;
use crate::outbox::Scope;
use crate::records::Record;
use crate::response::{JoinGroupResponse, JoinedMember, Response, SyncGroupResponse};
use crate::shard::Shard;
use crate::timers::TimerKey;
use crate::{GroupId, MemberId, ReplyTo};

/// How soon a join phase that nobody has joined is looked at again, at least: members may ask for a
/// rebalance time-out of 0.
const POSTPONED_JOIN_MS_MIN: i64 = 100;

/// Longest reason of a rebalance that is kept, in bytes. Kafka's clients cut theirs at 255 characters (KIP-800).
const REASON_BYTES_MAX: usize = 255;

fn shortened(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)]
}

impl Shard {
    /// Begins a rebalance, or, if one is under way, sees whether this completes it.
    pub(crate) fn rebalance(&mut self, id: &GroupId, reason: &str) {
        if self.groups[id].state == GroupState::PreparingRebalance {
            self.complete_join_if_all_joined(id);
        } else {
            self.prepare_rebalance(id, reason);
        }
    }

    /// Begins a rebalance: all members must join again.
    pub(crate) fn prepare_rebalance(&mut self, id: &GroupId, reason: &str) {
        self.refuse_syncs(id, ErrorCode::RebalanceInProgress);
        self.timers.cancel(&TimerKey::Sync(id.clone()));
        let group = self.groups.get_mut(id).expect("the caller has it");
        if group.state == GroupState::CompletingRebalance {
            // Until here operators see what the members had before this generation.
            let nothing: Arc<[u8]> = Arc::from(&[][..]);
            group.members.values_mut().for_each(|member| member.assignment = nothing.clone());
        }
        group.rebalance_reason = Arc::from(shortened(reason));
        group.pending_sync.clear();
        group.transition(self.now, GroupState::PreparingRebalance);
        if group.is_initial_rebalance {
            // The group is new: give others time to come before the first generation.
            let delay_ms = self.config.initial_rebalance_delay_ms;
            group.initial_remaining_ms = (group.rebalance_timeout_ms() - delay_ms).max(0);
            group.new_member_added = false;
            self.timers.set(TimerKey::Join(id.clone()), self.now.plus_ms(delay_ms));
        } else if group.have_all_joined() {
            self.complete_join(id);
        } else {
            let deadline = self.now.plus_ms(group.rebalance_timeout_ms());
            self.timers.set(TimerKey::Join(id.clone()), deadline);
        }
    }

    /// Ends the join phase if it waits for nobody. The first one of a group ends only by time.
    pub(crate) fn complete_join_if_all_joined(&mut self, id: &GroupId) {
        let group = &self.groups[id];
        if group.state == GroupState::PreparingRebalance
            && !group.is_initial_rebalance
            && group.have_all_joined()
        {
            self.complete_join(id);
        }
    }

    /// The deadline of the join phase has come.
    pub(crate) fn join_phase_ended(&mut self, id: &GroupId) {
        let Some(group) = self.groups.get_mut(id) else { return };
        assert_eq!(group.state, GroupState::PreparingRebalance, "the deadline outlived its phase");
        let delay_ms = self.config.initial_rebalance_delay_ms;
        if group.is_initial_rebalance && group.new_member_added && group.initial_remaining_ms > 0 {
            let extension_ms = delay_ms.min(group.initial_remaining_ms);
            group.new_member_added = false;
            group.initial_remaining_ms -= extension_ms;
            assert!(group.initial_remaining_ms >= 0, "an extension is at most what remains");
            self.timers.set(TimerKey::Join(id.clone()), self.now.plus_ms(extension_ms.max(1)));
        } else {
            self.complete_join(id);
        }
    }

    /// Ends the join phase: who has not come is out, unless it is a static member, which may be
    /// restarting and has until its session ends.
    fn complete_join(&mut self, id: &GroupId) {
        assert_eq!(self.groups[id].state, GroupState::PreparingRebalance);
        self.timers.cancel(&TimerKey::Join(id.clone()));
        for member in self.dynamic_members_not_joined(id) {
            self.drop_member(id, &member, ErrorCode::UnknownMemberId);
        }
        let group = self.groups.get_mut(id).expect("the caller has it");
        if !group.members.is_empty() && !group.elect_joined_leader() {
            let delay_ms = group.rebalance_timeout_ms().max(POSTPONED_JOIN_MS_MIN);
            self.timers.set(TimerKey::Join(id.clone()), self.now.plus_ms(delay_ms));
            return;
        }
        group.begin_generation(self.now);
        if group.state == GroupState::Empty {
            let value = Some(group.to_record(|_, _| unreachable!("it has no members")));
            self.write(&[Record::GroupMetadata { group: id.clone(), value }], None);
        } else {
            self.answer_joins(id);
        }
    }

    fn dynamic_members_not_joined(&self, id: &GroupId) -> Vec<MemberId> {
        let members = self.groups[id].members.iter();
        let missing = members.filter(|(_, m)| !m.is_awaiting_join() && m.instance.is_none());
        missing.map(|(id, _)| id.clone()).collect()
    }

    /// The generation has begun: everyone who waits learns of it and must ask for its assignment.
    fn answer_joins(&mut self, id: &GroupId) {
        assert_eq!(self.groups[id].state, GroupState::CompletingRebalance);
        let members: Vec<MemberId> = self.groups[id].members.keys().cloned().collect();
        for member_id in &members {
            let response = self.joined_response(id, member_id);
            let group = self.groups.get_mut(id).expect("the caller has it");
            group.pending_sync.insert(member_id.clone());
            let member = group.members.get_mut(member_id).expect("it was listed above");
            member.is_new = false;
            let waiting = std::mem::take(&mut member.awaiting_join);
            self.reply_to_join(id, waiting, response);
            self.restart_session(id, member_id);
        }
        let deadline = self.now.plus_ms(self.groups[id].rebalance_timeout_ms());
        self.timers.set(TimerKey::Sync(id.clone()), deadline);
    }

    /// What a member of the current generation is told when it joins; the leader gets all members.
    pub(crate) fn joined_response(&self, id: &GroupId, member: &MemberId) -> JoinGroupResponse {
        let group = &self.groups[id];
        assert!(group.members.contains_key(member), "only a member is told of its generation");
        let members = if group.is_leader(member) { self.joined_members(id) } else { Vec::new() };
        JoinGroupResponse {
            error: ErrorCode::None,
            generation_id: group.generation_id,
            protocol_type: group.protocol_type.clone(),
            protocol: group.protocol.clone(),
            leader: group.leader.clone().unwrap_or_default(),
            skip_assignment: false,
            member: member.clone(),
            members,
        }
    }

    /// Everyone, as the leader sees them.
    pub(crate) fn joined_members(&self, id: &GroupId) -> Vec<JoinedMember> {
        let group = &self.groups[id];
        let protocol = group.protocol.as_deref().unwrap_or("");
        let as_joined = |(id, member): (&MemberId, &Member)| JoinedMember {
            member: id.clone(),
            instance: member.instance.clone(),
            metadata: member.metadata(protocol),
        };
        group.members.iter().map(as_joined).collect()
    }

    /// The deadline of the sync phase has come: who has not asked for its assignment is out.
    pub(crate) fn sync_phase_ended(&mut self, id: &GroupId) {
        let Some(group) = self.groups.get(id) else { return };
        assert!(!matches!(group.state, GroupState::Empty | GroupState::PreparingRebalance));
        let missing: Vec<MemberId> = group.pending_sync.iter().cloned().collect();
        if missing.is_empty() {
            return;
        }
        for member in &missing {
            self.drop_member(id, member, ErrorCode::UnknownMemberId);
        }
        self.prepare_rebalance(id, "members did not sync in time");
    }

    /// Nothing was heard of a member for its session time-out.
    pub(crate) fn session_ended(&mut self, id: &GroupId, member_id: &MemberId) {
        let Some(member) = self.groups.get(id).and_then(|group| group.members.get(member_id))
        else {
            return;
        };
        if member.is_kept_by_waiting() {
            // Its client waits for our answer; its session begins anew when it gets it.
            return;
        }
        self.remove_member(id, member_id, "a member's session ended");
    }

    /// An id that was given out has not come back in time.
    pub(crate) fn pending_member_ended(&mut self, id: &GroupId, member: &MemberId) {
        let Some(group) = self.groups.get_mut(id) else { return };
        assert!(!group.members.contains_key(member), "its deadline ended when it joined");
        if group.pending_members.remove(member).is_some() {
            self.complete_join_if_all_joined(id);
            self.forget_if_blank(id);
        }
    }

    /// Removes a member; the others rebalance.
    pub(crate) fn remove_member(&mut self, id: &GroupId, member: &MemberId, reason: &str) {
        self.drop_member(id, member, ErrorCode::UnknownMemberId);
        match self.groups[id].state {
            GroupState::Stable | GroupState::CompletingRebalance => {
                self.prepare_rebalance(id, reason);
            }
            GroupState::PreparingRebalance => self.complete_join_if_all_joined(id),
            GroupState::Empty => {}
        }
    }

    /// Takes a member out of its group, with its deadline, and refuses what it waits for.
    pub(crate) fn drop_member(&mut self, id: &GroupId, member_id: &MemberId, error: ErrorCode) {
        let group = self.groups.get_mut(id).expect("the caller has it");
        let member = group.remove(member_id).expect("the caller saw the member");
        self.timers.cancel(&TimerKey::Session(id.clone(), member_id.clone()));
        self.refuse_waiting(member, MemberId::default(), error);
    }

    /// Refuses what a member that is gone waits for. At once, for waiting is soft state: whatever
    /// becomes of the group's last write, the client must join again.
    pub(crate) fn refuse_waiting(&mut self, member: Member, answer_id: MemberId, error: ErrorCode) {
        assert!(!error.is_none(), "a refusal says why");
        for to in member.awaiting_join {
            let response = JoinGroupResponse::error(error, answer_id.clone());
            self.outbox.reply_now(to, Response::JoinGroup(response));
        }
        for to in member.awaiting_sync {
            let response = Response::SyncGroup(SyncGroupResponse::error(error));
            self.outbox.reply_now(to, response);
        }
    }

    /// Refuses all that wait for the current generation's assignment, at once as above.
    pub(crate) fn refuse_syncs(&mut self, id: &GroupId, error: ErrorCode) {
        let group = self.groups.get_mut(id).expect("the caller has it");
        let mut waiting = Vec::new();
        for (member_id, member) in &mut group.members {
            let replies = std::mem::take(&mut member.awaiting_sync);
            waiting.extend(replies.into_iter().map(|to| (member_id.clone(), to)));
        }
        for (member_id, to) in waiting {
            // While it waited its session may have ended without effect.
            self.restart_session(id, &member_id);
            let response = Response::SyncGroup(SyncGroupResponse::error(error));
            self.outbox.reply_now(to, response);
        }
    }

    pub(crate) fn reply_to_join(
        &mut self,
        id: &GroupId,
        waiting: Vec<ReplyTo>,
        response: JoinGroupResponse,
    ) {
        for to in waiting {
            self.reply(id, Scope::Membership, to, Response::JoinGroup(response.clone()));
        }
    }
}
