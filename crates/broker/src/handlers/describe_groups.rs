//! DescribeGroups (key 15), versions 0 to 6. v3 authorized operations; v4 static members; v6 an
//! error for groups that are not there (KIP-1043), which before are answered as dead.

use std::sync::Arc;

use coordinator::response::{DescribeGroupResponse, DescribedMember};
use coordinator::{Request, Response};
use model::ErrorCode;
use wire::describe_groups::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup, DescribedGroupMember,
};

use super::group::bytes;
use super::{Call, authorized, unique};

/// From this version on a group that is not there is an error.
const NOT_FOUND_FROM_VERSION: i16 = 6;

/// Memory of a group in an answer, decoded and encoded, without strings of clients.
const GROUP_BYTES: usize = 512;

/// Answers.
pub async fn handle(call: Arc<Call>, request: DescribeGroupsRequest) -> DescribeGroupsResponse {
    let mut wanted = request.groups;
    unique::keep_first(&mut wanted, String::clone);
    let bytes = |group: &String| {
        let id = group.as_str().into();
        call.server.group_bytes(group, |shard| shard.described_bytes(&id))
    };
    let kept: usize = wanted.iter().map(bytes).sum();
    call.reserve_answer(2 * kept + GROUP_BYTES * wanted.len() + 4 * call.decoded_bytes).await;
    let mut groups = Vec::with_capacity(wanted.len());
    for group in wanted {
        let asked = Request::DescribeGroup(group.as_str().into());
        let described = match call.server.ask_group(&group, asked).await {
            Ok(Response::DescribeGroup(described)) => described,
            Ok(other) => unreachable!("the answer to another request: {other:?}"),
            Err(code) => DescribeGroupResponse::not_described(group.into(), code),
        };
        groups.push(answer(&call, described, request.include_authorized_operations));
    }
    DescribeGroupsResponse { throttle_time_ms: 0, groups }
}

fn answer(call: &Call, described: DescribeGroupResponse, operations: bool) -> DescribedGroup {
    let not_found = described.error == ErrorCode::GroupIdNotFound;
    let hidden = not_found && call.version < NOT_FOUND_FROM_VERSION;
    let code = if hidden { ErrorCode::None } else { described.error };
    let message = (not_found && !hidden).then(|| format!("there is no group {}", described.group));
    DescribedGroup {
        error_code: code.code(),
        error_message: message,
        group_id: described.group.to_string(),
        group_state: described.state.to_owned(),
        protocol_type: described.protocol_type.to_string(),
        protocol_data: described.protocol.to_string(),
        members: described.members.into_iter().map(member).collect(),
        authorized_operations: authorized::group(operations && code.is_none()),
    }
}

fn member(member: DescribedMember) -> DescribedGroupMember {
    DescribedGroupMember {
        member_id: member.member.to_string(),
        group_instance_id: member.instance.map(|instance| instance.to_string()),
        client_id: member.client_id.to_string(),
        client_host: member.client_host.to_string(),
        member_metadata: bytes(&member.metadata),
        member_assignment: bytes(&member.assignment),
    }
}
