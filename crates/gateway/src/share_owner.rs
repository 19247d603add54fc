//! The owner of a share of a pool: a user, or the network of a client that has no name.

use std::sync::Arc;

use hyper::http::request::Parts;
use pools::ClientNetwork;

use crate::front::Peer;
use crate::who::Visitor;

/// An owner of shares. A user is one owner on all of its addresses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ShareOwner {
    /// A user by name.
    User(Arc<str>),
    /// Clients of one address that have not logged in.
    Network(ClientNetwork),
    /// Clients whose address the system did not return.
    Unknown,
}

impl ShareOwner {
    /// The owner of the memory and places of a request.
    pub(crate) fn of(parts: &Parts) -> ShareOwner {
        let visitor = Visitor::of(parts);
        match Peer::of(parts) {
            _ if !visitor.name.is_empty() => ShareOwner::User(Arc::clone(&visitor.name)),
            Some(address) => ShareOwner::Network(ClientNetwork::of(address)),
            None => ShareOwner::Unknown,
        }
    }
}
