//! A run's folder: the plan, written first; the rounds, appended as they are measured; the environment. What is in
//! it is never rewritten, so that whatever ends a run, what was measured stays and another run goes on from it.
//!
//! `plan.json`, `environment.json`, `rounds.jsonl`, `lock`.

use std::fs::{self, File};
use std::io::{BufRead, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use experiment::environment::Environment;
use experiment::round::Round;
use flate2::read::GzDecoder;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A run's folder, locked by this process.
pub struct Store {
    folder: PathBuf,
    rounds: File,
    _lock: File,
}

impl Store {
    /// A folder for a new run: made if missing, refused if it holds one.
    pub fn create(folder: &Path) -> Result<Store> {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let rounds = folder.join("rounds.jsonl");
        let has_rounds = rounds.metadata().is_ok_and(|file| file.len() > 0);
        ensure!(
            !has_rounds || folder.join("plan.json").exists(),
            "{} holds rounds of a run whose plan is gone: name another --out",
            folder.display()
        );
        ensure!(
            !folder.join("plan.json").exists(),
            "{} holds a run already: go on with `highwater lab resume {}`, or name another --out",
            folder.display(),
            folder.display()
        );
        Store::lock(folder)
    }

    /// The folder of a run that was begun.
    pub fn open(folder: &Path) -> Result<Store> {
        ensure!(
            folder.join("plan.json").exists(),
            "{} holds no run: there is no plan.json",
            folder.display()
        );
        Store::lock(folder)
    }

    fn lock(folder: &Path) -> Result<Store> {
        let lock = File::create(folder.join("lock"))
            .with_context(|| format!("cannot write to {}", folder.display()))?;
        if lock.try_lock().is_err() {
            bail!("another lab runs in {}", folder.display());
        }
        let rounds = File::options()
            .create(true)
            .append(true)
            .read(true)
            .open(folder.join("rounds.jsonl"))
            .with_context(|| format!("cannot write to {}", folder.display()))?;
        let mut store = Store { folder: folder.to_owned(), rounds, _lock: lock };
        store.cut_torn_line()?;
        Ok(store)
    }

    /// A process that was killed while it wrote leaves half a line behind: that round is run again.
    fn cut_torn_line(&mut self) -> Result<()> {
        let path = self.folder.join("rounds.jsonl");
        let bytes = fs::read(&path)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole < bytes.len() {
            self.rounds.set_len(whole as u64)?;
            self.rounds.seek(SeekFrom::End(0))?;
        }
        Ok(())
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds a round, and sees to it that it stays.
    pub fn append(&mut self, round: &Round) -> Result<()> {
        let mut line = serde_json::to_vec(round)?;
        line.push(b'\n');
        self.rounds
            .write_all(&line)
            .with_context(|| format!("cannot write to {}", self.folder.display()))?;
        self.rounds.sync_data()?;
        Ok(())
    }

    /// Writes a document such as the plan.
    pub fn write<T: Serialize>(&self, name: &str, document: &T) -> Result<()> {
        write_whole(&self.folder.join(name), &serde_json::to_vec_pretty(document)?)
    }
}

/// Writes a file so that it is there as a whole or not at all.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let fresh = path.with_extension("new");
    fs::write(&fresh, bytes).with_context(|| format!("cannot write {}", fresh.display()))?;
    fs::rename(&fresh, path).with_context(|| format!("cannot write {}", path.display()))
}

/// A document of a run's folder, plain or as `NAME.gz`.
pub fn read<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T> {
    let text = read_bytes(folder, name).with_context(|| {
        format!("{} is no folder of a run: cannot read {name}", folder.display())
    })?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{} is damaged", folder.join(name).display()))
}

/// The bytes of a file, or of `NAME.gz` unpacked where only that exists.
fn read_bytes(folder: &Path, name: &str) -> std::io::Result<Vec<u8>> {
    let packed = folder.join(format!("{name}.gz"));
    if folder.join(name).exists() || !packed.exists() {
        return fs::read(folder.join(name));
    }
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(packed)?).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The environment of a run.
pub fn environment(folder: &Path) -> Result<Environment> {
    read(folder, "environment.json")
}

/// All rounds of a run. A torn last line is left out, and so is a round that failed and was run again.
pub fn rounds(folder: &Path) -> Result<Vec<Round>> {
    let path = folder.join("rounds.jsonl");
    let bytes = read_bytes(folder, "rounds.jsonl")
        .with_context(|| format!("{} holds no rounds", folder.display()))?;
    let lines: Vec<String> = bytes.lines().collect::<std::io::Result<_>>()?;
    let mut rounds: Vec<Round> = Vec::with_capacity(lines.len());
    for (number, line) in lines.iter().enumerate() {
        match serde_json::from_str(line) {
            Ok(round) => add(&mut rounds, round),
            Err(_) if number + 1 == lines.len() => break,
            Err(error) => bail!("line {} of {} is damaged: {error}", number + 1, path.display()),
        }
    }
    Ok(rounds)
}

/// Adds a round, in the place of the one of the same step that failed.
fn add(rounds: &mut Vec<Round>, round: Round) {
    let before = rounds.iter().rposition(|old| old.order == round.order && old.failure.is_some());
    if let Some(at) = before {
        rounds.remove(at);
    }
    rounds.push(round);
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::round::{Durability, Purpose, Verdict};

    fn round(order: u32) -> Round {
        Round {
            experiment: "e".to_owned(),
            cell: Default::default(),
            target: "t".to_owned(),
            round: 0,
            order,
            purpose: Purpose::Cell,
            started_ms: 0,
            emulated: String::new(),
            deviations: Vec::new(),
            metrics: Default::default(),
            histograms: Default::default(),
            counts: Vec::new(),
            verdict: Verdict::default(),
            durability: Durability::Unknown,
            warnings: Vec::new(),
            failure: None,
        }
    }

    #[test]
    fn a_torn_line_costs_its_round_only() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::create(folder.path()).unwrap();
        store.append(&round(0)).unwrap();
        store.append(&round(1)).unwrap();
        drop(store);
        let path = folder.path().join("rounds.jsonl");
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 7]).unwrap();
        fs::write(folder.path().join("plan.json"), "{}").unwrap();
        assert_eq!(rounds(folder.path()).unwrap(), [round(0)]);
        let mut store = Store::open(folder.path()).unwrap();
        store.append(&round(2)).unwrap();
        assert_eq!(rounds(folder.path()).unwrap(), [round(0), round(2)]);
    }

    #[test]
    fn packed_files_are_read_where_the_plain_ones_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::create(folder.path()).unwrap();
        store.append(&round(0)).unwrap();
        drop(store);
        let plain = folder.path().join("rounds.jsonl");
        let packed = File::create(folder.path().join("rounds.jsonl.gz")).unwrap();
        let mut pack = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
        pack.write_all(&fs::read(&plain).unwrap()).unwrap();
        pack.finish().unwrap();
        fs::remove_file(&plain).unwrap();
        assert_eq!(rounds(folder.path()).unwrap(), [round(0)]);
    }

    #[test]
    fn a_failed_round_that_was_run_again_counts_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::create(folder.path()).unwrap();
        let failed = Round { failure: Some("gone".to_owned()), ..round(1) };
        for round in [round(0), failed.clone(), round(2), failed.clone(), round(1)] {
            store.append(&round).unwrap();
        }
        assert_eq!(rounds(folder.path()).unwrap(), [round(0), round(2), round(1)]);
        store.append(&Round { order: 3, ..failed.clone() }).unwrap();
        assert_eq!(rounds(folder.path()).unwrap().len(), 4);
    }

    #[test]
    fn rounds_without_their_plan_are_not_mixed_with_others() {
        let folder = tempfile::tempdir().unwrap();
        Store::create(folder.path()).unwrap().append(&round(0)).unwrap();
        let refused = Store::create(folder.path()).err().unwrap().to_string();
        assert!(refused.contains("another --out"), "{refused}");
    }

    #[test]
    fn two_labs_do_not_share_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let _store = Store::create(folder.path()).unwrap();
        assert!(Store::create(folder.path()).err().unwrap().to_string().contains("another lab"));
    }

    #[test]
    fn a_run_is_not_begun_over_another() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        store.write("plan.json", &1).unwrap();
        drop(store);
        assert!(Store::create(folder.path()).err().unwrap().to_string().contains("resume"));
    }
}
