//! `proxy`: runs a proxy of Kafka's protocol in front of a cluster until it is told to stop.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ::proxy::{ProxyConfig, ProxyError};
use broker::telemetry;
use configuration::{Configuration, HostPort};
use metrics::Sources;
use tokio::net::{TcpListener, TcpStream};
use tracing::{error, info, warn};

use super::fault_rules;
use super::start::{EXIT_CODE_INTERRUPTED, Reporting, Signals, in_url};
use crate::arguments::Proxy;
use crate::failure::{Failure, on_output};
use crate::system;

/// Descriptors for what is not a carried connection: listeners, the runtime's, the standard ones.
const RESERVE: u64 = 64;
/// Descriptors of a carried connection: the client's and the broker's.
const DESCRIPTORS: u64 = 2;
/// Tasks that a thread polls between two looks at the sockets while it always has tasks. One may take a millisecond.
const EVENT_INTERVAL: u32 = 8;
/// Bytes of a MiB.
const MIB: usize = 1 << 20;
/// How long a broker may take to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// How often the cluster is asked which brokers there are.
const ASKS_EVERY: Duration = Duration::from_secs(10);
/// Connections at a time to the port of metrics and health.
const METRICS_CONNECTIONS_MAX: usize = 16;
/// How long a stop waits for answers that are under way.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Runs until SIGTERM, SIGINT or SIGHUP; a second one does not wait for answers under way.
pub fn run(typed: &Proxy, report: Reporting) -> Result<ExitCode, Failure> {
    report.start(&Configuration::default());
    let open_files = system::raise_open_files_limit();
    let faults = fault_rules::injector(&typed.faults, None)?;
    let config = ProxyConfig { faults, ..config(typed, open_files)? };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .event_interval(EVENT_INTERVAL)
        .enable_all()
        .build()
        .map_err(|error| cannot_start().detail(error))?;
    heap::return_unused_pages().map_err(|error| cannot_start().detail(error))?;
    let code = runtime.block_on(serve(config, typed));
    runtime.shutdown_background();
    code
}

fn cannot_start() -> Failure {
    Failure::new("the proxy cannot start")
}

/// What the proxy is told. `open_files`: how many descriptors this process may have, if that is known.
fn config(typed: &Proxy, open_files: Option<u64>) -> Result<ProxyConfig, Failure> {
    let listen = &typed.listen;
    if listen.is_wildcard() && typed.advertised_host.is_none() {
        return Err(cannot_start()
            .detail(format!(
                "{listen} stands for all interfaces, and clients must be told one host"
            ))
            .hint("name it: --advertised-host kafka.example.org"));
    }
    let listen_host = if listen.host.is_empty() { "0.0.0.0" } else { &listen.host };
    let room = open_files.map(|files| (files.saturating_sub(RESERVE) / DESCRIPTORS).max(1));
    let wanted = typed.connections_max.map(u64::from).or(room);
    let known = ProxyConfig::new(&typed.bootstrap_server);
    Ok(ProxyConfig {
        listen_host: listen_host.to_owned(),
        advertised_host: typed.advertised_host.clone(),
        bootstrap_port: listen.port,
        node_start_port: listen.port.checked_add(1).filter(|_| listen.port > 0),
        connect_timeout: CONNECT_MAX,
        memory_bytes_max: typed.memory_max as usize * MIB,
        connections_max: wanted.map_or(known.connections_max, |count| count as usize),
        asks_every: Some(ASKS_EVERY),
        ..known
    })
}

async fn serve(config: ProxyConfig, typed: &Proxy) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen().map_err(|error| cannot_start().detail(error))?;
    // Before the proxy, so that nobody is served if the port is taken.
    let door = match &typed.metrics_listener {
        Some(at) => Some(door(at).await?),
        None => None,
    };
    let faults = config.faults.clone();
    let proxy = ::proxy::Proxy::start(config).await.map_err(|error| not_started(&error))?;
    let shown = door.as_ref().map(|(_, address)| *address);
    if let Some((door, _)) = door {
        show(door, &proxy, faults.map(fault_rules::routes).unwrap_or_default());
    }
    let text = announcement(proxy.bootstrap(), &typed.bootstrap_server, shown);
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(on_output)?;
    tokio::spawn(warn_of_unreachable(typed.bootstrap_server.clone()));
    signals.next().await;
    info!("stopping");
    tokio::select! {
        () = proxy.drain(DRAIN_MAX) => Ok(ExitCode::SUCCESS),
        () = signals.next() => Ok(ExitCode::from(EXIT_CODE_INTERRUPTED)),
    }
}

/// Reports a bootstrap server that does not accept connections, once: the proxy itself reports nothing until a client
/// connects.
async fn warn_of_unreachable(bootstrap_server: String) {
    for address in bootstrap_server.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        let connecting = tokio::time::timeout(CONNECT_MAX, TcpStream::connect(address)).await;
        if let Err(cause) = connecting.unwrap_or_else(|late| Err(late.into())) {
            warn!(
                "cannot connect to bootstrap server {address}: {cause}; check -b, or start that broker"
            );
        }
    }
}

/// The socket of metrics and health, and where it is.
pub async fn door(at: &HostPort) -> Result<(telemetry::Door, SocketAddr), Failure> {
    let failed = |error| {
        cannot_start()
            .detail(format!("cannot listen on {at} for metrics: {error}"))
            .hint("choose another place, for example --metrics-listener 127.0.0.1:9404")
    };
    let host = if at.host.is_empty() { "0.0.0.0" } else { &at.host };
    let listener = TcpListener::bind((host, at.port)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((telemetry::Door::new(listener, METRICS_CONNECTIONS_MAX), address))
}

/// Serves the metrics of a proxy, and further routes, for as long as the process lives.
pub fn show(door: telemetry::Door, proxy: &::proxy::Proxy, further: axum::Router) {
    let sources = Sources::default();
    sources.add(proxy.counters());
    sources.add(Arc::new(proxy.memory()));
    sources.add(Arc::new(::proxy::OfProcess));
    tokio::spawn(async move {
        let stop = std::future::pending();
        if let Err(cause) =
            telemetry::serve_only_metrics(door, Arc::new(sources), further, stop).await
        {
            error!(%cause, "metrics and health are not served any more");
        }
    });
}

fn not_started(error: &ProxyError) -> Failure {
    match error {
        ProxyError::Listen { source, .. } => cannot_start()
            .detail(format!("{error}: {source}"))
            .hint("choose another place, for example --listen 127.0.0.1:9292"),
        ProxyError::Usage(_) => cannot_start().detail(error),
    }
}

/// Where it is. Programs that start a proxy on port 0 read the address off the first line.
fn announcement(bootstrap: &str, brokers: &str, metrics: Option<SocketAddr>) -> String {
    let metrics = metrics.map_or(String::new(), |at| {
        let at = in_url(at);
        format!("http: http://{at}/metrics http://{at}/healthz\n")
    });
    format!("proxy: {bootstrap}\ncluster: {brokers}\n{metrics}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Command, Program};
    use clap::Parser;

    fn typed(line: &str) -> Proxy {
        let arguments = ["highwater", "proxy"].into_iter().chain(line.split_whitespace());
        let Command::Proxy(typed) = Program::try_parse_from(arguments).unwrap().command else {
            panic!("another command")
        };
        typed
    }

    #[test]
    fn brokers_have_the_ports_above_the_first_or_free_ones() {
        let fixed = config(&typed("-b a:1,b:2 --listen 127.0.0.1:9192"), None).unwrap();
        assert_eq!((fixed.bootstrap_port, fixed.node_start_port), (9192, Some(9193)));
        assert_eq!(fixed.upstream, ["a:1", "b:2"]);
        let free = config(&typed("-b a:1 --listen 127.0.0.1:0"), None).unwrap();
        assert_eq!((free.bootstrap_port, free.node_start_port), (0, None));
        assert!(free.shape.is_plain() && free.faults.is_none());
    }

    #[test]
    fn connections_are_limited_by_what_was_typed_or_by_descriptors() {
        let limit = |line: &str, files| config(&typed(line), files).unwrap().connections_max;
        assert_eq!(limit("-b a:1", Some(1064)), 500);
        assert_eq!(limit("-b a:1", Some(3)), 1);
        assert_eq!(limit("-b a:1 --connections-max 7", Some(1064)), 7);
        let memory = |line: &str| config(&typed(line), None).unwrap().memory_bytes_max;
        assert_eq!(memory("-b a:1"), 256 << 20);
        assert_eq!(memory("-b a:1 --memory-max 16"), 16 << 20);
    }

    #[test]
    fn all_interfaces_need_a_host_that_clients_are_told() {
        for listen in [":9192", "0.0.0.0:9192", "[::]:9192"] {
            let line = format!("-b a:1 --listen {listen}");
            assert!(config(&typed(&line), None).is_err(), "{listen}");
            let named = config(&typed(&(line + " --advertised-host kafka")), None).unwrap();
            assert_eq!(named.advertised_host.as_deref(), Some("kafka"));
        }
    }
}
