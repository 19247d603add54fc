//! What the group APIs have in common.

use std::sync::Arc;

use bytes::Bytes;
use coordinator::GroupInstanceId;

use super::Call;

/// The client's address as Kafka shows it.
pub fn client_host(call: &Call) -> Arc<str> {
    format!("/{}", call.peer.ip().to_canonical()).into()
}

/// An instance id, if there is one.
pub fn optional(instance: Option<String>) -> Option<GroupInstanceId> {
    instance.map(Into::into)
}

/// Opaque bytes for an answer.
pub fn bytes(shared: &Arc<[u8]>) -> Bytes {
    Bytes::copy_from_slice(shared)
}
