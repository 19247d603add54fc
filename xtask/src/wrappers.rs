//! `cargo xt wrappers`: the test of each wrapper of `highwater test-broker`, against a program and with a real client of the
//! wrapper's language. Every test carries out the behaviours of `wrappers/conformance.json`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use peer::process;

use crate::clients::{node_modules, python_environment};
use crate::highwater;
use crate::repository::repository;

/// How long the test of one wrapper may take, the installation of its client included.
const LIMIT: Duration = Duration::from_secs(900);
/// Names the program to the wrappers.
const BINARY_VARIABLE: &str = "HIGHWATER_BIN";

/// `cargo xt wrappers`
#[derive(Debug, Args)]
pub struct Arguments {
    /// Only these wrappers: their folders' names (may be repeated or separated by commas)
    #[arg(long = "wrapper", value_delimiter = ',')]
    wrappers: Vec<String>,
}

/// A wrapper in a folder of `wrappers`.
struct Wrapper {
    /// The folder's name.
    name: &'static str,
    /// Programs without which its test is skipped, each with an argument that it accepts.
    needs: &'static [(&'static str, &'static str)],
    /// Runs its test with the program.
    test: fn(folder: &Path, program: &Path) -> Result<()>,
}

const WRAPPERS: &[Wrapper] = &[
    Wrapper { name: "python", needs: &[("python3", "--version")], test: python },
    Wrapper { name: "node", needs: &[("node", "--version"), ("npm", "--version")], test: node },
    Wrapper { name: "java", needs: &[("java", "--version"), ("mvn", "--version")], test: java },
    Wrapper { name: "go", needs: &[("go", "version")], test: go },
    Wrapper { name: "rust", needs: &[("cargo", "--version")], test: rust },
];

/// Runs the tests; fails when one failed.
pub fn run(arguments: &Arguments) -> Result<()> {
    let unknown =
        arguments.wrappers.iter().find(|name| WRAPPERS.iter().all(|it| it.name != **name));
    ensure!(unknown.is_none(), "no wrapper {}", unknown.map_or("", String::as_str));
    let program = highwater::binary()?;
    let program = program.canonicalize().with_context(|| program.display().to_string())?;
    let wanted = |it: &&Wrapper| {
        arguments.wrappers.is_empty() || arguments.wrappers.iter().any(|name| name == it.name)
    };
    for wrapper in WRAPPERS.iter().filter(wanted) {
        let missing = wrapper.needs.iter().find(|(program, argument)| {
            !process::run(process::command(program).arg(argument), None, LIMIT)
                .is_ok_and(|outcome| outcome.success())
        });
        if let Some((missing, _)) = missing {
            println!("wrapper {}: skipped, {missing} does not run here", wrapper.name);
            continue;
        }
        let folder = repository().join("wrappers").join(wrapper.name);
        (wrapper.test)(&folder, &program).with_context(|| format!("wrapper {}", wrapper.name))?;
    }
    Ok(())
}

/// Runs a command to its end and prints the last line of its output.
fn must_pass(name: &str, command: &mut Command) -> Result<()> {
    let outcome = process::run(command, None, LIMIT)?;
    ensure!(outcome.success(), "{}\n{}", outcome.text(), outcome.story());
    let text = outcome.text();
    println!("wrapper {name}: {}", text.trim_end().lines().last().unwrap_or("passed"));
    Ok(())
}

/// Builds the wheel, installs it beside the client, and lets pytest find the fixtures by its entry point.
fn python(folder: &Path, program: &Path) -> Result<()> {
    let environment = python_environment(&folder.join("requirements.txt"))?;
    let python = environment.join("bin/python");
    let scratch = tempfile::tempdir()?;
    // The build writes beside its sources.
    let source = scratch.path().join("source");
    copy(folder, &source)?;
    let (wheels, site) = (scratch.path().join("wheels"), scratch.path().join("site"));
    let pip = |command: &str| {
        let mut pip = process::command(&python);
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check", command, "--no-deps"]);
        pip
    };
    let mut build = pip("wheel");
    build.arg("--no-build-isolation").arg("--wheel-dir").arg(&wheels).arg(&source);
    must_pass("python, the wheel", &mut build)?;
    let wheel = fs::read_dir(&wheels)?.next().context("no wheel was built")??.path();
    must_pass("python, its installation", pip("install").arg("--target").arg(&site).arg(wheel))?;
    let mut test = process::command(&python);
    test.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(folder.join("tests"));
    test.env("PYTHONPATH", &site).env("PYTHONDONTWRITEBYTECODE", "1");
    must_pass("python", test.env(BINARY_VARIABLE, program))
}

/// Copies a folder's files and folders.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}

fn node(folder: &Path, program: &Path) -> Result<()> {
    let modules = node_modules(folder)?;
    let mut test = process::command("node");
    test.args(["--test", "--test-reporter=dot"]).arg(folder.join("test"));
    must_pass("node", test.env("NODE_PATH", modules).env(BINARY_VARIABLE, program))
}

fn go(folder: &Path, program: &Path) -> Result<()> {
    let mut test = process::command("go");
    test.args(["test", "-mod=readonly", "-count=1", "."]).current_dir(folder);
    must_pass("go", test.env(BINARY_VARIABLE, program))
}

fn java(folder: &Path, program: &Path) -> Result<()> {
    // Maven builds beside its sources; the test reads the list of behaviours beside the wrapper.
    let scratch = tempfile::tempdir()?;
    let source = scratch.path().join("java");
    copy(folder, &source)?;
    let list = "conformance.json";
    fs::copy(folder.with_file_name(list), scratch.path().join(list))?;
    let mut test = process::command("mvn");
    test.args(["-q", "-B", "test"]).current_dir(source);
    must_pass("java", test.env(BINARY_VARIABLE, program))
}

fn rust(folder: &Path, program: &Path) -> Result<()> {
    let mut test = process::command("cargo");
    test.args(["test", "--quiet", "--test", "conformance"]).current_dir(folder);
    test.env("CARGO_TARGET_DIR", highwater::target_folder().join("wrappers"));
    must_pass("rust", test.env(BINARY_VARIABLE, program))
}
