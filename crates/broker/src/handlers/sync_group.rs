//! SyncGroup (key 14), versions 0 to 5. v3 static members; v5 the protocol, which must be the one
//! that was chosen. The answer comes when the leader has assigned.
//!
//! Assignments are kept in memory, which is bounded: without room for more a leader is answered
//! COORDINATOR_NOT_AVAILABLE, upon which clients try again. Kafka has no such bound.

use std::sync::Arc;

use coordinator::request::{Lent, SyncGroup, kept_assignment_bytes};
use coordinator::{Request, Response};
use model::{ErrorCode, GenerationId};
use wire::sync_group::{SyncGroupRequest, SyncGroupResponse};

use crate::network::memory::Charge;

use super::Call;
use super::group::{bytes, optional};

/// From this version on the client names the protocol.
const PROTOCOL_FROM_VERSION: i16 = 5;

/// Answers.
pub async fn handle(call: Arc<Call>, request: SyncGroupRequest) -> SyncGroupResponse {
    let group = request.group_id.clone();
    // The group keeps its members' assignments until there are others.
    let mut kept = call.server.memory.decoded.charge();
    if !kept.try_hold(kept_bytes(&request)) {
        return refused(ErrorCode::CoordinatorNotAvailable);
    }
    match call.server.ask_group(&group, sync(&call, request, kept)).await {
        Ok(Response::SyncGroup(synced)) => SyncGroupResponse {
            throttle_time_ms: 0,
            error_code: synced.error.code(),
            protocol_type: synced.protocol_type.map(|text| text.to_string()),
            protocol_name: synced.protocol.map(|text| text.to_string()),
            assignment: bytes(&synced.assignment),
        },
        Ok(other) => unreachable!("the answer to another request: {other:?}"),
        Err(code) => refused(code),
    }
}

/// Bytes of memory that the assignments take.
fn kept_bytes(request: &SyncGroupRequest) -> usize {
    let assignments = request.assignments.iter();
    assignments.map(|one| kept_assignment_bytes(one.member_id.len(), one.assignment.len())).sum()
}

fn refused(code: ErrorCode) -> SyncGroupResponse {
    SyncGroupResponse { error_code: code.code(), ..Default::default() }
}

fn sync(call: &Call, request: SyncGroupRequest, kept: Charge) -> Request {
    Request::SyncGroup(SyncGroup {
        group: request.group_id.into(),
        member: request.member_id.into(),
        instance: optional(request.group_instance_id),
        generation_id: GenerationId(request.generation_id),
        protocol_type: request.protocol_type.map(Into::into),
        protocol: request.protocol_name.map(Into::into),
        require_protocol: call.version >= PROTOCOL_FROM_VERSION,
        assignments: request
            .assignments
            .into_iter()
            .map(|one| (one.member_id.into(), Arc::from(&one.assignment[..])))
            .collect(),
        lent: Lent::new(kept),
    })
}
