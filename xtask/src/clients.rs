//! `cargo xt clients`: real, unmodified clients against a fresh Highwater, or against Apache Kafka.
//!
//! The same suite must pass against both: what Kafka does not do is not asked of Highwater. Command-
//! line tools are driven from here ([`kafka_tools`], [`kcat`]); client libraries by small programs of
//! their own under `conformance/` ([`programs`]).

mod kafka_tools;
mod kcat;
mod programs;
pub mod report;
mod scenario;
mod target;

use std::path::PathBuf;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
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

impl Arguments {
    fn wants_client(&self, name: &str) -> bool {
        self.clients.is_empty() || self.clients.iter().any(|wanted| wanted == name)
    }

    fn wants_scenario(&self, name: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.iter().any(|wanted| name.contains(wanted))
    }

    /// Where results go: only a whole run may overwrite the committed file.
    fn output(&self) -> Option<PathBuf> {
        let whole = self.clients.is_empty() && self.scenarios.is_empty();
        let file = whole.then(|| repository().join("docs/clients.json"));
        self.output.clone().or(file)
    }
}

/// The program of the client library `client`, installed and ready to run.
pub fn program(client: &str) -> Result<programs::Installed> {
    programs::installed(client)
}

/// Runs the suite; fails when a scenario failed.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.list {
        return list();
    }
    let mut target = Target::start(&arguments.target)?;
    println!("target: {} {} at {}\n", target.name, target.version, target.bootstrap);
    report::print_heading();
    let rows = run_all(arguments, &target)?;
    let failed = report::print_sum(&rows);
    let died = target.died();
    if let Some(path) = arguments.output() {
        report::write(&path, &target.name, Run { version: target.version.clone(), rows })?;
        println!("written: {}", path.display());
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
            report::Ending::Fail => {
                first.or_second(scenario::run(client, version, scenario, context))
            }
            report::Ending::Pass | report::Ending::Skip => first,
        };
        report::print_row(&row);
        rows.push(row);
    }
}
