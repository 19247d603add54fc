//! JoinGroup (key 11), versions 0 to 9. v1 rebalance timeout; v4 a member must know its id
//! (KIP-394); v5 static members (KIP-345); v7 protocol type; v8 a reason (KIP-800); v9 a leader that
//! need not assign (KIP-814). The answer comes when the rebalance has gathered its members.
//!
//! What members say of themselves is kept in memory, which is bounded: without room for more a join is
//! answered COORDINATOR_NOT_AVAILABLE, upon which clients try again. Kafka has no such bound.

use std::sync::Arc;

use coordinator::request::{JoinGroup, Lent, Protocol, kept_protocol_bytes};
use coordinator::response::JoinedMember;
use coordinator::{Request, Response};
use model::{ErrorCode, Uuid};
use wire::join_group::{JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember};

use crate::network::memory::Charge;

use super::Call;
use super::group::{bytes, client_host, optional};

const REBALANCE_TIMEOUT_FROM_VERSION: i16 = 1;
const KNOWN_MEMBER_FROM_VERSION: i16 = 4;
const PROTOCOL_TYPE_FROM_VERSION: i16 = 7;
const SKIP_ASSIGNMENT_FROM_VERSION: i16 = 9;

/// Answers.
pub async fn handle(call: Arc<Call>, request: JoinGroupRequest) -> JoinGroupResponse {
    let member_id = request.member_id.clone();
    // The member keeps what it says of itself for as long as it is one.
    let mut kept = call.server.memory.decoded.charge();
    if !kept.try_hold(kept_bytes(&request)) {
        return refused(&call, ErrorCode::CoordinatorNotAvailable, member_id);
    }
    match call.server.ask_group(&request.group_id.clone(), join(&call, request, kept)).await {
        Ok(Response::JoinGroup(joined)) => JoinGroupResponse {
            throttle_time_ms: 0,
            error_code: joined.error.code(),
            generation_id: joined.generation_id.0,
            protocol_type: joined.protocol_type.map(|text| text.to_string()),
            protocol_name: name(&call, joined.protocol),
            leader: joined.leader.to_string(),
            skip_assignment: joined.skip_assignment,
            member_id: joined.member.to_string(),
            members: joined.members.into_iter().map(member).collect(),
        },
        Ok(other) => unreachable!("the answer to another request: {other:?}"),
        Err(code) => refused(&call, code, member_id),
    }
}

/// Bytes of memory that a member takes.
fn kept_bytes(request: &JoinGroupRequest) -> usize {
    let protocols = request.protocols.iter();
    protocols.map(|own| kept_protocol_bytes(own.name.len(), own.metadata.len())).sum()
}

fn join(call: &Call, request: JoinGroupRequest, kept: Charge) -> Request {
    let rebalance_timeout_ms = if call.version >= REBALANCE_TIMEOUT_FROM_VERSION {
        request.rebalance_timeout_ms
    } else {
        request.session_timeout_ms
    };
    Request::JoinGroup(JoinGroup {
        group: request.group_id.into(),
        member: request.member_id.into(),
        uuid: Uuid::from_random(fastrand::u128(..).to_be_bytes()),
        client_id: Arc::clone(&call.client_id),
        client_host: client_host(call),
        instance: optional(request.group_instance_id),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms,
        protocol_type: request.protocol_type.into(),
        protocols: request
            .protocols
            .into_iter()
            .map(|protocol| Protocol {
                name: protocol.name.into(),
                metadata: Arc::from(&protocol.metadata[..]),
            })
            .collect(),
        reason: request.reason.map(Into::into),
        require_known_member_id: call.version >= KNOWN_MEMBER_FROM_VERSION,
        supports_skip_assignment: call.version >= SKIP_ASSIGNMENT_FROM_VERSION,
        lent: Lent::new(kept),
    })
}

/// Before version 7 the name of no protocol is empty, since then it is null.
fn name(call: &Call, protocol: Option<Arc<str>>) -> Option<String> {
    match protocol {
        Some(protocol) => Some(protocol.to_string()),
        None if call.version < PROTOCOL_TYPE_FROM_VERSION => Some(String::new()),
        None => None,
    }
}

fn member(member: JoinedMember) -> JoinGroupResponseMember {
    JoinGroupResponseMember {
        member_id: member.member.to_string(),
        group_instance_id: member.instance.map(|instance| instance.to_string()),
        metadata: bytes(&member.metadata),
    }
}

fn refused(call: &Call, code: ErrorCode, member_id: String) -> JoinGroupResponse {
    JoinGroupResponse {
        error_code: code.code(),
        generation_id: -1,
        protocol_name: name(call, None),
        member_id,
        ..Default::default()
    }
}
