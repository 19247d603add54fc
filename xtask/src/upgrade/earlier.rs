//! The program of an earlier release, built once in a worktree of its own.
//!
//! Cargo's names of artifacts do not depend on the worktree, so the build has a target folder of its own. External crates
//! are the same in both builds: their artifacts are linked from the checkout's target folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use peer::process;

use super::build;
use super::history::Release;
use crate::highwater::target_folder;
use crate::repository::repository;

/// Time that git or cp may take.
const COPY_LIMIT: Duration = Duration::from_secs(600);

/// Returns the program of the release; builds it if it is not there.
pub fn program(release: &Release) -> Result<PathBuf> {
    let folder = target_folder().join("upgrade").join(&release.commit);
    let program = folder.join("highwater");
    if program.exists() {
        return Ok(program);
    }
    fs::create_dir_all(&folder)?;
    // Another run may build the same release.
    let lock = fs::File::create(folder.join("lock"))?;
    lock.lock()?;
    if program.exists() {
        return Ok(program);
    }
    let began = Instant::now();
    eprintln!("building highwater of release {} (debug) …", release.name);
    let (source, target) = (folder.join("source"), folder.join("target"));
    check_out(&release.commit, &source)?;
    seed(&source, &target.join("debug"))?;
    build(&source, &target)?;
    let fresh = folder.join("highwater.fresh");
    fs::copy(target.join("debug/highwater"), &fresh)?;
    fs::rename(&fresh, &program)?;
    // The program is kept; its build takes a gigabyte.
    fs::remove_dir_all(&target)?;
    git(&["worktree", "remove", "--force"], &source)?;
    println!("upgrade: release {} built in {:.0?}", release.name, began.elapsed());
    Ok(program)
}

/// Makes a worktree of the commit at `source`.
fn check_out(commit: &str, source: &Path) -> Result<()> {
    if source.join("Cargo.toml").exists() {
        return Ok(());
    }
    // Twice: git remembers a worktree whose folder was removed with the target folder.
    let source = source.to_str().context("the target folder's name is not text")?;
    run("git", &["worktree", "add", "--quiet", "--force", "--force", "--detach", source, commit])
}

fn git(arguments: &[&str], path: &Path) -> Result<()> {
    let path = path.to_str().context("the target folder's name is not text")?;
    run("git", &[arguments, &[path]].concat())
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let mut command = process::command(program);
    let outcome =
        process::run(command.args(arguments).current_dir(repository()), None, COPY_LIMIT)?;
    ensure!(outcome.success(), "{program} {arguments:?}: {}", outcome.story());
    Ok(())
}

/// Brings the artifacts of external crates into the fresh folder `to`, if this checkout has some. Artifacts of the
/// workspace's own crates stay out: those of both trees have the same names.
fn seed(source: &Path, to: &Path) -> Result<()> {
    let from = target_folder().join("debug");
    if to.exists() || !from.join("deps").exists() {
        return Ok(());
    }
    let mut own = members(&repository())?;
    own.extend(members(source)?);
    for (part, kind) in [
        ("deps", Artifact::Library),
        ("build", Artifact::Folder),
        (".fingerprint", Artifact::Folder),
    ] {
        let into = to.join(part);
        fs::create_dir_all(&into)?;
        let mut copied = Vec::new();
        for entry in fs::read_dir(from.join(part))? {
            let (path, name) = {
                let entry = entry?;
                (entry.path(), entry.file_name())
            };
            let name = name.to_string_lossy();
            if Artifact::of(&name, &own) != Some(kind) {
                continue;
            }
            // The compiler replaces libraries, and never writes into one: both folders may share the file.
            let is_shared = name.ends_with(".rlib") || name.ends_with(".rmeta");
            if !is_shared || fs::hard_link(&path, into.join(&*name)).is_err() {
                copied.push(path);
            }
        }
        copy(&copied, &into)?;
    }
    Ok(())
}

/// Copies files and folders with their times, by which cargo knows what is up to date.
fn copy(entries: &[PathBuf], into: &Path) -> Result<()> {
    for some in entries.chunks(500) {
        let mut command = process::command("cp");
        command.args(["-a", "--reflink=auto", "-t"]).arg(into).args(some);
        let outcome = process::run(&mut command, None, COPY_LIMIT)?;
        ensure!(outcome.success(), "cannot copy built crates: {}", outcome.story());
    }
    Ok(())
}

/// Names of the crates of a workspace, as artifacts spell them.
fn members(workspace: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::from(["xtask".to_owned()]);
    for entry in fs::read_dir(workspace.join("crates"))? {
        names.insert(entry?.file_name().to_string_lossy().replace('-', "_"));
    }
    Ok(names)
}

/// An artifact of an external crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Artifact {
    /// A library, or the list of files that a library was made of.
    Library,
    /// A folder of cargo's: the output of a build script, or a fingerprint.
    Folder,
}

impl Artifact {
    /// Parses `[lib]CRATE-HASH[.ENDING]`; `None` for another name, for tests and programs, and for crates in `own`.
    fn of(name: &str, own: &BTreeSet<String>) -> Option<Artifact> {
        let (name, hash) = name.rsplit_once('-')?;
        let (hash, ending) = hash.split_once('.').unwrap_or((hash, ""));
        let is_hash = hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (name, artifact) = match (name.strip_prefix("lib"), ending) {
            (Some(name), "rlib" | "rmeta" | "so") => (name, Artifact::Library),
            (_, "d") => (name, Artifact::Library),
            (_, "") => (name, Artifact::Folder),
            _ => return None,
        };
        (is_hash && !own.contains(&name.replace('-', "_"))).then_some(artifact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_of_the_workspace_stay_out() {
        let own = BTreeSet::from(["broker".to_owned()]);
        for (name, expected) in [
            ("libserde-0123456789abcdef.rlib", Some(Artifact::Library)),
            ("libserde_derive-0123456789abcdef.so", Some(Artifact::Library)),
            ("serde-0123456789abcdef.d", Some(Artifact::Library)),
            ("libc-0123456789abcdef", Some(Artifact::Folder)),
            ("serde-json-0123456789abcdef", Some(Artifact::Folder)),
            ("libbroker-0123456789abcdef.rlib", None),
            ("broker-0123456789abcdef", None),
            ("broker-0123456789abcdef.d", None),
            ("serde", None),
            ("libserde-xyz.rlib", None),
        ] {
            assert_eq!(Artifact::of(name, &own), expected, "{name}");
        }
    }
}
