//! The earlier program after `cluster finalize`: it must end with one line, and change nothing.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use peer::highwater::Cluster;

use super::untouched::FolderContent;
use super::{BROKERS, Trial, verbs};

/// Time within which a program that cannot run must have ended.
pub const END_LIMIT: Duration = Duration::from_secs(120);

impl Trial<'_> {
    /// Finalizes while a broker is stopped whose last program was this release's: its folder keeps the earlier levels. The
    /// earlier program must not join again with this folder, and must leave the folder usable.
    pub(super) fn finalize_with_a_stopped_broker(&mut self, old: &Path, new: &Path) -> Result<()> {
        let index = self.another_than_controller()?;
        let others = self.bootstrap_without(index);
        let before = verbs::levels(&others)?;
        let newest = verbs::newest_levels(&others, (index as i32 + 1) % BROKERS as i32 + 1)?;
        self.cluster.stop_one(index)?;
        verbs::finalize(new, &others, newest)?;
        println!(
            "upgrade: finalized from {before:?} to {newest:?} while broker {} is down",
            index + 1
        );
        if newest == before {
            println!("upgrade: the releases have the same levels: nothing to refuse");
            return self.start_again(index);
        }
        self.cluster.set_program(index, old);
        let outcome = self.cluster.run_to_end(index, END_LIMIT)?;
        let status = outcome.status.with_context(|| {
            format!("the earlier program runs on in a finalized cluster: {}", outcome.story())
        })?;
        ensure!(!status.success(), "the earlier program ended with success: {}", outcome.story());
        println!(
            "upgrade: the earlier program on a folder below the levels: {}",
            last_line(&outcome.errors())
        );
        self.cluster.set_program(index, new);
        self.start_again(index)
    }

    /// Tries the earlier program on a folder that has the new levels.
    pub(super) fn refuse_raised_folder(&mut self, old: &Path, new: &Path) -> Result<()> {
        let index = self.another_than_controller()?;
        self.cluster.stop_one(index)?;
        self.cluster.set_program(index, old);
        let line = refused(&self.cluster, index, &[])?;
        println!("upgrade: the earlier program on a folder of the new levels: {line}");
        self.cluster.set_program(index, new);
        self.start_again(index)
    }
}

/// Runs a broker's program, which must end with failure and one line of words, and change no file but those of the names
/// `except`. Returns the line.
///
/// # Errors
/// The program runs on, succeeds, gives more or less than a line of words, or changes a file.
pub fn refused(cluster: &Cluster, index: usize, except: &[&str]) -> Result<String> {
    let folder = cluster.data_folder(index);
    let before = FolderContent::read(folder)?;
    let outcome = cluster.run_to_end(index, END_LIMIT)?;
    let status = outcome.status.with_context(|| {
        format!("the program runs on a folder that it cannot read: {}", outcome.story())
    })?;
    ensure!(!status.success(), "the program ended with success: {}", outcome.story());
    let errors = outcome.errors();
    let cause =
        cause(&errors).with_context(|| format!("one line expected: {}", outcome.story()))?;
    before.check(folder, except).context("a program that cannot read the folder changed it")?;
    Ok(cause.to_owned())
}

/// The one line of words behind the title of a failure; lines of the log come before the title.
fn cause(errors: &str) -> Option<&str> {
    let mut failure = errors.lines().skip_while(|line| !line.starts_with("error: "));
    match (failure.next(), failure.next(), failure.next()) {
        (Some(_), Some(cause), None) => Some(cause.trim()),
        _ => None,
    }
}

fn last_line(text: &str) -> &str {
    text.lines().next_back().unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_one_line_of_words() {
        let log = "2026-11-27T10:14:45Z  INFO limit of open files\n";
        let title = "error: the broker cannot start\n";
        assert_eq!(cause(&format!("{log}{title}  level 2\n")), Some("level 2"));
        assert_eq!(cause(&format!("{log}{title}")), None);
        assert_eq!(cause(&format!("{title}  level 2\n  at line 7\n")), None);
        assert_eq!(cause(log), None);
    }
}
