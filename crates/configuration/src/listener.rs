//! Addresses in values: listeners, voters, host:port. Parsing only; nothing is resolved or bound.

use std::fmt;

use super::value::items;

/// A host and a port as they were written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// A name or an address; empty for all interfaces. IPv6 without its brackets.
    pub host: String,
    /// 0 for any free one.
    pub port: u16,
}

impl HostPort {
    /// Parses `host:port`, `[v6]:port` or `:port`.
    pub fn parse(text: &str) -> Option<HostPort> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']')?,
            None if host.contains(':') => return None,
            None => host,
        };
        let is_host = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c);
        host.chars().all(is_host).then(|| HostPort { host: host.to_owned(), port })
    }

    /// Whether it stands for every interface of the machine.
    pub fn is_wildcard(&self) -> bool {
        matches!(self.host.as_str(), "" | "0.0.0.0" | "::")
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// How connections to a listener are protected (KIP-103).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecurityProtocol {
    /// Not at all.
    Plaintext,
    /// By TLS.
    Ssl,
    /// By a login.
    SaslPlaintext,
    /// By both.
    SaslSsl,
}

impl SecurityProtocol {
    /// The protocol of this name, as Kafka writes it, in any case.
    pub fn from_name(name: &str) -> Option<SecurityProtocol> {
        match name.to_ascii_uppercase().as_str() {
            "PLAINTEXT" => Some(SecurityProtocol::Plaintext),
            "SSL" => Some(SecurityProtocol::Ssl),
            "SASL_PLAINTEXT" => Some(SecurityProtocol::SaslPlaintext),
            "SASL_SSL" => Some(SecurityProtocol::SaslSsl),
            _ => None,
        }
    }
}

/// A named address: an item of `listeners` or `advertised.listeners`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The listener's name in upper case.
    pub name: String,
    /// Where it is.
    pub at: HostPort,
}

/// Parses `NAME://host:port,…`; the error says which item is wrong and how. A comma at the end is accepted: programs that
/// write an item and a comma each start brokers.
pub fn endpoints(text: &str) -> Result<Vec<Endpoint>, String> {
    let text = text.trim().trim_end_matches(',');
    let parsed: Result<Vec<Endpoint>, String> = items(text).map(endpoint).collect();
    let parsed = parsed?;
    for (at, endpoint) in parsed.iter().enumerate() {
        if parsed[..at].iter().any(|other| other.name == endpoint.name) {
            return Err(format!(
                "listener {} is named twice; each needs its own name",
                endpoint.name
            ));
        }
    }
    Ok(parsed)
}

fn endpoint(item: &str) -> Result<Endpoint, String> {
    let wrong = || format!("invalid listener {item}; write NAME://host:port");
    let (name, at) = item.split_once("://").ok_or_else(wrong)?;
    if name.is_empty() {
        return Err(wrong());
    }
    let at = HostPort::parse(at).ok_or_else(wrong)?;
    Ok(Endpoint { name: name.to_ascii_uppercase(), at })
}

/// Parses `NAME:PROTOCOL,…` of `listener.security.protocol.map`.
pub fn protocol_map(text: &str) -> Result<Vec<(String, SecurityProtocol)>, String> {
    items(text)
        .map(|item| {
            let (name, protocol) = item.split_once(':').unwrap_or((item, ""));
            let protocol = SecurityProtocol::from_name(protocol.trim()).ok_or_else(|| {
                format!(
                    "{item}: write NAME:PROTOCOL with PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"
                )
            })?;
            Ok((name.trim().to_ascii_uppercase(), protocol))
        })
        .collect()
}

/// One voter of the metadata quorum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voter {
    /// Its `node.id`.
    pub id: i32,
    /// Where its controller listens.
    pub at: HostPort,
}

/// Parses `id@host:port,…` of `controller.quorum.voters`.
pub fn voters(text: &str) -> Result<Vec<Voter>, String> {
    items(text)
        .map(|item| {
            let wrong = || format!("invalid voter {item}; write id@host:port");
            let (id, at) = item.split_once('@').ok_or_else(wrong)?;
            let id = id.parse().ok().filter(|id| *id >= 0).ok_or_else(wrong)?;
            Ok(Voter { id, at: HostPort::parse(at).ok_or_else(wrong)? })
        })
        .collect()
}

/// Parses `address:number,…` of `max.connections.per.ip.overrides`.
pub fn connection_limits(text: &str) -> Result<Vec<(String, u32)>, String> {
    items(text)
        .map(|item| {
            let limit = item.rsplit_once(':').and_then(|(host, limit)| {
                Some((host.trim().to_owned(), limit.trim().parse().ok()?))
            });
            limit.ok_or_else(|| format!("invalid limit {item}; write address:number"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in ["localhost:9092", ":9092", "[::1]:9092", "0.0.0.0:0", "my-host.example:65535"]
        {
            assert_eq!(HostPort::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["", "9092", "host", "host:", "host:65536", "host:-1", "::1:9092", "[::1:9092", "a b:1"]
        {
            assert_eq!(HostPort::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn listeners_are_named_and_each_name_stands_once() {
        let found = endpoints("internal://:9092,EXTERNAL://h:1").unwrap();
        assert_eq!(
            found[0],
            Endpoint { name: "INTERNAL".into(), at: HostPort::parse(":9092").unwrap() }
        );
        assert_eq!(found.len(), 2);
        assert_eq!(endpoints("A://h:1,B://h:2,").unwrap().len(), 2);
        assert!(endpoints("A://h:1,,B://h:2").is_err());
        assert!(endpoints("A://:1,a://:2").unwrap_err().contains("A is named twice"));
        for text in ["localhost:9092", "://:9092", "PLAINTEXT://localhost", "PLAINTEXT:9092"] {
            assert!(endpoints(text).unwrap_err().contains("write NAME://host:port"), "{text}");
        }
    }

    #[test]
    fn voters_and_limits_are_read() {
        let at = HostPort::parse("h:9093").unwrap();
        assert_eq!(voters("3@h:9093"), Ok(vec![Voter { id: 3, at }]));
        assert!(voters("h:9093").is_err() && voters("-1@h:9093").is_err());
        assert_eq!(connection_limits("10.0.0.1:5, h:7").unwrap()[1], ("h".into(), 7));
        assert!(connection_limits("a:b").is_err());
    }
}
