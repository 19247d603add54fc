//! `cargo xt upgrade`: an upgrade from the last release to this checkout, the way back, and a later release.
//!
//! Finds the last release in the history of RELEASES.md, builds its program, and runs the trial `upgrade` of `crates/trials`
//! with both programs and with producers of other client libraries. Both programs are debug builds: this release's plays a
//! later one, which a release build cannot.

mod earlier;
mod history;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use peer::{apache_kafka, process};

use crate::repository::repository;
use crate::{clients, highwater, trials};
use history::{MissingHistory, Release};

/// Time that a build may take.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);
/// The program that produces with Kafka's own client.
const JAVA_SOURCE: &str = "crates/lab/src/failover/Produce.java";

/// `cargo xt upgrade`
#[derive(Debug, Args)]
pub struct Arguments {
    /// Wait for fewer records between the steps
    #[arg(long)]
    quick: bool,
    /// Without the history that names the last release, print the reason and succeed
    #[arg(long)]
    skip_without_history: bool,
}

/// Runs the trial.
pub fn run(arguments: &Arguments) -> Result<()> {
    let release = match history::last_release(&repository()) {
        Ok(release) => release,
        Err(error) if arguments.skip_without_history && error.is::<MissingHistory>() => {
            println!("upgrade: skipped: {error}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let Release { name, commit } = &release;
    println!("upgrade: from release {name}, commit {commit}");
    let old = earlier::program(&release)?;
    let new = this_program()?;
    let scratch = tempfile::tempdir()?;
    let mut command = trials::program()?;
    command.arg("upgrade").arg("--binary").arg(new).arg("--old").arg(old);
    if arguments.quick {
        command.arg("--quick");
    }
    for (client, script) in producers(scratch.path())? {
        command.arg("--client").arg(format!("{client}={}", script.display()));
    }
    let status = command.current_dir(repository()).status().context("cannot run the trials")?;
    ensure!(status.success(), "the trial failed");
    Ok(())
}

/// `$HIGHWATER_BINARY`, or the debug build of this checkout.
fn this_program() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("HIGHWATER_BINARY") {
        return Ok(PathBuf::from(path));
    }
    eprintln!("building highwater (debug) …");
    build(&repository(), &highwater::target_folder())?;
    Ok(highwater::target_folder().join("debug/highwater"))
}

/// Builds the program of the checkout at `source`. Features are those of the whole workspace, as for the tests: the
/// external crates of one build serve the other.
fn build(source: &Path, target: &Path) -> Result<()> {
    let mut cargo = process::command("cargo");
    cargo.args(["build", "--workspace", "--bin", "highwater"]).current_dir(source);
    cargo.env("CARGO_TARGET_DIR", target);
    let outcome = process::run(&mut cargo, None, BUILD_LIMIT)?;
    ensure!(outcome.success(), "the build failed: {}", outcome.story());
    Ok(())
}

/// Scripts that start producers of other client libraries, by the library's name. A library that cannot run here is named
/// on standard error and left out.
fn producers(folder: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    let java = || {
        apache_kafka::check_source()?;
        let command = apache_kafka::source_program(&repository().join(JAVA_SOURCE))?;
        Ok(script_of(&command))
    };
    let librdkafka = || Ok(clients::program("confluent-kafka")?.script("produce"));
    let scripts: [(&str, Result<String>); 2] = [("java", java()), ("librdkafka", librdkafka())];
    let mut written = Vec::new();
    for (name, script) in scripts {
        match script {
            Ok(script) => {
                let path = folder.join(name);
                fs::write(&path, script)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
                written.push((name, path));
            }
            Err(error) => eprintln!("without {name}, which cannot run here: {error:#}"),
        }
    }
    Ok(written)
}

/// A shell script that runs a command in its place.
fn script_of(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let words: Vec<String> =
        words.map(|word| clients::quoted(&word.display().to_string())).collect();
    format!("#!/bin/sh\nexec {}\n", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_runs_the_command_with_its_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script");
        let mut command = Command::new("printf");
        command.args(["%s|", "a b", "it's"]);
        fs::write(&path, script_of(&command)).unwrap();
        let outcome =
            process::run(process::command("sh").arg(path), None, Duration::from_secs(60)).unwrap();
        assert_eq!(outcome.text(), "a b|it's|");
    }
}
