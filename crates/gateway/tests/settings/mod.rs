//! Settings of gateways in tests, for each test program.

use std::sync::Arc;
use std::time::Duration;

use client::ClusterConfig;
use gateway::{Access, Door, EventSettings, Gateway, InstanceSettings, Settings};
use serving::visitors::Doorkeeper;

/// Time limit of each wait, for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Settings of a gateway that nothing limits, in front of the brokers behind this address.
pub fn settings(bootstrap: &str) -> Settings {
    let mut cluster = ClusterConfig::new(bootstrap);
    cluster.call_timeout = Duration::from_secs(5);
    Settings {
        cluster,
        threads: Some(2),
        memory_bytes: 64 << 20,
        connections_max: 1000,
        connections_per_address_max: 1000,
        request_bytes_max: 1 << 20,
        head_timeout: PATIENCE,
        body_timeout: PATIENCE,
        write_timeout: gateway::WRITE_TIMEOUT,
        drain: PATIENCE,
        events: EventSettings::default(),
        instances: InstanceSettings::default(),
        partitioners: Arc::default(),
        access: Access::Everything,
        users_file: None,
        key: None,
        tls: None,
        is_secure: false,
        proxies: serving::forwarded::TrustedProxies::default(),
        doorkeeper: Doorkeeper::default(),
        pages: None,
    }
}

/// A gateway on a free port.
pub fn open(settings: Settings) -> Gateway {
    gateway::open(Door::bind("127.0.0.1", 0, false).unwrap(), settings)
}
