//! JoinGroup (key 11), versions 0 to 9. v1 rebalance timeout; v4 a member must know its id
//! (KIP-394); v5 static members (KIP-345); v7 protocol type; v8 a reason (KIP-800); v9 a leader that
//! need not assign (KIP-814). The answer comes when the rebalance has gathered its members.
//!
//! Memory of members is bounded. Without room a join gets COORDINATOR_NOT_AVAILABLE, and clients retry. Kafka has
//! no such bound.

use std::sync::Arc;

use coordinator::request::{JoinGroup, Lent, Protocol};
use coordinator::response::JoinedMember;
use coordinator::{Request, Response};
use model::{ErrorCode, Uuid};
use wire::join_group::{JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember};

use super::Call;
use super::group::{bytes, client_host, optional};

const REBALANCE_TIMEOUT_FROM_VERSION: i16 = 1;
const KNOWN_MEMBER_FROM_VERSION: i16 = 4;
const PROTOCOL_TYPE_FROM_VERSION: i16 = 7;
const SKIP_ASSIGNMENT_FROM_VERSION: i16 = 9;

/// Answers.
pub async fn handle(call: Arc<Call>, request: JoinGroupRequest) -> JoinGroupResponse {
    let member_id = request.member_id.clone();
    let mut join = join(&call, request);
    if !lend(&call, &mut join) {
        return refused(&call, ErrorCode::CoordinatorNotAvailable, member_id);
    }
    let group = join.group.clone();
    match call.server.ask_group(group.as_str(), Request::JoinGroup(join)).await {
        Ok(Response::JoinGroup(joined)) => {
            call.reserve_answer(2 * joined.members.iter().map(member_bytes).sum::<usize>()).await;
            JoinGroupResponse {
                throttle_time_ms: 0,
                error_code: joined.error.code(),
                generation_id: joined.generation_id.0,
                protocol_type: joined.protocol_type.map(|text| text.to_string()),
                protocol_name: name(&call, joined.protocol),
                leader: joined.leader.to_string(),
                skip_assignment: joined.skip_assignment,
                member_id: joined.member.to_string(),
                members: joined.members.into_iter().map(member).collect(),
            }
        }
        Ok(other) => unreachable!("the answer to another request: {other:?}"),
        Err(code) => refused(&call, code, member_id),
    }
}

/// Lends the memory that the member keeps. False if there is none.
fn lend(call: &Call, join: &mut JoinGroup) -> bool {
    let (identity, protocols) = (join.kept_identity_bytes(), join.kept_protocol_bytes());
    let former = |shard: &coordinator::Shard| shard.member_bytes(&join.group, &join.member);
    let bytes = identity + protocols;
    let held = call.server.hold_group_memory(join.group.as_str(), call.peer, bytes, former);
    let Some(held) = held else { return false };
    let (identity, protocols) = held.split(identity);
    (join.lent_identity, join.lent) = (Lent::new(identity), Lent::new(protocols));
    true
}

fn join(call: &Call, request: JoinGroupRequest) -> JoinGroup {
    let rebalance_timeout_ms = if call.version >= REBALANCE_TIMEOUT_FROM_VERSION {
        request.rebalance_timeout_ms
    } else {
        request.session_timeout_ms
    };
    JoinGroup {
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
        lent_identity: Lent::default(),
        lent: Lent::default(),
    }
}

/// Before version 7 the name of no protocol is empty, since then it is null.
fn name(call: &Call, protocol: Option<Arc<str>>) -> Option<String> {
    match protocol {
        Some(protocol) => Some(protocol.to_string()),
        None if call.version < PROTOCOL_TYPE_FROM_VERSION => Some(String::new()),
        None => None,
    }
}

/// Memory of a member in an answer, decoded or encoded.
fn member_bytes(member: &JoinedMember) -> usize {
    let instance = member.instance.as_ref().map_or(0, |own| own.as_str().len());
    128 + member.member.as_str().len() + instance + member.metadata.len()
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
