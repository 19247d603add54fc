//! The shell of `highwater:test`: busybox of Debian, a static program for each processor.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use peer::{apt, cache, process};

use crate::dist::Arch;

/// Debian's package.
const PACKAGE: &str = "busybox-static";
/// Longest time of one step.
const LIMIT: Duration = Duration::from_secs(300);

/// The program and its licence.
#[derive(Debug, Clone)]
pub(super) struct Shell {
    /// The static program.
    pub(super) program: PathBuf,
    /// Text of its licence.
    pub(super) licence: PathBuf,
}

/// Downloads the package of a processor into the cache, unless it is there. Neither this machine's packages nor its lists are
/// changed.
pub(super) fn fetch(arch: Arch) -> Result<Shell> {
    let folder = cache::folder()?.join(format!("{PACKAGE}-{}", arch.debian()));
    let shell = Shell {
        program: folder.join("bin/busybox"),
        licence: folder.join(format!("usr/share/doc/{PACKAGE}/copyright")),
    };
    if shell.program.is_file() && shell.licence.is_file() {
        return Ok(shell);
    }
    let scratch = tempfile::tempdir()?;
    let path = |name: &str| -> Result<String> {
        let folder = scratch.path().join(name);
        fs::create_dir_all(folder.join("partial"))?;
        Ok(folder.to_str().context("a path is not UTF-8")?.to_owned())
    };
    let settings = [
        format!("APT::Architecture={}", arch.debian()),
        format!("APT::Architectures={}", arch.debian()),
        format!("Dir::State::Lists={}", path("lists")?),
        format!("Dir::Cache::Archives={}", path("archives")?),
        "Dir::State::status=/dev/null".to_owned(),
        "APT::Sandbox::User=root".to_owned(),
    ];
    let options: Vec<&str> = settings.iter().flat_map(|it| ["-o", it.as_str()]).collect();
    for words in [&["update", "--quiet"][..], &["download", PACKAGE]] {
        let arguments = [&options[..], words].concat();
        let outcome = apt::run(&arguments, scratch.path(), LIMIT)?;
        ensure!(outcome.success(), "apt-get {}: {}", words.join(" "), outcome.story());
    }
    let package = fs::read_dir(scratch.path())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get downloaded no package")?;
    let mut dpkg = process::command("dpkg-deb");
    let outcome = process::run(dpkg.arg("--extract").arg(package).arg(&folder), None, LIMIT)?;
    ensure!(outcome.success(), "dpkg-deb: {}", outcome.story());
    Ok(shell)
}
