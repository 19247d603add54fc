//! The socket that a gateway listens on. A default port that is taken is left for a free one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that may wait to be accepted, at most; the system has a limit of its own (`net.core.somaxconn`). When a gateway
/// is killed all of its readers come again at once, and whoever finds no place waits for seconds.
const BACKLOG: i32 = 65_535;

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for the gateway: {source}")]
pub struct BindError {
    /// The address.
    pub address: String,
    /// The error of the operating system.
    pub source: io::Error,
}

/// A listening socket.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    address: SocketAddr,
    moved_from: Option<u16>,
}

impl Door {
    /// Listens on `host` and `port`: an empty host is every interface, port 0 any free one. If `may_move`, a port
    /// that is taken is left for any free one.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn bind(host: &str, port: u16, may_move: bool) -> Result<Door, BindError> {
        let failed = |source| BindError { address: format!("{host}:{port}"), source };
        let at = resolve(host, port).map_err(failed)?;
        let (listener, moved_from) = match listen(at) {
            Err(cause) if may_move && cause.kind() == io::ErrorKind::AddrInUse => {
                (listen(SocketAddr::new(at.ip(), 0)).map_err(failed)?, Some(port))
            }
            listening => (listening.map_err(failed)?, None),
        };
        let address = listener.local_addr().map_err(failed)?;
        Ok(Door { listener, address, moved_from })
    }

    /// Where it listens: the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port that was taken, if the door moved.
    pub fn moved_from(&self) -> Option<u16> {
        self.moved_from
    }

    pub(crate) fn into_listener(self) -> TcpListener {
        self.listener
    }
}

fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// An empty host is every interface: IPv6 with IPv4, or IPv4 alone where there is no IPv6.
fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    if host.is_empty() {
        let works = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        let all: IpAddr =
            if works { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        return Ok(SocketAddr::new(all, port));
    }
    let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    (host, port).to_socket_addrs()?.next().ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_is_left_only_if_the_door_may_move() {
        let first = Door::bind("127.0.0.1", 0, false).unwrap();
        let taken = first.address().port();
        assert_eq!(first.moved_from(), None);
        let refused = Door::bind("127.0.0.1", taken, false).unwrap_err();
        assert_eq!(refused.source.kind(), io::ErrorKind::AddrInUse);
        let moved = Door::bind("127.0.0.1", taken, true).unwrap();
        assert_eq!(moved.moved_from(), Some(taken));
        assert_ne!(moved.address().port(), taken);
    }
}
