//! UnregisterBroker (key 64), version 0 (KIP-500): a broker that will not come back is forgotten.
//!
//! The controller decides. Its replicas stay assigned to it, as in Kafka, until they are moved or their topics deleted. A
//! broker that serves is refused with INVALID_REQUEST, so that a wrong number stops no broker; Kafka forgets it, and its
//! process goes on without a place in the cluster. If the broker is started again, it registers as one that has lost
//! everything.

use std::sync::Arc;

use ::metadata::{Request, Response};
use model::{BrokerId, ErrorCode};
use wire::{UnregisterBrokerRequest, UnregisterBrokerResponse};

use super::Call;

/// Answers.
pub async fn handle(call: Arc<Call>, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse {
    let unregister = Request::UnregisterBroker(BrokerId(request.broker_id));
    let (code, error_message) = match call.decide(unregister).await {
        Ok(Response::Broker(Ok(()))) => (ErrorCode::None, None),
        Ok(Response::Broker(Err(refusal))) => (refusal.error, Some(refusal.message)),
        Ok(other) => unreachable!("the answer to another request: {other:?}"),
        Err(code) => (code, Some(code.name().to_owned())),
    };
    UnregisterBrokerResponse { throttle_time_ms: 0, error_code: code.code(), error_message }
}
