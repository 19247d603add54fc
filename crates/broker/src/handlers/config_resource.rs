//! Resources as the configuration APIs number and name them.

use ::metadata::ConfigResource;
use model::{BrokerId, ErrorCode};

const TOPIC: i8 = 2;
/// A broker, or all of them.
pub const BROKER: i8 = 4;
/// Not kept in the metadata: see `broker_loggers.rs`.
pub const BROKER_LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

/// A resource, or why it is none.
pub fn parse(kind: i8, name: &str) -> Result<ConfigResource, (ErrorCode, String)> {
    match kind {
        TOPIC => Ok(ConfigResource::Topic(name.to_owned())),
        BROKER if name.is_empty() => Ok(ConfigResource::ClusterDefault),
        BROKER => name.parse().map(|id| ConfigResource::Broker(BrokerId(id))).map_err(|_| {
            (
                ErrorCode::InvalidRequest,
                format!("{name:?} is no broker id: a number, or nothing for all brokers"),
            )
        }),
        GROUP => Ok(ConfigResource::Group(name.to_owned())),
        CLIENT_METRICS => Ok(ConfigResource::ClientMetrics(name.to_owned())),
        BROKER_LOGGER => Err((
            ErrorCode::InvalidRequest,
            "log levels are changed by IncrementalAlterConfigs only".to_owned(),
        )),
        _ => Err((ErrorCode::InvalidRequest, format!("no kind of resource has number {kind}"))),
    }
}

/// A resource by its parsed name: two spellings of one resource are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKey<'a> {
    /// A broker id. As Kafka does, the broker accepts "1", "+1" and "01" for broker 1.
    Broker {
        kind: i8,
        id: i32,
    },
    Name {
        kind: i8,
        name: &'a str,
    },
}

impl ResourceKey<'_> {
    /// The key of a named resource.
    pub fn new(kind: i8, name: &str) -> ResourceKey<'_> {
        let id = match kind {
            BROKER | BROKER_LOGGER => name.parse().ok(),
            _ => None,
        };
        match id {
            Some(id) => ResourceKey::Broker { kind, id },
            None => ResourceKey::Name { kind, name },
        }
    }

    /// The number of its kind.
    pub fn kind(&self) -> i8 {
        match self {
            ResourceKey::Broker { kind, .. } | ResourceKey::Name { kind, .. } => *kind,
        }
    }

    /// Its name without signs and leading zeros of a broker id.
    pub fn name(&self) -> String {
        match self {
            ResourceKey::Broker { id, .. } => id.to_string(),
            ResourceKey::Name { name, .. } => (*name).to_owned(),
        }
    }
}

/// The number of its kind.
pub fn kind(resource: &ConfigResource) -> i8 {
    match resource {
        ConfigResource::Topic(_) => TOPIC,
        ConfigResource::Broker(_) | ConfigResource::ClusterDefault => BROKER,
        ConfigResource::Group(_) => GROUP,
        ConfigResource::ClientMetrics(_) => CLIENT_METRICS,
    }
}

/// Its name on the wire.
pub fn name(resource: &ConfigResource) -> String {
    match resource {
        ConfigResource::Topic(name)
        | ConfigResource::Group(name)
        | ConfigResource::ClientMetrics(name) => name.clone(),
        ConfigResource::Broker(id) => id.to_string(),
        ConfigResource::ClusterDefault => String::new(),
    }
}
