//! `test-broker`: a broker, or several, for the tests of another program, behind a proxy that injects faults by rule.
//!
//! The broker is the one of `start`: it knows of no fault. Clients reach it through the proxy of `highwater proxy` in this process.

mod capture;
mod folder;
mod forks;
mod several;
mod single;
mod topics;

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use ::proxy::{FaultInjector, Proxy, ProxyConfig};
use configuration::HostPort;
use serde_json::json;

use super::start::{Reporting, in_url};
use super::{fault_rules, proxy};
use crate::arguments::{Pair, TestBroker};
use crate::failure::{Failure, on_output};
use crate::parent::Parent;
use crate::system;

use capture::Capture;
use folder::Folder;
use forks::Forks;

/// Keys that this command decides.
const DECIDED: &[&str] = &[
    "listeners",
    "advertised.listeners",
    "log.dirs",
    "log.dir",
    "metadata.log.dir",
    "http.listener",
    "gateway.listener",
];
/// Settings of every test broker, before those of `--set`: fast, and quiet.
const DEFAULTS: &[(&str, &str)] = &[
    ("durability", "page-cache"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("http.listener", ""),
    ("gateway.listener", ""),
    ("log.level", "warn"),
];

/// Runs until SIGTERM, SIGINT or SIGHUP, until the parent ends, or until a pipe on standard input is closed.
pub fn run(typed: &TestBroker, report: Reporting) -> Result<ExitCode, Failure> {
    let parent = Parent::of_this_process();
    // Several brokers are processes that inherit the environment.
    system::remove_variables(is_removed).map_err(|error| cannot_start().detail(error))?;
    system::settle_allocator(system::allocator_settings());
    if let Some(pair) = typed.sets.iter().find(|pair| DECIDED.contains(&&*pair.key)) {
        return Err(Failure::new(format!("cannot set {}", pair.key))
            .detail("test-broker chooses the ports and the folder")
            .hint("leave the key out; --data-dir names a folder, and `highwater start` takes every key"));
    }
    system::raise_open_files_limit();
    let folder = Folder::take(typed.data_dir.as_deref())?;
    if let Some(snapshot) = &typed.fork_of
        && let Err(error) = copy_snapshot(snapshot, folder.path())
    {
        folder.remove();
        return Err(cannot_start()
            .detail(format!("cannot copy the snapshot {}: {error}", snapshot.display())));
    }
    let code = match typed.brokers {
        1 => single::run(typed, report, &folder, parent),
        _ => several::run(typed, report, &folder, parent),
    };
    folder.remove();
    code
}

/// Copies the files of a snapshot, which do not change, into an empty folder.
fn copy_snapshot(snapshot: &Path, folder: &Path) -> io::Result<()> {
    Capture::of(snapshot, Instant::now())?.write(folder)
}

/// Whether an environment variable would change the brokers: a configuration key, or the socket of a service manager.
fn is_removed(name: &str) -> bool {
    const SERVICE_MANAGER: &[&str] = &["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];
    configuration::is_configuration_variable(name) || SERVICE_MANAGER.contains(&name)
}

fn cannot_start() -> Failure {
    Failure::new("the test broker cannot start")
}

/// The settings of each broker: the defaults, those of `of_kind`, and those of `--set`, the last of which win.
fn settings(typed: &TestBroker, of_kind: &[(&str, &str)]) -> Vec<Pair> {
    let defaults = DEFAULTS.iter().chain(of_kind);
    let defaults = defaults
        .filter(|(key, _)| typed.sets.iter().all(|pair| pair.key != *key))
        .map(|(key, value)| Pair { key: (*key).to_owned(), value: (*value).to_owned() });
    defaults.chain(typed.sets.iter().cloned()).collect()
}

/// The proxy in front of the brokers, and the line about it.
struct Front {
    proxy: Proxy,
    line: String,
    /// `None` if there are several brokers.
    forks: Option<Arc<Forks>>,
}

impl Front {
    /// Creates the topics and opens the proxy and its HTTP port, both at free ports of this machine's own address.
    async fn open(
        typed: &TestBroker,
        brokers: &str,
        folder: &Path,
        faults: Arc<FaultInjector>,
        report: Reporting,
    ) -> Result<Front, Failure> {
        topics::create(typed, brokers).await?;
        let config = ProxyConfig {
            faults: Some(faults.clone()),
            can_pause: typed.brokers == 1,
            ..ProxyConfig::new(brokers)
        };
        let proxy = Proxy::start(config).await.map_err(|error| cannot_start().detail(error))?;
        let any = HostPort { host: Ipv4Addr::LOCALHOST.to_string(), port: 0 };
        let (door, http) = proxy::door(&any).await?;
        let settings = report.settings().into_iter();
        let settings = settings.map(|(key, value)| Pair { key: key.to_owned(), value });
        let forks = proxy
            .gate()
            .map(|gate| Arc::new(Forks::of(typed, settings.collect(), folder.to_owned(), gate)));
        let routes = fault_rules::routes(faults).merge(forks::routes(forks.clone()));
        proxy::show(door, &proxy, routes);
        let line = ready_line(typed, &proxy, http, folder);
        Ok(Front { proxy, line, forks })
    }
}

fn ready_line(typed: &TestBroker, proxy: &Proxy, http: SocketAddr, folder: &Path) -> String {
    let ready = json!({
        "bootstrap_servers": proxy.bootstrap(),
        "http": format!("http://{}", in_url(http)),
        // Relative to the folder of the test broker the path means nothing to its reader.
        "data_dir": std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()).display().to_string(),
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "brokers": typed.brokers,
    });
    format!("{ready}\n")
}

/// Writes the ready line.
fn announce(line: &str) -> Result<(), Failure> {
    let mut out = io::stdout();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(on_output)
}
