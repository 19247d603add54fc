//! A real browser in front of the console of three brokers under load, of Highwater or of Apache Kafka: every page in both colour
//! schemes and two sizes, axe, and actions by mouse and keyboard. The pictures are what a person looks at afterwards.
//!
//! Needs Node.js, and Chromium, which is installed where the system's package manager can. Without them the step is skipped with
//! a word.

mod cluster;
mod installed;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use peer::process;

use crate::front::Gateway;
use crate::highwater;
use crate::repository::repository;
use cluster::{Before, Cluster};

/// How long the browser may take.
const LIMIT: Duration = Duration::from_secs(400);
/// How long a command may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
/// Topics and their copies: one that is read and produced to, and one that a load of a known rate goes to.
const TOPICS: [(&str, &str); 2] = [("orders", "3"), ("metered", "1")];

/// How to look.
#[derive(Args)]
pub struct Arguments {
    /// Whose brokers the console stands before
    #[arg(long, value_enum, default_value = "highwater")]
    before: Before,
    /// A folder for the pictures
    #[arg(long, default_value = "target/browser")]
    shots: PathBuf,
}

/// Looks, or says why not.
pub fn run(arguments: &Arguments) -> Result<()> {
    let (modules, chromium) = match (installed::modules(), installed::chromium()) {
        (Ok(modules), Ok(chromium)) => (modules, chromium),
        (Err(why), _) | (_, Err(why)) => {
            println!("skipped: no browser here: {why:#}");
            return Ok(());
        }
    };
    if let Err(missing) = arguments.before.check() {
        println!("skipped: Apache Kafka does not run here: {missing:#}");
        return Ok(());
    }
    let shots = repository().join(&arguments.shots);
    if shots.exists() {
        fs::remove_dir_all(&shots)?;
    }
    fs::create_dir_all(&shots)?;
    let program = highwater::binary()?;
    let scratch = tempfile::tempdir()?;
    let cluster = Cluster::start(arguments.before, &program, scratch.path())?;
    for (topic, copies) in TOPICS {
        let mut create = process::command(&program);
        create.args(["topic", "create", topic, "--partitions", "6"]);
        create.args(["--replication-factor", copies]).args(cluster.access());
        let outcome = process::run(&mut create, None, COMMAND_LIMIT)?;
        ensure!(outcome.success(), "no topic {topic}: {}", outcome.story());
    }
    let kept = format!("console.state.dir={}", scratch.path().join("console").display());
    // The published report stands for a run of the laboratory.
    let runs = format!("console.lab.dir={}", repository().join("docs/reports").display());
    let settings = ["--set", "console.write=true", "--set", &kept, "--set", &runs];
    let more: Vec<&str> = settings.into_iter().chain(cluster.config()).collect();
    let gateway = Gateway::start(&program, &cluster.bootstrap, 0, &more)?;
    let mut node = process::command("node");
    node.arg(repository().join("conformance/browser/main.js"));
    node.env("NODE_PATH", modules.join("node_modules")).env("CHROMIUM", chromium);
    node.env("CONSOLE", format!("http://{}", gateway.address)).env("SHOTS", &shots);
    let report = repository().join("docs/reports/2-cores-cluster/report.html");
    node.env("REPORT", format!("file://{}", report.display()));
    node.env("HIGHWATER", &program).env("ACCESS", serde_json::to_string(&cluster.access())?);
    if let Some(groups) = cluster.kafkas_groups()? {
        node.env("KAFKAS_GROUPS", serde_json::to_string(&groups)?);
    }
    let outcome = process::run(&mut node, None, LIMIT)?;
    print!("{}", outcome.text());
    gateway.stop()?;
    cluster.stop()?;
    ensure!(outcome.success(), "the browser found fault: {}", outcome.story());
    println!("pictures: {}", shots.display());
    Ok(())
}
