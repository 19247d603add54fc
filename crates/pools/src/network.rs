//! The addresses that count as one client.

use std::net::{IpAddr, Ipv6Addr};

/// An IPv4 address, or an IPv6 network of 64 bits: a client with one address of such a network has all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientNetwork(IpAddr);

impl ClientNetwork {
    /// The network of an address. An IPv4 address in an IPv6 form is the IPv4 address; the loopback address is one of
    /// its own.
    pub fn of(address: IpAddr) -> ClientNetwork {
        ClientNetwork(match address.to_canonical() {
            IpAddr::V6(own) if own.is_loopback() => IpAddr::V6(own),
            IpAddr::V6(other) => IpAddr::V6(Ipv6Addr::from_bits(other.to_bits() >> 64 << 64)),
            v4 => v4,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let of = |text: &str| ClientNetwork::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:3:4:5"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("::1"), of("::2"));
    }
}
