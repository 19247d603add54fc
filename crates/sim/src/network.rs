//! Connections that delay and break. On one connection nothing overtakes anything.

use model::Timestamp;

use crate::message::ClientId;

/// What a client's connection has come to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    /// Rises with every connection; what belongs to an older one is dropped.
    pub(crate) number: u64,
    /// The client does not know yet that it has another connection: it sends nothing.
    pub(crate) is_broken: bool,
    to_broker: Timestamp,
    to_client: Timestamp,
}

impl Link {
    /// When something sent now arrives at the broker.
    pub(crate) fn reach_broker(&mut self, now: Timestamp, delay_ms: i64) -> Timestamp {
        self.to_broker = self.to_broker.max(now.plus_ms(delay_ms));
        self.to_broker
    }

    /// When something sent now arrives at the client.
    pub(crate) fn reach_client(&mut self, now: Timestamp, delay_ms: i64) -> Timestamp {
        self.to_client = self.to_client.max(now.plus_ms(delay_ms));
        self.to_client
    }

    /// The connection is gone, and with it all that was under way.
    pub(crate) fn reset(&mut self) {
        self.number += 1;
        self.is_broken = true;
    }
}

/// Where an answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) client: ClientId,
    /// Of the connection.
    pub(crate) link: u64,
    /// Of the request, rising.
    pub(crate) request: u64,
}
