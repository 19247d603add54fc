//! DeleteGroups (key 42), versions 0 to 3 (KIP-229). v3 says why in words.

use std::sync::Arc;

use coordinator::{Request, Response};
use wire::delete_groups::{DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse};

use super::{Call, unique};

/// Answers.
pub async fn handle(call: Arc<Call>, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
    let mut groups = request.groups_names;
    unique::keep_first(&mut groups, String::clone);
    let mut results = Vec::with_capacity(groups.len());
    for group_id in groups {
        let asked = Request::DeleteGroup(group_id.as_str().into());
        let code = match call.server.ask_group(&group_id, asked).await {
            Ok(Response::DeleteGroup(code)) | Err(code) => code,
            Ok(other) => unreachable!("the answer to another request: {other:?}"),
        };
        let error_message = (!code.is_none()).then(|| code.name().to_owned());
        results.push(DeletableGroupResult { group_id, error_code: code.code(), error_message });
    }
    DeleteGroupsResponse { throttle_time_ms: 0, results }
}
