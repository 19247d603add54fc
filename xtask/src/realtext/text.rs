//! The text: a dictionary that Debian packages, fetched with apt into the cache folder.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use peer::{apt, cache, process};

/// The package; its text is the dictionary's articles, one after the other.
const PACKAGE: &str = "dict-gcide";
/// The dictionary inside the package, compressed with gzip in pieces.
const FILE: &str = "usr/share/dictd/gcide.dict.dz";
/// How long a program may take that brings or unpacks it.
const LIMIT: Duration = Duration::from_secs(300);
/// As many lines as a real text must have here.
const LINES_MIN: usize = 1_000_000;

/// A text whose every line ends with a line feed.
#[derive(Debug)]
pub struct Text {
    /// Where it comes from.
    pub name: String,
    /// The whole of it.
    pub bytes: Vec<u8>,
    /// How many lines it has.
    pub lines: usize,
}

/// The text in `file`, or the dictionary.
pub fn load(file: Option<&Path>) -> Result<Text> {
    let (name, path) = match file {
        Some(file) => (file.display().to_string(), file.to_owned()),
        None => {
            let folder = cache::once(&format!("text-{PACKAGE}"), fetch)?;
            (fs::read_to_string(folder.join("name"))?, folder.join("text"))
        }
    };
    let mut bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    if bytes.last() != Some(&b'\n') {
        // Readers put a line feed behind every record, the last one too.
        bytes.push(b'\n');
    }
    ensure!(!bytes.contains(&1), "{name} holds the byte 1, which separates keys for kcat");
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    ensure!(lines >= LINES_MIN || file.is_some(), "{name} has only {lines} lines");
    Ok(Text { name, bytes, lines })
}

fn fetch(fresh: &Path) -> Result<()> {
    eprintln!("fetching {PACKAGE} …");
    let outcome = apt::run(&["download", "-q", PACKAGE], fresh, LIMIT)
        .context("Debian's or Ubuntu's apt-get is needed (or --text FILE)")?;
    ensure!(outcome.success(), "apt-get brought no {PACKAGE}: {}", outcome.story());
    let package = fs::read_dir(fresh)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|ending| ending == "deb"))
        .context("apt-get brought no package")?;
    let package = package.display().to_string();
    let version = must_run(fresh, "dpkg-deb", &["-f", &package, "Version"])?;
    must_run(fresh, "dpkg-deb", &["-x", &package, "content"])?;
    let text = must_run(fresh, "gzip", &["-dc", "-S", ".dz", &format!("content/{FILE}")])?;
    fs::write(fresh.join("text"), text)?;
    let version = String::from_utf8_lossy(&version).trim().to_owned();
    fs::write(fresh.join("name"), format!("{PACKAGE} {version}"))?;
    fs::remove_dir_all(fresh.join("content"))?;
    Ok(fs::remove_file(package)?)
}

fn must_run(folder: &Path, program: &str, arguments: &[&str]) -> Result<Vec<u8>> {
    let mut command = process::command(program);
    command.args(arguments).current_dir(folder);
    let outcome = process::run(&mut command, None, LIMIT)?;
    ensure!(outcome.success(), "{program} {arguments:?}: {}", outcome.story());
    Ok(outcome.stdout)
}
