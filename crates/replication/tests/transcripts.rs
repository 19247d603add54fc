//! Runs the transcripts of `testdata/*.txt`: what happens to a replica and what it does about that, one file
//! for each rule. `UPDATE=1 cargo test -p replication` rewrites what is recorded; a person then reads the
//! difference. The commands are explained in `testdata/README.md`.

mod transcript;

use std::fs;
use std::path::{Path, PathBuf};

fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let entries = fs::read_dir(dir).expect("testdata is there");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let mut files: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "txt")).collect();
    files.sort();
    files
}

#[test]
fn transcripts_are_as_recorded() {
    let update = std::env::var_os("UPDATE").is_some();
    let mut differing = Vec::new();
    let files = files();
    assert!(files.len() >= 25, "{} transcripts", files.len());
    for path in files {
        let recorded = fs::read_to_string(&path).expect("it was listed");
        let actual = transcript::run(&recorded);
        if actual == recorded {
            continue;
        }
        if update {
            fs::write(&path, actual).expect("testdata can be written");
        } else {
            differing.push(format!("{}\n{}", path.display(), difference(&recorded, &actual)));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[cfg(debug_assertions)]
#[test]
fn a_transcript_finds_each_rule_of_generations_left_out() {
    let name = "r9_a_regenerated_quorum_truncates_nothing_of_the_lost_one.txt";
    for mutant in replication::mutants::Mutant::OF_GENERATIONS {
        assert_found_by(name, mutant);
    }
}

#[cfg(debug_assertions)]
#[test]
fn a_transcript_finds_a_follower_that_keeps_what_its_leader_cannot_compare() {
    let name = "r2_a_log_that_its_leader_cannot_compare_starts_over.txt";
    assert_found_by(name, replication::mutants::Mutant::KeepsUnproven);
}

#[cfg(debug_assertions)]
fn assert_found_by(name: &str, mutant: replication::mutants::Mutant) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    let recorded = fs::read_to_string(path).expect("the transcript can be read");
    replication::mutants::plant(Some(mutant));
    let actual = transcript::run(&recorded);
    replication::mutants::plant(None);
    assert_ne!(actual, recorded, "{mutant:?}");
}

/// The first line that differs, with what stands before it.
fn difference(recorded: &str, actual: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (recorded.lines().collect(), actual.lines().collect());
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let before = old[same.saturating_sub(4)..same].join("\n  ");
    let line = |lines: &[&str]| lines.get(same).copied().unwrap_or("(end)").to_owned();
    format!("  {before}\n- {}\n+ {}", line(&old), line(&new))
}
