//! A hostile client beside honest ones: it fills every pool of memory that a client can reach, by the cheapest requests, with
//! half of a core, against default settings.
//!
//! The client is a process of its own ([`client`]) and comes from another address. The trial runs twice: first the
//! client dials a port that refuses, so that the honest clients have the same share of the machine, then it attacks broker,
//! gateway and proxy at once. Memory must stay bounded and come back; honest clients must keep their latency.

mod client;
mod honest;
mod kafka;
mod pace;
mod web;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use ::client::admin::NewTopic;
use ::client::{Admin, Cluster, ClusterConfig};
use anyhow::{Context, Result, ensure};
use peer::highwater::{self, Front, Server};
use peer::process::{self, Guarded};
use peer::procfs;

use crate::requests::runtime;
use honest::Latencies;

pub use client::{Targets, serve as serve_client};

/// Topics of the honest clients: of the broker's producer, and of the producer over HTTP.
const HONEST_TOPICS: [&str; 2] = ["honest", "posted"];
/// Partitions of each topic of honest clients.
const HONEST_PARTITIONS: i32 = 4;
/// A topic with a long description, to which the hostile client writes.
const WIDE_TOPIC: &str = "wide";
/// Partitions of the wide topic.
const WIDE_PARTITIONS: i32 = 1_000;
/// Memory of broker, gateway and proxy together above that of the idle processes, in MiB: at most during the attack.
const PEAK_MIB_MAX: f64 = 256.0;
/// The same when the hostile client has been gone for `--settle`.
const LEFT_MIB_MAX: f64 = 32.0;
/// Latency of honest clients beside the attack by that beside the port that refuses.
const LATENCY_RATIO_MAX: f64 = 2.0;
/// Time in which the processes become idle behind their start.
const IDLE: Duration = Duration::from_secs(5);
/// Time that the hostile client may take to end behind its last request.
const END_LIMIT: Duration = Duration::from_secs(60);

/// The options of the trial.
#[derive(clap::Args)]
pub struct Arguments {
    /// The program
    #[arg(long)]
    binary: PathBuf,
    /// Length of the attack, and of the run beside a port that refuses, in seconds
    #[arg(long, default_value_t = 300.0)]
    seconds: f64,
    /// Time behind the attack until memory must be back, in seconds
    #[arg(long, default_value_t = 60.0)]
    settle: f64,
    /// Report latencies without a verdict: for a machine that does other work
    #[arg(long)]
    memory_only: bool,
    /// Run only the attacks whose name contains this text
    #[arg(long, default_value = "")]
    only: String,
    /// Run each attack alone, with new servers, and report without a verdict
    #[arg(long)]
    each: bool,
}

/// Runs the trial.
pub fn run(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.seconds > 0.0, "invalid time of {} s: more than 0", arguments.seconds);
    if arguments.each {
        return run_each(arguments);
    }
    let outcome = attack(arguments, &arguments.only, true)?;
    print!("{}", outcome.client_report);
    println!("hostile: {:.0} s of attack with half of a core", arguments.seconds);
    outcome.report_memory(arguments.settle);
    let calm = outcome.calm.as_ref().context("there was a calm run")?;
    report_latencies(calm, &outcome.attacked);
    let (above, left) = (outcome.peak_above_idle(), outcome.left_above_idle());
    ensure!(above <= PEAK_MIB_MAX, "{above:.0} MiB above idle, at most {PEAK_MIB_MAX} wanted");
    ensure!(
        left <= LEFT_MIB_MAX,
        "{left:.0} MiB above idle in the end, at most {LEFT_MIB_MAX} wanted"
    );
    for (name, ratio) in outcome.attacked.by(calm) {
        ensure!(
            arguments.memory_only || ratio <= LATENCY_RATIO_MAX,
            "p99 of {name} is {ratio:.2} times that without the attack, at most {LATENCY_RATIO_MAX} wanted"
        );
    }
    Ok(())
}

/// Runs each attack alone, beside new servers and honest clients. Prints a line for each.
fn run_each(arguments: &Arguments) -> Result<()> {
    for name in client::attack_names().filter(|name| name.contains(&arguments.only)) {
        match attack(arguments, name, false) {
            Ok(outcome) => println!("hostile: {name}: {}", outcome.row()),
            Err(cause) => println!("hostile: {name}: {cause:#}"),
        }
    }
    Ok(())
}

/// Memory of broker, gateway and proxy, CPU time that the attack cost them, and latencies of honest clients.
struct Outcome {
    idle: [f64; 3],
    peak: [f64; 3],
    left: [f64; 3],
    cpu_s: [f64; 3],
    /// Beside a port that refuses, unless left out.
    calm: Option<Latencies>,
    attacked: Latencies,
    client_report: String,
}

/// Runs the chosen attacks, if wanted behind a run of the same client beside a port that refuses.
fn attack(arguments: &Arguments, only: &str, calm_first: bool) -> Result<Outcome> {
    let scratch = tempfile::tempdir()?;
    let servers = Servers::start(arguments, &scratch.path().join("data"))?;
    thread::sleep(IDLE);
    let idle = servers.resident()?;
    let lasting = Duration::from_secs_f64(arguments.seconds);

    let mut calm = None;
    if calm_first {
        let refusing = SocketAddr::from((Ipv4Addr::LOCALHOST, highwater::free_port()?));
        let hostile =
            start_client(&[refusing; 3].map(|address| address.to_string()), lasting, only)?;
        calm = Some(honest::run(&servers.bootstrap(), servers.gateway.address(), lasting, 0)?);
        end_client(hostile)?;
    }

    servers.forget_peaks()?;
    let cpu_before = servers.cpu_s()?;
    let hostile = start_client(&servers.addresses(), lasting, only)?;
    let attacked = honest::run(&servers.bootstrap(), servers.gateway.address(), lasting, 1)?;
    let client_report = end_client(hostile)?;
    let (peak, cpu_after) = (servers.peak()?, servers.cpu_s()?);
    thread::sleep(Duration::from_secs_f64(arguments.settle));
    let left = servers.resident()?;
    servers.stop()?;
    let cpu_s = [0, 1, 2].map(|at| cpu_after[at] - cpu_before[at]);
    Ok(Outcome { idle, peak, left, cpu_s, calm, attacked, client_report })
}

impl Outcome {
    fn peak_above_idle(&self) -> f64 {
        total(self.peak) - total(self.idle)
    }

    fn left_above_idle(&self) -> f64 {
        total(self.left) - total(self.idle)
    }

    fn report_memory(&self, settle: f64) {
        for (at, name) in NAMES.iter().enumerate() {
            println!(
                "hostile: {name}: {:.0} MiB idle, {:.0} at its peak, {:.0} after {settle:.0} s more, {:.1} s of CPU time",
                self.idle[at], self.peak[at], self.left[at], self.cpu_s[at]
            );
        }
        println!(
            "hostile: together {:.0} MiB above idle at the peaks ({PEAK_MIB_MAX} allowed), {:.0} in the end ({LEFT_MIB_MAX} allowed)",
            self.peak_above_idle(),
            self.left_above_idle()
        );
    }

    /// The outcome in one line.
    fn row(&self) -> String {
        let processes = NAMES.iter().enumerate().map(|(at, name)| {
            let (idle, peak, left) = (self.idle[at], self.peak[at], self.left[at]);
            format!(
                "{name} +{:.0} +{:.0} MiB {:.1} s CPU",
                peak - idle,
                left - idle,
                self.cpu_s[at]
            )
        });
        let processes: Vec<String> = processes.collect();
        format!("{}, {}", processes.join(", "), self.attacked)
    }
}

/// The attacked processes.
struct Servers {
    broker: Server,
    gateway: Front,
    proxy: Front,
}

/// Names of the attacked processes, in the order of every triple of figures.
const NAMES: [&str; 3] = ["broker", "gateway", "proxy"];

impl Servers {
    fn start(arguments: &Arguments, data: &std::path::Path) -> Result<Servers> {
        let broker = highwater::start(&arguments.binary, data, 0, &[])?;
        let bootstrap = broker.bootstrap();
        runtime()?.block_on(async {
            let admin = Admin::new(Cluster::connect(ClusterConfig::new(&bootstrap)).await?);
            for topic in HONEST_TOPICS {
                admin.create_topic(&NewTopic::new(topic, HONEST_PARTITIONS, 1)).await?;
            }
            admin.create_topic(&NewTopic::new(WIDE_TOPIC, WIDE_PARTITIONS, 1)).await?;
            // Creates the topic of committed offsets, without which every attack on groups is refused.
            admin.group_offsets("honest").await?;
            anyhow::Ok(())
        })?;
        let gateway = Front::gateway(&arguments.binary, &bootstrap, &[])?;
        let proxy = Front::proxy(&arguments.binary, &bootstrap)?;
        Ok(Servers { broker, gateway, proxy })
    }

    fn bootstrap(&self) -> String {
        self.broker.bootstrap()
    }

    fn addresses(&self) -> [String; 3] {
        [self.bootstrap(), self.gateway.address().to_owned(), self.proxy.address().to_owned()]
    }

    fn pids(&self) -> [u32; 3] {
        [self.broker.pid(), self.gateway.pid(), self.proxy.pid()]
    }

    /// Resident memory of each, in MiB.
    fn resident(&self) -> Result<[f64; 3]> {
        each(self.pids(), procfs::resident_mib)
    }

    /// Greatest resident memory of each since [`Servers::forget_peaks`], in MiB.
    fn peak(&self) -> Result<[f64; 3]> {
        each(self.pids(), procfs::peak_resident_mib)
    }

    /// CPU time of each since its start, in seconds.
    fn cpu_s(&self) -> Result<[f64; 3]> {
        each(self.pids(), procfs::cpu_s)
    }

    fn forget_peaks(&self) -> Result<()> {
        self.pids().into_iter().try_for_each(procfs::forget_peak)
    }

    fn stop(self) -> Result<()> {
        self.proxy.stop()?;
        self.gateway.stop()?;
        self.broker.stop()
    }
}

fn each(pids: [u32; 3], figure: impl Fn(u32) -> Result<f64>) -> Result<[f64; 3]> {
    let [broker, gateway, proxy] = pids.map(|pid| figure(pid).context("a server has ended"));
    Ok([broker?, gateway?, proxy?])
}

fn total(figures: [f64; 3]) -> f64 {
    figures.iter().sum()
}

/// Starts the hostile client. `addresses`: of broker, gateway and proxy.
fn start_client(addresses: &[String; 3], lasting: Duration, only: &str) -> Result<Guarded> {
    let own = std::env::current_exe().context("the trials have no path")?;
    let mut command = process::command(&own);
    command.arg("hostile-client").args(["--seconds", &lasting.as_secs_f64().to_string()]);
    for (name, address) in NAMES.iter().zip(addresses) {
        command.args([&format!("--{name}"), address]);
    }
    command.args(["--only", only]).stdout(std::process::Stdio::piped());
    Guarded::spawn(&mut command)
}

/// Waits for the end of the hostile client. Its report.
fn end_client(mut hostile: Guarded) -> Result<String> {
    let mut output = hostile.child().stdout.take().context("its output was piped")?;
    let status = hostile.wait(END_LIMIT)?.context("the hostile client does not end")?;
    ensure!(status.success(), "the hostile client failed: {status}");
    let mut report = String::new();
    std::io::Read::read_to_string(&mut output, &mut report)?;
    Ok(report)
}

fn report_latencies(calm: &Latencies, attacked: &Latencies) {
    println!("hostile: beside a port that refuses: {calm}");
    println!("hostile: beside the attack: {attacked}");
    let ratios: Vec<String> =
        attacked.by(calm).iter().map(|(name, ratio)| format!("{name} {ratio:.2}")).collect();
    println!("hostile: p99 by that without the attack: {}", ratios.join(", "));
}
