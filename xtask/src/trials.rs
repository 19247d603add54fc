//! The trials of `crates/trials`, on the release build of this checkout. A program of its own, so that `cargo xt` stays small:
//! `$TRIALS_BINARY`, or built when needed.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::{highwater, tidy};

/// Which trial, and its options.
#[derive(Args)]
pub struct Arguments {
    /// `powerloss`, `rejoin`, `gaps`, `damage` or `adoption`, and options; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    trial: Vec<OsString>,
}

/// Runs one trial.
pub fn run(arguments: &Arguments) -> Result<()> {
    let binary = highwater::binary()?;
    let status = program()?
        .args(&arguments.trial)
        .arg("--binary")
        .arg(binary)
        .current_dir(tidy::root()?)
        .status()
        .context("cannot run the trials")?;
    ensure!(status.success(), "the trial failed");
    Ok(())
}

/// The program of the trials: `$TRIALS_BINARY`, or cargo, which builds it.
pub fn program() -> Result<Command> {
    if let Some(built) = std::env::var_os("TRIALS_BINARY") {
        let mut program = Command::new(built);
        // Cargo has named this package's folder, and the trials' own folders of earlier versions are wanted.
        program.env("CARGO_MANIFEST_DIR", tidy::root()?.join("crates/trials"));
        return Ok(program);
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "--package", "trials", "--"]);
    Ok(cargo)
}
