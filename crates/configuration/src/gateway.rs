//! The gateway, as configured: within a broker, or alone in front of any cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::layers::Configuration;
use super::listener::HostPort;
use super::problem::InvalidConfiguration;
use super::settings::Reading;

/// What everybody may do over a gateway that others than this machine reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Anonymous {
    /// Nothing.
    #[default]
    Nothing,
    /// Read.
    Read,
    /// Read and produce.
    Produce,
}

/// What stands before the keys of Kafka's clients.
const CLIENT: &str = "gateway.client.";

/// How a gateway reaches its cluster, in the keys of Kafka's clients.
const CLIENT_KEYS: [&str; 12] = [
    "gateway.client.sasl.jaas.config",
    "gateway.client.sasl.mechanism",
    "gateway.client.security.protocol",
    "gateway.client.ssl.enabled.protocols",
    "gateway.client.ssl.endpoint.identification.algorithm",
    "gateway.client.ssl.keystore.certificate.chain",
    "gateway.client.ssl.keystore.key",
    "gateway.client.ssl.keystore.location",
    "gateway.client.ssl.keystore.type",
    "gateway.client.ssl.truststore.certificates",
    "gateway.client.ssl.truststore.location",
    "gateway.client.ssl.truststore.type",
];

/// The values of `gateway.client.*` that were said, by the names that Kafka's clients have for them. Some are passwords:
/// `Debug` shows none.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ClientKeys(BTreeMap<&'static str, String>);

impl ClientKeys {
    fn read(reading: &Reading<'_>) -> ClientKeys {
        let said = |key: &'static str| {
            let name = key.strip_prefix(CLIENT).expect("all of them begin so");
            Some((name, reading.explicit::<String>(key)?))
        };
        ClientKeys(CLIENT_KEYS.into_iter().filter_map(said).collect())
    }

    /// The value of a key, if there is one.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for ClientKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The keys `gateway.tls.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The key `gateway.tls.certificate.file`.
    pub certificate: PathBuf,
    /// The key `gateway.tls.key.file`.
    pub key: PathBuf,
}

/// The gateway. A field's documentation is that of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Where to bind; `None`: there is no gateway. The key `gateway.listener`.
    pub bind: Option<HostPort>,
    /// Whether that was said, and is not the default: a port that was named and is taken ends the start.
    pub is_named: bool,
    /// The key `gateway.advertised.url`.
    pub advertised_url: Option<String>,
    /// The key `gateway.anonymous`.
    pub anonymous: Anonymous,
    /// The key `gateway.users.file`.
    pub users_file: Option<PathBuf>,
    /// The key `console.key.file`.
    pub key_file: Option<PathBuf>,
    /// The keys `gateway.tls.*`; `None`: clients come without TLS.
    pub tls: Option<TlsFiles>,
    /// The key `gateway.hosts`.
    pub hosts: Vec<String>,
    /// The key `gateway.trusted.proxies`: addresses and networks, as they were written.
    pub trusted_proxies: Vec<String>,
    /// Whether `gateway.trusted.proxies.header` is `forwarded`.
    pub proxies_use_forwarded: bool,
    /// The key `gateway.cors.origins`.
    pub cors_origins: Vec<String>,
    /// The key `gateway.topic.partitioners`: rows `TOPIC=PARTITIONER`, as they were written.
    pub topic_partitioners: Vec<String>,
    /// The key `gateway.threads`; `None`: one for each core.
    pub threads: Option<usize>,
    /// The key `gateway.memory.bytes`.
    pub memory_bytes: usize,
    /// The key `gateway.connections.max`; `None`: as the limit of open files allows.
    pub connections_max: Option<usize>,
    /// The key `gateway.connections.per.address.max`.
    pub connections_per_address_max: usize,
    /// The key `gateway.request.bytes.max`.
    pub request_bytes_max: usize,
    /// The key `gateway.head.timeout.ms`.
    pub head_timeout_ms: u64,
    /// The key `gateway.drain.ms`.
    pub drain_ms: u64,
    /// The key `gateway.instances.max`.
    pub instances_max: usize,
    /// The key `gateway.instance.timeout.ms`.
    pub instance_timeout_ms: u64,
    /// The key `console.write`.
    pub console_write: bool,
    /// The key `console.state.dir`; `None`: nothing was said. Empty: nowhere.
    pub console_state_dir: Option<String>,
    /// The key `console.lab.dir`; `None`: there is none.
    pub console_lab_dir: Option<String>,
    /// The keys `gateway.client.*`.
    pub client: ClientKeys,
}

impl Gateway {
    /// The gateway of a configuration without a broker.
    ///
    /// # Errors
    /// A value cannot be used.
    pub fn of(configuration: &Configuration) -> Result<Gateway, InvalidConfiguration> {
        let reading = Reading::new(configuration);
        let gateway = Gateway::read(&reading);
        reading.finish()?;
        Ok(gateway)
    }

    /// How addresses of the gateway begin: by TLS or without.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    pub(super) fn read(reading: &Reading<'_>) -> Gateway {
        let text: String = reading.get("gateway.listener");
        let bind = HostPort::parse(&text);
        reading.require(bind.is_some() || text.is_empty(), "gateway.listener", || {
            "expected host:port, or nothing".to_owned()
        });
        let advertised_url: Option<String> = reading.optional("gateway.advertised.url");
        let is_url = |url: &String| ["http://", "https://"].iter().any(|way| url.starts_with(way));
        let fits = advertised_url.as_ref().is_none_or(is_url);
        reading.require(fits, "gateway.advertised.url", || {
            "expected a URL that begins with http:// or https://".to_owned()
        });
        let anonymous: String = reading.get("gateway.anonymous");
        Gateway {
            bind,
            is_named: reading.configuration.is_set("gateway.listener"),
            advertised_url,
            anonymous: match anonymous.as_str() {
                "read" => Anonymous::Read,
                "produce" => Anonymous::Produce,
                _ => Anonymous::Nothing,
            },
            users_file: file(reading, "gateway.users.file"),
            key_file: file(reading, "console.key.file"),
            tls: tls_files(reading),
            hosts: reading.get("gateway.hosts"),
            trusted_proxies: reading.get("gateway.trusted.proxies"),
            proxies_use_forwarded: reading.get::<String>("gateway.trusted.proxies.header")
                == "forwarded",
            cors_origins: reading.get("gateway.cors.origins"),
            topic_partitioners: reading.get("gateway.topic.partitioners"),
            threads: reading.optional("gateway.threads"),
            memory_bytes: reading.get("gateway.memory.bytes"),
            connections_max: reading.optional("gateway.connections.max"),
            connections_per_address_max: reading.get("gateway.connections.per.address.max"),
            request_bytes_max: reading.get("gateway.request.bytes.max"),
            head_timeout_ms: reading.get("gateway.head.timeout.ms"),
            drain_ms: reading.get("gateway.drain.ms"),
            instances_max: reading.get("gateway.instances.max"),
            instance_timeout_ms: reading.get("gateway.instance.timeout.ms"),
            console_write: reading.get("console.write"),
            console_state_dir: reading.optional("console.state.dir"),
            console_lab_dir: reading.optional("console.lab.dir"),
            client: ClientKeys::read(reading),
        }
    }
}

/// A certificate without a key, or the other way round, is refused.
fn tls_files(reading: &Reading<'_>) -> Option<TlsFiles> {
    const CERTIFICATE: &str = "gateway.tls.certificate.file";
    const KEY: &str = "gateway.tls.key.file";
    match (file(reading, CERTIFICATE), file(reading, KEY)) {
        (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
        (certificate, key) => {
            for (missing, is_needed) in [(KEY, certificate.is_some()), (CERTIFICATE, key.is_some())]
            {
                reading.require(!is_needed, missing, || {
                    "TLS needs both gateway.tls.certificate.file and gateway.tls.key.file; they may name one file".to_owned()
                });
            }
            None
        }
    }
}

/// A file that is named; an empty name is none.
fn file(reading: &Reading<'_>, key: &'static str) -> Option<PathBuf> {
    let name: Option<String> = reading.optional(key);
    name.filter(|name| !name.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sources;

    fn gateway(pairs: &[(&str, &str)]) -> Result<Gateway, InvalidConfiguration> {
        let said = pairs.iter().fold(Sources::new(), |said, (key, value)| said.set(key, value));
        let (configuration, _) = Configuration::load(&said, true)?;
        Gateway::of(&configuration)
    }

    #[test]
    fn a_listener_that_nobody_named_may_move() {
        let default = gateway(&[]).unwrap();
        assert_eq!(default.bind.map(|at| at.to_string()), Some("127.0.0.1:8082".to_owned()));
        assert!(!default.is_named);
        assert!(gateway(&[("gateway.listener", "127.0.0.1:8082")]).unwrap().is_named);
        assert_eq!(gateway(&[("gateway.listener", "")]).unwrap().bind, None);
    }

    #[test]
    fn a_certificate_and_its_key_come_together() {
        const FILES: [&str; 2] = ["gateway.tls.certificate.file", "gateway.tls.key.file"];
        let both = gateway(&[(FILES[0], "a.pem"), (FILES[1], "b.pem")]).unwrap();
        let named = TlsFiles { certificate: "a.pem".into(), key: "b.pem".into() };
        assert_eq!((both.scheme(), both.tls), ("https", Some(named)));
        let none = gateway(&[(FILES[0], "")]).unwrap();
        assert_eq!((none.scheme(), none.tls), ("http", None));
        for (said, missing) in [(FILES[0], FILES[1]), (FILES[1], FILES[0])] {
            let refused = gateway(&[(said, "a.pem")]).unwrap_err().to_string();
            assert!(refused.contains(missing) && refused.contains("needs both"), "{refused}");
        }
    }

    #[test]
    fn values_that_cannot_be_used_are_refused() {
        for (key, value) in [
            ("gateway.listener", "8082"),
            ("gateway.advertised.url", "gateway.example.org"),
            ("gateway.anonymous", "all"),
            ("gateway.memory.bytes", "1000"),
            ("gateway.threads", "0"),
            ("gateway.instances.max", "0"),
            ("gateway.instance.timeout.ms", "0"),
            ("gateway.client.security.protocol", "TLS"),
        ] {
            assert!(gateway(&[(key, value)]).is_err(), "{key}={value}");
        }
        let open = gateway(&[("gateway.anonymous", "read"), ("gateway.threads", "3")]).unwrap();
        assert_eq!((open.anonymous, open.threads), (Anonymous::Read, Some(3)));
    }

    #[test]
    fn keys_of_the_client_have_kafkas_names_and_hide_their_values() {
        assert!(gateway(&[]).unwrap().client.is_empty());
        let login = "M required username=\"alice\" password=\"opensesame\";";
        let gateway = gateway(&[
            ("gateway.client.security.protocol", "SASL_PLAINTEXT"),
            ("gateway.client.sasl.jaas.config", login),
            ("gateway.client.ssl.endpoint.identification.algorithm", ""),
        ]);
        let client = gateway.unwrap().client;
        assert_eq!(client.get("sasl.jaas.config"), Some(login));
        assert_eq!(client.get("ssl.endpoint.identification.algorithm"), Some(""));
        assert_eq!(client.get("sasl.mechanism"), None);
        let shown = format!("{client:?}");
        assert!(shown.contains("sasl.jaas.config") && !shown.contains("opensesame"), "{shown}");
    }
}
