//! Making a connection: the name is resolved each time, and a peer that refuses is told from one that is
//! silent.

use crate::codec::hello::Purpose;
use crate::config::LinkConfig;
use crate::events::DialFailure;
use crate::greeting::{Established, Greeter};
use crate::identity::Identity;
use model::BrokerId;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};

/// Whom to reach, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The node that must be there; `None`: whoever is, as with an address to begin with.
    pub node: Option<BrokerId>,
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Target { node, host, port } = self;
        match node {
            Some(node) => write!(f, "node {node} at {host}:{port}"),
            None => write!(f, "{host}:{port}"),
        }
    }
}

/// Connects and says Hello. For connections that the caller runs itself, a fetcher's say; calls go through a
/// [`Link`](crate::Link), which dials by itself.
pub async fn dial(
    target: &Target,
    purpose: Purpose,
    identity: &Identity,
    config: &LinkConfig,
) -> Result<Established, DialFailure> {
    let (stream, address) = connect(target, config).await?;
    configure(&stream, config).map_err(|error| DialFailure::Unreachable(error.to_string()))?;
    let greeter = Greeter { identity, config, address };
    greeter.dialed(stream, purpose, target.node).await.map_err(DialFailure::Greeting)
}

/// Options that both ends of a link have.
pub(crate) fn configure(stream: &TcpStream, config: &LinkConfig) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    let probes = socket2::TcpKeepalive::new()
        .with_time(config.keepalive)
        .with_interval(std::time::Duration::from_secs(1))
        .with_retries(2);
    socket.set_tcp_keepalive(&probes)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(config.user_timeout))?;
    Ok(())
}

async fn connect(
    target: &Target,
    config: &LinkConfig,
) -> Result<(TcpStream, SocketAddr), DialFailure> {
    let until = Instant::now() + config.dial_timeout;
    let found = timeout_at(until, lookup_host((target.host.as_str(), target.port))).await;
    let unresolved = |words: String| DialFailure::Unresolved(words);
    let found = found.map_err(|_| unresolved("the resolver does not answer".into()))?;
    let addresses: Vec<SocketAddr> =
        found.map_err(|error| unresolved(error.to_string()))?.collect();
    let mut failures = Vec::new();
    for address in addresses {
        match timeout_at(until, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok((stream, address)),
            Ok(Err(error)) => failures.push(failure(&error)),
            Err(_) => failures.push(DialFailure::TimedOut),
        }
    }
    Err(in_all(failures))
}

fn failure(error: &io::Error) -> DialFailure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => DialFailure::Refused,
        io::ErrorKind::TimedOut => DialFailure::TimedOut,
        _ => DialFailure::Unreachable(error.to_string()),
    }
}

/// What the failures of all addresses mean: refused only if nobody listens at any of them.
fn in_all(failures: Vec<DialFailure>) -> DialFailure {
    let uncertain = failures.iter().find(|failure| **failure == DialFailure::TimedOut);
    let other = failures.iter().find(|failure| **failure != DialFailure::Refused);
    match uncertain.or(other).or(failures.first()) {
        Some(failure) => failure.clone(),
        None => DialFailure::Unresolved("the name has no address".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_is_what_every_address_refuses() {
        use DialFailure::{Refused, TimedOut, Unreachable};
        let away = || Unreachable("no route".into());
        assert_eq!(in_all(vec![Refused, Refused]), Refused);
        assert_eq!(in_all(vec![Refused, away(), TimedOut]), TimedOut);
        assert_eq!(in_all(vec![Refused, away()]), away());
        assert!(matches!(in_all(Vec::new()), DialFailure::Unresolved(_)));
    }

    #[test]
    fn a_target_says_where_it_is() {
        let target = |node| Target { node, host: "h".into(), port: 9092 };
        assert_eq!(target(Some(BrokerId(3))).to_string(), "node 3 at h:9092");
        assert_eq!(target(None).to_string(), "h:9092");
    }
}
