//! Checks of the tree that no compiler makes: who uses whom, what every file begins with, how long
//! files are, what must not be left behind, and that links, paths and commits in the documents lead somewhere.
//!
//! Prints everything that it finds, and fails if it found anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::documents::{self, Commits};
use crate::invariants::List;
use crate::readers;
use crate::words::{GLOSSARY, Glossary};

/// Lines of code that a file may have, tests not counted. What is longer is listed in
/// [`LONG_FILES`] with the reason.
const LINES_MAX: usize = 800;
/// Files that are tables or generated.
const LONG_FILES: &[&str] = &["/generated/", "/table/"];
/// Files that are proof and not program.
const TEST_FILES: &[&str] = &["/tests/", "/benches/", "/tests.rs", "/suite.rs", "fuzz_targets/"];
/// What is never left behind, with what to do instead.
const BANNED: &[(&str, &str)] = &[
    ("todo!(", "do it"),
    ("unimplemented!(", "do it, or return an error"),
    ("dbg!(", "log it by tracing, or drop it"),
    ("TODO", "do it, or write it into docs/status.md"),
    ("FIXME", "mend it, or write it into docs/status.md"),
];
/// Pauses a process without a wait for its threads: a test that goes by it fails on a busy machine.
const PAUSE: &str = "Signal::STOP";
/// The file that sends SIGSTOP for the whole workspace.
const PAUSING_FILE: &str = "crates/peer/src/process.rs";
/// Says nothing of why it cannot fail.
const UNWRAP: &str = concat!(".unwrap", "()");
/// Folders that are not part of the project, wherever they are.
const SKIPPED: &[&str] = &[".git", "node_modules", "__pycache__", ".venv"];
/// Folders of what was built, from the workspace's root. A module may be called `target` as well.
const BUILT: &[&str] = &["target", "fuzz/target", "bench/target"];

/// Generated from Kafka's texts, or naming phrases in order to find them.
const NOT_OUR_WORDS: &[&str] = &["/generated/", "xtask/src/words.rs"];

/// Checks everything under the workspace's root.
pub fn run() -> Result<()> {
    let root = root()?;
    let mut findings = layers(&root)?;
    findings.extend(crate::sources::check(&root)?);
    let invariants = List::read(&root)?;
    findings.extend_from_slice(invariants.findings());
    findings.extend(readers::unread(&root)?);
    findings.extend(crate::compatibility::stale(&root)?);
    let mut code = Vec::new();
    let commits = Commits::of(&root)?;
    for file in files(&root, &root)? {
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(_) => continue,
        };
        let name = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => {
                findings.extend(rust_file(&name, &text));
                // That file's tests name some that there are not.
                if !name.ends_with("xtask/src/invariants.rs") {
                    findings.extend(invariants.unknown(&name, &text));
                }
                if !NOT_OUR_WORDS.iter().any(|other| name.contains(other)) {
                    code.push((name, text));
                }
            }
            Some("md") => {
                findings.extend(links(&file, &name, &text));
                findings.extend(documents::paths(&root, &name, &text));
                findings.extend(commits.unknown(&name, &text));
            }
            _ => {}
        }
    }
    findings.extend(Glossary::parse(&fs::read_to_string(root.join(GLOSSARY))?)?.check(&code));
    if findings.is_empty() {
        println!("tidy: nothing to say");
        return Ok(());
    }
    findings.iter().for_each(|finding| println!("{finding}"));
    bail!("{} findings", findings.len())
}

/// The workspace's root: the parent of this crate.
pub fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("xtask stands in the workspace")?.to_path_buf())
}

fn files(root: &Path, dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let is_built = || BUILT.iter().any(|built| entry.path() == root.join(built));
        if SKIPPED.iter().any(|skipped| name == *skipped) || is_built() {
            continue;
        }
        if entry.file_type()?.is_dir() {
            found.extend(files(root, &entry.path())?);
        } else {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn rust_file(name: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    if !text.starts_with("//!") && !text.starts_with("#!") {
        findings.push(format!("{name}: does not begin with what it is (//!)"));
    }
    let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
    let is_test =
        TEST_FILES.iter().any(|test| name.contains(test)) || text.contains("#![cfg(test)]");
    let lines = code.lines().count();
    if lines > LINES_MAX && !is_test && !LONG_FILES.iter().any(|long| name.contains(long)) {
        findings.push(format!("{name}: {lines} lines; split it by subject (at most {LINES_MAX})"));
    }
    // This file names them.
    if !name.ends_with("xtask/src/tidy.rs") {
        for (banned, instead) in BANNED {
            if let Some(at) = text.lines().position(|line| line.contains(banned)) {
                findings.push(format!("{name}:{}: {banned} is left behind: {instead}", at + 1));
            }
        }
    }
    let pauses = text.lines().position(|line| line.contains(PAUSE));
    if let Some(at) = pauses.filter(|_| !name.ends_with(PAUSING_FILE) && !name.ends_with(file!())) {
        findings.push(format!("{name}:{}: {PAUSE}: call peer::process::pause_processes", at + 1));
    }
    findings.extend(doctests(text).map(|at| {
        format!("{name}:{at}: continuous integration runs no doctest: write ```text, or a test")
    }));
    if !is_test {
        for (at, line) in code.lines().enumerate() {
            if line.contains(UNWRAP) && !line.trim_start().starts_with("//") {
                findings.push(format!(
                    "{name}:{}: unwrap(): say with expect() why it cannot fail",
                    at + 1
                ));
            }
        }
    }
    findings
}

/// Lines where an example begins that rustdoc would run: in fences that do not say `text`, or indented.
fn doctests(text: &str) -> impl Iterator<Item = usize> {
    let (mut fenced, mut after_blank) = (false, true);
    text.lines().enumerate().filter_map(move |(at, line)| {
        let line = line.trim_start();
        let Some(doc) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            (fenced, after_blank) = (false, true);
            return None;
        };
        let fence = doc.trim_start().strip_prefix("```");
        let begins = match fence {
            Some(language) => !fenced && language != "text",
            None => !fenced && after_blank && doc.starts_with("     "),
        };
        fenced ^= fence.is_some();
        after_blank = doc.trim().is_empty();
        begins.then_some(at + 1)
    })
}

/// Relative links in a document must lead to something.
fn links(file: &Path, name: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (at, _) in text.match_indices("](") {
        let target = text[at + 2..].split([')', ' ', '#']).next().unwrap_or_default();
        let outside = target.is_empty() || target.contains("://") || target.starts_with("mailto:");
        if outside || text[..at].matches("```").count() % 2 == 1 {
            continue;
        }
        let beside = file.parent().unwrap_or(Path::new("."));
        if !beside.join(target).exists() {
            findings.push(format!("{name}: the link to {target} leads nowhere"));
        }
    }
    findings
}

/// What a room may use.
struct Allowed {
    rooms: BTreeSet<String>,
    /// `None`: anything.
    outside: Option<BTreeSet<String>>,
}

fn layers(root: &Path) -> Result<Vec<String>> {
    let allowed = read_layers(&fs::read_to_string(root.join("crates/layers.txt"))?)?;
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let rooms: BTreeSet<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(allowed) = allowed.get(name) else {
            findings.push(format!("{name}: crates/layers.txt does not say what it may use"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            // Tests and benchmarks may use what they like.
            if !dependency["kind"].is_null() {
                continue;
            }
            let used = dependency["name"].as_str().unwrap_or_default();
            let fine = if rooms.contains(used) {
                allowed.rooms.contains(used)
            } else {
                allowed.outside.as_ref().is_none_or(|outside| outside.contains(used))
            };
            if !fine {
                findings.push(format!("{name}: may not use {used} (crates/layers.txt)"));
            }
        }
    }
    Ok(findings)
}

fn read_layers(text: &str) -> Result<BTreeMap<String, Allowed>> {
    let mut allowed = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let (room, uses) = line.split_once(':').context("a line is `room: rooms | crates`")?;
        let (rooms, outside) = uses.split_once('|').context("a line is `room: rooms | crates`")?;
        let set = |text: &str| text.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
        let outside = Some(set(outside)).filter(|outside| !outside.contains("*"));
        allowed.insert(room.trim().to_owned(), Allowed { rooms: set(rooms), outside });
    }
    Ok(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_file_is_found() {
        assert_eq!(rust_file("a.rs", "//! Fine.\n").len(), 0);
        assert_eq!(rust_file("a.rs", "fn main() {}\n").len(), 1);
        assert_eq!(rust_file("a.rs", "//! X.\nfn f() { g().unwrap() }\n").len(), 1);
        let in_test = "//! X.\n\n#[cfg(test)]\nmod tests {\n fn f() { g().unwrap() } }\n";
        assert_eq!(rust_file("a.rs", in_test).len(), 0);
        assert_eq!(rust_file("a.rs", &format!("//! X.\n{}", "x\n".repeat(900))).len(), 1);
        assert_eq!(rust_file("tests/a.rs", "//! X.\nfn f() { g(Signal::STOP) }\n").len(), 1);
    }

    #[test]
    fn an_example_that_would_be_run_is_found() {
        let found = |text: &str| doctests(text).collect::<Vec<_>>();
        assert_eq!(found("//! X.\n//!\n//! ```text\n//! a\n//! ```\n//! b\n"), [0; 0]);
        assert_eq!(found("//! X.\n//! ```\n//! a();\n//! ```\n"), [2]);
        assert_eq!(found("/// X.\n/// ```no_run\n/// a();\n/// ```\nfn x() {}\n/// ```\n"), [2, 6]);
        assert_eq!(found("/// X.\n///\n///     a();\n"), [3]);
        assert_eq!(
            found("/// ```text\n///\n///     a();\n/// ```\n/// 1. x\n///      y\n"),
            [0; 0]
        );
    }

    #[test]
    fn layers_are_read() {
        let allowed = read_layers("# c\na: b c | d\ne: | *\n").unwrap();
        assert!(allowed["a"].rooms.contains("c"));
        assert!(allowed["a"].outside.as_ref().unwrap().contains("d"));
        assert!(allowed["e"].outside.is_none());
    }

    #[test]
    fn a_module_may_be_called_as_the_folder_of_what_was_built() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for dir in ["target", "fuzz/target", "src/target", "src/node_modules"] {
            fs::create_dir_all(root.join(dir)).unwrap();
            fs::write(root.join(dir).join("a.rs"), "").unwrap();
        }
        assert_eq!(files(root, root).unwrap(), [root.join("src/target/a.rs")]);
    }

    #[test]
    fn the_tree_keeps_its_layers() {
        let findings = layers(&root().unwrap()).unwrap();
        assert_eq!(findings, Vec::<String>::new());
    }
}
