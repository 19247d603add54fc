//! Where the broker listens, and what clients are told about it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use configuration::{Advertised, Listener};

/// One listener that is open.
#[derive(Debug, Clone)]
pub struct OpenListener {
    /// Its name.
    pub name: Arc<str>,
    /// Where it is bound; the port is the real one.
    pub bound: SocketAddr,
    /// What was configured to be told.
    pub advertised: Advertised,
}

/// All open listeners.
#[derive(Debug, Clone, Default)]
pub struct Endpoints {
    listeners: Vec<OpenListener>,
}

impl Endpoints {
    /// Pairs what was configured with where it was bound.
    pub fn new(listeners: impl IntoIterator<Item = (Listener, SocketAddr)>) -> Endpoints {
        let listeners = listeners
            .into_iter()
            .map(|(listener, bound)| OpenListener {
                name: listener.name.into(),
                bound,
                advertised: listener.advertised,
            })
            .collect();
        Endpoints { listeners }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &OpenListener> {
        self.listeners.iter()
    }

    /// The address that a client is told which came through `listener` and reached `local`: as
    /// advertised, or the very address that it has reached us at.
    pub fn for_client(&self, listener: &str, local: SocketAddr) -> (String, u16) {
        let found = self.listeners.iter().find(|open| *open.name == *listener);
        let Some(open) = found.or(self.listeners.first()) else {
            return (local.ip().to_string(), local.port());
        };
        let port = open.advertised.port.filter(|port| *port != 0).unwrap_or(open.bound.port());
        let host = open.advertised.host.clone().unwrap_or_else(|| plain(local.ip()).to_string());
        (host, port)
    }
}

/// An IPv4 address that was reached through an IPv6 socket, as clients write it.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(v4) if v4.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(_) => address,
    }
}
