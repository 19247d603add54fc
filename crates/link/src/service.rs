//! Who answers calls: a number for each kind of question, and the trait of what answers it.

use crate::codec::frame::{Decline, Declined};
use crate::greeting::Peer;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Messages between members of the metadata quorum. Numbers are never given to another service.
pub const QUORUM: u16 = 1;
/// Requests of brokers to the active controller.
pub const CONTROLLER: u16 = 2;
/// Heartbeats of brokers to the active controller.
pub const HEARTBEAT: u16 = 3;
/// Questions of brokers to the active controller about the metadata quorum.
pub const DESCRIPTION: u16 = 4;
/// Requests of the active controller for the ends of replicas' logs.
pub const LOG_ENDS: u16 = 6;
/// Probes of the active controller: whether a broker runs, and the state of its log directories.
pub const PROBE: u16 = 8;
/// Requests of the active controller for the partitions that a broker with a sick log directory takes back.
pub const RETURNS: u16 = 9;

/// An answer that is being made.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, Declined>> + Send + 'a>>;

/// What answers one kind of question.
pub trait Service: Send + Sync + 'static {
    /// Answers a message of a peer that has proven who it is. The future is dropped when the caller waits
    /// no longer: what must be done whole has to go on without it. A panic costs that answer only.
    fn answer<'a>(&'a self, caller: &'a Arc<Peer>, message: Bytes) -> Answering<'a>;
}

/// The services of a node, by number.
#[derive(Clone, Default)]
pub struct Services {
    by_number: BTreeMap<u16, Arc<dyn Service>>,
}

impl Services {
    /// With one more.
    pub fn with(mut self, number: u16, service: Arc<dyn Service>) -> Services {
        self.by_number.insert(number, service);
        self
    }

    pub(crate) fn find(&self, number: u16) -> Result<Arc<dyn Service>, Declined> {
        let found = self.by_number.get(&number).cloned();
        found.ok_or_else(|| {
            let words = format!("service {number} is not served by this node");
            Declined::new(Decline::NoService, words)
        })
    }
}
