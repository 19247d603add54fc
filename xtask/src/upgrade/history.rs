//! Releases in the history of the checkout: a release is the commit that adds its line to RELEASES.md.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The table of releases.
const RELEASES: &str = "RELEASES.md";

/// A release before the checkout's own commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// `0.1.0` for example.
    pub name: String,
    /// The commit that adds the release's line.
    pub commit: String,
}

/// The history that names the release is absent: an archive, or a clone with few commits.
#[derive(Debug)]
pub struct MissingHistory(String);

impl std::fmt::Display for MissingHistory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MissingHistory {}

/// Returns the newest release of `RELEASES.md` whose line another commit than HEAD adds.
///
/// # Errors
/// [`MissingHistory`] without the history; another error if the table names no earlier release.
pub fn last_release(checkout: &Path) -> Result<Release> {
    let Some(head) = git(checkout, &["rev-parse", "--verify", "HEAD"])? else {
        return Err(MissingHistory(format!(
            "{} is not a git checkout, so the commit of the last release is unknown; clone the repository with git",
            checkout.display()
        ))
        .into());
    };
    let table = git(checkout, &["show", &format!("HEAD:{RELEASES}")])?;
    let table = table.with_context(|| format!("HEAD has no {RELEASES}"))?;
    let mut names = names(&table);
    names.sort();
    for name in names.iter().rev().map(|(_, name)| name) {
        let commit = adding_commit(checkout, name)?;
        if commit != head {
            return Ok(Release { name: name.clone(), commit });
        }
    }
    bail!("{RELEASES} names no release before the commit {head}")
}

/// The commit that adds the line of a release.
fn adding_commit(checkout: &Path, name: &str) -> Result<String> {
    let line = format!("| {name} |");
    let arguments = ["log", "--reverse", "--format=%H", "-S", &line, "--", RELEASES];
    let commits = git(checkout, &arguments)?.unwrap_or_default();
    let commit = commits.lines().next().with_context(|| {
        format!("no commit of the history adds the line of release {name} to {RELEASES}; commit it")
    })?;
    // At the end of a shallow history every line seems to be new.
    let shallow = git(checkout, &["rev-parse", "--is-shallow-repository"])?;
    let has_parent = git(checkout, &["rev-parse", "--verify", "--quiet", &format!("{commit}^")])?;
    if shallow.as_deref() == Some("true") && has_parent.is_none() {
        return Err(MissingHistory(format!(
            "the clone is shallow and lacks the commit of release {name}; run `git fetch --unshallow`"
        ))
        .into());
    }
    Ok(commit.to_owned())
}

/// The numbers and names of the releases of a table.
fn names(table: &str) -> Vec<([u32; 3], String)> {
    let name = |line: &str| {
        let name = line.strip_prefix("| ")?.split(" |").next()?;
        let numbers: Vec<u32> = name.split('.').map_while(|part| part.parse().ok()).collect();
        Some((<[u32; 3]>::try_from(numbers).ok()?, name.to_owned()))
    };
    table.lines().filter_map(name).collect()
}

/// The output of git, or `None` if git fails.
fn git(checkout: &Path, arguments: &[&str]) -> Result<Option<String>> {
    let output = Command::new("git").args(arguments).current_dir(checkout).output();
    let output = output.context("cannot run git; install git")?;
    let text = String::from_utf8(output.stdout).context("git wrote other bytes than UTF-8")?;
    ensure!(output.status.code().is_some(), "git {arguments:?} was killed");
    Ok(output.status.success().then(|| text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Checkout(tempfile::TempDir);

    impl Checkout {
        fn new() -> Checkout {
            let checkout = Checkout(tempfile::tempdir().unwrap());
            checkout.git(&["init", "--quiet", "."]);
            checkout.commit("README", "x\n");
            checkout
        }

        fn git(&self, arguments: &[&str]) -> String {
            let identity =
                ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"];
            let all = [&identity[..], arguments].concat();
            git(self.0.path(), &all).unwrap().unwrap_or_else(|| panic!("git {arguments:?}"))
        }

        fn commit(&self, file: &str, text: &str) -> String {
            fs::write(self.0.path().join(file), text).unwrap();
            self.git(&["add", file]);
            self.git(&["commit", "--quiet", "-m", "m"]);
            self.git(&["rev-parse", "HEAD"])
        }

        fn last(&self) -> Result<Release> {
            last_release(self.0.path())
        }
    }

    const HEAD: &str = "# Releases\n\n| release | date | contents |\n|---|---|---|\n";

    #[test]
    fn the_last_release_is_the_commit_that_adds_its_line() {
        let checkout = Checkout::new();
        let first = format!("{HEAD}| 0.1.0 | 2026-01-01 | first |\n");
        let added = checkout.commit(RELEASES, &first);
        let failure = checkout.last().unwrap_err();
        assert!(failure.to_string().contains("no release before"), "{failure}");
        checkout.commit("README", "y\n");
        assert_eq!(
            checkout.last().unwrap(),
            Release { name: "0.1.0".into(), commit: added.clone() }
        );
        // Other words in the line do not make another release of it.
        let first = first.replace("first", "the first");
        checkout.commit(RELEASES, &first);
        assert_eq!(checkout.last().unwrap().commit, added);
        // The line of HEAD's own commit is this release, and not the last one.
        let second = format!("{first}| 0.10.0 | 2026-01-02 | second |\n");
        let own = checkout.commit(RELEASES, &second);
        assert_eq!(checkout.last().unwrap().commit, added);
        checkout.commit(RELEASES, &format!("{second}| 0.9.0 | 2026-01-03 | third |\n"));
        assert_eq!(checkout.last().unwrap(), Release { name: "0.10.0".into(), commit: own });
    }

    #[test]
    fn without_history_the_words_say_what_to_do() {
        let checkout = Checkout::new();
        checkout.commit(RELEASES, &format!("{HEAD}| 0.1.0 | 2026-01-01 | first |\n"));
        checkout.commit("README", "y\n");
        let clone = tempfile::tempdir().unwrap();
        let from = format!("file://{}", checkout.0.path().display());
        let to = clone.path().join("clone");
        let quiet = ["clone", "--quiet", "--depth", "1", &from];
        git(clone.path(), &[&quiet[..], &["clone"]].concat()).unwrap().unwrap();
        let failure = last_release(&to).unwrap_err();
        assert!(failure.is::<MissingHistory>(), "{failure}");
        assert!(failure.to_string().contains("git fetch --unshallow"), "{failure}");
        git(&to, &["fetch", "--quiet", "--unshallow"]).unwrap().unwrap();
        assert_eq!(last_release(&to).unwrap().name, "0.1.0");

        let archive = tempfile::tempdir().unwrap();
        let failure = last_release(archive.path()).unwrap_err();
        assert!(failure.is::<MissingHistory>(), "{failure}");
        assert!(failure.to_string().contains("clone the repository"), "{failure}");
    }
}
