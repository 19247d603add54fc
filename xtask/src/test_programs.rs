//! The programs that hold the workspace's tests, run two at a time.
//!
//! `cargo test` runs them one behind the other. Some of them wait most of their time (for a load to be over, for a
//! broker that is to be patient), so a second one finds a processor idle.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::ci::LINTED;
use crate::tidy;

/// Programs at a time.
const LANES: usize = 2;
/// Tests that take minutes: what is begun last should be short.
const LONGEST: [&str; 2] = ["lab", "strangers"];

/// Lines of a failed program's output that are printed: those of each panic, and the last ones.
const PANIC_LINES: usize = 12;
const LAST_LINES: usize = 60;

/// One program.
struct Program {
    /// Package and target.
    name: String,
    executable: PathBuf,
    /// The package's folder, where cargo would run it.
    folder: PathBuf,
}

/// Runs the tests of the whole workspace, which were built with the lints, with this environment. All of them
/// run; fails if one of them failed.
pub fn run_all(environment: &[(&str, &str)]) -> Result<()> {
    let mut programs = programs()?;
    ensure!(!programs.is_empty(), "cargo names no test program");
    let is_long = |program: &Program| LONGEST.iter().any(|long| program.name.ends_with(long));
    programs.sort_by_key(|program| !is_long(program));
    let waiting = Mutex::new(VecDeque::from(programs));
    let failed = Mutex::new(Vec::new());
    let next = || waiting.lock().expect("no lane panics").pop_front();
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some(program) = next() {
                    if !program.passes(environment) {
                        failed.lock().expect("no lane panics").push(program.name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner()?;
    if !failed.is_empty() {
        bail!("tests failed in {}", failed.join(", "));
    }
    Ok(())
}

impl Program {
    /// Runs it, and prints what it had to say when it ends.
    fn passes(&self, environment: &[(&str, &str)]) -> bool {
        let began = Instant::now();
        let mut command = Command::new(&self.executable);
        // A panic on a vital thread aborts the program: the harness has no time to print captured output.
        command
            .args(["--quiet", "--nocapture"])
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder);
        let output = command.envs(environment.iter().copied()).output();
        let seconds = began.elapsed().as_secs();
        match output {
            Ok(output) if output.status.success() => {
                let said = String::from_utf8_lossy(&output.stdout);
                let result = said.lines().rfind(|line| line.starts_with("test result: "));
                println!("{}: {seconds} s, {}", self.name, result.unwrap_or("no tests"));
                true
            }
            Ok(output) => {
                let said = [output.stdout, output.stderr].concat();
                let said = String::from_utf8_lossy(&said);
                println!(
                    "{}: {}, {seconds} s, FAILED\n{}",
                    self.name,
                    output.status,
                    failure(&said)
                );
                false
            }
            Err(cause) => {
                println!("{}: cannot run {}: {cause}", self.name, self.executable.display());
                false
            }
        }
    }
}

/// The panics in the output of a test program that failed, and the end of the output.
fn failure(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    let is_panic = |at: &usize| lines[*at].contains("panicked at");
    let panics = (0..lines.len()).filter(is_panic);
    let panics = panics.flat_map(|at| &lines[at..lines.len().min(at + PANIC_LINES)]);
    let end = &lines[lines.len().saturating_sub(LAST_LINES)..];
    panics.chain(["…"].iter()).chain(end).copied().collect::<Vec<_>>().join("\n")
}

/// What cargo has built for the tests.
fn programs() -> Result<Vec<Program>> {
    let output = Command::new("cargo")
        .args(["test", "--workspace", "--tests", "--no-run", "--quiet", "--message-format=json"])
        .envs(LINTED)
        .current_dir(tidy::root()?)
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout)?;
    messages.lines().filter_map(|line| program(line).transpose()).collect()
}

/// The program that a message of cargo's names; none if it says something else.
fn program(message: &str) -> Result<Option<Program>> {
    let message: Value = serde_json::from_str(message)?;
    let is_test = message["profile"]["test"] == true;
    let Some(executable) = message["executable"].as_str().filter(|_| is_test) else {
        return Ok(None);
    };
    let manifest = message["manifest_path"].as_str().context("an artifact without a manifest")?;
    let folder =
        PathBuf::from(manifest).parent().context("a manifest without a folder")?.to_owned();
    let package = folder.file_name().context("a package without a folder")?.to_string_lossy();
    let target = message["target"]["name"].as_str().context("an artifact without a name")?;
    let name = format!("{package}/{target}");
    Ok(Some(Program { name, executable: executable.into(), folder }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_its_panics_and_ends_with_the_last_lines() {
        let noise = "noise\n".repeat(LAST_LINES + PANIC_LINES);
        let output = format!("thread 'a' panicked at a.rs:1:1:\nleft: 1\n{noise}the end\n");
        let said = failure(&output);
        assert!(said.starts_with("thread 'a' panicked at a.rs:1:1:\nleft: 1\n"), "{said}");
        assert!(said.ends_with("\nthe end"), "{said}");
        assert_eq!(said.lines().count(), PANIC_LINES + 1 + LAST_LINES);
        assert_eq!(failure(""), "…");
    }

    #[test]
    fn a_test_program_is_told_from_what_else_cargo_says() {
        let said = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/wire/Cargo.toml",
            "target":{"name":"it"},"profile":{"test":true},"executable":"/w/target/debug/deps/it-1"}"#;
        let found = program(said).unwrap().unwrap();
        assert_eq!(found.name, "wire/it");
        assert_eq!(found.folder, PathBuf::from("/w/crates/wire"));
        let library = said.replace("true", "false");
        assert!(program(&library).unwrap().is_none());
        assert!(program(r#"{"reason":"build-finished","success":true}"#).unwrap().is_none());
        assert!(program("cargo says").is_err());
    }
}
