//! ListConfigResources (key 74), versions 0 and 1 (KIP-1142): which resources have configurations
//! of their own. v0 lists client metrics only; v1 the kinds asked for, all by default.

use std::collections::BTreeSet;
use std::sync::Arc;

use ::metadata::ConfigResource as Resource;
use model::ErrorCode;
use wire::list_config_resources::{
    ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse,
};

use super::{Call, config_resource};

const CLIENT_METRICS: i8 = 16;
/// Topics, brokers, broker loggers, client metrics, groups.
const KINDS: [i8; 5] = [2, 4, 8, 16, 32];

/// Memory of a resource in an answer, decoded and encoded, with the longest name of a topic.
const RESOURCE_BYTES: usize = 640;

/// Answers.
pub async fn handle(
    call: Arc<Call>,
    request: ListConfigResourcesRequest,
) -> ListConfigResourcesResponse {
    let kinds: BTreeSet<i8> = match (call.version, request.resource_types.as_slice()) {
        (0, _) => BTreeSet::from([CLIENT_METRICS]),
        (_, []) => BTreeSet::from(KINDS),
        (_, kinds) => kinds.iter().copied().collect(),
    };
    if !kinds.iter().all(|kind| KINDS.contains(kind)) {
        let error_code = ErrorCode::UnsupportedVersion.code();
        return ListConfigResourcesResponse { error_code, ..Default::default() };
    }
    let image = call.server.image();
    let most = image.configured_resources().count() + image.topics().count();
    call.reserve_answer(most * RESOURCE_BYTES).await;
    let mut found: BTreeSet<(i8, String)> = image
        .configured_resources()
        .map(|resource| (config_resource::kind(resource), config_resource::name(resource)))
        .collect();
    found.extend(image.topics().map(|topic| of(Resource::Topic(topic.name.to_string()))));
    for broker in image.brokers() {
        found.insert(of(Resource::Broker(broker.id)));
        found.insert((KINDS[2], broker.id.to_string()));
    }
    let config_resources = found
        .into_iter()
        .filter(|(kind, _)| kinds.contains(kind))
        .map(|(resource_type, resource_name)| ConfigResource { resource_name, resource_type })
        .collect();
    ListConfigResourcesResponse {
        throttle_time_ms: 0,
        error_code: ErrorCode::None.code(),
        config_resources,
    }
}

fn of(resource: Resource) -> (i8, String) {
    (config_resource::kind(&resource), config_resource::name(&resource))
}
