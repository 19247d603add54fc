//! The I/O of the sender: connections, requests, metadata, producer ids. The sender decides and calls;
//! results come back to it as [`Event`]s, later and in any order.

use super::numbering::Identity;
use super::request::{self, Envelope, Sent};
use super::transaction::{self, Transaction};
use super::{Shared, new_identity};
use crate::cluster::Lane;
use crate::connection::{Connection, Reply};
use crate::error::ClientError;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use wire::ApiKey;

/// How much longer a connection waits for an answer than the broker waits for `acks`.
const ANSWER_SLACK: Duration = Duration::from_secs(5);

/// A result of what the sender has started.
pub(super) enum Event<C> {
    /// A produce request has ended.
    Answer { request: u64, result: Result<Bytes, ClientError> },
    /// A connection to a broker was opened, or could not be.
    Connected { broker: i32, result: Result<C, ClientError> },
    /// A refresh of the cluster's metadata has ended.
    Refreshed { is_new: bool },
    /// A request for a producer id has ended.
    Identity(Result<Identity, ClientError>),
}

/// The I/O that a sender starts. No call waits.
pub(super) trait Transport {
    /// A connection to a broker; clones share it.
    type Connection: Clone;

    /// Opens a connection: [`Event::Connected`].
    fn connect(&self, broker: i32);
    /// Whether a connection is of no further use.
    fn is_closed(&self, connection: &Self::Connection) -> bool;
    /// Whether the socket has not taken all that was written.
    fn has_backlog(&self, connection: &Self::Connection) -> bool;
    /// The broker's address, for messages.
    fn peer(&self, connection: &Self::Connection) -> String;
    /// The newest version of Produce up to `limit` that both sides know, if any.
    fn produce_version(&self, connection: &Self::Connection, limit: i16) -> Option<i16>;
    /// Queues a produce request: [`Event::Answer`], unless `acks` is 0.
    fn queue(
        &self,
        connection: &Self::Connection,
        version: i16,
        request: u64,
        sent: &[Sent],
    ) -> Result<(), ClientError>;
    /// Writes the requests that were queued.
    fn write(&self, connection: &Self::Connection);
    /// Refreshes the metadata, and pauses: [`Event::Refreshed`].
    fn refresh(&self, pause: Duration);
    /// Requests a producer id; pauses after a failure: [`Event::Identity`].
    fn request_identity(&self, pause: Duration);
    /// Adds the partitions to the transaction that wait for it.
    fn add_partitions(&self);
}

/// The cluster's brokers.
pub(super) struct Brokers {
    shared: Arc<Shared>,
    events: mpsc::UnboundedSender<Event<Connection>>,
}

impl Brokers {
    pub(super) fn new(
        shared: Arc<Shared>,
        events: mpsc::UnboundedSender<Event<Connection>>,
    ) -> Brokers {
        Brokers { shared, events }
    }

    /// Runs a task that ends in an event. The sender is gone only when nothing is left to be sent.
    fn spawn(&self, task: impl Future<Output = Event<Connection>> + Send + 'static) {
        let events = self.events.clone();
        tokio::spawn(async move { drop(events.send(task.await)) });
    }
}

impl Transport for Brokers {
    type Connection = Connection;

    fn connect(&self, broker: i32) {
        let cluster = self.shared.cluster.clone();
        self.spawn(async move {
            let result = cluster.broker(broker, Lane::Produce).await;
            Event::Connected { broker, result }
        });
    }

    fn is_closed(&self, connection: &Connection) -> bool {
        connection.is_closed()
    }

    fn has_backlog(&self, connection: &Connection) -> bool {
        connection.has_backlog()
    }

    fn peer(&self, connection: &Connection) -> String {
        connection.peer().to_owned()
    }

    fn produce_version(&self, connection: &Connection, limit: i16) -> Option<i16> {
        connection.versions().newest_up_to(ApiKey::Produce, limit)
    }

    fn queue(
        &self,
        connection: &Connection,
        version: i16,
        request: u64,
        sent: &[Sent],
    ) -> Result<(), ClientError> {
        let config = &self.shared.config;
        let events = self.events.clone();
        let reply: Reply =
            Box::new(move |result| drop(events.send(Event::Answer { request, result })));
        // The broker gives up before the connection does.
        let timeout = config.request_timeout + ANSWER_SLACK;
        let reply = (config.acks != 0).then_some(reply);
        connection.queue_pieces(timeout, reply, |correlation_id| {
            let envelope = Envelope {
                version,
                correlation_id,
                client_id: connection.client_id(),
                transactional_id: self.shared.transaction.as_ref().map(Transaction::id),
                acks: config.acks,
                timeout_ms: config.request_timeout.as_millis() as i32,
            };
            request::pieces(&envelope, sent)
        })
    }

    fn write(&self, connection: &Connection) {
        connection.write();
    }

    fn refresh(&self, pause: Duration) {
        let cluster = self.shared.cluster.clone();
        self.spawn(async move {
            let refreshed = cluster.refresh().await;
            if let Err(error) = &refreshed {
                tracing::debug!(%error, "cannot refresh metadata");
            }
            // So that a topic without a leader does not ask without end.
            tokio::time::sleep(pause).await;
            Event::Refreshed { is_new: refreshed.is_ok() }
        });
    }

    fn request_identity(&self, pause: Duration) {
        let cluster = self.shared.cluster.clone();
        self.spawn(async move {
            let result = new_identity(&cluster).await;
            if result.is_err() {
                // It is requested again at once, and some errors come at once.
                tokio::time::sleep(pause).await;
            }
            Event::Identity(result)
        });
    }

    fn add_partitions(&self) {
        tokio::spawn(transaction::add_partitions(self.shared.clone()));
    }
}
