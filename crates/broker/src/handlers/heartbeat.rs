//! Heartbeat (key 12), versions 0 to 4. v3 static members.

use std::sync::Arc;

use coordinator::request::Heartbeat;
use coordinator::{Request, Response};
use model::GenerationId;
use wire::heartbeat::{HeartbeatRequest, HeartbeatResponse};

use super::Call;
use super::group::optional;

/// Answers.
pub async fn handle(call: Arc<Call>, request: HeartbeatRequest) -> HeartbeatResponse {
    let group = request.group_id.clone();
    let heartbeat = Request::Heartbeat(Heartbeat {
        group: request.group_id.into(),
        member: request.member_id.into(),
        instance: optional(request.group_instance_id),
        generation_id: GenerationId(request.generation_id),
    });
    let code = match call.server.ask_group(&group, heartbeat).await {
        Ok(Response::Heartbeat(code)) | Err(code) => code,
        Ok(other) => unreachable!("the answer to another request: {other:?}"),
    };
    HeartbeatResponse { throttle_time_ms: 0, error_code: code.code() }
}
