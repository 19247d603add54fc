//! Tarballs that depend on their content only, and the checksums of all artifacts.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use peer::process;
use std::time::Duration;

use super::{Arch, Parts, Release};
use crate::repository::repository;

/// File of checksums, in the form of `sha256sum --check`.
pub(super) const CHECKSUMS: &str = "SHA256SUMS";
/// Longest time of one program.
const LIMIT: Duration = Duration::from_secs(600);

/// Packs the binary with manual pages, completions, the unit for systemd and licences. Returns the path of the tarball.
pub(super) fn tarball(
    arch: Arch,
    release: &Release,
    parts: &Parts<'_>,
    output: &Path,
) -> Result<PathBuf> {
    let name = format!("highwater-{}-{}-linux", release.version, arch.name());
    let scratch = tempfile::tempdir()?;
    let folder = scratch.path().join(&name);
    fs::create_dir(&folder)?;
    copy(parts.binary, &folder.join("highwater"), 0o755)?;
    copy(&repository().join("LICENSE"), &folder.join("LICENSE"), 0o644)?;
    copy(parts.notices, &folder.join("THIRD-PARTY-LICENSES.txt"), 0o644)?;
    copy_folder(&parts.help.manual, &folder.join("man/man1"))?;
    copy_folder(&parts.help.completions, &folder.join("completions"))?;
    copy_folder(&repository().join("packaging/systemd"), &folder.join("systemd"))?;
    let path = output.join(format!("{name}.tar.xz"));
    let mut tar = process::command("tar");
    tar.args(["--create", "--sort=name", "--format=gnu", "--numeric-owner", "--owner=0"]);
    tar.args(["--group=0", "--mode=u=rwX,go=rX"]).arg(format!("--mtime=@{}", release.epoch));
    // One thread: the blocks of several would depend on the number of processors.
    tar.args(["--use-compress-program=xz -9 --threads=1", "--file"]).arg(&path);
    tar.arg("--directory").arg(scratch.path()).arg(&name);
    run(&mut tar)?;
    Ok(path)
}

/// Copies a file and sets its mode.
pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;

    let parent = to.parent().context("a file without a folder")?;
    fs::create_dir_all(parent)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Copies the files of a folder, which has no folders in it.
pub(super) fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let entries = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let path = entry?.path();
        copy(&path, &to.join(path.file_name().unwrap_or_default()), 0o644)?;
    }
    Ok(())
}

/// Runs a program, which must succeed.
pub(super) fn run(command: &mut std::process::Command) -> Result<()> {
    let outcome = process::run(command, None, LIMIT)?;
    ensure!(outcome.success(), "{}: {}", command.get_program().display(), outcome.story());
    Ok(())
}

/// Writes the checksums of all artifacts, sorted by name.
pub(super) fn write_checksums(output: &Path) -> Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(output)? {
        let name = entry?.file_name().into_string();
        names.push(name.ok().context("the name of an artifact is not UTF-8")?);
    }
    names.retain(|name| name != CHECKSUMS && !name.starts_with('.'));
    names.sort();
    let mut sha256sum = process::command("sha256sum");
    let outcome = process::run(sha256sum.args(&names).current_dir(output), None, LIMIT)?;
    ensure!(outcome.success(), "sha256sum: {}", outcome.story());
    fs::write(output.join(CHECKSUMS), outcome.stdout)?;
    Ok(())
}
