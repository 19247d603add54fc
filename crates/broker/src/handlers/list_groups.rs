//! ListGroups (key 16), versions 0 to 5. v4 by state (KIP-518); v5 by type (KIP-848).

use std::sync::Arc;

use coordinator::request::ListGroups;
use coordinator::{Request, Response};
use model::ErrorCode;
use wire::list_groups::{ListGroupsRequest, ListGroupsResponse, ListedGroup};

use super::Call;

fn names(texts: &[String]) -> Vec<Arc<str>> {
    texts.iter().map(|text| Arc::from(text.as_str())).collect()
}

/// Answers for the groups whose coordinator is here.
pub async fn handle(call: Arc<Call>, request: ListGroupsRequest) -> ListGroupsResponse {
    let list =
        ListGroups { states: names(&request.states_filter), types: names(&request.types_filter) };
    let mut response = ListGroupsResponse::default();
    let groups = &call.server.groups;
    let bytes = |partition: i32| groups.bytes_of(partition, coordinator::Shard::listed_bytes);
    call.reserve_answer(groups.partitions().into_iter().map(bytes).sum()).await;
    if !call.server.groups.failed().is_empty() {
        // Some groups are known to nobody now: the list is not whole.
        response.error_code = ErrorCode::CoordinatorNotAvailable.code();
    }
    for partition in call.server.groups.partitions() {
        let asked = call.server.groups.ask(partition, Request::ListGroups(list.clone())).await;
        let code = match asked {
            Ok(Response::ListGroups(listed)) => {
                response.groups.extend(listed.groups.into_iter().map(|group| ListedGroup {
                    group_id: group.group.to_string(),
                    protocol_type: group.protocol_type.to_string(),
                    group_state: group.state.to_owned(),
                    group_type: group.group_type.to_owned(),
                }));
                listed.error
            }
            Ok(other) => unreachable!("the answer to another request: {other:?}"),
            // It moved away while we asked: its new coordinator lists it.
            Err(ErrorCode::NotCoordinator) => ErrorCode::None,
            Err(code) => code,
        };
        if !code.is_none() {
            response.error_code = code.code();
        }
    }
    response
}
