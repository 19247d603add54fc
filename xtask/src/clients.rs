//! `cargo xt clients`: real, unmodified clients against a fresh Highwater, or against Apache Kafka, of one broker
//! or of several, which may be killed in turn ([`restarts`]).
//!
//! The same suite must pass against both: what Kafka does not do is not asked of Highwater. Command-
//! line tools are driven from here ([`kafka_tools`], [`kcat`]); client libraries by small programs of
//! their own under `conformance/` ([`programs`]).

mod kafka_tools;
mod kcat;
mod programs;
pub mod proxied;
pub mod report;
mod restarts;
mod scenario;
mod stream;
mod target;

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use clap::Args;

use crate::repository::repository;
use peer::apache_kafka;
use report::{Row, Run};
use scenario::{Context, Scenario};
use target::Target;

/// `cargo xt clients`
#[derive(Debug, Args)]
pub struct Arguments {
    /// highwater, apache-kafka or HOST:PORT
    #[arg(long, default_value = "highwater")]
    target: String,
    /// How many brokers; from three on everything has three replicas
    #[arg(long, default_value_t = 1)]
    brokers: usize,
    /// Kill a broker so often, one after the other, and start it again, and run the scenarios that are made for that, or
    /// those of --scenario
    #[arg(long, value_name = "TIME", value_parser = restarts::duration)]
    restart_every: Option<Duration>,
    /// Put `highwater proxy` between the clients and the brokers
    #[arg(long)]
    proxy: bool,
    /// Only these clients (may be repeated or separated by commas)
    #[arg(long = "client", value_delimiter = ',')]
    clients: Vec<String>,
    /// Only scenarios whose name contains one of these
    #[arg(long = "scenario", value_delimiter = ',')]
    scenarios: Vec<String>,
    /// Where the results go; a whole run writes docs/clients.json
    #[arg(long)]
    output: Option<PathBuf>,
    /// Say which clients and scenarios there are, and stop
    #[arg(long)]
    list: bool,
}

/// The scenario that runs while brokers are killed, and only then.
pub const RESTARTS: &str = "restarts";
/// The results of whole runs, which docs/compatibility.md shows.
const BOOK: &str = "docs/clients.json";

impl Arguments {
    fn wants_client(&self, name: &str) -> bool {
        self.clients.is_empty() || self.clients.iter().any(|wanted| wanted == name)
    }

    fn wants_scenario(&self, name: &str) -> bool {
        match self.restart_every {
            Some(_) if self.scenarios.is_empty() => name == RESTARTS,
            None if name == RESTARTS => false,
            _ => self.scenarios.is_empty() || self.scenarios.iter().any(|one| name.contains(one)),
        }
    }

    /// Where results go: only a whole run may overwrite the committed file.
    fn output(&self) -> Option<PathBuf> {
        let whole = self.clients.is_empty() && self.scenarios.is_empty();
        let file = whole.then(|| repository().join(BOOK));
        self.output.clone().or(file)
    }

    /// Under which name the results go into the file: the target, and what is unusual about it.
    fn heading(&self) -> String {
        let mut heading = self.target.clone();
        if self.brokers > 1 {
            heading += &format!(", {} brokers", self.brokers);
        }
        if let Some(every) = self.restart_every {
            heading += &format!(", of which one is killed every {} s", every.as_secs_f64());
        }
        if self.proxy {
            heading += ", through the proxy";
        }
        heading
    }

    fn check(&self) -> Result<()> {
        ensure!(
            self.restart_every.is_none() || self.brokers >= 3,
            "--restart-every needs --brokers 3 at least: with fewer nobody takes over"
        );
        let publishes = self.output().is_some_and(|path| path == repository().join(BOOK));
        ensure!(
            !publishes || self.target != "highwater" || target::commit()?.is_some(),
            "{BOOK} says of which commit its results are, and this one is unknown: HIGHWATER_BINARY names \
             a program, or files have been changed since the last commit. Commit them, or say --output FILE"
        );
        Ok(())
    }
}

pub use programs::{node_modules, python_environment, quoted};

/// The program of the client library `client`, installed and ready to run.
pub fn program(client: &str) -> Result<programs::Installed> {
    programs::installed(client)
}

/// Runs the suite; fails when a scenario failed.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.list {
        return list();
    }
    arguments.check()?;
    let mut target = Target::start(&arguments.target, arguments.brokers)?;
    let proxy = arguments.proxy.then(|| proxied::stand_before(&mut target)).transpose()?;
    println!("target: {} {} at {}\n", arguments.heading(), target.version, target.bootstrap);
    report::print_heading();
    let rows = match arguments.restart_every {
        Some(every) => run_while_killing(arguments, &target, every)?,
        None => run_all(arguments, &target)?,
    };
    let failed = report::print_sum(&rows);
    let died = target.died();
    if let Some(path) = arguments.output() {
        report::write(&path, &arguments.heading(), Run { version: target.version.clone(), rows })?;
        println!("written: {}", path.display());
    }
    if let Some(proxy) = proxy {
        proxy.stop()?;
    }
    target.stop()?;
    if let Some(last_words) = died {
        bail!("the broker died under the clients:\n{last_words}");
    }
    if failed > 0 {
        bail!("{failed} scenarios failed");
    }
    Ok(())
}

fn list() -> Result<()> {
    for (client, scenarios) in
        [("kafka-tools", &kafka_tools::SCENARIOS[..]), ("kcat", &kcat::SCENARIOS)]
    {
        for (scenario, _) in scenarios {
            println!("{client} {scenario}");
        }
    }
    for program in &programs::PROGRAMS {
        println!("{} …", program.client);
    }
    Ok(())
}

fn run_while_killing(arguments: &Arguments, target: &Target, every: Duration) -> Result<Vec<Row>> {
    thread::scope(|scope| {
        let (end, ending) = mpsc::channel();
        let clients = scope.spawn(move || {
            let rows = run_all(arguments, target);
            drop(end);
            rows
        });
        // On this thread, which lives on: the system kills what a thread has started when that thread ends.
        let killed = restarts::keep_killing(target, every, &ending);
        let rows = clients.join().expect("a scenario does not panic");
        let killed = killed?;
        println!("\n{killed} brokers were killed");
        ensure!(killed > 0, "no broker was killed in that time: nothing was tried");
        rows
    })
}

/// Kafka's tools beside the libraries: each tool is a JVM that starts, and waits. No client looks at what another
/// makes.
fn run_all(arguments: &Arguments, target: &Target) -> Result<Vec<Row>> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let run = format!("c{:x}", started & 0xff_ffff);
    thread::scope(|scope| {
        let tools = scope.spawn(|| run_tools(arguments, target, &run));
        let libraries = run_libraries(arguments, target, &run);
        let mut rows = tools.join().expect("a scenario does not panic")?;
        rows.extend(libraries?);
        Ok(rows)
    })
}

fn run_tools(arguments: &Arguments, target: &Target, run: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if arguments.wants_client("kafka-tools") {
        apache_kafka::install()?;
        let version = apache_kafka::VERSION;
        let context = Context::new(target, &format!("{run}-tools"))?;
        let scenarios = &kafka_tools::SCENARIOS;
        run_scenarios(arguments, "kafka-tools", version, scenarios, &context, &mut rows);
    }
    Ok(rows)
}

fn run_libraries(arguments: &Arguments, target: &Target, run: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if arguments.wants_client("kcat") {
        kcat::run(arguments, target, &format!("{run}-kcat"), &mut rows)?;
    }
    for program in &programs::PROGRAMS {
        if arguments.wants_client(program.client) {
            programs::run(arguments, program, target, run, &mut rows)?;
        }
    }
    Ok(rows)
}

fn run_scenarios(
    arguments: &Arguments,
    client: &str,
    version: &str,
    scenarios: &[Scenario],
    context: &Context<'_>,
    rows: &mut Vec<Row>,
) {
    for scenario in scenarios.iter().filter(|(name, _)| arguments.wants_scenario(name)) {
        let first = scenario::run(client, version, scenario, context);
        let row = match first.result {
            // Whoever loses a record loses it, whatever comes of a second try.
            report::Ending::Fail if scenario.0 != RESTARTS => {
                first.or_second(scenario::run(client, version, scenario, context))
            }
            _ => first,
        };
        report::print_row(&row);
        rows.push(row);
    }
}
