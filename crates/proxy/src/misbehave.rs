//! What the proxy may do wrong on purpose, and the count of what it did: so that a check of
//! deliveries can be tested against a real broker. How it does it is in `mischief`.

use serde::{Deserialize, Serialize};

/// Which produce requests go wrong; every `0` says none. Requests are counted over all
/// connections, and one goes wrong in one way only: the first of these that is due.
///
/// Meant for producers that are not idempotent: a broker answers an idempotent one with
/// `OUT_OF_ORDER_SEQUENCE_NUMBER`, or drops what is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Misbehave {
    /// Every so-manieth request is acknowledged and never forwarded.
    pub lose_every: u64,
    /// Every so-manieth request is forwarded twice; the client sees one answer.
    pub repeat_every: u64,
    /// Every so-manieth request goes behind the next one of its connection that writes to a common
    /// partition. If none comes within 100 ms, or another request comes first, it goes as it was,
    /// and the next one is tried.
    pub reorder_every: u64,
    /// In every so-manieth request the last byte of a record's value is changed, and the batch's
    /// checksum made right again. A request with compressed batches only, or without values, is
    /// left, and the next one is tried.
    pub damage_every: u64,
}

impl Misbehave {
    /// Whether anything goes wrong at all.
    pub fn is_off(&self) -> bool {
        *self == Misbehave::default()
    }
}

/// What went wrong so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Misdeeds {
    /// Requests that were acknowledged and never forwarded.
    pub lost_requests: u64,
    /// Records in them.
    pub lost_records: u64,
    /// Requests that were forwarded twice.
    pub repeated_requests: u64,
    /// Records in them, each counted once.
    pub repeated_records: u64,
    /// Pairs of requests that changed places.
    pub reordered_pairs: u64,
    /// Records with another value than the client sent.
    pub damaged_records: u64,
}
