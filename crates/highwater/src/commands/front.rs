//! A gateway out of its configuration, with the console on its listener: beside a broker, or alone.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::{ClusterConfig, ConnectionConfig, Security};
use configuration::{Anonymous, Gateway};
use console::{Console, Front, Sending};
use gateway::{
    Access, Door, EventSettings, Inside, InstanceSettings, Making, Pages, Settings, SigningKey, Tls,
};
use serving::choice::{OfTopics, Pair, Row};
use serving::forwarded::{ForwardingHeader, TrustedProxies};
use serving::operation::{By, NewRecord};
use serving::visitors::{Doorkeeper, check_host};
use tracing::warn;

use super::start::in_url;
use crate::command_config;
use crate::failure::Failure;

/// How long a broker may take to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// How long a broker may take to answer what it can answer at once.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long the body of a request may take.
const BODY_MAX: Duration = Duration::from_secs(30);
/// Bytes of a broker's answer: of what the gateway asks for, none is a quarter of that, and whatever claims more is not a broker's.
const FRAME_BYTES_MAX: usize = 128 << 20;
/// How old the gateway's picture of the cluster may be.
const METADATA_AGE_MAX: Duration = Duration::from_secs(60);

/// Listens where the configuration says; `None` if that is nowhere.
pub fn door(gateway: &Gateway) -> Result<Option<Door>, Failure> {
    let Some(at) = &gateway.bind else { return Ok(None) };
    let door = Door::bind(&at.host, at.port, !gateway.is_named).map_err(|error| {
        Failure::new("the gateway cannot start").detail(error).hint(
            "choose another port by --set gateway.listener=127.0.0.1:8083, or go without a gateway by \
             --set gateway.listener=",
        )
    })?;
    if let Some(taken) = door.moved_from() {
        warn!("port {taken} is taken: the gateway listens on {}", door.address());
    }
    Ok(Some(door))
}

/// What says who comes in, what they are shown, and where their records go.
#[derive(Default)]
pub struct Keys {
    signing: Option<SigningKey>,
    tls: Option<Arc<Tls>>,
    partitioners: OfTopics,
    proxies: TrustedProxies,
}

/// Reads what must be usable at the start: the file of users, the key for cookies, the certificate and its key, the topics'
/// partitioners.
pub fn keys(gateway: &Gateway) -> Result<Keys, Failure> {
    let rows = gateway.topic_partitioners.iter().map(String::as_str);
    let partitioners = OfTopics::read(rows).map_err(|error| {
        let detail = format!("gateway.topic.partitioners: {error}");
        Failure::new("the configuration cannot be used").detail(detail)
    })?;
    for host in &gateway.hosts {
        check_host(host).map_err(|error| {
            Failure::new("the configuration cannot be used")
                .detail(format!("gateway.hosts: {error}"))
        })?;
    }
    let proxies = proxies(gateway)?;
    Ok(Keys { signing: who(gateway)?, tls: tls(gateway)?.map(Arc::new), partitioners, proxies })
}

fn proxies(gateway: &Gateway) -> Result<TrustedProxies, Failure> {
    let header = match gateway.proxies_use_forwarded {
        true => ForwardingHeader::Forwarded,
        false => ForwardingHeader::XForwardedFor,
    };
    let rows = gateway.trusted_proxies.iter().map(String::as_str);
    TrustedProxies::read(rows, header).map_err(|error| {
        let detail = format!("gateway.trusted.proxies: {error}");
        Failure::new("the configuration cannot be used").detail(detail)
    })
}

fn tls(gateway: &Gateway) -> Result<Option<Tls>, Failure> {
    let Some(files) = &gateway.tls else { return Ok(None) };
    Tls::of_files(&files.certificate, &files.key).map(Some).map_err(|error| {
        let detail = format!("gateway.tls.certificate.file, gateway.tls.key.file: {error}");
        Failure::new("the gateway cannot start").detail(detail)
    })
}

fn who(gateway: &Gateway) -> Result<Option<SigningKey>, Failure> {
    if let Some(file) = &gateway.users_file {
        gateway::who::check_file(file).map_err(|error| {
            Failure::new("the gateway cannot start")
                .detail(format!("{} (gateway.users.file): {error}", file.display()))
                .hint("make the file by highwater user add NAME --role admin --users-file FILE")
        })?;
    }
    let Some(file) = &gateway.key_file else { return Ok(None) };
    SigningKey::of_file(file).map(Some).map_err(|error| {
        let detail = format!("{} (console.key.file): {error}", file.display());
        Failure::new("the gateway cannot start").detail(detail)
    })
}

/// How a gateway alone is to reach its brokers: by the file that was named, or by `gateway.client.*`.
pub fn security(gateway: &Gateway, file: Option<&Path>) -> Result<Security, Failure> {
    if gateway.client.is_empty() {
        return command_config::security(file);
    }
    if file.is_some() {
        return Err(Failure::new("the gateway is told twice how to reach its brokers")
            .detail("there are keys gateway.client.*, and there is --command-config")
            .hint("keep one of them"));
    }
    let security = Security::read(|key| gateway.client.get(key));
    security.map_err(|error| {
        Failure::new("the configuration cannot be used").detail(format!("gateway.client.{error}"))
    })
}

/// What the console's command lines call the file of properties, where the gateway was told by its own keys.
const SOME_FILE: &str = "client.properties";

/// How a gateway reaches its brokers.
pub struct Reach {
    /// For its own clients.
    pub cluster: ClusterConfig,
    /// For the command lines that the console shows.
    command_config: Option<String>,
}

/// How the brokers behind these addresses are reached; `file`: what says so, if it is a file.
pub fn reach(bootstrap: &str, security: Security, file: Option<&Path>) -> Reach {
    let is_open = security.protocol() == "PLAINTEXT";
    let named = file.map(|file| file.display().to_string());
    let command_config = named.or_else(|| (!is_open).then(|| SOME_FILE.to_owned()));
    let cluster = ClusterConfig {
        connection: ConnectionConfig {
            client_id: "highwater-gateway".to_owned(),
            connect_timeout: CONNECT_MAX,
            request_timeout: ANSWER_MAX,
            frame_bytes_max: FRAME_BYTES_MAX,
            security,
            ..ConnectionConfig::default()
        },
        call_timeout: ANSWER_MAX,
        metadata_age_max: METADATA_AGE_MAX,
        ..ClusterConfig::new(bootstrap)
    };
    Reach { cluster, command_config }
}

/// What the gateway is told that listens at `address`. `connections_max`: how many connections there is room for, if
/// the configuration says nothing else. `log_dir`: the first one of the broker beside it.
pub fn settings(
    gateway: &Gateway,
    Reach { cluster, command_config }: Reach,
    address: SocketAddr,
    connections_max: usize,
    log_dir: Option<&Path>,
    keys: Keys,
) -> Settings {
    // Only this machine's own users come in there, unless a proxy is in front. With users each client needs a login.
    let is_own = address.ip().to_canonical().is_loopback()
        && gateway.users_file.is_none()
        && keys.proxies.is_empty();
    let access = match gateway.anonymous {
        _ if is_own => Access::Everything,
        Anonymous::Nothing => Access::Health,
        Anonymous::Read => Access::Read,
        Anonymous::Produce => Access::Produce,
    };
    let of_console = ConnectionConfig {
        client_id: "highwater-console".to_owned(),
        ..cluster.connection.clone()
    };
    let console = Console::new(
        ClusterConfig { connection: of_console, ..cluster.clone() },
        console::Settings { command_config, ..console_settings(gateway, address, log_dir) },
    );
    Settings {
        cluster,
        pages: Some(Arc::new(ConsolePages(console))),
        threads: gateway.threads,
        memory_bytes: gateway.memory_bytes,
        connections_max: gateway.connections_max.unwrap_or(connections_max),
        connections_per_address_max: gateway.connections_per_address_max,
        request_bytes_max: gateway.request_bytes_max,
        write_timeout: gateway::WRITE_TIMEOUT,
        head_timeout: Duration::from_millis(gateway.head_timeout_ms),
        body_timeout: BODY_MAX,
        drain: Duration::from_millis(gateway.drain_ms),
        events: EventSettings { chunk_bytes: gateway.memory_bytes / 2, ..EventSettings::default() },
        instances: InstanceSettings {
            max: gateway.instances_max,
            timeout: Duration::from_millis(gateway.instance_timeout_ms),
            advertised_url: gateway.advertised_url.clone(),
        },
        partitioners: Arc::new(keys.partitioners),
        access,
        users_file: gateway.users_file.clone(),
        key: keys.signing,
        is_secure: keys.tls.is_some()
            || gateway.advertised_url.as_deref().is_some_and(|url| url.starts_with("https://")),
        tls: keys.tls,
        proxies: keys.proxies,
        doorkeeper: Doorkeeper::new(
            gateway.advertised_url.as_deref(),
            gateway.cors_origins.iter().map(String::as_str),
        )
        .with_hosts(gateway.hosts.iter().cloned().chain(machine_names())),
    }
}

/// The host name of this machine, whole and without its domain.
fn machine_names() -> Vec<String> {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy().into_owned();
    let first = name.split('.').next().unwrap_or_default().to_owned();
    vec![name, first]
}

/// What the console is told. What it cannot have it does without, with a word: the broker beside it goes on.
fn console_settings(
    gateway: &Gateway,
    address: SocketAddr,
    log_dir: Option<&Path>,
) -> console::Settings {
    // Elsewhere it must be known who asks.
    let is_known = address.ip().to_canonical().is_loopback() || gateway.users_file.is_some();
    if gateway.console_write && !is_known {
        warn!(
            "console.write is not followed: the gateway listens for other machines and knows no users (gateway.users.file)"
        );
    }
    let dir = match gateway.console_state_dir.as_deref() {
        Some("") => None,
        Some(dir) => Some(PathBuf::from(dir)),
        None => log_dir.map(|dir| dir.join("console")),
    };
    let made = dir.filter(|dir| match std::fs::create_dir_all(dir) {
        Ok(()) => true,
        Err(error) => {
            warn!(dir = %dir.display(), %error, "the console keeps nothing: its folder cannot be made");
            false
        }
    });
    let write = gateway.console_write && is_known;
    let lab_dir = gateway.console_lab_dir.as_deref().filter(|dir| !dir.is_empty());
    console::Settings {
        write,
        state_dir: made,
        lab_dir: lab_dir.map(PathBuf::from),
        command_config: None,
    }
}

/// The console as the gateway shows it.
#[derive(Debug)]
struct ConsolePages(Console);

/// The gateway as the console uses it: neither knows the other.
struct Behind<'a>(&'a Inside);

impl Front for Behind<'_> {
    fn send<'a>(
        &'a self,
        topic: &'a str,
        records: &'a [NewRecord],
        pair: Pair,
        partition: Option<i32>,
    ) -> Sending<'a> {
        Box::pin(self.0.send(topic, records, pair, partition))
    }

    fn distribution(&self, topic: &str) -> Vec<Row> {
        self.0.distribution(topic)
    }

    fn topics(&self) -> Vec<String> {
        self.0.topics()
    }

    fn counts(&self) -> serde_json::Value {
        self.0.counts()
    }

    fn url(&self) -> String {
        let url = |at| format!("{}://{}", self.0.scheme(), in_url(at));
        self.0.address().map(url).unwrap_or_default()
    }
}

impl Pages for ConsolePages {
    fn has(&self, path: &str) -> bool {
        self.0.has(path)
    }

    fn page<'a>(
        &'a self,
        path: &'a str,
        query: Option<&'a str>,
        by: By<'a>,
        inside: &'a Inside,
    ) -> Making<'a> {
        Box::pin(async move { self.0.answer(path, query, by, &Behind(inside)).await })
    }

    fn takes(&self, path: &str) -> bool {
        self.0.takes(path)
    }

    fn take<'a>(
        &'a self,
        path: &'a str,
        form: &'a [u8],
        by: By<'a>,
        inside: &'a Inside,
    ) -> Making<'a> {
        Box::pin(async move { self.0.take(path, form, by, &Behind(inside)).await })
    }

    fn stop(&self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_name_a_file_where_a_login_is_needed() {
        let named = |keys: &[(&str, &str)], file: Option<&str>| {
            let value = |key: &str| keys.iter().find(|(name, _)| *name == key).map(|pair| pair.1);
            let security = Security::read(value).unwrap();
            reach("kafka-1:9092", security, file.map(Path::new)).command_config
        };
        let login = [
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", "PLAIN"),
            (
                "sasl.jaas.config",
                "org.apache.kafka.common.security.plain.PlainLoginModule required \
                 username=\"alice\" password=\"open-sesame\";",
            ),
        ];
        assert_eq!(named(&[], None), None);
        assert_eq!(named(&[], Some("/etc/open.properties")).unwrap(), "/etc/open.properties");
        assert_eq!(named(&login, Some("/etc/alice.properties")).unwrap(), "/etc/alice.properties");
        assert_eq!(named(&login, None).unwrap(), SOME_FILE);
    }
}
