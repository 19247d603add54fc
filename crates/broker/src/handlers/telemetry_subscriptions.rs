//! GetTelemetrySubscriptions (key 71) and PushTelemetry (key 72), version 0 (KIP-714): clients are
//! told that no metrics are wanted, which is a legal answer and keeps them quiet.

use std::sync::Arc;

use model::{ErrorCode, Uuid};
use wire::get_telemetry_subscriptions::{
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse,
};
use wire::push_telemetry::{PushTelemetryRequest, PushTelemetryResponse};

use super::Call;

/// How often clients ask again, in milliseconds.
const INTERVAL_MS: i32 = 300_000;
/// Bytes that a push could have: none is wanted.
const BYTES_MAX: i32 = 1_048_576;
/// The subscription of those of whom nothing is wanted.
const NO_SUBSCRIPTION: i32 = 0;

/// Answers GetTelemetrySubscriptions.
pub async fn get(
    _call: Arc<Call>,
    request: GetTelemetrySubscriptionsRequest,
) -> GetTelemetrySubscriptionsResponse {
    let client_instance_id = if request.client_instance_id.is_zero() {
        Uuid::from_random(fastrand::u128(..).to_be_bytes())
    } else {
        request.client_instance_id
    };
    GetTelemetrySubscriptionsResponse {
        error_code: ErrorCode::None.code(),
        client_instance_id,
        subscription_id: NO_SUBSCRIPTION,
        accepted_compression_types: vec![4, 3, 1, 2],
        push_interval_ms: INTERVAL_MS,
        telemetry_max_bytes: BYTES_MAX,
        delta_temporality: true,
        ..Default::default()
    }
}

/// Answers PushTelemetry: whoever pushes has a subscription that we did not give.
pub async fn push(_call: Arc<Call>, request: PushTelemetryRequest) -> PushTelemetryResponse {
    let code = match request.subscription_id {
        NO_SUBSCRIPTION => ErrorCode::None,
        _ => ErrorCode::UnknownSubscriptionId,
    };
    PushTelemetryResponse { throttle_time_ms: 0, error_code: code.code() }
}
