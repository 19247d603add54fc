//! The address of a client behind proxies, from the header that they add it to: `X-Forwarded-For`, or `Forwarded` (RFC 7239).
//!
//! A client may send such a header as well. Each proxy appends the address that it was reached from, so the last entries are
//! those of trusted proxies, and the last one that belongs to no trusted proxy is the client. Entries before that one
//! are claims of the client.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The addresses of one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AddressRange {
    /// IPv4 addresses in their form of IPv6.
    first: u128,
    /// Bits that all addresses share, of 128.
    bits: u32,
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl AddressRange {
    fn parse(text: &str) -> Option<AddressRange> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits: u32 = bits.map_or(Ok(bits_max), str::parse).ok()?;
        let bits = (bits <= bits_max).then_some(bits + 128 - bits_max)?;
        let network = AddressRange { first: number(address), bits };
        (network.first & !network.mask() == 0).then_some(network)
    }

    fn mask(&self) -> u128 {
        u128::MAX.checked_shl(128 - self.bits).unwrap_or(0)
    }

    fn has(&self, address: IpAddr) -> bool {
        number(address) & self.mask() == self.first
    }
}

/// The header that trusted proxies append addresses to. They pass any other one on as a client sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForwardingHeader {
    /// `X-Forwarded-For`: addresses with commas between them.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239): the parameter `for` of each element.
    Forwarded,
}

impl ForwardingHeader {
    /// The name of the header, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            ForwardingHeader::XForwardedFor => "x-forwarded-for",
            ForwardingHeader::Forwarded => "forwarded",
        }
    }

    /// Addresses of the entries of one line of the header, in their order; `None` for an entry without a trusted address.
    fn addresses(self, line: &[u8]) -> Vec<Option<IpAddr>> {
        // Entries are decoded one by one: bytes that a client sent must not hide the entry that its proxy appended.
        let entries = line.split(|byte| *byte == b',').map(std::str::from_utf8);
        match self {
            ForwardingHeader::XForwardedFor => {
                entries.map(|entry| address(entry.ok()?.trim())).collect()
            }
            ForwardingHeader::Forwarded => {
                let read = |entry: Result<&str, _>| ForwardedElement::parse(entry.ok()?);
                trusted_addresses(&entries.map(read).collect::<Vec<_>>())
            }
        }
    }
}

/// Addresses of the elements of one line; `None` for an element that the gateway cannot read, or that may be forged.
fn trusted_addresses(elements: &[Option<ForwardedElement>]) -> Vec<Option<IpAddr>> {
    let (mut is_forgeable, mut has_host) = (false, false);
    let address = |(index, element): (usize, &Option<ForwardedElement>)| {
        has_host |= element.is_some_and(|element| element.has_host);
        // A copied `Host` ends within the last element of the line. That element has the true `for` of its proxy, if `for`
        // follows `host` there. Elements between may be text of the client.
        let is_trusted = !is_forgeable && (!has_host || index + 1 == elements.len());
        is_forgeable |= element.is_none_or(|element| element.ends_with_host);
        element.filter(|_| is_trusted).and_then(|element| element.client)
    };
    elements.iter().enumerate().map(address).collect()
}

/// One element of `Forwarded` that has known parameters with plain values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ForwardedElement {
    /// The address in `for`, if there is one.
    client: Option<IpAddr>,
    has_host: bool,
    /// Whether `host` is there and no `for` follows. Proxies that copy `Host` write text of a client there, and that text
    /// may end the element with a comma: elements behind this one may be forged.
    ends_with_host: bool,
}

impl ForwardedElement {
    /// Reads an element without its commas. `None`: a parameter is unknown or occurs twice, or a value has other
    /// characters than addresses and host names have. An open quote is such a character.
    fn parse(element: &str) -> Option<ForwardedElement> {
        let mut parsed = ForwardedElement::default();
        let mut names: Vec<String> = Vec::new();
        // An empty element is valid in a list (RFC 9110, 5.6.1).
        for pair in element.split(';').map(str::trim).filter(|_| !element.trim().is_empty()) {
            let (name, value) = pair.split_once('=')?;
            let name = name.to_ascii_lowercase();
            let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            let value = quoted.unwrap_or(value);
            if names.contains(&name) || !value.bytes().all(is_of_host) {
                return None;
            }
            match &*name {
                "for" => (parsed.client, parsed.ends_with_host) = (address(value), false),
                "host" => (parsed.has_host, parsed.ends_with_host) = (true, true),
                "by" | "proto" => {}
                _ => return None,
            }
            names.push(name);
        }
        Some(parsed)
    }
}

/// Whether host names or addresses with ports have this character.
fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte)
}

/// An address, perhaps with a port or in brackets.
fn address(text: &str) -> Option<IpAddr> {
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|with_port| with_port.ip());
    let address: IpAddr = text.parse().ok().or_else(bracketed).or_else(with_port)?;
    Some(address.to_canonical())
}

/// An item that is neither an address nor a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidNetwork(String);

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidNetwork(text) = self;
        write!(
            f,
            "{text:?}: expected an address, or a network whose address has no bits behind its prefix, such as \
             10.0.0.0/8"
        )
    }
}

impl std::error::Error for InvalidNetwork {}

/// Trusted proxies, and the header that they append addresses to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrustedProxies {
    networks: Vec<AddressRange>,
    header: ForwardingHeader,
}

impl TrustedProxies {
    /// Reads addresses and networks (CIDR).
    ///
    /// # Errors
    /// An item is neither.
    pub fn read<'a>(
        items: impl IntoIterator<Item = &'a str>,
        header: ForwardingHeader,
    ) -> Result<TrustedProxies, InvalidNetwork> {
        let network = |item: &str| {
            AddressRange::parse(item.trim()).ok_or_else(|| InvalidNetwork(item.trim().to_owned()))
        };
        let networks = items.into_iter().map(network).collect::<Result<_, _>>()?;
        Ok(TrustedProxies { networks, header })
    }

    /// Whether no proxy is trusted.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// Whether the address is one of a trusted proxy.
    pub fn has(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.has(address))
    }

    /// The header of the trusted proxies.
    pub fn header(&self) -> ForwardingHeader {
        self.header
    }

    /// The address of the client. `peer`: the address that the connection came from. `values`: the values of the header, in
    /// their order. Where an entry has no address, the client is the proxy that wrote the entry.
    pub fn client<'a>(
        &self,
        peer: IpAddr,
        values: impl DoubleEndedIterator<Item = &'a [u8]>,
    ) -> IpAddr {
        let mut client = peer;
        if !self.has(peer) {
            return peer;
        }
        for address in values.rev().flat_map(|line| self.header.addresses(line).into_iter().rev()) {
            let Some(before) = address else { break };
            client = before;
            if !self.has(client) {
                break;
            }
        }
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn proxies(header: ForwardingHeader) -> TrustedProxies {
        TrustedProxies::read(["10.0.0.0/8", "127.0.0.1", " 2001:db8::/32"], header).unwrap()
    }

    #[test]
    fn the_client_is_the_last_untrusted_address() {
        let trusted = proxies(ForwardingHeader::XForwardedFor);
        for (peer, values, client) in [
            // An untrusted peer is the client, with any header.
            ("198.51.100.1", &["203.0.113.9"][..], "198.51.100.1"),
            ("198.51.100.1", &["10.1.1.1, 127.0.0.1"], "198.51.100.1"),
            ("127.0.0.1", &[], "127.0.0.1"),
            ("127.0.0.1", &["203.0.113.9"], "203.0.113.9"),
            ("::ffff:127.0.0.1", &["203.0.113.9"], "203.0.113.9"),
            // Claims of the client come before the entries of proxies.
            ("127.0.0.1", &["1.2.3.4, 203.0.113.9"], "203.0.113.9"),
            ("127.0.0.1", &["1.2.3.4, 203.0.113.9, 10.0.0.7"], "203.0.113.9"),
            ("10.9.9.9", &["1.2.3.4", "203.0.113.9", "10.0.0.7,10.0.0.8"], "203.0.113.9"),
            ("127.0.0.1", &["10.0.0.1, 10.0.0.2"], "10.0.0.1"),
            // With ports, in brackets, mapped.
            ("127.0.0.1", &["203.0.113.9:4711"], "203.0.113.9"),
            ("127.0.0.1", &["[2001:dead::9]:4711"], "2001:dead::9"),
            ("127.0.0.1", &["[2001:dead::9]"], "2001:dead::9"),
            ("2001:db8::1", &["2001:dead::9"], "2001:dead::9"),
            ("127.0.0.1", &["::ffff:203.0.113.9"], "203.0.113.9"),
            // A proxy that names no address is all that is known.
            ("127.0.0.1", &["203.0.113.9, unknown"], "127.0.0.1"),
            ("127.0.0.1", &["203.0.113.9, 10.0.0.3, "], "127.0.0.1"),
            ("127.0.0.1", &["203.0.113.9, absent, 10.0.0.3"], "10.0.0.3"),
        ] {
            assert_eq!(
                trusted.client(ip(peer), values.iter().map(|value| value.as_bytes())),
                ip(client),
                "{peer} {values:?}"
            );
        }
        let none = TrustedProxies::default();
        assert_eq!(none.client(ip("127.0.0.1"), [&b"1.2.3.4"[..]].into_iter()), ip("127.0.0.1"));
    }

    #[test]
    fn the_standard_header_is_read_by_its_parameter() {
        let trusted = proxies(ForwardingHeader::Forwarded);
        for (value, client) in [
            ("for=203.0.113.9", "203.0.113.9"),
            ("for=1.2.3.4, For=\"203.0.113.9:80\";proto=https;by=10.0.0.1", "203.0.113.9"),
            ("proto=https; for=\"[2001:dead::9]:80\"", "2001:dead::9"),
            ("for=203.0.113.9, for=10.0.0.2", "203.0.113.9"),
            ("for=_hidden", "127.0.0.1"),
            ("for=\"203.0.113.9", "127.0.0.1"),
            ("by=203.0.113.9", "127.0.0.1"),
            ("for=203.0.113.9;for=1.2.3.4", "127.0.0.1"),
            ("for=203.0.113.9;secret=a", "127.0.0.1"),
            // As HAProxy writes elements, and nginx as its wiki shows.
            ("proto=http;for=203.0.113.9", "203.0.113.9"),
            ("proto=https;host=\"\";by=10.0.0.1;for=203.0.113.9", "203.0.113.9"),
            (
                "proto=https;host=\"a:80\";by=\"10.0.0.1:443\";for=\"[2001:dead::9]:4711\"",
                "2001:dead::9",
            ),
            ("proto=http;for=203.0.113.9, proto=http;host=\"a\";for=10.0.0.1", "203.0.113.9"),
            // Of several proxies the last one alone may write `host`.
            ("proto=http;host=\"a\";for=203.0.113.9, proto=http;for=10.0.0.1", "10.0.0.1"),
            (", for=203.0.113.9", "203.0.113.9"),
            ("for=1.2.3.4, for=\"[2001:dead::9]\";proto=https", "2001:dead::9"),
            ("for=203.0.113.9;host=\"a\"", "203.0.113.9"),
            ("for=203.0.113.9;host=a.b:80", "203.0.113.9"),
            // An element that begins while a quote is open, or behind an element that the gateway cannot read.
            ("for=\"1.2.3.4, for=203.0.113.9", "127.0.0.1"),
            ("a=\"1.2.3.4, for=203.0.113.9", "127.0.0.1"),
            ("secret=a, for=203.0.113.9", "127.0.0.1"),
        ] {
            let values = [value.as_bytes()].into_iter();
            assert_eq!(trusted.client(ip("127.0.0.1"), values), ip(client), "{value}");
        }
        // An open quote ends with its line: no proxy splits an element between two header lines.
        let lines = [&b"for=\"1.2.3.4"[..], b"for=203.0.113.9"].into_iter();
        assert_eq!(trusted.client(ip("127.0.0.1"), lines), ip("203.0.113.9"));
    }

    #[test]
    fn a_copied_host_forges_no_address() {
        let trusted = proxies(ForwardingHeader::Forwarded);
        let templates = [
            "for=203.0.113.9;host=\"HOST\"",
            "for=203.0.113.9;host=HOST",
            "proto=https;for=203.0.113.9;host=\"HOST\"",
            "for=203.0.113.9;host=\"HOST\";proto=https",
            "host=\"HOST\";for=203.0.113.9",
            "proto=https;host=HOST;by=10.0.0.9;for=203.0.113.9",
            "proto=https;host=\"HOST\";by=10.0.0.9;for=203.0.113.9",
        ];
        let hosts = [
            "a",
            "a,for=6.6.6.6",
            "a;for=6.6.6.6",
            "a;for=6.6.6.6,by=b",
            "a,for=6.6.6.6;b=c",
            "a\",for=6.6.6.6;x=\"b",
            "a\",for=\"6.6.6.6",
            "a\",for=\"6.6.6.6:80",
            "a\",for=6.6.6.6;by=\"b",
            "a\";for=6.6.6.6,by=\"b",
            "a\";for=\"6.6.6.6",
            "a\";proto=http,for=\"6.6.6.6",
            "a\\\",for=6.6.6.6;by=\\\"b",
            "a\",,for=\"6.6.6.6",
            "a;for=6.6.6.6,proto=b",
            "a\";for=6.6.6.6,proto=\"b",
            "a\";for=6.6.6.6,for=6.6.6.6,proto=\"b",
            "a\";for=10.0.0.1,for=6.6.6.6,proto=\"b",
            "a\",for=6.6.6.6,proto=\"b",
        ];
        // Behind a trusted address the element before is the one of another trusted proxy.
        for (address, genuine) in [
            ("203.0.113.9", &["203.0.113.9", "127.0.0.1"][..]),
            ("10.0.0.1", &["1.2.3.4", "10.0.0.1", "127.0.0.1"]),
        ] {
            let lines = templates.iter().flat_map(|template| {
                let template = template.replace("203.0.113.9", address);
                hosts.map(|host| template.replace("HOST", host))
            });
            for line in lines {
                for before in ["", "for=1.2.3.4, ", "for=\"1.2.3.4, ", "host=a, ", "host=\", "] {
                    let line = format!("{before}{line}");
                    let client = trusted.client(ip("127.0.0.1"), [line.as_bytes()].into_iter());
                    assert!(genuine.contains(&&*client.to_string()), "{line} gives {client}");
                }
            }
        }
    }

    #[test]
    fn bytes_of_a_client_do_not_hide_the_entry_of_its_proxy() {
        let trusted = proxies(ForwardingHeader::XForwardedFor);
        for (value, client) in [
            (&b"\xff, 203.0.113.9"[..], "203.0.113.9"),
            (b"\xc3\xa9, 203.0.113.9, 10.0.0.1", "203.0.113.9"),
            (b"203.0.113.9, \xff", "127.0.0.1"),
        ] {
            assert_eq!(trusted.client(ip("127.0.0.1"), [value].into_iter()), ip(client));
        }
    }

    #[test]
    fn networks_are_read_with_their_prefix() {
        for bad in
            ["", "a", "10.0.0.1/8", "10.0.0.0/33", "::1/129", "10.0.0.0/", "10.0.0.0/x", "::1%lo"]
        {
            let read = TrustedProxies::read([bad], ForwardingHeader::default());
            assert!(read.unwrap_err().to_string().contains("10.0.0.0/8"), "{bad}");
        }
        let all = TrustedProxies::read(["0.0.0.0/0"], ForwardingHeader::default()).unwrap();
        assert!(all.has(ip("203.0.113.9")) && !all.has(ip("2001:db8::1")));
        let all = TrustedProxies::read(["::/0"], ForwardingHeader::default()).unwrap();
        assert!(all.has(ip("203.0.113.9")) && all.has(ip("2001:db8::1")));
    }
}
