//! Where figures come from: a table of figures stands below the commit that was measured, and the commit is one of this
//! repository. A figure that cannot be measured again is an opinion.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Documents of which every table holds measured figures.
const DOCUMENTS: &[&str] = &["docs/performance.md"];
/// The shortest abbreviation of a commit that counts.
const DIGITS_MIN: usize = 7;

/// What is wrong with the sources of the figures, a line each.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for document in DOCUMENTS {
        let text = fs::read_to_string(root.join(document)).with_context(|| document.to_string())?;
        findings.extend(without_source(document, &text));
        for commit in commits(&text) {
            if !is_known(root, commit)? {
                findings.push(format!("{document}: this repository has no commit {commit}"));
            }
        }
    }
    Ok(findings)
}

/// Sections with a table and without a commit.
fn without_source(document: &str, text: &str) -> Vec<String> {
    let sections = text.split("\n## ").skip(1);
    let bare = sections.filter(|section| has_table(section) && commits(section).is_empty());
    bare.map(|section| {
        let heading = section.lines().next().unwrap_or_default();
        format!("{document}: the table under \"{heading}\" names no commit: write `commit <hash>` above the table")
    })
    .collect()
}

fn has_table(section: &str) -> bool {
    section.lines().any(|line| line.starts_with("|--") || line.starts_with("| --"))
}

/// What is written behind the word "commit", abbreviated or whole.
fn commits(text: &str) -> BTreeSet<&str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let named = words.windows(2).filter(|pair| pair[0].eq_ignore_ascii_case("commit"));
    named
        .map(|pair| pair[1].trim_matches(|c: char| !c.is_ascii_alphanumeric()))
        .filter(|word| word.len() >= DIGITS_MIN && word.bytes().all(|b| b.is_ascii_hexdigit()))
        .collect()
}

/// Whether the commit is in the history; a checkout without a history knows them all.
fn is_known(root: &Path, commit: &str) -> Result<bool> {
    let git = |arguments: &[&str]| {
        Command::new("git").args(arguments).current_dir(root).output().context("cannot run git")
    };
    let shallow = git(&["rev-parse", "--is-shallow-repository"])?;
    if !shallow.status.success() || shallow.stdout.starts_with(b"true") {
        return Ok(true);
    }
    Ok(git(&["cat-file", "-e", &format!("{commit}^{{commit}}")])?.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_without_a_commit_is_found() {
        let table = "| a | b |\n|---|---|\n| 1 | 2 |\n";
        let bare = format!("# X\n\n## Speed\n\n{table}");
        assert_eq!(without_source("d.md", &bare).len(), 1);
        let sourced = format!("# X\n\n## Speed\n\nCommit dd42b2a69d91.\n\n{table}");
        assert!(without_source("d.md", &sourced).is_empty());
        assert!(without_source("d.md", "# X\n\n## Method\n\nNo table.\n").is_empty());
        assert_eq!(
            commits("commit `0d66db7`, commit to it, Commit dd42b2a69d91."),
            BTreeSet::from(["0d66db7", "dd42b2a69d91"])
        );
    }

    #[test]
    fn a_commit_that_never_was_is_found() {
        let root = crate::tidy::root().unwrap();
        assert!(is_known(&root, "HEAD").unwrap());
        let invented = "f".repeat(40);
        let shallow = Command::new("git")
            .args(["rev-parse", "--is-shallow-repository"])
            .current_dir(&root)
            .output()
            .unwrap();
        if shallow.stdout.starts_with(b"false") {
            assert!(!is_known(&root, &invented).unwrap());
        }
    }
}
