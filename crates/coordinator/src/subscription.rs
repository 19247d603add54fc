//! The subscription that members of the protocol type `consumer` send to their leader
//! (ConsumerProtocolSubscription, versions 0 to 3). Of all of it the coordinator wants to know
//! only the topics: their offsets neither expire nor may be deleted while somebody reads them.

use std::sync::Arc;

use crate::records::{Reader, RecordError};

/// The protocol type whose subscriptions the coordinator understands.
pub(crate) const PROTOCOL_TYPE_CONSUMER: &str = "consumer";

/// Visits the topics of a subscription. Every version begins with them, and later versions only append
/// fields, so the rest is not parsed. No set of topics is built: it would take twenty times the memory of a
/// subscription with short names.
pub(crate) fn visit_subscribed_topics(
    metadata: &[u8],
    mut visit: impl FnMut(Arc<str>),
) -> Result<(), RecordError> {
    let mut metadata = Reader::new(metadata);
    let version = metadata.i16()?;
    if version < 0 {
        return Err(RecordError::Malformed("the version of a subscription is negative"));
    }
    let count = metadata.count()?;
    for _ in 0..count {
        visit(metadata.string()?);
    }
    Ok(())
}
