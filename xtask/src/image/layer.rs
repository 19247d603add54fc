//! A layer: a tarball of a root folder that depends on names, modes and contents only.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use peer::process;

/// Longest time of one program.
const LIMIT: Duration = Duration::from_secs(600);

/// A layer on disk.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    /// The compressed tarball.
    pub(super) file: PathBuf,
    /// Bytes of the compressed tarball.
    pub(super) size: u64,
    /// SHA-256 of the compressed tarball.
    pub(super) digest: String,
    /// SHA-256 of the tarball.
    pub(super) diff_id: String,
}

impl Layer {
    /// Packs the files of `root` into `tarball`, and the compressed tarball beside it. Files belong to root and have the time
    /// `epoch`, in seconds since 1970.
    pub(super) fn pack(root: &Path, epoch: u64, tarball: &Path) -> Result<Layer> {
        pack_tarball(root, epoch, tarball)?;
        let file = tarball.with_extension("tar.gz");
        let mut gzip = process::command("gzip");
        gzip.args(["-9", "--no-name", "--stdout"]).arg(tarball);
        let status = gzip.stdin(Stdio::null()).stdout(File::create(&file)?).status()?;
        ensure!(status.success(), "gzip: {status}");
        let size = fs::metadata(&file)?.len();
        Ok(Layer { digest: sha256(&file)?, diff_id: sha256(tarball)?, size, file })
    }
}

/// Packs the files of `root` into `tarball`. Files belong to root and have the time `epoch`, in seconds since 1970.
pub(super) fn pack_tarball(root: &Path, epoch: u64, tarball: &Path) -> Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root)? {
        names.push(entry?.file_name());
    }
    names.sort();
    let mut tar = process::command("tar");
    tar.args(["--create", "--sort=name", "--format=gnu", "--numeric-owner"]);
    tar.args(["--owner=0", "--group=0"]).arg(format!("--mtime=@{epoch}"));
    tar.arg("--file").arg(tarball).arg("--directory").arg(root).args(&names);
    let outcome = process::run(&mut tar, None, LIMIT)?;
    ensure!(outcome.success(), "tar: {}", outcome.story());
    Ok(())
}

/// SHA-256 of a file, in hexadecimal digits.
pub(super) fn sha256(file: &Path) -> Result<String> {
    let mut sha256sum = process::command("sha256sum");
    let outcome = process::run(sha256sum.arg("--").arg(file), None, LIMIT)?;
    ensure!(outcome.success(), "sha256sum: {}", outcome.story());
    let text = outcome.text();
    let digest = text.split_whitespace().next().context("sha256sum has no output")?;
    // sha256sum escapes file names with a backslash or a line break, and marks the line with a backslash in front of the digest.
    Ok(digest.trim_start_matches('\\').to_owned())
}
