//! Which requests may be answered, by what their headers say of the page that they come from.
//!
//! To listen on this machine alone does not protect from web pages: a browser runs pages of strangers on the same
//! machine. A page can reach the gateway in two ways. It sends a request to the gateway's address: then the browser
//! names the page as `Origin`. Or its own name leads to the gateway's address (DNS rebinding): then `Host` is the
//! name of the page. So `Host` must be a name that no stranger can own, and an `Origin` must be the gateway's own or
//! one that the operator listed, on everything that changes anything.
//!
//! Not here: users and what each of them may do.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// What a request says of where it comes from.
#[derive(Debug, Clone, Copy, Default)]
pub struct Visit<'a> {
    /// The host that the client believes it speaks to, with its port: the header `Host`, or the target's own.
    pub host: Option<&'a str>,
    /// `Origin`: the page, if a browser sends the request.
    pub origin: Option<&'a str>,
    /// `Sec-Fetch-Site`.
    pub fetch_site: Option<&'a str>,
    /// Whether the request only reads.
    pub reads: bool,
}

impl Visit<'_> {
    /// Whether a page of this very host sends the request: asked of what does not merely read and was let in by a cookie, which a
    /// browser sends along with whatever it is made to send; and of the console's forms.
    ///
    /// # Errors
    /// Nothing says so.
    pub fn of_own_page(&self) -> Result<(), Refused> {
        let host = self.host.ok_or(Refused::NoHost)?;
        match (self.origin, self.fetch_site) {
            (Some(origin), _) if is_same(origin, host) => Ok(()),
            (Some(origin), _) => Err(Refused::OtherPage(origin.to_owned())),
            (None, Some("same-origin")) => Ok(()),
            (None, _) => Err(Refused::UnknownPage),
        }
    }
}

/// Why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// `Host` is missing.
    NoHost,
    /// `Host` is a name that others may own.
    ForeignHost(String),
    /// `Origin` is neither the gateway's own nor listed.
    ForeignOrigin(String),
    /// `Origin` is not the gateway's own, where being listed is not enough.
    OtherPage(String),
    /// A page of another site sends the request, and does not say which.
    CrossSite,
    /// Nothing says that a page of ours sends the request, and a cookie alone is not believed.
    UnknownPage,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NoHost => f.write_str("the header Host is missing"),
            Refused::ForeignHost(host) => write!(
                f,
                "the gateway does not answer as {host:?}: add the name to gateway.hosts, or set gateway.advertised.url to \
                 the URL by which clients reach it"
            ),
            Refused::ForeignOrigin(origin) => write!(
                f,
                "pages of {origin:?} may not send this: add that origin to gateway.cors.origins to allow it"
            ),
            Refused::OtherPage(origin) => {
                write!(f, "pages of {origin:?} may not send this, listed or not: only pages of this very host may")
            }
            Refused::UnknownPage => f.write_str(
                "a cookie alone is not believed where something is changed: send Origin, as browsers do, or Authorization",
            ),
            Refused::CrossSite => f.write_str(
                "pages of other sites may not send this: add their origins to gateway.cors.origins to allow it",
            ),
        }
    }
}

/// Whose requests are answered.
#[derive(Debug, Clone, Default)]
pub struct Doorkeeper {
    /// Names beside addresses and `localhost`, in lower case and without port.
    hosts: BTreeSet<String>,
    /// In lower case.
    origins: BTreeSet<String>,
}

impl Doorkeeper {
    /// One that answers as the host of `advertised_url`, if given, and to pages of `origins`.
    pub fn new<'a>(
        advertised_url: Option<&str>,
        origins: impl IntoIterator<Item = &'a str>,
    ) -> Doorkeeper {
        let host = advertised_url.and_then(authority_of);
        Doorkeeper {
            hosts: host.map(bare_name).into_iter().collect(),
            origins: origins
                .into_iter()
                .map(|origin| origin.trim().trim_end_matches('/').to_ascii_lowercase())
                .collect(),
        }
    }

    /// Answers as these hosts, too: names of this machine, and configured ones.
    pub fn with_hosts(mut self, names: impl IntoIterator<Item = String>) -> Doorkeeper {
        let names = names.into_iter().map(|name| bare_name(&name));
        self.hosts.extend(names.filter(|name| !name.is_empty()));
        self
    }

    /// Whether the request may be answered.
    ///
    /// # Errors
    /// It may not, for this reason.
    pub fn admit(&self, visit: &Visit<'_>) -> Result<(), Refused> {
        let host = visit.host.ok_or(Refused::NoHost)?;
        if !self.is_ours(name_of(host)) {
            return Err(Refused::ForeignHost(host.to_owned()));
        }
        if visit.reads {
            return Ok(());
        }
        match visit.origin {
            Some(origin) if self.is_listed(origin) || is_same(origin, host) => Ok(()),
            Some(origin) => Err(Refused::ForeignOrigin(origin.to_owned())),
            // Browsers name the origin of every request that is not a GET; those that do not are old.
            None if visit.fetch_site == Some("cross-site") => Err(Refused::CrossSite),
            None => Ok(()),
        }
    }

    /// Whether pages of this origin were listed: they may read answers too.
    pub fn is_listed(&self, origin: &str) -> bool {
        self.origins.contains(&origin.to_ascii_lowercase())
    }

    /// Whether no other machine can have this name: an address, `localhost`, or a name that was configured. A name
    /// without a dot can lead anywhere on a hostile network (LLMNR, mDNS, a DHCP search domain).
    fn is_ours(&self, name: &str) -> bool {
        let name = bare_name(name);
        let of_machine = name == "localhost" || name.ends_with(".localhost");
        of_machine || is_address(&name) || self.hosts.contains(&name)
    }
}

fn is_address(name: &str) -> bool {
    match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4()),
    }
}

/// `http://HOST:PORT/…` → `HOST:PORT`.
fn authority_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    Some(rest.split(['/', '?', '#']).next().unwrap_or(rest))
}

/// A host as it is compared: in lower case, without its port and the dot of the root.
fn bare_name(host: &str) -> String {
    name_of(host.trim()).trim_end_matches('.').to_ascii_lowercase()
}

/// Checks a name that is configured: a port and the dot of the root are left out when names are compared.
///
/// # Errors
/// No request can have this name as its host. Returns the reason.
pub fn check_host(configured: &str) -> Result<(), String> {
    let name = bare_name(configured);
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || is_address(&name) || name.bytes().all(is_of_name) {
        return Ok(());
    }
    let why = match name {
        _ if name.contains("://") => "expected a name, not a URL",
        _ if name.contains('*') => "wildcards are not supported: list each name",
        _ => "expected letters, digits, hyphens, underscores and dots",
    };
    Err(format!("{configured:?}: {why}"))
}

/// A host without its port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Whether a page of this origin came from the very host that it now sends to.
fn is_same(origin: &str, host: &str) -> bool {
    authority_of(origin).is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper() -> Doorkeeper {
        Doorkeeper::new(
            Some("https://Gateway.example.org:8443/kafka"),
            ["https://app.example.org", "http://localhost:3000/"],
        )
        .with_hosts(["Highwater", " my-gateway", ""].map(str::to_owned))
    }

    #[test]
    fn hosts_that_no_stranger_can_own_are_ours() {
        for host in [
            "localhost:8082",
            "LOCALHOST",
            "app.localhost:1",
            "127.0.0.1:8082",
            "10.1.2.3",
            "[::1]:8082",
            "[2001:db8::1]",
            "highwater:8082",
            "my-gateway",
            "gateway.example.org",
            "GATEWAY.example.org:8443",
            "gateway.example.org.:80",
        ] {
            let visit = Visit { host: Some(host), ..Visit::default() };
            assert_eq!(keeper().admit(&visit), Ok(()), "{host}");
        }
        for host in [
            "evil.example.com",
            "attacker:8082",
            "wpad",
            "127.0.0.1.evil.example.com:8082",
            "localhost.evil.example.com",
            "gateway.example.org.evil.example.com",
            "user@localhost",
            "[::1",
            "::1",
            "",
            ":8082",
            "a b",
        ] {
            let visit = Visit { host: Some(host), reads: true, ..Visit::default() };
            let refused = Refused::ForeignHost(host.to_owned());
            assert_eq!(keeper().admit(&visit), Err(refused), "{host}");
        }
        assert_eq!(keeper().admit(&Visit::default()), Err(Refused::NoHost));
    }

    #[test]
    fn configured_names_match_however_they_are_written() {
        let names =
            ["proxy.example.org:8082", "Alias.", "[2001:db8::1]:80", "rooted.example.org.:1"];
        let keeper = Doorkeeper::new(Some("https://advertised.example.org.:8443/"), [])
            .with_hosts(names.map(str::to_owned));
        for host in [
            "proxy.example.org",
            "proxy.example.org:9",
            "PROXY.example.org.",
            "alias",
            "alias.:80",
            "rooted.example.org",
            "advertised.example.org",
        ] {
            let visit = Visit { host: Some(host), ..Visit::default() };
            assert_eq!(keeper.admit(&visit), Ok(()), "{host}");
        }
        for name in names.iter().chain(&["", "a_b", "10.0.0.1"]) {
            assert_eq!(check_host(name), Ok(()), "{name}");
        }
        for (name, why) in [
            ("http://a", "URL"),
            ("*.example.org", "wildcards"),
            ("a/b", "letters"),
            ("a b", "letters"),
        ] {
            assert!(check_host(name).unwrap_err().contains(why), "{name}");
        }
    }

    #[test]
    fn pages_of_strangers_change_nothing() {
        let from = |origin| Visit {
            host: Some("localhost:8082"),
            origin: Some(origin),
            ..Visit::default()
        };
        for origin in [
            "https://app.example.org",
            "HTTPS://APP.example.org",
            "http://localhost:3000",
            "http://localhost:8082",
        ] {
            assert_eq!(keeper().admit(&from(origin)), Ok(()), "{origin}");
        }
        for origin in [
            "null",
            "http://app.example.org",
            "https://app.example.org.evil.example.com",
            "http://localhost:8083",
            "http://localhost",
            "localhost:8082",
            "",
        ] {
            let refused = Err(Refused::ForeignOrigin(origin.to_owned()));
            assert_eq!(keeper().admit(&from(origin)), refused, "{origin}");
            let reads = Visit { reads: true, ..from(origin) };
            assert_eq!(keeper().admit(&reads), Ok(()), "{origin}");
        }
    }

    #[test]
    fn a_cookie_is_believed_from_a_page_of_ours_alone() {
        let visit = |origin, fetch_site| Visit {
            host: Some("gateway.example.org:8443"),
            origin,
            fetch_site,
            reads: false,
        };
        for own in [
            visit(Some("https://gateway.example.org:8443"), None),
            visit(Some("https://GATEWAY.example.org:8443"), Some("same-origin")),
            visit(None, Some("same-origin")),
        ] {
            assert_eq!(own.of_own_page(), Ok(()), "{own:?}");
        }
        for other in [
            visit(None, None),
            visit(None, Some("same-site")),
            visit(None, Some("none")),
            // Listed, and still another page than ours.
            visit(Some("https://app.example.org"), Some("same-origin")),
            visit(Some("https://gateway.example.org"), None),
            visit(Some("null"), None),
        ] {
            assert!(other.of_own_page().is_err(), "{other:?}");
        }
        assert_eq!(Visit::default().of_own_page(), Err(Refused::NoHost));
    }

    #[test]
    fn a_request_without_origin_is_no_page_unless_the_browser_says_so() {
        let visit = |fetch_site, reads| Visit {
            host: Some("localhost"),
            fetch_site,
            reads,
            ..Visit::default()
        };
        assert_eq!(keeper().admit(&visit(None, false)), Ok(()));
        assert_eq!(keeper().admit(&visit(Some("same-origin"), false)), Ok(()));
        assert_eq!(keeper().admit(&visit(Some("cross-site"), false)), Err(Refused::CrossSite));
        assert_eq!(keeper().admit(&visit(Some("cross-site"), true)), Ok(()));
    }
}
