//! What documents say of the tree: paths in backticks that are not there, and commits that are not in the history.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Folders of the workspace that paths in documents begin with.
const BESIDE: &[&str] = &["crates", "docs", "xtask", "conformance", "bench", "fuzz", ".ci"];
/// Made by the laboratory, which knows commits of other projects.
const REPORTS: &str = "docs/reports/";
/// Words behind which a commit is named.
const INTRODUCTIONS: &[&str] = &["commit ", "Commit ", "build of "];
/// Digits by which a commit is named at least; fewer may be anything.
const DIGITS_MIN: usize = 7;

/// The paths in backticks that lead nowhere: from the root, or from `crates` if they begin with a room.
pub fn paths(root: &Path, name: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for path in quoted(text).filter(|quoted| is_path(quoted)) {
        let first = path.split('/').next().unwrap_or_default();
        let base = match BESIDE.contains(&first) {
            true => root.to_path_buf(),
            false if root.join("crates").join(first).is_dir() => root.join("crates"),
            false => continue,
        };
        if !base.join(path).exists() && !is_decision(root, path) {
            findings.push(format!("{name}: there is no {path}"));
        }
    }
    findings
}

/// What stands in backticks, blocks of code left out.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    let lines = prose.flat_map(str::lines);
    lines.flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Whether it is a path without a pattern in it.
fn is_path(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-/".contains(c);
    let is_ours = !text.starts_with('/') && !text.starts_with("./");
    text.contains('/') && is_ours && text.chars().all(plain)
}

/// Decisions are named by their number: `docs/decisions/0015`.
fn is_decision(root: &Path, path: &str) -> bool {
    let Some((folder, number)) = path.rsplit_once('/') else { return false };
    let is_there = |found: fs::DirEntry| {
        found.file_name().to_string_lossy().starts_with(&format!("{number}-"))
    };
    folder.ends_with("decisions")
        && fs::read_dir(root.join(folder)).is_ok_and(|all| all.flatten().any(is_there))
}

/// The commits of the history that is checked out.
pub struct Commits {
    /// Whole, in hexadecimal; `None` where the history is not there, or not all of it.
    all: Option<BTreeSet<String>>,
}

impl Commits {
    /// Asks git. A shallow clone, or a folder that is not git's, knows none.
    pub fn of(root: &Path) -> Result<Commits> {
        let git = |arguments: &[&str]| -> Result<Option<String>> {
            let Ok(output) = Command::new("git").args(arguments).current_dir(root).output() else {
                return Ok(None);
            };
            let text = String::from_utf8(output.stdout).context("git's answer is not UTF-8")?;
            Ok(output.status.success().then_some(text))
        };
        let is_whole = git(&["rev-parse", "--is-shallow-repository"])?
            .is_some_and(|answer| answer.trim() == "false");
        if !is_whole {
            return Ok(Commits { all: None });
        }
        let listed = git(&["rev-list", "HEAD"])?.context("git rev-list HEAD failed")?;
        let all: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
        ensure!(!all.is_empty(), "git knows no commit");
        Ok(Commits { all: Some(all) })
    }

    /// The commits that a document names and the history does not have.
    pub fn unknown(&self, name: &str, text: &str) -> Vec<String> {
        let Some(all) = &self.all else { return Vec::new() };
        let foreign = |commit: &&str| !has(all, commit);
        let told = |commit| format!("{name}: commit {commit} is not in the history");
        match name.starts_with(REPORTS) {
            true => Vec::new(),
            false => named(text).filter(foreign).map(told).collect(),
        }
    }
}

/// Whether a commit begins with these digits.
fn has(all: &BTreeSet<String>, digits: &str) -> bool {
    all.range(digits.to_owned()..).next().is_some_and(|found| found.starts_with(digits))
}

/// The commits that a text names: `commit 1a2b3c4`, and so on.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let behind = move |words: &'static str| {
        text.match_indices(words).map(move |(at, _)| &text[at + words.len()..])
    };
    INTRODUCTIONS.iter().copied().flat_map(behind).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let word = &rest[..end];
        let is_hex = word.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
        (is_hex && word.len() >= DIGITS_MIN).then_some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_nowhere_is_told() {
        let root = crate::tidy::root().unwrap();
        let told = |text: &str| paths(&root, "a.md", text).len();
        assert_eq!(told("`crates/model/src/id.rs`, `model/src/id.rs`, `docs/decisions/0015`"), 0);
        assert_eq!(told("`crates/model/src/no.rs`"), 1);
        assert_eq!(told("`model/src/no.rs` and `docs/decisions/0013`"), 2);
        // Patterns, other people's paths, and what a shell is told are not ours to judge.
        assert_eq!(told("`crates/{a,b}.rs` `broker-1/x` `/metrics`\n```\n`crates/no`\n```"), 0);
    }

    #[test]
    fn a_commit_that_the_history_lacks_is_told() {
        let all = BTreeSet::from(["1a2b3c4d5e".to_owned(), "99aabbccdd".to_owned()]);
        let whole = Commits { all: Some(all) };
        let told = |text: &str| whole.unknown("a.md", text);
        assert!(told("commit 1a2b3c4, Commit 99aabbc; release build of 99aabbccdd").is_empty());
        assert_eq!(told("Commit 99aabbd").len(), 1);
        assert_eq!(told("(commit 1a2b3c5)"), ["a.md: commit 1a2b3c5 is not in the history"]);
        assert_eq!(told("builds, build of 99aabbd.").len(), 1);
        assert!(told("a commit decided, commit 12ab").is_empty());
        assert!(whole.unknown("docs/reports/x/report.md", "commit 1a2b3c5").is_empty());
        assert!(Commits { all: None }.unknown("a.md", "commit 1a2b3c5").is_empty());
    }
}
