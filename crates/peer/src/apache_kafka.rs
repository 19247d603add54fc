//! The project's own installation of Apache Kafka: the oracle for behaviour and the peer of the
//! comparison.
//!
//! [`install`] brings server and tools as plain jars with Maven, [`start`] runs fresh KRaft brokers
//! on 127.0.0.1 (each broker and controller in one process), [`tool`] runs a command-line tool by
//! the name that its script has. Needs `mvn` and a Java runtime 17 or newer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;

use crate::host::Host;
use crate::process::{self, Guarded};
use crate::scratch::{Scratch, Whose};
use crate::{cache, download, ports};

mod classes;
mod runtime;
mod storage;

/// The newest release that is published whole (server and tools).
pub const VERSION: &str = "4.3.1";
/// The logging backend that this release ships with.
const LOG4J_VERSION: &str = "2.25.4";
/// How long a broker may take until it serves.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How long a broker may take to stop before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// The flags that Kafka's own scripts give every JVM.
const JVM: [&str; 7] = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
];
/// The flags of a JVM that lives for a few seconds: what it would compile well is hardly run again.
const BRIEF_JVM: [&str; 3] =
    ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"];
/// Broker log: everything at INFO, the level that Kafka ships with, on standard output.
const BROKER_LOGGING: &str = "status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
";
/// Tools: warnings only, on standard error.
const TOOL_LOGGING: &str = "status = error
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
";

/// Kafka's tools: name of the script, main class.
const TOOLS: [(&str, &str); 25] = [
    ("kafka-acls", "org.apache.kafka.tools.AclCommand"),
    ("kafka-broker-api-versions", "org.apache.kafka.tools.BrokerApiVersionsCommand"),
    ("kafka-client-metrics", "org.apache.kafka.tools.ClientMetricsCommand"),
    ("kafka-cluster", "org.apache.kafka.tools.ClusterTool"),
    ("kafka-configs", "kafka.admin.ConfigCommand"),
    ("kafka-console-consumer", "org.apache.kafka.tools.consumer.ConsoleConsumer"),
    ("kafka-console-producer", "org.apache.kafka.tools.ConsoleProducer"),
    ("kafka-consumer-groups", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
    ("kafka-consumer-perf-test", "org.apache.kafka.tools.ConsumerPerformance"),
    ("kafka-delete-records", "org.apache.kafka.tools.DeleteRecordsCommand"),
    ("kafka-dump-log", "org.apache.kafka.tools.DumpLogSegments"),
    ("kafka-e2e-latency", "org.apache.kafka.tools.EndToEndLatency"),
    ("kafka-features", "org.apache.kafka.tools.FeatureCommand"),
    ("kafka-get-offsets", "org.apache.kafka.tools.GetOffsetShell"),
    ("kafka-groups", "org.apache.kafka.tools.GroupsCommand"),
    ("kafka-leader-election", "org.apache.kafka.tools.LeaderElectionCommand"),
    ("kafka-log-dirs", "org.apache.kafka.tools.LogDirsCommand"),
    ("kafka-metadata-quorum", "org.apache.kafka.tools.MetadataQuorumCommand"),
    ("kafka-producer-perf-test", "org.apache.kafka.tools.ProducerPerformance"),
    ("kafka-reassign-partitions", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"),
    ("kafka-storage", "kafka.tools.StorageTool"),
    ("kafka-topics", "org.apache.kafka.tools.TopicCommand"),
    ("kafka-transactions", "org.apache.kafka.tools.TransactionsCommand"),
    ("kafka-verifiable-consumer", "org.apache.kafka.tools.VerifiableConsumer"),
    ("kafka-verifiable-producer", "org.apache.kafka.tools.VerifiableProducer"),
];

/// `cargo xt kafka …`
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Install server and tools into the cache folder.
    Install,
    /// Start fresh brokers, print their addresses, stop when standard input ends.
    Start {
        /// How many brokers.
        #[arg(long, default_value_t = 1)]
        nodes: usize,
        /// First port (two a broker); free ones are chosen when it is not given.
        #[arg(long)]
        port: Option<u16>,
        /// An extra broker property, KEY=VALUE.
        #[arg(long = "set")]
        set: Vec<String>,
    },
    /// Run a tool by the name of its script, e.g. `kafka-topics --list …`.
    Tool {
        /// Name of the script, or of a class.
        name: String,
        /// What the tool is given.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

/// Does what `cargo xt kafka …` asks.
pub fn task(task: Task) -> Result<()> {
    match task {
        Task::Install => println!("{}", install()?.display()),
        Task::Start { nodes, port, set } => {
            let set = set.iter().map(|pair| split_setting(pair)).collect::<Result<Vec<_>>>()?;
            let brokers = start(nodes, port, &set)?;
            println!("{}", brokers.bootstrap());
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
            brokers.stop()?;
        }
        Task::Tool { name, arguments } => {
            let status = tool(&name, &arguments)?.status()?;
            std::process::exit(status.code().unwrap_or(1));
        }
    }
    Ok(())
}

fn split_setting(pair: &str) -> Result<(&str, &str)> {
    pair.split_once('=').with_context(|| format!("not KEY=VALUE: {pair}"))
}

/// Whether Apache Kafka can run here; installs it if need be. What is missing is said with what to do about it.
pub fn check() -> Result<()> {
    runtime::check()?;
    install().map(drop)
}

/// Brings the jars into the cache folder, once. Returns the folder that holds `lib/`.
pub fn install() -> Result<PathBuf> {
    cache::once(&format!("apache-kafka-{VERSION}"), |fresh| {
        runtime::check()?;
        ensure!(
            process::is_installed("mvn"),
            "Apache Kafka is installed with Maven, and there is no mvn in PATH: install Maven"
        );
        eprintln!("installing Apache Kafka {VERSION} with Maven, once …");
        let pom = fresh.join("pom.xml");
        fs::write(&pom, pom_text())?;
        let mut maven = process::command("mvn");
        // What a repository has not had once is asked for again.
        maven.args(["-q", "-B", "-U", "-f"]).arg(&pom).arg("dependency:copy-dependencies");
        maven.arg("-DincludeScope=runtime");
        maven.arg(format!("-DoutputDirectory={}", fresh.join("lib").display()));
        let outcome = download::run(&mut maven, Duration::from_secs(900))?;
        ensure!(
            outcome.success(),
            "Maven could not bring Apache Kafka {VERSION}; it needs the network, or a mirror in its settings.xml: {}",
            outcome.story()
        );
        fs::write(fresh.join("broker.properties"), BROKER_LOGGING)?;
        fs::write(fresh.join("tool.properties"), TOOL_LOGGING)?;
        // The tools must load on this JVM: too old a Java fails here, not later.
        let mut probe = tool_of(fresh, &BRIEF_JVM, "kafka-topics", &["--version"])?;
        let outcome = process::run(&mut probe, None, Duration::from_secs(120))?;
        ensure!(outcome.success(), "Kafka does not run here: {}", outcome.story());
        Ok(())
    })
}

fn pom_text() -> String {
    let mut dependencies = String::new();
    for (group, artifact, version) in [
        ("org.apache.kafka", "kafka_2.13", VERSION),
        ("org.apache.kafka", "kafka-tools", VERSION),
        ("org.apache.logging.log4j", "log4j-core", LOG4J_VERSION),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
        ("org.apache.logging.log4j", "log4j-1.2-api", LOG4J_VERSION),
    ] {
        dependencies += &format!(
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version></dependency>\n"
        );
    }
    format!(
        "<project><modelVersion>4.0.0</modelVersion><groupId>highwater</groupId>\
         <artifactId>peer</artifactId><version>1</version>\n<dependencies>\n{dependencies}\
         </dependencies></project>\n"
    )
}

/// A command that runs Kafka's tool `name` (of [`TOOLS`], or a class name) with a heap of 256 MiB;
/// `KAFKA_HEAP_OPTS` in the environment overrides the heap, as it does for Kafka's scripts.
pub fn tool<S: AsRef<str>>(name: &str, arguments: &[S]) -> Result<Command> {
    tool_of(&install()?, &JVM, name, arguments)
}

/// As [`tool`], for one that is to do something and end, and of which nobody measures anything: it takes half
/// the CPU.
pub fn brief_tool<S: AsRef<str>>(name: &str, arguments: &[S]) -> Result<Command> {
    tool_of(&install()?, &BRIEF_JVM, name, arguments)
}

fn tool_of<S: AsRef<str>>(
    home: &Path,
    flags: &[&str],
    name: &str,
    arguments: &[S],
) -> Result<Command> {
    let class = match TOOLS.iter().find(|(script, _)| *script == name) {
        Some((_, class)) => class,
        None if name.contains('.') => name,
        None => bail!("unknown Kafka tool {name}"),
    };
    let heap = std::env::var("KAFKA_HEAP_OPTS").unwrap_or_else(|_| "-Xmx256m".to_owned());
    let mut java = java(home, &heap, flags, "tool.properties");
    java.arg(class).args(arguments.iter().map(AsRef::as_ref));
    Ok(java)
}

/// Whether programs in Java's source can be run with Kafka's classes: there is a Java compiler, and Kafka is installed or can
/// be. Installs nothing.
pub fn check_source() -> Result<()> {
    runtime::check()?;
    runtime::check_compiler()?;
    let installed = cache::folder()?.join(format!("apache-kafka-{VERSION}")).exists();
    ensure!(
        installed || process::is_installed("mvn"),
        "Apache Kafka's classes are installed with Maven, and there is no mvn in PATH: install Maven"
    );
    Ok(())
}

/// A command that compiles and runs the one file of Java's source at `source` with Kafka's classes.
pub fn source_program(source: &Path) -> Result<Command> {
    let mut java = java(&install()?, "-Xmx256m", &JVM, "tool.properties");
    java.arg(source);
    Ok(java)
}

/// The JVM with these flags and Kafka's class path, up to but not including the main class.
fn java(home: &Path, heap: &str, flags: &[&str], logging: &str) -> Command {
    java_on(&Host::local(), home, heap, flags, logging)
}

/// As [`java`], on a host.
fn java_on(host: &Host, home: &Path, heap: &str, flags: &[&str], logging: &str) -> Command {
    let mut java = host.command("java");
    java.args(heap.split_whitespace()).args(flags);
    java.arg(format!("-Dlog4j2.configurationFile={}", home.join(logging).display()));
    java.arg("-cp").arg(format!("{}/*", home.join("lib").display()));
    java
}

/// Running brokers with their data in a temporary folder; dropping them kills them and removes it.
#[derive(Debug)]
pub struct Brokers {
    nodes: Vec<Node>,
    folder: Scratch,
    java_runtime: JavaRuntime,
}

/// What the brokers' Java runtimes are given beyond Kafka's own flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JavaRuntime {
    /// Heap of each, MiB.
    pub heap_mib: u32,
    /// Whether their classes come parsed, from an archive of this installation. They start in about half the time then.
    /// Not for whoever measures the start itself.
    pub class_archive: bool,
}

#[derive(Debug)]
struct Node {
    process: Guarded,
    host: Host,
    port: u16,
}

/// Formats fresh storage and starts `n` brokers, then waits until they serve. Node i (from 1) takes
/// `base_port + 2(i-1)` for clients and the next one for its controller; free ports are chosen
/// without a base. `extra` properties come last, so they win. Heap: 1 GiB as in Kafka's script,
/// unless `KAFKA_BROKER_HEAP_OPTS` says otherwise.
pub fn start(n: usize, base_port: Option<u16>, extra: &[(&str, &str)]) -> Result<Brokers> {
    start_sized(n, base_port, extra, JavaRuntime { heap_mib: 1024, class_archive: false })
}

/// As [`start`], with Java runtimes of another size.
pub fn start_sized(
    n: usize,
    base_port: Option<u16>,
    extra: &[(&str, &str)],
    java_runtime: JavaRuntime,
) -> Result<Brokers> {
    let ports = ports(n, base_port)?;
    let own_ports = own_ports(&ports)?;
    let owned = || extra.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let plan = |(ports, own_port): (&(u16, u16), u16)| NodePlan {
        host: Host::local(),
        client: ports.0,
        controller: ports.1,
        properties: owned().chain(own_listener(*ports, own_port, extra)).collect(),
    };
    let plans: Vec<NodePlan> = ports.iter().zip(own_ports).map(plan).collect();
    start_planned(&plans, java_runtime)
}

/// One node, before it is started.
#[derive(Debug, Clone)]
pub struct NodePlan {
    /// Where the node runs.
    pub host: Host,
    /// The port of its listener for clients, without TLS or logins.
    pub client: u16,
    /// The port of its controller.
    pub controller: u16,
    /// Properties that come last, so they win.
    pub properties: Vec<(String, String)>,
}

/// As [`start_sized`], each node by a plan of its own: for properties that are not the same on all, as those of listeners.
pub fn start_planned(plans: &[NodePlan], java_runtime: JavaRuntime) -> Result<Brokers> {
    let home = install()?;
    let folder = Scratch::make(Whose::Kafkas)?;
    for (index, plan) in plans.iter().enumerate() {
        let node = folder.path().join(format!("node-{}", index + 1));
        fs::create_dir_all(&node)?;
        let text = properties(&node, index, plans);
        fs::write(node.join("server.properties"), text)?;
        storage::format(&home, &node, index + 1, &plan.properties)?;
    }
    let mut brokers = Brokers { nodes: Vec::new(), folder, java_runtime };
    for (index, plan) in plans.iter().enumerate() {
        let process = start_node(&home, &plan.host, &brokers.node_folder(index), java_runtime)?;
        brokers.nodes.push(Node { process, host: plan.host.clone(), port: plan.client });
    }
    brokers.wait_until_serving()?;
    Ok(brokers)
}

/// A client port and a controller port for each node.
fn ports(n: usize, base_port: Option<u16>) -> Result<Vec<(u16, u16)>> {
    if let Some(base) = base_port {
        let last = usize::from(base) + 2 * n;
        ensure!(last <= usize::from(u16::MAX), "ports from {base} on do not suffice");
        let count = u16::try_from(n).expect("checked just above");
        return Ok((0..count).map(|i| (base + 2 * i, base + 2 * i + 1)).collect());
    }
    Ok(ports::free(2 * n)?.chunks(2).map(|pair| (pair[0], pair[1])).collect())
}

/// A port for each node that is none of those that are chosen already.
fn own_ports(chosen: &[(u16, u16)]) -> Result<Vec<u16>> {
    let is_chosen = |port: u16| chosen.iter().any(|pair| pair.0 == port || pair.1 == port);
    let free = ports::free(3 * chosen.len())?.into_iter();
    Ok(free.filter(|port| !is_chosen(*port)).take(chosen.len()).collect())
}

/// The properties of a listener for replication alone, at `port`, if `inter.broker.listener.name` asks for one by another
/// name than that of the clients' listener. They go behind the others, so they win.
fn own_listener(
    (client, controller): (u16, u16),
    port: u16,
    extra: &[(&str, &str)],
) -> Vec<(String, String)> {
    let asked = extra.iter().find(|(key, _)| *key == "inter.broker.listener.name");
    let Some((_, name)) = asked.filter(|(_, name)| *name != "PLAINTEXT") else {
        return Vec::new();
    };
    let listeners = format!(
        "PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller},{name}://127.0.0.1:{port}"
    );
    let map = format!("CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{name}:PLAINTEXT");
    vec![
        ("listeners".to_owned(), listeners.clone()),
        ("advertised.listeners".to_owned(), listeners),
        ("listener.security.protocol.map".to_owned(), map),
    ]
}

/// A node's properties with another port for its clients.
fn at_port(properties: &str, before: u16, after: u16) -> String {
    let listener = |port: u16| format!("PLAINTEXT://127.0.0.1:{port},");
    properties.replace(&listener(before), &listener(after))
}

/// The properties of the file that Kafka ships, but for addresses, the data folder and the internal
/// topics' replication, which must fit the number of nodes.
fn properties(node: &Path, index: usize, plans: &[NodePlan]) -> String {
    let voters: Vec<String> = plans
        .iter()
        .enumerate()
        .map(|(i, plan)| format!("{}@{}:{}", i + 1, plan.host.address, plan.controller))
        .collect();
    let NodePlan { host, client, controller, properties: extra } = &plans[index];
    let address = host.address;
    let replicas = plans.len().min(3);
    let min_isr = replicas.saturating_sub(1).max(1);
    let listeners = format!("PLAINTEXT://{address}:{client},CONTROLLER://{address}:{controller}");
    let mut text = format!(
        "process.roles=broker,controller
node.id={id}
controller.quorum.voters={voters}
listeners={listeners}
advertised.listeners={listeners}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={data}
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor={replicas}
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={min_isr}
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={min_isr}
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
",
        id = index + 1,
        voters = voters.join(","),
        data = node.join("data").display(),
    );
    for (key, value) in extra {
        text += &format!("{key}={value}\n");
    }
    text
}

fn start_node(home: &Path, host: &Host, node: &Path, java_runtime: JavaRuntime) -> Result<Guarded> {
    let archive = if java_runtime.class_archive { classes::archive(home) } else { None };
    let flag = archive.map(|archive| format!("-XX:SharedArchiveFile={}", archive.display()));
    spawn_node(home, host, node, java_runtime.heap_mib, flag)
}

fn spawn_node(
    home: &Path,
    host: &Host,
    node: &Path,
    heap_mib: u32,
    flag: Option<String>,
) -> Result<Guarded> {
    let heap = std::env::var("KAFKA_BROKER_HEAP_OPTS")
        .unwrap_or_else(|_| format!("-Xmx{heap_mib}m -Xms{heap_mib}m"));
    let mut java = java_on(host, home, &heap, &JVM, "broker.properties");
    java.args(flag);
    java.arg(format!("-Dkafka.logs.dir={}", node.display()));
    java.arg("kafka.Kafka").arg(node.join("server.properties"));
    let log = fs::OpenOptions::new().create(true).append(true).open(node.join("server.log"))?;
    java.stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log);
    Guarded::spawn(&mut java).context("Apache Kafka needs a Java runtime 17 or newer")
}

impl Drop for Brokers {
    /// Kills them all at once, so that none works on while another one ends.
    fn drop(&mut self) {
        for node in &mut self.nodes {
            node.process.signal(rustix::process::Signal::KILL);
        }
    }
}

impl Brokers {
    /// `host:port,…` for clients.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        (0..self.nodes.len()).map(|index| self.address(index)).collect::<Vec<_>>().join(",")
    }

    /// `host:port` of node `index`, counted from 0.
    #[must_use]
    pub fn address(&self, index: usize) -> String {
        format!("{}:{}", self.nodes[index].host.address, self.nodes[index].port)
    }

    /// Process ids in the order of node ids.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.process.pid()).collect()
    }

    /// The data folder (`log.dirs`) of node `index`, counted from 0.
    #[must_use]
    pub fn data_folder(&self, index: usize) -> PathBuf {
        self.node_folder(index).join("data")
    }

    /// Whether all of them run.
    pub fn are_running(&mut self) -> bool {
        self.nodes.iter_mut().all(|node| node.process.is_running())
    }

    /// The end of what the brokers wrote.
    #[must_use]
    pub fn last_words(&self) -> String {
        let logs = (0..self.nodes.len()).map(|i| self.node_folder(i).join("server.log"));
        logs.map(|log| last_lines(&log)).collect::<Vec<_>>().join("\n")
    }

    /// Stops all brokers in an orderly way; their data goes too.
    pub fn stop(mut self) -> Result<()> {
        for node in &mut self.nodes {
            node.process.signal(rustix::process::Signal::TERM);
        }
        self.nodes.iter_mut().try_for_each(|node| node.process.stop(STOP_LIMIT))
    }

    /// Kills node `index` (counted from 0) as `kill -9` does. Its data stays.
    pub fn kill(&mut self, index: usize) -> Result<()> {
        self.nodes[index].process.kill()
    }

    /// Starts node `index` again on its data. Returns as soon as the process runs: whoever measures
    /// the start asks the broker itself when it serves.
    pub fn restart(&mut self, index: usize) -> Result<()> {
        self.nodes[index].process.stop(STOP_LIMIT)?;
        let node = self.node_folder(index);
        fs::remove_file(node.join("server.log"))?;
        self.nodes[index].process =
            start_node(&install()?, &self.nodes[index].host, &node, self.java_runtime)?;
        Ok(())
    }

    /// Stops node `index`, counted from 0, and starts it again on its data with `port` for its clients. Returns when it serves
    /// there.
    ///
    /// # Errors
    /// It does not stop, or does not serve at the new port in time.
    pub fn move_to(&mut self, index: usize, port: u16) -> Result<()> {
        let file = self.node_folder(index).join("server.properties");
        let moved = at_port(&fs::read_to_string(&file)?, self.nodes[index].port, port);
        fs::write(&file, moved)?;
        self.restart(index)?;
        self.nodes[index].port = port;
        self.wait_until_serves(index)
    }

    /// Waits until node `index` serves, counted from 0.
    ///
    /// # Errors
    /// It ended, or does not serve in time.
    pub fn wait_until_serves(&mut self, index: usize) -> Result<()> {
        self.wait_until(index, Instant::now() + START_LIMIT)
    }

    fn node_folder(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("node-{}", index + 1))
    }

    /// Serving means: the broker says so in its log.
    fn wait_until_serving(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        (0..self.nodes.len()).try_for_each(|index| self.wait_until(index, deadline))
    }

    fn wait_until(&mut self, index: usize, deadline: Instant) -> Result<()> {
        let log = self.node_folder(index).join("server.log");
        wait_until_serving(&mut self.nodes[index].process, &log, deadline)
            .with_context(|| format!("broker {} does not serve", index + 1))
    }
}

fn wait_until_serving(process: &mut Guarded, log: &Path, deadline: Instant) -> Result<()> {
    while !fs::read_to_string(log)?.contains("Kafka Server started") {
        ensure!(process.is_running(), "it died:\n{}", last_lines(log));
        ensure!(Instant::now() < deadline, "not in time:\n{}", last_lines(log));
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(client: u16, controller: u16, properties: &[(&str, &str)]) -> NodePlan {
        let owned = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        NodePlan { host: Host::local(), client, controller, properties: owned.collect() }
    }

    #[test]
    fn chosen_ports_are_all_different() {
        let chosen = ports(3, None).unwrap();
        let mut all = own_ports(&chosen).unwrap();
        all.extend(chosen.into_iter().flat_map(|(a, b)| [a, b]));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 9);
    }

    #[test]
    fn a_base_port_gives_each_node_two_neighbours() {
        assert_eq!(ports(2, Some(9092)).unwrap(), vec![(9092, 9093), (9094, 9095)]);
        assert!(ports(2, Some(65533)).is_err());
    }

    #[test]
    fn a_node_that_moves_is_told_so_in_both_places_and_keeps_its_controllers_port() {
        let before = properties(Path::new("/x"), 0, &[plan(71, 711, &[])]);
        let after = at_port(&before, 71, 80);
        let listeners = "listeners=PLAINTEXT://127.0.0.1:80,CONTROLLER://127.0.0.1:711\n";
        assert_eq!(after.matches(listeners).count(), 2, "{after}");
        assert!(!after.contains(":71,"), "{after}");
    }

    #[test]
    fn extra_properties_come_last_so_that_they_win() {
        let text = properties(Path::new("/x"), 0, &[plan(1, 2, &[("num.partitions", "7")])]);
        assert!(text.rfind("num.partitions=7") > text.rfind("num.partitions=1"));
        assert!(text.contains("controller.quorum.voters=1@127.0.0.1:2\n"));
    }
}
