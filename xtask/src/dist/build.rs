//! Static binaries: built by zig's C compiler and linker, so that one machine builds for all processors.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use peer::{download, process};

use super::{Arch, Release};
use crate::clients;
use crate::repository::repository;

/// Longest time of one build.
const BUILD_LIMIT: Duration = Duration::from_secs(4 * 3600);
/// Longest time to install the standard library of a target.
const INSTALL_LIMIT: Duration = Duration::from_secs(600);
/// Shells with completions, and the names under which they look for them.
pub(super) const SHELLS: [(&str, &str); 3] =
    [("bash", "highwater.bash"), ("zsh", "_highwater"), ("fish", "highwater.fish")];

/// Manual pages and completions, the same for all processors.
pub(super) struct ShellHelp {
    /// Folder of manual pages, `highwater.1` and one a command.
    pub(super) manual: PathBuf,
    /// Folder of completions, named as in [`SHELLS`].
    pub(super) completions: PathBuf,
}

/// Builds the static binary below `target`.
pub(super) fn static_binary(arch: Arch, release: &Release, target: &Path) -> Result<PathBuf> {
    let mut cargo = static_build(arch, release, target, "build")?;
    run_build(&mut cargo)?;
    built(arch, target)
}

/// Builds the same binary with its symbols. It has another name: images are made of the stripped one.
pub(super) fn unstripped_binary(arch: Arch, release: &Release, target: &Path) -> Result<PathBuf> {
    let mut cargo = static_build(arch, release, target, "rustc")?;
    run_build(cargo.args(["--bin", "highwater", "--", "-C", "strip=none"]))?;
    let binary = built(arch, target)?;
    let unstripped = binary.with_file_name("highwater-unstripped");
    std::fs::rename(binary, &unstripped)?;
    Ok(unstripped)
}

/// Path of the binary that a build left below `target`.
fn built(arch: Arch, target: &Path) -> Result<PathBuf> {
    let binary = binary_folder(target, arch).join("highwater");
    ensure!(binary.is_file(), "the build left no {}", binary.display());
    Ok(binary)
}

/// A subcommand of cargo that builds the static binary below `target`.
fn static_build(arch: Arch, release: &Release, target: &Path, subcommand: &str) -> Result<Command> {
    let python =
        clients::python_environment(&repository().join("conformance/dist/requirements.txt"))
            .context("cannot install cargo-zigbuild and zig")?;
    install_target(arch)?;
    eprintln!("building for {} …", arch.target());
    let mut cargo = process::command(python.join("bin/cargo-zigbuild"));
    cargo.args([subcommand, "--locked", "--profile", "dist", "--package", "highwater"]);
    cargo.args(["--target", arch.target()]).current_dir(repository());
    // The wrapper finds zig by the interpreter of its own environment.
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(python.join("bin")).chain(std::env::split_paths(&paths));
    cargo.env("PATH", std::env::join_paths(paths)?);
    cargo.env("CARGO_TARGET_DIR", target).env("CARGO_INCREMENTAL", "0");
    cargo.env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    let remapped = remapped_paths(target)?;
    let flags = remapped.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}"));
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.collect::<Vec<_>>().join("\u{1f}"));
    let flags = remapped.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}"));
    cargo.env("CFLAGS", flags.collect::<Vec<_>>().join(" "));
    Ok(cargo)
}

/// Folder of the static binary below `target`.
pub(super) fn binary_folder(target: &Path, arch: Arch) -> PathBuf {
    target.join(arch.target()).join("dist")
}

/// Paths of this machine, with the names that stand for them in a binary.
fn remapped_paths(target: &Path) -> Result<Vec<(String, &'static str)>> {
    let home = || std::env::var_os("HOME").map(PathBuf::from);
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(home()?.join(".cargo"))).context("no HOME")?;
    let text = |path: &Path| -> Result<String> {
        let path = path.to_str().context("a path is not UTF-8")?;
        // The C compiler's flags are separated by spaces.
        ensure!(
            !path.contains(char::is_whitespace),
            "{path:?} contains a space: move the checkout"
        );
        Ok(path.to_owned())
    };
    // The compiler takes the last one that matches, and the target folder may be in the checkout.
    Ok(vec![
        (text(&cargo_home)?, "/cargo"),
        (text(&repository())?, "/highwater"),
        (text(target)?, "/build"),
    ])
}

/// Installs the standard library of the target, where rustup manages the compiler.
fn install_target(arch: Arch) -> Result<()> {
    if !process::is_installed("rustup") {
        return Ok(());
    }
    let mut rustup = process::command("rustup");
    rustup.args(["target", "add", arch.target()]).current_dir(repository());
    let outcome = download::run(&mut rustup, INSTALL_LIMIT)?;
    ensure!(outcome.success(), "rustup target add {}: {}", arch.target(), outcome.story());
    Ok(())
}

/// Writes manual pages and completions by a program of this machine's own target, below `target`.
pub(super) fn shell_help(target: &Path) -> Result<ShellHelp> {
    let program = program_of_this_machine(target)?;
    let (manual, completions) = (target.join("manual"), target.join("completions"));
    for folder in [&manual, &completions] {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)?;
    }
    let run = |arguments: &[&str]| -> Result<Vec<u8>> {
        let output = Command::new(&program).args(arguments).output()?;
        ensure!(output.status.success(), "{} {arguments:?} failed", program.display());
        Ok(output.stdout)
    };
    run(&["man-pages", manual.to_str().context("a path is not UTF-8")?])?;
    for (shell, name) in SHELLS {
        std::fs::write(completions.join(name), run(&["completions", shell])?)?;
    }
    Ok(ShellHelp { manual, completions })
}

/// `$HIGHWATER_BINARY`, or a debug build of this checkout.
fn program_of_this_machine(target: &Path) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("HIGHWATER_BINARY") {
        return Ok(PathBuf::from(path));
    }
    eprintln!("building highwater (debug) for its manual pages …");
    let mut cargo = process::command("cargo");
    cargo.args(["build", "--locked", "--package", "highwater"]).current_dir(repository());
    cargo.env("CARGO_TARGET_DIR", target);
    run_build(&mut cargo)?;
    Ok(target.join("debug/highwater"))
}

fn run_build(cargo: &mut Command) -> Result<()> {
    let outcome = process::run(cargo, None, BUILD_LIMIT)?;
    ensure!(outcome.success(), "the build failed: {}", outcome.story());
    Ok(())
}
