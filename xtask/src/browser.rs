//! A real browser in front of the console of three brokers under load: every page in both colour schemes and two sizes, axe, and
//! actions by mouse and keyboard. The pictures are what a person looks at afterwards.
//!
//! Needs Node.js, and Chromium, which is installed where the system's package manager can. Without them the step is skipped with
//! a word.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use peer::process::{self, Guarded};
use peer::{cache, download};

use crate::highwater;
use crate::repository::repository;

/// How long the browser may take.
const LIMIT: Duration = Duration::from_secs(240);
/// How long an installation may take.
const INSTALL_LIMIT: Duration = Duration::from_secs(600);
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// The names that Chromium has.
const CHROMIUM: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// How to look.
#[derive(Args)]
pub struct Arguments {
    /// A folder for the pictures
    #[arg(long, default_value = "target/browser")]
    shots: PathBuf,
}

/// Looks, or says why not.
pub fn run(arguments: &Arguments) -> Result<()> {
    let (modules, chromium) = match (modules(), chromium()) {
        (Ok(modules), Ok(chromium)) => (modules, chromium),
        (Err(why), _) | (_, Err(why)) => {
            println!("skipped: no browser here: {why:#}");
            return Ok(());
        }
    };
    let shots = repository().join(&arguments.shots);
    if shots.exists() {
        fs::remove_dir_all(&shots)?;
    }
    fs::create_dir_all(&shots)?;
    let program = highwater::binary()?;
    let scratch = tempfile::tempdir()?;
    let settings = [("group.initial.rebalance.delay.ms", "0")];
    let brokers = peer::highwater::start_cluster(&program, scratch.path(), 3, &settings)?;
    let bootstrap: Vec<String> = brokers.iter().map(peer::highwater::Server::bootstrap).collect();
    let bootstrap = bootstrap.join(",");
    let mut topic = process::command(&program);
    let made = ["topic", "create", "orders", "--partitions", "6", "--replication-factor", "3"];
    topic.args(made).args(["--bootstrap-server", &bootstrap]);
    let outcome = process::run(&mut topic, None, STOP_LIMIT)?;
    ensure!(outcome.success(), "no topic: {}", outcome.story());
    let (mut gateway, address) = gateway(&program, &bootstrap, scratch.path())?;
    let mut node = process::command("node");
    node.arg(repository().join("conformance/browser/main.js"));
    node.env("NODE_PATH", modules.join("node_modules")).env("CHROMIUM", chromium);
    node.env("CONSOLE", format!("http://{address}")).env("BOOTSTRAP", &bootstrap);
    node.env("HIGHWATER", &program).env("SHOTS", &shots);
    let outcome = process::run(&mut node, None, LIMIT)?;
    print!("{}", outcome.text());
    gateway.stop(STOP_LIMIT)?;
    for broker in brokers {
        broker.stop()?;
    }
    ensure!(outcome.success(), "the browser found fault: {}", outcome.story());
    println!("pictures: {}", shots.display());
    Ok(())
}

/// A gateway with a console that may act, and where it listens.
fn gateway(program: &Path, bootstrap: &str, scratch: &Path) -> Result<(Guarded, String)> {
    let kept = format!("console.state.dir={}", scratch.join("console").display());
    let mut command = process::command(program);
    command.args(["gateway", "--listener", "127.0.0.1:0", "--bootstrap-server", bootstrap]);
    command.args(["--set", "console.write=true", "--set", &kept]);
    let log = fs::File::create(scratch.join("gateway.log"))?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut gateway = Guarded::spawn(&mut command)?;
    let said = gateway.child().stdout.take().context("its output is piped")?;
    let (mut said, mut first) = (BufReader::new(said), String::new());
    said.read_line(&mut first)?;
    // A gateway without a reader could not go on speaking.
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    let address = first.trim().strip_prefix("gateway: http://").context("no gateway")?.to_owned();
    Ok((gateway, address))
}

/// The modules of the lock file.
fn modules() -> Result<PathBuf> {
    ensure!(process::is_installed("node") && process::is_installed("npm"), "there is no Node.js");
    let source = repository().join("conformance/browser");
    let lock = fs::read_to_string(source.join("package-lock.json"))?;
    let mut hasher = DefaultHasher::new();
    lock.hash(&mut hasher);
    let stamp = hasher.finish();
    cache::once(&format!("browser-{stamp:016x}"), |fresh| {
        eprintln!("installing playwright-core and axe-core …");
        for name in ["package.json", "package-lock.json"] {
            fs::copy(source.join(name), fresh.join(name))?;
        }
        let mut npm = process::command("npm");
        npm.args(["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]);
        let outcome = download::run(npm.current_dir(fresh), INSTALL_LIMIT)?;
        ensure!(outcome.success(), "npm: {}", outcome.story());
        Ok(())
    })
}

/// The browser, installed if that can be done without asking.
fn chromium() -> Result<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let in_path = |name: &str| {
        std::env::split_paths(&paths).map(|folder| folder.join(name)).find(|file| file.is_file())
    };
    let there = || CHROMIUM.into_iter().find_map(in_path);
    if let Some(file) = there() {
        return Ok(file);
    }
    ensure!(process::is_installed("apt-get"), "there is no Chromium");
    eprintln!("installing chromium …");
    for words in [&["update"][..], &["install", "-y", "--no-install-recommends", "chromium"]] {
        let mut apt = process::command("apt-get");
        apt.args(words).env("DEBIAN_FRONTEND", "noninteractive");
        let outcome = download::run(&mut apt, INSTALL_LIMIT)?;
        ensure!(outcome.success(), "apt-get: {}", outcome.story());
    }
    there().context("there is no Chromium")
}
