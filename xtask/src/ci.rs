//! All checks, in the order of how soon they can fail: what continuous integration runs, and what
//! anybody runs who wants to know whether the tree is sound.
//!
//! Needs Rust and a C compiler. What else the steps use (Java, Python, Node.js, Go, kcat) they install
//! where they can, and name where they cannot; such a step is skipped with a word.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{highwater, tidy};

/// How to check.
#[derive(Args)]
pub struct Arguments {
    /// Leave out what needs other languages' clients
    #[arg(long)]
    quick: bool,
}

/// One step: a name and a command.
struct Step {
    name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
}

const fn cargo(name: &'static str, arguments: &'static [&'static str]) -> Step {
    Step { name, program: "cargo", arguments }
}

const QUICK: &[Step] = &[
    cargo("format", &["fmt", "--all", "--check"]),
    cargo("clippy", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
    cargo("tests", &["test", "--workspace", "--quiet"]),
    cargo("the program", &["build", "--release", "--quiet"]),
];

const TRIALS: &[Step] = &[
    cargo("power failures", &["xt", "trial", "powerloss", "--rounds", "2"]),
    cargo("folders of an earlier version", &["xt", "trial", "adoption"]),
    cargo("damaged folders", &["xt", "trial", "damage", "--count", "120"]),
];

const CLIENTS: &[Step] = &[
    cargo("documents are fresh", &["xt", "compatibility", "--check"]),
    cargo("fuzz, shortly", &["xt", "fuzz", "--seconds", "5"]),
    cargo("real clients", &["xt", "clients", "--output", "target/clients.json"]),
    cargo("a real text, with crashes", &["xt", "realtext"]),
];

/// Runs the steps; the first that fails ends it.
pub fn run(arguments: &Arguments) -> Result<()> {
    let began = Instant::now();
    println!("== tidy");
    tidy::run()?;
    QUICK.iter().try_for_each(run_step)?;
    client_tests()?;
    TRIALS.iter().try_for_each(run_step)?;
    if !arguments.quick {
        CLIENTS.iter().try_for_each(run_step)?;
    }
    println!("== all of it in {} s", began.elapsed().as_secs());
    Ok(())
}

/// The tests of our own client, and of the load, the tools and the proxy that stand beside it, that need a broker:
/// against a fresh one.
fn client_tests() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let settings = [("group.initial.rebalance.delay.ms", "0"), ("http.listener", "")];
    let server =
        highwater::start(&scratch.path().join("data"), highwater::free_port()?, &settings)?;
    println!(
        "== our client: cargo test -p client -p perf -p proxy, against {}",
        server.bootstrap()
    );
    let status = Command::new("cargo")
        .args(["test", "-p", "client", "-p", "perf", "-p", "proxy", "--quiet"])
        .env("CLIENT_TEST_BOOTSTRAP", server.bootstrap())
        .current_dir(tidy::root()?)
        .status()?;
    server.stop()?;
    if !status.success() {
        bail!("our client's tests failed against the broker");
    }
    Ok(())
}

fn run_step(step: &Step) -> Result<()> {
    println!("== {}: {} {}", step.name, step.program, step.arguments.join(" "));
    let began = Instant::now();
    let status = Command::new(step.program)
        .args(step.arguments)
        .current_dir(tidy::root()?)
        .status()
        .with_context(|| format!("cannot run {}", step.program))?;
    println!("== {}: {} s", step.name, began.elapsed().as_secs());
    if !status.success() {
        bail!("{} failed", step.name);
    }
    Ok(())
}
