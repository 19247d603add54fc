//! A later release, played by this release's program: what it writes is skipped or refused by this release, and survives.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::refusal::{END_LIMIT, refused};
use super::{BROKERS, Stopping, Trial, verbs};

/// Makes a debug build play a later release; see `model::later_release`.
const PLAY: &str = "HIGHWATER_PLAY_LATER_RELEASE=1";
/// The file that names the levels of a log directory.
const META: &str = "meta.properties";
/// A copy of the journal's mark of a clean stop, for Kafka's tools: a start removes the file before it reads the journal.
const CLEAN_MARKER: &str = ".kafka_cleanshutdown";

impl Trial<'_> {
    /// Goes to a later release and back, then finalizes the later release's levels and tries this release.
    pub(super) fn try_the_future(&mut self, new: &Path) -> Result<()> {
        let later = self.later_program(new)?;
        let before = verbs::levels(&self.cluster.bootstrap())?;
        let index = self.another_than_controller()?;
        self.change_program(index, &later, Stopping::Orderly).context("to a later release")?;
        let newest = verbs::newest_levels(&self.cluster.bootstrap(), index as i32 + 1)?;
        if newest <= before {
            println!("upgrade: no later release: {} is a release build", new.display());
            return self.change_program(index, new, Stopping::Orderly);
        }
        self.exercise()?;
        // All three, so that the later release leads the quorum, and this release reads its records.
        self.roll(&later, Stopping::Orderly, "to a later release")?;
        self.exercise()?;
        self.roll(new, Stopping::Killed, "back from the later release")?;
        self.exercise()?;
        let found = verbs::levels(&self.cluster.bootstrap())?;
        ensure!(found == before, "levels rose without cluster finalize: {before:?} to {found:?}");
        self.roll(&later, Stopping::Orderly, "to the later release again")?;
        self.finalize_later(&later, new, newest)?;
        self.refuse_later_folders(&later, new)?;
        self.exercise()
    }

    /// A script that plays the later release.
    fn later_program(&self, new: &Path) -> Result<PathBuf> {
        let folder = self.cluster.data_folder(0).parent().context("the folder has a parent")?;
        let path = folder.join("later-release");
        let program = new.to_str().context("the program's name is not text")?;
        fs::write(&path, format!("#!/bin/sh\nexec env {PLAY} '{program}' \"$@\"\n"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }

    /// Finalizes the later release's levels while a broker is stopped, and tries this release on that broker's folder, which
    /// has the earlier levels: the folder must stay usable for the later release.
    fn finalize_later(&mut self, later: &Path, new: &Path, newest: (i16, i16)) -> Result<()> {
        let index = self.another_than_controller()?;
        self.cluster.stop_one(index)?;
        verbs::finalize(later, &self.bootstrap_without(index), newest)?;
        self.cluster.set_program(index, new);
        let outcome = self.cluster.run_to_end(index, END_LIMIT)?;
        let status = outcome.status.with_context(|| {
            format!("this release runs on in a cluster of a later one: {}", outcome.story())
        })?;
        let errors = outcome.errors();
        ensure!(!status.success(), "this release ended with success: {}", outcome.story());
        let words = errors.lines().next_back().unwrap_or_default().to_owned();
        ensure!(words.contains("newer"), "the words do not name a newer release: {errors}");
        println!("upgrade: this release in a cluster of a later one: {words}");
        self.cluster.set_program(index, later);
        self.start_again(index)
    }

    /// Tries this release on a folder of the later release: by its levels, and, as if an earlier program had lost the lines
    /// of the levels, by the entries and records alone.
    fn refuse_later_folders(&mut self, later: &Path, new: &Path) -> Result<()> {
        let index = self.another_than_controller()?;
        self.cluster.stop_one(index)?;
        self.cluster.set_program(index, new);
        let line = refused(&self.cluster, index, &[])?;
        println!("upgrade: this release on a folder of a later one: {line}");
        let meta = self.cluster.data_folder(index).join(META);
        let text = fs::read_to_string(&meta)?;
        fs::write(&meta, at_first_levels(&text))?;
        let line = refused(&self.cluster, index, &[CLEAN_MARKER])?;
        println!("upgrade: the same without the lines of the levels: {line}");
        fs::write(&meta, text)?;
        self.cluster.set_program(index, later);
        self.start_again(index)?;
        ensure!(self.cluster.count() == BROKERS, "every broker runs");
        Ok(())
    }
}

/// The content of `meta.properties` with the lowest levels.
fn at_first_levels(text: &str) -> String {
    let line = |line: &str| match line.split_once('=') {
        Some((key, _)) if key.starts_with("highwater.") => format!("{key}=1\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_levels_are_lowered() {
        let text = "version=1\nnode.id=3\nhighwater.journal=3\nhighwater.version=5\n";
        let expected = "version=1\nnode.id=3\nhighwater.journal=1\nhighwater.version=1\n";
        assert_eq!(at_first_levels(text), expected);
    }
}
