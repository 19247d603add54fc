//! The trials of `crates/trials`, on the release build of this checkout. A program of its own, so that `cargo xt` stays small.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::{highwater, tidy};

/// Which trial, and its options.
#[derive(Args)]
pub struct Arguments {
    /// `powerloss`, `damage` or `adoption`, and options; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    trial: Vec<OsString>,
}

/// Runs one trial.
pub fn run(arguments: &Arguments) -> Result<()> {
    let binary = highwater::binary()?;
    let status = Command::new("cargo")
        .args(["run", "--quiet", "--package", "trials", "--"])
        .args(&arguments.trial)
        .arg("--binary")
        .arg(binary)
        .current_dir(tidy::root()?)
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the trial failed");
    Ok(())
}
