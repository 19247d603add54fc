//! A gateway out of its configuration, with the console on its listener: beside a broker, or alone.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client::{ClusterConfig, ConnectionConfig, Security};
use configuration::{Anonymous, Gateway};
use console::Console;
use gateway::{Access, Door, EventSettings, InstanceSettings, Making, Pages, Settings};
use serving::visitors::Doorkeeper;
use tracing::warn;

use crate::command_config;
use crate::failure::Failure;

/// How long a broker may take to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// How long a broker may take to answer what it can answer at once.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long the body of a request may take.
const BODY_MAX: Duration = Duration::from_secs(30);
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

/// How the brokers behind these addresses are reached.
pub fn cluster(bootstrap: &str, security: Security) -> ClusterConfig {
    ClusterConfig {
        connection: ConnectionConfig {
            client_id: "highwater-gateway".to_owned(),
            connect_timeout: CONNECT_MAX,
            request_timeout: ANSWER_MAX,
            security,
            ..ConnectionConfig::default()
        },
        call_timeout: ANSWER_MAX,
        metadata_age_max: METADATA_AGE_MAX,
        ..ClusterConfig::new(bootstrap)
    }
}

/// What the gateway is told that listens at `address`. `connections_max`: how many connections there is room for, if
/// the configuration says nothing else.
pub fn settings(
    gateway: &Gateway,
    cluster: ClusterConfig,
    address: SocketAddr,
    connections_max: usize,
) -> Settings {
    // Only this machine's own users come in there.
    let access = match gateway.anonymous {
        _ if address.ip().to_canonical().is_loopback() => Access::Produce,
        Anonymous::Nothing => Access::Health,
        Anonymous::Read => Access::Read,
        Anonymous::Produce => Access::Produce,
    };
    let of_console = ConnectionConfig {
        client_id: "highwater-console".to_owned(),
        ..cluster.connection.clone()
    };
    let console = Console::new(ClusterConfig { connection: of_console, ..cluster.clone() });
    Settings {
        cluster,
        pages: Some(Arc::new(ConsolePages(console))),
        threads: gateway.threads,
        memory_bytes: gateway.memory_bytes,
        connections_max: gateway.connections_max.unwrap_or(connections_max),
        connections_per_address_max: gateway.connections_per_address_max,
        request_bytes_max: gateway.request_bytes_max,
        head_timeout: Duration::from_millis(gateway.head_timeout_ms),
        body_timeout: BODY_MAX,
        drain: Duration::from_millis(gateway.drain_ms),
        events: EventSettings { chunk_bytes: gateway.memory_bytes / 2, ..EventSettings::default() },
        instances: InstanceSettings {
            max: gateway.instances_max,
            timeout: Duration::from_millis(gateway.instance_timeout_ms),
            advertised_url: gateway.advertised_url.clone(),
        },
        access,
        doorkeeper: Doorkeeper::new(
            gateway.advertised_url.as_deref(),
            gateway.cors_origins.iter().map(String::as_str),
        ),
    }
}

/// The console as the gateway shows it: neither knows the other.
#[derive(Debug)]
struct ConsolePages(Console);

impl Pages for ConsolePages {
    fn has(&self, path: &str) -> bool {
        self.0.has(path)
    }

    fn page<'a>(&'a self, path: &'a str, query: Option<&'a str>) -> Making<'a> {
        Box::pin(self.0.answer(path, query))
    }
}
