//! Heartbeat: a member stays, and learns whether it must join again.

use model::ErrorCode;

use crate::ReplyTo;
use crate::group::GroupState;
use crate::outbox::Scope;
use crate::request::Heartbeat;
use crate::response::Response;
use crate::shard::Shard;

impl Shard {
    pub(crate) fn heartbeat(&mut self, to: ReplyTo, request: Heartbeat) {
        let error = match self.check_heartbeat(&request) {
            Ok(state) => {
                assert!(!request.member.is_empty(), "a member has an id");
                self.restart_session(&request.group, &request.member);
                match state {
                    GroupState::PreparingRebalance => ErrorCode::RebalanceInProgress,
                    // Clients send heartbeats as soon as their join was answered.
                    _ => ErrorCode::None,
                }
            }
            Err(error) => error,
        };
        self.reply(&request.group, Scope::Membership, to, Response::Heartbeat(error));
    }

    fn check_heartbeat(&self, request: &Heartbeat) -> Result<GroupState, ErrorCode> {
        let group = self.groups.get(&request.group).ok_or(ErrorCode::UnknownMemberId)?;
        group.check_member(&request.member, request.instance.as_ref())?;
        if request.generation_id != group.generation_id {
            return Err(ErrorCode::IllegalGeneration);
        }
        assert_ne!(group.state, GroupState::Empty, "an empty group has no members");
        Ok(group.state)
    }
}
