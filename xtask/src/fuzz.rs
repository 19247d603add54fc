//! A short run of every fuzz target: finds what a change broke, not what was never found. Needs a
//! nightly toolchain and cargo-fuzz, which it installs if cargo can; else it says what is missing.

use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::tidy;

/// How long to fuzz.
#[derive(Args)]
pub struct Arguments {
    /// Seconds for each target
    #[arg(long, default_value_t = 30)]
    seconds: u64,
}

/// Runs every target.
pub fn run(arguments: &Arguments) -> Result<()> {
    let root = tidy::root()?;
    if !nightly_works() {
        println!("fuzz: skipped, it needs a nightly toolchain: rustup toolchain install nightly");
        return Ok(());
    }
    let targets = std::fs::read_dir(root.join("fuzz/fuzz_targets")).context("no fuzz targets")?;
    for target in targets {
        let name = target?.path();
        let name =
            name.file_stem().and_then(|stem| stem.to_str()).context("an odd name")?.to_owned();
        fuzz(&name, arguments.seconds)?;
    }
    Ok(())
}

fn nightly_works() -> bool {
    let version = Command::new("cargo").args(["+nightly", "--version"]).output();
    version.is_ok_and(|output| output.status.success())
}

/// Builds the target with coverage instrumentation and runs it: what cargo-fuzz does, without having
/// to install it.
fn fuzz(name: &str, seconds: u64) -> Result<()> {
    let root = tidy::root()?;
    let flags = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                 -Cllvm-args=-sanitizer-coverage-pc-table \
                 -Cdebug-assertions --cfg fuzzing";
    let corpus = root.join("fuzz/corpus").join(name);
    std::fs::create_dir_all(&corpus)?;
    println!("fuzz {name}: {seconds} s");
    let status = Command::new("cargo")
        .args(["+nightly", "run", "--quiet", "--release", "--target", "x86_64-unknown-linux-gnu"])
        .args(["--bin", name, "--"])
        .arg(&corpus)
        // By the clock, and the machine may pause: what takes a minute is a loop without an end.
        .args([&format!("-max_total_time={seconds}"), "-rss_limit_mb=1024", "-timeout=60"])
        .args(["-verbosity=0", "-print_final_stats=1"])
        .current_dir(root.join("fuzz"))
        .env("RUSTFLAGS", flags)
        // A short run is over before what more would be gained is built.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env_remove("RUSTUP_TOOLCHAIN")
        .status()
        .context("cannot run cargo +nightly")?;
    if !status.success() {
        bail!("fuzz target {name} found something: fuzz/artifacts/{name}");
    }
    Ok(())
}
