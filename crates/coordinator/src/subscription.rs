//! The subscription that members of the protocol type `consumer` send to their leader
//! (ConsumerProtocolSubscription, versions 0 to 3). Of all of it the coordinator wants to know
//! only the topics: their offsets neither expire nor may be deleted while somebody reads them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::records::{Reader, RecordError};

/// The protocol type whose subscriptions the coordinator understands.
pub(crate) const PROTOCOL_TYPE_CONSUMER: &str = "consumer";

/// The topics of a subscription. All versions begin with them, and later ones may only add fields
/// behind, so what follows is not looked at.
pub(crate) fn subscribed_topics(metadata: &[u8]) -> Result<BTreeSet<Arc<str>>, RecordError> {
    let mut metadata = Reader::new(metadata);
    let version = metadata.i16()?;
    if version < 0 {
        return Err(RecordError::Malformed("the version of a subscription is negative"));
    }
    let count = metadata.count()?;
    (0..count).map(|_| metadata.string()).collect()
}
