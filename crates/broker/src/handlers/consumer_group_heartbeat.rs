//! ConsumerGroupHeartbeat (key 68), versions 0 and 1: membership of a group with the consumer protocol (KIP-848).
//! v1 has patterns for topics.
//!
//! Groups have the classic protocol only, so every heartbeat is refused with UNSUPPORTED_VERSION, as Apache Kafka does
//! with `group.coordinator.rebalance.protocols=classic`. The API is advertised for the refusal alone: librdkafka
//! waits for a broker that advertises it, and reports no error meanwhile.

use std::sync::Arc;

use model::ErrorCode;
use wire::consumer_group_heartbeat::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
};

use super::Call;

const REASON: &str =
    "this broker does not serve the consumer group protocol; set group.protocol=classic";

/// Refuses a heartbeat.
pub async fn handle(
    _: Arc<Call>,
    _: ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse {
    ConsumerGroupHeartbeatResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        error_message: Some(REASON.to_owned()),
        ..Default::default()
    }
}
