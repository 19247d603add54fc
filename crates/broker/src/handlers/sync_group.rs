//! SyncGroup (key 14), versions 0 to 5. v3 static members; v5 the protocol, which must be the one
//! that was chosen. The answer comes when the leader has assigned.
//!
//! Memory of assignments is bounded. Without room a leader gets COORDINATOR_NOT_AVAILABLE, and clients retry. Kafka
//! has no such bound.

use std::sync::Arc;

use coordinator::request::{Lent, SyncGroup};
use coordinator::{Request, Response};
use model::{ErrorCode, GenerationId};
use wire::sync_group::{SyncGroupRequest, SyncGroupResponse};

use super::Call;
use super::group::{bytes, optional};

/// From this version on the client names the protocol.
const PROTOCOL_FROM_VERSION: i16 = 5;

/// Answers.
pub async fn handle(call: Arc<Call>, request: SyncGroupRequest) -> SyncGroupResponse {
    let mut sync = sync(&call, request);
    let group = sync.group.clone();
    if !sync.assignments.is_empty() {
        let former = |shard: &coordinator::Shard| shard.assignment_bytes(&group);
        let bytes = sync.kept_bytes();
        let held = call.server.hold_group_memory(group.as_str(), call.peer, bytes, former);
        let Some(held) = held else { return refused(ErrorCode::CoordinatorNotAvailable) };
        sync.lent = Lent::new(held);
    }
    match call.server.ask_group(group.as_str(), Request::SyncGroup(sync)).await {
        Ok(Response::SyncGroup(synced)) => {
            call.reserve_answer(2 * synced.assignment.len()).await;
            SyncGroupResponse {
                throttle_time_ms: 0,
                error_code: synced.error.code(),
                protocol_type: synced.protocol_type.map(|text| text.to_string()),
                protocol_name: synced.protocol.map(|text| text.to_string()),
                assignment: bytes(&synced.assignment),
            }
        }
        Ok(other) => unreachable!("the answer to another request: {other:?}"),
        Err(code) => refused(code),
    }
}

fn refused(code: ErrorCode) -> SyncGroupResponse {
    SyncGroupResponse { error_code: code.code(), ..Default::default() }
}

fn sync(call: &Call, request: SyncGroupRequest) -> SyncGroup {
    SyncGroup {
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
        lent: Lent::default(),
    }
}
