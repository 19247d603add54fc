//! DescribeGroups and ListGroups: groups, for people to look at.

use std::sync::Arc;

use model::ErrorCode;

use crate::event::Reply;
use crate::group::{Group, GroupState};
use crate::outbox::Scope;
use crate::request::ListGroups;
use crate::response::{
    DescribeGroupResponse, DescribedMember, ListGroupsResponse, ListedGroup, Response,
};
use crate::shard::Shard;
use crate::{GroupId, ReplyTo};

/// The group type of KIP-848's list.
const GROUP_TYPE: &str = "classic";

impl Shard {
    pub(crate) fn describe_group(&mut self, to: ReplyTo, id: GroupId) {
        let response = match self.groups.get(&id) {
            Some(group) => group.describe(&id),
            None => DescribeGroupResponse::not_described(id.clone(), ErrorCode::GroupIdNotFound),
        };
        self.reply(&id, Scope::Membership, to, Response::DescribeGroup(response));
    }

    pub(crate) fn list_groups(&mut self, to: ReplyTo, request: ListGroups) {
        let is_wanted = |filter: &[Arc<str>], value: &str| {
            filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(value))
        };
        let wanted = self.groups.iter().filter(|(_, group)| {
            is_wanted(&request.states, group.state.name()) && is_wanted(&request.types, GROUP_TYPE)
        });
        let groups = wanted.map(|(id, group)| group.list(id)).collect();
        let response = Response::ListGroups(ListGroupsResponse { error: ErrorCode::None, groups });
        let until = self.now.plus_ms(self.config.write_timeout_ms);
        self.outbox.reply_after_all(Reply { to, response }, until);
    }
}

impl Group {
    fn list(&self, id: &GroupId) -> ListedGroup {
        ListedGroup {
            group: id.clone(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            state: self.state.name(),
            group_type: GROUP_TYPE,
        }
    }

    /// Metadata is of a protocol, and only a stable group has settled on one.
    fn describe(&self, id: &GroupId) -> DescribeGroupResponse {
        let is_stable = self.state == GroupState::Stable;
        let protocol = self.protocol.clone().filter(|_| is_stable).unwrap_or_default();
        let nothing: Arc<[u8]> = Arc::from(&[][..]);
        let members = self.members.iter().map(|(id, member)| DescribedMember {
            member: id.clone(),
            instance: member.instance.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: if is_stable { member.metadata(&protocol) } else { nothing.clone() },
            assignment: member.assignment.clone(),
        });
        let members = members.collect();
        DescribeGroupResponse {
            error: ErrorCode::None,
            group: id.clone(),
            state: self.state.name(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol,
            members,
        }
    }
}
