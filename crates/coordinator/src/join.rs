//! JoinGroup: who may join, under which id, and whether that makes the group rebalance.
//!
//! A dynamic member joins twice: it is given an id first (KIP-394). A static member that joins
//! without an id takes the place of its former self, which is fenced (KIP-345); if the group is
//! stable and nothing else changes, without a rebalance (KIP-814).

use std::fmt::Write as _;
use std::sync::Arc;

use model::{ErrorCode, Uuid};

use crate::config::STRING_BYTES_MAX;
use crate::group::{Group, GroupState, PendingMember};
use crate::member::{Member, push_waiting};
use crate::outbox::{Replaced, Scope, Then};
use crate::records::Record;
use crate::request::{JoinGroup, MEMBER_ID_SUFFIX_BYTES};
use crate::response::{JoinGroupResponse, Response};
use crate::shard::Shard;
use crate::timers::TimerKey;
use crate::{GroupId, GroupInstanceId, MemberId, ReplyTo};

impl Shard {
    pub(crate) fn join(&mut self, to: ReplyTo, request: JoinGroup) {
        let id = request.group.clone();
        if let Err((error, member)) = self.try_join(to, &request) {
            let response = Response::JoinGroup(JoinGroupResponse::error(error, member));
            self.reply(&id, Scope::Membership, to, response);
        }
    }

    fn try_join(&mut self, to: ReplyTo, request: &JoinGroup) -> Result<(), (ErrorCode, MemberId)> {
        let refuse = |error| (error, request.member.clone());
        self.check_join(request).map_err(refuse)?;
        let is_unknown = request.member.is_empty();
        if !is_unknown && !self.groups.contains_key(&request.group) {
            return Err(refuse(ErrorCode::UnknownMemberId));
        }
        let blank = Group::new();
        let group = self.groups.get(&request.group).unwrap_or(&blank);
        if !group.has_room(&request.member, self.config.group_size_max) {
            self.leave_full_group(&request.group, &request.member);
            return Err((ErrorCode::GroupMaxSizeReached, MemberId::default()));
        }
        if !group.supports_protocols(&request.protocol_type, &request.protocols) {
            return Err(refuse(ErrorCode::InconsistentGroupProtocol));
        }
        // Only a join that gets an id makes a group.
        self.groups.entry(request.group.clone()).or_insert(blank);
        match &request.instance {
            None if is_unknown => self.join_new_dynamic(to, request),
            Some(instance) if is_unknown => self.join_new_static(to, request, instance),
            _ => self.join_known(to, request).map_err(refuse),
        }
    }

    fn check_join(&self, request: &JoinGroup) -> Result<(), ErrorCode> {
        let allowed = self.config.session_timeout_ms_min..=self.config.session_timeout_ms_max;
        if !allowed.contains(&request.session_timeout_ms) {
            return Err(ErrorCode::InvalidSessionTimeout);
        }
        // A record of the group holds strings of at most `STRING_BYTES_MAX` bytes.
        let front = request.instance.as_ref().map_or(&*request.client_id, |own| own.as_str());
        let names = request.protocols.iter().map(|protocol| &*protocol.name);
        let texts = [&*request.protocol_type, &*request.client_host, &*request.client_id];
        let mut lengths =
            names.chain(texts).map(str::len).chain([front.len() + MEMBER_ID_SUFFIX_BYTES]);
        let fits = lengths.all(|length| length <= STRING_BYTES_MAX);
        if fits { Ok(()) } else { Err(ErrorCode::InvalidRequest) }
    }

    /// A member that finds no place in a rebalance loses the one it had.
    fn leave_full_group(&mut self, id: &GroupId, member: &MemberId) {
        let group = self.groups.get_mut(id).expect("the caller has it");
        if group.pending_members.remove(member).is_some() {
            self.timers.cancel(&TimerKey::PendingMember(id.clone(), member.clone()));
            self.complete_join_if_all_joined(id);
            self.forget_if_blank(id);
        } else if group.members.contains_key(member) {
            self.remove_member(id, member, "the group is full");
        }
    }

    fn join_new_dynamic(
        &mut self,
        to: ReplyTo,
        request: &JoinGroup,
    ) -> Result<(), (ErrorCode, MemberId)> {
        let member = new_member_id(&request.client_id, request.uuid);
        if !request.require_known_member_id {
            self.add_member(to, request, member);
            return Ok(());
        }
        let id = &request.group;
        let group = self.groups.get_mut(id).expect("the caller made it");
        assert!(!group.members.contains_key(&member), "the host gave the same random bytes twice");
        let pending = PendingMember::new(self.now, request.lent_identity.clone());
        group.pending_members.insert(member.clone(), pending);
        let deadline = self.now.plus_ms(request.session_timeout_ms as i64);
        self.timers.set(TimerKey::PendingMember(id.clone(), member.clone()), deadline);
        Err((ErrorCode::MemberIdRequired, member))
    }

    fn join_new_static(
        &mut self,
        to: ReplyTo,
        request: &JoinGroup,
        instance: &GroupInstanceId,
    ) -> Result<(), (ErrorCode, MemberId)> {
        let member = new_member_id(instance.as_str(), request.uuid);
        match self.groups[&request.group].static_member(instance).cloned() {
            None => self.add_member(to, request, member),
            Some(former) => self.replace_static(to, request, instance, former, member),
        }
        Ok(())
    }

    fn add_member(&mut self, to: ReplyTo, request: &JoinGroup, member_id: MemberId) {
        let id = &request.group;
        let group = self.groups.get_mut(id).expect("the caller made it");
        if group.members.is_empty() {
            group.protocol_type = Some(request.protocol_type.clone());
        }
        assert_eq!(group.protocol_type.as_ref(), Some(&request.protocol_type));
        let mut member = Member::joining(request);
        member.awaiting_join.push(to);
        request.lent_identity.mark_pending(false);
        group.insert(member_id.clone(), member);
        group.new_member_added = true;
        self.timers.cancel(&TimerKey::PendingMember(id.clone(), member_id.clone()));
        // It does not know its id yet and cannot send heartbeats; but it must not wait for ever,
        // since its client may have gone away and come back as another member.
        assert!(!self.groups[id].pending_members.contains_key(&member_id), "it has come");
        let deadline = self.now.plus_ms(self.config.new_member_join_timeout_ms);
        self.timers.set(TimerKey::Session(id.clone(), member_id), deadline);
        self.rebalance(id, request.reason.as_deref().unwrap_or("a member joined"));
    }

    fn join_known(&mut self, to: ReplyTo, request: &JoinGroup) -> Result<(), ErrorCode> {
        let (id, member_id) = (&request.group, &request.member);
        let group = self.groups.get_mut(id).expect("the caller saw it");
        if group.pending_members.contains_key(member_id) {
            // Static members are never told to come back with an id.
            if request.instance.is_some() {
                return Err(ErrorCode::UnknownMemberId);
            }
            self.add_member(to, request, member_id.clone());
            return Ok(());
        }
        group.check_member(member_id, request.instance.as_ref())?;
        let is_same = group.members[member_id].matches(&request.protocols);
        match group.state {
            GroupState::PreparingRebalance => self.rejoin(to, request),
            // It missed the answer to its join, or asks again for it.
            GroupState::CompletingRebalance if is_same => self.answer_rejoin(to, id, member_id),
            GroupState::CompletingRebalance => self.rejoin(to, request),
            // The leader joins again when something it assigns by has changed, such as topics.
            GroupState::Stable if is_same && !group.is_leader(member_id) => {
                self.answer_rejoin(to, id, member_id);
            }
            GroupState::Stable => self.rejoin(to, request),
            GroupState::Empty => unreachable!("an empty group has no members"),
        }
        Ok(())
    }

    /// The current generation, for a member of it that joins without a change.
    fn answer_rejoin(&mut self, to: ReplyTo, id: &GroupId, member: &MemberId) {
        let mut response = self.joined_response(id, member);
        if self.groups[id].state == GroupState::Stable {
            assert!(!self.groups[id].is_leader(member), "the leader's join makes a rebalance");
            response.members.clear();
        }
        self.reply(id, Scope::Membership, to, Response::JoinGroup(response));
    }

    /// A member comes (back) for the next generation.
    fn rejoin(&mut self, to: ReplyTo, request: &JoinGroup) {
        assert!(!request.member.is_empty(), "who has no id is new");
        let id = &request.group;
        let group = self.groups.get_mut(id).expect("the caller saw it");
        let member = group.members.get_mut(&request.member).expect("the caller checked it");
        member.update(request);
        let outdated = push_waiting(&mut member.awaiting_join, to);
        if let Some(outdated) = outdated {
            let error = ErrorCode::RebalanceInProgress;
            let response = JoinGroupResponse::error(error, request.member.clone());
            self.outbox.reply_now(outdated, Response::JoinGroup(response));
        }
        self.rebalance(id, request.reason.as_deref().unwrap_or("a member joined again"));
    }

    /// A static member came back without its id: it gets a new one, and whoever still uses the old
    /// one is fenced.
    fn replace_static(
        &mut self,
        to: ReplyTo,
        request: &JoinGroup,
        instance: &GroupInstanceId,
        old_id: MemberId,
        new_id: MemberId,
    ) {
        let id = &request.group;
        let group = self.groups.get_mut(id).expect("the caller saw it");
        let old_leader = group.leader.clone().expect("a group with members has a leader");
        let former = group.rename(&old_id, new_id.clone());
        let member = group.members.get_mut(&new_id).expect("it was just renamed");
        member.update(request);
        member.client_id = request.client_id.clone();
        member.client_host = request.client_host.clone();
        member.awaiting_join.push(to);
        let (state, generation_id) = (group.state, group.generation_id);
        let keeps_protocol = group.next_protocol() == group.protocol;
        self.timers.cancel(&TimerKey::Session(id.clone(), old_id.clone()));
        self.restart_session(id, &new_id);
        let old_member =
            Member { awaiting_join: Vec::new(), awaiting_sync: Vec::new(), ..former.clone() };
        self.refuse_waiting(former, old_id.clone(), ErrorCode::FencedInstanceId);
        if state == GroupState::Stable && keeps_protocol {
            let then = Replaced {
                group: id.clone(),
                instance: instance.clone(),
                generation_id,
                old_id,
                new_id,
                old_member,
                old_leader,
                supports_skip_assignment: request.supports_skip_assignment,
                member_loans: self.groups[id].member_loans(),
            };
            self.write_replacement(then);
        } else {
            self.rebalance(id, "a static member came back");
        }
    }

    fn write_replacement(&mut self, then: Replaced) {
        let id = then.group.clone();
        let value = Some(self.groups[&id].to_record(|_, member| member.assignment.clone()));
        let record = Record::GroupMetadata { group: id, value };
        self.write(&[record], Some(Then::Replaced(Box::new(then))));
    }

    /// A static member's new id is committed: it may go on in its old place.
    pub(crate) fn replaced(&mut self, replaced: Replaced) {
        let Replaced { group: id, new_id, member_loans, .. } = replaced;
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.recorded = member_loans;
        if group.state != GroupState::Stable {
            // A rebalance began meanwhile, and this join is part of it.
            return;
        }
        let Some(member) = group.members.get_mut(&new_id) else { return };
        let waiting = std::mem::take(&mut member.awaiting_join);
        let mut response = self.joined_response(&id, &new_id);
        if replaced.supports_skip_assignment {
            response.skip_assignment = self.groups[&id].is_leader(&new_id);
        } else {
            // Its client would assign if it saw that it leads; it is told of the former leader, be
            // that its former self, and so fetches the assignment like everybody.
            response.members.clear();
            response.leader = replaced.old_leader;
        }
        self.reply_to_join(&id, waiting, response);
        self.restart_session(&id, &new_id);
    }

    /// A static member's new id is not in the log: its old one holds again.
    pub(crate) fn replacement_failed(&mut self, replaced: Replaced, error: ErrorCode) {
        let Replaced { group: id, old_id, new_id, old_member, .. } = replaced;
        let Some(group) = self.groups.get_mut(&id) else { return };
        let holds = group.static_member(&replaced.instance) == Some(&new_id);
        if !holds || group.generation_id != replaced.generation_id {
            // It is gone, was replaced again, or has been let into a later generation.
            return;
        }
        let failed = group.rename(&new_id, old_id.clone());
        let member = group.members.get_mut(&old_id).expect("it was just renamed");
        assert!(old_member.awaiting_join.is_empty() && old_member.awaiting_sync.is_empty());
        *member = old_member;
        self.timers.cancel(&TimerKey::Session(id.clone(), new_id));
        self.restart_session(&id, &old_id);
        self.refuse_waiting(failed, MemberId::default(), error);
    }
}

impl Group {
    /// Whether a member may join without making the group larger than `size_max`. During the join
    /// phase those count who have come, so that of a group that is too large the last ones to come
    /// back are turned away.
    fn has_room(&self, id: &MemberId, size_max: usize) -> bool {
        match self.state {
            GroupState::Empty => true,
            GroupState::PreparingRebalance => {
                let has_joined = self.members.get(id).is_some_and(Member::is_awaiting_join);
                has_joined || self.awaiting_join_count() < size_max
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                self.members.contains_key(id) || self.members.len() < size_max
            }
        }
    }
}

/// `front-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
fn new_member_id(front: &str, uuid: Uuid) -> MemberId {
    let mut id = String::with_capacity(front.len() + MEMBER_ID_SUFFIX_BYTES);
    id.push_str(front);
    for (at, byte) in uuid.0.iter().enumerate() {
        if matches!(at, 0 | 4 | 6 | 8 | 10) {
            id.push('-');
        }
        write!(id, "{byte:02x}").expect("a String takes all that is written");
    }
    assert_eq!(id.len(), front.len() + MEMBER_ID_SUFFIX_BYTES);
    MemberId(Arc::from(id))
}
