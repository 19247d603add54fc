//! Connections that are protected, against a broker that the tests play: real TLS by rustls on its other side, a login as
//! RFC 5802 has it on the broker's side, and brokers that lie. Real brokers are asked by `cargo xt clients`.

mod broker;
mod certificates;
mod login;
mod sasl;
mod tls;

use client::{ConnectionConfig, Security};
use std::time::Duration;

/// A connection's configuration out of keys and values.
fn config(pairs: &[(&str, &str)]) -> ConnectionConfig {
    let value = |key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
    ConnectionConfig {
        connect_timeout: Duration::from_secs(30),
        request_timeout: Duration::from_secs(30),
        security: Security::read(value).unwrap(),
        ..ConnectionConfig::default()
    }
}
