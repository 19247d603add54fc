//! `gateway`: runs a gateway in front of a cluster until it is told to stop.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

use configuration::{Configuration, Sources};
use tracing::info;

use super::front;
use super::start::{EXIT_CODE_INTERRUPTED, Reporting, Signals, in_url, say};
use crate::arguments::Gateway;
use crate::failure::{Failure, on_output};
use crate::system;

/// Descriptors for what is not a connection that the gateway serves: those to the brokers, the 40 of clients that are one too many, the
/// runtime's, the standard ones.
const RESERVE: u64 = 104;

/// Runs until SIGTERM, SIGINT or SIGHUP; a second one does not wait for requests under way.
pub fn run(typed: &Gateway, report: Reporting) -> Result<ExitCode, Failure> {
    system::settle_allocator(system::gateway_allocator_settings());
    let unusable =
        |why: &dyn std::fmt::Display| Failure::new("the configuration cannot be used").detail(why);
    if let Some(pair) = typed.sets.iter().find(|pair| !is_of_a_gateway(&pair.key)) {
        let why = format!("--set {}: a gateway has no use for this key", pair.key);
        return Err(unusable(&why).hint(
            "set keys that begin with gateway. or console. here, and a broker's where the broker is started",
        ));
    }
    let loaded = Configuration::load(&sources(typed), true);
    let (configuration, warnings) = loaded.map_err(|invalid| {
        report.start(&Configuration::default());
        unusable(&invalid)
    })?;
    report.start(&configuration);
    warnings.iter().for_each(say);
    let gateway =
        configuration::Gateway::of(&configuration).map_err(|invalid| unusable(&invalid))?;
    let file = typed.connection.command_config.as_deref();
    let security = front::security(&gateway, file)?;
    let open_files = system::raise_open_files_limit();
    let room = open_files.map_or(usize::MAX, |files| files.saturating_sub(RESERVE).max(1) as usize);
    let Some(door) = front::door(&gateway)? else {
        return Err(Failure::new("the gateway cannot start")
            .detail("gateway.listener is empty")
            .hint("say where to listen, for example --listener 127.0.0.1:8082"));
    };
    let reach = front::reach(&typed.connection.bootstrap_server, security, file);
    let keys = front::keys(&gateway)?;
    let scheme = gateway.scheme();
    let settings = front::settings(&gateway, reach, door.address(), room, None, keys);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new("cannot start").detail(error))?;
    heap::return_unused_pages().map_err(|error| Failure::new("cannot start").detail(error))?;
    let code = runtime.block_on(serve(door, settings, &typed.connection.bootstrap_server, scheme));
    runtime.shutdown_background();
    code
}

/// Whether a key has a meaning without a broker: the gateway's, the console's, and how the program reports.
fn is_of_a_gateway(key: &str) -> bool {
    ["gateway.", "console."].iter().any(|area| key.starts_with(area))
        || ["log.level", "log.format"].contains(&key)
}

fn sources(typed: &Gateway) -> Sources {
    let mut sources = Sources::new().environment(std::env::vars_os());
    for pair in &typed.sets {
        sources = sources.set(&pair.key, &pair.value);
    }
    match &typed.listener {
        Some(listener) => sources.flag("--listener", "gateway.listener", listener),
        None => sources,
    }
}

async fn serve(
    door: ::gateway::Door,
    settings: ::gateway::Settings,
    bootstrap: &str,
    scheme: &str,
) -> Result<ExitCode, Failure> {
    let cannot_start = |error| Failure::new("the gateway cannot start").detail(error);
    let mut signals = Signals::listen().map_err(cannot_start)?;
    let gateway = ::gateway::open(door, settings);
    let text = announcement(scheme, gateway.address(), bootstrap);
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(on_output)?;
    signals.next().await;
    info!("stopping");
    tokio::select! {
        () = gateway.stop() => Ok(ExitCode::SUCCESS),
        () = signals.next() => Ok(ExitCode::from(EXIT_CODE_INTERRUPTED)),
    }
}

/// Where it is, and how to try it. Programs that start a gateway on port 0 read the address off the first line.
fn announcement(scheme: &str, address: SocketAddr, bootstrap: &str) -> String {
    let at = in_url(address);
    format!(
        "gateway: {scheme}://{at}\n\
         console: {scheme}://{at}/console\n\
         cluster: {bootstrap}\n\
         try: curl --data hello {scheme}://{at}/topics/greetings/raw\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_brokers_is_not_taken() {
        for key in ["gateway.threads", "console.write", "log.level"] {
            assert!(is_of_a_gateway(key), "{key}");
        }
        for key in ["durability", "listeners", "log.dirs", "gateway", "metrics.listener"] {
            assert!(!is_of_a_gateway(key), "{key}");
        }
    }

    #[test]
    fn the_announcement_says_where_the_gateway_is() {
        let text = announcement("http", "0.0.0.0:8082".parse().unwrap(), "broker:9092");
        assert_eq!(
            text,
            "gateway: http://localhost:8082\nconsole: http://localhost:8082/console\ncluster: broker:9092\n\
             try: curl --data hello http://localhost:8082/topics/greetings/raw\n"
        );
    }
}
