//! LeaveGroup: members go, or an administrator removes them by their static names.

use model::ErrorCode;

use crate::group::GroupState;
use crate::outbox::Scope;
use crate::request::{LeaveGroup, Leaving};
use crate::response::{LeaveGroupResponse, LeftMember, Response};
use crate::shard::Shard;
use crate::timers::TimerKey;
use crate::{GroupId, MemberId, ReplyTo};

impl Shard {
    pub(crate) fn leave(&mut self, to: ReplyTo, request: LeaveGroup) {
        let id = &request.group;
        if !self.groups.contains_key(id) {
            let response = refused_leave(&request, ErrorCode::UnknownMemberId);
            return self.reply(id, Scope::Membership, to, response);
        }
        assert!(!id.is_empty(), "a group that has members has a name");
        let mut members = Vec::with_capacity(request.members.len());
        let mut reason = None;
        for leaving in &request.members {
            let error = self.leave_one(id, leaving);
            if error.is_none() {
                reason = reason.or(leaving.reason.as_deref());
            }
            let (member, instance) = (leaving.member.clone(), leaving.instance.clone());
            members.push(LeftMember { member, instance, error });
        }
        if members.iter().any(|left| left.error.is_none()) {
            self.rebalance_without_left(id, reason.unwrap_or("a member left"));
        }
        self.forget_if_blank(id);
        assert_eq!(members.len(), request.members.len(), "one result for each");
        let response = LeaveGroupResponse { error: ErrorCode::None, members };
        self.reply(id, Scope::Membership, to, Response::LeaveGroup(response));
    }

    /// Takes one member out, without a rebalance yet.
    fn leave_one(&mut self, id: &GroupId, leaving: &Leaving) -> ErrorCode {
        let group = self.groups.get_mut(id).expect("the caller saw it");
        if group.pending_members.remove(&leaving.member).is_some() {
            self.timers.cancel(&TimerKey::PendingMember(id.clone(), leaving.member.clone()));
            return ErrorCode::None;
        }
        let instance = leaving.instance.as_ref();
        let found: Result<MemberId, ErrorCode> = if leaving.member.is_empty() {
            let holder = instance.and_then(|instance| group.static_member(instance));
            holder.cloned().ok_or(ErrorCode::UnknownMemberId)
        } else {
            group.check_member(&leaving.member, instance).map(|()| leaving.member.clone())
        };
        match found {
            Ok(member) => {
                self.drop_member(id, &member, ErrorCode::UnknownMemberId);
                ErrorCode::None
            }
            Err(error) => error,
        }
    }

    /// A pending member that leaves makes no rebalance of a group that is not in one, since it was
    /// never part of a generation; a member does.
    fn rebalance_without_left(&mut self, id: &GroupId, reason: &str) {
        match self.groups[id].state {
            GroupState::Stable | GroupState::CompletingRebalance => {
                self.prepare_rebalance(id, reason);
            }
            GroupState::PreparingRebalance => self.complete_join_if_all_joined(id),
            GroupState::Empty => {}
        }
    }
}

fn refused_leave(request: &LeaveGroup, error: ErrorCode) -> Response {
    let refused = |leaving: &Leaving| LeftMember {
        member: leaving.member.clone(),
        instance: leaving.instance.clone(),
        error,
    };
    let members = request.members.iter().map(refused).collect();
    Response::LeaveGroup(LeaveGroupResponse { error: ErrorCode::None, members })
}
