//! InitProducerId (key 22), versions 0 to 5: an id for an idempotent producer (KIP-98).
//!
//! Transactional ids are refused with UNSUPPORTED_VERSION: transactions are not served.

use std::sync::Arc;

use model::{ErrorCode, ProducerEpoch, ProducerId};
use wire::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};

use super::Call;

/// Answers.
pub async fn handle(call: Arc<Call>, request: InitProducerIdRequest) -> InitProducerIdResponse {
    let given = match request.transactional_id.as_deref() {
        None => call.server.producer_ids.next(&call.server).await,
        Some("") => Err(ErrorCode::InvalidRequest),
        Some(_) => Err(ErrorCode::UnsupportedVersion),
    };
    let (error_code, producer_id, producer_epoch) = match given {
        Ok(id) => (ErrorCode::None, id, ProducerEpoch(0)),
        Err(code) => (code, ProducerId::NONE, ProducerEpoch::NONE),
    };
    InitProducerIdResponse {
        error_code: error_code.code(),
        producer_id: producer_id.0,
        producer_epoch: producer_epoch.0,
        ..Default::default()
    }
}
