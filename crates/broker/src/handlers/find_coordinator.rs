//! FindCoordinator (key 10), versions 0 to 6: which broker coordinates a group.
//!
//! - The topic of offsets is created when the first group asks.
//! - v4 many keys at once (KIP-699). Coordinators of transactions (key type 1) and of share groups
//!   (2) are refused with UNSUPPORTED_VERSION and words that clients show. Below v4 a coordinator of
//!   transactions is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED and the same words: librdkafka
//!   repeats the request after other errors until `init_transactions` times out.

use std::sync::Arc;

use model::{BrokerId, ErrorCode};
use wire::find_coordinator::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse};

use super::{Call, unique};
use crate::groups::{OFFSETS_TOPIC, partition_of};
use crate::internal_topics;

/// From this version on a request has many keys.
const MANY_KEYS_FROM_VERSION: i16 = 4;
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

/// Answers.
pub async fn handle(call: Arc<Call>, request: FindCoordinatorRequest) -> FindCoordinatorResponse {
    if call.version < MANY_KEYS_FROM_VERSION {
        let one = find(&call, request.key, request.key_type).await;
        return FindCoordinatorResponse {
            error_code: one.error_code,
            error_message: one.error_message,
            node_id: one.node_id,
            host: one.host,
            port: one.port,
            ..Default::default()
        };
    }
    let mut keys = request.coordinator_keys;
    unique::keep_first(&mut keys, String::clone);
    let mut coordinators = Vec::with_capacity(keys.len());
    for key in keys {
        coordinators.push(find(&call, key, request.key_type).await);
    }
    FindCoordinatorResponse { coordinators, ..Default::default() }
}

async fn find(call: &Call, key: String, key_type: i8) -> Coordinator {
    let found = match key_type {
        GROUP => find_group(call, &key).await.map_err(|code| (code, None)),
        TRANSACTION => Err(refused_transactions(call.version)),
        SHARE => Err(unsupported("share groups")),
        _ => Err((ErrorCode::InvalidRequest, None)),
    };
    match found {
        Ok((node_id, host, port)) => Coordinator {
            key,
            node_id: node_id.0,
            host,
            port: i32::from(port),
            error_code: ErrorCode::None.code(),
            error_message: Some(ErrorCode::None.name().to_owned()),
        },
        Err((code, message)) => Coordinator {
            key,
            node_id: -1,
            host: String::new(),
            port: -1,
            error_code: code.code(),
            error_message: Some(message.unwrap_or_else(|| code.name().to_owned())),
        },
    }
}

fn refused_transactions(version: i16) -> (ErrorCode, Option<String>) {
    let (code, message) = unsupported("transactions");
    match version < MANY_KEYS_FROM_VERSION {
        true => (ErrorCode::TransactionalIdAuthorizationFailed, message),
        false => (code, message),
    }
}

fn unsupported(what: &str) -> (ErrorCode, Option<String>) {
    (ErrorCode::UnsupportedVersion, Some(format!("{what} are not served by this broker")))
}

async fn find_group(call: &Call, group: &str) -> Result<(BrokerId, String, u16), ErrorCode> {
    internal_topics::ensure_offsets_topic(&call.server).await?;
    let image = call.server.image();
    let topic = image.topic(OFFSETS_TOPIC).ok_or(ErrorCode::CoordinatorNotAvailable)?;
    let index = partition_of(&image, group).ok_or(ErrorCode::CoordinatorNotAvailable)?;
    let leader = topic.partition(index).map_or(BrokerId::NONE, |partition| partition.leader);
    // One that is fenced leads nothing any more, whatever the image says until the next step.
    let serves = image.broker(leader).filter(|broker| !broker.fenced);
    let broker = serves.ok_or(ErrorCode::CoordinatorNotAvailable)?;
    let (host, port) = call.endpoint_of(broker).ok_or(ErrorCode::CoordinatorNotAvailable)?;
    Ok((leader, host, port))
}
