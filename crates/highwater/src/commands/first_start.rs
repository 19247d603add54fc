//! Ports of a first start, checked before it creates data directories.

use std::io;
use std::net::TcpListener;

use broker::StartError;
use configuration::{BrokerConfig, HostPort};

/// Finds a port of the broker that cannot be listened on, if no data directory exists yet: a refused first start leaves none.
///
/// The broker binds the ports itself, after it opened the directories. A port that another process takes meanwhile is reported
/// then.
///
/// # Errors
/// The address and the cause, as the broker reports them.
pub fn check_ports(config: &BrokerConfig) -> Result<(), StartError> {
    if config.log_dirs.iter().any(|dir| dir.exists()) {
        return Ok(());
    }
    for listener in &config.listeners {
        let address = format!("{}:{}", listener.bind.host, listener.bind.port);
        bind(&listener.bind).map_err(|source| StartError::Bind { address, source })?;
    }
    // Without a configured port the HTTP server takes any free port.
    let named = config.http.bind.iter().filter(|_| config.http.is_named);
    for at in named.chain(&config.http.metrics) {
        let address = format!("{}:{}", at.host, at.port);
        bind(at).map_err(|source| StartError::BindHttp { address, source })?;
    }
    Ok(())
}

/// Listens and stops again. Only a taken port is an error: the broker reports the others.
fn bind(at: &HostPort) -> io::Result<()> {
    let host = match at.host.trim_start_matches('[').trim_end_matches(']') {
        "" => "::",
        host => host,
    };
    match TcpListener::bind((host, at.port)) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        _ => Ok(()),
    }
}
