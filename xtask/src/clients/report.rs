//! What each client did: rows, the table on the terminal, the file that the documentation reads.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// How a scenario ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// Everything that it checks held.
    Pass,
    /// Something did not hold; the reason says what.
    Fail,
    /// It did not run; the reason says why.
    Skip,
}

/// One scenario of one client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The client's name, as its users say it.
    pub client: String,
    /// The version that ran; empty when it never started.
    pub version: String,
    /// What was tried.
    pub scenario: String,
    /// How it ended.
    pub result: Ending,
    /// Why it failed or was skipped; empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Seconds that it took.
    pub seconds: f64,
}

impl Row {
    /// A scenario that failed and was tried once more: machines that run continuous integration
    /// stall. What passes then says so, and why it did not pass at first.
    #[must_use]
    pub fn or_second(self, mut second: Row) -> Row {
        if second.result == Ending::Pass {
            second.reason = format!("at the second try; the first: {}", self.reason);
        }
        second
    }
}

/// All rows of one run against one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The target's version or commit.
    pub version: String,
    /// In the order in which they ran.
    pub rows: Vec<Row>,
}

/// The file: one run a target.
type Book = BTreeMap<String, Run>;

/// Prints one finished row at once, so that one sees the suite move.
pub fn print_row(row: &Row) {
    let result = match row.result {
        Ending::Pass => "pass",
        Ending::Fail => "FAIL",
        Ending::Skip => "skip",
    };
    let first = row.reason.lines().next().unwrap_or_default();
    let line = format!(
        "{:<17} {:<9} {:<26} {result} {:>6.1}s  {first}",
        row.client, row.version, row.scenario, row.seconds
    );
    println!("{}", line.trim_end());
}

/// The heading above the rows.
pub fn print_heading() {
    println!("{:<17} {:<9} {:<26} RESULT  TIME  REASON", "CLIENT", "VERSION", "SCENARIO");
}

/// Prints the failures in full and the sum; returns how many failed.
pub fn print_sum(rows: &[Row]) -> usize {
    let count = |ending| rows.iter().filter(|row| row.result == ending).count();
    for row in rows.iter().filter(|row| row.result == Ending::Fail) {
        println!("\n--- {} / {}\n{}", row.client, row.scenario, row.reason);
    }
    let failed = count(Ending::Fail);
    println!("\n{} passed, {failed} failed, {} skipped", count(Ending::Pass), count(Ending::Skip));
    failed
}

/// Puts the run of `target` into the file at `path`, beside the runs of other targets.
pub fn write(path: &Path, target: &str, run: Run) -> Result<()> {
    let mut book: Book = match fs::read_to_string(path) {
        Ok(text) => {
            serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?
        }
        Err(_) => Book::new(),
    };
    book.insert(target.to_owned(), run);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let text = serde_json::to_string_pretty(&book)? + "\n";
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(reason: &str) -> Run {
        let row = Row {
            client: "kcat".into(),
            version: "1".into(),
            scenario: "list".into(),
            result: Ending::Fail,
            reason: reason.into(),
            seconds: 0.5,
        };
        Run { version: "v".into(), rows: vec![row] }
    }

    #[test]
    fn a_run_replaces_only_its_own_target() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clients.json");
        write(&path, "a", run("old")).unwrap();
        write(&path, "b", run("other")).unwrap();
        write(&path, "a", run("new")).unwrap();
        let book: Book = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(book["a"], run("new"));
        assert_eq!(book["b"], run("other"));
    }

    #[test]
    fn the_sum_counts_failures() {
        assert_eq!(print_sum(&run("why").rows), 1);
    }
}
