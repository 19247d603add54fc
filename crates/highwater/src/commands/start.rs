//! `start`: runs a broker until it is told to stop, and says on standard output what runs where.

use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use broker::{BrokerFailure, RunningBroker, StartError};
use clap::ValueEnum;
use client::Security;
use configuration::{BrokerConfig, Configuration, Warning};
use gateway::{Door, Gateway};
use storage::log_dir::LockError;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use crate::arguments::Program;
use crate::arguments::Start;
use crate::blocked_signals::BlockedSignals;
use crate::commands::front::Keys;
use crate::commands::{container, first_start, front, sources, stopped_folder};
use crate::failure::{Failure, on_output};
use crate::service_manager::ServiceManager;
use crate::{logging, parent, system};

/// What a shell expects of a program that a second Ctrl-C has ended.
pub const EXIT_CODE_INTERRUPTED: u8 = 130;

/// Runs until SIGTERM, SIGINT or SIGHUP; a second one does not wait for an orderly end. Not so as the child of
/// another process: Ctrl-C at a terminal goes to both, so the second one is that process's word for the first,
/// and it kills a child that is not to be waited for.
pub fn run(typed: &Start, report: Reporting) -> Result<ExitCode, Failure> {
    if let Some(parent) = typed.child_of {
        system::end_with(parent).map_err(|error| Failure::new("cannot start").detail(error))?;
    }
    system::settle_allocator(system::allocator_settings());
    let mut loaded =
        sources::load(&typed.sources).inspect_err(|_| report.start(&Configuration::default()))?;
    let ignored = loaded.configuration.ignore_dynamic(&typed.ignore_dynamic);
    ignored.map_err(|cause| Failure::new("cannot start").detail(cause).hint(
        "--ignore-dynamic takes a key that highwater config get --brokers shows with a dynamic value",
    ))?;
    report.start(&loaded.configuration);
    let finished = loaded.finish();
    let (config, warnings) =
        finished.map_err(|invalid| sources::unusable(&invalid, typed.sources.file.as_deref()))?;
    warnings.iter().for_each(say);
    let open_files = system::raise_open_files_limit();
    info!(open_files_max = open_files, "limit of open files");
    // The broker brings the threads of its data path; here only signals are waited for.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new("cannot start").detail(error))?;
    // Before anything else listens: a signal that another one takes is none that ends the program any more.
    let listening = runtime.block_on(async { Signals::listen() });
    let signals = listening.map_err(|error| Failure::new("cannot start").detail(error))?;
    let hasty = typed.child_of.is_none();
    if hasty {
        end_at_second_signal();
    }
    let code = runtime.block_on(serve(config, signals, typed));
    // What a start that was given up still does on other threads is not waited for: a broker that
    // ends in the middle of a recovery begins it again at the next start.
    runtime.shutdown_background();
    code
}

/// Ends the process at the second signal, whatever the first one waits for: a start that recovers
/// may not look at signals for a long time. The first one from now on is seen, too.
fn end_at_second_signal() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return };
    let Ok(mut signals) = runtime.block_on(async { Signals::listen() }) else { return };
    std::thread::spawn(move || {
        runtime.block_on(async move {
            signals.next().await;
            signals.next().await;
            std::process::exit(i32::from(EXIT_CODE_INTERRUPTED));
        });
    });
}

/// How to report: flags win over keys.
#[derive(Debug, Clone, Copy)]
pub struct Reporting {
    form: Option<logging::Form>,
    level: Option<logging::Level>,
}

impl Reporting {
    /// As typed.
    pub fn typed(program: &Program) -> Reporting {
        Reporting { form: program.log_format, level: program.log_level }
    }

    /// As keys of a broker's configuration, with their values.
    pub fn settings(self) -> Vec<(&'static str, String)> {
        let form = self.form.map(|form| ("log.format", name_of(form)));
        let level = self.level.map(|level| ("log.level", name_of(level)));
        form.into_iter().chain(level).collect()
    }

    /// Begins to report, as typed or as the configuration says.
    pub fn start(self, configuration: &Configuration) {
        let form = match configuration.value("log.format") {
            Some("json") => logging::Form::Json,
            _ => logging::Form::Text,
        };
        let level = match configuration.value("log.level") {
            Some("error") => logging::Level::Error,
            Some("warn") => logging::Level::Warn,
            Some("debug") => logging::Level::Debug,
            Some("trace") => logging::Level::Trace,
            _ => logging::Level::Info,
        };
        logging::start(self.form.unwrap_or(form), self.level.unwrap_or(level));
    }
}

/// As it is typed.
fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Tells an operator.
pub fn say(warning: &Warning) {
    match warning {
        // A file of Kafka's has many of these: they are good to know and surprise nobody.
        Warning::WithoutEffect { .. } => info!("{warning}"),
        _ => warn!("{warning}"),
    }
}

/// A second signal does not wait for an orderly end, unless another process started this one.
async fn serve(
    config: BrokerConfig,
    mut signals: Signals,
    typed: &Start,
) -> Result<ExitCode, Failure> {
    let hasty = typed.child_of.is_none();
    let cannot_start = || Failure::new("the broker cannot start");
    if config.gateway.client.get("security.protocol").is_some_and(|said| said != "PLAINTEXT") {
        let detail = "gateway.client.security.protocol: the gateway beside a broker reaches that broker, whose listener \
                      has neither TLS nor logins";
        return Err(cannot_start().detail(detail).hint(
            "remove the key, or run a gateway alone: highwater gateway --bootstrap-server HOST:PORT",
        ));
    }
    // Before the broker, which would have to be stopped again if the gateway's port is taken.
    let door = front::door(&config.gateway).map_err(|failure| {
        // A broker that runs on this folder most likely has the port, too: that is the cause, and another port no remedy.
        let used = config.log_dirs.iter().find(|dir| stopped_folder::is_live(dir));
        used.map_or(failure, |dir| cannot_start().detail(LockError::Held(dir.clone())))
    })?;
    first_start::check_ports(&config).map_err(|error| not_started(&error))?;
    let keys = if door.is_some() { front::keys(&config.gateway)? } else { Keys::default() };
    let manager = ServiceManager::from_environment();
    let starting = broker::start(config.clone());
    let broker = tokio::select! {
        never = report_start(manager.as_deref()) => match never {},
        started = starting => match started {
            Err(error) if error.starts_again() => return Err(start_again()),
            started => started.map_err(|error| not_started(&error))?,
        },
        () = signals.next() => return Ok(ExitCode::from(EXIT_CODE_INTERRUPTED)),
    };
    broker.set_log_levels(Arc::new(logging::Loggers));
    let gateway = door.map(|door| beside(&broker, &config, door, keys));
    let at = gateway.as_ref().map(Gateway::address);
    let mut text = announcement(&config, &broker.listeners(), broker.http(), at);
    if typed.sources.container.is_some() {
        text += &container::ready_lines(config.node_id);
    }
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(on_output)?;
    let reports = match &manager {
        Some(manager) => {
            let address = broker.listeners().first().copied().map(in_url).unwrap_or_default();
            let reports = manager.report_service(address, broker.health_source());
            Some(reports.map_err(|error| cannot_start().detail(error))?)
        }
        None => None,
    };
    let failed = tokio::select! {
        () = signals.next() => None,
        cause = broker.failed() => Some(cause),
    };
    match failed {
        Some(BrokerFailure::OlderCopy) => return Err(start_again()),
        Some(BrokerFailure::Ended(cause)) => {
            return Err(Failure::new("the broker cannot go on").detail(cause));
        }
        None => {}
    }
    info!("stopping");
    drop(reports);
    manager.iter().for_each(|manager| manager.report_stop());
    let stopping = async {
        // Requests under way end with the broker still there.
        if let Some(gateway) = gateway {
            gateway.stop().await;
        }
        broker.stop().await;
    };
    tokio::select! {
        () = stopping => Ok(ExitCode::SUCCESS),
        () = signals.next(), if hasty => Ok(ExitCode::from(EXIT_CODE_INTERRUPTED)),
    }
}

/// Reports a start to the service manager, if there is one, until the caller drops this.
async fn report_start(manager: Option<&ServiceManager>) -> Infallible {
    match manager {
        Some(manager) => manager.report_start().await,
        None => std::future::pending().await,
    }
}

/// Replaces this process by another start of the program, with the same arguments: the metadata folder of this node was an
/// older copy and is put aside. Returns if that fails.
fn start_again() -> Failure {
    info!("starting again, without the metadata folder");
    logging::finish();
    let mut arguments = std::env::args_os();
    let typed = arguments.next().unwrap_or_default();
    let program = std::env::current_exe().unwrap_or_else(|_| typed.into());
    let cause = Command::new(program).args(arguments).exec();
    Failure::new("the broker cannot go on")
        .detail(format!(
            "its metadata folder is put aside, and the program cannot start itself again: {cause}"
        ))
        .hint("start the broker again: it joins with an empty metadata folder")
}

/// Opens the gateway beside a broker: it reaches this broker where that listens, and the others as brokers reach each
/// other. What clients are told may not lead anywhere from inside a container.
fn beside(broker: &RunningBroker, config: &BrokerConfig, door: Door, keys: Keys) -> Gateway {
    let at = in_url(broker.inter_broker());
    let mut reach = front::reach(&at, Security::default(), None);
    reach.cluster.addresses.insert(config.node_id.0, at);
    let (address, connections) = (door.address(), broker.gateway_connections());
    let log_dir = config.log_dirs.first().map(|dir| &**dir);
    let settings = front::settings(&config.gateway, reach, address, connections, log_dir, keys);
    let gateway = gateway::open(door, settings);
    broker.show(gateway.metrics());
    gateway
}

fn not_started(error: &StartError) -> Failure {
    let failure = Failure::new("the broker cannot start").detail(error);
    match error {
        StartError::Bind { .. } => failure.hint(
            "stop what listens there, or choose another port: --set listeners=PLAINTEXT://:9192",
        ),
        StartError::BindHttp { .. } => failure.hint(
            "choose another port by --set http.listener=127.0.0.1:8081, or go without metrics and health by \
             --set http.listener=",
        ),
        _ => failure,
    }
}

/// The signals that ask the program to end. A terminal that is closed sends the last.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    /// Signals from outside so far.
    request_count: u32,
}

impl Signals {
    /// Listens from now on; without this they end the program at once.
    pub fn listen() -> std::io::Result<Signals> {
        let _blocked = BlockedSignals::begin();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let hang_up = signal(SignalKind::hangup())?;
        Ok(Signals { terminate, interrupt, hang_up, request_count: 0 })
    }

    /// Waits for one of them.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => self.request_count += 1,
            _ = self.interrupt.recv() => self.request_count += 1,
            _ = self.hang_up.recv() => self.count_hang_up(),
        }
    }

    /// Waits for the second signal from outside. The end of the parent is none: Ctrl-C ends the programs of a terminal, and their
    /// ends close pipes of others.
    pub async fn second_request(&mut self) {
        while self.request_count < 2 {
            self.next().await;
        }
    }

    fn count_hang_up(&mut self) {
        if !parent::has_ended() {
            self.request_count += 1;
        }
    }
}

/// What runs where, and how to try it. Programs that start a broker on port 0 read the addresses
/// off these lines.
fn announcement(
    config: &BrokerConfig,
    listeners: &[SocketAddr],
    http: Option<SocketAddr>,
    gateway: Option<SocketAddr>,
) -> String {
    let is_gateway_local = gateway.is_some_and(|at| at.ip().is_loopback());
    let version = env!("CARGO_PKG_VERSION");
    let dirs: Vec<String> = config.log_dirs.iter().map(|dir| dir.display().to_string()).collect();
    let mut lines = vec![
        format!("highwater {version}: node {}", config.node_id),
        format!("data: {}, durability={}", dirs.join(", "), config.durability.name()),
    ];
    lines.extend(listeners.iter().map(|at| format!("broker: listening on {at}")));
    lines.extend(http.map(|at| {
        let at = in_url(at);
        format!("http: http://{at}/metrics http://{at}/public_metrics http://{at}/healthz")
    }));
    let gateway = gateway.map(|at| format!("{}://{}", config.gateway.scheme(), in_url(at)));
    lines.extend(gateway.iter().map(|url| format!("gateway: {url}")));
    lines.extend(gateway.iter().map(|url| format!("console: {url}/console")));
    if let Some(at) = listeners.first().copied().map(in_url) {
        // Each line works before the others: consumers of librdkafka create no topic unless they are configured to.
        let creates = match config.topics.auto_create {
            true => " -X allow.auto.create.topics=true",
            false => {
                lines.push(format!("try: highwater topic create greetings -b {at}"));
                ""
            }
        };
        lines.push(format!("try: echo hello | highwater produce greetings -b {at}"));
        lines.push(format!("     kcat -b {at} -t greetings -C -e{creates}"));
    }
    // A gateway for other machines serves nothing without a login.
    lines.extend(
        gateway
            .iter()
            .filter(|_| is_gateway_local)
            .map(|url| format!("     curl --data hello {url}/topics/greetings/raw")),
    );
    lines.join("\n") + "\n"
}

/// The address as this machine reaches it: what is bound to all interfaces is at localhost.
pub fn in_url(at: SocketAddr) -> String {
    if at.ip().is_unspecified() { format!("localhost:{}", at.port()) } else { at.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announcement_says_what_runs_where_and_how_to_try_it() {
        let config = BrokerConfig::from_pairs([("log.dirs", "data"), ("node.id", "7")]).unwrap();
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let http = Some(at("127.0.0.1:8080"));
        let gateway = Some(at("127.0.0.1:8082"));
        let text = announcement(&config, &[at("0.0.0.0:9092"), at("[::1]:9093")], http, gateway);
        let expected = format!(
            "highwater {}: node 7\n\
             data: data, durability=fsync\n\
             broker: listening on 0.0.0.0:9092\n\
             broker: listening on [::1]:9093\n\
             http: http://127.0.0.1:8080/metrics http://127.0.0.1:8080/public_metrics \
             http://127.0.0.1:8080/healthz\n\
             gateway: http://127.0.0.1:8082\n\
             console: http://127.0.0.1:8082/console\n\
             try: echo hello | highwater produce greetings -b localhost:9092\n     \
             kcat -b localhost:9092 -t greetings -C -e -X allow.auto.create.topics=true\n     \
             curl --data hello http://127.0.0.1:8082/topics/greetings/raw\n",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(text, expected);
    }
}
