//! `cluster up`: a cluster of several brokers on this machine, each a process of its own, in one command.
//!
//! Not a way to run a cluster in earnest: nothing is started when the machine is, and all brokers share one disk.
//! What is decided once is in `plan`, where it is kept in `folder`, the processes are in `brokers`.

mod announcement;
mod brokers;
mod folder;
mod gateways;
mod plan;
mod readiness;
mod shell;
mod wished;

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Interval, interval_at};

use crate::arguments::{ClusterUp, Pair};
use crate::commands::cluster_id::random_id;
use crate::commands::start::{EXIT_CODE_INTERRUPTED, Reporting, Signals};
use crate::failure::{Failure, on_output};

use announcement::{Shown, announcement};
use brokers::{Brokers, Ended, is_orderly};
use folder::Folder;
pub use folder::LOCK as FOLDER_LOCK;
pub use plan::Node;
use plan::Plan;
use readiness::Starting;
use wished::Wished;

/// How often ports are chosen for a new cluster, until nobody else takes one between choice and use.
const CHOICES_MAX: u32 = 5;
/// When it is said what is waited for, for the first time and again.
const QUIET_MAX: Duration = Duration::from_secs(1);
const QUIET_AGAIN: Duration = Duration::from_secs(10);

/// Runs until SIGTERM, SIGINT or SIGHUP, which stop all brokers in an orderly way; a second one kills them.
pub fn run(typed: &ClusterUp, reporting: Reporting) -> Result<ExitCode, Failure> {
    if let Some(pair) = plan::contradiction(&typed.sets) {
        return Err(Failure::new(format!("{} cannot be set for all brokers", pair.key))
            .detail("each broker has a value of its own, which this command chooses")
            .hint("its folder has the configuration of each broker: broker-1/server.properties"));
    }
    let mut settings = typed.sets.clone();
    let reports = reporting.settings().into_iter();
    settings.extend(reports.map(|(key, value)| Pair { key: key.to_owned(), value }));
    run_for(typed, settings, &mut Announcer)
}

/// Presentation of a cluster that serves.
pub trait Presenter {
    /// Called when signals are waited for, before a broker is started.
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Returns the text for standard output.
    async fn present(&mut self, cluster: &RunningCluster<'_>) -> Result<String, Failure>;

    /// Takes note of the process of a broker that was started again.
    fn note_start(&mut self, _node: &Node, _pid: u32) {}
}

/// A cluster whose brokers serve.
pub struct RunningCluster<'a> {
    plan: &'a Plan,
    folder: &'a Folder,
    wished: &'a Wished,
    brokers: &'a Brokers,
    urls: &'a [String],
}

impl RunningCluster<'_> {
    /// Brokers that run, with their processes.
    pub fn processes(&self) -> impl Iterator<Item = (&Node, u32)> {
        self.brokers.running().filter_map(|broker| Some((&broker.node, broker.pid()?)))
    }
}

/// Presents a cluster to a person.
struct Announcer;

impl Presenter for Announcer {
    async fn present(&mut self, cluster: &RunningCluster<'_>) -> Result<String, Failure> {
        let RunningCluster { plan, folder, wished, brokers, urls } = cluster;
        Ok(announced(plan, folder, wished, brokers, urls))
    }
}

/// As [`run`], with settings of all brokers and a presentation of its own.
pub fn run_for(
    typed: &ClusterUp,
    settings: Vec<Pair>,
    presenter: &mut impl Presenter,
) -> Result<ExitCode, Failure> {
    let wished = Wished::of(settings, typed.brokers)?;
    let folder = Folder::take(&typed.data_dir)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| cannot_start().detail(error))?;
    // On this thread, which ends last: the system kills children when the thread that started them ends.
    runtime.block_on(up(typed, &folder, &wished, presenter))
}

fn cannot_start() -> Failure {
    Failure::new("the cluster cannot start")
}

/// Brings the cluster up, a new one on other ports if somebody took one of them, and looks after it to its end.
async fn up(
    typed: &ClusterUp,
    folder: &Folder,
    wished: &Wished,
    presenter: &mut impl Presenter,
) -> Result<ExitCode, Failure> {
    let mut watch = Watch::begin().map_err(|error| cannot_start().detail(error))?;
    presenter.begin().map_err(|error| cannot_start().detail(error))?;
    let wanted = usize::from(typed.brokers);
    let (mut plan, is_new) = planned(folder, wanted, wished)?;
    let mut choices = 1;
    loop {
        let urls = wished.check(&plan, folder)?;
        wished.write(&plan, folder).map_err(|error| {
            Failure::new(format!("cannot write to {}", folder.path())).detail(error)
        })?;
        let brokers = Brokers::of(&plan, folder, typed.restart);
        let mut brokers = brokers.map_err(|error| cannot_start().detail(error))?;
        let came = bring_up(&mut brokers, folder, &mut watch).await;
        let Err(cause) = came else {
            let cluster =
                RunningCluster { plan: &plan, folder, wished, brokers: &brokers, urls: &urls };
            return match presenter.present(&cluster).await {
                Ok(text) => serve(&text, folder, &mut brokers, &mut watch, presenter).await,
                Err(failure) => {
                    stop(&mut brokers, &mut watch).await?;
                    Err(failure)
                }
            };
        };
        let again = is_new && choices < CHOICES_MAX && cause.is_by_port(&plan);
        let failure = cause.failure(&brokers);
        let stopped = stop(&mut brokers, &mut watch).await;
        if !again {
            return failure.map_or(Ok(ExitCode::from(EXIT_CODE_INTERRUPTED)), Err);
        }
        stopped?;
        // Nobody has been told of this cluster, and its folders were made a moment ago.
        let removed = folder.remove(&plan.brokers);
        removed.map_err(|error| cannot_start().detail(error))?;
        plan = Plan::new(plan.cluster_id, wanted, &free_ports(wanted, wished)?);
        choices += 1;
    }
}

/// The folder's plan, for as many brokers as are wanted; and whether it is new.
fn planned(folder: &Folder, wanted: usize, wished: &Wished) -> Result<(Plan, bool), Failure> {
    let ports = || free_ports(wanted, wished);
    let Some(plan) = folder.plan()? else {
        let random = random_id().map_err(|error| cannot_start().detail(error))?;
        let plan = Plan::new(random, wanted, &ports()?);
        let Some(node) = folder.inhabited(&plan.brokers) else { return Ok((plan, true)) };
        let hint = "put its cluster.json back, or name another folder by --data-dir";
        let (path, name) = (folder.path(), node.folder());
        return Err(
            Failure::new(format!("{path} has a folder {name} and no plan of a cluster")).hint(hint)
        );
    };
    let there = plan.brokers.len();
    let ports = if plan.needs_ports(wanted) { ports()? } else { Vec::new() };
    plan.grown(wanted, &ports).map(|plan| (plan, false)).map_err(|refused| {
        let (path, there) = (folder.path(), there.to_string());
        let as_it_is = shell::command(&["highwater", "cluster", "up", &there, "--data-dir", path]);
        Failure::new(format!("the cluster in {path} cannot have {wanted} brokers"))
            .detail(refused)
            .hint(format!(
                "`{as_it_is}` starts it as it is; for another cluster name another folder"
            ))
    })
}

/// Different ports that are free now, as many as so many brokers need. They are not held until brokers have them.
fn free_ports(brokers: usize, wished: &Wished) -> Result<Vec<u16>, Failure> {
    let mut ports = BTreeSet::new();
    while ports.len() < plan::ports_max(brokers) {
        let port = peer::highwater::free_port();
        let port = port.map_err(|error| Failure::new("no port is free").detail(error))?;
        if !wished.gateways.names(port, brokers) {
            ports.insert(port);
        }
    }
    Ok(ports.into_iter().collect())
}

/// Tells whoever looks, if anybody does: the brokers go on without a reader.
fn say(text: &str) {
    let _nobody_reads = writeln!(io::stderr(), "{text}");
}

/// What this process waits for besides its brokers' service.
struct Watch {
    signals: Signals,
    children: Signal,
}

impl Watch {
    /// From before the first child on, so that no end is missed.
    fn begin() -> io::Result<Watch> {
        Ok(Watch { signals: Signals::listen()?, children: signal(SignalKind::child())? })
    }
}

fn reminder() -> Interval {
    interval_at((Instant::now() + QUIET_MAX).into(), QUIET_AGAIN)
}

/// Why a cluster did not come up.
enum Cause {
    /// The command was asked to end.
    Asked,
    /// This broker could not be started.
    NotStarted(String, io::Error),
    /// This broker, by its place, ended.
    Ended(usize, ExitStatus),
}

impl Cause {
    /// Whether somebody else took a port of the broker that ended.
    fn is_by_port(&self, plan: &Plan) -> bool {
        match self {
            Cause::Ended(at, _) => has_taken_port(&plan.brokers[*at]),
            _ => false,
        }
    }

    /// `None` if somebody wanted it so.
    fn failure(self, brokers: &Brokers) -> Option<Failure> {
        match self {
            Cause::Asked => None,
            Cause::NotStarted(name, error) => {
                Some(Failure::new(format!("{name} cannot be started")).detail(error))
            }
            Cause::Ended(at, status) => {
                let broker = &brokers.all[at];
                let reports = &broker.reports;
                let place = reports.path().display().to_string();
                let failure = Failure::new(format!("{} did not come up, {status}", broker.name()));
                Some(
                    failure
                        .detail(reports.last_lines())
                        .hint(format!("all that it said is in {place}")),
                )
            }
        }
    }
}

fn has_taken_port(node: &Node) -> bool {
    node.ports().any(|port| {
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        bound.is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
    })
}

/// Starts all brokers and waits until they serve, or one ends.
async fn bring_up(brokers: &mut Brokers, folder: &Folder, watch: &mut Watch) -> Result<(), Cause> {
    brokers.start(folder).map_err(|(name, error)| Cause::NotStarted(name, error))?;
    let starting: Vec<Starting> = brokers
        .running()
        .filter_map(|broker| Some(Starting { node: broker.node.clone(), pid: broker.pid()? }))
        .collect();
    let mut serving = std::pin::pin!(readiness::all_serve(&starting));
    let mut reminder = reminder();
    loop {
        tokio::select! {
            biased;
            () = watch.signals.next() => return Err(Cause::Asked),
            _ = watch.children.recv() => {
                if let Some(Ended { at, status, .. }) = brokers.ended().into_iter().next() {
                    return Err(Cause::Ended(at, status));
                }
            }
            () = &mut serving => return Ok(()),
            _ = reminder.tick() => {
                let path = folder.path();
                say(&format!("not all brokers serve yet; they report to {path}/broker-*/broker.log"));
            }
        }
    }
}

/// What is said of a cluster that serves.
fn announced(
    plan: &Plan,
    folder: &Folder,
    wished: &Wished,
    brokers: &Brokers,
    urls: &[String],
) -> String {
    let shown = brokers.all.iter().map(|broker| Shown {
        pid: broker.pid(),
        data: broker.data.clone(),
        again: broker.again.clone(),
    });
    let (shown, http) = (shown.collect::<Vec<_>>(), wished.serves_http());
    announcement(plan, folder.path(), &shown, http, urls)
}

/// Announces the cluster, and looks after the brokers until it is asked to stop them.
async fn serve(
    text: &str,
    folder: &Folder,
    brokers: &mut Brokers,
    watch: &mut Watch,
    presenter: &mut impl Presenter,
) -> Result<ExitCode, Failure> {
    let mut out = io::stdout();
    let told = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if told.is_ok() {
        look_after(brokers, folder, watch, presenter).await;
    }
    let stopped = stop(brokers, watch).await;
    told.map_err(on_output)?;
    stopped
}

/// Says which brokers end, and starts them again if that is wanted, until the command is asked to end.
async fn look_after(
    brokers: &mut Brokers,
    folder: &Folder,
    watch: &mut Watch,
    presenter: &mut impl Presenter,
) {
    loop {
        let due = brokers.next_due();
        tokio::select! {
            // When a terminal asks all of us at once, no broker's end is news.
            biased;
            () = watch.signals.next() => return,
            _ = watch.children.recv() => {}
            () = at(due) => {}
        }
        let ended = brokers.ended();
        for broker in &ended {
            say(&obituary(brokers, broker));
        }
        for (at, tried) in brokers.start_due(folder) {
            let broker = &brokers.all[at];
            let name = broker.name();
            match (tried, broker.pid()) {
                (Err(error), _) => say(&format!("{name} cannot be started again: {error}")),
                (Ok(()), pid) => {
                    presenter.note_start(&broker.node, pid.unwrap_or_default());
                    say(&format!("{name} was started again, process {}", pid.unwrap_or_default()));
                }
            }
        }
        if !ended.is_empty() && !brokers.any_runs() && brokers.next_due().is_none() {
            say("no broker of this command runs any more; Ctrl-C ends it");
        }
    }
}

fn obituary(brokers: &Brokers, ended: &Ended) -> String {
    let Ended { at, pid, status, pause } = ended;
    let broker = &brokers.all[*at];
    let what = match pause {
        Some(pause) => format!("it is started again in {} s", pause.as_secs_f64()),
        None => format!("again: {}", broker.again),
    };
    format!("{} (process {pid}) has ended, {status}; {what}", broker.name())
}

/// Ends at this time, or never.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

/// Stops all brokers, and waits for them: as long as it takes, or until the command is asked once more.
async fn stop(brokers: &mut Brokers, watch: &mut Watch) -> Result<ExitCode, Failure> {
    brokers.ask_to_end();
    let mut reminder = reminder();
    let mut killed = false;
    let mut disorderly = Vec::new();
    while brokers.any_runs() {
        tokio::select! {
            biased;
            () = watch.signals.second_request(), if !killed => {
                brokers.kill();
                killed = true;
            }
            _ = watch.children.recv() => {}
            _ = reminder.tick() => {
                let names: Vec<String> = brokers.running().map(|broker| broker.name()).collect();
                say(&format!("{} not stopped yet; a second Ctrl-C kills", names.join(", ")));
            }
        }
        disorderly.extend(brokers.ended().into_iter().filter(|ended| !is_orderly(ended.status)));
    }
    let Some(first) = disorderly.first().filter(|_| !killed) else {
        return Ok(if killed { ExitCode::from(EXIT_CODE_INTERRUPTED) } else { ExitCode::SUCCESS });
    };
    let broker = &brokers.all[first.at];
    let place = broker.reports.path().display().to_string();
    Err(Failure::new(format!("{} did not stop in an orderly way, {}", broker.name(), first.status))
        .detail(broker.reports.last_lines())
        .hint(format!("all that it said is in {place}")))
}
