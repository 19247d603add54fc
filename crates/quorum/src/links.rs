//! The quorum's messages over links between brokers.

use crate::network::{Sent, Transport, TransportError};
use crate::quorum::Quorum;
use link::{Answering, Decline, Declined, Links, Peer, Service, service};
use model::BrokerId;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Sends the quorum's messages over links.
#[derive(Clone)]
pub struct LinkTransport {
    links: Arc<Links>,
}

impl LinkTransport {
    /// Over these links: a member without one cannot be reached.
    pub fn new(links: Arc<Links>) -> LinkTransport {
        LinkTransport { links }
    }
}

impl Transport for LinkTransport {
    fn send(&self, to: BrokerId, message: Vec<u8>, patience: Duration) -> Sent<'_> {
        Box::pin(async move {
            let answer = self.links.call(to, service::QUORUM, message, patience).await;
            answer.map(Vec::from).map_err(|error| TransportError(error.to_string()))
        })
    }
}

/// Answers members that come in over links. Registered as [`service::QUORUM`] before the quorum runs, because
/// the quorum needs its links to start; until it runs, members are told so.
#[derive(Clone, Default)]
pub struct MemberService {
    quorum: Arc<OnceLock<Quorum>>,
}

impl MemberService {
    /// Nobody answers yet.
    pub fn new() -> MemberService {
        MemberService::default()
    }

    /// Lets this quorum answer from now on. Only the first one does.
    pub fn answer_by(&self, quorum: &Quorum) {
        let _ = self.quorum.set(quorum.clone());
    }
}

impl Service for MemberService {
    fn answer<'a>(&'a self, caller: &'a Arc<Peer>, message: bytes::Bytes) -> Answering<'a> {
        Box::pin(async move {
            match self.quorum.get() {
                Some(quorum) => Ok(quorum.receive_from(caller.hello.node, &message).await),
                None => Err(Declined::new(Decline::NoService, "the metadata quorum is not up yet")),
            }
        })
    }
}
