//! All checks: what continuous integration runs, and what tells whether the tree is sound.
//! What fails soonest comes first. Behind the build, steps run side by side, since most of them wait for clients that
//! start, loads that end and brokers that are patient: the trials beside the tests, then what stands in front of the
//! gateway beside the clients of other languages, and the fuzz targets beside all of it.
//!
//! Needs Rust and a C compiler. What else the steps use (Java, Python, Node.js, Go, kcat) they install
//! where they can, and name where they cannot; such a step is skipped with a word.

use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::{highwater, test_programs, tidy};

/// Fuzzing computes all the time and waits for nothing: it gets what the other lanes leave of the processors.
const FUZZ_NICENESS: &str = "10";

/// The lines of a failed step that the last words of the run repeat: the output of other steps follows the step's own.
const REPEATED_LINES: usize = 60;

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

/// All tests, and the program and the trials that they and the other steps run: in one profile, the one with
/// assertions and checks for overflow, so that nothing is built twice. `cargo build --release` compiles the same sources
/// with the same features.
const BUILD: Step = cargo(
    "all of it is built, clippy looks on",
    &["test", "--workspace", "--all-targets", "--no-run", "--quiet"],
);

/// Clippy's driver, which is the compiler with more lints, compiles the members of the workspace; a warning is an error. A
/// clippy of its own would check everything once more, all dependencies included, to throw that away.
pub const LINTED: [(&str, &str); 2] = [
    ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver"),
    // As `cargo clippy -- -D warnings` hands arguments over.
    ("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"),
];

const TRIALS: &[Step] = &[
    cargo("power failures", &["xt", "trial", "powerloss", "--rounds", "2"]),
    cargo(
        "power failures of three brokers at once",
        &["xt", "trial", "powerloss", "--brokers", "3", "--rounds", "2"],
    ),
    cargo(
        "sick disks and silent brokers",
        &["xt", "trial", "gaps", "--bounded", "--seconds", "10"],
    ),
    cargo("folders of an earlier version", &["xt", "trial", "adoption"]),
    cargo("damaged folders", &["xt", "trial", "damage", "--count", "120"]),
    cargo(
        "a herd of readers",
        &["xt", "trial", "herd", "--readers", "600", "--rate", "5", "--seconds", "3"],
    ),
];

/// Their own build and five seconds for each target.
const FUZZ: &[Step] = &[Step {
    name: "fuzz, shortly",
    program: "nice",
    arguments: &["-n", FUZZ_NICENESS, "cargo", "xt", "fuzz", "--seconds", "5"],
}];

/// What the real clients install, later steps use: they come first.
const CLIENTS: &[Step] = &[
    cargo("real clients", &["xt", "clients", "--output", "target/clients.json"]),
    cargo("a real text, with crashes", &["xt", "realtext"]),
    cargo("wrappers of the test broker", &["xt", "wrappers"]),
    // Every module once by its start script; Testcontainers for Python with real containers.
    cargo("the image of test suites", &["xt", "containers", "--starts", "1"]),
];

/// What stands beside the gateway and the console, and in front of them.
const FRONTS: &[Step] = &[
    cargo("clients in front of a protected Apache Kafka", &["xt", "secured"]),
    cargo("the gateway beside Strimzi's bridge", &["xt", "bridge"]),
    cargo("others' readers of events, and examples with curl", &["xt", "events"]),
    cargo(
        "requests made up from the OpenAPI document",
        &["xt", "openapi", "--examples", "8", "--seconds", "45"],
    ),
    cargo("a real browser", &["xt", "browser"]),
    // Builds the program of the last release if no earlier run has.
    cargo(
        "an upgrade from the last release, and the way back",
        &["xt", "upgrade", "--quick", "--skip-without-history"],
    ),
];

/// Runs the steps. The first that fails ends those behind it, and the run when those beside it have ended.
pub fn run(arguments: &Arguments) -> Result<()> {
    let began = Instant::now();
    println!("== tidy");
    tidy::run()?;
    run_step(&cargo("format", &["fmt", "--all", "--check"]))?;
    run_step_with(&BUILD, &LINTED)?;
    let built = highwater::target_folder().join("debug");
    let environment = Environment::of(&built)?;
    let fuzz = if arguments.quick { &[] } else { FUZZ };
    let failed = Mutex::new(Vec::new());
    let note = |outcome: Result<()>| {
        if let Err(cause) = outcome {
            failed.lock().expect("no lane panics").push(format!("{cause:#}"));
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| note(environment.run_all(fuzz)));
        let trials = scope.spawn(|| note(environment.run_all(TRIALS)));
        note(tests(&built.join("highwater")));
        trials.join().expect("no lane panics");
        // Clients of other languages are not started for a program that is known to be wrong.
        if arguments.quick || !failed.lock().expect("no lane panics").is_empty() {
            return;
        }
        scope.spawn(|| note(environment.run_all(FRONTS)));
        note(environment.run_all(CLIENTS));
    });
    println!("== all of it in {} s", began.elapsed().as_secs());
    let failed = failed.into_inner()?;
    if !failed.is_empty() {
        bail!("{}", failed.join("; "));
    }
    Ok(())
}

/// All tests, once, beside a fresh broker: those of our own client, of the load, the tools and the proxy talk to
/// it.
fn tests(program: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let settings = [("group.initial.rebalance.delay.ms", "0"), ("http.listener", "")];
    let data = scratch.path().join("data");
    let server = peer::highwater::start(program, &data, 0, &settings)?;
    println!("== tests");
    let began = Instant::now();
    let outcome = test_programs::run_all(&[("CLIENT_TEST_BOOTSTRAP", &server.bootstrap())]);
    println!("== tests: {} s", began.elapsed().as_secs());
    server.stop()?;
    outcome
}

/// The programs that were built with the tests are what the other steps try.
struct Environment {
    program: String,
    trials: String,
}

impl Environment {
    fn of(built: &Path) -> Result<Environment> {
        let text = |name: &str| {
            let path = built.join(name).into_os_string().into_string();
            path.ok().context("the target folder's name is not text")
        };
        Ok(Environment { program: text("highwater")?, trials: text("trials")? })
    }

    /// Runs the steps one behind the other; the first that fails is the last.
    fn run_all(&self, steps: &[Step]) -> Result<()> {
        steps.iter().try_for_each(|step| self.run(step))
    }

    /// Runs a step beside others, and prints what it had to say when it ends, so that no two are mixed.
    fn run(&self, step: &Step) -> Result<()> {
        println!("== begun: {}: {} {}", step.name, step.program, step.arguments.join(" "));
        let began = Instant::now();
        let mut command = Command::new(step.program);
        command
            .args(step.arguments)
            .env("HIGHWATER_BINARY", &self.program)
            .env("TRIALS_BINARY", &self.trials)
            .current_dir(tidy::root()?);
        let (status, said) =
            ended(&mut command).with_context(|| format!("cannot run {}", step.program))?;
        let seconds = began.elapsed().as_secs();
        println!("{said}\n== {}: {seconds} s", step.name);
        ensure!(status.success(), "{} failed:\n{}", step.name, last_lines(&said));
        Ok(())
    }
}

/// Waits until the command has ended; how it ended, and what it said on either way. A file takes its words: a pipe would
/// end with the last process that the command has left behind, if it has.
fn ended(command: &mut Command) -> Result<(ExitStatus, String)> {
    let mut words = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(words.try_clone()?).stderr(words.try_clone()?);
    let status = command.status()?;
    let mut said = Vec::new();
    words.rewind()?;
    words.read_to_end(&mut said)?;
    Ok((status, String::from_utf8_lossy(&said).into_owned()))
}

/// The end of a step's output, at most `REPEATED_LINES` lines.
fn last_lines(output: &str) -> &str {
    let start = output.trim_end().rmatch_indices('\n').nth(REPEATED_LINES - 1);
    &output[start.map_or(0, |(newline, _)| newline + 1)..]
}

fn run_step(step: &Step) -> Result<()> {
    run_step_with(step, &[])
}

fn run_step_with(step: &Step, environment: &[(&str, &str)]) -> Result<()> {
    println!("== {}: {} {}", step.name, step.program, step.arguments.join(" "));
    let began = Instant::now();
    let status = Command::new(step.program)
        .args(step.arguments)
        .envs(environment.iter().copied())
        .current_dir(tidy::root()?)
        .status()
        .with_context(|| format!("cannot run {}", step.program))?;
    println!("== {}: {} s", step.name, began.elapsed().as_secs());
    if !status.success() {
        bail!("{} failed", step.name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_end_of_an_output_has_its_last_lines() {
        let lines: Vec<_> = (0..REPEATED_LINES + 5).map(|line| format!("{line}\n")).collect();
        assert_eq!(last_lines(&lines.concat()), lines[5..].concat());
        assert_eq!(last_lines("one\ntwo"), "one\ntwo");
        assert_eq!(last_lines(""), "");
    }

    #[test]
    fn a_command_has_ended_though_it_left_a_process_behind() {
        let folder = tempfile::tempdir().unwrap();
        let script = "mkfifo gate; cat gate & echo one; echo two >&2; exit 3";
        let mut shell = Command::new("sh");
        let (status, said) = ended(shell.args(["-c", script]).current_dir(folder.path())).unwrap();
        assert_eq!((status.code(), &*said), (Some(3), "one\ntwo\n"));
        // Lets the process end that was left behind.
        fs::write(folder.path().join("gate"), "").unwrap();
    }
}
