//! Data folders that an earlier version left, stopped cleanly and killed: this version serves every record of them, at the first
//! start and at the second one, and removes nothing.
//!
//! The folders are in `testdata`, with what the earlier version answered about them. `--make` writes them anew, with the
//! program of that version: from the version before the journal of log directories, commit a7dec8b.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, ensure};

use crate::damage::{Stopped, look, make_folder};

/// What to do.
#[derive(clap::Args)]
pub struct Arguments {
    /// The program
    #[arg(long)]
    binary: PathBuf,
    /// Write the folders of this version instead of opening those that are there
    #[arg(long)]
    make: bool,
}

/// Opens both folders, or makes them.
pub fn run(arguments: &Arguments) -> Result<()> {
    for stopped in [Stopped::Cleanly, Stopped::Killed] {
        match arguments.make {
            true => make(&arguments.binary, stopped)?,
            false => open(&arguments.binary, stopped)?,
        }
    }
    Ok(())
}

fn fixture(stopped: Stopped) -> PathBuf {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let root = manifest.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    let name = match stopped {
        Stopped::Cleanly => "a7dec8b-stopped",
        Stopped::Killed => "a7dec8b-killed",
    };
    root.join("testdata").join(name)
}

fn make(binary: &Path, stopped: Stopped) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let data = scratch.path().join("data");
    make_folder(binary, &data, stopped)?;
    let archive = fixture(stopped).with_extension("tar.gz");
    fs::create_dir_all(archive.parent().context("a folder")?)?;
    tar(
        &["--exclude=.lock", "-czf", &archive.display().to_string(), "-C"],
        scratch.path(),
        &["data"],
    )?;
    let picture = look(binary, &data, true)?;
    ensure!(picture.is_whole(), "the version does not serve its own folder: {picture}");
    fs::write(fixture(stopped).with_extension("txt"), picture.to_string())?;
    Ok(())
}

fn open(binary: &Path, stopped: Stopped) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let archive = fixture(stopped).with_extension("tar.gz");
    tar(&["-xzf", &archive.display().to_string(), "-C"], scratch.path(), &[])?;
    let data = scratch.path().join("data");
    let expected = fs::read_to_string(fixture(stopped).with_extension("txt"))?;
    let folders = folders(&data)?;
    for (start, clean) in [("first", false), ("second", true), ("third", true)] {
        let picture = look(binary, &data, clean)?.to_string();
        ensure!(
            picture == expected,
            "{stopped:?}, {start} start: {picture}\ninstead of: {expected}"
        );
    }
    for folder in folders {
        ensure!(data.join(&folder).exists(), "{stopped:?}: {folder} was removed");
    }
    println!(
        "adoption: {stopped:?}: {} lines, three starts, all as before",
        expected.lines().count()
    );
    Ok(())
}

/// The partitions' folders; those of deleted topics may go.
fn folders(data: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(data)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.contains('-') && !name.ends_with("-delete") && data.join(&name).is_dir() {
            found.push(name);
        }
    }
    Ok(found)
}

fn tar(before: &[&str], folder: &Path, behind: &[&str]) -> Result<()> {
    let status = Command::new("tar").args(before).arg(folder).args(behind).status()?;
    ensure!(status.success(), "tar {} failed", before.join(" "));
    Ok(())
}
