//! DescribeCluster (key 60), versions 0 to 2 (KIP-700): brokers, controller, cluster id. v1 the
//! kind of endpoints asked for (KIP-919): this listener serves brokers; v2 fenced brokers too.

use std::sync::Arc;

use model::ErrorCode;
use wire::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};

use super::{Call, authorized};

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

/// Answers.
pub async fn handle(call: Arc<Call>, request: DescribeClusterRequest) -> DescribeClusterResponse {
    let mut response = DescribeClusterResponse {
        endpoint_type: request.endpoint_type,
        cluster_id: call.server.cluster_id.to_string(),
        controller_id: -1,
        cluster_authorized_operations: authorized::cluster(
            request.include_cluster_authorized_operations,
        ),
        ..Default::default()
    };
    let refused = match request.endpoint_type {
        BROKERS => None,
        CONTROLLERS => Some((ErrorCode::MismatchedEndpointType, "this listener is for brokers")),
        _ => Some((
            ErrorCode::UnsupportedEndpointType,
            "endpoints are brokers (1) or controllers (2)",
        )),
    };
    if let Some((code, message)) = refused {
        response.error_code = code.code();
        response.error_message = Some(message.to_owned());
        return response;
    }
    response.controller_id = call.server.controller_id().0;
    response.brokers = call
        .server
        .image()
        .brokers()
        .filter(|broker| request.include_fenced_brokers || !broker.fenced)
        .filter_map(|broker| {
            let (host, port) = call.endpoint_of(broker)?;
            Some(DescribeClusterBroker {
                broker_id: broker.id.0,
                host,
                port: i32::from(port),
                rack: broker.rack.clone(),
                is_fenced: broker.fenced,
            })
        })
        .collect();
    response
}
