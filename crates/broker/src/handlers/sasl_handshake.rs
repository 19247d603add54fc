//! SaslHandshake (key 17), versions 0 and 1 (KIP-43, KIP-152): the start of a SASL login.
//!
//! The broker has no listener with SASL. As Kafka does on a PLAINTEXT listener, it answers
//! ILLEGAL_SASL_STATE without mechanisms, so that a client that is configured for SASL fails at once
//! with the reason. Tools also derive the broker's version from the advertised APIs, and take a broker
//! without SaslHandshake for one from before 0.10.

use std::sync::Arc;

use model::ErrorCode;
use wire::{SaslHandshakeRequest, SaslHandshakeResponse};

use super::Call;

/// Refuses the login: the listener is PLAINTEXT.
pub async fn handle(_: Arc<Call>, _: SaslHandshakeRequest) -> SaslHandshakeResponse {
    SaslHandshakeResponse { error_code: ErrorCode::IllegalSaslState.code(), mechanisms: Vec::new() }
}
