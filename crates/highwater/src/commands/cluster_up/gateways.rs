//! Where the brokers of a local cluster have their gateways, each with a console that shows all brokers. Every broker has
//! one, so that none of them is missed when it ends, and none is heavy: before its first connection a gateway is a socket.

use configuration::HostPort;

use super::plan::{HOST, Node};
use crate::arguments::Pair;

/// The key that says where a gateway listens.
pub const LISTENER: &str = "gateway.listener";

/// What `--set gateway.listener=…` says of all brokers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gateways {
    /// Nothing: each has the port of the plan, for this machine alone.
    Planned,
    /// Empty: there are none.
    Off,
    /// The first broker's is here, the others' on the ports that follow. Port 0 stands for the ports of the plan.
    From(HostPort),
}

impl Gateways {
    /// Of these settings, for so many brokers; of two the last counts.
    ///
    /// # Errors
    /// The value is not an address, or the ports behind it are not enough; in words.
    pub fn read(settings: &[Pair], brokers: u16) -> Result<Gateways, String> {
        let Some(pair) = settings.iter().rfind(|pair| pair.key == LISTENER) else {
            return Ok(Gateways::Planned);
        };
        let text = pair.value.trim();
        if text.is_empty() {
            return Ok(Gateways::Off);
        }
        let first = HostPort::parse(text)
            .ok_or_else(|| format!("{LISTENER}={text}: expected host:port, or nothing"))?;
        match first.port.checked_add(brokers - 1) {
            Some(_) => Ok(Gateways::From(first)),
            None => Err(format!(
                "{LISTENER}={text}: each of {brokers} brokers needs a port from there on, and 65535 is the last"
            )),
        }
    }

    /// Whether it was said that a gateway of so many brokers is on this port.
    pub fn names(&self, port: u16, brokers: usize) -> bool {
        match self {
            Gateways::From(first) => {
                (usize::from(first.port)..usize::from(first.port) + brokers).contains(&port.into())
            }
            Gateways::Planned | Gateways::Off => false,
        }
    }

    /// Where this broker's gateway listens, if it has one.
    pub fn listener(&self, node: &Node) -> Option<HostPort> {
        let planned =
            |host: &str| Some(HostPort { host: host.to_owned(), port: node.gateway_port? });
        match self {
            Gateways::Off => None,
            Gateways::Planned => planned(HOST),
            Gateways::From(first) if first.port == 0 => planned(&first.host),
            Gateways::From(HostPort { host, port }) => {
                Some(HostPort { host: host.clone(), port: port + (node.id - 1) })
            }
        }
    }
}

/// The address that a browser on this machine is given, of a gateway's configuration.
pub fn url(gateway: &configuration::Gateway) -> Option<String> {
    let at = gateway.bind.as_ref()?;
    let scheme = gateway.scheme();
    match at.is_wildcard() {
        true => Some(format!("{scheme}://localhost:{}", at.port)),
        false => Some(format!("{scheme}://{at}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str, brokers: u16) -> Result<Gateways, String> {
        let pair = |value: &str| format!("{LISTENER}={value}").parse().unwrap();
        Gateways::read(&[pair("127.0.0.1:1"), pair(value)], brokers)
    }

    fn listener(gateways: &Gateways, id: u16) -> Option<String> {
        let node = Node {
            id,
            port: 1,
            controller_port: None,
            http_port: 2,
            gateway_port: Some(7000 + id),
        };
        gateways.listener(&node).map(|at| at.to_string())
    }

    #[test]
    fn each_broker_has_a_port_of_its_own() {
        let planned = Gateways::read(&[], 3).unwrap();
        assert_eq!(planned, Gateways::Planned);
        assert_eq!(listener(&planned, 2).unwrap(), "127.0.0.1:7002");
        let named = read("127.0.0.1:8082", 3).unwrap();
        let all: Vec<String> = (1..=3).filter_map(|id| listener(&named, id)).collect();
        assert_eq!(all, ["127.0.0.1:8082", "127.0.0.1:8083", "127.0.0.1:8084"]);
        let said: Vec<u16> = (8080..8090).filter(|port| named.names(*port, 3)).collect();
        assert_eq!(said, [8082, 8083, 8084]);
        assert_eq!(listener(&read("[::1]:0", 3).unwrap(), 1).unwrap(), "[::1]:7001");
        assert_eq!(listener(&read(" ", 3).unwrap(), 1), None);
    }

    #[test]
    fn what_cannot_be_an_address_for_all_is_refused() {
        assert_eq!(
            read("8082", 1).unwrap_err(),
            "gateway.listener=8082: expected host:port, or nothing"
        );
        assert!(read("h:65533", 3).is_ok());
        assert!(read("h:65534", 3).unwrap_err().contains("each of 3 brokers needs a port"));
    }

    #[test]
    fn a_browser_is_given_an_address_of_this_machine() {
        let url = |value: &str| {
            let config = configuration::BrokerConfig::from_pairs([(LISTENER, value)]).unwrap();
            url(&config.gateway)
        };
        assert_eq!(url("127.0.0.1:8082").unwrap(), "http://127.0.0.1:8082");
        assert_eq!(url(":8082").unwrap(), "http://localhost:8082");
        assert_eq!(url("[::1]:8082").unwrap(), "http://[::1]:8082");
        assert_eq!(url(""), None);
    }
}
