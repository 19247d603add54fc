//! What pages may ask of the gateway that shows them: to send records as it sends them for everybody, and what it counts.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use serving::choice::{Pair, Row};
use serving::error::ApiError;
use serving::operation::{NewRecord, Sent};

use crate::produce::send;
use crate::request::draft::Draft;
use crate::state::Shared;

/// The gateway, from within.
#[derive(Clone)]
pub struct Inside(Arc<Shared>);

impl std::fmt::Debug for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inside").finish_non_exhaustive()
    }
}

impl Inside {
    pub(crate) fn new(shared: &Arc<Shared>) -> Inside {
        Inside(Arc::clone(shared))
    }

    /// Sends records to a topic, to `partition` or as `pair` chooses, and says where each of them is, acknowledged.
    ///
    /// # Errors
    /// None was sent: the topic does not exist, or the cluster cannot be reached.
    pub async fn send(
        &self,
        topic: &str,
        records: &[NewRecord],
        pair: Pair,
        partition: Option<i32>,
    ) -> Result<Vec<Result<Sent, ApiError>>, ApiError> {
        let drafts: Vec<Draft<'_>> = records.iter().map(draft).collect();
        send(&self.0, topic, &drafts, pair, partition).await
    }

    /// How many records of a topic this gateway has sent where, by which rule; since it was started.
    pub fn distribution(&self, topic: &str) -> Vec<Row> {
        self.0.topics.known(topic).map(|topic| topic.distribution()).unwrap_or_default()
    }

    /// The topics that it has sent records to.
    pub fn topics(&self) -> Vec<String> {
        self.0.topics.names()
    }

    /// What it counts: connections, readers of events, keys of idempotency, consumer instances.
    pub fn counts(&self) -> Value {
        let parsed = |text: String| serde_json::from_str::<Value>(&text).unwrap_or_default();
        let settings = &self.0.settings;
        json!({
            "connections": self.0.entrants.count(),
            "connections_max": settings.connections_max,
            "request_memory_free_bytes": self.0.bodies.free_bytes(),
            "request_memory_bytes": settings.memory_bytes / 2,
            "events": parsed(self.0.events.counts()),
            "keys": parsed(self.0.keys.counts()),
            "instances": self.0.instances.count(),
            "instances_max": settings.instances.max,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.address.get().copied()
    }

    /// How its addresses begin: `https` or `http`.
    pub fn scheme(&self) -> &'static str {
        self.0.settings.scheme()
    }
}

fn draft(record: &NewRecord) -> Draft<'_> {
    Draft {
        key: record.key.as_deref().map(Cow::Borrowed),
        value: record.value.as_deref().map(Cow::Borrowed),
        headers: record
            .headers
            .iter()
            .map(|(name, value)| (Cow::Borrowed(&**name), Some(Cow::Borrowed(&**value))))
            .collect(),
        partition: None,
        timestamp_ms: None,
    }
}
