//! The links of a node to its peers, by node.

use crate::caller::{CallError, Link};
use bytes::Bytes;
use model::BrokerId;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::time::Duration;

/// The links of a node. Stops those that are taken out, and all when it is dropped.
#[derive(Default)]
pub struct Links {
    by_node: RwLock<BTreeMap<BrokerId, Link>>,
}

impl Links {
    /// None yet.
    pub fn new() -> Links {
        Links::default()
    }

    /// Adds the link to a node, or puts it in the place of the one there was, which stops.
    pub fn put(&self, node: BrokerId, link: Link) {
        let before = self.by_node.write().insert(node, link);
        before.iter().for_each(Link::stop);
    }

    /// Stops the link to a node.
    pub fn remove(&self, node: BrokerId) {
        let before = self.by_node.write().remove(&node);
        before.iter().for_each(Link::stop);
    }

    /// The link to a node.
    pub fn get(&self, node: BrokerId) -> Option<Link> {
        self.by_node.read().get(&node).cloned()
    }

    /// The nodes that there are links to.
    pub fn nodes(&self) -> Vec<BrokerId> {
        self.by_node.read().keys().copied().collect()
    }

    /// Asks a node: see [`Link::call`].
    pub async fn call(
        &self,
        node: BrokerId,
        service: u16,
        message: Vec<u8>,
        patience: Duration,
    ) -> Result<Bytes, CallError> {
        let link = self.get(node);
        let link =
            link.ok_or_else(|| CallError::NotConnected(format!("no link to node {node}")))?;
        link.call(service, message, patience).await
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.by_node.get_mut().values().for_each(Link::stop);
    }
}
