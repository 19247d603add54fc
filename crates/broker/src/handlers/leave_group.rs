//! LeaveGroup (key 13), versions 0 to 5. v3 many members at once, by id or static name (KIP-345);
//! v5 a reason (KIP-800).

use std::sync::Arc;

use coordinator::request::{LeaveGroup, Leaving};
use coordinator::{Request, Response};
use model::ErrorCode;
use wire::leave_group::{LeaveGroupRequest, LeaveGroupResponse, MemberResponse};

use super::group::optional;
use super::{Call, unique};

/// From this version on a request names many members, and each has an error of its own.
const MANY_FROM_VERSION: i16 = 3;

/// Answers.
pub async fn handle(call: Arc<Call>, mut request: LeaveGroupRequest) -> LeaveGroupResponse {
    unique::keep_first(&mut request.members, |member| {
        (member.member_id.clone(), member.group_instance_id.clone())
    });
    let group = request.group_id.clone();
    match call.server.ask_group(&group, leave(&call, request)).await {
        Ok(Response::LeaveGroup(left)) => {
            let members: Vec<MemberResponse> = left
                .members
                .into_iter()
                .map(|member| MemberResponse {
                    member_id: member.member.to_string(),
                    group_instance_id: member.instance.map(|instance| instance.to_string()),
                    error_code: member.error.code(),
                })
                .collect();
            answer(&call, left.error, members)
        }
        Ok(other) => unreachable!("the answer to another request: {other:?}"),
        Err(code) => answer(&call, code, Vec::new()),
    }
}

fn leave(call: &Call, request: LeaveGroupRequest) -> Request {
    let members = if call.version < MANY_FROM_VERSION {
        vec![Leaving { member: request.member_id.into(), instance: None, reason: None }]
    } else {
        request
            .members
            .into_iter()
            .map(|member| Leaving {
                member: member.member_id.into(),
                instance: optional(member.group_instance_id),
                reason: member.reason.map(Into::into),
            })
            .collect()
    };
    Request::LeaveGroup(LeaveGroup { group: request.group_id.into(), members })
}

/// The only member's error is the answer's before there could be many.
fn answer(call: &Call, code: ErrorCode, members: Vec<MemberResponse>) -> LeaveGroupResponse {
    if call.version >= MANY_FROM_VERSION {
        return LeaveGroupResponse { throttle_time_ms: 0, error_code: code.code(), members };
    }
    let only = members.first().map_or(ErrorCode::None.code(), |member| member.error_code);
    let error_code = if code.is_none() { only } else { code.code() };
    LeaveGroupResponse { throttle_time_ms: 0, error_code, members: Vec::new() }
}
