//! How records get from the gateway to a topic: by the producer that gives a record up after some seconds, or by the
//! patient one, which carries requests with an `Idempotency-Key` until it is known what became of them.

use client::producer::{Intake, TopicProducer};
use client::{ClientError, Delivery, Record};
use model::Timestamp;
use model::record::Header;
use serving::choice::Choice;

use crate::request::draft::Draft;

/// A producer's way to a topic.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) producer: TopicProducer,
    /// What all records of this producer may hold that are not acknowledged.
    pub(super) buffer_bytes: usize,
}

/// Hands a record to the producer; `None` if there is no memory for it.
pub(super) fn send(
    intake: &mut Intake<'_>,
    draft: &Draft<'_>,
    choice: Choice,
) -> Result<Option<Delivery>, ClientError> {
    let headers: Vec<Header<'_>> =
        draft.headers.iter().map(|(name, value)| (&**name, value.as_deref())).collect();
    intake.try_send(&Record {
        key: draft.key.as_deref(),
        value: draft.value.as_deref(),
        headers: &headers,
        timestamp: draft.timestamp_ms.map(Timestamp),
        partition: Some(choice.partition),
        tag: 0,
    })
}
